"""Backups that tests make: of a store in memory that remembers its changes as a feed gives them, of real files."""

import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from backends.protocols import KEYS, Write
from backends.zkfiles.feed import ZooKeeperLogFeed
from backends.zkfiles.store import At, ZooKeeperFiles
from reconcile.cli.output import Output
from reconcile.jobs.backup import follow
from reconcile.jobs.context import Context
from reconcile.stores import NOBODY
from recovery.backup.chain import Backup, BackupWriter, open_backup
from recovery.backup.store import BackupStore
from recovery.capture.live import capture
from recovery.codecs.store import LAYOUT, OWN_ROOT, Layout, layout_bytes, ledger_key
from recovery.dataset import DatasetWriter
from recovery.model.ids import LedgerId
from recovery.model.tables import BACKUP_CHANGES
from recovery.place import DatasetPlace
from tests.support.memory_store import WORLD
from tests.support.scannable_store import ScannableMemory

ROOT = "/ledgers"
LAYOUT_USED = Layout.HIERARCHICAL
BEGIN_MS = 1_700_000_000_000
CHANGES = BACKUP_CHANGES.remove(0)
"""Columns of changes before they are sealed."""
BINDING = {
    "uri": "zk://1.2.3.4/ledgers",
    "root": ROOT,
    "layout": str(LAYOUT_USED),
    "tops": [ROOT, ROOT + OWN_ROOT],
    "means": "test",
}


class FollowedMemory(ScannableMemory):
    """A memory store that remembers each change as `BACKUP_CHANGES`; of a change only what it changed.

    Each transaction takes a second.
    """

    def __init__(self) -> None:
        super().__init__(lambda: BEGIN_MS + 1000 * self._txn)
        self.followed: list[dict[str, Any]] = []
        self.put(ROOT + LAYOUT, layout_bytes(LAYOUT_USED))

    @property
    def txn(self) -> int:
        """The last transaction."""
        return self._txn

    @property
    def now_ms(self) -> int:
        """The time of the last transaction."""
        return self._now_ms()

    def set_rights(self, key: str, acl: str) -> None:
        """Change a key's ACL, as a transaction of its own."""
        held = self.get_acl(key)
        assert held is not None
        self._txn += 1
        self.set_acl(key, acl, expected=held.version)
        self._follow(key, "rights", acl=acl)

    def take(self, after: int) -> pa.Table:
        """Return the changes after a transaction."""
        rows = [row for row in self.followed if row["txn"] > after]
        return pa.Table.from_pylist(rows, schema=CHANGES)

    def _create(self, key: str, value: bytes, acl: str | None) -> None:
        super()._create(key, value, acl)
        at = datetime.fromtimestamp(self._now_ms() / 1000, UTC)
        known = {"version": 0, "acl": acl or WORLD, "created_txn": self._txn, "created_at": at}
        self._follow(key, "created", after=value, owner=0, children_created=0, **known)
        parent = key.rpartition("/")[0] or "/"
        self._follow(parent, "children", children_created=self._nodes[parent].children_created)

    def _apply(self, change: Write) -> int:
        held = self._nodes.get(change.key)
        before = None if held is None else held.value
        version = super()._apply(change)
        if change.expected is not None:
            changed = {"after": change.value, "version": version} if change.value is not None else {}
            self._follow(change.key, "changed" if changed else "deleted", before=before, **changed)
        return version

    def _follow(self, key: str, op: str, **known: Any) -> None:
        at = datetime.fromtimestamp(self._now_ms() / 1000, UTC)
        row = {"path": key, "txn": self._txn, "at": at, "received_at": at, "session": self.session, "op": op}
        self.followed.append({**dict.fromkeys(CHANGES.names), **row, **known})


def name_ledger(number: int) -> str:
    """Return the key of a ledger."""
    return ROOT + ledger_key(LAYOUT_USED, LedgerId(0, number))


def write_base(writer: BackupWriter, store: FollowedMemory, gap: str | None = None) -> None:
    """Capture a store as the next base."""
    folder = writer.begin_base()
    with DatasetWriter(folder, "catalog", binding={"root": ROOT}, secret=True) as out:
        clock = lambda: datetime.fromtimestamp(store.now_ms / 1000, UTC)  # noqa: E731 - one value
        capture(store, ROOT, LAYOUT_USED, out, clock=clock, with_history=False)
    writer.add_base(folder, store.txn, store.now_ms, store.now_ms, gap)


def seal_all(writer: BackupWriter, store: FollowedMemory) -> None:
    """Seal what happened since the last seal."""
    writer.seal(store.take(writer.manifest.through), store.txn, store.now_ms, store.now_ms)


def list_states(store: "ScannableMemory | BackupStore") -> dict[str, dict[str, Any]]:
    """Return what a store shows, without what catalogs do not keep: empty folders of ledgers, their counters."""
    rows = [row for batch in store.scan("/") for row in batch.to_pylist()]
    states = {row.pop("key"): row for row in rows}
    assert len(states) == len(rows)
    ledgers = {name_ledger(number) for number in range(200)}
    folders = {"/", *(ledger.rpartition("/")[0] for ledger in ledgers)}
    folders |= {folder.rpartition("/")[0] for folder in folders if folder not in ("/", ROOT)}
    shown = {key: row for key, row in states.items() if key not in folders or row["value"]}
    for key in shown.keys() & ledgers:
        shown[key]["children_created"] = None
    assert all(list(row) == KEYS.names[1:] for row in shown.values())
    return shown


def make_backup(place: DatasetPlace, ledgers: int = 20) -> tuple[BackupWriter, FollowedMemory]:
    """Return a backup of a base and of changes behind it, sealed five ledgers at a time, and its store."""
    store = FollowedMemory()
    for number in range(ledgers // 2):
        store.put(name_ledger(number), b"%d" % number)
    writer = BackupWriter(place, BINDING)
    write_base(writer, store)
    for number in range(ledgers // 2, ledgers):
        store.put(name_ledger(number), b"%d" % number)
        if number % 5 == 4:
            store.put(name_ledger(number - 5), None)
            seal_all(writer, store)
    seal_all(writer, store)
    return writer, store


class _BegunEarly(ZooKeeperLogFeed):
    """Files of a server that is gone, whose first base shows an early transaction."""

    def __init__(self, uri: str, folder: Path, tops: Sequence[str], base: int) -> None:
        super().__init__(uri, [folder], tops, pause_s=0.01)
        self._begun = ZooKeeperFiles(folder, point=At(zxid=base))

    def open_base(self) -> ZooKeeperFiles:
        """Return the store as it was early."""
        return self._begun


def back_up_files(place: Path, folder: Path, base: int, monkeypatch: pytest.MonkeyPatch) -> Backup:
    """Return a backup of a ZooKeeper's files: what they show at a transaction as its base, all behind it as changes.

    Args:
        place: a new folder.
        folder: of the server; its root is `ROOT`, its layout `LAYOUT_USED`.
        base: the transaction.
        monkeypatch: of the test.
    """
    last, ended = ZooKeeperFiles(folder).point().txn, threading.Event()
    assert last is not None

    def open_feed(uri: str, tops: Sequence[str], **_: Any) -> ZooKeeperLogFeed:
        return _BegunEarly(uri, folder, tops, base)

    def report(status: follow.FollowStatus) -> None:
        if status.through >= last:
            ended.set()

    monkeypatch.setattr(follow, "open_feed", open_feed)
    context = Context(NOBODY, Output(as_json=True, progress="none"), lambda: datetime.now(UTC))
    request = follow.FollowRequest(f"zk+hierarchical://127.0.0.1:1{ROOT}", place, seal_after=timedelta(0))
    follow.follow_store(request, context, ended, report)
    return open_backup(place)
