"""Files of metadata stores read alone: what they hold, in words and counts, and what of them is damaged.

Source: the readers of `backends.zkfiles`.
"""

from collections import Counter
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow.compute as pc

from backends.errors import CorruptStoreError, UnavailableError, UnsupportedStoreError
from backends.zkfiles import records, servers, snapshot, txnlog
from backends.zkfiles.snapshot import Snapshot
from recovery.errors import Damage, Reason
from recovery.inspect.file_notes import FileNotes

_LISTED: Final = 20
"""Subtrees that are named."""
_REASONS: Final = {
    txnlog.LogEnd.CHECKSUM: Reason.DIGEST,
    txnlog.LogEnd.UNREADABLE: Reason.UNREADABLE,
    txnlog.LogEnd.HEADER: Reason.BAD_MAGIC,
    txnlog.LogEnd.PADDING: Reason.ZEROS,
}
_KINDS: Final = {
    1: "creates",
    15: "creates",
    19: "creates",
    21: "creates",
    2: "deletes",
    20: "deletes",
    5: "changes",
    16: "changes",
    7: "rights_changes",
    14: "multis",
    -10: "sessions_opened",
    -11: "sessions_closed",
    records.REFUSED: "refusals",
}


def read_zookeeper_snapshot(path: Path, notes: FileNotes) -> None:
    """Note what a ZooKeeper snapshot holds, plain or compressed.

    Raises:
        OSError: it cannot be read.
    """
    read = snapshot.read(path.resolve())
    notes.notes += read.notes
    if read.damage is not None:
        notes.add_damage(Damage(read.damage.offset, 0, Reason.BAD_VALUE, read.damage.problem))
    survey = read.look(digest=True)
    notes.header |= {
        "version": str(read.version),
        "compression": read.compression,
        "begun at": "not in its name" if read.begun is None else f"zxid {read.begun:#x}",
        "ended at": f"zxid {read.ends:#x}",
        "latest change": _format_time(survey.ms),
        "digest": _describe_digest(read),
        "checksums": "wrong, or not reached" if read.damage else "agree",
    }
    if read.begun is not None and read.ends > read.begun:
        notes.notes.append("transactions were applied while it was written: whole only with the log of those")
    owners = [read.node_at(int(row)).owner for row in survey.owned]
    notes.counts.update(
        nodes=read.nodes,
        sessions=len(read.sessions),
        rights=len(read.acl),
        ephemerals=sum(bool(records.session_of(owner)) for owner in owners),
        containers=sum(owner == records.CONTAINER for owner in owners),
        with_ttl=sum(records.ttl_of(owner) is not None for owner in owners),
        unknown_rights=len(survey.unknown_acls),
    )
    notes.ranges += _count_subtrees(read, notes.counts)


def _describe_digest(read: Snapshot) -> str:
    if read.digest is None:
        return "none in the file"
    zxid, digest = read.digest
    if zxid != read.begun:
        return f"of zxid {zxid:#x}, to be compared after that transaction"
    return "agrees" if read.look(digest=True).digest == digest else "does not agree with the nodes"


def _count_subtrees(read: Snapshot, counts: Counter[str]) -> list[str]:
    below: Counter[str] = Counter()
    for window in read.windows():
        counts["data_bytes"] += pc.sum(pc.binary_length(window.data)).as_py() or 0
        tops = pc.replace_substring_regex(window.path, r"(?s)^(/[^/]*)/.*$", r"\1").value_counts()
        for top in tops.to_pylist():
            below[top["values"].decode("utf-8", "backslashreplace") or "/"] += top["counts"]
    lines = [f"{top}: {count} nodes" for top, count in below.most_common(_LISTED)]
    return lines + ([f"and {len(below) - _LISTED} more"] if len(below) > _LISTED else [])


def read_zookeeper_log(path: Path, notes: FileNotes) -> None:
    """Note what a ZooKeeper transaction log holds.

    Raises:
        OSError: it cannot be read.
    """
    log = txnlog.survey(path.resolve())
    notes.header["version"] = str(log.version)
    entries = log.entries
    for kind, count in zip(*(part.tolist() for part in np.unique(entries["kind"], return_counts=True)), strict=True):
        notes.counts[_KINDS[kind]] += count
    notes.counts.update(transactions=len(entries))
    if len(entries):
        notes.first, notes.last = _describe_entry(entries[0]), _describe_entry(entries[-1])
        notes.ranges.append(f"zxids {servers.ranges(np.unique(entries['zxid']))}")
    if log.damage is not None:
        reason = _REASONS.get(log.why, Reason.BAD_VALUE)
        notes.add_damage(Damage(log.damage.offset, 0, reason, log.damage.problem))
    elif log.why in (txnlog.LogEnd.TORN_MARK, txnlog.LogEnd.TORN_SIZE):
        notes.notes.append(f"ends with {log.why}, from byte {log.end} on: normal after a crash")
    else:
        notes.header["ends at byte"] = f"{log.end} with {log.why}"


def read_etcd_database(path: Path, notes: FileNotes) -> None:
    """Note what a database file of etcd holds: a snapshot, or a copy of a member's."""
    from backends.etcd.etcdfile import EtcdFile  # noqa: PLC0415 - loads what no other file needs

    try:
        opened = EtcdFile(path.resolve())
    except (CorruptStoreError, UnsupportedStoreError, UnavailableError) as error:
        notes.add_damage(Damage(0, 0, Reason.BAD_VALUE, str(error)))
        return
    with closing(opened):
        shown, fault = opened.point(), opened.find_free_list_fault()
        notes.header |= {
            "revision": str(shown.txn),
            "free pages": "their list is broken" if fault else "their list is right, or is not kept in the file",
        }
        notes.counts.update(keys=opened.count_keys(), records=opened.count_records())
        notes.ranges += [f"BookKeeper's root: {root}" for root in opened.roots()[:_LISTED]]
        for gap in shown.gaps:
            notes.add_damage(Damage(0, 0, Reason.BAD_VALUE, gap))
        notes.notes += shown.notes


def _describe_entry(entry: np.void) -> str:
    return f"zxid {int(entry['zxid']):#x} at byte {int(entry['at'])}, {_format_time(int(entry['ms']))}"


def _format_time(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds") if ms else "none"
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
