"""The common path: whether one history of ensembles explains every copy, for whole batches of ledgers at once.

Given an ensemble size E and a write quorum W for each ledger, a bookie gets a position, each position is tiled by the
stays of its bookies, and segments begin where stays take over. An accepted ledger is proved: each entry from 0 to the
last has all its W copies on the proposed ensembles. There is no loop over ledgers, and every loop is bounded for any
input. The theory is in `docs/internals/reconstruction.md`.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from recovery.infer.copies import CopyColumns, Ints, Mask, heads, number_within, starts
from recovery.model.groups import rank, run_counts

ENTRIES_A_SEGMENT: Final = 2
"""Fewest entries a segment for an unseen shape: to a shape with W = E, striping looks like a change at every entry."""

_DOUBLINGS: Final = 64
"""Rounds of pointer jumping: more than any chain of rows that fits in memory needs."""


@dataclass(frozen=True, slots=True)
class HypothesisDecision:
    """The result of one hypothesis for each ledger.

    Attributes:
        accepted: of each ledger.
        extra: of each accepted ledger, copies that lie past the end of their bookie's stay.
        segment_ledger, first, low: of each segment of the accepted ledgers, in order; the takeovers that begin it truly
            happened somewhere in [low, first].
        members: E rows a segment, in order of position; -1 where a position never received anything.
    """

    accepted: Mask
    extra: Ints
    segment_ledger: Ints
    first: Ints
    low: Ints
    members: Ints

    def hasty(self, end: Ints) -> Mask:
        """Mark ledgers with more segments than an unseen shape may have; end: their last entries."""
        segments = np.bincount(self.segment_ledger, minlength=len(end))
        return (segments > 1) & (end + 1 < ENTRIES_A_SEGMENT * segments)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Columns beside those of `CopyColumns`: each row's E, W (at least 1), and whether W < E."""

    ensemble: Ints
    write: Ints
    striped: Mask


def decide(copies: CopyColumns, ensemble: Ints, write: Ints) -> HypothesisDecision:
    """Try one (E, W) for each ledger.

    Args:
        copies: what bookies hold; entries and sizes far enough below 2^63 to be added.
        ensemble: E of each ledger.
        write: W of each ledger.

    Returns:
        The decision; its `members` are rows of `copies`.
    """
    fails = (copies.end < 0) | (write < 1) | (write > ensemble)
    ensemble, write = np.maximum(ensemble, 1), np.clip(write, 1, np.maximum(ensemble, 1))
    ledger = copies.row_ledger
    rows = _Rows(ensemble[ledger], write[ledger], (write < ensemble)[ledger])
    position = np.zeros(len(ledger), np.int64)
    if rows.striped.any():
        position, unclear = _positions(copies, rows)
        fails[ledger[unclear | _outside_pattern(copies, rows, position)]] = True
    due = np.where(
        rows.striped,
        rank(copies.hi + 1, position, rows.ensemble, rows.write) - rank(copies.lo, position, rows.ensemble, rows.write),
        copies.hi - copies.lo + 1,
    )
    fails[ledger[due != copies.count]] = True
    if not rows.striped.all():
        position = _chains(copies, rows, position, fails)
    return _tile(copies, ensemble, write, rows, position, fails)


def _positions(copies: CopyColumns, rows: _Rows) -> tuple[Ints, Mask]:
    """Give each striped row its only possible position, and mark unclear ones.

    A run that is not the row's first began where the position's runs begin. A single run shorter than W may have been
    cut at either end: by entry 0, by the ledger's end, by a takeover.
    """
    size, write = rows.ensemble, rows.write
    end = copies.end[copies.row_ledger]
    whole = ~copies.single | (copies.last_size == write)
    position = np.where(whole, (copies.last_start + write - 1) % size, (copies.last_size - 1) % size)
    short = rows.striped & ~whole & (copies.last_size < write)
    unclear = short & ~((copies.lo == 0) & (copies.hi < end))
    # Cut by the ledger's end: the start is true if nothing before it belongs to that position.
    as_first = (copies.lo + write - 1) % size
    cut = unclear & (copies.lo > 0) & (copies.hi == end) & (rank(copies.lo, as_first, size, write) == 0)
    position = np.where(cut, as_first, position)
    unclear &= ~cut
    # Everything of a ledger shorter than W: positions `end` to W - 1 hold the same, any order will do.
    alike = np.flatnonzero(unclear & (copies.lo == 0) & (copies.hi == end))
    nth = copies.end[copies.row_ledger[alike]] + number_within(copies.row_ledger[alike])
    position[alike] = np.minimum(nth, size[alike] - 1)
    unclear[alike] = nth >= write[alike]
    return position, unclear


def _outside_pattern(copies: CopyColumns, rows: _Rows, position: Ints) -> Mask:
    """Mark rows with a run outside of their position's runs."""
    row = copies.group_row
    size, write = rows.ensemble[row], rows.write[row]
    phase = (position[row] - write + 1) % size
    inside = (copies.first - phase) % size + copies.size <= write
    runs = run_counts(copies.first, copies.last, copies.period)
    two = (runs == 2) & ((copies.last - phase) % size + copies.size <= write)
    inside &= (runs == 1) | (copies.period % size == 0) | two
    outside = np.zeros(len(copies.row_ledger), np.bool_)
    outside[row[~inside & rows.striped[row]]] = True
    return outside


def _chains(copies: CopyColumns, rows: _Rows, position: Ints, fails: Mask) -> Ints:
    """Number the rows of ledgers with W = E by the chain of stays that they belong to.

    All copies are alike there: which bookie a newcomer replaced cannot be seen, and does not matter. The j-th start
    after the first E follows the j-th end.
    """
    plain = np.flatnonzero(~rows.striped)
    ledger, lo, hi, size = copies.row_ledger[plain], copies.lo[plain], copies.hi[plain], rows.ensemble[plain]
    by_start, by_end = np.lexsort((lo, ledger)), np.lexsort((hi, ledger))
    # Both orders keep a ledger's rows in the same stretch, so a place in one is a place in the other.
    nth = np.empty(len(plain), np.int64)
    nth[by_start] = number_within(ledger[by_start])
    place = np.empty(len(plain), np.int64)
    place[by_start] = np.arange(len(plain))
    late = np.flatnonzero(nth >= size)
    predecessor = by_end[place[late] - size[late]]
    follows = (lo[predecessor] < lo[late]) & (hi[predecessor] + 1 >= lo[late])
    fails[ledger[late[~follows]]] = True
    root = np.arange(len(plain))
    root[late[follows]] = predecessor[follows]
    for _ in range(_DOUBLINGS):
        further = root[root]
        if np.array_equal(further, root):
            break
        root = further
    numbers = position.copy()
    numbers[plain] = np.where(nth < size, nth, 0)[root]
    return numbers


def _tile(
    copies: CopyColumns, ensemble: Ints, write: Ints, rows: _Rows, position: Ints, fails: Mask
) -> HypothesisDecision:
    """Join each position's stays, and cut segments where one takes over."""
    order = np.lexsort((copies.lo, position, copies.row_ledger))
    ledger, place, lo, hi = copies.row_ledger[order], position[order], copies.lo[order], copies.hi[order]
    size, quorum, striped = rows.ensemble[order], rows.write[order], rows.striped[order]
    head = heads(ledger, place)
    tail = np.append(head[1:], True)[: len(head)]

    def due(n: Ints) -> Ints:
        counted: Ints = np.where(striped, rank(n, place, size, quorum), n)
        return counted

    low, high, whole = due(lo), due(hi + 1), due(copies.end[ledger] + 1)
    over = np.zeros(len(ledger), np.int64)
    grows = np.ones(len(ledger), np.bool_)
    over[1:] = np.where(head[1:], 0, high[:-1] - low[1:])
    grows[1:] = head[1:] | ((lo[:-1] < lo[1:]) & (hi[:-1] < hi[1:]))
    fails[ledger[~grows | (head & (low != 0)) | (over < 0) | (tail & (high != whole))]] = True
    positions = np.bincount(ledger[head], minlength=copies.ledgers)
    occupied = np.where(write < ensemble, np.minimum(ensemble, copies.end + write), ensemble)
    accepted = ~fails & (positions == occupied)
    extra = np.bincount(ledger, weights=np.maximum(over, 0), minlength=copies.ledgers).astype(np.int64)
    takeover = np.flatnonzero(~head & accepted[ledger])
    starts_run = striped & ((lo - (place - quorum + 1)) % size == 0)
    gap = np.where(starts_run, size - quorum, 0)
    number, first, earliest = _stab(ledger[takeover], lo[takeover] - gap[takeover], lo[takeover])
    segments = np.where(accepted, 1, 0)
    np.maximum.at(segments, ledger[takeover], number + 1)

    # Cells position by position: a bookie that stays fills the segments after the one that it came in.
    cells = segments * ensemble
    offset = np.append(0, np.cumsum(cells))
    segment = np.zeros(len(ledger), np.int64)
    segment[takeover] = number
    kept = np.flatnonzero(accepted[ledger])
    cell = np.full(offset[-1], -1)
    cell[offset[ledger[kept]] + place[kept] * segments[ledger[kept]] + segment[kept]] = order[kept]
    owner = np.repeat(np.arange(copies.ledgers), cells)
    within = np.arange(offset[-1]) - offset[owner]
    filled = (cell >= 0) | (within % segments[owner] == 0)
    cell = cell[np.maximum.accumulate(np.where(filled, np.arange(len(cell)), 0))]
    transposed = offset[owner] + within % ensemble[owner] * segments[owner] + within // ensemble[owner]

    of_segment = np.repeat(np.arange(copies.ledgers), segments)
    base = np.append(0, np.cumsum(segments))
    begin, begin_low = np.zeros(base[-1], np.int64), np.zeros(base[-1], np.int64)
    begin[base[ledger[takeover]] + number] = first
    np.maximum.at(begin_low, base[ledger[takeover]] + number, earliest)
    begin_low[1:] = np.where(of_segment[1:] == of_segment[:-1], np.maximum(begin_low[1:], begin[:-1] + 1), 0)
    return HypothesisDecision(accepted, extra, of_segment, begin, begin_low, cell[transposed])


def _stab(ledger: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints, Ints]:
    """Find for each ledger the fewest points that lie in all its intervals [low, high].

    One round takes one segment of every ledger, so there are as many rounds as takeovers in one ledger at most.

    Returns:
        Of each interval: the number of its point in its ledger, from 1; the point; its own low.
    """
    number, point = np.zeros(len(ledger), np.int64), np.zeros(len(ledger), np.int64)
    todo = np.lexsort((high, ledger))
    turn = 0
    while len(todo):
        turn += 1
        head = starts(ledger[todo])
        reach = np.repeat(high[todo[head]], np.diff(np.append(head, len(todo))))
        taken = low[todo] <= reach
        number[todo[taken]] = turn
        point[todo[taken]] = reach[taken]
        todo = todo[~taken]
    return number, point, low
