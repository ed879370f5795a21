"""The impact check of a bucket range: records in, counts, a sample and a part file out. Spark and one process run it.

What it returns is JSON, and small: counts by set and impact, and the first segments that are hit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.check.evidence import CopyEvidence
from reconcile.check.impact.bookies import BookieColumns
from reconcile.check.impact.hits import NOW, Hits, ImpactCluster, list_hits
from reconcile.check.impact.largest_set import Limits
from reconcile.check.impact.names import OF_SEGMENTS, DomainLevel
from reconcile.check.impact.sample import SegmentImpact, describe_segment
from reconcile.check.impact.segments.columns import (
    COLUMNS,
    NO_END,
    Ints,
    LedgerRows,
    Records,
    SegmentColumns,
    read_records,
)
from reconcile.check.impact.segments.copies import Missing
from reconcile.check.impact.segments.judgement import States
from reconcile.rules.segments.member_names import rename_members
from recovery.dataset import Dataset, write_part
from recovery.errors import Reason
from recovery.model import tables
from recovery.model.ids import LedgerId
from recovery.place import to_place

SAMPLE: Final = 50
"""Segments that are described."""
_UNREADABLE: Final = 20
"""Ledgers with a record that cannot be read, that are named."""
DAY: Final = timedelta(days=1)
"""Ledgers up to this age show what new ledgers need."""
_EPOCH_MS: Final = 1000


@dataclass(slots=True)
class HitTally:
    """How many segments, ledgers and entries are hit; entries that may still be written are not counted.

    Attributes:
        worse: segments that a set hits, or hits worse than they are hit already.
    """

    segments: int = 0
    ledgers: int = 0
    entries: int = 0
    worse: int = 0

    def add(self, other: "HitTally") -> None:
        """Add another."""
        self.segments += other.segments
        self.ledgers += other.ledgers
        self.entries += other.entries
        self.worse += other.worse


Tallies = dict[str, HitTally]
"""By impact."""


@dataclass(slots=True)
class Covered:
    """How much evidence there is.

    Attributes:
        positions: copies that records ask for, of segments that have ended.
        judged: copies among these that are known to be there or to be missing.
        missing: pairs of ledger and bookie with missing entries, some or all.
        overruled: marked copies that were seen to be there.
    """

    positions: int = 0
    judged: int = 0
    missing: int = 0
    overruled: int = 0

    def add(self, other: "Covered") -> None:
        """Add another."""
        self.positions += other.positions
        self.judged += other.judged
        self.missing += other.missing
        self.overruled += other.overruled


@dataclass(slots=True)
class RangeAnswer:
    """The result of one bucket range.

    Attributes:
        ledgers, segments: that were judged.
        unreadable: ledgers with an unreadable record.
        unreadable_sample: the first of these.
        unknown_form: unreadable ledgers with a record in a form that a later version may know.
        now: damage that exists already.
        changes: by set, how much more is hit.
        sample: described segments; the upper layer's own first, then those hit by sets.
        shapes: E/W/A of ledgers of the last day, and of ledgers without a date.
        undated: ledgers that nothing dates.
        named: bookies of the question that some record names.
        absent: ledgers of the question that have no record.
        parts: of the dataset.
        covered: the amount of evidence.
    """

    ledgers: int = 0
    segments: int = 0
    unreadable: int = 0
    unreadable_sample: list[str] = field(default_factory=list)
    unknown_form: int = 0
    now: Tallies = field(default_factory=dict)
    changes: dict[str, Tallies] = field(default_factory=dict)
    sample: list[SegmentImpact] = field(default_factory=list)
    shapes: list[tuple[int, int, int]] = field(default_factory=list)
    undated: int = 0
    named: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    parts: list[dict[str, Any]] = field(default_factory=list)
    covered: Covered = field(default_factory=Covered)

    def add(self, other: "RangeAnswer") -> None:
        """Add another range's."""
        self.ledgers += other.ledgers
        self.segments += other.segments
        self.unreadable += other.unreadable
        self.unreadable_sample = (self.unreadable_sample + other.unreadable_sample)[:_UNREADABLE]
        self.unknown_form += other.unknown_form
        _add_tallies(self.now, other.now)
        for label, tallies in other.changes.items():
            _add_tallies(self.changes.setdefault(label, {}), tallies)
        self.sample = sorted(self.sample + other.sample, key=_rank_sample)[:SAMPLE]
        self.shapes = sorted({*self.shapes, *other.shapes})
        self.undated += other.undated
        self.named = sorted({*self.named, *other.named})
        self.absent += other.absent
        self.covered.add(other.covered)
        self.parts += other.parts


def _add_tallies(total: Tallies, more: Tallies) -> None:
    for impact, tally in more.items():
        total.setdefault(impact, HitTally()).add(tally)


def _rank_sample(segment: SegmentImpact) -> tuple[bool, bool]:
    return segment.owner is None, segment.already


@dataclass(frozen=True, slots=True, eq=False)
class ImpactQuestion:
    """The question for every bucket range.

    Attributes:
        catalog: the records.
        clusters: bookies, sets, destinations; the same bookies in all of them, sets that share a bookie in several.
        level: failure domains that segments are shown in.
        marked: copies that are marked: `copies.MARKED`.
        evidence: the facts about copies.
        ledgers: only these; None: all.
        owned: scope, ledger, owner and kind of the upper layer's own bookkeeping.
        at: when the store was as the catalog shows it.
        since_txn: a transaction that the store had a day before `at`, or earlier; None: none is known.
        out: folder of the dataset; None: none is written.
        aliases: other names of bookies in records → ids.
    """

    catalog: Dataset
    clusters: tuple[ImpactCluster, ...]
    level: DomainLevel
    marked: pa.Table
    at: datetime
    since_txn: int | None = None
    evidence: CopyEvidence = field(default_factory=CopyEvidence)
    ledgers: tuple[LedgerId, ...] | None = None
    owned: pa.Table | None = None
    out: str | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)

    @property
    def bookies(self) -> BookieColumns:
        """As they are now."""
        return self.clusters[0].bookies

    def answer(self, buckets: range) -> dict[str, Any]:
        """Return a range's answer as JSON."""
        return asdict(_answer_range(self, buckets))


@dataclass(frozen=True, slots=True, eq=False)
class _Range:
    """The records of a bucket range: rows of CATALOG_LEDGERS, their fields, and their segments with floors."""

    rows: pa.Table
    records: Records
    parts: tuple[tuple[SegmentColumns, States | None], ...]
    covered: Covered


def _read_range(question: ImpactQuestion, buckets: range) -> _Range:
    rows = rename_members(question.catalog.read("ledgers", buckets=buckets, columns=list(COLUMNS)), question.aliases)
    if question.ledgers is not None:
        wanted = pa.table(
            {name: [getattr(ledger, name) for ledger in question.ledgers] for name in ("scope", "ledger")}
        )
        rows = rows.filter(pa.array(LedgerRows(wanted).find(rows) >= 0))
    names = pa.array(question.bookies.names, pa.string())
    records = read_records(rows, names)
    bucket = question.marked["bucket"]
    marked = question.marked.filter(pc.and_(pc.greater_equal(bucket, buckets.start), pc.less(bucket, buckets.stop)))
    seen = None if question.evidence.is_empty else question.evidence.see(rows, buckets)
    missing = Missing(rows, names, marked, seen)
    parts: list[tuple[SegmentColumns, States | None]] = []
    for group in records.groups:
        irregular, floors = missing.find_floors(group)
        regular = np.ones(len(group), np.bool_)
        regular[irregular] = False
        parts += [(group.select(regular) if len(irregular) else group, None), (group.select(irregular), floors)]
    covered = Covered(overruled=missing.marks_overruled)
    if seen is not None:
        lost = seen.wiped.num_rows + seen.faults.missing.group_by(["row", "bookie"]).aggregate([]).num_rows
        covered = replace(covered, positions=seen.faults.positions, judged=seen.faults.judged, missing=lost)
    return _Range(rows, records, tuple((segments, floors) for segments, floors in parts if len(segments)), covered)


def gather_limits(question: ImpactQuestion, buckets: range, limits: Limits) -> None:
    """Add the limits of a range's segments."""
    for segments, floors in _read_range(question, buckets).parts:
        limits.add(segments, floors)


def _answer_range(question: ImpactQuestion, buckets: range) -> RangeAnswer:
    read = _read_range(question, buckets)
    rows, records = read.rows, read.records
    owners = _find_owners(question, rows)
    answer = RangeAnswer(ledgers=rows.num_rows, segments=sum(len(group) for group in records.groups))
    answer.covered = read.covered
    answer.unreadable = len(records.unreadable)
    answer.unreadable_sample = [_name(rows, row) for row in records.unreadable[:_UNREADABLE].tolist()]
    answer.unknown_form = _count_unknown_forms(rows)
    answer.shapes, answer.undated = _list_recent_shapes(question, rows, records)
    answer.named = _list_named(question, records)
    answer.absent = _list_absent(question, rows, buckets)
    pieces = [
        _Piece(segments, floors, cluster, number == 0, list_hits(segments, cluster, floors))
        for segments, floors in read.parts
        for number, cluster in enumerate(question.clusters)
    ]
    for cluster in question.clusters:
        _count([piece for piece in pieces if piece.cluster is cluster], rows.num_rows, answer)
    answer.sample = _describe(question, pieces, rows, owners)
    if question.out is not None:
        table = _make_rows(pieces, rows)
        part = write_part(to_place(question.out), "impacts", f"part-{buckets.start:05d}", [table])
        answer.parts = [asdict(part)]
    return answer


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """Segments of one shape, and their hits.

    Attributes:
        shows_now: existing damage is listed here, and not with another cluster's sets.
    """

    segments: SegmentColumns
    floors: States | None
    cluster: ImpactCluster
    shows_now: bool
    hits: Hits

    @property
    def shown(self) -> Ints:
        """Which hits are listed."""
        return np.flatnonzero((self.hits.change >= 0) & (self.shows_now | (self.hits.set != NOW)))


def _find_owners(question: ImpactQuestion, rows: pa.Table) -> Ints:
    """Return the row of each ledger in `owned`; -1: it is not there."""
    if question.owned is None:
        return np.full(rows.num_rows, -1)
    return LedgerRows(question.owned).find(rows)


def _name(rows: pa.Table, row: int) -> str:
    return str(LedgerId(rows["scope"][row].as_py(), rows["ledger"][row].as_py()))


def _count_unknown_forms(rows: pa.Table) -> int:
    return int(pc.sum(pc.starts_with(rows["error"], f"{Reason.BAD_VERSION}:")).as_py() or 0)


def _list_recent_shapes(
    question: ImpactQuestion, rows: pa.Table, records: Records
) -> tuple[list[tuple[int, int, int]], int]:
    """Return the shapes of ledgers created in the day before the catalog, and the number of ledgers without a date.

    A ledger is dated by its own time, else by its node's, else by the transaction that made its record: after one that
    the store had a day before. What nothing dates may be of that day.
    """
    begin = question.at - DAY
    made = pc.coalesce(
        rows["ctime"], pc.cast(pc.cast(rows["created_at"], pa.timestamp("ms", "UTC"), safe=False), pa.int64())
    )
    recent = pc.greater_equal(made, int(begin.timestamp() * _EPOCH_MS))
    if question.since_txn is not None:
        recent = pc.coalesce(recent, pc.greater(rows["created_txn"], question.since_txn))
    readable = records.shapes[:, 0] > 0
    undated = int((pc.is_null(recent).to_numpy() & readable).sum())
    chosen = pc.fill_null(recent, fill_value=True).to_numpy() & readable
    shapes = np.unique(records.shapes[chosen], axis=0)
    return [tuple(shape) for shape in shapes.tolist()], undated


def _list_absent(question: ImpactQuestion, rows: pa.Table, buckets: range) -> list[str]:
    present = (
        set(zip(rows["scope"].to_pylist(), rows["ledger"].to_pylist(), strict=True)) if question.ledgers else set()
    )
    asked = dict.fromkeys(ledger for ledger in question.ledgers or () if ledger.bucket in buckets)
    return [str(ledger) for ledger in asked if (ledger.scope, ledger.ledger) not in present]


def _list_named(question: ImpactQuestion, records: Records) -> list[str]:
    """Return the bookies of the question that a record names."""
    names = question.bookies.names
    seen = np.zeros(len(names) + 1, np.bool_)
    for group in records.groups:
        seen[group.members.ravel()] = True
    return [name for name, is_named in zip(names, seen.tolist(), strict=False) if is_named]


def _count(pieces: Sequence[_Piece], ledgers: int, answer: RangeAnswer) -> None:
    """Count the hits now, and the additional hits of each set of one cluster."""
    if not pieces:
        return
    labels = pieces[0].cluster.sets.labels
    empty = np.zeros(0, np.int64)
    ledger = np.concatenate([empty, *(piece.segments.ledger[piece.hits.row] for piece in pieces)])
    hits = Hits.concatenate([piece.hits for piece in pieces])
    for place, impact in enumerate(OF_SEGMENTS):
        own = hits.impact == place
        now = own & (hits.set == NOW)
        already = np.bincount(ledger[now], minlength=ledgers)
        if now.any() and pieces[0].shows_now:
            answer.now[str(impact)] = HitTally(int(now.sum()), int((already > 0).sum()), int(hits.entries[now].sum()))
        of_sets = np.flatnonzero(own & (hits.set != NOW))
        if not len(of_sets):
            continue
        number, change = hits.set[of_sets], hits.change[of_sets]
        count = len(labels)
        segments = np.bincount(number, change, count).astype(np.int64)
        entries = np.zeros(count, np.int64)
        np.add.at(entries, number, hits.entries[of_sets])
        worse = np.bincount(number[change >= 0], minlength=count)
        pairs, inverse = np.unique(number * max(ledgers, 1) + ledger[of_sets], return_inverse=True)
        base = already[pairs % max(ledgers, 1)]
        total = base + np.bincount(inverse, change, len(pairs)).astype(np.int64)
        more = (total > 0).astype(np.int64) - (base > 0)
        of_ledgers = np.bincount(pairs // max(ledgers, 1), more, count).astype(np.int64)
        for index in np.unique(number).tolist():
            tally = HitTally(int(segments[index]), int(of_ledgers[index]), int(entries[index]), int(worse[index]))
            answer.changes.setdefault(labels[index], {})[str(impact)] = tally


def _describe(question: ImpactQuestion, pieces: Sequence[_Piece], rows: pa.Table, owners: Ints) -> list[SegmentImpact]:
    """Describe the first segments that are hit."""
    candidates: list[tuple[int, int, int, int, int]] = []
    most = SAMPLE * len(OF_SEGMENTS)
    for number, piece in enumerate(pieces):
        row, owner = piece.hits.row[piece.shown], piece.hits.set[piece.shown]
        count, sets = len(piece.segments), len(piece.cluster.sets.labels) + 1
        rank = 2 * (owners[piece.segments.ledger[row]] < 0) + (owner == NOW)
        # Segments are in the order of their ledgers, so a row's number is its place among all.
        key = (rank * count + row) * sets + owner + 1
        if len(key) > most:
            key = np.partition(key, most)[:most]
        for place in np.unique(key)[:SAMPLE].tolist():
            of_rank, of_row, target = place // sets // count, place // sets % count, place % sets - 1
            candidates.append((of_rank, int(piece.segments.ledger[of_row]), number, of_row, target))
    candidates.sort()
    described = []
    for _, ledger, number, place, target in candidates[:SAMPLE]:
        piece = pieces[number]
        cluster = piece.cluster
        own = (piece.hits.row == place) & (piece.hits.set == target) & (piece.hits.change >= 0)
        segment = piece.segments.select([place])
        record = rows["segments"][ledger].as_py()[int(segment.number[0])]
        owned = question.owned
        described.append(
            describe_segment(
                segment,
                None if piece.floors is None else piece.floors[:, :, [place]],
                cluster.bookies,
                cluster.sets,
                cluster.destinations,
                number=target,
                names=record["members"],
                impacts=piece.hits.impact[own].tolist(),
                already=target == NOW,
                level=question.level,
                ledger=_name(rows, ledger),
                owner=None if owned is None or owners[ledger] < 0 else owned["owner"][int(owners[ledger])].as_py(),
                kind=None if owned is None or owners[ledger] < 0 else owned["kind"][int(owners[ledger])].as_py(),
            )
        )
    return described


def _make_rows(pieces: Sequence[_Piece], rows: pa.Table) -> pa.Table:
    """Return IMPACTS of a range, sorted by key."""
    parts = []
    names = pa.array([str(impact) for impact in OF_SEGMENTS])
    for piece in pieces:
        shown = piece.shown
        labels = pa.array([*piece.cluster.sets.labels, None], pa.string())
        row, owner = piece.hits.row[shown], piece.hits.set[shown]
        segments = piece.segments.select(row)
        key = rows.select(list(tables.KEY_COLUMNS)).take(pa.array(segments.ledger))
        parts.append(
            pa.table(
                {
                    **{name: key[name] for name in tables.KEY_COLUMNS},
                    "segment": pa.array(segments.number, pa.int32()),
                    "first": pa.array(segments.first),
                    "last": pa.array(segments.last, mask=segments.last == NO_END),
                    "impact": names.take(pa.array(piece.hits.impact[shown])),
                    "already": pa.array(owner == NOW),
                    "target": labels.take(pa.array(np.where(owner == NOW, len(labels) - 1, owner))),
                }
            ).cast(tables.IMPACTS)
        )
    if not parts:
        return tables.IMPACTS.empty_table()
    table = pa.concat_tables(parts)
    return table.sort_by([(name, "ascending") for name in (*tables.KEY_COLUMNS, "segment", "target", "impact")])
