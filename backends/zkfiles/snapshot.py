r"""Snapshot: the whole tree of a ZooKeeper server in one file (``snapshot.<zxid>``, perhaps ``.gz`` or ``.snappy``).

Big-endian. The name has the last zxid that was applied when writing began, in hex.

    part       size     content
    header     16       b"ZKSN", int32 version 2, int64 dbid
    sessions   4 + 12n  int32 count; each int64 session, int32 timeout in ms
    ACLs                int32 count; each int64 key, ACL (`records`); key -1 means world:anyone, all
    nodes               each: string path (the root is empty), buffer data, int64 key of its ACL, and 60 bytes: int64
                        czxid, mzxid, ctime, mtime, int32 version, cversion, aversion, int64 owner, pzxid
    end        5        the string "/"
    seal       13       int64 Adler-32 of all before it, the string "/"
    digest     20       3.6 and later: int64 zxid, int32 2, int64 digest of the tree then; sealed again
    last zxid  8        3.9 and later: int64, the last one when writing ended; sealed again

Parents are before their children, each subtree in one piece. Writing goes on while transactions are applied, so the
tree holds all up to the name's zxid, and any part of what came until writing ended (`Snapshot.ends`).

gzip holds the same bytes. So does snappy-java's stream: b"\x82SNAPPY\0", int32 1, int32 1, then blocks: int32 size,
a raw snappy block.

The digest of a tree is the sum of the CRC-32 of every node: path, data, and the 60 bytes with pzxid in the third place.

Source: docs/formats/zookeeper-files.md; Apache ZooKeeper 3.9, FileSnap, DataTree, DigestCalculator; snappy-java,
SnappyOutputStream.
"""

import re
import struct
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backends.zkfiles.compression import read_image
from backends.zkfiles.records import OPEN_ACL, OPEN_KEY, Acl, FileDamage, MalformedError, Reader
from backends.zkfiles.txnlog import open_file

Ints = npt.NDArray[np.int64]

MAGIC: Final = b"ZKSN"
VERSION: Final = 2
_LARGEST_NODE: Final = 1 << 30
_END: Final = b"\0\0\0\x01/"
_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
_DIGEST: Final = struct.Struct(">qiq")
_UNSIGNED: Final = (1 << 64) - 1
_STAT: Final = struct.Struct(">qqqqqiiiqq")
_TAIL: Final = np.dtype(
    [
        ("acl", ">i8"),
        ("czxid", ">i8"),
        ("mzxid", ">i8"),
        ("ctime", ">i8"),
        ("mtime", ">i8"),
        ("version", ">i4"),
        ("cversion", ">i4"),
        ("aversion", ">i4"),
        ("owner", ">i8"),
        ("pzxid", ">i8"),
    ]
)
_DIGESTED: Final = np.r_[8:24, 60:68, 24:60]
"""The bytes of a tail that a digest covers, in its order."""
_ROWS: Final = 1 << 13
_WINDOW: Final = 64 << 20
"""Bytes of an image that are parsed together, at most, but always a node."""
_NOTHING: Final = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(bytes(8)), pa.py_buffer(b"")])[0]
"""No bytes, as a scalar; `pa.scalar` would load pandas, where that is installed."""
_UNCOUNTED: Final = b"/zookeeper/"
"""Below it no node counts for the digest."""


@dataclass(slots=True)
class SnapshotNode:
    """One node as it is, with numbers as on disk."""

    data: bytes | None
    acl: Acl | None
    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    owner: int
    pzxid: int

    def copy(self) -> "SnapshotNode":
        """Return an equal node."""
        return SnapshotNode(
            self.data,
            self.acl,
            self.czxid,
            self.mzxid,
            self.ctime,
            self.mtime,
            self.version,
            self.cversion,
            self.aversion,
            self.owner,
            self.pzxid,
        )

    def digest(self, path: bytes) -> int:
        """Return the node's part of the digest of its tree."""
        if path.startswith(_UNCOUNTED):
            return 0
        stat = struct.pack(
            ">qqqqqiiiq",
            self.czxid,
            self.mzxid,
            self.pzxid,
            self.ctime,
            self.mtime,
            self.version,
            self.cversion,
            self.aversion,
            self.owner,
        )
        return zlib.crc32(stat, zlib.crc32(self.data or b"", zlib.crc32(path)))


@dataclass(frozen=True, slots=True)
class NodeWindow:
    """Nodes that are read together: `path` and `data` as Arrow binary, `tail` as `_TAIL`."""

    first: int
    path: pa.Array
    data: pa.Array
    tail: npt.NDArray[np.void]

    def digests(self) -> int:
        """Return the sum of the nodes' digests."""
        raw = self.tail.view(np.uint8).reshape(-1, _TAIL.itemsize)
        stats = np.ascontiguousarray(raw[:, _DIGESTED])
        stat = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(stats.shape[1]), len(stats), [None, pa.py_buffer(stats)]
        ).cast(pa.binary())
        path, data = self.path, self.data
        below = pc.starts_with(path, _UNCOUNTED.decode())
        if pc.any(below).as_py():
            counted = pc.invert(below)
            path, data, stat = path.filter(counted), data.filter(counted), stat.filter(counted)
        joined = pc.binary_join_element_wise(path, data, stat, _NOTHING)
        _, offsets, buffer = joined.buffers()
        ends = np.frombuffer(offsets, np.int32, len(joined) + 1).tolist()
        view = memoryview(buffer)
        return sum(zlib.crc32(view[start:end]) for start, end in pairwise(ends))


@dataclass(slots=True)
class Snapshot:
    """One snapshot, as far as it can be read.

    Attributes:
        path: of the file.
        begun: zxid of its name: all up to it is in it; None where the name has none.
        image: its uncompressed bytes.
        compression: plain, gzip, snappy.
        sessions: timeout in ms of each.
        acl: ACLs by key.
        rows: the begin of each node, then the end of the last one.
        digest: zxid and digest of the tree; None: not known.
        last: the last zxid when writing ended; None: not written.
        damage: the reason why it is unusable, if any.
        notes: oddities.
    """

    path: Path
    begun: int | None
    image: bytes = b""
    compression: str = "plain"
    version: int = VERSION
    sessions: dict[int, int] = field(default_factory=dict)
    acl: dict[int, Acl] = field(default_factory=dict)
    rows: Ints = field(default_factory=lambda: np.zeros(1, np.int64))
    digest: tuple[int, int] | None = None
    last: int | None = None
    damage: FileDamage | None = None
    notes: list[str] = field(default_factory=list)
    survey: "Survey | None" = None
    _hashes: "array[int]" = field(default_factory=lambda: array("q"))
    _order: Ints | None = None
    _sorted: Ints | None = None

    @classmethod
    def empty(cls) -> "Snapshot":
        """Return a snapshot without nodes."""
        return cls(Path(), 0)

    @property
    def nodes(self) -> int:
        """How many there are."""
        return len(self.rows) - 1

    def look(self, *, digest: bool) -> "Survey":
        """Go over all nodes once; the result is kept."""
        if self.survey is None or (digest and self.survey.digest is None):
            self.survey = _survey(self, digest=digest)
        return self.survey

    @property
    def ends(self) -> int:
        """The last zxid that it may contain anything of."""
        return max(self.begun or 0, self.digest[0] if self.digest else 0, self.last or 0, self.look(digest=False).zxid)

    def windows(self, first: int = 0, last: int | None = None) -> Iterator[NodeWindow]:
        """Yield all nodes, or those from one row to before another, in their order."""
        until = self.nodes if last is None else last
        while first < until:
            limit = int(np.searchsorted(self.rows, self.rows[first] + _WINDOW, "right")) - 1
            stop = min(until, first + _ROWS, max(limit, first + 1))
            yield self._window(first, stop)
            first = stop

    def _window(self, first: int, stop: int) -> NodeWindow:
        # Five cells a node, next to each other: size, path, size, data, tail. Arrow takes them out.
        base = int(self.rows[first])
        view = memoryview(self.image)[base : int(self.rows[stop])]
        raw = np.frombuffer(view, np.uint8)
        begin, end = self.rows[first:stop] - base, self.rows[first + 1 : stop + 1] - base
        size = _be32(raw, begin)
        cells = np.empty((stop - first, 5), np.int32)
        cells[:, 0] = begin
        cells[:, 1] = begin + 4
        cells[:, 2] = begin + 4 + size
        cells[:, 3] = begin + 8 + size
        cells[:, 4] = end - _TAIL.itemsize
        offsets = np.append(cells.ravel(), np.int32(len(raw)))
        whole = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(view)])
        position = np.arange(stop - first) * 5
        path, data, tail = (whole.take(column(position + place)) for place in (1, 3, 4))
        stats = np.frombuffer(tail.buffers()[2], _TAIL, count=len(tail))
        return NodeWindow(first, path, data, stats)

    def path_at(self, row: int) -> bytes:
        """Return the path of a node."""
        position = int(self.rows[row])
        (size,) = _I32.unpack_from(self.image, position)
        return self.image[position + 4 : position + 4 + size]

    def node_at(self, row: int) -> SnapshotNode:
        """Return a node; its ACL is None if the file does not have it."""
        position = int(self.rows[row])
        position += 4 + _I32.unpack_from(self.image, position)[0]
        (size,) = _I32.unpack_from(self.image, position)
        key, *stat = _STAT.unpack_from(self.image, int(self.rows[row + 1]) - _TAIL.itemsize)
        data = None if size < 0 else self.image[position + 4 : position + 4 + size]
        return SnapshotNode(data, self.find_acl(key), *stat)

    def find_acl(self, key: int) -> Acl | None:
        """Return the ACL of a key; None: the file does not have it."""
        return OPEN_ACL if key == OPEN_KEY else self.acl.get(key)

    def _index(self) -> tuple[Ints, Ints]:
        """Return rows by the hashes of their paths, and these hashes, ascending."""
        if self._sorted is None or self._order is None:
            hashes = np.array(self._hashes, np.int64)
            self._order = np.argsort(hashes, kind="stable").astype(np.int32 if len(hashes) < 1 << 31 else np.int64)
            self._sorted = hashes[self._order]
            self._hashes = array("q")
        return self._order, self._sorted

    def cut_at_repeated(self) -> int | None:
        """Forget the nodes from the first repeated path on; return where the first of them begins, if any.

        A server's walk of its tree meets each node once.
        """
        order, hashes = self._index()
        # Paths of equal hashes are mostly equal; different ones are separated here.
        rows = [
            int(order[place + 1])
            for place in np.flatnonzero(hashes[1:] == hashes[:-1]).tolist()
            if self.path_at(int(order[place])) == self.path_at(int(order[place + 1]))
        ]
        if not rows:
            return None
        first = min(rows)
        kept = order < first
        self._order, self._sorted = order[kept], hashes[kept]
        self.rows = self.rows[: first + 1]
        return int(self.rows[first])

    def find(self, path: bytes) -> int | None:
        """Return the row of a path; None: there is none."""
        order, hashes = self._index()
        wanted = hash(path)
        index = int(np.searchsorted(hashes, wanted))
        while index < len(hashes) and hashes[index] == wanted:
            row = int(order[index])
            if self.path_at(row) == path:
                return row
            index += 1
        return None

    def below(self, row: int) -> int:
        """Return the row after the last descendant of a row."""
        if not (path := self.path_at(row)):
            return self.nodes
        prefix = path + b"/"
        # Subtrees are in one piece: doubled steps find one that is outside, then halves the first one.
        low, step = row + 1, 1
        while low + step <= self.nodes and self.path_at(low + step - 1).startswith(prefix):
            low, step = low + step, step * 2
        high = min(low + step - 1, self.nodes)
        return low + bisect_left(
            range(low, high), 1, key=lambda candidate: not self.path_at(candidate).startswith(prefix)
        )


@dataclass(frozen=True, slots=True)
class Survey:
    """The sums over all nodes of a snapshot.

    Attributes:
        zxid: the highest in any of them.
        ms: the latest time in any of them.
        digest: of the tree; None: not asked for.
        owned: rows of nodes that a session, a container or a TTL owns.
        unknown_acls: rows with an ACL that the file does not have.
        not_text: rows with a path that is not UTF-8.
    """

    zxid: int
    ms: int
    digest: int | None
    owned: Ints
    unknown_acls: Ints
    not_text: Ints


def column(values: npt.NDArray[np.generic], missing: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return numbers as an Arrow array over the same memory; `pa.array` would load pandas, where that is installed.

    Args:
        values: of one dimension.
        missing: which of them are null.
    """
    values = np.ascontiguousarray(values)
    known = None if missing is None or not missing.any() else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [known, pa.py_buffer(values)])


def texts(values: Sequence[str]) -> pa.Array:
    """Return texts as an Arrow array, as `column` does."""
    raw = [value.encode() for value in values]
    offsets = np.cumsum([0, *map(len, raw)], dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(raw), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(raw))])


def _be32(raw: npt.NDArray[np.uint8], position: Ints) -> Ints:
    number: Ints = raw[position].astype(np.int64) << 24
    for place, shift in ((1, 16), (2, 8), (3, 0)):
        number |= raw[position + place].astype(np.int64) << shift
    return number


def _survey(snapshot: Snapshot, *, digest: bool) -> Survey:
    zxid = ms = total = 0
    owned, unknown, not_text = ([np.empty(0, np.int64)] for _ in range(3))
    known = np.array([OPEN_KEY, *snapshot.acl], np.int64)
    for window in snapshot.windows():
        tail = window.tail
        zxid = max(zxid, *(int(tail[name].max()) for name in ("czxid", "mzxid", "pzxid")))
        ms = max(ms, *(int(tail[name].max()) for name in ("ctime", "mtime")))
        owned.append(np.flatnonzero(tail["owner"]) + window.first)
        unknown.append(np.flatnonzero(~np.isin(tail["acl"], known)) + window.first)
        try:
            window.path.cast(pa.string())
        except pa.ArrowInvalid:
            bad = [n for n, path in enumerate(window.path.to_pylist()) if not is_text(path)]
            not_text.append(np.array(bad, np.int64) + window.first)
        if digest:
            total += window.digests()
    rows = [np.concatenate(part) for part in (owned, unknown, not_text)]
    return Survey(zxid, ms, total & _UNSIGNED if digest else None, *rows)


def is_text(path: bytes) -> bool:
    """Whether a path is UTF-8."""
    try:
        path.decode()
    except UnicodeDecodeError:
        return False
    return True


NAME: Final = re.compile(r"snapshot\.([0-9a-f]{1,16})(\.(gz|snappy))?")


def zxid_of(name: str) -> int | None:
    """Return the zxid in a snapshot's name; None: it is another name."""
    match = NAME.fullmatch(name)
    zxid = int(match[1], 16) if match else -1
    return zxid if 0 <= zxid < 1 << 63 else None


def read(path: Path) -> Snapshot:
    """Read a snapshot: the places of its nodes, everything else, and whether its checksums are right.

    Never raises for what the bytes say: what is wrong is in `Snapshot.damage`, and the nodes before it are there.

    Raises:
        OSError: it cannot be opened.
    """
    snapshot = Snapshot(path, zxid_of(path.name))
    with open_file(path, buffering=0) as file:
        snapshot.compression, snapshot.image, damage = read_image(file)
    try:
        _parse(snapshot)
    except MalformedError as error:
        damage = damage or error
    if damage:
        snapshot.damage = FileDamage(str(path), damage.at, damage.problem)
    return snapshot


def _parse(snapshot: Snapshot) -> None:
    image = snapshot.image
    reader = Reader(image, 0, len(image))
    if not image.startswith(MAGIC):
        raise MalformedError(0, "no header of a snapshot")
    reader.take(len(MAGIC))
    snapshot.version = reader.i32()
    if snapshot.version != VERSION:
        snapshot.notes.append(f"{snapshot.path} is of version {snapshot.version}, where {VERSION} is known")
    reader.i64()
    for _ in range(reader.count(12)):
        session = reader.i64()
        snapshot.sessions[session] = reader.i32()
    for _ in range(reader.count(12)):
        key, position = reader.i64(), reader.at
        acl = reader.acl()
        if acl is None:
            raise MalformedError(position, "an ACL that is null")
        snapshot.acl[key] = acl
    _frame(snapshot, reader)
    _seals(snapshot, reader)


def _frame(snapshot: Snapshot, reader: Reader) -> None:
    """Find where every node begins."""
    image, position, end = snapshot.image, reader.at, reader.end
    rows = array("q")
    hashes = snapshot._hashes  # noqa: SLF001 - this module's own
    add_row, add_hash, size_at, tail = rows.append, hashes.append, _I32.unpack_from, _TAIL.itemsize
    parent, previous = b"", b""
    problem = "no end of the nodes"
    try:
        while True:
            (size,) = size_at(image, position)
            start = position + 4
            stop = start + size
            if size == 1 and image[start] == 0x2F:
                problem = ""
                break
            (node,) = size_at(image, stop)
            behind = stop + 4 + (0 if node < 0 else node) + tail  # noqa: FURB136 - a call costs a tenth of all
            if size < 0 or node < -1 or behind > end or behind - position > _LARGEST_NODE:
                problem = "a node of impossible size"
                break
            path = image[start:stop]
            cut = path.rfind(b"/")
            if path[:cut] != parent or cut < 0:
                # Not a sibling of the one before: then a child of it, or of one of its parents.
                parent = path[:cut] if cut >= 0 else b""
                if cut < 0 and (path or rows):
                    problem = "a path that does not begin with /"
                    break
                if not (previous == parent or previous.startswith(parent + b"/")) or (path and not rows):
                    problem = "a node without its parent before it"
                    break
            elif not rows:
                problem = "the root is not the first node"
                break
            previous = path
            add_row(position)
            add_hash(hash(path))
            position = behind
    except (struct.error, IndexError):
        problem = "the file ends in a node"
    reader.at = position
    rows.append(position)
    snapshot.rows = np.frombuffer(rows, np.int64)
    repeated = snapshot.cut_at_repeated()
    if repeated is not None:
        position, problem = repeated, "a node that it has before"
    if problem:
        raise MalformedError(position, problem)


def _seals(snapshot: Snapshot, reader: Reader) -> None:
    image = memoryview(snapshot.image)
    start, checksum = 0, 1

    def seal() -> None:
        nonlocal start, checksum
        position = reader.at
        stored = reader.i64()
        checksum = zlib.adler32(image[start:position], checksum)
        start = position
        if stored != checksum or image[reader.take(len(_END)) : reader.at].tobytes() != _END:
            raise MalformedError(position, "the checksum over all before it is wrong")

    reader.take(len(_END))
    seal()
    left = len(image) - reader.at
    if left not in (0, 21, 33, 54):
        snapshot.notes.append(f"{snapshot.path} has {left} bytes after its first seal, which no known version writes")
        return
    if left in (33, 54):
        zxid, version, digest = _DIGEST.unpack_from(image, reader.take(_DIGEST.size))
        seal()
        if version == 2 and zxid:
            snapshot.digest = zxid, digest & _UNSIGNED
    if left in (21, 54):
        last = reader.i64()
        seal()
        snapshot.last = last
