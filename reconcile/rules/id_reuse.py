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
from reconcile.findings.table import Run, Statement
from reconcile.rules.holds import HOLD_MARK
from reconcile.rules.sides import ABSENT, unite
from recovery.codecs import ledger_metadata
from recovery.infer.refusal import Refusal
from recovery.model import tables

_DIGITS: Final = 12
_UNKNOWN: Final = ("which of the two ledgers is wanted under this id",)


_HISTORIES: Final = pa.array(
    [str(refusal) for refusal in (Refusal.TWO_KEYS, Refusal.LENGTHS_DIFFER, Refusal.DIGESTS_DIFFER)]
)
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
    several = rows.filter(pc.is_in(rows["reason"], _HISTORIES))
    if not several.num_rows:
        return known
    named, known_rows = unite([several, known]).rows
    several = several.take(pa.array(np.sort(named[(named != ABSENT) & (known_rows == ABSENT)])))
    keys: dict[tuple[int, int], dict[str, set[str]]] = {}
    keyed = copies.filter(pc.is_valid(copies["key"])).select(["scope", "ledger", "key", "bookie"])
    of_several = keyed.filter(pc.is_in(keyed["ledger"], several["ledger"].combine_chunks()))
    for copy in of_several.to_pylist():
        by_key = keys.setdefault((copy["scope"], copy["ledger"]), {})
        by_key.setdefault(copy["key"].hex()[:_DIGITS], set()).add(copy["bookie"])
    texts = []
    for row in several.select(["scope", "ledger"]).to_pylist():
        by_key = keys.get((row["scope"], row["ledger"]), {})
        texts.append("; ".join(f"key {key}… on {', '.join(sorted(names))}" for key, names in sorted(by_key.items())))
    evidence = [
        Statement("bookies", "reason", several["reason"]),
        Statement("bookies", "keys", pa.array(texts, pa.string())),
    ]
    holders = several["holders"].combine_chunks()
    made = table.make_ledger_findings(
        Category.ID_REUSE, several, evidence, run, subject="histories", bookies=holders, unknowns=_UNKNOWN
    )
    return pa.concat_tables([known, made])


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
    for row in other.to_pylist():
        known = ledger_metadata.decode(stored["raw"][row["at"]].as_py())
        if any(key == HOLD_MARK for key, _ in known.custom):
            continue  # which has a password of its own
        # A data-integrity copy stores the password itself where its key belongs.
        if known.password is None or row["key"] != hashlib.sha256(known.password).digest():
            bookies, key_texts = rows.setdefault(row["at"], (set(), set()))
            bookies.add(row["bookie"])
            key_texts.add(row["key"].hex()[:_DIGITS])
    places = sorted(rows)
    records = stored.take(pa.array(places, pa.int64()))
    segments = records["segments"].to_pylist()
    members = {place: {name for part in segments[n] for name in part["members"]} for n, place in enumerate(places)}
    outside = [", ".join(sorted(rows[place][0] - members[place])) or "none" for place in places]
    own = [row.hex()[:_DIGITS] for row in records["password_hash"].to_pylist()]
    statements = [
        Statement("store", "key", pa.array([f"key {row}…" for row in own], pa.string())),
        Statement("store", "state", records["state"]),
        Statement("store", "created", records["created_at"]),
        Statement(
            "bookies",
            "key",
            pa.array([", ".join(f"key {k}…" for k in sorted(rows[place][1])) for place in places], pa.string()),
        ),
        Statement("bookies", "hold it, and are not in the record", pa.array(outside, pa.string())),
    ]
    bookies = pa.array([sorted(rows[place][0]) for place in places], pa.list_(pa.string()))
    return table.make_ledger_findings(
        Category.ID_REUSE, records, statements, run, subject="key", bookies=bookies, unknowns=_UNKNOWN
    )
