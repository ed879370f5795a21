"""Every check of a verification: one ledger that is just safe, and one for each reason that is not."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from backends.protocols import Versioned, Write
from reconcile.deletes import tombstones
from reconcile.deletes.records import ArchiveMark
from reconcile.deletes.tombstones import (
    RECORD_BYTES,
    DeleteVerdict,
    Holder,
    StoredRecord,
    Tombstone,
    Verification,
    request_delete,
    take_verification,
)
from reconcile.deletes.verification.absence import Absence
from reconcile.deletes.verification.durability import Durability, judge_copies
from reconcile.deletes.verification.evidence import ReferenceListing, gather_holdings
from reconcile.deletes.verification.verdicts import DeleteEvidence, Rules, judge_deletes, set_breaker
from reconcile.deletes.verification.wanted import WantedLedgers
from reconcile.references import References, read
from recovery.capture import live
from recovery.codecs.replication_lock import lock_key
from recovery.codecs.store import COOKIES, Layout, ledger_key, mark_key
from recovery.dataset import Dataset, DatasetWriter, open_dataset
from recovery.model.ids import LedgerId
from recovery.model.metadata import LedgerState
from tests.support.deletes import BOOKIES, CREATED_MS, Ledger, fill_store, make_cookie, write_looks, write_references
from tests.support.memory_store import MemoryStore

pytestmark = pytest.mark.long

ROOT = "/ledgers"
NOW = datetime.now(UTC)
NOW_MS = int(NOW.timestamp() * 1000)
ONE = LedgerId(0, 1)
RULES = Rules(min_age_ms=0)
ASKED = request_delete(ONE, StoredRecord(Ledger(ONE).raw, 0), BOOKIES, 1, "op")


@dataclass(slots=True)
class Case:
    """A cluster of one ledger, and what is known of it; every field can make it unsafe or undecided."""

    folder: Path
    ledger: Ledger = field(default_factory=lambda: Ledger(ONE))
    others: Sequence[Ledger] = field(default_factory=lambda: [Ledger(LedgerId(0, n)) for n in range(2, 30)])
    nodes: dict[str, bytes] = field(default_factory=dict)
    looks: dict[str, Any] = field(default_factory=dict)
    referenced: Sequence[int] = ()
    listed_ms: int = NOW_MS
    problem: str = ""
    has_references: bool = True
    rules: Rules = RULES
    archive: dict[LedgerId, ArchiveMark] | None = field(default_factory=dict)
    between: Any = None
    is_stated: bool = True
    later_is_stated: bool = True
    later_ms: int = 0
    deleted: Sequence[int] = ()
    absence: Absence | None = None
    known: dict[LedgerId, Tombstone] = field(default_factory=dict)
    wanted: Sequence[LedgerId] = (ONE,)
    lately: int = 0
    kind: type[MemoryStore] = MemoryStore

    def judge(self) -> Verification:
        """Return what is seen of the ledger."""
        [found] = self.judge_all()
        return found

    def judge_all(self) -> Sequence[Verification]:
        """Return what is seen of each ledger that is wanted."""
        store = self.kind(lambda: CREATED_MS)
        fill_store(store, ROOT, Layout.HIERARCHICAL, [self.ledger, *self.others])
        for key, value in self.nodes.items():
            store.write([Write(ROOT + key, value)])
        first = self.capture(store, "first")
        if self.between is not None:
            self.between(store)
        second = self.capture(store, "second")
        looks = write_looks(self.folder / "looks", [self.ledger, *self.others], **{"ended": NOW, **self.looks})
        wanted = WantedLedgers(self.wanted)
        inventories = [open_dataset(path, "inventory") for path in looks]
        holdings = gather_holdings(inventories, wanted)
        rows = read(write_references(self.folder / "refs.jsonl", self.referenced))
        said = [{"ledger": number, "deleted": True} for number in self.deleted]
        (self.folder / "said.jsonl").write_text("".join(json.dumps(row) + "\n" for row in said))
        known = References.unite([References(rows), References(read(self.folder / "said.jsonl"))])
        given = known if self.has_references else None
        listing = ReferenceListing(given, self.listed_ms, self.problem, self.is_stated)
        later = replace(
            listing, at_ms=self.listed_ms + self.later_ms, is_stated=self.is_stated and self.later_is_stated
        )
        evidence = DeleteEvidence(
            (first, second),
            (listing, later),
            holdings,
            judge_copies(wanted, first, inventories, (), {}),
            self.known,
            self.archive,
            self.lately,
            {},
            NOW_MS,
            self.absence,
        )
        return judge_deletes(wanted, evidence, self.rules)[0]

    def capture(self, store: MemoryStore, name: str) -> Dataset:
        """Capture the store."""
        with DatasetWriter(self.folder / name, "catalog", binding={"root": ROOT}, secret=True) as writer:
            live.capture(store, ROOT, Layout.HIERARCHICAL, writer, clock=lambda: NOW)
        return open_dataset(self.folder / name, "catalog")


def remove_some(count: int, store: MemoryStore) -> None:
    """Remove some of the other ledgers."""
    for number in range(2, 2 + count):
        key = ROOT + ledger_key(Layout.HIERARCHICAL, LedgerId(0, number))
        held = store.get(key)
        assert held is not None
        store.write([Write(key, None, held.version)])


def touch(store: MemoryStore) -> None:
    """Write the ledger's record again."""
    key = ROOT + ledger_key(Layout.HIERARCHICAL, ONE)
    held = store.get(key)
    assert held is not None
    store.write([Write(key, held.value, held.version)])


def drop(store: MemoryStore) -> None:
    """Remove the ledger's record."""
    store.write([Write(ROOT + ledger_key(Layout.HIERARCHICAL, ONE), None, 0)])


def come(store: MemoryStore) -> None:
    """Write the record of a ledger that has no entries."""
    store.write([Write(ROOT + ledger_key(Layout.HIERARCHICAL, ONE), Ledger(ONE, -1).raw)])


class Timeless(MemoryStore):
    """A store that keeps no times, as etcd."""

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Versioned | None]]:
        """Return what stands at keys."""
        for key, node in super().get_many(keys):
            yield key, None if node is None else replace(node, created_ms=None, changed_ms=None)


@dataclass(frozen=True, slots=True)
class Broken(Ledger):
    """A ledger whose record is none."""

    @property
    def raw(self) -> bytes:
        """What stands in place of its record."""
        return b"no record"


def make_sized(size: int) -> Ledger:
    """Return a ledger whose record has so many bytes."""
    bare = len(Ledger(ONE, custom=(("x", b"z" * size),)).raw) - size
    return Ledger(ONE, custom=(("x", b"z" * (size - bare)),))


def made(component: str) -> tuple[tuple[str, bytes], ...]:
    """Return the custom metadata of a ledger that a part of Pulsar made."""
    return (("application", b"pulsar"), ("component", component.encode()))


def know_holder(bookie: str) -> dict[LedgerId, Tombstone]:
    """Return a delete of which an earlier look showed a bookie with the ledger."""
    return {ONE: replace(ASKED, holders=(Holder(bookie, 1, 1),))}


def make_cookie_node(bookie: str) -> dict[str, bytes]:
    """Return the node of a bookie's cookie."""
    return {f"{COOKIES}/{bookie}": make_cookie(bookie)}


FOURTH = "bk4:3181"
CREATED = datetime.fromtimestamp(CREATED_MS / 1000, UTC)
LONG_AGO = Absence(CREATED_MS, 100, 11, 10)
ANY_TIME = replace(RULES, freshness_ms=NOW_MS)
MARKED = ArchiveMark(ONE, "backup", "s3://b/1", "", 1)
TWO_LOST = {"without": {BOOKIES[0]: [1], BOOKIES[1]: [1]}}
SAFE: dict[str, dict[str, Any]] = {
    "plain": {},
    "striped": {"ledger": Ledger(ONE, 20, (3, 2, 2))},
    "striped over bookies in another order": {"ledger": Ledger(ONE, 20, (3, 2, 2), members=BOOKIES[2:] + BOOKIES[:2])},
    "as large as may be": {"ledger": make_sized(RECORD_BYTES)},
    "looked at as long ago as may be": {"rules": replace(RULES, freshness_ms=0)},
    "looked at as its record changed": {"looks": {"ended": CREATED}, "rules": ANY_TIME},
    "as many went meanwhile as may": {"between": partial(remove_some, 10)},
    "unsafe since its references were listed": {"known": {ONE: replace(ASKED, listed_ms=NOW_MS)}},
    "empty": {"ledger": Ledger(ONE, -1)},
    "one copy short of W and not of A": {"looks": {"without": {BOOKIES[0]: [1]}}},
    "archived": {"rules": replace(RULES, archived=True), "archive": {ONE: MARKED}},
    "just old enough": {"rules": replace(RULES, min_age_ms=NOW_MS - CREATED_MS)},
    "a LAC at the end": {"looks": {"lac": {1: 9}}},
    "another ledger is referenced": {"referenced": [2]},
    "a topic's, and its records were listed": {
        "ledger": Ledger(ONE, custom=made("managed-ledger")),
        "is_stated": False,
    },
    "another bookie had it, and was taken out of service": {"known": know_holder(FOURTH)},
    "another bookie had it, and was looked at": {
        "known": know_holder(FOURTH),
        "nodes": make_cookie_node(FOURTH),
        "looks": {"bookies": (*BOOKIES, FOURTH)},
    },
    "asked for before": {"known": {ONE: ASKED}},
    "as many went as may": {"absence": Absence(1, 100, 10, 10)},
    "many went, and somebody confirmed how many": {
        "absence": Absence(1, 100, 11, 10),
        "rules": replace(RULES, absent=11),
    },
    "as many in a day as may": {"lately": 9},
    "too many in a day, and somebody confirmed how many": {"lately": 10, "rules": replace(RULES, confirmed=1)},
    "looked at by a clock that is a little ahead": {"looks": {"ended": NOW + timedelta(minutes=5)}},
    "a schema's": {"ledger": Ledger(ONE, custom=made("schema")), "is_stated": False},
    "another application's, of which a file tells": {"ledger": Ledger(ONE, custom=(("application", b"x"),))},
    "a compacted topic's that somebody deleted": {
        "ledger": Ledger(ONE, custom=made("compacted-ledger")),
        "deleted": [1],
        "is_stated": False,
    },
}
UNSAFE: dict[str, dict[str, Any]] = {
    "OPEN": {"ledger": Ledger(ONE, state=LedgerState.OPEN)},
    "IN_RECOVERY": {"ledger": Ledger(ONE, state=LedgerState.IN_RECOVERY)},
    "UNDER_REPLICATED": {"nodes": {mark_key(ONE): b""}},
    "LOCKED": {"nodes": {lock_key(ONE): b'bookieId: "b"\n'}},
    "IN_QUARANTINE": {"known": {ONE: replace(ASKED, state=tombstones.DeleteState.QUARANTINED)}},
    "REFERENCED": {"referenced": [1]},
    "NOT_ARCHIVED": {"rules": replace(RULES, archived=True)},
    "ENTRIES_BEYOND_END": {"looks": {"lac": {1: 10}, "without": {BOOKIES[0]: [1]}}},
    "DURABILITY_BREACH": {"looks": TWO_LOST},
    "BREAKER": {"lately": 10},
    "TOO_LARGE": {"ledger": make_sized(RECORD_BYTES + 1)},
}
UNDECIDED: dict[str, dict[str, Any]] = {
    "CHANGED": {"between": touch},
    "CHANGED: its record disappeared": {"between": drop},
    "REFERENCES_UNKNOWN": {"problem": "a store did not answer"},
    "REFERENCES_UNKNOWN: a store": {"has_references": False, "problem": "a store did not answer"},
    "REFERENCES_UNKNOWN: no upper layer": {"has_references": False},
    "MAKER_UNLISTED": {"ledger": Ledger(ONE, custom=made("compacted-ledger"))},
    "MAKER_UNLISTED: a broker may": {"ledger": Ledger(ONE, custom=made("delayed-index-bucket")), "deleted": [2]},
    "MAKER_UNLISTED: a broker may keep": {"ledger": Ledger(ONE, custom=(("application", b"pulsar"),))},
    "MAKER_UNLISTED: its record does not say who": {"is_stated": False},
    "MAKER_UNLISTED: its record does not say who made it": {"later_is_stated": False},
    "MAKER_UNLISTED: its record does not say who made": {
        "ledger": Ledger(ONE, custom=(("application", b"\xff"), ("component", b"schema"))),
        "is_stated": False,
    },
    "TOO_YOUNG": {"rules": replace(RULES, min_age_ms=NOW_MS - CREATED_MS + 1)},
    "ARCHIVE_UNREADABLE": {"rules": replace(RULES, archived=True), "archive": None},
    "HOLDER_UNSEEN": {"looks": {"bookies": BOOKIES[:2]}},
    "HOLDER_UNSEEN: bookie bk1:3181 was not read lately": {"rules": replace(RULES, freshness_ms=-1)},
    "HOLDER_UNSEEN: bookie bk1:3181 was not read completely": {
        "looks": {"complete": False, "without": {BOOKIES[0]: [1]}}
    },
    "HOLDER_UNSEEN: bookie bk4:3181 was not read": {
        "known": know_holder(FOURTH),
        "nodes": make_cookie_node(FOURTH),
    },
    "HOLDER_UNSEEN: bookie bk1:3181 was read later than now": {
        "looks": {"ended": NOW + timedelta(minutes=5, milliseconds=1)}
    },
    "MASS_ABSENCE: 11 of the 100 ledgers that a verification listed at 2023-11-14T22:13:20+00:00": {
        "absence": LONG_AGO
    },
    "MASS_ABSENCE: 11 of the 100 ledgers": {"absence": LONG_AGO, "rules": replace(RULES, absent=10)},
    "UNPARSABLE": {"ledger": Broken(ONE)},
    "CHANGED: its record changed": {"ledger": Ledger(LedgerId(0, 50)), "between": come},
    "HOLDER_UNSEEN: bookie bk1:3181 was read before the record changed last": {
        "looks": {"ended": CREATED - timedelta(milliseconds=1)},
        "rules": ANY_TIME,
    },
    "INCARNATION_UNPROVEN: bookie bk4:3181": {
        "ledger": Ledger(ONE, members=(*BOOKIES[:2], FOURTH)),
        "looks": {"bookies": (*BOOKIES, FOURTH), "cookieless": (FOURTH,)},
    },
    "INCARNATION_UNPROVEN": {"looks": {"cookie": b"another"}},
    "MASS_ABSENCE": {"between": partial(remove_some, 11)},
}


@pytest.mark.parametrize("name", SAFE)
def test_safe(name: str, tmp_path: Path) -> None:
    """Nothing speaks against it."""
    found = Case(tmp_path, **SAFE[name]).judge()
    assert (found.verdict, found.reasons) == (DeleteVerdict.SAFE, ())
    assert found.record is not None
    assert found.record.created_ms == CREATED_MS


@pytest.mark.parametrize(("later_ms", "age_ms"), [(4000, 5000), (-4000, 9000)])
def test_the_earliest_listing_counts(later_ms: int, age_ms: int, tmp_path: Path) -> None:
    """Of references that were listed twice: what came to be named in between may be in neither."""
    assert Case(tmp_path, listed_ms=NOW_MS - 5000, later_ms=later_ms).judge().listed_ms == NOW_MS - age_ms


def test_the_record_that_is_kept_stands_now(tmp_path: Path) -> None:
    """As the second listing has it, though it changed; none that a tombstone does not take."""
    changed = Case(tmp_path / "changed", between=touch).judge().record
    assert changed is not None
    assert changed.version == 1
    timeless = Case(tmp_path / "timeless", kind=Timeless).judge().record
    assert timeless is not None
    assert timeless.created_ms is None
    assert Case(tmp_path / "large", ledger=make_sized(RECORD_BYTES + 1)).judge().record is None


def test_a_member_without_entries_is_a_holder(tmp_path: Path) -> None:
    """It may have deleted them, or may never have had any: its tombstone waits for it all the same."""
    found = Case(tmp_path, looks={"without": {BOOKIES[0]: [1]}}).judge()
    assert [holder.bookie for holder in found.holders] == list(BOOKIES)


@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe(name: str, tmp_path: Path) -> None:
    """Seen to be unsafe, for this reason and no other."""
    found = Case(tmp_path, **UNSAFE[name]).judge()
    assert found.verdict is DeleteVerdict.UNSAFE
    assert [reason.partition(":")[0] for reason in found.reasons] == [name]


def test_a_ledger_that_is_not_there_is_unsafe(tmp_path: Path) -> None:
    """There is nothing that could be deleted."""
    found = judge_absent(Case(tmp_path))
    assert found.reasons == ("NO_RECORD: the store has no record of it",)
    assert found.verdict is DeleteVerdict.UNSAFE


def test_copies_that_cannot_be_judged_are_said_once(tmp_path: Path) -> None:
    """Of a ledger of which nothing else says that a bookie was not seen."""
    case = Case(tmp_path)
    store = MemoryStore(lambda: CREATED_MS)
    fill_store(store, ROOT, Layout.HIERARCHICAL, [case.ledger])
    captures = (case.capture(store, "first"), case.capture(store, "second"))
    wanted = WantedLedgers([ONE])
    listing = ReferenceListing(References(read(write_references(tmp_path / "refs.jsonl", []))), NOW_MS)
    dark = Durability({}, frozenset({0}))
    for bookies, said in (
        (BOOKIES, "not every copy can be judged"),
        (BOOKIES[:2], "bookie bk3:3181 was not read"),
    ):
        paths = write_looks(tmp_path / str(len(bookies)), [case.ledger], ended=NOW, bookies=bookies)
        holdings = gather_holdings([open_dataset(path, "inventory") for path in paths], wanted)
        evidence = DeleteEvidence(captures, (listing, listing), holdings, dark, {}, {}, 0, {}, NOW_MS)
        [found], _ = judge_deletes(wanted, evidence, RULES)
        [reason] = found.reasons
        assert (found.verdict, reason.startswith(f"HOLDER_UNSEEN: {said}")) == (DeleteVerdict.UNDECIDED, True), reason


def judge_absent(case: Case) -> Verification:
    """Return what is seen of a ledger that the store does not have."""
    store = MemoryStore(lambda: CREATED_MS)
    fill_store(store, ROOT, Layout.HIERARCHICAL, [Ledger(LedgerId(0, 50))])
    captures = (case.capture(store, "first"), case.capture(store, "second"))
    wanted = WantedLedgers([ONE])
    listing = ReferenceListing(References(read(write_references(case.folder / "refs.jsonl", []))), NOW_MS)
    nothing = Durability({}, frozenset())
    evidence = DeleteEvidence(captures, (listing, listing), gather_holdings([], wanted), nothing, {}, {}, 0, {}, NOW_MS)
    [found], _ = judge_deletes(wanted, evidence, RULES)
    return found


@pytest.mark.parametrize("name", UNDECIDED)
def test_undecided(name: str, tmp_path: Path) -> None:
    """Not seen, and said what was not."""
    found = Case(tmp_path, **UNDECIDED[name]).judge()
    assert found.verdict is DeleteVerdict.UNDECIDED, found.reasons
    assert any(reason.startswith(name) for reason in found.reasons), found.reasons
    assert len({reason.partition(":")[0] for reason in found.reasons}) == 1


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ({"complete": False, "gaps": ["/ledgers/00 may not be read", "and more"]}, "/ledgers/00 may not be read"),
        ({"root": "missing"}, "its root is missing"),
    ],
)
def test_an_incomplete_listing_decides_nothing(source: dict[str, object], why: str, tmp_path: Path) -> None:
    """I-02: what a capture lacks is not known, of any ledger."""
    case = Case(tmp_path)
    store = MemoryStore(lambda: CREATED_MS)
    fill_store(store, ROOT, Layout.HIERARCHICAL, [case.ledger])
    whole = case.capture(store, "whole")
    with DatasetWriter(tmp_path / "part", "catalog", binding={"root": ROOT}, secret=True) as writer:
        for name in ("ledgers", "nodes"):
            writer.append(name, whole.read(name))
        sources = whole.read("sources").to_pylist()
        sources[0].update(source)
        writer.append("sources", pa.Table.from_pylist(sources, schema=whole.read("sources").schema))
        writer.close(coverage={})
    part = open_dataset(tmp_path / "part", "catalog")
    wanted = WantedLedgers([ONE])
    looks = [open_dataset(path, "inventory") for path in write_looks(tmp_path / "l", [case.ledger], ended=NOW)]
    listing = ReferenceListing(References(read(write_references(tmp_path / "refs.jsonl", []))), NOW_MS)
    for captures in ((whole, part), (part, whole)):
        durability = judge_copies(wanted, whole, looks, (), {})
        holdings = gather_holdings(looks, wanted)
        evidence = DeleteEvidence(captures, (listing, listing), holdings, durability, {}, {}, 0, {}, NOW_MS)
        [found], _ = judge_deletes(wanted, evidence, RULES)
        assert found.verdict is DeleteVerdict.UNDECIDED
        assert found.reasons == (f"LISTING_INCOMPLETE: the store was not listed completely: {why}",)


def test_one_listing_is_not_two(tmp_path: Path) -> None:
    """What the verification before went by says nothing new."""
    case = Case(tmp_path)
    asked = request_delete(ONE, StoredRecord(case.ledger.raw, 0), BOOKIES, 1, "op", soak_ms=0)
    first = take_verification(asked, case.judge(), NOW_MS, "op")
    store = MemoryStore(lambda: CREATED_MS)
    fill_store(store, ROOT, Layout.HIERARCHICAL, [case.ledger])
    captures = (case.capture(store, "third"), case.capture(store, "fourth"))
    looks = [open_dataset(path, "inventory") for path in write_looks(tmp_path / "l", [case.ledger], ended=NOW)]
    wanted = WantedLedgers([ONE])
    rows = References(read(write_references(tmp_path / "refs.jsonl", [])))
    for after_ms, verdict in (
        ((0, 0), DeleteVerdict.UNDECIDED),
        ((0, 1), DeleteVerdict.UNDECIDED),
        ((1, 1), DeleteVerdict.SAFE),
    ):
        one, other = (ReferenceListing(rows, NOW_MS + ms) for ms in after_ms)
        durability = judge_copies(wanted, captures[0], looks, (), {})
        holdings = gather_holdings(looks, wanted)
        evidence = DeleteEvidence(captures, (one, other), holdings, durability, {ONE: first}, {}, 0, {}, NOW_MS)
        [found], _ = judge_deletes(wanted, evidence, RULES)
        assert found.verdict is verdict, found.reasons


def test_a_verification_that_tells_no_time_of_its_references_hinders_nothing(tmp_path: Path) -> None:
    """An earlier program's record has none."""
    case = Case(tmp_path)
    asked = request_delete(ONE, StoredRecord(case.ledger.raw, 0), BOOKIES, 1, "op", soak_ms=0)
    verified = take_verification(asked, case.judge(), NOW_MS, "op")
    again = Case(tmp_path / "again", known={ONE: replace(verified, listed_ms=None)})
    assert again.judge().verdict is DeleteVerdict.SAFE


def test_more_ledgers_than_bookies(tmp_path: Path) -> None:
    """Each is judged by its own copies, the last one, too."""
    numbers = range(1, 8)
    case = Case(
        tmp_path, looks={"without": {BOOKIES[0]: [7], BOOKIES[1]: [7]}}, wanted=[LedgerId(0, n) for n in numbers]
    )
    verdicts = [found.verdict for found in case.judge_all()]
    assert verdicts == [DeleteVerdict.SAFE] * 6 + [DeleteVerdict.UNSAFE]


def test_a_confirmation_is_of_this_runs_number(tmp_path: Path) -> None:
    """Another number confirms nothing; what is asked for is said."""
    found = Case(tmp_path, lately=10, rules=replace(RULES, confirmed=11)).judge()
    assert found.reasons == ("BREAKER: 1 deletes and 10 of the last day are more than 10; confirm their number, 1",)


@pytest.mark.parametrize(
    ("asked", "lately", "total", "tripped"),
    [
        (10, 0, 20, False), (11, 0, 20, True), (6, 5, 20, True), (50, 0, 1000, False), (51, 0, 1000, True),
        (1000, 0, 10**6, False), (1001, 0, 10**6, True), (1, 1000, 10**6, True),
    ],
)  # fmt: skip
def test_the_breaker(asked: int, lately: int, total: int, *, tripped: bool) -> None:
    """1,000 a day, or 5 % of all if that is fewer; ten of a small cluster are never too many."""
    assert set_breaker(asked, lately, total).is_tripped is tripped
