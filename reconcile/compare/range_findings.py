"""The findings of a bucket range, one verdict for each ledger, and the findings of what stands beside the ledgers."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.compare.evidence import Earlier, Evidence
from reconcile.compare.three_way import _MASK, Range
from reconcile.findings import table
from reconcile.findings.categories import SEVERITIES, Category
from reconcile.findings.table import Run, Said
from reconcile.rules import contradicted, entries_beyond_end, id_reuse, nodes, only_in_earlier, reference_checks, sides
from reconcile.rules.sides import Relation, _take
from recovery.codecs.keys import read_marks
from recovery.codecs.store import Layout
from recovery.model import tables
from recovery.model.ids import buckets as buckets_of

_LISTED: Final = 12


def found(
    evidence: Evidence, one: Range, copies: pa.Table, buckets: range, run: Run, references: pa.Table | None = None
) -> pa.Table:
    """Return the findings that the comparison of the three sides gives, and that with what upper layers know."""
    seen = evidence.everywhere and evidence.looked_at
    parts = [
        entries_beyond_end.findings(copies, one.stored, run, seen=seen),
        id_reuse.findings(copies, one.stored, one.shown, run),
        _deleted(evidence, one, copies, run),
        _stale_marks(evidence, one, buckets, run),
    ]
    if references is not None:
        how = {"looked_at": evidence.looked_at, "seen": seen}
        parts.append(reference_checks.findings(references, one.shown, copies, one.stored, run, **how))
    store = evidence.live.source if evidence.live else ""
    before = ", ".join(side.source for side in evidence.earlier)
    for relation, category in ((Relation.REUSED, Category.ID_REUSE), (Relation.WENT_BACK, Category.STORE_WENT_BACK)):
        at = one.compared.where(relation)
        ours, theirs = _take(one.stored, one.compared.stored[at]), _take(one.earlier, one.compared.earlier[at])
        said = [
            Said(side, name, _shown(rows, name), source)
            for name in ("state", "last_entry", "digest", "ctime", "password_hash")
            for side, rows, source in (("store", ours, store), ("earlier", theirs, before))
        ]
        parts.append(table.of_ledgers(category, _take(one.compared.sides, at), said, run, subject="record"))
    at = one.compared.where(Relation.EARLIER_ONLY)
    alone = tables.RECONSTRUCTION.empty_table() if one.alone is None else one.alone
    how = {"looked_at": evidence.looked_at, "seen": seen}
    records = _take(one.earlier, one.compared.earlier[at])
    parts.append(only_in_earlier.findings(records, alone, run, before, **how))
    parts.append(contradicted.findings(one.rows, run, before))
    keys = _take(one.compared.sides, np.flatnonzero(one.collided))
    presence = [
        Said(side, "record", pc.cast(keys[name], pa.string()), source)
        for side, name, source in (
            ("bookies", "on_bookies", "recover"),
            ("store", "in_store", store),
            ("earlier", "in_earlier", before),
        )
    ]
    parts.append(table.of_ledgers(Category.SCOPE_COLLISION, keys, presence, run, subject="lower half"))
    return pa.concat_tables(parts)


def _deleted(evidence: Evidence, one: Range, copies: pa.Table, run: Run) -> pa.Table:
    at = one.compared.where(Relation.DELETED)
    keys = _take(one.compared.sides, at)
    on = keys["on_bookies"]
    quiet = pa.scalar("info" if evidence.everywhere and evidence.looked_at else SEVERITIES[Category.DELETED_OUTSIDE])
    source = ", ".join(one.source for one in evidence.catalogs if one.dataset.rows("history"))
    session = pa.array(
        [None if s is None else f"{s & _MASK:#x}" for s in keys["deleted_session"].to_pylist()], pa.string()
    )
    txn = pa.array([f"{t} ({t & _MASK:#x})" for t in keys["deleted_txn"].to_pylist()], pa.string())
    said = [
        Said("history", "deleted in transaction", txn, source),
        Said("history", "deleted by session", session, source),
        Said("history", "deleted at", keys["deleted_at"], source),
        Said("bookies", "have it", pc.if_else(on, "yes", "no")),
    ]
    return table.of_ledgers(
        Category.DELETED_OUTSIDE,
        keys,
        said,
        run,
        subject="deletion",
        severity=pc.if_else(on, SEVERITIES[Category.DELETED_OUTSIDE], quiet),
        bookies=_to_index(keys, copies),
        unknowns=["whether it was wanted"],
    )


def _to_index(keys: pa.Table, copies: pa.Table) -> pa.Array:
    """Return, for each ledger, the bookies that have it in entry logs alone: their indexes dropped it."""
    lists: list[list[str]] = [[] for _ in range(keys.num_rows)]
    if keys.num_rows and copies.num_rows:
        names = ["scope", "ledger"]
        numbered = keys.select(names).append_column("at", pa.array(np.arange(keys.num_rows)))
        mine = copies.select([*names, "bookie", "source"]).join(numbered, names, join_type="inner")
        indexed = mine.filter(pc.equal(mine["source"], "index")).select(["at", "bookie"])
        logged = mine.filter(pc.equal(mine["source"], "log")).select(["at", "bookie"])
        alone = logged.join(indexed, ["at", "bookie"], join_type="left anti").group_by(["at", "bookie"]).aggregate([])
        for row in alone.sort_by([("at", "ascending"), ("bookie", "ascending")]).to_pylist():
            lists[row["at"]].append(row["bookie"])
    return pa.array(lists, pa.list_(pa.string()))


def _stale_marks(evidence: Evidence, one: Range, buckets: range, run: Run) -> pa.Table:
    if evidence.live is None:
        return tables.FINDINGS.empty_table()
    rows = evidence.live.dataset.read("nodes", columns=["path", "kind"])
    paths = rows["path"].filter(pc.equal(rows["kind"], "mark")).combine_chunks()
    marks = read_marks(paths)
    bucket = buckets_of(marks.scope, marks.ledger)
    mine = (bucket >= buckets.start) & (bucket < buckets.stop)
    keys = pa.table({"bucket": bucket[mine], "scope": marks.scope[mine], "ledger": marks.ledger[mine]})
    keys = keys.append_column("path", paths.take(pa.array(marks.rows[mine])))
    if not keys.num_rows:
        return tables.FINDINGS.empty_table()
    ours, stored = sides.unite([keys, one.stored]).rows
    stale = np.sort(ours[(ours != sides.ABSENT) & (stored == sides.ABSENT)])
    keys = keys.take(pa.array(stale))
    said = [
        Said("store", "mark", keys["path"], evidence.live.source),
        Said("store", "record", "none", evidence.live.source),
    ]
    return table.of_ledgers(Category.STALE_UR_MARK, keys, said, run, subject="mark")


def verdicts(
    evidence: Evidence, one: Range, findings: pa.Table, references: pa.Table | None = None
) -> tuple[pa.Table, int]:
    """Return SIDES, and how many ledgers were looked at: counted from the sides themselves, not from their join."""
    keys = ["scope", "ledger"]
    parts = [one.rows, one.stored, one.earlier, sides.deletions(one.history)]
    looked_at = pa.concat_tables([part.select(keys) for part in parts]).group_by(keys).aggregate([]).num_rows
    now = one.compared.stored
    skipped = np.zeros(len(now), np.bool_)
    open_now = pc.fill_null(pc.not_equal(one.stored["state"], "CLOSED"), fill_value=True).to_numpy()
    skipped[now != sides.ABSENT] = open_now[now[now != sides.ABSENT]]
    unseen = not (evidence.everywhere and evidence.looked_at)
    undecided = np.zeros(len(now), np.bool_)
    undecided[one.left_out()] = unseen
    words = table.verdicts(one.compared.sides, findings, skipped, undecided)
    named = reference_checks.named(one.compared.sides, references)
    return named.append_column("verdict", words), int(looked_at)


def beside(
    evidence: Evidence, bookies: pa.Table, run: Run, *, layout: Layout, taken: Mapping[str, int], raised: frozenset[str]
) -> pa.Table:
    """Return the findings of what stands beside the ledgers: cookies, sessions, generators, layout, instance id."""
    if evidence.live is None:
        return tables.FINDINGS.empty_table()

    def side(name: str, one: Earlier) -> nodes.Side:
        rows = one.dataset.read("nodes")
        complete = bool(one.dataset.manifest["coverage"].get("complete"))
        return nodes.Side.of(name, one.source, rows, one.ledgers, complete=complete)

    facts = bookies.select(["bookie", "cookie", "instance_id"]).to_pylist()
    about = nodes.Bookies(
        {row["bookie"]: row["cookie"] for row in facts},
        sorted({row["instance_id"] for row in facts if row["instance_id"] is not None}),
    )
    earlier = side("earlier", evidence.earlier[0]) if evidence.earlier else None
    rows = nodes.findings(side("store", evidence.live), earlier, about, layout=layout, taken=taken, raised=raised)
    return table.of_findings(rows, run)


def _shown(rows: pa.Table, name: str) -> Any:  # noqa: ANN401 - an Arrow column
    if name != "password_hash":
        return rows[name]
    return pa.array(
        [None if one is None else f"key {one.hex()[:_LISTED]}…" for one in rows[name].to_pylist()], pa.string()
    )
