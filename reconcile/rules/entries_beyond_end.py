"""Entries on bookies above the last entry of a closed ledger: a writer may have gone on after the close.

what is held above the end                          severity
an entry that a LAC shows to be acknowledged        critical: readers do not get what a writer was promised
an entry on as many bookies as acknowledge one      warning: it may have been acknowledged
fewer copies, every bookie scanned                  info: a close drops pending adds
fewer copies, some bookie not scanned               warning: more copies may exist

That is so where a store was lost. In a cluster that lives, bookies keep for ever what a close drops of the adds under
way, be they on as many bookies as acknowledge one, and one that hung may store them minutes later:

what is held above the end                          severity
an entry that a LAC shows to be acknowledged        critical
higher and higher entries, at two later looks       critical: a writer goes on
all else                                            info
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings.categories import Category
from reconcile.findings.table import Finding, FindingRun, FindingStatement, LedgerKey, make_ledger_findings, make_rows
from reconcile.rules import sides
from recovery.model import tables

LISTED: Final = 12
"""Most ranges of entries, and headers, that a finding lists."""
_RUNS: Final = 10_000
"""Runs of one group that are read: a writer that went on for so long wrote each entry to its write quorum."""

Runs = list[tuple[int, int]]
Past = Mapping[tuple[int, int], "Heights"]
"""(scope, ledger) → the results of earlier looks."""
_HIGHEST: Final = "highest entry, look by look"
_END: Final = "last_entry"
LARGEST_LAC: Final = "largest explicit LAC"
"""Field of a finding of `find_lacs_beyond`."""
_COPIES: Final = "copies of one entry, at most"
_ACK_QUORUM: Final = "ack quorum"
_MOST_HEIGHTS: Final = 8
_GOES_ON: Final = 3
"""Looks in a row that saw ever higher entries: pending adds of a close arrive once only."""


@dataclass(frozen=True, slots=True)
class Heights:
    """The entries above the end of a ledger in earlier looks.

    Attributes:
        end: of the record then.
        highest: the highest entry of each look with a new maximum, ascending.
    """

    end: int
    highest: tuple[int, ...]

    def add(self, end: int, highest: int) -> "Heights":
        """Add one more look."""
        if end != self.end:
            return Heights(end, (highest,))
        return self if highest <= self.highest[-1] else Heights(end, (*self.highest, highest)[-_MOST_HEIGHTS:])


def read_heights(rows: pa.Table) -> Past:
    """Return the result of an earlier look; FINDINGS in."""
    of_kind = rows.filter(pc.equal(rows["category"], Category.ENTRIES_BEYOND_LAST_ENTRY))
    heights: dict[tuple[int, int], Heights] = {}
    for row in of_kind.select(["scope", "ledger", "evidence"]).to_pylist():
        values = {item["field"]: item["value"] for item in row["evidence"]}
        if _HIGHEST in values:
            highest = tuple(int(text) for text in values[_HIGHEST].split(", "))
            heights[row["scope"], row["ledger"]] = Heights(int(values[_END]), highest)
    return heights


def list_unproven(rows: pa.Table, heights: Past) -> pa.Table:
    """Return the findings with entries that a later LAC may show to be acknowledged; FINDINGS of that kind in.

    An entry above the end is on as many bookies as acknowledge one, and is news.
    """
    mask = []
    for row in rows.to_pylist():
        values = {item["field"]: item["value"] for item in row["evidence"]}
        known = heights.get((row["scope"], row["ledger"]))
        is_known = known is not None and ", ".join(map(str, known.highest)) == values.get(_HIGHEST)
        mask.append(not is_known and int(values[_COPIES]) >= int(values[_ACK_QUORUM]))
    return rows.filter(pa.array(mask, pa.bool_()))


def findings(
    copies: pa.Table, stored: pa.Table, run: FindingRun, *, seen: bool, side: str = "store", heights: Past | None = None
) -> pa.Table:
    """Return a finding for each closed ledger with entries above its end on some bookie.

    Args:
        copies: COPIES of a bucket range.
        stored: CATALOG_LEDGERS, or RECONSTRUCTION of proposed records.
        run: this one.
        seen: every bookie was scanned completely.
        side: of the records.
        heights: results of earlier looks at a live cluster; None: its store was lost.
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
        _make_finding(record, by_ledger[record["scope"], record["ledger"]], seen=seen, side=side, heights=heights)
        for record in closed.to_pylist()
    )
    return make_rows(rows, run)


def find_lacs_beyond(copies: pa.Table, closed: pa.Table, run: FindingRun) -> pa.Table:
    """Return a finding for each closed ledger with an explicit LAC above its end on a bookie, and no entry there.

    A writer sends an explicit LAC of what was acknowledged: entries up to it were, and are nowhere.

    Args:
        copies: COPIES of a bucket range.
        closed: CATALOG_LEDGERS: closed ones.
        run: this one.
    """
    keys = list(tables.KEY_COLUMNS)
    named = copies.filter(pc.is_valid(copies["explicit_lac"])).select([*keys, "bookie", "explicit_lac"])
    lacs = named.group_by(keys).aggregate([("explicit_lac", "max")])
    if not lacs.num_rows or not closed.num_rows:
        return tables.FINDINGS.empty_table()
    ends = copies.group_by(keys).aggregate([("last", "max")])
    lacs = lacs.join(ends, keys).join(closed.select([*keys, "last_entry"]), keys, join_type="inner")
    above = pc.greater(lacs["explicit_lac_max"], lacs["last_entry"])
    none_there = pc.fill_null(pc.less_equal(lacs["last_max"], lacs["last_entry"]), fill_value=True)
    told = lacs.filter(pc.fill_null(pc.and_(above, none_there), fill_value=False))
    statements = [
        FindingStatement("store", _END, told["last_entry"]),
        FindingStatement("bookies", LARGEST_LAC, told["explicit_lac_max"]),
        FindingStatement("bookies", "entries above the end", "none"),
    ]
    return make_ledger_findings(
        Category.LAC_BEYOND_LAST_ENTRY, told.select(keys), statements, run, subject="last_entry",
        bookies=_list_bookies(named, told), unknowns=["who has the entries up to the LAC"],
    )  # fmt: skip


def find_limbo(copies: pa.Table, closed: pa.Table, run: FindingRun) -> pa.Table:
    """Return a finding for each closed ledger that a bookie has in limbo; COPIES and CATALOG_LEDGERS in."""
    keys = list(tables.KEY_COLUMNS)
    named = copies.filter(copies["limbo"])
    if not named.num_rows or not closed.num_rows:
        return tables.FINDINGS.empty_table()
    told = named.group_by(keys).aggregate([]).join(closed.select(keys), keys, join_type="inner")
    statements = [
        FindingStatement("store", "state", "CLOSED"),
        FindingStatement("bookies", "in limbo", "yes", "inventory"),
    ]
    return make_ledger_findings(
        Category.LEDGER_IN_LIMBO,
        told.select(keys),
        statements,
        run,
        subject="limbo",
        bookies=_list_bookies(named, told),
    )


def _list_bookies(copies: pa.Table, ledgers: pa.Table) -> pa.Array:
    """Return the bookies with copies of some ledgers; for few ledgers."""
    names: dict[tuple[int, int], set[str]] = {}
    of_these = copies.filter(pc.is_in(copies["ledger"], value_set=ledgers["ledger"].combine_chunks()))
    for row in of_these.select(["scope", "ledger", "bookie"]).to_pylist():
        names.setdefault((row["scope"], row["ledger"]), set()).add(row["bookie"])
    keys = zip(ledgers["scope"].to_pylist(), ledgers["ledger"].to_pylist(), strict=True)
    return pa.array([sorted(names[key]) for key in keys], pa.list_(pa.string()))


def _make_finding(
    record: Mapping[str, Any], copies: list[Mapping[str, Any]], *, seen: bool, side: str, heights: Past | None
) -> Finding:
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
    severity = "critical" if lac > last else "info" if seen and not acknowledged else "warning"
    looks: tuple[FindingStatement, ...] = ()
    if heights is not None:
        # Not of the runs: only so many of a writer that goes on for long are laid out.
        highest = max(copy["last"] for copy in copies if copy["last"] is not None)
        earlier = heights.get((record["scope"], record["ledger"]), Heights(last, (highest,)))
        higher = earlier.add(last, highest).highest
        goes_on = len(higher) >= _GOES_ON
        severity = "critical" if lac > last or goes_on else "info"
        looks = (
            FindingStatement("store", _ACK_QUORUM, record["ack_quorum"]),
            FindingStatement("bookies", _HIGHEST, ", ".join(map(str, higher))),
        )
    headers = [(copy["bookie"], h) for copy in copies for h in copy["headers"] if h["entry"] > last][:LISTED]
    statements = [
        FindingStatement(side, _END, last),
        FindingStatement("bookies", "largest LAC", lac),
        FindingStatement("bookies", _COPIES, copies_of_entry),
        *looks,
        *(FindingStatement("bookies", f"held by {bookie}", _texts(runs)) for bookie, runs in sorted(holders.items())),
        *(
            FindingStatement("bookies", f"entry {h['entry']} on {bookie}",
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
        severity=severity,
        entries=[
            {"first": first, "last": first, "size": end - first, "period": 0}
            for first, end in _merge_runs([run for runs in holders.values() for run in runs])[:LISTED]
        ],
        bookies=sorted(holders),
        unknowns=[] if lac > last else ["whether they were acknowledged to a writer"],
    )


def _above(groups: Iterable[Mapping[str, int]], last: int) -> Iterator[tuple[int, int]]:
    """Yield the runs above an entry, as (first, last + 1)."""
    for group in groups:
        first, size, period = group["first"], group["size"], group["period"] or group["size"]
        skipped = max(0, -(-(last + 2 - size - first) // period))
        for start in range(first + skipped * period, group["last"] + 1, period)[:_RUNS]:
            yield max(start, last + 1), start + size


def _merge_runs(runs: Runs) -> Runs:
    """Return runs in order; adjacent runs are joined."""
    merged: Runs = []
    for first, end in sorted(runs):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((first, end))
    return merged


def _deepest(holders: Iterable[Runs]) -> int:
    """Return the greatest number of bookies with the same entry."""
    steps = sorted(step for runs in holders for first, end in runs for step in ((first, 1), (end, -1)))
    return max(accumulate(change for _, change in steps), default=0)


def _texts(runs: Runs) -> str:
    texts = [str(first) if end == first + 1 else f"{first} to {end - 1}" for first, end in runs[:LISTED]]
    return ", ".join(texts) + (f", and {len(runs) - LISTED} more ranges" if len(runs) > LISTED else "")
