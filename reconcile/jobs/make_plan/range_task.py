"""The tasks of a bucket range: what Spark runs for each, and what each says to the driver."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.compare import decide, range_findings
from reconcile.compare.decide import Case
from reconcile.compare.evidence import find_collisions
from reconcile.compare.outcomes import guard_beyond_locks
from reconcile.compare.renamed_bookies import guard_renamed
from reconcile.findings.categories import TRAITS, Category
from reconcile.findings.table import FindingRun
from reconcile.jobs.make_plan.reference_counts import count_references
from reconcile.jobs.make_plan.request import PlanRequest
from reconcile.plan import alternatives
from reconcile.plan.actions import (
    KEEP,
    LEAVE,
    REUSE_LOCK_TIME,
    Guard,
    make_ledger_actions,
    make_reuse_locks,
    make_reuse_releases,
    number_actions,
    select_released,
)
from reconcile.plan.entry_shares import add_highest, count_entries
from reconcile.plan.manifest import ReferenceCounts
from reconcile.plan.plan_hash import Hashes
from reconcile.rules import diff, entries_beyond_end, holds, id_reuse, used_ids
from reconcile.rules.segments.newer_records import find_newer
from reconcile.rules.used_ids import UsedNumbers
from recovery.codecs.replication_lock import MAX_LOCKS, ledger_of_lock, read_reuse_end
from recovery.codecs.store_kind import kind_of
from recovery.dataset import SPILL, read_part, select_rows, sort_by_key, write_part
from recovery.infer.prior import Prior
from recovery.infer.references import SCHEMA
from recovery.manifest import Part
from recovery.model import tables
from recovery.model.ids import BUCKETS, LedgerId
from recovery.place import to_place

REFERENCES: Final = "references"
"""Name of the part, beside those of the plan, that every task reads references from."""
_OF_ABSENCE: Final = pa.array([str(category) for category, traits in TRAITS.items() if traits.of_absence])


class LockRoom:
    """How many locks of ids with two ledgers each bucket still has a place for.

    Args:
        share: locks that a plan may make in each bucket.
        buckets: of the guards' locks that it makes; they come first.
    """

    def __init__(self, share: int, buckets: Iterable[int]) -> None:
        self._share = share
        self._made = Counter(buckets)

    def take(self, bucket: int) -> bool:
        """Take a place in a bucket; False: it has none left."""
        has_place = self._made[bucket] < self._share
        self._made[bucket] += has_place
        return has_place


@dataclass(frozen=True, slots=True)
class RangeCounts:
    """What was counted in a bucket range, or in several.

    Attributes:
        ledgers: on bookies.
        present: of these, in the store.
        stored: records of the store.
        unheld: of these, on no bookie that was looked at.
        newer: records of the store that are newer than what was seen of their bookies.
        still_held: holds of an earlier plan in the store.
        still_guarded: guarded records of an earlier plan in the store that stay guarded.
        released: of holds and guarded records, replaced.
        settled: of these, guarded records whose guard ends.
        named: guarded by names alone, without a lock.
        short: lost ledgers that come back without entries that are lost.
        beyond: lost ledgers that come back with an end above which bookies hold entries.
        looked_at: ledgers of any side.
        left: actions that write nothing until a person chooses.
        reused: ids in the store that two ledgers have.
        reuse_locks: of these, those whose older copies a lock keeps for a time.
        outcomes: of lost ledgers, each with how many there are.
        entries: of lost ledgers, by outcome; lost: those that no bookie serves, of ledgers that come back.
        reasons: of holds; doubts: of guarded ledgers.
        findings: by category.
        proven: critical ones that were shown, by category.
        relations: of bookies, store and snapshots.
        verdicts: of ledgers.
    """

    ledgers: int = 0
    present: int = 0
    stored: int = 0
    unheld: int = 0
    newer: int = 0
    still_held: int = 0
    still_guarded: int = 0
    released: int = 0
    settled: int = 0
    named: int = 0
    short: int = 0
    beyond: int = 0
    looked_at: int = 0
    left: int = 0
    reused: int = 0
    reuse_locks: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    entries: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)
    doubts: Mapping[str, int] = field(default_factory=dict)
    findings: Mapping[str, int] = field(default_factory=dict)
    proven: Mapping[str, int] = field(default_factory=dict)
    relations: Mapping[str, int] = field(default_factory=dict)
    verdicts: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: "RangeCounts") -> "RangeCounts":
        """Return both as one; counts by name are in the order of their names."""
        sums: dict[str, Any] = {}
        for name in self.__slots__:
            mine, its = getattr(self, name), getattr(other, name)
            sums[name] = mine + its if isinstance(mine, int) else dict(sorted((Counter(mine) + Counter(its)).items()))
        return RangeCounts(**sums)


@dataclass(frozen=True, slots=True)
class RangeResult:
    """What a bucket range became.

    Attributes:
        parts: table → its file.
        hashes: of the buckets.
        counts: of its ledgers, findings and actions.
        references: how references and its ledgers agree; None: none were given.
        used: what its ids say of the generators.
    """

    parts: Mapping[str, Part]
    hashes: Hashes
    counts: RangeCounts
    references: ReferenceCounts | None
    used: UsedNumbers

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "RangeResult":
        """Read it as a task gives it."""
        return cls(
            {name: Part(**part) for name, part in values["parts"].items()},
            Hashes(**{name: {int(k): v for k, v in buckets.items()} for name, buckets in values["hashes"].items()}),
            RangeCounts(**values["counts"]),
            None if values["references"] is None else ReferenceCounts.from_json(values["references"]),
            UsedNumbers(**values["used"]),
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as a task gives it to the driver."""
        return {
            "parts": {name: asdict(part) for name, part in self.parts.items()},
            # A hash of every bucket: `asdict` would copy each.
            "hashes": {"actions": self.hashes.actions, "settled": self.hashes.settled},
            "counts": asdict(self.counts),
            "references": None if self.references is None else asdict(self.references),
            "used": asdict(self.used),
        }


@dataclass(frozen=True, slots=True)
class RangeTasks:
    """The tasks of a bucket range, and everything that they need; small, and picklable.

    Attributes:
        request: what the plan is made of.
        out: folder of the plan.
        case: what all ranges are decided from.
        run: of the findings.
    """

    request: PlanRequest
    out: str
    case: Case
    run: FindingRun

    def count_shapes(self, buckets: range) -> dict[str, Any]:
        """Return what a range says of all the others."""
        return decide.count_range(self.case, buckets, self._read_references(buckets))

    def write_collisions(self, part: range) -> dict[str, Any]:
        """Write the ledgers of a range of lower halves that stand in several scopes; return the part."""
        rows = find_collisions([*self.request.inventories, *self.case.evidence.datasets], part)
        return asdict(write_part(to_place(self.out), SPILL, f"collisions-{part.start:04d}", [rows], secret=True))

    def make_part(self, prior: Prior, buckets: range) -> dict[str, Any]:
        """Write a range's part of the plan; return its `RangeResult` as JSON.

        Args:
            prior: of all ranges.
            buckets: the range.
        """
        evidence, references = self.case.evidence, self._read_references(buckets)
        given = self.request.references
        # Tombstones name deleted ledgers only: of the others they say nothing.
        listed = references if given is not None and given.names_all else None
        copies = self.case.copies(buckets)
        known = evidence.read_tables(buckets, references)
        sides = decide.decide_range(self.case, prior, copies, known, evidence.find_issued(self.request.layout))
        sides = guard_renamed(evidence, sides, buckets)
        rows, stored = sides.outcomes(), sides.stored
        matched = diff.match(rows, stored)
        locked = evidence.list_guarded()
        under_guard = holds.mark_guarded(stored, locked) | holds.is_named(stored)
        # Holds that become readable want a lock as well; who is guarded by names gets none.
        is_replaced = (holds.is_open_hold(stored) | holds.is_named(stored))[matched.stored_rows]
        lacking = np.append(matched.missing, matched.held_rows[is_replaced])
        reuse_locks = self._list_reuse_locks()
        share = self._share_locks(len(locked) + len(reuse_locks))
        rows, named = guard_beyond_locks(rows, lacking, share, self.case.list_hiding, copies)
        rows = add_highest(rows, copies)
        missing = rows.take(pa.array(matched.missing))
        guards = pc.if_else(pa.array(named[matched.missing]), str(Guard.NAMED), pa.scalar(None, pa.string()))
        missing = missing.append_column("guard", guards)
        held = missing.filter(pc.equal(missing["outcome"], "held"))
        secrets = os.urandom(holds.HOLD_PASSWORD_SIZE * held.num_rows)
        wanted = missing.filter(pc.is_in(missing["outcome"], pa.array(["restored", "guarded", "held"])))
        released, of_store = select_released(rows, stored, matched, under_guard, named)
        wanted = sort_by_key(pa.concat_tables([wanted, released], promote_options="default"))
        actions = make_ledger_actions(wanted, self.request.layout, self.request.passwords, secrets)
        readable = wanted.filter(pc.equal(wanted["outcome"], "guarded"))
        kept = holds.find_holds(select_rows(stored, pa.array(~of_store & ~holds.is_quarantine(stored))))
        waiting = missing.filter(pc.equal(missing["outcome"], "waiting"))
        unsolved = pa.concat_tables([*(t.select(kept.schema.names).cast(kept.schema) for t in (held, waiting)), kept])
        lost = holds.find_lost(wanted.filter(pc.equal(wanted["outcome"], "restored")), self.run)
        # What is proposed is looked at as what is stored: a record that leaves entries out says so.
        readable_rows = wanted.filter(pc.is_in(wanted["outcome"], pa.array(["restored", "guarded"])))
        seen = evidence.everywhere and evidence.looked_at
        beyond = entries_beyond_end.findings(copies, readable_rows, self.run, seen=seen, side="plan")
        sight = self.case.see_bookies()
        newer = find_newer(stored, sight)
        disagreements = diff.disagreements(rows, stored, matched, newer)
        if not evidence.looked_at:
            disagreements = disagreements.filter(pc.not_equal(disagreements["category"], Category.NOT_ON_BOOKIES))
        stated = [
            diff.findings(disagreements, self.run),
            range_findings.find_all(evidence, sides, copies, sight, buckets, self.run, references),
        ]
        findings = pa.concat_tables(
            [
                *(holds.drop_compared(part, stored, under_guard) for part in stated),
                holds.findings(unsolved, self.run),
                holds.find_guarded(readable, self.run),
                lost,
                beyond,
                holds.find_reopening(released, self.run),
            ]
        )
        names_all = listed is not None
        compared, looked_at = range_findings.give_verdicts(
            evidence, sides, findings, references, newer=newer, names_all=names_all
        )
        layout, passwords = self.request.layout, self.request.passwords
        hiding = self.case.list_hiding
        actions, left = alternatives.offer_alternatives(sides, layout, passwords, actions, copies, hiding)
        locks = self._make_reuse_locks(
            [row for row in reuse_locks if row["bucket"] in buckets],
            id_reuse.find_strays(copies, stored, findings),
            stored,
            under_guard,
            LockRoom(share, actions.filter(pc.equal(actions["guard"], str(Guard.LOCK)))["bucket"].to_pylist()),
        )
        if locks.num_rows:
            actions = number_actions([actions, locks])
        name = f"buckets-{buckets.start:04d}-{buckets.stop - 1:04d}"
        contents = {"actions": actions, "findings": findings, "reconstruction": rows, "sides": compared}
        parts = {
            table: write_part(to_place(self.out), table, name, [content], secret=True)
            for table, content in contents.items()
        }
        hashes = Hashes()
        hashes.add(actions, rows)
        counts = RangeCounts(
            ledgers=rows.num_rows,
            present=len(matched.held_rows),
            stored=stored.num_rows,
            unheld=len(matched.unheld),
            newer=int(newer.sum()),
            still_held=kept.num_rows,
            still_guarded=int((under_guard & ~of_store).sum()),
            released=released.num_rows,
            settled=int(
                pc.sum(
                    pc.and_(
                        pc.and_(pc.equal(released["outcome"], "restored"), pa.array(under_guard[of_store])),
                        pc.fill_null(pc.not_equal(released["guard"], str(Guard.LOCK)), fill_value=True),
                    )
                ).as_py()
                or 0
            ),
            named=int(pc.sum(pc.equal(wanted["guard"], str(Guard.NAMED))).as_py() or 0),
            short=int(pc.sum(pc.equal(lost["category"], str(Category.ENTRY_LOST))).as_py() or 0),
            beyond=beyond.num_rows,
            looked_at=looked_at,
            left=left + int(pc.sum(pc.equal(locks["op"], LEAVE)).as_py() or 0),
            reused=_count_reused(findings, stored),
            reuse_locks=int(pc.sum(pc.equal(locks["op"], KEEP)).as_py() or 0),
            outcomes=count_values(missing["outcome"]),
            entries=count_entries(missing),
            reasons=count_values(held["reason"]),
            doubts=count_values(readable["reason"]),
            findings=count_values(findings["category"]),
            proven=count_values(findings.filter(self._is_proven(findings))["category"]),
            relations=count_values(compared["relation"]),
            verdicts=count_values(compared["verdict"]),
        )
        used = used_ids.numbers(
            self.request.layout, used_ids.gather_ids_of_ledgers(compared, sides.history, references)
        )
        counted = None if listed is None else count_references(listed, rows, stored)
        return RangeResult(parts, hashes, counts, counted, used).to_json()

    def _make_reuse_locks(
        self,
        standing: list[dict[str, Any]],
        places: npt.NDArray[np.int64],
        stored: pa.Table,
        under_guard: npt.NDArray[np.bool_],
        room: "LockRoom",
    ) -> pa.Table:
        """Return the actions that make locks of ids that two ledgers have, and remove those that are not needed now.

        Args:
            standing: such locks that the store has, of the range.
            places: rows of the store that want one.
            stored: CATALOG_LEDGERS of the store.
            under_guard: which of these a guard's lock keeps.
            room: for locks, beside those of guards.
        """
        if not kind_of(self.request.layout).has_replication:
            return tables.ACTIONS.empty_table()
        places = places[~(under_guard | holds.is_hold(stored))[places]]
        wanted = stored.select(list(tables.KEY_COLUMNS)).take(pa.array(places))
        lock_of = {LedgerId(row["scope"], row["ledger"]): row for row in standing}
        needed = {LedgerId(row["scope"], row["ledger"]) for row in wanted.to_pylist()}
        missing = [
            LedgerId(row["scope"], row["ledger"]) not in lock_of and room.take(row["bucket"])
            for row in wanted.to_pylist()
        ]
        parts = [tables.ACTIONS.empty_table()]
        if any(missing):
            parts.append(make_reuse_locks(wanted.filter(pa.array(missing)), self.run.at + REUSE_LOCK_TIME))
        if standing:
            columns = {name: [row[name] for row in standing] for name in standing[0] if name != "end"}
            over = [
                row["end"] <= self.run.at or LedgerId(row["scope"], row["ledger"]) not in needed for row in standing
            ]
            parts.append(
                make_reuse_releases(pa.table({**columns, "op": ["remove" if is_past else LEAVE for is_past in over]}))
            )
        return pa.concat_tables(parts)

    def _list_reuse_locks(self) -> list[dict[str, Any]]:
        """Return the locks of ids with two ledgers that the store has: key, path, version, raw, end."""
        live = self.case.evidence.live
        if live is None:
            return []
        rows = live.dataset.read("nodes", columns=["path", "kind", "raw", "owner", "version"])
        listed = []
        for row in rows.filter(pc.equal(rows["kind"], "lock")).to_pylist():
            ledger, end = ledger_of_lock(row["path"]), read_reuse_end(row["raw"], row["owner"] or 0)
            if ledger is not None and end is not None:
                key = {"bucket": ledger.bucket, "scope": ledger.scope, "ledger": ledger.ledger}
                listed.append({**key, **{name: row[name] for name in ("path", "version", "raw")}, "end": end})
        return sorted(listed, key=lambda row: tuple(row[name] for name in tables.KEY_COLUMNS))

    def _share_locks(self, there: int) -> int:
        """Return how many locks a plan may make in each bucket; there: how many the store has."""
        return max(0, MAX_LOCKS - there) // BUCKETS if kind_of(self.request.layout).has_replication else 0

    def _is_proven(self, findings: pa.Table) -> pa.ChunkedArray:
        """Say which findings are critical and were shown: absence counts only where every bookie was looked at."""
        critical = pc.equal(findings["severity"], "critical")
        if self.case.evidence.everywhere:
            return critical
        return pc.and_not(critical, pc.is_in(findings["category"], _OF_ABSENCE))

    def _read_references(self, buckets: range) -> pa.Table | None:
        """Return the references of a range, which the driver wrote where every task reads them."""
        if self.request.references is None:
            return None
        wanted = [("bucket", ">=", buckets.start), ("bucket", "<", buckets.stop)]
        return read_part(to_place(self.out), f"{SPILL}/{REFERENCES}.parquet", filters=wanted, schema=SCHEMA)


def _count_reused(findings: pa.Table, stored: pa.Table) -> int:
    """Return how many ids of the store two ledgers have."""
    names = ["scope", "ledger"]
    reused = findings.filter(pc.equal(findings["category"], str(Category.ID_REUSE))).select(names)
    return int(stored.select(names).join(reused, names, join_type="left semi").num_rows)


def count_values(column: pa.ChunkedArray) -> dict[str, int]:
    """Return each value of a column, and how many rows have it."""
    return {str(row["values"]): row["counts"] for row in pc.value_counts(column).to_pylist()}
