"""What an index says, confirmed in the entry logs: the entries held, headers of each ledger's ends, what dangles.

An index may name a place where the entry is not: pages are flushed before the log, a log may be lost. So

- every location must lie within a log that exists;
- the last entry of each ledger is read where the index says; if it is not there, all locations of that ledger are
  looked at, and the last one that is there counts;
- after an unclean stop all locations are looked at.

Source: spec bookie-storage §2.5, §5.3.
"""

from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

import numpy as np

from recovery.collect.holdings import Grouper, Ints, Mask, runs_of, starts_of, to_groups, to_rows
from recovery.collect.records import DIGEST_COLUMN, SIZE_COLUMN, RecordFiles

_BATCH: Final = 1 << 19
"""Slots that are confirmed at a time: enough ledgers that reads ascend through each log."""
_KEPT: Final = 1 << 16
"""Slots of a ledger larger than a batch that wait for its next piece, so that its end is never judged by a few."""
_LOG_SHIFT: Final = 32
_POSITION: Final = (1 << _LOG_SHIFT) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A part of an index; a ledger's slots come together and ascending, and may go on in the next piece.

    Attributes:
        ledger, entry, location: of each slot that is not empty.
        facts: rows of ledgers, see `facts`.
    """

    ledger: Ints
    entry: Ints
    location: Ints
    facts: Ints


class TakesRows(Protocol):
    """Takes rows of ledgers, in any order."""

    def add(self, rows: Ints) -> None:
        """Take rows."""
        ...


Rows_co = TypeVar("Rows_co", bound=TakesRows, covariant=True)


@dataclass(frozen=True, slots=True)
class Found(Generic[Rows_co]):
    """Where findings go: groups, headers, facts, and groups of dangling slots, as rows of ledgers."""

    groups: Rows_co
    heads: Rows_co
    facts: Rows_co
    dangling: Rows_co


class IndexTaker:
    """Takes the pieces of an index whose locations lie in one space of log ids."""

    def __init__(self, logs: RecordFiles, found: Found[TakesRows], *, every: bool) -> None:
        self._logs = logs
        self._found = found
        self._every = every
        self._grouper = Grouper()
        self._waiting: list[tuple[Ints, Ints, Ints]] = []
        self._count = 0
        self._known = [np.empty(0, np.int64)]

    def take(self, piece: Piece) -> None:
        """Take a piece."""
        self._found.facts.add(piece.facts)
        if len(piece.ledger):
            self._waiting.append((piece.ledger, piece.entry, piece.location))
            self._count += len(piece.ledger)
        if self._count < _BATCH:
            return
        ledger, entry, location = self._slots()
        # The last ledger may go on. If it alone fills the batch, all but its end is confirmed now.
        cut = int(starts_of(ledger)[-1])
        if cut == 0:
            cut = len(ledger) - _KEPT
        self._waiting = [(ledger[cut:], entry[cut:], location[cut:])]
        self._count = len(ledger) - cut
        self._confirm(ledger[:cut], entry[:cut], location[:cut], whole=bool(ledger[cut - 1] != ledger[cut]))

    def end(self) -> None:
        """Confirm what waits."""
        if self._count:
            self._confirm(*self._slots(), whole=True)
        self._found.groups.add(to_rows(self._grouper.end()))
        self._waiting, self._count = [], 0

    def known(self) -> Ints:
        """Return the ledgers with at least one confirmed entry, ascending."""
        return np.unique(np.concatenate(self._known))

    def _slots(self) -> tuple[Ints, Ints, Ints]:
        ledger, entry, location = (np.concatenate(column) for column in zip(*self._waiting, strict=True))
        return ledger, entry, location

    def _confirm(self, ledger: Ints, entry: Ints, location: Ints, *, whole: bool) -> None:
        slots = _Slots(ledger, entry, location >> _LOG_SHIFT, location & _POSITION)
        every = np.arange(len(ledger))
        if self._every:
            good = self._there(slots, every)
        else:
            good = self._logs.inside(slots.file, slots.position)
            good[~good] = self._there(slots, every[~good])
        starts = starts_of(ledger)
        ends = np.append(starts[1:], len(ledger))
        self._read_ends(slots, good, starts if whole else starts[:-1], ends if whole else ends[:-1])
        self._found.groups.add(to_rows(self._grouper.feed(runs_of(ledger[good], entry[good]))))
        self._found.dangling.add(to_rows(to_groups(ledger[~good], entry[~good])))
        held = ledger[good]
        self._known.append(held[starts_of(held)])

    def _there(self, slots: "_Slots", rows: Ints) -> Mask:
        return self._logs.confirm(slots.ledger[rows], slots.entry[rows], slots.file[rows], slots.position[rows])

    def _fetch(self, slots: "_Slots", rows: Ints) -> tuple[Mask, Ints]:
        return self._logs.fetch(slots.ledger[rows], slots.entry[rows], slots.file[rows], slots.position[rows])

    def _read_ends(self, slots: "_Slots", good: Mask, starts: Ints, ends: Ints) -> None:
        """Read the headers of the first and the last good slot of each ledger; slots that dangle become not good.

        Two ledgers that had one id differ in the length at their first entry. Where the digest type of the last one
        cannot be told, the header of the entry before is read too: their lengths tell its width.
        """
        while len(starts):
            last = _last_good(good, starts, ends)
            held = last >= 0
            starts, ends, last = starts[held], ends[held], last[held]
            there, heads = self._fetch(slots, last)
            read = heads[:, SIZE_COLUMN] > 0
            self._found.heads.add(heads[read])
            unsure = there & read & (heads[:, DIGEST_COLUMN] < 0)
            good[last[~there]] = False
            wrong = ~there | self._read_more(slots, good, starts, last, unsure)
            starts, ends = starts[wrong], ends[wrong]
            suspects = np.flatnonzero(_covered(len(good), starts, ends) & good)
            good[suspects] = self._there(slots, suspects)

    def _read_more(self, slots: "_Slots", good: Mask, starts: Ints, last: Ints, unsure: Mask) -> Mask:
        """Read the first entry, and of `unsure` the one before the last; return for which ledgers one is not there."""
        wrong = np.zeros(len(last), np.bool_)
        before = np.maximum(last - 1, starts)
        for rows, wanted in (
            (starts, starts < last),
            (before, unsure & (before > starts) & (slots.entry[before] == slots.entry[last] - 1)),
        ):
            use = np.flatnonzero(wanted & good[rows])
            there, heads = self._fetch(slots, rows[use])
            self._found.heads.add(heads[heads[:, SIZE_COLUMN] > 0])
            good[rows[use[~there]]] = False
            wrong[use] |= ~there
        return wrong


@dataclass(frozen=True, slots=True, eq=False)
class _Slots:
    ledger: Ints
    entry: Ints
    file: Ints
    position: Ints


def _last_good(good: Mask, starts: Ints, ends: Ints) -> Ints:
    """Return the last good row of each stretch; -1 if there is none."""
    before = np.maximum.accumulate(np.where(good, np.arange(len(good)), -1))[ends - 1]
    return np.where(before >= starts, before, -1)


def _covered(count: int, starts: Ints, ends: Ints) -> Mask:
    """Return which rows lie in any of the stretches."""
    change = np.zeros(count + 1, np.int64)
    np.add.at(change, starts, 1)
    np.add.at(change, ends, -1)
    return np.cumsum(change[:-1]) > 0
