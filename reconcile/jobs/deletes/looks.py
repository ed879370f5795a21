"""Bookies looked at for deletes: inventories that are there, or running bookies asked about some ledgers only."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import pyarrow as pa

from backends.registry import OpenStore
from reconcile.clusters import InstanceSource, of_bookies, require_one
from reconcile.deletes.own_root import read_instance_id
from reconcile.jobs.context import Context, WireOptions
from recovery.bookies.addresses import read_members
from recovery.bookies.wire_inventory import WireRequest, collect_wire
from recovery.bookies.wire_results import AskedKind
from recovery.codecs.ledger_metadata import decode_columns
from recovery.codecs.store import Layout
from recovery.dataset import Dataset, DatasetWriter, open_dataset
from recovery.model import tables
from recovery.model.ids import LedgerId, buckets

_INVENTORY: Final = "inventory"


@dataclass(frozen=True, slots=True)
class Looks:
    """How bookies are looked at.

    Attributes:
        inventories: folders of inventories.
        wire: how running bookies are asked; None: they are not.
        scratch: folder for what is collected; None: the system's.
        aliases: other names of bookies.
    """

    inventories: tuple[str, ...] = ()
    wire: WireOptions | None = None
    scratch: Path | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)

    @property
    def are_asked(self) -> bool:
        """Whether any look is taken."""
        return bool(self.inventories) or self.wire is not None


@contextmanager
def gather_inventories(
    looks: Looks,
    opened: OpenStore,
    layout: Layout,
    records: Mapping[LedgerId, bytes],
    context: Context,
    txn: int | None = None,
) -> Iterator[list[Dataset]]:
    """Give the inventories to go by; those of bookies that are asked know these ledgers only, and go afterwards.

    Args:
        looks: which.
        opened: the store, which knows the bookies.
        layout: of its ledgers.
        records: of the ledgers that running bookies are asked about; bytes of their metadata.
        context: of the job.
        txn: the store's last transaction before bookies are asked; None: it is not known.

    Raises:
        DatasetError: an inventory is missing or damaged.
        InputError: a bookie that nobody knows, or an inventory of another cluster's.
        UnavailableError: the store does not answer.
    """
    given = [open_dataset(path, _INVENTORY) for path in looks.inventories]
    own = InstanceSource(f"the store {opened.uri}", read_instance_id(opened.store, opened.root) or None)
    # A bookie of the same name in another cluster has other ledgers under the same ids, and lacks ours.
    for inventory in given:
        require_one([own, *of_bookies(inventory.read("bookies", columns=["bookie", "instance_id"]))])
    if looks.wire is None:
        yield given
        return
    with TemporaryDirectory(prefix="bkmeta-looks-", dir=looks.scratch) as folder:
        asked = _write_asked(Path(folder) / "asked", opened, layout, records, context, txn)
        members = read_members(opened.store, opened.root, opened.layout_hint, looks.aliases)
        request = WireRequest(catalog=asked, members=members, wanted=None, options=looks.wire.options)
        with context.reporter.progress("asking bookies", "parts"):
            summary = collect_wire(
                request, Path(folder) / "wire", lambda task, ranges: [task(item) for item in ranges], now=context.now
            )
        collected = [
            open_dataset(item.folder, _INVENTORY) for item in summary.bookies if item.kind is AskedKind.COLLECTED
        ]
        yield [*given, *collected]


def _write_asked(
    folder: Path,
    opened: OpenStore,
    layout: Layout,
    records: Mapping[LedgerId, bytes],
    context: Context,
    txn: int | None,
) -> Dataset:
    """Write a catalog that lists some ledgers: what bookies are asked about."""
    ids = np.array([(item.scope, item.ledger) for item in records], np.int64).reshape(-1, 2)
    scope, ledger = np.ascontiguousarray(ids[:, 0]), np.ascontiguousarray(ids[:, 1])
    raws = pa.array(list(records.values()), pa.binary())
    parsed = decode_columns(raws)
    columns = {
        "bucket": pa.array(buckets(scope, ledger)),
        "scope": pa.array(scope),
        "ledger": pa.array(ledger),
        "raw": raws,
        "version": pa.array(np.zeros(len(ids), np.int64)),
        **{name: parsed[name] for name in parsed.schema.names},
    }
    schema = tables.CATALOG_LEDGERS
    missing = {f.name: pa.nulls(len(ids), f.type) for f in schema if f.name not in columns}
    instance_id = read_instance_id(opened.store, opened.root)
    source = {
        "kind": "tombstones",
        "uri": opened.uri,
        "instance_id": instance_id or None,
        "layout": str(layout),
        "at": context.now(),
        "txn": txn,
        "complete": False,
        "root": "present",
        "gaps": ["only the ledgers that are asked about"],
    }
    with DatasetWriter(folder, "catalog", binding={"root": opened.root}, secret=True) as writer:
        writer.append("ledgers", pa.table({**columns, **missing}).select(schema.names).cast(schema))
        writer.append("sources", pa.Table.from_pylist([source], schema=tables.CATALOG_SOURCES))
        writer.close(coverage={})
    return open_dataset(folder, "catalog")
