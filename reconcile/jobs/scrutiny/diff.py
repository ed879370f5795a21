"""Two scrutinies of one cluster compared."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from reconcile.check.scrutiny.carried import LaterRun, Sought
from reconcile.check.scrutiny.replication import MARKS, StoredReplication
from reconcile.check.scrutiny.run_differences import RunDifferences, compare_runs
from reconcile.clusters import name_earlier, require_of_cluster
from reconcile.jobs.scrutiny.first_look import STORE
from recovery.codecs.store import Layout
from recovery.codecs.store_kind import kind_of
from recovery.dataset import Dataset, open_dataset
from recovery.model.ids import BUCKETS
from recovery.place import DatasetPlace


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """Two runs, and what differs.

    Attributes:
        earlier, later: when each of them was made.
        coverage: of each.
        differences: between them.
    """

    earlier: str
    later: str
    coverage: tuple[dict[str, Any], dict[str, Any]]
    differences: RunDifferences


def diff_scrutinies(earlier: DatasetPlace, later: DatasetPlace) -> ComparedRuns:
    """Compare the findings of two runs; nothing is read but their folders.

    Raises:
        DatasetError: one is not a whole scrutiny.
        InputError: they are of two clusters.
    """
    runs = open_dataset(earlier, "scrutiny"), open_dataset(later, "scrutiny")
    stores = tuple(
        open_dataset(place / STORE, "catalog") if (place / STORE).is_dir() else None for place in (earlier, later)
    )
    if stores[0] is not None and stores[1] is not None:
        require_of_cluster(stores[1], str(later), (), name_earlier(stores[1], stores[0]))
    number, count = runs[1].manifest["coverage"].get("share", (1, 1))
    share = range(BUCKETS * (number - 1) // count, BUCKETS * number // count)
    sought = Sought.read(runs[1], runs[0])
    compared = LaterRun(runs[1], (stores[0], stores[1]), _read_marks(stores[1]), sought, share)
    differences = compare_runs(runs[0], compared)
    made = [str(run.manifest["binding"].get("made", "")) for run in runs]
    return ComparedRuns(made[0], made[1], (_cover(runs[0]), _cover(runs[1])), differences)


def _read_marks(store: Dataset | None) -> pa.Table:
    layouts = [] if store is None else store.read("sources", columns=["layout"])["layout"].drop_null().to_pylist()
    if store is None or not layouts:
        return MARKS.empty_table()
    return StoredReplication.from_nodes(store.read("nodes"), kind_of(Layout(layouts[0]))).marks


def _cover(run: Dataset) -> dict[str, Any]:
    return dict(run.manifest["coverage"])
