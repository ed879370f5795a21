"""The random schedules of a restore on real servers: a ZooKeeper that is frozen, and an etcd."""

import itertools
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from backends.etcd.store import EtcdStore
from backends.protocols import Write
from backends.zookeeper.acl import digest_principal
from backends.zookeeper.store import ZooKeeperStore
from reconcile.write import audit_journal
from reconcile.write.freezing import freeze
from tests.support.etcd_server import EtcdServer
from tests.support.restores import Schedule
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.real

SCHEDULES: Final = int(os.environ.get("BKMETA_SOAK_RACES", "8"))
AUTH: Final = ("tool", "secret")
_ROOTS: Final = itertools.count()


@pytest.fixture
def zookeeper(zookeeper_server: ZooKeeperServer) -> Iterator[ZooKeeperStore]:
    """A connection with the identity of a freeze."""
    store = ZooKeeperStore(zookeeper_server.hosts, auth=AUTH)
    yield store
    store.close()


def frozen_root(store: ZooKeeperStore, folder: Path) -> str:
    """Make a root, and freeze it."""
    root = f"/races-{next(_ROOTS)}"
    store.write([Write(f"{root}/idgen", b"")])
    now = datetime(2026, 1, 1, tzinfo=UTC)
    binding = freeze.make_binding(root)
    with audit_journal.AuditJournal.open(
        folder, binding, resume=True, now=lambda: now, replay=lambda _record: None
    ) as journal:
        freeze.carry_out(freeze.propose_freeze(store, root, digest_principal(AUTH)), store, journal)
    return root


@pytest.mark.timeout(7200)
def test_random_schedules_on_zookeeper(zookeeper: ZooKeeperStore, tmp_path: Path) -> None:
    """Plans killed, cut off, raced, resumed, undone: nobody's bytes are lost, nothing takes effect twice."""
    for seed in range(SCHEDULES):
        root = frozen_root(zookeeper, tmp_path / f"freeze-{seed}")
        try:
            Schedule(zookeeper, root, tmp_path / f"{seed}", seed, undoable=True).run()
        except BaseException as error:
            error.add_note(f"schedule {seed}")
            raise


@pytest.mark.timeout(7200)
def test_random_schedules_on_etcd(etcd_server: EtcdServer, tmp_path: Path) -> None:
    """The same with etcd's revisions for versions; nothing can be frozen there, so nothing that was made is undone."""
    store = EtcdStore(etcd_server.hosts)
    for seed in range(SCHEDULES):
        try:
            Schedule(store, f"/races-{seed}", tmp_path / f"{seed}", seed, undoable=False).run()
        except BaseException as error:
            error.add_note(f"schedule {seed}")
            raise
    store.close()
