"""Records of Pulsar's topics: which ledgers they named, and the nodes that come back with the ledgers of a topic.

    node                                        comes back
    TOPICS/tenant/namespace/persistent/topic    as it was before its own delete, else as the newest copy has it
    a subscription below it                     with it: deleted by the same session in the ten minutes before it
    /admin/partitioned-topics/…/topic           as it was before its own delete
    /schemas/tenant/namespace/topic             with it: deleted in the ten minutes around it, with its ledgers
    policies of its tenant and its namespace    as they were last, where the store lacks them
    the nodes above these                       empty, where the store lacks them

A topic is deleted with all its subscriptions, each before it; a subscription that went long before it stays deleted. A
node that the store has with other bytes is left as it is, and can be replaced by an edit of the plan.

A schema is of a topic with all its partitions. Policies that were set for a topic alone are messages of another topic
of its namespace: they come back as ledgers of that.

Source: apache/pulsar 4.0.7, ManagedLedgerImpl.asyncDelete, PersistentTopic.delete, AbstractTopic.deleteSchema; names:
TopicName; policies: NamespaceResources, LocalPoliciesResources, TenantResources.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from backends.errors import CorruptStoreError
from backends.protocols import MetadataStore, Versioned
from reconcile.jobs.undelete.history import DELETED, OpenHistory, TopicMatch
from reconcile.plan.actions import LEAVE, find_places, make_subtree_actions
from reconcile.references import SCHEMAS
from recovery.capture.subtrees import TOPICS
from recovery.codecs import managed_ledger
from recovery.codecs.managed_ledger import ManagedLedger, fits_name
from recovery.codecs.store_kind import kind_of
from recovery.errors import FormatError, InputError

_PARTITIONED: Final = "/admin/partitioned-topics"
_SCHEMAS: Final = SCHEMAS
_POLICIES: Final = ("/admin/policies", "/admin/local-policies")
_TOPS: Final = (TOPICS, _PARTITIONED, _SCHEMAS, *_POLICIES)
_OF_NAMESPACE: Final = 2
"""Names of a namespace: tenant, namespace."""
_PARTITION: Final = re.compile(r"-partition-\d+$")
_DEPTH: Final = 4
"""Names of a topic: tenant, namespace, persistent, topic."""
_DOMAIN: Final = "persistent"
_SCHEME: Final = f"{_DOMAIN}://"
_SHORT: Final = 3
_TOGETHER_MS: Final = 600_000
"""A subscription that was deleted so long before its topic was deleted with it; so was a schema, and so long after."""


def parse_pattern(text: str) -> str:
    """Return the pattern of a managed ledger's name that a pattern of a topic's means.

    Args:
        text: persistent://tenant/namespace/topic, or without the scheme, or as the nodes are named; with * and ?.

    Raises:
        InputError: it is none.
    """
    names = text.removeprefix(_SCHEME).split("/")
    if len(names) == _SHORT:
        names.insert(2, _DOMAIN)
    if len(names) != _DEPTH or not all(names) or names[2] != _DOMAIN:
        raise InputError(f"the topic {text!r}", "is not a topic's name", "write persistent://tenant/namespace/topic")
    return "/".join(names)


def make_match(pattern: str) -> TopicMatch:
    """Return what tells whether a topic's name fits a pattern, as it is written or as nodes have it."""

    def decide(name: str) -> bool:
        return fits_name(name, pattern) or fits_name(name_whole(name), pattern)

    return TopicMatch(decide)


def name_whole(name: str) -> str:
    """Return the name of the topic that a partition is of; of any other topic its own."""
    return _PARTITION.sub("", name)


def name_schema(name: str) -> str:
    """Return the owner of the ledgers of a schema, beside those of topics.

    Args:
        name: of the schema: tenant/namespace/topic.
    """
    return f"schema of {name}"


def is_schema(owner: str) -> bool:
    """Say whether an owner of ledgers is a schema."""
    return owner.startswith(name_schema(""))


def list_names(owners: Iterable[str]) -> Iterator[str]:
    """Yield the topics of some owners of ledgers: with each partition its topic, with each schema its topic."""
    for owner in owners:
        if is_schema(owner):
            names = owner.removeprefix(name_schema("")).split("/")
            yield "/".join([*names[:-1], _DOMAIN, names[-1]])
        else:
            yield from (owner, name_whole(owner))


@dataclass(frozen=True, slots=True)
class _Deleted:
    """How a node was deleted."""

    txn: int
    at_ms: int | None
    session: int | None


@dataclass(frozen=True, slots=True)
class EarlierNode:
    """A node as history has it.

    Attributes:
        value: its last bytes that are known.
        txn: the transaction that they are known by.
        deleted: how it was deleted; None: it stood where it was last seen.
    """

    value: bytes
    txn: int
    deleted: _Deleted | None = None


@dataclass(frozen=True, slots=True)
class EarlierNodes:
    """Nodes of topics in history.

    Attributes:
        nodes: by their names below the root above all: `TOPICS`/tenant/…, the newest of each.
        named: every ledger that a record of them ever named.
        source: the newest that has any; empty: none has.
    """

    nodes: Mapping[str, EarlierNode]
    named: frozenset[int]
    source: str = ""


def _above(root: str) -> str:
    return root.rpartition("/")[0]


def list_named(value: bytes | None) -> tuple[int, ...]:
    """Return the ledgers that a record of a topic or a subscription names; of one that cannot be read none."""
    if not value:
        return ()
    try:
        record = managed_ledger.decode(value)
    except FormatError:
        return ()
    if isinstance(record, ManagedLedger):
        return tuple(listed.ledger for listed in record.ledgers if not listed.deleted)
    return tuple(ledger for ledger, _ in record.ledgers)


def read_nodes(sources: Sequence[OpenHistory], match: TopicMatch) -> EarlierNodes:
    """Read the nodes of the topics that are meant, as histories and copies have them.

    Raises:
        UnavailableError: a source stopped answering.
    """
    nodes: dict[str, EarlierNode] = {}
    named: set[int] = set()
    newest, name = -1, ""
    for source in sources:
        if not kind_of(source.layout).has_pulsar:
            continue
        for path, node in _read_source(source, match):
            named.update(_list_ledgers(path, node.value))
            if path not in nodes or node.txn >= nodes[path].txn:
                nodes[path] = node
            if node.txn > newest:
                newest, name = node.txn, source.uri
    return EarlierNodes(nodes, frozenset(named), name)


def _read_source(source: OpenHistory, match: TopicMatch) -> Iterator[tuple[str, EarlierNode]]:
    """Yield each version of each node that a source knows; the transaction of a copy is its point's."""
    above = _above(source.root)
    for top in _TOPS:
        try:
            for batch in source.store.history(above + top):
                meant = [_is_meant(key, above, top, match) for key in batch["key"].to_pylist()]
                for row in batch.filter(pa.array(meant, pa.bool_())).to_pylist():
                    path, value = row["key"].removeprefix(above), row["before"]
                    if row["op"] == DELETED:
                        how = _Deleted(row["txn"], row["at_ms"], row["session"])
                        yield path, EarlierNode(value or b"", row["txn"], how)
                        continue
                    if value:
                        yield path, EarlierNode(value, row["txn"] - 1)
                    yield path, EarlierNode(row["after"] or b"", row["txn"])
            for batch in () if source.is_target else source.store.scan(above + top):
                meant = [_is_meant(key, above, top, match) for key in batch["key"].to_pylist()]
                for row in batch.filter(pa.array(meant, pa.bool_())).to_pylist():
                    yield row["key"].removeprefix(above), EarlierNode(row["value"], source.point.txn or 0)
        except CorruptStoreError:
            continue  # the source's gaps say so


def _is_meant(key: str, above: str, top: str, match: TopicMatch) -> bool:
    names = key.removeprefix(above + top).split("/")[1:]
    if top in _POLICIES:
        # Of which namespaces they are wanted is known when all topics are.
        return 1 <= len(names) <= _OF_NAMESPACE
    if top == _SCHEMAS:
        return len(names) == _SHORT and match("/".join([*names[:_OF_NAMESPACE], _DOMAIN, names[-1]]))
    return len(names) >= _DEPTH and match("/".join(names[:_DEPTH]))


def _list_ledgers(path: str, value: bytes | None) -> tuple[int, ...]:
    """Return the ledgers that a node of history names; of one that cannot be read, or is no such node, none."""
    if path.startswith(f"{TOPICS}/"):
        return list_named(value)
    if not path.startswith(f"{_SCHEMAS}/") or not value:
        return ()
    try:
        return managed_ledger.decode_schema(value)
    except FormatError:
        return ()


def _name_owner(path: str) -> str:
    """Return the topic, or the schema, whose ledgers a node names; empty: it names none."""
    names = path.split("/")[2:]
    if path.startswith(f"{TOPICS}/"):
        return "/".join(names[:_DEPTH])
    return name_schema("/".join(names)) if path.startswith(f"{_SCHEMAS}/") else ""


@dataclass(frozen=True, slots=True, eq=False)
class NodeWrites:
    """What a plan makes of topics' nodes.

    Attributes:
        actions: ACTIONS, in their order.
        created, differing: how many of them create a node, and how many leave one with other bytes.
        named: topic → the ledgers that its nodes name, after the plan.
        named_before: topic → the ledgers that its nodes name in the store, or named last in history.
        brought: ledgers that nodes which come back name.
        top: path of the node above all topics.
    """

    actions: pa.Table
    created: int
    differing: int
    named: Mapping[str, frozenset[int]]
    named_before: Mapping[str, frozenset[int]]
    brought: frozenset[int]
    top: str


def write_nodes(store: MetadataStore, root: str, earlier: EarlierNodes, topics: Iterable[str]) -> NodeWrites:
    """Return the writes that bring the nodes of topics back, as far as the store lacks them.

    Args:
        store: that lost them.
        root: key of its ledgers root.
        earlier: the nodes in history.
        topics: whose nodes are wanted, and of whose records it is asked which ledgers they name.

    Raises:
        UnavailableError: the store does not answer.
    """
    above = _above(root)
    names = {*topics, *_list_topics(earlier.nodes)}
    wanted = dict.fromkeys(f"{TOPICS}/{name}" for name in sorted(names) if not is_schema(name))
    namespaces = {"/".join(name.split("/")[:_OF_NAMESPACE]) for name in names}
    known = {
        path: node
        for path, node in earlier.nodes.items()
        if _is_of_namespaces(path, namespaces) and _is_of_its_topic(path, node, earlier.nodes)
    }
    paths = sorted({*wanted, *known})
    now = {key.removeprefix(above): node for key, node in store.get_many([above + path for path in paths])}
    rows: list[tuple[str, str, bytes, int | None, bytes | None]] = []
    named: dict[str, set[int]] = {}
    named_before: dict[str, set[int]] = {}
    brought: set[int] = set()
    for path in paths:
        stored, node = now.get(path), known.get(path)
        topic = _name_owner(path)
        if stored is None and node is not None:
            rows.append(("create", above + path, node.value, None, None))
            brought.update(_list_ledgers(path, node.value))
        elif path.startswith(_POLICIES):
            continue  # What was changed since is not older policies' to undo.
        elif stored is not None and node is not None and node.deleted is not None and stored.value != node.value:
            rows.append((LEAVE, above + path, node.value, stored.version, stored.value))
        kept = node.value if stored is None and node is not None else None if stored is None else stored.value
        if topic and kept is not None:
            named.setdefault(topic, set()).update(_list_ledgers(path, kept))
        for value in (kept, None if node is None else node.value):
            if topic and value is not None:
                named_before.setdefault(topic, set()).update(_list_ledgers(path, value))
    made = {path for op, path, *_ in rows if op == "create"}
    lacking = _find_lacking_above(store, made)
    rows += [("create", path, b"", None, None) for path in lacking]
    return NodeWrites(
        _make_actions(rows),
        len(made) + len(lacking),
        sum(op == LEAVE for op, *_ in rows),
        {topic: frozenset(ids) for topic, ids in named.items()},
        {topic: frozenset(ids) for topic, ids in named_before.items()},
        frozenset(brought),
        above + TOPICS,
    )


def _list_topics(paths: Collection[str]) -> set[str]:
    return {"/".join(path.split("/")[2 : _DEPTH + 2]) for path in paths if path.startswith(f"{TOPICS}/")}


def _is_of_its_topic(path: str, node: EarlierNode, nodes: Mapping[str, EarlierNode]) -> bool:
    """Say whether a node comes back with its topic: the topic itself, or what was deleted together with it."""
    if path.startswith(f"{_SCHEMAS}/"):
        return node.deleted is None or _is_deleted_with_topic(path, node.deleted, nodes)
    names = path.removeprefix(TOPICS).split("/")[1:]
    if not path.startswith(f"{TOPICS}/") or len(names) <= _DEPTH:
        return True
    topic = nodes.get("/".join([TOPICS, *names[:_DEPTH]]))
    if topic is None or topic.deleted is None or node.deleted is None:
        return node.deleted is None
    if node.deleted.session != topic.deleted.session or node.deleted.txn > topic.deleted.txn:
        return False
    times = node.deleted.at_ms, topic.deleted.at_ms
    return times[0] is None or times[1] is None or times[1] - times[0] <= _TOGETHER_MS


def _is_deleted_with_topic(path: str, deleted: _Deleted, nodes: Mapping[str, EarlierNode]) -> bool:
    """Say whether a schema was deleted about when its topic was, or a partition of it, by whatever broker."""
    names = path.split("/")[2:]
    topic = "/".join([TOPICS, *names[:_OF_NAMESPACE], _DOMAIN, names[-1]])
    ends = [node.deleted for other, node in nodes.items() if name_whole(other) == topic and node.deleted is not None]
    times = [end.at_ms for end in ends if end.at_ms is not None]
    if deleted.at_ms is None or not times:
        return bool(ends)
    return any(abs(deleted.at_ms - at_ms) <= _TOGETHER_MS for at_ms in times)


def _is_of_namespaces(path: str, namespaces: Collection[str]) -> bool:
    """Say whether a node is none of policies, or of policies of some namespaces or of their tenants."""
    for top in _POLICIES:
        if path.startswith(f"{top}/"):
            name = path.removeprefix(f"{top}/")
            return any(f"{namespace}/".startswith(f"{name}/") for namespace in namespaces)
    return True


def _find_lacking_above(store: MetadataStore, created: Collection[str]) -> list[str]:
    """Return the ancestors of some nodes that the store lacks, too."""
    wanted = {path for key in created for path in _list_above(key)} - set(created)
    nodes: dict[str, Versioned | None] = dict(store.get_many(sorted(wanted)))
    return [path for path, node in sorted(nodes.items()) if node is None]


def _list_above(key: str) -> Iterator[str]:
    parts = key.split("/")[1:-1]
    yield from ("/" + "/".join(parts[: number + 1]) for number in range(len(parts)))


def _make_actions(rows: Sequence[tuple[str, str, bytes, int | None, bytes | None]]) -> pa.Table:
    kinds = {
        "op": pa.string(),
        "path": pa.string(),
        "value": pa.binary(),
        "expects": pa.int64(),
        "before": pa.binary(),
    }
    columns = list(zip(*rows, strict=True)) or [()] * len(kinds)
    made = {name: pa.array(column, kind) for (name, kind), column in zip(kinds.items(), columns, strict=True)}
    places = pa.array(find_places(made["path"]), pa.int16())
    table = pa.table({"bucket": places, **made, "acl": pa.nulls(len(rows), pa.string())})
    return make_subtree_actions(table.sort_by([("bucket", "ascending"), ("path", "ascending")]))
