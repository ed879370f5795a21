"""Bookie folders with ledgers of scopes, written from the description of the formats: nothing of the codecs is used.

What reads them was written by others, so where both agree neither can have copied a mistake. Big-endian; see
`docs/formats/bookie-storage.md`, "Scopes".

    front of ids     scope 0: q ledger, q entry; else B 0x80 | 2 << 4 | digest number, q scope, q ledger, q entry
    entry            front, q LAC, q length, digest over all before it and the payload, payload
    entry log        header version 2 and rows of 24 bytes in its map where one of its ledgers is of a scope
    index file       scope 0: aa/bb/id.idx; else four names of eight hex digits
    databases        ledgers, locations; of scopes ledgers-scoped, locations-scoped
    journal          version 6; records of all as in an entry log, special ones with a front of their own
"""

import hashlib
import hmac
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import google_crc32c

from recovery.codecs import cookie
from recovery.codecs._pb.ledger_data_pb2 import LedgerData
from recovery.codecs.cookie import Cookie
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest
from tests.simulation.bookie_dir import BOOKIE, INSTANCE, BookieDir

Storage = Literal["interleaved", "db"]
PutRows = Callable[[Path, Iterable[tuple[bytes, bytes]]], None]
"""Makes a RocksDB folder of some keys and values."""

_NUMBER: Final = {Digest.CRC32: 1, Digest.HMAC: 2, Digest.CRC32C: 3, Digest.DUMMY: 4}
_HEADER: Final = 1024
_PAGE: Final = 8192
_ALIGNMENT: Final = 512
_MASTER_KEY, _FENCE, _LAC = -0x1000, -0x2000, -0x8000
_JOURNAL: Final = 1


@dataclass(frozen=True, slots=True)
class Held:
    """What a bookie has of one ledger.

    Attributes:
        id: whose entries.
        indexed: entries in the entry log that the index names.
        ahead: entries that only the journal has, behind the mark.
        logged: entries in the entry log that no index names.
        digest, password: of all of them.
        fenced: said by the index.
        fenced_ahead: said by the journal.
        lac: explicit LAC in the index; None: none.
        lac_ahead: the same in the journal.
    """

    id: LedgerId
    indexed: Sequence[int] = ()
    ahead: Sequence[int] = ()
    logged: Sequence[int] = ()
    digest: Digest = Digest.CRC32C
    password: bytes = field(default=b"", repr=False)
    fenced: bool = False
    fenced_ahead: bool = False
    lac: int | None = None
    lac_ahead: int | None = None

    @property
    def key(self) -> bytes:
        """The master key."""
        return hashlib.sha1(b"ledger" + self.password, usedforsecurity=False).digest()

    def payload(self, entry: int) -> bytes:
        """Return the payload of an entry: no two ledgers have the same."""
        return f"entry {entry} of {self.id}".encode()

    def length(self, entry: int) -> int:
        """Return the bytes of all payloads up to and including an entry."""
        return sum(len(self.payload(number)) for number in range(entry + 1))

    def record(self, entry: int) -> bytes:
        """Return the bytes of an entry."""
        front = self._front(entry) + struct.pack(">qq", entry - 1, self.length(entry))
        return front + self._digest(front + self.payload(entry)) + self.payload(entry)

    def lac_record(self, lac: int) -> bytes:
        """Return the bytes of an explicit LAC."""
        front = self._front(lac)
        return front + self._digest(front)

    def special(self, number: int, body: bytes = b"") -> bytes:
        """Return the bytes of a special record of a journal."""
        return self._front(number) + body

    def _front(self, number: int) -> bytes:
        if not self.id.scope:
            return struct.pack(">qq", self.id.ledger, number)
        flags = 0b1010_0000 + _NUMBER[self.digest]
        return struct.pack(">Bqqq", flags, self.id.scope, self.id.ledger, number)

    def _digest(self, covered: bytes) -> bytes:
        match self.digest:
            case Digest.CRC32:
                return struct.pack(">Q", zlib.crc32(covered))
            case Digest.CRC32C:
                return struct.pack(">I", google_crc32c.value(covered))
            case Digest.HMAC:
                key = hashlib.sha1(b"mac" + self.password, usedforsecurity=False).digest()
                return hmac.digest(key, covered, "sha1")
            case Digest.DUMMY:
                return b""


def make_scoped_bookie(
    root: Path,
    stored: Sequence[Held],
    storage: Storage = "interleaved",
    *,
    put: PutRows | None = None,
    folders: int = 1,
    rotated: bool = True,
    dirty: bool = False,
    bookie: str = BOOKIE,
) -> BookieDir:
    """Make the folders of a bookie.

    Args:
        root: a new folder.
        stored: its ledgers.
        storage: interleaved, whose files a sorted bookie writes as well, or Db.
        put: makes databases; needed for Db.
        folders: ledger folders; without index folders the index is in them.
        rotated: entry logs end with their ledgers map.
        dirty: it was killed, and replays its journal when it starts.
        bookie: its id.
    """
    made = BookieDir(tuple(root / f"ledgers{n}" for n in range(folders)), (), (root / "journal0",))
    version = cookie.encode(
        Cookie(5, bookie, tuple(map(str, made.journal_dirs)), tuple(map(str, made.ledger_dirs)), None, INSTANCE)
    )
    for folder in made.all_dirs:
        (folder / "current").mkdir(parents=True)
        (folder / "current" / "VERSION").write_bytes(version)
    for number, folder in enumerate(made.ledger_dirs):
        own = [ledger for ledger in stored if ledger.id.ledger % folders == number]
        # Ids of logs are one space for an interleaved bookie, and one a folder for a Db bookie.
        log_id = number if storage == "interleaved" else 0
        log, places = _log(own, rotated=rotated)
        (folder / "current" / f"{log_id:x}.log").write_bytes(log)
        located = {
            (ledger.id, entry): log_id << 32 | places[ledger.id, entry] for ledger in own for entry in ledger.indexed
        }
        if storage == "interleaved":
            for ledger in own:
                _write_index(folder / "current", ledger, located)
        elif put is not None:
            _write_databases(folder / "current", own, located, put)
        if dirty:
            (folder / "current" / "DIRTY").touch()
        (folder / "current" / "lastMark").write_bytes(struct.pack(">qq", _JOURNAL, _ALIGNMENT))
    made.journal(_JOURNAL).write_bytes(_journal(stored))
    return made


def _log(stored: Sequence[Held], *, rotated: bool) -> tuple[bytes, dict[tuple[LedgerId, int], int]]:
    """Return an entry log, ledgers in turns, and the position of each entry."""
    out = bytearray(_HEADER)
    places: dict[tuple[LedgerId, int], int] = {}
    sizes: dict[LedgerId, int] = {}
    waiting = [(held_ledger, list(held_ledger.indexed) + list(held_ledger.logged)) for held_ledger in stored]
    while waiting:
        for held_ledger, entries in waiting:
            if entries:
                entry = entries.pop(0)
                record = held_ledger.record(entry)
                places[held_ledger.id, entry] = len(out) + 4
                out += struct.pack(">i", len(record)) + record
                sizes[held_ledger.id] = sizes.get(held_ledger.id, 0) + 4 + len(record)
        waiting = [(held_ledger, entries) for held_ledger, entries in waiting if entries]
    scoped = any(ledger.scope for ledger in sizes)
    map_at = len(out) if rotated and sizes else 0
    if map_at:
        rows = b"".join(
            struct.pack(">qqq", ledger.scope, ledger.ledger, size)
            if scoped
            else struct.pack(">qq", ledger.ledger, size)
            for ledger, size in sizes.items()
        )
        out += struct.pack(">iqqi", 20 + len(rows), -1, -2, len(sizes)) + rows
    out[:20] = struct.pack(">4siqi", b"BKLO", 2 if scoped else 1, map_at, len(sizes) if map_at else 0)
    return bytes(out), places


def _write_index(folder: Path, ledger: Held, located: dict[tuple[LedgerId, int], int]) -> None:
    lac = b"" if ledger.lac is None else ledger.lac_record(ledger.lac)
    header = (
        struct.pack(">4sii", b"BKLE", 1, len(ledger.key))
        + ledger.key
        + struct.pack(">ii", ledger.fenced, len(lac))
        + lac
    )
    count = max(ledger.indexed, default=-1) + 1
    slots = [located.get((ledger.id, entry), 0) for entry in range(-(-count * 8 // _PAGE) * _PAGE // 8)]
    path = folder / _index_name(ledger.id)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header.ljust(_HEADER, b"\0") + struct.pack(f">{len(slots)}q", *slots))


def _index_name(ledger: LedgerId) -> str:
    if not ledger.scope:
        return f"{ledger.ledger >> 8 & 255:x}/{ledger.ledger & 255:x}/{ledger.ledger:x}.idx"
    words = struct.unpack(">4I", struct.pack(">qq", ledger.scope, ledger.ledger))
    return "/".join(f"{word:08x}" for word in words) + ".idx"


def _write_databases(
    folder: Path, stored: Sequence[Held], located: dict[tuple[LedgerId, int], int], put: PutRows
) -> None:
    ledgers: dict[str, list[tuple[bytes, bytes]]] = {"ledgers": [], "ledgers-scoped": []}
    for held_ledger in stored:
        data = LedgerData(exists=True, fenced=held_ledger.fenced, masterKey=held_ledger.key)
        if held_ledger.lac is not None:
            data.explicitLac = held_ledger.lac_record(held_ledger.lac)
        name, key = _row_key("ledgers", held_ledger.id)
        ledgers[name].append((key, data.SerializeToString(deterministic=True)))
    locations: dict[str, list[tuple[bytes, bytes]]] = {"locations": [], "locations-scoped": []}
    for (ledger, entry), place in located.items():
        name, key = _row_key("locations", ledger)
        locations[name].append((key + struct.pack(">q", entry), struct.pack(">q", place)))
    chosen = any(held_ledger.id.scope for held_ledger in stored)
    for name, rows in (ledgers | locations).items():
        # Those of scopes are made with the first ledger of one.
        if chosen or not name.endswith("-scoped"):
            put(folder / name, rows)


def _row_key(name: str, ledger: LedgerId) -> tuple[str, bytes]:
    if ledger.scope:
        return f"{name}-scoped", struct.pack(">qq", ledger.scope, ledger.ledger)
    return name, struct.pack(">q", ledger.ledger)


def _journal(stored: Sequence[Held]) -> bytes:
    """Return a journal of version 6: a padded batch for each ledger, then reserved zeros."""
    out = bytearray(struct.pack(">4si", b"BKLG", 6).ljust(_ALIGNMENT, b"\0"))
    for ledger in stored:
        bodies = [ledger.special(_MASTER_KEY, struct.pack(">i", len(ledger.key)) + ledger.key)]
        bodies += [ledger.record(entry) for entry in ledger.ahead]
        if ledger.fenced_ahead:
            bodies.append(ledger.special(_FENCE))
        if ledger.lac_ahead is not None:
            raw = ledger.lac_record(ledger.lac_ahead)
            bodies.append(ledger.special(_LAC, struct.pack(">i", len(raw)) + raw))
        for body in bodies:
            out += struct.pack(">i", len(body)) + body
        left = -len(out) % _ALIGNMENT
        left += _ALIGNMENT if 0 < left < 8 else 0
        if left:
            out += struct.pack(">ii", -256, left - 8) + bytes(left - 8)
    return bytes(out) + bytes(8 * _ALIGNMENT)
