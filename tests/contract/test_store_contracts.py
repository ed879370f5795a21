"""Every store keeps the promises of `MetadataStore`, and of `AccessControl` where it has rights."""

import itertools
from collections.abc import Iterator

import pytest

from backends.memory import MemoryStore
from backends.protocols import ControlledStore, MetadataStore
from backends.testing.contracts import AccessControlContract, MetadataStoreContract
from backends.zookeeper import ZooKeeperStore
from tests.zookeeper_server import ZooKeeperServer

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


class TestMemoryRights(AccessControlContract):
    """The store in memory."""

    @pytest.fixture
    def store(self) -> ControlledStore:
        """Return an empty store."""
        return MemoryStore()


@pytest.mark.real
class TestZooKeeperRights(AccessControlContract):
    """A real ZooKeeper."""

    @pytest.fixture
    def store(self, zookeeper_server: ZooKeeperServer) -> Iterator[ControlledStore]:
        """Return an empty part of the server's tree."""
        opened = ZooKeeperStore(zookeeper_server.hosts, chroot=f"/rights-{next(_CHROOTS)}", session_s=10)
        yield opened
        opened.close()
