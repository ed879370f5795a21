"""Ledger metadata from what bookies show: copies of many ledgers in, one proposal or one reason a ledger out.

What the copies show of E and W is tried first; where they are silent, the prior's shapes. A proposal is the inclusive
one: closed at the last entry that any bookie holds. Everything that the common path does not prove is held, with its
reason. See `docs/design/0002-common-path.md`.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recovery.codecs.entry import lac_record_agrees, master_key
from recovery.infer import facts, rows
from recovery.infer.copies import Ints, Mask
from recovery.infer.facts import DIGESTS, MAX_ENTRY, MAX_GROUPS, Facts
from recovery.infer.prior import Hypothesis, Prior, Source, striped_somewhere
from recovery.infer.proven_ends import proved_ends, without_dropped
from recovery.infer.references import with_references
from recovery.infer.refusal import CODES, NEEDS_MORE, Refusal
from recovery.infer.replicas import fit
from recovery.infer.search import Doubt, Tail, search
from recovery.infer.shape_fit import CLEAN, RE_REPLICATED, SOLVED, UNDECIDED, Explained, Segments, explain
from recovery.infer.snapshot_contradictions import Unseen
from recovery.infer.snapshot_records import with_earlier
from recovery.infer.unobserved_members import fill
from recovery.infer.unseen_bookies import Blind
from recovery.infer.wiped_bookies import may_have_lost
from recovery.model.metadata import Digest

_HMAC: Final = DIGESTS.index(Digest.HMAC)


@dataclass(frozen=True, slots=True)
class Options:
    """What the operator knows.

    Attributes:
        passwords: candidates; never shown.
        unscanned_bookies: members of the cluster that no inventory is of: their names, or how many.
        max_groups: more groups of one ledger leave it undecided.
        tail: where ledgers are closed whose last entries may not have been acknowledged.
    """

    passwords: tuple[bytes, ...] = field(default=(b"",), repr=False)
    unscanned_bookies: int | tuple[str, ...] = 0
    max_groups: int = MAX_GROUPS
    tail: Tail = Tail.INCLUSIVE

    @property
    def unscanned(self) -> int:
        """How many bookies were not scanned."""
        return self.unscanned_bookies if isinstance(self.unscanned_bookies, int) else len(self.unscanned_bookies)


def reconstruct(
    copies: pa.Table,
    bookies: pa.Table,
    damage: pa.Table,
    prior: Prior,
    options: Options,
    earlier: pa.Table | None = None,
    references: pa.Table | None = None,
) -> pa.Table:
    """Propose metadata for every ledger that the copies are of.

    Args:
        copies: COPIES of whole ledgers, rows of any number of inventories in any order.
        bookies: BOOKIES of all inventories.
        damage: DAMAGE of all inventories.
        prior: what may be assumed where copies are silent.
        options: what the operator knows.
        earlier: CATALOG_LEDGERS of an earlier store, each ledger at most once; no holds.
        references: what an upper layer knows of its ledgers, of `references.SCHEMA`.

    Returns:
        RECONSTRUCTION, one row a ledger, in key order.
    """
    keys = {hashlib.sha256(master_key(password)).digest(): password for password in options.passwords}
    # A data-integrity copy stores the password itself where its key belongs (bookie-storage §4.4).
    raw = {hashlib.sha256(password).digest(): key for key, password in keys.items()}
    names = () if isinstance(options.unscanned_bookies, int) else options.unscanned_bookies
    known = facts.read(copies, bookies, max_groups=options.max_groups, same_keys=raw, unscanned=names)
    blind = Blind.of(known, bookies, damage, options.unscanned)
    refusal = _refused_by_facts(known, blind)
    bears = [prior.bears(shape.ensemble, shape.write) for shape in prior.hypotheses]
    explained = explain(known, prior.hypotheses, refusal == 0, bears, blind.elsewhere)
    # Nothing will settle these: they are not searched one by one.
    if blind.elsewhere > max(bears, default=0):
        _refuse(refusal, ~striped_somewhere(known.held), Refusal.SOURCE_INCOMPLETE)
    doubt = _Doubts(known, blind, prior, options.tail)
    explained = _fitted(known, explained, prior, blind, bears, refusal)
    sees_all = doubt.sees_all()
    explained = without_dropped(known, explained, sees_all)
    _refuse(refusal, (explained.path == UNDECIDED) & known.leftover, Refusal.DELETED_SOMEWHERE)
    explained = _searched(known, explained, prior, doubt, refusal)
    _refuse_leftovers(known, explained, refusal)
    segments, assumed = fill(known, explained.segments)
    ack, source = _ack_quorums(explained, prior)
    enough = _enough_to_hide(explained, prior)
    _refuse(refusal, (blind.holders > 0) & (blind.holders >= enough), Refusal.DAMAGE)
    explained = _with_prior_shapes(known, explained, refusal)
    more = np.isin(refusal, [CODES[reason] for reason in NEEDS_MORE]) & (blind.bookies > 0)
    refusal[more] = CODES[Refusal.SOURCE_INCOMPLETE]
    opened = _opened(known, keys)
    found = rows.rows(
        known,
        explained,
        rows.Proposals(
            refusal=refusal,
            state=_states(known, explained, segments, assumed, source, blind, doubt),
            segments=segments,
            assumed=assumed,
            ack=ack,
            ack_source=source,
            # Where the shape is not seen, newcomers may have lost all, and a LAC is a lower bound only.
            certain_end=(blind.outsiders(known) < enough) & explained.seen,
            opened=opened,
            verified=known.verified | _verified_by_lac(known, keys, opened & (refusal == 0)),
        ),
    )
    if earlier is not None:
        unseen = Unseen(blind.bookies, prior.kept, proved_ends(known, explained, sees_all))
        found = with_earlier(found, known, earlier, unseen)
    return found if references is None else with_references(found, known, references)


def _refuse(refusal: Ints, ledgers: Ints | Mask, reason: Refusal) -> None:
    """Give a reason to ledgers that have none yet."""
    refusal[ledgers] = np.where(refusal[ledgers] == 0, CODES[reason], refusal[ledgers])


def _refused_by_facts(known: Facts, blind: Blind) -> Ints:
    """Refuse what no ensemble could make good."""
    held = known.held
    empty = held.end < 0
    refusal = np.zeros(known.count, np.int64)
    for mask, reason in (
        ((known.scope == 0) & (known.ledger < 0), Refusal.ID_OUT_OF_RANGE),
        (known.fragmented, Refusal.FRAGMENTED),
        (known.broken, Refusal.CONTRADICTION),
        (empty & known.leftover, Refusal.LOGS_OR_JOURNALS_ONLY),
        (known.reincarnated, Refusal.TWO_INCARNATIONS),
        (known.keys > 1, Refusal.TWO_KEYS),
        (known.limbo, Refusal.LIMBO),
        (blind.named, Refusal.DAMAGE),
        (empty, Refusal.NO_ENTRIES),
        (known.keys == 0, Refusal.NO_KEY),
        (known.lengths_differ, Refusal.LENGTHS_DIFFER),
        (known.crossed, Refusal.TWO_HISTORIES),
        (known.digests_differ, Refusal.DIGESTS_DIFFER),
        (known.lac > held.end, Refusal.LAC_BEYOND_END),
        (known.last_length < 0, Refusal.NO_LAST_HEADER),
    ):
        _refuse(refusal, mask, reason)
    return refusal


@dataclass(frozen=True, slots=True)
class _Doubts:
    """What may be hidden or lost, and how ledgers are closed."""

    known: Facts
    blind: Blind
    prior: Prior
    tail: Tail

    @property
    def unseen(self) -> bool:
        """Whether some bookie was not scanned, or not completely."""
        return self.blind.elsewhere > 0 or bool(self.blind.unsound.any())

    def of(self, ledgers: Sequence[int]) -> list[Doubt]:
        """Return what may be hidden of each of some ledgers, which ascend."""
        wiped = self.wiped(np.array(ledgers, np.int64)).tolist()
        blind = self.blind.bookies[ledgers].tolist()
        each = zip(blind, wiped, strict=True)
        return [Doubt(hidden, self.blind.elsewhere, many, self.unseen, self.tail) for hidden, many in each]

    def sees_all(self) -> Mask:
        """Say of which ledgers with copies of their end nothing is hidden, and nobody can have lost any."""
        ledgers = np.flatnonzero((self.known.closed_copy >= 0) & (self.blind.bookies == 0) & ~self.blind.named)
        found = np.zeros(self.known.count, np.bool_)
        found[ledgers[self.wiped(ledgers) == 0]] = not self.unseen
        return found

    def wiped(self, ledgers: Ints) -> Ints:
        """Return how many bookies may have lost each of some ledgers, which ascend."""
        return may_have_lost(self.known, ledgers, self.prior.kept, self.blind.unsound)


def _fitted(
    known: Facts, explained: Explained, prior: Prior, blind: Blind, bears: Sequence[int], refusal: Ints
) -> Explained:
    """Explain re-replicated ledgers of one ensemble."""
    path = np.where((explained.path == CLEAN) & known.copied, RE_REPLICATED, explained.path)
    todo = np.flatnonzero((path == UNDECIDED) & (refusal == 0) & known.copied)
    found = fit(known, todo, prior.hypotheses, explained.observed, bears, blind.elsewhere)
    fits = found.shape >= 0
    return replace(
        explained,
        path=np.where(fits, RE_REPLICATED, path),
        shape=np.where(fits, found.shape, explained.shape),
        extra=np.where(fits, found.extra, explained.extra),
        sure=explained.sure | (fits & found.sure),
        segments=Segments.joined([explained.segments, found.segments]),
        other_ledger=np.append(explained.other_ledger, found.others[:, 0]),
        other_shape=np.append(explained.other_shape, found.others[:, 1]),
    )


def _searched(known: Facts, explained: Explained, prior: Prior, doubts: _Doubts, refusal: Ints) -> Explained:
    """Search the history of each ledger that nothing explains and nothing refuses."""
    todo = np.flatnonzero((explained.path == UNDECIDED) & (refusal == 0)).tolist()
    if not todo:
        return explained
    shapes = list(explained.shapes)
    numbers = {(s.ensemble, s.write): at for at, s in enumerate(shapes) if at >= explained.observed}

    def numbered(shape: tuple[int, int]) -> int:
        if shape not in numbers:
            numbers[shape] = len(shapes)
            shapes.append(Hypothesis(*shape, 0.0, Source.COPIES))
        return numbers[shape]

    columns = {
        name: getattr(explained, name).copy()
        for name in ("path", "shape", "end", "length", "least", "missing", "extra")
    }
    parts, others = [explained.segments], []
    for ledger, found in zip(todo, search(known, todo, prior, doubts.of(todo)), strict=True):
        if found.refusal is not None:
            refusal[ledger] = CODES[found.refusal]
        solution = found.solution
        if solution is None:
            continue
        values = (
            SOLVED, numbered((solution.ensemble, solution.write)), found.end, found.length, found.least,
            solution.missing, solution.extra,
        )  # fmt: skip
        for column, value in zip(columns.values(), values, strict=True):
            column[ledger] = value
        first = int(np.searchsorted(known.held.row_ledger, ledger))
        count = len(solution.first)
        members = np.where(solution.members < 0, -1, known.row_bookie[first + np.maximum(solution.members, 0)]).ravel()
        parts.append(
            Segments(np.full(count, ledger), solution.first, solution.low, np.full(count, solution.ensemble), members)
        )
        others += [(ledger, numbered(shape)) for shape in found.others]
    other = np.array(others, np.int64).reshape(-1, 2)
    return replace(
        explained,
        shapes=shapes,
        segments=Segments.joined(parts),
        other_ledger=np.append(explained.other_ledger, other[:, 0]),
        other_shape=np.append(explained.other_shape, other[:, 1]),
        **columns,
    )


def _with_prior_shapes(known: Facts, explained: Explained, refusal: Ints) -> Explained:
    """List the shapes of the prior beside one that the copies do not show: a bookie may have lost all without a trace.

    But for shapes that a clean ledger cannot be what is left of: full copies of more entries than any E are of W = E,
    and no entry has more copies than W.
    """
    of = explained.shape
    unsure = (refusal == 0) & (of >= 0) & ~explained.seen & ~explained.sure
    ensemble, write = (
        np.array([*(getattr(shape, name) for shape in explained.shapes), 0])[of] for name in ("ensemble", "write")
    )
    clean = (explained.path == CLEAN) & (explained.extra == 0)
    base = len(explained.shapes)
    listed = explained.other_ledger * base + explained.other_shape
    ledgers, shapes = [explained.other_ledger], [explained.other_shape]
    for number, shape in enumerate(explained.shapes[explained.observed :], explained.observed):
        if shape.source is Source.COPIES or shape.ensemble > len(known.bookies):
            continue
        left_over = np.greater(shape.write, write) | ((ensemble > write) & np.equal(shape.write, write))
        left_over &= (ensemble > write) | (shape.ensemble == shape.write)
        other = np.not_equal(ensemble, shape.ensemble) | np.not_equal(write, shape.write)
        may_be = unsure & other & (~clean | left_over | (explained.end < shape.ensemble))
        more = np.flatnonzero(may_be)
        more = more[~np.isin(more * base + number, listed)]
        ledgers.append(more)
        shapes.append(np.full(len(more), number))
    return replace(explained, other_ledger=np.concatenate(ledgers), other_shape=np.concatenate(shapes))


def _refuse_leftovers(known: Facts, explained: Explained, refusal: Ints) -> None:
    """Refuse what bookies hold in logs alone, unless all that is needed is there without it.

    A bookie that was replaced keeps its entries in logs; so does one that deleted the ledger. That one was a member to
    the end, and is missed unless another took its place here: a copy, which fits that position only if it was made for
    it; or one that it had replaced, which heard of nothing after that. A copy in logs is a member that came back.
    """
    whole = (explained.path != UNDECIDED) & (explained.missing == 0)
    of, own = known.held.row_ledger, ~known.row_copied
    heard = np.full(known.count, MAX_ENTRY)
    np.minimum.at(heard, of[own], known.row_lac[own])
    replaced = whole & explained.sure & ~known.leftover_copied & (heard >= known.leftover_first)
    _refuse(refusal, known.leftover & ~replaced, Refusal.DELETED_SOMEWHERE)
    _refuse(refusal, known.unlisted & ~(whole & (known.weak_end <= explained.end)), Refusal.LOG_ONLY_COPIES)


def _ack_quorums(explained: Explained, prior: Prior) -> tuple[Ints, Ints]:
    """Return A of each explained ledger, else 0, and the place of its source in `Source`, else -1."""
    sources = list(Source)
    answers = [prior.ack_quorum(shape.ensemble, shape.write) for shape in explained.shapes]
    ack = np.array([*(answer for answer, _ in answers), 0])
    source = np.array([*(sources.index(source) for _, source in answers), -1])
    return ack[explained.shape], source[explained.shape]


def _enough_to_hide(explained: Explained, prior: Prior) -> Ints:
    """Return how many blind bookies can hide an acknowledged entry of each ledger."""
    seen = [prior.surely_acked(shape.ensemble, shape.write) for shape in explained.shapes[: explained.observed]]
    not_seen = len(explained.shapes) - explained.observed + 1
    return np.array(seen + [1] * not_seen)[explained.shape]


def _opened(known: Facts, keys: dict[bytes, bytes]) -> Mask:
    """Say which ledgers have the key of a candidate password."""
    match = pc.is_in(known.key_values, value_set=pa.array(list(keys), pa.binary())).to_numpy(zero_copy_only=False)
    found: Mask = np.append(match, False)[known.key] & (known.keys == 1)
    return found


def _states(
    known: Facts, explained: Explained, segments: Segments, assumed: Mask, source: Ints, blind: Blind, doubts: _Doubts
) -> Ints:
    """Leave ledgers open where that was asked for and their recovery loses nothing; all others are closed.

    A recovery stops at the first entry that W - A + 1 bookies do not have: so all members of the last ensemble must be
    seen to hold their share, and somebody must stand for A. Copies were made of what was closed.
    """
    state = np.full(known.count, rows.CLOSED)
    if doubts.tail is not Tail.OPEN or doubts.unseen:
        return state
    stated = [at for at, name in enumerate(Source) if name in (Source.SNAPSHOT, Source.DEFAULT_QUORUM)]
    safe = np.isin(source, stated) & (explained.missing == 0) & (blind.bookies == 0) & ~known.copied & ~blind.named
    safe &= (explained.end == known.held.end) & (doubts.wiped(np.arange(known.count)) == 0)
    last = np.append(segments.ledger[1:] != segments.ledger[:-1], True)[: len(segments.ledger)]
    guessed = np.add.reduceat(assumed, np.cumsum(segments.size) - segments.size) > 0 if len(last) else last
    safe[segments.ledger[last & guessed]] = False
    state[safe] = rows.OPEN
    return state


def _verified_by_lac(known: Facts, keys: dict[bytes, bytes], wanted: Mask) -> Mask:
    """Say where a stored explicit LAC's HMAC agrees; only for ledgers whose type is known by its width alone."""
    verified = np.zeros(known.count, np.bool_)
    ledgers = np.flatnonzero(wanted & (known.digest == _HMAC) & ~known.verified & (known.lac_record >= 0))
    records = known.lac_records.take(pa.array(known.lac_record[ledgers])).to_pylist()
    stored = known.key_values.take(pa.array(known.key[ledgers])).to_pylist()
    agreed = [lac_record_agrees(record, keys[key]) for record, key in zip(records, stored, strict=True)]
    verified[ledgers[np.array(agreed, np.bool_)]] = True
    return verified
