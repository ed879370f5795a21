"""Ledgers' entries from bookies' disks, written as files, whatever their records say.

Entries ascend; an entry with two contents is there twice. `recovery/bookies/entry_files.py` has the formats.

A file appears under its name once it is whole and on the disk. A ledger of a scope is named by its qualified name.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reconcile.jobs.context import Context, throttle
from reconcile.jobs.verify import open_disks_of
from recovery.bookies.entry_files import MESSAGE_COUNTS, EntryBatch, EntryFormat, make_writer
from recovery.codecs.entry import header_size
from recovery.model.ids import LedgerId
from recovery.model.metadata import DIGEST_SIZES
from recovery.out_folder import claim_folder, create_file, disk_error, release_folder, sync_folder

if TYPE_CHECKING:
    from recovery.bookies.disk_reader import BookieDisks
    from recovery.bookies.ledger_entries import ReadEntry

KIND: Final = "export"
LISTED: Final = 20
"""Entries that are named one by one; all are counted."""
_AT_ONCE: Final = 256
_UNFINISHED: Final = ".unfinished"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """What is exported.

    Attributes:
        ledgers: each once.
        disks: folders of bookies, by their ids.
        out: a new or empty folder.
        passwords: candidates for digests of type HMAC.
        form: of the files.
        has_leftovers: also what entry logs and old journals have, whether an index names it or not.
    """

    ledgers: Sequence[LedgerId]
    disks: Mapping[str, Sequence[Path]]
    out: Path
    passwords: Sequence[bytes] = ()
    form: EntryFormat = EntryFormat.JSONL
    has_leftovers: bool = False


@dataclass(frozen=True, slots=True)
class ExportedLedger:
    """What became of one ledger.

    Attributes:
        ledger: its id.
        file: its name; None: no entry was found, and no file written.
        entries: different ids written.
        last: the highest; None: there is none.
        absent: ids below `last` that nobody has, by number.
        several: ids with several contents, by number; the first are in `listed`.
        unproven: ids whose bytes prove no digest, by number.
        unreadable: ids that a bookie has a place for, and that are not there, by number.
        is_sure: whether nothing was in the way of looking at all disks for it.
        listed: the first ids of each of the last three, by name.
        messages: kind of Pulsar's messages → how many; empty if no messages were asked for.
    """

    ledger: LedgerId
    file: str | None
    entries: int
    last: int | None
    absent: int
    several: int
    unproven: int
    unreadable: int
    is_sure: bool
    listed: Mapping[str, tuple[int, ...]]
    messages: Mapping[str, int]

    @property
    def is_whole(self) -> bool:
        """Whether every entry up to the highest is there once, with a digest that agrees."""
        return self.file is not None and not (self.absent or self.several or self.unproven or self.unreadable)


@dataclass(frozen=True, slots=True)
class Exported:
    """What came of an export.

    Attributes:
        ledgers: in the order that was asked for.
        incomplete: bookies whose disks could not be looked at whole, each with what was in the way.
    """

    ledgers: tuple[ExportedLedger, ...]
    incomplete: Mapping[str, tuple[str, ...]]


def export(request: ExportRequest, context: Context) -> Exported:
    """Write the entries of ledgers as files, one a ledger.

    Raises:
        InputError: folders that are no bookie's.
        DatasetError: the folder of the export is not empty, or cannot be written.
    """
    names = {ledger: _name_file(ledger, request.form) for ledger in request.ledgers}
    with open_disks_of(request.disks, context) as disks:
        claim_folder(request.out, KIND, [*names.values(), *(n + _UNFINISHED for n in names.values())], secret=True)
        if request.has_leftovers:
            with context.reporter.progress("reading logs", "bookies") as progress:
                for number, disk in enumerate(disks.values()):
                    disk.add_leftovers(request.ledgers)
                    progress(number + 1, len(disks))
        done: list[ExportedLedger] = []
        with context.reporter.progress("exporting", "ledgers") as progress:
            for number, (ledger, name) in enumerate(names.items()):
                done.append(_export_ledger(ledger, name, disks, request))
                throttle(progress)(number + 1, len(names))
        release_folder(request.out)
        incomplete = {bookie: disk.problems for bookie, disk in disks.items() if not disk.complete}
    return Exported(tuple(done), incomplete)


def _name_file(ledger: LedgerId, form: EntryFormat) -> str:
    return (ledger.qualified_name if ledger.scope else str(ledger.ledger)) + form.ending


def _export_ledger(
    ledger: LedgerId, name: str, disks: "Mapping[str, BookieDisks]", request: ExportRequest
) -> ExportedLedger:
    from recovery.bookies.ledger_entries import LedgerReading, read_entries  # noqa: PLC0415 - loaded with the disks

    reading = LedgerReading()
    entries = read_entries(disks, ledger, request.passwords, reading)
    batch = list(islice(entries, _AT_ONCE))
    messages = dict.fromkeys(MESSAGE_COUNTS, 0) if request.form is EntryFormat.PULSAR else {}
    # Most ledgers of a list may be on none of these disks: a file for each would take longer than all else.
    if batch:
        unfinished = request.out / (name + _UNFINISHED)
        try:
            with os.fdopen(create_file(unfinished, secret=True), "wb") as file:
                writer = make_writer(request.form, file)
                while batch:
                    writer.write(_make_batch(ledger, batch))
                    batch = list(islice(entries, _AT_ONCE))
                writer.close()
                file.flush()
                os.fsync(file.fileno())
            unfinished.rename(request.out / name)
            sync_folder(request.out)
        except OSError as error:
            raise disk_error(request.out, error) from error
        messages = dict(writer.counts)
    last = reading.last
    lists = {"several": reading.several, "unproven": reading.unproven, "unreadable": reading.unreadable}
    # What is unreadable above the highest entry that was read is no gap below it.
    absent = 0 if last is None else last + 1 - reading.entries - sum(entry < last for entry in reading.unreadable)
    return ExportedLedger(
        ledger=ledger,
        file=name if reading.entries else None,
        entries=reading.entries,
        last=last,
        absent=absent,
        several=len(reading.several),
        unproven=len(reading.unproven),
        unreadable=len(reading.unreadable),
        is_sure=reading.is_sure,
        listed={key: tuple(numbers[:LISTED]) for key, numbers in lists.items()},
        messages=messages,
    )


def _make_batch(ledger: LedgerId, entries: "Sequence[ReadEntry]") -> EntryBatch:
    records = [entry.record for entry in entries]
    digests = [entry.digest for entry in entries]
    starts = [
        0 if digest is None else header_size(record) + DIGEST_SIZES[digest]
        for record, digest in zip(records, digests, strict=True)
    ]
    return EntryBatch(ledger, records, digests, starts, [entry.bookies for entry in entries])
