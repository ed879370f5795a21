"""What is counted in bucket ranges, and the sum of it."""

from reconcile.plan.range_counts import RangeCounts


def test_ranges_are_added_up_number_by_number_and_name_by_name() -> None:
    """What only one of them has counts, too; names are in order."""
    one = RangeCounts(ledgers=2, stored=5, findings={"c": 2, "b": 1})
    other = RangeCounts(ledgers=3, unheld=1, findings={"a": 4, "c": 1}, verdicts={"clean": 3})
    united = one + other
    assert united == RangeCounts(
        ledgers=5, stored=5, unheld=1, findings={"a": 4, "b": 1, "c": 3}, verdicts={"clean": 3}
    )
    assert list(united.findings) == ["a", "b", "c"]
