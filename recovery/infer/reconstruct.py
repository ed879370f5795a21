"""Ledger metadata from what bookies show: copies of many ledgers in, one proposal or one reason a ledger out.

What the copies show of E and W is tried first; where they are silent, the prior's shapes in their order, and what else
would fit is listed. A proposal is the inclusive one: closed at the last entry that any bookie holds. Everything that
the common path does not prove is held, with its reason. See `docs/design/0002-common-path.md`.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recovery.infer import facts
from recovery.infer.clean import Decision, decide
from recovery.infer.facts import DIGESTS, MAX_GROUPS, NO_LAC, Facts
from recovery.infer.holdings import Holdings, Ints, Mask, numbered
from recovery.infer.prior import Hypothesis, Prior, Source, observed_shapes
from recovery.infer.refusal import CODES, NEEDS_MORE, REFUSALS, Refusal
from recovery.model import tables
from recovery.model.ids import buckets
from recovery.model.metadata import State

_GRADES: Final = ("unknown", "assumed", "inferred", "verified", "observed")
_UNKNOWN, _ASSUMED, _INFERRED, _VERIFIED, _OBSERVED = range(5)
_VOUCHED: Final = (Source.SNAPSHOT, Source.DEFAULT_QUORUM)
"""Sources of an ack quorum that somebody stands for; else one copy may have been enough."""
_NO_SHAPE: Final = -1


@dataclass(frozen=True, slots=True)
class Options:
    """What the operator knows.

    Attributes:
        passwords: candidates; never shown.
        unscanned_bookies: members of the cluster that no inventory is of: their names, or how many.
        max_groups: more groups of one ledger leave it undecided.
    """

    passwords: tuple[bytes, ...] = field(default=(b"",), repr=False)
    unscanned_bookies: int | tuple[str, ...] = 0
    max_groups: int = MAX_GROUPS

    @property
    def unscanned(self) -> int:
        """How many bookies were not scanned."""
        return self.unscanned_bookies if isinstance(self.unscanned_bookies, int) else len(self.unscanned_bookies)


@dataclass(frozen=True, slots=True)
class _Segments:
    """Segments of many ledgers; `size` members each, numbers of bookies, -1 where nothing shows one."""

    ledger: Ints
    first: Ints
    low: Ints
    size: Ints
    members: Ints


@dataclass(slots=True)
class _Findings:
    """What is decided so far, by ledger: refusal code, number of the shape in `shapes`, copies beside the ensembles."""

    refusal: Ints
    shape: Ints
    extra: Ints
    depth: Ints
    shapes: list[Hypothesis]
    observed: int
    parts: list[_Segments]
    others: list[tuple[Ints, int]]


def reconstruct(copies: pa.Table, bookies: pa.Table, damage: pa.Table, prior: Prior, options: Options) -> pa.Table:
    """Propose metadata for every ledger that the copies are of.

    Args:
        copies: COPIES of whole ledgers, rows of any number of inventories in any order.
        bookies: BOOKIES of all inventories.
        damage: DAMAGE of all inventories.
        prior: what may be assumed where copies are silent.
        options: what the operator knows.

    Returns:
        RECONSTRUCTION, one row a ledger, in key order.
    """
    hashed = [hashlib.sha256(_master_key(password)).digest() for password in options.passwords]
    # A data-integrity copy stores the password itself where its key belongs (bookie-storage §4.4).
    raw = [hashlib.sha256(password).digest() for password in options.passwords]
    known = facts.read(copies, bookies, max_groups=options.max_groups, same_keys=dict(zip(raw, hashed, strict=True)))
    found = _Findings(
        _refused_by_facts(known, damage),
        np.full(known.count, _NO_SHAPE),
        np.zeros(known.count, np.int64),
        np.zeros(known.count, np.int64),
        [],
        0,
        [],
        [],
    )
    _decide_all(known, prior, found)
    segments, assumed = _filled(known, found)
    blind = _Blind.of(known, bookies, damage, options)
    ack, ack_source = _ack_quorums(found, prior)
    _refuse_where_blind(known, found, blind, ack, ack_source)
    return _rows(known, found, segments, assumed, blind, ack, ack_source, hashed)


def _master_key(password: bytes) -> bytes:
    return hashlib.sha1(b"ledger" + password, usedforsecurity=False).digest()


def _refused_by_facts(known: Facts, damage: pa.Table) -> Ints:
    """Refuse what no ensemble could make good."""
    held = known.held
    code = np.zeros(known.count, np.int64)
    low = np.full(known.count, facts.MAX_ENTRY)
    np.minimum.at(low, held.row_ledger, held.lo)
    empty = held.end < 0
    for mask, reason in (
        ((known.scope == 0) & (known.ledger < 0), Refusal.ID_OUT_OF_RANGE),
        (known.broken, Refusal.CONTRADICTION),
        (known.fragmented, Refusal.FRAGMENTED),
        (~known.indexed & (~empty | known.leftover), Refusal.LOGS_OR_JOURNALS_ONLY),
        (empty & known.leftover, Refusal.LOGS_OR_JOURNALS_ONLY),
        (known.reincarnated, Refusal.TWO_INCARNATIONS),
        (known.keys > 1, Refusal.TWO_KEYS),
        (known.limbo, Refusal.LIMBO),
        (_damaged(known, damage), Refusal.DAMAGE),
        (empty, Refusal.NO_ENTRIES),
        (known.keys == 0, Refusal.NO_KEY),
        (known.leftover, Refusal.DELETED_SOMEWHERE),
        (known.unlisted, Refusal.LOG_ONLY_COPIES),
        (known.lengths_differ, Refusal.LENGTHS_DIFFER),
        (known.digests_differ, Refusal.DIGESTS_DIFFER),
        (known.copied, Refusal.RE_REPLICATED),
        (known.lac > held.end, Refusal.LAC_BEYOND_END),
        (low > 0, Refusal.NOT_FROM_ZERO),
        (known.last_length < 0, Refusal.NO_LAST_HEADER),
    ):
        code[mask & (code == 0)] = CODES[reason]
    return code


def _damaged(known: Facts, damage: pa.Table) -> Mask:
    """Say which ledgers damage names that hides entries of them."""
    found = np.zeros(known.count, np.bool_)
    rows = damage.filter(pc.and_(damage["hides_entries"], pc.is_valid(damage["ledger"])))
    if not rows.num_rows:
        return found
    scope = pc.fill_null(rows["scope"], 0).to_numpy().astype(np.int64)
    ledger = rows["ledger"].to_numpy().astype(np.int64)
    pairs = np.stack([np.append(scope, known.scope), np.append(ledger, known.ledger)], axis=1)
    _, same = np.unique(pairs, axis=0, return_inverse=True)
    return np.isin(same.ravel()[len(ledger) :], same.ravel()[: len(ledger)])


def _decide_all(known: Facts, prior: Prior, found: _Findings) -> None:
    held = known.held
    ensemble, write = observed_shapes(held)
    undecided = found.refusal == 0
    seen = np.flatnonzero(undecided & (ensemble > 0))
    pairs, which = np.unique(np.stack([ensemble[seen], write[seen]]), axis=1, return_inverse=True)
    found.shapes = [Hypothesis(e, w, 1.0, Source.CLUSTER) for e, w in pairs.T.tolist()]
    found.observed = len(found.shapes)
    fits = ensemble[seen] <= len(known.bookies)
    found.depth[seen[~fits]] = CODES[Refusal.TOO_FEW_BOOKIES]
    _try(known, found, seen[fits], ensemble, write, which.ravel()[fits])
    silent = undecided & (ensemble == 0)
    forms = _Forms.of(held)
    for hypothesis in prior.hypotheses:
        number = len(found.shapes)
        found.shapes.append(hypothesis)
        may = silent & forms.allow(hypothesis)
        if hypothesis.ensemble > len(known.bookies):
            found.depth[may] = np.maximum(found.depth[may], CODES[Refusal.TOO_FEW_BOOKIES])
            continue
        some = np.flatnonzero(may)
        size, quorum = np.full(known.count, hypothesis.ensemble), np.full(known.count, hypothesis.write)
        _try(known, found, some, size, quorum, np.full(len(some), number))
    failed = undecided & (found.shape == _NO_SHAPE)
    found.depth[failed & silent] = np.maximum(found.depth, forms.refusal)[failed & silent]
    found.depth[failed & forms.whole] = CODES[Refusal.UNSUPPORTED_SHAPE]
    found.refusal[failed] = found.depth[failed]


@dataclass(frozen=True, slots=True)
class _Forms:
    """What decides cheaply that a shape cannot fit, by ledger.

    Attributes:
        holders: bookies that hold entries; zeros: those that hold entry 0.
        largest: size of the longest run.
        contiguous: no row has a gap.
        whole: every row holds everything, and it is more than any write quorum's striping could hide.
    """

    end: Ints
    holders: Ints
    zeros: Ints
    largest: Ints
    contiguous: Mask
    whole: Mask
    refusal: Ints

    @classmethod
    def of(cls, held: Holdings) -> "_Forms":
        of, count = held.row_ledger, held.ledgers
        holders = np.bincount(of, minlength=count)
        largest = np.zeros(count, np.int64)
        np.maximum.at(largest, of[held.group_row], held.size)
        gaps = np.bincount(of, weights=held.hi - held.lo + 1 != held.count, minlength=count)
        from_zero = held.lo == 0
        full = np.bincount(of, weights=from_zero & (held.hi == held.end[of]), minlength=count)
        whole = (gaps == 0) & (full == holders) & (held.end >= holders)
        refusal = np.where(gaps > 0, CODES[Refusal.HOLE], CODES[Refusal.TOO_FEW_POSITIONS])
        zeros = np.bincount(of, weights=from_zero, minlength=count).astype(np.int64)
        return cls(held.end, holders, zeros, largest, gaps == 0, whole, refusal)

    def allow(self, hypothesis: Hypothesis) -> Mask:
        """Say which ledgers may have a shape at all."""
        ensemble, write = hypothesis.ensemble, hypothesis.write
        if write < ensemble:
            return (self.holders >= np.minimum(ensemble, self.end + write)) & (self.largest <= write)
        return self.contiguous & np.equal(self.zeros, ensemble)


def _try(known: Facts, found: _Findings, some: Ints, ensemble: Ints, write: Ints, shape: Ints) -> None:
    """Decide some ledgers by one shape each; the first accepted stays, later ones are its alternatives."""
    if not len(some):
        return
    held, rows = known.held.pick(some)
    decision = decide(held, ensemble[some], write[some])
    refused = decision.refusal != 0
    found.depth[some[refused]] = np.maximum(found.depth[some[refused]], decision.refusal[refused])
    first = ~refused & (found.shape[some] == _NO_SHAPE)
    other = ~refused & ~first
    if other.any():
        found.others.append((some[other], int(shape[0])))
    found.shape[some[first]] = shape[first]
    found.extra[some[first]] = decision.extra[first]
    found.parts.append(_segments(decision, first, some, ensemble, known.row_bookie[rows]))


def _segments(decision: Decision, wanted: Mask, ledgers: Ints, ensemble: Ints, row_bookie: Ints) -> _Segments:
    kept = wanted[decision.segment_ledger]
    size = ensemble[ledgers[decision.segment_ledger]]
    member = decision.members[np.repeat(kept, size)]
    bookie = np.where(member >= 0, row_bookie[np.maximum(member, 0)] if len(row_bookie) else -1, -1)
    return _Segments(
        ledgers[decision.segment_ledger[kept]], decision.first[kept], decision.low[kept], size[kept], bookie
    )


def _filled(known: Facts, found: _Findings) -> tuple[_Segments, Mask]:
    """Join all segments in ledger order, and give positions that never received anything a bookie.

    First the bookies that know the ledger and hold nothing of it, then others in an order of the ledger's own.

    Returns:
        The segments, and which members are assumed. Ledgers for which bookies do not suffice are refused.
    """
    joined = _Segments(
        *(
            np.concatenate([getattr(part, name) for part in found.parts] or [np.zeros(0, np.int64)])
            for name in _Segments.__slots__
        )
    )
    order = np.argsort(joined.ledger, kind="stable")
    begin = np.append(0, np.cumsum(joined.size))
    size = joined.size[order]
    cell = np.repeat(begin[order], size) + numbered(np.repeat(np.arange(len(order)), size))
    members = joined.members[cell]
    joined = _Segments(joined.ledger[order], joined.first[order], joined.low[order], size, members)
    blank = members < 0
    if not blank.any():
        return joined, blank
    segment = np.repeat(np.arange(len(size)), size)
    idle_begin = np.searchsorted(known.idle_ledger, joined.ledger)
    idle_count = np.searchsorted(known.idle_ledger, joined.ledger, "right") - idle_begin
    for width in np.unique(size[segment[blank]]).tolist():
        some = np.unique(segment[blank])
        some = some[size[some] == width]
        cells = (np.append(0, np.cumsum(size))[some][:, None] + np.arange(width)).ravel()
        table = members[cells].reshape(-1, width)
        members[cells] = _with_others(known, joined.ledger[some], table, idle_begin[some], idle_count[some]).ravel()
    short = members < 0
    refused = np.unique(joined.ledger[segment[short]])
    found.refusal[refused] = CODES[Refusal.TOO_FEW_BOOKIES]
    found.shape[refused] = _NO_SHAPE
    stays = found.shape[joined.ledger] != _NO_SHAPE
    of_cell = stays[segment]
    return (
        _Segments(joined.ledger[stays], joined.first[stays], joined.low[stays], size[stays], members[of_cell]),
        blank[of_cell],
    )


def _with_others(known: Facts, ledger: Ints, members: Ints, idle_begin: Ints, idle_count: Ints) -> Ints:
    """Fill the blanks of ensembles of one size; members: one row an ensemble."""
    width = members.shape[1]
    # Of E candidates in a row, at least as many are not members as there are blanks.
    window = min(len(known.bookies), width)
    begin = buckets(known.scope[ledger], known.ledger[ledger]).astype(np.int64)
    ring = (begin[:, None] + np.arange(window)) % len(known.bookies)
    nth = np.arange(min(width, int(idle_count.max(initial=0))))
    idle = np.full((len(ledger), len(nth)), -1)
    has = nth < idle_count[:, None]
    idle[has] = known.idle_bookie[(idle_begin[:, None] + nth)[has]]
    ring = np.where((ring[:, :, None] == idle[:, None, :]).any(axis=2), -1, ring)
    candidates = np.concatenate([idle, ring], axis=1)
    candidates = np.where((candidates[:, :, None] == members[:, None, :]).any(axis=2), -1, candidates)
    # The usable ones to the front, in their order; then the n-th blank takes the n-th.
    front = np.argsort(candidates < 0, axis=1, kind="stable")
    candidates = np.take_along_axis(candidates, front, axis=1)
    blank = members < 0
    place = np.minimum(np.cumsum(blank, axis=1) - 1, candidates.shape[1] - 1)
    filled: Ints = np.where(blank, np.take_along_axis(candidates, np.maximum(place, 0), axis=1), members)
    return filled


@dataclass(frozen=True, slots=True)
class _Blind:
    """Where entries may stand that nothing shows.

    Attributes:
        anywhere: bookies that were not scanned, not completely, or have damage of no ledger that hides entries.
        damaged: of the latter, by number of bookie.
        of_ledger: how many, at least, may hide entries of each ledger.
        complete: of each bookie, by number: it was scanned completely.
    """

    anywhere: int
    damaged: Mask
    of_ledger: Ints

    @classmethod
    def of(cls, known: Facts, bookies: pa.Table, damage: pa.Table, options: Options) -> "_Blind":
        general = damage.filter(pc.and_(damage["hides_entries"], pc.is_null(damage["ledger"])))
        damaged = pc.is_in(known.bookies, value_set=_values(general["bookie"])).to_numpy(zero_copy_only=False)
        partly = bookies.filter(pc.invert(bookies["complete"]))
        partly = pc.is_in(known.bookies, value_set=_values(partly["bookie"])).to_numpy(zero_copy_only=False)
        anywhere = int((damaged | partly).sum()) + options.unscanned
        return cls(anywhere, damaged, np.maximum(anywhere, known.incomplete.astype(np.int64)))


def _values(column: pa.ChunkedArray) -> pa.Array:
    return pa.array(column.unique().to_pylist(), pa.string())


def _ack_quorums(found: _Findings, prior: Prior) -> tuple[Ints, Ints]:
    """Return A of each decided ledger, and the number of the source in `Source`."""
    sources = list(Source)
    answers = [prior.ack_quorum(shape.ensemble, shape.write) for shape in found.shapes]
    ack = np.array([answer for answer, _ in answers] + [0], np.int64)
    source = np.array([sources.index(source) for _, source in answers] + [-1], np.int64)
    return ack[found.shape], source[found.shape]


def _enough_to_hide(ack: Ints, ack_source: Ints) -> Ints:
    """Return how many blind bookies could hide an acknowledged entry: its A copies; one where nobody vouches for A."""
    vouched = np.isin(ack_source, [list(Source).index(source) for source in _VOUCHED])
    return np.where(vouched, ack, 1)


def _refuse_where_blind(known: Facts, found: _Findings, blind: _Blind, ack: Ints, ack_source: Ints) -> None:
    """Refuse what hidden entries could change, and say where more sources are the remedy."""
    of = known.held.row_ledger
    hiding = np.bincount(of[blind.damaged[known.row_bookie]], minlength=known.count)
    decided = found.shape != _NO_SHAPE
    cut = decided & (hiding >= _enough_to_hide(ack, ack_source)) & (hiding > 0)
    found.refusal[cut] = CODES[Refusal.DAMAGE]
    found.shape[cut] = _NO_SHAPE
    needs_more = np.isin(found.refusal, [CODES[reason] for reason in NEEDS_MORE])
    found.refusal[needs_more & (blind.of_ledger > 0)] = CODES[Refusal.SOURCE_INCOMPLETE]


def _rows(
    known: Facts,
    found: _Findings,
    segments: _Segments,
    assumed: Mask,
    blind: _Blind,
    ack: Ints,
    ack_source: Ints,
    hashed: Sequence[bytes],
) -> pa.Table:
    restored = found.shape != _NO_SHAPE
    unknown = np.zeros(known.count, np.int64)
    ensemble = np.array([shape.ensemble for shape in found.shapes] + [0])[found.shape]
    write = np.array([shape.write for shape in found.shapes] + [0])[found.shape]
    end = known.held.end
    proven = restored & (known.explicit == end) & (blind.of_ledger == 0)
    enough = _enough_to_hide(ack, ack_source)
    opened = np.isin(known.key, _ints_of(pc.index_in(pa.array(hashed, pa.binary()), value_set=known.key_values)))
    opened &= known.keys == 1
    digest_known = known.digest >= 0
    old_format = ~(opened & digest_known)
    shape_grade = np.array([_shape_grade(found, number) for number in range(len(found.shapes))] + [_UNKNOWN])
    quorum_grade = np.array([_source_grade(source) for source in Source] + [_UNKNOWN])
    end_grade = np.where(proven, _OBSERVED, _INFERRED)
    digest_grade = np.where(known.verified, _VERIFIED, np.where(digest_known, _INFERRED, _UNKNOWN))
    grades = {
        "ensemble_size": shape_grade[found.shape],
        "write_quorum": shape_grade[found.shape],
        "ack_quorum": quorum_grade[ack_source],
        "state": np.full(known.count, _INFERRED),
        "last_entry": end_grade,
        "length": end_grade,
        "segments": shape_grade[found.shape],
        "digest": digest_grade,
        "password": np.where(opened, _VERIFIED, _UNKNOWN),
        "ctime": unknown,
        "custom": unknown,
    }
    names = pa.array(_GRADES, pa.string())
    grade_columns = [names.take(pa.array(np.where(restored, grades[name], _UNKNOWN))) for name in tables.GRADED]
    schema = tables.RECONSTRUCTION
    columns: dict[str, Any] = {
        "bucket": pa.array(known.bucket),
        "scope": pa.array(known.scope),
        "ledger": pa.array(known.ledger),
        "class": _choice(["undecided", "clean"], restored),
        "outcome": _choice(["held", "restored"], restored),
        "reason": pa.array(["", *REFUSALS], pa.string()).take(pa.array(found.refusal, mask=restored)),
        "format": pa.array(np.where(old_format, 1, 3), pa.int8(), mask=~restored),
        "state": pa.array([State.CLOSED], pa.string()).take(pa.array(unknown, mask=~restored)),
        "ensemble_size": pa.array(ensemble, pa.int32(), mask=~restored),
        "write_quorum": pa.array(write, pa.int32(), mask=~restored),
        "ack_quorum": pa.array(ack, pa.int32(), mask=~restored),
        "last_entry": pa.array(end, mask=~restored),
        "length": pa.array(known.length, mask=~restored),
        "digest": pa.array(DIGESTS, pa.string()).take(pa.array(known.digest, mask=~(restored & digest_known))),
        "ctime": pa.nulls(known.count, pa.int64()),
        "key": known.key_values.take(pa.array(known.key, mask=known.keys != 1)),
        "segments": _segment_lists(known, segments, assumed, restored),
        "custom": pa.nulls(known.count, schema.field("custom").type),
        "grades": pa.StructArray.from_arrays(grade_columns, fields=list(schema.field("grades").type)),
        "lac_low": pa.array(known.lac, mask=known.lac == NO_LAC),
        "acked_high": pa.array(end, mask=~(restored & (blind.of_ledger < enough))),
        "missing": pa.array(unknown),
        "extra": pa.array(np.where(restored, found.extra, 0)),
        "holders": _holders(known),
        "alternatives": _alternatives(known, found, restored),
    }
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _shape_grade(found: _Findings, number: int) -> int:
    if number < found.observed:
        return _OBSERVED
    assumed = found.shapes[number].source in (Source.DEFAULT_QUORUM, Source.BOOKKEEPER_DEFAULT)
    return _ASSUMED if assumed else _INFERRED


def _source_grade(source: Source) -> int:
    return _INFERRED if source is Source.SNAPSHOT else _ASSUMED


def _ints_of(column: pa.Array) -> Ints:
    values: Ints = pc.fill_null(column, -9).to_numpy().astype(np.int64)
    return values


def _choice(values: list[str], which: Mask) -> pa.Array:
    return pa.array(values, pa.string()).take(pa.array(which.astype(np.int64)))


def _offsets(counts: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    return np.append(0, np.cumsum(counts)).astype(np.int32)


def _segment_lists(known: Facts, segments: _Segments, assumed: Mask, restored: Mask) -> pa.Array:
    kept = restored[segments.ledger]
    of_cell = np.repeat(kept, segments.size)
    item = tables.RECONSTRUCTION.field("segments").type.value_type
    per = pa.array(_offsets(segments.size[kept]))
    members = known.bookies.take(pa.array(segments.members[of_cell]))
    struct = pa.StructArray.from_arrays(
        [
            pa.array(segments.first[kept]),
            pa.array(segments.low[kept]),
            pa.ListArray.from_arrays(per, members, type=item.field("members").type),
            pa.ListArray.from_arrays(per, pa.array(assumed[of_cell]), type=item.field("assumed").type),
        ],
        fields=list(item),
    )
    offsets = _offsets(np.bincount(segments.ledger[kept], minlength=known.count))
    kind = tables.RECONSTRUCTION.field("segments").type
    return pa.ListArray.from_arrays(pa.array(offsets), struct, type=kind, mask=pa.array(~restored))


def _holders(known: Facts) -> pa.Array:
    """Who holds entries; where nobody does, who knows anything."""
    nobody = known.held.end < 0
    other = nobody[known.any_ledger]
    ledger = np.append(known.held.row_ledger, known.any_ledger[other])
    bookie = np.append(known.row_bookie, known.any_bookie[other])
    order = np.argsort(ledger, kind="stable")
    offsets = _offsets(np.bincount(ledger, minlength=known.count))
    kind = tables.RECONSTRUCTION.field("holders").type
    return pa.ListArray.from_arrays(pa.array(offsets), known.bookies.take(pa.array(bookie[order])), type=kind)


def _alternatives(known: Facts, found: _Findings, restored: Mask) -> pa.Array:
    """List the other shapes that explain a ledger as well, and the other length that a reader could be given."""
    kind = tables.RECONSTRUCTION.field("alternatives").type
    ledger = [some for some, _ in found.others]
    shape = [np.full(len(some), number) for some, number in found.others]
    of = np.concatenate([*ledger, np.zeros(0, np.int64)])
    number = np.concatenate([*shape, np.zeros(0, np.int64)])
    kept = restored[of]
    of, number = of[kept], number[kept]
    texts = pa.array([f"{s.ensemble}/{s.write}" for s in found.shapes], pa.string())
    weights = np.array([s.weight for s in found.shapes] + [0.0])
    shorter = np.flatnonzero(restored & (known.last_length != known.length))
    lengths = pa.array(known.last_length[shorter])
    value = pa.concat_arrays([texts.take(pa.array(number)), pc.cast(lengths, pa.string())])
    names = pa.array(["ensemble_size/write_quorum", "length"], pa.string())
    reads = pa.array(
        [
            "the same entries; the write quorum of later checks and repairs differs",
            "the same entries; the length up to the last one, which an out-of-order writer did not send last",
        ],
        pa.string(),
    )
    which = pa.array(np.append(np.zeros(len(of), np.int64), np.ones(len(shorter), np.int64)))
    weight = np.append(weights[number], np.zeros(len(shorter)))
    ledgers = np.append(of, shorter)
    order = pa.array(np.argsort(ledgers, kind="stable"))
    item = pa.StructArray.from_arrays(
        [names.take(which), value, reads.take(which), pa.array(weight)], fields=list(kind.value_type)
    ).take(order)
    offsets = _offsets(np.bincount(ledgers, minlength=known.count))
    return pa.ListArray.from_arrays(pa.array(offsets), item, type=kind)
