"""Records packed many to a node: every place covered once, whatever is split; nobody's change is lost."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.memory import MemoryStore
from backends.protocols import Write
from reconcile.deletes.own_root import OwnRoot, make_own_root, open_log
from reconcile.deletes.packed import NODE_BYTES, Decision, find_places
from reconcile.deletes.records import ArchiveMark
from reconcile.errors import PartlyAppliedError
from recovery.model.ids import LedgerId
from tests.support.restores import Recorder

ROOT = "/ledgers"
TOP = "/ledgers-bkmeta/archive"


def clock() -> datetime:
    """Return some time."""
    return datetime(2026, 1, 1, tzinfo=UTC)


def make_mark(ledger: LedgerId, size: int = 10) -> ArchiveMark:
    """Return a mark with a checksum of so many characters."""
    return ArchiveMark(ledger, "backup", "s3://b", "c" * size, 1)


def decide_so(decision: Decision[ArchiveMark], _ledger: LedgerId, _mark: ArchiveMark | None) -> Decision[ArchiveMark]:
    """Decide what was decided before."""
    return decision


def open_own(store: MemoryStore, folder: Path) -> OwnRoot:
    """Return our own root of a store, made."""
    if store.get(ROOT) is None:
        store.write([Write(f"{ROOT}/x", b"")])
    with open_log(folder / "journal", store, ROOT, clock) as log:
        return make_own_root(store, ROOT, log)


def write_marks(store: MemoryStore, folder: Path, ledgers: Sequence[LedgerId], size: int) -> OwnRoot:
    """Mark ledgers."""
    own = open_own(store, folder)
    with open_log(folder / "journal", store, ROOT, clock) as log:
        own.archive.change(ledgers, lambda ledger, _: Decision(make_mark(ledger, size)), log, rows=40)
    return own


def test_nodes_that_grow_are_split_and_cover_every_place(tmp_path: Path) -> None:
    """No node is larger than the bound, none is missing, and each record stands once, where its bits say."""
    store = MemoryStore()
    ledgers = [LedgerId(n % 3, n * 7919) for n in range(400)]
    own = write_marks(store, tmp_path, ledgers, 6000)
    names = store.children(TOP) or []
    assert len(names) >= 5
    # The nodes' shares of all places sum to one: nothing is covered twice, or not at all.
    assert sum(2.0 ** -(len(name) - 1) for name in names) == 1
    seen: list[LedgerId] = []
    for name in names:
        node = store.get(f"{TOP}/{name}")
        assert node is not None
        assert len(node.value) <= NODE_BYTES
    for node_marks in own.archive.read_all():
        seen += [mark.ledger for mark in node_marks]
    assert sorted(seen) == sorted(ledgers)
    assert own.archive.read_some(ledgers[:3]) == {one: make_mark(one, 6000) for one in ledgers[:3]}
    for ledger, place in zip(ledgers, find_places(ledgers).tolist(), strict=True):
        bits = f"{place:064b}"
        assert int(bits[:12], 2) == ledger.bucket
        assert any(bits.startswith(name[1:]) for name in names)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=30))
def test_changes_come_out_as_they_were_made(changes: list[tuple[int, bool]]) -> None:
    """A mark that is set is there, one that is removed is not."""
    with TemporaryDirectory() as name:
        store, folder = MemoryStore(), Path(name)
        own = open_own(store, folder)
        wanted: set[LedgerId] = set()
        with open_log(folder / "journal", store, ROOT, clock) as log:
            for number, is_set in changes:
                ledger = LedgerId(0, number)
                mark = make_mark(ledger) if is_set else None
                decided = Decision(mark)
                own.archive.change([ledger], partial(decide_so, decided), log, rows=1)
                wanted = wanted | {ledger} if is_set else wanted - {ledger}
        assert own.archive.read_some([LedgerId(0, n) for n in range(21)]).keys() == wanted


def test_what_somebody_else_writes_meanwhile_is_decided_again(tmp_path: Path) -> None:
    """A change between the reading and the writing of a node is not lost, and neither is ours."""
    store = MemoryStore()
    own = open_own(store, tmp_path)
    recorder = Recorder(store)
    rival = LedgerId(0, 2)
    strikes = iter(["", "rival"])
    recorder.draw = lambda: next(strikes, "")

    def interfere() -> None:
        write_marks(store, tmp_path / "rival", [rival], 3)

    recorder.interfere = interfere
    with open_log(tmp_path / "journal", recorder, ROOT, clock) as log:
        own = make_own_root(recorder, ROOT, log)
        strikes = iter(["", "", "rival"])
        own.archive.change([LedgerId(0, 1)], lambda one, _: Decision(make_mark(one)), log, rows=1)
    assert own.archive.read_some([rival, LedgerId(0, 1)]).keys() == {rival, LedgerId(0, 1)}


def test_a_node_that_others_change_all_the_time(tmp_path: Path) -> None:
    """After ten times the run stops, says so, and nothing of its batch is written."""
    store = MemoryStore()
    own = open_own(store, tmp_path)
    ledger = LedgerId(0, 1)

    def meddle(_ledger: LedgerId, _mark: ArchiveMark | None) -> Decision[ArchiveMark]:
        node = store.get(f"{TOP}/t")
        assert node is not None
        store.write([Write(f"{TOP}/t", node.value, node.version)])
        return Decision(make_mark(ledger))

    with open_log(tmp_path / "journal", store, ROOT, clock) as log, pytest.raises(PartlyAppliedError) as stopped:
        own.archive.change([ledger], meddle, log, rows=1)
    assert "was changed" in str(stopped.value)
    assert own.archive.read_some([ledger]) == {}


def test_other_keys_change_with_the_record_or_not_at_all(tmp_path: Path) -> None:
    """A removal that cannot be made leaves the record unwritten, too."""
    store = MemoryStore()
    own = open_own(store, tmp_path)
    store.write([Write(f"{ROOT}/L1", b"one")])
    with open_log(tmp_path / "journal", store, ROOT, clock) as log:
        wrong = Decision(make_mark(LedgerId(0, 1)), (Write(f"{ROOT}/L1", None, 7),), (b"one",))
        with pytest.raises(PartlyAppliedError):
            own.archive.change([LedgerId(0, 1)], lambda *_: wrong, log, rows=1)
        assert own.archive.read_some([LedgerId(0, 1)]) == {}
        right = Decision(make_mark(LedgerId(0, 1)), (Write(f"{ROOT}/L1", None, 0),), (b"one",))
        own.archive.change([LedgerId(0, 1)], lambda *_: right, log, rows=1)
    assert store.get(f"{ROOT}/L1") is None
    assert len(own.archive.read_some([LedgerId(0, 1)])) == 1


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
            ledgers, lambda ledger, _: Decision(make_mark(ledger, 30_000)), log, rows=200, done=done.extend
        )
        assert log.cost.transactions < 100
    assert sorted(done) == ledgers
    assert sorted(mark.ledger for node in own.archive.read_all() for mark in node) == ledgers
