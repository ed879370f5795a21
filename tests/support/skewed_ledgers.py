"""A program of its own for tests: inventories with a skew, recovered in one process; its peak memory as JSON.

    skewed.py KIND FOLDER

Spark only carries the tasks: here they run one after the other, so the peak is that of the largest.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from backends.protocols import Write
from reconcile.check import left_out_copies
from reconcile.clusters import open_inventories
from reconcile.compare import decide
from reconcile.jobs.make_plan import plan as plan_job
from reconcile.jobs.make_plan.plan import make_plan
from reconcile.jobs.make_plan.request import PlanRequest
from reconcile.plan.actions import Passwords
from recovery.codecs.store import Layout
from recovery.dataset import Dataset, DatasetWriter, open_dataset, prepare
from recovery.model import tables
from recovery.model.groups import group_entries
from recovery.model.ids import bucket_ranges
from tests.simulation import simulator
from tests.support.memory_store import MemoryStore

CLUSTER: Final = simulator.Cluster(
    shapes=((3, 2), (3, 3)), bookies=4, lengths=(20, 60), changes=(0,), harms=(simulator.Harm.NONE,)
)
NAMES: Final = CLUSTER.names
ORDINARY: Final = range(1000, 1200)
GIANT: Final = 1_000_000_000
FULL: Final = 1
"""The giant of three full copies."""
PIECES: Final = 100_000
SINGLES: Final = 30_000
ROWS: Final = 4_000
"""Of a task, where one bookie has most ledgers."""


def _header(last: int, size: int = 10) -> dict[str, Any]:
    whole = size + 36  # a header and a CRC32C
    return {"entry": last, "lac": last - 1, "length": (last + 1) * size, "size": whole, "digest": "CRC32C"}


def _row(ledger: int, bookie: str, groups: Sequence[tuple[int, int, int, int]], last: int) -> dict[str, Any]:
    runs = [(end - first) // max(period, 1) + 1 for first, end, _, period in groups]
    held = groups[-1][1] + groups[-1][2] - 1
    return simulator.copy_row(ledger, bookie, ()) | {
        "groups": [dict(zip(("first", "last", "size", "period"), group, strict=True)) for group in groups],
        "entries": sum(n * group[2] for n, group in zip(runs, groups, strict=True)),
        "first": groups[0][0],
        "last": held,
        "g_count": len(groups),
        "headers": [_header(held)] if held == last else [],
    }


def giants() -> Iterator[dict[str, Any]]:
    """Three ledgers of 10⁹ entries: striped, of three full copies with a stray, and with an ensemble that changed."""
    last = GIANT - (GIANT % 3) - 1
    p0 = [(0, 0, 1, 0), (2, last - 3, 2, 3), (last, last, 1, 0)]
    p1, p2 = [(0, last - 2, 2, 3)], [(1, last - 1, 2, 3)]
    for bookie, groups in zip(NAMES, (p0, p1, p2), strict=False):
        yield _row(0, bookie, groups, last)
    for bookie in NAMES[:3]:
        yield _row(FULL, bookie, [(0, 0, GIANT, 0)], GIANT - 1)
    for bookie in NAMES[:2]:
        yield _row(2, bookie, [(0, 0, GIANT, 0)], GIANT - 1)
    yield _row(2, NAMES[2], [(0, 0, GIANT // 2, 0)], GIANT - 1)
    yield _row(2, NAMES[3], [(GIANT // 2, GIANT // 2, GIANT // 2, 0)], GIANT - 1)


def pieces() -> Iterator[dict[str, Any]]:
    """One ledger that each of three bookies has in 10⁵ groups: each lacks many entries, at no distance that repeats."""
    rng = np.random.default_rng(7)
    end = 40 * PIECES
    for bookie in NAMES[:3]:
        lost = np.unique(rng.integers(1, end - 1, PIECES))
        held = np.delete(np.arange(end), lost)
        found = group_entries(held)
        groups = [tuple(row) for row in np.stack(found[1:], axis=1).tolist()]
        yield _row(0, bookie, groups, end - 1)


def singles() -> Iterator[dict[str, Any]]:
    """One bookie that alone has nearly every ledger of the cluster."""
    for ledger in range(10_000, 10_000 + SINGLES):
        yield _row(ledger, NAMES[0], [(0, 0, 5, 0)], 4)


def _inventories(folder: Path, rows: Iterator[dict[str, Any]]) -> tuple[Dataset, ...]:
    rng = Random(7)
    ordinary = simulator.copies([simulator.history(rng, ledger, CLUSTER) for ledger in ORDINARY])
    skewed = pa.Table.from_pylist(list(rows), schema=tables.COPIES)
    copies = pa.concat_tables([ordinary, skewed])
    for name in NAMES:
        with DatasetWriter(folder / name.replace(":", "_"), "inventory", binding={}) as out:
            out.append("copies", copies.filter(pc.equal(copies["bookie"], name)))
            out.append("bookies", simulator.bookies([name]))
            out.close(coverage={})
    return open_inventories([str(folder / name.replace(":", "_")) for name in NAMES])


def _peak_mb() -> int:
    """Return the most memory that this process had, in MiB. `getrusage` would count that of the one it came from."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM"))
    return int(line.split()[1]) >> 10


def _thawed(plan: Dataset, inventories: Sequence[Dataset]) -> list[str]:
    """Return what a thaw would let go if a record of the plan did not name one of its bookies."""
    store = MemoryStore()
    rows = plan.read("actions", columns=["key", "value", "ledger"]).to_pylist()
    full = next(row for row in rows if row["ledger"] == FULL)
    store.write([Write("/ledgers" + full["key"], full["value"].replace(NAMES[2].encode(), b"10.0.0.9:3181"))])
    return [str(one) for one in left_out_copies.find_left_out(store, "/ledgers", Layout.HIERARCHICAL, inventories)]


def main(kind: str, folder: Path) -> dict[str, Any]:
    """Recover; return what came of each skewed ledger, and what it took."""
    made: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {"giants": giants, "pieces": pieces, "singles": singles}
    inventories = _inventories(folder / "inventories", made[kind]())
    before, tasks = _peak_mb(), []

    def in_turn(
        _spark: object, task: Callable[[range], Mapping[str, Any]], ranges: Sequence[range], **_: object
    ) -> list[dict[str, Any]]:
        tasks.append([sum(one.read("copies", buckets=part).num_rows for one in inventories) for part in ranges])
        return [json.loads(json.dumps(task(part))) for part in ranges]

    replaced = pytest.MonkeyPatch()
    replaced.setattr(plan_job, "over_buckets", in_turn)
    replaced.setattr(decide, "bucket_ranges", lambda rows, **_: bucket_ranges(rows, rows_per_task=ROWS))
    request = PlanRequest(
        inventories=inventories,
        live=None,
        snapshots=(),
        layout=Layout.HIERARCHICAL,
        root="/ledgers",
        passwords=Passwords.from_candidates([simulator.PASSWORD]),
        expected=NAMES,
        default_quorum=None,
    )
    out = folder / "plan"
    prepare(out, "plan", secret=True)
    spark: Any = None
    make_plan(request, out, spark, now=lambda: datetime.now(UTC))
    plan = open_dataset(out, "plan")
    rows = plan.read("reconstruction").to_pylist()
    found = {
        "skewed": [
            {name: row[name] for name in ("ledger", "outcome", "reason", "class", "last_entry", "missing")}
            for row in rows
            if row["ledger"] < ORDINARY.start
        ],
        "restored": sum(row["outcome"] == "restored" for row in rows),
        "rows": len(rows),
        "tasks": tasks[-1],
    }
    if kind == "giants":
        found["left_out"] = _thawed(plan, inventories)
    return found | {"before_mb": before, "peak_mb": _peak_mb()}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1], Path(sys.argv[2]))) + "\n")
    sys.stdout.flush()
    # Arrow's threads may end the process by a signal while they are taken down, which says nothing of what was decided.
    os._exit(0)
