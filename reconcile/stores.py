"""Every store that a URI can name: those of `backends.registry`, and catalogs.

catalog:///dir    a capture, read-only, at the point in time that it was taken
"""

from pathlib import Path

from backends.errors import UnsupportedStoreError
from backends.registry import OpenStore, parse_store_uri
from backends.registry import open_store as open_live_store
from recovery.catalog import CatalogStore
from recovery.dataset import MANIFEST, Dataset, open_dataset

CATALOG = "catalog"


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


def open_store(
    uri: str,
    *,
    writable: bool = False,
    at: str | None = None,
    auth: tuple[str, str] | None = None,
    session_s: float = 30.0,
    patience_s: float = 60.0,
) -> OpenStore:
    """Open the store that a URI names, as `backends.registry.open_store` does; a catalog, too.

    Raises:
        UnsupportedStoreError: malformed, or of a store that is not read, or not written where that was asked.
        UnavailableError: it does not answer.
        DatasetError: no catalog, or a damaged one.
    """
    path = catalog_path(uri)
    if path is None:
        return open_live_store(uri, writable=writable, at=at, auth=auth, session_s=session_s, patience_s=patience_s)
    if writable:
        raise UnsupportedStoreError(uri, "a catalog is never written to; name the store")
    if at is not None:
        raise UnsupportedStoreError(uri, "a catalog shows the one point in time that it was captured at")
    return of_catalog(open_dataset(path, CATALOG), uri)


def of_catalog(dataset: Dataset, uri: str) -> OpenStore:
    """Return a catalog as an open store, its root where the captured store's was."""
    root = str(dataset.manifest["binding"].get("root", ""))
    store = CatalogStore(dataset, root)
    return OpenStore(store, root, None if store.layout is None else str(store.layout), uri)
