"""All entries of a ledger that bookies would serve from their disks, each once, whatever its record says.

    of the copies of an entry   taken is
    some prove their digest     each content among these once: two contents are two histories
    none does                   each content once, as it stands; nothing shows that it is what was written

A copy's LAC is not content: replicas of one entry differ in it. The digest of an entry of type HMAC proves itself with
one of the passwords alone, of type DUMMY never.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from recovery.bookies.entry_places import EntryPlaces
from recovery.codecs import entry
from recovery.errors import FormatError
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest

if TYPE_CHECKING:
    from recovery.bookies.disk_reader import BookieDisks

Ints = npt.NDArray[np.int64]
T = TypeVar("T")

_AT_ONCE: Final = 256
"""Entries whose copies are in memory together."""
_LEDGERS_AT_ONCE: Final = 4_096
"""Ledgers whose places are looked up together."""


@dataclass(frozen=True, slots=True)
class ReadEntry:
    """One content of an entry.

    Attributes:
        header: of the copy that was taken.
        record: its bytes, from the header on.
        digest: the type that the bytes prove; None: none.
        bookies: that have this content, ascending.
    """

    header: entry.EntryHeader
    record: bytes
    digest: Digest | None
    bookies: tuple[str, ...]

    @property
    def payload(self) -> bytes | None:
        """What the client wrote; None where nothing proves where it begins."""
        return None if self.digest is None else bytes(entry.payload_of(self.record, self.digest))


class Content(NamedTuple):
    """What all copies of an entry have alike: the type of its digest, the length up to it, what the client wrote."""

    digest: Digest
    length: int
    payload: bytes


def read_content(record: bytes, ledger: LedgerId, number: int, passwords: Sequence[bytes]) -> Content | None:
    """Return the content of an entry; None where the bytes are not this entry's, or prove no digest."""
    proven = entry.find_digest(record, passwords) if entry.is_of(record, ledger, number) else None
    if proven is None:
        return None
    return Content(proven[0], entry.decode_header(record).length, bytes(entry.payload_of(record, proven[0])))


@dataclass(slots=True)
class LedgerReading:
    """What was read of a ledger, filled while `read_entries` is gone through.

    Attributes:
        entries: different ids.
        last: the highest; None: there is none.
        several: ids with several contents.
        unproven: ids of which no copy proves its digest.
        unreadable: ids that a bookie has a place for, and no copy is there.
        is_sure: whether every bookie's disks were looked at whole.
    """

    entries: int = 0
    last: int | None = None
    several: list[int] = field(default_factory=list)
    unproven: list[int] = field(default_factory=list)
    unreadable: list[int] = field(default_factory=list)
    is_sure: bool = True


def decode_payloads(
    disks: Mapping[str, "BookieDisks"],
    wanted: Iterable[tuple[LedgerId, Sequence[int]]],
    passwords: Sequence[bytes],
    decode: Callable[[LedgerId, int, bytes], T],
) -> Iterator[tuple[LedgerId, dict[int, T]]]:
    """Yield what the client wrote in some entries of each ledger, as far as a bookie has them, and a digest agrees.

    Places are looked up for many ledgers together, so that what is in one log is read in its order. One record is
    in memory at a time.

    Args:
        disks: of bookies, by their ids.
        wanted: ledgers, each with ids of entries, ascending, each once.
        passwords: candidates for digests of type HMAC; the empty one is always tried.
        decode: ledger, entry and payload → what is kept of it.
    """
    waiting = iter(wanted)
    while block := list(islice(waiting, _LEDGERS_AT_ONCE)):
        kept: list[dict[int, dict[bytes, T]]] = [{} for _ in block]
        for disk in disks.values():
            places = [_find_places(disk, *asked) for asked in block]
            owner = np.repeat(np.arange(len(block)), [len(stretch.entry) for stretch in places]).tolist()
            number, file, position = (np.concatenate(column) for column in zip(*places, strict=True))
            numbers = number.tolist()
            for row, record in disk.read(file, position):
                ledger, entry_id = block[owner[row]][0], numbers[row]
                content = read_content(record, ledger, entry_id, passwords)
                if content is not None:
                    several = kept[owner[row]].setdefault(entry_id, {})
                    mark = f"{content.digest} {content.length} ".encode() + hashlib.sha256(content.payload).digest()
                    if mark not in several:
                        several[mark] = decode(ledger, entry_id, content.payload)
        for (ledger, _), contents in zip(block, kept, strict=True):
            # Two contents are two histories: nothing says which one is this ledger's.
            yield (
                ledger,
                {number: next(iter(several.values())) for number, several in contents.items() if len(several) == 1},
            )


def _find_places(disk: "BookieDisks", ledger: LedgerId, wanted: Sequence[int]) -> EntryPlaces:
    """Return where a bookie has some entries: an entry may be in a journal and in a log."""
    places = disk.find(ledger, np.array(wanted, np.int64))
    if not len(places.journal.entry):
        return places.index
    pairs = zip(places.journal, places.index, strict=True)
    return EntryPlaces(*(np.concatenate(pair) for pair in pairs))


def read_entries(
    disks: Mapping[str, "BookieDisks"], ledger: LedgerId, passwords: Sequence[bytes], reading: LedgerReading
) -> Iterator[ReadEntry]:
    """Yield the entries of a ledger, ascending by id.

    Args:
        disks: of bookies, by their ids.
        ledger: which.
        passwords: candidates for digests of type HMAC; the empty one is always tried.
        reading: is filled.
    """
    listed: dict[str, Ints] = {}
    for bookie, disk in disks.items():
        listed[bookie], sure = disk.list_entries(ledger)
        reading.is_sure &= sure
    everything: Ints = reduce(np.union1d, listed.values(), np.empty(0, np.int64))
    for low in range(0, len(everything), _AT_ONCE):
        wanted = everything[low : low + _AT_ONCE]
        copies: dict[int, list[tuple[str, bytes]]] = {number: [] for number in wanted.tolist()}
        for bookie, disk in disks.items():
            _read_copies(disk, bookie, ledger, np.intersect1d(wanted, listed[bookie]), copies)
        for number, copies_of_entry in copies.items():
            yield from _choose_contents(number, copies_of_entry, passwords, reading)


def _read_copies(
    disks: "BookieDisks", bookie: str, ledger: LedgerId, wanted: Ints, copies: Mapping[int, list[tuple[str, bytes]]]
) -> None:
    """Add what a bookie has, of the journal and of the index, and what is in logs alone where that was found."""
    positions = disks.find(ledger, wanted)
    for places in (positions.journal, positions.index, disks.find_leftovers(ledger, wanted)):
        numbers = places.entry.tolist()
        for row, record in disks.read(places.file, places.position):
            if entry.is_of(record, ledger, numbers[row]):
                copies[numbers[row]].append((bookie, record))


def _choose_contents(
    number: int, copies: Sequence[tuple[str, bytes]], passwords: Sequence[bytes], reading: LedgerReading
) -> Iterator[ReadEntry]:
    contents: dict[tuple[Digest | None, int, bytes], ReadEntry] = {}
    for bookie, record in copies:
        try:
            header = entry.decode_header(record)
        except FormatError:
            continue
        proven = entry.find_digest(record, passwords)
        digest = None if proven is None else proven[0]
        entry_read = ReadEntry(header, record, digest, (bookie,))
        body = record[entry.header_size(record) :] if entry_read.payload is None else entry_read.payload
        key = (digest, header.length, body)
        known = contents.setdefault(key, entry_read)
        if bookie not in known.bookies:
            contents[key] = replace(known, bookies=tuple(sorted((*known.bookies, bookie))))
    proven_ones = [entry_read for entry_read in contents.values() if entry_read.digest is not None]
    taken = proven_ones or list(contents.values())
    if not taken:
        reading.unreadable.append(number)
        return
    reading.entries += 1
    reading.last = number
    if len(taken) > 1:
        reading.several.append(number)
    if not proven_ones:
        reading.unproven.append(number)
    yield from taken
