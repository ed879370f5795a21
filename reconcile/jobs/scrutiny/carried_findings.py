"""Findings of the run before that this run did not look for again: they stay, with the reason."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.check.scrutiny.carried import FIELD, LedgerNow, Sought, explain_not_sought
from reconcile.check.scrutiny.replication import Replication
from reconcile.jobs.scrutiny.range_task import RangeTask, are_of
from recovery.dataset import Dataset, read_part
from recovery.manifest import Part
from recovery.model import tables
from recovery.place import DatasetPlace

_KEYS: Final = ["scope", "ledger"]
_Key = tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Carried:
    """What is carried on.

    Attributes:
        findings: FINDINGS.
        reasons: why they were not looked for → how many.
    """

    findings: pa.Table
    reasons: Mapping[str, int]


def find_carried(
    out: DatasetPlace,
    parts: Mapping[str, Sequence[Part]],
    beside: pa.Table,
    task: RangeTask,
    replication: Replication,
    sought: Sought,
    share: range,
) -> Carried:
    """Return the findings of the run before that are absent from this one and were not looked for.

    Args:
        out: folder of this run.
        parts: of its findings and verdicts.
        beside: its FINDINGS that are not written yet.
        task: of its first look.
        replication: of the store.
        sought: what it looked at.
        share: buckets that it looked at.
    """
    if task.earlier is None or task.earlier_store is None:
        return Carried(tables.FINDINGS.empty_table(), {})
    rows = task.earlier.read("findings")
    inside = pc.and_(pc.greater_equal(rows["bucket"], share.start), pc.less(rows["bucket"], share.stop))
    rows = rows.filter(pc.fill_null(inside, fill_value=True))
    ids = [read_part(out, part.file, columns=["id"])["id"] for part in parts["findings"] if part.rows]
    known = pa.chunked_array([chunk for column in (*ids, beside["id"]) for chunk in column.chunks], pa.binary())
    absent = rows.filter(pc.invert(pc.is_in(rows["id"], value_set=known.combine_chunks())))
    if not absent.num_rows:
        return Carried(tables.FINDINGS.empty_table(), {})
    ledgers = _read_ledgers(out, parts["verdicts"], absent, task, replication)
    reasons: Counter[str] = Counter()
    kept: list[dict[str, Any]] = []
    for row in absent.to_pylist():
        ledger = None if row["ledger"] is None else ledgers.get((row["scope"], row["ledger"]))
        why = explain_not_sought(row, ledger, sought)
        if why is not None:
            reasons[why] += 1
            evidence = [item for item in row["evidence"] if item["field"] != FIELD]
            evidence.append({"side": "earlier", "field": FIELD, "value": why, "source": task.run.name})
            kept.append({**row, "evidence": evidence, "status": "open", "suppressed_by": None})
    return Carried(task.apply_lifecycle(pa.Table.from_pylist(kept, schema=tables.FINDINGS)), dict(reasons))


def _read_ledgers(
    out: DatasetPlace, verdicts: Sequence[Part], absent: pa.Table, task: RangeTask, replication: Replication
) -> dict[_Key, LedgerNow]:
    """Return what became of the ledgers of some findings; those that the store no longer has are left out."""
    named = absent.filter(pc.is_valid(absent["ledger"])).select(list(tables.KEY_COLUMNS))
    if not named.num_rows:
        return {}
    edge = pc.min_max(named["bucket"]).as_py()
    buckets = range(edge["min"], edge["max"] + 1)
    now, had = (_read_changes(dataset, buckets, named) for dataset in (task.catalog, task.earlier_store) if dataset)
    marks = replication.marks.filter(are_of(replication.marks, named))
    marked = set(zip(*(marks[name].to_pylist() for name in _KEYS), strict=True))
    ledgers = {}
    for part in verdicts:
        rows = read_part(out, part.file) if part.rows else tables.VERDICTS.empty_table()
        for row in rows.filter(are_of(rows, named)).to_pylist():
            key = row["scope"], row["ledger"]
            same_record = key in had and now.get(key) == had[key]
            ledgers[key] = LedgerNow(row["verdict"], row["reason"], same_record, key in marked)
    return ledgers


def _read_changes(dataset: Dataset, buckets: range, named: pa.Table) -> dict[_Key, tuple[Any, ...]]:
    """Return what tells a version of each of some records from another one."""
    rows = dataset.read("ledgers", buckets=buckets, columns=["scope", "ledger", "version", "changed_txn"])
    rows = rows.filter(are_of(rows, named))
    return {(row["scope"], row["ledger"]): (row["version"], row["changed_txn"]) for row in rows.to_pylist()}
