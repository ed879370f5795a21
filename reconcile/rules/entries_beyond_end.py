"""Entries that bookies hold above the last entry of a closed ledger: who wrote on after it was closed?

what is held above the end                          severity
an entry that a LAC shows to be acknowledged        critical: readers do not get what a writer was promised
an entry on as many bookies as acknowledge one      warning: nothing shows that it was not promised
fewer copies, every bookie looked at                info: a close drops what was under way
fewer copies, some bookie not looked at             warning: more copies may exist
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings.categories import Category
from reconcile.findings.table import Finding, LedgerKey, Run, Statement, make_rows
from reconcile.rules import sides
from recovery.model import tables

LISTED: Final = 12
"""Ranges of entries, and headers, that a finding gives one by one."""
_RUNS: Final = 10_000
"""Runs of one group that are looked at: anybody who wrote on so long wrote each entry to its write quorum."""

Runs = list[tuple[int, int]]


def findings(copies: pa.Table, stored: pa.Table, run: Run, *, seen: bool, side: str = "store") -> pa.Table:
    """Return a finding for each closed ledger above whose end some bookie holds entries.

    Args:
        copies: COPIES of a bucket range.
        stored: records: CATALOG_LEDGERS, or RECONSTRUCTION of those that are proposed.
        run: this one.
        seen: every bookie was looked at, completely.
        side: who has the records.
    """
    if not stored.num_rows:
        return tables.FINDINGS.empty_table()
    keys = list(tables.KEY_COLUMNS)
    ends = copies.group_by(keys).aggregate([("last", "max")])
    on_bookies, in_store = sides.unite([ends, stored]).rows
    is_shared = (on_bookies != sides.ABSENT) & (in_store != sides.ABSENT)
    places = pa.array(in_store[is_shared])
    known = stored.select(["state", "last_entry"]).take(places)
    above = pc.greater(ends["last_max"].take(pa.array(on_bookies[is_shared])), known["last_entry"])
    beyond = pc.fill_null(pc.and_(pc.equal(known["state"], "CLOSED"), above), fill_value=False)
    closed = stored.take(places.filter(beyond.combine_chunks()))
    if not closed.num_rows:
        return tables.FINDINGS.empty_table()
    numbered = copies.select(keys).append_column("at", pa.array(np.arange(copies.num_rows)))
    copies_of_closed = copies.take(numbered.join(closed.select(keys), keys, join_type="left semi")["at"].sort())
    by_ledger: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
    for row in copies_of_closed.to_pylist():
        by_ledger.setdefault((row["scope"], row["ledger"]), []).append(row)
    rows = (
        _make_finding(record, by_ledger[record["scope"], record["ledger"]], seen=seen, side=side)
        for record in closed.to_pylist()
    )
    return make_rows(rows, run)


def _make_finding(record: Mapping[str, Any], copies: list[Mapping[str, Any]], *, seen: bool, side: str) -> Finding:
    last = record["last_entry"]
    by_bookie: dict[str, Runs] = {}
    for copy in copies:
        by_bookie.setdefault(copy["bookie"], []).extend(_above(copy["groups"], last))
    holders = {bookie: _merge_runs(runs) for bookie, runs in by_bookie.items() if runs}
    lac = max(
        [h["lac"] for copy in copies for h in copy["headers"]]
        + [copy["explicit_lac"] for copy in copies if copy["explicit_lac"] is not None],
        default=-1,
    )
    copies_of_entry = _deepest(holders.values())
    acknowledged = copies_of_entry >= record["ack_quorum"]
    headers = [(copy["bookie"], h) for copy in copies for h in copy["headers"] if h["entry"] > last][:LISTED]
    statements = [
        Statement(side, "last_entry", last),
        Statement("bookies", "largest LAC", lac),
        Statement("bookies", "copies of one entry, at most", copies_of_entry),
        *(Statement("bookies", f"held by {bookie}", _texts(runs)) for bookie, runs in sorted(holders.items())),
        *(
            Statement("bookies", f"entry {h['entry']} on {bookie}",
                 f"LAC {h['lac']}, length {h['length']}, "
                 + (f"{h['digest']} agrees" if h["digest"] else "no digest agrees"))
            for bookie, h in headers
        ),
    ]  # fmt: skip
    return Finding(
        category=Category.ENTRIES_BEYOND_LAST_ENTRY,
        subject="last_entry",
        statements=statements,
        key=LedgerKey.from_row(record),
        severity="critical" if lac > last else "info" if seen and not acknowledged else "warning",
        entries=[
            {"first": first, "last": first, "size": end - first, "period": 0}
            for first, end in _merge_runs([run for runs in holders.values() for run in runs])[:LISTED]
        ],
        bookies=sorted(holders),
        unknowns=[] if lac > last else ["whether a writer was told that they are safe"],
    )


def _above(groups: Iterable[Mapping[str, int]], last: int) -> Iterator[tuple[int, int]]:
    """Yield the runs above an entry, as first and the one behind the last."""
    for group in groups:
        first, size, period = group["first"], group["size"], group["period"] or group["size"]
        skipped = max(0, -(-(last + 2 - size - first) // period))
        for start in range(first + skipped * period, group["last"] + 1, period)[:_RUNS]:
            yield max(start, last + 1), start + size


def _merge_runs(runs: Runs) -> Runs:
    """Return runs in order, those that touch as one."""
    merged: Runs = []
    for first, end in sorted(runs):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((first, end))
    return merged


def _deepest(holders: Iterable[Runs]) -> int:
    """Return on how many bookies an entry stands at most."""
    steps = sorted(step for runs in holders for first, end in runs for step in ((first, 1), (end, -1)))
    return max(accumulate(change for _, change in steps), default=0)


def _texts(runs: Runs) -> str:
    texts = [str(first) if end == first + 1 else f"{first} to {end - 1}" for first, end in runs[:LISTED]]
    return ", ".join(texts) + (f", and {len(runs) - LISTED} more ranges" if len(runs) > LISTED else "")
