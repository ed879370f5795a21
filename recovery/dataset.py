"""Datasets: folders of Parquet files in bucket order, with a manifest that is written last.

    <path>/manifest.json          last; without it the folder is not a dataset
    <path>/<table>/<part>.parquet  tables and columns as `recovery.model.tables` has them

Tables that have the key columns are sorted by (bucket, scope, ledger), and their parts ascend, so a bucket range of any
dataset is a contiguous stretch. `manifest.json`:

    kind             inventory, catalog, plan, scrutiny, impact; again: what the next collection of a bookie needs
    schema_version   [major, minor]; readers take any minor of the same major: missing columns are null, unknown ones
                     are left out
    tool_version     of the writer
    secret           true: the folder holds passwords, its files have mode 0600
    tables           name → parts: file, rows, bytes, sha256, blocks (SHA-256 of each MiB, where there are several), and
                     the first and last bucket of a keyed table
    binding          what the dataset belongs to
    settings         name → value, and from where it is; where the program that wrote it said them
    coverage         what was looked at, and what was not
    digest           SHA-256 of the rest of the manifest, which has the files' hashes: of the whole dataset

Whatever is read is hashed while it is, and compared: the manifest, and of each file the blocks that are touched.
Columns that are not there, or are of another type, are damage, but for null ones of an earlier minor version.

A plan's folder also holds `store/`: the catalog of the store that it was compared with, a dataset of its own; and in
`earlier/` those of files of the store that were named as snapshots.

A path is one of this machine or a URI of a store: `recovery/place.py`.

In one module because writer and reader share the folder's form and the manifest's.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from recovery import __version__
from recovery.errors import DatasetError
from recovery.manifest import Part, digest_of, require_shape
from recovery.model import tables
from recovery.model.ids import BUCKETS
from recovery.out_folder import claim_folder, disk_error, release_folder, sync_folder, write_whole
from recovery.place import DatasetPlace, open_system, require_there, to_place
from recovery.verified_file import BLOCK, VerifiedFile, hash_whole

MANIFEST: Final = "manifest.json"
_LARGEST_MANIFEST: Final = 1 << 30
"""It lists files, some 200 bytes each: a plan of 4,096 tasks has a few MB."""
REPORT: Final = "report.html"
"""Page for people; beside the dataset, not of it."""

SNAPSHOTS: Final = "earlier"
"""Folder in a plan's: catalogs of what the store held earlier, where they were made for the plan."""
AGAIN: Final = "again"
"""Folder in an inventory's: what the next collection need not read again, a dataset of its own."""
COLLECTED: Final = "inventories"
"""Folder in a plan's or a scrutiny's: inventories that were made for it, of disks, running bookies or tables."""
SPILL: Final = ".spill"
"""Folder of what a dataset needs while it is made."""

_ROW_GROUP: Final = 16_384
_ROW_GROUP_BYTES: Final = 64 << 20
_AHEAD: Final = 4
"""Row groups that are read before they are asked for: each takes memory."""
_SPILL_BYTES: Final = 64 << 20
_SPILL_ROWS: Final = 1 << 17
_MERGE_STEPS: Final = 64
"""Bucket ranges that spilled runs are merged in: memory of a merge is about a 64th of the table."""
_MERGE_STEP: Final = BUCKETS // _MERGE_STEPS


def _is_keyed(schema: pa.Schema) -> bool:
    return tuple(schema.names[:3]) == tables.KEY_COLUMNS and not schema.field("ledger").nullable


def select_rows(rows: pa.Table, wanted: Any) -> pa.Table:  # noqa: ANN401 - an Arrow column
    """Return some rows; the table itself, not a copy of it, where that is all of them. Null: not wanted."""
    wanted = pc.fill_null(wanted, fill_value=False)
    return rows if pc.all(wanted).as_py() is not False else rows.filter(wanted)


def sort_by_key(table: pa.Table) -> pa.Table:
    """Return the rows ordered by (bucket, scope, ledger), equal keys in the order they came in."""
    if table.num_rows < 2:
        return table
    order = np.lexsort([table[name].to_numpy() for name in reversed(tables.KEY_COLUMNS)])
    return table.take(pa.array(order))


def _steps_of(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield ordered rows as they are merged: those of some buckets at a time."""
    edges = np.searchsorted(rows["bucket"].to_numpy(), np.arange(_MERGE_STEP, BUCKETS, _MERGE_STEP))
    for low, high in pairwise([0, *edges.tolist(), rows.num_rows]):
        if high > low:
            yield rows.slice(low, high - low)


def _slices(table: pa.Table) -> Iterator[pa.Table]:
    per_row = max(1, table.nbytes // max(1, table.num_rows))
    step = max(1, min(_ROW_GROUP, _ROW_GROUP_BYTES // per_row))
    for start in range(0, table.num_rows, step):
        yield table.slice(start, step)


def write_part(
    folder: DatasetPlace,
    table_name: str,
    part: str,
    batches: Iterable[pa.Table],
    *,
    secret: bool = False,
    compression: str = "zstd",
) -> Part:
    """Write one file of a table, synced, under its final name only when it is whole.

    Args:
        folder: of the dataset.
        table_name: names the subfolder.
        part: file name without its ending; equal names replace each other.
        batches: of one schema, at least one; rows already in their final order.
        secret: mode 0600 instead of what the umask gives.
        compression: one that Parquet knows.

    Raises:
        DatasetError: the disk is full or refuses.
    """
    target = folder / table_name / f"{part}.parquet"
    rows = 0
    low = high = None
    try:
        target.parent.mkdir(mode=0o700 if secret else 0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(target, error) from error
    # A task may be tried twice at the same time.
    with write_whole(target, secret=secret, temporary=f"{part}.{os.getpid()}.tmp") as whole:
        writer: pq.ParquetWriter | None = None
        for batch in batches:
            if writer is None:
                schema = tables.add_comments(table_name, batch.schema)
                writer = pq.ParquetWriter(whole.sink, schema, compression=compression, write_page_checksum=True)
            for piece in _slices(batch):
                writer.write_table(piece)
            if batch.num_rows and "bucket" in batch.schema.names:
                # Findings of no ledger have none.
                edge = pc.min_max(batch["bucket"].drop_null()).as_py()
                if edge["min"] is not None:
                    low = edge["min"] if low is None else min(low, edge["min"])
                    high = edge["max"] if high is None else max(high, edge["max"])
            rows += batch.num_rows
        if writer is None:
            raise ValueError("a part needs at least one batch, which may be empty")
        writer.close()
    return Part(f"{table_name}/{part}.parquet", rows, whole.size, whole.sha256, low, high, whole.blocks)


def take_over_part(dataset: "Dataset", part: Part, folder: DatasetPlace, *, secret: bool) -> Part:
    """Give another dataset a file of this one, which is not read: a second name of it, or a copy.

    Raises:
        DatasetError: the disk is full or refuses, or the file is not the one that was written.
    """
    target, source = folder / part.file, to_place(dataset.path) / part.file
    try:
        target.parent.mkdir(mode=0o700 if secret else 0o755, parents=True, exist_ok=True)
        if isinstance(source, Path) and isinstance(target, Path):
            with suppress(OSError):
                target.hardlink_to(source)
                return part
    except OSError as error:
        raise disk_error(target, error) from error
    system, path = open_system(str(source))
    with write_whole(target, secret=secret) as whole, system.open_input_stream(path) as opened:
        shutil.copyfileobj(opened, whole.sink, BLOCK)
    if whole.sha256 != part.sha256:
        raise DatasetError(str(source), "is not the file that the manifest lists", "copy or make the dataset again")
    return part


def write_manifest(
    folder: DatasetPlace,
    kind: str,
    parts: Mapping[str, Iterable[Part]],
    *,
    binding: Mapping[str, object],
    coverage: Mapping[str, object],
    secret: bool,
    extra: Mapping[str, object] | None = None,
    sign: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda _manifest: {},
) -> dict[str, Any]:
    """Make a folder of parts a dataset: write the manifest, synced, in one step; return it.

    What `sign` gives of the manifest is added to it.

    Raises:
        DatasetError: the disk is full or refuses.
    """
    manifest: dict[str, Any] = {
        "kind": kind,
        "schema_version": list(tables.SCHEMA_VERSION),
        "tool_version": __version__,
        "secret": secret,
        "tables": {name: [asdict(p) for p in parts.get(name, ())] for name in tables.KINDS[kind]},
        "binding": dict(binding),
        "coverage": dict(coverage),
        **(extra or {}),
    }
    manifest |= sign(manifest)
    manifest["digest"] = digest_of(manifest)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with write_whole(folder / MANIFEST, secret=secret) as whole:
            whole.sink.write(json.dumps(manifest, indent=1).encode())
        sync_folder(folder)
        release_folder(folder)
    except OSError as error:
        raise disk_error(folder / MANIFEST, error) from error
    return manifest


def prepare(folder: DatasetPlace, kind: str, *, secret: bool) -> None:
    """Make a folder ready to be written: create it, or clear what a broken-off run of the same kind left.

    Raises:
        DatasetError: a whole dataset, or files that are not ours, are already there.
    """
    with _name_unreadable(str(folder)):
        is_whole = (folder / MANIFEST).exists()
    if is_whole:
        raise DatasetError(str(folder), "already holds a dataset", "name another folder, or remove this one yourself")
    beside = {
        "plan": ["store", SNAPSHOTS, COLLECTED],
        "inventory": [AGAIN],
        "orphans": ["candidates.jsonl"],
        "impact": ["ledgers.txt"],
        "scrutiny": [
            *("store", "against", COLLECTED, "samples"),
            *("metrics.prom", "repair.jsonl", "gone.jsonl", "ledgers"),
        ],
        "drill": ["store", "plan", "ledgers"],
        "bookie": ["store", *(f"{name}.txt" for name in tables.BOOKIE_LISTS)],
    }.get(kind, [])
    own_names = {*tables.KINDS[kind], SPILL, f"{MANIFEST}.tmp", REPORT, *beside}
    claim_folder(folder, kind, own_names, secret=secret)


class DatasetWriter:
    """Writes one dataset from one process, rows in any order, in bounded memory.

    Rows of keyed tables are sorted in runs that are spilled beside the dataset, or into TMPDIR where it is in a store,
    and merged by bucket ranges at the end.
    Used as a context manager: leaving it by an exception leaves a folder without a manifest, which is not a dataset.
    """

    def __init__(
        self,
        path: DatasetPlace,
        kind: str,
        *,
        binding: Mapping[str, object],
        secret: bool = False,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._path = path
        self._kind = kind
        self._binding = binding
        self._settings = settings
        self._secret = secret
        self._buffers: dict[str, list[pa.Table]] = {name: [] for name in tables.KINDS[kind]}
        self._runs: dict[str, list[Path]] = {name: [] for name in tables.KINDS[kind]}
        self._bytes: dict[str, int] = dict.fromkeys(tables.KINDS[kind], 0)
        self._waiting: dict[str, int] = dict.fromkeys(tables.KINDS[kind], 0)
        self.rows: dict[str, int] = dict.fromkeys(tables.KINDS[kind], 0)
        prepare(path, kind, secret=secret)
        self.scratch = path if isinstance(path, Path) else Path(tempfile.mkdtemp(prefix="bkmeta-spill-"))
        """Folder of this machine for what is needed while the dataset is made."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()

    def _clear(self) -> None:
        shutil.rmtree(self.scratch / SPILL if self.scratch is self._path else self.scratch, ignore_errors=True)

    def append(self, name: str, rows: pa.Table) -> None:
        """Take rows of a table; their columns must be the schema's, by name and type."""
        schema = tables.KINDS[self._kind][name]
        taken = rows.select(schema.names).cast(schema)
        self._buffers[name].append(taken)
        self.rows[name] += taken.num_rows
        # Counted as they come: asking every buffered table again is quadratic in their number.
        self._bytes[name] += taken.nbytes
        self._waiting[name] += taken.num_rows
        if self._bytes[name] > _SPILL_BYTES or self._waiting[name] > _SPILL_ROWS:
            self._spill(name)

    def _spill(self, name: str) -> None:
        run = f"{name}-{len(self._runs[name]):05d}"
        rows = self._take_buffer(name)
        # What is merged at a time is a row group of its own, so that nothing is read twice.
        parts = _steps_of(rows) if _is_keyed(rows.schema) else [rows]
        write_part(self.scratch, SPILL, run, parts, secret=self._secret, compression="lz4")
        self._runs[name].append(self.scratch / SPILL / f"{run}.parquet")
        self._buffers[name] = []
        self._bytes[name] = self._waiting[name] = 0

    def _take_buffer(self, name: str) -> pa.Table:
        schema = tables.KINDS[self._kind][name]
        table = pa.concat_tables(self._buffers[name]) if self._buffers[name] else schema.empty_table()
        return sort_by_key(table) if _is_keyed(schema) else table

    def _merge(self, name: str) -> Iterator[pa.Table]:
        schema = tables.KINDS[self._kind][name]
        if not self._runs[name]:
            yield self._take_buffer(name)
            return
        if self._waiting[name]:
            self._spill(name)
        import pyarrow.dataset as pads  # noqa: PLC0415 - see _scan

        runs = pads.dataset([str(p) for p in self._runs[name]], schema=schema, format="parquet")
        if not _is_keyed(schema):
            for batch in runs.to_batches(batch_size=_ROW_GROUP):
                yield pa.Table.from_batches([batch], schema)
            return
        for low in range(0, BUCKETS, _MERGE_STEP):
            wanted = (pc.field("bucket") >= low) & (pc.field("bucket") < low + _MERGE_STEP)
            yield sort_by_key(runs.to_table(filter=wanted))

    def close(self, *, coverage: Mapping[str, object]) -> dict[str, Any]:
        """Write what is left and the manifest; return the manifest."""
        parts = {
            name: [write_part(self._path, name, "part-00000", self._merge(name), secret=self._secret)]
            for name in self._buffers
        }
        self._clear()
        return write_manifest(
            self._path,
            self._kind,
            parts,
            binding=self._binding,
            coverage=coverage,
            secret=self._secret,
            extra={"settings": self._settings} if self._settings else None,
        )


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset that is there: its manifest, and its tables by bucket range. Can be pickled; holds nothing open."""

    path: str
    manifest: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """inventory, catalog or plan."""
        return str(self.manifest["kind"])

    @property
    def digest(self) -> str:
        """SHA-256 of the whole dataset: of its manifest, which has those of its files."""
        return str(self.manifest.get("digest") or digest_of(self.manifest))

    def parts(self, name: str) -> list[Part]:
        """Return the files of a table in the order of their rows."""
        return [Part(**p) for p in self.manifest["tables"].get(name, ())]

    def rows(self, name: str) -> int:
        """Return how many rows a table has, without reading it."""
        return sum(p.rows for p in self.parts(name))

    def _scan(self, name: str, parts: Sequence[Part]) -> Any:  # noqa: ANN401 - a pyarrow dataset
        import pyarrow.dataset as pads  # noqa: PLC0415 - takes longer to load than a small command

        checked = pads.ParquetFileFormat(
            default_fragment_scan_options=pads.ParquetFragmentScanOptions(
                page_checksum_verification=True, pre_buffer=False
            )
        )
        schema = tables.KINDS[self.kind][name]
        fragments = []
        for part in parts:
            # Read by this thread alone: one of Arrow's that still asks a Python file for bytes while the program ends
            # would abort it.
            fragment = checked.make_fragment(pa.PythonFile(self._open(part), mode="r"))
            self._require_columns(part, fragment.physical_schema, schema)
            fragments.append(fragment)
        return pads.FileSystemDataset(fragments, schema, checked)

    def _read_small(self, name: str, part: Part, names: list[str], buckets: range | None = None) -> pa.Table:
        """Read a file of one block and one row group as `_scan` would, which costs as much again to lay out."""
        schema = tables.KINDS[self.kind][name]
        requested = [*names, "bucket"] if buckets is not None and "bucket" not in names else names
        content = pa.BufferReader(self._open(part).read())
        with pq.ParquetFile(content, page_checksum_verification=True, pre_buffer=False) as file:
            stored = file.schema_arrow
            self._require_columns(part, stored, schema)
            table = file.read(None if requested == stored.names else requested, use_threads=False)
        if buckets is not None:
            in_range = pc.and_(pc.greater_equal(table["bucket"], buckets.start), pc.less(table["bucket"], buckets.stop))
            table = table.filter(in_range)
        projected = pa.schema([schema.field(column) for column in names])
        if table.schema.equals(projected):
            return pa.table(table.columns, schema=projected)
        columns = []
        for field in projected:
            # What an older file lacks is null.
            values = table[field.name] if field.name in table.column_names else pa.nulls(table.num_rows, field.type)
            columns.append(values if values.type == field.type else values.cast(field.type))
        return pa.table(columns, schema=projected)

    def _open(self, part: Part) -> VerifiedFile:
        system, root = open_system(self.path)
        return VerifiedFile(
            partial(system.open_input_file, f"{root}/{part.file}"),
            part.bytes,
            part.sha256,
            part.blocks,
            partial(self._broken, part.file, "is not the file that the manifest lists"),
        )

    def _require_columns(self, part: Part, schema: pa.Schema, wanted: pa.Schema) -> None:
        """Refuse a file whose columns are not the table's; nothing but what is null in new tables may be missing."""
        is_older = list(self.manifest["schema_version"]) < list(tables.SCHEMA_VERSION)
        for field in wanted:
            position = schema.get_field_index(field.name)
            if position < 0 and not (is_older and field.nullable):
                raise self._broken(part.file, f"has no column {field.name}")
            if position >= 0 and not is_older and schema.field(position).type != field.type:
                raise self._broken(
                    part.file, f"has a column {field.name} of another type ({schema.field(position).type})"
                )

    def read(self, name: str, *, buckets: range | None = None, columns: list[str] | None = None) -> pa.Table:
        """Return a table, or a bucket range of it, in its order.

        Raises:
            DatasetError: a file is gone or damaged.
        """
        schema = tables.KINDS[self.kind][name]
        wanted = [p for p in self.parts(name) if p.rows and (buckets is None or _overlaps(p, buckets))]
        names = columns if columns is not None else schema.names
        if not wanted:
            return pa.schema([schema.field(n) for n in names]).empty_table()
        keep = None
        if buckets is not None:
            keep = (pc.field("bucket") >= buckets.start) & (pc.field("bucket") < buckets.stop)
        try:
            if names and all(map(_is_small, wanted)):
                return pa.concat_tables([self._read_small(name, part, names, buckets) for part in wanted])
            table: pa.Table = self._scan(name, wanted).to_table(columns=names, filter=keep, use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise self._broken(name, str(error).splitlines()[0]) from error
        return table

    def bounds(self, name: str, column: str) -> tuple[Any, Any] | None:
        """Return the smallest and the largest value of a column; None: no rows.

        Read from the rows: asked for the statistics of a damaged footer, the library may end the process.

        Raises:
            DatasetError: a file is gone or damaged.
        """
        bounds = [pc.min_max(batch[column]).as_py() for batch in self.batches(name, [column]) if batch.num_rows]
        return (min(item["min"] for item in bounds), max(item["max"] for item in bounds)) if bounds else None

    def batches(
        self, name: str, columns: list[str] | None = None, *, parts: Sequence[Part] | None = None
    ) -> Iterator[pa.Table]:
        """Yield a table, some columns or some parts of it, in its order, a row group or so at a time.

        Raises:
            DatasetError: a file is gone or damaged.
        """
        for part in self.parts(name) if parts is None else parts:
            if not part.rows:
                continue
            try:
                names = tables.KINDS[self.kind][name].names if columns is None else columns
                if names and _is_small(part):
                    yield self._read_small(name, part, names)
                    continue
                rows = self._scan(name, [part])
                for batch in rows.to_batches(
                    columns=names, batch_size=_ROW_GROUP, batch_readahead=_AHEAD, use_threads=False
                ):
                    yield pa.Table.from_batches([batch])
            except (OSError, pa.ArrowException) as error:
                raise self._broken(name, str(error).splitlines()[0]) from error

    def verify(self) -> None:
        """Compare every file's size and SHA-256 with the manifest.

        Raises:
            DatasetError: names the first file that differs.
        """
        system, root = open_system(self.path)
        for name in self.manifest["tables"]:
            for part in self.parts(name):
                try:
                    with system.open_input_stream(f"{root}/{part.file}") as source:
                        digest = hash_whole(source)
                except (OSError, pa.ArrowException) as error:
                    raise self._broken(part.file, "cannot be read") from error
                if digest != part.sha256:
                    raise self._broken(part.file, "is not the file that the manifest lists")

    def _broken(self, name: str, problem: str) -> DatasetError:
        return DatasetError(f"{self.path}/{name}", problem, "copy or make the dataset again")


def read_inventories(inventories: Iterable["Dataset"], name: str) -> pa.Table:
    """Return a small table of several inventories, in their order."""
    return pa.concat_tables([tables.INVENTORY[name].empty_table(), *(dataset.read(name) for dataset in inventories)])


def read_part(folder: DatasetPlace, file: str, **wanted: Any) -> pa.Table:  # noqa: ANN401 - as pyarrow takes it
    """Return a file of a folder that is not a dataset yet, with columns and filters as `pyarrow.parquet` takes them."""
    system, root = open_system(str(folder))
    return pq.read_table(f"{root}/{file}", filesystem=system, **wanted)


def _is_small(part: Part) -> bool:
    return part.bytes <= BLOCK and part.rows <= _ROW_GROUP


def _overlaps(part: Part, buckets: range) -> bool:
    if part.first_bucket is None or part.last_bucket is None:
        return True
    return part.first_bucket < buckets.stop and part.last_bucket >= buckets.start


@contextmanager
def _name_unreadable(where: str) -> Iterator[None]:
    """Say of a place that does not answer that it does not."""
    try:
        yield
    except OSError as error:
        problem = f"cannot be read ({str(error).splitlines()[0]})"
        raise DatasetError(where, problem, "see that it can be reached, and what you may do there") from error


def open_dataset(path: str | DatasetPlace, kind: str) -> Dataset:
    """Open a dataset: read its manifest, and see that every file is there with its size.

    Raises:
        DatasetError: no dataset, another kind, a newer major schema version, or files missing or cut.
        InputError: a URI that names no place, or has credentials in it.
    """
    # Absolute: tasks open it, too, and theirs may be another working folder.
    where = str(to_place(path).absolute())
    system, root = open_system(where)
    with _name_unreadable(where):
        there = system.get_file_info(root).type
    if there in (pafs.FileType.NotFound, pafs.FileType.File):
        problem = "no such folder" if there == pafs.FileType.NotFound else "is a file"
        raise DatasetError(where, problem, f"name the folder that a bkmeta command wrote as its {kind}")
    try:
        file = system.get_file_info(f"{root}/{MANIFEST}")
        if file.type not in (pafs.FileType.File, pafs.FileType.NotFound) or (file.size or 0) > _LARGEST_MANIFEST:
            problem = "is not a regular file, or too large for a manifest"
            raise DatasetError(f"{where}/{MANIFEST}", problem, f"name the folder of a bkmeta {kind}")
        require_there(system, f"{root}/{MANIFEST}")
        with system.open_input_stream(f"{root}/{MANIFEST}") as source:
            manifest = json.loads(source.read())
    except FileNotFoundError as error:
        remedy = "it is not a dataset, or the run that wrote it did not end: make it again"
        raise DatasetError(where, f"has no {MANIFEST}", remedy) from error
    except (OSError, ValueError, RecursionError) as error:
        raise DatasetError(f"{where}/{MANIFEST}", "cannot be read", "copy or make the dataset again") from error
    try:
        major = int(manifest["schema_version"][0])
        stored_kind = str(manifest["kind"])
        dataset = Dataset(where, manifest)
        parts = [p for name in manifest["tables"] for p in dataset.parts(name)]
        require_shape(manifest, stored_kind)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise DatasetError(f"{where}/{MANIFEST}", "is not a manifest of ours", f"name a bkmeta {kind}") from error
    if major != tables.SCHEMA_VERSION[0]:
        version = manifest.get("tool_version", "another version")
        problem = f"has schema version {major}, this program reads {tables.SCHEMA_VERSION[0]}"
        raise DatasetError(where, problem, f"use bkmeta {version}, which wrote it")
    if stored_kind != kind:
        raise DatasetError(where, f"is a dataset of kind {stored_kind}, not {kind}", f"name a bkmeta {kind}")
    if "digest" in manifest and manifest["digest"] != digest_of(manifest):
        problem = "was altered after it was written: it does not agree with its digest"
        raise DatasetError(f"{where}/{MANIFEST}", problem, "copy or make the dataset again")
    with _name_unreadable(where):
        infos = system.get_file_info([f"{root}/{p.file}" for p in parts])
    for part, info in zip(parts, infos, strict=True):
        if info.type == pafs.FileType.NotFound:
            raise DatasetError(f"{where}/{part.file}", "is missing", "copy or make the dataset again")
        if info.size != part.bytes:
            problem = f"has {info.size} bytes, the manifest says {part.bytes}"
            raise DatasetError(f"{where}/{part.file}", problem, "copy or make the dataset again")
    return dataset
