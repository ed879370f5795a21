"""Findings of the run before that this run did not look for again: they stay, with the reason."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.check.scrutiny.carried import FIELD, LaterRun, explain_not_sought
from reconcile.jobs.scrutiny.range_task import RangeTask
from recovery.model import tables


@dataclass(frozen=True, slots=True, eq=False)
class Carried:
    """What is carried on.

    Attributes:
        findings: FINDINGS.
        reasons: why they were not searched for → how many.
    """

    findings: pa.Table
    reasons: Mapping[str, int]


def find_carried(later: LaterRun, beside: pa.Table, task: RangeTask) -> Carried:
    """Return the findings of the run before that are absent from this one and were not searched for.

    Args:
        later: this run, as far as it is written.
        beside: its FINDINGS that are not written yet.
        task: of its first look.
    """
    if task.earlier is None:
        return Carried(tables.FINDINGS.empty_table(), {})
    rows = task.earlier.read("findings")
    inside = pc.and_(pc.greater_equal(rows["bucket"], later.share.start), pc.less(rows["bucket"], later.share.stop))
    rows = rows.filter(pc.fill_null(inside, fill_value=True))
    known = pa.concat_tables([later.run.read("findings", columns=["id"]), beside.select(["id"])])["id"]
    absent = rows.filter(pc.invert(pc.is_in(rows["id"], value_set=known.combine_chunks()))).to_pylist()
    ledgers = later.find_ledgers(absent)
    reasons: Counter[str] = Counter()
    kept: list[dict[str, Any]] = []
    for row in absent:
        ledger = None if row["ledger"] is None else ledgers.get((row["scope"], row["ledger"]))
        why = explain_not_sought(row, ledger, later.sought)
        if why is not None:
            reasons[why] += 1
            evidence = [item for item in row["evidence"] if item["field"] != FIELD]
            evidence.append({"side": "earlier", "field": FIELD, "value": why, "source": task.run.name})
            kept.append({**row, "evidence": evidence, "status": "open", "suppressed_by": None})
    return Carried(task.apply_lifecycle(pa.Table.from_pylist(kept, schema=tables.FINDINGS)), dict(reasons))
