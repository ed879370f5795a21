"""What every capture ends with: the layout that a store has, the summary, the row about the source, the manifest."""

from dataclasses import asdict, dataclass
from datetime import datetime

import pyarrow as pa

from recovery.codecs.store import Layout, layout_of
from recovery.dataset import DatasetWriter
from recovery.errors import FormatError, InputError
from recovery.model import tables


@dataclass(frozen=True, slots=True)
class CaptureSummary:
    """What a capture found.

    Attributes:
        layout: what LAYOUT says, else what was named; None where the root is missing and none was named.
        instance_id: of the cluster; None where it is missing.
        root: present or missing.
        complete: no gap.
        gaps: what could not be read, and why.
        ledgers: records, those that cannot be parsed included.
        unparsable: records that cannot be parsed.
        nodes: other nodes.
        subtree_nodes: nodes of subtrees beside the ledgers root.
        vanished: ledgers that were removed between listing and reading.
        changes: of ledgers' records that the source remembers.
        txn: the store's last transaction that is in it; None where that is not known.
        since_txn: of a live store the last one before it was read: what happened between that and `txn` is in it or
            not. None: it is all in it.
        at: when the source was as the catalog shows it; read then, where it does not say.
        notes: what a person should know of how that point was chosen.
    """

    layout: str | None
    instance_id: str | None
    root: str
    complete: bool
    gaps: tuple[str, ...]
    ledgers: int
    unparsable: int
    nodes: int
    subtree_nodes: int
    vanished: int
    changes: int
    txn: int | None
    since_txn: int | None
    at: datetime
    notes: tuple[str, ...]


def choose_layout(raw: bytes | None, key: str, named: Layout | None) -> Layout:
    """Return the layout that a store has: what LAYOUT says, else what was named."""
    remedy = "name the cluster's layout in the URI: zk+hierarchical://…, or of files zkfiles:///DIR?layout=hierarchical"
    if raw is None:
        if named is None:
            raise InputError(key, "is missing, and no layout was named", remedy)
        return named
    try:
        stored = layout_of(raw)
    except FormatError as error:
        if named is None:
            raise InputError(key, f"cannot be used ({error.detail or error.reason})", remedy) from error
        return named
    # LAYOUT never names scopes: that layout is a known one with a tree beside it.
    if named not in (None, stored, Layout.LONGLONGHIERARCHICAL):
        raise InputError(key, f"says {stored}, the store URI says {named}", "name the one that LAYOUT says")
    return stored


def close_catalog(out: DatasetWriter, summary: CaptureSummary, uri: str, prefix: str) -> None:
    """Write the row about the source, and the manifest."""
    kind = uri.partition(":")[0]
    source = {
        "kind": {"zk": "zookeeper"}.get(kind, kind),
        "uri": uri + prefix,
        **{
            name: getattr(summary, name)
            for name in ("instance_id", "layout", "txn", "since_txn", "at", "complete", "root")
        },
        "gaps": list(summary.gaps),
        "notes": list(summary.notes),
    }
    out.append("sources", pa.Table.from_pylist([source], schema=tables.CATALOG_SOURCES))
    out.close(coverage={**asdict(summary), "at": summary.at.isoformat()})
