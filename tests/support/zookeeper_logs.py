"""A ZooKeeper server's files, written from the description of their bytes: logs that tear, roll, are cut and purged.

It shares no code with what reads them. A state is a dictionary of nodes; what a transaction makes of it is worked out
here once more, and so is the digest of a tree.
"""

import struct
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

MS: Final = 1_700_000_000_000
PADDING: Final = 4096
_OPEN: Final = struct.pack(">iii5si6s", 1, 31, 5, b"world", 6, b"anyone")


@dataclass(frozen=True, slots=True)
class Node:
    """One node, with the numbers that stand on the disk."""

    data: bytes = b""
    czxid: int = 0
    mzxid: int = 0
    ctime: int = 0
    mtime: int = 0
    version: int = 0
    cversion: int = 0
    aversion: int = 0
    owner: int = 0
    pzxid: int = 0
    acl: int = -1


State = dict[str, Node]
EMPTY: Final[State] = {"": Node(), "/zookeeper": Node(), "/zookeeper/quota": Node()}
READ_ONLY: Final = 2
"""Key of an ACL that lets anyone read, beside the open one."""


@dataclass(frozen=True, slots=True)
class Op:
    """One operation: create, ephemeral, set, acl, delete, open, close, error."""

    kind: str
    path: str = ""
    data: bytes = b""


def _text(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack(">i", len(raw)) + raw


def _acl(key: int) -> bytes:
    return _OPEN if key == -1 else struct.pack(">iii5si6s", 1, 1, 5, b"world", 6, b"anyone")


def digest_of(state: State) -> int:
    """Return the digest of a tree."""
    total = 0
    for path, node in state.items():
        if not path.startswith("/zookeeper/"):
            times = struct.pack(">qqqqq", node.czxid, node.mzxid, node.pzxid, node.ctime, node.mtime)
            numbers = struct.pack(">iiiq", node.version, node.cversion, node.aversion, node.owner)
            total += zlib.crc32(path.encode() + node.data + times + numbers)
    return total % (1 << 64)


def _up(path: str) -> str:
    return path.rpartition("/")[0]


def apply(state: State, zxid: int, session: int, ops: list[Op]) -> State:
    """Return the state after a transaction, whose operations can all be carried out."""
    after = dict(state)
    ms = MS + zxid
    for op in ops:
        parent = _up(op.path)
        if op.kind in ("create", "ephemeral"):
            assert op.path not in after
            up = after[parent]
            after[parent] = replace(up, cversion=up.cversion + 1, pzxid=zxid)
            owner = session if op.kind == "ephemeral" else 0
            after[op.path] = Node(op.data, zxid, zxid, ms, ms, 0, 0, 0, owner, zxid)
        elif op.kind == "set":
            node = after[op.path]
            after[op.path] = replace(node, data=op.data, version=node.version + 1, mzxid=zxid, mtime=ms)
        elif op.kind == "acl":
            node = after[op.path]
            after[op.path] = replace(node, acl=READ_ONLY if node.acl == -1 else -1, aversion=node.aversion + 1)
        elif op.kind == "delete":
            after[parent] = replace(after[parent], pzxid=zxid)
            del after[op.path]
        elif op.kind == "close":
            for path in sorted(path for path, node in after.items() if node.owner == session):
                after[_up(path)] = replace(after[_up(path)], pzxid=zxid)
                del after[path]
    return after


def _body(op: Op, before: State, session: int, *, lists: bool) -> tuple[int, bytes]:
    if op.kind in ("create", "ephemeral"):
        flag = op.kind == "ephemeral"
        end = struct.pack(">?i", flag, before[_up(op.path)].cversion + 1)
        return 1, _text(op.path) + _text(op.data) + _acl(-1) + end
    if op.kind == "set":
        return 5, _text(op.path) + _text(op.data) + struct.pack(">i", before[op.path].version + 1)
    if op.kind == "acl":
        node = before[op.path]
        return 7, _text(op.path) + _acl(READ_ONLY if node.acl == -1 else -1) + struct.pack(">i", node.aversion + 1)
    if op.kind == "delete":
        return 2, _text(op.path)
    if op.kind == "open":
        return -10, struct.pack(">i", 30_000)
    if op.kind == "close":
        paths = sorted(path for path, node in before.items() if node.owner == session)
        return -11, struct.pack(">i", len(paths)) + b"".join(map(_text, paths)) if lists else b""
    return -1, struct.pack(">i", -101)


def encode(state: State, zxid: int, session: int, ops: list[Op], *, digests: bool, fails: bool = False) -> bytes:
    """Return a record's payload; of several operations a multi, which changes nothing where it `fails`."""
    if len(ops) == 1 and not fails:
        kind, body = _body(ops[0], state, session, lists=digests)
    else:
        kind, body, step = 14, struct.pack(">i", len(ops) + fails), state
        for op in ops:
            part, content = _body(op, step, session, lists=digests)
            body += struct.pack(">i", part) + _text(content)
            step = apply(step, zxid, session, [op])
        if fails:
            body += struct.pack(">iii", -1, 4, -101)
    payload = struct.pack(">qiqqi", session, 1, zxid, MS + zxid, kind) + body
    if digests and kind != -1:
        after = state if fails else apply(state, zxid, session, ops)
        payload += struct.pack(">iQ", 2, digest_of(after))
    return payload


def refuse(payload: bytes) -> bytes:
    """Return a multi that failed as a server has it that applied it first: all its parts are refusals."""
    raw, at = bytearray(payload), 36
    for _ in range(struct.unpack_from(">i", raw, 32)[0]):
        struct.pack_into(">i", raw, at, -1)
        at += 8 + struct.unpack_from(">i", raw, at + 4)[0]
    return bytes(raw)


def frame(payload: bytes) -> bytes:
    """Return a record as it stands in a log."""
    return struct.pack(">qi", zlib.adler32(payload), len(payload)) + payload + b"B"


def write_snapshot(path: Path, state: State, digest: tuple[int, int] | None) -> None:
    """Write a snapshot; `digest`: a zxid and the digest of the tree then."""
    raw = struct.pack(">4siqii", b"ZKSN", 2, -1, 0, 1) + struct.pack(">q", READ_ONLY) + _acl(READ_ONLY)
    for name in sorted(state, key=lambda name: name.split("/")):
        node = state[name]
        raw += _text(name) + _text(node.data) + struct.pack(">q", node.acl)
        raw += struct.pack(">qqqq", node.czxid, node.mzxid, node.ctime, node.mtime)
        raw += struct.pack(">iiiqq", node.version, node.cversion, node.aversion, node.owner, node.pzxid)
    raw += _text("/")
    raw += struct.pack(">q", zlib.adler32(raw)) + _text("/")
    if digest is not None:
        raw += struct.pack(">qiQ", digest[0], 2, digest[1])
        raw += struct.pack(">q", zlib.adler32(raw)) + _text("/")
    path.write_bytes(raw)


@dataclass(slots=True)
class LogFolder:
    """A server's ``version-2`` with logs that it writes.

    Attributes:
        folder: exists.
        places: of each record that stands in a log: its zxid, the log, the byte behind it.
    """

    folder: Path
    places: list[tuple[int, Path, int]] = field(default_factory=list)
    _log: Path | None = None
    _end: int = 0

    def append(self, zxid: int, payload: bytes) -> None:
        """Write a record; a log that is not there is begun."""
        raw = frame(payload)
        if self._log is None:
            self._log, self._end = self.folder / f"log.{zxid:x}", 16
            self._log.write_bytes(struct.pack(">4siq", b"ZKLG", 2, 0) + bytes(PADDING))
        size = self._log.stat().st_size
        with self._log.open("r+b") as file:
            if self._end + len(raw) + 64 > size:
                file.truncate(size + PADDING + len(raw))
            file.seek(self._end)
            file.write(raw)
        self._end += len(raw)
        self.places.append((zxid, self._log, self._end))

    def tear(self, zxid: int, payload: bytes, cut: int) -> None:
        """Die while a record is written: its first bytes are there; the next one begins another log."""
        raw = frame(payload)
        if self._log is None:
            self._log, self._end = self.folder / f"log.{zxid:x}", 16
            self._log.write_bytes(struct.pack(">4siq", b"ZKLG", 2, 0) + bytes(PADDING))
        with self._log.open("r+b") as file:
            file.seek(self._end)
            file.write(raw[: min(cut, len(raw) - 2)])
        self._log = None

    def roll(self) -> None:
        """Have the next record begin another log."""
        self._log = None

    def truncate(self, zxid: int) -> None:
        """Cut off all records after a zxid, as a leader demands it: later logs go, there are no zeros then."""
        kept = [place for place in self.places if place[0] <= zxid]
        for path in {path for _, path, _ in self.places} - {path for _, path, _ in kept}:
            path.unlink()
        if kept:
            with kept[-1][1].open("r+b") as file:
                file.truncate(kept[-1][2])
        self.places = kept
        self._log = None

    def purge(self, snapshot: int) -> None:
        """Delete the logs and snapshots that a snapshot makes superfluous."""
        logs = sorted({(int(path.name[4:], 16), path) for path in self.folder.glob("log.*")})
        early = [log for log in logs if log[0] <= snapshot]
        for _, path in early[:-1]:
            path.unlink()
            self.places = [place for place in self.places if place[1] != path]
        for path in self.folder.glob("snapshot.*"):
            if int(path.name[9:], 16) < snapshot:
                path.unlink()
