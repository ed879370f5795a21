"""Findings from a record alone: one copy, a recovery that does not end, ensembles against the placement policy.

    finding              when                                                                  severity
    ONE_COPY             W = 1                                                                 info
    RECOVERY_STUCK       in recovery, or open and fenced by a bookie, and the record has not
                         changed for longer than the grace                                     warning
    PLACEMENT_VIOLATED   a write set of a segment is against the policy                        warning
    PLACEMENT_SOFT       none is, and one lacks what the policy would rather have              info

A bookie that is down keeps its place. One without a location makes a segment undecided, which is counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings.categories import Category
from reconcile.findings.table import Finding, FindingRun, FindingStatement, LedgerKey, make_ledger_findings, make_rows
from reconcile.rules.segments.placement import (
    BookieLocations,
    Ensembles,
    Placement,
    PlacementSettings,
    judge,
    judge_write_sets,
    locate,
)
from recovery.model.tables import FINDINGS, KEY_COLUMNS

_LISTED: Final = 12
"""Segments of one ledger that are listed with their places."""


@dataclass(frozen=True, slots=True)
class PlacementCounts:
    """How many segments follow the policy how well."""

    kept: int = 0
    soft: int = 0
    undecided: int = 0
    violated: int = 0


def find_single_copies(stored: pa.Table, run: FindingRun) -> pa.Table:
    """Return a finding for each ledger that is written to one bookie at a time; CATALOG_LEDGERS in."""
    single = stored.filter(pc.fill_null(pc.equal(stored["write_quorum"], 1), fill_value=False))
    statements = [FindingStatement("store", "write quorum", single["write_quorum"])]
    return make_ledger_findings(
        Category.ONE_COPY, single.select(list(KEY_COLUMNS)), statements, run, subject="write_quorum"
    )


def find_stuck_recoveries(stored: pa.Table, fenced: npt.NDArray[np.bool_], run: FindingRun, grace_s: float) -> pa.Table:
    """Return a finding for each ledger with a recovery that a client began before the grace and did not end.

    Holds are in recovery for ever; the caller leaves them out.

    Args:
        stored: CATALOG_LEDGERS.
        fenced: ledgers that some bookie's index has as fenced: the writer cannot go on.
        run: this one.
        grace_s: seconds that a record may stay so.
    """
    begun = pc.or_(
        pc.equal(stored["state"], "IN_RECOVERY"), pc.and_(pc.equal(stored["state"], "OPEN"), pa.array(fenced))
    )
    since = pa.scalar(run.at - timedelta(seconds=grace_s), pa.timestamp("us", "UTC"))
    is_stuck = pc.and_(pc.fill_null(begun, fill_value=False), pc.less(stored["changed_at"], since))
    is_stuck = pc.fill_null(is_stuck, fill_value=False)
    stuck = stored.filter(is_stuck)
    statements = [
        FindingStatement("store", "state", stuck["state"]),
        FindingStatement("store", "record changed at", stuck["changed_at"]),
        FindingStatement("bookies", "fenced", pc.if_else(pa.array(fenced).filter(is_stuck), "yes", "not seen")),
    ]
    return make_ledger_findings(
        Category.RECOVERY_STUCK, stuck.select(list(KEY_COLUMNS)), statements, run, subject="state"
    )


def find_misplaced_segments(
    stored: pa.Table, topology: Mapping[str, str], settings: PlacementSettings, run: FindingRun
) -> tuple[pa.Table, PlacementCounts]:
    """Return a finding for each ledger with a segment against the policy, and the number of segments of each kind.

    Args:
        stored: CATALOG_LEDGERS; records that cannot be read are passed over.
        topology: bookie id or host to location.
        settings: the policy.
        run: this one.
    """
    stored = stored.filter(pc.and_(pc.is_valid(stored["segments"]), pc.greater(stored["write_quorum"], 0)))
    if not stored.num_rows:
        return FINDINGS.empty_table(), PlacementCounts()
    segments = stored["segments"].combine_chunks()
    ledger = pc.list_parent_indices(segments).to_numpy().astype(np.int64)
    lists = segments.flatten().field("members")
    coded = lists.flatten().dictionary_encode()
    sizes = pc.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64)
    write, ack = (stored[name].to_numpy().astype(np.int64)[ledger] for name in ("write_quorum", "ack_quorum"))
    locations = locate(coded.dictionary.to_pylist(), topology, settings)
    members = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    starts = np.cumsum(sizes) - sizes
    sane = np.flatnonzero(write <= sizes)
    verdicts = np.full(len(sizes), Placement.UNDECIDED, np.int8)
    picked = np.repeat(starts[sane], sizes[sane]) + _number(sizes[sane])
    ensembles = Ensembles(members[picked], sizes[sane], write[sane], ack[sane])
    verdicts[sane] = judge(ensembles, locations, settings)
    counts = np.bincount(verdicts, minlength=len(Placement)).tolist()
    worst = np.zeros(stored.num_rows, np.int8)
    decided = np.where(verdicts == Placement.UNDECIDED, np.int8(0), verdicts)
    np.maximum.at(worst, ledger, decided)
    firsts = segments.flatten().field("first").to_numpy()
    described: dict[tuple[tuple[int, ...], int, int], str] = {}
    findings: list[Finding] = []
    for row in np.flatnonzero(worst).tolist():
        record = stored.slice(row, 1)
        hard = worst[row] == Placement.VIOLATED
        bad = _rows_of(ledger, row)
        bad = bad[decided[bad] == worst[row]]
        statements: list[FindingStatement] = [FindingStatement("topology", "policy", str(settings.policy), "placement")]
        for segment in bad[:_LISTED].tolist():
            ensemble = members[starts[segment] : starts[segment] + sizes[segment]]
            key = (tuple(ensemble.tolist()), int(write[segment]), int(ack[segment]))
            if key not in described:
                described[key] = _describe(ensemble, key[1], key[2], locations, settings, int(worst[row]))
            statements.append(FindingStatement("store", f"segment from entry {firsts[segment]}", described[key]))
        if len(bad) > _LISTED:
            statements.append(FindingStatement("store", "more segments", len(bad) - _LISTED))
        findings.append(
            Finding(
                Category.PLACEMENT_VIOLATED if hard else Category.PLACEMENT_SOFT,
                "placement",
                statements,
                LedgerKey.from_row(record.select(list(KEY_COLUMNS)).to_pylist()[0]),
                bookies=sorted({locations.bookies[m] for s in bad for m in members[starts[s] : starts[s] + sizes[s]]}),
            )
        )
    return make_rows(findings, run), PlacementCounts(*counts)


def _rows_of(owner: npt.NDArray[np.int64], row: int) -> npt.NDArray[np.int64]:
    """Return the places of one value among ascending values."""
    low, high = np.searchsorted(owner, [row, row + 1])
    return np.arange(low, high)


def _number(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return 0, 1, ... for each count, concatenated."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)


def _describe(
    ensemble: npt.NDArray[np.int64],
    write: int,
    ack: int,
    locations: BookieLocations,
    settings: PlacementSettings,
    worst: int,
) -> str:
    """Write out the write sets of an ensemble that are as bad as its worst: the entries of each, bookies and places."""
    verdicts = judge_write_sets(ensemble[None, :], write, ack, locations, settings)[0]
    size = len(ensemble)
    sets: list[str] = []
    for residue in np.flatnonzero(verdicts == worst).tolist():
        places: Sequence[Any] = [ensemble[(residue + i) % size] for i in range(write)]
        names = ", ".join(f"{locations.bookies[b]} {locations.texts[b] or 'without location'}" for b in places)
        sets.append(f"entries {residue} mod {size}: {names}")
    return "; ".join(sets)
