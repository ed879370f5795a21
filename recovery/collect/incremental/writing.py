"""The results for the next collection, written into the inventory's folder."""

import secrets
from datetime import datetime

import numpy as np
import pyarrow as pa

from recovery.collect.incremental.indexes import IndexReuse
from recovery.collect.incremental.journals import KEY as KEY_RECORD
from recovery.collect.incremental.journals import LAC as LAC_RECORD
from recovery.collect.incremental.previous import hash_manifest, hash_passwords
from recovery.collect.incremental.records import SOURCE_COLUMN, Binding, Terms
from recovery.collect.incremental.row_sets import are_unique, look_up, name_columns, sum_fingerprints
from recovery.collect.incremental.state import CollectedState
from recovery.collect.rows.index_slots import IndexRows
from recovery.collect.rows.ledger_facts import FENCED, KEY, LAC, LEDGER, LIMBO, SOURCE
from recovery.collect.rows.scoped_ids import bucket_of
from recovery.collect.rows.source_copies import Ints
from recovery.collect.rows.spool import Spool
from recovery.dataset import AGAIN, DatasetWriter
from recovery.model import tables
from recovery.place import DatasetPlace

_TIMES = slice(4, 6)
"""Columns of a fingerprint."""


class KeptWriter:
    """Writes the new and the taken-over results.

    Args:
        state: files and rows.
        indexes: the ledgers without a kept result.
        terms: of this collection.
        started: when it began.
    """

    def __init__(self, state: CollectedState, indexes: IndexReuse, terms: Terms, started: datetime) -> None:
        self._state = state
        self._indexes = indexes
        self._terms = terms
        self._started = started

    def write(self, folder: DatasetPlace, index: IndexRows[Spool], doubled: Ints) -> str:
        """Write everything; return the hash of the manifest, which covers every part.

        Args:
            folder: of the inventory.
            index: the results of the indexes.
            doubled: ledgers that are in several indexes.
        """
        damaged = self._indexes.damaged
        excluded = np.union1d(np.fromiter(damaged, np.int64, len(damaged)), doubled)
        left_out: set[int] = set()
        binding = Binding(
            self._state.previous.reused.whole or self._started.isoformat(),
            self._terms.bookie,
            self._terms.incarnation,
            list(self._terms.folders),
            hash_passwords(self._terms.passwords, secrets.token_hex(16)),
            self._indexes.confirms_all,
            self._indexes.is_sound,
        )
        with DatasetWriter(folder / AGAIN, "again", binding=binding.to_json()) as writer:
            for share in self._state.shares():
                left_out |= self._write_index(writer, share, index, excluded)
                for name in ("held", "listed", "file_heads"):
                    writer.append(name, self._make_table(name, self._state.read_spool(name, share)))
                self._write_specials(writer, share)
            writer.append("files", self._list_files(left_out))
            writer.close(coverage={})
        return hash_manifest(folder)

    def _write_index(
        self, writer: DatasetWriter, share: int | None, index: IndexRows[Spool], excluded: Ints
    ) -> set[int]:
        """Write the kept ledgers; return the indexes of those that are left out."""
        state = self._state
        rows = sum_fingerprints(state.read_spool("ledgers", share))
        good = (rows[:, _TIMES] < state.limit).all(axis=1) & are_unique(rows[:, 0])
        good &= ~np.isin(rows[:, 0], excluded) & ~np.isin(rows[:, 0], index.dangling.read_share(share)[:, 0])
        ledgers = rows[good, 0]
        writer.append("ledgers", self._make_table("ledgers", rows[good]))
        for name, spool in (("groups", index.groups), ("heads", index.heads), ("slots", state.spools["slots"])):
            part = spool.read_share(share)
            part = part[np.isin(part[:, 0], ledgers)]
            writer.append(name, self._make_table(name, np.unique(part, axis=0) if name == "slots" else part))
        facts = index.facts.read_share(share)
        facts = facts[np.isin(facts[:, LEDGER], ledgers)]
        columns = {
            "source": facts[:, SOURCE],
            "fenced": facts[:, FENCED],
            "limbo": facts[:, LIMBO],
            "key": look_up(state.interned.keys, facts[:, KEY]),
            "lac": look_up(state.interned.lacs, facts[:, LAC]),
        }
        writer.append("facts", pa.table({**self._split_keys(facts[:, LEDGER]), **columns}))
        return set(rows[~good, SOURCE_COLUMN].tolist())

    def _write_specials(self, writer: DatasetWriter, share: int | None) -> None:
        rows, interned = self._state.specials.read_share(share), self._state.interned
        raw = [
            interned.keys[n] if kind == KEY_RECORD else interned.lacs[n] if kind == LAC_RECORD else None
            for kind, n in rows[:, 2:4].tolist()
        ]
        columns = {"file": rows[:, 1], "kind": rows[:, 2], "raw": pa.array(raw, pa.binary()), "lac": rows[:, 4]}
        writer.append("specials", pa.table({**self._split_keys(rows[:, 0]), **columns}))

    def _list_files(self, left_out: set[int]) -> pa.Table:
        rows = []
        for file in self._state.files.values():
            counts = max(file.fingerprint[2:]) < self._state.limit
            fingerprint = file.fingerprint if counts else (-1,) * 4
            columns = {name: getattr(file, name) for name in tables.AGAIN["files"].names if hasattr(file, name)}
            if file.kind == "database":
                columns["sound"] = file.id not in left_out
            rows.append({**columns, **dict(zip(("inode", "size", "mtime", "ctime"), fingerprint, strict=True))})
        return pa.Table.from_pylist(rows, schema=tables.AGAIN["files"])

    def _make_table(self, name: str, rows: Ints) -> pa.Table:
        columns = {column: np.ascontiguousarray(rows[:, 1 + n]) for n, column in enumerate(name_columns(name))}
        return pa.table({**self._split_keys(rows[:, 0]), **columns})

    def _split_keys(self, keys: Ints) -> dict[str, Ints]:
        keys = np.ascontiguousarray(keys)
        scope, ledger = self._state.interned.scopes.ids(keys)
        return {"bucket": bucket_of(keys).astype(np.int16), "scope": scope, "ledger": ledger}
