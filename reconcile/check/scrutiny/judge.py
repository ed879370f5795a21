"""The result of one look at a bucket range: findings, one verdict a ledger, and the ledgers for the second look.

    verdict     reason                                                              the first that holds
    a category  of its gravest finding, where that is more than a note
    undecided   not seen: a bookie that may have what is missing was not seen
    undecided   undated: nothing tells whether the record is older than what is known of a bookie
    undecided   changed: the record is newer than that
    undecided   sampled: a bookie that gives no lists was asked for some entries, and has them
    skipped     open, marked, empty, held, quarantined, guarded
    a category  of its note
    clean

Skipped ledgers are judged, too, for what their records say by themselves. A pure function of its tables.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.check.scrutiny.replication import StoredReplication, find_overdue, list_overdue
from reconcile.findings import table
from reconcile.findings.categories import Category
from reconcile.findings.table import FindingRun, FindingStatement
from reconcile.rules import diff, entries_beyond_end, holds
from reconcile.rules.segments import copy_findings
from reconcile.rules.segments.copies import CopyFaults, Sight, UndecidedReason, find_faults
from reconcile.rules.segments.faults import Fault
from reconcile.rules.segments.member_names import name_any
from reconcile.rules.segments.placement import PlacementSettings
from reconcile.rules.segments.record_rules import (
    PlacementCounts,
    find_misplaced_segments,
    find_single_copies,
    find_stuck_recoveries,
)
from reconcile.rules.sides import ABSENT, compare, find_other_records, unite
from recovery.dataset import sort_by_key
from recovery.model.tables import CATALOG_HISTORY, KEY_COLUMNS, MISSING, VERDICTS

Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

CLEAN: Final = "clean"
SKIPPED: Final = "skipped"
UNDECIDED: Final = "undecided"
PASSED: Final = ("marked", "guarded")
"""Reasons to skip closed ledgers with known copies."""
_DOUBTS: Final = np.array(["", *(doubt.name.lower().replace("_", " ") for doubt in UndecidedReason)], object)
"""By `UndecidedReason`: not seen, undated, changed, sampled."""


@dataclass(frozen=True, slots=True)
class Demands:
    """The demands on a cluster.

    Attributes:
        grace_s: seconds that a mark, or a recovery, may last.
        topology: bookie id or host to location; None: placement is not judged.
        placement: the client's policy.
    """

    grace_s: float
    topology: Mapping[str, str] | None
    placement: PlacementSettings


@dataclass(frozen=True, slots=True, eq=False)
class LookJudgement:
    """The result of one look.

    Attributes:
        findings: FINDINGS.
        verdicts: VERDICTS, a row a ledger, in key order.
        suspect: of each row of the verdicts: it needs a second look.
        missing: MISSING: entries that bookies lack; for skipped ledgers too, as far as their ends are known.
        pairs: which bookies hold anything of the ledgers that name them for entries: key columns,
            ``changed_txn`` of the record, and `PAIRS` without their rows.
        positions: copies that records of closed ledgers ask for.
        judged: copies among these that were found or found missing, of ledgers that were not skipped.
        coverage: of each of these ledgers: key columns, and `COVERAGE` without its row.
        passed: reason → copies of the closed ledgers that were skipped.
        placement: segments.
    """

    findings: pa.Table
    verdicts: pa.Table
    suspect: Mask
    missing: pa.Table
    pairs: pa.Table
    positions: int
    judged: int
    coverage: pa.Table
    passed: Mapping[str, int]
    placement: PlacementCounts


def judge_range(
    stored: pa.Table,
    copies: pa.Table,
    sight: Sight,
    replication: StoredReplication,
    demands: Demands,
    run: FindingRun,
    *,
    everywhere: bool,
    awaited: frozenset[str] = frozenset(),
    earlier_records: pa.Table | None = None,
    earlier_missing: pa.Table | None = None,
    heights: entries_beyond_end.Past | None = None,
) -> LookJudgement:
    """Judge the ledgers of a bucket range.

    Args:
        stored: CATALOG_LEDGERS, in key order.
        copies: COPIES of these ledgers.
        sight: of the bookies.
        replication: of the store; marks of this range at least.
        demands: of the cluster.
        run: this one.
        everywhere: every bookie was asked for every ledger here: an entry that none has is lost.
        awaited: bookies that may answer when they are asked again: ledgers that depend on them get a second look.
        earlier_records: CATALOG_LEDGERS of these ledgers as the run before saw them; None: there is none.
        earlier_missing: MISSING of these ledgers as the run before left it; None: there is none.
        heights: entries above the ends of ledgers in earlier runs.
    """
    heights = heights or {}
    broken = pc.is_valid(stored["error"]).to_numpy()
    closed = pc.fill_null(pc.equal(stored["state"], "CLOSED"), fill_value=False).to_numpy()
    empty = closed & pc.fill_null(pc.less(stored["last_entry"], 0), fill_value=False).to_numpy()
    marked, guarded = _find_among(stored, replication.marks), _find_guarded(stored, replication)
    is_hold = holds.is_hold(stored) & ~broken
    quarantined = holds.is_quarantine(stored) & ~broken
    masks = {
        "broken": broken,
        "quarantined": quarantined,
        "held": is_hold,
        "open": ~closed,
        "guarded": guarded,
        "marked": marked,
        "empty": empty,
    }
    reason = np.select(list(masks.values()), list(masks), "")
    judged = stored.filter(pa.array(reason == ""))
    by_reason = {
        why: find_faults(stored.filter(pa.array(reason == why)), copies, sight, earlier_missing)
        for why in ("", *PASSED)
    }
    faults = by_reason[""]
    late = list_overdue(stored, replication, run, demands.grace_s)
    # BookKeeper repairs no hold: a delete that sees such a mark puts the record back.
    late = late.filter(pa.array(~quarantined[late["record"].to_numpy()]))
    lost = _count_lost(reason == "marked", by_reason["marked"], everywhere=everywhere)
    free = stored.filter(pa.array(~broken & ~is_hold))
    records = free.filter(pa.array((reason != "guarded")[~broken & ~is_hold]))
    # Bookies that were not asked show nothing: what counts is what was shown.
    beyond = entries_beyond_end.findings(copies, judged, run, seen=True, heights=heights)
    parts = [
        _find_unparsable(stored.filter(pa.array(broken)), run),
        copy_findings.findings(judged, faults, run, everywhere=everywhere),
        *([_find_unknown(judged, copies, faults, run)] if everywhere else ()),
        beyond,
        entries_beyond_end.find_lacs_beyond(copies, judged, run),
        entries_beyond_end.find_limbo(copies, judged, run),
        find_overdue(stored, late, lost, replication, run),
        find_single_copies(free, run),
        find_stuck_recoveries(records, _find_among(records, copies.filter(copies["fenced"])), run, demands.grace_s),
    ]
    if earlier_records is not None:
        keys, unknown = stored.select(list(KEY_COLUMNS)).slice(0, 0), np.full(earlier_records.num_rows, ABSENT)
        compared = compare(keys, stored, earlier_records, unknown, CATALOG_HISTORY.empty_table(), has_snapshot=True)
        parts.append(find_other_records(compared, stored, earlier_records, run, "store", "the run before"))
    counts = PlacementCounts()
    if demands.topology is not None:
        # Replication is at work on what is marked: it takes other bookies.
        settled = stored.filter(pa.array(~broken & ~is_hold & (reason != "guarded") & ~marked))
        placed, counts = find_misplaced_segments(settled, demands.topology, demands.placement, run)
        parts.append(placed)
    findings = pa.concat_tables(parts)
    unseen = np.zeros(stored.num_rows, np.bool_)
    rows = np.flatnonzero(reason == "")[faults.undecided]
    unseen[rows] = True
    reasons = reason.astype(object)
    reasons[rows] = _DOUBTS[faults.doubts]
    verdicts = give_verdicts(stored, findings, reason != "", unseen, reasons.tolist())
    grave = findings.filter(pc.not_equal(findings["severity"], "info"))
    doubted = pa.concat_tables([grave, entries_beyond_end.list_unproven(beyond, heights)])
    # Partly read ledgers get no second look: the next run reads on.
    waiting = np.zeros(stored.num_rows, np.bool_)
    waiting[rows[faults.doubts != UndecidedReason.SAMPLED]] = True
    suspect = _find_among(stored, doubted) | (waiting & name_any(stored, awaited))
    records = {why: stored.filter(pa.array(reason == why)) for why in by_reason}
    missing = [_give_missing(records[why], faults.missing, earlier_missing, run) for why, faults in by_reason.items()]
    pairs = [_give_keys(records[why], faults.pairs) for why, faults in by_reason.items()]
    return LookJudgement(
        findings,
        verdicts,
        suspect,
        pa.concat_tables(missing),
        pa.concat_tables(pairs),
        sum(faults.positions for faults in by_reason.values()),
        faults.judged,
        _give_keys(records[""], faults.coverage),
        {why: by_reason[why].positions for why in PASSED if by_reason[why].positions},
        counts,
    )


def _give_keys(records: pa.Table, rows: pa.Table) -> pa.Table:
    """Return rows that name a record by its place, with its key and its last change in place of that."""
    keys = records.select([*KEY_COLUMNS, "changed_txn"]).take(rows["row"])
    return pa.table({name: table[name] for table in (keys, rows) for name in table.column_names if name != "row"})


def _give_missing(records: pa.Table, rows: pa.Table, earlier: pa.Table | None, run: FindingRun) -> pa.Table:
    """Return MISSING of `MISSING_ROWS`; rows from an earlier look alone keep their time."""
    missing = _give_keys(records, rows).rename_columns({"changed_txn": "record_txn"})
    seen = pa.array([run.at] * missing.num_rows, MISSING.field("seen").type)
    known = missing["known"].to_numpy()
    if earlier is not None and not known.all():
        names = ["scope", "ledger", "bookie"]
        times = {
            tuple(row[name] for name in names): row["seen"] for row in earlier.select([*names, "seen"]).to_pylist()
        }
        keys = zip(*(missing[name].to_pylist() for name in names), strict=True)
        pairs = zip(keys, known, strict=True)
        seen = pa.array([run.at if is_known else times[key] for key, is_known in pairs], seen.type)
    return sort_by_key(missing.append_column("seen", seen).select(MISSING.names).cast(MISSING))


def give_verdicts(
    ledgers: pa.Table, findings: pa.Table, skipped: Mask, undecided: Mask, reasons: Sequence[str | None]
) -> pa.Table:
    """Return VERDICTS: a note alone does not hide that a ledger was skipped, or is undecided.

    Args:
        ledgers: key columns, in key order.
        findings: of these ledgers.
        skipped: a mask over them.
        undecided: likewise.
        reasons: of the skipped and undecided ledgers.
    """
    grave = findings.filter(pc.not_equal(findings["severity"], "info"))
    words = table.verdicts(ledgers, grave, skipped, undecided)
    noted = table.verdicts(ledgers, findings, np.zeros_like(skipped), np.zeros_like(undecided))
    words = pc.if_else(pc.equal(words, CLEAN), noted, words)
    plain = pc.is_in(words, value_set=pa.array([SKIPPED, UNDECIDED]))
    columns = {
        **{name: ledgers[name] for name in KEY_COLUMNS},
        "verdict": words,
        "reason": pc.if_else(plain, pa.array(reasons, pa.string()), pa.scalar(None, pa.string())),
    }
    return pa.table(columns, schema=VERDICTS)


def raise_rows(rows: pa.Table, findings: pa.Table) -> pa.Table:
    """Return the verdicts of ledgers with findings that came after their verdicts; VERDICTS in and out.

    Args:
        rows: of these ledgers.
        findings: all that was found of them; of others, too.
    """
    skipped, undecided = (pc.equal(rows["verdict"], word).to_numpy() for word in (SKIPPED, UNDECIDED))
    return give_verdicts(rows.select(list(KEY_COLUMNS)), findings, skipped, undecided, rows["reason"].to_pylist())


def _find_among(stored: pa.Table, rows: pa.Table) -> Mask:
    """Return which ledgers have a row in another table with their keys."""
    mask = np.zeros(stored.num_rows, np.bool_)
    keys = rows.select(list(KEY_COLUMNS)).cast(pa.schema([stored.schema.field(name) for name in KEY_COLUMNS]))
    keys = keys.group_by(list(KEY_COLUMNS)).aggregate([])
    places, others = unite([stored, keys]).rows
    mask[places[(places != ABSENT) & (others != ABSENT)]] = True
    return mask


def _find_guarded(stored: pa.Table, replication: StoredReplication) -> Mask:
    named = holds.is_named(stored)
    if not replication.guarded:
        return named
    ledgers = sorted(replication.guarded, key=lambda ledger: ledger.unsigned_key)
    rows = {
        "bucket": pa.array([ledger.bucket for ledger in ledgers], pa.int16()),
        "scope": pa.array([ledger.scope for ledger in ledgers], pa.int64()),
        "ledger": pa.array([ledger.ledger for ledger in ledgers], pa.int64()),
    }
    return named | _find_among(stored, pa.table(rows))


def _count_lost(marked: Mask, faults: CopyFaults, *, everywhere: bool) -> Ints:
    """Return how many entries of each closed, marked ledger no bookie has; 0 for other ledgers."""
    lost = np.zeros(len(marked), np.int64)
    if everywhere:
        rows = faults.faults.filter(pc.equal(faults.faults["fault"], int(Fault.LOST)))
        lost[np.flatnonzero(marked)[rows["row"].to_numpy()]] = rows["entries"].to_numpy()
    return lost


def _find_unknown(judged: pa.Table, copies: pa.Table, faults: CopyFaults, run: FindingRun) -> pa.Table:
    """Return a finding for each ledger that entries are lost of and no bookie knows, as `recover` has it."""
    lost = faults.faults.filter(pc.equal(faults.faults["fault"], int(Fault.LOST)))
    records = judged.take(lost["row"].unique())
    of_these = copies.filter(pc.is_in(copies["ledger"], value_set=records["ledger"].combine_chunks()))
    return diff.findings(diff.list_unknown(records.filter(pa.array(~_find_among(records, of_these)))), run)


def _find_unparsable(broken: pa.Table, run: FindingRun) -> pa.Table:
    """Return a finding for each record that cannot be read, as `recover` has it."""
    statements = [FindingStatement("store", "raw", broken["error"])]
    keys = broken.select(list(KEY_COLUMNS))
    return table.make_ledger_findings(Category.METADATA_UNPARSABLE, keys, statements, run, subject="raw")
