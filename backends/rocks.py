"""RocksDB folders read without touching them: a private folder of links to the files is opened instead.

Even a read-only opening creates a file in the folder, so the folder that is opened is ours: it holds a symbolic link
to every file but ``LOCK``, ``LOG*`` and what is the library's own. What a running process flushes or compacts away
between the linking and the opening makes the opening fail; then fresh links are made. Once open, every table file is
held open, and what happens to the folder does not matter any more.

A damaged manifest can make the library loop for ever, so the opening is tried in a process of its own first, with a
deadline (`backends.rocks_trial`), once for each manifest. ``CURRENT`` and the manifests are copied instead of linked:
what was tried is what is opened.

Only what is in the files is seen: the write-ahead log is, the memory of a running process is not.
"""

import hashlib
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import rocksdict
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from backends.errors import CorruptStoreError, NoSuchStoreError, UnavailableError
from backends.files import read_bounded
from backends.rocks_trial import CONFIG, open_links, try_opening

_CURRENT: Final = "CURRENT"
"""The file that names the manifest; without it there is no database."""
_MANIFEST: Final = "MANIFEST-"
_COPIED: Final = {_CURRENT: 4 << 10, _MANIFEST: 2 << 30}
"""Copied files, by name or prefix, and their largest sizes: one line; twice the size at which the library begins
another manifest."""
_NOT_LINKED: Final = frozenset({"LOCK", CONFIG})
_TRIAL_S: Final = 10.0
"""Seconds of processor time to open a database, beside the time that its size explains: usually milliseconds."""
_TRIAL_BYTES_S: Final = 5 << 20
"""Bytes of manifests and write-ahead logs a second: a tenth of the usual speed."""
_TRIAL_TABLES_S: Final = 100
"""Table files a second: a tenth of the usual speed."""
_SECTOR: Final = 512
_PRIVATE: Final = "bkmeta-rocks-"
_PRIVATE_PATH: Final = re.compile(rf"/\S*{_PRIVATE}[^/\s]+/[^/\s]+")
_BATCH: Final = 16_384
"""Larger ones do not stay in the processor's cache."""
_CUTS: Final = 4
"""Keys that are guessed for each share: the more, the more alike shares are."""
_ATTEMPTS: Final = 8
"""Attempts to link a set of files; a compaction seldom ends twice within the milliseconds of one attempt."""


class _VanishedError(Exception):
    """A file was gone before it could be opened."""


class RocksReader:
    """One RocksDB as its files were when it was opened; its only column family is `default`.

    Attributes:
        folder: the original folder.
        damage: what of the write-ahead log had to be passed over, for people; None if nothing had to. A record that
            is cut off at the log's end is not a damage: every crash leaves one.
    """

    __slots__ = ("_db", "damage", "folder")

    def __init__(self, db: rocksdict.Rdict, folder: Path, damage: str | None) -> None:
        self._db = db
        self.folder = folder
        self.damage = damage

    def get(self, key: bytes) -> bytes | None:
        """Return the value of one key; None if it is absent."""
        try:
            value: bytes | None = self._db.get(key)
        except Exception as error:  # rocksdict raises nothing narrower
            raise CorruptStoreError(str(self.folder), _shorten(error, self.folder)) from error
        return value

    def items(
        self, batch: int = _BATCH, *, low: bytes | None = None, high: bytes | None = None
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Yield keys and their values, ascending by key, at most `batch` at a time.

        Args:
            batch: number of rows.
            low: the first key; None: no bound.
            high: after the last key; None: no bound.

        Raises:
            CorruptStoreError: a table file cannot be read from here on; the keys so far were right.
        """
        pairs: Iterator[Any] = self._db.items(from_key=low, read_opt=_below(high))
        last: bytes | None = None
        # Laid flat and cut apart: quicker than pair by pair, and than two iterators that each go through the blocks.
        while flat := list(chain.from_iterable(islice(pairs, batch))):
            yield flat[::2], flat[1::2]
            last = flat[-2]
        self._require_end(last, low, high)

    def _require_end(self, last: bytes | None, low: bytes | None, high: bytes | None) -> None:
        """The library's iterators end silently at a broken block, so the key after the last one is read too."""
        iterator = self._db.iter(_below(high))
        try:
            if last is not None:
                iterator.seek(last)
                if iterator.valid():
                    iterator.next()
            elif low is not None:
                iterator.seek(low)
            else:
                iterator.seek_to_first()
            iterator.status()
        except Exception as error:  # rocksdict raises nothing narrower
            raise CorruptStoreError(str(self.folder), _shorten(error, self.folder)) from error
        if iterator.valid():
            raise CorruptStoreError(str(self.folder), "the iteration ended before the last key")

    def shares(self, keys: int, limit: int, prefix: int) -> list[bytes]:
        """Return the first bytes of the keys at which to cut, for shares with about equally many keys.

        What is only in the write-ahead log is not counted, but lies in a share as everything does.

        Args:
            keys: in a share.
            limit: shares.
            prefix: bytes of a key that a range never divides. Read as numbers, keys are assumed to be spread evenly
                over one table file.
        """
        files = [file for file in self._db.live_files() if file["num_entries"]]
        total = sum(file["num_entries"] for file in files)
        shares = min(total // keys, limit)
        if shares <= 1:
            return []
        points: list[int] = []
        for file in files:
            first, last = (int.from_bytes(file[end][:prefix].ljust(prefix, b"\0")) for end in ("start_key", "end_key"))
            count = -(-file["num_entries"] * shares * _CUTS // total)
            points += [first + (last - first) * n // count for n in range(count)]
        points.sort()
        cuts = {points[len(points) * n // shares] for n in range(1, shares)} - {points[0]}
        return [cut.to_bytes(prefix) for cut in sorted(cuts)]


def _below(high: bytes | None) -> rocksdict.ReadOptions:
    options = rocksdict.ReadOptions()
    if high is not None:
        options.set_iterate_upper_bound(high)
    return options


@contextmanager
def open_read_only(folder: Path) -> Iterator[RocksReader]:
    """Open the RocksDB in a folder, whether or not a process has it open.

    Nothing in the folder is created, changed or locked; it may be read-only.

    Raises:
        NoSuchStoreError: the folder is missing or holds no database.
        CorruptStoreError: its files cannot be read.
        UnavailableError: its files changed faster than they could be opened.
    """
    retrying = Retrying(
        retry=retry_if_exception_type(_VanishedError),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_exponential(multiplier=0.01, max=1),
        reraise=True,
    )
    with tempfile.TemporaryDirectory(prefix=_PRIVATE, ignore_cleanup_errors=True) as private:
        try:
            reader = retrying(_open_links, folder, Path(private))
        except _VanishedError as error:
            raise UnavailableError(str(folder), f"its files change while they are opened: {error}") from error
        try:
            yield reader
        finally:
            reader._db.close()  # noqa: SLF001  # the reader does not outlive this function


def _open_links(folder: Path, private: Path) -> RocksReader:
    links = Path(tempfile.mkdtemp(dir=private))
    files = _find_links(folder)
    if all(file.name != _CURRENT for file in files):
        raise NoSuchStoreError(str(folder), f"it has no file {_CURRENT}")
    for file in files:
        limit = _COPIED.get(_MANIFEST if file.name.startswith(_MANIFEST) else file.name)
        if limit is None:
            (links / file.name).symlink_to(file.absolute())
        else:
            (links / file.name).write_bytes(_content(file, limit))
    _require_trial(folder, links, files)
    try:
        return RocksReader(open_links(links, is_forgiving=False), folder, None)
    except Exception as error:  # noqa: BLE001  # rocksdict raises nothing narrower
        _raise_unless_log_damage(error, folder, links, {file.name for file in files})
        damage = _shorten(error, folder)
    try:
        return RocksReader(open_links(links, is_forgiving=True), folder, damage)
    except Exception as error:
        raise CorruptStoreError(str(folder), _shorten(error, folder)) from error


def _content(file: Path, limit: int) -> bytes:
    try:
        return read_bounded(file, limit)
    except FileNotFoundError as error:
        raise _VanishedError(str(error)) from error
    except OSError as error:
        raise CorruptStoreError(str(file), f"cannot be read ({error.strerror})") from error


_tried: dict[bytes, str | None] = {}
"""The reason why a database must not be opened here, None if it may; by the files that `_require_trial` reads."""


def _require_trial(folder: Path, links: Path, files: list[Path]) -> None:
    """Check that the opening ends, of manifests and table files that were not tried before.

    Raises:
        CorruptStoreError: it does not.
    """
    looked = hashlib.sha256(str(folder.absolute()).encode())
    within_s = _TRIAL_S
    for file in sorted(files):
        looked.update(f"\n{file.name}\n".encode())
        if file.name.startswith(tuple(_COPIED)):
            looked.update((links / file.name).read_bytes())
        if file.suffix == ".sst":
            within_s += 1 / _TRIAL_TABLES_S
        else:
            with suppress(FileNotFoundError):
                status = file.stat()
                # Holes cost next to nothing.
                within_s += min(status.st_size, status.st_blocks * _SECTOR) / _TRIAL_BYTES_S
    key = looked.digest()
    if key not in _tried:
        try:
            _tried[key] = try_opening(links, within_s)
        except OSError as error:
            raise UnavailableError(str(folder), str(error)) from error
    problem = _tried[key]
    if problem is not None:
        raise CorruptStoreError(str(folder), problem)


def _shorten(error: Exception, folder: Path) -> str:
    """Return the library's message, with the folder itself in place of the links to it."""
    return _PRIVATE_PATH.sub(lambda _: str(folder), str(error))


def _find_links(folder: Path) -> list[Path]:
    """Return the files that make the database.

    Raises:
        CorruptStoreError: one is a pipe or a device, at which the library would wait for ever.
    """
    try:
        names = [file for file in folder.iterdir() if file.name not in _NOT_LINKED and not file.name.startswith("LOG")]
        for file in names:
            with suppress(FileNotFoundError):
                mode = file.stat().st_mode
                if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                    raise CorruptStoreError(str(file), "is not a regular file")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NoSuchStoreError(str(folder), "no such folder") from error
    except OSError as error:
        raise UnavailableError(str(folder), str(error)) from error
    return names


def _raise_unless_log_damage(error: Exception, folder: Path, links: Path, names: set[str]) -> None:
    """Return the kind of an error by its message; the library has one exception for everything."""
    text = _shorten(error, folder)
    if "No such file" in text:
        if names == {file.name for file in _find_links(folder)}:
            raise CorruptStoreError(str(folder), text) from error  # nothing changed: it was missing before
        raise _VanishedError(text) from error
    if not text.startswith("Corruption"):
        raise UnavailableError(str(folder), text) from error
    with suppress(OSError):
        (links / CONFIG).unlink()
