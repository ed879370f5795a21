"""One ledger, from every side that was given: who holds what, what follows from it, what the store and a plan say."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from reconcile import clusters
from reconcile.compare.knowledge import Knowledge
from reconcile.compare.single_ledger import StoredLedger, decide_ledger, read_only_ledger, select_ledger
from reconcile.explain.disagreements import apply_rules, compare_with_store, describe_faults, read_plan_findings
from reconcile.explain.field_evidence import ExplainedField, alternatives, fields
from reconcile.explain.grid import GridSegment, grid
from reconcile.explain.ledger_copies import SourceCopy, describe_copies, describe_damage
from reconcile.explain.timeline import describe_deletion, describe_record, describe_timeline
from reconcile.explain.verdict import Standing, VerdictFacts, judge
from reconcile.findings.refusal_texts import REASONS
from reconcile.plan.actions import LEAVE, Guard
from reconcile.plan.alternatives import FROM_BOOKIES, GUARDED
from reconcile.plan.manifest import read_plan_manifest
from reconcile.rules import sides, snapshot_findings
from reconcile.rules.segments.copies import CopyFaults, UndecidedReason
from reconcile.rules.segments.member_names import rename_records, require_other_names
from reconcile.topics import topic_of
from reconcile.words import count_noun
from recovery.codecs import ledger_metadata
from recovery.dataset import Dataset, read_inventories
from recovery.infer.lost_disks import find_lost_bookies
from recovery.infer.refusal import Refusal
from recovery.model import tables
from recovery.model.coverage import Coverage
from recovery.model.ids import LedgerId
from recovery.model.metadata import LedgerMetadata, LedgerState

_GUARDS: Final = {
    Guard.LOCK: "under a replication lock of the ledger, made first: no copy is deleted until it is settled",
    Guard.NAMED: "without a lock: its record names all bookies that may hold entries, and replication must stay "
    "disabled",
    Guard.RELEASE: "then its guard's lock is removed: it is settled",
}
"""What a plan does besides with a ledger's lock."""


@dataclass(frozen=True, slots=True)
class ExplanationCoverage:
    """What was looked at for an explanation, and what was not.

    Attributes:
        bookies: which of the cluster's were.
        stores: stores and catalogs.
        stores_with_gaps: those of them that were not read whole.
        plan: folder of the plan; None: none was given.
    """

    bookies: Coverage
    stores: tuple[str, ...]
    stores_with_gaps: tuple[str, ...]
    plan: str | None

    @property
    def may_exist_elsewhere(self) -> bool:
        """Whether something that was not looked at may know the ledger."""
        return not self.bookies.scanned or not self.bookies.is_whole or bool(self.stores_with_gaps)

    def to_json(self) -> dict[str, Any]:
        """Return it as ``--json`` has it."""
        return {
            "bookies_looked_at": list(self.bookies.scanned),
            "not_scanned": list(self.bookies.not_scanned),
            "not_complete": list(self.bookies.not_complete),
            "members_known_from": list(self.bookies.members_known_from),
            "stores": list(self.stores),
            "stores_with_gaps": list(self.stores_with_gaps),
            "plan": self.plan,
            "may_exist_elsewhere": self.may_exist_elsewhere,
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that is known of one ledger.

    Attributes:
        ledger: which.
        verdict: in a sentence.
        standing: whether there is something to be done about it.
        outcome: of the reconstruction; empty where there is none.
        origin: what the reconstruction is from.
        reason: why it is not restored, in words; empty where it is.
        settles: what would settle that.
        copies: who holds what.
        fields: of the proposed record.
        sides: how bookies, the store and snapshots stand to each other, and which of them is right.
        timeline: what happened when, as far as anything shows it.
        references: what upper layers know of it.
        alternatives: other readings, in words.
        grid: lines.
        stored: what the store's record says, without its password; None: it has none, or none was looked at.
        disagreements: between the store and the bookies.
        actions: what the plan does.
        damage: of bookies' disks that names the ledger.
        coverage: what was looked at, and what was not.
        seen: what scrutinies know of its copies.
    """

    ledger: LedgerId
    verdict: str
    standing: Standing
    outcome: str
    origin: str
    reason: str
    settles: str
    copies: tuple[SourceCopy, ...]
    fields: tuple[ExplainedField, ...]
    sides: tuple[str, ...]
    timeline: tuple[str, ...]
    references: tuple[str, ...]
    alternatives: tuple[str, ...]
    grid: tuple[str, ...]
    stored: Mapping[str, str] | None
    disagreements: tuple[str, ...]
    actions: tuple[str, ...]
    damage: tuple[str, ...]
    coverage: ExplanationCoverage
    seen: tuple[str, ...] = ()


def explain(
    ledger: LedgerId,
    inventories: Sequence[Dataset],
    stored: Sequence[StoredLedger],
    plan: Dataset | None,
    knowledge: Knowledge,
    *,
    has_store: bool,
    references: Sequence[clusters.InstanceSource] = (),
    faults: CopyFaults | None = None,
    seen: Sequence[str] = (),
) -> Explanation:
    """Say what is known of one ledger: without a plan, what `recover` would decide with the same evidence.

    Args:
        ledger: which.
        inventories: of different bookies of one cluster.
        stored: what a store and snapshots have of it.
        plan: a plan that may have an action for it.
        knowledge: what the operator knows.
        has_store: the first of `stored` is the store, or its capture.
        references: the stores that upper layers' records were read from.
        faults: of the copies that the store's record asks for, by scrutinies and inventories; None: not known.
        seen: the same in words.

    Raises:
        DatasetError: a file is gone or damaged.
        InputError: two sources are of two clusters.
    """
    copies = pa.concat_tables(
        [tables.COPIES.empty_table(), *(read_only_ledger(i, "copies", ledger) for i in inventories)]
    )
    bookies = read_inventories(inventories, "bookies")
    require_other_names(knowledge.aliases, bookies["bookie"].to_pylist())
    stored = [replace(side, row=rename_records(side.row, knowledge.aliases)) for side in stored]
    of_bookies = clusters.of_bookies(bookies)
    # As recover: that the store is not the bookies' own is a finding, unless it is all that names a cluster.
    compared = stored[1:] if has_store and any(source.instance_id for source in of_bookies) else stored
    named_here = [clusters.InstanceSource(f"snapshot {side.source}", side.instance_id) for side in compared]
    clusters.require_one([*of_bookies, *named_here, *references])
    coverage = _cover(bookies, stored, plan, knowledge)
    if knowledge.lost:
        damage = read_inventories(inventories, "damage")
        named_lost = [replace(disk, bookie=knowledge.aliases.get(disk.bookie, disk.bookie)) for disk in knowledge.lost]
        gone = find_lost_bookies(named_lost, bookies, damage, coverage.bookies.not_scanned)
        coverage = replace(coverage, bookies=coverage.bookies.without_lost(gone))
    live, snapshots = (stored[0], stored[1:]) if has_store else (None, stored)
    # As recover takes them: the newest first.
    snapshots = sorted(snapshots, key=lambda side: (-side.at, -(side.txn or 0)))
    known = decide_ledger(ledger, inventories, live, snapshots, copies, bookies, plan, knowledge, coverage.bookies)
    row, named = known.row, select_ledger(knowledge.references, ledger)
    record = _record(live.row) if live else None
    actions = _describe_actions(plan, ledger)
    stored_row = live.row if live is not None else tables.CATALOG_LEDGERS.empty_table()
    disagreements = (
        *compare_with_store(
            row,
            live,
            looked_at=bool(inventories),
            is_newer=faults is not None
            and bool(np.isin(faults.doubts, (UndecidedReason.UNDATED, UndecidedReason.CHANGED)).any()),
        ),
        *apply_rules(
            row,
            copies,
            stored_row,
            named,
            looked_at=bool(coverage.bookies.scanned),
            seen=not coverage.may_exist_elsewhere,
        ),
        *(read_plan_findings(plan, ledger) if plan is not None else ()),
        *(() if faults is None else describe_faults(stored_row, faults)),
    )
    relations = _compare(ledger, copies, live, snapshots, plan, row)
    reason, settles = _describe_refusal(row)
    keeps_times = all(side.keeps_times for side in stored)
    verdict, standing = judge(
        VerdictFacts(
            ledger=ledger,
            row=row,
            reason=reason,
            is_in_store=stored_row.num_rows > 0,
            record=record,
            is_guarded=live is not None and live.is_guarded,
            is_in_snapshot=any(side_of.row.num_rows for side_of in stored if side_of is not live),
            has_actions=bool(actions),
            deletion=_describe_tombstone(named, ledger, plan)
            or next(filter(None, (describe_deletion(seen, keeps_times=keeps_times) for seen in relations)), None),
            disagreements=[side_of.category for side_of in disagreements],
            may_exist_elsewhere=coverage.may_exist_elsewhere,
        )
    )
    return Explanation(
        ledger=ledger,
        verdict=verdict,
        standing=standing,
        outcome=row["outcome"] if row else "",
        origin=known.origin,
        reason=reason,
        settles=settles,
        copies=tuple(describe_copies(copies)),
        fields=tuple(fields(row, copies, knowledge, known.shapes)),
        sides=tuple(_describe_sides(relations, copies, live, snapshots, keeps_times=keeps_times)),
        timeline=tuple(describe_timeline(row, stored)),
        references=tuple(_describe_references(named, ledger, plan)),
        alternatives=(*alternatives(row), *_describe_instead(known.shown)),
        grid=tuple(grid(copies, _propose_segments(row, record))),
        stored=_describe_record(live, record),
        disagreements=tuple(side_of.text for side_of in disagreements),
        actions=actions,
        damage=tuple(describe_damage(inventories, ledger)),
        coverage=coverage,
        seen=tuple(seen),
    )


def _cover(
    bookies: pa.Table, stored: Sequence[StoredLedger], plan: Dataset | None, knowledge: Knowledge
) -> ExplanationCoverage:
    scanned = {row["bookie"]: row["complete"] for row in bookies.select(["bookie", "complete"]).to_pylist()}
    members: dict[str, set[str]] = {}
    if knowledge.expected is not None:
        members["expected by the operator"] = {knowledge.aliases.get(name, name) for name in knowledge.expected}
    for source in stored:
        if source.members:
            members[f"with a cookie in {source.source}"] = {knowledge.aliases.get(n, n) for n in source.members}
    planned = read_plan_manifest(plan).coverage if plan is not None else Coverage()
    # What the plan knew of the cluster is known, whatever is given besides.
    for name in planned.members_known_from:
        members.setdefault(name, set()).update((*planned.scanned, *planned.not_scanned))
    if not scanned:
        # Without inventories the plan's own coverage is what its rows rest on.
        scanned = dict.fromkeys(planned.complete, True) | dict.fromkeys(planned.not_complete, False)
    return ExplanationCoverage(
        bookies=Coverage.count(scanned, members),
        stores=tuple(source.source for source in stored),
        stores_with_gaps=tuple(source.source for source in stored if not source.complete),
        plan=None if plan is None else plan.path,
    )


def _describe_refusal(row: Mapping[str, Any] | None) -> tuple[str, str]:
    if row is None or not row["reason"]:
        return "", ""
    try:
        meaning, settles = REASONS[Refusal(row["reason"])]
    except ValueError:
        return str(row["reason"]), ""
    return meaning, settles


def _describe_references(rows: pa.Table | None, ledger: LedgerId, plan: Dataset | None) -> Iterator[str]:
    """Say what upper layers know of the ledger: from what was given, else as the plan has it."""
    if rows is None:
        for side in read_only_ledger(plan, "sides", ledger).to_pylist() if plan is not None else ():
            if side.get("tombstone") is not None:
                yield f"tombstone: {side['tombstone']}"
            if side.get("referenced") is not None:
                yield f"owner: {side['owner'] or 'not named'}" if side["referenced"] else "none of those asked names it"
        return
    for row in rows.to_pylist():
        if row["tombstone"] is not None:
            yield f"tombstone: {row['tombstone']} ({row['source']})"
            continue
        ends = [f"{name.replace('_', ' ')} {row[name]}" for name in ("last_entry", "length") if row[name] is not None]
        gone = ["deleted: " + (row["deletion"] or "as it says")] if row["deleted"] else []
        yield "; ".join([f"owner: {row['owner'] or 'not named'}", *ends, *gone]) + f" ({row['source']})"
    if not rows.num_rows:
        yield "none of those asked names it"


def _describe_tombstone(rows: pa.Table | None, ledger: LedgerId, plan: Dataset | None) -> str | None:
    """Say that bkmeta purged the ledger, as its tombstone has it; None: no tombstone names it."""
    sides = [] if plan is None else read_only_ledger(plan, "sides", ledger).to_pylist()
    texts = [row.get("tombstone") for row in [*(() if rows is None else rows.to_pylist()), *sides]]
    purged = next((text for text in texts if text is not None), None)
    return None if purged is None else f"its tombstone says: bkmeta {purged}"


def _compare(
    ledger: LedgerId,
    copies: pa.Table,
    live: StoredLedger | None,
    snapshots: Sequence[StoredLedger],
    plan: Dataset | None,
    decided: Mapping[str, Any] | None,
) -> list[Mapping[str, Any]]:
    """Return the ledger's row of SIDES, or none: from what was given, else as the plan has it."""
    if live is None and not snapshots:
        return list(read_only_ledger(plan, "sides", ledger).to_pylist()) if plan is not None else []
    key = copies.select(list(tables.KEY_COLUMNS)).slice(0, 1)
    stored = live.row if live is not None else tables.CATALOG_LEDGERS.empty_table()
    records, seen = sides.pick_newest_records([(source.row, source.txn) for source in snapshots])
    history = pa.concat_tables(
        [tables.CATALOG_HISTORY.empty_table(), *(source.history for source in (live, *snapshots) if source is not None)]
    )
    compared = sides.compare(key, stored, records, seen, history, has_snapshot=bool(snapshots))
    if decided is not None and key.num_rows:
        shown = pa.Table.from_pylist([dict(decided)], schema=tables.RECONSTRUCTION)
        compared = snapshot_findings.mark_doubted(compared, shown)
    rows: list[Mapping[str, Any]] = compared.sides.to_pylist()
    return rows


def _describe_sides(
    relations: Sequence[Mapping[str, Any]],
    copies: pa.Table,
    live: StoredLedger | None,
    snapshots: Sequence[StoredLedger],
    *,
    keeps_times: bool,
) -> Iterator[str]:
    """Say how the three sides stand to each other, and what each of those that were given has."""
    for row in relations:
        yield f"{row['relation']}: {sides.WORDS[sides.Relation(row['relation'])]}; right: {row['right']}"
        if snapshots and row["relation"] == sides.Relation.BOOKIES_ONLY:
            yield sides.AFTER_SNAPSHOT
        deletion = describe_deletion(row, keeps_times=keeps_times)
        if deletion is not None:
            yield deletion
        if live is None and not snapshots:
            continue
        bookies = sorted(set(copies["bookie"].to_pylist()))
        yield f"bookies: {', '.join(bookies) if bookies else 'none of those looked at'}"
        for name, source in [("store", live), *(("earlier", source) for source in snapshots)]:
            if source is not None:
                raw = source.row["raw"][0].as_py() if source.row.num_rows else None
                yield f"{name}: {'no record' if raw is None else describe_record(raw)} ({source.source})"


def _record(rows: pa.Table) -> LedgerMetadata | None:
    if not rows.num_rows or rows["error"][0].as_py() is not None:
        return None
    return ledger_metadata.decode(rows["raw"][0].as_py())


def _describe_record(live: StoredLedger | None, record: LedgerMetadata | None) -> Mapping[str, str] | None:
    if live is None or not live.row.num_rows:
        return None
    version = {"source": live.source, "version": str(live.row["version"][0].as_py())}
    if record is None:
        return {**version, "error": str(live.row["error"][0].as_py())}
    topic = topic_of([{"key": key, "value": value} for key, value in record.custom], None)
    return {
        **version,
        **({"topic": topic} if topic else {}),
        "format": str(record.format),
        "state": str(record.state),
        "E/W/A": f"{record.ensemble_size}/{record.write_quorum}/{record.ack_quorum}",
        "last entry": "open" if record.last_entry is None else str(record.last_entry),
        "length": "open" if record.length is None else str(record.length),
        "digest": str(record.digest) if record.digest else "none in the record",
        "password": {None: "none in the record", b"": "empty"}.get(record.password, "set, not shown"),
        "segments": " ".join(f"{s.first}:[{','.join(s.members)}]" for s in record.segments),
        "custom": ", ".join(f"{key} ({len(value)} bytes)" for key, value in record.custom) or "none",
    }


def _describe_actions(plan: Dataset | None, ledger: LedgerId) -> tuple[str, ...]:
    """Say what the plan does with a ledger, and what a person can choose instead."""
    actions = []
    for action in read_only_ledger(plan, "actions", ledger).to_pylist() if plan is not None else ():
        condition = "if absent" if action["expects"] is None else f"if version {action['expects']}"
        waits = action["op"] == LEAVE
        actions.append(f"nothing to {action['key']}" if waits else f"{action['op']} {action['key']} {condition}")
        actions += [_GUARDS[action["guard"]]] if action["guard"] is not None else []
        actions += [
            f"instead, if you choose it: {other['label']}, which reads as {other['reads_as']}"
            for other in action["alternatives"]
        ]
    return tuple(actions)


def _propose_segments(row: Mapping[str, Any] | None, record: LedgerMetadata | None) -> list[GridSegment]:
    """Return the segments that a grid is drawn against: the proposal's, else the store's, but never a hold's."""
    if row is not None and row["outcome"] in ("restored", "guarded"):
        size, write = row["ensemble_size"], row["write_quorum"]
        return [GridSegment(s["first"], s["members"], size, write) for s in row["segments"]]
    if record is not None and record.state is LedgerState.CLOSED:
        return [GridSegment(s.first, s.members, record.ensemble_size, record.write_quorum) for s in record.segments]
    return []


def _describe_instead(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Say what bookies show of a ledger that something else speaks against."""
    for row in rows:
        end = "left open" if row["last_entry"] is None else count_noun(row["last_entry"] + 1, "entry", "entries")
        label = GUARDED if row["outcome"] == "guarded" else FROM_BOOKIES
        yield f"{label}: reads as {row['state']}, {end}; chosen by plan edit --choose"
