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

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self
from urllib.parse import parse_qsl, unquote

import pyarrow as pa

from backends.errors import NoSuchStoreError, ReadOnlyStoreError, UnsupportedStoreError
from backends.protocols import (
    Acl,
    ChangeFeed,
    Election,
    MetadataStore,
    Sasl,
    ScannableStore,
    StorePoint,
    StoreTls,
    Versioned,
    Write,
)

_LAYOUTS: Final = {
    "zk": None,
    "zk+null": None,
    "zk+flat": "flat",
    "zk+legacyhierarchical": "legacy",
    "zk+hierarchical": "hierarchical",
    "zk+longhierarchical": "longhierarchical",
    "zk+longlonghierarchical": "longlonghierarchical",
}
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
_ZOOKEEPER: Final = "zookeeper"
_ETCD: Final = "etcd"
_ZK_FILES: Final = "zkfiles"
_ETCD_FILE: Final = "etcdfile"
_LIVE: Final = (_ZOOKEEPER, _ETCD)
_ETCD_PORT: Final = 2379
_PULSAR: Final = "metadata-store"
_PULSAR_LAYOUT: Final = "hierarchical"
"""Pulsar's driver knows no other, and makes no LAYOUT."""
_ROOT_IN_CHROOT: Final = "/ledgers"
UNPACED: Final = "only a live store is asked so many operations a second at most: leave that limit out"
"""Why a limit of reads is refused elsewhere."""
_DEFAULT_PORT: Final = 2181
_ASKED_S: Final = 5.0
"""How long an answer of a server with followed logs counts, before it is asked again."""
_HOST: Final = re.compile(r"(?:[A-Za-z0-9_.\-]+|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9]+)?\])(?::([0-9]{1,5}))?")
_PATH: Final = re.compile(r"(?:/[^/\x00-\x20\x7f?#]+)*/?")


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """The parts of a store URI.

    Attributes:
        kind: the kind of store: zookeeper, zkfiles, etcd, etcdfile, catalog.
        uri: as it was given.
        hosts: ``host:port`` joined with commas; of files their path.
        root: key of the ledgers root, without a slash at its end.
        layout_hint: the layout that the URI names; None: what LAYOUT says.
    """

    kind: str
    uri: str
    hosts: str
    root: str
    layout_hint: str | None

    @property
    def is_live(self) -> bool:
        """Whether the URI names servers; False: a copy in files."""
        return self.kind in _LIVE


@dataclass(frozen=True, slots=True)
class OpenStore:
    """An open store, and the root of BookKeeper's records in it; a context manager that closes the store.

    Attributes:
        store: keys are absolute, so they begin with `root`.
        root: key of the ledgers root.
        layout_hint: the layout that the URI names; None: what LAYOUT says.
        uri: as it was given.
    """

    store: MetadataStore
    root: str
    layout_hint: str | None
    uri: str

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.store.close()


class StoreReader(Protocol):
    """The reading methods of a store, as in `backends.protocols.MetadataStore`; it needs no writing methods."""

    @property
    def uri(self) -> str:
        """The address, without secrets."""
        ...

    def get(self, key: str) -> Versioned | None:
        """Return one key."""
        ...

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Versioned | None]]:
        """Yield keys in the given order."""
        ...

    def children(self, key: str) -> list[str] | None:
        """Return the names directly below a key."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


class ReadOnlyStore:
    """A store without its writes: each raises `ReadOnlyStoreError`."""

    def __init__(self, store: StoreReader) -> None:
        self._store = store

    @property
    def uri(self) -> str:
        return self._store.uri

    def get(self, key: str) -> Versioned | None:
        return self._store.get(key)

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Versioned | None]]:
        return self._store.get_many(keys)

    def children(self, key: str) -> list[str] | None:
        return self._store.children(key)

    def write(self, changes: Sequence[Write]) -> list[int]:
        raise ReadOnlyStoreError(self.uri, f"{len(changes)} changes were asked for")

    def raise_counter(self, key: str, beyond: int) -> int:
        raise ReadOnlyStoreError(self.uri, f"{key} was to be raised beyond {beyond}")

    def close(self) -> None:
        self._store.close()


class ControlledReader(StoreReader, Protocol):
    """The reading methods of a live store with ACLs."""

    def latest_txn(self) -> int:
        """As `LiveStore`."""
        ...

    def get_acl(self, key: str) -> Acl | None:
        """As `backends.protocols.AccessControl`."""
        ...

    def get_acls(self, keys: Iterable[str]) -> Iterator[tuple[str, Acl | None]]:
        """As `LiveStore`."""
        ...


class ReadOnlyControlledStore(ReadOnlyStore):
    """A live store with ACLs, without its writes: ACLs can be read."""

    def __init__(self, store: ControlledReader) -> None:
        super().__init__(store)
        self._controlled = store

    def latest_txn(self) -> int:
        return self._controlled.latest_txn()

    def get_acl(self, key: str) -> Acl | None:
        return self._controlled.get_acl(key)

    def get_acls(self, keys: Iterable[str]) -> Iterator[tuple[str, Acl | None]]:
        return self._controlled.get_acls(keys)

    def set_acl(self, key: str, acl: str, *, expected: int) -> int:
        raise ReadOnlyStoreError(self.uri, f"the ACL of {key} in version {expected} was to become {acl}")


class ReadOnlyScannableStore(ReadOnlyStore):
    """A store that shows one point in time, without its writes."""

    def __init__(self, store: ScannableStore) -> None:
        super().__init__(store)
        self._scannable = store

    def point(self) -> StorePoint:
        return self._scannable.point()

    def scan(self, root: str) -> Iterator[pa.RecordBatch]:
        return self._scannable.scan(root)

    def history(self, root: str) -> Iterator[pa.RecordBatch]:
        return self._scannable.history(root)


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
    if scheme == _ETCD:
        if not rest.startswith("//"):
            raise UnsupportedStoreError(uri, f"'//' and the servers must follow {scheme}:")
        hosts, path = _split(uri, rest[2:], _ETCD_PORT)
        if not path:
            raise UnsupportedStoreError(uri, "it names no root, the path of BookKeeper's metadataServiceUri")
        return StoreAddress(_ETCD, uri, hosts, path, _ETCD)
    if scheme in (_ZK_FILES, _ETCD_FILE):
        return _parse_files(uri, scheme, rest)
    if scheme not in _LAYOUTS:
        known = ", ".join(f"{name}://" for name in (*_LAYOUTS, _ETCD, _ZK_FILES, _ETCD_FILE))
        raise UnsupportedStoreError(uri, f"unknown kind of store {scheme!r}; known: {known}, {_PULSAR}:zk:")
    if not rest.startswith("//"):
        raise UnsupportedStoreError(uri, f"'//' and the servers must follow {scheme}:")
    hosts, path = _split(uri, rest[2:])
    if not path:
        raise UnsupportedStoreError(uri, "it names no ledgers root; BookKeeper's default is /ledgers")
    return StoreAddress(_ZOOKEEPER, uri, hosts, path, _LAYOUTS[scheme])


def _parse_pulsar(uri: str, rest: str) -> StoreAddress:
    kind, colon, servers = rest.partition(":")
    if colon and kind.lower() in _PULSAR_REFUSALS:
        raise UnsupportedStoreError(uri, _PULSAR_REFUSALS[kind.lower()])
    if not colon or kind.lower() != "zk":
        raise UnsupportedStoreError(uri, f"only {_PULSAR}:zk:host:port,host:port/chroot is supported")
    hosts, path = _split(uri, servers.removeprefix("//"))
    return StoreAddress(_ZOOKEEPER, uri, hosts, path + _ROOT_IN_CHROOT, _PULSAR_LAYOUT)


def _parse_files(uri: str, kind: str, rest: str) -> StoreAddress:
    path, _, options = rest.partition("?")
    if not path.startswith("///"):
        raise UnsupportedStoreError(uri, f"an absolute path must follow {kind}://, so three slashes")
    try:
        given = dict(parse_qsl(options, keep_blank_values=True, strict_parsing=bool(options)))
    except ValueError:
        raise UnsupportedStoreError(uri, f"not root=/path or layout=name, joined with &: {options!r}") from None
    options_of = ("root", "layout") if kind == _ZK_FILES else ("root",)
    if unknown := sorted(set(given) - set(options_of)):
        raise UnsupportedStoreError(uri, f"unknown option {unknown[0]!r}; known: {', '.join(options_of)}")
    if kind == _ETCD_FILE and "root" not in given:
        return StoreAddress(kind, uri, unquote(path[2:]), "", _ETCD)
    root = given.get("root", _ROOT_IN_CHROOT).rstrip("/")
    if not root or not _PATH.fullmatch(root):
        raise UnsupportedStoreError(uri, f"root is not the path of a ledgers root: {root!r}")
    if kind == _ETCD_FILE:
        return StoreAddress(kind, uri, unquote(path[2:]), root, _ETCD)
    layouts = sorted({name for name in _LAYOUTS.values() if name is not None})
    layout = given.get("layout")
    if layout is not None and layout not in layouts:
        raise UnsupportedStoreError(uri, f"unknown layout {layout!r}; known: {', '.join(layouts)}")
    return StoreAddress(kind, uri, unquote(path[2:]), root, layout)


def _split(uri: str, text: str, default_port: int = _DEFAULT_PORT) -> tuple[str, str]:
    """Return the servers joined with commas, and the path without a slash at its end."""
    position = text.find("/")
    servers, path = (text, "") if position < 0 else (text[:position], text[position:])
    hosts = []
    for server in re.split("[;,]", servers):
        if "@" in server:
            raise UnsupportedStoreError("(not shown)", "user and password do not belong into a URI")
        match = _HOST.fullmatch(server)
        if match is None or not 0 < int(match[1] or default_port) < 1 << 16:
            raise UnsupportedStoreError(uri, f"not host:port: {server!r}")
        hosts.append(server if match[1] else f"{server}:{default_port}")
    if not _PATH.fullmatch(path):
        raise UnsupportedStoreError(uri, f"not a path: {path!r}")
    return ",".join(hosts), path.rstrip("/")


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
    if ops_s is not None and address.kind not in (_ZOOKEEPER, _ETCD):
        raise UnsupportedStoreError(uri, UNPACED)
    if address.kind == _ETCD:
        waits = (session_s, patience_s)
        return _open_etcd(address, writable=writable, shown_at=at, auth=auth, tls=tls, ops_s=ops_s, waits=waits)
    if address.kind == _ETCD_FILE:
        return _open_etcd_file(address, writable=writable, shown_at=at)
    if address.kind == _ZK_FILES:
        return _open_zk_files(address, writable=writable, shown_at=at)
    if at is not None:
        raise UnsupportedStoreError(
            uri, "a live ZooKeeper shows only the present; its files show the past (zkfiles://)"
        )
    from backends.zookeeper.reader import ZooKeeperReader  # noqa: PLC0415 - only where its client is wanted
    from backends.zookeeper.store import ZooKeeperStore  # noqa: PLC0415 - only where its client is wanted

    kind = ZooKeeperStore if writable else ZooKeeperReader
    store = kind(address.hosts, auth=auth, sasl=sasl, tls=tls, ops_s=ops_s, session_s=session_s, patience_s=patience_s)
    shown = store if isinstance(store, ZooKeeperStore) else ReadOnlyControlledStore(store)
    return OpenStore(shown, address.root, address.layout_hint, uri)


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
    if address.kind == _ETCD:
        from backends.etcd.election import EtcdElection  # noqa: PLC0415 - grpc, only where it is wanted

        return EtcdElection(address.hosts, key, name, auth=auth, tls=tls, session_s=session_s)
    if address.kind == _ZOOKEEPER:
        from backends.zookeeper.election import ZooKeeperElection  # noqa: PLC0415 - only where its client is wanted

        return ZooKeeperElection(address.hosts, key, name, acl=acl, auth=auth, sasl=sasl, tls=tls, session_s=session_s)
    raise UnsupportedStoreError(uri, "files elect no leader: name the live store")


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
    if address.kind == _ETCD:
        if logs:
            raise UnsupportedStoreError(uri, "etcd is watched; it has no logs to be read: name none")
        from backends.etcd.feed import EtcdFeed  # noqa: PLC0415 - grpc, only where it is wanted

        return EtcdFeed(address.hosts, tops, auth=auth, tls=tls, session_s=session_s, patience_s=patience_s)
    if address.kind != _ZOOKEEPER:
        raise UnsupportedStoreError(uri, "files do not change: name the live store")
    from backends.zookeeper.reader import ZooKeeperReader  # noqa: PLC0415 - only where its client is wanted

    def connect(patience: float) -> ZooKeeperReader:
        return ZooKeeperReader(address.hosts, auth=auth, sasl=sasl, tls=tls, session_s=session_s, patience_s=patience)

    if logs:
        from backends.zkfiles.feed import ShownState, ZooKeeperLogFeed  # noqa: PLC0415 - only where logs are named

        absent = [folder for folder in logs if not Path(folder).is_dir()]
        if absent:
            raise UnsupportedStoreError(uri, f"no folder of a server's logs: {absent[0]}")
        shown = ShownState(lambda: connect(_ASKED_S))
        return ZooKeeperLogFeed(uri, [Path(folder) for folder in logs], tops, shown=shown)
    from backends.zookeeper.polling import PollingFeed  # noqa: PLC0415 - only where no logs are named

    return PollingFeed(connect(patience_s), tops)


def _open_zk_files(address: StoreAddress, *, writable: bool, shown_at: str | None) -> OpenStore:
    from backends.zkfiles.store import ZooKeeperFiles, parse_at  # noqa: PLC0415 - only where files are named

    if writable:
        raise UnsupportedStoreError(address.uri, "ZooKeeper's files are only read; name a live store to be written to")
    try:
        point = None if shown_at is None else parse_at(shown_at)
    except ValueError as error:
        raise UnsupportedStoreError(address.uri, str(error)) from error
    try:
        store = ZooKeeperFiles(Path(address.hosts), point=point)
    except NoSuchStoreError as error:
        raise UnsupportedStoreError(address.uri, error.detail) from error
    return OpenStore(store, address.root, address.layout_hint, address.uri)


def _open_etcd(
    address: StoreAddress,
    *,
    writable: bool,
    shown_at: str | None,
    auth: tuple[str, str] | None,
    tls: StoreTls | None,
    ops_s: float | None,
    waits: tuple[float, float],
) -> OpenStore:
    try:
        from backends.etcd.store import EtcdStore  # noqa: PLC0415 - grpc, only where it is wanted
    except ModuleNotFoundError as error:
        problem = "this program was packed without etcd's client; name the store where all of bkmeta is installed"
        raise UnsupportedStoreError(address.uri, problem) from error
    if tls is not None and (tls.ca is None or tls.key_password is not None):
        raise UnsupportedStoreError(address.uri, "TLS to etcd needs the servers' CA, and a key without a password")
    revision = _revision(address.uri, shown_at)
    if shown_at is not None and writable:
        raise UnsupportedStoreError(address.uri, "the past is never written to")
    store = EtcdStore(
        address.hosts,
        top=address.root,
        auth=auth,
        tls=tls,
        revision=revision,
        ops_s=ops_s,
        session_s=waits[0],
        patience_s=waits[1],
    )
    shown = store if writable else ReadOnlyScannableStore(store)
    return OpenStore(shown, address.root, address.layout_hint, address.uri)


def _open_etcd_file(address: StoreAddress, *, writable: bool, shown_at: str | None) -> OpenStore:
    from backends.etcdfile import EtcdFile  # noqa: PLC0415 - only where a file is named

    if writable:
        raise UnsupportedStoreError(address.uri, "a snapshot is only read; name a live store to be written to")
    store = EtcdFile(address.hosts, revision=_revision(address.uri, shown_at))
    root = address.root
    if not root:
        roots = store.roots()
        if len(roots) != 1:
            store.close()
            problem = f"it holds {len(roots)} clusters ({', '.join(roots)})" if roots else "no cluster is seen in it"
            raise UnsupportedStoreError(address.uri, f"{problem}: name the root, e.g. {address.uri}?root=/bk/c1")
        [root] = roots
    return OpenStore(store, root, address.layout_hint, address.uri)


def _revision(uri: str, shown_at: str | None) -> int | None:
    if shown_at is not None and not (shown_at.isascii() and shown_at.isdigit() and 0 < int(shown_at) < 1 << 63):
        raise UnsupportedStoreError(uri, f"etcd keeps no times: name a revision, a number from 1 on, not {shown_at!r}")
    return None if shown_at is None else int(shown_at)
