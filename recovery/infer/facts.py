"""Turn inventory rows of many bookies, in any order, into columns: one fact of each ledger a column.

    strong rows  index, wire, lost, and journal unless the bookie was stopped cleanly (then the index has it all): what
                 the bookie serves, or will serve after its start
    weak rows    log (also journals before the mark), and journal of a cleanly stopped bookie: leftovers; evidence of a
                 deletion, and of a LAC, never copies; taken for strong of a ledger that no bookie serves, where only
                 bookies whose index was not seen have any, or somebody wants them

Rows of one (ledger, bookie) are united. Impossible groups mark their ledger and are not used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recovery.infer.copies import LOST, CopyColumns, Ints, Mask, heads, starts
from recovery.infer.group_union import unite_groups
from recovery.infer.lost_disks import mark_index_seen
from recovery.model.groups import KeyedGroups, from_arrow
from recovery.model.metadata import DIGEST_SIZES, Digest

MAX_ENTRY: Final = 1 << 60
"""Ids of entries stay far below 2^63, so their sums cannot overflow."""
DIGESTS: Final = tuple(Digest)
MAX_GROUPS: Final = 5_000_000
"""Most groups of one ledger, or runs to expand one by one, that a task can hold."""
NO_LAC: Final = -2
"""No LAC was seen: a number below every last add confirmed."""

COLUMNS: Final = [
    "bucket", "scope", "ledger", "bookie", "incarnation", "source", "groups", "complete", "limbo", "key_kind", "key",
    "explicit_lac", "lac_record", "headers",
]  # fmt: skip
"""The columns of COPIES that are read."""
_ENTRY_HEADER: Final = 32
_SCOPED_MORE: Final = 9
"""Additional bytes before the digest in entries of a scope."""
_WIDTHS: Final = np.array([DIGEST_SIZES[digest] for digest in DIGESTS])
_LAC_RECORD: Final = 16


class HeaderFacts(NamedTuple):
    """Entry headers; `payload`: bytes of the entry's own payload, -1 where its digest type is not known."""

    ledger: Ints
    entry: Ints
    length: Ints
    payload: Ints


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """The facts of each ledger; ledgers in key order, bookies by number.

    Attributes:
        bucket, scope, ledger: the key.
        bookies: names, sorted; a bookie is a number of this list; unscanned: those without an inventory; lost: those
            stated to be gone, with nothing more to come.
        copies: entries by (ledger, bookie), of strong rows.
        row_bookie: of each row of `copies`; row_copied: a header of it has a LAC that is not below its entry;
            row_lac: the largest of its headers, NO_LAC without one; row_acked: the highest entry that one of them shows
            to be acknowledged, of those up to the header's own; row_first: the header of its first entry was read.
        idle_ledger, idle_bookie: strong rows without entries, sorted by both.
        holder_ledger, holder_bookie: bookies that serve entries, even in impossible groups; for a ledger that no bookie
            serves, all bookies with any row. Sorted by both.
        broken: groups or headers are impossible.
        fragmented: more groups or runs than the limit; such a ledger has no rows in `copies`.
        indexed: an index or a wire answer has it.
        leftover: entries in logs or old journals of a bookie seen completely, without a strong row; leftover_first: the
            lowest of each such bookie, the highest of these, -1 without one; leftover_copied: a header is a copy's.
        unindexed: the same, on a bookie that was not read completely; its index may know the ledger without an entry.
        unserved: all its copies are in logs or old journals, and taken for copies all the same.
        unlisted: entries in logs or old journals of a bookie that has a strong row of it.
        weak_end: the highest entry in logs or old journals; -1 without one.
        whole_ledger, whole_bookie: a row says that this bookie can have nothing else of this ledger.
        limbo, incomplete: of any row.
        reincarnated: rows of one bookie from two incarnations.
        keys: how many distinct master keys; key: one of them, number of `key_values`, or -1.
        lac: the largest of all headers and explicit ones; explicit: of explicit ones; NO_LAC where there is none.
        copied: a header's LAC is not below its entry.
        newest_copy: the highest entry with the largest LAC of all in the header of a copy; -1 without one. No writer
            shows as late a LAC as a copier. A ledger that was open then may have gone on.
        last_length: at the last entry, -1 where no header of it was read.
        lengths_differ: two headers of one entry disagree; crossed: an entry begins, in bytes of the ledger, before an
            earlier one ends; overlapped: two entries share bytes of the ledger, in any order of sending.
        lac_record: row of `lac_records` that is of the ledger, or -1.
        digest: number of `DIGESTS`, or -1; verified: every header's bytes agreed; digests_differ.
        headers: of strong rows, sorted by ledger and entry.
    """

    bucket: npt.NDArray[np.int16]
    scope: Ints
    ledger: Ints
    bookies: pa.Array
    unscanned: Ints
    lost: Mask
    copies: CopyColumns
    row_bookie: Ints
    row_copied: Mask
    row_lac: Ints
    row_acked: Ints
    row_first: Mask
    idle_ledger: Ints
    idle_bookie: Ints
    holder_ledger: Ints
    holder_bookie: Ints
    broken: Mask
    fragmented: Mask
    indexed: Mask
    leftover: Mask
    unindexed: Mask
    unserved: Mask
    leftover_first: Ints
    leftover_copied: Mask
    unlisted: Mask
    weak_end: Ints
    whole_ledger: Ints
    whole_bookie: Ints
    limbo: Mask
    incomplete: Mask
    reincarnated: Mask
    keys: Ints
    key: Ints
    key_values: pa.Array
    lac: Ints
    explicit: Ints
    lac_record: Ints
    lac_records: pa.Array
    copied: Mask
    newest_copy: Ints
    last_length: Ints
    lengths_differ: Mask
    crossed: Mask
    overlapped: Mask
    digest: Ints
    verified: Mask
    digests_differ: Mask
    headers: HeaderFacts

    @property
    def count(self) -> int:
        """How many ledgers there are."""
        return len(self.ledger)


@dataclass(frozen=True, slots=True)
class _HeaderFacts:
    """The facts from entry headers of strong rows; fields that are not named here are as in `LedgerFacts`.

    Attributes:
        record, entry, lac: of each header, the table's row, the entry and the LAC.
        copied_record: rows with a header of a copy; copied_weak: the same of rows that are not strong.
        largest_lac: of each ledger's headers, of rows that are not strong, too; NO_LAC without one.
        newest_copy: as if no explicit LAC were larger.
        beyond: of each ledger, whether a header is impossible, or of an entry above the highest one.
    """

    record: Ints
    entry: Ints
    lac: Ints
    copied_record: Ints
    copied_weak: Ints
    largest_lac: Ints
    newest_copy: Ints
    beyond: Mask
    copied: Mask
    last_length: Ints
    lengths_differ: Mask
    crossed: Mask
    overlapped: Mask
    digest: Ints
    verified: Mask
    digests_differ: Mask
    headers: HeaderFacts


def _ints(column: Any, missing: int = 0) -> Ints:  # noqa: ANN401 - an Arrow column
    if column.null_count:
        column = pc.fill_null(column, missing)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    values: Ints = column.to_numpy(zero_copy_only=False)
    return values if values.dtype == np.int64 else values.astype(np.int64)


def _mask(column: Any) -> Mask:  # noqa: ANN401 - an Arrow column
    flags: Mask = _ints(pc.cast(column, pa.int8())) != 0
    return flags


def _combine(column: pa.ChunkedArray) -> pa.Array:
    chunk = column.combine_chunks()
    return pa.concat_arrays(chunk.chunks) if isinstance(chunk, pa.ChunkedArray) else chunk


def _fold(ufunc: np.ufunc, values: Ints, owner: Ints, owners: int, empty: int) -> Ints:
    """Fold values by their owner, in any order."""
    ufunc.at(folded := np.full(owners, empty), owner, values)
    return folded


def _mark(owner: Ints, owners: int) -> Mask:
    flags = np.zeros(owners, np.bool_)
    flags[owner] = True
    return flags


def _codes(column: pa.ChunkedArray) -> tuple[Ints, pa.Array]:
    """Number equal values; -1 for null."""
    coded = _combine(column.dictionary_encode()) if column.num_chunks else pa.array([], column.type).dictionary_encode()
    return _ints(coded.indices, -1), coded.dictionary


def _bookie_codes(columns: list[pa.ChunkedArray], unscanned: Sequence[str]) -> tuple[list[Ints], pa.Array]:
    chunks = [chunk for column in columns for chunk in column.chunks]
    names = pc.unique(pa.chunked_array([*chunks, pa.array(unscanned, pa.string())], pa.string()))
    names = names.take(pc.sort_indices(names))
    return [_ints(pc.index_in(column, value_set=names), -1) for column in columns], names


def _flat(column: pa.ChunkedArray) -> tuple[Ints, pa.Array]:
    """Return the row of each list item, and the items."""
    lists = _combine(column)
    return np.repeat(np.arange(len(lists)), _ints(pc.list_value_length(lists))), lists.flatten()


def read(
    copies: pa.Table,
    bookies: pa.Table,
    *,
    max_groups: int = MAX_GROUPS,
    same_keys: Mapping[bytes, bytes] | None = None,
    unscanned: Sequence[str] = (),
    lost: Sequence[str] = (),
    are_leftovers_wanted: bool = False,
) -> LedgerFacts:
    """Gather the facts of every ledger of a table of copies.

    Args:
        copies: COPIES, rows of any number of inventories in any order.
        bookies: BOOKIES.
        max_groups: more groups or runs of one ledger make it fragmented.
        same_keys: keys (SHA-256, as in COPIES) that count as another key.
        unscanned: bookies without an inventory.
        lost: bookies that are stated to be gone, with or without an inventory.
        are_leftovers_wanted: records in logs count as copies of a ledger that no bookie serves, deleted there or not.
    """
    copies = copies.select(COLUMNS)
    (of_bookie, listed), names = _bookie_codes([copies["bookie"], bookies["bookie"]], (*unscanned, *lost))
    is_lost = _mask(pc.is_in(names, value_set=pa.array(lost, pa.string())))
    clean_stop = np.zeros(len(names), np.bool_)
    clean_stop[listed] = ~_mask(pc.fill_null(bookies["dirty"], fill_value=True))
    is_partly_seen = np.zeros(len(names), np.bool_)
    is_partly_seen[listed] = ~_mask(bookies["complete"])
    bucket, scope, ledger = (_ints(copies[name]) for name in ("bucket", "scope", "ledger"))
    order = np.lexsort((of_bookie, ledger, scope, bucket))
    if not np.array_equal(order, np.arange(len(order))):
        copies = copies.take(pa.array(order))
        bucket, scope, ledger, of_bookie = bucket[order], scope[order], ledger[order], of_bookie[order]
    head = heads(bucket, scope, ledger)
    number = np.cumsum(head) - 1
    count = int(head.sum())

    source, kinds = _codes(copies["source"])
    kind_of = {name: place for place, name in enumerate(kinds.to_pylist())}
    in_index = np.isin(source, [kind_of.get(name, -9) for name in ("index", "wire", LOST)])
    strong = in_index | ((source == kind_of.get("journal", -9)) & ~clean_stop[of_bookie])
    record, first, last, size, period = from_arrow(copies["groups"])
    has_index_seen = np.ones(len(names), np.bool_)
    has_index_seen[listed] = mark_index_seen(bookies)
    unserved_rows = _find_unserved(record, number, strong, ~has_index_seen[of_bookie] | are_leftovers_wanted, count)
    strong[unserved_rows] = True
    # What a bookie that was seen whole has in logs alone hides nothing.
    is_left = (source == kind_of.get("log", -9)) & ~is_partly_seen[of_bookie]

    # A unit is one (ledger, bookie); records are what the table has rows of.
    unit_head = head | heads(of_bookie)
    unit = np.cumsum(unit_head) - 1
    unit_of, unit_bookie = number[unit_head], of_bookie[unit_head]
    unit_strong = _mark(unit[strong], len(unit_of))

    weak = ~strong[record]
    is_partly = is_partly_seen[unit_bookie[unit[record]]]
    left = np.flatnonzero(weak & ~unit_strong[unit[record]] & ~is_partly)
    is_served = _mark(unit[record[strong[record]]], len(unit_of))[unit[record]]
    unindexed = _mark(number[record[weak & ~is_served & is_partly]], count)
    left_first = np.full(len(unit_of), MAX_ENTRY)
    np.minimum.at(left_first, unit[record[left]], first[left])
    leftover_first = _fold(np.maximum, left_first[unit[record[left]]], number[record[left]], count, -1)
    unlisted = _mark(number[record[weak & unit_strong[unit[record]]]], count)
    possible = (
        (first >= 0) & (first <= last) & (last <= MAX_ENTRY) & (size >= 1) & (size <= MAX_ENTRY)
        & np.where(last > first, (period > size) & ((last - first) % np.maximum(period, 1) == 0), period == 0)
    )  # fmt: skip
    broken = _mark(number[record[~possible]], count)
    fragmented = np.bincount(number[record], minlength=count) > max_groups
    use = np.flatnonzero(~weak & possible & ~fragmented[number[record]])
    taken = KeyedGroups(unit[record[use]], first[use], last[use], size[use], period[use])
    # Unless the inventory is broken, `regroup` made the groups of one record; several records need it again.
    several = np.bincount(unit[_mark(record[use], len(unit))], minlength=len(unit_of)) > 1
    taken, too_many = unite_groups(taken, several, unit_of, max_groups)
    fragmented |= too_many
    row_unit = taken.key[starts(taken.key)]
    row_of = unit_of[row_unit]
    columns = CopyColumns.sum_up(count, row_of, np.cumsum(heads(taken.key)) - 1, *taken[1:])
    serving = _mark(unit[record[~weak & (source[record] != kind_of.get(LOST, -9))]], len(unit_of))
    holder = serving | ~_mark(unit_of[serving], count)[unit_of]
    is_whole = _mark(unit[_mask(copies["complete"])], len(unit_of))
    idle = np.flatnonzero(unit_strong & ~_mark(row_unit, len(unit_of)))

    incarnation = _ints(copies["incarnation"])
    moved = np.zeros(len(number), np.bool_)
    moved[1:] = ~unit_head[1:] & (incarnation[1:] != incarnation[:-1])

    key, key_values = _codes(copies["key"])
    if same_keys:
        renamed = pc.index_in(key_values, value_set=pa.array(list(same_keys), pa.binary()))
        canonical = pa.array(list(same_keys.values()), pa.binary())
        key_values = pc.coalesce(canonical.take(renamed), key_values)
        first_of = _ints(pc.index_in(key_values, value_set=pc.unique(key_values)))
        key, key_values = np.where(key < 0, -1, first_of[key]) if len(key_values) else key, pc.unique(key_values)
    key = np.where(_ints(pc.index_in(copies["key_kind"], value_set=pa.array(["set"])), -1) == 0, key, -1)
    explicit = _fold(np.maximum, _ints(copies["explicit_lac"], NO_LAC), number, count, NO_LAC)
    headers = _gather_headers(copies, number, strong, columns.end, count)
    copied_weak = headers.copied_weak
    row_copied = _mark(unit[headers.copied_record], len(unit_of))[row_unit]
    first_of = np.full(len(unit_of), -1)
    first_of[row_unit] = columns.lo
    read_unit = unit[headers.record]
    row_first = _mark(read_unit[headers.entry == first_of[read_unit]], len(unit_of))[row_unit]
    is_leftover = ~unit_strong[unit[copied_weak]] & ~is_partly_seen[of_bookie[copied_weak]]
    copied_leftover = copied_weak[is_leftover]
    weak_end = np.full(count, -1)
    weak_groups = np.flatnonzero(weak & possible)
    np.maximum.at(weak_end, number[record[weak_groups]], last[weak_groups] + size[weak_groups] - 1)
    broken |= headers.beyond
    lac = np.maximum(explicit, headers.largest_lac)
    recorded = np.flatnonzero(_mask(pc.is_valid(copies["lac_record"])))
    return LedgerFacts(
        bucket=bucket[head].astype(np.int16),
        scope=scope[head],
        ledger=ledger[head],
        bookies=names,
        unscanned=np.flatnonzero(~np.isin(np.arange(len(names)), np.append(of_bookie, listed))),
        lost=is_lost,
        copies=columns,
        row_bookie=unit_bookie[row_unit],
        row_copied=row_copied,
        row_lac=_fold(np.maximum, headers.lac, read_unit, len(unit_of), NO_LAC)[row_unit],
        row_acked=_fold(np.maximum, np.minimum(headers.lac, headers.entry), read_unit, len(unit_of), NO_LAC)[row_unit],
        row_first=row_first,
        idle_ledger=unit_of[idle],
        idle_bookie=unit_bookie[idle],
        holder_ledger=unit_of[holder],
        holder_bookie=unit_bookie[holder],
        broken=broken,
        fragmented=fragmented,
        indexed=_mark(number[in_index], count),
        leftover=_mark(number[record[left]], count),
        leftover_first=leftover_first,
        leftover_copied=_mark(number[copied_leftover], count),
        unindexed=unindexed,
        unserved=_mark(number[unserved_rows], count),
        unlisted=unlisted,
        weak_end=weak_end,
        whole_ledger=unit_of[is_whole],
        whole_bookie=unit_bookie[is_whole],
        limbo=_mark(number[_mask(copies["limbo"])], count),
        incomplete=_mark(number[~_mask(copies["complete"]) & ~is_lost[of_bookie] & ~is_left], count),
        reincarnated=_mark(number[moved], count),
        keys=_count_distinct(key, number, count),
        key=_fold(np.maximum, key, number, count, -1),
        key_values=key_values,
        lac=lac,
        lac_record=_fold(np.maximum, np.arange(len(recorded)), number[recorded], count, -1),
        lac_records=_combine(copies["lac_record"]).take(pa.array(recorded)),
        explicit=explicit,
        copied=headers.copied,
        newest_copy=np.where(lac > headers.largest_lac, -1, headers.newest_copy),
        last_length=headers.last_length,
        lengths_differ=headers.lengths_differ,
        crossed=headers.crossed,
        overlapped=headers.overlapped,
        digest=headers.digest,
        verified=headers.verified,
        digests_differ=headers.digests_differ,
        headers=headers.headers,
    )


def _find_unserved(record: Ints, number: Ints, strong: Mask, is_unindexed: Mask, count: int) -> Ints:
    """Return the rows that have the only copies of ledgers, in logs or old journals of bookies without their index.

    A bookie with a readable index and such a row may have deleted the ledger: then no row is returned.
    """
    proves = (strong | ~is_unindexed)[record]
    if proves.all():
        return np.empty(0, np.int64)
    unproven = np.unique(record[~proves])
    return unproven[~_mark(number[record[proves]], count)[number[unproven]]]


def _count_distinct(code: Ints, owner: Ints, owners: int) -> Ints:
    """Return 0, 1, or 2 for more: how many distinct codes each owner has; -1 is none."""
    known = np.flatnonzero(code >= 0)
    lowest = _fold(np.minimum, code[known], owner[known], owners, 1 << 62)
    highest = _fold(np.maximum, code[known], owner[known], owners, -1)
    return np.where(highest < 0, 0, np.where(lowest == highest, 1, 2))


def _gather_headers(copies: pa.Table, number: Ints, strong: Mask, end: Ints, count: int) -> _HeaderFacts:
    """Gather the entry headers of each ledger's strong rows, and the largest LAC of all rows."""
    record, items = _flat(copies["headers"])
    largest_lac = _fold(np.maximum, _ints(items.field(1)), number[record], count, NO_LAC)
    copied_weak = record[:0]
    if not strong.all():
        copied_weak = record[~strong[record] & (_ints(items.field(1)) >= _ints(items.field(0)))]
        kept = np.flatnonzero(strong[record])
        record, items = record[kept], items.take(pa.array(kept))
    owner = number[record]
    entry, lac, length, size = (_ints(items.field(column)) for column in range(4))
    size = size - _SCOPED_MORE * (_ints(copies["scope"])[record] != 0)
    at_end = np.flatnonzero(entry == end[owner])
    order = _order(owner, entry)
    ledgers, entry_ids, total = owner[order], entry[order], length[order]
    differ = ~heads(ledgers, entry_ids)
    differ[1:] &= total[1:] != total[:-1]
    crosses = ~heads(ledgers)
    distinct = heads(ledgers, entry_ids)

    named = _ints(pc.index_in(items.field(4), value_set=pa.array(DIGESTS, pa.string())), -1)
    kinds = _count_distinct(named, owner, count)
    digest = np.where(kinds == 1, _fold(np.maximum, named, owner, count, -1), -1)
    is_known = ~_mark(owner[named < 0], count)
    newest = np.flatnonzero((lac >= entry) & (lac == largest_lac[owner]))
    payload = np.where(named < 0, -1, size - _ENTRY_HEADER - np.append(_WIDTHS, 0)[named])[order]
    all_headers = HeaderFacts(ledgers, entry_ids, total, payload)
    crosses[1:] &= distinct[1:] & (total[1:] - np.maximum(payload[1:], 0) < total[:-1])
    by_length = np.lexsort((total, ledgers))
    by_length = by_length[distinct[by_length] & (payload[by_length] > 0)]
    ends, begins, owners = total[by_length], (total - payload)[by_length], ledgers[by_length]
    overlaps = (owners[1:] == owners[:-1]) & (begins[1:] < ends[:-1])
    # Only where nothing verified: the types differ in the bytes that they take.
    wanted = kinds == 0
    order = order[wanted[ledgers]]
    by_width = _tell_digest(copies, number, wanted, owner[order], entry[order], length[order], size[order])
    return _HeaderFacts(
        largest_lac=largest_lac,
        newest_copy=_fold(np.maximum, entry[newest], owner[newest], count, -1),
        copied=_mark(owner[lac >= entry], count),
        copied_weak=copied_weak,
        copied_record=record[(lac >= entry) & (entry <= end[owner])],
        record=record,
        entry=entry,
        lac=lac,
        headers=all_headers,
        last_length=_fold(np.maximum, length[at_end], owner[at_end], count, -1),
        lengths_differ=_mark(ledgers[differ], count),
        crossed=_mark(ledgers[crosses], count),
        overlapped=_mark(owners[1:][overlaps], count),
        digest=np.where(kinds == 0, by_width, digest),
        verified=(kinds == 1) & is_known,
        digests_differ=kinds > 1,
        beyond=_mark(owner[(entry > end[owner]) | (entry < 0) | (length < 0)], count),
    )


def _order(owner: Ints, value: Ints) -> Ints:
    """Return the places sorted by owner, then by value."""
    low, high = int(value.min(initial=0)), int(value.max(initial=0))
    span = high - low + 1
    if span * (int(owner.max(initial=0)) + 1) >= 1 << 63:
        return np.lexsort((value, owner))
    # One key sorts several times faster than two.
    return np.argsort(owner * span + (value - low))


def _tell_digest(
    copies: pa.Table, number: Ints, wanted: Mask, owner: Ints, entry: Ints, length: Ints, size: Ints
) -> Ints:
    """Return the digest type of each wanted ledger by its width, where all places agree; else -1.

    Only HMAC and DUMMY: a CRC needs no password, so one that did not verify is not believed. Headers are those of
    wanted ledgers, sorted by ledger and entry.
    """
    payload = np.where(entry == 0, length, -1)
    follows = (owner[1:] == owner[:-1]) & (entry[1:] == entry[:-1] + 1)
    payload[1:] = np.where(follows, length[1:] - length[:-1], payload[1:])
    shown = np.flatnonzero(payload >= 0)
    records = _ints(pc.binary_length(copies["lac_record"]), -1)
    records = records - _SCOPED_MORE * ((records >= 0) & (_ints(copies["scope"]) != 0))
    stored = np.flatnonzero((records >= 0) & wanted[number])
    widths = np.append(size[shown] - _ENTRY_HEADER - payload[shown], records[stored] - _LAC_RECORD)
    owners = np.append(owner[shown], number[stored])
    code = np.full(len(widths), len(DIGESTS))
    for digest in (Digest.HMAC, Digest.DUMMY):
        code[widths == DIGEST_SIZES[digest]] = DIGESTS.index(digest)
    kinds = _count_distinct(code, owners, len(wanted))
    digests = np.where(kinds == 1, _fold(np.maximum, code, owners, len(wanted), -1), -1)
    return np.where(digests < len(DIGESTS), digests, -1)
