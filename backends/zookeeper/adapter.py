"""ZooKeeper's adapter: its URIs, as BookKeeper and Pulsar write them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from backends.adapter import (
    ROOT_IN_CHROOT,
    Connection,
    OpenStore,
    PulsarStoreAdapter,
    ReadOnlyControlledStore,
    StoreAddress,
    split_servers,
)
from backends.errors import UnsupportedStoreError
from backends.protocols import ChangeFeed, Election

LAYOUTS: Final = {
    "zk": None,
    "zk+null": None,
    "zk+flat": "flat",
    "zk+legacyhierarchical": "legacy",
    "zk+hierarchical": "hierarchical",
    "zk+longhierarchical": "longhierarchical",
    "zk+longlonghierarchical": "longlonghierarchical",
}
"""Scheme → layout; None: what LAYOUT says."""
_PULSAR_LAYOUT: Final = "hierarchical"
"""Pulsar's driver knows no other, and makes no LAYOUT."""
_PORT: Final = 2181
_ASKED_S: Final = 5.0
"""How long an answer of a server with followed logs counts, before it is asked again."""


class ZooKeeperAdapter(PulsarStoreAdapter):
    """A running ZooKeeper."""

    kind = "zookeeper"
    schemes = tuple(LAYOUTS)
    pulsar_scheme = "zk"

    def parse(self, uri: str, scheme: str, rest: str) -> StoreAddress:
        if not rest.startswith("//"):
            raise UnsupportedStoreError(uri, f"'//' and the servers must follow {scheme}:")
        hosts, path = split_servers(uri, rest[2:], _PORT)
        if not path:
            raise UnsupportedStoreError(uri, "it names no ledgers root; BookKeeper's default is /ledgers")
        return StoreAddress(self.kind, uri, hosts, path, LAYOUTS[scheme])

    def parse_pulsar(self, uri: str, servers: str) -> StoreAddress:
        hosts, path = split_servers(uri, servers.removeprefix("//"), _PORT)
        return StoreAddress(self.kind, uri, hosts, path + ROOT_IN_CHROOT, _PULSAR_LAYOUT)

    def try_client(self) -> None:
        from backends.zookeeper.kazoo_client import Client  # noqa: PLC0415 - only where its client is wanted

        Client(hosts="127.0.0.1:1").close()

    def open(self, address: StoreAddress, connection: Connection, *, writable: bool, moment: str | None) -> OpenStore:
        if moment is not None:
            raise UnsupportedStoreError(
                address.uri, "a live ZooKeeper shows only the present; its files show the past (zkfiles://)"
            )
        from backends.zookeeper.reader import ZooKeeperReader  # noqa: PLC0415 - only where its client is wanted
        from backends.zookeeper.store import ZooKeeperStore  # noqa: PLC0415 - only where its client is wanted

        kind = ZooKeeperStore if writable else ZooKeeperReader
        store = kind(
            address.hosts,
            auth=connection.auth,
            sasl=connection.sasl,
            tls=connection.tls,
            ops_s=connection.ops_s,
            session_s=connection.session_s,
            patience_s=connection.patience_s,
        )
        shown = store if isinstance(store, ZooKeeperStore) else ReadOnlyControlledStore(store)
        return OpenStore(shown, address.root, address.layout_hint, address.uri)

    def elect(self, address: StoreAddress, connection: Connection, key: str, name: str, acl: str | None) -> Election:
        from backends.zookeeper.election import ZooKeeperElection  # noqa: PLC0415 - only where its client is wanted

        return ZooKeeperElection(
            address.hosts,
            key,
            name,
            acl=acl,
            auth=connection.auth,
            sasl=connection.sasl,
            tls=connection.tls,
            session_s=connection.session_s,
        )

    def follow(
        self, address: StoreAddress, connection: Connection, tops: Sequence[str], logs: Sequence[str]
    ) -> ChangeFeed:
        from backends.zookeeper.reader import ZooKeeperReader  # noqa: PLC0415 - only where its client is wanted

        def connect(patience_s: float) -> ZooKeeperReader:
            return ZooKeeperReader(
                address.hosts,
                auth=connection.auth,
                sasl=connection.sasl,
                tls=connection.tls,
                session_s=connection.session_s,
                patience_s=patience_s,
            )

        if logs:
            from backends.zkfiles.feed import ShownState, ZooKeeperLogFeed  # noqa: PLC0415 - only where logs are named

            absent = [folder for folder in logs if not Path(folder).is_dir()]
            if absent:
                raise UnsupportedStoreError(address.uri, f"no folder of a server's logs: {absent[0]}")
            shown = ShownState(lambda: connect(_ASKED_S))
            return ZooKeeperLogFeed(address.uri, [Path(folder) for folder in logs], tops, shown=shown)
        from backends.zookeeper.polling import PollingFeed  # noqa: PLC0415 - only where no logs are named

        return PollingFeed(connect(connection.patience_s), tops)
