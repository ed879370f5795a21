"""The comparison of `recover`: what bookies show, what the store holds, what it held earlier; a bucket range at a time.

    step       does
    Evidence   the catalogs of both sides, and what is known of all ranges before the first is compared
    compared   one join of reconstruction, store, earlier and history
    settled    ledgers that somebody deleted are not restored; colliding ones are held
    found      findings of ledgers, and one word for each ledger: the categories add up to what was looked at
    left       for what is not written by itself, the records that a person can choose

Everything but `Evidence.prepared` is a pure function of its bucket range.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reconcile.findings import table
from reconcile.findings.categories import SEVERITIES, Category
from reconcile.findings.table import Run, Said
from reconcile.plan import action_rows
from reconcile.plan.action_rows import Passwords
from reconcile.rules import contradicted, entries_beyond_end, id_reuse, nodes, only_in_earlier, reference_checks, sides
from reconcile.rules.sides import Compared, Relation
from recovery.codecs.keys import read_marks
from recovery.codecs.ledger_metadata import decode_columns
from recovery.codecs.store import Layout, generator_key
from recovery.dataset import Dataset, only, sort_by_key
from recovery.infer.refusal import Refusal
from recovery.model import tables
from recovery.model.ids import buckets as buckets_of

FEW_DELETIONS: Final = 10
"""Deleted ledgers that bookies still have, of a cluster of any size, that are taken for what somebody wanted."""
SHARE_OF_DELETIONS: Final = 0.01
"""More of the ledgers on bookies than this are a catastrophe until a person says that they are not."""

RESTORE: Final = "restore"
"""Label of the alternative that is the last record that anything had."""
_MASK: Final = (1 << 64) - 1
_LISTED: Final = 12

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Earlier:
    """One catalog, and when it was taken.

    Attributes:
        is_chosen: a person named the point in time that it shows.
    """

    dataset: Dataset
    source: str
    txn: int | None
    at: float
    ledgers: int
    layout: Layout | None = None
    is_chosen: bool = False

    @classmethod
    def of(cls, dataset: Dataset) -> "Earlier":
        """Read what a catalog says of itself."""
        rows = dataset.read("sources").to_pylist()
        row: Mapping[str, Any] = rows[0] if rows else {}
        at = row["at"].timestamp() if row.get("at") else 0.0
        layout = Layout(row["layout"]) if row.get("layout") else None
        source, is_chosen = str(row.get("uri") or dataset.path), dataset.manifest["binding"].get("at") is not None
        return cls(dataset, source, row.get("txn"), at, dataset.rows("ledgers"), layout, is_chosen)


def newest_first(catalogs: Sequence[Dataset]) -> tuple[Earlier, ...]:
    """Return catalogs by the time that they show, the newest first."""
    return tuple(sorted(map(Earlier.of, catalogs), key=lambda one: (-one.at, -(one.txn or 0))))


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the bookies are compared with; small, and picklable.

    Attributes:
        live: the store's catalog.
        earlier: the newest first.
        everywhere: every bookie was looked at, completely.
        looked_at: at least one bookie was.
        mass_deletion: more was deleted than somebody may have wanted.
        mass_let_go: the same, of what an upper layer's history shows.
        collisions: files of key columns of ledgers whose lower halves stand in several scopes.
    """

    live: Earlier | None
    earlier: tuple[Earlier, ...]
    everywhere: bool
    looked_at: bool
    mass_deletion: bool = False
    mass_let_go: bool = False
    collisions: tuple[str, ...] = ()

    @property
    def catalogs(self) -> tuple[Earlier, ...]:
        """All, the store's first."""
        return (*([self.live] if self.live else []), *self.earlier)

    @property
    def datasets(self) -> tuple[Dataset, ...]:
        """The same, as datasets."""
        return tuple(one.dataset for one in self.catalogs)

    def stored(self, buckets: range) -> pa.Table:
        """Return the store's records."""
        return self.live.dataset.read("ledgers", buckets=buckets) if self.live else tables.CATALOG_LEDGERS.empty_table()

    def issued(self, layout: Layout) -> int:
        """Return the id below which a complete earlier catalog knew every ledger of scope 0 that was not deleted."""
        found = 0
        for one in self.earlier:
            if one.dataset.manifest["coverage"].get("complete"):
                nodes = one.dataset.read("nodes", columns=["path", "children_created"])
                counters = nodes.filter(pc.equal(nodes["path"], generator_key(layout)))["children_created"]
                found = max(found, pc.max(counters).as_py() or 0)
        return int(found)

    def counters(self, layout: Layout) -> list[tuple[pa.Table, Layout]]:
        """Return CATALOG_NODES of the store and of each earlier catalog, each with its layout, else the given one."""
        columns = ["path", "children_created"]
        return [(catalog.dataset.read("nodes", columns=columns), catalog.layout or layout) for catalog in self.catalogs]

    def history(self, buckets: range) -> pa.Table:
        """Return what happened to records, as far as any catalog remembers."""
        parts = [one.dataset.read("history", buckets=buckets) for one in self.catalogs]
        return pa.concat_tables([tables.CATALOG_HISTORY.empty_table(), *parts])

    def tables(self, buckets: range, references: pa.Table | None) -> "Tables":
        """Return what is known of a bucket range besides what bookies show."""
        collided = tables.CATALOG_LEDGERS.empty_table().select(list(tables.KEY_COLUMNS))
        if self.collisions:
            wanted = [("bucket", ">=", buckets.start), ("bucket", "<", buckets.stop)]
            collided = pa.concat_tables([pq.read_table(path, filters=wanted) for path in self.collisions])
        earlier = tuple((one.dataset.read("ledgers", buckets=buckets), one.txn) for one in self.earlier)
        return Tables(self.stored(buckets), earlier, self.history(buckets), collided, references)

    def deletions(self, copies: pa.Table, buckets: range, references: pa.Table | None) -> dict[str, int]:
        """Count, of the ledgers on bookies that the store lacks, those that history shows as deleted.

        Those that an upper layer's history shows as let go of are counted apart, as far as some bookie still serves
        them: what only logs have, bookies have deleted, too.
        """
        remembers = any(one.dataset.rows("history") for one in self.catalogs)
        let_go = None if references is None else references.filter(pc.is_valid(references["deletion"]))
        if not remembers and (let_go is None or not let_go.num_rows):
            return {"on_bookies": 0, "deleted": 0, "let_go": 0, "named": 0}
        keys = list(tables.KEY_COLUMNS)
        served = copies.filter(pc.not_equal(copies["source"], "log"))
        on, serving = (part.select(keys).group_by(keys).aggregate([]) for part in (copies, served))
        stored = self.stored(buckets).select(keys)
        gone = sides.deletions(self.history(buckets)).select(keys)
        left = stored.slice(0, 0) if let_go is None else let_go.select(keys)
        held, now, deleted, has, named = (
            r != sides.ABSENT for r in sides.unite([on, stored, gone, serving, left]).rows
        )
        return {
            "on_bookies": on.num_rows,
            "deleted": int((held & deleted & ~now).sum()),
            "let_go": int((has & named & ~now).sum()),
            "named": 0 if references is None or let_go is None else references.num_rows - let_go.num_rows,
        }

    def with_deletions(self, counted: Sequence[Mapping[str, int]]) -> "Evidence":
        """Decide from all ranges' counts whether deletions are believed to have been wanted."""
        total = {name: sum(one[name] for one in counted) for name in ("on_bookies", "deleted", "let_go", "named")}
        most = max(FEW_DELETIONS, SHARE_OF_DELETIONS * total["on_bookies"])
        emptied = any(one.dataset.rows("history") and not one.ledgers for one in self.catalogs)
        return replace(
            self,
            mass_deletion=bool(total["deleted"] and (total["deleted"] > most or emptied)),
            mass_let_go=bool(total["let_go"] and (total["let_go"] > most or not total["named"])),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """What is known of some ledgers besides what bookies show.

    Attributes:
        stored: CATALOG_LEDGERS of the store.
        earlier: CATALOG_LEDGERS of each earlier catalog, the newest first, and the transaction that it was taken at.
        history: CATALOG_HISTORY of all catalogs.
        collided: key columns of ledgers that collide with another scope's.
        references: of `infer.references.SCHEMA`; None: not given.
    """

    stored: pa.Table
    earlier: tuple[tuple[pa.Table, int | None], ...]
    history: pa.Table
    collided: pa.Table
    references: pa.Table | None = None

    def records(self) -> pa.Table:
        """Return the newest earlier record of each ledger, but for holds and what cannot be read."""
        whole = [
            (only(rows, pa.array(pc.is_null(rows["error"]).to_numpy() & ~action_rows.is_hold(rows))), txn)
            for rows, txn in self.earlier
        ]
        return sides.newest(whole)[0]


@dataclass(frozen=True, slots=True, eq=False)
class Range:
    """One bucket range, compared.

    Attributes:
        rows: RECONSTRUCTION.
        shown: the same, as bookies and what supplies them have it, before anything spoke against it.
        stored: CATALOG_LEDGERS of the store.
        earlier: CATALOG_LEDGERS of earlier.
        history: CATALOG_HISTORY.
        compared: their join.
        collided: which rows of the join collide with another scope's ledger.
        alone: RECONSTRUCTION of ledgers that only an earlier catalog has, and that nothing speaks against.
    """

    rows: pa.Table
    shown: pa.Table
    stored: pa.Table
    earlier: pa.Table
    history: pa.Table
    compared: Compared
    collided: Mask
    alone: pa.Table | None = None

    def outcomes(self) -> pa.Table:
        """Return RECONSTRUCTION of all ledgers that something becomes of, in key order."""
        if self.alone is None or not self.alone.num_rows:
            return self.rows
        return sort_by_key(pa.concat_tables([self.rows, self.alone]))

    def left_out(self) -> npt.NDArray[np.int64]:
        """Return the rows of the join that only an earlier catalog has, and of which nothing becomes."""
        at = self.compared.where(Relation.EARLIER_ONLY)
        if self.alone is None or not self.alone.num_rows:
            return at
        ours, proposed = sides.unite([_take(self.compared.sides, at), self.alone]).rows
        left: npt.NDArray[np.int64] = at[np.sort(ours[(ours != sides.ABSENT) & (proposed == sides.ABSENT)])]
        return left


def compared(rows: pa.Table, known: Tables) -> Range:
    """Join all sides of some ledgers; `rows` is RECONSTRUCTION of them."""
    earlier, seen = sides.newest(known.earlier)
    found = sides.compare(rows, known.stored, earlier, seen, known.history, has_earlier=bool(known.earlier))
    found = contradicted.doubted(found, rows)
    collided = np.zeros(found.sides.num_rows, np.bool_)
    if known.collided.num_rows:
        ours, theirs = sides.unite([found.sides, known.collided]).rows
        collided[ours[(ours != sides.ABSENT) & (theirs != sides.ABSENT)]] = True
    return Range(rows, rows, known.stored, earlier, known.history, found, collided)


def settled(evidence: Evidence, one: Range, known: Tables, copies: pa.Table, issued: int = 0) -> Range:
    """Return the range with what somebody deleted not restored, and what collides held; COPIES of its ledgers."""
    on = one.compared.held != sides.ABSENT
    deleted = np.zeros(len(on), np.bool_)
    deleted[one.compared.where(Relation.DELETED)] = True
    another = _of_another_ledger(one, copies)
    deleted[another] = False
    rows = ended(one.rows, _deleted_before(one, issued), "held", Refusal.DELETED_BEFORE)
    if evidence.mass_let_go and known.references is not None:
        let_go = known.references.filter(pc.is_valid(known.references["deletion"]))
        at, named = sides.unite([rows, let_go]).rows
        rows = ended(rows, at[(at != sides.ABSENT) & (named != sides.ABSENT)], "held", Refusal.MASS_DELETION)
    if evidence.mass_deletion:
        rows = ended(rows, one.compared.held[deleted & on], "held", Refusal.MASS_DELETION)
    else:
        rows = ended(rows, one.compared.held[deleted & on], "deleted", Refusal.DELETED_OUTSIDE)
    rows = ended(rows, one.compared.held[another], "held", Refusal.TWO_HISTORIES)
    rows = ended(rows, one.compared.held[one.collided & on], "held", Refusal.SCOPE_COLLISION)
    return replace(one, rows=rows)


def _of_another_ledger(one: Range, copies: pa.Table) -> npt.NDArray[np.int64]:
    """Return the rows of the join whose deletion was of another ledger under the id than bookies hold.

    The record that was deleted has another key or digest than theirs, ends below an entry that was acknowledged, or has
    a length that their entries do not have there. That it ends above all of them says nothing: bookies collect what is
    deleted.
    """
    at = one.compared.where(Relation.DELETED)
    at = at[one.compared.held[at] != sides.ABSENT]
    if not len(at):
        return np.asarray(at)
    last = sides.last_records(one.compared, one.earlier, one.history, at)
    ours = _take(one.shown, one.compared.held[at])
    against = [pc.not_equal(ours["key"], last["password_hash"]), pc.greater(ours["lac_low"], last["last_entry"])]
    shown = np.logical_or.reduce([pc.fill_null(mask, fill_value=False).to_numpy() for mask in against])
    keys = ["scope", "ledger"]
    numbered = ours.select(keys).append_column("at", pa.array(np.arange(len(at))))
    served = copies.select([*keys, "source"]).append_column("row", pa.array(np.arange(copies.num_rows)))
    served = served.filter(pc.not_equal(served["source"], "log")).join(numbered, keys, join_type="inner")
    heads = copies["headers"].take(served["row"]).combine_chunks()
    of = np.repeat(served["at"].to_numpy(), pc.list_value_length(heads).to_numpy())
    entry, running, digest = (pc.struct_field(heads.flatten(), name) for name in ("entry", "length", "digest"))
    claimed = last.take(pa.array(of))
    end, length = pc.subtract(entry, claimed["last_entry"]), pc.subtract(running, claimed["length"])
    for mask in (
        pc.not_equal(digest, claimed["digest"]),
        pc.and_(pc.less_equal(end, 0), pc.greater(length, 0)),
        pc.and_(pc.greater_equal(end, 0), pc.less(length, 0)),
        pc.and_(pc.equal(end, 0), pc.not_equal(length, 0)),
    ):
        shown[of[pc.fill_null(mask, fill_value=False).to_numpy(zero_copy_only=False)]] = True
    return np.asarray(at[shown])


def _deleted_before(one: Range, issued: int) -> npt.NDArray[np.int64]:
    """Return the rows of ledgers whose ids were given out before an earlier catalog that does not have them."""
    held = one.compared.held[one.compared.where(Relation.BOOKIES_ONLY)]
    held = held[held != sides.ABSENT]
    scope, ledger = (one.rows[name].to_numpy()[held] for name in ("scope", "ledger"))
    return np.asarray(held[(scope == 0) & (ledger >= 0) & (ledger < issued)])


def ended(rows: pa.Table, which: npt.NDArray[np.int64], outcome: str, reason: Refusal) -> pa.Table:
    """Let rows end otherwise; what waits for a person goes on waiting."""
    if not len(which):
        return rows
    chosen = np.zeros(rows.num_rows, np.bool_)
    chosen[which] = True
    chosen &= pc.not_equal(rows["outcome"], "waiting").to_numpy()
    for name, said in (("outcome", outcome), ("reason", str(reason))):
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), pc.if_else(pa.array(chosen), said, rows[name]))
    return rows


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


def offered(one: Range, layout: Layout, passwords: Passwords, actions: pa.Table) -> tuple[pa.Table, int]:
    """Return the actions with what a person can choose instead, and how many more they are.

    For what was deleted, is held by the plan or in the store, or is in an earlier catalog alone, its last record; for
    what cannot be read, the earlier one; for all, what bookies show. Where the plan writes nothing, an action that
    writes nothing carries them.

    Args:
        one: the range, settled.
        layout: of the target.
        passwords: as of the plan.
        actions: ACTIONS of the range, in their order.
    """
    keys = list(tables.KEY_COLUMNS)
    found = [actions]
    deleted, unparsable = (one.compared.where(relation) for relation in (Relation.DELETED, Relation.UNPARSABLE))
    deleted = np.union1d(deleted, _deleted_by_owner(one))
    holds = actions.filter(pc.equal(actions["op"], "hold")).select(keys)
    place, hold = sides.unite([one.compared.sides.select(keys), holds]).rows
    now = one.compared.stored
    is_held = np.zeros(len(now), np.bool_)
    is_held[now != sides.ABSENT] = action_rows.is_hold(one.stored)[now[now != sides.ABSENT]]
    is_held[place[(place != sides.ABSENT) & (hold != sides.ABSENT)]] = True
    held = np.setdiff1d(np.flatnonzero(is_held), np.append(deleted, unparsable))
    left_out = np.setdiff1d(one.left_out(), deleted)
    for at in (deleted, unparsable, held, left_out):
        if not len(at):
            continue
        records = sides.last_records(one.compared, one.earlier, one.history, at)
        bad = pc.or_(pc.is_valid(records["error"]), pa.array(action_rows.is_hold(records)))
        raw = pc.if_else(bad, pa.scalar(None, pa.binary()), records["raw"]).combine_chunks()
        shown = _shown_records(one, layout, passwords, at)
        readings = [
            (RESTORE, raw, action_rows.reads_as(records)),
            (action_rows.FROM_BOOKIES, shown, action_rows.reads_as(decode_columns(shown))),
        ]
        choices = action_rows.alternatives(len(at), readings)
        mine, written = sides.unite([_take(one.compared.sides, at).select(keys), found[0].select(keys)]).rows
        both = (mine != sides.ABSENT) & (written != sides.ABSENT)
        found[0] = action_rows.with_alternatives(found[0], written[both], choices.take(pa.array(mine[both])))
        alone = np.sort(mine[(mine != sides.ABSENT) & (written == sides.ABSENT)])
        if at is held or at is left_out:
            # Of the store's holds, and of what nothing becomes, those that another record is known of.
            alone = alone[pc.list_value_length(choices).to_numpy()[alone] > 0]
        instead = None
        if at is not deleted and at is not left_out:
            instead = _take(one.stored, one.compared.stored[at[alone]]).select(["version", "raw"])
        left = action_rows.left_alone(
            _take(one.compared.sides, at[alone]), layout, choices.take(pa.array(alone)), instead=instead
        )
        found.append(left)
    more = sum(table.num_rows for table in found[1:])
    return (action_rows.in_order(found) if more else found[0]), more


def _deleted_by_owner(one: Range) -> npt.NDArray[np.int64]:
    """Return the rows of the join that an upper layer deleted, and that the store lacks."""
    held = one.compared.held
    reasons = pc.fill_null(pc.equal(one.rows["reason"], str(Refusal.DELETED_BY_REFERENCE)), fill_value=False).to_numpy()
    on = held != sides.ABSENT
    by_owner = np.zeros(len(held), np.bool_)
    by_owner[on] = reasons[held[on]]
    return np.flatnonzero(by_owner & (one.compared.stored == sides.ABSENT))


def _shown_records(one: Range, layout: Layout, passwords: Passwords, at: npt.NDArray[np.int64]) -> pa.Array:
    """Return, of rows of the join, the record that bookies show; null where they do not settle one."""
    held = one.compared.held[at]
    rows = one.shown.take(pa.array(held[held != sides.ABSENT]))
    # What an upper layer deleted keeps the record that it would have had.
    restored = pc.and_(
        pc.is_in(rows["outcome"], pa.array(["restored", "deleted"])), pc.is_valid(rows["state"])
    ).to_numpy()
    made = rows.filter(pa.array(restored))
    column = made.schema.get_field_index("outcome")
    outcome = pa.array(["restored"] * made.num_rows, pa.string())
    made = made.set_column(column, made.schema.field(column), outcome)
    made = action_rows.ledger_actions(made, layout, passwords, b"")["value"].combine_chunks()
    place = np.full(len(at), sides.ABSENT)
    place[np.flatnonzero(held != sides.ABSENT)[restored]] = np.arange(len(made))
    return made.take(pa.array(place, mask=place == sides.ABSENT))


def has_scopes(datasets: Sequence[Dataset]) -> bool:
    """Say whether any ledger is of another scope than 0, from what files say of themselves: no row is read."""
    return any(dataset.bounds(name, "scope") not in (None, (0, 0)) for dataset in datasets for name in _keyed(dataset))


def _keyed(dataset: Dataset) -> Sequence[str]:
    return ["copies"] if dataset.kind == "inventory" else ["ledgers", "history"]


def collisions(datasets: Sequence[Dataset], part: range) -> pa.Table:
    """Return the key columns of ledgers that share the lower half of their ids with one of another scope.

    Args:
        datasets: inventories and catalogs.
        part: the buckets of scope 0 that the lower halves fall into: each half is of one part, whatever its scope.
    """
    keys = list(tables.KEY_COLUMNS)
    found = [pa.schema(tables.KEY).empty_table()]
    for dataset in datasets:
        for name in _keyed(dataset):
            for batch in dataset.batches(name):
                ledger = batch["ledger"].to_numpy()
                half = buckets_of(np.zeros_like(ledger), ledger)
                mine = batch.select(keys).filter(pa.array((half >= part.start) & (half < part.stop)))
                found.append(mine.group_by(keys).aggregate([]).select(keys).cast(found[0].schema))
    rows = pa.concat_tables(found).group_by(keys).aggregate([])
    several = rows.group_by("ledger").aggregate([([], "count_all")])
    several = several.filter(pc.greater(several["count_all"], 1))["ledger"]
    return sort_by_key(
        rows.filter(pc.is_in(rows["ledger"], several.combine_chunks())).select(keys).cast(found[0].schema)
    )


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
    return table.of_subjects(list(rows), run)


def _take(rows: pa.Table, at: npt.NDArray[np.int64]) -> pa.Table:
    # Of none, Arrow would still lay out all columns.
    return rows.take(pa.array(at)) if len(at) else rows.slice(0, 0)


def _shown(rows: pa.Table, name: str) -> Any:  # noqa: ANN401 - an Arrow column
    if name != "password_hash":
        return rows[name]
    return pa.array(
        [None if one is None else f"key {one.hex()[:_LISTED]}…" for one in rows[name].to_pylist()], pa.string()
    )
