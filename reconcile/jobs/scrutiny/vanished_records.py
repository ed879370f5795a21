"""Records that vanished since the run before: held against tombstones, history and references, and read once more."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backends.protocols import LiveStore
from reconcile.check.scrutiny.vanished import (
    BKMETA,
    HISTORY,
    OWNER,
    Vanished,
    VanishedWindow,
    list_doubts,
    list_lower_counters,
    read_windows,
)
from reconcile.deletes.own_root import name_own_root, read_tombstones
from reconcile.deletes.tombstones import REMOVED
from reconcile.findings.table import Finding, FindingRun
from reconcile.jobs.context import Context
from reconcile.jobs.references import read_references
from reconcile.jobs.scrutiny.range_task import RangeTask, are_of
from reconcile.jobs.scrutiny.request import ScrutinyRequest
from reconcile.references import References
from reconcile.rules import used_ids
from recovery.capture.records import read_nodes_again, read_records
from recovery.dataset import Dataset, read_part
from recovery.model.ids import LedgerId

if TYPE_CHECKING:
    from backends.registry import OpenStore

WINDOWS: Final = "windows"
"""What a run's manifest keeps of the runs before: seconds, listed, unexplained of each pair."""
_KEPT: Final = 400
_READ_AGAIN: Final = 1_000
"""Unexplained ledgers that are asked for by their keys."""


def find_listing_doubts(
    request: ScrutinyRequest,
    opened: "OpenStore",
    task: RangeTask,
    answers: Sequence[Mapping[str, Any]],
    run: FindingRun,
    context: Context,
) -> tuple[list[Finding], VanishedWindow | None]:
    """Return what is to be doubted of the store's list of ledgers, and what this run adds to what is usual.

    Args:
        request: of the scrutiny.
        opened: the live store.
        task: of the first look.
        answers: of the task.
        run: this one.
        context: of the job.

    Raises:
        InputError: references that cannot be read.
        UnavailableError: the store does not answer.
    """
    if task.earlier is None or task.earlier_store is None:
        return [], None
    vanished = Vanished()
    references: References | None = None
    deletes: pa.Table | None = None
    is_read, asked = False, 0
    for answer in answers:
        gone = read_part(request.out, answer["vanished"]["file"])
        vanished.listed += answer["vanished"]["listed"]
        vanished.gone += gone.num_rows
        for name in ("newest_kept", "newest_now"):
            known = [n for n in (getattr(vanished, name), answer["vanished"][name]) if n is not None]
            setattr(vanished, name, max(known, default=None))
        if not gone.num_rows:
            continue
        if not is_read:
            references, is_read = read_references(request.references, context), True
            deletes = _read_deletes(request, task)
        left = _explain(gone, opened, references, vanished, deletes)
        oldest = [n for n in (vanished.oldest_gone, pc.min(left["created_txn"]).as_py()) if n is not None]
        vanished.oldest_gone = min(oldest, default=None)
        sample = left.slice(0, max(0, _READ_AGAIN - asked))
        asked += sample.num_rows
        vanished.unlisted += _count_again(sample, opened, task)
    seconds = max(1.0, (run.at - datetime.fromisoformat(task.earlier.manifest["binding"]["made"])).total_seconds())
    windows = read_windows(task.earlier.manifest.get(WINDOWS, ()))
    went_back = list(_list_signs(task.catalog, task.earlier_store, task, opened))
    has_reasons = bool(request.references or request.history) or _remembers(task.earlier_store, answers)
    doubts = list_doubts(vanished, windows, seconds, went_back, has_reasons=has_reasons)
    return list(doubts), VanishedWindow(seconds, vanished.listed, vanished.unexplained)


def note_window(earlier: Dataset | None, window: VanishedWindow | None) -> list[list[float]]:
    """Return the windows of the runs before and of this one, as a manifest keeps them."""
    known = [] if earlier is None else read_windows(earlier.manifest.get(WINDOWS, ()))
    windows = [*known, *([] if window is None else [window])][-_KEPT:]
    return [[kept.seconds, kept.listed, kept.unexplained] for kept in windows]


def _read_deletes(request: ScrutinyRequest, task: RangeTask) -> pa.Table | None:
    """Return the deletes since the run before that a backup of the store has; None: none is named."""
    if request.history is None or task.earlier_store is None:
        return None
    from reconcile.jobs.backup_history import open_history, read_deletes  # noqa: PLC0415 - loaded for backups alone

    backup = open_history(request.history, task.catalog)
    return read_deletes(backup, task.catalog, after_txn=task.earlier_store.manifest["coverage"]["txn"])


def _explain(
    gone: pa.Table,
    opened: "OpenStore",
    references: References | None,
    vanished: Vanished,
    deletes: pa.Table | None = None,
) -> pa.Table:
    """Count by what ledgers are explained, and return the others; `VANISHED` in and out."""
    by_history = pc.is_valid(gone["deleted_txn"])
    if deletes is not None:
        by_history = pc.or_(by_history, are_of(gone, deletes))
    _count(vanished, HISTORY, by_history)
    left = gone.filter(pc.invert(by_history))
    if left.num_rows:
        ledgers = [LedgerId(*pair) for pair in zip(left["scope"].to_pylist(), left["ledger"].to_pylist(), strict=True)]
        stones = read_tombstones(opened.store, name_own_root(opened.root)).read_some(ledgers)
        removed = pa.array(
            [(stone := stones.get(n)) is not None and stone.state in REMOVED for n in ledgers], pa.bool_()
        )
        _count(vanished, BKMETA, removed)
        left = left.filter(pc.invert(removed))
    if left.num_rows and references is not None:
        named = references.rows.filter(pc.invert(references.rows["deleted"]))
        # What complete references do not name, its owner let go; else only what they say was deleted.
        is_complete = references.names_all and not references.gaps and not references.unreadable
        let_go = (
            pc.invert(are_of(left, named))
            if is_complete
            else are_of(left, references.rows.filter(references.rows["deleted"]))
        )
        _count(vanished, OWNER, let_go)
        left = left.filter(pc.invert(let_go))
    return left


def _count(vanished: Vanished, why: str, mask: Any) -> None:  # noqa: ANN401 - an Arrow column
    number = pc.sum(pc.cast(mask, pa.int64())).as_py() or 0
    if number:
        vanished.explained[why] = vanished.explained.get(why, 0) + number


def _remembers(earlier: Dataset, answers: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the store remembers what happened since an earlier run: it begins before."""
    txn = earlier.manifest["coverage"].get("txn")
    begins = [begin for answer in answers if (begin := answer["vanished"]["remembered"]) is not None]
    return txn is not None and bool(begins) and min(begins) <= txn


def _count_again(rows: pa.Table, opened: "OpenStore", task: RangeTask) -> int:
    """Count those of some ledgers that have a record all the same."""
    if not rows.num_rows:
        return 0
    scope, ledger = (np.asarray(rows[name].to_numpy(), np.int64) for name in ("scope", "ledger"))
    return int(read_records(opened.store, opened.root, task.layout, scope, ledger).num_rows)


def _list_signs(catalog: Dataset, earlier: Dataset, task: RangeTask, opened: "OpenStore") -> Iterator[str]:
    """Yield signs that a store went back since an earlier run: of the same store, which counts on; each seen twice."""
    if catalog.manifest["binding"] != earlier.manifest["binding"]:
        return
    txn, earlier_txn = (dataset.manifest["coverage"].get("txn") for dataset in (catalog, earlier))
    if txn is not None and earlier_txn is not None and txn < earlier_txn:
        now = opened.store.latest_txn() if isinstance(opened.store, LiveStore) else txn
        if now < earlier_txn:
            yield f"its last transaction was {earlier_txn}, and is {now}"
    nodes = catalog.read("nodes")
    had = _count_given(earlier.read("nodes"), task)
    lower = list_lower_counters(had, _count_given(nodes, task))
    now_given = _count_given(read_nodes_again(opened.store, opened.root, nodes, lower), task) if lower else {}
    for key in lower:
        if now_given.get(key, -1) < had[key]:
            yield f"{key} had given {had[key]}, and has given {now_given.get(key, 'none')}"


def _count_given(nodes: pa.Table, task: RangeTask) -> dict[str, int]:
    """Return key of each counter → the last number that it gave; CATALOG_NODES in."""
    return used_ids.numbers(task.layout, used_ids.of_counters([(nodes, task.layout)])).recorded
