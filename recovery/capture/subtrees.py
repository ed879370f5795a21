"""Subtrees beside a ledgers root, as upper layers keep them, into a catalog: every node that is of no session.

What Pulsar keeps, beside its ledgers root:

    subtree            what                                                     for --pulsar
    /admin             clusters, tenants, namespaces, partitioned topics        yes
    /bookies           racks of bookies                                         yes
    /counters          the numbers of producers' names                          yes
    /managed-ledgers   topics and their subscriptions                           yes
    /pulsar            packages and functions, as DistributedLog keeps them     yes
    /schemas           where the schemas of topics are                          yes
    /state-store       state of functions                                       yes
    /stream            BookKeeper's tables of functions' state                  yes
    /loadbalance       load reports, the leader; below settings and
                       resource-quota what an administrator set                 never, but for those two where named
    /namespace         who serves which bundle                                  never
    /service_unit_state  the same, of the extensible load manager               never

Source: Pulsar 4.0.7, org.apache.pulsar.PulsarClusterMetadataTeardown (the roots of a cluster), and the paths in
org.apache.pulsar.broker.resources and org.apache.pulsar.functions.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from backends.errors import AccessDeniedError, CorruptStoreError
from backends.protocols import MetadataStore, ScannableStore, Versioned, parse_acl
from recovery.capture.ledger_tree import LISTINGS_IN_FLIGHT
from recovery.capture.scan import make_nodes, times
from recovery.codecs.store import OWN_ROOT
from recovery.codecs.store_kind import StoreKind
from recovery.dataset import Dataset, DatasetWriter
from recovery.errors import InputError
from recovery.model import tables

TOPICS: Final = "/managed-ledgers"
COUNTERS: Final = "/counters"
PULSAR: Final = ("/admin", "/bookies", COUNTERS, TOPICS, "/pulsar", "/schemas", "/state-store", "/stream")
"""What Pulsar keeps for good, beside its ledgers root."""
KIND: Final = "subtree"
_TABLE: Final = "subtrees"
_MADE_ANEW: Final = ("/loadbalance", "/namespace", "/service_unit_state")
_KEPT_BELOW: Final = ("/loadbalance/settings", "/loadbalance/resource-quota")
_OF_ZOOKEEPER: Final = "/zookeeper"
_BATCH: Final = 4_096
"""Nodes of a live store that are read at a time."""
_HIDDEN: Final = ":x"
"""End of a digest's name as a server shows it to who may not change an ACL."""
_REMEDY: Final = "name a node of an upper layer, with all below it, e.g. /managed-ledgers"


@dataclass(frozen=True, slots=True)
class SubtreeChoice:
    """Which subtrees a person wants.

    Attributes:
        paths: keys of the store.
        pulsar: all that Pulsar keeps beside the ledgers root.
    """

    paths: tuple[str, ...] = ()
    pulsar: bool = False

    def __bool__(self) -> bool:
        """Whether any is wanted."""
        return bool(self.paths or self.pulsar)

    def resolve(self, root: str, kind: StoreKind, store: str) -> tuple[str, ...]:
        """Return the keys of the subtrees, none inside another, ascending.

        Args:
            root: key of the ledgers root.
            kind: of the store.
            store: its name, for people.

        Raises:
            InputError: the store keeps no subtrees, or one is named that is none, or not of an upper layer.
        """
        if self and not kind.has_pulsar:
            problem = f"is {kind.name}, which has no nodes of upper layers: Pulsar keeps other keys there"
            raise InputError(store, problem, "recover it without subtrees, or name a ZooKeeper or its files")
        above = root.rstrip("/").rpartition("/")[0]
        for path in self.paths:
            _require_subtree(path, root.rstrip("/"), above)
        wanted = sorted({*self.paths, *((above + name for name in PULSAR) if self.pulsar else ())})
        return tuple(path for path in wanted if not any(path.startswith(f"{other}/") for other in wanted))


NO_SUBTREES: Final = SubtreeChoice()


def _require_subtree(path: str, root: str, above: str) -> None:
    """Refuse what is not a subtree of an upper layer.

    Raises:
        InputError: it is none.
    """
    names = path.split("/")[1:]
    if not path.startswith("/") or any(name in ("", ".", "..") for name in names):
        raise InputError(path or "''", "is not a path of a node", _REMEDY)
    for other in (root, root + OWN_ROOT, _OF_ZOOKEEPER):
        if f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/"):
            raise InputError(path, f"holds {other}, or is inside it: that is of no upper layer", _REMEDY)
    below = path.removeprefix(above)
    is_kept = any(f"{below}/".startswith(f"{kept}/") for kept in _KEPT_BELOW)
    if not is_kept and any(f"{below}/".startswith(f"{name}/") for name in _MADE_ANEW):
        problem = (
            "holds load reports, leaders and who serves what: brokers make them again, and old ones mislead brokers"
        )
        raise InputError(path, problem, f"leave it out; of these only {' and '.join(_KEPT_BELOW)} are kept")


def list_captured(catalog: Dataset) -> tuple[str, ...]:
    """Return the subtrees that a catalog was asked for."""
    return tuple(catalog.manifest["binding"].get(_TABLE) or ())


def copy_subtrees(
    store: MetadataStore, subtrees: Sequence[str], out: DatasetWriter, add_gap: Callable[[str, str], None]
) -> None:
    """Write every node at and below some keys that is of no session; memory does not grow with their number.

    Args:
        store: only read.
        subtrees: keys; none inside another.
        out: a catalog.
        add_gap: is called with the key of what could not be read, and why.

    Raises:
        UnavailableError: the store stopped answering.
    """
    if isinstance(store, ScannableStore):
        for top in subtrees:
            _copy_scanned(store, top, out, add_gap)
        return
    if subtrees:
        with ThreadPoolExecutor(LISTINGS_IN_FLIGHT, thread_name_prefix="subtrees") as pool:
            for nodes in _walk(store, subtrees, pool, add_gap):
                out.append(_TABLE, _make_table(nodes))


def _copy_scanned(store: ScannableStore, top: str, out: DatasetWriter, add_gap: Callable[[str, str], None]) -> None:
    try:
        for batch in store.scan(top):
            out.append(_TABLE, make_nodes(batch.filter(pc.equal(batch["owner"], 0)), KIND))
    except CorruptStoreError as error:
        add_gap(top, str(error))


Node = tuple[str, Versioned]


def _walk(
    store: MetadataStore, subtrees: Iterable[str], pool: ThreadPoolExecutor, add_gap: Callable[[str, str], None]
) -> Iterator[list[Node]]:
    """Yield the nodes of a live store, batch by batch."""

    def read(key: str) -> tuple[Versioned | None, list[str]] | AccessDeniedError:
        try:
            node = store.get(key)
            # A node of a session has none below it.
            return node, [] if node is None or node.owner else store.children(key) or []
        except AccessDeniedError as error:
            return error

    waiting = list(subtrees)
    while waiting:
        keys = [waiting.pop() for _ in range(min(_BATCH, len(waiting)))]
        nodes: list[Node] = []
        for key, answer in zip(keys, pool.map(read, keys), strict=True):
            if isinstance(answer, AccessDeniedError):
                add_gap(key, "access denied, not read")
                continue
            node, names = answer
            waiting += [f"{key}/{name}" for name in names]
            if node is not None and not node.owner:
                nodes.append((key, node))
        if nodes:
            yield nodes


def _make_table(nodes: Sequence[Node]) -> pa.Table:
    """Return nodes of a live store as CATALOG_NODES; without an ACL that the server does not show whole."""
    found = [node for _, node in nodes]
    acls = [None if node.acl is None or _is_hidden(node.acl) else node.acl for node in found]
    columns = {
        "path": pa.array([key for key, _ in nodes], pa.string()),
        "kind": pa.array([KIND] * len(nodes), pa.string()),
        "raw": pa.array([node.value for node in found], pa.binary()),
        "version": pa.array([node.version for node in found], pa.int64()),
        "acl": pa.array(acls, pa.string()),
        **{
            name: pa.array([getattr(node, name) for node in found], pa.int64())
            for name in ("created_txn", "changed_txn", "children_created")
        },
        "created_at": times(pa.array([node.created_ms for node in found], pa.int64())),
        "changed_at": times(pa.array([node.changed_ms for node in found], pa.int64())),
        "owner": pa.nulls(len(nodes), pa.int64()),
    }
    return pa.table({name: columns[name] for name in tables.CATALOG_NODES.names}, schema=tables.CATALOG_NODES)


def _is_hidden(acl: str) -> bool:
    return any(entry.scheme == "digest" and entry.name.endswith(_HIDDEN) for entry in parse_acl(acl))
