"""Some ledgers of many, found in columns; who made them; and reasons gathered for each."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from reconcile.deletes.tombstones import DeleteVerdict
from reconcile.deletes.verification.makers import find_hidden, find_others, list_compacted_topics, read_makers
from reconcile.deletes.verification.objections import UNSAFE, Objections, UnsafeReason
from reconcile.deletes.verification.wanted import WantedLedgers
from recovery.model.ids import LedgerId
from recovery.model.tables import CUSTOM

LEDGERS = [LedgerId(0, 5), LedgerId(-1, 9), LedgerId(0, 5), LedgerId(3, -2)]


def find(wanted: WantedLedgers, *ledgers: LedgerId) -> list[int]:
    """Return the number of each ledger."""
    scope = np.array([item.scope for item in ledgers], np.int64)
    ledger = np.array([item.ledger for item in ledgers], np.int64)
    found: list[int] = wanted.find(scope, ledger).tolist()
    return found


def test_each_wanted_ledger_has_one_number() -> None:
    """However often it is named; both halves of an id count, and what is not wanted has none."""
    wanted = WantedLedgers(LEDGERS)
    assert (len(wanted), wanted.ledgers) == (3, [LedgerId(-1, 9), LedgerId(0, 5), LedgerId(3, -2)])
    assert find(wanted, *wanted.ledgers) == [0, 1, 2]
    strangers = [LedgerId(0, 9), LedgerId(-1, 5), LedgerId(3, -1), LedgerId(-9, 0), LedgerId(9, 9), LedgerId(0, 4)]
    assert find(wanted, *strangers) == [-1] * 6
    rows = pa.table({"scope": [3, 0, 0], "ledger": [-2, 4, 5], "text": ["a", "b", "c"]})
    chosen, numbers = wanted.select(rows)
    assert (chosen["text"].to_pylist(), numbers.tolist()) == (["a", "c"], [2, 1])


def test_where_nothing_is_wanted_nothing_is_read() -> None:
    """No bucket of no dataset: there may be none."""
    nothing = WantedLedgers([])
    assert find(nothing, *LEDGERS) == [-1] * 4
    assert list(nothing.read(cast("Any", None), "ledgers", ("raw",))) == []


class Table:
    """A dataset of one table, which notes what is read of it."""

    def __init__(self, ledgers: Sequence[LedgerId], rows: int) -> None:
        """Take the ledgers that it has, and how many rows it says that it has."""
        self.ledgers, self.count = ledgers, rows
        self.asked: list[range] = []

    def rows(self, _name: str) -> int:
        """Return how many rows there are."""
        return self.count

    def read(self, _name: str, *, buckets: range, columns: Sequence[str]) -> pa.Table:
        """Return the rows of some buckets."""
        self.asked.append(buckets)
        rows = [item for item in self.ledgers if item.bucket in buckets]
        return pa.table({"scope": [item.scope for item in rows], "ledger": [item.ledger for item in rows]}).select(
            columns
        )


@pytest.mark.parametrize("rows", [3, 1 << 14, 3 << 14, 1 << 30])
def test_only_buckets_with_a_wanted_ledger_are_read(rows: int) -> None:
    """Each once, more of them together the fewer rows there are; the first bucket and the last one, too."""
    ends = [next(one for n in range(100_000) if (one := LedgerId(0, n)).bucket == bucket) for bucket in (0, 1, 4095)]
    table = Table([*ends, LedgerId(9, 9)], rows)
    wanted = WantedLedgers(ends)
    read = [(part["ledger"].to_pylist(), numbers) for part, numbers in wanted.read(cast("Any", table), "x", ())]
    assert sorted(ledger for part, _ in read for ledger in part) == sorted(item.ledger for item in ends)
    assert [wanted.ledgers[n].ledger for _, numbers in read for n in numbers] == [n for part, _ in read for n in part]
    count = {3: 1, 1 << 14: 1, 3 << 14: 2, 1 << 30: 3}[rows]
    assert len(table.asked) == count
    if count < 3:
        assert max(map(len, table.asked)) >= 4096 // 3


def make_custom(*rows: dict[str, bytes] | None) -> pa.ChunkedArray:
    """Return custom metadata of records, in two chunks."""
    lists = [None if row is None else [{"key": key, "value": value} for key, value in row.items()] for row in rows]
    return pa.chunked_array([pa.array(lists[:2], CUSTOM), pa.array(lists[2:], CUSTOM)])


def test_who_made_a_ledger() -> None:
    """Of Pulsar its part, else the application; what is no text is nobody's name, and a record may say nothing."""
    custom = make_custom(
        {"application": b"pulsar", "component": b"schema"},
        None,
        {"application": b"pulsar"},
        {"other": b"x", "application": b"function", "component": b"managed-ledger"},
        {"component": b"managed-ledger"},
        {"application": b"\xff", "component": b"schema"},
        {"component": b"\xff", "application": b"pulsar"},
        {"component": b"managed-ledger", "application": b"pulsar"},
        {"component": b"compacted-ledger", "application": b"pulsar"},
        {},
    )
    makers = ["schema", None, "pulsar", "function", None, None, "pulsar", "managed-ledger", "compacted-ledger", None]
    assert read_makers(custom).to_pylist() == makers
    assert read_makers(custom.combine_chunks()).to_pylist() == makers
    assert np.flatnonzero(find_hidden(custom)).tolist() == [2, 6, 8]
    assert np.flatnonzero(find_others(custom)).tolist() == [1, 3, 4, 5, 9]


def test_a_compacted_ledger_is_hidden_while_its_subscription_keeps_its_name() -> None:
    """The `__compaction` of its topic has a ledger of its own; else its record names all. Buckets are always listed."""
    compacted = {"application": b"pulsar", "component": b"compacted-ledger"}
    custom = make_custom(
        {**compacted, "pulsar/compactedTopic": b"persistent://public/default/loaded"},
        {**compacted, "pulsar/compactedTopic": b"persistent://public/default/unloaded"},
        {**compacted, "pulsar/compactedTopic": b"persistent://public/default/a b/~*"},
        compacted,
        {"application": b"pulsar", "component": b"delayed-index-bucket"},
        {"application": b"pulsar", "component": b"later than this"},
        {"application": b"pulsar", "pulsar/compactedTopic": b"persistent://public/default/unloaded"},
        {**compacted, "application": b"another"},
    )
    owners = {
        "cursor __compaction of public/default/persistent/loaded",
        "cursor mine of public/default/persistent/unloaded",
        "compacted topic of public/default/persistent/unloaded/__compaction",
    }
    assert np.flatnonzero(find_hidden(custom, owners)).tolist() == [0, 3, 5, 6]
    # Where no records were listed, nothing tells.
    assert np.flatnonzero(find_hidden(custom)).tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_topics_of_compacted_ledgers_are_those_of_no_other_ledger() -> None:
    """As Pulsar's records name topics, each once; a compacted ledger without a topic names none."""
    compacted = {"application": b"pulsar", "component": b"compacted-ledger"}
    custom = make_custom(
        {**compacted, "pulsar/compactedTopic": b"persistent://public/default/a b"},
        {**compacted, "pulsar/compactedTopic": b"persistent://public/default/a b"},
        compacted,
        {"application": b"pulsar", "component": b"schema", "pulsar/compactedTopic": b"persistent://p/d/schema"},
        {"application": b"pulsar", "pulsar/compactedTopic": b"persistent://p/d/nothing"},
        {},
    )
    assert list_compacted_topics(custom) == {"public/default/persistent/a+b"}


def test_ledgers_of_pravega_are_others_until_its_containers_were_listed() -> None:
    """Its records name all of them; those of any other application stay others."""
    custom = make_custom({"application": b"Pravega"}, {"application": b"pulsar"}, {"application": b"function"}, {})
    assert np.flatnonzero(find_others(custom)).tolist() == [0, 2, 3]
    assert np.flatnonzero(find_others(custom, has_pravega=True)).tolist() == [2, 3]


def test_one_thing_that_was_seen_makes_it_unsafe() -> None:
    """Whatever else could not be seen; reasons stand once each, in the order of the alphabet."""
    objections = Objections(4)
    assert objections.judge() == ([DeleteVerdict.SAFE] * 4, [()] * 4)
    objections.add(np.array([], np.int64), UnsafeReason.OPEN, "nobody")
    objections.add(np.array([2, 0]), UnsafeReason.TOO_YOUNG, ["two", "none"])
    objections.add(np.array([2]), UnsafeReason.OPEN, "it is open")
    objections.add(np.array([2]), UnsafeReason.OPEN, "it is open")
    assert objections.judge() == (
        [DeleteVerdict.UNDECIDED, DeleteVerdict.SAFE, DeleteVerdict.UNSAFE, DeleteVerdict.SAFE],
        [("TOO_YOUNG: none",), (), ("OPEN: it is open", "TOO_YOUNG: two"), ()],
    )
    objections.add_all(UnsafeReason.BREAKER, "many")
    assert objections.judge()[0] == [DeleteVerdict.UNSAFE] * 4


def test_reasons_that_were_seen_are_those_of_the_contract() -> None:
    """The others say that something could not be seen."""
    assert sorted(UNSAFE) == [
        "BREAKER", "DURABILITY_BREACH", "ENTRIES_BEYOND_END", "IN_QUARANTINE", "IN_RECOVERY", "LOCKED",
        "NOT_ARCHIVED", "NO_RECORD", "OPEN", "REFERENCED", "TOO_LARGE", "UNDER_REPLICATED",
    ]  # fmt: skip
