"""The effect of bookies' states on segments: pure arithmetic on columns.

    residue                 entries e with the same e mod E: they are on the same W positions
    DATA_LOSS               a residue that occurs has all its copies on bookies that are gone
    READ_AVAILABILITY_LOSS  a residue that occurs has no readable copy, and one that may come back
    RECOVERY_LOSS           of some W consecutive positions at least A do not answer: BookKeeper's own coverage rule
    READ_MARGIN_LOSS        all readable copies of a residue that occurs are in one failure domain

Source: docs/operations/impact.md; apache/bookkeeper, RoundRobinDistributionSchedule.RRQuorumCoverageSet.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reconcile.check.impact.names import CopyHealth
from reconcile.check.impact.segments.columns import Ints, Mask, SegmentColumns

States = npt.NDArray[np.int8]
"""Values of `CopyHealth`."""
_NOWHERE = np.iinfo(np.int32).max


@dataclass(frozen=True, slots=True, eq=False)
class SegmentJudgement:
    """The effect of states on segments. (E, segments) by residue, or (segments,).

    Attributes:
        copies: readable copies of each residue.
        lost: residues that occur, with all copies gone.
        unreadable: residues that occur, without a readable copy, that may come back.
        narrow: residues that occur, with all readable copies in one failure domain.
        uncovered: (segments,) how many runs of W positions do not answer well enough for a recovery.
        answers: (segments,) of the run of W positions that answers least: how many answer.
        waiting: (segments,) residues without a source that a client still waits for.
        copied: (E, segments) positions that lost a copy which can be made again from another.
        replaced: (E, segments) positions that a writer must replace; none without a writer.
        writable: (segments,) positions on bookies that can be written to.
    """

    copies: npt.NDArray[np.int16]
    lost: Mask
    unreadable: Mask
    narrow: Mask
    uncovered: Ints
    answers: Ints
    waiting: Ints
    copied: Mask
    replaced: Mask
    writable: Ints


def judge(
    segments: SegmentColumns,
    occurs: Mask,
    states: States,
    floors: States | None = None,
    domains: npt.NDArray[np.int32] | None = None,
) -> SegmentJudgement:
    """Judge segments.

    Args:
        segments: of one shape.
        occurs: (E, segments) as `SegmentColumns.find_residues` says.
        states: (E, segments) of the bookie at each position.
        floors: (E, W, segments) best possible state of the copy of residue r at position (r + i) mod E, for any state
            of its bookie: marked copies count as down, absent ones as gone. None: as their bookies.
        domains: (E, segments) failure domain of each position, for `narrow`; None: not asked for.
    """
    size, write = segments.shape.ensemble, segments.shape.write
    count = len(segments)
    answering = states <= CopyHealth.READ_ONLY
    copies = np.zeros((size, count), np.int16)
    lasting = np.zeros((size, count), np.int16)
    pending = np.zeros((size, count), np.int16)
    low = np.full((size, count), _NOWHERE, np.int32) if domains is not None else None
    high = np.full((size, count), -1, np.int32) if domains is not None else None
    absent = np.zeros((size, count), np.bool_)
    answers = np.full(count, write, np.int64)
    uncovered = np.zeros(count, np.int64)
    cells = {}
    for residue in range(size):
        answered = np.zeros(count, np.int16)
        for step in range(write):
            position = (residue + step) % size
            cell = states[position] if floors is None else np.maximum(states[position], floors[residue, step])
            readable = cell <= CopyHealth.READ_ONLY
            copies[residue] += readable
            lasting[residue] += cell < CopyHealth.GONE
            pending[residue] += cell < CopyHealth.UNRECOVERABLE
            answered += answering[position]
            cells[residue, position] = ~readable
            if low is not None and high is not None and domains is not None:
                np.minimum(low[residue], domains[position], out=low[residue], where=readable)
                np.maximum(high[residue], domains[position], out=high[residue], where=readable)
        uncovered += write - answered >= segments.shape.ack
        answers = np.minimum(answers, answered)
    for (residue, position), is_lost in cells.items():
        absent[position] |= is_lost & occurs[residue] & (copies[residue] > 0)
    sourceless = occurs & (copies == 0)
    narrow = np.zeros((size, count), np.bool_)
    if low is not None:
        narrow = occurs & (copies > 0) & (low == high)
    return SegmentJudgement(
        copies=copies,
        lost=sourceless & (lasting == 0),
        unreadable=sourceless & (lasting > 0),
        narrow=narrow,
        uncovered=np.where(segments.final, uncovered, 0),
        answers=answers,
        waiting=(sourceless & (pending > 0)).sum(axis=0),
        copied=absent,
        replaced=(states != CopyHealth.READ_WRITE) & segments.open,
        writable=(states == CopyHealth.READ_WRITE).sum(axis=0),
    )
