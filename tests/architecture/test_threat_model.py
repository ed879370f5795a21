"""The threat model names tests; each is there."""

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
PAGE: Final = (ROOT / "docs/internals/threat-model.md").read_text()


def test_each_test_that_holds_a_line_is_there() -> None:
    """A line without a test that exists would be a wish."""
    rows = [line for line in PAGE.splitlines() if re.match(r"\| (?!who \||---)", line)]
    assert len(rows) >= 10
    for row in rows:
        assert re.search(r"`[\w/]+\.py`", row), row
    for named in re.findall(r"`([\w/]+\.py)`", PAGE):
        assert (ROOT / "tests" / named).is_file(), named
