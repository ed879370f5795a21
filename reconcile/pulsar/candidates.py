"""Ledgers that came after the snapshot of Pulsar's nodes: whose each may be, and what says so.

Of each ledger on bookies that came after the snapshot, and that no topic, subscription or schema there names; and of
one that the snapshot has a record of, where a broker was about to append it to a topic. What the snapshot has no record
of, though its id was given before or its history has it, was deleted before, and is none:

    evidence    says it
    record      the ledger's own record, wherever one stands that is newer: in the store, in another snapshot, in what
                either remembers of its history: brokers write the topic's name into the record's custom metadata
    entry       its one entry is a version of a schema, which names its topic; only where payload is read
    producers   its entries are of producers that wrote to the topic's last ledger before it; only where payload is read
    order       ids are given in their order: a topic appends only ledgers above its last one, none once it was ended;
                and, where payload is read, its last one gets no message after that
    none        nothing

Of records all are listed; of the order each topic, where these are few.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.compare.evidence import Catalog
from reconcile.plan.views.candidates import OwnerEvidence, count_best, sum_counts
from reconcile.pulsar.cursors import read_ends
from reconcile.pulsar.earlier_topics import NO_TIMES, MessageTimes, find_earlier
from reconcile.pulsar.topic_records import TopicRecords, find_listed
from reconcile.topics import SCHEMA, TOPIC, name_use
from recovery.capture.subtrees import TOPICS
from recovery.codecs import ledger_metadata
from recovery.dataset import Dataset, read_part, sort_by_key, write_part
from recovery.manifest import Part
from recovery.model import tables
from recovery.place import DatasetPlace

if TYPE_CHECKING:
    from reconcile.pulsar.producers import ReadHeads

_GONE: Final = "deleted"
_OTHER: Final = "other"
_NO_MESSAGES: Final = "its first and last entry are no messages of Pulsar"
_TOGETHER: Final = 1 << 14
"""Topics that are gone through at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class Sources:
    """What candidates are searched for in.

    Attributes:
        snapshot: that the nodes are taken from.
        catalogs: the store and the snapshots, the newest first.
        issued: id below which the snapshot knew every ledger that was not deleted.
        records: what the nodes say.
        out: the plan's folder.
        live: catalog of the store.
        read_heads: reads what entries have of Pulsar; None: no entries are read.
    """

    snapshot: Catalog
    catalogs: Sequence[Catalog]
    issued: int
    records: TopicRecords
    out: DatasetPlace
    live: Dataset | None = None
    read_heads: "ReadHeads | None" = None


@dataclass(frozen=True, slots=True)
class Candidates:
    """What was written.

    Attributes:
        parts: of CANDIDATES, in their order.
        counts: ledgers by the best that is known of each; `ledgers`: all.
    """

    parts: tuple[Part, ...]
    counts: dict[str, int]


def write_candidates(sources: Sources, parts: Sequence[tuple[Part, Part]]) -> Candidates:
    """Write the candidates of a plan's ledgers.

    Args:
        sources: where they are searched for.
        parts: of its RECONSTRUCTION and SIDES, range by range.

    Raises:
        DatasetError: a file is gone or damaged, or the plan cannot be written.
    """
    ranges = [_read_unnamed(sources, *pair) for pair in parts]
    recorded = [_find_recorded(sources, unnamed) for unnamed in ranges]
    messages = _Messages(tables.CANDIDATES.empty_table(), NO_TIMES)
    if sources.read_heads is not None and any(unnamed.num_rows for unnamed in ranges):
        ends = read_ends(sources.records.lasts["last"].unique(), sources.out, [pair[0] for pair in parts], sources.live)
        messages = _read_messages(
            sources, sources.read_heads, pa.concat_tables(ranges), pa.concat_tables(recorded), ends
        )
    written: list[Part] = []
    counts = Counter[str]()
    for (reconstruction, _), unnamed, by_record in zip(parts, ranges, recorded, strict=True):
        by_producers = _select(messages.candidates, unnamed["ledger"].combine_chunks())
        known = pa.concat_tables([by_record, by_producers])
        rest = unnamed.filter(pc.invert(pc.is_in(unnamed["ledger"], value_set=known["ledger"].combine_chunks())))
        rows = sort_by_key(
            pa.concat_tables([known, find_earlier(sources.records.lasts, rest, messages.times)], promote_options="none")
        )
        counts += count_best(rows)
        name = reconstruction.file.rpartition("/")[2].removesuffix(".parquet")
        written.append(write_part(sources.out, "candidates", name, [rows], secret=True))
    return Candidates(tuple(written), sum_counts(counts))


def _make_table(rows: Iterable[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=tables.CANDIDATES)


def _read_unnamed(sources: Sources, reconstruction: Part, sides: Part) -> pa.Table:
    """Return a range's ledgers that came after the snapshot and that nothing names: keys and last entries."""
    keys = [*tables.KEY_COLUMNS, "last_entry"]
    rows = read_part(sources.out, reconstruction.file, columns=[*keys, "outcome"])
    rows = rows.filter(pc.and_(pc.equal(rows["scope"], 0), pc.not_equal(rows["outcome"], _GONE)))
    rows = rows.filter(pc.invert(find_listed(rows["ledger"], sources.records.named.to_numpy())))
    if not rows.num_rows:
        return rows.select(keys)
    ledgers = rows["ledger"].combine_chunks()
    stored = sources.snapshot.dataset.read("ledgers", buckets=_buckets_of(rows), columns=["scope", "ledger", "custom"])
    stored = _select(stored, ledgers)
    begun = _select_begun(stored, sources.records.lasts)
    known = stored.filter(pc.invert(pc.is_in(stored["ledger"], value_set=begun)))
    sided = _select(read_part(sources.out, sides.file, columns=["scope", "ledger", "referenced"]), ledgers)
    named = sided.filter(pc.fill_null(sided["referenced"], fill_value=False))
    lists = (*(table["ledger"].combine_chunks() for table in (known, named)), _find_deleted(sources, rows, begun))
    for listed in lists:
        rows = rows.filter(pc.invert(pc.is_in(rows["ledger"], value_set=listed)))
    return rows.select(keys)


def _find_deleted(sources: Sources, rows: pa.Table, begun: pa.Array) -> pa.Array:
    """Return those of a range's ledgers that were deleted before the snapshot."""
    ledgers, buckets = rows["ledger"].combine_chunks(), _buckets_of(rows)
    until = sources.snapshot.txn
    newer, older = [begun], rows.filter(pc.less(rows["ledger"], sources.issued))["ledger"].chunks
    for catalog in sources.catalogs:
        history = _select(catalog.dataset.read("history", buckets=buckets, columns=["scope", "ledger", "txn"]), ledgers)
        if until is not None:
            older += history.filter(pc.less_equal(history["txn"], until))["ledger"].chunks
        if catalog.taken_at >= sources.snapshot.taken_at:
            stored = catalog.dataset.read("ledgers", buckets=buckets, columns=["scope", "ledger"])
            newer += _select(stored, ledgers)["ledger"].chunks
    old = pa.concat_arrays([begun.slice(0, 0), *older])
    return old.filter(pc.invert(pc.is_in(old, value_set=pa.concat_arrays(newer))))


def _select_begun(stored: pa.Table, lasts: pa.Table) -> pa.Array:
    """Return those of a snapshot's ledgers that were made for a topic that does not name them yet, and may later."""
    rows = stored.filter(pc.fill_null(pc.greater(pc.list_value_length(stored["custom"]), 0), fill_value=False))
    uses = [name_use(custom) for custom in rows["custom"].to_pylist()]
    paths = [None if use is None or use[1] != TOPIC else use[0] for use in uses]
    growing = lasts.filter(pc.invert(lasts["is_ended"]))
    names = pc.replace_substring_regex(growing["path"], f".*{TOPICS}/", "").combine_chunks()
    last = growing["last"].take(pc.index_in(pa.array(paths, pa.string()), value_set=names))
    is_above = pc.fill_null(pc.less(last, rows["ledger"]), fill_value=False)
    return rows["ledger"].filter(is_above).combine_chunks()


def _buckets_of(rows: pa.Table) -> range:
    edge = pc.min_max(rows["bucket"]).as_py()
    return range(edge["min"], edge["max"] + 1)


@dataclass(frozen=True, slots=True, eq=False)
class _Messages:
    """What messages say.

    Attributes:
        candidates: of ledgers, where they say whose these may be.
        times: when they were sent.
    """

    candidates: pa.Table
    times: MessageTimes


def _read_messages(
    sources: Sources, read: "ReadHeads", unnamed: pa.Table, recorded: pa.Table, ends: pa.Table
) -> _Messages:
    """Return what the messages of ledgers say about which no record says anything."""
    # Loaded only where messages are read.
    from reconcile.pulsar.producers import (  # noqa: PLC0415 - see above
        LedgerEnd,
        Producers,
        list_ends,
    )

    producers = Producers(read, list(list_ends(unnamed)))
    lasts = sources.records.lasts
    last_entry = ends["last_entry"].take(pc.index_in(lasts["last"], value_set=ends["ledger"].combine_chunks()))
    growing = lasts.append_column("last_entry", last_entry).filter(pc.invert(lasts["is_ended"]))
    growing = growing.filter(pc.is_valid(growing["last_entry"]))
    for batch in growing.to_batches(max_chunksize=_TOGETHER) if producers.are_known else ():
        producers.learn([(row["path"], LedgerEnd(row["last"], row["last_entry"])) for row in batch.to_pylist()])
    above = sources.records.top
    named = {row["ledger"]: f"{above}/{row['topic']}" for row in recorded.to_pylist() if row["use"] == TOPIC}
    bucket_of = dict(zip(unnamed["ledger"].to_pylist(), unnamed["bucket"].to_pylist(), strict=True))

    def make_row(ledger: int, *values: object) -> dict[str, object]:
        return dict(zip(tables.CANDIDATES.names, (bucket_of[ledger], 0, ledger, *values, None), strict=False))

    rows = [
        *(
            make_row(
                ledger, schema.name, SCHEMA, OwnerEvidence.ENTRY, None, f"its entry is version {schema.version} of it"
            )
            | {"node": schema.record}
            for ledger, schema in producers.schemas.items()
        ),
        *(
            make_row(
                match.ledger,
                name_node(match.path),
                TOPIC,
                OwnerEvidence.PRODUCERS,
                f"ledger {match.previous}",
                match.detail,
            )
            for match in producers.match(named)
        ),
        *(
            make_row(ledger, None, _OTHER, OwnerEvidence.NONE, None, _NO_MESSAGES)
            for ledger in sorted(set(producers.strangers).difference(recorded["ledger"].to_pylist()))
        ),
    ]
    return _Messages(_make_table(rows), producers.times)


def _find_recorded(sources: Sources, unnamed: pa.Table) -> pa.Table:
    return _make_table(_yield_recorded(sources, unnamed) if unnamed.num_rows else ())


def _yield_recorded(sources: Sources, unnamed: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield what the ledgers' own records say, each name of a ledger once, the newest source first."""
    seen: set[tuple[int, str, str]] = set()
    buckets, wanted = _buckets_of(unnamed), unnamed["ledger"].combine_chunks()
    for catalog in sources.catalogs:
        # An older one has records of what was deleted before the snapshot.
        if catalog.taken_at < sources.snapshot.taken_at:
            continue
        stored = _select(catalog.dataset.read("ledgers", buckets=buckets), wanted)
        history = _select(catalog.dataset.read("history", buckets=buckets), wanted)
        raw = pc.coalesce(history["after"], history["before"])
        remembered = history.append_column("custom", ledger_metadata.decode_columns(raw)["custom"])
        for rows, word, txn in ((stored, "record", "changed_txn"), (remembered, "history", "txn")):
            for row in rows.filter(pc.is_valid(rows["custom"])).to_pylist():
                named = name_use(row["custom"])
                if named is None or (row["ledger"], *named) in seen:
                    continue
                seen.add((row["ledger"], *named))
                when = "" if row[txn] is None else f", transaction {row[txn]:#x}"
                yield {
                    **{name: row[name] for name in tables.KEY_COLUMNS},
                    "topic": named[0],
                    "use": named[1],
                    "evidence": OwnerEvidence.RECORD,
                    "source": catalog.source,
                    "detail": f"custom metadata of its {word}{when}",
                }


def _select(rows: pa.Table, ledgers: pa.Array) -> pa.Table:
    return rows.filter(pc.and_(pc.equal(rows["scope"], 0), pc.is_in(rows["ledger"], value_set=ledgers)))


def name_node(path: str) -> str:
    """Return the name of a topic's node below `TOPICS`."""
    return path.partition(f"{TOPICS}/")[2]
