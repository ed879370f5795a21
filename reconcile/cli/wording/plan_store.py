"""Of which store a plan is, for the commands that come next: with its real address, wherever the plan knows it."""

from typing import Final

from recovery.dataset import MANIFEST, Dataset, open_dataset
from recovery.place import to_place

_STORE: Final = "store"
"""Folder of a plan in which the capture of the store is that it was made for."""
_UNKNOWN: Final = "URI"
_READ_ONLY: Final = ("catalog:", "zkfiles:", "etcdfile:")
_REHEARSAL: Final = "bkmeta-rehearsal"


def store_of(plan: Dataset) -> str:
    """Return the URI of the store that a plan was made for; ``URI`` where it does not know one that can be written."""
    folder = to_place(plan.path) / _STORE
    if not (folder / MANIFEST).is_file():
        return _UNKNOWN
    uri = str(open_dataset(folder, "catalog").manifest["binding"].get("uri") or "")
    is_uri = "://" in uri or uri.startswith("metadata-store:")
    return uri if is_uri and not uri.startswith(_READ_ONLY) else _UNKNOWN


def rehearsal_root(plan: Dataset) -> str:
    """Return the URI of a root beside the plan's, in the same store, that nobody uses."""
    from backends.registry import parse_store_uri
    from reconcile.plan.manifest import read_plan_manifest
    from recovery.codecs.store_kind import ETCD, kind_of

    layout = read_plan_manifest(plan).binding.layout
    kind = kind_of(layout)
    layout = "legacyhierarchical" if layout == "legacy" else layout
    uri = store_of(plan)
    hosts = f"HOST:{kind.port}" if uri == _UNKNOWN else parse_store_uri(uri).hosts
    if kind is ETCD:
        return f"etcd://{hosts}/{_REHEARSAL}"
    return f"zk+{layout}://{hosts.replace(',', ';')}/{_REHEARSAL}/ledgers"
