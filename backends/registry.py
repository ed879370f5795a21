"""Store URIs, as BookKeeper's and Pulsar's configuration files write them, and the stores that they name.

    URI                                                  store        root              layout
    zk+hierarchical://h1:2181;h2:2181/ledgers            ZooKeeper    the path          hierarchical
    zk+longhierarchical://, zk+flat://                   ZooKeeper    the path          as named
    zk+longlonghierarchical://                         ZooKeeper    the path          as named (a form of ours)
    zk+legacyhierarchical://                           ZooKeeper    the path          legacy (a form of ours)
    zk://, zk+null://                                    ZooKeeper    the path          what LAYOUT says
    metadata-store:zk:h1:2181,h2:2181/chroot             ZooKeeper    /chroot/ledgers   hierarchical
    etcd://host:2379,host:2379/root                      etcd         the path          etcd
    zkfiles:///dir?root=/pulsar/ledgers&layout=flat      ZooKeeper's  root=, or        layout=, or what
                                                         files        /ledgers         LAYOUT says
    etcdfile:///snapshot.db?root=/bk/c1                  etcd's file  root=, or the      etcd
                                                                      only one in it
    catalog:///dir                                       not here: `reconcile.stores`
    metadata-store:etcd:…, metadata-store:oxia://…       never: Pulsar keeps other keys there

Source: docs/formats/store-keys.md; Apache Pulsar, metadataServiceUri and metadataStoreUrl.
"""

from collections.abc import Sequence
from typing import Final

from backends.adapter import (
    UNPACED,
    Connection,
    OpenStore,
    PulsarStoreAdapter,
    ReadOnlyControlledStore,
    ReadOnlyStore,
    StoreAdapter,
    StoreAddress,
)
from backends.errors import UnsupportedStoreError
from backends.etcd.adapter import EtcdAdapter, EtcdFileAdapter
from backends.protocols import ChangeFeed, Election, Sasl, StoreTls
from backends.zkfiles.adapter import ZooKeeperFilesAdapter
from backends.zookeeper.adapter import ZooKeeperAdapter

__all__ = [
    "UNPACED",
    "OpenStore",
    "ReadOnlyControlledStore",
    "ReadOnlyStore",
    "StoreAddress",
    "open_election",
    "open_feed",
    "open_store",
    "parse_store_uri",
    "try_client",
]

_ADAPTERS: Final[tuple[StoreAdapter, ...]] = (
    ZooKeeperAdapter(),
    EtcdAdapter(),
    ZooKeeperFilesAdapter(),
    EtcdFileAdapter(),
)
_BY_SCHEME: Final = {scheme: adapter for adapter in _ADAPTERS for scheme in adapter.schemes}
_BY_KIND: Final = {adapter.kind: adapter for adapter in _ADAPTERS}
_BY_PULSAR_SCHEME: Final = {
    adapter.pulsar_scheme: adapter for adapter in _ADAPTERS if isinstance(adapter, PulsarStoreAdapter)
}
_PULSAR: Final = "metadata-store"
_REFUSALS: Final = {
    "catalog": "a catalog is a copy of a store; name the store itself",
    "zk+ms": "the ledger manager 'ms' keeps its records in a store of its own, which is not supported",
}
_PULSAR_REFUSALS: Final = {
    "etcd": "Pulsar on etcd keeps other keys than BookKeeper does and is not supported",
    "oxia": "Pulsar on Oxia keeps other keys than BookKeeper does and is not supported",
    "rocksdb": "Pulsar's own RocksDB store belongs to a standalone Pulsar and is not supported",
    "memory": "Pulsar's store in memory ends with its process",
}


def try_client(kind: str) -> None:
    """Load the client library of a kind of live store; raises what the library raises."""
    _BY_KIND[kind].try_client()


def parse_store_uri(uri: str) -> StoreAddress:
    """Parse a store URI.

    Raises:
        UnsupportedStoreError: malformed, or of a store that is not read.
    """
    text = uri.strip()
    scheme, colon, rest = text.partition(":")
    scheme = scheme.lower()
    if not colon:
        raise UnsupportedStoreError(uri, "not a store URI; write e.g. zk+hierarchical://host:2181/ledgers")
    if scheme == _PULSAR:
        return _parse_pulsar(uri, rest)
    if scheme in _REFUSALS:
        raise UnsupportedStoreError(uri, _REFUSALS[scheme])
    if scheme not in _BY_SCHEME:
        known = ", ".join(f"{name}://" for name in _BY_SCHEME)
        raise UnsupportedStoreError(uri, f"unknown kind of store {scheme!r}; known: {known}, {_PULSAR}:zk:")
    return _BY_SCHEME[scheme].parse(uri, scheme, rest)


def _parse_pulsar(uri: str, rest: str) -> StoreAddress:
    scheme, colon, servers = rest.partition(":")
    if colon and scheme.lower() in _PULSAR_REFUSALS:
        raise UnsupportedStoreError(uri, _PULSAR_REFUSALS[scheme.lower()])
    if not colon or scheme.lower() not in _BY_PULSAR_SCHEME:
        raise UnsupportedStoreError(uri, f"only {_PULSAR}:zk:host:port,host:port/chroot is supported")
    return _BY_PULSAR_SCHEME[scheme.lower()].parse_pulsar(uri, servers)


def open_store(
    uri: str,
    *,
    writable: bool = False,
    at: str | None = None,
    auth: tuple[str, str] | None = None,
    sasl: Sasl | None = None,
    tls: StoreTls | None = None,
    ops_s: float | None = None,
    session_s: float = 30.0,
    patience_s: float = 60.0,
) -> OpenStore:
    """Open the store that a URI names; without `writable` every write through it raises.

    Args:
        uri: one of the forms of this module's table.
        writable: whether writes pass.
        at: the point in time to be shown: a transaction number, or an ISO 8601 time; None: the latest.
        auth: user and password; of ZooKeeper's digest scheme.
        sasl: user and password for a ZooKeeper's SASL with DIGEST-MD5, or Kerberos.
        tls: None: a live store is spoken to without encryption.
        ops_s: reads of a live store a second, at most; None: no limit.
        session_s: the longest wait for one answer.
        patience_s: how long connecting, and any read, is tried again.

    Raises:
        UnsupportedStoreError: malformed, or of a store that is not read.
        UnavailableError: it does not answer.
    """
    address = parse_store_uri(uri)
    if ops_s is not None and not address.is_live:
        raise UnsupportedStoreError(uri, UNPACED)
    connection = Connection(auth, sasl, tls, session_s, patience_s, ops_s)
    return _BY_KIND[address.kind].open(address, connection, writable=writable, moment=at)


def open_election(
    uri: str,
    key: str,
    name: str,
    *,
    acl: str | None = None,
    auth: tuple[str, str] | None = None,
    sasl: Sasl | None = None,
    tls: StoreTls | None = None,
    session_s: float = 15.0,
) -> Election:
    """Return an election between instances with the same key of a live store, without connecting yet.

    Args:
        uri: of a ZooKeeper or an etcd.
        key: absolute; of this election alone.
        name: of this instance.
        acl: rights of nodes made at the key, where the store has rights; None: the store's default.
        auth: user and password; of ZooKeeper's digest scheme.
        sasl: user and password for a ZooKeeper's SASL with DIGEST-MD5, or Kerberos.
        tls: None: without encryption.
        session_s: a leader that the store does not hear of for so long is followed by another one.

    Raises:
        UnsupportedStoreError: malformed, or not of a live store.
    """
    address = parse_store_uri(uri)
    return _BY_KIND[address.kind].elect(address, Connection(auth, sasl, tls, session_s, session_s), key, name, acl)


def open_feed(
    uri: str,
    tops: Sequence[str],
    *,
    logs: Sequence[str] = (),
    auth: tuple[str, str] | None = None,
    sasl: Sasl | None = None,
    tls: StoreTls | None = None,
    session_s: float = 30.0,
    patience_s: float = 60.0,
) -> ChangeFeed:
    """Return the feed of the committed changes of a live store.

    Args:
        uri: of the store.
        tops: keys that are followed, with all below them.
        logs: folders of a ZooKeeper server's logs, which are read where they lie; none: its clients' port is asked.
        auth: user and password; of ZooKeeper's digest scheme.
        sasl: user and password for a ZooKeeper's SASL with DIGEST-MD5, or Kerberos.
        tls: None: without encryption.
        session_s: the longest wait for one answer.
        patience_s: how long connecting, and a read of the base, is tried again.

    Raises:
        UnsupportedStoreError: malformed, or of a store that is not followed.
    """
    address = parse_store_uri(uri)
    return _BY_KIND[address.kind].follow(address, Connection(auth, sasl, tls, session_s, patience_s), tops, logs)
