"""Small files read alone: replay mark, newest log id, cookie, status, dirty marker, and the record of a ledger."""

import re
from pathlib import Path
from typing import Final

from recovery.codecs import cookie, journal, ledger_metadata
from recovery.errors import Damage, FormatError, Reason
from recovery.inspect.file_kinds import HEAD
from recovery.inspect.file_notes import LISTED, FileNotes

_BOOKIE_STATUS: Final = re.compile(r"[0-9]+,(READ_WRITE|READ_ONLY),[0-9]+(,(true|false))?")
_LAST_ID: Final = re.compile(rb"([0-9a-fA-F]{1,8})\n?")


def read_last_mark(_path: Path, content: memoryview, notes: FileNotes) -> None:
    """Note where replay starts."""
    try:
        mark = journal.decode_last_mark(content)
    except FormatError as error:
        notes.add_error(error)
        return
    notes.header |= {"replay starts in": f"{mark.journal_id:x}.txn", "at byte": str(mark.offset)}


def read_last_id(_path: Path, content: memoryview, notes: FileNotes) -> None:
    """Note the newest log id."""
    text = _LAST_ID.fullmatch(content[:HEAD])
    if text is None:
        notes.add_damage(Damage(0, len(content), Reason.BAD_VALUE, "not a log id in hex"))
        return
    notes.header["newest log allocated"] = f"{int(text[1], 16):x}"


def read_cookie(_path: Path, content: memoryview, notes: FileNotes) -> None:
    """Note what a cookie says."""
    try:
        read = cookie.decode(content)
    except FormatError as error:
        notes.add_error(error)
        return
    notes.header |= {
        "layout version": str(read.layout_version),
        "bookie id": read.bookie_id,
        "instance id": read.instance_id or "none",
        "journal folders": ", ".join(read.journal_dirs),
        "ledger folders": ", ".join(read.ledger_dirs),
        "index folders": ", ".join(read.index_dirs) if read.index_dirs else "the ledger folders",
    }


def read_status(_path: Path, content: memoryview, notes: FileNotes) -> None:
    """Note a bookie's status."""
    try:
        text = bytes(content[:HEAD]).decode("ascii").strip()
    except UnicodeDecodeError:
        text = ""
    if not _BOOKIE_STATUS.fullmatch(text):
        notes.add_damage(Damage(0, len(content), Reason.BAD_VALUE, "not version, mode and time"))
        return
    notes.header |= dict(zip(("version", "mode", "since (ms)", "set by hand"), text.split(","), strict=False))


def read_dirty(_path: Path, content: memoryview, notes: FileNotes) -> None:
    """Note what a dirty marker means."""
    notes.header["says"] = "the bookie runs, or was not stopped cleanly"
    if content:
        notes.notes.append("it has bytes, which no bookie writes")


def read_metadata(_path: Path, content: memoryview, notes: FileNotes) -> None:
    """Note the record of a ledger."""
    try:
        read = ledger_metadata.decode(content)
    except FormatError as error:
        notes.add_error(error)
        return
    password = {None: "none in the record", b"": "empty"}.get(read.password, "set, not shown")
    notes.header |= {
        "format": str(read.format),
        "state": str(read.state),
        "E/W/A": f"{read.ensemble_size}/{read.write_quorum}/{read.ack_quorum}",
        "last entry": "open" if read.last_entry is None else str(read.last_entry),
        "length": "open" if read.length is None else str(read.length),
        "digest": str(read.digest) if read.digest else "none in the record",
        "password": password,
        "ctime": "not stored" if read.ctime is None else str(read.ctime),
        "custom": ", ".join(f"{key} ({len(value)} bytes)" for key, value in read.custom) or "none",
    }
    notes.counts["segments"] = len(read.segments)
    shown = [f"from entry {segment.first}: {', '.join(segment.members)}" for segment in read.segments[:LISTED]]
    notes.ranges += shown + ([f"and {len(read.segments) - LISTED} more"] if len(read.segments) > LISTED else [])
    notes.notes += ledger_metadata.problems(read)
