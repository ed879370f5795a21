"""Decisions are short and numbered: docs/design has one page for each, docs/internals how it works."""

from pathlib import Path
from typing import Final

import pytest

from tests.support.paths import ROOT

DECISIONS: Final = sorted((ROOT / "docs" / "design").glob("*.md"))
MOST_WORDS: Final = 400


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_is_short(page: Path) -> None:
    """What was decided and why, without figures and details."""
    assert len(page.read_text().split()) <= MOST_WORDS


def test_decisions_are_numbered_without_gaps() -> None:
    """Four digits from 0001 on, the same in the name and in the title."""
    numbers = [f"{number:04d}" for number in range(1, len(DECISIONS) + 1)]
    assert [page.name[:4] for page in DECISIONS] == numbers
    assert [page.read_text()[:8] for page in DECISIONS] == [f"# {number}: " for number in numbers]
