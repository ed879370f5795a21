"""What was not judged is said by its reason, with its share of all that records ask for."""

from typing import Any

from reconcile.check.scrutiny.coverage import describe_not_judged, find_covered_pct, list_not_judged


def test_skipped_and_undecided_copies_are_not_judged() -> None:
    """Skipped ones by their reason; the rest is undecided."""
    coverage = {"positions": 1000, "judged": 220, "passed": {"marked": 770}}
    assert list_not_judged(coverage) == {"marked": 770, "undecided": 10}
    assert describe_not_judged(coverage) == "77.0 % marked, 1.0 % undecided"
    assert find_covered_pct(coverage) == 22.0


def test_where_all_was_judged_nothing_is_said() -> None:
    """Nor where nothing is asked for."""
    for asked in (10, 0):
        coverage: dict[str, Any] = {"positions": asked, "judged": asked, "passed": {}}
        assert (describe_not_judged(coverage), find_covered_pct(coverage)) == ("", 100.0)
