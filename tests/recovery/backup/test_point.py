"""A point in time of a backup, by session and by time: held against ZooKeeper's own files, and what is none refused."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from backends.protocols import CHANGES
from backends.zkfiles.store import At, ZooKeeperFiles
from recovery.backup.chain import Backup, BackupWriter, open_backup
from recovery.backup.point import choose_point, find_last_txn
from recovery.backup.store import BackupStore
from recovery.codecs.store import Layout
from recovery.errors import InputError
from tests.support import cases
from tests.support.backups import (
    BEGIN_MS,
    BINDING,
    ROOT,
    FollowedMemory,
    back_up_files,
    name_ledger,
    seal_all,
    write_base,
)

GOLDEN = "c07"
"""Real bookies and clients that deleted ledgers, and the files of their ZooKeeper."""


def read_values(store: Any) -> Mapping[str, bytes]:
    """Return the keys below the root that have a value."""
    rows = [row for batch in store.scan(ROOT) for row in batch.select(["key", "value"]).to_pylist()]
    return {row["key"]: row["value"] for row in rows if row["value"]}


def name_time(ms: int) -> str:
    """Return a time as people write it."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)).isoformat()


def test_before_a_session_the_store_is_what_its_files_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each session of real clients and bookies: all is there as right before its first delete."""
    folder = cases.case_dir(GOLDEN) / "zookeeper"
    history = pa.Table.from_batches(ZooKeeperFiles(folder).history(ROOT), schema=CHANGES)
    made = history.filter(pc.equal(history["key"], f"{ROOT}/LAYOUT"))["txn"][0].as_py()
    backup = back_up_files(tmp_path / "b", folder, made, monkeypatch)
    assert backup.manifest.segments
    later = history.filter(pc.greater(history["txn"], made))
    deletes = later.filter(pc.equal(later["op"], "deleted"))
    sessions = deletes["session"].unique().to_pylist()
    assert len(sessions) >= 5
    for session in sessions:
        txn = pc.min(deletes.filter(pc.equal(deletes["session"], session))["txn"]).as_py()
        assert choose_point(backup, f"before:{session}").txn == txn - 1
        shown = BackupStore(backup, f"before:{session:#x}")
        assert read_values(shown) == read_values(ZooKeeperFiles(folder, point=At(zxid=txn - 1)))


def make_chain(place: Path, sessions: Mapping[int, int]) -> tuple[Backup, FollowedMemory]:
    """Return a backup of five ledgers. Each session deletes one of them; a seal follows each delete."""
    store = FollowedMemory()
    for number in range(5):
        store.put(name_ledger(number), b"x")
    writer = BackupWriter(place, BINDING)
    write_base(writer, store)
    for session, number in sessions.items():
        store.session = session
        store.put(name_ledger(number), None)
        seal_all(writer, store)
    return open_backup(place), store


def test_a_session_s_number_may_be_its_64_bits(tmp_path: Path) -> None:
    """A server's number is in the first byte: from 128 on the session is negative in datasets, and not for people."""
    session = 0xFF00_0A2B_0000_0001
    backup, store = make_chain(tmp_path / "b", {7: 1, session - (1 << 64): 2})
    for text in (f"{session:#x}", f"{session:x}", str(session), str(session - (1 << 64))):
        assert choose_point(backup, f"before:{text}").txn == store.txn - 1


def test_before_a_session_that_deleted_nothing_is_before_its_first_change(tmp_path: Path) -> None:
    """There is no delete to be taken back: what it changed is not shown either."""
    store = FollowedMemory()
    writer = BackupWriter(tmp_path / "b", BINDING)
    write_base(writer, store)
    before, store.session = store.txn, 5
    store.put(name_ledger(1), b"x")
    store.put(name_ledger(2), b"x")
    seal_all(writer, store)
    assert choose_point(open_backup(tmp_path / "b"), "before:5").txn == before


def test_what_is_no_session_of_the_backup_is_refused(tmp_path: Path) -> None:
    """One that changed nothing, no number, and any of a store that has no sessions in its backup."""
    backup, _ = make_chain(tmp_path / "b", {7: 1})
    with pytest.raises(InputError, match="is a session that changed nothing"):
        choose_point(backup, "before:0x9")
    for text in ("", "x", "0xzz", "a broker"):
        with pytest.raises(InputError, match="names no session"):
            choose_point(backup, f"before:{text}")
    for binding in ({"layout": str(Layout.ETCD)}, {"means": "polling"}):
        manifest = replace(backup.manifest, binding={**backup.manifest.binding, **binding})
        other = Backup(backup.place, manifest)
        with pytest.raises(InputError, match="shows none"):
            choose_point(other, "before:7")


def test_a_time_shows_no_change_from_after_it(tmp_path: Path) -> None:
    """A seal says until when all is known, and may have later changes: each time shows what was made until then."""
    store = FollowedMemory()
    writer = BackupWriter(tmp_path / "b", BINDING)
    write_base(writer, store)
    begun = store.txn
    for number in range(12):
        store.put(name_ledger(number), b"x")
        if number % 3 == 2:
            writer.seal(store.take(writer.manifest.through), store.txn, store.now_ms - 1500, store.now_ms)
    backup = open_backup(tmp_path / "b")
    for txn in range(begun, store.txn + 1):
        ms = BEGIN_MS + 1000 * txn
        assert find_last_txn(backup, ms) == txn
        assert find_last_txn(backup, ms + 999) == txn
        assert choose_point(backup, name_time(ms)).txn == txn
    assert find_last_txn(backup, BEGIN_MS + 1000 * begun - 1) is None
    with pytest.raises(
        InputError, match=f"begins at transaction {begun:#x}, at {name_time(BEGIN_MS + 1000 * begun)[:19]}"
    ):
        choose_point(backup, name_time(BEGIN_MS + 1000 * begun - 1))
    # Time goes on, and nothing is changed below the root.
    writer.seal(store.take(store.txn), store.txn + 9, store.now_ms + 5000, store.now_ms + 5000)
    assert find_last_txn(open_backup(tmp_path / "b"), store.now_ms + 4000) == store.txn
    assert find_last_txn(open_backup(tmp_path / "b"), store.now_ms + 5000) == store.txn + 9


def test_a_time_shows_no_change_from_after_it_where_seals_are_faster_than_their_times(tmp_path: Path) -> None:
    """The time of several seals is before their last changes, as in a burst, or where the store's clock is ahead."""
    store = FollowedMemory()
    writer = BackupWriter(tmp_path / "b", BINDING)
    write_base(writer, store)
    begun, begun_ms = store.txn, store.now_ms
    for number in range(9):
        store.put(name_ledger(number), b"x")
        until_ms = max(begun_ms, store.now_ms - 3500)
        writer.seal(store.take(writer.manifest.through), store.txn, until_ms, store.now_ms)
    backup = open_backup(tmp_path / "b")
    assert len(backup.manifest.segments) == 9
    for txn in range(begun, store.txn + 1):
        assert find_last_txn(backup, BEGIN_MS + 1000 * txn) == txn
        assert choose_point(backup, name_time(BEGIN_MS + 1000 * txn)).txn == txn
