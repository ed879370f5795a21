"""Ledgers that tombstones name, as references that say "deleted": a recovery never restores what was purged."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from backends.registry import OpenStore
from reconcile.clusters import InstanceSource
from reconcile.deletes.own_root import name_own_root, read_tombstones
from reconcile.deletes.packed import PackedRecords
from reconcile.deletes.records import decode_root_mark
from reconcile.deletes.tombstones import REMOVED, DeleteState, Tombstone
from reconcile.jobs.context import Context, connect
from reconcile.references import References
from recovery.dataset import sort_by_key
from recovery.errors import FormatError, InputError, Reason
from recovery.infer.references import SCHEMA
from recovery.model.ids import LedgerId, buckets


def read_deleted(uris: Sequence[str], context: Context) -> list[References]:
    """Return the ledgers that the tombstones of stores say were purged, and of which cluster these are.

    Args:
        uris: stores, or copies of them, that must have tombstones.
        context: of the job.

    Raises:
        InputError: one has no tombstones, or some that cannot be read.
        UnavailableError: a store does not answer.
        UnsupportedStoreError: a URI that is malformed, or of a store that is not read.
    """
    parts = []
    remedy = "name the store, or a copy of it, that bkmeta deleted in"
    for uri in dict.fromkeys(uris):
        with connect(uri, context) as opened:
            deleted = _read(opened)
        if deleted is None:
            raise InputError(uri, "has no tombstones", remedy)
        if deleted.unreadable:
            where, why = deleted.unreadable[0]
            raise InputError(where, f"has tombstones that cannot be read ({why})", remedy)
        parts.append(deleted)
    return parts


def find_deleted(opened: OpenStore, instances: Collection[str]) -> list[References]:
    """Return the ledgers that tombstones beside a store's ledgers say were purged, and nodes that cannot be read.

    What another program made at our own root's key is passed over; tombstones of another cluster, which was there
    before, are not believed, and said.

    Args:
        opened: a store, or a copy of one.
        instances: ids of the cluster whose ledgers are looked at; empty: nothing names one.

    Raises:
        UnavailableError: the store does not answer.
    """
    deleted = _read(opened, instances)
    # Whose they are was compared already.
    is_empty = deleted is None or not (deleted.rows.num_rows or deleted.unreadable)
    return [] if deleted is None or is_empty else [replace(deleted, stores=())]


def find_one_deleted(opened: OpenStore, instances: Collection[str], ledger: LedgerId) -> list[References]:
    """Return what `find_deleted` says about one ledger; nothing else is read.

    Raises:
        InputError: its tombstone, or whether there is one, cannot be read.
        UnavailableError: the store does not answer.
    """
    doubts: list[tuple[str, str]] = []
    nodes = _find_nodes(opened, instances, lambda key, why: doubts.append((key, why)))
    if nodes is None:
        return []
    try:
        tombstone = nodes.read_some([ledger]).get(ledger)
    except FormatError as error:
        problem = f"has tombstones that cannot be read ({error})"
        raise InputError(opened.uri, problem, "name a copy of the store that was made before") from error
    if tombstone is None or tombstone.state not in REMOVED:
        return []
    return [_make_references([tombstone], opened.uri)]


def _read(opened: OpenStore, instances: Collection[str] = ()) -> References | None:
    """Return the ledgers whose records were removed, and nodes that cannot be read; None: there is no root of ours."""
    damaged: list[tuple[str, str]] = []
    nodes = read_removed(opened, instances, lambda node, why: damaged.append((f"{opened.uri} {node}", why)))
    if nodes is None:
        return None
    parts = [_make_references(node, opened.uri).rows for node in nodes]
    deleted = References(sort_by_key(pa.concat_tables([SCHEMA.empty_table(), *parts])), names_all=False)
    source = InstanceSource(f"the tombstones of {opened.uri}", _read_cluster(opened))
    return replace(deleted, unreadable=tuple(damaged), stores=(source,))


def _read_cluster(opened: OpenStore) -> str | None:
    """Return the instance id of the cluster that our own root was made for; the store's may be another one by now."""
    stored = opened.store.get(name_own_root(opened.root))
    try:
        return None if stored is None else decode_root_mark(stored.value).instance_id or None
    except FormatError:
        return None


def read_removed(
    opened: OpenStore, instances: Collection[str], report: Callable[[str, str], None]
) -> Iterator[list[Tombstone]] | None:
    """Yield, node by node, the tombstones of ledgers whose records were removed; None: there is no root of ours.

    Args:
        opened: a store, or a copy of one. Its own instance id is not compared: after a loss it may be another, or none.
        instances: ids of the cluster whose ledgers are looked at; empty: nothing names one. Tombstones of another are
            left out: they name ledgers of the same ids.
        report: is told the key of a node that is left out, and why.

    Raises:
        UnavailableError: the store does not answer.
    """
    messages: list[str] = []

    def tell(key: str, why: str) -> None:
        messages.append(key)
        report(key, why)

    packed = _find_nodes(opened, instances, tell)
    if packed is None:
        return iter(()) if messages else None
    nodes = packed.read_all(lambda node, error: report(node, str(error)))
    return ([tombstone for tombstone in node if tombstone.state in REMOVED] for node in nodes)


def _find_nodes(
    opened: OpenStore, instances: Collection[str], report: Callable[[str, str], None]
) -> PackedRecords[Tombstone] | None:
    """Return the nodes of tombstones; None: there is no root of ours, or it is left out, which is told."""
    key = name_own_root(opened.root) if opened.root.rstrip("/") else ""
    stored = opened.store.get(key) if key else None
    if stored is None:
        return None
    try:
        mark = decode_root_mark(stored.value)
    except FormatError as error:
        if error.reason is not Reason.BAD_VERSION:
            return None
        # A later version's mark is ours, and what it stands for must not be passed over.
        report(key, str(error))
        return None
    if instances and mark.instance_id and mark.instance_id not in instances:
        ids = " and ".join(sorted(instances))
        report(key, f"the tombstones are of cluster instance {mark.instance_id}, the ledgers of {ids}")
        return None
    return read_tombstones(opened.store, key)


def _make_references(tombstones: Sequence[Tombstone], uri: str) -> References:
    scope = np.array([tombstone.ledger.scope for tombstone in tombstones], np.int64)
    ledger = np.array([tombstone.ledger.ledger for tombstone in tombstones], np.int64)
    count = len(tombstones)
    columns = {
        "bucket": pa.array(buckets(scope, ledger)),
        "scope": pa.array(scope),
        "ledger": pa.array(ledger),
        "last_entry": pa.nulls(count, pa.int64()),
        "length": pa.nulls(count, pa.int64()),
        "deleted": pa.array(np.ones(count, np.bool_)),
        "owner": pa.nulls(count, pa.string()),
        # A tombstone is a word of somebody who meant it: nothing that history only shows, and no breaker holds it.
        "deletion": pa.nulls(count, pa.string()),
        "source": pa.array([uri] * count, pa.string()),
        "tombstone": pa.array([_describe(tombstone) for tombstone in tombstones], pa.string()),
    }
    rows = sort_by_key(pa.table(columns).select(SCHEMA.names).cast(SCHEMA))
    return References(rows, names_all=False)


def _describe(tombstone: Tombstone) -> str:
    step = next(step for step in reversed(tombstone.steps) if step.state is DeleteState.PURGED)
    when = datetime.fromtimestamp(step.at_ms / 1000, UTC).isoformat(timespec="seconds")
    why = f" ({tombstone.reason})" if tombstone.reason else ""
    return f"purged {when} by {step.by}{why}"
