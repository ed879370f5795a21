"""The table FINDINGS, made column by column: the problem, the evidence of each side, and the remedy.

A finding's id is a hash of its category and subject, so it is the same in every run.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings.categories import SEVERITY_ORDER, TRAITS, Category
from recovery.model import tables


@dataclass(frozen=True, slots=True)
class FindingRun:
    """Which run a finding is of: its name, and when it looked."""

    name: str
    at: datetime


@dataclass(frozen=True, slots=True, eq=False)
class FindingStatement:
    """One side's statement: the same for every row, or a column.

    Attributes:
        side: store, bookies, earlier, history, plan.
        field: the compared field.
        value: text, or a column of what can be cast to text; null is shown as ``nothing``.
        source: of the side.
    """

    side: str
    field: str
    value: Any
    source: str = "recover"


@dataclass(frozen=True, slots=True)
class LedgerKey:
    """The key columns of a ledger."""

    bucket: int
    scope: int
    ledger: int

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "LedgerKey":
        """Return the key of a row of any table of ledgers."""
        return cls(row["bucket"], row["scope"], row["ledger"])


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """One thing that is wrong.

    Attributes:
        category: of the problem.
        subject: the path of a node, or a field of the ledger; part of the id.
        statements: the evidence.
        key: of the ledger; None: it is of no ledger.
        severity: None: the category's.
        entries: the affected entries, as groups.
        bookies: the named bookies.
        unknowns: facts that are not known.
        suggested: what to do about it; None: the remedy of the category.
    """

    category: Category
    subject: str
    statements: Sequence[FindingStatement]
    key: LedgerKey | None = None
    severity: str | None = None
    entries: Sequence[Mapping[str, int]] = ()
    bookies: Sequence[str] = ()
    unknowns: Sequence[str] = ()
    suggested: str | None = None


def make_ledger_findings(
    category: Category,
    keys: pa.Table,
    statements: Sequence[FindingStatement],
    run: FindingRun,
    *,
    subject: str,
    severity: Any = None,  # noqa: ANN401 - an Arrow column
    bookies: Any = None,  # noqa: ANN401 - an Arrow column
    entries: Any = None,  # noqa: ANN401 - an Arrow column
    unknowns: Sequence[str] = (),
) -> pa.Table:
    """Return one finding a ledger.

    Args:
        category: of all of them.
        keys: the key columns.
        statements: the evidence.
        run: this one.
        subject: a field of the ledger; part of the id.
        severity: a column; None: the category's.
        bookies: a column of lists; None: none.
        entries: a column of GROUPS; None: none.
        unknowns: facts that are not known.
    """
    count = keys.num_rows
    scopes, ledgers = keys["scope"].to_pylist(), keys["ledger"].to_pylist()
    ids = [make_finding_id(category, s, n, subject) for s, n in zip(scopes, ledgers, strict=True)]
    return _table(
        count,
        run,
        {
            "id": pa.array(ids, pa.binary()),
            **{name: keys[name] for name in tables.KEY_COLUMNS},
            "category": str(category),
            "severity": TRAITS[category].severity if severity is None else severity,
            "bookies": bookies,
            "entries": entries,
            "evidence": _evidence(statements, count),
            "unknowns": pa.array([list(unknowns)] * count, pa.list_(pa.string())),
            "suggested": TRAITS[category].remedy,
        },
    )


def make_rows(findings: Iterable[Finding], run: FindingRun) -> pa.Table:
    """Return single findings as rows."""
    return pa.Table.from_pylist([_row(finding, run) for finding in findings], schema=tables.FINDINGS)


def _row(finding: Finding, run: FindingRun) -> dict[str, Any]:
    category, key = finding.category, finding.key
    return {
        "id": (
            hashlib.sha256(f"{category}\0{finding.subject}".encode()).digest()
            if key is None
            else make_finding_id(category, key.scope, key.ledger, finding.subject)
        ),
        **({"subject": finding.subject} if key is None else asdict(key)),
        "category": str(category),
        "severity": finding.severity or TRAITS[category].severity,
        "entries": finding.entries,
        "bookies": finding.bookies,
        "evidence": [
            {"side": statement.side, "field": statement.field, "source": statement.source,
             "value": "nothing" if statement.value is None else str(statement.value)}
            for statement in finding.statements
        ],
        "unknowns": finding.unknowns,
        "suggested": finding.suggested or TRAITS[category].remedy,
        "run": run.name,
        "first_seen": run.at,
        "last_seen": run.at,
        "status": "open",
    }  # fmt: skip


def make_finding_id(category: str, scope: int, ledger: int, subject: str) -> bytes:
    """Return the id of a finding of a ledger: the same for the same category and subject in every run."""
    return hashlib.sha256(f"{category}\0{scope}\0{ledger}\0{subject}".encode()).digest()


def verdicts(sides: pa.Table, findings: pa.Table, skipped: Any, undecided: Any) -> pa.Array:  # noqa: ANN401 - masks
    """Return one word a ledger: the category of its gravest finding; else undecided, skipped or clean.

    Args:
        sides: key columns, in key order.
        findings: of these ledgers.
        skipped: a mask over `sides`.
        undecided: likewise.
    """
    words = np.full(sides.num_rows, "clean", object)
    words[skipped] = "skipped"
    words[undecided] = "undecided"
    of_ledgers = findings.filter(pc.is_valid(findings["ledger"]))
    if of_ledgers.num_rows:
        names = ["scope", "ledger"]
        placed = sides.select(names).append_column("at", pa.array(np.arange(sides.num_rows)))
        rank = pc.index_in(of_ledgers["severity"], pa.array(SEVERITY_ORDER))
        ranked = of_ledgers.select([*names, "category"]).append_column("rank", rank)
        joined = ranked.join(placed, names, join_type="inner")
        joined = joined.sort_by([("rank", "descending"), ("category", "descending")])
        words[joined["at"].to_numpy()] = joined["category"].to_pylist()
    return pa.array(words, pa.string())


def _table(count: int, run: FindingRun, given: Mapping[str, Any]) -> pa.Table:
    usual: dict[str, Any] = {
        "run": run.name,
        "first_seen": run.at,
        "last_seen": run.at,
        "status": "open",
        "entries": pa.array([[]] * count, tables.GROUPS),
        "bookies": pa.array([[]] * count, pa.list_(pa.string())),
    }
    columns = {}
    for field in tables.FINDINGS:
        value = given.get(field.name)
        value = usual.get(field.name) if value is None else value
        if isinstance(value, (pa.Array, pa.ChunkedArray)):
            columns[field.name] = value.cast(field.type)
        elif value is None:
            columns[field.name] = pa.nulls(count, field.type)
        else:
            columns[field.name] = pa.array([value], field.type).take(pa.array(np.zeros(count, np.int64)))
    return pa.table(columns, schema=tables.FINDINGS)


def _evidence(statements: Sequence[FindingStatement], count: int) -> pa.Array:
    """Return lists of the evidence, a list a row, interleaved without a loop over the rows."""
    kind = tables.FINDINGS.field("evidence").type
    item = kind.value_type
    width = len(statements)
    if not width:
        return pa.array([[]] * count, kind)
    order = pa.array((np.arange(count)[:, None] + np.arange(width)[None, :] * count).ravel())
    columns = {}
    for name in ("side", "field", "value", "source"):
        parts = [_text(getattr(statement, name), count) for statement in statements]
        columns[name] = pa.concat_arrays(parts).take(order)
    structs = pa.StructArray.from_arrays([columns[field.name] for field in item], fields=list(item))
    return pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32) * width), structs, type=kind)


def _text(value: Any, count: int) -> pa.Array:  # noqa: ANN401 - text or an Arrow column
    if isinstance(value, (pa.Array, pa.ChunkedArray)):
        column = value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value
        return pc.fill_null(pc.cast(column, pa.string()), "nothing")
    return pa.array([str(value)] * count, pa.string())
