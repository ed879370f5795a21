"""Records packed many to a node: every place covered once, whatever is split; nobody's change is lost."""

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.errors import UnavailableError
from backends.protocols import Versioned, Write
from reconcile.deletes.own_root import OwnRoot, make_own_root, open_log
from reconcile.deletes.packed import NODE_BYTES, PackedDecision, PackedRecords, find_places
from reconcile.deletes.records import ARCHIVE, ArchiveMark
from reconcile.errors import PartlyAppliedError
from reconcile.write.audit_journal import JOURNAL
from reconcile.write.journal_events import AnnouncedWrite
from recovery.errors import FormatError
from recovery.model.ids import LedgerId
from tests.support.memory_store import MemoryStore
from tests.support.restores import Recorder

ROOT = "/ledgers"
TOP = "/ledgers-bkmeta/archive"


def clock() -> datetime:
    """Return some time."""
    return datetime(2026, 1, 1, tzinfo=UTC)


def make_mark(ledger: LedgerId, size: int = 10) -> ArchiveMark:
    """Return a mark with a checksum of so many characters."""
    return ArchiveMark(ledger, "backup", "s3://b", "c" * size, 1)


def decide_so(
    decision: PackedDecision[ArchiveMark], _ledger: LedgerId, _mark: ArchiveMark | None
) -> PackedDecision[ArchiveMark]:
    """Decide what was decided before."""
    return decision


def open_own(store: MemoryStore, folder: Path) -> OwnRoot:
    """Return our own root of a store, made."""
    if store.get(ROOT) is None:
        store.write([Write(f"{ROOT}/x", b"")])
    with open_log(folder / "journal", store, ROOT, clock) as log:
        return make_own_root(store, ROOT, log)


def test_a_transaction_that_stands_in_part_is_not_made(tmp_path: Path) -> None:
    """One of its keys has what it writes, by another process: nothing is written, and that is told."""
    store = MemoryStore()
    store.write([Write(ROOT, b""), Write("/a", b"1")])
    with open_log(tmp_path, store, ROOT, clock) as log:
        changes = [Write("/a", b"1", None), Write("/b", b"2", None)]
        assert log.carry_out(store, "test", changes, {"/a": None, "/b": None}).conflict == "/a exists"
    assert store.get("/b") is None


def write_marks(store: MemoryStore, folder: Path, ledgers: Sequence[LedgerId], size: int) -> OwnRoot:
    """Mark ledgers."""
    own = open_own(store, folder)
    with open_log(folder / "journal", store, ROOT, clock) as log:
        own.archive.change(ledgers, lambda ledger, _: PackedDecision(make_mark(ledger, size)), log, rows=40)
    return own


def test_nodes_that_grow_are_split_and_cover_every_place(tmp_path: Path) -> None:
    """No node is larger than the bound, none is missing, and each record stands once, where its bits say."""
    store = MemoryStore()
    ledgers = [LedgerId(n % 3, n * 7919) for n in range(400)]
    own = write_marks(store, tmp_path, ledgers, 6000)
    names = store.children(TOP) or []
    # As few as halves of them allow.
    assert 5 <= len(names) <= 12
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
                decided = PackedDecision(mark)
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
        own.archive.change([LedgerId(0, 1)], lambda one, _: PackedDecision(make_mark(one)), log, rows=1)
    assert own.archive.read_some([rival, LedgerId(0, 1)]).keys() == {rival, LedgerId(0, 1)}


def test_a_node_that_others_change_all_the_time(tmp_path: Path) -> None:
    """After ten times the run stops, says so, and nothing of its batch is written."""
    store = MemoryStore()
    own = open_own(store, tmp_path)
    ledger = LedgerId(0, 1)

    def meddle(_ledger: LedgerId, _mark: ArchiveMark | None) -> PackedDecision[ArchiveMark]:
        node = store.get(f"{TOP}/t")
        assert node is not None
        store.write([Write(f"{TOP}/t", node.value, node.version)])
        return PackedDecision(make_mark(ledger))

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
        wrong = PackedDecision(make_mark(LedgerId(0, 1)), (Write(f"{ROOT}/L1", None, 7),), (b"one",))
        with pytest.raises(PartlyAppliedError):
            own.archive.change([LedgerId(0, 1)], lambda *_: wrong, log, rows=1)
        assert own.archive.read_some([LedgerId(0, 1)]) == {}
        right = PackedDecision(make_mark(LedgerId(0, 1)), (Write(f"{ROOT}/L1", None, 0),), (b"one",))
        own.archive.change([LedgerId(0, 1)], lambda *_: right, log, rows=1)
    assert store.get(f"{ROOT}/L1") is None
    assert len(own.archive.read_some([LedgerId(0, 1)])) == 1


def read_journal(folder: Path, event: str) -> list[dict[str, Any]]:
    """Return the lines of one kind of a journal."""
    lines = [json.loads(line) for line in (folder / JOURNAL).read_text().splitlines()]
    return [line for line in lines if line["event"] == event]


def test_the_journal_says_what_stands_before_and_after(tmp_path: Path) -> None:
    """Of each key what is done to it, the digest of what it gets and the bytes that it had; then its versions."""
    store = MemoryStore()
    own = open_own(store, tmp_path / "made")
    store.write([Write(f"{ROOT}/L1", b"one")])
    old = store.get(f"{TOP}/t")
    assert old is not None
    beside = (Write(f"{ROOT}/L1", None, 0), Write(f"{ROOT}/L2", b"two"))
    decision = PackedDecision(make_mark(LedgerId(0, 1)), beside, (b"one", None))
    with open_log(tmp_path, store, ROOT, clock) as log:
        begun = [log.has_begun]
        own.archive.change([LedgerId(0, 1)], lambda *_: decision, log, rows=1)
        begun.append(log.has_begun)
        assert begun == [False, True]
        fresh = store.get(f"{TOP}/t")
        assert fresh is not None
        assert (log.cost.transactions, log.cost.nodes, log.cost.written_bytes) == (1, 2, len(fresh.value) + 3)
        log.end({"marked": 1}, 0)
    [intent], [done], [end] = (read_journal(tmp_path, event) for event in ("intent", "done", "end"))
    digests = [hashlib.sha256(value).hexdigest() for value in (fresh.value, b"two")]
    assert (intent["batch"], intent["kind"]) == (0, "archive")
    assert [AnnouncedWrite(*row) for row in intent["writes"]] == [
        AnnouncedWrite(0, "replace", "", f"{TOP}/t", 0, digests[0], None),
        AnnouncedWrite(1, "remove", "", f"{ROOT}/L1", 0, None, base64.b64encode(b"one").decode()),
        AnnouncedWrite(2, "create", "", f"{ROOT}/L2", None, digests[1], None),
    ]
    assert (done["batch"], done["versions"], done["conflicts"]) == (0, [1, -1, 1], [])
    assert (end["counts"], end["exit_code"]) == ({"marked": [1]}, 0)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (Write(f"{ROOT}/L1", None, 7), f"{ROOT}/L1 was changed"),
        (Write(f"{ROOT}/L1", b"x"), f"{ROOT}/L1 exists"),
        (Write(f"{ROOT}/L9", None, 0), f"{ROOT}/L9 is gone"),
    ],
)
def test_a_refused_change_is_said_and_costs_nothing(tmp_path: Path, change: Write, problem: str) -> None:
    """What is in the way has a name, in the error and in the journal; no batch says that it was made."""
    store = MemoryStore()
    own = open_own(store, tmp_path / "made")
    store.write([Write(f"{ROOT}/L1", b"one")])
    with open_log(tmp_path, store, ROOT, clock) as log:
        with pytest.raises(PartlyAppliedError, match=f"stopped: {problem}"):
            own.archive.change(
                [LedgerId(0, 1)], lambda one, _: PackedDecision(make_mark(one), (change,), (None,)), log, rows=1
            )
        assert (log.cost.transactions, log.cost.nodes, log.cost.written_bytes) == (0, 0, 0)
    done = read_journal(tmp_path, "done")
    # Once, and ten times again.
    assert [line["batch"] for line in done] == list(range(11))
    refused = {(tuple(line["versions"]), tuple(map(tuple, line["conflicts"]))) for line in done}
    assert refused == {((None, None), ((0, problem),))}


def test_each_batch_begins_its_tries_anew(tmp_path: Path) -> None:
    """Rivals that come between ten times at each of three ledgers stop nobody."""
    store = MemoryStore()
    own = open_own(store, tmp_path)
    ledgers, left = [LedgerId(0, n) for n in range(3)], Counter[LedgerId]()

    def meddle(ledger: LedgerId, _mark: ArchiveMark | None) -> PackedDecision[ArchiveMark]:
        left[ledger] += 1
        node = store.get(f"{TOP}/t")
        assert node is not None
        if left[ledger] <= 10:
            store.write([Write(f"{TOP}/t", node.value, node.version)])
        return PackedDecision(make_mark(ledger))

    with open_log(tmp_path, store, ROOT, clock) as log:
        own.archive.change(ledgers, meddle, log, rows=1)
    assert own.archive.read_some(ledgers).keys() == set(ledgers)
    assert set(left.values()) == {11}


def test_who_decides_nothing_writes_nothing(tmp_path: Path) -> None:
    """Each ledger comes to its end all the same; one that is removed though it has no record is no error."""
    store = MemoryStore()
    ledgers = [LedgerId(0, n) for n in range(5)]
    own = write_marks(store, tmp_path, ledgers[:2], 3)
    stood, done = store.latest_txn(), list[LedgerId]()
    with open_log(tmp_path, store, ROOT, clock) as log:
        own.archive.change(ledgers, lambda *_: None, log, rows=2, done=done.extend)
        assert (store.latest_txn(), sorted(done)) == (stood, ledgers)
        own.archive.change(ledgers[1:], lambda *_: PackedDecision(None), log, rows=2)
    assert list(own.archive.read_some(ledgers)) == ledgers[:1]


def test_batches_are_of_one_node_and_not_larger_than_was_said(tmp_path: Path) -> None:
    """Whoever prepares one is told the ledgers that are decided next, in the order of their places."""
    store = MemoryStore()
    ledgers = [LedgerId(0, n) for n in range(200)]
    own = write_marks(store, tmp_path, ledgers, 9000)
    names = sorted(name[1:] for name in store.children(TOP) or [])
    assert len(names) > 2
    batches: list[list[LedgerId]] = []
    with open_log(tmp_path, store, ROOT, clock) as log:
        own.archive.change(ledgers, lambda *_: None, log, rows=7, prepare=lambda batch: batches.append(list(batch)))
    places = [[f"{place:064b}" for place in find_places(batch).tolist()] for batch in batches]
    nodes = [{name for name in names for bits in batch if bits.startswith(name)} for batch in places]
    assert {len(node) for node in nodes} == {1}
    assert max(len(batch) for batch in batches) == 7
    # As few batches as that allows.
    sizes = Counter(name for batch in places for bits in batch for name in names if bits.startswith(name))
    assert len(batches) == sum(-(-size // 7) for size in sizes.values())
    flat = [bits for batch in places for bits in batch]
    assert flat == sorted(flat)


def test_a_node_that_a_rival_splits_meanwhile(tmp_path: Path) -> None:
    """Its halves are listed, and each ledger's record goes to its own."""
    store = MemoryStore()
    own = open_own(store, tmp_path)
    rivals, ledgers = [LedgerId(1, n) for n in range(120)], [LedgerId(0, n) for n in range(9)]
    seen: list[LedgerId] = []

    def decide(ledger: LedgerId, _mark: ArchiveMark | None) -> PackedDecision[ArchiveMark]:
        if not seen:
            write_marks(store, tmp_path / "rival", rivals, 9000)
        seen.append(ledger)
        return PackedDecision(make_mark(ledger))

    with open_log(tmp_path, store, ROOT, clock) as log:
        own.archive.change(ledgers, decide, log, rows=9)
    assert sorted(mark.ledger for node in own.archive.read_all() for mark in node) == sorted([*rivals, *ledgers])


def test_who_splits_a_node_knows_its_halves(tmp_path: Path) -> None:
    """No batch is tried twice for it: there is nobody else."""
    store = MemoryStore()
    own, prepared, done = open_own(store, tmp_path), list[int](), list[int]()
    with open_log(tmp_path, store, ROOT, clock) as log:
        own.archive.change(
            [LedgerId(0, n) for n in range(160)],
            lambda one, _: PackedDecision(make_mark(one, 9000)),
            log,
            rows=10,
            prepare=lambda batch: prepared.append(len(batch)),
            done=lambda batch: done.append(len(batch)),
        )
    assert prepared == done
    assert len(store.children(TOP) or []) > 2


class Splitting(MemoryStore):
    """A store in which nodes are split right after they were listed."""

    is_late = False
    split: Callable[[], object] = staticmethod(lambda: None)

    def children(self, key: str) -> list[str] | None:
        """List, then let somebody split."""
        names = super().children(key)
        if self.is_late:
            self.is_late = False
            self.split()
        return names


def test_who_listed_before_a_split_reads_the_halves(tmp_path: Path) -> None:
    """Nothing is left out and nothing twice, however small the halves; a node that is gone for good is said."""
    store = Splitting()
    ledgers = [LedgerId(0, n) for n in range(8)]
    own = write_marks(store, tmp_path, ledgers[:1], 10)
    more = [LedgerId(0, n) for n in range(8, 220)]
    store.split = lambda: write_marks(store, tmp_path / "rival", more, 9000)
    store.is_late = True
    assert sorted(mark.ledger for node in own.archive.read_all() for mark in node) == [*ledgers[:1], *more]
    assert len(store.children(TOP) or []) > 2
    for name in store.children(TOP) or []:
        node = store.get(f"{TOP}/{name}")
        assert node is not None
        store.write([Write(f"{TOP}/{name}", None, node.version)])
    store.write([Write(f"{TOP}/t0", ARCHIVE.encode([]))])
    store.write([Write(f"{TOP}/t", ARCHIVE.encode([]))])
    store.split = lambda: store.write([Write(f"{TOP}/t", None, 0), Write(f"{TOP}/t0", None, 0)])
    store.is_late = True
    with pytest.raises(UnavailableError, match="is gone"):
        list(own.archive.read_all())


def test_records_are_read_in_the_order_of_their_ids(tmp_path: Path) -> None:
    """Ids are unsigned: those above 2^63 come last. Of some ledgers, or of all if none is named."""
    store = MemoryStore()
    ledgers = [LedgerId(0, -1), LedgerId(0, 5), LedgerId(-1, 0), LedgerId(1, 2)]
    own = write_marks(store, tmp_path, ledgers, 3)
    assert [mark.ledger for mark in own.archive.read_sorted([])] == [ledgers[n] for n in (1, 0, 3, 2)]
    assert [mark.ledger for mark in own.archive.read_sorted(ledgers[:2])] == [ledgers[1], ledgers[0]]
    assert own.archive.read_some([LedgerId(0, 6)]) == {}
    empty = PackedRecords(store, "/nowhere", ARCHIVE, None)
    assert (empty.read_some(ledgers), list(empty.read_all()), empty.measure()) == ({}, [], (0, 0))


def test_nodes_and_bytes_are_counted(tmp_path: Path) -> None:
    """As they stand in the store."""
    store = MemoryStore()
    own = write_marks(store, tmp_path, [LedgerId(0, n) for n in range(120)], 9000)
    values = [value for key, value in store.dump().items() if key.startswith(f"{TOP}/t")]
    assert own.archive.measure() == (len(values), sum(map(len, values)))
    assert len(values) > 1


def test_a_node_that_is_not_ours_to_read_hides_no_other(tmp_path: Path) -> None:
    """Who asks to be told reads on; who does not is refused. What has another name is no node."""
    store = MemoryStore()
    ledgers = [LedgerId(0, n) for n in range(120)]
    own = write_marks(store, tmp_path, ledgers, 9000)
    [bad, *others] = sorted(store.children(TOP) or [])
    node = store.get(f"{TOP}/{bad}")
    assert node is not None
    store.write([Write(f"{TOP}/{bad}", b"\xff", node.version), Write(f"{TOP}/x", b"\xff")])
    told: list[str] = []
    read = [mark.ledger for marks in own.archive.read_all(lambda key, _: told.append(key)) for mark in marks]
    assert told == [f"{TOP}/{bad}"]
    places = [f"t{place:064b}" for place in find_places(ledgers).tolist()]
    assert len(read) == sum(place.startswith(tuple(others)) for place in places)
    with pytest.raises(FormatError):
        list(own.archive.read_all())


class Reading(MemoryStore):
    """A store that notes how many keys are asked for together."""

    most = 0

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Versioned | None]]:
        """Return what stands at keys."""
        asked = list(keys)
        self.most = max(self.most, len(asked))
        return super().get_many(asked)


def test_nodes_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    """Half a MiB each: nobody holds the nodes of a million deletes at once, neither here nor on a server."""
    store = Reading()
    ledgers = [LedgerId(0, n) for n in range(300)]
    own = write_marks(store, tmp_path, ledgers, 9000)
    assert len(store.children(TOP) or []) > 5
    store.most = 0
    assert sorted(mark.ledger for node in own.archive.read_all() for mark in node) == ledgers
    assert own.archive.read_some(ledgers).keys() == set(ledgers)
    assert own.archive.measure()[0] == len(store.children(TOP) or [])
    assert 1 <= store.most <= 4
