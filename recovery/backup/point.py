"""The point in time that is wanted of a backup, and what shows it: a base, and the changes behind it.

at               shows
nothing          the last transaction that is sealed
a number         that transaction: decimal or 0x…
a time           the last change until then: by the store's clock, where it keeps none by when it was received
before:SESSION   what was there before a session's first delete; where it deleted nothing, before its first change
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from recovery.backup.chain import Backup
from recovery.backup.manifest import BaseLink, SegmentLink, list_windows
from recovery.codecs.store_kind import kind_of
from recovery.errors import InputError

_NUMBER: Final = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]+")
_BEFORE: Final = "before:"
_POLLING: Final = "polling"
_LIST: Final = "bkmeta backup list shows what can be restored"


@dataclass(frozen=True, slots=True)
class ShownPoint:
    """A point in time of a backup.

    Attributes:
        base: the base that it begins with.
        segments: those with changes between the base and the point.
        txn: the last transaction that is shown.
        at_ms: when the store was so, ms since 1970.
        notes: what a person should know of how it was chosen.
    """

    base: BaseLink
    segments: tuple[SegmentLink, ...]
    txn: int
    at_ms: int
    notes: tuple[str, ...] = ()


def choose_point(backup: Backup, moment: str | None) -> ShownPoint:
    """Return what shows a point in time.

    Raises:
        InputError: the backup does not reach it, or it is none.
    """
    where = str(backup.place)
    manifest = backup.manifest
    windows = list(list_windows(manifest))
    if not windows:
        raise InputError(where, "has no base yet: nothing can be restored", "let bkmeta backup follow run on")
    last = max(manifest.through, windows[-1][1])
    txn, at_ms = (last, manifest.until_ms) if moment is None else _find_txn(backup, moment)
    if txn > last:
        problem = f"ends at transaction {last:#x}, before {txn:#x}"
        raise InputError(where, problem, _LIST)
    notes = []
    if moment is not None and at_ms is not None and at_ms > manifest.until_ms:
        behind_s = (at_ms - manifest.until_ms) / 1000
        notes.append(f"that time was not reached: the backup ends {behind_s:.3f} s before")
        at_ms = manifest.until_ms
    base = max((base for base in manifest.bases if base.txn <= txn), key=lambda base: base.txn, default=None)
    if base is None:
        first = windows[0][0]
        begun = datetime.fromtimestamp(first.until_ms / 1000, UTC).isoformat(timespec="milliseconds")
        problem = f"begins at transaction {first.txn:#x}, at {begun}: it has nothing from before that"
        raise InputError(where, problem, _LIST)
    for gap in manifest.gaps:
        if gap.after < txn < gap.until or (at_ms is not None and gap.from_ms < at_ms < gap.until_ms):
            problem = f"has a gap there: {gap.why}; transactions from {gap.after:#x} to {gap.until:#x} are not in it"
            raise InputError(where, problem, f"name {gap.after} or {gap.until}")
    segments = tuple(link for link in manifest.segments if link.through > base.txn and link.after < txn)
    if at_ms is None:
        at_ms = _find_time(backup, segments, base, txn)
    return ShownPoint(base, segments, txn, at_ms, tuple(notes))


def _find_txn(backup: Backup, moment: str) -> tuple[int, int | None]:
    if _NUMBER.fullmatch(moment):
        return int(moment, 0) if moment[1:2] in ("x", "X") else int(moment), None
    if moment.startswith(_BEFORE):
        return _find_before(backup, moment), None
    try:
        time = datetime.fromisoformat(moment)
        at_ms = int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        problem = "is no transaction, no ISO 8601 time and no before:SESSION"
        raise InputError(moment, problem, "write e.g. 2026-05-31T12:00:00Z, 0x1a2b or before:0x1000a2b") from error
    return find_last_txn(backup, at_ms) or 0, at_ms


def find_last_txn(backup: Backup, at_ms: int) -> int | None:
    """Return the last transaction of a backup that was made, or received, by a time; None: it begins later.

    Args:
        backup: opened.
        at_ms: the time, ms since 1970.
    """
    manifest = backup.manifest
    known = [base.txn for base in manifest.bases if base.until_ms <= at_ms]
    has_all = at_ms >= manifest.until_ms
    # A segment may have changes from after its time, several ones where they were sealed fast or clocks differ.
    for link in reversed([link for link in manifest.segments if link.from_ms <= at_ms]):
        is_early = True
        for rows in backup.read_changes([link], ["txn", "at", "received_at"]):
            early = pc.less_equal(_milliseconds(rows), at_ms)
            is_early &= pc.all(early).as_py()
            latest = pc.max(rows["txn"].filter(early)).as_py()
            known += [] if latest is None else [latest]
        has_all &= is_early
        if is_early:
            known += [link.through] if link.until_ms <= at_ms else []
            break
    if has_all and known:
        known.append(manifest.through)
    return max(known, default=None)


def _find_before(backup: Backup, moment: str) -> int:
    binding = backup.manifest.binding
    kind = kind_of(binding.get("layout"))
    if not kind.keeps_times or binding.get("means") == _POLLING:
        means = "polling" if binding.get("means") == _POLLING else kind.name
        raise InputError(moment, f"names a session, and {means} shows none", "name a transaction or a time")
    text = moment.removeprefix(_BEFORE)
    try:
        session = int(text, 16 if re.search("[xXa-fA-F]", text) else 10)
    except ValueError as error:
        raise InputError(moment, "names no session", "write before:0x1000a2b, as undelete shows sessions") from error
    # ZooKeeper's are 64 bits, and signed in datasets.
    session -= (1 << 64) if session >= 1 << 63 else 0
    first = dict[bool, int]()
    for rows in backup.read_changes(backup.manifest.segments, ["txn", "session", "op"]):
        own = rows.filter(pc.equal(rows["session"], session))
        for deletes in (True, False):
            chosen = own.filter(pc.equal(own["op"], "deleted")) if deletes else own
            least = pc.min(chosen["txn"]).as_py()
            if least is not None:
                first[deletes] = min(first.get(deletes, least), least)
    if not first:
        raise InputError(moment, "is a session that changed nothing in this backup", _LIST)
    return first.get(True, first[False]) - 1


def _find_time(backup: Backup, segments: tuple[SegmentLink, ...], base: BaseLink, txn: int) -> int:
    latest = base.until_ms
    for link in segments:
        if link.through <= txn:
            latest = max(latest, link.until_ms)
            continue
        for rows in backup.read_changes([link], ["txn", "at", "received_at"]):
            times = _milliseconds(rows.filter(pc.less_equal(rows["txn"], txn)))
            latest = max(latest, pc.max(times).as_py() or 0)
    return latest


def _milliseconds(rows: pa.Table) -> pa.ChunkedArray:
    """Return when changes were made, where that is known, or received, ms since 1970."""
    times = pc.coalesce(rows["at"], rows["received_at"])
    return times.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())


def read_until(backup: Backup, point: ShownPoint) -> Iterator[pa.Table]:
    """Yield the changes between a point's base and the point."""
    for rows in backup.read_changes(point.segments):
        inside = pc.and_(pc.greater(rows["txn"], point.base.txn), pc.less_equal(rows["txn"], point.txn))
        yield rows.filter(inside)
