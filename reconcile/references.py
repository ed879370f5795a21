"""`--references`: what an upper layer knows of its ledgers, from JSON lines, Parquet, or the records of Pulsar.

A file has, a line or a row a ledger:

    field       type    says
    ledger      int64   required
    scope       int64   0 if it is missing
    last_entry  int64   of a ledger that the layer closed
    length      int64   up to it
    deleted     bool    the layer deleted it, or meant to
    owner       text    whose it is; kept for anybody who reads the plan
    listed      time    when the listing began (ISO 8601, UTC): on a line of its own, without a ledger, or on any

A store, or a copy of one, has Pulsar's topics below ``/managed-ledgers`` and their schemas below ``/schemas``, beside
its ledgers root (or at it, where the URI names the former itself):

    record           ledger is            last entry, length     owner
    managed ledger   each that it lists   of those it closed     tenant/namespace/persistent/topic
    cursor           its own              not said               cursor of the topic
    schema           of each version      not said               schema of the topic

Beside them there may be streams of DistributedLog, which Pulsar keeps function packages and their state in, below
``/pulsar/functions``, ``/pulsar/packages`` and ``/stream/storage``: the ledger of each segment, and one that is made
and not used yet. Beside a ledgers root of Pravega, ``…/bookkeeper/ledgers``, there are the records of its containers'
logs, below ``…/segmentstore/containers``: each ledger that a log lists. A URI may name that node itself.

Where the store remembers what happened, a ledger that some record named once and none names now was deleted on purpose.

A ledger that stands several times is deleted if any line says so; of its last entries the greatest counts.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from backends.errors import AccessDeniedError
from backends.protocols import MetadataStore, PartialStore, ScannableStore
from backends.registry import OpenStore
from reconcile.clusters import InstanceSource, decode_named
from recovery.codecs import log_records, managed_ledger
from recovery.codecs.store import places
from recovery.dataset import sort_by_key
from recovery.errors import FormatError, InputError
from recovery.infer.references import SCHEMA
from recovery.model.ids import buckets, to_unsigned

TOPICS: Final = "/managed-ledgers"
SCHEMAS: Final = "/schemas"
COMPACTION: Final = "cursor __compaction of "
"""How the owner of the ledger begins that the subscription of a compaction keeps its state in; its topic follows."""
STREAMS: Final = ("/pulsar/functions", "/pulsar/packages", "/stream/storage")
"""Where DistributedLog's streams are, beside Pulsar's topics."""
_PRAVEGA: Final = "/segmentstore/containers"
"""Where Pravega's logs are, beside the folder above its ledgers root."""
_LEDGERS: Final = "/ledgers"
"""Where Pulsar's ledgers are, beside its topics."""
_DERIVED: Final = ("bucket", "deletion", "source", "tombstone")
_STATED: Final = "stated"
_COMPACTS: Final = "compacts"
_LISTED: Final = "listed"
_FIELDS = {field.name: field.type for field in SCHEMA if field.name not in _DERIVED}
_REMEDY = (
    "give JSON lines or Parquet with `ledger`, and `scope`, `last_entry`, `length`, `deleted`, `owner` where known"
)
_LISTINGS: Final = 16
"""Folders of a live store that are listed at the same time."""


@dataclass(frozen=True, slots=True, eq=False)
class References:
    """What upper layers know.

    Attributes:
        rows: `infer.references.SCHEMA`, sorted by key, each ledger once.
        unreadable: records that could not be read: source and path, and why.
        gaps: parts of a store that its copy lacks.
        stores: those that were read, and the cluster of each.
        names_all: what no row names is referred to by nobody; false: only deleted ledgers are named.
    """

    rows: pa.Table
    unreadable: tuple[tuple[str, str], ...] = ()
    gaps: tuple[str, ...] = ()
    stores: tuple[InstanceSource, ...] = ()
    names_all: bool = True

    @classmethod
    def unite(cls, parts: Sequence["References"]) -> "References | None":
        """Return all of several sources as one; None of none."""
        if not parts:
            return None
        return cls(
            _once(pa.concat_tables([part.rows for part in parts])),
            tuple(name for part in parts for name in part.unreadable),
            tuple(gap for part in parts for gap in part.gaps),
            tuple(store for part in parts for store in part.stores),
            any(part.names_all for part in parts),
        )


def read(path: Path) -> pa.Table:
    """Return the references of one file: `infer.references.SCHEMA`, sorted by key, each ledger once.

    Raises:
        InputError: it cannot be read, or a field is missing or of another type.
    """
    return read_listing(path)[0]


def read_listing(path: Path) -> tuple[pa.Table, int | None]:
    """Return the references of one file, as `read` does, and when it says that it was listed, ms since 1970.

    Raises:
        InputError: it cannot be read, or a field is missing or of another type.
    """
    try:
        with path.open("rb") as file:
            parquet = file.read(4) == b"PAR1"
        rows = pq.read_table(path) if parquet else _lines(path)
        rows.validate(full=True)  # texts may be none: neither reader looks
        given_names = rows.column_names
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror or error})", _REMEDY) from error
    except UnicodeDecodeError as error:
        raise InputError(str(path), "has a field whose name is not text", _REMEDY) from error
    except pa.ArrowException as error:
        raise InputError(
            str(path), f"is not what it should be ({str(error).splitlines()[0][:200]})", _REMEDY
        ) from error
    listed_ms = None
    if _LISTED in given_names:
        listed_ms = _read_time(path, rows[_LISTED])
        if "ledger" not in given_names:
            rows = pa.table({"ledger": pa.nulls(rows.num_rows, pa.int64()), _LISTED: rows[_LISTED]})
        rows = rows.filter(pc.or_(pc.is_valid(rows["ledger"]), pc.is_null(rows[_LISTED])))
        given_names = rows.column_names
    if "ledger" not in given_names:
        raise InputError(str(path), "has no field `ledger`", _REMEDY)
    columns = {}
    for name, kind in _FIELDS.items():
        given = rows[name] if name in given_names else pa.nulls(rows.num_rows, kind)
        try:
            columns[name] = pc.cast(given, kind)
        except pa.ArrowException as error:
            raise InputError(str(path), f"has a `{name}` that is no {kind}", _REMEDY) from error
    if columns["ledger"].null_count:
        raise InputError(str(path), "has a line without a `ledger`", _REMEDY)
    columns["scope"] = pc.fill_null(columns["scope"], 0)
    columns["deletion"] = pa.nulls(rows.num_rows, pa.string())
    columns["source"] = pa.array([str(path)] * rows.num_rows, pa.string())
    columns["tombstone"] = pa.nulls(rows.num_rows, pa.string())
    return _once(pa.table(columns)), listed_ms


def _read_time(path: Path, column: pa.ChunkedArray) -> int | None:
    """Return the earliest time of a column, ms since 1970."""
    times: list[datetime] = []
    for value in pc.drop_null(column).unique().to_pylist():
        try:
            time = datetime.fromisoformat(value) if isinstance(value, str) else value
            times.append(time if time.tzinfo else time.replace(tzinfo=UTC))
        except (ValueError, AttributeError) as error:
            problem = f"has a `{_LISTED}` that is not a time"
            raise InputError(str(path), problem, f'write {{"{_LISTED}": "2026-01-31T12:00:00Z"}}') from error
    return min((int(time.timestamp() * 1000) for time in times), default=None)


def _lines(path: Path) -> pa.Table:
    if not path.stat().st_size:
        return pa.table({"ledger": pa.array([], pa.int64())})
    return pj.read_json(path, parse_options=pj.ParseOptions(newlines_in_values=False))


def _once(rows: pa.Table) -> pa.Table:
    keys: Sequence[str] = ("scope", "ledger")
    stated = pc.and_(pc.fill_null(rows["deleted"], fill_value=False), pc.is_null(rows["deletion"]))
    rows = rows.append_column(_STATED, stated)
    # Whatever else names the ledger, that a broker may have the topic loaded must be known.
    compacts = pc.starts_with(rows["owner"], COMPACTION)
    rows = rows.append_column(_COMPACTS, pc.if_else(compacts, rows["owner"], pa.scalar(None, pa.string())))
    names = [name for name in (*_FIELDS, "deletion", "source", "tombstone", _STATED, _COMPACTS) if name not in keys]
    grouped = rows.group_by(list(keys)).aggregate([(name, "max") for name in names])
    rows = grouped.rename_columns([name.removesuffix("_max") for name in grouped.column_names])
    # What somebody says counts for more than what a history shows.
    deletion = pc.if_else(rows[_STATED], pa.scalar(None, pa.string()), rows["deletion"])
    rows = rows.set_column(rows.column_names.index("deletion"), "deletion", deletion)
    rows = rows.set_column(rows.column_names.index("owner"), "owner", pc.coalesce(rows[_COMPACTS], rows["owner"]))
    bucket = buckets(rows["scope"].to_numpy().astype(np.int64), rows["ledger"].to_numpy().astype(np.int64))
    rows = rows.append_column("bucket", pa.array(bucket)).select(SCHEMA.names).cast(SCHEMA)
    return sort_by_key(rows)


# Pulsar's records


@dataclass(frozen=True, slots=True)
class _Reference:
    """What one record says about a ledger of scope 0.

    Attributes:
        ledger: its id.
        owner: whose it is.
        last_entry: of a ledger that its owner closed; None: not said.
        length: up to it; None: not said.
        deletion: who deleted it, in words; None: nothing says that it was deleted.
    """

    ledger: int
    owner: str
    last_entry: int | None = None
    length: int | None = None
    deletion: str | None = None


def _make_table(references: Sequence[_Reference], source: str) -> pa.Table:
    """Return references as columns of `SCHEMA`, without the bucket, in their order."""
    count = len(references)
    columns = {
        name: pa.array([getattr(reference, name) for reference in references], SCHEMA.field(name).type)
        for name in _Reference.__slots__
    }
    deleted = pa.array([None if reference.deletion is None else True for reference in references], pa.bool_())
    scope, sources = pa.array(np.zeros(count, np.int64)), pa.array([source] * count, pa.string())
    return pa.table(
        {
            **columns,
            "deleted": deleted,
            "scope": scope,
            "source": sources,
            "tombstone": pa.nulls(count, pa.string()),
        }
    )


def name_compacted(pairs: Sequence[tuple[int, str]], uri: str) -> References:
    """Return ledgers of compacted topics as references: ids and topics, read from where no record of the store is."""
    rows = [_Reference(ledger, f"compacted topic of {topic}") for ledger, topic in pairs]
    return References(_once(_make_table(rows, uri)))


def of_store(opened: OpenStore) -> References:
    """Read the records of Pulsar that are beside a ledgers root.

    A record that cannot be read is named, and the others are read.

    Raises:
        InputError: there are none at all.
        UnavailableError: the store does not answer.
        CorruptStoreError: a copy of a store cannot be read to its end.
    """
    above = opened.root.rpartition("/")[0]
    logs = find_pravega(opened)
    if logs is not None:
        return _read_pravega(opened, logs)
    topics = _name_topics(opened)
    schemas = topics.removesuffix(TOPICS) + SCHEMAS
    if not has_topics(opened.store, topics):
        problem = f"has no {topics}: none of Pulsar's topics"
        raise InputError(opened.uri, problem, f"name where they are, e.g. zk://host:2181/chroot{TOPICS}")
    references, unreadable = list[_Reference](), list[tuple[str, str]]()
    for key, raw in _nodes(opened.store, topics):
        owner = key.removeprefix(topics).removeprefix("/")
        try:
            references += _yield_references(raw, owner)
        except FormatError as error:
            unreadable.append((f"{opened.uri} {key}", str(error)))
    for key, raw in _nodes(opened.store, schemas):
        try:
            topic = key.removeprefix(schemas).removeprefix("/")
            ledgers_of_schema = managed_ledger.decode_schema(raw) if raw else ()
            references += [_Reference(ledger, f"schema of {topic}") for ledger in ledgers_of_schema]
        except FormatError as error:
            unreadable.append((f"{opened.uri} {key}", str(error)))
    for top in STREAMS:
        for key, raw in _nodes(opened.store, topics.removesuffix(TOPICS) + top):
            try:
                references += _list_stream(key, raw)
            except FormatError as error:
                unreadable.append((f"{opened.uri} {key}", str(error)))
    gaps: tuple[str, ...] = ()
    if isinstance(opened.store, ScannableStore):
        named = frozenset(reference.ledger for reference in references)
        references += _find_gone_ledgers(opened.store, topics, named).values()
        gaps = opened.store.point().gaps
    ledgers = opened.root if topics != opened.root else f"{above}{_LEDGERS}"
    source = InstanceSource(f"references {opened.uri}", _cluster(opened.store, ledgers, opened.layout_hint))
    return References(_once(_make_table(references, opened.uri)), tuple(unreadable), gaps, (source,))


def list_uncopied(opened: OpenStore) -> list[str]:
    """Return the keys of Pulsar's records that name ledgers and are in no copy of chosen parts of a store."""
    topics, store = _name_topics(opened), opened.store
    if not isinstance(store, PartialStore) or find_pravega(opened) is not None:
        return []
    return [key for key in (topics, topics.removesuffix(TOPICS) + SCHEMAS) if not store.has_part(key)]


def _name_topics(opened: OpenStore) -> str:
    """Return the key that Pulsar's topics have: the root that was named, or beside it."""
    above, _, last = opened.root.rpartition("/")
    return opened.root if f"/{last}" == TOPICS else above + TOPICS


def _list_stream(key: str, raw: bytes) -> list[_Reference]:
    """Return the ledger that a node of DistributedLog names; none: the node is of another kind."""
    above, _, name = key.rpartition("/")
    if above.rpartition("/")[2] == log_records.SEGMENTS and raw:
        return [_Reference(log_records.decode_segment(raw), f"stream {above.rpartition('/')[0]}")]
    ledger = log_records.decode_allocation(raw) if name == log_records.ALLOCATION else None
    return [] if ledger is None else [_Reference(ledger, f"stream {above}, not used yet")]


def find_pravega(opened: OpenStore) -> str | None:
    """Return the key that Pravega's logs are below: the root that was named, or beside it; None: there are none."""
    named = opened.root.endswith(_PRAVEGA)
    key = opened.root if named else opened.root.rpartition("/")[0].rpartition("/")[0] + _PRAVEGA
    return key if named or opened.store.children(key) else None


def _read_pravega(opened: OpenStore, top: str) -> References:
    references, unreadable = list[_Reference](), list[tuple[str, str]]()
    for key, raw in _nodes(opened.store, top):
        try:
            owner = f"Pravega container {key.rpartition('/')[2]}"
            references += [_Reference(ledger, owner) for ledger in (log_records.decode_log(raw) if raw else ())]
        except FormatError as error:
            unreadable.append((f"{opened.uri} {key}", str(error)))
    gaps = opened.store.point().gaps if isinstance(opened.store, ScannableStore) else ()
    is_beside = top != opened.root
    cluster = _cluster(opened.store, opened.root, opened.layout_hint) if is_beside else None
    source = InstanceSource(f"references {opened.uri}", cluster)
    return References(_once(_make_table(references, opened.uri)), tuple(unreadable), gaps, (source,))


def has_topics(store: MetadataStore, key: str) -> bool:
    """Say whether a store has Pulsar's topics at a key; etcd has keys below it, and none there."""
    return store.get(key) is not None or store.children(key) is not None


def _cluster(store: MetadataStore, root: str, layout: str | None) -> str | None:
    try:
        node = store.get(root + places(layout).instance_id)
    except AccessDeniedError:
        return None
    return decode_named(node.value if node is not None else None)


def _yield_references(raw: bytes, owner: str) -> Iterator[_Reference]:
    """Yield the ledgers that one record names."""
    record = managed_ledger.decode(raw)
    if isinstance(record, managed_ledger.Cursor):
        topic, _, name = owner.rpartition("/")
        for ledger, use in record.ledgers:
            yield _Reference(ledger, f"{use} {name} of {topic}" if use == "cursor" else f"{use} {topic}")
        return
    for info in record.ledgers:
        deletion = "offloaded, and deleted from the bookies, as its topic says" if info.deleted else None
        yield _Reference(info.ledger, owner, info.last_entry, info.length, deletion)


def _find_gone_ledgers(store: ScannableStore, topics: str, named: frozenset[int]) -> Mapping[int, _Reference]:
    """Return the ledgers that some record named once and none names now."""
    gone: dict[int, _Reference] = {}
    for batch in store.history(topics):
        for change in batch.to_pylist():
            owner = change["key"].removeprefix(topics).removeprefix("/")
            ledgers_before, ledgers_after = _read_past(change["before"], owner), _read_past(change["after"], owner)
            if ledgers_before is None or ledgers_after is None:
                continue
            for ledger in ledgers_after:
                gone.pop(ledger, None)
            for ledger in ledgers_before.keys() - ledgers_after.keys() - named:
                gone[ledger] = replace(ledgers_before[ledger], deletion=_deletion(change))
    return gone


def _read_past(raw: bytes | None, owner: str) -> dict[int, _Reference] | None:
    """Return what a record of the past names; None where it cannot be read: what it hides was not let go of."""
    try:
        return {reference.ledger: reference for reference in _yield_references(raw or b"", owner)}
    except FormatError:
        return None


def _deletion(change: Mapping[str, Any]) -> str:
    when = "at an unknown time"
    if change["at_ms"] is not None:
        when = datetime.fromtimestamp(change["at_ms"] / 1000, UTC).isoformat(timespec="seconds")
    session = "" if change["session"] is None else f" by session {to_unsigned(change['session']):#x}"
    event = "its owner was deleted" if change["op"] == "deleted" else "its owner let go of it"
    return f"{event} in transaction {change['txn']} ({change['txn']:#x}), {when}{session}"


def _nodes(store: MetadataStore, top: str) -> Iterator[tuple[str, bytes]]:
    """Yield every key at and below one, with its value; nothing where it is absent."""
    if isinstance(store, ScannableStore):
        for batch in store.scan(top):
            yield from zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
        return
    level: Sequence[str] = [top]
    with ThreadPoolExecutor(_LISTINGS) as pool:
        while level:
            yield from _values(store, level)
            names = pool.map(store.children, level)
            level = [f"{key}/{name}" for key, below in zip(level, names, strict=True) for name in below or ()]


def _values(store: MetadataStore, keys: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    for key, versioned in store.get_many(keys):
        if versioned is not None:
            yield key, versioned.value
