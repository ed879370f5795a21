"""The ledgers of compacted topics that no record of the store names while a broker has the topic loaded.

A broker then keeps the name in the last entry of the ledger that the topic's subscription `__compaction` has for its
own state. Running bookies are asked for that entry; nothing is fenced.

    the cursor's ledger is    its last entry is
    closed                    the one that its record says
    open                      the highest that a bookie has of it; every bookie of its last segment must answer. Where
                              fewer than A bookies have that entry, it may get lost, and the one before counts, too

Where that cannot be read, the topic's compacted ledgers stay undecided.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from backends.bookie import frames
from backends.bookie.client import BookieOptions, BookieWire
from backends.bookie.frames import RequestOutcome
from backends.registry import OpenStore
from reconcile.deletes.verification.evidence import ReferenceListing
from reconcile.deletes.verification.makers import list_compacted_topics
from reconcile.deletes.verification.wanted import WantedLedgers
from reconcile.jobs.context import WireOptions
from reconcile.references import COMPACTION, References, name_compacted
from recovery.bookies.addresses import BookieNames, read_members
from recovery.bookies.ledger_entries import read_content
from recovery.codecs import entry, ledger_metadata, managed_ledger
from recovery.dataset import Dataset
from recovery.errors import FormatError
from recovery.model.ids import LedgerId
from recovery.model.metadata import LedgerMetadata, LedgerState


def find_loaded(wanted: WantedLedgers, capture: Dataset, listing: ReferenceListing) -> dict[str, LedgerId]:
    """Return the topics that some of the wanted ledgers are compacted copies of, each with its cursor's own ledger.

    A history has ledgers that the cursor let go of, and a copy of a store may have an older one: what these name may be
    older than what the broker uses. Where it is not clear which ledger the cursor has, the topic is left out.

    Args:
        wanted: the ledgers.
        capture: of the store.
        listing: of references: the records of the store.
    """
    if listing.references is None:
        return {}
    topics: set[str] = set()
    for rows, _ in wanted.read(capture, "ledgers", ("custom",)):
        topics |= list_compacted_topics(rows["custom"])
    rows = listing.references.rows
    owners = pa.array([COMPACTION + topic for topic in sorted(topics)], pa.string())
    is_current = pc.invert(pc.fill_null(rows["deleted"], fill_value=False))
    rows = rows.filter(pc.and_(is_current, pc.is_in(rows["owner"], value_set=owners)))
    found: dict[str, list[LedgerId]] = {}
    for row in rows.select(["owner", "scope", "ledger"]).to_pylist():
        found.setdefault(row["owner"].removeprefix(COMPACTION), []).append(LedgerId(row["scope"], row["ledger"]))
    return {topic: ledgers[0] for topic, ledgers in found.items() if len(ledgers) == 1}


def read_compacted(
    listing: ReferenceListing,
    cursors: Mapping[str, LedgerId],
    raws: Mapping[LedgerId, bytes],
    opened: OpenStore,
    wire: WireOptions,
) -> ReferenceListing:
    """Return a listing with the compacted ledgers that running bookies name.

    Args:
        listing: of the store's records.
        cursors: result of `find_loaded`.
        raws: records of the cursors' ledgers.
        opened: the store, which knows the bookies.
        wire: how bookies are asked.

    Raises:
        InputError: an alias is registered itself.
        BackendError: the store does not answer, or refuses.
    """
    if listing.references is None or not cursors:
        return listing
    members = read_members(opened.store, opened.root, opened.layout_hint, wire.aliases)
    decoded = {topic: (ledger, _decode(raws.get(ledger))) for topic, ledger in cursors.items()}
    records = {topic: (ledger, record) for topic, (ledger, record) in decoded.items() if record is not None}
    named = asyncio.run(_ask(records, members, wire.options))
    pairs = [(ledger, topic) for topic, ledgers in named.items() for ledger in ledgers]
    more = name_compacted(pairs, opened.uri)
    united = References.unite([listing.references, more])
    return replace(listing, references=united, read_topics=frozenset(named))


def _decode(raw: bytes | None) -> LedgerMetadata | None:
    try:
        return None if raw is None else ledger_metadata.decode(raw)
    except FormatError:
        return None


async def _ask(
    records: Mapping[str, tuple[LedgerId, LedgerMetadata]], members: BookieNames, options: BookieOptions
) -> dict[str, set[int]]:
    """Return the compacted ledgers that each topic names; a topic of which that cannot be read is left out."""
    listed = [members.find(name) for name in members.bookies]
    addresses = {member.bookie: member.address for member in listed if member.address is not None}
    named: dict[str, set[int]] = {}
    with BookieWire(addresses, options) as wire:
        for topic, (ledger, record) in records.items():
            ledgers = await CursorLedger(ledger, record, members, addresses.keys(), wire).read()
            if ledgers is not None:
                named[topic] = ledgers
    return named


class CursorLedger:
    """The own ledger of one subscription, read from running bookies."""

    def __init__(
        self,
        ledger: LedgerId,
        record: LedgerMetadata,
        members: BookieNames,
        known: Iterable[str],
        wire: BookieWire,
    ) -> None:
        self._ledger = ledger
        self._record = record
        self._wire = wire
        self._passwords = () if record.password is None else (record.password,)
        last = record.segments[-1].members if record.segments else ()
        names = dict.fromkeys(name for segment in reversed(record.segments) for name in segment.members)
        self._bookies = {name: members.find(name).bookie for name in names}
        self._needed = last
        self._known = frozenset(known)

    async def read(self) -> set[int] | None:
        """Return the compacted ledgers that the last entry names; None: that cannot be read."""
        if self._ledger.scope or not self._needed:
            return None
        if self._record.state is LedgerState.CLOSED:
            last = self._record.last_entry
            return set() if last is not None and last < 0 else await self._read_entry(last)
        highest: dict[str, int] = {}
        for name in self._bookies:
            number = await self._find_last(name)
            if number is None and name in self._needed:
                return None
            highest[name] = -1 if number is None else number
        last = max(highest.values())
        if last < 0:
            return None
        named = await self._read_entry(last)
        holders = sum(number == last for number in highest.values())
        if named is None or holders >= self._record.ack_quorum or last == 0:
            return named
        previous = await self._read_entry(last - 1)
        return None if previous is None else named | previous

    async def _find_last(self, name: str) -> int | None:
        """Return the highest entry that a bookie has of the ledger, -1: none; None: it does not answer."""
        bookie = self._bookies[name]
        if bookie not in self._known:
            return None
        answer = await self._wire[bookie].one(frames.read_entry(self._ledger.ledger, frames.LAST))
        if answer.outcome is RequestOutcome.NEGATIVE:
            return -1
        if answer.outcome is not RequestOutcome.ANSWER:
            return None
        try:
            header = entry.decode_header(answer.body)
        except FormatError:
            return None
        return header.entry

    async def _read_entry(self, number: int | None) -> set[int] | None:
        """Return the compacted ledger that an entry names, by the first bookie that has it with its digest."""
        for bookie in dict.fromkeys(self._bookies.values()) if number is not None and number >= 0 else ():
            if bookie not in self._known:
                continue
            answer = await self._wire[bookie].one(frames.read_entry(self._ledger.ledger, number or 0))
            if answer.outcome is not RequestOutcome.ANSWER:
                continue
            content = read_content(bytes(answer.body), self._ledger, number or 0, self._passwords)
            if content is None:
                continue
            try:
                named = managed_ledger.decode_compacted(content.payload)
            except FormatError:
                return None
            return set() if named is None else {named}
        return None
