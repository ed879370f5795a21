"""A ledger's entries out of an archive: `archive read`."""

import os
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from reconcile.jobs.context import Context, throttle
from recovery.archive.copies import CopyState, judge
from recovery.archive.reader import ArchivedLedger, find_ledger, read_records, require_archive
from recovery.bookies.entry_files import EntryBatch, EntryFormat, make_writer
from recovery.codecs.entry import HEADER_SIZE, SCOPED_HEADER_SIZE, find_digest
from recovery.errors import InputError
from recovery.model.ids import LedgerId
from recovery.model.metadata import DIGEST_SIZES, Digest
from recovery.out_folder import create_file, disk_error
from recovery.place import DatasetPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """What is read.

    Attributes:
        place: of the archive.
        ledger: which.
        form: of what is given.
        first, last: entries; None: to the end.
    """

    place: DatasetPlace
    ledger: LedgerId
    form: EntryFormat
    first: int = 0
    last: int | None = None


@dataclass(frozen=True, slots=True)
class ReadLedger:
    """What came of it.

    Attributes:
        entries: that were given.
        unproven: of these, those whose digest does not agree, or that no digest proves.
        last_entry: the end of the ledger.
        messages: kind of Pulsar's messages → how many; empty if no messages were asked for.
    """

    entries: int
    unproven: int
    last_entry: int
    messages: Mapping[str, int]


def read_ledger(request: ReadRequest, sink: BinaryIO, context: Context) -> ReadLedger:
    """Write entries of a ledger to a file, ascending, each with its digest checked.

    Raises:
        DatasetError: the place is no archive, or an object of it is gone or damaged.
        InputError: the archive has no such ledger.
    """
    place = request.place.absolute()
    require_archive(place)
    ledger = find_ledger(place, request.ledger)
    if ledger is None:
        problem = f"has no ledger {request.ledger}"
        raise InputError(str(place), problem, "see `bkmeta archive verify`, which counts what it has")
    writer = make_writer(request.form, sink, ledger.topic)
    last = ledger.last_entry if request.last is None else min(request.last, ledger.last_entry)
    entries = unproven = 0
    with context.reporter.progress("reading", "entries") as progress:
        show = throttle(progress)
        for number, records in read_records(place, ledger, request.first, last):
            batch = _make_batch(ledger, number, records)
            writer.write(batch)
            entries += len(records)
            unproven += batch.digests.count(None)
            show(entries, max(last - request.first + 1, 0))
    writer.close()
    return ReadLedger(entries, unproven, ledger.last_entry, Counter(writer.counts))


def read_to_file(request: ReadRequest, out: Path, context: Context) -> ReadLedger:
    """Write entries of a ledger to a new file, which only its owner may read; it is there when it is whole.

    Raises:
        DatasetError: as `read_ledger`; or the disk is full or refuses.
        InputError: the archive has no such ledger, or the file is there already.
    """
    if out.exists():
        raise InputError(str(out), "is there already", "name a new file")
    unfinished = out.with_name(f"{out.name}.unfinished")
    try:
        with ExitStack() as undone, os.fdopen(create_file(unfinished, secret=True), "wb") as file:
            undone.callback(unfinished.unlink, missing_ok=True)
            done = read_ledger(request, file, context)
            file.flush()
            os.fsync(file.fileno())
            unfinished.rename(out)
            undone.pop_all()
    except OSError as error:
        raise disk_error(out, error) from error
    return done


def _make_batch(ledger: ArchivedLedger, number: int, records: list[bytes]) -> EntryBatch:
    header = SCOPED_HEADER_SIZE if ledger.id.scope else HEADER_SIZE
    record = ledger.record
    if record.digest is None:
        proofs = [find_digest(raw) for raw in records]
        digests = [None if proven is None else proven[0] for proven in proofs]
    else:
        digests = [
            record.digest
            if judge(raw, ledger.id, record.digest, record.password or b"", entry) is CopyState.GOOD
            else None
            for entry, raw in enumerate(records, number)
        ]
    sizes: dict[Digest | None, int] = {None: 0, **{digest: header + size for digest, size in DIGEST_SIZES.items()}}
    return EntryBatch(ledger.id, records, digests, [sizes[digest] for digest in digests])
