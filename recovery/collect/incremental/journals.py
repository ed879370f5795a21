"""Unchanged journals since the earlier collection, and the special records of all journals."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from recovery.collect.incremental.records import FILE_COLUMN, SeenFile, SpecialFacts, TakesSpecial
from recovery.collect.incremental.state import SPECIAL_WIDTH, CollectedState
from recovery.collect.rows.ledger_facts import NONE
from recovery.collect.rows.source_copies import Ints, Mask
from recovery.collect.rows.spool import Spool

FENCE, KEY, LAC = range(3)
"""Kinds of special records; stored."""
_WAITING: Final = 1 << 17
"""Rows of special records that are set aside at once."""


class JournalReuse:
    """Takes over journals, and keeps their results."""

    def __init__(self, state: CollectedState) -> None:
        self._state = state
        self._waiting: list[tuple[int, ...]] = []

    def take_over(self, journals: Sequence[SeenFile], groups: Spool, applied: Spool) -> set[str]:
        """Take over unchanged journals; return their paths.

        Args:
            journals: in order of folder and id.
            groups: receives entries that a replay would bring back.
            applied: receives entries before the mark.
        """
        unchanged: dict[int, SeenFile] = {}
        passed: dict[int, SeenFile] = {}
        for file in journals:
            old = self._state.find_unchanged(file)
            if old is None or not old.sound:
                continue
            # What is behind the mark depends on it, and whether a torn end is normal on there being a newer journal.
            if file.mark == -1:
                passed[old.number] = file
            elif (old.mark, old.newest) == (file.mark, file.newest):
                unchanged[old.number] = file
            else:
                continue
            file.read, file.met = old.read, old.met

        def take_same(rows: Ints, ahead: Mask) -> None:
            groups.add(rows[ahead])
            applied.add(rows[~ahead])

        def take_passed(rows: Ints, _ahead: Mask) -> None:
            applied.add(rows)

        self._state.take_over_groups(unchanged, take_same)
        self._state.take_over_groups(passed, take_passed)
        kept = unchanged | passed
        for share in self._state.shares("specials") if kept else ():
            self._take_over_specials(share, kept)
        self._state.previous.reused.files += len(kept)
        return {file.path for file in kept.values()}

    def _take_over_specials(self, share: int | None, kept: Mapping[int, SeenFile]) -> None:
        table, keys = self._state.previous.read_table("specials", share)
        rows = np.flatnonzero(np.isin(table["file"].to_numpy(), list(kept)))
        for key, row in zip(keys[rows].tolist(), table.take(pa.array(rows)).to_pylist(), strict=True):
            raw, number = row["raw"], NONE
            if row["kind"] == KEY:
                number = self._state.interned.add_stamp(raw)
            elif row["kind"] == LAC:
                number = self._state.interned.add_lac(raw)
            self._keep_special(kept[row["file"]], key, row["kind"], number, row["lac"])

    def _keep_special(self, file: SeenFile, ledger: int, kind: int, number: int = NONE, lac: int = 0) -> None:
        """Keep a special record: the number of a key or of a LAC's record, and that LAC."""
        file.met = max(file.met, ledger)
        self._waiting.append((ledger, file.number, kind, number, lac))
        if len(self._waiting) >= _WAITING:
            self._flush()

    def keep_specials(self, file: SeenFile, facts: SpecialFacts) -> None:
        """Keep the content of a journal's special records; the whole journal was read by now."""
        file.read = True
        interned = self._state.interned
        for ledger in facts.fenced:
            self._keep_special(file, ledger, FENCE)
        for ledger, keys in facts.keys.items():
            for key in keys:
                self._keep_special(file, ledger, KEY, interned.add_stamp(key))
        for ledger, (lac, record) in facts.lacs.items():
            self._keep_special(file, ledger, LAC, interned.add_lac(record), lac)

    def pass_specials(self, facts: TakesSpecial) -> None:
        """Pass on the special records of all journals; those of a ledger in the order of the journals."""
        self._flush()
        interned = self._state.interned
        for share in self._state.shares():
            rows = self._state.specials.read_share(share)
            for ledger, _, kind, number, lac in rows[np.lexsort((rows[:, FILE_COLUMN], rows[:, 0]))].tolist():
                if kind == FENCE:
                    facts.take_fence(ledger)
                elif kind == KEY:
                    facts.take_key(ledger, interned.keys[number])
                else:
                    facts.take_lac(ledger, lac, interned.lacs[number])

    def _flush(self) -> None:
        self._state.specials.add(np.array(self._waiting, np.int64).reshape(-1, SPECIAL_WIDTH))
        self._waiting = []
