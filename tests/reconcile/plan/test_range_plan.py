"""What becomes of a bucket range, part by part, on a few ledgers of each kind; whole plans are in jobs/make_plan."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from reconcile.compare import decide, range_findings
from reconcile.findings.categories import Category
from reconcile.findings.table import FindingRun
from reconcile.plan import range_plan
from reconcile.plan.actions import KEEP, LEAVE, Passwords
from reconcile.plan.range_plan import ChosenRecords, PlannedRange, RangeFindings, RangeSettings
from reconcile.rules import entries_beyond_end, id_reuse, used_ids
from reconcile.rules.holds import HOLD_MARK, NAMED_MARK, QUARANTINE_MARK
from recovery.codecs.replication_lock import MAX_LOCKS
from recovery.codecs.store import Layout
from recovery.dataset import sort_by_key
from recovery.infer.prior import Prior, ShapeCounts
from recovery.infer.references import SCHEMA
from recovery.model import tables
from recovery.model.ids import BUCKETS, LedgerId
from recovery.model.metadata import LedgerMetadata, LedgerState
from tests.reconcile.rules.test_sides import CLOSED, catalog
from tests.support.plan_folder import Ledger

RUN: Final = FindingRun("run", datetime(2030, 1, 1, tzinfo=UTC))
SEGMENTS: Final = [(0, ["b1", "b2", "b3"])]
COPIES: Final = tables.COPIES.empty_table()


def marked(key: str, record: LedgerMetadata = CLOSED) -> LedgerMetadata:
    """Return a record with custom metadata."""
    return replace(record, custom=((key, b"x"),))


HOLD: Final = marked(HOLD_MARK, replace(CLOSED, state=LedgerState.IN_RECOVERY, last_entry=None, length=None))
QUARANTINE: Final = replace(HOLD, custom=((HOLD_MARK, b"x"), (QUARANTINE_MARK, b"y")))
NAMED: Final = marked(NAMED_MARK)


def reconstruction(*ledgers: Ledger) -> pa.Table:
    """Return RECONSTRUCTION of some ledgers."""
    return sort_by_key(pa.Table.from_pylist([one.row() for one in ledgers], schema=tables.RECONSTRUCTION))


def choose(
    ledgers: Sequence[Ledger],
    stored: dict[int, LedgerMetadata],
    *,
    locked: Sequence[int] = (),
    locks: int = 0,
) -> ChosenRecords:
    """Choose the records of a range; locks: of reused ids, in the whole store."""
    guarded = frozenset(LedgerId(0, number) for number in locked)
    evidence = SimpleNamespace(list_guarded=lambda: guarded)
    case: Any = SimpleNamespace(evidence=evidence, list_hiding=lambda: ())
    records = catalog({LedgerId(0, number): record for number, record in stored.items()})
    sides: Any = SimpleNamespace(outcomes=lambda: reconstruction(*ledgers), stored=records)
    return range_plan._choose_records(case, sides, COPIES, Layout.HIERARCHICAL, locks)


def restored(number: int, last: int = 19) -> Ledger:
    """Return a ledger that is proved."""
    return Ledger(number, SEGMENTS, last=last)


def guarded(number: int, last: int = 19) -> Ledger:
    """Return a ledger that is readable under a guard."""
    return Ledger(number, SEGMENTS, last=last, guard="lock")


def list_ledgers(rows: pa.Table) -> list[int]:
    """Return the numbers of ledgers, in order."""
    return sorted(rows["ledger"].to_pylist())


def counted(chosen: ChosenRecords, stored: int = 0) -> dict[str, Any]:
    """Count the chosen records, beside so many of the store."""
    return range_plan._count_records(chosen, COPIES.slice(0, 0) if not stored else pa.table({"n": [0] * stored}))


def test_a_record_is_guarded_by_its_lock_or_by_names() -> None:
    """Each of both alone; both stay guarded where nothing proved replaces them, and no other record is."""
    chosen = choose([], {1: CLOSED, 2: CLOSED, 3: NAMED}, locked=(2,))
    assert int(chosen.under_guard.sum()) == 2
    counts = counted(chosen, 3)
    assert (counts["still_guarded"], counts["stored"], counts["unheld"], counts["released"]) == (2, 3, 3, 0)


@pytest.mark.parametrize("record", [HOLD, NAMED], ids=["hold", "named"])
def test_what_becomes_readable_in_place_of_a_hold_wants_a_lock_too(record: LedgerMetadata) -> None:
    """Where no lock is left it is guarded by names, as is one that the store lacks; so many are counted."""
    ledgers = [guarded(1, 29), guarded(2)]
    full = choose(ledgers, {1: record}, locks=MAX_LOCKS)
    assert full.share == 0
    guards = dict(zip(full.written["ledger"].to_pylist(), full.written["guard"].to_pylist(), strict=True))
    assert guards == {1: "named", 2: "named"}
    assert counted(full)["named"] == 2
    free = choose(ledgers, {1: record})
    assert free.missing["guard"].to_pylist() == [None]
    assert counted(free)["named"] == 0


def test_holds_that_nothing_replaces_are_kept_but_for_those_of_deletes() -> None:
    """One that is readable now is replaced, one of a delete is none of a restore."""
    chosen = choose([restored(1)], {1: HOLD, 2: HOLD, 3: QUARANTINE, 4: CLOSED})
    assert list_ledgers(chosen.kept) == [2]
    assert list_ledgers(chosen.released) == list_ledgers(chosen.written) == [1]
    assert counted(chosen)["still_held"] == 1


def test_a_guard_that_a_proof_ends_is_settled_and_no_longer_counted_as_guarded() -> None:
    """A hold that is replaced had no guard; what is guarded further stays under its lock; others stay as they are."""
    stored = {1: CLOSED, 2: CLOSED, 3: CLOSED, 4: HOLD, 5: NAMED}
    chosen = choose([restored(1), guarded(2, 29), restored(4), restored(5)], stored, locked=(1, 2, 3))
    counts = counted(chosen, len(stored))
    assert list_ledgers(chosen.released) == [1, 2, 4, 5]
    assert (counts["released"], counts["settled"], counts["still_guarded"]) == (4, 2, 1)
    assert (counts["ledgers"], counts["present"], counts["stored"], counts["unheld"]) == (4, 4, 5, 1)


def test_what_is_missing_is_counted_by_what_becomes_of_it() -> None:
    """Written are those that come back, guarded or held; reasons are of holds, doubts of guarded ones."""
    chosen = choose([restored(1), guarded(2), Ledger(3, SEGMENTS, last=None, reason="two_keys")], {})
    counts = counted(chosen)
    assert counts["outcomes"] == {"restored": 1, "guarded": 1, "held": 1}
    assert (counts["reasons"], counts["doubts"], counts["settled"], counts["named"]) == ({"two_keys": 1}, {}, 0, 0)
    assert list_ledgers(chosen.select("restored")) == [1]
    assert list_ledgers(chosen.select("guarded", "held")) == [2, 3]


def finding(ledger: int, category: Category, severity: str = "critical") -> dict[str, Any]:
    """Return a row of FINDINGS."""
    number = LedgerId(0, ledger)
    return {
        "bucket": number.bucket, "scope": 0, "ledger": ledger, "category": str(category), "severity": severity,
        "evidence": [],
    }  # fmt: skip


def findings(*rows: dict[str, Any]) -> pa.Table:
    """Return FINDINGS."""
    return pa.Table.from_pylist(list(rows), schema=tables.FINDINGS)


@pytest.mark.parametrize("everywhere", [False, True])
def test_what_is_critical_is_proven_but_for_absence_where_not_all_was_looked_at(*, everywhere: bool) -> None:
    """Lost entries are counted apart; ids of the store that two ledgers have, once each."""
    rows = findings(
        finding(1, Category.ENTRY_LOST),
        finding(2, Category.RECORD_CONTRADICTED),
        finding(3, Category.RECORD_CONTRADICTED, "warning"),
        finding(4, Category.ID_REUSE),
        finding(5, Category.ID_REUSE),
    )
    lost = findings(*(finding(n, Category.ENTRY_LOST) for n in (1, 2)), finding(3, Category.GUARDED))
    problems = RangeFindings(rows, np.array([True, False]), lost, findings(finding(9, Category.ENTRY_LOST)))
    evidence: Any = SimpleNamespace(everywhere=everywhere)
    stored = catalog({LedgerId(0, number): CLOSED for number in (1, 4, 5)})
    counts = range_plan._count_findings(evidence, problems, stored)
    assert (counts["newer"], counts["short"], counts["beyond"], counts["reused"]) == (1, 2, 1, 2)
    proven = {"ENTRY_LOST": 1} if everywhere else {}
    assert {name: count for name, count in counts["proven"].items() if name != "ID_REUSE"} == {
        **proven, "RECORD_CONTRADICTED": 1
    }  # fmt: skip
    nothing = RangeFindings(findings(), np.zeros(0, np.bool_), findings(), findings())
    assert range_plan._count_findings(evidence, nothing, stored)["short"] == 0


@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("looked_at", [False, True])
def test_what_no_bookie_has_is_said_where_bookies_were_looked_at(
    everywhere: bool, looked_at: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And few copies above an end may be all that there are only where every bookie was."""
    asked: list[bool] = []

    def find_beyond(*_: object, seen: bool, side: str) -> pa.Table:
        asked.append(seen)
        assert side == "plan"
        return findings()

    monkeypatch.setattr(entries_beyond_end, "findings", find_beyond)
    monkeypatch.setattr(range_findings, "find_all", lambda *_: findings())
    monkeypatch.setattr(range_plan, "find_newer", lambda stored, _: np.zeros(stored.num_rows, np.bool_))
    chosen = choose([], {4: CLOSED})
    evidence = SimpleNamespace(everywhere=everywhere, looked_at=looked_at)
    case: Any = SimpleNamespace(evidence=evidence, see_bookies=lambda: None)
    sides: Any = SimpleNamespace(stored=catalog({LedgerId(0, 4): CLOSED}))
    problems = range_plan._find(case, sides, chosen, COPIES, range(9), None, RUN)
    assert asked == [everywhere and looked_at]
    assert problems.rows["category"].to_pylist() == [str(Category.NOT_ON_BOOKIES)] * looked_at


def find_neighbour(number: int) -> int:
    """Return another ledger of the same bucket."""
    bucket = LedgerId(0, number).bucket
    return next(n for n in range(number + 1, 1 << 20) if LedgerId(0, n).bucket == bucket)


class Planner:
    """Plans one range, of what was decided before: no bookie, and no store, is read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lost: list[Ledger] = []
        self.stored: dict[int, LedgerMetadata] = {}
        self.reused: list[int] = []
        self.standing: list[dict[str, Any]] = []
        self.share = 9
        nothing = RangeFindings(findings(), np.zeros(0, np.bool_), findings(), findings())
        compared = pa.table({"relation": ["both", "both"], "verdict": ["clean", None]})
        for owner, name, made in (
            (decide, "decide_range", lambda *_: self._sides()),
            (range_plan, "guard_renamed", lambda _, sides, __: sides),
            (range_plan, "list_reuse_locks", lambda _: self.standing),
            (range_plan, "share_locks", lambda *_: self.share),
            (range_plan, "_find", lambda *_: nothing),
            (range_findings, "give_verdicts", lambda *_, **__: (compared, 2)),
            (range_plan, "offer_alternatives", lambda _, __, ___, actions, *____: (actions, 3)),
            (id_reuse, "find_strays", lambda *_: self._places()),
            (used_ids, "gather_ids_of_ledgers", lambda *_: None),
            (used_ids, "numbers", lambda *_: None),
        ):
            monkeypatch.setattr(owner, name, made)

    def _sides(self) -> Any:
        records = catalog({LedgerId(0, number): record for number, record in self.stored.items()})
        return SimpleNamespace(outcomes=lambda: reconstruction(*self.lost), stored=records, history=None)

    def _places(self) -> Any:
        return np.flatnonzero(np.isin(self._sides().stored["ledger"].to_numpy(), self.reused))

    def plan(self, references: pa.Table | None = None, *, names_all: bool = False) -> PlannedRange:
        """Plan the range of all buckets."""
        evidence = SimpleNamespace(
            live=None, list_guarded=frozenset, read_tables=lambda *_: None, find_issued=lambda _: 0, everywhere=True
        )
        case: Any = SimpleNamespace(evidence=evidence, copies=lambda _: COPIES, list_hiding=lambda: ())
        settings = RangeSettings(Layout.HIERARCHICAL, Passwords.from_candidates([b""]), RUN)
        assert not settings.names_all
        prior = Prior.build(ShapeCounts(), None)
        settings = replace(settings, names_all=names_all)
        return range_plan.plan_range(case, prior, range(BUCKETS), references, settings, bytes)


def test_locks_of_reused_ids_are_numbered_with_the_records_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two are made, one is left where it stands: a person decides; what offers a choice alone is left, too."""
    planner = Planner(monkeypatch)
    planner.lost, planner.stored = [restored(1)], dict.fromkeys((2, 3, 4), CLOSED)
    alone = planner.plan()
    assert (alone.counts.left, alone.counts.reuse_locks, alone.counts.looked_at) == (3, 0, 2)
    assert alone.tables["actions"]["op"].to_pylist() == ["create"]
    planner.reused, end = [2, 3, 4], datetime(2031, 1, 1, tzinfo=UTC)
    number = LedgerId(0, 4)
    standing = {"bucket": number.bucket, "scope": 0, "ledger": 4, "path": "/l", "version": 1, "raw": b"x", "end": end}
    planner.standing = [standing, standing | {"bucket": BUCKETS, "ledger": 5}]
    found = planner.plan()
    assert (found.counts.left, found.counts.reuse_locks) == (4, 2)
    assert sorted(found.tables["actions"]["op"].to_pylist()) == sorted(["create", KEEP, KEEP, LEAVE])
    assert found.counts.relations == {"both": 2}
    assert found.counts.verdicts == {"clean": 1}


def test_a_guards_lock_takes_the_place_of_one_of_a_reused_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """In its bucket; a ledger that is restored takes none."""
    planner = Planner(monkeypatch)
    planner.lost, planner.share = [guarded(1), restored(2)], 1
    planner.reused = [find_neighbour(1), find_neighbour(2)]
    planner.stored = dict.fromkeys(planner.reused, CLOSED)
    kept = planner.plan().tables["actions"]
    assert kept.filter(pc.equal(kept["op"], KEEP))["ledger"].to_pylist() == [find_neighbour(2)]


@pytest.mark.parametrize("is_given", [False, True])
@pytest.mark.parametrize("names_all", [False, True])
def test_references_are_counted_where_they_name_all(
    is_given: bool, names_all: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger that they do not name is unreferenced only then."""
    planner = Planner(monkeypatch)
    planner.lost = [restored(1)]
    counted = planner.plan(SCHEMA.empty_table() if is_given else None, names_all=names_all).references
    assert (counted is not None) == (is_given and names_all)
    assert counted is None or counted.unreferenced == 1


def test_absence_is_what_the_traits_call_so() -> None:
    """A bookie that was not looked at may have what no other has; a contradiction is one, whoever is not seen."""
    absent = range_plan._OF_ABSENCE.to_pylist()
    assert str(Category.ENTRY_LOST) in absent
    assert str(Category.RECORD_CONTRADICTED) not in absent
