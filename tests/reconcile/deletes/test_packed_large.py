"""Records that are large beside what a transaction takes: brought apart, a few at a time, or refused by their names."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from backends.protocols import Write
from reconcile.deletes.own_root import open_log
from reconcile.deletes.packed import NODE_BYTES, PackedDecision, PackedRecords, find_places
from reconcile.deletes.records import ARCHIVE, ArchiveMark
from reconcile.errors import PartlyAppliedError
from recovery.model.ids import LedgerId
from tests.reconcile.deletes.test_packed import ROOT, TOP, clock, make_mark, open_own
from tests.support.memory_store import MemoryStore
from tests.support.restores import Recorder


class Narrow(MemoryStore):
    """A store that takes a million bytes at a time, as servers do."""

    def write(self, changes: Sequence[Write]) -> list[int]:
        """Make changes that fit."""
        assert sum(len(change.value or b"") for change in changes) < 1_000_000
        return super().write(changes)


def test_large_records_are_written_a_few_at_a_time(tmp_path: Path) -> None:
    """Two hundred records of 30 kB are six times what a transaction takes: fewer go together, and all are there."""
    store = Narrow()
    ledgers = [LedgerId(0, number) for number in range(200)]
    done: list[LedgerId] = []
    own = open_own(store, tmp_path)
    with open_log(tmp_path / "journal", store, ROOT, clock) as log:
        own.archive.change(
            ledgers, lambda ledger, _: PackedDecision(make_mark(ledger, 30_000)), log, rows=200, done=done.extend
        )
        assert log.cost.transactions < 100
    assert sorted(done) == ledgers
    assert sorted(mark.ledger for node in own.archive.read_all() for mark in node) == ledgers


def test_one_record_that_is_too_large_for_a_node_stands_alone(tmp_path: Path) -> None:
    """It cannot be split further; its neighbours go to other nodes, and all are there."""
    store = MemoryStore()
    own = open_own(store, tmp_path)
    ledgers = [LedgerId(0, n) for n in range(4)]
    with open_log(tmp_path, store, ROOT, clock) as log:
        own.archive.change(
            ledgers, lambda one, _: PackedDecision(make_mark(one, 600_000 if one.ledger == 2 else 10)), log, rows=9
        )
    assert sorted(mark.ledger for node in own.archive.read_all() for mark in node) == ledgers
    large = [key for key, value in store.dump().items() if key.startswith(f"{TOP}/t") and len(value) > NODE_BYTES]
    assert len(large) == 1


def list_pair(bits: int) -> list[LedgerId]:
    """Return two ledgers whose places begin with as many equal bits, and differ in the next one."""
    first = LedgerId(0, 0)
    [place] = find_places([first]).tolist()
    many = [LedgerId(0, number) for number in range(1, 1 << (bits + 4))]
    near = (
        ledger for ledger, other in zip(many, find_places(many).tolist(), strict=True) if shares(place, other, bits)
    )
    return [first, next(near)]


def shares(place: int, other: int, bits: int) -> bool:
    """Return whether so many bits of two places are equal, and not one more."""
    return (place ^ other) >> (63 - bits) == 1


@pytest.mark.parametrize("bits", [0, 1, 7])
@pytest.mark.parametrize("size", [470_000, 880_000])
def test_two_large_records_that_share_a_node_are_brought_apart(bits: int, size: int, tmp_path: Path) -> None:
    """A server takes no transaction with both: the node is split as it is, as often as it takes, then one is written.

    One that is larger than a node stands alone from the beginning; two that are not share the first node.
    """
    store, pair, prepared = Narrow(), list_pair(bits), list[int]()
    own = open_own(store, tmp_path)
    with open_log(tmp_path, store, ROOT, clock) as log:
        own.archive.change(
            pair,
            lambda one, _: PackedDecision(make_mark(one, size)),
            log,
            rows=9,
            prepare=lambda batch: prepared.append(len(batch)),
        )
        splits = bits + (size < NODE_BYTES)
        assert log.cost.transactions == 2 + splits
    # Both were tried together first.
    assert prepared == [2, 1, *[1] * (splits + 1)]
    assert own.archive.read_some(pair) == {one: make_mark(one, size) for one in pair}
    names = store.children(TOP) or []
    assert sum(2.0 ** -(len(name) - 1) for name in names) == 1
    small = [LedgerId(1, number) for number in range(50)]
    with open_log(tmp_path, store, ROOT, clock) as log:
        own.archive.change(small, lambda one, _: PackedDecision(make_mark(one)), log, rows=9)
        own.archive.change(pair, lambda *_: PackedDecision(None), log, rows=9)
    assert own.archive.read_some([*small, *pair]).keys() == set(small)


def test_what_no_transaction_takes_is_refused_by_its_name(tmp_path: Path) -> None:
    """Nothing makes it smaller; nothing of it is written, and the error says which ledger it is."""
    store = MemoryStore()
    own = open_own(store, tmp_path)
    large = LedgerId(0, 3)
    others = [LedgerId(0, number) for number in range(3)]
    with open_log(tmp_path, store, ROOT, clock) as log:
        own.archive.change(others, lambda one, _: PackedDecision(make_mark(one)), log, rows=9)
        with pytest.raises(PartlyAppliedError, match="what is kept of ledger 3 is more than a transaction takes"):
            own.archive.change([large], lambda one, _: PackedDecision(make_mark(one, 950_000)), log, rows=9)
    assert own.archive.read_some([*others, large]).keys() == set(others)
    assert all(len(value) < NODE_BYTES for key, value in store.dump().items() if key.startswith(TOP))


def test_a_rival_that_changes_a_node_before_it_is_split(tmp_path: Path) -> None:
    """The split is made again of what the rival left; after ten times the run stops, and says so."""
    store, [first, second] = MemoryStore(), list_pair(0)
    own = open_own(store, tmp_path)
    left = Counter[LedgerId]()

    def meddle(ledger: LedgerId, _mark: ArchiveMark | None) -> PackedDecision[ArchiveMark]:
        left[ledger] += 1
        return PackedDecision(make_mark(ledger, 470_000))

    with open_log(tmp_path, store, ROOT, clock) as log:
        own.archive.change([first], meddle, log, rows=1)
        recorder = Recorder(store)
        rival = PackedRecords(recorder, TOP, ARCHIVE, None)
        recorder.draw = lambda: "rival"

        def interfere() -> None:
            node = store.get(f"{TOP}/t")
            if node is not None:
                store.write([Write(f"{TOP}/t", node.value, node.version)])

        recorder.interfere = interfere
        with pytest.raises(PartlyAppliedError, match="was changed"):
            rival.change([second], meddle, log, rows=1)
    assert own.archive.read_some([first, second]).keys() == {first}
    assert left == {first: 1, second: 11}


def test_records_that_lie_close_are_brought_apart(tmp_path: Path) -> None:
    """As many bits further as it takes, so that no node of several records is larger than the bound."""
    store = MemoryStore()
    own = open_own(store, tmp_path)
    many = [LedgerId(0, number) for number in range(500)]
    by_bits: dict[int, list[LedgerId]] = {}
    for ledger, place in zip(many, find_places(many).tolist(), strict=True):
        by_bits.setdefault(place >> 58, []).append(ledger)
    pair = max(by_bits.values(), key=len)[:2]
    with open_log(tmp_path, store, ROOT, clock) as log:
        own.archive.change(pair, lambda one, _: PackedDecision(make_mark(one, 300_000)), log, rows=9)
    assert own.archive.read_some(pair).keys() == set(pair)
    assert all(len(value) <= NODE_BYTES for key, value in store.dump().items() if key.startswith(TOP))
