"""Every store that a URI can name: those of `backends.registry`, and catalogs.

catalog:///dir    a capture, read-only, at the point in time that it was taken

Whom a live store takes us for is told by the caller; how the connection is secured stands in the environment:

    BKMETA_ETCD_AUTH                     user:password for etcd
    BKMETA_ZK_SASL                       user:password for ZooKeeper's SASL, DIGEST-MD5
    BKMETA_TLS_CA                        file with the certificates that sign the servers', PEM
    BKMETA_TLS_CERT, BKMETA_TLS_KEY      files with our own certificate and its key, PEM
    BKMETA_TLS_KEY_PASSWORD              of the key, where it is encrypted
    BKMETA_PATIENCE_S                    seconds that a store which does not answer is tried; 60
"""

import os
import ssl
from pathlib import Path

from backends.errors import UnsupportedStoreError
from backends.files import read_bounded
from backends.protocols import Tls
from backends.registry import UNPACED, OpenStore, parse_store_uri
from backends.registry import open_store as open_live_store
from reconcile.errors import GuardRefusedError
from recovery.capture.catalog_store import CatalogStore
from recovery.dataset import MANIFEST, Dataset, open_dataset
from recovery.errors import InputError

CATALOG = "catalog"
SASL_VARIABLE = "BKMETA_ZK_SASL"
ETCD_AUTH_VARIABLE = "BKMETA_ETCD_AUTH"
PATIENCE_VARIABLE = "BKMETA_PATIENCE_S"
_LONGEST_S = 7 * 24 * 3600
"""Clocks and timers take no number of any size."""
_ETCD = "etcd"
_LARGEST_PEM = 16 << 20
"""A machine's whole bundle has some hundred kB."""
TLS_VARIABLE = "BKMETA_TLS"
"""What the names of the variables about TLS begin with."""


def user_and_password(variable: str) -> tuple[str, str] | None:
    """Return what an environment variable says as ``user:password``; None where it is not set.

    Raises:
        InputError: it has another form.
    """
    given = os.environ.get(variable)
    if not given:
        return None
    user, colon, password = given.partition(":")
    if not colon:
        raise InputError(variable, "is not user:password", "set it as user:password, or unset it")
    return user, password


def tls_from_environment() -> Tls | None:
    """Return how connections are encrypted; None where no variable says so.

    Raises:
        InputError: a file cannot be read or is no PEM, or only one of certificate and key is named.
    """
    given = {name: os.environ.get(f"{TLS_VARIABLE}_{name}") or None for name in ("CA", "CERT", "KEY")}
    password = os.environ.get(f"{TLS_VARIABLE}_KEY_PASSWORD") or None
    if not any(given.values()):
        return None
    for name, path in given.items():
        variable = f"{TLS_VARIABLE}_{name}"
        try:
            content = b"" if path is None else read_bounded(path, _LARGEST_PEM)
        except OSError as error:
            raise InputError(variable, f"{path}: {error.strerror}", "name a file that you can read") from error
        if path is not None and b"-----BEGIN " not in content:
            raise InputError(variable, f"{path} is no PEM file", "name one with -----BEGIN lines")
    if given["CA"] is not None:
        try:
            ssl.create_default_context(cafile=given["CA"])
        except ssl.SSLError as error:
            problem = f"{given['CA']} holds no certificate that can be read ({error.reason or error})"
            raise InputError(f"{TLS_VARIABLE}_CA", problem, "name a PEM file of certificates") from error
    if (given["CERT"] is None) != (given["KEY"] is None):
        problem = "name one of certificate and key without the other"
        raise InputError(f"{TLS_VARIABLE}_CERT and _KEY", problem, "set both, or none")
    return Tls(ca=given["CA"], cert=given["CERT"], key=given["KEY"], key_password=password)


def catalog_path(uri: str) -> str | None:
    """Return the folder of a catalog that is named by a URI, or by its path; None: the URI is of something else."""
    scheme, slashes, path = uri.partition("://")
    if slashes:
        return path if scheme == CATALOG else None
    return uri if (Path(uri) / MANIFEST).is_file() else None


def demand_store_uri(uri: str) -> None:
    """See that a URI names a store, without opening it.

    Raises:
        UnsupportedStoreError: malformed, or of a store that is not read.
    """
    if catalog_path(uri) is None:
        parse_store_uri(uri)


def _patience_s() -> float:
    """Return how many seconds a store that does not answer is tried.

    Raises:
        InputError: the environment does not give a number above 0.
    """
    given = os.environ.get(PATIENCE_VARIABLE) or "60"
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _LONGEST_S:
        remedy = f"give a number of seconds above 0, at most {_LONGEST_S} (a week), or none for 60"
        raise InputError(PATIENCE_VARIABLE, f"is {given!r}", remedy)
    return seconds


def open_store(
    uri: str,
    *,
    writable: bool = False,
    at: str | None = None,
    auth: tuple[str, str] | None = None,
    ops_s: float | None = None,
    session_s: float = 30.0,
    patience_s: float | None = None,
) -> OpenStore:
    """Open the store that a URI names, as `backends.registry.open_store` does; a catalog, too.

    Without `patience_s` the environment says how long is waited for it, else a minute.

    Raises:
        UnsupportedStoreError: malformed, or of a store that is not read, or not written where that was asked.
        UnavailableError: it does not answer.
        AccessDeniedError: it does not take us for whom we say we are.
        DatasetError: no catalog, or a damaged one.
        InputError: the environment names something that cannot be used.
    """
    path = catalog_path(uri)
    if path is None:
        return open_live_store(
            uri,
            writable=writable,
            at=at,
            auth=user_and_password(ETCD_AUTH_VARIABLE) if parse_store_uri(uri).kind == _ETCD else auth,
            sasl=user_and_password(SASL_VARIABLE),
            tls=tls_from_environment(),
            ops_s=ops_s,
            session_s=session_s,
            patience_s=_patience_s() if patience_s is None else patience_s,
        )
    if writable:
        raise UnsupportedStoreError(uri, "a catalog is never written to; name the store")
    if at is not None:
        raise UnsupportedStoreError(uri, "a catalog shows the one point in time that it was captured at")
    if ops_s is not None:
        raise UnsupportedStoreError(uri, UNPACED)
    return of_catalog(open_dataset(path, CATALOG), uri)


def of_catalog(dataset: Dataset, uri: str) -> OpenStore:
    """Return a catalog as an open store, its root where the captured store's was."""
    root = str(dataset.manifest["binding"].get("root", ""))
    store = CatalogStore(dataset, root)
    return OpenStore(store, root, None if store.layout is None else str(store.layout), uri)


def demand_same_keys(opened: OpenStore, layout: str, acl: str | None = None) -> None:
    """See that a plan's keys are those of the store's kind, and that the store has rights if some were named.

    Raises:
        GuardRefusedError: keys of ZooKeeper were to be written to etcd, or the other way; or rights to etcd.
    """
    on_etcd = opened.layout_hint == _ETCD
    if layout and on_etcd != (layout == _ETCD):
        raise GuardRefusedError(
            opened.uri, f"the plan has the keys of layout {layout}", "make a plan for this store: bkmeta recover"
        )
    if on_etcd and acl is not None:
        raise GuardRefusedError(opened.uri, "etcd gives rights to users, not to single keys", "leave --acl out")
