"""Replaced bookies of a ledger with entries from after their replacement: the entries to compare.

A writer that loses a bookie goes on with another one, and sends it what was on its way: then both have the same there.
Entries that differ came from a writer that still took the old bookie for a member: a second writer, or the same one
after another client had taken its ledger over. Readers get the entries of the record's members; the other ones may have
been acknowledged, too.

Of each such bookie the last entries are compared: who went on writing differs up to the end.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings.categories import Category
from reconcile.findings.table import Finding, FindingStatement, LedgerKey
from recovery.model import groups as sequence
from recovery.model.groups import KeyedRuns
from recovery.model.tables import GROUPS, KEY_COLUMNS

MOST_ENTRIES: Final = 16
"""Entries that are read of a bookie for a ledger."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One entry of a closed ledger on two bookies.

    Attributes:
        key: of the ledger.
        entry: which.
        former: the bookie that was replaced before it.
        member: one of its write set: the one in the place of the other, where that has it.
    """

    key: LedgerKey
    entry: int
    former: str
    member: str


def find_candidates(findings: pa.Table) -> pa.Table:
    """Return the findings of copies that no record asks for, of ledgers that a read can name; FINDINGS in and out."""
    plain = pc.and_(pc.equal(findings["category"], Category.OVER_REPLICATED), pc.equal(findings["scope"], 0))
    return findings.filter(plain)


def find_comparable(stored: pa.Table, findings: pa.Table) -> pa.Table:
    """Return the keys of the ledgers with entries to compare; CATALOG_LEDGERS and FINDINGS in."""
    candidates = find_candidates(findings)
    copies = {row["ledger"]: row for row in candidates.select(["ledger", "bookies", "entries"]).to_pylist()}
    names = [*KEY_COLUMNS, "write_quorum", "last_entry", "segments"]
    plain = stored.select(names).filter(pc.equal(stored["scope"], 0))
    records = plain.filter(pc.is_in(plain["ledger"], value_set=pa.array(copies, pa.int64())))
    mask = [
        any(list_comparisons(record, copies[record["ledger"]]["bookies"], copies[record["ledger"]]["entries"]))
        for record in records.to_pylist()
    ]
    return records.filter(pa.array(mask, pa.bool_())).select(list(KEY_COLUMNS))


def list_comparisons(
    record: Mapping[str, Any], strays: Sequence[str], groups: Sequence[Mapping[str, int]]
) -> Iterator[Comparison]:
    """Yield the comparisons for a closed ledger.

    Args:
        record: a row of CATALOG_LEDGERS.
        strays: bookies that have entries which the record does not ask of them.
        groups: these entries.
    """
    segments, write = record["segments"], record["write_quorum"]
    for former in strays:
        successor = 1 + max((n for n, segment in enumerate(segments) if former in segment["members"]), default=-2)
        if not 0 < successor < len(segments):
            continue
        position = segments[successor - 1]["members"].index(former)
        for entry in _list_last(groups, segments[successor]["first"], record["last_entry"]):
            members = next(segment["members"] for segment in reversed(segments) if segment["first"] <= entry)
            due = [members[(entry + place) % len(members)] for place in range(write)]
            instead = members[position % len(members)]
            yield Comparison(LedgerKey.from_row(record), entry, former, instead if instead in due else due[0])


def _list_last(groups: Sequence[Mapping[str, int]], low: int, high: int) -> list[int]:
    """Return the last entries of groups within bounds, ascending."""
    runs = sequence.within(sequence.from_arrow(pa.array([groups], GROUPS)), low, high)
    order = np.argsort(runs.first)[-MOST_ENTRIES:]
    size = np.minimum(runs.size[order], MOST_ENTRIES)
    first = runs.first[order] + runs.size[order] - size
    _, entries = sequence.lay_out(KeyedRuns(np.zeros(len(order), np.int64), first, size))
    return sorted(set(entries.tolist()))[-MOST_ENTRIES:]


def make_finding(key: LedgerKey, differing: Sequence[Comparison], compared: int) -> Finding:
    """Return the finding of a ledger with differing entries."""
    entries = sorted({pair.entry for pair in differing})
    former = sorted({pair.former for pair in differing})
    statements = [
        FindingStatement("bookies", "replaced, and have entries from after that", ", ".join(former), "wire"),
        FindingStatement(
            "bookies", "have others in their place", ", ".join(sorted({pair.member for pair in differing})), "wire"
        ),
        FindingStatement("bookies", "entries that differ", len(entries), "wire"),
        FindingStatement("bookies", "entries that were compared", compared, "wire"),
    ]
    groups = [{"first": entry, "last": entry, "size": 1, "period": 0} for entry in entries]
    unknown = ["which of them were acknowledged"]
    return Finding(
        Category.RETURNED_WRITER, "entries", statements, key, entries=groups, bookies=former, unknowns=unknown
    )
