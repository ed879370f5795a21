"""What happened to a ledger, in the order in which it did: by histories of stores, then its ensembles by entry."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa

from reconcile.compare.single_ledger import StoredLedger
from reconcile.explain.field_evidence import changes, describe_replaced
from reconcile.plan.alternatives import describe_records
from recovery.codecs import ledger_metadata
from recovery.errors import FormatError
from recovery.model.ids import to_unsigned
from recovery.model.metadata import LedgerMetadata, LedgerState

_UNKNOWN_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BECAME: Final = {
    LedgerState.CLOSED: "closed",
    LedgerState.IN_RECOVERY: "recovery begun",
    LedgerState.OPEN: "opened again",
}
"""What happened when a record has another state than before."""


def describe_timeline(row: Mapping[str, Any] | None, stored: Sequence[StoredLedger]) -> Iterator[str]:
    """Say what happened in which order: by the stores' times, then the changes of ensembles by entry.

    Args:
        row: of RECONSTRUCTION; None: nothing shows the ledger.
        stored: what stores and snapshots have of it.
    """
    timed: list[tuple[datetime, str]] = []
    for source in stored:
        for record in source.row.to_pylist():
            for name, event in (
                ("created_at", "its record was created"),
                ("changed_at", "its record was last changed"),
            ):
                if record[name] is not None:
                    timed.append((record[name], f"{_when(record[name])}: {event} ({source.source})"))
        for change in source.history.sort_by("txn").to_pylist():
            text = f"{_describe_change(change, source)} ({source.source})"
            timed.append((change["at"] or _UNKNOWN_TIME, text))
    # What several stores remember of one moment stays in the order of its transactions.
    yield from (text for _, text in sorted(timed, key=lambda source: source[0]))
    yield from changes(row)
    for source in stored:
        yield from (f"{note} ({source.source})" for note in source.notes)


def _describe_change(change: Mapping[str, Any], source: StoredLedger) -> str:
    """Say when what happened, by whom, and what readers see from then on."""
    earlier, record = _decode(change["before"]), _decode(change["after"])
    event, details = str(change["op"]), [] if change["after"] is None else [describe_record(change["after"])]
    if event == "created" and record is not None:
        details += [f"entry {part.first}: written to {', '.join(part.members)}" for part in record.segments]
    if event == "changed" and earlier is not None and record is not None:
        moved = list(_describe_ensembles(earlier, record))
        events = ["ensemble changed"] if moved else []
        events += [_BECAME[record.state]] if record.state is not earlier.state else []
        event, details = " and ".join(events) or event, [*details, *moved]
    if event == "deleted" and change["before"] is not None:
        details.append(f"it was {describe_record(change['before'])}")
    when, where = _describe_place(change["txn"], change["session"], source, change["at"])
    return f"{when}: {event} {where}" + (f": {'; '.join(details)}" if details else "")


def _describe_place(txn: int, session: int | None, source: StoredLedger, at: datetime | None) -> tuple[str, str]:
    """Say when a change was, and in which transaction by which session; of etcd, when which revision was received."""
    if not source.keeps_times:
        return f"received {_when(at)}" if at is not None else _when(at), f"at revision {txn}"
    session_text = "" if session is None else f", session {to_unsigned(session):#x}"
    return _when(at), f"in transaction {txn}{session_text}"


def _describe_ensembles(earlier: LedgerMetadata, record: LedgerMetadata) -> Iterator[str]:
    """Say which bookies a record names that it did not name before, by the first entry of each ensemble."""
    known = {segment.first: segment.members for segment in earlier.segments}
    previous: Sequence[str] = ()
    for segment in record.segments:
        members = known.pop(segment.first, previous)
        if members != segment.members:
            yield f"entry {segment.first}: {describe_replaced(members, segment.members)}"
        previous = segment.members
    yield from (f"entry {first}: no ensemble begins there any longer" for first in sorted(known))


def _decode(raw: bytes | None) -> LedgerMetadata | None:
    """Return a record; None: there is none, or it cannot be read."""
    try:
        return None if raw is None else ledger_metadata.decode(raw)
    except FormatError:
        return None


def _when(time: datetime | None) -> str:
    return time.isoformat(timespec="seconds") if time else "at an unknown time"


def describe_record(raw: bytes) -> str:
    """Say what readers would see of a record."""
    return str(describe_records(ledger_metadata.decode_columns(pa.array([raw], pa.binary())))[0].as_py())


def describe_deletion(row: Mapping[str, Any], *, keeps_times: bool) -> str | None:
    """Say who deleted the ledger, and when; None: no history has its deletion.

    Args:
        row: of SIDES.
        keeps_times: the store knows of each change when it was made, and by which session.
    """
    if row["deleted_txn"] is None:
        return None
    when = row["deleted_at"].isoformat(timespec="seconds") if row["deleted_at"] else "an unknown time"
    if not keeps_times:
        received = "" if row["deleted_at"] is None else f", received {when}"
        return f"deleted at revision {row['deleted_txn']}{received}; etcd does not say by whom"
    session = "an unknown session" if row["deleted_session"] is None else f"{to_unsigned(row['deleted_session']):#x}"
    return f"deleted in transaction {row['deleted_txn']} at {when} by session {session}"
