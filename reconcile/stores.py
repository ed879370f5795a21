"""Every store that a URI can name: those of `backends.registry`, catalogs, and backups.

    catalog:///dir            a capture, read-only, at the point in time that it was taken
    backup:PLACE              a backup, read-only, at its last transaction; PLACE is a folder or a URI of one
    backup:PLACE?at=POINT     the same at a point in time, as `recovery.backup.point` takes it

Whom a live store takes us for, and how the connection is secured, the caller says: `Access`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote, unquote

from backends.errors import AccessDeniedError, UnsupportedStoreError
from backends.protocols import Kerberos, Sasl, StoreTls
from backends.registry import UNPACED, OpenStore, parse_store_uri
from backends.registry import open_store as open_live_store
from reconcile.errors import Advice, GuardRefusedError, Remedy
from recovery.capture.catalog_store import CatalogStore
from recovery.codecs.store_kind import StoreKind, kind_of
from recovery.dataset import MANIFEST, Dataset, open_dataset
from recovery.place import is_remote

CATALOG = "catalog"
_BACKUP: Final = "backup:"
_AT: Final = "?at="
_SASL: Final = "sasl:"
_SESSION_SCHEMES: Final = (_SASL, "x509:")
"""Of principals that a connection is as soon as it stands."""


class Access(Protocol):
    """Whom stores take a caller for, and how connections are secured. Each is read when a store needs it."""

    @property
    def digest(self) -> tuple[str, str] | None:
        """User and password for ZooKeeper's digest scheme."""

    @property
    def bookie_digest(self) -> tuple[str, str] | None:
        """User and password that the bookies have for ZooKeeper's digest scheme."""

    @property
    def sasl(self) -> Sasl | None:
        """User and password for ZooKeeper's SASL, or Kerberos."""

    @property
    def tls(self) -> StoreTls | None:
        """How connections are encrypted; None: not."""

    @property
    def patience_s(self) -> float:
        """Seconds that a store which does not answer is tried."""

    def identify(self, kind: StoreKind) -> tuple[str, str] | None:
        """Return the user and password for a kind of store; `digest` for ZooKeeper."""


@dataclass(frozen=True, slots=True)
class KnownAccess:
    """An access whose parts the caller knows."""

    digest: tuple[str, str] | None = None
    bookie_digest: tuple[str, str] | None = None
    sasl: Sasl | None = None
    tls: StoreTls | None = None
    patience_s: float = 60.0
    users: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """User and password for other kinds of stores, by their names."""

    def identify(self, kind: StoreKind) -> tuple[str, str] | None:
        """As `Access`."""
        return self.digest if kind.has_acls else self.users.get(kind.name)


NOBODY: Final = KnownAccess()


@dataclass(frozen=True, slots=True)
class AccessAs:
    """Another access, with an identity of its own for ZooKeeper's digest scheme."""

    access: Access
    digest: tuple[str, str] | None

    @property
    def bookie_digest(self) -> tuple[str, str] | None:
        """As the other access has it."""
        return self.access.bookie_digest

    @property
    def sasl(self) -> Sasl | None:
        """As the other access has it."""
        return self.access.sasl

    @property
    def tls(self) -> StoreTls | None:
        """As the other access has it."""
        return self.access.tls

    @property
    def patience_s(self) -> float:
        """As the other access has it."""
        return self.access.patience_s

    def identify(self, kind: StoreKind) -> tuple[str, str] | None:
        """As `Access`."""
        return self.digest if kind.has_acls else self.access.identify(kind)


def catalog_path(uri: str) -> str | None:
    """Return the folder of a catalog that is named by a URI, or by its path; None: the URI is of something else."""
    scheme, slashes, path = uri.partition("://")
    if is_remote(uri) or scheme == "file":
        return uri
    if slashes:
        return path if scheme == CATALOG else None
    return uri if (Path(uri) / MANIFEST).is_file() else None


def is_backup(uri: str) -> bool:
    """Say whether a URI names a backup."""
    return uri.startswith(_BACKUP)


def split_backup(uri: str) -> tuple[str, str | None]:
    """Return where the backup that a URI names is, and the point in time that it names; None: its last."""
    place, separator, moment = uri.removeprefix(_BACKUP).partition(_AT)
    return place, unquote(moment) if separator else None


def name_backup(place: object, moment: str | None = None) -> str:
    """Return the URI of a backup at a point in time; None: its last."""
    return f"{_BACKUP}{place}" + ("" if moment is None else f"{_AT}{quote(moment, safe=':')}")


def add_point(uri: str, moment: str | None) -> str:
    """Return the URI of a store at a point in time, where it is of a backup and names none itself."""
    return name_backup(uri.removeprefix(_BACKUP), moment) if is_backup(uri) and moment and _AT not in uri else uri


def is_store(name: str) -> bool:
    """Say whether a name is of a store, or of a copy of one; else it is of a file."""
    return "://" in name or name.startswith((_BACKUP, "metadata-store:")) or catalog_path(name) is not None


def is_live(uri: str) -> bool:
    """Say whether servers answer at a URI; else it is of a copy in files.

    Raises:
        UnsupportedStoreError: malformed, or of a store that is not read.
    """
    return catalog_path(uri) is None and not is_backup(uri) and parse_store_uri(uri).is_live


def has_rights(uri: str) -> bool:
    """Say whether the store of a URI is a running one whose keys have rights of their own.

    Raises:
        UnsupportedStoreError: malformed, or of a store that is not read.
    """
    address = parse_store_uri(uri)
    return address.is_live and kind_of(address.layout_hint).has_acls


def require_store_uri(uri: str) -> None:
    """Check that a URI names a store, without opening it.

    Raises:
        UnsupportedStoreError: malformed, or of a store that is not read.
    """
    if catalog_path(uri) is None and not is_backup(uri):
        parse_store_uri(uri)


def open_store(
    uri: str,
    access: Access = NOBODY,
    *,
    writable: bool = False,
    at: str | None = None,
    ops_s: float | None = None,
    session_s: float = 30.0,
    patience_s: float | None = None,
) -> OpenStore:
    """Open the store that a URI names, as `backends.registry.open_store` does; a catalog, too.

    Without `patience_s` the access says how long it is tried.

    Raises:
        UnsupportedStoreError: malformed, or of a store that is not read, or not written where that was asked.
        UnavailableError: it does not answer.
        AccessDeniedError: it does not take us for whom we say we are.
        DatasetError: no catalog, or a damaged one.
        InputError: the access names something that cannot be used.
    """
    path = catalog_path(uri)
    if is_backup(uri):
        if writable:
            raise UnsupportedStoreError(uri, "a backup is never written to; name the store")
        return _open_backup(uri, at)
    if path is None:
        return open_live_store(
            uri,
            writable=writable,
            at=at,
            auth=choose_identity(access, uri),
            sasl=access.sasl,
            tls=access.tls,
            ops_s=ops_s,
            session_s=session_s,
            patience_s=access.patience_s if patience_s is None else patience_s,
        )
    if writable:
        raise UnsupportedStoreError(uri, "a catalog is never written to; name the store")
    if at is not None:
        raise UnsupportedStoreError(uri, "a catalog shows the one point in time that it was captured at")
    if ops_s is not None:
        raise UnsupportedStoreError(uri, UNPACED)
    return of_catalog(open_dataset(path, CATALOG), uri)


def choose_identity(access: Access, uri: str) -> tuple[str, str] | None:
    """Return the user and password that the live store of a URI is told.

    Raises:
        UnsupportedStoreError: malformed, or of a store that is not read.
    """
    return access.identify(kind_of(parse_store_uri(uri).layout_hint))


def _open_backup(uri: str, moment: str | None) -> OpenStore:
    place, named = split_backup(uri)
    if named is not None and moment is not None:
        raise UnsupportedStoreError(uri, f"it names a point in time, and {moment} was asked for: name one")
    # Loaded where a backup is named.
    from recovery.backup.chain import open_backup  # noqa: PLC0415 - see above
    from recovery.backup.store import BackupStore  # noqa: PLC0415 - see above

    store = BackupStore(open_backup(place), moment if named is None else named)
    return OpenStore(store, store.root, None if store.layout is None else str(store.layout), uri)


def of_catalog(dataset: Dataset, uri: str) -> OpenStore:
    """Return a catalog as an open store, its root where the captured store's was."""
    root = str(dataset.manifest["binding"].get("root", ""))
    store = CatalogStore(dataset, root)
    return OpenStore(store, root, None if store.layout is None else str(store.layout), uri)


def require_same_keys(opened: OpenStore, layout: str, *, has_acl: bool = False) -> None:
    """Check that a plan's keys are those of the store's kind, and that the store has ACLs if some were named.

    Raises:
        GuardRefusedError: keys of ZooKeeper were to be written to etcd, or the other way; or rights to etcd.
    """
    kind = kind_of(opened.layout_hint)
    if layout and kind_of(layout) is not kind:
        raise GuardRefusedError(
            opened.uri, f"the plan has the keys of layout {layout}", Remedy(Advice.MAKE_PLAN_FOR_STORE)
        )
    if has_acl and not kind.has_acls:
        problem = f"{kind.name} gives rights to users, not to single keys"
        raise GuardRefusedError(opened.uri, problem, Remedy(Advice.NAME_NO_ACL))


def list_principals(access: Access, opened: OpenStore | None = None) -> list[str] | None:
    """Return whom a ZooKeeper takes an access for, besides anybody; None: the store has no ACLs to be judged.

    Args:
        access: that the store is opened with.
        opened: the store; None: a ZooKeeper that is connected to later.
    """
    if opened is not None and not kind_of(opened.layout_hint).has_acls:
        return None
    from backends.zookeeper.acl import digest_principal  # noqa: PLC0415 - of the stores, only ZooKeeper needs it

    session = list_session_principals(access, None if opened is None else opened.uri)
    return [*([digest_principal(access.digest)] if access.digest else []), *session]


def list_session_principals(access: Access, uri: str | None, *, patience_s: float | None = None) -> list[str]:
    """Return whom a ZooKeeper takes an access for by SASL and by our certificate, before any user and password.

    A server may shorten the principals of Kerberos and names those of certificates, so it is asked; one before 3.7
    does not say, and by default shortens nothing.

    Args:
        access: that the store is opened with.
        uri: of the live ZooKeeper; None: one that is connected to later, of which the default is taken for granted.
        patience_s: how long it is tried; None: as long as the access says.

    Raises:
        UnavailableError: no server answers.
        AccessDeniedError: it does not take us for whom we say we are, or there is no ticket.
    """
    sasl, tls = access.sasl, access.tls
    if uri is not None and (isinstance(sasl, Kerberos) or (tls is not None and tls.cert is not None)):
        from backends.zookeeper.identity import ask_names  # noqa: PLC0415 - of the stores, only ZooKeeper needs it

        patience_s = access.patience_s if patience_s is None else patience_s
        names = ask_names(parse_store_uri(uri).hosts, sasl=sasl, tls=tls, patience_s=patience_s)
        if known := [name for name in names if name.startswith(_SESSION_SCHEMES)]:
            return known
    if sasl is None:
        return []
    if not isinstance(sasl, Kerberos):
        return [f"{_SASL}{sasl[0]}"]
    from backends.sasl.gssapi import KerberosError, name_principal  # noqa: PLC0415 - needs the system's Kerberos

    try:
        return [f"{_SASL}{name_principal()}"]
    except KerberosError as error:
        raise AccessDeniedError("Kerberos", str(error)) from error
