"""What becomes of the ledgers of a bucket range: the records that are written, what is found, and their counts.

    compare          bookies, the store, snapshots and history, as `compare.decide` gives them
    choose records   lost ledgers that come back, guarded or held, and holds of the store that a record replaces
    find             what is wrong with the range, and the verdict on each of its ledgers
    propose          an action a record, alternatives, locks of ids that two ledgers have
    count            what the driver sums

Nothing is written here; random bytes and the time of the run are arguments.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.compare import decide, range_findings
from reconcile.compare.decide import Case
from reconcile.compare.evidence import BookieEvidence
from reconcile.compare.outcomes import guard_beyond_locks
from reconcile.compare.renamed_bookies import guard_renamed
from reconcile.compare.three_way import ComparedRange
from reconcile.findings.categories import TRAITS, Category
from reconcile.findings.table import FindingRun
from reconcile.plan.actions import (
    KEEP,
    LEAVE,
    Guard,
    Passwords,
    make_ledger_actions,
    number_actions,
    select_released,
)
from reconcile.plan.alternatives import offer_alternatives
from reconcile.plan.entry_shares import add_highest, count_entries
from reconcile.plan.manifest import ReferenceCounts
from reconcile.plan.range_counts import RangeCounts, count_values
from reconcile.plan.reference_counts import count_references
from reconcile.plan.reuse_locks import LockRoom, list_reuse_locks, plan_reuse_locks, share_locks
from reconcile.rules import diff, entries_beyond_end, holds, id_reuse, used_ids
from reconcile.rules.segments.newer_records import find_newer
from reconcile.rules.used_ids import UsedNumbers
from recovery.codecs.store import Layout
from recovery.dataset import select_rows, sort_by_key
from recovery.infer.prior import Prior

_OF_ABSENCE: Final = pa.array([str(category) for category, traits in TRAITS.items() if traits.of_absence])

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class RangeSettings:
    """What a plan is made for.

    Attributes:
        layout: of the target.
        passwords: that records may have the key of.
        run: of the findings.
        names_all: references are given, and what none names no upper layer refers to.
    """

    layout: Layout
    passwords: Passwords
    run: FindingRun
    names_all: bool = False


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """A bucket range of a plan.

    Attributes:
        tables: actions, findings, reconstruction and sides, by their names in a plan.
        counts: of its ledgers, findings and actions.
        references: how references and its ledgers agree; None: none were given.
        used: what its ids say of the generators.
    """

    tables: Mapping[str, pa.Table]
    counts: RangeCounts
    references: ReferenceCounts | None
    used: UsedNumbers


class ChosenRecords(NamedTuple):
    """The records of a range that a plan writes, and those of the store that stay as they are.

    Attributes:
        rows: RECONSTRUCTION of the range, guarded where no lock is left.
        matched: these and the records of the store.
        missing: the rows that the store lacks, each with its guard.
        written: rows that become records, sorted by key; also those that replace one.
        released: of these, those that replace a hold or a guarded record.
        replaced: which records of the store these replace.
        kept: holds that stay in the store.
        under_guard: which records of the store are guarded, by a lock or by names.
        share: locks that the plan may make in each bucket.
    """

    rows: pa.Table
    matched: diff.Matched
    missing: pa.Table
    written: pa.Table
    released: pa.Table
    replaced: Mask
    kept: pa.Table
    under_guard: Mask
    share: int

    def select(self, *outcomes: str) -> pa.Table:
        """Return the missing rows of some outcomes."""
        return _of_outcome(self.missing, *outcomes)


class RangeFindings(NamedTuple):
    """What is wrong with a range.

    Attributes:
        rows: FINDINGS.
        newer: which records of the store are newer than what was seen of their bookies.
        lost: of these, entries of restored ledgers that are lost.
        beyond: of these, entries above the ends of records that are written.
    """

    rows: pa.Table
    newer: Mask
    lost: pa.Table
    beyond: pa.Table


def plan_range(
    case: Case,
    prior: Prior,
    buckets: range,
    references: pa.Table | None,
    settings: RangeSettings,
    draw_bytes: Callable[[int], bytes],
) -> PlannedRange:
    """Decide what becomes of each ledger of a bucket range.

    Args:
        case: what all ranges are decided from.
        prior: of all ranges.
        buckets: the range.
        references: of the range, `infer.references.SCHEMA`; None: none were given.
        settings: what the plan is made for.
        draw_bytes: gives random bytes, for the passwords of holds.
    """
    evidence, copies = case.evidence, case.copies(buckets)
    known = evidence.read_tables(buckets, references)
    sides = decide.decide_range(case, prior, copies, known, evidence.find_issued(settings.layout))
    sides = guard_renamed(evidence, sides, buckets)
    reuse_locks = list_reuse_locks(evidence.live)
    chosen = _choose_records(case, sides, copies, settings.layout, len(reuse_locks))
    problems = _find(case, sides, chosen, copies, buckets, references, settings.run)
    compared, looked_at = range_findings.give_verdicts(
        evidence, sides, problems.rows, references, newer=problems.newer, names_all=settings.names_all
    )
    secrets = draw_bytes(holds.HOLD_PASSWORD_SIZE * chosen.select("held").num_rows)
    actions = make_ledger_actions(chosen.written, settings.layout, settings.passwords, secrets)
    actions, left = offer_alternatives(sides, settings.layout, settings.passwords, actions, copies, case.list_hiding)
    locks = plan_reuse_locks(
        settings.layout,
        settings.run.at,
        [row for row in reuse_locks if row["bucket"] in buckets],
        id_reuse.find_strays(copies, sides.stored, problems.rows),
        sides.stored,
        chosen.under_guard,
        LockRoom(chosen.share, actions.filter(pc.equal(actions["guard"], str(Guard.LOCK)))["bucket"].to_pylist()),
    )
    if locks.num_rows:
        actions = number_actions([actions, locks])
    counts = RangeCounts(
        **_count_records(chosen, sides.stored),
        **_count_findings(evidence, problems, sides.stored),
        looked_at=looked_at,
        left=left + int(pc.sum(pc.equal(locks["op"], LEAVE)).as_py() or 0),
        reuse_locks=int(pc.sum(pc.equal(locks["op"], KEEP)).as_py() or 0),
        relations=count_values(compared["relation"]),
        verdicts=count_values(compared["verdict"]),
    )
    ids = used_ids.gather_ids_of_ledgers(compared, sides.history, references)
    names_all = references is not None and settings.names_all
    return PlannedRange(
        {"actions": actions, "findings": problems.rows, "reconstruction": chosen.rows, "sides": compared},
        counts,
        count_references(references, chosen.rows, sides.stored) if names_all else None,
        used_ids.numbers(settings.layout, ids),
    )


def _choose_records(
    case: Case, sides: ComparedRange, copies: pa.Table, layout: Layout, reuse_locks: int
) -> ChosenRecords:
    """Choose the records that are written.

    Args:
        case: what all ranges are decided from.
        sides: the range, compared.
        copies: COPIES of the range.
        layout: of the target.
        reuse_locks: locks of ids that two ledgers have, in the whole store.
    """
    rows, stored = sides.outcomes(), sides.stored
    matched = diff.match(rows, stored)
    locked = case.evidence.list_guarded()
    under_guard = holds.mark_guarded(stored, locked) | holds.is_named(stored)
    # Holds that become readable want a lock as well; who is guarded by names gets none.
    is_replaced = (holds.is_open_hold(stored) | holds.is_named(stored))[matched.stored_rows]
    lacking = np.append(matched.missing, matched.held_rows[is_replaced])
    share = share_locks(layout, len(locked) + reuse_locks)
    rows, named = guard_beyond_locks(rows, lacking, share, case.list_hiding, copies)
    rows = add_highest(rows, copies)
    missing = rows.take(pa.array(matched.missing))
    guards = pc.if_else(pa.array(named[matched.missing]), str(Guard.NAMED), pa.scalar(None, pa.string()))
    missing = missing.append_column("guard", guards)
    released, replaced = select_released(rows, stored, matched, under_guard, named)
    wanted = _of_outcome(missing, "restored", "guarded", "held")
    return ChosenRecords(
        rows=rows,
        matched=matched,
        missing=missing,
        written=sort_by_key(pa.concat_tables([wanted, released], promote_options="default")),
        released=released,
        replaced=replaced,
        kept=holds.find_holds(select_rows(stored, pa.array(~replaced & ~holds.is_quarantine(stored)))),
        under_guard=under_guard,
        share=share,
    )


def _find(
    case: Case,
    sides: ComparedRange,
    chosen: ChosenRecords,
    copies: pa.Table,
    buckets: range,
    references: pa.Table | None,
    run: FindingRun,
) -> RangeFindings:
    """Return the findings of a range."""
    evidence, stored = case.evidence, sides.stored
    unsolved = [
        t.select(chosen.kept.schema.names).cast(chosen.kept.schema) for t in map(chosen.select, ("held", "waiting"))
    ]
    lost = holds.find_lost(_of_outcome(chosen.written, "restored"), run)
    # What is proposed is looked at as what is stored: a record that leaves entries out says so.
    readable = _of_outcome(chosen.written, "restored", "guarded")
    seen = evidence.everywhere and evidence.looked_at
    beyond = entries_beyond_end.findings(copies, readable, run, seen=seen, side="plan")
    sight = case.see_bookies()
    newer = find_newer(stored, sight)
    disagreements = diff.disagreements(chosen.rows, stored, chosen.matched, newer)
    if not evidence.looked_at:
        disagreements = disagreements.filter(pc.not_equal(disagreements["category"], Category.NOT_ON_BOOKIES))
    stated = [
        diff.findings(disagreements, run),
        range_findings.find_all(evidence, sides, copies, sight, buckets, run, references),
    ]
    rows = [
        *(holds.drop_compared(part, stored, chosen.under_guard) for part in stated),
        holds.findings(pa.concat_tables([*unsolved, chosen.kept]), run),
        holds.find_guarded(_of_outcome(chosen.written, "guarded"), run),
        lost,
        beyond,
        holds.find_reopening(chosen.released, run),
    ]
    return RangeFindings(pa.concat_tables(rows), newer, lost, beyond)


def _count_records(chosen: ChosenRecords, stored: pa.Table) -> dict[str, Any]:
    """Return the counts of ledgers and records, as `RangeCounts` names them."""
    was_guarded = pa.array(chosen.under_guard[chosen.replaced])
    is_settled = pc.and_(pc.equal(chosen.released["outcome"], "restored"), was_guarded)
    without_lock = pc.fill_null(pc.not_equal(chosen.released["guard"], str(Guard.LOCK)), fill_value=True)
    return {
        "ledgers": chosen.rows.num_rows,
        "present": len(chosen.matched.held_rows),
        "stored": stored.num_rows,
        "unheld": len(chosen.matched.unheld),
        "still_held": chosen.kept.num_rows,
        "still_guarded": int((chosen.under_guard & ~chosen.replaced).sum()),
        "released": chosen.released.num_rows,
        "settled": int(pc.sum(pc.and_(is_settled, without_lock)).as_py() or 0),
        "named": int(pc.sum(pc.equal(chosen.written["guard"], str(Guard.NAMED))).as_py() or 0),
        "outcomes": count_values(chosen.missing["outcome"]),
        "entries": count_entries(chosen.missing),
        "reasons": count_values(chosen.select("held")["reason"]),
        "doubts": count_values(_of_outcome(chosen.written, "guarded")["reason"]),
    }


def _count_findings(evidence: BookieEvidence, problems: RangeFindings, stored: pa.Table) -> dict[str, Any]:
    """Return the counts of findings, as `RangeCounts` names them."""
    return {
        "newer": int(problems.newer.sum()),
        "short": int(pc.sum(pc.equal(problems.lost["category"], str(Category.ENTRY_LOST))).as_py() or 0),
        "beyond": problems.beyond.num_rows,
        "reused": _count_reused(problems.rows, stored),
        "findings": count_values(problems.rows["category"]),
        "proven": count_values(problems.rows.filter(_is_proven(problems.rows, evidence))["category"]),
    }


def _of_outcome(rows: pa.Table, *outcomes: str) -> pa.Table:
    return rows.filter(pc.is_in(rows["outcome"], pa.array(outcomes)))


def _is_proven(findings: pa.Table, evidence: BookieEvidence) -> pa.ChunkedArray:
    """Say which findings are critical and were shown: absence counts only where every bookie was looked at."""
    critical = pc.equal(findings["severity"], "critical")
    if evidence.everywhere:
        return critical
    return pc.and_not(critical, pc.is_in(findings["category"], _OF_ABSENCE))


def _count_reused(findings: pa.Table, stored: pa.Table) -> int:
    """Return how many ids of the store two ledgers have."""
    names = ["scope", "ledger"]
    reused = findings.filter(pc.equal(findings["category"], str(Category.ID_REUSE))).select(names)
    return int(stored.select(names).join(reused, names, join_type="left semi").num_rows)
