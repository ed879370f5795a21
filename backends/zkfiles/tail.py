"""A server's transaction logs, read while it writes them: each record once, in order.

    what happens to the files              what is yielded
    a record is appended                   it, once it is whole
    zeros, or a record not finished        nothing: the next read looks again, or a later log goes on
    the next log begins                    its records, where they go on from the last one
    a log is deleted while it is open      its rest: the file is still there for who has it open
    records are cut off or written over    `TakenBack`, then what is there now
    the next record does not go on         `Broken`, with both ends

A server writes a log out before it begins the next one. So the names are listed first: what the open log has then is
all of it, where a later one is listed.

Source: docs/formats/zookeeper-files.md; Apache ZooKeeper 3.9, FileTxnLog, truncateLog.
"""

import os
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from backends.zkfiles import txnlog
from backends.zkfiles.records import REFUSED, Transaction
from backends.zkfiles.servers import goes_on
from backends.zkfiles.txnlog import Frames, LogEnd

_LOOKS: Final = 3
"""Reads that must find the same damage before it is believed: a file of another host may show a write in parts."""
_LOOKS_AGAIN: Final = 64
"""Further reads before the bytes behind that damage are searched again."""
_DAMAGES: Final = (LogEnd.CHECKSUM, LogEnd.UNKNOWN, LogEnd.HEADER)


@dataclass(frozen=True, slots=True)
class Logged:
    """A record of a log.

    Attributes:
        zxid: its number.
        mark: of its `ENTRY`, the same in every server's log.
        transaction: the decoded transaction.
    """

    zxid: int
    mark: int
    transaction: Transaction


@dataclass(frozen=True, slots=True)
class TakenBack:
    """The logs no longer have the records after a zxid as they were yielded; what they have now follows."""

    zxid: int


@dataclass(frozen=True, slots=True)
class Broken:
    """The logs do not go on.

    Attributes:
        last: zxid of the last record before the break.
        following: zxid from which on the logs may go on; a base must have all before it.
        why: for people.
    """

    last: int
    following: int
    why: str


@dataclass(slots=True)
class _OpenLog:
    """The log that is being read.

    Attributes:
        first: zxid of its name.
        position: first byte that was not read.
        last: place and frame of the last record that was read.
    """

    path: Path
    first: int
    file: int
    position: int = 0
    last: tuple[int, bytes] | None = None


class LogTail:
    """The records of one server's logs after a zxid.

    Attributes:
        is_broken: whether `Broken` was yielded.

    Args:
        folders: with logs of the server.
        begun: zxid after which it begins.
        mark: of the record of that zxid, which must be in the logs; None: a snapshot has it, perhaps no log.
    """

    def __init__(self, folders: Sequence[Path], begun: int, mark: int | None = None) -> None:
        self._folders = tuple(dict.fromkeys(folders))
        self._log: _OpenLog | None = None
        self._kept = begun
        self._kept_mark = mark
        self._found_kept = mark is None
        self._last = begun
        self._cut = False
        self._doubt: tuple[str, int] = ("", 0)
        self._looks = 0
        self.is_broken = False

    @property
    def last(self) -> int:
        """Zxid of the last record that was yielded, or of where it began."""
        return self._last

    def keep(self, record: Logged) -> None:
        """Mark a record as final: if logs are overwritten, reading starts again after it."""
        self._kept, self._kept_mark = record.zxid, record.mark

    def is_unchanged(self) -> bool:
        """Whether the last yielded record is still in its log."""
        try:
            return not self.is_broken and self._log is not None and not _was_rewritten(self._log)
        except OSError:
            return False

    def close(self) -> None:
        """Close the files."""
        if self._log is not None:
            os.close(self._log.file)
            self._log = None

    def read(self) -> Iterator[Logged | TakenBack | Broken]:
        """Yield the records that were not yielded yet; `Broken` is the last.

        Raises:
            OSError: a folder or a log cannot be read; a later call goes on.
        """
        while not self.is_broken:
            listed = self._list()
            if self._log is not None and _was_rewritten(self._log):
                yield from self._begin_again()
            log = self._log or self._open_first(listed)
            if log is None:
                return
            frames = yield from self._read_log(log)
            if frames is None:
                return
            later = [other for other in listed if other[0] > log.first]
            problem = self._look_behind(log, frames, moves_on=bool(later))
            if problem:
                yield self._break(self._last + 1, problem)
                return
            if not later:
                if not self._found_kept and self._is_sure(f"{log.path} without {self._kept}", self._kept):
                    yield self._break(self._kept + 1, self._describe_lost(log.path))
                return
            self._open(*later[0])

    def _list(self) -> list[tuple[int, Path]]:
        logs = []
        for folder in self._folders:
            for path in folder.iterdir():
                first = txnlog.first_of(path.name)
                if first is not None:
                    logs.append((first, path))
        return sorted(logs)

    def _begin_again(self) -> Iterator[TakenBack]:
        self.close()
        taken = self._last > self._kept
        self._last, self._cut = self._kept, False
        self._found_kept = self._kept_mark is None
        if taken:
            yield TakenBack(self._kept)

    def _open_first(self, listed: Sequence[tuple[int, Path]]) -> _OpenLog | None:
        """Open the log that has the record after the last one, or will have it."""
        early = [log for log in listed if log[0] <= self._last]
        chosen = early[-1:] or listed[:1]
        if not early:
            # The log that had it is gone: what is left must go on from it.
            self._found_kept = True
        return self._open(*chosen[0]) if chosen else None

    def _open(self, first: int, path: Path) -> _OpenLog | None:
        try:
            file = txnlog.open_file(path, buffering=0)
        except FileNotFoundError:
            return None
        with file:
            descriptor = os.dup(file.fileno())
        self.close()
        self._log = _OpenLog(path, first, descriptor)
        return self._log

    def _read_log(self, log: _OpenLog) -> Generator[Logged | Broken, None, Frames | None]:
        """Yield the records of the open log from where it was left; return where they end, None: in a break."""
        with _reopen(log) as file:
            passed = self._last if self._found_kept else self._kept - 1
            frames = Frames(file, os.fstat(log.file).st_size, log.position, passed=passed)
            if log.position == 0 and not frames.header():
                return frames
            log.position = frames.at
            for zxid, _, kind, crc, size, place, mark in frames:
                is_misnamed = log.last is None and zxid != log.first
                log.position, log.last = frames.at, (place, txnlog.frame_of(crc, size))
                if zxid <= self._last:
                    if zxid == self._kept and not self._found_kept and kind != REFUSED:
                        self._found_kept = mark == self._kept_mark
                        if not self._found_kept:
                            yield self._break(zxid + 1, self._describe_lost(log.path))
                            return None
                    continue
                if not goes_on(self._last, zxid, cut=self._cut or is_misnamed):
                    problem = f"{log.path} goes on from {self._last:#x} with {zxid:#x} at byte {place}"
                    yield self._break(zxid, f"{problem}: the transactions between are missing")
                    return None
                self._last, self._cut = zxid, False
                yield Logged(zxid, mark, frames.transaction)
            return frames

    def _look_behind(self, log: _OpenLog, frames: Frames, *, moves_on: bool) -> str | None:
        """Return why the logs cannot be read beyond the end of one; None: they can, or it is not known yet."""
        if frames.why not in _DAMAGES:
            if moves_on and frames.why is not LogEnd.FILE:
                self._cut |= self._search_behind(log) is not None
            return None
        if not self._is_sure(str(log.path), log.position):
            return None
        problem = self._search_behind(log) if moves_on or self._looks % _LOOKS_AGAIN == _LOOKS else None
        self._cut |= moves_on
        if frames.why is LogEnd.UNKNOWN or (problem and "follows at byte" in problem):
            return f"{log.path} at byte {log.position}: {problem or frames.problem}"
        return None

    def _search_behind(self, log: _OpenLog) -> str | None:
        with _reopen(log) as file:
            frames = Frames(file, os.fstat(log.file).st_size, log.position)
            for _ in frames if log.position else ():
                pass
            return frames.behind(self._last)

    def _is_sure(self, doubt: str, place: int) -> bool:
        """Whether enough reads found the same doubt."""
        self._looks = self._looks + 1 if self._doubt == (doubt, place) else 1
        self._doubt = doubt, place
        return self._looks >= _LOOKS

    def _describe_lost(self, path: Path) -> str:
        return (
            f"{path} no longer has transaction {self._kept:#x} as it was: its host lost what the server had written, "
            "and numbers are used again"
        )

    def _break(self, following: int, why: str) -> Broken:
        self.is_broken = True
        return Broken(min(self._last, self._kept) if not self._found_kept else self._last, following, why)


def _reopen(log: _OpenLog) -> IO[bytes]:
    """Open the same file again, to drop bytes that were read ahead."""
    file = os.fdopen(os.dup(log.file), "rb", txnlog.WINDOW)
    file.seek(log.position)
    return file


def _was_rewritten(log: _OpenLog) -> bool:
    """Whether the part of a log that was read has changed."""
    stat = os.fstat(log.file)
    if stat.st_size < log.position:
        return True
    if log.last is not None and os.pread(log.file, len(log.last[1]), log.last[0]) != log.last[1]:
        return True
    try:
        return log.path.stat().st_ino != stat.st_ino
    except FileNotFoundError:
        return False
