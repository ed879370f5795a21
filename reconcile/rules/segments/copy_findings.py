"""Findings of the faults of copies: one a ledger and kind, of its gravest fault; and how bookies were scanned.

fault                                 category                severity
LOST, every bookie seen               ENTRY_LOST              critical
LOST, some not; BELOW_ACK_QUORUM      BELOW_ACK_QUORUM        critical
BELOW_WRITE_QUORUM                    BELOW_WRITE_QUORUM      warning
MISPLACED_ALL                         ENTRIES_MISPLACED       critical
MISPLACED                             ENTRIES_MISPLACED       warning
OVER_REPLICATED                       OVER_REPLICATED         info
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings.categories import TRAITS, Category
from reconcile.findings.table import FindingRun, FindingStatement, make_ledger_findings
from reconcile.rules.segments.copies import CopyFaults, Sight
from reconcile.rules.segments.faults import Fault
from recovery.model import tables

DISKS: Final = "disks"
_WIRE: Final = "wire"
CLOCK_SKEW: Final = timedelta(seconds=2)
"""Tolerated difference between the clocks of a store and of a bookie's host."""
_BELOW: Final = (Fault.BELOW_WRITE_QUORUM, Fault.BELOW_ACK_QUORUM, Fault.LOST)
_MISPLACED: Final = (Fault.MISPLACED, Fault.MISPLACED_ALL)
_WORDS: Final = {
    Fault.LOST: "on no bookie",
    Fault.BELOW_ACK_QUORUM: "on fewer bookies than acknowledge an entry",
    Fault.BELOW_WRITE_QUORUM: "on fewer bookies than the write quorum",
    Fault.MISPLACED_ALL: "only on bookies that readers do not ask",
    Fault.MISPLACED: "on other bookies than those that lack them",
    Fault.OVER_REPLICATED: "on more bookies than asked for",
}


def list_running(bookies: pa.Table, running: Iterable[str]) -> dict[str, int | None]:
    """Return the running bookies with scanned disks: they may have got entries since.

    Args:
        bookies: BOOKIES of inventories.
        running: bookies that run.

    Returns:
        Each with the store's transaction before its inventory began, as far as that is known.
    """
    rows = bookies.select(["bookie", "mode", "as_of"]).to_pylist()
    alive = frozenset(running)
    return {row["bookie"]: row["as_of"] for row in rows if row["mode"] == DISKS and row["bookie"] in alive}


def see_bookies(
    bookies: pa.Table,
    damage: pa.Table,
    outdated: Mapping[str, int | None],
    samples: pa.Table | None = None,
) -> Sight:
    """Return how bookies were scanned.

    Args:
        bookies: BOOKIES of their inventories.
        damage: DAMAGE of these.
        outdated: bookies that may have got entries between their scan and the reading of records: each with the store's
            last transaction before the scan; None: only the time of the scan is known.
        samples: SAMPLES; None: no bookie was asked for single entries.
    """
    rows = bookies.select(["bookie", "mode", "complete", "gaps_named", "started", "dirty"]).to_pylist()
    hiding = damage.filter(damage["hides_entries"])
    of_all = pc.is_null(hiding["ledger"])
    # What a running bookie lists is all that it has; disks may be read in part, and a table says nothing of the rest.
    blind = {row["bookie"] for row in rows if row["mode"] != _WIRE and not (row["complete"] or row["gaps_named"])}
    named = hiding.filter(pc.invert(of_all))
    return Sight(
        since={
            row["bookie"]: int((row["started"] - CLOCK_SKEW).timestamp() * 1_000_000)
            if row["bookie"] in outdated
            else None
            for row in rows
        },
        blind=frozenset(blind | set(hiding.filter(of_all)["bookie"].to_pylist())),
        hidden=pa.table(
            {
                "scope": pc.fill_null(named["scope"], 0),
                "ledger": named["ledger"],
                "bookie": named["bookie"],
            }
        ),
        stopped=frozenset(row["bookie"] for row in rows if row["dirty"] is False),
        unscoped=frozenset(row["bookie"] for row in rows if row["mode"] == _WIRE),
        as_of={bookie: txn for bookie, txn in outdated.items() if txn is not None},
        samples=tables.SAMPLES.empty_table() if samples is None else samples,
    )


def findings(stored: pa.Table, faults: CopyFaults, run: FindingRun, *, everywhere: bool) -> pa.Table:
    """Return the findings.

    Args:
        stored: CATALOG_LEDGERS that the faults are of.
        faults: of these ledgers.
        run: this one.
        everywhere: every bookie of the cluster was scanned completely: an entry that none has is lost.
    """
    parts = [tables.FINDINGS.empty_table()]
    rows = faults.faults
    for family in (_BELOW, _MISPLACED, (Fault.OVER_REPLICATED,)):
        of_family = rows.filter(
            pc.is_in(rows["fault"], value_set=pa.array([int(fault) for fault in family], pa.int8()))
        )
        ledger = of_family["row"].to_numpy()
        # Rows are sorted by ledger and fault: the last of a ledger is its gravest.
        last = np.flatnonzero(np.append(ledger[1:] != ledger[:-1], True)) if len(ledger) else np.empty(0, np.int64)
        worst = of_family.take(pa.array(last))
        for fault in family:
            of_fault = worst.filter(pc.equal(worst["fault"], int(fault)))
            if of_fault.num_rows:
                parts.append(_make(stored, of_fault, fault, run, everywhere=everywhere))
    return pa.concat_tables(parts)


def _make(stored: pa.Table, faults: pa.Table, fault: Fault, run: FindingRun, *, everywhere: bool) -> pa.Table:
    records = stored.take(faults["row"])
    category = {
        Fault.LOST: Category.ENTRY_LOST if everywhere else Category.BELOW_ACK_QUORUM,
        Fault.BELOW_ACK_QUORUM: Category.BELOW_ACK_QUORUM,
        Fault.BELOW_WRITE_QUORUM: Category.BELOW_WRITE_QUORUM,
        Fault.MISPLACED_ALL: Category.ENTRIES_MISPLACED,
        Fault.MISPLACED: Category.ENTRIES_MISPLACED,
        Fault.OVER_REPLICATED: Category.OVER_REPLICATED,
    }[fault]
    quorums = [pc.cast(records[name], pa.string()) for name in ("ensemble_size", "write_quorum", "ack_quorum")]
    statements = [
        FindingStatement("store", "ensemble, write quorum, ack quorum", pc.binary_join_element_wise(*quorums, "/")),
        FindingStatement("store", "last entry", records["last_entry"]),
        FindingStatement("bookies", f"entries {_WORDS[fault]}", faults["entries"]),
        FindingStatement("bookies", "copies of the worst entry where readers ask", faults["least"]),
        FindingStatement("bookies", "lack entries", _join(faults["lacking"])),
        FindingStatement("bookies", "have them, and are not named for them", _join(faults["strays"])),
        FindingStatement("bookies", "may have them: not seen", _join(faults["dark"])),
    ]
    named = faults["strays"] if fault is Fault.OVER_REPLICATED else faults["lacking"]
    unseen = fault is Fault.LOST and not everywhere
    severity = TRAITS[Category.BELOW_ACK_QUORUM].severity if fault is Fault.MISPLACED_ALL else TRAITS[category].severity
    return make_ledger_findings(
        category,
        records.select(list(tables.KEY_COLUMNS)),
        statements,
        run,
        subject="copies",
        severity=severity,
        bookies=named,
        entries=faults["groups"],
        unknowns=["whether a bookie that was not seen has them"] if unseen else [],
    )


def _join(names: pa.ChunkedArray) -> pa.Array:
    return pc.binary_join(names.combine_chunks(), ", ")
