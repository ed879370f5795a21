"""What bookies are compared with: which catalog is the newest, the store's last state, mass deletions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from reconcile.compare.evidence import (
    BookieEvidence,
    Catalog,
    find_collisions,
    has_scopes,
    read_unguarded,
    sort_newest_first,
)
from reconcile.rules.holds import HOLD_MARK
from recovery.codecs import replication_lock
from recovery.codecs.store import Layout, generator_key
from recovery.dataset import Dataset, DatasetWriter, open_dataset
from recovery.infer.references import SCHEMA
from recovery.model import tables
from recovery.model.ids import BUCKETS, LedgerId, buckets
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.simulation import evidence
from tests.simulation.simulator import copy_row

RECORD: Final = LedgerMetadata(
    3, 2, 2, 2, LedgerState.CLOSED, 9, 100, (Segment(0, ("a:1", "b:1")),), Digest.CRC32C, b"", ctime=1
)  # fmt: skip
GUARD: Final = replication_lock.encode_guard("ab" * 32)
ALL: Final = range(BUCKETS)


def key(ledger: int, scope: int = 0) -> dict[str, int]:
    """Return a ledger's key columns."""
    return {"bucket": int(buckets(np.array([scope]), np.array([ledger]))[0]), "scope": scope, "ledger": ledger}


def written(
    folder: Path,
    ledgers: Mapping[int, LedgerMetadata] | None = None,
    history: Sequence[tuple[int, str]] = (),
    nodes: Sequence[Mapping[str, Any]] = (),
    coverage: Mapping[str, Any] | None = None,
    binding: Mapping[str, Any] | None = None,
    **source: Any,
) -> Dataset:
    """Write a catalog: records, what happened to which ledgers, nodes, and what its one source says of itself."""
    with DatasetWriter(folder, "catalog", binding=binding or {}) as out:
        if ledgers:
            out.append("ledgers", evidence.Evidence(ledgers).catalog())
        events = [{**key(ledger), "txn": txn, "op": op} for txn, (ledger, op) in enumerate(history, 1)]
        out.append("history", pa.Table.from_pylist(events, schema=tables.CATALOG_HISTORY))
        bare = {"kind": "other", "raw": b"", "version": 0}
        out.append("nodes", pa.Table.from_pylist([{**bare, **n} for n in nodes], schema=tables.CATALOG_NODES))
        said = {"kind": "zookeeper", "uri": "zk", "complete": True, "root": "present", "gaps": [], **source}
        if source:
            out.append("sources", pa.Table.from_pylist([said], schema=tables.CATALOG_SOURCES))
        out.close(coverage=coverage or {})
    return open_dataset(folder, "catalog")


def at(second: int) -> datetime:
    """Return a time."""
    return datetime.fromtimestamp(second, UTC)


def known(*catalogs: Dataset, **changes: Any) -> BookieEvidence:
    """Return evidence: the first catalog is the store's."""
    live, *snapshots = (Catalog(dataset, "store", None, 0.0, dataset.rows("ledgers")) for dataset in catalogs)
    return BookieEvidence(live, tuple(snapshots), everywhere=True, looked_at=True, **changes)


def test_the_newest_catalog_is_first(tmp_path: Path) -> None:
    """By its time, then by its transaction; one that says neither is the oldest."""
    said = {"d": (5, 9), "a": (7, 1), "b": (5, 10), "c": (5, None)}
    made = [written(tmp_path / name, uri=name, at=at(time), txn=txn) for name, (time, txn) in said.items()]
    silent = written(tmp_path / "silent")
    found = sort_newest_first([silent, *made])
    assert [catalog.source for catalog in found] == ["a", "b", "d", "c", str(tmp_path / "silent")]
    assert [(found[0].taken_at, found[0].txn), (found[4].taken_at, found[4].layout)] == [(7.0, 1), (0.0, None)]


def test_only_the_whole_of_a_stores_own_files_is_what_it_had_last(tmp_path: Path) -> None:
    """Complete, without a gap, up to their end: not to a time that a person chose."""
    whole: dict[str, Any] = {"kind": "zkfiles", "at": at(1), "layout": "hierarchical"}
    cases: list[tuple[dict[str, Any], bool]] = [
        ({}, True),
        ({"kind": "zookeeper"}, False),
        ({"complete": False}, False),
        ({"gaps": ["a log"]}, False),
        ({"binding": {"at": "2030"}}, False),
    ]
    for number, (change, is_last) in enumerate(cases):
        found = Catalog.read(written(tmp_path / str(number), **(whole | change)))
        assert (found.is_last, found.is_chosen) == (is_last, "binding" in change)
        assert found.layout is Layout.HIERARCHICAL


def test_ids_were_given_out_below_the_counter_of_a_complete_snapshot(tmp_path: Path) -> None:
    """The largest of all snapshots; the store's own counter says nothing of what was deleted since."""
    counter = {"path": generator_key(Layout.HIERARCHICAL), "children_created": 7}
    beside = {"path": "/other", "children_created": 70}
    whole = written(tmp_path / "whole", nodes=[counter, beside], coverage={"complete": ["nodes"]})
    partly = written(tmp_path / "partly", nodes=[{**counter, "children_created": 9}])
    none = written(tmp_path / "none", coverage={"complete": ["nodes"]})
    found = [known(none, snapshot).find_issued(Layout.HIERARCHICAL) for snapshot in (whole, partly, none)]
    assert found == [7, 0, 0]
    assert known(whole).find_issued(Layout.HIERARCHICAL) == 0
    assert known(none, partly, whole, none).find_issued(Layout.HIERARCHICAL) == 7


def test_guarded_records_and_holds_are_no_evidence(tmp_path: Path) -> None:
    """A guard's lock, or its mark, shows a record that we wrote; a lock of auto-recovery does not."""
    marked = replace(RECORD, custom=(("bkmeta.guard", b"named"),))
    hold = replace(RECORD, custom=((HOLD_MARK, b"held"),))
    records = {1: RECORD, 2: RECORD, 3: marked, 4: hold, 5: RECORD}
    locks: list[dict[str, Any]] = [
        {
            "path": replication_lock.lock_key(LedgerId(0, 1)),
            "kind": "lock",
            "raw": replication_lock.encode_guard("ab" * 32),
        },
        {"path": replication_lock.lock_key(LedgerId(0, 2)), "kind": "lock", "raw": b'bookieId: "a:1"\n', "owner": 5},
    ]
    catalog = written(tmp_path, records, nodes=locks)
    evidence_of = known(catalog, catalog)
    assert evidence_of.list_guarded() == {LedgerId(0, 1)}
    assert sorted(evidence_of.read_members(ALL)[0]["ledger"].to_pylist()) == [2, 4, 5]
    beside = evidence_of.read_tables(ALL, None)
    assert sorted(beside.stored["ledger"].to_pylist()) == [1, 2, 3, 4, 5]
    assert sorted(beside.records()["ledger"].to_pylist()) == [2, 5]
    assert beside.alive is None
    last = replace(evidence_of, snapshots=(replace(evidence_of.snapshots[0], is_last=True),))
    alive = last.read_tables(ALL, None).alive
    assert alive is not None
    assert sorted(alive["ledger"].to_pylist()) == [2, 4, 5]
    without = replace(evidence_of, live=None, snapshots=())
    assert without.read_tables(ALL, None).alive is None
    assert without.list_guarded() == frozenset()


COPIES: Final = pa.Table.from_pylist(
    [
        *(copy_row(ledger, bookie, [0]) for ledger in (1, 2, 3, 4, 5) for bookie in ("a:1", "b:1")),
        *(copy_row(ledger, "a:1", [0], source="log") for ledger in (6, 7)),
    ],
    schema=tables.COPIES,
)


def references() -> pa.Table:
    """Return references to ledgers 3 to 8: of 5 and 6 a history shows that they were let go of."""
    rows = [{**key(ledger), "deletion": "trimmed" if ledger in (5, 6) else None} for ledger in (3, 4, 5, 6, 8)]
    return pa.Table.from_pylist(sorted(rows, key=lambda row: (row["bucket"], row["ledger"])), schema=SCHEMA)


def test_deletions_are_counted_of_what_bookies_have_and_the_store_lacks(tmp_path: Path) -> None:
    """Ledgers whose last event is a deletion; not those that are stored, on no bookie, or stated to be deleted."""
    history = [(1, "deleted"), (2, "deleted"), (3, "deleted"), (4, "deleted"), (4, "created"), (9, "deleted")]
    store = written(tmp_path / "store", {2: RECORD}, history)
    counted = known(store).count_deletions(COPIES, ALL, None)
    assert counted == {"on_bookies": 7, "deleted": 2, "let_go": 0, "named": 0}
    stated = pa.Table.from_pylist([{**key(3), "deleted": True}], schema=SCHEMA)
    assert known(store).count_deletions(COPIES, ALL, stated) == {**counted, "deleted": 1, "named": 1}
    silent = written(tmp_path / "silent")
    nothing = {"on_bookies": 0, "deleted": 0, "let_go": 0, "named": 0}
    for given in (None, stated):
        assert known(silent).count_deletions(COPIES, ALL, given) == nothing
    # Bookies still serve 5, not 6; that the store has it would end it.
    assert known(silent).count_deletions(COPIES, ALL, references()) == {
        **nothing,
        "on_bookies": 7,
        "let_go": 1,
        "named": 3,
    }
    stored = written(tmp_path / "stored", {5: RECORD})
    assert known(stored).count_deletions(COPIES, ALL, references())["let_go"] == 0


@pytest.mark.parametrize(
    ("on_bookies", "deleted", "let_go", "named", "mass"),
    [
        (1000, 10, 0, 5, (False, False)),
        (1000, 11, 0, 5, (True, False)),
        (2000, 20, 0, 5, (False, False)),
        (2000, 21, 0, 5, (True, False)),
        (1000, 0, 10, 5, (False, False)),
        (1000, 0, 11, 5, (False, True)),
        (1000, 0, 1, 0, (False, True)),
        (1000, 0, 0, 0, (False, False)),
    ],
)
def test_more_than_a_hundredth_is_a_catastrophe(
    on_bookies: int, deleted: int, let_go: int, named: int, mass: tuple[bool, bool]
) -> None:
    """Ten of any cluster may have been wanted; what an upper layer let go of, only where it names others."""
    total = {"on_bookies": on_bookies, "deleted": deleted, "let_go": let_go, "named": named}
    parts = [
        {name: count // 2 for name, count in total.items()},
        {name: -(-count // 2) for name, count in total.items()},
    ]
    nothing = BookieEvidence(None, (), everywhere=True, looked_at=True)
    found = nothing.with_deletions(parts)
    assert (found.mass_deletion, found.mass_let_go) == mass


def test_a_store_in_which_nothing_is_left_is_a_catastrophe(tmp_path: Path) -> None:
    """Whatever the count is, if any was deleted, and a catalog's own history shows it."""
    counts = {"on_bookies": 5, "deleted": 1, "let_go": 0, "named": 0}
    emptied = known(written(tmp_path / "emptied", history=[(1, "deleted")]))
    assert emptied.with_deletions([counts]).mass_deletion
    assert not emptied.with_deletions([{**counts, "deleted": 0}]).mass_deletion
    for name, made in {"left": ({2: RECORD}, [(1, "deleted")]), "silent": (None, [])}.items():
        assert not known(written(tmp_path / name, *made)).with_deletions([counts]).mass_deletion


def inventory(folder: Path, *ledgers: tuple[int, int]) -> Dataset:
    """Write an inventory of some ledgers: scope and id."""
    rows = [{**copy_row(ledger, "a:1", [0]), **key(ledger, scope)} for scope, ledger in ledgers]
    with DatasetWriter(folder, "inventory", binding={}) as out:
        out.append("copies", pa.Table.from_pylist(rows, schema=tables.COPIES))
        out.close(coverage={})
    return open_dataset(folder, "inventory")


def test_ledgers_of_two_scopes_with_one_lower_half_collide(tmp_path: Path) -> None:
    """Wherever either is known from; one that is known twice collides with nothing."""
    first = inventory(tmp_path / "first", (0, 1), (0, 2), (7, 2), (0, 3))
    store = written(tmp_path / "store", {1: RECORD, 4: RECORD}, [(5, "deleted")])
    other = inventory(tmp_path / "other", (9, 4), (8, 5), (0, 3))
    assert [has_scopes([one]) for one in (first, store, other)] == [True, False, True]
    assert not has_scopes([inventory(tmp_path / "plain", (0, 1)), inventory(tmp_path / "empty")])
    found = find_collisions([first, store, other], ALL).to_pylist()
    assert sorted((row["ledger"], row["scope"]) for row in found) == [(2, 0), (2, 7), (4, 0), (4, 9), (5, 0), (5, 8)]
    # Each lower half is of one part, the last bucket of a part is not the next one's.
    bucket = key(2)["bucket"]
    parts = [
        find_collisions([first], range(*bounds))
        for bounds in ((0, bucket), (bucket, bucket + 1), (bucket + 1, BUCKETS))
    ]
    assert [part.num_rows for part in parts] == [0, 2, 0]


def test_counters_are_read_by_the_layout_that_a_catalog_says(tmp_path: Path) -> None:
    """Else by the given one."""
    said, silent = written(tmp_path / "said", layout="flat", at=at(1)), written(tmp_path / "silent")
    evidence = BookieEvidence(None, (Catalog.read(said), Catalog.read(silent)), everywhere=True, looked_at=True)
    assert [layout for _, layout in evidence.read_counters(Layout.LEGACY)] == [Layout.FLAT, Layout.LEGACY]


def test_one_catalog_that_remembers_is_enough_to_count_deletions(tmp_path: Path) -> None:
    """The other one may have no history. One without a chosen time shows no mass deletion."""
    silent, told = written(tmp_path / "silent", {3: RECORD}), written(tmp_path / "told", history=[(1, "deleted")])
    copies = pa.Table.from_pylist([{**copy_row(n, "a:1", [0])} for n in (1, 2)], schema=tables.COPIES)
    for catalogs in ((silent, told), (told, silent)):
        counted = known(*catalogs).count_deletions(copies, ALL, None)
        assert (counted["on_bookies"], counted["deleted"], counted["named"]) == (2, 1, 0)
    assert known(silent).count_deletions(copies, ALL, None)["on_bookies"] == 0
    plain = known(silent)
    assert (plain.mass_deletion, plain.mass_let_go, plain.is_some_lost) == (False, False, False)
    assert plain.live is not None
    assert not plain.live.is_chosen


def test_only_columns_that_are_asked_for_are_read(tmp_path: Path) -> None:
    """Though more are needed to see what is under a guard."""
    dataset = written(tmp_path / "one", {3: RECORD})
    assert read_unguarded(dataset, ALL, ["ledger", "state"]).column_names == ["ledger", "state"]
    assert read_unguarded(dataset, ALL).column_names == tables.CATALOG_LEDGERS.names


def test_one_dataset_of_another_scope_is_enough(tmp_path: Path) -> None:
    """Wherever it stands among the others."""
    plain = written(tmp_path / "plain", {3: RECORD})
    with DatasetWriter(tmp_path / "scoped", "catalog", binding={}) as out:
        rows = [{**key(4, 3), "txn": 1, "op": "deleted"}]
        out.append("history", pa.Table.from_pylist(rows, schema=tables.CATALOG_HISTORY))
        out.close(coverage={})
    scoped = open_dataset(tmp_path / "scoped", "catalog")
    assert [has_scopes(given) for given in ([plain, scoped], [scoped, plain], [plain], [])] == [
        True,
        True,
        False,
        False,
    ]
