"""Bookies that records know by another name: from how many ledgers on they are proposed, and what is guarded then."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reconcile.compare import renamed_bookies
from reconcile.compare.evidence import BookieEvidence as Known
from reconcile.compare.evidence import Catalog, KnownTables
from reconcile.compare.renamed_bookies import ProposedAlias, guard_renamed, propose_aliases
from reconcile.compare.three_way import join_sides
from recovery.dataset import Dataset, DatasetWriter, open_dataset
from recovery.model import tables
from recovery.model.ids import BUCKETS
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.simulation import simulator
from tests.simulation.evidence import Evidence
from tests.simulation.simulator import copy_row

OLD, NEW, OTHER = "old:1", "new:1", "other:1"


@dataclass
class Cluster:
    """Who holds which ledgers, and whom their records name."""

    held: dict[str, list[int]]
    named: dict[int, list[list[str]]]
    registered: Sequence[str] = ()
    sources: Mapping[str, str] = field(default_factory=dict)

    def record(self, ledger: int) -> LedgerMetadata:
        """Return a closed ledger's record; its segments begin ten entries apart."""
        segments = tuple(Segment(10 * n, tuple(members)) for n, members in enumerate(self.named[ledger]))
        size = len(segments[0].members)
        return LedgerMetadata(
            3, size, size, 1, LedgerState.CLOSED, 99, 1000, segments, Digest.CRC32C, b"", ctime=1
        )  # fmt: skip

    def inventory(self, folder: Path) -> Dataset:
        """Write what bookies hold."""
        rows = [
            copy_row(ledger, bookie, [0], source=self.sources.get(bookie, "index"))
            for bookie, ledgers in self.held.items()
            for ledger in ledgers
        ]
        return written(folder, "inventory", "copies", pa.Table.from_pylist(rows, schema=tables.COPIES))

    def known(self, folder: Path, **changes: Any) -> Known:
        """Return the store, as a catalog that has the records and registrations."""
        catalog = Evidence({ledger: self.record(ledger) for ledger in self.named}).catalog()
        catalog = tables.CATALOG_LEDGERS.empty_table() if catalog is None else catalog
        nodes = [
            {"path": f"/available/{name}", "kind": kind, "raw": b"", "version": 0}
            for name, kind in [(name, "registration") for name in self.registered] + [("old:1", "cookie")]
        ]
        table = pa.Table.from_pylist(nodes, schema=tables.CATALOG_NODES)
        live = Catalog(
            written(folder, "catalog", "ledgers", catalog, nodes=table), "store", None, 0.0, catalog.num_rows
        )
        return Known(live=live, snapshots=(), everywhere=False, looked_at=True, **changes)

    def propose(self, folder: Path, absent: Sequence[str] = (), **changes: Any) -> tuple[ProposedAlias, ...]:
        """Return what is proposed."""
        known = self.known(folder / "catalog", **changes)
        return propose_aliases([self.inventory(folder / "inventory")], simulator.bookies(self.held), known, absent)


def written(folder: Path, kind: str, name: str, rows: pa.Table, nodes: pa.Table | None = None) -> Dataset:
    """Write a dataset of one table, and open it."""
    with DatasetWriter(folder, kind, binding={}) as out:
        out.append(name, rows)
        if nodes is not None:
            out.append("nodes", nodes)
        out.close(coverage={})
    return open_dataset(folder, kind)


def renamed(ledgers: int = 10, *, foreign: int = 0, trimmed: int = 0) -> Cluster:
    """Return a cluster in which `new` holds what records give `old`.

    Args:
        ledgers: that `new` holds, and records give `old`.
        foreign: that `new` holds, and records give another bookie alone.
        trimmed: that records give `old`, and another bookie alone holds.
    """
    all_ledgers = range(ledgers + foreign + trimmed)
    held = {NEW: [*all_ledgers[: ledgers + foreign]], OTHER: [*all_ledgers]}
    named = {n: [[OTHER]] if ledgers <= n < ledgers + foreign else [[OTHER, OLD]] for n in all_ledgers}
    return Cluster(held, named)


@pytest.mark.parametrize(
    ("cluster", "shown"),
    [
        (renamed(), (10, 10)),
        (renamed(3), (3, 3)),
        (renamed(2), None),
        (renamed(9, foreign=1), (9, 10)),
        (renamed(9, foreign=2), None),
        (renamed(10, trimmed=10), (10, 10)),
        (renamed(10, trimmed=11), None),
    ],
    ids=["all", "three", "two", "nine of ten", "nine of eleven", "half are left", "fewer are left"],
)
def test_a_name_is_proposed_from_so_many_ledgers_on(
    cluster: Cluster, shown: tuple[int, int] | None, tmp_path: Path
) -> None:
    """Three ledgers, nine in ten that the bookie holds, half of those that records give the name."""
    assert cluster.propose(tmp_path) == (() if shown is None else (ProposedAlias(OLD, NEW, *shown),))


def test_a_name_that_something_answers_to_is_of_another_bookie(tmp_path: Path) -> None:
    """It is registered, stated to be gone, collected, or another bookie's; a cookie answers nothing."""
    cluster = renamed()
    assert cluster.propose(tmp_path / "as it is")
    assert not cluster.propose(tmp_path / "gone", absent=[OLD])
    assert not cluster.propose(tmp_path / "alias", aliases={"x:1": OLD})
    cluster.registered = [OLD]
    assert not cluster.propose(tmp_path / "registered")
    cluster.registered, cluster.held[OLD] = [NEW], [99]
    assert not cluster.propose(tmp_path / "collected")


def test_what_logs_alone_have_shows_no_name(tmp_path: Path) -> None:
    """A bookie serves what its index has."""
    cluster = renamed()
    cluster.sources = {NEW: "log"}
    assert not cluster.propose(tmp_path)


def test_ledgers_that_records_give_the_bookie_too_say_nothing(tmp_path: Path) -> None:
    """Only those that it holds and no segment names it for are counted; a segment that names both is the bookie's."""
    cluster = renamed(4)
    for ledger in range(10, 30):
        cluster.held[NEW].append(ledger)
        cluster.named[ledger] = [[OTHER, NEW], [NEW, OLD]]
    # Of 24 ledgers that records give the name it holds 4 that are not its own.
    assert not cluster.propose(tmp_path / "both")
    cluster = renamed(4)
    cluster.held[NEW] += range(10, 30)  # of which no record is known
    assert cluster.propose(tmp_path / "unknown") == (ProposedAlias(OLD, NEW, 4, 4),)


def test_a_bookie_that_fits_two_names_shows_neither(tmp_path: Path) -> None:
    """Nor is a name shown that two bookies fit; another pair beside them is."""
    both = renamed()
    both.named = {ledger: [[OTHER, OLD, "older:1"]] for ledger in both.named}
    assert not both.propose(tmp_path / "two names")
    twice = renamed()
    twice.held["newer:1"] = [*twice.held[NEW]]
    assert not twice.propose(tmp_path / "two bookies")
    beside = renamed()
    beside.held |= {"x:1": [50, 51, 52], OTHER: [*range(10), 50, 51, 52]}
    beside.named |= {ledger: [[OTHER, "y:1"]] for ledger in (50, 51, 52)}
    assert [(one.name, one.bookie) for one in beside.propose(tmp_path / "two pairs")] == [(OLD, NEW), ("y:1", "x:1")]


def test_of_a_large_cluster_a_share_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledgers of half of the buckets, where there are twice as many rows as are read."""
    cluster = renamed(30)
    monkeypatch.setattr(renamed_bookies, "_SAMPLE", 3 * 30 // 2)
    compared = sum(copy_row(ledger, NEW, [])["bucket"] < BUCKETS // 2 for ledger in range(30))
    assert 3 < compared < 30
    assert cluster.propose(tmp_path) == (ProposedAlias(OLD, NEW, compared, compared),)


def test_without_records_or_bookies_no_name_is_proposed(tmp_path: Path) -> None:
    """Nothing can be compared, of a cluster without a ledger either."""
    empty = Cluster({NEW: []}, {})
    assert empty.propose(tmp_path / "empty") == ()
    cluster = renamed()
    inventory = cluster.inventory(tmp_path / "inventory")
    nothing = Known(live=None, snapshots=(), everywhere=False, looked_at=True)
    assert propose_aliases([inventory], simulator.bookies([NEW, OTHER]), nothing, ()) == ()
    known = cluster.known(tmp_path / "catalog")
    assert propose_aliases([inventory], simulator.bookies([]), known, ()) == ()
    assert propose_aliases([], simulator.bookies([]), known, ()) == ()
    snapshot = Known(live=None, snapshots=(known.catalogs[0],), everywhere=False, looked_at=True)
    assert propose_aliases([inventory], simulator.bookies([NEW, OTHER]), snapshot, ()) == (
        ProposedAlias(OLD, NEW, 10, 10),
    )


def test_ledgers_of_a_proposed_name_are_guarded(tmp_path: Path) -> None:
    """What was restored is guarded as a guess, on both sides of the range; held ones and those of others stay."""
    cluster = Cluster({}, {1: [[OTHER, OLD]], 2: [[OTHER]], 3: [[OTHER], [OLD]], 4: [[OLD]]})
    base: dict[str, Any] = {
        "scope": 0, "class": "clean", "reading": "proved", "format": 3, "missing": 0, "extra": 0, "holders": [],
        "grades": dict.fromkeys(tables.GRADED, "observed"), "alternatives": [],
    }  # fmt: skip
    outcomes = {1: "restored", 2: "restored", 3: "held", 4: "restored"}
    made = [
        {**base, "bucket": copy_row(ledger, OTHER, [])["bucket"], "ledger": ledger, "outcome": outcome}
        for ledger, outcome in outcomes.items()
    ]
    made.sort(key=lambda row: (row["bucket"], row["ledger"]))
    rows = pa.Table.from_pylist([row for row in made if row["ledger"] != 4], schema=tables.RECONSTRUCTION)
    alone = pa.Table.from_pylist([row for row in made if row["ledger"] == 4], schema=tables.RECONSTRUCTION)
    empty = tables.CATALOG_LEDGERS.empty_table()
    beside = KnownTables(empty, (), tables.CATALOG_HISTORY.empty_table(), empty.select(list(tables.KEY_COLUMNS)))
    part = join_sides(rows, beside)
    known = cluster.known(tmp_path / "catalog", proposed={OLD: NEW})
    for given in (None, alone):
        guarded = guard_renamed(known, replace(part, alone=given), range(BUCKETS))
        found = {
            row["ledger"]: (row["outcome"], row["reading"], row["reason"])
            for table in (guarded.rows, guarded.alone or rows.slice(0, 0))
            for row in table.to_pylist()
        }
        assert found == {
            1: ("guarded", "likeliest", "source_incomplete"),
            2: ("restored", "proved", None),
            3: ("held", "proved", None),
            **({} if given is None else {4: ("guarded", "likeliest", "source_incomplete")}),
        }
    nothing = cluster.known(tmp_path / "without")
    assert guard_renamed(nothing, part, range(BUCKETS)) is part
