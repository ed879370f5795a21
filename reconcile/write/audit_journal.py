r"""The journal of what was written to a store: one JSON object a line, each bound to the one before it by a hash.

    line    <object without its last brace>,"hash":"<64 hex digits>"}\n
    hash    SHA-256 of the object without the hash; `prev` in it is the hash of the line before ("" in the first)

    event   fields besides n (from 0), prev, at (UTC), event
    begin   binding: what the journal belongs to; by: who runs which version of the program, where; reason: why, as
            they say (absent: they said nothing)
            approved: by, hash of each who approved it (not there: no person did)
    resume  binding, by, reason, approved, torn: bytes of an unfinished line that were cut off

The other events are in `journal_events`. A line is synced before the write that it announces is sent; `done` is
synced with the next line. A journal has no values but those that were replaced, which may have passwords in them: the
file has mode 0600.

A line without its end is what a killed process leaves, and is cut off when the journal is gone on with. A whole line
that does not agree with its hash, or with the line before it, was altered.
"""

import errno
import fcntl
import getpass
import hashlib
import itertools
import json
import os
import socket
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

from reconcile.errors import Advice, JournalDiskError, JournalError, Remedy
from recovery import __version__
from recovery.out_folder import sync_folder

JOURNAL: Final = "journal.jsonl"
_HASH: Final = b',"hash":"'
_TAIL: Final = len(_HASH) + 64 + len(b'"}')
_BUFFER: Final = 1 << 20
_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
_OTHERS_WRITE: Final = 0o022


@dataclass(frozen=True, slots=True)
class JournalLine:
    """One line of a journal, and the byte at which it begins."""

    number: int
    at: str
    event: str
    fields: Mapping[str, Any]
    hash: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Approval:
    """A person's signed approval.

    Attributes:
        by: their name, as the policy has it.
        hash: of what they approved.
    """

    by: str
    hash: str


@dataclass(frozen=True, slots=True)
class Torn:
    """The unfinished line at a journal's end."""

    offset: int
    length: int


def scan(path: Path, decode: Callable[[bytes], Any] = json.loads) -> Iterator[JournalLine | Torn]:
    """Yield every record of a journal, and at most one torn end, after checking each against its hash.

    Args:
        path: the file.
        decode: bytes of a line's object, which its hash covers → its fields; ValueError where they are none.

    Raises:
        JournalError: missing, or altered.
    """
    try:
        with path.open("rb", buffering=_BUFFER) as journal:
            yield from _scan(journal, path, decode)
    except FileNotFoundError as error:
        raise JournalError(str(path), "there is no journal", "name the folder that apply wrote it to") from error


def _scan(journal: BinaryIO, path: Path, decode: Callable[[bytes], Any] = json.loads) -> Iterator[JournalLine | Torn]:
    offset, number, previous = 0, 0, ""
    while line := journal.readline():
        record = _record(line, offset, decode)
        if record is None:
            # After a loss of power the pages of an unfinished line may be there as zeros.
            if line.endswith(b"\n") and b"\0" not in line:
                raise _make_altered_error(path, number)
            yield Torn(offset, os.fstat(journal.fileno()).st_size - offset)
            return
        if record.number != number or record.fields.get("prev") != previous:
            raise _make_altered_error(path, number)
        yield record
        offset, number, previous = offset + len(line), number + 1, record.hash


def _make_altered_error(path: Path, number: int) -> JournalError:
    return JournalError(str(path), f"line {number + 1} was altered after it was written", "keep it as evidence")


def read_at(path: Path, offset: int) -> JournalLine:
    """Return the record at a byte that `scan` gave.

    Raises:
        JournalError: altered meanwhile.
    """
    with path.open("rb") as journal:
        journal.seek(offset)
        record = _record(journal.readline(), offset)
    if record is None:
        raise JournalError(str(path), f"the content at byte {offset} was altered", "keep it as evidence")
    return record


def _record(line: bytes, offset: int, decode: Callable[[bytes], Any] = json.loads) -> JournalLine | None:
    """Return the record that a line holds; None if it is torn or does not agree with its hash."""
    body, tail = line[: -_TAIL - 1], line[-_TAIL - 1 :]
    if not (tail.startswith(_HASH) and tail.endswith(b'"}\n')):
        return None
    stated = tail[len(_HASH) : -3]
    content = body + b"}"
    if hashlib.sha256(content).hexdigest().encode() != stated:
        return None
    try:
        fields = decode(content)
        return JournalLine(int(fields["n"]), str(fields["at"]), str(fields["event"]), fields, stated.decode(), offset)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def find_next_journal(folder: Path) -> Path:
    """Return the folder beside a journal's that is not there yet."""
    return next(path for n in itertools.count(2) if not (path := folder.with_name(f"{folder.name}-{n}")).exists())


@contextmanager
def report_foreign(path: Path) -> Iterator[None]:
    """Say in one error that records lack what their reader needs: their hashes hold, but another program wrote them.

    Raises:
        JournalError: a field is not there, or is of another kind.
    """
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        problem = f"was not written by this command, or by another version of it ({type(error).__name__}: {error})"
        raise JournalError(str(path), problem, "name the folder of a journal that it wrote") from error


class AuditJournal:
    """A journal that is open for writing; one process at a time, by a lock on the file.

    Attributes:
        path: the file.
        earlier: whether it was there before and is gone on with.
    """

    def __init__(
        self, path: Path, handle: int, now: Callable[[], datetime], write: Callable[[int, bytes], int]
    ) -> None:
        self.path = path
        self.earlier = False
        self._handle = handle
        self._now = now
        self._write = write
        self._number = 0
        self._previous = ""

    @property
    def head(self) -> str:
        """The hash of the last line: who keeps it elsewhere can tell later that nothing was cut off."""
        return self._previous

    @classmethod
    def open(
        cls,
        folder: Path,
        binding: Mapping[str, str],
        *,
        resume: bool,
        now: Callable[[], datetime],
        replay: Callable[[JournalLine], None],
        ready: Callable[[], None] = lambda: None,
        write: Callable[[int, bytes], int] = os.write,
        reason: str | None = None,
        approvals: Sequence[Approval] = (),
    ) -> Self:
        """Open a folder's journal; begin one, or go on with the one that is there.

        Args:
            folder: made with mode 0700 if it is missing.
            binding: what the journal belongs to; one that is gone on with must have the same.
            resume: whether an earlier journal may be gone on with.
            now: the clock; aware.
            replay: is given every earlier record.
            ready: is called after the last of them, before a line is added; what it raises is passed on.
            write: as `os.write`.
            reason: why this is done, as who does it says; None: they said nothing.
            approvals: who approved it.

        Raises:
            JournalError: in use, altered, of another binding, or there though `resume` was not said.
        """
        path = folder / JOURNAL
        try:
            folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            _shut_out_others(folder)
            handle = _open_own(path)
        except OSError as error:
            problem = "is a symbolic link" if error.errno == errno.ELOOP else f"cannot be opened ({error.strerror})"
            raise JournalError(str(path), problem, Remedy(Advice.NAME_OTHER_JOURNAL)) from error
        journal = cls(path, handle, now, write)
        with ExitStack() as unopened:
            unopened.callback(os.close, handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise JournalError(str(path), "another process is writing it", "wait until it has ended") from error
            journal._begin(binding, resume=resume, replay=replay, ready=ready, reason=reason, approvals=approvals)
            unopened.pop_all()
        sync_folder(folder)
        return journal

    def _begin(
        self,
        binding: Mapping[str, str],
        *,
        resume: bool,
        replay: Callable[[JournalLine], None],
        ready: Callable[[], None],
        reason: str | None,
        approvals: Sequence[Approval],
    ) -> None:
        torn: Torn | None = None
        for record in self._scan():
            if isinstance(record, Torn):
                torn = record
                continue
            if not self.earlier:
                self._require_same(record, binding)
                self.earlier = True
            self._number, self._previous = record.number + 1, record.hash
            with report_foreign(self.path):
                replay(record)
        ready()
        if self.earlier and not resume:
            # After `ready`: a journal that cannot be gone on with at all is not said to wait for that.
            raise JournalError(str(self.path), "this plan was begun before", Remedy(Advice.RESUME))
        if torn is not None:
            os.truncate(self._handle, torn.offset)
        header: dict[str, object] = {"binding": dict(binding), "by": name_runner()}
        if reason is not None:
            header["reason"] = reason
        if approvals:
            header["approved"] = [asdict(approval) for approval in approvals]
        if self.earlier:
            self.append("resume", {**header, "torn": torn.length if torn else 0})
        else:
            self.append("begin", header)
        self.sync()

    def _scan(self) -> Iterator[JournalLine | Torn]:
        # What is open, not what has its name by now.
        with os.fdopen(os.dup(self._handle), "rb") as journal:
            yield from _scan(journal, self.path)

    def _require_same(self, record: JournalLine, binding: Mapping[str, str]) -> None:
        if record.fields.get("binding") != dict(binding):
            raise JournalError(
                str(self.path), "it belongs to another plan, store or root", "name another journal folder"
            )

    def append(self, event: str, fields: Mapping[str, Any]) -> None:
        """Add a record; it is safe only after `sync`."""
        time = self._now().isoformat()
        content = {"n": self._number, "prev": self._previous, "at": time, "event": event, **fields}
        body = json.dumps(content, separators=(",", ":"), ensure_ascii=True).encode()
        digest = hashlib.sha256(body).hexdigest()
        line = body[:-1] + _HASH + digest.encode() + b'"}\n'
        try:
            while line:
                line = line[self._write(self._handle, line) :]
        except OSError as error:
            raise self._unwritable(error) from error
        self._number, self._previous = self._number + 1, digest

    def sync(self) -> None:
        """Return when everything that was added is on the disk."""
        try:
            os.fsync(self._handle)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> JournalError:
        problem = f"cannot be written ({error.strerror})"
        return JournalDiskError(str(self.path), problem, Remedy(Advice.MEND_AND_RESUME))

    def close(self) -> None:
        """Release the file."""
        os.close(self._handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def name_runner() -> dict[str, str]:
    """Say who runs this, as far as the machine knows."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    return {"user": user, "host": socket.gethostname(), "version": __version__}


def _open_own(path: Path) -> int:
    """Open a journal for writing, or make it; nobody else can read or write it afterwards.

    Raises:
        JournalError: it is somebody else's, or no regular file.
        OSError: it is a symbolic link, or cannot be opened.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with ExitStack() as unopened:
        handle = os.open(path, flags, _FILE_MODE)
        unopened.callback(os.close, handle)
        _require_own(path, os.fstat(handle))
        os.fchmod(handle, _FILE_MODE)
        unopened.pop_all()
    return handle


def _require_own(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_nlink != 1:
        problem = "is not a file of your own, with one name"
        raise JournalError(str(path), problem, Remedy(Advice.NAME_OTHER_JOURNAL))


def _shut_out_others(folder: Path) -> None:
    """Take from others the right to write in a journal's folder, where they could put another one in its place.

    Raises:
        JournalError: they can, and the folder is not ours.
    """
    status = folder.stat()
    if not status.st_mode & _OTHERS_WRITE:
        return
    if status.st_uid != os.geteuid():
        problem = f"belongs to another user, and has mode {stat.S_IMODE(status.st_mode):04o}: others can write there"
        raise JournalError(str(folder), problem, Remedy(Advice.NAME_OTHER_JOURNAL))
    folder.chmod(_FOLDER_MODE)
