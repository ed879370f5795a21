"""The adapter of a kind of store: its URIs, and how it is opened, elects a leader and is followed.

Each folder of a store has an `adapter.py` with one `StoreAdapter` a kind; `backends.registry` lists them. An adapter
loads its client library where a store is opened, so that a URI is taken apart without it.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar, Final, Protocol, Self
from urllib.parse import parse_qsl, unquote

import pyarrow as pa

from backends.errors import ReadOnlyStoreError, UnsupportedStoreError
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

ROOT_IN_CHROOT: Final = "/ledgers"
UNPACED: Final = "only a live store is asked so many operations a second at most: leave that limit out"
"""Why a limit of reads is refused elsewhere."""
_HOST: Final = re.compile(r"(?:[A-Za-z0-9_.\-]+|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9]+)?\])(?::([0-9]{1,5}))?")
_PATH: Final = re.compile(r"(?:/[^/\x00-\x20\x7f?#]+)*/?")


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """The parts of a store URI.

    Attributes:
        kind: the kind of store, as its adapter names it.
        uri: as it was given.
        hosts: ``host:port`` joined with commas; of files their path.
        root: key of the ledgers root, without a slash at its end.
        layout_hint: the layout that the URI names; None: what LAYOUT says.
        live_kind: of files: the kind of the live store that they are a copy of; None: the URI names servers.
    """

    kind: str
    uri: str
    hosts: str
    root: str
    layout_hint: str | None
    live_kind: str | None = None

    @property
    def is_live(self) -> bool:
        """Whether the URI names servers; False: a copy in files."""
        return self.live_kind is None


@dataclass(frozen=True, slots=True)
class Connection:
    """How a live store is connected to.

    Attributes:
        auth: user and password; of ZooKeeper's digest scheme.
        sasl: user and password for a ZooKeeper's SASL with DIGEST-MD5, or Kerberos.
        tls: None: without encryption.
        ops_s: reads a second, at most; None: no limit.
        session_s: the longest wait for one answer, and the life of a session.
        patience_s: how long connecting, and any read, is tried again.
    """

    auth: tuple[str, str] | None
    sasl: Sasl | None
    tls: StoreTls | None
    session_s: float
    patience_s: float
    ops_s: float | None = None


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


class StoreAdapter(ABC):
    """A kind of store: what its subclass does not say is that of files, which elect no leader and do not change.

    Attributes:
        kind: its name in `StoreAddress.kind`, which is stored.
        schemes: of its URIs.
    """

    kind: ClassVar[str]
    schemes: ClassVar[tuple[str, ...]]

    @abstractmethod
    def parse(self, uri: str, scheme: str, rest: str) -> StoreAddress:
        """Return the parts of a URI; `rest` is what follows the scheme and its colon.

        Raises:
            UnsupportedStoreError: malformed.
        """

    @abstractmethod
    def open(self, address: StoreAddress, connection: Connection, *, writable: bool, moment: str | None) -> OpenStore:
        """Open a store; `moment` is the point in time to be shown, None the latest.

        Raises:
            UnsupportedStoreError: it cannot be written, or does not show the past.
            UnavailableError: it does not answer.
        """

    def try_client(self) -> None:
        """Load the client library and make a client that connects to nothing; raises what the library raises.

        Raises:
            UnsupportedStoreError: not of a live store.
        """
        raise UnsupportedStoreError(self.kind, "files need no client")

    def elect(
        self,
        address: StoreAddress,
        connection: Connection,  # noqa: ARG002 - as the adapters of servers
        key: str,  # noqa: ARG002 - likewise
        name: str,  # noqa: ARG002 - likewise
        acl: str | None,  # noqa: ARG002 - likewise
    ) -> Election:
        """Return an election, as `backends.registry.open_election`.

        Raises:
            UnsupportedStoreError: not of a live store.
        """
        raise UnsupportedStoreError(address.uri, "files elect no leader: name the live store")

    def follow(
        self,
        address: StoreAddress,
        connection: Connection,  # noqa: ARG002 - likewise
        tops: Sequence[str],  # noqa: ARG002 - likewise
        logs: Sequence[str],  # noqa: ARG002 - likewise
    ) -> ChangeFeed:
        """Return a feed, as `backends.registry.open_feed`.

        Raises:
            UnsupportedStoreError: not of a live store.
        """
        raise UnsupportedStoreError(address.uri, "files do not change: name the live store")


class PulsarStoreAdapter(StoreAdapter):
    """A kind of store in which Pulsar keeps the same keys as BookKeeper.

    Attributes:
        pulsar_scheme: its name behind Pulsar's ``metadata-store:``.
    """

    pulsar_scheme: ClassVar[str]

    @abstractmethod
    def parse_pulsar(self, uri: str, servers: str) -> StoreAddress:
        """Return the parts of a URI of Pulsar's; `servers` is what follows `pulsar_scheme` and its colon.

        Raises:
            UnsupportedStoreError: malformed.
        """


def split_servers(uri: str, text: str, default_port: int) -> tuple[str, str]:
    """Return the servers joined with commas, and the path without a slash at its end.

    Raises:
        UnsupportedStoreError: malformed.
    """
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


def split_file_uri(uri: str, scheme: str, rest: str, known: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return the path and the options of the URI of files; the option `root` is a checked key, where it is given.

    Raises:
        UnsupportedStoreError: malformed, or an option that is not `known`.
    """
    path, _, options = rest.partition("?")
    if not path.startswith("///"):
        raise UnsupportedStoreError(uri, f"an absolute path must follow {scheme}://, so three slashes")
    try:
        given = dict(parse_qsl(options, keep_blank_values=True, strict_parsing=bool(options)))
    except ValueError:
        raise UnsupportedStoreError(uri, f"not root=/path or layout=name, joined with &: {options!r}") from None
    if unknown := sorted(set(given) - set(known)):
        raise UnsupportedStoreError(uri, f"unknown option {unknown[0]!r}; known: {', '.join(known)}")
    if (root := given.get("root")) is not None:
        given["root"] = root.rstrip("/")
        if not given["root"] or not _PATH.fullmatch(given["root"]):
            raise UnsupportedStoreError(uri, f"root is not the path of a ledgers root: {given['root']!r}")
    return unquote(path[2:]), given
