"""A ledger's whole life out of a backup: what its record became, when, by whom; and what cannot be known."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from backends.protocols import CHANGES
from backends.zkfiles.store import ZooKeeperFiles
from recovery.backup.chain import BackupWriter
from recovery.codecs import ledger_metadata
from recovery.codecs.store import ledger_key
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.support import cases
from tests.support.backups import (
    BEGIN_MS,
    BINDING,
    LAYOUT_USED,
    ROOT,
    FollowedMemory,
    back_up_files,
    name_ledger,
    seal_all,
    write_base,
)
from tests.support.command import run

OPEN = LedgerMetadata(
    3,
    3,
    2,
    2,
    LedgerState.OPEN,
    None,
    None,
    (Segment(0, ("a:1", "b:1", "c:1")),),
    Digest.CRC32C,
    b"pw",
    creator_token=0,
)


def read_history(folder: Path) -> pa.Table:
    """Return the history of keys below the root, from a server's own files."""
    return pa.Table.from_batches(ZooKeeperFiles(folder).history(ROOT), schema=CHANGES)


@pytest.mark.parametrize(("case", "ledger"), [("c04", 3), ("c04", 0), ("c07", 21), ("c07", 4)])
def test_the_life_of_a_real_client_s_ledger_is_told(
    case: str, ledger: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each change of its record, in the transaction, by the session and at the time of the server's own log."""
    folder = cases.case_dir(case) / "zookeeper"
    history = read_history(folder)
    made = history.filter(pc.equal(history["key"], f"{ROOT}/LAYOUT"))["txn"][0].as_py()
    back_up_files(tmp_path / "b", folder, made, monkeypatch)
    done = run(capsys, "explain", ledger, "--metadata", f"backup:{tmp_path / 'b'}", "--json")
    told = [line for line in done.result["timeline"] if "transaction" in line]
    key = ROOT + ledger_key(LAYOUT_USED, LedgerId(0, ledger))
    changes = history.filter(pc.equal(history["key"], key)).to_pylist()
    assert len(told) == len(changes) >= 3
    previous: LedgerMetadata | None = None
    for line, change in zip(told, changes, strict=True):
        when = datetime.fromtimestamp(change["at_ms"] / 1000, UTC).isoformat(timespec="seconds")
        record = None if change["after"] is None else ledger_metadata.decode(change["after"])
        event = "created" if previous is None else "deleted" if record is None else "ensemble changed"
        if record is not None and record.state is LedgerState.CLOSED:
            event = "closed"
            assert f"CLOSED, {(record.last_entry or 0) + 1} entries" in line
        assert line.startswith(f"{when}: {event} in transaction {change['txn']}, session {change['session']:#x}")
        if event == "ensemble changed" and record is not None and previous is not None:
            new = {*record.segments} - {*previous.segments}
            assert all(f"entry {segment.first}: " in line for segment in new)
        previous = record
    # The last one says what it was.
    assert done.result["stored"] is not None or "it was CLOSED" in told[-1]


def tell(place: Path, ledger: int, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the timeline of a ledger in a backup, without its address."""
    told = run(capsys, "explain", ledger, "--metadata", f"backup:{place}", "--json").result["timeline"]
    return [line.removesuffix(f" (backup:{place})") for line in told]


def write_life(place: Path) -> tuple[BackupWriter, FollowedMemory]:
    """Back up a ledger that is created, changed, recovered, re-replicated and deleted."""
    store = FollowedMemory()
    writer = BackupWriter(place, BINDING)
    write_base(writer, store)
    store.session = -1
    moved = replace(OPEN, segments=(*OPEN.segments, Segment(7, ("a:1", "d:1", "c:1"))))
    closed = replace(moved, state=LedgerState.CLOSED, last_entry=6, length=70, segments=OPEN.segments)
    copied = replace(closed, segments=(Segment(0, ("a:1", "b:1", "e:1")),))
    for record in (OPEN, moved, replace(moved, state=LedgerState.IN_RECOVERY), closed, copied):
        store.put(name_ledger(5), ledger_metadata.encode(record))
    store.put(name_ledger(5), None)
    seal_all(writer, store)
    return writer, store


EVENTS: Mapping[str, str] = {
    "created": ": OPEN, no end yet, 3/2/2; entry 0: written to a:1, b:1, c:1",
    "ensemble changed": ": OPEN, no end yet, 3/2/2; entry 7: d:1 for b:1 at position 1",
    "recovery begun": ": IN_RECOVERY, no end yet, 3/2/2",
    "ensemble changed and closed": ": CLOSED, 7 entries, 3/2/2; entry 7: no ensemble begins there any longer",
    "ensemble changed ": ": CLOSED, 7 entries, 3/2/2; entry 0: e:1 for c:1 at position 2",
    "deleted": ": it was CLOSED, 7 entries, 3/2/2",
}


def test_each_change_is_named_by_what_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ensembles, the recovery, the end, copies elsewhere, the delete; a session has its 64 bits."""
    _, store = write_life(tmp_path / "b")
    first = store.txn - len(EVENTS) + 1
    for line, txn, (event, details) in zip(
        tell(tmp_path / "b", 5, capsys), range(first, store.txn + 1), EVENTS.items(), strict=False
    ):
        when = datetime.fromtimestamp(BEGIN_MS / 1000 + txn, UTC).isoformat(timespec="seconds")
        assert line == f"{when}: {event.strip()} in transaction {txn}, session 0xffffffffffffffff{details}"


def test_what_a_gap_swallowed_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From where on the history is known, and where some of it is missing: a life may have been longer."""
    writer, store = write_life(tmp_path / "b")
    before = store.txn
    store.put(name_ledger(5), ledger_metadata.encode(OPEN))
    write_base(writer, store, "a log is gone")
    told = tell(tmp_path / "b", 5, capsys)
    assert told[-1] == f"history has a gap from {before:#x} to {store.txn:#x}: a log is gone"
    assert "history begins at" in told[-2]
