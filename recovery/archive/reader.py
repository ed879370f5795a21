"""An archive read by itself: its index, the entries of a ledger, and the proof that all of them are there.

    of a ledger        is shown by
    it is complete     entries 0 to the last one of its record, each once, in their order
    it is what it was  each entry's digest, of the type and with the password of its record
    it is unaltered    the SHA-256 of its bytes, of each piece and of all

A record of format 1 says neither digest nor password: of its entries that have an HMAC only the ids and the SHA-256 are
proven, and said so; so it is of a ledger whose digest is DUMMY.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recovery.archive.choice import KNOWN, drop_repeated
from recovery.archive.copies import CopyState, judge
from recovery.archive.objects import ARCHIVE_FILE, ArchiveIndex, hash_index, list_indexes
from recovery.codecs import ledger_metadata
from recovery.codecs.entry_frames import read_headers, split_frames
from recovery.errors import DatasetError, FormatError
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest, LedgerMetadata
from recovery.model.tables import ARCHIVED
from recovery.place import DatasetPlace, open_system

Mask = npt.NDArray[np.bool_]

KIND: Final = "bkmeta archive"
VERSION: Final = 1
_BLOCK: Final = 8 << 20
"""Bytes read at a time."""
_LARGEST_FRAME: Final = 128 << 20
"""Far above what a bookie takes: a larger one is damage."""
_LARGEST_FILE: Final = 1 << 30
_COPY_AGAIN: Final = (
    "remove the marks of its ledgers (bkmeta archive unmark), and archive them again, into another place"
)
_NAME_ONE: Final = "name the place that `bkmeta archive run` wrote to"


@dataclass(frozen=True, slots=True)
class About:
    """The description of an archive.

    Attributes:
        instance_id: of the cluster whose ledgers it has; empty: it had none.
        root: key of the ledgers root.
    """

    instance_id: str
    root: str

    def encode(self) -> bytes:
        """Return the file's bytes."""
        named = {"kind": KIND, "version": VERSION, "instance_id": self.instance_id, "ledgers_root": self.root}
        return json.dumps(named, indent=1).encode()


def read_about(place: DatasetPlace) -> About | None:
    """Return the description of an archive; None: nothing is there.

    Raises:
        DatasetError: what is there is no archive, or one of a later version; or the place cannot be read.
    """
    where = place / ARCHIVE_FILE
    try:
        raw = where.read_bytes() if where.is_file() else None
    except OSError as error:
        raise unreadable(str(where), error) from error
    if raw is None:
        return None
    try:
        body = json.loads(raw)
        kind = str(body["kind"])
        about = About(str(body["instance_id"]), str(body["ledgers_root"]))
        version = int(body["version"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DatasetError(str(where), "is not of an archive of ours", _NAME_ONE) from error
    if kind != KIND:
        raise DatasetError(str(where), f"is of another kind ({kind})", _NAME_ONE)
    if version != VERSION:
        raise DatasetError(str(where), f"has version {version}, this program reads {VERSION}", "use a later bkmeta")
    return about


def require_archive(place: DatasetPlace) -> About:
    """Return the description of an archive.

    Raises:
        DatasetError: there is none.
    """
    about = read_about(place)
    if about is None:
        raise DatasetError(str(place), f"has no {ARCHIVE_FILE}: it is no archive", _NAME_ONE)
    return about


def unreadable(where: str, error: Exception) -> DatasetError:
    """Return what it means that a file of an archive cannot be read."""
    problem = f"cannot be read ({str(error).splitlines()[0] if str(error) else type(error).__name__})"
    return DatasetError(where, problem, "see that it can be reached, and what you may do there")


def read_index(
    place: DatasetPlace, index: ArchiveIndex, columns: Sequence[str] = ARCHIVED.names, buckets: range | None = None
) -> pa.Table:
    """Return the ledgers of an index, or those of some buckets.

    Raises:
        DatasetError: it is gone or damaged.
    """
    try:
        wanted = [*columns] if buckets is None else [*dict.fromkeys(("bucket", *columns))]
        raw = (place / index.file).read_bytes()
        if hash_index(raw) != index.digest:
            raise DatasetError(f"{place}/{index.file}", "is not the file that was written", _COPY_AGAIN)
        rows = pq.read_table(pa.BufferReader(raw), columns=wanted, use_threads=False)
        schema = pa.schema([ARCHIVED.field(name) for name in wanted])
        rows = rows.select(schema.names).cast(schema)
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise unreadable(f"{place}/{index.file}", error) from error
    if buckets is not None:
        rows = rows.filter(
            pc.and_(pc.greater_equal(rows["bucket"], buckets.start), pc.less(rows["bucket"], buckets.stop))
        )
    return rows.select([*columns])


def read_known(
    place: DatasetPlace, indexes: Sequence[ArchiveIndex], buckets: range, columns: Sequence[str] = KNOWN
) -> pa.Table:
    """Return the ledgers of some buckets that an archive has, each once.

    Raises:
        DatasetError: an index is gone or damaged.
    """
    schema = pa.schema([ARCHIVED.field(name) for name in columns])
    wanted = (index for index in indexes if index.first < buckets.stop and index.last >= buckets.start)
    parts = (read_index(place, index, columns, buckets) for index in wanted)
    return drop_repeated(pa.concat_tables([schema.empty_table(), *parts]))


def find_lacking(place: DatasetPlace, rows: pa.Table) -> Mask:
    """Return which ledgers have an object that is gone or too short: sizes are read, no content.

    Args:
        place: of the archive.
        rows: pieces, of ARCHIVED.

    Raises:
        DatasetError: the place cannot be read.
    """
    lacking = np.zeros(rows.num_rows, np.bool_)
    pieces = rows["pieces"].combine_chunks()
    items = pieces.flatten()
    if not len(items):
        return lacking
    coded = items.field("object").dictionary_encode()
    try:
        system, root = open_system(str(place))
        files = system.get_file_info([f"{root}/{name}" for name in coded.dictionary.to_pylist()])
    except (OSError, pa.ArrowException) as error:
        raise unreadable(str(place), error) from error
    sizes = np.array([file.size or 0 if file.is_file else -1 for file in files], np.int64)
    ends = items.field("offset").to_numpy() + items.field("size").to_numpy()
    lacking[pc.list_parent_indices(pieces).to_numpy()[ends > sizes[coded.indices.to_numpy()]]] = True
    return lacking


@dataclass(frozen=True, slots=True)
class ArchivedLedger:
    """A ledger as an archive has it.

    Attributes:
        id: of it.
        record: of it.
        topic: whose messages it has; None: its record names none.
        size, sha256: of its entries, each behind its size.
        pieces: where they are, as ARCHIVED has them.
    """

    id: LedgerId
    record: LedgerMetadata
    topic: str | None
    size: int
    sha256: str
    pieces: tuple[Mapping[str, Any], ...]

    @property
    def last_entry(self) -> int:
        """The end of the ledger."""
        return -1 if self.record.last_entry is None else self.record.last_entry


def make_ledger(row: Mapping[str, Any], where: str) -> ArchivedLedger:
    """Return a ledger of a row of ARCHIVED.

    Raises:
        DatasetError: its record cannot be read.
    """
    ledger = LedgerId(row["scope"], row["ledger"])
    try:
        record = ledger_metadata.decode(row["record"])
    except FormatError as error:
        raise DatasetError(where, f"the record of ledger {ledger} cannot be read ({error})", _COPY_AGAIN) from error
    return ArchivedLedger(ledger, record, row["topic"], row["size"], row["sha256"], tuple(row["pieces"]))


def find_ledger(
    place: DatasetPlace, ledger: LedgerId, indexes: Sequence[ArchiveIndex] | None = None
) -> ArchivedLedger | None:
    """Return a ledger of an archive; None: it has none of this id.

    Raises:
        DatasetError: the archive cannot be read.
    """
    bucket = ledger.bucket
    try:
        listed = list_indexes(place) if indexes is None else indexes
    except OSError as error:
        raise unreadable(str(place), error) from error
    for index in listed:
        if bucket in index.buckets:
            rows = read_index(place, index, buckets=range(bucket, bucket + 1))
            own = pc.and_(pc.equal(rows["scope"], ledger.scope), pc.equal(rows["ledger"], ledger.ledger))
            for row in rows.filter(own).to_pylist():
                return make_ledger(row, f"{place}/{index.file}")
    return None


def read_bytes(
    place: DatasetPlace, ledger: ArchivedLedger, first: int = 0, last: int | None = None
) -> Iterator[tuple[Mapping[str, Any], bytes]]:
    """Yield the bytes of a ledger's pieces that have some entries, each with its piece; whole pieces, in blocks.

    Raises:
        DatasetError: an object is gone, too short or cannot be read.
    """
    end = ledger.last_entry if last is None else last
    for piece in ledger.pieces:
        if piece["last"] < first or piece["first"] > end:
            continue
        where = f"{place}/{piece['object']}"
        left = piece["size"]
        try:
            system, root = open_system(str(place))
            with system.open_input_file(f"{root}/{piece['object']}") as file:
                file.seek(piece["offset"])
                while left:
                    block = file.read(min(left, _BLOCK))
                    if not block:
                        raise DatasetError(where, f"ends {left} bytes before its ledger {ledger.id} does", _COPY_AGAIN)
                    left -= len(block)
                    yield piece, block
        except (OSError, pa.ArrowException) as error:
            raise unreadable(where, error) from error


Watch = Callable[[Mapping[str, Any], bytes], None]
"""Takes each block that is read, with its piece."""


def read_records(
    place: DatasetPlace,
    ledger: ArchivedLedger,
    first: int = 0,
    last: int | None = None,
    watch: Watch = lambda _piece, _block: None,
) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the entries of a ledger from `first` to `last`, some at a time, each time with the id of the first of them.

    Raises:
        DatasetError: the archive does not have these bytes any more, or they are no entries of the ledger.
    """
    end = ledger.last_entry if last is None else min(last, ledger.last_entry)
    for piece, number, records in _split_pieces(place, ledger, read_bytes(place, ledger, first, end), watch):
        try:
            headers = read_headers(records, ledger.id)
        except FormatError as error:
            raise _no_entries(place, piece, ledger, str(error)) from error
        expected = np.arange(number, number + len(records))
        if not (np.array_equal(headers.entry, expected) and (headers.ledger == ledger.id.ledger).all()):
            raise _no_entries(place, piece, ledger, f"behind entry {number - 1} comes another one than {number}")
        low, high = max(first - number, 0), min(end - number + 1, len(records))
        if low < high:
            yield number + low, records[low:high]


def _split_pieces(
    place: DatasetPlace, ledger: ArchivedLedger, blocks: Iterator[tuple[Mapping[str, Any], bytes]], watch: Watch
) -> Iterator[tuple[Mapping[str, Any], int, list[bytes]]]:
    """Yield piece, id of the first entry, and entries."""
    rest, current, number, left = b"", None, 0, 0
    for piece, block in blocks:
        watch(piece, block)
        if piece is not current:
            current, number, rest = piece, piece["first"], b""
            left = piece["size"]
        left -= len(block)
        data = rest + block if rest else block
        try:
            records, end = split_frames(data)
        except FormatError as error:
            raise _no_entries(place, piece, ledger, str(error)) from error
        rest = data[end:]
        if rest and (not left or len(rest) > _LARGEST_FRAME):
            raise _no_entries(place, piece, ledger, "an entry is cut off")
        if records:
            yield piece, number, records
            number += len(records)
        if not left and number != piece["last"] + 1:
            raise _no_entries(place, piece, ledger, f"it ends with entry {number - 1}, not {piece['last']}")


def _no_entries(place: DatasetPlace, piece: Mapping[str, Any], ledger: ArchivedLedger, detail: str) -> DatasetError:
    where = f"{place}/{piece['object']}"
    return DatasetError(where, f"does not have the entries of ledger {ledger.id} ({detail})", _COPY_AGAIN)


@dataclass(frozen=True, slots=True)
class ReadBackProof:
    """What reading a ledger back showed.

    Attributes:
        ledger: which.
        problem: what is wrong; empty: nothing.
        entries, size: that were read.
        unproven: entries that carry no digest which their record could check.
    """

    ledger: LedgerId
    problem: str = ""
    entries: int = 0
    size: int = 0
    unproven: int = 0


def prove_ledger(place: DatasetPlace, ledger: ArchivedLedger) -> ReadBackProof:
    """Read a ledger back, and check all that shows that it is whole."""
    problem = _find_gap(ledger)
    if problem:
        return ReadBackProof(ledger.id, problem)
    record, whole = ledger.record, hashlib.sha256()
    hashes = [hashlib.sha256() for _ in ledger.pieces]
    number_of = {id(piece): at for at, piece in enumerate(ledger.pieces)}
    entries = unproven = 0

    def watch(piece: Mapping[str, Any], block: bytes) -> None:
        hashes[number_of[id(piece)]].update(block)
        if len(hashes) > 1:
            whole.update(block)

    try:
        for number, records in read_records(place, ledger, watch=watch):
            for at, raw in enumerate(records, number):
                verdict = judge(raw, ledger.id, record.digest, record.password or b"", at)
                if verdict is CopyState.UNPROVEN or (verdict is CopyState.GOOD and record.digest is Digest.DUMMY):
                    unproven += 1
                elif verdict is not CopyState.GOOD:
                    problem = problem or f"the digest of entry {at} does not agree"
            entries += len(records)
    except DatasetError as error:
        return ReadBackProof(ledger.id, f"{error.path}: {error.problem}")
    for piece, digest in zip(ledger.pieces, hashes, strict=True):
        if digest.hexdigest() != piece["sha256"]:
            problem = problem or f"{place}/{piece['object']} has other bytes of it than were written"
    if (hashes[0] if len(hashes) == 1 else whole).hexdigest() != ledger.sha256:
        problem = problem or "its bytes are other ones than were written"
    return ReadBackProof(ledger.id, problem, entries, ledger.size, unproven)


def _find_gap(ledger: ArchivedLedger) -> str:
    """Return which entry no piece has; empty: each has its place."""
    expected = 0
    for piece in ledger.pieces:
        if piece["first"] != expected or piece["last"] < piece["first"]:
            return f"entry {expected} is in none of its pieces"
        expected = piece["last"] + 1
    if expected != ledger.last_entry + 1:
        return f"its pieces end with entry {expected - 1}, its record with {ledger.last_entry}"
    return ""
