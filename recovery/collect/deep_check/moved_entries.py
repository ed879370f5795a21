"""Entries that are not where the index places them, and are in another file: counted and reported by file."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recovery.collect.deep_check.counts import DeepCounts
from recovery.collect.deep_check.entry_rows import (
    INDEX,
    LOG,
    LOG_SHIFT,
    SIZE,
    EntryShare,
)
from recovery.collect.rows.damage import Hides, TakesDamage, UnreadPiece
from recovery.collect.rows.source_copies import Ints, Mask
from recovery.collect.sources.entry_records import RecordFile
from recovery.errors import Reason


@dataclass(slots=True)
class _Move:
    """Entries of one file that the index places in one log.

    Attributes:
        entries: their number.
        at_place: those at exactly the position that the index names.
        least, greatest: by how many bytes they moved.
    """

    entries: int = 0
    at_place: int = 0
    least: int = SIZE
    greatest: int = -SIZE


class MovedEntries:
    """Finds the files with entries that are not where the index places them.

    Args:
        files: entry logs and journals, by their numbers.
        log_ids: the id of each; -1 for a journal.
        counts: receives the counts.
    """

    def __init__(self, files: Sequence[RecordFile], log_ids: Ints, counts: DeepCounts) -> None:
        self._files = files
        self._log_ids = log_ids
        self._counts = counts
        self._served: dict[int, int] = {}
        self._moves: dict[tuple[int, int], _Move] = {}

    def add(self, share: EntryShare, lost: Ints) -> None:
        """Add a share of the entries.

        Args:
            share: its rows.
            lost: rows of slots without their entry at the named place.
        """
        matched = share.file[(share.kind == INDEX) & share.matched]
        for log_id, count in zip(*np.unique(matched, return_counts=True), strict=True):
            self._served[int(log_id)] = self._served.get(int(log_id), 0) + int(count)
        logs = np.flatnonzero((share.kind == LOG) & np.isin(share.pair, share.pair[lost]))
        lost = lost[np.isin(share.pair[lost], share.pair[logs])]
        self._counts.elsewhere += len(lost)
        if not len(lost):
            return
        # Of several records the one in the log that is named, else that at the same place of another, else the first.
        stands = logs[np.searchsorted(share.pair[logs], share.pair[lost])]
        base, wanted = share.pair[logs] << LOG_SHIFT, share.pair[lost] << LOG_SHIFT
        match, at_place = _find_values(base | share.position[logs], wanted | share.position[lost])
        stands[at_place] = logs[match[at_place]]
        match, in_log = _find_values(base | self._log_ids[share.file[logs]], wanted | share.file[lost])
        stands[in_log] = logs[match[in_log]]
        at_place &= ~in_log
        shift = share.position[stands] - share.position[lost]
        pairs, pair_of = np.unique(np.column_stack((share.file[lost], share.file[stands])), axis=0, return_inverse=True)
        for n, (log_id, file) in enumerate(pairs.tolist()):
            rows = pair_of.reshape(-1) == n
            move = self._moves.setdefault((log_id, file), _Move())
            move.entries += int(rows.sum())
            move.at_place += int((rows & at_place).sum())
            move.least = min(move.least, int(shift[rows].min()))
            move.greatest = max(move.greatest, int(shift[rows].max()))

    def report(self, damage: TakesDamage) -> None:
        """Report moved entries, once for each log that the index names and each file that has them."""
        for (log_id, file), move in sorted(self._moves.items(), key=lambda item: item[0]):
            reason, detail = (
                Reason.DANGLING,
                f"{move.entries} entries that the index places in log {log_id:x} are in this file",
            )
            if move.at_place == move.entries > max(self._served.get(n, 0) for n in (log_id, int(self._log_ids[file]))):
                reason = Reason.MISPLACED
                detail += ", at the same places: put each file back under its own name"
            elif self._log_ids[file] != log_id:
                detail += " instead: they are not lost"
            elif move.least == move.greatest:
                detail += f", {abs(move.least)} bytes {'further on' if move.least > 0 else 'before'}: they are not lost"
            else:
                detail += ", at other places: they are not lost"
            damage.add(UnreadPiece(self._files[file].path, reason, Hides.NOTHING, detail=detail))


def _find_values(values: Ints, wanted: Ints) -> tuple[Ints, Mask]:
    """Return where each wanted value is among some, and whether it does."""
    order = np.argsort(values, kind="stable")
    match = order[np.minimum(np.searchsorted(values[order], wanted), len(values) - 1)]
    return match, values[match] == wanted
