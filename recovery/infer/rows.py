"""Proposals as the table RECONSTRUCTION."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recovery.infer.copies import Ints, Mask
from recovery.infer.facts import DIGESTS, NO_LAC, LedgerFacts
from recovery.infer.prior import ShapeSource
from recovery.infer.readings import MOST_RUNS, RecordBasis
from recovery.infer.refusal import REFUSALS
from recovery.infer.shape_fit import PATHS, UNDECIDED, Explained, LedgerSegments
from recovery.model import tables
from recovery.model.groups import KeyedRuns, group_runs, to_arrow
from recovery.model.metadata import FORMAT_WITHOUT_PASSWORD, WRITTEN_FORMAT, LedgerState

STATES: Final = (LedgerState.CLOSED, LedgerState.OPEN)
CLOSED, OPEN = range(len(STATES))
_GRADES: Final = ("unknown", "assumed", "inferred", "verified", "observed")
_UNKNOWN, _ASSUMED, _INFERRED, _VERIFIED, _OBSERVED = range(len(_GRADES))


@dataclass(frozen=True, slots=True)
class Proposals:
    """The decisions on each ledger beside its shape.

    Attributes:
        refusal: code of the reason why it is not restored, or 0.
        guarded: has a record all the same, by which all that is seen is readable.
        is_rest: guarded ledgers that will never show more: the rest is gone for good.
        universal: its record names all holders of any entry, and claims no shape.
        holes: entries up to the end that no bookie serves, of ledgers that lack copies.
        state: its place in `STATES`.
        segments: of ledgers that are restored or guarded, maybe of others.
        assumed: which members nothing shows.
        ack: A.
        ack_source: source of the ack quorum, as the place in `ShapeSource`.
        certain_end: no entry above the last one that is held can have been acknowledged.
        opened: a candidate password has the ledger's key.
        verified: the digest type agreed with bytes.
    """

    refusal: Ints
    guarded: Mask
    is_rest: Mask
    universal: Mask
    holes: KeyedRuns
    state: Ints
    segments: LedgerSegments
    assumed: Mask
    ack: Ints
    ack_source: Ints
    certain_end: Mask
    opened: Mask
    verified: Mask


def build_table(known: LedgerFacts, explained: Explained, proposals: Proposals) -> pa.Table:
    """Return one row of RECONSTRUCTION a ledger, in the order of `known`."""
    is_proved = proposals.refusal == 0
    restored = is_proved | proposals.guarded
    is_held, is_null, zero = ~restored, np.ones(known.count, np.bool_), np.zeros(known.count, np.int64)
    size = np.array([*(shape.ensemble for shape in explained.shapes), 0])[explained.shape]
    write = np.array([*(shape.write for shape in explained.shapes), 0])[explained.shape]
    closed = restored & ((proposals.state == CLOSED) | proposals.guarded)
    state = np.where(proposals.guarded, CLOSED, proposals.state)
    reading = np.where(proposals.universal, 2, proposals.guarded)
    digest_known = known.digest >= 0
    with_password = proposals.opened & digest_known
    columns = {
        "bucket": pa.array(known.bucket),
        "scope": pa.array(known.scope),
        "ledger": pa.array(known.ledger),
        "class": _take_text(PATHS, np.where(restored, explained.path, UNDECIDED)),
        "outcome": _take_text(
            ["held", "guarded", "restored"], np.where(is_proved | proposals.is_rest, 2, proposals.guarded)
        ),
        "reason": _take_text(["", *REFUSALS], proposals.refusal, is_proved),
        "reading": _take_text(list(RecordBasis), reading, is_held),
        "format": pa.array(np.where(with_password, WRITTEN_FORMAT, FORMAT_WITHOUT_PASSWORD), pa.int8(), mask=is_held),
        "state": _take_text(STATES, state, is_held),
        "ensemble_size": pa.array(size, pa.int32(), mask=is_held),
        "write_quorum": pa.array(write, pa.int32(), mask=is_held),
        "ack_quorum": pa.array(proposals.ack, pa.int32(), mask=is_held),
        "last_entry": pa.array(explained.end, mask=~closed),
        "length": pa.array(explained.length, mask=~closed),
        "digest": _take_text(DIGESTS, np.maximum(known.digest, 0), is_held | ~digest_known),
        "ctime": pa.array(zero, mask=is_null),
        "key": known.key_values.take(pa.array(known.key, mask=known.keys != 1)),
        "segments": _list_segments(known, proposals, restored),
        "custom": pa.nulls(known.count, tables.CUSTOM),
        "grades": _grade_fields(known, explained, proposals, restored),
        "lac_low": pa.array(known.lac, mask=known.lac == NO_LAC),
        "acked_high": pa.array(explained.end, mask=is_held | ~proposals.certain_end),
        "missing": pa.array(np.where(restored, explained.missing, 0)),
        "extra": pa.array(np.where(restored, explained.extra, 0)),
        "holes": _list_holes(known, proposals, restored),
        "holders": _list_holders(known),
        "highest": pa.nulls(known.count, pa.int64()),
        "alternatives": _list_alternatives(known, explained, restored, proposals),
        "raw": pa.nulls(known.count, pa.binary()),
        "contradictions": pa.nulls(known.count, tables.RECONSTRUCTION.field("contradictions").type),
    }
    return pa.table([columns[name] for name in tables.RECONSTRUCTION.names], schema=tables.RECONSTRUCTION)


def _take_text(values: "list[str] | tuple[str, ...]", places: Ints, missing: Mask | None = None) -> pa.Array:
    """Return a text a row, by its place in `values`."""
    return pa.array(values, pa.string()).take(pa.array(places, mask=missing))


def _grade_fields(known: LedgerFacts, explained: Explained, proposals: Proposals, restored: Mask) -> pa.Array:
    shape = np.array([*(_grade_shape(prior_shape.source) for prior_shape in explained.shapes), _UNKNOWN])[
        explained.shape
    ]
    quorum = np.array([*(_grade_quorum(source) for source in ShapeSource), _UNKNOWN])[proposals.ack_source]
    end = np.where(_mark_observed_ends(known, explained, proposals), _OBSERVED, _INFERRED)
    shape = np.where(explained.seen, _OBSERVED, shape)
    shape = np.where(proposals.guarded, np.minimum(shape, _INFERRED), shape)
    shape = np.where(proposals.universal, _ASSUMED, shape)
    quorum = np.where(proposals.universal, _ASSUMED, quorum)
    by_field = {
        "ensemble_size": shape,
        "write_quorum": shape,
        "ack_quorum": quorum,
        # Bookies keep the same of a closed ledger and an abandoned one. A copy's LAC reaches the last entry once the
        # ledger is closed, unless its writer told bookies so.
        "state": np.where(
            known.copied & (known.lac >= explained.end) & (known.explicit < explained.end), _INFERRED, _ASSUMED
        ),
        "last_entry": end,
        # A recovery that found nothing in the last ensemble wrote a length of 0, and nothing shows it.
        "length": np.full(known.count, _INFERRED),
        # A replaced bookie that came back can fit as well as an unscanned member.
        "segments": np.minimum(shape, _INFERRED),
        "digest": np.where(known.digest < 0, _UNKNOWN, np.where(proposals.verified, _VERIFIED, _INFERRED)),
        "password": np.where(proposals.opened, _VERIFIED, _UNKNOWN),
    }
    unknown = np.full(known.count, _UNKNOWN)
    fields = [_take_text(_GRADES, np.where(restored, by_field.get(name, unknown), _UNKNOWN)) for name in tables.GRADED]
    return pa.StructArray.from_arrays(fields, fields=list(tables.RECONSTRUCTION.field("grades").type))


def _mark_observed_ends(known: LedgerFacts, explained: Explained, proposals: Proposals) -> Mask:
    """Mark ends where the last add confirmed, a lower bound, meets what all bookies hold, an upper one."""
    observed: Mask = (known.explicit == explained.end) & proposals.certain_end
    return observed


def _grade_shape(source: ShapeSource) -> int:
    return _ASSUMED if source in (ShapeSource.DEFAULT_QUORUM, ShapeSource.BOOKKEEPER_DEFAULT) else _INFERRED


def _grade_quorum(source: ShapeSource) -> int:
    return _INFERRED if source is ShapeSource.SNAPSHOT else _ASSUMED


def _count_offsets(counts: "npt.NDArray[Any]") -> pa.Array:
    return pa.array(np.append(0, np.cumsum(counts)).astype(np.int32))


def _list_segments(known: LedgerFacts, proposals: Proposals, restored: Mask) -> pa.Array:
    kept = restored[proposals.segments.ledger]
    segments = proposals.segments.select(kept)
    assumed = proposals.assumed[np.repeat(kept, proposals.segments.size)]
    kind = tables.RECONSTRUCTION.field("segments").type
    item, sizes = kind.value_type, _count_offsets(segments.size)
    names = known.bookies.take(pa.array(segments.members))
    struct = pa.StructArray.from_arrays(
        [
            pa.array(segments.first),
            pa.array(segments.low),
            pa.ListArray.from_arrays(sizes, names, type=item.field("members").type),
            pa.ListArray.from_arrays(sizes, pa.array(assumed), type=item.field("assumed").type),
        ],
        fields=list(item),
    )
    offsets = _count_offsets(np.bincount(segments.ledger, minlength=known.count))
    return pa.ListArray.from_arrays(offsets, struct, type=kind, mask=pa.array(~restored))


def _list_holes(known: LedgerFacts, proposals: Proposals, restored: Mask) -> pa.Array:
    kept = restored[proposals.holes.key]
    holes = group_runs(KeyedRuns(*(column[kept] for column in proposals.holes)))
    looked_for = restored & (known.copies.count_runs() <= MOST_RUNS)
    return to_arrow(holes, known.count).take(pa.array(np.arange(known.count), mask=~looked_for))


def _list_holders(known: LedgerFacts) -> pa.Array:
    offsets = _count_offsets(np.bincount(known.holder_ledger, minlength=known.count))
    names = known.bookies.take(pa.array(known.holder_bookie))
    return pa.ListArray.from_arrays(offsets, names, type=tables.RECONSTRUCTION.field("holders").type)


_FIELDS: Final = ("ensemble_size/write_quorum", "last_entry", "length")
_READS_AS: Final = (
    "the same entries; checks and repairs would count other copies",
    (
        "another end: entries above it may never have been acknowledged, a recovery may have left them out that asked "
        "a bookie which had lost them, or they are there twice for whoever wrote them again"
    ),
    "the same entries; the length with an entry above the end, as a recovery counts it that reads only its LAC",
)
_SHAPE, _END, _LENGTH = range(len(_FIELDS))


def _find_acked(known: LedgerFacts, bookies: Ints) -> Ints:
    """Return the highest entry of each ledger that so many bookies know to be acknowledged; -1 without one."""
    ledger, numbers = known.copies.row_ledger, np.arange(known.count)
    place = np.searchsorted(ledger, numbers) + bookies - 1
    are_enough = (bookies > 0) & (place < np.searchsorted(ledger, numbers, "right"))
    acked = known.row_acked[np.lexsort((-known.row_acked, ledger))][place[are_enough]]
    highest = np.full(known.count, -1)
    highest[are_enough] = np.maximum(acked, -1)
    return highest


def _find_counted(known: LedgerFacts, explained: Explained, restored: Mask) -> tuple[Ints, Ints]:
    """Return ledgers, and lengths that their recovery may have left: those of entries above the end.

    A recovery begins with the largest LAC, and with the length that stands beside it. It counts anew what it reads
    after that: nothing, where the ledger ends at that LAC.
    """
    ledger, length = known.headers.ledger, known.headers.length
    end = explained.end[ledger]
    is_counted = restored[ledger] & (known.lac[ledger] == end) & (known.headers.entry > end)
    is_counted &= length != explained.length[ledger]
    counted: Ints = np.unique(np.stack([ledger[is_counted], length[is_counted]]), axis=1)
    return counted[0], counted[1]


def _list_alternatives(known: LedgerFacts, explained: Explained, restored: Mask, proposals: Proposals) -> pa.Array:
    """Return other shapes that explain a ledger, and its other possible ends and lengths."""
    kept = restored[explained.other_ledger]
    ledger, shape = explained.other_ledger[kept], explained.other_shape[kept]
    at_end = explained.end == known.copies.end
    # Where entries above the end are held, the end may have been any of them, too.
    highest = np.where(at_end, explained.end - 1, known.copies.end)
    # A recovery ends before what some bookie knows to be acknowledged if others answer it, who lost their entries. Not
    # if as many bookies know it as an ensemble has members: they are the last ensemble, or it begins after that entry.
    sizes = np.array([*(shape.ensemble for shape in explained.shapes), 0], np.int64)
    size = sizes[explained.shape]
    np.maximum.at(size, ledger, sizes[shape])
    least = np.minimum(np.maximum(known.lac, -1), explained.end)
    is_shown = proposals.universal | _mark_observed_ends(known, explained, proposals)
    least = np.where(is_shown, least, np.minimum(least, _find_acked(known, size)))
    shorter = np.flatnonzero(restored & (least <= highest))
    texts = pa.array([f"{shape.ensemble}/{shape.write}" for shape in explained.shapes], pa.string())
    weights = np.array([*(shape.weight for shape in explained.shapes), 0.0])
    lowest, highest = (pc.cast(pa.array(ends[shorter]), pa.string()) for ends in (least, highest))
    ends = pc.if_else(pc.equal(lowest, highest), lowest, pc.binary_join_element_wise(lowest, highest, ".."))
    counted, lengths = _find_counted(known, explained, restored)
    values = [texts.take(pa.array(shape)), ends, pc.cast(pa.array(lengths), pa.string())]
    kinds = np.repeat([_SHAPE, _END, _LENGTH], [len(part) for part in values])
    ledgers = np.concatenate([ledger, shorter, counted])
    kind = tables.RECONSTRUCTION.field("alternatives").type
    item = pa.StructArray.from_arrays(
        [
            _take_text(_FIELDS, kinds),
            pa.concat_arrays(values),
            _take_text(_READS_AS, kinds),
            pa.array(np.append(weights[shape], np.zeros(len(ledgers) - len(shape)))),
        ],
        fields=list(kind.value_type),
    ).take(pa.array(np.argsort(ledgers, kind="stable")))
    return pa.ListArray.from_arrays(_count_offsets(np.bincount(ledgers, minlength=known.count)), item, type=kind)
