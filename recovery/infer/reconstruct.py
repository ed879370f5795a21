"""Ledger metadata from what bookies show: copies of many ledgers in, one proposal or one reason a ledger out.

What the copies show of E and W is tried first; where they are silent, the prior's shapes. A proposal is the inclusive
one: closed at the last entry that any bookie holds. What is not proved has a reason; it is guarded where all that is
seen can be read all the same, else held. See `docs/internals/reconstruction.md` and `docs/internals/guards.md`.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recovery.codecs.entry import lac_record_agrees, master_key
from recovery.infer import facts, rows
from recovery.infer.copies import Ints, Mask
from recovery.infer.facts import DIGESTS, MAX_ENTRY, MAX_GROUPS, LedgerFacts
from recovery.infer.lost_entries import settle_entries
from recovery.infer.prior import Prior, PriorShape, ShapeSource, find_striped
from recovery.infer.readings import find_holes, find_readings, refuse_content
from recovery.infer.references import apply_references
from recovery.infer.refusal import CODES, DOUBTED, ENDED_BY_LOSS, GUARDABLE, NEEDS_MORE, Refusal
from recovery.infer.replicas import fit_ensembles
from recovery.infer.search import Doubt, Tail, search_histories
from recovery.infer.shape_fit import CLEAN, RE_REPLICATED, SOLVED, UNDECIDED, Explained, LedgerSegments, explain
from recovery.infer.snapshot_contradictions import SnapshotDoubts
from recovery.infer.snapshot_records import apply_snapshot, match_records
from recovery.infer.unobserved_members import name_members
from recovery.infer.unseen_bookies import UnseenBookies
from recovery.infer.wiped_bookies import count_losers, forget_lost
from recovery.model.metadata import Digest

_HMAC: Final = DIGESTS.index(Digest.HMAC)


@dataclass(frozen=True, slots=True)
class InferOptions:
    """What the operator knows.

    Attributes:
        passwords: candidates; never shown.
        unscanned_bookies: members of the cluster without an inventory: their names, or how many.
        lost_bookies: bookies that are stated to be gone; none of them is in `unscanned_bookies`.
        max_groups: more groups of one ledger leave it undecided.
        tail: where a ledger is closed if its last entries may not have been acknowledged.
        is_doubt_accepted: guard ledgers that would be held for their content: a person can choose this.
    """

    passwords: tuple[bytes, ...] = field(default=(b"",), repr=False)
    unscanned_bookies: int | tuple[str, ...] = 0
    lost_bookies: tuple[str, ...] = ()
    max_groups: int = MAX_GROUPS
    tail: Tail = Tail.INCLUSIVE
    is_doubt_accepted: bool = False

    @property
    def unscanned(self) -> int:
        """How many bookies were not scanned."""
        return self.unscanned_bookies if isinstance(self.unscanned_bookies, int) else len(self.unscanned_bookies)


def reconstruct(
    copies: pa.Table,
    bookies: pa.Table,
    damage: pa.Table,
    prior: Prior,
    options: InferOptions,
    snapshot: pa.Table | None = None,
    references: pa.Table | None = None,
    alive: pa.Table | None = None,
) -> pa.Table:
    """Propose metadata for every ledger that the copies are of.

    Args:
        copies: COPIES of whole ledgers, rows of any number of inventories in any order.
        bookies: BOOKIES of all inventories.
        damage: DAMAGE of all inventories.
        prior: assumptions for ledgers whose copies do not show the shape.
        options: statements of the operator.
        snapshot: CATALOG_LEDGERS of a snapshot, each ledger at most once; no holds.
        references: an upper layer's facts of its ledgers, of `references.SCHEMA`.
        alive: key columns and bytes of the last records of the store, from its own files: these were not deleted.

    Returns:
        RECONSTRUCTION, one row a ledger, in key order.
    """
    keys = {hashlib.sha256(master_key(password)).digest(): password for password in options.passwords}
    # A data-integrity copy stores the password itself where its key belongs (docs/formats/bookie-storage.md).
    raw = {hashlib.sha256(password).digest(): key for key, password in keys.items()}
    names = () if isinstance(options.unscanned_bookies, int) else options.unscanned_bookies
    tolerances = [prior.count_tolerated(shape.ensemble, shape.write) for shape in prior.shapes]
    settled = settle_entries(copies, bookies, damage, prior.shapes, tolerances)
    read = partial(
        facts.read,
        bookies=bookies,
        max_groups=options.max_groups,
        same_keys=raw,
        unscanned=names,
        lost=options.lost_bookies,
        are_leftovers_wanted=options.is_doubt_accepted,
    )
    known = read(settled.copies)
    if alive is not None and known.count:
        not_deleted = np.isin(np.arange(known.count), match_records(known, alive)[0])
        known = replace(known, leftover=known.leftover & ~not_deleted)
    unseen = UnseenBookies.gather(known, bookies, damage, settled.harmless, options.unscanned)
    refusal = _refuse_by_facts(known, unseen)
    may_read = np.isin(refusal, [0, *(CODES[reason] for reason in GUARDABLE)])
    explained = explain(known, prior.shapes, may_read, tolerances, unseen.elsewhere)
    # What a lost folder had is not there: that a bookie has other ledgers shows nothing of the ones that it lacks.
    prior = replace(prior, kept=forget_lost(prior.kept, options.lost_bookies))
    # Nothing will settle these: they are not searched one by one.
    if unseen.elsewhere > max(tolerances, default=0):
        _refuse(refusal, ~find_striped(known.copies), Refusal.SOURCE_INCOMPLETE)
    doubt = _Doubts(known, unseen, prior, options.tail)
    explained = _fit_copied(known, explained, prior, unseen, tolerances, refusal)
    _refuse(refusal, (explained.path == UNDECIDED) & known.leftover, Refusal.DELETED_SOMEWHERE)
    explained = _search_rest(known, explained, prior, doubt, refusal)
    is_deleted = _refuse_leftovers(known, explained, refusal)
    may_go_on = known.unindexed & (~(explained.seen | explained.sure) | (known.weak_end > explained.end))
    _refuse(refusal, may_go_on, Refusal.SOURCE_INCOMPLETE)
    enough = _count_enough_to_hide(explained, prior)
    _refuse(refusal, (unseen.holders > 0) & (unseen.holders >= enough), Refusal.DAMAGE)
    _refuse(refusal, unseen.blank >= _list_write_quorums(explained), Refusal.SOURCE_INCOMPLETE)
    explained = _add_prior_shapes(known, explained)
    may_change = np.isin(refusal, [CODES[reason] for reason in NEEDS_MORE]) & (unseen.bookies > 0)
    refusal[may_change] = CODES[Refusal.SOURCE_INCOMPLETE]
    refuse_content(known, refusal, is_deleted)
    doubts = DOUBTED if options.is_doubt_accepted else frozenset()
    readings = find_readings(known, explained, refusal, unseen.unsound, doubts)
    missing = readings.explained.missing + settled.count_lost(known)
    explained, guarded = replace(readings.explained, missing=missing), readings.guarded
    is_rest = guarded & np.isin(refusal, [CODES[reason] for reason in ENDED_BY_LOSS])
    is_rest &= bool(options.lost_bookies) & (unseen.bookies == 0) & ~unseen.named
    segments, assumed = name_members(known, explained.segments)
    ack, source = _choose_ack_quorums(explained, prior)
    opened = _find_opened(known, keys)
    in_doubt = np.flatnonzero(guarded | (explained.missing > 0))
    table = rows.build_table(
        known,
        explained,
        rows.Proposals(
            refusal=refusal,
            guarded=guarded,
            is_rest=is_rest,
            universal=readings.universal,
            holes=find_holes(known, in_doubt, explained.end),
            state=_choose_states(known, explained, segments, assumed, source, unseen, doubt),
            segments=segments,
            assumed=assumed,
            ack=np.where(readings.universal, 1, ack),
            ack_source=source,
            # Where the shape is not seen, newcomers may have lost all, and a LAC is a lower bound only.
            certain_end=(unseen.count_outsiders(known) < enough) & explained.seen & ~guarded,
            opened=opened,
            verified=known.verified | _verify_by_lac(known, keys, opened & ((refusal == 0) | guarded)),
        ),
    )
    if snapshot is not None:
        hidden = np.maximum(unseen.bookies, len(options.lost_bookies))
        snapshot_doubts = SnapshotDoubts(hidden, prior.kept, options.tail is not Tail.ACKNOWLEDGED)
        # Rows that were put back are on the bookies' own ensembles: a record with other members cannot be read there.
        served = replace(read(copies), leftover=known.leftover) if settled.lost.num_rows else known
        table = apply_snapshot(table, served, snapshot, snapshot_doubts, alive)
    return table if references is None else apply_references(table, known, references)


def _refuse(refusal: Ints, ledgers: Ints | Mask, reason: Refusal) -> None:
    """Give a reason to ledgers that have none yet."""
    refusal[ledgers] = np.where(refusal[ledgers] == 0, CODES[reason], refusal[ledgers])


def _refuse_by_facts(known: LedgerFacts, unseen: UnseenBookies) -> Ints:
    """Refuse ledgers that no ensemble could explain."""
    copies = known.copies
    empty = copies.end < 0
    refusal = np.zeros(known.count, np.int64)
    for mask, reason in (
        ((known.scope == 0) & (known.ledger < 0), Refusal.ID_OUT_OF_RANGE),
        (known.fragmented, Refusal.FRAGMENTED),
        (known.broken, Refusal.CONTRADICTION),
        (empty & (known.leftover | known.unindexed), Refusal.LOGS_OR_JOURNALS_ONLY),
        (known.unserved, Refusal.LOG_ONLY_COPIES),
        (known.reincarnated, Refusal.TWO_INCARNATIONS),
        (known.keys > 1, Refusal.TWO_KEYS),
        (known.limbo, Refusal.LIMBO),
        (unseen.named, Refusal.DAMAGE),
        (empty, Refusal.NO_ENTRIES),
        (known.keys == 0, Refusal.NO_KEY),
        (known.lengths_differ, Refusal.LENGTHS_DIFFER),
        (known.crossed, Refusal.TWO_HISTORIES),
        (known.digests_differ, Refusal.DIGESTS_DIFFER),
        (known.lac > copies.end, Refusal.LAC_BEYOND_END),
        (known.last_length < 0, Refusal.NO_LAST_HEADER),
    ):
        _refuse(refusal, mask, reason)
    return refusal


@dataclass(frozen=True, slots=True)
class _Doubts:
    """Possibly hidden or lost entries, and the rule for closing ledgers."""

    known: LedgerFacts
    unseen: UnseenBookies
    prior: Prior
    tail: Tail

    @property
    def has_unseen(self) -> bool:
        """Whether some bookie was not scanned, or not completely."""
        return self.unseen.elsewhere > 0 or bool(self.unseen.unsound.any())

    def list_doubts(self, ledgers: Sequence[int]) -> list[Doubt]:
        """Return the possibly hidden entries of some ledgers, in ascending order."""
        wiped = self.count_wiped(np.array(ledgers, np.int64)).tolist()
        hiding = self.unseen.bookies[ledgers].tolist()
        pairs = zip(hiding, wiped, strict=True)
        return [
            Doubt(hidden, self.unseen.elsewhere, wiped_count, self.has_unseen, self.tail)
            for hidden, wiped_count in pairs
        ]

    def count_wiped(self, ledgers: Ints) -> Ints:
        """Return how many bookies may have lost each of some ledgers, which ascend."""
        return count_losers(self.known, ledgers, self.prior.kept, self.unseen.unsound)


def _fit_copied(
    known: LedgerFacts,
    explained: Explained,
    prior: Prior,
    unseen: UnseenBookies,
    tolerances: Sequence[int],
    refusal: Ints,
) -> Explained:
    """Explain re-replicated ledgers of one ensemble."""
    path = np.where((explained.path == CLEAN) & known.copied, RE_REPLICATED, explained.path)
    todo = np.flatnonzero((path == UNDECIDED) & (refusal == 0) & known.copied)
    fitting = fit_ensembles(known, todo, prior.shapes, explained.observed, tolerances, unseen.elsewhere)
    fits = fitting.shape >= 0
    return replace(
        explained,
        path=np.where(fits, RE_REPLICATED, path),
        shape=np.where(fits, fitting.shape, explained.shape),
        extra=np.where(fits, fitting.extra, explained.extra),
        sure=explained.sure | (fits & fitting.sure),
        segments=LedgerSegments.join([explained.segments, fitting.segments]),
        other_ledger=np.append(explained.other_ledger, fitting.alternatives[:, 0]),
        other_shape=np.append(explained.other_shape, fitting.alternatives[:, 1]),
    )


def _search_rest(known: LedgerFacts, explained: Explained, prior: Prior, doubts: _Doubts, refusal: Ints) -> Explained:
    """Search the history of each ledger that is neither explained nor refused."""
    todo = np.flatnonzero((explained.path == UNDECIDED) & (refusal == 0)).tolist()
    if not todo:
        return explained
    shapes = list(explained.shapes)
    numbers = {(s.ensemble, s.write): number for number, s in enumerate(shapes) if number >= explained.observed}

    def number_shape(shape: tuple[int, int]) -> int:
        if shape not in numbers:
            numbers[shape] = len(shapes)
            shapes.append(PriorShape(*shape, 0.0, ShapeSource.COPIES))
        return numbers[shape]

    columns = {name: getattr(explained, name).copy() for name in ("path", "shape", "end", "length", "missing", "extra")}
    parts, alternatives = [explained.segments], []
    for ledger, result in zip(todo, search_histories(known, todo, prior, doubts.list_doubts(todo)), strict=True):
        if result.refusal is not None:
            refusal[ledger] = CODES[result.refusal]
        solution = result.solution
        if solution is None:
            continue
        values = (
            SOLVED, number_shape((solution.ensemble, solution.write)), result.end, result.length,
            solution.missing, solution.extra,
        )  # fmt: skip
        for column, value in zip(columns.values(), values, strict=True):
            column[ledger] = value
        first = int(np.searchsorted(known.copies.row_ledger, ledger))
        count = len(solution.first)
        members = np.where(solution.members < 0, -1, known.row_bookie[first + np.maximum(solution.members, 0)]).ravel()
        parts.append(
            LedgerSegments(
                np.full(count, ledger), solution.first, solution.low, np.full(count, solution.ensemble), members
            )
        )
        alternatives += [(ledger, number_shape(shape)) for shape in result.alternatives]
    other = np.array(alternatives, np.int64).reshape(-1, 2)
    return replace(
        explained,
        shapes=shapes,
        segments=LedgerSegments.join(parts),
        other_ledger=np.append(explained.other_ledger, other[:, 0]),
        other_shape=np.append(explained.other_shape, other[:, 1]),
        **columns,
    )


def _add_prior_shapes(known: LedgerFacts, explained: Explained) -> Explained:
    """List the prior's shapes beside an inferred one: a bookie may have lost everything without a trace.

    But for shapes that a clean ledger cannot be what is left of: full copies of more entries than any E are of W = E,
    unless they are in runs that stripes have too, and no entry has more copies than W; or no LAC tells of an entry that
    was acknowledged: then all may have been sent to one ensemble after another, each of which failed. A bookie whose
    own LACs tell of none may have been in such an ensemble, and be one of W = E too many.
    """
    shape_of = explained.shape
    unsure = (shape_of >= 0) & ~explained.seen & ~explained.sure
    ensemble, write = (
        np.array([*(getattr(shape, name) for shape in explained.shapes), 0])[shape_of] for name in ("ensemble", "write")
    )
    clean = (explained.path == CLEAN) & (explained.extra == 0)
    largest = known.copies.find_largest_runs()
    heard = np.bincount(known.copies.row_ledger[known.row_lac >= 0], minlength=known.count)
    base = len(explained.shapes)
    listed = explained.other_ledger * base + explained.other_shape
    ledgers, shapes = [explained.other_ledger], [explained.other_shape]
    for number, shape in enumerate(explained.shapes[explained.observed :], explained.observed):
        if shape.source is ShapeSource.COPIES or shape.ensemble > len(known.bookies):
            continue
        left_over = np.greater(shape.write, write) | ((ensemble > write) & np.equal(shape.write, write))
        left_over &= (ensemble > write) | (shape.ensemble == shape.write) | (largest <= shape.write)
        left_over |= np.logical_and(shape.ensemble == shape.write, heard <= shape.write)
        other = np.not_equal(ensemble, shape.ensemble) | np.not_equal(write, shape.write)
        may_be = unsure & other & (~clean | left_over | (explained.end < shape.ensemble) | (known.lac < 0))
        added = np.flatnonzero(may_be)
        added = added[~np.isin(added * base + number, listed)]
        ledgers.append(added)
        shapes.append(np.full(len(added), number))
    return replace(explained, other_ledger=np.concatenate(ledgers), other_shape=np.concatenate(shapes))


def _refuse_leftovers(known: LedgerFacts, explained: Explained, refusal: Ints) -> Mask:
    """Refuse ledgers with leftovers in logs, unless they are whole without these; return the suspected ones.

    A bookie that was replaced keeps its entries in logs; so does one that deleted the ledger. That one was a member to
    the end, and is missed unless another took its place here: a copy, which fits that position only if it was made for
    it; or one that it had replaced, which heard of nothing after that. A copy in logs is a member that came back.

    Without a copy, a record leaves out only who was replaced before anything of its segment was acknowledged. Who was a
    member for some entries, and deleted them, is missed unless it had no share of these: stripes leave E - W out. What
    begins with entry 0 is of no such member.
    """
    whole = (explained.path != UNDECIDED) & (explained.missing == 0)
    ledger, own = known.copies.row_ledger, ~known.row_copied
    heard = np.full(known.count, MAX_ENTRY)
    np.minimum.at(heard, ledger[own], known.row_lac[own])
    replaced = whole & explained.sure & ~known.leftover_copied & (heard >= known.leftover_first)
    replaced &= known.copied | (known.leftover_first == 0)
    suspected: Mask = known.leftover & ~replaced
    _refuse(refusal, suspected, Refusal.DELETED_SOMEWHERE)
    _refuse(refusal, known.unlisted & ~(whole & (known.weak_end <= explained.end)), Refusal.LOG_ONLY_COPIES)
    return suspected


def _choose_ack_quorums(explained: Explained, prior: Prior) -> tuple[Ints, Ints]:
    """Return A of each explained ledger, else 0, and the place of its source in `ShapeSource`, else -1."""
    sources = list(ShapeSource)
    answers = [prior.ack_quorum(shape.ensemble, shape.write) for shape in explained.shapes]
    ack = np.array([*(answer for answer, _ in answers), 0])
    source = np.array([*(sources.index(source) for _, source in answers), -1])
    return ack[explained.shape], source[explained.shape]


def _count_enough_to_hide(explained: Explained, prior: Prior) -> Ints:
    """Return how many unseen bookies can hide an acknowledged entry of each ledger."""
    seen = [prior.surely_acked(shape.ensemble, shape.write) for shape in explained.shapes[: explained.observed]]
    not_seen = len(explained.shapes) - explained.observed + 1
    return np.array(seen + [1] * not_seen)[explained.shape]


def _list_write_quorums(explained: Explained) -> Ints:
    """Return the W of each ledger: W bookies without a trace of it may hold a later segment of it alone."""
    return np.array([*(shape.write for shape in explained.shapes), 1])[explained.shape]


def _find_opened(known: LedgerFacts, keys: dict[bytes, bytes]) -> Mask:
    """Mark ledgers with the key of a candidate password."""
    match = pc.is_in(known.key_values, value_set=pa.array(list(keys), pa.binary())).to_numpy(zero_copy_only=False)
    opened: Mask = np.append(match, False)[known.key] & (known.keys == 1)
    return opened


def _choose_states(
    known: LedgerFacts,
    explained: Explained,
    segments: LedgerSegments,
    assumed: Mask,
    source: Ints,
    unseen: UnseenBookies,
    doubts: _Doubts,
) -> Ints:
    """Leave ledgers open where the operator asked for it and their recovery loses nothing; close all others.

    A recovery stops at the first entry that W - A + 1 bookies do not have: so all members of the last ensemble must be
    seen to hold their share, and A must be stated. What was copied may have been closed.
    """
    state = np.full(known.count, rows.CLOSED)
    if doubts.tail is not Tail.OPEN or doubts.has_unseen:
        return state
    stated = [
        place for place, name in enumerate(ShapeSource) if name in (ShapeSource.SNAPSHOT, ShapeSource.DEFAULT_QUORUM)
    ]
    safe = np.isin(source, stated) & (explained.missing == 0) & (unseen.bookies == 0) & ~known.copied & ~unseen.named
    safe &= (explained.end == known.copies.end) & (doubts.count_wiped(np.arange(known.count)) == 0)
    last = np.append(segments.ledger[1:] != segments.ledger[:-1], True)[: len(segments.ledger)]
    guessed = np.add.reduceat(assumed, np.cumsum(segments.size) - segments.size) > 0 if len(last) else last
    safe[segments.ledger[last & guessed]] = False
    state[safe] = rows.OPEN
    return state


def _verify_by_lac(known: LedgerFacts, keys: dict[bytes, bytes], wanted: Mask) -> Mask:
    """Mark ledgers with a right HMAC of their stored explicit LAC; only where its width alone gives the digest type."""
    verified = np.zeros(known.count, np.bool_)
    ledgers = np.flatnonzero(wanted & (known.digest == _HMAC) & ~known.verified & (known.lac_record >= 0))
    records = known.lac_records.take(pa.array(known.lac_record[ledgers])).to_pylist()
    stored = known.key_values.take(pa.array(known.key[ledgers])).to_pylist()
    agreed = [lac_record_agrees(record, keys[key]) for record, key in zip(records, stored, strict=True)]
    verified[ledgers[np.array(agreed, np.bool_)]] = True
    return verified
