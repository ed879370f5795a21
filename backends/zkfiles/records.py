"""Transactions and ACLs as ZooKeeper writes them to its disk. Big-endian; a transaction's bytes are one log record.

    type             encoding
    string, buffer   int32 length, that many bytes; length -1: null
    vector           int32 count, then the elements; count -1: null
    ACL              vector of: int32 perms (1 r, 2 w, 4 c, 8 d, 16 a), string scheme, string id

    transaction      int64 session, int32 cxid, int64 zxid, int64 ms since 1970, int32 type, then its body, then from
                     3.6 on int32 2 and int64 digest of the tree after it

    type             body
    1 15 create      path, buffer data, ACL, bool ephemeral, int32 cversion of the parent (not in 3.3)
    19 container     path, buffer data, ACL, int32 cversion of the parent
    21 with TTL      the same, int64 TTL in ms
    2 20 delete      path
    5 16 set data    path, buffer data, int32 version that it then has
    7 set ACL        path, ACL, int32 version that it then has
    13 check         path, int32 version; only in a multi
    14 multi         vector of: int32 type, buffer of its body; one of type -1 makes all of them void
    -10 session      int32 timeout in ms
    -11 its end      nothing, or vector of strings: the keys that go with it
    -1 refused       int32 error; uses up a zxid

Strings are UTF-8, but that characters beyond U+FFFF are written as two surrogates of three bytes each.

Source: docs/formats/zookeeper-files.md; Apache ZooKeeper 3.4 to 3.9, SerializeUtils and zookeeper.jute.
"""

import struct
from dataclasses import dataclass
from enum import Enum
from typing import Final

Acl = tuple[tuple[int, str, str], ...]
"""Entries of perms, scheme and id, in the order that they are in."""

REFUSED: Final = -1
"""Type of a transaction that changes nothing."""
OPEN_KEY: Final = -1
"""The key of `OPEN_ACL` in a snapshot."""
OPEN_ACL: Final[Acl] = ((31, "world", "anyone"),)
LATEST: Final = 253_402_300_799_999
"""The last ms of the year 9999."""
CONTAINER: Final = -(1 << 63)
"""Owner of a container node."""
_TTL_OWNER: Final = 0xFF << 56
_TTL_LARGEST: Final = (1 << 40) - 1
_PERMS: Final = (("c", 4), ("d", 8), ("r", 1), ("w", 2), ("a", 16))

_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
HEADER: Final = struct.Struct(">qiqqi")
"""Of a transaction: session, cxid, zxid, ms since 1970, type."""
_DIGEST: Final = struct.Struct(">iq")
_DIGEST_VERSION: Final = 2
_UNSIGNED: Final = (1 << 64) - 1


class MalformedError(Exception):
    """Bytes do not follow their format.

    Attributes:
        at: offset of the first byte that is wrong.
        problem: in words; never holds data.
    """

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(position, problem)
        self.at = position
        self.problem = problem


@dataclass(frozen=True, slots=True)
class FileDamage:
    """A place in a file that could not be taken.

    Attributes:
        file: its path.
        offset: in the file; in a compressed file, after decompression.
        problem: in words; never holds data.
    """

    file: str
    offset: int
    problem: str

    def __str__(self) -> str:
        return f"{self.file} at byte {self.offset}: {self.problem}"


class CreatedKind(Enum):
    """The kind of a created node."""

    PERSISTENT = "persistent"
    EPHEMERAL = "ephemeral"
    CONTAINER = "container"
    TTL = "ttl"


@dataclass(frozen=True, slots=True)
class Create:
    """A node is created; `parent_cversion` -1: one more than the parent has."""

    path: bytes
    data: bytes | None
    acl: Acl
    parent_cversion: int
    kind: CreatedKind
    ttl: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """A node is removed, with its subtree."""

    path: bytes


@dataclass(frozen=True, slots=True)
class SetData:
    """A node gets data, and that version."""

    path: bytes
    data: bytes | None
    version: int


@dataclass(frozen=True, slots=True)
class SetAcl:
    """A node gets an ACL, and that the version."""

    path: bytes
    acl: Acl
    version: int


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session begins."""

    timeout_ms: int


@dataclass(frozen=True, slots=True)
class CloseSession:
    """A session ends, and with it the nodes that it owns; 3.6 and later list them."""

    paths: tuple[bytes, ...]


Change = Create | Delete | SetData | SetAcl | OpenSession | CloseSession


@dataclass(frozen=True, slots=True)
class Transaction:
    """One record of a log.

    Attributes:
        session: of the client; of a new session, itself.
        zxid: its number.
        at_ms: the leader's clock, ms since 1970.
        changes: in order; paths are as in a snapshot: the root is empty.
        digest: of the tree after it; None where the log has none.
        void: a multi that failed, and changes nothing.
    """

    session: int
    zxid: int
    at_ms: int
    changes: tuple[Change, ...]
    digest: int | None
    void: bool = False


class Reader:
    """Reads fields one after the other, never past the end."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, position: int, end: int) -> None:
        self.data = data
        self.at = position
        self.end = end

    def take(self, size: int) -> int:
        """Return the place of the next bytes, and move past them."""
        position = self.at
        if size < 0 or size > self.end - position:
            raise MalformedError(position, f"{size} bytes are named, and {self.end - position} are left")
        self.at = position + size
        return position

    def i32(self) -> int:
        """Read an int32."""
        return int(_I32.unpack_from(self.data, self.take(4))[0])

    def i64(self) -> int:
        """Read an int64."""
        return int(_I64.unpack_from(self.data, self.take(8))[0])

    def buffer(self) -> bytes | None:
        """Read a buffer."""
        size = self.i32()
        if size == -1:
            return None
        position = self.take(size)
        return self.data[position : self.at]

    def path(self) -> bytes:
        """Read a path; the root is empty."""
        position = self.at
        path = self.buffer()
        if not path or path[0] != 0x2F:
            raise MalformedError(position, "not a path")
        return b"" if path == b"/" else path

    def text(self) -> str:
        """Read a string; null is empty."""
        position = self.at
        raw = self.buffer() or b""
        try:
            return text_of(raw)
        except UnicodeDecodeError:
            raise MalformedError(position, "not text") from None

    def count(self, least: int) -> int:
        """Read the count of a vector with elements of at least so many bytes; -1: null."""
        position = self.at
        count = self.i32()
        if count < -1 or count * least > self.end - self.at:
            raise MalformedError(position, f"{count} elements are named, and {self.end - self.at} bytes are left")
        return count

    def acl(self) -> Acl | None:
        """Read an ACL; None: null."""
        count = self.count(12)
        return None if count < 0 else tuple((self.i32(), self.text(), self.text()) for _ in range(count))


def text_of(raw: bytes) -> str:
    """Return the text that a string's bytes are.

    Raises:
        UnicodeDecodeError: they are none.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError:
        # Two surrogates that belong together are one character.
        return raw.decode("utf-8", "surrogatepass").encode("utf-16-be", "surrogatepass").decode("utf-16-be")


def acl_text(acl: Acl) -> str:
    """Return an ACL as ``scheme:id:perms``, joined with commas."""
    return ",".join(f"{s}:{name}:{''.join(p for p, bit in _PERMS if perms & bit)}" for perms, s, name in acl)


def time_of(ms: int) -> int | None:
    """Return ms since 1970; None for an impossible time."""
    return ms if 0 <= ms <= LATEST else None


def session_of(owner: int) -> int:
    """Return the session that a node lives with; 0: none, as of containers and nodes with a TTL."""
    return 0 if owner == CONTAINER or ttl_of(owner) is not None else owner


def ttl_of(owner: int) -> int | None:
    """Return the TTL in ms that an owner field means; None: it means none."""
    ttl = (owner & _UNSIGNED) ^ _TTL_OWNER
    return ttl if ttl <= _TTL_LARGEST else None


def owner_of(change: Create, session: int) -> int:
    """Return the owner field of a created node."""
    match change.kind:
        case CreatedKind.EPHEMERAL:
            return session
        case CreatedKind.CONTAINER:
            return CONTAINER
        case CreatedKind.TTL:
            return (_TTL_OWNER | change.ttl & _TTL_LARGEST) - (1 << 64)
        case CreatedKind.PERSISTENT:
            return 0


def decode(data: bytes) -> Transaction:
    """Return the transaction that a log record's payload is.

    Raises:
        MalformedError: it is none that is known; offsets count from the start of `data`.
    """
    if len(data) < HEADER.size:
        raise MalformedError(0, "shorter than the header of a transaction")
    session, _, zxid, at_ms, kind = HEADER.unpack_from(data)
    body = Reader(data, HEADER.size, len(data))
    changes, void = _body(kind, body)
    left = len(data) - body.at
    digest = None
    if left == _DIGEST.size:
        version, stated = _DIGEST.unpack_from(data, body.at)
        digest = stated & _UNSIGNED if version == _DIGEST_VERSION else None
    elif left:
        raise MalformedError(body.at, f"{left} bytes are left after a transaction of type {kind}")
    return Transaction(session, zxid, at_ms, changes, digest, void)


def _body(kind: int, body: Reader) -> tuple[tuple[Change, ...], bool]:
    match kind:
        case 14:
            return _multi(body)
        case -1:
            body.take(4)
            return (), False
        case -10:
            return (OpenSession(body.i32()),), False
        case -11:
            return (CloseSession(_read_closed(body)),), False
        case 13:
            raise MalformedError(HEADER.size - 4, "a check outside of a multi")
        case _:
            return (_change(kind, body, HEADER.size - 4),), False


def _read_closed(body: Reader) -> tuple[bytes, ...]:
    left = body.end - body.at
    # 12 bytes that begin with 2 are a digest: as a vector they would name two empty paths.
    if not left or (left == _DIGEST.size and _I32.unpack_from(body.data, body.at)[0] == _DIGEST_VERSION):
        return ()
    return tuple(body.path() for _ in range(body.count(4)))


def _multi(body: Reader) -> tuple[tuple[Change, ...], bool]:
    changes: list[Change] = []
    void = False
    for _ in range(body.count(8)):
        kind_at = body.at
        kind = body.i32()
        size = body.i32()
        start = body.take(size)
        inner = Reader(body.data, start, body.at)
        if kind == -1:
            void = True
        elif kind == 13:
            inner.path()
            inner.take(4)
        else:
            changes.append(_change(kind, inner, kind_at))
            if inner.at != inner.end:
                raise MalformedError(inner.at, "bytes are left after a part of a multi")
    return () if void else tuple(changes), void


def _change(kind: int, body: Reader, kind_at: int) -> Change:
    match kind:
        case 1 | 15:
            path, data, acl = body.path(), body.buffer(), body.acl()
            ephemeral = body.data[body.take(1)] != 0
            # Before 3.4 nothing follows but a digest, which no such server wrote.
            cversion = body.i32() if body.end - body.at in (4, 4 + _DIGEST.size) else -1
            kind_of_node = CreatedKind.EPHEMERAL if ephemeral else CreatedKind.PERSISTENT
            return Create(path, data, OPEN_ACL if acl is None else acl, cversion, kind_of_node)
        case 19 | 21:
            path, data, acl, cversion = body.path(), body.buffer(), body.acl(), body.i32()
            acl = OPEN_ACL if acl is None else acl
            if kind == 19:
                return Create(path, data, acl, cversion, CreatedKind.CONTAINER)
            return Create(path, data, acl, cversion, CreatedKind.TTL, body.i64())
        case 2 | 20:
            return Delete(body.path())
        case 5 | 16:
            return SetData(body.path(), body.buffer(), body.i32())
        case 7:
            path, acl, version = body.path(), body.acl(), body.i32()
            return SetAcl(path, OPEN_ACL if acl is None else acl, version)
    raise MalformedError(kind_at, f"a transaction of unknown type {kind}")
