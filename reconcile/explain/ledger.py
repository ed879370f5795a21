"""One ledger, from every side that was given: who holds what, what follows from it, what the store and a plan say."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.compare.knowledge import Knowledge
from reconcile.compare.single_ledger import Stored, decided, is_of, of_ledger, only
from reconcile.explain.field_evidence import HASH_DIGITS, Field, alternatives, changes, fields
from reconcile.explain.grid import Segment, grid
from reconcile.findings.categories import Category
from reconcile.findings.refusal_texts import REASONS
from reconcile.findings.table import Run
from reconcile.plan.actions import LEAVE
from reconcile.plan.alternatives import FROM_BOOKIES, reads_as
from reconcile.rules import clusters, contradicted, diff, entries_beyond_end, holds, id_reuse, reference_checks, sides
from reconcile.topics import topic_of
from recovery.codecs import ledger_metadata
from recovery.dataset import Dataset
from recovery.infer.refusal import Refusal
from recovery.model import tables
from recovery.model.coverage import Coverage
from recovery.model.ids import LedgerId
from recovery.model.metadata import LedgerMetadata, State

_MASK: Final = (1 << 64) - 1
_UNKNOWN_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
LISTED: Final = 12
"""Ranges of a copy, headers, and pieces of damage that are given one by one."""


@dataclass(frozen=True, slots=True)
class Copy:
    """What one bookie shows of the ledger in one of its sources."""

    bookie: str
    source: str
    entries: int
    ranges: tuple[str, ...]
    complete: bool
    fenced: bool
    limbo: bool
    key: str
    explicit_lac: int | None
    headers: tuple[str, ...]


class Standing(StrEnum):
    """What is to be said of a ledger in a word; stored in --json, so never renamed."""

    SETTLED = "settled"
    """It is in the store and nothing disagrees, or it comes back."""
    OPEN = "open"
    """Something is wrong, waits, or nothing knows it though everything was looked at."""
    UNDECIDED = "undecided"
    """Something does not know it, and not everything was looked at."""


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
        sides: how bookies, the store and earlier catalogs stand to each other, and which of them is right.
        timeline: what happened when, as far as anything shows it.
        references: what upper layers know of it.
        alternatives: other readings, in words.
        grid: lines.
        stored: what the store's record says, without its password; None: it has none, or none was looked at.
        disagreements: between the store and the bookies.
        actions: what the plan does.
        damage: of bookies' disks that names the ledger.
        coverage: what was looked at, and what was not.
    """

    ledger: LedgerId
    verdict: str
    standing: Standing
    outcome: str
    origin: str
    reason: str
    settles: str
    copies: tuple[Copy, ...]
    fields: tuple[Field, ...]
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


def explain(
    ledger: LedgerId,
    inventories: Sequence[Dataset],
    stored: Sequence[Stored],
    plan: Dataset | None,
    knowledge: Knowledge,
    *,
    has_store: bool,
    references: Sequence[clusters.Source] = (),
) -> Explanation:
    """Say what is known of one ledger: without a plan, what `recover` would decide with the same evidence.

    Args:
        ledger: which.
        inventories: of different bookies of one cluster.
        stored: what a store and earlier catalogs have of it.
        plan: a plan that may have an action for it.
        knowledge: what the operator knows.
        has_store: the first of `stored` is the store, or its capture.
        references: the stores that upper layers' records were read from.

    Raises:
        DatasetError: a file is gone or damaged.
        InputError: two sources are of two clusters.
    """
    copies = pa.concat_tables([tables.COPIES.empty_table(), *(only(i, "copies", ledger) for i in inventories)])
    bookies = pa.concat_tables([tables.BOOKIES.empty_table(), *(i.read("bookies") for i in inventories)])
    of_bookies = clusters.of_bookies(bookies)
    # As recover: that the store is not the bookies' own is a finding, unless it is all that names a cluster.
    compared = stored[1:] if has_store and any(source.instance_id for source in of_bookies) else stored
    named_here = [clusters.Source(f"snapshot {side.source}", side.instance_id) for side in compared]
    clusters.demand_one([*of_bookies, *named_here, *references])
    coverage = _cover(bookies, stored, plan, knowledge)
    live, earlier = (stored[0], stored[1:]) if has_store else (None, stored)
    # As recover takes them: the newest first.
    earlier = sorted(earlier, key=lambda one: (-one.at, -(one.txn or 0)))
    known = decided(ledger, inventories, live, earlier, copies, bookies, plan, knowledge, coverage.bookies)
    row, named = known.row, of_ledger(knowledge.references, ledger)
    record = _record(live.row) if live else None
    disagreements = _disagreements(row, live, looked_at=bool(inventories))
    actions, findings = _planned(plan, ledger)
    segments = _proposed(row, record)
    shown = tuple(_copies(copies))
    explained = Explanation(
        ledger=ledger,
        verdict="",
        standing=Standing.OPEN,
        outcome=row["outcome"] if row else "",
        origin=known.origin,
        reason=_why(row)[0],
        settles=_why(row)[1],
        copies=shown,
        fields=tuple(fields(row, copies, knowledge, known.shapes)),
        sides=tuple(_sides(ledger, copies, live, earlier, plan, row)),
        timeline=tuple(_timeline(row, stored)),
        references=tuple(_references(named, ledger, plan)),
        alternatives=(*alternatives(row), *_shown_instead(known.shown)),
        grid=tuple(grid(copies, segments)),
        stored=_shown(live, record),
        disagreements=(*disagreements, *_against(named, row, copies, live, coverage), *findings),
        actions=actions,
        damage=tuple(_damage(inventories, ledger)),
        coverage=coverage,
    )
    elsewhere = any(one.row.num_rows for one in stored if one is not live)
    verdict, standing = _verdict(explained, row, live, record, elsewhere=elsewhere)
    return replace(explained, verdict=verdict, standing=standing)


# What is known, and from whom


def _cover(
    bookies: pa.Table, stored: Sequence[Stored], plan: Dataset | None, knowledge: Knowledge
) -> ExplanationCoverage:
    scanned = {row["bookie"]: row["complete"] for row in bookies.select(["bookie", "complete"]).to_pylist()}
    members: dict[str, set[str]] = {}
    if knowledge.expected is not None:
        members["expected by the operator"] = set(knowledge.expected)
    for one in stored:
        if one.members:
            members[f"with a cookie in {one.source}"] = set(one.members)
    planned = Coverage.from_json(plan.manifest["coverage"]) if plan is not None else Coverage()
    # What the plan knew of the cluster is known, whatever is given besides.
    for name in planned.members_known_from:
        members.setdefault(name, set()).update((*planned.scanned, *planned.not_scanned))
    if not scanned:
        # Without inventories the plan's own coverage is what its rows rest on.
        scanned = dict.fromkeys(planned.complete, True) | dict.fromkeys(planned.not_complete, False)
    return ExplanationCoverage(
        bookies=Coverage.count(scanned, members),
        stores=tuple(one.source for one in stored),
        stores_with_gaps=tuple(one.source for one in stored if not one.complete),
        plan=None if plan is None else plan.path,
    )


def _why(row: Mapping[str, Any] | None) -> tuple[str, str]:
    if row is None or not row["reason"]:
        return "", ""
    try:
        said, settles = REASONS[Refusal(row["reason"])]
    except ValueError:
        return str(row["reason"]), ""
    return said, settles


# What upper layers know


def _references(rows: pa.Table | None, ledger: LedgerId, plan: Dataset | None) -> Iterator[str]:
    """Say what upper layers know of the ledger: from what was given, else as the plan has it."""
    if rows is None:
        for side in only(plan, "sides", ledger).to_pylist() if plan is not None else ():
            if side.get("referenced") is not None:
                yield f"owner: {side['owner'] or 'not named'}" if side["referenced"] else "none of those asked names it"
        return
    for row in rows.to_pylist():
        ends = [f"{name.replace('_', ' ')} {row[name]}" for name in ("last_entry", "length") if row[name] is not None]
        gone = ["deleted: " + (row["deletion"] or "as it says")] if row["deleted"] else []
        yield "; ".join([f"owner: {row['owner'] or 'not named'}", *ends, *gone]) + f" ({row['source']})"
    if not rows.num_rows:
        yield "none of those asked names it"


def _against(
    rows: pa.Table | None,
    row: Mapping[str, Any] | None,
    copies: pa.Table,
    live: Stored | None,
    coverage: ExplanationCoverage,
) -> Iterator[str]:
    """Say where upper layers, bookies and the store disagree, beside their records."""
    run, seen = Run("explain", _UNKNOWN_TIME), not coverage.may_exist_elsewhere
    looked_at = bool(coverage.bookies.scanned)
    stored = tables.CATALOG_LEDGERS.empty_table() if live is None else live.row
    yield from _in_words(entries_beyond_end.findings(copies, stored, run, seen=seen))
    shown = pa.Table.from_pylist([] if row is None else [dict(row)], schema=tables.RECONSTRUCTION)
    yield from _in_words(id_reuse.findings(copies, stored, shown, run))
    yield from _in_words(contradicted.findings(shown, run, ""))
    if rows is None:
        return
    yield from _in_words(reference_checks.findings(rows, shown, copies, stored, run, looked_at=looked_at, seen=seen))


def _in_words(findings: pa.Table) -> Iterator[str]:
    for one in findings.to_pylist():
        said = "; ".join(f"{e['side']} {e['field']} {e['value']}" for e in one["evidence"] if e["value"] != "nothing")
        yield f"{one['category']} ({one['severity']}): {said}"


# Who holds what


def _copies(copies: pa.Table) -> Iterator[Copy]:
    held: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in copies.sort_by([(name, "ascending") for name in ("bookie", "source", "part")]).to_pylist():
        held.setdefault((row["bookie"], row["source"]), []).append(row)
    for (bookie, source), parts in held.items():
        front = parts[0]
        groups = [group for part in parts for group in part["groups"]]
        more = [f"and {len(groups) - LISTED} more ranges"] if len(groups) > LISTED else []
        yield Copy(
            bookie=bookie,
            source=source,
            entries=sum(part["entries"] for part in parts),
            ranges=(*map(_range, groups[:LISTED]), *more),
            complete=front["complete"],
            fenced=front["fenced"],
            limbo=front["limbo"],
            key=_key(front),
            explicit_lac=front["explicit_lac"],
            headers=tuple(_header(header) for header in front["headers"][-LISTED:]),
        )


def _range(group: Mapping[str, int]) -> str:
    first, end = group["first"], group["last"] + group["size"] - 1
    text = str(first) if first == end else f"{first} to {end}"
    return f"{text} ({group['size']} of every {group['period']})" if group["period"] else text


def _key(row: Mapping[str, Any]) -> str:
    return f"set, SHA-256 {row['key'].hex()[:HASH_DIGITS]}…" if row["key"] is not None else str(row["key_kind"])


def _header(header: Mapping[str, Any]) -> str:
    digest = f"{header['digest']} agrees" if header["digest"] else "no digest agrees"
    return f"entry {header['entry']}: LAC {header['lac']}, length {header['length']}, {header['size']} bytes, {digest}"


def _damage(inventories: Iterable[Dataset], ledger: LedgerId) -> Iterator[str]:
    for inventory in inventories:
        rows = inventory.read("damage")
        mine = pc.fill_null(is_of(rows, ledger), fill_value=False)
        for row in rows.filter(mine).slice(0, LISTED).to_pylist():
            hides = ", may hide entries" if row["hides_entries"] else ""
            where = row["file"] + ("" if row["offset"] is None else f" at byte {row['offset']}")
            yield f"{row['bookie']}: {where}: {row['reason']}{hides}" + (f" ({row['detail']})" if row["detail"] else "")


# Store and plan


def _timeline(row: Mapping[str, Any] | None, stored: Sequence[Stored]) -> Iterator[str]:
    """Say what happened in which order: by the stores' times, then the changes of ensembles by entry."""
    timed: list[tuple[datetime, str]] = []
    for one in stored:
        for record in one.row.to_pylist():
            for name, what in (("created_at", "its record was created"), ("changed_at", "its record was last changed")):
                if record[name] is not None:
                    timed.append((record[name], f"{_when(record[name])}: {what} ({one.source})"))
        for change in one.history.sort_by("txn").to_pylist():
            session = "" if change["session"] is None else f", session {change['session'] & _MASK:#x}"
            what = f"{change['op']} in transaction {change['txn']}{session}{_reads(change['after'])}"
            timed.append((change["at"] or _UNKNOWN_TIME, f"{_when(change['at'])}: {what} ({one.source})"))
    # What several stores remember of one moment stays in the order of its transactions.
    yield from (text for _, text in sorted(timed, key=lambda one: one[0]))
    yield from changes(row)


def _when(at: datetime | None) -> str:
    return at.isoformat(timespec="seconds") if at else "at an unknown time"


def _reads(raw: bytes | None) -> str:
    """Say what readers would see of a record."""
    if raw is None:
        return ""
    return f": {reads_as(ledger_metadata.decode_columns(pa.array([raw], pa.binary())))[0].as_py()}"


def _sides(
    ledger: LedgerId,
    copies: pa.Table,
    live: Stored | None,
    earlier: Sequence[Stored],
    plan: Dataset | None,
    decided: Mapping[str, Any] | None,
) -> Iterator[str]:
    """Say how the three sides stand to each other: from what was given, else as the plan says it."""
    if live is None and not earlier:
        for row in only(plan, "sides", ledger).to_pylist() if plan is not None else ():
            yield f"{row['relation']}: {sides.WORDS[sides.Relation(row['relation'])]}; right: {row['right']}"
            yield from _deletion(row)
        return
    keys = list(tables.KEY_COLUMNS)
    held = copies.select(keys).slice(0, 1)
    now = live.row if live is not None else tables.CATALOG_LEDGERS.empty_table()
    past, seen = sides.newest([(one.row, one.txn) for one in earlier])
    history = pa.concat_tables(
        [tables.CATALOG_HISTORY.empty_table(), *(one.history for one in (live, *earlier) if one is not None)]
    )
    compared = sides.compare(held, now, past, seen, history, has_earlier=bool(earlier))
    if decided is not None and held.num_rows:
        shown = pa.Table.from_pylist([dict(decided)], schema=tables.RECONSTRUCTION)
        compared = contradicted.doubted(compared, shown)
    for row in compared.sides.to_pylist():
        yield f"{row['relation']}: {sides.WORDS[sides.Relation(row['relation'])]}; right: {row['right']}"
        if earlier and row["relation"] == sides.Relation.BOOKIES_ONLY:
            yield sides.AFTER_EARLIER
        yield from _deletion(row)
        bookies = sorted(set(copies["bookie"].to_pylist()))
        yield f"bookies: {', '.join(bookies) if bookies else 'none of those looked at'}"
        for name, one in [("store", live), *(("earlier", one) for one in earlier)]:
            if one is not None:
                raw = one.row["raw"][0].as_py() if one.row.num_rows else None
                yield f"{name}: {'no record' if raw is None else _reads(raw)[2:]} ({one.source})"


def _deletion(row: Mapping[str, Any]) -> Iterator[str]:
    if row["deleted_txn"] is not None:
        when = row["deleted_at"].isoformat(timespec="seconds") if row["deleted_at"] else "an unknown time"
        session = "an unknown session" if row["deleted_session"] is None else f"{row['deleted_session'] & _MASK:#x}"
        yield f"deleted in transaction {row['deleted_txn']} at {when} by session {session}"


def _record(rows: pa.Table) -> LedgerMetadata | None:
    if not rows.num_rows or rows["error"][0].as_py() is not None:
        return None
    return ledger_metadata.decode(rows["raw"][0].as_py())


def _shown(live: Stored | None, record: LedgerMetadata | None) -> Mapping[str, str] | None:
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


def _disagreements(row: Mapping[str, Any] | None, live: Stored | None, *, looked_at: bool) -> tuple[str, ...]:
    if live is None or not live.row.num_rows:
        return ()
    ours = pa.Table.from_pylist([] if row is None else [dict(row)], schema=tables.RECONSTRUCTION)
    found = diff.disagreements(ours, live.row, diff.match(ours, live.row)).to_pylist()
    # Where no bookie was looked at, a record that none shows says nothing.
    return tuple(
        f"{one['category']}: {one['field']} is {one['stored']} in the store, {one['held']} on bookies"
        for one in found
        if looked_at or one["category"] != Category.NOT_ON_BOOKIES
    )


def _planned(plan: Dataset | None, ledger: LedgerId) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the plan's actions for a ledger, and its findings, in words."""
    if plan is None:
        return (), ()
    actions = []
    for action in only(plan, "actions", ledger).to_pylist():
        condition = "if absent" if action["expects"] is None else f"if version {action['expects']}"
        waits = action["op"] == LEAVE
        actions.append(f"nothing to {action['key']}" if waits else f"{action['op']} {action['key']} {condition}")
        actions += [
            f"instead, if you choose it: {other['label']}, which reads as {other['reads_as']}"
            for other in action["alternatives"]
        ]
    findings = plan.read("findings")
    mine = pc.fill_null(is_of(findings, ledger), fill_value=False)
    said = [
        f"{f['category']} ({f['severity']}) in the plan: "
        + "; ".join(f"{e['side']} {e['field']} {e['value']}" for e in f["evidence"])
        for f in findings.filter(mine).to_pylist()
        if f["category"] != Category.HELD  # which is the outcome itself
    ]
    return tuple(actions), tuple(said)


def _proposed(row: Mapping[str, Any] | None, record: LedgerMetadata | None) -> list[Segment]:
    """Return the segments that a grid is drawn against: the proposal's, else the store's, but never a hold's."""
    if row is not None and row["outcome"] == "restored":
        size, write = row["ensemble_size"], row["write_quorum"]
        return [Segment(s["first"], s["members"], size, write) for s in row["segments"]]
    if record is not None and record.state is State.CLOSED:
        return [Segment(s.first, s.members, record.ensemble_size, record.write_quorum) for s in record.segments]
    return []


def _shown_instead(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Say what bookies show of a ledger that something else speaks against."""
    for row in rows:
        end = "left open" if row["last_entry"] is None else f"{row['last_entry'] + 1} entries"
        yield f"{FROM_BOOKIES}: reads as {row['state']}, {end}; chosen by plan edit --choose"


# The verdict


def _verdict(
    found: Explanation,
    row: Mapping[str, Any] | None,
    live: Stored | None,
    record: LedgerMetadata | None,
    *,
    elsewhere: bool,
) -> tuple[str, Standing]:
    name = f"ledger {found.ledger}"
    partial = found.coverage.may_exist_elsewhere
    absent = Standing.UNDECIDED if partial else Standing.OPEN
    in_store = live is not None and live.row.num_rows > 0
    gone = any(line.startswith("deleted in transaction") for line in found.sides)
    if not in_store and row is None and not found.actions and not gone:
        if elsewhere:
            return f"{name}: only an earlier catalog knows it", absent
        unseen = "not everything that could know it was looked at" if partial else "everything was looked at"
        return f"{name}: nothing that was looked at knows it, and {unseen}", absent
    standing = Standing.SETTLED
    parts = []
    deleted = [line for line in found.sides if line.startswith("deleted in transaction")]
    if deleted and not in_store:
        parts.append(f"{deleted[0]}; not restored unless you choose it")
        standing = Standing.OPEN
    if in_store:
        hold = record is not None and any(key == holds.HOLD_MARK for key, _ in record.custom)
        if record is None:
            parts.append("in the store, in a form that cannot be read")
        elif hold:
            parts.append("in the store as a hold: its data is kept, and nobody can read it")
        else:
            parts.append(f"in the store, {record.state}")
        if record is None or hold:
            standing = Standing.OPEN
    if row is not None and row["outcome"] == "restored" and gone and not in_store:
        parts.append("bookies still show it")
    elif row is not None and row["outcome"] == "restored":
        shape = f"{row['ensemble_size']}/{row['write_quorum']}/{row['ack_quorum']}"
        entries = "" if row["last_entry"] is None else f" {row['last_entry'] + 1} entries,"
        shows = f"{row['state']},{entries} {shape}"
        back = "comes back from bookies" if row["raw"] is None else "comes back on an earlier record's word"
        if not row["holders"]:
            back = "only an earlier catalog knows it; comes back on its word"
        parts.append(f"bookies show {shows}" if in_store else f"{back}: {shows}")
    elif row is not None:
        alone = "bookies alone would not settle it" if in_store else str(row["outcome"])
        parts.append(f"{alone} ({row['reason']}): {found.reason}" if row["reason"] else alone)
        standing = standing if in_store else Standing.OPEN
    if found.disagreements:
        parts.append(f"disagreements: {len(found.disagreements)}")
        # That no bookie has it is certain only where all were looked at.
        lacking = all(one.startswith(Category.NOT_ON_BOOKIES) for one in found.disagreements)
        standing = absent if lacking else Standing.OPEN
    return f"{name}: {'; '.join(parts)}", standing
