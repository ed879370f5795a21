"""The entries of an index, confirmed in the entry logs, headers of each ledger's ends, and dangling slots.

An index may name a place where the entry is not: pages are flushed before the log, a log may be lost. So

- every location must lie within a log that exists;
- the last entry of each ledger is read where the index says; if it is not there, all locations of that ledger are read,
  and the last entry that is there counts;
- after an unclean stop all locations are read.

Source: docs/formats/bookie-storage.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np

from recovery.collect.rows.entry_headers import DIGEST_COLUMN, SIZE_COLUMN
from recovery.collect.rows.index_slots import Block, IndexPiece, IndexRows, TakesRows
from recovery.collect.rows.ledger_facts import FACT_WIDTH
from recovery.collect.rows.source_copies import Grouper, Ints, Mask, find_starts, make_runs, to_groups, to_rows
from recovery.collect.sources.entry_records import RecordFiles

_BATCH: Final = 1 << 19
"""Slots that are confirmed at a time: enough ledgers that reads ascend through each log."""
_KEPT: Final = 8
"""The part of a batch that waits for the next piece of a large ledger, so that no end is judged by few slots."""
_LOG_SHIFT: Final = 32
_POSITION: Final = (1 << _LOG_SHIFT) - 1


class IndexTaker:
    """Takes the pieces of an index with locations in one space of log ids.

    Args:
        logs: the files that locations name.
        index: receives the entries.
        confirms_all: read every location, not only doubtful ones.
        batch: slots that are confirmed at a time.
    """

    def __init__(
        self, logs: RecordFiles, index: IndexRows[TakesRows], *, confirms_all: bool, batch: int = _BATCH
    ) -> None:
        self._logs = logs
        self._index = index
        self._confirms_all = confirms_all
        self._batch = batch
        self._grouper = Grouper()
        self._waiting: list[IndexPiece | Block] = []
        self._count = 0
        self._known = [np.empty(0, np.int64)]

    def take(self, piece: IndexPiece | Block) -> None:
        """Add a piece."""
        if isinstance(piece, IndexPiece):
            self._index.facts.add(piece.facts)
        if not len(piece.groups.key if isinstance(piece, Block) else piece.ledger):
            return
        if isinstance(piece, Block) and (self._confirms_all or not self._is_inside(piece)):
            piece = piece.to_piece()
        self._waiting.append(piece)
        self._count += _count_slots(piece)
        if self._count < self._batch:
            return
        # The last ledger may go on. If it alone fills the batch, all but its end is confirmed now.
        done, self._waiting = _split_last_ledger(self._waiting)
        whole = bool(done)
        if not whole:
            done, self._waiting = _split_end(self._waiting, self._batch // _KEPT)
        self._count = sum(map(_count_slots, self._waiting))
        if done:
            self._confirm(done, whole=whole)

    def end(self) -> None:
        """Confirm the waiting slots."""
        if self._count:
            self._confirm(self._waiting, whole=True)
        self._index.groups.add(to_rows(self._grouper.end()))
        self._waiting, self._count = [], 0

    def list_ledgers(self) -> Ints:
        """Return the ledgers with at least one confirmed entry, ascending."""
        return np.unique(np.concatenate(self._known))

    def _is_inside(self, block: Block) -> bool:
        slots = block.slots.astype(np.int64)
        # Mostly all are of one log, and its first and last tell. Less one, an empty one is above all of them.
        unsigned = slots.view(np.uint64)
        ends = np.array([(unsigned - np.uint64(1)).min() + np.uint64(1), unsigned.max()]).view(np.int64)
        if ends[0] >> _LOG_SHIFT != ends[1] >> _LOG_SHIFT:
            ends = slots[slots != 0]
        return bool(self._logs.inside(ends >> _LOG_SHIFT, ends & _POSITION).all())

    def _confirm(self, pieces: Sequence[IndexPiece | Block], *, whole: bool) -> None:
        """Confirm slots; `whole`: the last ledger has no further slots."""
        parts = _join_pieces(pieces)
        rows = [part if isinstance(part, IndexPiece) else _find_ends(part) for part in parts]
        ledger, entry, location = (
            np.concatenate([getattr(rows_of_part, name) for rows_of_part in rows])
            for name in ("ledger", "entry", "location")
        )
        slots = _Slots(ledger, entry, location >> _LOG_SHIFT, location & _POSITION)
        all_rows = np.arange(len(ledger))
        if self._confirms_all:
            good = self._confirm_rows(slots, all_rows)
        else:
            good = self._logs.inside(slots.file, slots.position)
            good[~good] = self._confirm_rows(slots, all_rows[~good])
        starts = find_starts(ledger)
        ends = np.append(starts[1:], len(ledger))
        self._read_ends(slots, good, starts if whole else starts[:-1], ends if whole else ends[:-1])
        low = 0
        for part, rows_of_part in zip(parts, rows, strict=True):
            high = low + len(rows_of_part.ledger)
            if isinstance(part, IndexPiece):
                self._take_confirmed(ledger[low:high], entry[low:high], good[low:high])
            elif good[low:high].all():
                for block in part:
                    self._index.groups.add(to_rows(self._grouper.feed_groups(block.groups)))
                self._known.append(rows_of_part.ledger[:1])
            else:
                self._confirm([block.to_piece() for block in part], whole=whole or part is not parts[-1])
            low = high

    def _take_confirmed(self, ledger: Ints, entry: Ints, good: Mask) -> None:
        self._index.groups.add(to_rows(self._grouper.feed(make_runs(ledger[good], entry[good]))))
        self._index.dangling.add(to_rows(to_groups(ledger[~good], entry[~good])))
        confirmed = ledger[good]
        self._known.append(confirmed[find_starts(confirmed)])

    def _confirm_rows(self, slots: "_Slots", rows: Ints) -> Mask:
        return self._logs.confirm(slots.ledger[rows], slots.entry[rows], slots.file[rows], slots.position[rows])

    def _fetch(self, slots: "_Slots", rows: Ints) -> tuple[Mask, Ints]:
        return self._logs.fetch(slots.ledger[rows], slots.entry[rows], slots.file[rows], slots.position[rows])

    def _read_ends(self, slots: "_Slots", good: Mask, starts: Ints, ends: Ints) -> None:
        """Read the headers of the first and the last good slot of each ledger; slots that dangle become not good.

        Two ledgers that had one id differ in the length at their first entry. Where the digest type of the last entry
        is not known, the header of the entry before is read too: their lengths give the width of the digest.
        """
        while len(starts):
            last = _find_last_good(good, starts, ends)
            has_good = last >= 0
            starts, ends, last = starts[has_good], ends[has_good], last[has_good]
            is_present, heads = self._fetch(slots, last)
            read = heads[:, SIZE_COLUMN] > 0
            self._index.heads.add(heads[read])
            unsure = is_present & read & (heads[:, DIGEST_COLUMN] < 0)
            good[last[~is_present]] = False
            wrong = ~is_present | self._read_more(slots, good, starts, last, unsure)
            starts, ends = starts[wrong], ends[wrong]
            suspects = np.flatnonzero(_find_covered(len(good), starts, ends) & good)
            good[suspects] = self._confirm_rows(slots, suspects)

    def _read_more(self, slots: "_Slots", good: Mask, starts: Ints, last: Ints, unsure: Mask) -> Mask:
        """Read the first entry, and for `unsure` ledgers the one before the last; return the ledgers that lack one."""
        wrong = np.zeros(len(last), np.bool_)
        previous = np.maximum(last - 1, starts)
        for rows, wanted in (
            (starts, starts < last),
            (previous, unsure & (previous > starts) & (slots.entry[previous] == slots.entry[last] - 1)),
        ):
            use = np.flatnonzero(wanted & good[rows])
            is_present, heads = self._fetch(slots, rows[use])
            self._index.heads.add(heads[heads[:, SIZE_COLUMN] > 0])
            good[rows[use[~is_present]]] = False
            wrong[use] |= ~is_present
        return wrong


def _count_slots(piece: IndexPiece | Block) -> int:
    return len(piece.slots if isinstance(piece, Block) else piece.ledger)


def _split_last_ledger(
    pieces: Sequence[IndexPiece | Block],
) -> tuple[list[IndexPiece | Block], list[IndexPiece | Block]]:
    """Return the slots before the last ledger, and the slots of the last ledger."""
    last = _find_ends_of_ledgers(pieces[-1])[-1]
    cut = len(pieces)
    while cut and _find_ends_of_ledgers(pieces[cut - 1])[0] == last:
        cut -= 1
    head, tail = [*pieces[:cut]], [*pieces[cut:]]
    if cut and isinstance(half := head[-1], IndexPiece) and half.ledger[-1] == last:
        row = int(find_starts(half.ledger)[-1])
        head[-1] = half.select(slice(row))
        tail.insert(0, half.select(slice(row, None)))
    return head, tail


def _split_end(
    pieces: Sequence[IndexPiece | Block], slots: int
) -> tuple[list[IndexPiece | Block], list[IndexPiece | Block]]:
    """Divide the pieces: all but the last ones, and the last ones, which have at least the given number of slots."""
    cut, kept = len(pieces), 0
    while cut and kept < slots:
        cut -= 1
        kept += _count_slots(pieces[cut])
    return [*pieces[:cut]], [*pieces[cut:]]


def _find_ends_of_ledgers(piece: IndexPiece | Block) -> tuple[int, int]:
    """Return the first and the last ledger of a piece."""
    return (piece.ledger, piece.ledger) if isinstance(piece, Block) else (int(piece.ledger[0]), int(piece.ledger[-1]))


def _join_pieces(pieces: Sequence[IndexPiece | Block]) -> list[IndexPiece | list[Block]]:
    """Return the blocks of ledgers that have only blocks, and all other slots as rows."""
    mixed = {ledger for piece in pieces if isinstance(piece, IndexPiece) for ledger in _find_ends_of_ledgers(piece)}

    def alone(piece: IndexPiece | Block) -> int | None:
        return piece.ledger if isinstance(piece, Block) and piece.ledger not in mixed else None

    parts: list[IndexPiece | list[Block]] = []
    for ledger, pieces_of_ledger in groupby(pieces, alone):
        if ledger is None:
            rows = [piece.to_piece() for piece in pieces_of_ledger]
            columns = zip(*((row.ledger, row.entry, row.location) for row in rows), strict=True)
            ledgers, entries, locations = (np.concatenate(column) for column in columns)
            parts.append(IndexPiece(ledgers, entries, locations, rows[0].facts[:0]))
        else:
            parts.append([block for block in pieces_of_ledger if isinstance(block, Block)])
    return parts


def _find_ends(blocks: Sequence[Block]) -> IndexPiece:
    """Return the rows of a ledger's first slot and of the last two: where its headers are read."""
    first, last = int(blocks[0].groups.first[0]), int(blocks[-1].groups.last[-1] + blocks[-1].groups.size[-1]) - 1
    where = {
        entry: location
        for entry in sorted({first, last - 1, last})
        for block in blocks
        if (location := block.find_location(entry))
    }
    entries = np.fromiter(where, np.int64, len(where))
    locations = np.fromiter(where.values(), np.int64, len(where))
    return IndexPiece(np.full(len(where), blocks[0].ledger), entries, locations, np.empty((0, FACT_WIDTH), np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class _Slots:
    ledger: Ints
    entry: Ints
    file: Ints
    position: Ints


def _find_last_good(good: Mask, starts: Ints, ends: Ints) -> Ints:
    """Return the last good row of each stretch; -1 if there is none."""
    last = np.maximum.accumulate(np.where(good, np.arange(len(good)), -1))[ends - 1]
    return np.where(last >= starts, last, -1)


def _find_covered(count: int, starts: Ints, ends: Ints) -> Mask:
    """Return which rows lie in any of the stretches."""
    change = np.zeros(count + 1, np.int64)
    np.add.at(change, starts, 1)
    np.add.at(change, ends, -1)
    return np.cumsum(change[:-1]) > 0
