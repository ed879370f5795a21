"""The comparison of `recover`: what bookies show, what the store holds, what it held earlier; a bucket range at a time.

    function        does
    join_sides      one join of reconstruction, store, snapshots and history
    settle_range    ledgers that somebody deleted are not restored; colliding ones are held

Both are pure functions of a bucket range. `decide.decide_range` calls them; `range_findings` reads what they return.
"""

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.compare.evidence import BookieEvidence, KnownTables
from reconcile.compare.outcomes import set_outcome
from reconcile.rules import sides, snapshot_findings
from reconcile.rules.sides import Joined, Relation, take_rows
from recovery.dataset import sort_by_key
from recovery.infer.references import select_stated
from recovery.infer.refusal import Refusal
from recovery.model.groups import from_arrow, run_counts

Mask = npt.NDArray[np.bool_]
_REPEATS: Final = 3
"""Runs of one group that make a pattern."""


@dataclass(frozen=True, slots=True, eq=False)
class ComparedRange:
    """One bucket range, compared.

    Attributes:
        rows: RECONSTRUCTION.
        shown: the same, as bookies and what supplies them have it, before anything spoke against it.
        stored: CATALOG_LEDGERS of the store.
        snapshot: CATALOG_LEDGERS of snapshots: of each ledger the newest record.
        history: CATALOG_HISTORY.
        compared: their join.
        collided: which rows of the join collide with another scope's ledger.
        alone: RECONSTRUCTION of ledgers that only a snapshot has, and that nothing speaks against.
        doubted: RECONSTRUCTION of held ledgers as they would be read if somebody accepted the doubt of their content;
            by another key, too.
        deleted_since: the rows of the join that a snapshot alone has, and that were probably deleted since.
    """

    rows: pa.Table
    shown: pa.Table
    stored: pa.Table
    snapshot: pa.Table
    history: pa.Table
    compared: Joined
    collided: Mask
    alone: pa.Table | None = None
    doubted: tuple[pa.Table, ...] = ()
    deleted_since: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def outcomes(self) -> pa.Table:
        """Return RECONSTRUCTION of all ledgers that something becomes of, in key order."""
        if self.alone is None or not self.alone.num_rows:
            return self.rows
        return sort_by_key(pa.concat_tables([self.rows, self.alone]))

    def find_left_out(self) -> npt.NDArray[np.int64]:
        """Return the rows of the join that only a snapshot has, and of which nothing becomes."""
        places = self.compared.where(Relation.SNAPSHOT_ONLY)
        if self.alone is None or not self.alone.num_rows:
            return places
        absent, proposed = sides.unite([take_rows(self.compared.sides, places), self.alone]).rows
        left: npt.NDArray[np.int64] = places[np.sort(absent[(absent != sides.ABSENT) & (proposed == sides.ABSENT)])]
        return left


def join_sides(rows: pa.Table, known: KnownTables) -> ComparedRange:
    """Join all sides of some ledgers; `rows` is RECONSTRUCTION of them."""
    snapshot, seen = sides.pick_newest_records(known.snapshots)
    joined = sides.compare(rows, known.stored, snapshot, seen, known.history, has_snapshot=bool(known.snapshots))
    joined = snapshot_findings.mark_doubted(joined, rows)
    collided = np.zeros(joined.sides.num_rows, np.bool_)
    if known.collided.num_rows:
        places, collided_rows = sides.unite([joined.sides, known.collided]).rows
        collided[places[(places != sides.ABSENT) & (collided_rows != sides.ABSENT)]] = True
    return ComparedRange(rows, rows, known.stored, snapshot, known.history, joined, collided)


def settle_range(
    evidence: BookieEvidence, part: ComparedRange, known: KnownTables, copies: pa.Table, issued: int = 0
) -> ComparedRange:
    """Return the range with what somebody deleted not restored, and what collides held; COPIES of its ledgers."""
    on = part.compared.shown != sides.ABSENT
    stated = find_stated(part.compared.sides, known.references)
    deleted = np.zeros(len(on), np.bool_)
    deleted[part.compared.where(Relation.DELETED)] = True
    deleted[stated] = False
    another = _find_other_ledgers(part, copies)
    deleted_before = np.setdiff1d(_find_deleted_before(part, issued), part.compared.shown[stated])
    rows = set_outcome(part.rows, deleted_before, "held", Refusal.DELETED_BEFORE)
    if evidence.mass_let_go and known.references is not None:
        let_go = known.references.filter(pc.is_valid(known.references["deletion"]))
        places, named = sides.unite([rows, let_go]).rows
        rows = set_outcome(
            rows, places[(places != sides.ABSENT) & (named != sides.ABSENT)], "held", Refusal.MASS_DELETION
        )
    if evidence.mass_deletion:
        rows = set_outcome(rows, part.compared.shown[deleted & on], "held", Refusal.MASS_DELETION)
    else:
        rows = set_outcome(rows, part.compared.shown[deleted & on], "deleted", Refusal.DELETED_OUTSIDE)
    # The deletion was of another ledger under the id: this replaces the outcomes above.
    rows = set_outcome(rows, part.compared.shown[another], "held", Refusal.TWO_HISTORIES)
    rows = set_outcome(rows, part.compared.shown[part.collided & on], "held", Refusal.SCOPE_COLLISION)
    return replace(part, rows=rows)


def find_stated(keys: pa.Table, references: pa.Table | None) -> npt.NDArray[np.int64]:
    """Return the rows of ledgers that a reference, or a tombstone, says are deleted: no history can say it better."""
    stated = select_stated(references)
    if not stated.num_rows:
        return np.zeros(0, np.int64)
    places, named = sides.unite([keys, stated]).rows
    return np.asarray(places[(places != sides.ABSENT) & (named != sides.ABSENT)])


def _find_other_ledgers(part: ComparedRange, copies: pa.Table) -> npt.NDArray[np.int64]:
    """Return the rows of the join whose deletion was of another ledger under the id than bookies hold.

    The record that was deleted has another key than all of theirs, or another digest; it ends below an entry that was
    acknowledged, has a length that their entries do not have there, or an E and W whose pattern they do not repeat.
    That it ends above all of them says nothing: bookies collect what is deleted.
    """
    places = part.compared.where(Relation.DELETED)
    places = places[part.compared.shown[places] != sides.ABSENT]
    if not len(places):
        return np.asarray(places)
    last = sides.last_records(part.compared, part.snapshot, part.history, places)
    shown_rows = take_rows(part.shown, part.compared.shown[places])
    shown = _fill(pc.greater(shown_rows["lac_low"], last["last_entry"])).copy()
    shown |= _fill(pc.not_equal(shown_rows["key"], last["password_hash"]))
    keys = ["scope", "ledger"]
    numbered = shown_rows.select(keys).append_column("at", pa.array(np.arange(len(places))))
    served = copies.select([*keys, "bookie", "source", "key", "key_kind"]).append_column(
        "row", pa.array(np.arange(copies.num_rows))
    )
    served = served.filter(pc.not_equal(served["source"], "log")).join(numbered, keys, join_type="inner")
    heads = copies["headers"].take(served["row"]).combine_chunks()
    owners = np.repeat(served["at"].to_numpy(), pc.list_value_length(heads).to_numpy())
    entry, running, digest = (pc.struct_field(heads.flatten(), name) for name in ("entry", "length", "digest"))
    claimed = last.take(pa.array(owners))
    end, length = pc.subtract(entry, claimed["last_entry"]), pc.subtract(running, claimed["length"])
    for mask in (
        pc.not_equal(digest, claimed["digest"]),
        pc.and_(pc.less_equal(end, 0), pc.greater(length, 0)),
        pc.and_(pc.greater_equal(end, 0), pc.less(length, 0)),
    ):
        shown[owners[_fill(mask)]] = True
    shown |= _know_other_keys(served, last)
    shown |= _repeat_others(copies["groups"].take(served["row"]), served, last)
    return np.asarray(places[shown])


def _fill(mask: pa.ChunkedArray) -> Mask:
    known: Mask = pc.fill_null(mask, fill_value=False).to_numpy(zero_copy_only=False)
    return known


def _know_other_keys(served: pa.Table, last: pa.Table) -> Mask:
    """Say of which records bookies know keys, and none of them is the record's."""
    known = served.filter(_fill(pc.equal(served["key_kind"], "set")))
    number = known["at"].to_numpy()
    same = pc.equal(known["key"], last["password_hash"].take(known["at"]))
    differs, agrees = np.zeros(last.num_rows, np.bool_), np.zeros(last.num_rows, np.bool_)
    differs[number[_fill(pc.invert(same))]] = True
    agrees[number[_fill(same)]] = True
    return differs & ~agrees


def _repeat_others(groups: pa.ChunkedArray, served: pa.Table, last: pa.Table) -> Mask:
    """Say of which records two bookies or more repeat the pattern of another E and W, and none any other one.

    Args:
        groups: of COPIES, for each row of `served`.
        served: bookie, and at: the record that it is compared with.
        last: the records.
    """
    row, begin, end, size, period = from_arrow(groups)
    repeats = (run_counts(begin, end, period) >= _REPEATS) & (size < period)
    at, bookies = served["at"].to_numpy(), served["bookie"].combine_chunks().dictionary_encode().indices.to_numpy()
    shapes = np.unique(np.stack([at[row], period, size], axis=1)[repeats], axis=0)
    holders = np.unique(np.stack([at[row], bookies[row]], axis=1)[repeats], axis=0)
    has_one_shape = np.bincount(shapes[:, 0], minlength=last.num_rows) == 1
    has_one_shape &= np.bincount(holders[:, 0], minlength=last.num_rows) > 1
    shapes = shapes[has_one_shape[shapes[:, 0]]]
    # A record that nobody can read, or knows, has none.
    ensemble, write = (
        pc.fill_null(last[name], 0).to_numpy()[shapes[:, 0]] for name in ("ensemble_size", "write_quorum")
    )
    differs = (ensemble > 0) & ((ensemble != shapes[:, 1]) | (write != shapes[:, 2]))
    # One bookie that wrote all has a period of its own where ids were left out.
    differs &= (ensemble > 1) | (shapes[:, 2] > 1)
    result = np.zeros(last.num_rows, np.bool_)
    result[shapes[differs, 0]] = True
    return result


def _find_deleted_before(part: ComparedRange, issued: int) -> npt.NDArray[np.int64]:
    """Return the rows of ledgers whose ids were given out before a snapshot that does not have them."""
    places = part.compared.shown[part.compared.where(Relation.BOOKIES_ONLY)]
    places = places[places != sides.ABSENT]
    scope, ledger = (part.rows[name].to_numpy()[places] for name in ("scope", "ledger"))
    return np.asarray(places[(scope == 0) & (ledger >= 0) & (ledger < issued)])
