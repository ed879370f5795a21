"""What a bucket range's comparison is said to show, by what was looked at."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from reconcile.compare import range_findings
from reconcile.compare.evidence import BookieEvidence as Known
from reconcile.compare.evidence import Catalog, KnownTables
from reconcile.compare.range_findings import find_all, give_verdicts
from reconcile.compare.three_way import ComparedRange, join_sides, settle_range
from reconcile.findings.categories import TRAITS, Category
from reconcile.findings.table import FindingRun
from reconcile.rules import entries_beyond_end, nodes, sides, snapshot_findings
from reconcile.rules.segments import copy_findings
from reconcile.rules.segments.copies import Sight
from reconcile.rules.sides import Relation
from recovery.codecs.store import Layout
from recovery.dataset import sort_by_key
from recovery.infer.references import SCHEMA
from recovery.model import tables
from recovery.model.metadata import LedgerMetadata
from tests.reconcile.compare.test_compare_evidence import at, written
from tests.reconcile.compare.test_deleted_since import CLOSED, OPEN, A, B, C, catalog
from tests.reconcile.compare.test_three_way import PLAIN, row
from tests.simulation.evidence import Evidence
from tests.simulation.simulator import bookies, copy_row

RUN: Final = FindingRun("r", datetime(2026, 1, 1, tzinfo=UTC))
SEEN: Final = [(True, True), (True, False), (False, True), (False, False)]


def settle(
    rows: Sequence[Mapping[str, Any]] = (),
    copies: Sequence[Mapping[str, Any]] = (),
    deletions: Mapping[int, LedgerMetadata | None] | None = None,
    snapshot: pa.Table | None = None,
    stored: pa.Table | None = None,
    evidence: Known = PLAIN,
) -> tuple[ComparedRange, pa.Table]:
    """Return a range, settled, and its copies."""
    empty = tables.CATALOG_LEDGERS.empty_table()
    history = Evidence(deletions=deletions or {}).history()
    beside = KnownTables(
        empty if stored is None else sort_by_key(stored), () if snapshot is None else ((sort_by_key(snapshot), 5),),
        history, empty.select(list(tables.KEY_COLUMNS)),
    )  # fmt: skip
    made = sort_by_key(pa.Table.from_pylist(list(rows), schema=tables.RECONSTRUCTION))
    held = sort_by_key(pa.Table.from_pylist(list(copies), schema=tables.COPIES))
    return settle_range(evidence, join_sides(made, beside), beside, held, 0), held


def sight() -> Sight:
    """Return three bookies that were looked at."""
    looked = bookies([A, B, C])
    return copy_findings.see_bookies(looked, tables.DAMAGE.empty_table(), {})


def find(part: ComparedRange, held: pa.Table, category: Category, evidence: Known = PLAIN) -> dict[int, dict[str, Any]]:
    """Return the findings of a category by ledger."""
    found = find_all(evidence, part, held, sight(), range(4096), RUN).to_pylist()
    return {one["ledger"]: one for one in found if one["category"] == str(category)}


@pytest.mark.parametrize(("everywhere", "looked_at"), SEEN)
def test_a_deletion_is_a_note_only_where_no_bookie_can_have_the_ledger(*, everywhere: bool, looked_at: bool) -> None:
    """One that a bookie has is told with its bookies; one that none has is a note where all were looked at."""
    copies = [copy_row(1, A, range(3)), copy_row(1, B, range(3), source="log"), copy_row(1, A, range(3), source="log")]
    evidence = replace(PLAIN, everywhere=everywhere, looked_at=looked_at)
    part, held = settle([row(1)], copies, {1: CLOSED, 2: CLOSED}, evidence=evidence)
    found = find(part, held, Category.DELETED_OUTSIDE, evidence)
    usual = TRAITS[Category.DELETED_OUTSIDE].severity
    quiet = "info" if everywhere and looked_at else usual
    assert {ledger: one["severity"] for ledger, one in found.items()} == {1: usual, 2: quiet}
    said = {ledger: {e["field"]: e["value"] for e in one["evidence"]} for ledger, one in found.items()}
    assert {ledger: text["have it"] for ledger, text in said.items()} == {1: "yes", 2: "no"}
    assert {ledger: one["bookies"] for ledger, one in found.items()} == {1: [B], 2: []}


@pytest.mark.parametrize(("everywhere", "looked_at"), SEEN)
def test_what_is_left_out_is_undecided_where_a_bookie_may_have_it(*, everywhere: bool, looked_at: bool) -> None:
    """A record of a snapshot that nothing becomes of; where all bookies were looked at, that is decided."""
    evidence = replace(PLAIN, everywhere=everywhere, looked_at=looked_at)
    part, _ = settle(snapshot=catalog(CLOSED), evidence=evidence)
    part = replace(part, alone=tables.RECONSTRUCTION.empty_table())
    verdicts, looked = give_verdicts(evidence, part, tables.FINDINGS.empty_table())
    assert looked == 1
    assert (verdicts["verdict"].to_pylist() == ["undecided"]) == (not (everywhere and looked_at))


def test_an_open_record_of_the_store_is_skipped() -> None:
    """So is one that cannot be read: whoever writes it may be at work; a closed one is judged."""
    part, _ = settle(stored=catalog(CLOSED, OPEN, None))
    verdicts, looked = give_verdicts(PLAIN, part, tables.FINDINGS.empty_table())
    by_ledger = dict(zip(verdicts["ledger"].to_pylist(), verdicts["verdict"].to_pylist(), strict=True))
    assert looked == 3
    assert by_ledger[2] == by_ledger[3] != by_ledger[1]


@pytest.mark.parametrize(
    "newer", [(True, False, False), (False, True, False), (False, False, True), (False, True, True), (False,) * 3]
)
def test_a_record_that_is_newer_than_what_was_seen_of_its_bookies_is_undecided(newer: tuple[bool, ...]) -> None:
    """One of the store's records, in their order; beside a ledger that bookies alone have. An open one is skipped."""
    part, _ = settle([row(9)], stored=catalog(CLOSED, CLOSED, OPEN))
    none = tables.FINDINGS.empty_table()
    plain, told = (
        give_verdicts(PLAIN, part, none, newer=mask)[0]["verdict"].to_pylist() for mask in (None, np.array(newer))
    )
    ledgers = part.compared.sides["ledger"].to_pylist()
    stored = part.stored["ledger"].to_pylist()
    changed = [ledger for ledger, one, other in zip(ledgers, plain, told, strict=True) if one != other]
    wanted = [ledger for ledger, is_newer in zip(stored, newer, strict=True) if is_newer and ledger != 3]
    assert changed == wanted
    assert {told[ledgers.index(ledger)] for ledger in wanted} <= {"undecided"}


def test_only_references_of_all_ledgers_show_that_one_has_no_owner() -> None:
    """Tombstones alone name deleted ledgers."""
    part, _ = settle([row(1)])
    references = pa.Table.from_pylist(
        [{"bucket": 0, "scope": 0, "ledger": 9, "owner": "t", "source": "s"}], schema=SCHEMA
    )
    none = tables.FINDINGS.empty_table()
    named, tombs = (give_verdicts(PLAIN, part, none, references, names_all=flag)[0] for flag in (True, False))
    default = give_verdicts(PLAIN, part, none, references)[0]
    assert default.equals(named)
    assert (named["referenced"].to_pylist(), tombs["referenced"].to_pylist()) == ([False], [None])


def test_logs_alone_are_told_of_those_whose_index_dropped_the_ledger() -> None:
    """Of no ledgers, and of no copies, none."""
    keys = pa.table({"scope": [0], "ledger": [1]})
    held = pa.Table.from_pylist([copy_row(1, B, [0], source="log")], schema=tables.COPIES)
    assert range_findings._list_log_only_bookies(keys, held).to_pylist() == [[B]]
    assert range_findings._list_log_only_bookies(keys, held.slice(0, 0)).to_pylist() == [[]]
    assert range_findings._list_log_only_bookies(keys.slice(0, 0), held).to_pylist() == []


def test_what_was_probably_deleted_is_said_of_those_alone() -> None:
    """Of two records that only a snapshot has, the one that is marked."""
    part, held = settle(snapshot=catalog(CLOSED, replace(CLOSED, last_entry=3)))
    places = part.compared.where(Relation.SNAPSHOT_ONLY)
    marked = replace(part, deleted_since=places[:1])
    told = find_all(PLAIN, marked, held, sight(), range(4096), RUN)
    plain = find_all(PLAIN, replace(part, deleted_since=np.zeros(0, np.int64)), held, sight(), range(4096), RUN)
    first = int(part.compared.sides["ledger"].to_numpy()[places[0]])
    changed = [one["ledger"] for one, other in zip(sort(told), sort(plain), strict=True) if one != other]
    assert changed == [first]


def sort(found: pa.Table) -> list[dict[str, Any]]:
    """Return findings in order of ledgers."""
    return sorted(found.to_pylist(), key=lambda one: (one["ledger"] or 0, one["category"] == "DELETED_SINCE"))


def test_copies_are_compared_only_where_some_were_looked_at() -> None:
    """Else every record would lack all of them."""
    part, held = settle(stored=catalog(CLOSED))
    looked = find_all(PLAIN, part, held, sight(), range(4096), RUN)
    blind = find_all(replace(PLAIN, looked_at=False), part, held, sight(), range(4096), RUN)
    assert looked.num_rows > blind.num_rows
    assert str(Category.ENTRY_LOST) in looked["category"].to_pylist()


def catalog_at(folder: Path, history: Sequence[tuple[int, str]] = ()) -> Catalog:
    """Return a catalog named as its folder, with what happened to some ledgers."""
    return Catalog.read(written(folder, history=history, uri=folder.name, at=at(1)))


@pytest.mark.parametrize(("everywhere", "looked_at"), SEEN)
def test_what_is_compared_is_told_to_each_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, everywhere: bool, looked_at: bool
) -> None:
    """Whether all was seen, which source each side is from, and what became of records that only a snapshot has."""
    told: dict[str, Any] = {}

    def beyond(*_: object, seen: bool) -> pa.Table:
        told["seen"] = seen
        return tables.FINDINGS.empty_table()

    def others(*given: object) -> pa.Table:
        told["sources"] = given[-2:]
        return tables.FINDINGS.empty_table()

    def only(records: pa.Table, alone: pa.Table, *_: object, **how: Any) -> pa.Table:
        told["only"] = (records["ledger"].to_pylist(), alone.num_rows, how["deleted"].tolist(), how["seen"])
        return tables.FINDINGS.empty_table()

    monkeypatch.setattr(entries_beyond_end, "findings", beyond)
    monkeypatch.setattr(sides, "find_other_records", others)
    monkeypatch.setattr(snapshot_findings, "find_only_there", only)
    part, held = settle(snapshot=catalog(CLOSED, replace(CLOSED, last_entry=3)))
    places = part.compared.where(Relation.SNAPSHOT_ONLY)
    first = int(part.compared.sides["ledger"].to_numpy()[places[0]])
    evidence = replace(PLAIN, everywhere=everywhere, looked_at=looked_at)
    find_all(evidence, replace(part, deleted_since=places[:1]), held, sight(), range(4096), RUN)
    ledgers, alone, deleted, seen = told["only"]
    assert (told["seen"], seen) == (everywhere and looked_at,) * 2
    assert (sorted(ledgers), alone, told["sources"]) == ([1, 2], 0, ("", ""))
    assert [ledger for ledger, is_deleted in zip(ledgers, deleted, strict=True) if is_deleted] == [first]
    live, old = (catalog_at(tmp_path / name) for name in ("live", "old"))
    proposed = pa.Table.from_pylist([row(1)], schema=tables.RECONSTRUCTION)
    both = replace(evidence, live=live, snapshots=(old, old))
    find_all(both, replace(part, alone=proposed), held, sight(), range(4096), RUN)
    assert (told["sources"], told["only"][1]) == (("live", "old, old"), 1)


def test_a_deletion_names_its_session_and_the_histories_that_were_read(tmp_path: Path) -> None:
    """Those that remember anything; a session as ZooKeeper writes it."""
    live, old = catalog_at(tmp_path / "live", [(9, "deleted")]), catalog_at(tmp_path / "old")
    evidence = replace(PLAIN, live=live, snapshots=(old,))
    part, held = settle(deletions={1: CLOSED, 2: CLOSED})
    columns = part.compared.sides.column_names
    sessions = pa.array([None, 255], pa.int64())
    listed = part.compared.sides.set_column(columns.index("deleted_session"), "deleted_session", sessions)
    part = replace(part, compared=replace(part.compared, sides=listed))
    found = find_all(evidence, part, held, sight(), range(4096), RUN).to_pylist()
    said = {
        one["ledger"]: {(e["field"], e["value"], e["source"]) for e in one["evidence"]}
        for one in found
        if one["category"] == str(Category.DELETED_OUTSIDE)
    }
    by_place = [said[ledger] for ledger in listed["ledger"].to_pylist()]
    assert ("deleted by session", "0xff", "live") in by_place[1]
    assert [value for field, value, _ in by_place[0] if field == "deleted by session"] == ["nothing"]


def test_nodes_are_compared_with_those_of_the_newest_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If there is one; without a store no nodes are compared."""
    told: list[tuple[str, str | None]] = []

    def keep(store: nodes.Side, snapshot: nodes.Side | None, *_: object, **__: object) -> list[object]:
        told.append((store.source, None if snapshot is None else snapshot.source))
        return []

    monkeypatch.setattr(nodes, "findings", keep)
    live, new, old = (catalog_at(tmp_path / name) for name in ("live", "new", "old"))
    how: dict[str, Any] = {"layout": Layout.HIERARCHICAL, "taken": {}, "raised": frozenset()}
    for evidence in (replace(PLAIN, live=live), replace(PLAIN, live=live, snapshots=(new, old)), PLAIN):
        found = range_findings.find_beside_ledgers(evidence, bookies([A]), RUN, **how)
        assert found.num_rows == 0
    assert told == [("live", None), ("live", "new")]
