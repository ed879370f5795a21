"""Entry logs: their list, and the content of logs that may hold more than the index knows.

Ids are one space for an interleaved bookie, and one for each ledger folder of a Db bookie. A log's name is its id, but
for what a transactional compaction leaves:

    3.log.compacting     being written; the old log still has everything: passed over
    3.log.1.compacted    complete; read as log 3 where 3.log is missing
    31.log               may be log 1f: a restart links 1f.log.1.compacted to a name made of the decimal id

Where the header's place of a map holds what was in the bookie's memory, the log was not rotated, and hides nothing.

A log is gone through if it has no ledgers map (it was active, or a crash ended it), if its map does not account for all
that is before it, or if it names a ledger that the index does not know.

Source: docs/formats/bookie-storage.md.
"""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from recovery.codecs import entry_log
from recovery.codecs.entry_log import log_id_of
from recovery.codecs.framing import Entries, zeros_end
from recovery.collect.disk.file_reader import Mapped, Meter
from recovery.collect.disk.folders import Folder
from recovery.collect.incremental.collection import Incremental
from recovery.collect.incremental.records import SeenFile
from recovery.collect.rows.damage import DamageLog, Hides, TakesDamage, UnreadPiece
from recovery.collect.rows.source_copies import Ints, from_rows, to_groups, to_rows
from recovery.collect.sources.entry_records import RecordFile, describe_vanished, scan_file
from recovery.errors import Damage, FormatError, Reason
from recovery.model.groups import KeyedGroups

TakesRecords = Callable[[RecordFile, Mapped, Entries], None]
"""Takes records of a log; its bytes can be read meanwhile."""

_COMPACTED: Final = re.compile(r"([0-9a-f]{1,8})\.log\.[0-9a-f]{1,8}\.compacted")


def find_logs(folder: Folder, damage: TakesDamage) -> dict[int, list[RecordFile]]:
    """Return the entry logs in one ledger folder by id, including those under another log's name.

    A missing id is also searched for under its decimal digits; a log that is found in this way must still be confirmed.
    """
    named: dict[int, RecordFile] = {}
    inodes: dict[int, int] = {}
    compacted: list[tuple[int, RecordFile, int]] = []
    with list_folder(folder.path, damage) as listing:
        for item in listing:
            log_id = log_id_of(item.name)
            half = _COMPACTED.fullmatch(item.name)
            if log_id is None and half is None:
                continue
            try:
                status = item.stat()
            except OSError as error:
                detail = error.strerror or "cannot be read"
                damage.add(UnreadPiece(item.path, Reason.UNREADABLE, Hides.UNLISTED, detail=detail))
                continue
            if not stat.S_ISREG(status.st_mode):
                damage.add(UnreadPiece(item.path, Reason.UNREADABLE, Hides.UNLISTED, detail="not a regular file"))
                continue
            if status.st_size > entry_log.LARGEST:
                detail = f"no location reaches beyond {entry_log.LARGEST} bytes: later bytes are not read"
                size = status.st_size - entry_log.LARGEST
                unread = UnreadPiece(
                    item.path, Reason.BAD_LENGTH, Hides.UNLISTED, entry_log.LARGEST, size, detail=detail
                )
                damage.add(unread)
            file = RecordFile(item.path, min(status.st_size, entry_log.LARGEST))
            if log_id is not None:
                named[log_id] = file
                inodes[log_id] = status.st_ino
            elif half is not None:
                compacted.append((int(half[1], 16), file, status.st_ino))
    logs = {log_id: [file] for log_id, file in named.items()}
    for log_id, file, inode in compacted:
        logs.setdefault(log_id, [file])
        alias = read_decimal(log_id)
        if alias != log_id and inodes.get(alias) == inode:
            del logs[alias]
    return logs


@contextmanager
def list_folder(folder: Path, damage: TakesDamage) -> Iterator[Iterator[os.DirEntry[str]]]:
    """List a folder; a folder that disappeared meanwhile is damage, and empty."""
    try:
        listing = os.scandir(folder)
    except OSError as error:
        detail = error.strerror or "cannot be listed"
        damage.add(UnreadPiece(str(folder), Reason.UNREADABLE, Hides.EVERYTHING, detail=detail))
        yield iter(())
        return
    with listing:
        yield listing


def read_decimal(log_id: int) -> int:
    """Return the id that the decimal digits of another id mean."""
    return int(str(log_id), 16)


@dataclass(frozen=True, slots=True)
class LogScan:
    """The result of reading logs whole.

    Attributes:
        files: logs that were read whole.
        largest: the largest ledger id of scope 0 in the map of a damaged log, because its records may be lost; -1 if
            there is none. The records of a whole log show its largest id.
    """

    files: tuple[RecordFile, ...]
    largest: int


def scan_unlisted(
    files: Iterable[RecordFile],
    known: Ints,
    meter: Meter,
    damage: DamageLog,
    take: Callable[[KeyedGroups], None],
    *,
    take_records: TakesRecords | None = None,
    incremental: Incremental | None = None,
) -> LogScan:
    """Read the logs that may hold entries outside of the index.

    Args:
        files: the logs of a bookie.
        known: ledgers (their keys, see `scoped_ids`) with an index that was read whole and has entries; ascending.
        meter: counts and paces the reads.
        damage: receives unreadable parts.
        take: receives the groups of found entries, those of a ledger in any number of pieces that may overlap.
        take_records: go through all of them, and give it every record.
        incremental: takes over unchanged logs, and keeps the results of the others.
    """
    scanned: list[RecordFile] = []
    largest = -1
    given = {} if incremental is None else incremental.logs.take_over(known, lambda rows: take(from_rows(rows)))
    for file in files:
        seen = None if incremental is None else incremental.get_file(file.path)
        if seen is not None and file.path in given:
            if given[file.path]:
                scanned.append(file)
            meter.took(0, 1)
            continue
        damaged, listed = damage.count, None
        try:
            with Mapped(Path(file.path), meter, entry_log.LARGEST) as log:
                listed, fault = _read_map(log, file, damage)
                if listed is not None:
                    if incremental is not None and seen is not None:
                        incremental.logs.keep_map(seen, listed)
                    if take_records is None and np.isin(listed, known).all():
                        meter.took(0, 1)
                        continue
                if not log.unreadable:  # else it was read already, to tell about its header
                    log.load()
                scanned.append(file)

                def keep(groups: KeyedGroups, seen: SeenFile | None = seen) -> None:
                    take(groups)
                    if incremental is not None and seen is not None:
                        incremental.files.keep_groups(seen, to_rows(groups))

                is_whole = _scan(log, file, known, damage, keep, take_records, rotated=listed is not None)
                if fault is not None:
                    damage.add(_describe_fault(file, fault, is_whole=is_whole))
                if seen is not None:
                    seen.read = True
        except OSError as error:
            detail = error.strerror or "cannot be read"
            unread = UnreadPiece(file.path, Reason.UNREADABLE, Hides.UNLISTED, 0, file.size, detail=detail)
            damage.add(describe_vanished(file.path) or unread)
        finally:
            if seen is not None:
                seen.sound = damage.count == damaged
            if listed is not None and damage.count > damaged:
                largest = max(largest, int(listed.max(initial=-1)))
        meter.took(0, 1)
    return LogScan(tuple(scanned), largest)


def _read_map(log: Mapped, file: RecordFile, damage: DamageLog) -> tuple[Ints | None, Damage | None]:
    """Return the ledgers of a log's map, None without one; and the damage of a map that the header names."""
    if log.size < entry_log.HEADER_SIZE:
        return None, None  # made ahead of time, or killed before its header was flushed
    try:
        log.spot(0, 2 * entry_log.HEADER_SIZE)  # the first record tells which logger wrote it
        header = entry_log.decode_header(log.view[: entry_log.HEADER_SIZE])
        if header.map_offset >= entry_log.HEADER_SIZE:
            log.spot(header.map_offset, log.size)
        listed = entry_log.read_map(log.view, header)
        if listed is not None and not entry_log.lists_all(log.view, header, listed):
            return None, None
        if listed is not None and header.version == entry_log.SCOPED_VERSION:
            return damage.scopes.from_codec_keys(listed), None
        if listed is not None:
            return np.fromiter(listed, np.int64, len(listed)), None
        fault = entry_log.find_map_fault(log.view, header)
        if log.size <= header.map_offset < os.stat(file.path).st_size:  # noqa: PTH116  # a string, as it was listed
            fault = None  # a running bookie has just written it
        return None, fault
    except FormatError as error:
        log.load()
        if zeros_end(log.view, 0) == log.size:
            return None, None  # reserved by the direct I/O logger, and killed before its header was written
        # The records do not depend on the header.
        damage.add(UnreadPiece(file.path, error.reason, Hides.NOTHING, error.offset, 0, detail=error.detail))
    except OSError:
        pass  # reported when the whole file is read
    return None, None


def _describe_fault(file: RecordFile, fault: Damage, *, is_whole: bool) -> UnreadPiece:
    """Return what a header without its ledgers map hides: nothing, unless the log may have lost its end."""
    if fault.reason is Reason.TRUNCATED and not is_whole:
        detail = f"{fault.detail}: the log lost its end"
        return UnreadPiece(file.path, fault.reason, Hides.UNLISTED, fault.offset, detail=detail)
    detail = f"{fault.detail}, and no map is there. {entry_log.UNCLEARED_HEADERS}"
    return UnreadPiece(
        file.path, Reason.BAD_VALUE, Hides.NOTHING, entry_log.MAP_FIELDS, 0, detail=detail, is_doubtful=True
    )


def _scan(
    log: Mapped,
    file: RecordFile,
    known: Ints,
    damage: DamageLog,
    take: Callable[[KeyedGroups], None],
    take_records: TakesRecords | None,
    *,
    rotated: bool,
) -> bool:
    """Pass on all records of a log; return whether it has any, and whether the last one ends with the log."""
    # Behind damage the ledgers of the bookie help to find the next record; without damage they are not needed.
    groups: list[KeyedGroups] = []
    pieces: list[Damage] = []
    is_cut = False
    for ledgers in (known[:0], known) if take_records is None else (known,):
        groups, pieces = [], []
        parts = entry_log.scan_columns(log.view, known=damage.scopes.to_codec_keys(ledgers))
        for part in scan_file(log, parts, damage.scopes):
            if isinstance(part, Entries):
                groups.append(to_groups(part.ledger, part.entry))
                if take_records is not None:
                    take_records(file, log, part)
            elif isinstance(part, Damage) and (rotated or not _is_tail(part, log.size)):
                pieces.append(part)
            else:
                is_cut = True
        if not pieces:
            break
    for part_groups in groups:
        take(part_groups)
    for part in pieces:
        damage.add(UnreadPiece(file.path, part.reason, Hides.UNLISTED, part.offset, part.length, detail=part.detail))
    for offset, length in log.unreadable:
        damage.add(UnreadPiece(file.path, Reason.UNREADABLE, Hides.UNLISTED, offset, length))
    return bool(groups) and not (is_cut or pieces or log.unreadable)


def _is_tail(part: Damage, size: int) -> bool:
    """Whether damage is that of a crash at the end of a log that was being written."""
    return part.reason in (Reason.TRUNCATED, Reason.ZEROS) and part.offset + part.length >= size
