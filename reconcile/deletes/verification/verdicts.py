"""May ledgers be deleted? Every check of it, in columns; what could not be looked at is never taken for good.

check                    unsafe                          undecided
record                   open, in recovery, none; too    cannot be parsed; changed while it was looked at
                         large for a tombstone
replication              a mark, a lock                  the store could not be listed
references               one names it                    a listing failed; the ledger is too young, or its age unknown;
                                                         who made it may name it where no listing shows it
archive, where wanted    no mark; a copy not whole       marks, or a copy, cannot be read
holders                  entries beyond the end that     one did not answer lately; whose disks answered is not known
                         a LAC proves
durability               an entry has fewer than A copies     not every copy can be judged
breaker                  too many in a day
listing                                                  not complete; many ledgers went while it was made
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.deletes.policy import MOST_IN_A_DAY, DeletePolicy
from reconcile.deletes.records import ArchiveMark
from reconcile.deletes.tombstones import (
    DAY_MS,
    RECORD_BYTES,
    SKEW_MS,
    DeleteState,
    DeleteVerdict,
    Holder,
    StoredRecord,
    Tombstone,
    Verification,
)
from reconcile.deletes.verification.absence import FEW, MOST_SHARE, Absence
from reconcile.deletes.verification.durability import Durability
from reconcile.deletes.verification.evidence import Holdings, Mask, ReferenceListing, to_ms
from reconcile.deletes.verification.members import EnsembleMembers, list_members, make_keys, split_keys
from reconcile.deletes.verification.objections import Objections, UnsafeReason
from reconcile.deletes.verification.unreferenced import judge_references, read_times
from reconcile.deletes.verification.wanted import Ints, WantedLedgers
from recovery.codecs import store as keys
from recovery.codecs.keys import read_marks
from recovery.codecs.replication_lock import ledger_of_lock
from recovery.dataset import Dataset
from recovery.model import tables
from recovery.model.ids import LedgerId
from recovery.model.metadata import LedgerState

MIN_AGE_MS: Final = DAY_MS
FRESHNESS_MS: Final = DAY_MS
_COLUMNS: Final = (
    "raw", "version", "acl", "created_at", "changed_at", "error", "state", "last_entry", "ctime", "segments", "custom",
)  # fmt: skip
_HALVES: Final = ("scope", "ledger")
_ABSENT: Final = -1
"""Stands for the version of a record that is not there, and for a look that nobody took."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a verification demands.

    Attributes:
        min_age_ms: of a ledger when references were listed.
        freshness_ms: age of an inventory, at most.
        archived: whether a mark of the backup application is demanded.
        confirmed: number of ledgers that somebody confirmed to delete though the breaker trips; None: nobody did.
        absent: number of ledgers that went, as somebody confirmed; None: nobody did.
        most_in_a_day: ledgers that a day may purge without a confirmation, at most.
    """

    min_age_ms: int = MIN_AGE_MS
    freshness_ms: int = FRESHNESS_MS
    archived: bool = False
    confirmed: int | None = None
    absent: int | None = None
    most_in_a_day: int = MOST_IN_A_DAY

    def tighten(self, policy: DeletePolicy) -> "Rules":
        """Return the rules that demand what these do, and what a policy does."""
        return replace(
            self,
            min_age_ms=max(self.min_age_ms, policy.min_age_ms),
            archived=self.archived or policy.archived,
            most_in_a_day=min(self.most_in_a_day, policy.most_in_a_day),
        )


@dataclass(frozen=True, slots=True)
class DeleteEvidence:
    """What is judged by.

    Attributes:
        captures: of the store: before and after everything else was looked at.
        listings: of references, likewise.
        holdings: of bookies.
        durability: what is known of copies, also by scrutinies.
        tombstones: of the wanted ledgers, those that have one.
        archive: marks of the wanted ledgers; None: they cannot be read.
        removed_lately: ledgers that were purged within a day.
        aliases: other names of bookies.
        now_ms: the time, ms since 1970.
        absence: what went since the last verification; None: there was none.
        bad_copies: ledgers whose archived copy was read back, and is not whole: what is wrong with each.
        unread_copies: those whose copy could not be read back: why not.
    """

    captures: tuple[Dataset, Dataset]
    listings: tuple[ReferenceListing, ReferenceListing]
    holdings: Holdings
    durability: Durability
    tombstones: Mapping[LedgerId, Tombstone]
    archive: Mapping[LedgerId, ArchiveMark] | None
    removed_lately: int
    aliases: Mapping[str, str]
    now_ms: int
    absence: Absence | None = None
    bad_copies: Mapping[LedgerId, str] = field(default_factory=dict)
    unread_copies: Mapping[LedgerId, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Breaker:
    """Whether so many deletes in a day are too many.

    Attributes:
        asked: ledgers of this run.
        lately: ledgers that were purged within a day.
        total: ledgers of the store.
        limit: that a day may have without a confirmation.
    """

    asked: int
    lately: int
    total: int
    limit: int

    @property
    def is_tripped(self) -> bool:
        """Whether they are too many."""
        return self.asked + self.lately > self.limit


def set_breaker(asked: int, lately: int, total: int, most: int = MOST_IN_A_DAY) -> Breaker:
    """Return the breaker of a run: 1,000 ledgers a day, or 5 % of all if that is fewer; ten are never too many.

    Args:
        asked: ledgers of this run.
        lately: ledgers that were purged within a day.
        total: ledgers of the store.
        most: ledgers a day that the policy allows; it may be fewer than ten.
    """
    return Breaker(asked, lately, total, min(most, max(FEW, min(MOST_IN_A_DAY, int(total * MOST_SHARE)))))


def judge_deletes(wanted: WantedLedgers, evidence: DeleteEvidence, rules: Rules) -> tuple[list[Verification], Breaker]:
    """Return what the evidence says of each wanted ledger, and of their number.

    Raises:
        DatasetError: a capture or an inventory is damaged.
    """
    objections = Objections(len(wanted))
    _judge_captures(evidence, rules, objections)
    rows = _read_records(wanted, evidence, objections)
    _judge_quarantine(wanted, evidence, objections)
    _judge_replication(wanted, evidence, objections)
    judge_references(wanted, rows, evidence.listings, rules.min_age_ms, objections)
    _judge_listing_times(wanted, evidence, objections)
    _judge_archive(wanted, evidence, rules, objections)
    members = _judge_holders(wanted, rows, evidence, rules, objections)
    _judge_durability(evidence.durability, objections)
    total = evidence.captures[1].rows("ledgers")
    breaker = set_breaker(len(wanted), evidence.removed_lately, total, rules.most_in_a_day)
    if breaker.is_tripped and rules.confirmed != len(wanted):
        detail = (
            f"{breaker.asked} deletes and {breaker.lately} of the last day are more than {breaker.limit}; "
            f"confirm their number, {breaker.asked}"
        )
        objections.add_all(UnsafeReason.BREAKER, detail)
    verdicts, reasons = objections.judge()
    return _make_verifications(wanted, rows, members, evidence, verdicts, reasons), breaker


def _judge_captures(evidence: DeleteEvidence, rules: Rules, objections: Objections) -> None:
    for capture in evidence.captures:
        for source in capture.read("sources").to_pylist():
            if not source["complete"] or source["root"] != "present":
                why = source["gaps"][0] if source["gaps"] else "its root is missing"
                objections.add_all(UnsafeReason.LISTING_INCOMPLETE, f"the store was not listed completely: {why}")
    first, second = (capture.rows("ledgers") for capture in evidence.captures)
    limit = max(FEW, int(first * MOST_SHARE))
    if first - second > limit:
        objections.add_all(UnsafeReason.MASS_ABSENCE, f"{first - second} ledgers disappeared while the store was read")
    absence = evidence.absence
    if absence is not None and absence.is_mass and rules.absent != absence.gone:
        when = datetime.fromtimestamp(absence.since_ms / 1000, UTC).isoformat(timespec="seconds")
        detail = (
            f"{absence.gone} of the {absence.listed} ledgers that a verification listed at {when} are gone, and not by "
            "a purge: a backup of the store, named as its history, explains those that others deleted; confirm the "
            f"number of the rest, {absence.gone}, if that is right"
        )
        objections.add_all(UnsafeReason.MASS_ABSENCE, detail)


def _read_records(wanted: WantedLedgers, evidence: DeleteEvidence, objections: Objections) -> pa.Table:
    """Return the records that stand, with a column `row`: the number of the ledger; object to what they say."""
    first, second = evidence.captures
    stood, stands = np.full(len(wanted), _ABSENT), np.full(len(wanted), _ABSENT)
    for rows, numbers in wanted.read(first, "ledgers", ("version",)):
        stood[numbers] = rows["version"].to_numpy()
    parts = [tables.CATALOG_LEDGERS.empty_table().select(_COLUMNS).append_column("row", pa.array([], pa.int64()))]
    for rows, numbers in wanted.read(second, "ledgers", _COLUMNS):
        stands[numbers] = rows["version"].to_numpy()
        parts.append(rows.select(_COLUMNS).append_column("row", pa.array(numbers)))
    went = (stands == _ABSENT) & (stood != _ABSENT)
    never = (stands == _ABSENT) & (stood == _ABSENT)
    changed = (stands != _ABSENT) & (stood != stands)
    objections.add(np.flatnonzero(never), UnsafeReason.NO_RECORD, "the store has no record of it")
    objections.add(np.flatnonzero(went), UnsafeReason.CHANGED, "its record disappeared while it was checked")
    objections.add(np.flatnonzero(changed), UnsafeReason.CHANGED, "its record changed while it was checked")
    records = pa.concat_tables(parts).combine_chunks()
    row = records["row"].to_numpy()
    sizes = pc.binary_length(records["raw"]).to_numpy()
    large = sizes > RECORD_BYTES
    details = [f"its record of {size} bytes is larger than a tombstone takes, {RECORD_BYTES}" for size in sizes[large]]
    objections.add(row[large], UnsafeReason.TOO_LARGE, details)
    bad = pc.is_valid(records["error"]).to_numpy(zero_copy_only=False)
    objections.add(row[bad], UnsafeReason.UNPARSABLE, records["error"].filter(pa.array(bad)).to_pylist())
    for state, reason in ((LedgerState.OPEN, UnsafeReason.OPEN), (LedgerState.IN_RECOVERY, UnsafeReason.IN_RECOVERY)):
        seen = pc.fill_null(pc.equal(records["state"], state.value), fill_value=False).to_numpy(zero_copy_only=False)
        objections.add(row[seen], reason, f"its state is {state.value}")
    return records


def _judge_quarantine(wanted: WantedLedgers, evidence: DeleteEvidence, objections: Objections) -> None:
    """Object to ledgers in quarantine: what stands there is the hold, and the certificate that put it there ends it."""
    quarantined = [
        number
        for number, ledger in enumerate(wanted.ledgers)
        if (tombstone := evidence.tombstones.get(ledger)) is not None and tombstone.state is DeleteState.QUARANTINED
    ]
    detail = "a hold is in the place of its record until the quarantine is over"
    objections.add(np.array(quarantined, np.int64), UnsafeReason.IN_QUARANTINE, detail)


def _judge_replication(wanted: WantedLedgers, evidence: DeleteEvidence, objections: Objections) -> None:
    for capture in evidence.captures:
        nodes = capture.read("nodes", columns=["path", "kind"])
        marks = nodes.filter(pc.equal(nodes["kind"], "mark"))["path"].combine_chunks()
        marked = read_marks(marks)
        numbers = wanted.find(marked.scope, marked.ledger)
        objections.add(numbers[numbers >= 0], UnsafeReason.UNDER_REPLICATED, "it is marked for replication")
        paths = nodes.filter(pc.equal(nodes["kind"], "lock"))["path"].to_pylist()
        locked = [ledger for path in paths if (ledger := ledger_of_lock(path)) is not None]
        scope, ledger_half = (np.array([getattr(item, half) for item in locked], np.int64) for half in _HALVES)
        numbers = wanted.find(scope, ledger_half)
        objections.add(numbers[numbers >= 0], UnsafeReason.LOCKED, "a worker holds its replication lock")


def _judge_listing_times(wanted: WantedLedgers, evidence: DeleteEvidence, objections: Objections) -> None:
    """Object to ledgers whose references were not listed again since they were found safe."""
    first_ms = min(listing.at_ms for listing in evidence.listings)
    earlier = [
        number
        for number, ledger in enumerate(wanted.ledgers)
        if (tombstone := evidence.tombstones.get(ledger)) is not None
        and tombstone.state in (DeleteState.VERIFIED, DeleteState.PURGEABLE)
        and tombstone.listed_ms is not None
        and first_ms <= tombstone.listed_ms
    ]
    detail = "these references were listed for the verification before: list them again"
    objections.add(np.array(earlier, np.int64), UnsafeReason.REFERENCES_UNKNOWN, detail)


def _judge_archive(wanted: WantedLedgers, evidence: DeleteEvidence, rules: Rules, objections: Objections) -> None:
    if not rules.archived:
        return
    if evidence.archive is None:
        objections.add_all(UnsafeReason.ARCHIVE_UNREADABLE, "archive marks cannot be read")
        return
    missing = [number for number, ledger in enumerate(wanted.ledgers) if ledger not in evidence.archive]
    objections.add(np.array(missing, np.int64), UnsafeReason.NOT_ARCHIVED, "no backup application marked it")
    for reason, copies in (
        (UnsafeReason.NOT_ARCHIVED, evidence.bad_copies),
        (UnsafeReason.ARCHIVE_UNREADABLE, evidence.unread_copies),
    ):
        rows = [number for number, ledger in enumerate(wanted.ledgers) if ledger in copies]
        details = [f"its archived copy: {copies[wanted.ledgers[number]]}" for number in rows]
        objections.add(np.array(rows, np.int64), reason, details)


def _judge_holders(
    wanted: WantedLedgers, records: pa.Table, evidence: DeleteEvidence, rules: Rules, objections: Objections
) -> EnsembleMembers:
    """Object to what bookies hold, or did not say; return the members of ensembles."""
    holdings = evidence.holdings
    closed_rows = records.filter(pc.equal(records["state"], LedgerState.CLOSED.value)).combine_chunks()
    numbers, segments = closed_rows["row"].to_numpy(), closed_rows["segments"].combine_chunks()
    ends = closed_rows["last_entry"].to_numpy().astype(np.int64)
    members = list_members(numbers, segments)
    looks = _find_looks([evidence.aliases.get(name, name) for name in members.names], holdings)
    changed, end_of = (np.zeros(len(wanted), np.int64) for _ in range(2))
    changed[numbers] = read_times(closed_rows["changed_at"])
    end_of[numbers] = ends
    cookies = _read_cookies(evidence.captures[1])
    pairs = split_keys(np.unique(make_keys(members.row, members.bookie)))
    _require_answers(pairs, looks, members.names, changed, cookies, evidence, rules, objections)
    others, other_names = _list_other_holders(wanted, numbers, members, cookies, evidence)
    other_looks = _find_looks(other_names, holdings)
    _require_answers(others, other_looks, other_names, changed, cookies, evidence, rules, objections)
    # Entries above the end may be what was never acknowledged; a LAC above it says that some were.
    beyond = numbers[(holdings.lac[numbers] > ends[:, None]).any(axis=1)]
    details = [f"a LAC of {holdings.lac[n].max()} is above its last entry {end_of[n]}" for n in beyond]
    objections.add(beyond, UnsafeReason.ENTRIES_BEYOND_END, details)
    return members


def _judge_durability(durability: Durability, objections: Objections) -> None:
    breached = np.array(sorted(durability.breaches), np.int64)
    details = [durability.breaches[row] for row in breached.tolist()]
    objections.add(breached, UnsafeReason.DURABILITY_BREACH, details)
    # Of most it is said already which bookie was not seen.
    said = durability.breaches.keys() | objections.list_rows(UnsafeReason.HOLDER_UNSEEN)
    unclear = np.array(sorted(durability.undecided - said), np.int64)
    detail = "not every copy can be judged: a bookie that may have it was not seen, or not since the record changed"
    objections.add(unclear, UnsafeReason.HOLDER_UNSEEN, detail)


def _find_looks(names: Sequence[str], holdings: Holdings) -> Ints:
    """Return the number of each bookie's look; `_ABSENT` where there is none."""
    of_look = holdings.number_bookies()
    return np.array([of_look.get(name, _ABSENT) for name in names], np.int64)


def _require_answers(
    pairs: tuple[Ints, Ints],
    looks: Ints,
    names: Sequence[str],
    changed_ms: Ints,
    cookies: Mapping[str, bytes],
    evidence: DeleteEvidence,
    rules: Rules,
    objections: Objections,
) -> None:
    """Object to bookies that did not say, lately and surely, what they have."""
    holdings = evidence.holdings
    row, bookie = pairs
    look = looks[bookie]
    seen = look != _ABSENT
    texts = np.array([f"bookie {name}" for name in names], object)
    unseen = np.flatnonzero(~seen)
    objections.add(row[unseen], UnsafeReason.HOLDER_UNSEEN, [f"{texts[b]} was not read" for b in bookie[unseen]])
    row, bookie, look = row[seen], bookie[seen], look[seen]
    ended = np.array([item.ended_ms for item in holdings.looks], np.int64)[look]
    started = np.array([item.started_ms for item in holdings.looks], np.int64)[look]
    stale = ended + rules.freshness_ms < evidence.now_ms
    objections.add(row[stale], UnsafeReason.HOLDER_UNSEEN, [f"{texts[b]} was not read lately" for b in bookie[stale]])
    ahead = ended > evidence.now_ms + SKEW_MS
    details = [f"{texts[b]} was read later than now: a clock is wrong" for b in bookie[ahead]]
    objections.add(row[ahead], UnsafeReason.HOLDER_UNSEEN, details)
    early = started < changed_ms[row]
    details = [f"{texts[b]} was read before the record changed last" for b in bookie[early]]
    objections.add(row[early], UnsafeReason.HOLDER_UNSEEN, details)
    silent = ~holdings.answered[row, look]
    objections.add(
        row[silent], UnsafeReason.HOLDER_UNSEEN, [f"{texts[b]} was not read completely" for b in bookie[silent]]
    )
    proven = [item.cookie is not None and item.cookie == cookies.get(item.bookie) for item in holdings.looks]
    odd = ~np.array(proven, np.bool_)[look]
    details = [f"{texts[b]} has not the cookie that the store has of it" for b in bookie[odd]]
    objections.add(row[odd], UnsafeReason.INCARNATION_UNPROVEN, details)


def _list_other_holders(
    wanted: WantedLedgers,
    judged: Ints,
    named: EnsembleMembers,
    cookies: Mapping[str, bytes],
    evidence: DeleteEvidence,
) -> tuple[tuple[Ints, Ints], list[str]]:
    """Return bookies that no ensemble names, and that are, or were, seen to hold a ledger: pairs as of members.

    One whose cookie is gone from the store was taken out of service: nobody waits for it.
    """
    numbers: dict[str, int] = {}

    def number(bookies: Iterable[str]) -> Ints:
        return np.fromiter((numbers.setdefault(bookie, len(numbers)) for bookie in bookies), np.int64)

    members = make_keys(named.row, number(evidence.aliases.get(name, name) for name in named.names)[named.bookie])
    rows, looks = np.nonzero(evidence.holdings.holds)
    held = make_keys(rows, number(look.bookie for look in evidence.holdings.looks)[looks])
    known = [
        (row, holder.bookie)
        for row in judged.tolist()
        if (tombstone := evidence.tombstones.get(wanted.ledgers[row])) is not None
        for holder in tombstone.holders
    ]
    earlier = make_keys(np.array([row for row, _ in known], np.int64), number(bookie for _, bookie in known))
    others = np.setdiff1d(np.concatenate([held, earlier]), members)
    row, bookie = split_keys(others)
    waited_for = np.array([name in cookies for name in numbers], np.bool_)[bookie] & np.isin(row, judged)
    return (row[waited_for], bookie[waited_for]), list(numbers)


def _read_cookies(capture: Dataset) -> dict[str, bytes]:
    nodes = capture.read("nodes", columns=["path", "kind", "raw"])
    nodes = nodes.filter(pc.equal(nodes["kind"], "cookie"))
    names = [path.removeprefix(f"{keys.COOKIES}/") for path in nodes["path"].to_pylist()]
    return dict(zip(names, nodes["raw"].to_pylist(), strict=True))


def _make_verifications(
    wanted: WantedLedgers,
    records: pa.Table,
    named: EnsembleMembers,
    evidence: DeleteEvidence,
    verdicts: Sequence[DeleteVerdict],
    reasons: Sequence[tuple[str, ...]],
) -> list[Verification]:
    stored: dict[int, StoredRecord] = {}
    # A record that no tombstone takes is not kept: the one that was asked for stays in its.
    kept = records.filter(pc.less_equal(pc.binary_length(records["raw"]), RECORD_BYTES))
    for item in kept.select(["row", "raw", "version", "created_at", "acl"]).to_pylist():
        created = None if item["created_at"] is None else to_ms(item["created_at"])
        stored[item["row"]] = StoredRecord(item["raw"], item["version"], created, item["acl"])
    members: dict[int, dict[str, None]] = {}
    for row, bookie in zip(named.row.tolist(), named.bookie.tolist(), strict=True):
        name = named.names[bookie]
        members.setdefault(row, {})[evidence.aliases.get(name, name)] = None
    listed_ms = min(listing.at_ms for listing in evidence.listings)
    looks, entries, is_holder = evidence.holdings.looks, evidence.holdings.entries, _find_holders(members, evidence)
    return [
        Verification(
            verdicts[number],
            reasons[number],
            stored.get(number),
            tuple(members.get(number, ())),
            tuple(
                Holder(looks[n].bookie, looks[n].incarnation, looks[n].ended_ms, entries=int(entries[number, n]))
                for n in np.flatnonzero(is_holder[number]).tolist()
            ),
            listed_ms,
        )
        for number in range(len(wanted))
    ]


def _find_holders(members: Mapping[int, Mapping[str, None]], evidence: DeleteEvidence) -> Mask:
    """Return which looks are of a life that holds entries, or of a member."""
    is_holder = evidence.holdings.holds.copy()
    of_look = evidence.holdings.number_bookies()
    for number, names in members.items():
        for name in names:
            if name in of_look:
                is_holder[number, of_look[name]] = True
    return is_holder
