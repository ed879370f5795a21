"""Transaction log: the file that a ZooKeeper server appends every transaction to before it answers (``log.<zxid>``).

Big-endian. The name has the zxid of the first record, in hex. Sizes and offsets in bytes.

    at    size  field
    0     4     magic, b"ZKLG"
    4     4     version, int32: 2
    8     8     dbid, int64
    16          records: int64 Adler-32 of the payload, int32 size of the payload, the payload (`records`), b"B"

Files are made longer ahead of time, with zeros. A crash leaves a record that is not finished at the end; the server
then begins another file. So such an end is normal in a file if the next file goes on with the next zxid.

Source: docs/formats/zookeeper-files.md; Apache ZooKeeper 3.9, FileTxnLog.
"""

import errno
import os
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import IO, Final

import numpy as np
import numpy.typing as npt

from backends.files import open_regular
from backends.zkfiles.records import HEADER, FileDamage, MalformedError, Transaction, decode

MAGIC: Final = b"ZKLG"
VERSION: Final = 2
_HEAD: Final = struct.Struct(">4siq")
_FRAME: Final = struct.Struct(">qi")
_END: Final = 0x42
WINDOW: Final = 1 << 20
_SEARCHED: Final = 1 << 26
"""At most so many bytes are checksummed in the search for a valid record after a damaged one."""
_TRIED: Final = 64
"""A place that is read and not checksummed costs as much as so many of these bytes."""

NAME: Final = re.compile(r"log\.([0-9a-f]{1,16})")

ENTRY: Final = np.dtype(
    [("zxid", "<i8"), ("ms", "<i8"), ("kind", "<i4"), ("crc", "<u4"), ("size", "<u4"), ("at", "<i8"), ("mark", "<u4")]
)
"""A valid record: `kind` is the transaction's type, `size` that of its payload, `at` is where its frame begins.

`mark` is the same in every server's log: the checksum, but of a multi that failed that of its header. Where a server
applies such a multi before it is written, there or to a log of a server that is behind, all its parts become refusals.
"""
_BATCH: Final = 1 << 14


class LogEnd(StrEnum):
    """The reason why the reading of a log ends."""

    PADDING = "zeros that the server wrote ahead"
    FILE = "the file's end"
    TORN_SIZE = "a record that the file ends in"
    TORN_MARK = "a record that was not finished"
    CHECKSUM = "a record with a wrong checksum"
    UNKNOWN = "a record that cannot be understood"
    HEADER = "no header of a transaction log"
    UNREADABLE = "it cannot be read"


@dataclass(frozen=True, slots=True)
class Log:
    """The content of one log.

    Attributes:
        path: of the file.
        version: of the format.
        entries: `ENTRY` of every valid record, in file order.
        end: first byte that is not part of them.
        why: the reason of the end.
        size: of the file.
        damage: damage that no crash leaves; None: none.
    """

    path: Path
    version: int
    entries: npt.NDArray[np.void]
    end: int
    why: LogEnd
    size: int
    damage: FileDamage | None

    @property
    def first(self) -> int:
        """The zxid of its first record; without a record, the zxid in its name."""
        if len(self.entries):
            return int(self.entries["zxid"][0])
        return first_of(self.path.name) or 0

    @property
    def is_misnamed(self) -> bool:
        """Whether its name is that of another log: a server names it by its first record."""
        named = first_of(self.path.name)
        return len(self.entries) > 0 and named is not None and named != self.first

    @property
    def last(self) -> int | None:
        """The zxid before its unread part; None: not known."""
        if len(self.entries):
            return int(self.entries["zxid"].max())
        first = first_of(self.path.name)
        return None if first is None else first - 1


def open_file(path: Path, *, buffering: int = WINDOW) -> IO[bytes]:
    """Open a regular file to be read; a symbolic link in its place is not followed, and a pipe is not waited for.

    Raises:
        OSError: it cannot be opened.
    """
    return os.fdopen(_descriptor(path), "rb", buffering)


def _descriptor(path: Path) -> int:
    return open_regular(path, os.O_NOFOLLOW)


def survey(path: Path) -> Log:
    """Check every record of a log, and return the places; payloads are not kept.

    Never raises for what the bytes say, nor for what cannot be read: the log ends there.
    """
    try:
        file = open_file(path)
    except OSError as error:
        reason = "a symbolic link, which is not followed" if error.errno == errno.ELOOP else error.strerror
        unread = FileDamage(str(path), 0, f"{LogEnd.UNREADABLE} ({reason})")
        return Log(path, VERSION, np.empty(0, ENTRY), 0, LogEnd.UNREADABLE, 0, unread)
    with file:
        size = os.fstat(file.fileno()).st_size
        frames = Frames(file, size)
        parts = [np.empty(0, ENTRY)]
        try:
            if not frames.header():
                damage = None if frames.why is LogEnd.FILE else FileDamage(str(path), 0, frames.why)
                return Log(path, frames.version, parts[0], 0, frames.why, size, damage)
            records = iter(frames)
            while batch := list(islice(records, _BATCH)):
                parts.append(np.array(batch, ENTRY))
            problem = frames.behind(int(parts[-1]["zxid"][-1]) if len(parts) > 1 else 0)
        except OSError as error:
            frames.why = LogEnd.UNREADABLE
            problem = f"{LogEnd.UNREADABLE} ({error.strerror})"
        damage = FileDamage(str(path), frames.at, problem) if problem else None
        return Log(path, frames.version, np.concatenate(parts), frames.at, frames.why, size, damage)


def frame_of(crc: int, size: int) -> bytes:
    """Return the bytes that a record begins with."""
    return _FRAME.pack(crc, size)


def first_of(name: str) -> int | None:
    """Return the zxid in a log's name; None: it is another name."""
    match = NAME.fullmatch(name)
    zxid = int(match[1], 16) if match else -1
    return zxid if 0 <= zxid < 1 << 63 else None


_NONE: Final = Transaction(0, 0, 0, (), None)


class Frames:
    """The valid records of an open log in order, and where and why they end.

    Args:
        file: its next byte is the one at `position`.
        size: of the file.
        position: 0, for the header to be read first, or where a frame begins.
        passed: records up to this zxid are checked and not decoded; their mark is not to be compared.

    Attributes:
        at: first byte after the last valid record.
        why: the reason of the end.
        problem: of a record that cannot be understood.
        transaction: of the last record that was yielded and decoded.
    """

    def __init__(self, file: IO[bytes], size: int, position: int = 0, *, passed: int = -1) -> None:
        self._file = file
        self._size = size
        self._passed = passed
        self.version = VERSION
        self.at = position
        self.why = LogEnd.FILE
        self.problem = ""
        self.transaction = _NONE

    def header(self) -> bool:
        """Read the header; a file that a crash left without one is not damaged."""
        head = self._file.read(_HEAD.size)
        if len(head) == _HEAD.size and head.startswith(MAGIC):
            self.version = int(_HEAD.unpack(head)[1])
            self.at = _HEAD.size
            return True
        whole = MAGIC.startswith(head) or self._not_zero(0) is None
        self.why = LogEnd.FILE if whole else LogEnd.HEADER
        return False

    def __iter__(self) -> Iterator[tuple[int, int, int, int, int, int, int]]:
        read, size = self._file.read, self._size
        while True:
            position = self.at
            frame = read(_FRAME.size)
            if len(frame) < _FRAME.size:
                self.why = LogEnd.TORN_SIZE if any(frame) else LogEnd.FILE
                return
            crc, length = _FRAME.unpack(frame)
            if crc == 0 == length:
                self.why = LogEnd.PADDING
                return
            if length < 0:
                self.why = LogEnd.CHECKSUM
                return
            if length == 0 or length + 1 > size - position - _FRAME.size:
                self.why = LogEnd.TORN_SIZE
                return
            payload = read(length + 1)
            if len(payload) <= length or payload[length] != _END:
                self.why = LogEnd.TORN_MARK
                return
            payload = payload[:length]
            if zlib.adler32(payload) != crc:
                self.why = LogEnd.CHECKSUM
                return
            mark = crc
            if length < HEADER.size or HEADER.unpack_from(payload)[2] > self._passed:
                try:
                    self.transaction = decode(payload)
                    if self.transaction.void:
                        mark = zlib.adler32(payload[: HEADER.size])
                except MalformedError as error:
                    self.why, self.problem = LogEnd.UNKNOWN, f"{error.problem}, at byte {error.at} of it"
                    return
            _, _, zxid, ms, kind = HEADER.unpack_from(payload)
            self.at = position + _FRAME.size + length + 1
            yield zxid, ms, kind, crc, length, position, mark

    def behind(self, last: int) -> str | None:
        """Return the damage of the end; None: it is the normal end of a crash or a clean stop."""
        if self.why is LogEnd.FILE:
            return None
        if self.why is LogEnd.UNKNOWN:
            return f"{self.why}: {self.problem}; nothing after it is read"
        if self.why is LogEnd.PADDING and self._not_zero(self.at) is None:
            return None
        repeated, sure = self._valid_again(last)
        if repeated is not None:
            return f"{self.why}; a valid record follows at byte {repeated}"
        if self.why is LogEnd.PADDING:
            return f"{self.why}, and then bytes that are no record from {self._not_zero(self.at)} on"
        if self.why is LogEnd.CHECKSUM:
            return f"{self.why}, and {'no valid record after it' if sure else 'too many possible records after it'}"
        return None

    def _not_zero(self, position: int) -> int | None:
        """Return where the first byte other than zero is, from `position` on."""
        self._file.seek(position)
        while piece := self._file.read(WINDOW):
            if piece.count(0) != len(piece):
                return position + len(piece) - len(piece.lstrip(b"\0"))
            position += len(piece)
        return None

    def _valid_again(self, last: int) -> tuple[int | None, bool]:
        """Return the place of the first whole record of a later zxid after the end.

        Returns:
            The place; whether everything was tried, as far as it takes.
        """
        left, position = _SEARCHED, self.at + 1
        while position + _FRAME.size + HEADER.size < self._size:
            self._file.seek(position)
            window = self._file.read(WINDOW + _FRAME.size)
            for place in _candidates(window):
                crc, length = _FRAME.unpack_from(window, place)
                fits = HEADER.size <= length < self._size - position - place - _FRAME.size
                left -= length if fits else _TRIED
                if left < 0:
                    return None, False
                if fits and self._is_record(position + place + _FRAME.size, length, crc, last):
                    return position + place, True
            position += max(len(window) - _FRAME.size, 1)
        return None, True

    def _is_record(self, position: int, length: int, crc: int, last: int) -> bool:
        self._file.seek(position)
        payload = self._file.read(length + 1)
        if payload[-1] != _END or zlib.adler32(memoryview(payload)[:length]) != crc:
            return False
        return int(HEADER.unpack_from(payload)[2]) > last


def _candidates(window: bytes) -> list[int]:
    """Return where a frame could begin: four zeros, a checksum that is not zero, and a size of two bytes or three."""
    data = np.frombuffer(window, np.uint8)
    if len(data) <= _FRAME.size:
        return []
    count = len(data) - _FRAME.size
    zero = data == 0
    run = zero[:count] & zero[1 : count + 1] & zero[2 : count + 2] & zero[3 : count + 3] & zero[8 : count + 8]
    run &= ~(zero[4 : count + 4] & zero[5 : count + 5] & zero[6 : count + 6] & zero[7 : count + 7])
    return [int(place) for place in np.flatnonzero(run)]


class Payloads:
    """Reads the records that a survey found; files are opened once and kept open."""

    def __init__(self) -> None:
        self._files: dict[Path, int] = {}

    def transaction(self, path: Path, position: int, size: int, crc: int) -> Transaction:
        """Return the transaction with its frame at a place.

        Raises:
            MalformedError: it is not there any more, or none that is known.
            OSError: it cannot be read.
        """
        if path not in self._files:
            self._files[path] = _descriptor(path)
        payload = os.pread(self._files[path], size, position + _FRAME.size)
        if len(payload) != size or zlib.adler32(payload) != crc:
            raise MalformedError(position, "the record changed while the log was read")
        return decode(payload)

    def close(self) -> None:
        """Close the files."""
        while self._files:
            os.close(self._files.popitem()[1])
