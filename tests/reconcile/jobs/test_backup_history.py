"""What a backup says of deletes, and whether it is of the store at all."""

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reconcile.deletes.own_root import make_own_root, open_log, write_last_listing
from reconcile.deletes.records import LastListing
from reconcile.jobs.backup_history import open_history, read_deletes
from reconcile.jobs.deletes.listings import measure_since_listing
from recovery.backup.chain import BackupWriter
from recovery.capture.live import capture
from recovery.dataset import Dataset, DatasetWriter, open_dataset
from recovery.errors import InputError
from tests.reconcile.deletes.test_own_root import clock
from tests.support.backups import BINDING, LAYOUT_USED, ROOT, FollowedMemory, name_ledger, seal_all, write_base


def catch(store: FollowedMemory, folder: Path) -> Dataset:
    """A store's catalog."""
    with DatasetWriter(folder, "catalog", binding={"root": ROOT}) as out:
        capture(store, ROOT, LAYOUT_USED, out, clock=lambda: datetime.now(UTC), with_history=False)
    return open_dataset(folder, "catalog")


def back_up(store: FollowedMemory, place: Path) -> BackupWriter:
    """A backup of a store, with a base."""
    writer = BackupWriter(place, BINDING)
    write_base(writer, store)
    return writer


def test_deletes_since_are_those_of_ledgers_that_are_gone(tmp_path: Path) -> None:
    """By a transaction or a time; not what was made again, what was made meanwhile, or what came after the capture."""
    store = FollowedMemory()
    for number in range(1, 6):
        store.put(name_ledger(number), b"x")
    writer = back_up(store, tmp_path / "backup")
    store.put(name_ledger(1), None)
    early, early_ms = store.txn, store.now_ms
    store.put(name_ledger(2), None)
    store.put(name_ledger(3), None)
    store.put(name_ledger(3), b"again")
    store.put(name_ledger(9), b"short")
    store.put(name_ledger(9), None)
    shown = catch(store, tmp_path / "catalog")
    store.put(name_ledger(4), None)
    seal_all(writer, store)
    backup = open_history(f"backup:{tmp_path / 'backup'}", shown)
    assert read_deletes(backup, shown, after_txn=early)["ledger"].to_pylist() == [2, 9]
    assert read_deletes(backup, shown, after_txn=0)["ledger"].to_pylist() == [1, 2, 9]
    # Of the time of a listing, only what it listed counts.
    [row] = read_deletes(backup, shown, since_ms=early_ms + 1).to_pylist()
    assert (row["ledger"], row["at_ms"]) == (2, early_ms + 1000)


def test_what_was_made_again_in_a_gap_was_not_deleted(tmp_path: Path) -> None:
    """The backup has the delete and lacks the creation: the store has the ledger."""
    store = FollowedMemory()
    for number in range(1, 4):
        store.put(name_ledger(number), b"x")
    writer = back_up(store, tmp_path / "backup")
    before = store.txn
    store.put(name_ledger(1), None)
    store.put(name_ledger(2), None)
    seal_all(writer, store)
    store.put(name_ledger(2), b"again")
    write_base(writer, store, gap="nobody followed")
    shown = catch(store, tmp_path / "catalog")
    backup = open_history(f"backup:{tmp_path / 'backup'}", shown)
    assert read_deletes(backup, shown, after_txn=before)["ledger"].to_pylist() == [1]
    assert read_deletes(backup, shown, since_ms=store.now_ms - 60_000)["ledger"].to_pylist() == [1]


def test_a_backup_explains_what_went_since_a_verification(tmp_path: Path) -> None:
    """Without it so many are a mass absence; with it, only what it has not as deleted."""
    store = FollowedMemory()
    for number in range(1, 31):
        store.put(name_ledger(number), b"x")
    writer = back_up(store, tmp_path / "backup")
    with open_log(tmp_path / "journal", store, ROOT, clock) as log:
        own = make_own_root(store, ROOT, log)
        write_last_listing(store, own, LastListing(store.now_ms, 30, "somebody"), log)
    for number in range(1, 13):
        store.put(name_ledger(number), None)
    seal_all(writer, store)
    store.put(name_ledger(13), None)
    shown = catch(store, tmp_path / "catalog")
    opened: Any = SimpleNamespace(store=store, root=ROOT)
    alone = measure_since_listing(opened, own, shown, store.now_ms)
    known = measure_since_listing(opened, own, shown, store.now_ms, f"backup:{tmp_path / 'backup'}")
    assert alone is not None
    assert known is not None
    assert (alone.gone, alone.is_mass, alone.explained) == (13, True, 0)
    assert (known.gone, known.is_mass, known.explained) == (1, False, 12)


def test_a_backup_of_another_store_is_refused_without_any_instance_id(tmp_path: Path) -> None:
    """Both have the same keys, made by other transactions. One that has no key in common is not known to be foreign."""
    ours, theirs, empty = FollowedMemory(), FollowedMemory(), FollowedMemory()
    theirs.put("/before", b"")
    for number in range(100):
        ours.put(name_ledger(number), b"x")
        theirs.put(name_ledger(99 - number), b"x")
    back_up(ours, tmp_path / "ours")
    back_up(theirs, tmp_path / "theirs")
    ours.put(name_ledger(200), b"x")
    shown = catch(ours, tmp_path / "catalog")
    assert open_history(f"backup:{tmp_path / 'ours'}", shown).manifest.bases
    with pytest.raises(InputError, match="made by other transactions"):
        open_history(f"backup:{tmp_path / 'theirs'}", shown)
    BackupWriter(tmp_path / "none", BINDING)
    assert empty.txn > 0
    with pytest.raises(InputError, match="is no backup"):
        open_history("zk://h:1/ledgers", shown)
    with pytest.raises(InputError, match=r"names the moment 5, .*; name backup:[^@?]*ours$"):
        open_history(f"backup:{tmp_path / 'ours'}?at=5", shown)
