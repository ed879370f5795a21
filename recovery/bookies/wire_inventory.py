"""Inventories of a running cluster, asked of its bookies: the same tables, as far as bookies tell.

    step      asked of a bookie, for every ledger that the store lists
    list      LIST_ENTRIES: the entries it has; or that it knows no such ledger (then there is no row)
    last      READ_LAC: the last record, whose entry the list may lack, and the explicit LAC; READ_ENTRY -1 where that
              does not say
    again     both once more, where the list does not have the last entry: what stays so is a list that lacks it, what
              changes is a ledger that is being written
    proof     READ_ENTRY of entry 0 and of the one before the last, where the last one's digest type cannot be proved

    what the wire does not tell                              so
    ledgers that the store does not list                     no row, and the bookie is never complete
    master keys, fences, limbo                               key_kind absent; false says nothing
    what stands in journals and entry logs alone             no such rows
    anything, of a bookie that does not answer lists         no inventory: DbLedgerStorage answers that it does not know
                                                             a ledger, and never what it has of one that it knows

`complete` of a row: the list was answered, has the last entry, and did not change while it was looked at.

Source: bookkeeper-metadata §5.4, §5.5; docs/formats/wire.md.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backends.bookie import frames
from backends.bookie.client import Address, Bookie, Options, Wire
from backends.bookie.frames import Answer, Outcome, Status
from recovery.bookies.addresses import ALIAS_UNRESOLVED, Member, Members
from recovery.collect.disk.folders import incarnation
from recovery.collect.rows.copies import NO_LAC, Known, Source, copies
from recovery.collect.rows.damage import Hides, Unread, damage_table
from recovery.collect.rows.entry_headers import DIGEST_COLUMN, HEAD_WIDTH, SIZE_COLUMN, head_of
from recovery.collect.rows.ledger_facts import explicit_lac
from recovery.collect.rows.source_copies import joined, members, pick, starts_of
from recovery.dataset import Dataset, prepare, sort_by_key, write_manifest, write_part
from recovery.errors import FormatError, InputError, Reason
from recovery.manifest import Part
from recovery.model import tables
from recovery.model.groups import KeyedGroups, decode_availabilities, union
from recovery.model.ids import BUCKETS, LedgerId

Ints = npt.NDArray[np.int64]

_SCOPE: Final = 0
_LEDGERS: Final = 16_384
"""Asked of a bookie at a time: what a task holds."""
_AT_ONCE: Final = 8
"""Bookies that a task asks at the same time."""
_PROBES: Final = 3
"""Ledgers that a bookie should know, and is asked for, to see whether it answers lists."""
_RAW: Final = 32 << 20
"""Bytes of lists that are held before they are decoded: grouped they are far smaller."""
_SCOPED: Final = b"\x80"
"""First byte, and above, of a record of another scope than 0."""
_ENTRY: Final = 1
"""Column of a header row."""
_TOLD: Final = 1000
"""Ledgers without an answer that are named one by one; more are said of all."""
COPIES: Final = "copies"
DAMAGE: Final = "damage"
WIRE: Final = "wire"
"""Stands for the file in damage rows."""
CATALOG: Final = "catalog"
"""Folder beside the inventories: what the store listed when the bookies were asked."""
NOT_TOLD: Final = (
    "ledgers that the store does not list",
    "master keys, fences and limbo",
    "entries that only journals and entry logs have",
)


class Kind(StrEnum):
    """What came of asking a bookie; values are stored."""

    COLLECTED = "collected"
    NO_LISTS = "no_lists"
    """It answers reads, and never what it has of a ledger that it knows: DbLedgerStorage, or older than 4.10."""
    NO_ANSWER = "no_answer"
    REFUSED = "refused"
    NOT_UNDERSTOOD = "not_understood"


_FAILED: Final = {
    Outcome.NO_ANSWER: Kind.NO_ANSWER,
    Outcome.REFUSED: Kind.REFUSED,
    Outcome.NOT_UNDERSTOOD: Kind.NOT_UNDERSTOOD,
}


@dataclass(frozen=True, slots=True)
class Asked:
    """One bookie, and what came of it.

    Attributes:
        bookie: its id.
        kind: whether there is an inventory.
        why: if there is none, or not of all.
        folder: of the inventory; empty if there is none.
        ledgers: that it has.
        entries: of these.
        negatives: ledgers that it said it does not know.
        unanswered: ledgers that it said nothing of.
        damaged: rows of damage.
    """

    bookie: str
    kind: Kind
    why: str = ""
    folder: str = ""
    ledgers: int = 0
    entries: int = 0
    negatives: int = 0
    unanswered: int = 0
    damaged: int = 0


@dataclass(frozen=True, slots=True)
class WireSummary:
    """What came of asking a cluster.

    Attributes:
        listed: ledgers of the store that bookies were asked for.
        scoped: ledgers of another scope than 0, which no released bookie can be asked for.
        bookies: one for each that was to be asked.
        unresolved: names in records that are no known bookie's, with the reason.
    """

    listed: int
    scoped: int
    bookies: tuple[Asked, ...]
    unresolved: Mapping[str, str]


def folder_of(bookie: str) -> str:
    """Return the name of a bookie's folder; an id is one but for a few characters."""
    return quote(bookie, safe=":@") if bookie.strip(".") else bookie.replace(".", "%2E")


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked, and of whom.

    Attributes:
        catalog: the store, captured just now: its ledgers are asked for.
        members: the bookies.
        wanted: of these, by any name of theirs; None: all.
        options: with the caps of the whole run.
        passwords: that may have made HMACs.
        tasks: run at the same time; each gets its share of the caps.
    """

    catalog: Dataset
    members: Members
    wanted: tuple[str, ...] | None
    options: Options
    passwords: tuple[bytes, ...] = ()
    tasks: int = 1

    def __repr__(self) -> str:
        """Without the passwords: a value may land in a log."""
        return f"Request(catalog={self.catalog.path!r}, wanted={self.wanted}, tasks={self.tasks})"


Carry = Callable[["Task", Sequence[range]], Sequence[Mapping[str, Any]]]
"""Runs a task for each of the bucket ranges, at the same time if it can, and returns what each said."""


def collect_wire(request: Request, out: Path, carry: Carry, *, now: Callable[[], datetime]) -> WireSummary:
    """Ask the bookies of a cluster into inventories, one below `out` for each that answers.

    Args:
        request: what is asked.
        out: a folder; the inventories stand in folders of it.
        carry: see there.
        now: the clock, with a time zone.

    Raises:
        InputError: a wanted bookie that nobody knows.
        DatasetError: the catalog is damaged, or an inventory cannot be written.
        SparkError: what carries the tasks failed.
    """
    started = now()
    named = _named(request.catalog)
    unresolved = {name: m.why for name in sorted(named) if (m := request.members.of(name)).unresolved}
    wanted = _wanted(request)
    samples: dict[str, list[int]] = {}
    for name, ledgers in named.items():
        samples.setdefault(request.members.of(name).bookie, []).extend(ledgers)
    found = asyncio.run(_probe_all(wanted, samples, request.options))
    targets = [
        Target(m.bookie, m.address, incarnation(_evidence(m, request.catalog)))
        for m in wanted
        if m.address is not None and found[m.bookie].kind is Kind.COLLECTED
    ]
    rows = request.catalog.rows("ledgers")
    listed = rows - _scoped(request.catalog)
    if targets:
        for target in targets:
            prepare(out / folder_of(target.bookie), "inventory", secret=False)
        share = replace(
            request.options,
            per_bookie=_share(request.options.per_bookie, request.tasks),
            in_total=_share(request.options.in_total, request.tasks),
        )
        task = Task(request.catalog, str(out), tuple(targets), share, request.passwords)
        edges = [BUCKETS * n // request.tasks for n in range(request.tasks + 1)]
        answers = carry(task, [range(low, high) for low, high in pairwise(edges)])
        ended = now()
        for member in wanted:
            if found[member.bookie].kind is Kind.COLLECTED:
                said = _Tally.of([answer[member.bookie] for answer in answers])
                found[member.bookie] = _finish(request, member, said, out, started, ended)
    return WireSummary(listed, rows - listed, tuple(found[m.bookie] for m in wanted), unresolved)


def _share(rate: float | None, tasks: int) -> float | None:
    return None if rate is None else rate / tasks


def _wanted(request: Request) -> list[Member]:
    if request.wanted is None:
        return [request.members.of(bookie) for bookie in request.members.bookies]
    found: dict[str, Member] = {}
    for name in request.wanted:
        member = request.members.of(name)
        if member.unresolved:
            raise InputError(f"bookie {name}", f"{ALIAS_UNRESOLVED}: {member.why}", "or leave it out")
        found[member.bookie] = member
    return list(found.values())


def _named(catalog: Dataset) -> dict[str, list[int]]:
    """Return the names that records give bookies, each with a few ledgers that it should have."""
    found: dict[str, list[int]] = {}
    for buckets in batches_of(catalog):
        read = catalog.read("ledgers", buckets=buckets, columns=["scope", "ledger", "segments"])
        read = read.filter(pc.equal(read["scope"], _SCOPE)).combine_chunks()
        segments = read["segments"].combine_chunks()
        ensembles = pc.struct_field(pc.list_flatten(segments), "members")
        of = pc.list_parent_indices(segments).take(pc.list_parent_indices(ensembles))
        coded = pc.list_flatten(ensembles).dictionary_encode()
        codes, names = coded.indices.to_numpy(), coded.dictionary.to_pylist()
        ledgers = read["ledger"].to_numpy()[of.to_numpy()]
        for order in (slice(None), slice(None, None, -1)):
            chosen, first = np.unique(codes[order], return_index=True)
            for code, at in zip(chosen.tolist(), first.tolist(), strict=True):
                known = found.setdefault(names[code], [])
                ledger = int(ledgers[order][at])
                if len(known) < _PROBES and ledger not in known:
                    known.append(ledger)
    return found


def _scoped(catalog: Dataset) -> int:
    scopes = (catalog.read("ledgers", buckets=buckets, columns=["scope"])["scope"] for buckets in batches_of(catalog))
    return sum(pc.sum(pc.not_equal(scope, _SCOPE)).as_py() or 0 for scope in scopes)


async def _probe_all(
    wanted: Sequence[Member], samples: Mapping[str, Sequence[int]], options: Options
) -> dict[str, Asked]:
    """Say of each bookie whether it can be collected; on connections of their own, which an answer may break."""
    addresses = {m.bookie: m.address for m in wanted if m.address is not None}
    with Wire(addresses, options) as wire:
        probed = await asyncio.gather(*(_probe(wire[name], name, samples.get(name, ())) for name in addresses))
    found = {asked.bookie: asked for asked in probed}
    return {m.bookie: found.get(m.bookie) or Asked(m.bookie, Kind.NO_ANSWER, m.why) for m in wanted}


async def _probe(bookie: Bookie, name: str, ledgers: Sequence[int]) -> Asked:
    lists: list[Answer] = []
    reads: list[Answer] = []
    questions = [(reads, frames.bookie_info())]
    for ledger in ledgers[:_PROBES]:
        questions += [(lists, frames.list_entries(ledger)), (reads, frames.read_entry(ledger, frames.LAST))]
    await bookie.ask(questions, lambda answers, answer: answers.append(answer))
    said = {Outcome.ANSWER, Outcome.NEGATIVE}
    if any(answer.outcome in said for answer in lists):
        return Asked(name, Kind.COLLECTED)
    if not any(answer.outcome in said for answer in reads):
        return Asked(name, _FAILED[reads[0].outcome], reads[0].said)
    if any(answer.outcome is Outcome.ANSWER for answer in reads[1:]):
        return Asked(name, Kind.NO_LISTS, lists[0].said)
    return Asked(name, Kind.COLLECTED)


def _evidence(member: Member, catalog: Dataset) -> list[tuple[str, str]]:
    """Return what tells this life of a bookie from another, as far as the store knows it."""
    instance = _instance(catalog)
    evidence = [("bookie", member.bookie)]
    if instance is not None:
        evidence.append(("instance", instance))
    if member.registered_txn is not None:
        evidence.append(("registered_txn", str(member.registered_txn)))
    if member.cookie is not None:
        evidence.append(("version_sha256", hashlib.sha256(member.cookie).hexdigest()))
    return evidence


def _instance(catalog: Dataset) -> str | None:
    rows = catalog.read("sources", columns=["instance_id"])["instance_id"].to_pylist()
    return rows[0] if rows else None


def _finish(request: Request, member: Member, said: "_Tally", out: Path, started: datetime, ended: datetime) -> Asked:
    """Make a bookie's parts an inventory."""
    folder = out / folder_of(member.bookie)
    evidence = _evidence(member, request.catalog)
    number = incarnation(evidence)
    row: dict[str, Any] = {
        "bookie": member.bookie,
        "incarnation": number,
        "incarnation_evidence": [{"kind": kind, "value": value} for kind, value in evidence],
        "instance_id": _instance(request.catalog),
        "cookie": member.cookie,
        "version_files": [],
        "storage": "interleaved" if said.ledgers else "none",
        "mode": WIRE,
        "dirty": None,
        "started": started,
        "ended": ended,
        "complete": False,
        "dirs": [],
        "journals": [],
        "max_ids": [{"scope": _SCOPE, "ledger": said.largest}] if said.largest >= 0 else [],
        "ledgers": said.ledgers,
        "entries": said.entries,
        "damaged": said.damaged,
    }
    bookies = write_part(folder, "bookies", "part-00000", [pa.Table.from_pylist([row], schema=tables.BOOKIES)])
    parts = {"bookies": [bookies]}
    for table, written in ((COPIES, said.copies), (DAMAGE, said.damage)):
        empty = [] if written else [write_part(folder, table, "part-0000", [tables.INVENTORY[table].empty_table()])]
        parts[table] = [*empty, *(Part(**part) for part in written)]
    names = ("bookie", "incarnation", "complete", "storage", "mode", "ledgers", "entries", "damaged")
    write_manifest(
        folder,
        "inventory",
        parts,
        binding={
            "bookie": member.bookie,
            "incarnation": number,
            "instance_id": row["instance_id"],
            "cookie_sha256": hashlib.sha256(member.cookie).hexdigest() if member.cookie else None,
        },
        coverage={
            **{name: row[name] for name in names},
            "dirs": [],
            "asked": said.ledgers + said.negatives + said.unanswered,
            "negatives": said.negatives,
            "unanswered": said.unanswered,
            "not_told": list(NOT_TOLD),
            "started": started.isoformat(),
            "ended": ended.isoformat(),
        },
        secret=False,
    )
    kind = Kind.NO_LISTS if said.silent and not said.ledgers else Kind.COLLECTED
    return Asked(
        member.bookie, kind, said.why, str(folder), said.ledgers, said.entries, said.negatives, said.unanswered,
        said.damaged,
    )  # fmt: skip


@dataclass(slots=True)
class _Tally:
    """What tasks say of one bookie."""

    copies: list[dict[str, Any]] = field(default_factory=list)
    damage: list[dict[str, Any]] = field(default_factory=list)
    ledgers: int = 0
    entries: int = 0
    negatives: int = 0
    unanswered: int = 0
    damaged: int = 0
    largest: int = -1
    silent: bool = False
    why: str = ""

    def said(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, answers: Sequence[Mapping[str, Any]]) -> "_Tally":
        """Return what several tasks said together, in their order."""
        total = cls()
        for said in (cls(**answer) for answer in answers):
            total.copies += said.copies
            total.damage += said.damage
            total.ledgers += said.ledgers
            total.entries += said.entries
            total.negatives += said.negatives
            total.unanswered += said.unanswered
            total.damaged += said.damaged
            total.largest = max(total.largest, said.largest)
            total.silent |= said.silent
            total.why = total.why or said.why
        return total


def batches_of(catalog: Dataset, buckets: range = range(BUCKETS)) -> list[range]:
    """Cut buckets so that the ledgers of one range are few enough to be held."""
    step = max(1, min(len(buckets), BUCKETS * _LEDGERS // max(catalog.rows("ledgers"), 1)))
    return [range(low, min(low + step, buckets.stop)) for low in range(buckets.start, buckets.stop, step)]


# What a task does


@dataclass(frozen=True, slots=True)
class Target:
    """A bookie to be asked; travels to tasks."""

    bookie: str
    address: Address
    incarnation: int


@dataclass(frozen=True, slots=True)
class Task:
    """Asks bookies for the ledgers of a bucket range, and writes their rows; picklable.

    Attributes:
        catalog: lists the ledgers.
        out: the folder that inventories stand in.
        targets: the bookies.
        options: this task's share of the caps in them.
        passwords: that may have made HMACs.
    """

    catalog: Dataset
    out: str
    targets: tuple[Target, ...]
    options: Options
    passwords: tuple[bytes, ...]

    def __repr__(self) -> str:
        """Without the passwords: a value may land in a log."""
        return f"Task(catalog={self.catalog.path!r}, out={self.out!r}, targets={len(self.targets)})"

    def __call__(self, buckets: range) -> dict[str, Any]:
        """Do it; say of each bookie what was written."""
        said: dict[str, dict[str, Any]] = {target.bookie: _Tally().said() for target in self.targets}
        asyncio.run(self._all(buckets, said))
        return said

    async def _all(self, buckets: range, said: Mapping[str, dict[str, Any]]) -> None:
        with Wire({t.bookie: t.address for t in self.targets}, self.options) as wire:
            room = asyncio.Semaphore(_AT_ONCE)

            async def one(target: Target, ledgers: Ints, name: str) -> None:
                async with room:
                    found = await _Asking(wire[target.bookie], ledgers, self.passwords).all()
                    await asyncio.to_thread(self._write, target, found, name, said[target.bookie])

            for low, ledgers in self._listed(buckets):
                await asyncio.gather(*(one(target, ledgers, f"part-{low:04d}") for target in self.targets))

    def _listed(self, buckets: range) -> Iterator[tuple[int, Ints]]:
        """Yield ledgers of scope 0, ascending in each batch, with the first bucket of the batch."""
        for batch in batches_of(self.catalog, buckets):
            read = self.catalog.read("ledgers", buckets=batch, columns=["bucket", "scope", "ledger"])
            ledgers = read.filter(pc.equal(read["scope"], _SCOPE))["ledger"].to_numpy()
            yield batch.start, np.unique(ledgers)

    def _write(self, target: Target, found: "_Found", name: str, said: dict[str, Any]) -> None:
        folder = Path(self.out) / folder_of(target.bookie)
        rows = sort_by_key(found.rows(target.bookie, target.incarnation))
        damage = found.damage(target.bookie, target.incarnation)
        for table, content in ((COPIES, rows), (DAMAGE, damage)):
            if content.num_rows:
                said[table].append(asdict(write_part(folder, table, name, [content])))
        ledgers = found.known.ledger
        said["ledgers"] += len(ledgers)
        said["entries"] += int(pc.sum(rows["entries"]).as_py() or 0)
        said["largest"] = max(said["largest"], int(ledgers.max(initial=-1)))
        said["negatives"] += found.negatives
        said["unanswered"] += len(found.unanswered)
        said["damaged"] += damage.num_rows
        said["silent"] |= found.silent
        if found.unanswered and not said["why"]:
            said["why"] = found.unanswered[0][1].said


@dataclass(slots=True)
class _Found:
    """What a bookie said of some ledgers."""

    known: Known
    groups: KeyedGroups
    heads: Ints
    negatives: int
    unanswered: list[tuple[int, Answer]]
    """Ledgers whose list did not come, with what came instead."""
    unread: list[Unread]
    silent: bool
    """It answered a read of a ledger whose list it does not answer."""

    def rows(self, bookie: str, incarnation_: int) -> pa.Table:
        return copies(Source.WIRE, self.known, self.groups, self.heads, bookie, incarnation_)

    def damage(self, bookie: str, incarnation_: int) -> pa.Table:
        """Return rows of DAMAGE; what was not answered hides entries."""
        unread = list(self.unread)
        if len(self.unanswered) > _TOLD:
            detail = f"{len(self.unanswered)} ledgers were not answered: {self.unanswered[0][1].said}"
            unread.append(Unread(WIRE, Reason.UNREADABLE, Hides.EVERYTHING, detail=detail))
        else:
            unread += [
                Unread(WIRE, Reason.UNREADABLE, Hides.LEDGER, ledger=ledger, detail=answer.said)
                for ledger, answer in self.unanswered
            ]
        return damage_table(unread, bookie, incarnation_)


class _Asking:
    """The steps of one bookie and some ledgers; what is known of ledger n stands at place n."""

    def __init__(self, bookie: Bookie, ledgers: Ints, passwords: Sequence[bytes]) -> None:
        self._bookie = bookie
        self._ledgers = ledgers.tolist()
        self._passwords = passwords
        self._listed: set[int] = set()
        self._parts: list[KeyedGroups] = []
        self._failed: dict[int, Answer] = {}
        self._negatives = 0
        self._heads: dict[int, tuple[int, ...]] = {}
        self._more_heads: list[tuple[int, ...]] = []
        self._lac_records: dict[int, bytes] = {}
        self._unsure: set[int] = set()
        self._unread: list[Unread] = []

    async def all(self) -> _Found:
        await self._list(range(len(self._ledgers)))
        await self._last(sorted(self._listed))
        groups = self._grouped()
        odd = self._without_their_last(groups)
        if odd:
            # A ledger that is written to changes meanwhile; what does not change is a list that lacks its last entry.
            before = {n: (_of(groups, n), self._heads[n]) for n in odd}
            self._parts = [pick(groups, ~np.isin(groups.key, odd))]
            self._listed.difference_update(odd)
            await self._list(odd)
            await self._last([n for n in odd if n in self._listed], lac=False)
            groups = self._grouped()
            self._unsure.update(n for n in odd if (_of(groups, n), self._heads.get(n)) != before[n])
            odd = self._without_their_last(groups)
            extra = np.array([(n, self._heads[n][_ENTRY], self._heads[n][_ENTRY], 1, 0) for n in odd], np.int64)
            theirs = np.isin(groups.key, odd)
            whole = union(pick(groups, theirs), KeyedGroups(*extra.reshape(-1, 5).T.copy()))
            self._parts = [pick(groups, ~theirs), whole]
            groups = self._grouped()
        await self._prove(groups)
        return self._found(groups, silent=await self._is_silent())

    async def _list(self, places: Iterable[int]) -> None:
        raw: dict[int, bytes] = {}
        held = 0

        def decode() -> None:
            nonlocal held
            of = np.array(list(raw), np.int64)
            groups, errors = decode_availabilities(list(raw.values()))
            self._parts.append(groups._replace(key=of[groups.key]))
            self._listed.update(raw)
            for at, error in errors.items():
                n = int(of[at])
                self._listed.discard(n)
                self._failed[n] = Answer(Outcome.NOT_UNDERSTOOD, detail=str(error))
            raw.clear()
            held = 0

        def take(n: int, answer: Answer) -> None:
            nonlocal held
            if answer.outcome is Outcome.ANSWER:
                raw[n] = answer.body
                held += len(answer.body)
                if held > _RAW:
                    decode()
            elif answer.outcome is Outcome.NEGATIVE:
                self._negatives += 1
            else:
                self._failed[n] = answer

        await self._bookie.ask(((n, frames.list_entries(self._ledgers[n])) for n in places), take)
        decode()

    def _grouped(self) -> KeyedGroups:
        """Return the groups of all lists, in the order of their places."""
        groups = joined(self._parts)
        self._parts = [pick(groups, np.argsort(groups.key, kind="stable"))]
        return self._parts[0]

    async def _last(self, places: Iterable[int], *, lac: bool = True) -> None:
        """Learn each ledger's last record, and its explicit LAC."""
        unsaid: list[int] = []

        def take_lac(n: int, answer: Answer) -> None:
            if answer.lac_record:
                self._lac_records[n] = answer.lac_record
            if not self._take_head(n, answer.body):
                unsaid.append(n)

        def take_read(n: int, answer: Answer) -> None:
            if answer.outcome is Outcome.ANSWER and self._take_head(n, answer.body):
                return
            self._heads.pop(n, None)
            if answer.outcome is not Outcome.NEGATIVE or answer.status != Status.ENOENTRY:
                self._doubt(n, f"its last entry: {answer.said}")

        if lac:
            await self._bookie.ask(((n, frames.read_lac(self._ledgers[n])) for n in places), take_lac)
        else:
            unsaid.extend(places)
        await self._bookie.ask(((n, frames.read_entry(self._ledgers[n], frames.LAST)) for n in unsaid), take_read)

    def _take_head(self, n: int, record: bytes) -> bool:
        head = head_of(record, self._passwords) if record[:1] < _SCOPED else ()
        if not head or not head[SIZE_COLUMN] or head[0] != self._ledgers[n]:
            return False
        self._heads[n] = head
        return True

    def _doubt(self, n: int, detail: str) -> None:
        self._unsure.add(n)
        ledger = self._ledgers[n]
        self._unread.append(Unread(WIRE, Reason.UNREADABLE, Hides.LEDGER, ledger=ledger, detail=detail))

    def _without_their_last(self, groups: KeyedGroups) -> list[int]:
        places = np.array(sorted(n for n in self._heads if n in self._listed), np.int64)
        entries = np.array([self._heads[n][_ENTRY] for n in places.tolist()], np.int64)
        lacking: list[int] = places[~members(groups, places, entries)].tolist()
        return lacking

    async def _prove(self, groups: KeyedGroups) -> None:
        """Read the headers of first entries, of the one before the last where that proves no digest type, of lasts."""
        wanted: list[tuple[int, int]] = []
        begin = starts_of(groups.key)
        ends = np.append(begin[1:], len(groups.key))[: len(begin)] - 1
        lasts = groups.last[ends] + groups.size[ends] - 1 if len(begin) else begin
        for n, first, last in zip(
            groups.key[begin].tolist(), groups.first[begin].tolist(), lasts.tolist(), strict=True
        ):
            head = self._heads.get(n)
            if head is None or head[_ENTRY] != last:
                wanted.append((n, last))
            elif head[DIGEST_COLUMN] < 0 and first < last - 1:
                wanted.append((n, last - 1))
            if first < last:
                wanted.append((n, first))
        pairs = np.array(wanted, np.int64).reshape(-1, 2)
        pairs = pairs[members(groups, pairs[:, 0], pairs[:, 1])]

        def take(place: tuple[int, int], answer: Answer) -> None:
            n, entry = place
            head = head_of(answer.body, self._passwords) if answer.outcome is Outcome.ANSWER else ()
            if head and head[:2] == (self._ledgers[n], entry):
                self._more_heads.append(head)
            else:
                self._doubt(n, f"entry {entry}, which is listed: {answer.said}")

        asked = (((n, e), frames.read_entry(self._ledgers[n], e)) for n, e in map(tuple, pairs.tolist()))
        await self._bookie.ask(asked, take)

    async def _is_silent(self) -> bool:
        """Whether the bookie serves a ledger whose list it does not answer."""
        for n, answer in self._failed.items():
            if answer.outcome is Outcome.NO_ANSWER:
                read = await self._bookie.one(frames.read_entry(self._ledgers[n], frames.LAST))
                return read.outcome is Outcome.ANSWER or read.status == Status.ENOENTRY
        return False

    def _found(self, groups: KeyedGroups, *, silent: bool) -> _Found:
        places = sorted(self._listed)
        ledgers = np.array([self._ledgers[n] for n in places], np.int64)
        count = len(places)
        lacs, records = np.full(count, NO_LAC), [self._lac_records.get(n) for n in places]
        for at, record in enumerate(records):
            if record is None:
                continue
            try:
                lacs[at] = explicit_lac(record, LedgerId(_SCOPE, int(ledgers[at])))
            except FormatError as error:
                records[at] = None
                unread = Unread(WIRE, error.reason, Hides.NOTHING, ledger=int(ledgers[at]), detail=error.detail)
                self._unread.append(unread)
        no = np.zeros(count, np.bool_)
        known = Known(
            ledger=ledgers,
            complete=np.array([n not in self._unsure for n in places], np.bool_),
            fenced=no,
            limbo=no,
            key=np.full(count, -1),
            keys=(),
            lac=lacs,
            lac_record=records,
        )
        of = np.array(self._ledgers, np.int64)
        heads = [head for n, head in self._heads.items() if n in self._listed] + self._more_heads
        return _Found(
            known,
            groups._replace(key=of[groups.key]),
            np.array(heads, np.int64).reshape(-1, HEAD_WIDTH),
            self._negatives,
            [(self._ledgers[n], answer) for n, answer in self._failed.items()],
            self._unread,
            silent,
        )


def _of(groups: KeyedGroups, key: int) -> bytes:
    """Return what tells one list from another."""
    low, high = np.searchsorted(groups.key, [key, key + 1])
    return np.column_stack([column[low:high] for column in groups[1:]]).tobytes()
