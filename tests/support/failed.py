"""`python -m tests.support.failed`: print the files of the tests that failed in the last run, by pytest's cache."""

import json
import sys
from pathlib import Path

FOUND = Path(__file__).parents[2] / ".pytest_cache/v/cache/lastfailed"

if __name__ == "__main__":
    files = {name.partition("::")[0] for name in json.loads(FOUND.read_text())} if FOUND.exists() else set()
    sys.stdout.write(" ".join(sorted(files)) + "\n")
