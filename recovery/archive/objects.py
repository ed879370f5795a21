"""Where an archive keeps what, and objects of entries as they are written.

    PLACE/archive.json                            what the folder is, and of which cluster; written first
    PLACE/runs/<run>/entries/<name>-<n>.entries   objects: entries as `recovery/codecs/entry_frames.py` has them
    PLACE/runs/<run>/index/<name>-<h>.parquet     ARCHIVED: ledgers, and where they are; written behind its objects.
                                                  h: the first 16 digits of its SHA-256
    PLACE/runs/<run>/unused/<name>.parquet        UNUSED_COPIES: copies that were not taken
    PLACE/runs/<run>/run.json                     the index files of a run that came to its end
    name                                          first bucket, last bucket, and a word of its own

Nothing is written twice: names are drawn, so a task that is tried again writes beside what it wrote before, and no
reader sees an object without an index. A ledger is in the archive once the index that has it is there.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.parquet as pq

from recovery.codecs.entry_frames import join_frames
from recovery.model.ids import BUCKETS
from recovery.out_folder import create_file, disk_error, sync_folder, write_whole
from recovery.place import DatasetPlace

RUNS: Final = "runs"
ENTRIES: Final = "entries"
INDEX: Final = "index"
UNUSED: Final = "unused"
RUN_FILE: Final = "run.json"
ARCHIVE_FILE: Final = "archive.json"
_HASH_DIGITS: Final = 16
TARGET: Final = 256 << 20
"""Bytes of an object, about."""
MOST: Final = 448 << 20
"""Bytes from which on an object takes no further batch: with that it stays below 512 MiB."""
_NAME: Final = re.compile(r"([0-9]{4})-([0-9]{4})-[0-9a-f]{8}-[0-9a-f]{16}\.parquet")


class ArchiveIndex(NamedTuple):
    """An index of an archive, by its name."""

    file: str
    """Below the archive's place."""
    first: int
    last: int

    @property
    def run(self) -> str:
        """The run that wrote it."""
        return self.file.split("/")[1]

    @property
    def digest(self) -> str:
        """The first digits of its SHA-256."""
        return self.file.rpartition("-")[2].partition(".")[0]

    @property
    def buckets(self) -> range:
        """Those of its ledgers."""
        return range(self.first, self.last + 1)


def draw_name(first: int, last: int) -> str:
    """Return a new name for what holds ledgers of these buckets."""
    return f"{first:04d}-{last:04d}-{secrets.token_hex(4)}"


def list_indexes(place: DatasetPlace, runs: Sequence[str] | None = None) -> list[ArchiveIndex]:
    """Return the indexes of some runs, or of all.

    Raises:
        OSError: the place cannot be read.
    """
    folder = place / RUNS
    names_found = []
    for run in sorted(list_names(folder) if runs is None else runs):
        for name in list_names(folder / run / INDEX):
            match = _NAME.fullmatch(name)
            if match and int(match[1]) <= int(match[2]) < BUCKETS:
                names_found.append(ArchiveIndex(f"{RUNS}/{run}/{INDEX}/{name}", int(match[1]), int(match[2])))
    return names_found


def list_names(folder: DatasetPlace) -> list[str]:
    """Return the names in a folder, ascending; none where it is not there.

    Raises:
        OSError: it cannot be read.
    """
    return sorted(item.name for item in folder.iterdir()) if folder.is_dir() else []


def write_index(place: DatasetPlace, run: str, name: str, rows: pa.Table) -> str:
    """Write the index of objects that are there; return its file.

    Raises:
        DatasetError: the disk is full or refuses.
    """
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd", write_page_checksum=True)
    raw = sink.getvalue()
    file = f"{name}-{hash_index(raw)}.parquet"
    folder = place / RUNS / run / INDEX
    try:
        _make_folder(folder)
        with write_whole(folder / file, secret=True) as whole:
            whole.sink.write(raw)
        sync_folder(folder)
    except OSError as error:
        raise disk_error(folder, error) from error
    return f"{RUNS}/{run}/{INDEX}/{file}"


def _make_folder(folder: DatasetPlace) -> None:
    """Make a folder, and have each that was not there survive a loss of power: a mark says that what is in it does."""
    if not isinstance(folder, Path):
        return
    made = [new for new in (folder, *folder.parents) if not new.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for new in made:
        sync_folder(new.parent)


def hash_index(raw: "bytes | pa.Buffer") -> str:
    """Return what the name of an index has of its bytes."""
    return hashlib.sha256(raw).hexdigest()[:_HASH_DIGITS]


def list_unfinished(place: DatasetPlace) -> list[str]:
    """Return the objects, whole or not, that no index names: what runs left that were killed.

    Objects of an index that is gone are none of them, where the list of its run has it: their bytes are what is left.

    Raises:
        OSError: the place cannot be read.
    """
    names_found = []
    for run in list_names(place / RUNS):
        folder = place / RUNS / run
        file = folder / RUN_FILE
        try:
            written = read_run(file) if file.is_file() else []
        except (ValueError, KeyError, TypeError, RecursionError):
            continue  # nothing shows what of it is left over
        known = [*list_names(folder / INDEX), *(name.rpartition("/")[2] for name in written)]
        indexed = {name.rpartition("-")[0] for name in known if _NAME.fullmatch(name)}
        names = (name for name in list_names(folder / ENTRIES) if name.rpartition("-")[0] not in indexed)
        names_found += [f"{RUNS}/{run}/{ENTRIES}/{name}" for name in names]
    return names_found


def read_run(file: DatasetPlace) -> list[str]:
    """Return the index files that a run lists, below the archive's place.

    Raises:
        OSError: the list cannot be read.
        ValueError, KeyError, TypeError, RecursionError: it is damaged.
    """
    return [str(name) for name in json.loads(file.read_bytes())["indexes"]]


@dataclass(slots=True)
class _Object:
    """An object that is being written, in a file of this machine."""

    name: str
    path: Path
    sink: BinaryIO
    size: int = 0


class ObjectWriter:
    """Writes the entries of ledgers, one after the other, into objects of one name; a context manager.

    A ledger that is dropped leaves nothing behind: its bytes are cut off again.

    Args:
        place: of the archive.
        run: name of the run.
        name: see `draw_name`.
        most: bytes from which on the next object is begun.
    """

    def __init__(self, place: DatasetPlace, run: str, name: str, most: int = MOST) -> None:
        self._folder = place / RUNS / run / ENTRIES
        self._below = f"{RUNS}/{run}/{ENTRIES}"
        self._name = name
        self._most = most
        self._number = 0
        self._object: _Object | None = None
        self._scratch: Path | None = None
        self._pieces: list[dict[str, Any]] = []
        self._whole: Any = None
        self._piece: Any = None
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._object is not None:
            self._object.sink.close()
            self._object.path.unlink(missing_ok=True)
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def begin(self) -> None:
        """Begin a ledger."""
        self._pieces, self._whole, self._piece, self._size = [], None, None, 0

    def add(self, records: Sequence[bytes], first: int) -> None:
        """Write the next entries of the ledger, ascending without a gap from `first` on.

        Raises:
            DatasetError: the disk is full or refuses.
        """
        data = join_frames(records)
        if self._object is not None and self._object.size >= self._most:
            self._end_object()
        current = self._open_object()
        if not self._pieces or self._pieces[-1]["object"] != f"{self._below}/{current.name}":
            self._end_piece()
            piece = {"object": f"{self._below}/{current.name}", "offset": current.size, "size": 0, "first": first}
            self._pieces.append(piece)
        self._piece.update(data)
        if self._whole is not None:
            self._whole.update(data)
        self._pieces[-1]["size"] += len(data)
        self._pieces[-1]["last"] = first + len(records) - 1
        self._size += len(data)
        try:
            current.sink.write(data)
        except OSError as error:
            raise disk_error(self._folder, error) from error
        current.size += len(data)

    def end(self) -> dict[str, Any]:
        """End the ledger; return size, sha256 and pieces of it, as ARCHIVED has them."""
        self._end_piece()
        whole = self._pieces[0]["sha256"] if len(self._pieces) == 1 else None
        if whole is None:
            whole = (self._whole or hashlib.sha256()).hexdigest()
        return {"size": self._size, "sha256": whole, "pieces": self._pieces}

    def drop(self) -> None:
        """Cut off what was written of the ledger.

        Raises:
            DatasetError: the disk refuses.
        """
        own = {piece["object"].rpartition("/")[2]: piece["offset"] for piece in self._pieces}
        self.begin()
        try:
            current = self._object
            if current is not None and (offset := own.pop(current.name, None)) is not None:
                current.size = offset
                current.sink.seek(offset)
                current.sink.truncate()
            for name, offset in own.items():
                if not offset:  # else other ledgers are in front of it
                    (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise disk_error(self._folder, error) from error

    def finish(self) -> None:
        """Give the last object its name.

        Raises:
            DatasetError: the disk is full or refuses.
        """
        if self._object is not None and self._object.size:
            self._end_object()

    def _end_piece(self) -> None:
        if self._pieces and "sha256" not in self._pieces[-1]:
            if self._whole is None:
                self._whole = self._piece.copy()
            self._pieces[-1]["sha256"] = self._piece.hexdigest()
        self._piece = hashlib.sha256()

    def _open_object(self) -> _Object:
        if self._object is None:
            name = f"{self._name}-{self._number}.entries"
            self._number += 1
            try:
                if isinstance(self._folder, Path):
                    _make_folder(self._folder)
                    path = self._folder / f"{name}.tmp"
                else:
                    self._scratch = self._scratch or Path(tempfile.mkdtemp(prefix="bkmeta-object-"))
                    path = self._scratch / name
                self._object = _Object(name, path, os.fdopen(create_file(path, secret=True), "wb"))
            except OSError as error:
                raise disk_error(self._folder, error) from error
        return self._object

    def _end_object(self) -> None:
        whole = self._object
        assert whole is not None  # noqa: S101 - its callers see to that
        target = self._folder / whole.name
        try:
            if isinstance(target, Path):
                whole.sink.flush()
                os.fsync(whole.sink.fileno())
                whole.sink.close()
                whole.path.rename(target)
                sync_folder(target.parent)
            else:
                whole.sink.close()
                with whole.path.open("rb") as source:
                    digest = hashlib.file_digest(source, "sha256").hexdigest()
                target.put(whole.path, digest)
                whole.path.unlink()
        except OSError as error:
            raise disk_error(target, error) from error
        self._object = None
