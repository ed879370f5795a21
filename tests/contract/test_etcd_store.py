"""etcd keeps every promise of a store, also while its connection is troubled; and what is particular to it."""

from collections.abc import Iterator

import pytest

from backends.etcd.store import EtcdStore
from backends.protocols import MetadataStore
from backends.testing.contracts import FaultContract, MetadataStoreContract, Troubled
from backends.testing.faults import Proxy
from tests.etcd_server import EtcdServer

pytestmark = pytest.mark.real


class TestEtcd(MetadataStoreContract):
    """A real etcd."""

    CHILDREN_COUNT = False

    @pytest.fixture
    def store(self, etcd_server: EtcdServer) -> Iterator[MetadataStore]:
        """Return an empty store."""
        etcd_server.wipe()
        opened = EtcdStore(etcd_server.hosts, session_s=10)
        yield opened
        opened.close()


class TestEtcdInTrouble(FaultContract):
    """A real etcd behind a line that fails."""

    @pytest.fixture
    def troubled(self, etcd_server: EtcdServer) -> Iterator[Troubled]:
        """Return an empty store on a line."""
        etcd_server.wipe()
        other = EtcdStore(etcd_server.hosts)
        with Proxy("127.0.0.1", etcd_server.port) as proxy:
            store = EtcdStore(proxy.hosts, patience_s=120)
            yield Troubled(store, proxy, other)
            store.close()
        other.close()
