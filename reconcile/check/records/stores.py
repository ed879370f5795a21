"""Two stores of one cluster, before and after a move: whether every ledger is equal, and which fields differ.

    verdict        the two records
    clean          say the same, in every field; their bytes may be in another form
    STORES_DIFFER  differ in fields that readers or bookies go by (critical), in others (warning), or one is not there

A pure function of a bucket range.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.check.records.fields import FIELDS, find_differing, list_names
from reconcile.findings.categories import Category
from reconcile.findings.table import FindingRun, FindingStatement, make_ledger_findings
from reconcile.rules.sides import ABSENT, are_equal, unite
from recovery.model import tables

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_HARMLESS: Final = ("format", "ctime", "custom")
"""Fields that neither readers nor bookies use."""
_SHOWN: Final = ("state", "last_entry", "ensemble_size", "write_quorum", "ack_quorum", "digest", "ctime")
_FIRST, _SECOND = "store", "against"


@dataclass(frozen=True, slots=True, eq=False)
class StoresRange:
    """The result of a bucket range.

    Attributes:
        findings: FINDINGS.
        verdicts: VERDICTS of the ledgers of either store, in key order.
        counts: ``first`` and ``second`` (ledgers of each), ``only_first``, ``only_second``, ``other_bytes`` (the same,
            in other bytes).
        fields: field → ledgers in which it differs.
    """

    findings: pa.Table
    verdicts: pa.Table
    counts: Mapping[str, int]
    fields: Mapping[str, int]


def compare_stores(first: pa.Table, second: pa.Table, run: FindingRun) -> StoresRange:
    """Compare the records of two stores; CATALOG_LEDGERS of the same range in."""
    united = unite([side.select(list(tables.KEY_COLUMNS)) for side in (first, second)])
    a, b = united.rows
    count = len(a)
    pairs = np.flatnonzero((a != ABSENT) & (b != ABSENT))
    pair = [side.take(pa.array(rows[pairs])) for side, rows in ((first, a), (second, b))]
    masks = {name: np.zeros(count, np.bool_) for name in (*FIELDS, "record")}
    other_bytes = ~are_equal(pair[0]["raw"], pair[1]["raw"])
    for name, mask in find_differing(*pair).items():
        masks[name][pairs] = mask
    broken = [pc.is_valid(side["error"]).to_numpy() for side in pair]
    unread = (broken[0] | broken[1]) & other_bytes
    for mask in masks.values():
        mask[pairs[unread]] = False
    masks["record"][pairs[unread]] = True
    masks["record"][(a == ABSENT) | (b == ABSENT)] = True
    differs = np.logical_or.reduce(list(masks.values()))
    rows = np.flatnonzero(differs)
    findings = _make_findings(united.keys, first, second, (a, b), masks, rows, run)
    words = np.where(differs, str(Category.STORES_DIFFER), "clean")
    verdicts = {**{name: united.keys[name] for name in tables.KEY_COLUMNS}, "verdict": pa.array(words, pa.string())}
    verdicts["reason"] = pa.nulls(count, pa.string())
    return StoresRange(
        findings,
        pa.table(verdicts).cast(tables.VERDICTS),
        {
            "first": int((a != ABSENT).sum()),
            "second": int((b != ABSENT).sum()),
            "only_first": int((b == ABSENT).sum()),
            "only_second": int((a == ABSENT).sum()),
            "other_bytes": int((other_bytes & ~differs[pairs]).sum()),
        },
        {name: int(mask.sum()) for name, mask in masks.items()},
    )


def _make_findings(
    keys: pa.Table,
    first: pa.Table,
    second: pa.Table,
    places: tuple[Ints, Ints],
    masks: Mapping[str, Mask],
    rows: Ints,
    run: FindingRun,
) -> pa.Table:
    names = pc.binary_join(list_names({name: mask[rows] for name, mask in masks.items()}), ", ")
    grave = np.logical_or.reduce([mask[rows] for name, mask in masks.items() if name not in _HARMLESS])
    sides = [
        (side, table.take(pa.array(numbers[rows], mask=numbers[rows] == ABSENT)))
        for side, table, numbers in ((_FIRST, first, places[0]), (_SECOND, second, places[1]))
    ]
    statements = [FindingStatement("both", "fields that differ", names)]
    statements += [FindingStatement(side, "record", _describe_record(table), side) for side, table in sides]
    statements += [FindingStatement(side, name, table[name], side) for name in _SHOWN for side, table in sides]
    return make_ledger_findings(
        Category.STORES_DIFFER,
        keys.take(pa.array(rows)),
        statements,
        run,
        subject="record",
        severity=pa.array(np.where(grave, "critical", "warning")),
    )


def _describe_record(rows: pa.Table) -> Any:  # noqa: ANN401 - an Arrow column
    states = pc.if_else(pc.is_valid(rows["error"]), rows["error"], "there")
    return pc.if_else(pc.is_null(rows["raw"]), "none", states)
