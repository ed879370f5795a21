"""`python -m tests.support.failed`: print the files of the tests that failed in the last run, as pytest's cache has them."""

import json
from pathlib import Path

FOUND = Path(__file__).parents[2] / ".pytest_cache/v/cache/lastfailed"

if __name__ == "__main__":
    print(*sorted({name.partition("::")[0] for name in json.loads(FOUND.read_text())}))
