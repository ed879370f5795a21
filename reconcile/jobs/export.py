"""Ledgers' entries from bookies' disks, written as files, whatever their records say.

    file                  one line, or frame, an entry, ascending; an entry with two contents has two
    <ledger>.jsonl        JSON: ledger, entry, length, lac, digest, bookies, payload (base64); where no digest proves
                          where the payload begins, digest is null, and record (base64) has all bytes instead
    <ledger>.entries      int32 size (big-endian), then the entry as bookies store it: header, digest, payload

A file appears under its name once it is whole and on the disk. A ledger of a scope is named by its qualified name.
"""

import base64
import json
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from reconcile.jobs.context import Context, throttle
from reconcile.jobs.verify import open_disks_of
from recovery.model.ids import LedgerId
from recovery.out_folder import claim_folder, create_file, disk_error, release_folder, sync_folder

if TYPE_CHECKING:
    from recovery.bookies.disk_reader import BookieDisks
    from recovery.bookies.ledger_entries import ReadEntry

KIND: Final = "export"
LISTED: Final = 20
"""Entries that are named one by one; all are counted."""
_SIZE: Final = struct.Struct(">i")
_UNFINISHED: Final = ".unfinished"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """What is exported.

    Attributes:
        ledgers: each once.
        disks: folders of bookies, by their ids.
        out: a new or empty folder.
        passwords: candidates for digests of type HMAC.
        is_raw: frames as bookies store them, instead of lines of JSON.
        has_leftovers: also what entry logs and old journals have, whether an index names it or not.
    """

    ledgers: Sequence[LedgerId]
    disks: Mapping[str, Sequence[Path]]
    out: Path
    passwords: Sequence[bytes] = ()
    is_raw: bool = False
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
    names = {ledger: _name_file(ledger, is_raw=request.is_raw) for ledger in request.ledgers}
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


def _name_file(ledger: LedgerId, *, is_raw: bool) -> str:
    name = ledger.qualified_name if ledger.scope else str(ledger.ledger)
    return name + (".entries" if is_raw else ".jsonl")


def _export_ledger(
    ledger: LedgerId, name: str, disks: "Mapping[str, BookieDisks]", request: ExportRequest
) -> ExportedLedger:
    from recovery.bookies.ledger_entries import LedgerReading, read_entries  # noqa: PLC0415 - loaded with the disks

    reading = LedgerReading()
    unfinished = request.out / (name + _UNFINISHED)
    write = _write_frame if request.is_raw else _write_line
    try:
        with os.fdopen(create_file(unfinished, secret=True), "wb") as file:
            for entry in read_entries(disks, ledger, request.passwords, reading):
                write(file, entry)
            file.flush()
            os.fsync(file.fileno())
        if reading.entries:
            unfinished.rename(request.out / name)
        else:
            unfinished.unlink()
        sync_folder(request.out)
    except OSError as error:
        raise disk_error(request.out, error) from error
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
    )


def _write_frame(file: BinaryIO, entry: "ReadEntry") -> None:
    file.write(_SIZE.pack(len(entry.record)))
    file.write(entry.record)


def _write_line(file: BinaryIO, entry: "ReadEntry") -> None:
    header, payload = entry.header, entry.payload
    line: dict[str, object] = {
        "ledger": str(LedgerId(header.scope, header.ledger)),
        "entry": header.entry,
        "length": header.length,
        "lac": header.lac,
        "digest": None if entry.digest is None else str(entry.digest),
        "bookies": list(entry.bookies),
    }
    if payload is None:
        line["record"] = base64.b64encode(entry.record).decode()
    else:
        line["payload"] = base64.b64encode(payload).decode()
    file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
