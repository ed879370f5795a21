"""The findings of a bucket range, one verdict for each ledger, and the findings of what stands beside the ledgers."""

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.compare.evidence import BookieEvidence, Catalog
from reconcile.compare.three_way import ComparedRange, find_stated
from reconcile.findings import table
from reconcile.findings.categories import TRAITS, Category
from reconcile.findings.table import FindingRun, FindingStatement
from reconcile.rules import (
    entries_beyond_end,
    id_reuse,
    nodes,
    reference_checks,
    sides,
    snapshot_findings,
)
from reconcile.rules.segments import copy_findings
from reconcile.rules.segments.copies import Sight, find_faults
from reconcile.rules.sides import Relation, take_rows
from recovery.codecs.store import Layout
from recovery.model import tables
from recovery.model.ids import to_unsigned

_LISTED: Final = 12


def find_all(
    evidence: BookieEvidence,
    part: ComparedRange,
    copies: pa.Table,
    sight: Sight,
    buckets: range,
    run: FindingRun,
    references: pa.Table | None = None,
) -> pa.Table:
    """Return the findings that the comparison of the three sides gives, and that with what upper layers know."""
    seen = evidence.everywhere and evidence.looked_at
    parts = [
        entries_beyond_end.findings(copies, part.stored, run, seen=seen),
        id_reuse.findings(copies, part.stored, part.shown, run),
        _find_deletions(evidence, part, copies, run, references),
        _find_stale_marks(evidence, part, buckets, run),
    ]
    if evidence.looked_at:
        # Of copies that nobody looked at nothing is found, however long that takes.
        faults = find_faults(part.stored, copies, sight)
        parts.append(copy_findings.findings(part.stored, faults, run, everywhere=seen))
    if references is not None:
        how = {"looked_at": evidence.looked_at, "seen": seen}
        parts.append(reference_checks.findings(references, part.shown, copies, part.stored, run, **how))
    store = evidence.live.source if evidence.live else ""
    snapshots = ", ".join(side.source for side in evidence.snapshots)
    parts.append(sides.find_other_records(part.compared, part.stored, part.snapshot, run, store, snapshots))
    places = part.compared.where(Relation.SNAPSHOT_ONLY)
    alone = tables.RECONSTRUCTION.empty_table() if part.alone is None else part.alone
    how = {"looked_at": evidence.looked_at, "seen": seen}
    records = take_rows(part.snapshot, part.compared.snapshot[places])
    deleted = np.isin(places, part.deleted_since)
    parts.append(snapshot_findings.find_only_there(records, alone, run, snapshots, **how, deleted=deleted))
    parts.append(snapshot_findings.find_contradicted(part.rows, run, snapshots))
    keys = take_rows(part.compared.sides, np.flatnonzero(part.collided))
    presence = [
        FindingStatement(side, "record", pc.cast(keys[name], pa.string()), source)
        for side, name, source in (
            ("bookies", "on_bookies", "recover"),
            ("store", "in_store", store),
            ("earlier", "in_earlier", snapshots),
        )
    ]
    parts.append(table.make_ledger_findings(Category.SCOPE_COLLISION, keys, presence, run, subject="lower half"))
    return pa.concat_tables(parts)


def _find_deletions(
    evidence: BookieEvidence, part: ComparedRange, copies: pa.Table, run: FindingRun, references: pa.Table | None
) -> pa.Table:
    places = part.compared.where(Relation.DELETED)
    if not len(places):
        return tables.FINDINGS.empty_table()
    places = np.setdiff1d(places, find_stated(part.compared.sides, references))
    keys = take_rows(part.compared.sides, places)
    on = keys["on_bookies"]
    severity = TRAITS[Category.DELETED_OUTSIDE].severity
    quiet = pa.scalar("info" if evidence.everywhere and evidence.looked_at else severity)
    source = ", ".join(part.source for part in evidence.catalogs if part.dataset.rows("history"))
    session = pa.array(
        [None if s is None else f"{to_unsigned(s):#x}" for s in keys["deleted_session"].to_pylist()], pa.string()
    )
    txn = pa.array([f"{t} ({to_unsigned(t):#x})" for t in keys["deleted_txn"].to_pylist()], pa.string())
    statements = [
        FindingStatement("history", "deleted in transaction", txn, source),
        FindingStatement("history", "deleted by session", session, source),
        FindingStatement("history", "deleted at", keys["deleted_at"], source),
        FindingStatement("bookies", "have it", pc.if_else(on, "yes", "no")),
    ]
    return table.make_ledger_findings(
        Category.DELETED_OUTSIDE,
        keys,
        statements,
        run,
        subject="deletion",
        severity=pc.if_else(on, severity, quiet),
        bookies=_list_log_only_bookies(keys, copies),
        unknowns=["whether it was wanted"],
    )


def _list_log_only_bookies(keys: pa.Table, copies: pa.Table) -> pa.Array:
    """Return, for each ledger, the bookies that have it in entry logs alone: their indexes dropped it."""
    lists: list[list[str]] = [[] for _ in range(keys.num_rows)]
    if keys.num_rows and copies.num_rows:
        names = ["scope", "ledger"]
        numbered = keys.select(names).append_column("at", pa.array(np.arange(keys.num_rows)))
        named = copies.select([*names, "bookie", "source"]).join(numbered, names, join_type="inner")
        indexed = named.filter(pc.equal(named["source"], "index")).select(["at", "bookie"])
        logged = named.filter(pc.equal(named["source"], "log")).select(["at", "bookie"])
        alone = logged.join(indexed, ["at", "bookie"], join_type="left anti").group_by(["at", "bookie"]).aggregate([])
        for row in alone.sort_by([("at", "ascending"), ("bookie", "ascending")]).to_pylist():
            lists[row["at"]].append(row["bookie"])
    return pa.array(lists, pa.list_(pa.string()))


def _find_stale_marks(evidence: BookieEvidence, part: ComparedRange, buckets: range, run: FindingRun) -> pa.Table:
    if evidence.live is None:
        return tables.FINDINGS.empty_table()
    rows = evidence.live.dataset.read("nodes", columns=["path", "kind"])
    return nodes.find_stale_marks(rows, part.stored, buckets, run, evidence.live.source)


def give_verdicts(
    evidence: BookieEvidence,
    compared: ComparedRange,
    findings: pa.Table,
    references: pa.Table | None = None,
    *,
    newer: npt.NDArray[np.bool_] | None = None,
    names_all: bool = True,
) -> tuple[pa.Table, int]:
    """Return SIDES, and how many ledgers were looked at: counted from the sides themselves, not from their join.

    Args:
        evidence: the store and snapshots.
        compared: the range, settled.
        findings: of the range.
        references: what upper layers and tombstones say; None: nothing was given.
        newer: of each record of the store, whether it is newer than what was seen of its bookies; None: none is.
        names_all: what no reference names, no upper layer refers to. Tombstones alone name deleted ledgers only.
    """
    keys = ["scope", "ledger"]
    parts = [compared.rows, compared.stored, compared.snapshot, sides.deletions(compared.history)]
    looked_at = pa.concat_tables([part.select(keys) for part in parts]).group_by(keys).aggregate([]).num_rows
    stored = compared.compared.stored
    skipped = np.zeros(len(stored), np.bool_)
    open_now = pc.fill_null(pc.not_equal(compared.stored["state"], "CLOSED"), fill_value=True).to_numpy()
    skipped[stored != sides.ABSENT] = open_now[stored[stored != sides.ABSENT]]
    unseen = not (evidence.everywhere and evidence.looked_at)
    undecided = np.zeros(len(stored), np.bool_)
    undecided[compared.find_left_out()] = unseen
    if newer is not None:
        undecided[stored != sides.ABSENT] |= newer[stored[stored != sides.ABSENT]]
    undecided &= ~skipped
    words = table.verdicts(compared.compared.sides, findings, skipped, undecided)
    named = reference_checks.add_owners(compared.compared.sides, references if names_all else None)
    named = reference_checks.add_tombstones(named, references)
    return named.append_column("verdict", words), int(looked_at)


def find_beside_ledgers(
    evidence: BookieEvidence,
    bookies: pa.Table,
    run: FindingRun,
    *,
    layout: Layout,
    taken: Mapping[str, int],
    raised: frozenset[str],
) -> pa.Table:
    """Return the findings of what stands beside the ledgers: cookies, sessions, generators, layout, instance id."""
    if evidence.live is None:
        return tables.FINDINGS.empty_table()

    def side(name: str, catalog: Catalog) -> nodes.Side:
        rows = catalog.dataset.read("nodes")
        complete = bool(catalog.dataset.manifest["coverage"].get("complete"))
        return nodes.Side.from_catalog(name, catalog.source, rows, catalog.ledgers, complete=complete)

    facts = bookies.select(["bookie", "cookie", "instance_id"]).to_pylist()
    about = nodes.InventoriedBookies(
        {row["bookie"]: row["cookie"] for row in facts},
        sorted({row["instance_id"] for row in facts if row["instance_id"] is not None}),
    )
    snapshot = side("earlier", evidence.snapshots[0]) if evidence.snapshots else None
    rows = nodes.findings(
        side("store", evidence.live), snapshot, about, layout=layout, taken=taken, raised=raised, now=run.at
    )
    return table.make_rows(rows, run)
