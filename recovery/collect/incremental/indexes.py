"""Ledgers with an index, and logs named by it, that are unchanged since the earlier collection."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa

from recovery.collect.incremental.records import SOURCE_COLUMN, KeptLedgers, SeenFile
from recovery.collect.incremental.row_sets import are_unique, sum_fingerprints
from recovery.collect.incremental.state import CollectedState
from recovery.collect.rows.entry_headers import DIGEST_COLUMN
from recovery.collect.rows.index_slots import IndexRows
from recovery.collect.rows.ledger_facts import FACT_WIDTH, FENCED, KEY, LAC, LEDGER, LIMBO, NONE, SOURCE
from recovery.collect.rows.source_copies import Ints
from recovery.collect.rows.spool import Spool


class IndexReuse:
    """Takes over ledgers of indexes, and keeps their fingerprints.

    Attributes:
        confirms_all: all locations are confirmed.
        is_sound: no damage of an index hides ledgers.
        damaged: ledgers without a kept result.
    """

    def __init__(self, state: CollectedState) -> None:
        self._state = state
        self.confirms_all = False
        self.is_sound = True
        self.damaged: set[int] = set()
        self._stable = np.empty(0, np.int64)

    def begin(self, *, confirms_all: bool) -> None:
        """Find out which logs are unchanged, now that all were seen.

        Args:
            confirms_all: all locations are confirmed.
        """
        state = self._state
        self.confirms_all = confirms_all
        current, old = _group_by_log(state.files.values()), _group_by_log(state.previous.files.values())
        stable = [
            log_id
            for log_id, paths in current.items()
            if old.get(log_id) == paths and all(state.find_unchanged(state.files[path]) for path in paths)
        ]
        self._stable = np.array(sorted(stable), np.int64)
        binding, reused = state.previous.binding, state.previous.reused
        if binding is not None and binding.every != confirms_all:
            reused.reason = "only one of the two collections was after a clean stop, so the whole index is read again"
        elif binding is not None and not binding.index_sound:
            reused.reason = "the index was damaged when the earlier inventory was made"

    @property
    def can_reuse(self) -> bool:
        """Whether anything of an index can be taken over."""
        return self._state.previous.has_index

    def see_database(self, path: str, source: int) -> SeenFile:
        """Keep the fingerprint of a file of a database."""
        return self._state.see_file(path, "database", number=source)

    def keep_fingerprints(self, fingerprints: Ints, logs: Ints | None = None) -> None:
        """Keep fingerprints of ledgers, and the logs that their slots name."""
        self._state.spools["ledgers"].add(fingerprints)
        if logs is not None:
            self._state.spools["slots"].add(logs)

    def is_unchanged(self, files: Iterable[SeenFile]) -> bool:
        """Whether the files of a database are unchanged, and no part of it must be read again."""
        state = self._state
        old_files = {file.path: state.find_unchanged(file) for file in files}
        folders = {str(Path(path).parent) for path in old_files}
        paths = {path for path in state.previous.files if str(Path(path).parent) in folders}
        return (
            self.can_reuse
            and bool(old_files)
            and old_files.keys() == paths
            and all(old is not None and old.sound for old in old_files.values())
        )

    def keep_old_fingerprints(self, source: int) -> None:
        """Keep the hashes of a database that is unchanged, from the earlier collection."""
        for share in self._state.shares("ledgers"):
            rows = self._state.previous.read_rows("ledgers", share)
            self._state.spools["ledgers"].add(rows[rows[:, SOURCE_COLUMN] == source])

    def take_over(self, sources: range, index: IndexRows[Spool], *, facts: bool) -> KeptLedgers:
        """Take over the ledgers of indexes that are unchanged.

        Args:
            sources: numbers of the indexes.
            index: takes groups and headers.
            facts: take over the facts, too; otherwise they were read.
        """
        state, can_reuse = self._state, self.can_reuse
        ledgers, with_entries, has_rest = [np.empty(0, np.int64)], [np.empty(0, np.int64)], not can_reuse
        for share in state.shares("ledgers", "groups", "heads", "slots", "facts") if can_reuse else ():
            unchanged, count = self._find_unchanged(share, sources)
            has_rest |= len(unchanged) < count
            if not len(unchanged):
                continue
            ledgers.append(unchanged)
            for name, spool in (("groups", index.groups), ("heads", index.heads), ("slots", state.spools["slots"])):
                rows = state.previous.read_rows(name, share)
                rows = rows[np.isin(rows[:, 0], unchanged)]
                spool.add(rows)
                if name == "groups":
                    with_entries.append(np.unique(rows[:, 0]))
            if facts:
                index.facts.add(self._read_facts(share, unchanged))
        kept = KeptLedgers(np.sort(np.concatenate(ledgers)), np.sort(np.concatenate(with_entries)), has_rest)
        state.previous.reused.ledgers += len(kept.ledgers)
        return kept

    def _find_unchanged(self, share: int | None, sources: range) -> tuple[Ints, int]:
        """Return the unchanged ledgers, and the number of all."""
        previous = self._state.previous
        current, old = (
            rows[(rows[:, SOURCE_COLUMN] >= sources.start) & (rows[:, SOURCE_COLUMN] < sources.stop)]
            for rows in (
                sum_fingerprints(self._state.read_spool("ledgers", share)),
                previous.read_rows("ledgers", share),
            )
        )
        count = len(current)
        current, old = current[are_unique(current[:, 0])], old[np.argsort(old[:, 0], kind="stable")]
        if not len(old):
            return old[:, 0], count
        match = np.minimum(np.searchsorted(old[:, 0], current[:, 0]), len(old) - 1)
        unchanged = current[(old[match] == current).all(axis=1), 0]
        slots, heads = previous.read_rows("slots", share), previous.read_rows("heads", share)
        moved = slots[~np.isin(slots[:, 1], self._stable), 0]
        uncertain = heads[previous.are_uncertain(heads[:, DIGEST_COLUMN]), 0]
        return np.setdiff1d(unchanged, np.concatenate((moved, uncertain))), count

    def _read_facts(self, share: int | None, ledgers: Ints) -> Ints:
        table, keys = self._state.previous.read_table("facts", share)
        rows = np.flatnonzero(np.isin(keys, ledgers))
        table = table.take(pa.array(rows))
        facts = np.empty((len(rows), FACT_WIDTH), np.int64)
        facts[:, LEDGER] = keys[rows]
        for column, name in ((SOURCE, "source"), (FENCED, "fenced"), (LIMBO, "limbo")):
            facts[:, column] = table[name].to_numpy()
        interned = self._state.interned
        for column, name, number in ((KEY, "key", interned.add_stamp), (LAC, "lac", interned.add_lac)):
            facts[:, column] = [NONE if raw is None else number(raw) for raw in table[name].to_pylist()]
        return facts

    def mark_damaged(self, ledger: int | None) -> None:
        """Keep no result of a ledger; None: of any index."""
        if ledger is None:
            self.is_sound = False
        else:
            self.damaged.add(ledger)


def _group_by_log(files: Iterable[SeenFile]) -> dict[int, set[str]]:
    paths: dict[int, set[str]] = {}
    for file in files:
        if file.kind == "log":
            paths.setdefault(file.id, set()).add(file.path)
    return paths
