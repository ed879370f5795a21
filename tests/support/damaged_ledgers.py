"""Damaged ledgers without a cluster: a catalog, what bookies told a scrutiny, and the run that it wrote.

Every ledger is closed; a copy is whole, lacks some entries, or is gone; a bookie may be wiped; marks are of before.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Final

import pyarrow as pa

from reconcile.check.scrutiny.judge import Demands, LookJudgement, judge_range
from reconcile.check.scrutiny.replication import StoredReplication
from reconcile.findings.table import FindingRun
from reconcile.rules.segments.copy_findings import see_bookies
from reconcile.rules.segments.placement import PlacementSettings
from recovery.codecs.store_kind import ZOOKEEPER
from recovery.dataset import Dataset, DatasetWriter, open_dataset, sort_by_key
from recovery.model import tables
from recovery.model.groups import KeyedRuns, group_runs, to_arrow
from recovery.model.ids import LedgerId
from tests.support.impact_judge import Ledger
from tests.support.impacts import AT, write_catalog
from tests.support.inventories import fill_row

CREATED: Final = 10
"""The transaction that made each record."""
TXN: Final = 77
"""The store's last one when the scrutiny captured it, as `write_catalog` has it."""


@dataclass(frozen=True, slots=True)
class Damaged:
    """Ledgers, and what bookies hold of them.

    Attributes:
        bookies: ids.
        ledgers: closed, some marked.
        held: (ledger, bookie) → entries.
    """

    bookies: tuple[str, ...]
    ledgers: tuple[Ledger, ...]
    held: dict[tuple[int, str], frozenset[int]]

    def list_due(self, ledger: Ledger, bookie: str) -> frozenset[int]:
        """Return the entries that a record asks of a bookie."""
        ensemble, write, _ = ledger.quorum
        ends = [first for first, _ in ledger.segments[1:]] + [(ledger.last or 0) + 1]
        return frozenset(
            entry
            for (first, members), end in zip(ledger.segments, ends, strict=True)
            for entry in range(first, end)
            if bookie in {members[(entry + step) % ensemble] for step in range(write)}
        )

    def list_missing(self) -> set[tuple[int, str, int]]:
        """Return each copy that is asked for and is not there: ledger, bookie, entry."""
        return {
            (ledger.number, bookie, entry)
            for ledger in self.ledgers
            for bookie in self.bookies
            for entry in self.list_due(ledger, bookie) - self.held[ledger.number, bookie]
        }


def damage_ledgers(random: Random, count: int, bookies: int = 7, wiped: int = 0) -> Damaged:
    """Return so many ledgers, about half of them damaged, and as many bookies of which some are wiped."""
    names = tuple(f"bk{number}:3181" for number in range(bookies))
    empty = set(random.sample(names, wiped))
    ledgers: list[Ledger] = []
    held: dict[tuple[int, str], frozenset[int]] = {}
    for number in range(count):
        ensemble = random.randint(1, 4)
        write = random.randint(1, ensemble)
        last = random.choice((0, 3, 9, 20))
        begins = sorted({0, *random.sample(range(last + 1), random.randint(0, min(1, last)))})
        segments = tuple((first, tuple(random.sample(names, ensemble))) for first in begins)
        marked = frozenset(random.sample(names, random.choice((0, 0, 0, 1))))
        quorum = (ensemble, write, random.randint(1, write))
        ledger = Ledger(number, quorum, "CLOSED", last, segments, marked)
        ledgers.append(ledger)
    damaged = Damaged(names, tuple(ledgers), held)
    for ledger in ledgers:
        for name in names:
            due = damaged.list_due(ledger, name)
            fate = "gone" if name in empty else random.choice(("whole",) * 5 + ("gone", "partly"))
            left = due if fate == "whole" else frozenset(e for e in due if random.random() < 0.5)
            held[ledger.number, name] = frozenset() if fate == "gone" else left
    return damaged


def list_copies(damaged: Damaged, bookie: str) -> pa.Table:
    """Return COPIES of a bookie, as the wire tells them."""
    rows = []
    for ledger in damaged.ledgers:
        entries = sorted(damaged.held[ledger.number, bookie])
        if not entries:
            continue
        ones = KeyedRuns(*(pa.array(column).to_numpy() for column in ([0] * len(entries), entries, [1] * len(entries))))
        groups = to_arrow(group_runs(ones), 1).to_pylist()[0]
        about = {
            "bucket": LedgerId(0, ledger.number).bucket, "scope": 0, "ledger": ledger.number, "bookie": bookie,
            "source": "wire", "groups": groups, "entries": len(entries), "last": entries[-1], "complete": True,
            "key_kind": "absent",
        }  # fmt: skip
        rows.append(fill_row(tables.COPIES, about))
    return sort_by_key(pa.Table.from_pylist(rows, schema=tables.COPIES))


def write_lists(
    folder: Path, damaged: Damaged, bookie: str, *, mode: str = "wire", as_of: int | None = None
) -> Dataset:
    """Write what a bookie told, or what its disks showed after a transaction of the store."""
    about = {"bookie": bookie, "mode": mode, "complete": mode != "wire", "started": AT, "ended": AT, "as_of": as_of}
    with DatasetWriter(folder, "inventory", binding={}) as writer:
        writer.append("bookies", pa.Table.from_pylist([fill_row(tables.BOOKIES, about)], schema=tables.BOOKIES))
        writer.append("copies", list_copies(damaged, bookie))
        writer.close(coverage={})
    return open_dataset(folder, "inventory")


def write_store(folder: Path, damaged: Damaged) -> Dataset:
    """Write the catalog of the store."""
    created = dict.fromkeys((ledger.number for ledger in damaged.ledgers), CREATED)
    return write_catalog(folder, damaged.bookies, damaged.ledgers, created=created)


def judge(damaged: Damaged, store: Dataset, lists: Sequence[Dataset]) -> LookJudgement:
    """Look at all ledgers as a scrutiny does."""
    bookies, damage, copies = (
        pa.concat_tables([tables.INVENTORY[name].empty_table(), *(made.read(name) for made in lists)])
        for name in ("bookies", "damage", "copies")
    )
    return judge_range(
        store.read("ledgers"),
        copies,
        see_bookies(bookies, damage, {}),
        StoredReplication.from_nodes(store.read("nodes"), ZOOKEEPER),
        Demands(timedelta(days=1).total_seconds(), None, PlacementSettings()),
        FindingRun("scrutiny", AT),
        everywhere=len(lists) == len(damaged.bookies),
    )


def write_run(folder: Path, damaged: Damaged, asked: Iterable[str], wiped: pa.Table | None = None) -> LookJudgement:
    """Write the run of a scrutiny that asked some bookies; return what it judged."""
    with DatasetWriter(folder, "scrutiny", binding={}, secret=True) as writer:
        store = write_store(folder / "store", damaged)
        lists = [write_lists(folder / "inventories" / f"{n}", damaged, bookie) for n, bookie in enumerate(asked)]
        judged = judge(damaged, store, lists)
        writer.append("findings", judged.findings)
        writer.append("verdicts", judged.verdicts)
        writer.append("missing", judged.missing)
        writer.append("wiped", tables.WIPED.empty_table() if wiped is None else wiped)
        writer.close(coverage={"share": [1, 1]})
    return judged
