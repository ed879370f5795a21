"""Folders that a command writes into: only what carries our own mark is ever cleared, and nobody else can write there.

    <folder>/.bkmeta-unfinished    first into an empty folder, removed when the manifest is written

A run has the folder locked (`flock`) until it has released it or has ended, however it ended: a second run is refused.

The mark is JSON: kind, tool_version. A folder that has it is what a broken-off run left. Any other folder must be
empty: one named `ledgers` in it may be a bookie's own. In a store that is no file system the store's own rules say who
can write and read there.
"""

import errno
import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from recovery import __version__
from recovery.errors import DatasetError, DiskError
from recovery.place import DatasetPlace, remove_tree
from recovery.verified_file import hash_blocks

MARK: Final = ".bkmeta-unfinished"
_LARGEST_MARK: Final = 4096
_DISK: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_LOCKED: Final = frozenset({errno.EAGAIN, errno.EACCES})
_locks: dict[tuple[int, int], int] = {}
"""Descriptors of folders that this process has locked, by device and inode; a folder that is open keeps its inode."""
_PRIVATE: Final = 0o700
_PUBLIC: Final = 0o755
_OTHERS_WRITE: Final = 0o022


@dataclass(slots=True)
class WholeFile:
    """A file that is being written; what is known of it once it is whole.

    Attributes:
        sink: takes its bytes.
        size: in bytes.
        sha256: of the file.
        blocks: SHA-256 of each block, as `hash_blocks` gives them.
    """

    sink: BinaryIO
    size: int = 0
    sha256: str = ""
    blocks: Sequence[str] = ()


def disk_error(path: DatasetPlace, error: OSError) -> DatasetError:
    """Return what an error of writing there means: the disk's fault, or that of who named the place."""
    problem = f"cannot be written ({error.strerror or str(error).partition(chr(10))[0]})"
    if error.errno in _DISK:
        return DiskError(str(path), problem, "free space or choose another folder, then run it again")
    return DatasetError(str(path), problem, "choose another folder")


def create_file(path: Path, *, secret: bool) -> int:
    """Create a file, in place of one that is there, and return its descriptor; never opens what somebody put there."""
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, 0o600 if secret else 0o644)


@contextmanager
def write_whole(target: DatasetPlace, *, secret: bool, temporary: str = "") -> Iterator[WholeFile]:
    """Give a file to write, and give it its name when it is whole: synced, or stored and read again.

    Args:
        target: its place, in a folder that is there.
        secret: mode 0600 instead of what the umask gives.
        temporary: the name that it has until then; empty: its own with `.tmp`. What goes to a store is kept in TMPDIR.

    Raises:
        DatasetError: the disk is full, or the place refuses.
    """
    try:
        if not isinstance(target, Path):
            with tempfile.TemporaryDirectory(prefix="bkmeta-part-") as folder:
                kept = Path(folder) / "part"
                with kept.open("xb") as sink:
                    whole = WholeFile(sink)
                    yield whole
                _measure(whole, kept)
                target.put(kept, whole.sha256)
            return
        begun = target.with_name(temporary or f"{target.name}.tmp")
        with ExitStack() as undone:
            undone.callback(begun.unlink, missing_ok=True)
            with os.fdopen(create_file(begun, secret=secret), "wb") as sink:
                whole = WholeFile(sink)
                yield whole
                sink.flush()
                os.fsync(sink.fileno())
            _measure(whole, begun)
            begun.replace(target)
            undone.pop_all()
    except OSError as error:
        raise disk_error(target, error) from error


def _measure(whole: WholeFile, path: Path) -> None:
    with path.open("rb") as source:
        whole.sha256, whole.blocks = hash_blocks(source)
    whole.size = path.stat().st_size


def claim_folder(folder: DatasetPlace, kind: str, own_names: Collection[str], *, secret: bool) -> None:
    """Create a folder, or take an empty one, or clear what a broken-off run of the same kind left; mark it as ours.

    Args:
        folder: that was named by a person.
        kind: of what will be written.
        own_names: names that a run of this kind writes there.
        secret: nobody else may read there; nobody else may write there in any case.

    Raises:
        DatasetError: it holds what is not ours, another run writes there, or it cannot be written.
    """
    try:
        folder.mkdir(mode=_PRIVATE if secret else _PUBLIC, parents=True, exist_ok=True)
        if isinstance(folder, Path):
            _shut_out_others(folder, secret=secret)
            _lock_folder(folder)
        entries = [entry for entry in folder.iterdir() if entry.name != MARK]
        mark = _read_marked_kind(folder)
        if entries and mark is None:
            problem = (
                f"is not empty ({min(entry.name for entry in entries)}, …), and is not an unfinished run of bkmeta"
            )
            raise DatasetError(str(folder), problem, "name an empty or a new folder")
        foreign = sorted(entry.name for entry in entries if entry.name not in own_names)
        if foreign:
            raise DatasetError(str(folder), f"holds other files ({foreign[0]}, …)", "name an empty or a new folder")
        if entries and mark != kind:
            problem = f"is what a broken-off run left that was writing the dataset of kind {mark}, not {kind}"
            raise DatasetError(str(folder), problem, "name an empty or a new folder, or remove this one yourself")
        for entry in entries:
            if entry.is_dir() and not (isinstance(entry, Path) and entry.is_symlink()):
                remove_tree(entry, ignore_errors=False)
            else:
                entry.unlink()
        _write_mark(folder, kind)
    except OSError as error:
        raise disk_error(folder, error) from error


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Make a folder of one's own, and keep others from running there.

    Raises:
        DatasetError: another run is there, or the folder cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _lock_folder(folder)
    except OSError as error:
        raise disk_error(folder, error) from error
    try:
        yield
    finally:
        _unlock_folder(folder)


def _lock_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    status = os.fstat(handle)
    key = (status.st_dev, status.st_ino)
    if key in _locks:  # an earlier run of this process was broken off
        os.close(handle)
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if error.errno in _LOCKED:
            problem = "another run is writing there"
            raise DatasetError(str(folder), problem, "wait until it has ended, or name another folder") from error
        return  # a file system without locks
    _locks[key] = handle


def _unlock_folder(folder: Path) -> None:
    status = folder.stat()
    handle = _locks.pop((status.st_dev, status.st_ino), None)
    if handle is not None:
        os.close(handle)


def _shut_out_others(folder: Path, *, secret: bool) -> None:
    mode = stat.S_IMODE(folder.stat().st_mode)
    wanted = mode & _PRIVATE if secret else mode & ~_OTHERS_WRITE
    if mode == wanted:
        return
    try:
        folder.chmod(wanted)
    except PermissionError as error:
        problem = f"has mode {mode:04o}, so others can {'read or ' if secret else ''}write there, and is not yours"
        raise DatasetError(str(folder), problem, "name a new folder, or one of your own") from error


def _read_marked_kind(folder: DatasetPlace) -> str | None:
    """Return what the mark of a folder says was being written; None: no mark. A torn one says nothing: ""."""
    if not isinstance(folder, Path):
        mark = folder / MARK
        return _parse_mark(mark.read_bytes()) if mark.is_file() else None
    try:
        handle = os.open(folder / MARK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(handle, "rb") as file:
        return _parse_mark(file.read(_LARGEST_MARK) if stat.S_ISREG(os.fstat(handle).st_mode) else b"")


def _parse_mark(raw: bytes) -> str:
    try:
        return str(json.loads(raw)["kind"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""


def _write_mark(folder: DatasetPlace, kind: str) -> None:
    """Write the mark, on the disk before anything else is."""
    with write_whole(folder / MARK, secret=True) as file:
        file.sink.write(json.dumps({"kind": kind, "tool_version": __version__}).encode())
    sync_folder(folder)


def release_folder(folder: DatasetPlace) -> None:
    """Remove the mark: what was being written is whole."""
    (folder / MARK).unlink(missing_ok=True)
    sync_folder(folder)
    if isinstance(folder, Path):
        _unlock_folder(folder)


def sync_folder(folder: DatasetPlace) -> None:
    """Make the names in a folder survive a loss of power; a store sees to that itself."""
    if not isinstance(folder, Path):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
