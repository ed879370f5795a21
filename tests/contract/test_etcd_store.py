"""What is particular to etcd."""

from collections.abc import Iterator

import pytest

from backends.etcd.store import EtcdStore
from backends.protocols import MetadataStore
from backends.testing.contracts import MetadataStoreContract
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
