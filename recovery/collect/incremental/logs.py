"""Entry logs that are unchanged since the earlier collection."""

from collections.abc import Callable, Mapping

import numpy as np

from recovery.collect.incremental.records import FILE_COLUMN, SeenFile
from recovery.collect.incremental.state import CollectedState
from recovery.collect.rows.source_copies import Ints


class LogReuse:
    """Takes over entry logs, and keeps the ledgers of their maps."""

    def __init__(self, state: CollectedState) -> None:
        self._state = state

    def take_over(self, known: Ints, take: Callable[[Ints], None]) -> dict[str, bool]:
        """Take over unchanged logs; return their paths, and whether they count as read whole.

        Args:
            known: ledgers with an index that was read whole and has entries.
            take: takes rows of groups.
        """
        state = self._state
        unchanged = {
            old.number: file
            for file in state.files.values()
            if file.kind == "log" and (old := state.find_unchanged(file)) is not None and old.sound
        }
        unlisted: set[int] = set()
        for share in state.shares("listed") if unchanged else ():
            rows = state.previous.read_rows("listed", share)
            unlisted.update(np.unique(rows[~np.isin(rows[:, 0], known), FILE_COLUMN]).tolist())
        is_wanted: dict[str, bool] = {}
        for number, file in list(unchanged.items()):
            old = state.previous.files[file.path]
            wanted = not old.listed or number in unlisted
            if wanted and not old.read:
                del unchanged[number]
                continue
            file.listed, file.largest, file.met, file.read = old.listed, old.largest, old.met, old.read
            is_wanted[file.path] = wanted
        self._take_over_rows(unchanged, [file.number for file in unchanged.values() if is_wanted[file.path]], take)
        state.previous.reused.files += len(is_wanted)
        return is_wanted

    def _take_over_rows(
        self, unchanged: Mapping[int, SeenFile], wanted: list[int], take: Callable[[Ints], None]
    ) -> None:
        for share in self._state.shares("held", "listed") if unchanged else ():
            rows = self._state.take_over_rows("held", share, unchanged)
            take(np.delete(rows[np.isin(rows[:, FILE_COLUMN], wanted)], (1, 2), axis=1))
            self._state.take_over_rows("listed", share, unchanged)

    def keep_map(self, file: SeenFile, ledgers: Ints) -> None:
        """Keep the ledgers of a log's map."""
        file.listed = True
        file.largest = int(ledgers.max(initial=-1))
        self._state.spools["listed"].add(np.column_stack((ledgers, np.full(len(ledgers), file.number))))
