"""Every store keeps the promises of `MetadataStore`, and of `AccessControl` where it has rights."""

import itertools
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from backends.protocols import ControlledStore, LiveStore, MetadataStore, WatchableStore
from backends.zookeeper.store import ZooKeeperStore
from tests.support.failing_stores import MemoryLine, Proxy
from tests.support.memory_store import MemoryStore
from tests.support.store_contracts import (
    AccessControlContract,
    FaultContract,
    LiveStoreContract,
    MetadataStoreContract,
    Troubled,
    WatchableStoreContract,
)
from tests.support.zookeeper_server import ZooKeeperServer

_CHROOTS = itertools.count()


class TestMemory(MetadataStoreContract):
    """The store in memory."""

    @pytest.fixture
    def store(self) -> MetadataStore:
        """Return an empty store."""
        return MemoryStore()


@pytest.mark.real
class TestZooKeeper(MetadataStoreContract):
    """A real ZooKeeper."""

    @pytest.fixture
    def store(self, zookeeper_server: ZooKeeperServer) -> Iterator[MetadataStore]:
        """Return an empty part of the server's tree."""
        opened = ZooKeeperStore(zookeeper_server.hosts, chroot=f"/contract-{next(_CHROOTS)}", session_s=10)
        yield opened
        opened.close()


class TestMemoryAcl(AccessControlContract):
    """The store in memory."""

    @pytest.fixture
    def store(self) -> ControlledStore:
        """Return an empty store."""
        return MemoryStore()


@pytest.mark.real
class TestZooKeeperAcl(AccessControlContract):
    """A real ZooKeeper."""

    @pytest.fixture
    def store(self, zookeeper_server: ZooKeeperServer) -> Iterator[ControlledStore]:
        """Return an empty part of the server's tree."""
        opened = ZooKeeperStore(zookeeper_server.hosts, chroot=f"/rights-{next(_CHROOTS)}", session_s=10)
        yield opened
        opened.close()


class TestMemoryFaults(FaultContract):
    """The store in memory, as if it had a line."""

    @pytest.fixture
    def troubled(self) -> Troubled:
        """Return an empty store on a line."""
        store = MemoryStore()
        line = MemoryLine(store)
        return Troubled(line, line, store, line)


@pytest.mark.real
class TestZooKeeperFaults(FaultContract):
    """A real ZooKeeper behind a proxy."""

    @pytest.fixture
    def troubled(self, zookeeper_server: ZooKeeperServer) -> Iterator[Troubled]:
        """Return an empty part of the server's tree."""
        chroot = f"/faults-{next(_CHROOTS)}"
        with Proxy("127.0.0.1", zookeeper_server.port) as line:
            store = ZooKeeperStore(line.hosts, chroot=chroot, session_s=10, patience_s=120)
            other = ZooKeeperStore(zookeeper_server.hosts, chroot=chroot, session_s=10, patience_s=120)
            impatient = ZooKeeperStore(line.hosts, chroot=chroot, session_s=10, patience_s=4)

            def expire() -> None:
                # Anybody who shows a session's id and password takes it over, and may end it.
                thief = KazooClient(zookeeper_server.hosts, client_id=store._client.client_id)
                thief.start()
                thief.stop()
                thief.close()

            yield Troubled(store, line, other, impatient, expire)
            impatient.close()
            store.close()
            other.close()


class TestMemoryLive(LiveStoreContract):
    """The store in memory."""

    @pytest.fixture
    def store(self) -> LiveStore:
        """Return an empty store."""
        return MemoryStore()


@pytest.mark.real
class TestZooKeeperLive(LiveStoreContract):
    """A real ZooKeeper."""

    @pytest.fixture
    def store(self, zookeeper_server: ZooKeeperServer) -> Iterator[LiveStore]:
        """Return an empty part of the server's tree."""
        opened = ZooKeeperStore(zookeeper_server.hosts, chroot=f"/live-{next(_CHROOTS)}", session_s=10)
        yield opened
        opened.close()


@pytest.mark.real
class TestZooKeeperWatched(WatchableStoreContract):
    """A real ZooKeeper."""

    @pytest.fixture
    def store(self, zookeeper_server: ZooKeeperServer) -> Iterator[WatchableStore]:
        """Return an empty part of the server's tree."""
        opened = ZooKeeperStore(zookeeper_server.hosts, chroot=f"/watched-{next(_CHROOTS)}", session_s=10)
        yield opened
        opened.close()
