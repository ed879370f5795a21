"""One id of two ledgers: bookies hold it under another master key than its record's, or as two histories.

That is what a store leaves that was formatted anew and has given out low ids again, or that was restored to a state
from before its last ids. Bookies that hold the older ledger, and that the record does not name, may delete it.
"""

import hashlib
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings import table
from reconcile.findings.categories import Category
from reconcile.findings.table import Run, Said
from reconcile.rules.holds import HOLD_MARK
from reconcile.rules.sides import ABSENT, unite
from recovery.codecs import ledger_metadata
from recovery.infer.refusal import Refusal
from recovery.model import tables

_DIGITS: Final = 12
_UNKNOWN: Final = ("which of the two ledgers is wanted under this id",)


_HISTORIES: Final = pa.array([str(one) for one in (Refusal.TWO_KEYS, Refusal.LENGTHS_DIFFER, Refusal.DIGESTS_DIFFER)])
"""Reasons for a hold that show two ledgers; others only allow for them."""


def findings(copies: pa.Table, stored: pa.Table, rows: pa.Table, run: Run) -> pa.Table:
    """Return a finding for each id that two ledgers have.

    Args:
        copies: COPIES of a bucket range.
        stored: CATALOG_LEDGERS of the store.
        rows: RECONSTRUCTION.
        run: this one.
    """
    known = _in_store(copies, stored, run)
    several = rows.filter(pc.fill_null(pc.is_in(rows["reason"], _HISTORIES), fill_value=False))
    if not several.num_rows:
        return known
    named, theirs = unite([several, known]).rows
    several = several.take(pa.array(np.sort(named[(named != ABSENT) & (theirs == ABSENT)])))
    keys: dict[tuple[int, int], dict[str, set[str]]] = {}
    held = copies.filter(pc.is_valid(copies["key"])).select(["scope", "ledger", "key", "bookie"])
    mine = held.filter(pc.is_in(held["ledger"], several["ledger"].combine_chunks()))
    for one in mine.to_pylist():
        by_key = keys.setdefault((one["scope"], one["ledger"]), {})
        by_key.setdefault(one["key"].hex()[:_DIGITS], set()).add(one["bookie"])
    said = []
    for row in several.select(["scope", "ledger"]).to_pylist():
        by_key = keys.get((row["scope"], row["ledger"]), {})
        said.append("; ".join(f"key {key}… on {', '.join(sorted(names))}" for key, names in sorted(by_key.items())))
    evidence = [Said("bookies", "reason", several["reason"]), Said("bookies", "keys", pa.array(said, pa.string()))]
    holders = several["holders"].combine_chunks()
    found = table.of_ledgers(
        Category.ID_REUSE, several, evidence, run, subject="histories", bookies=holders, unknowns=_UNKNOWN
    )
    return pa.concat_tables([known, found])


def _in_store(copies: pa.Table, stored: pa.Table, run: Run) -> pa.Table:
    """Return the findings of records that some bookie holds another ledger under the id of."""
    if not stored.num_rows:
        return tables.FINDINGS.empty_table()
    keys = list(tables.KEY_COLUMNS)
    seen = copies.filter(pc.is_valid(copies["key"])).group_by([*keys, "key", "bookie"]).aggregate([])
    if not seen.num_rows:
        return tables.FINDINGS.empty_table()
    # A ledger may have several keys: each is compared with the one record.
    record = stored.select([*keys, "password_hash"]).append_column("at", pa.array(np.arange(stored.num_rows)))
    other = seen.join(record, keys, join_type="inner")
    other = other.filter(pc.fill_null(pc.not_equal(other["key"], other["password_hash"]), fill_value=False))
    rows: dict[int, tuple[set[str], set[str]]] = {}
    for one in other.to_pylist():
        known = ledger_metadata.decode(stored["raw"][one["at"]].as_py())
        if any(key == HOLD_MARK for key, _ in known.custom):
            continue  # which has a password of its own
        # A data-integrity copy stores the password itself where its key belongs.
        if known.password is None or one["key"] != hashlib.sha256(known.password).digest():
            bookies, found = rows.setdefault(one["at"], (set(), set()))
            bookies.add(one["bookie"])
            found.add(one["key"].hex()[:_DIGITS])
    places = sorted(rows)
    mine = stored.take(pa.array(places, pa.int64()))
    members = [
        {name for segment in segments or () for name in segment["members"]} for segments in mine["segments"].to_pylist()
    ]
    outside = [", ".join(sorted(rows[at][0] - names)) or "none" for at, names in zip(places, members, strict=True)]
    own = [one.hex()[:_DIGITS] for one in mine["password_hash"].to_pylist()]
    said = [
        Said("store", "key", pa.array([f"key {one}…" for one in own], pa.string())),
        Said("store", "state", mine["state"]),
        Said("store", "created", mine["created_at"]),
        Said(
            "bookies",
            "key",
            pa.array([", ".join(f"key {k}…" for k in sorted(rows[at][1])) for at in places], pa.string()),
        ),
        Said("bookies", "hold it, and are not in the record", pa.array(outside, pa.string())),
    ]
    bookies = pa.array([sorted(rows[at][0]) for at in places], pa.list_(pa.string()))
    return table.of_ledgers(Category.ID_REUSE, mine, said, run, subject="key", bookies=bookies, unknowns=_UNKNOWN)
