"""The writes of a plan that bring back nodes of upper layers, as a snapshot has them.

    in the snapshot    in the store            op
    yes                absent                  create, with its rights
    yes                the same bytes          none
    yes                other bytes             leave: replaces, where a person says so
    a counter          its counter is behind   raise, so that no number is given out twice
    no                 yes                     none; they are counted

Both sides are cut by the paths' hashes, spilled, and compared piece by piece: memory does not grow with their number.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.compare.evidence import Catalog, sort_newest_first
from reconcile.jobs.make_plan.request import PlanRequest
from reconcile.plan.actions import LEAVE, PARTITIONS, find_places, make_subtree_actions
from reconcile.plan.manifest import SubtreeCounts
from reconcile.plan.plan_hash import bucket_hashes
from reconcile.pulsar.topic_records import holds_topics
from reconcile.rules.used_ids import RAISE_LIMIT
from recovery.capture.subtrees import COUNTERS, TOPICS, list_captured
from recovery.codecs.store_kind import kind_of
from recovery.dataset import SPILL, Dataset, read_part, write_part
from recovery.errors import InputError
from recovery.manifest import Part
from recovery.model.ids import BUCKETS
from recovery.place import DatasetPlace

_TABLE: Final = "subtrees"
_READ: Final = ["path", "raw", "version", "acl", "children_created"]
_PIECE_ROWS: Final = 1 << 18
"""Nodes of both sides that are compared at a time."""
_SPILL_ROWS: Final = 1 << 17
_BUCKET: Final = "bucket"


@dataclass(slots=True)
class SubtreeWrites:
    """What a plan writes of upper layers.

    Attributes:
        parts: of ACTIONS, in their order.
        counts: of each subtree.
        hashes: of the buckets.
        left: actions that write nothing until a person says so.
        source: the snapshot; None: nothing is wanted.
    """

    parts: list[Part] = field(default_factory=list)
    counts: tuple[SubtreeCounts, ...] = ()
    hashes: dict[int, str] = field(default_factory=dict)
    left: int = 0
    source: Catalog | None = None


def write_subtrees(request: PlanRequest, out: DatasetPlace) -> SubtreeWrites:
    """Write the actions that bring back the subtrees that are wanted.

    Raises:
        DatasetError: a catalog is damaged, or the plan cannot be written.
        InputError: no snapshot has them.
    """
    if not request.subtrees:
        return SubtreeWrites()
    source = _choose_source(request)
    tops = _resolve(request, source)
    stored = request.live
    rows = source.dataset.rows(_TABLE) + (stored.rows(_TABLE) if stored is not None else 0)
    pieces = min(PARTITIONS, -(-rows // _PIECE_ROWS) or 1)
    spilled = [_spill(side, tops, pieces, out, name) for side, name in ((source.dataset, "then"), (stored, "now"))]
    counts = [SubtreeCounts(top, source.source, source.txn) for top in tops]
    writes, parts = SubtreeWrites(source=source), dict[tuple[int, int], Part]()
    counters = tops_of_counters(tops)
    for piece in range(pieces):
        earlier, now = (_join(out, files[piece]) for files in spilled)
        compared = _compare(earlier, now, counters)
        counts = [count + _count(count.path, compared) for count in counts]
        actions = make_subtree_actions(compared.writes)
        writes.hashes.update(bucket_hashes(actions))
        writes.left += compared.writes["op"].to_pylist().count(LEAVE)
        for depth, part_rows in _cut_by_depth(actions):
            name = f"subtrees-{depth:03d}-{piece:02d}"
            parts[depth, piece] = write_part(out, "actions", name, [part_rows], secret=True)
    writes.parts = [parts[key] for key in sorted(parts)]
    writes.counts = tuple(counts)
    _require_there(request, writes.counts, source)
    return writes


def _choose_source(request: PlanRequest) -> Catalog:
    """Return the newest snapshot that was captured with all subtrees that are wanted.

    Of Pulsar's nodes the newest that has a topic: what was copied of a store after its loss has none.
    """
    if not request.snapshots:
        remedy = "name what the store held earlier"
        raise InputError("the plan", "has no snapshot to take the nodes of upper layers from", remedy)
    lacking: Sequence[str] = ()
    whole = list[Catalog]()
    for catalog in sort_newest_first(request.snapshots):
        captured = list_captured(catalog.dataset)
        tops = _resolve(request, catalog)
        lacking = [top for top in tops if not any(f"{top}/".startswith(f"{known}/") for known in captured)]
        if not lacking:
            whole.append(catalog)
    if whole:
        with_topics = (catalog for catalog in whole if holds_topics(catalog.dataset))
        return next(with_topics, whole[0]) if request.subtrees.pulsar else whole[0]
    problem = f"was captured without {lacking[0]}"
    remedy = "capture it again with these subtrees, or name the store's files themselves as the snapshot"
    raise InputError(str(request.snapshots[-1].path), problem, remedy)


def _resolve(request: PlanRequest, source: Catalog) -> tuple[str, ...]:
    root = str(source.dataset.manifest["binding"].get("root") or "")
    tops = request.subtrees.resolve(root, kind_of(source.layout), source.source)
    if request.live is not None and request.live.manifest["binding"].get("root") != root:
        problem = f"has its ledgers at {root}, and the store that is repaired at {request.root}"
        raise InputError(source.source, problem, "name a store and a snapshot with the same root")
    return tops


def tops_of_counters(tops: Sequence[str]) -> tuple[str, ...]:
    """Return the subtrees whose nodes number their children for somebody."""
    return tuple(top for top in tops if top.endswith(COUNTERS))


def _require_there(request: PlanRequest, counts: Sequence[SubtreeCounts], source: Catalog) -> None:
    """Refuse a snapshot that lacks a subtree that a person named, or all of Pulsar's topics."""
    for count in counts:
        is_demanded = count.path in request.subtrees.paths or count.path.endswith(TOPICS)
        if is_demanded and not count.nodes:
            problem = f"has no {count.path}"
            remedy = "name a snapshot of a time at which it was there, or leave it out"
            raise InputError(source.source, problem, remedy)


def _spill(side: Dataset | None, tops: Sequence[str], pieces: int, out: DatasetPlace, name: str) -> list[list[str]]:
    """Write the nodes of one side as files of the spill folder; return those of each piece."""
    files: list[list[str]] = [[] for _ in range(pieces)]
    buffers: list[list[pa.Table]] = [[] for _ in range(pieces)]
    waiting = 0

    def write() -> None:
        for piece, buffered in enumerate(buffers):
            if buffered:
                part = f"subtrees-{name}-{piece:02d}-{len(files[piece]):05d}"
                files[piece].append(write_part(out, SPILL, part, buffered, secret=True, compression="lz4").file)
                buffered.clear()

    for batch in side.batches(_TABLE, _READ) if side is not None else ():
        rows = batch.filter(_are_below(batch["path"], tops))
        places = find_places(rows["path"])
        rows = rows.append_column(_BUCKET, pa.array(places, pa.int16()))
        piece_of = (places - BUCKETS) % PARTITIONS * pieces // PARTITIONS
        for piece in np.unique(piece_of).tolist():
            buffers[piece].append(rows.filter(pa.array(piece_of == piece)))
        waiting += rows.num_rows
        if waiting > _SPILL_ROWS:
            write()
            waiting = 0
    write()
    return files


def _are_below(paths: pa.ChunkedArray, tops: Sequence[str]) -> pa.ChunkedArray:
    wanted = pc.is_in(paths, pa.array(list(tops), pa.string()))
    for top in tops:
        wanted = pc.or_(wanted, pc.starts_with(paths, f"{top}/"))
    return wanted


def _join(out: DatasetPlace, files: Sequence[str]) -> pa.Table:
    schema = pa.schema(
        [
            ("path", pa.string()),
            ("raw", pa.binary()),
            ("version", pa.int64()),
            ("acl", pa.string()),
            ("children_created", pa.int64()),
            (_BUCKET, pa.int16()),
        ]
    )
    return pa.concat_tables([schema.empty_table(), *(read_part(out, file).cast(schema) for file in files)])


@dataclass(frozen=True, slots=True, eq=False)
class _Compared:
    """One piece of both sides.

    Attributes:
        earlier: paths of the snapshot.
        newer: paths that only the store has.
        writes: what `make_subtree_actions` takes.
    """

    earlier: pa.ChunkedArray
    newer: pa.ChunkedArray
    writes: pa.Table


def _compare(earlier: pa.Table, now: pa.Table, counters: Sequence[str]) -> _Compared:
    place = pc.index_in(earlier["path"], value_set=now["path"].combine_chunks())
    stored = now.take(place)
    is_same = pc.fill_null(pc.equal(earlier["raw"], stored["raw"]), fill_value=False)
    is_there = pc.is_valid(place)
    made = _make_writes(
        earlier.filter(pc.invert(is_same)), stored.filter(pc.invert(is_same)), is_there.filter(pc.invert(is_same))
    )
    used = pc.fill_null(earlier["children_created"], 0)
    is_counter = pc.and_(
        pc.and_(pc.greater(used, pc.fill_null(stored["children_created"], 0)), pc.less_equal(used, RAISE_LIMIT)),
        pc.is_in(pc.replace_substring_regex(earlier["path"], r"/[^/]*$", ""), pa.array(list(counters), pa.string())),
    )
    writes = pa.concat_tables([made, _make_raises(earlier.filter(is_counter), made.schema)])
    order = [(_BUCKET, "ascending"), ("path", "ascending"), ("op", "ascending")]
    newer = now["path"].filter(pc.invert(pc.is_in(now["path"], value_set=earlier["path"].combine_chunks())))
    return _Compared(earlier["path"], newer, writes.sort_by(order))


def _make_writes(earlier: pa.Table, stored: pa.Table, is_there: pa.ChunkedArray) -> pa.Table:
    return pa.table(
        {
            _BUCKET: earlier[_BUCKET],
            "op": pc.if_else(is_there, LEAVE, "create"),
            "path": earlier["path"],
            "value": earlier["raw"],
            "acl": pc.if_else(is_there, pa.scalar(None, pa.string()), earlier["acl"]),
            "expects": stored["version"],
            "before": stored["raw"],
        }
    )


def _make_raises(earlier: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the raises of counters: past the last number that they can have given."""
    count = earlier.num_rows
    last = pc.subtract(earlier["children_created"], 1)
    columns = {
        _BUCKET: earlier[_BUCKET],
        "op": pa.array(["raise"] * count, pa.string()),
        "path": earlier["path"],
        "value": pc.cast(pc.cast(last, pa.string()), pa.binary()),
        "acl": earlier["acl"],
        "expects": pa.nulls(count, pa.int64()),
        "before": pa.nulls(count, pa.binary()),
    }
    return pa.table(columns, schema=schema)


def _count(top: str, compared: _Compared) -> SubtreeCounts:
    """Count one subtree of a piece."""
    nodes, newer = (pc.sum(_are_below(paths, [top])).as_py() or 0 for paths in (compared.earlier, compared.newer))
    ops = compared.writes["op"].filter(_are_below(compared.writes["path"], [top])).to_pylist()
    return SubtreeCounts(
        top,
        nodes=nodes,
        created=ops.count("create"),
        differing=ops.count(LEAVE),
        raised=ops.count("raise"),
        newer=newer,
    )


def _cut_by_depth(actions: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield the actions of each depth, which stand together."""
    depths = (actions[_BUCKET].to_numpy().astype(np.int64) - BUCKETS) // PARTITIONS
    for depth in np.unique(depths).tolist():
        low, high = np.searchsorted(depths, [depth, depth + 1]).tolist()
        yield depth, actions.slice(low, high - low)
