"""Copies: is every entry of a closed ledger on the bookies that its record names for it?

Entry e of a segment belongs on the W positions (e + i) mod E, i < W, of its ensemble; e is counted from the ledger's
begin, not from the segment's. Of each entry up to the last one:

    right     bookies of its write set that have it
    gone      bookies of its write set that were scanned, and lack it
    dark      bookies of its write set that may have it: nothing shows whether they do
    strays    other bookies that have it

    fault               an entry with                                         readers
    LOST                gone, no right, no dark, no strays                    fail
    BELOW_ACK_QUORUM    gone, right + dark < A, no strays                     fail or are one failure away
    MISPLACED_ALL       gone, no right, no dark, strays                       fail: they ask only its write set
    MISPLACED           gone, and strays                                      succeed
    BELOW_WRITE_QUORUM  gone, right + dark >= A, no strays                    succeed
    OVER_REPLICATED     strays, nothing gone                                  succeed

A copy that an earlier look found missing stays gone while its bookie is silent and the record is unchanged: a second
failure softens nothing. A dark copy counts as there, so a fault is true whatever dark copies turn out to be. Most
ledgers are clean, and counting shows that: their groups lie in the pattern of their position, with all entries that
belong there. Only the other ledgers are expanded into runs, so many at a time.

Source: docs/operations/scrutiny.md for what each fault means to an operator.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, auto
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.rules.segments.faults import FAULTS, MOST_GROUPS, Fault, merge_faults
from recovery.model import groups as sequence
from recovery.model import tables
from recovery.model.groups import KeyedGroups, KeyedRuns
from recovery.model.ids import distinct
from recovery.model.positions import FAR, Cells, find_closed, lay_out_cells, lay_out_due

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_SERVED: Final = pa.array(["index", "wire"])
"""Sources of copies that a bookie serves; it does not serve entries in logs alone."""
_TOO_MANY: Final = 1 << 27
"""A suspect ledger with more runs is not expanded and stays undecided: so many are minutes of work."""
_RUNS: Final = 1 << 21
"""Runs that are laid out at a time: 16 MiB an array, some thirty arrays."""


@dataclass(frozen=True, slots=True, eq=False)
class Sight:
    """Which bookies were scanned, and which parts of them were not.

    Attributes:
        since: of each scanned bookie, the begin of its scan, in µs since 1970: a record that changed later may name
            entries that it got since. None: it was asked after the record was read, or no longer runs.
        blind: scanned bookies that may have any unseen entry.
        hidden: scope, ledger and bookie: of these ledgers the bookie may have entries that were not seen.
        stopped: cleanly stopped bookies: they do not read their journals again.
        as_of: of scanned bookies, the last transaction of the store before the scan; it counts in place of the time in
            `since`.
        unscoped: bookies that were asked for ledgers of scope 0 alone, as over the wire: no released one knows others.
        samples: SAMPLES of bookies without lists; their entries are among the copies too.
    """

    since: dict[str, int | None]
    blind: frozenset[str]
    hidden: pa.Table
    stopped: frozenset[str] = frozenset()
    as_of: Mapping[str, int] = field(default_factory=dict)
    unscoped: frozenset[str] = frozenset()
    samples: pa.Table = field(default_factory=tables.SAMPLES.empty_table)


class UndecidedReason(IntEnum):
    """Why a ledger stays undecided, the first that holds."""

    NOT_SEEN = auto()
    """A bookie that may have the missing entries was not seen, or too many runs would have to be expanded."""
    UNDATED = auto()
    """It is unknown whether its record is older than the facts of a bookie."""
    CHANGED = auto()
    """Its record is newer than the facts of a bookie."""
    SAMPLED = auto()
    """A bookie without lists was asked for some of its entries, and has them."""


MISSING_ROWS: Final = pa.schema(
    [
        pa.field("row", pa.int64()),
        pa.field("bookie", pa.string()),
        pa.field("entries", pa.int64()),
        pa.field("groups", tables.GROUPS),
        pa.field("known", pa.bool_()),
    ]
)
"""`row`: of the records that were given; not `known`: an earlier look saw it."""
PAIRS: Final = pa.schema(
    [
        pa.field("row", pa.int64()),
        pa.field("bookie", pa.string()),
        pa.field("holds", pa.bool_()),
        pa.field("known", pa.bool_()),
    ]
)
"""`holds`: it has any entry of the ledger; `known`: it truly lacks the entries that it does not show."""
COVERAGE: Final = pa.schema(
    [pa.field("row", pa.int64()), pa.field("positions", pa.int64()), pa.field("judged", pa.int64())]
)
"""`positions`: copies that the record of a closed ledger asks for; `judged`: of these, those that are right or gone."""


@dataclass(frozen=True, slots=True, eq=False)
class CopyFaults:
    """The faults of the copies of closed ledgers.

    Attributes:
        missing: of `MISSING_ROWS`: entries that bookies lack, of the ledgers that were laid out; a bookie may have
            several rows of one ledger.
        pairs: of `PAIRS`: a row a ledger and bookie that its record names for entries.
        faults: a row a ledger and kind of fault: ``row`` (of the records that were given), ``fault``, ``entries`` (how
            many), ``least`` (right copies of the entry that has fewest), ``groups`` (at most `MOST_GROUPS`),
            ``lacking``, ``strays``, ``dark`` (bookies).
        undecided: rows of the records with a dark copy that decides.
        doubts: the reason of each of these: a `UndecidedReason`.
        coverage: of `COVERAGE`: a row a closed ledger with a believable end.
    """

    missing: pa.Table
    pairs: pa.Table
    faults: pa.Table
    undecided: Ints
    doubts: npt.NDArray[np.int8]
    coverage: pa.Table

    @property
    def positions(self) -> int:
        """Copies that records ask for."""
        return pc.sum(self.coverage["positions"]).as_py() or 0

    @property
    def judged(self) -> int:
        """The copies among these that are right or gone."""
        return pc.sum(self.coverage["judged"]).as_py() or 0


class _Held(NamedTuple):
    """The entries of bookies: groups, each with its ledger and bookie."""

    ledger: Ints
    bookie: Ints
    groups: KeyedGroups


class _Pairs(NamedTuple):
    """Ledgers and bookies that have to do with each other, sorted by ledger; of each cell and group its pair."""

    ledger: Ints
    bookie: Ints
    of_cell: Ints
    of_group: Ints
    known: Mask
    lacking: KeyedGroups
    """Entries that pairs which are not known were seen to lack earlier, or said to lack; the key is the pair."""
    untimely: npt.NDArray[np.int8]
    """Of a pair that is not known for no other reason than time: the `UndecidedReason`; 0 of all others."""


class _Samples(NamedTuple):
    """Answers about single entries from bookies without lists: of each pair, and groups keyed by pair."""

    asked: Mask
    """Some entries of the copy were asked for."""
    held: Ints
    answered: Ints
    failed: Mask
    """No answer came for some entries."""
    no_ledger: Mask
    lacks: KeyedGroups

    @property
    def lacking(self) -> Mask:
        """Whether a pair said that it lacks an entry."""
        return np.bincount(self.lacks.key, minlength=len(self.asked)) > 0


class _Intervals(NamedTuple):
    """Entries [first, first + size) of a key, all alike; `counts`: a row a channel."""

    key: Ints
    first: Ints
    size: Ints
    counts: Ints


def find_faults(stored: pa.Table, copies: pa.Table, sight: Sight, earlier: pa.Table | None = None) -> CopyFaults:
    """Compare the entries on bookies with the records, for closed ledgers.

    Args:
        stored: CATALOG_LEDGERS, each ledger once.
        copies: COPIES of these ledgers, or of more.
        sight: how bookies were scanned, those without copies included.
        earlier: MISSING of an earlier look; None: there is none.
    """
    closed = find_closed(stored)
    far = _numbers(stored, "last_entry")[closed] >= FAR
    closed, beyond = closed[~far], closed[far]
    if not len(closed):
        doubts = np.full(len(beyond), UndecidedReason.NOT_SEEN, np.int8)
        missing, pairs, faults, coverage = (schema.empty_table() for schema in (MISSING_ROWS, PAIRS, FAULTS, COVERAGE))
        return CopyFaults(missing, pairs, faults, beyond, doubts, coverage)
    names, cells = lay_out_cells(stored, closed)
    names, held_groups, doubtful = _take_held(stored, closed, _keep_served(copies, sight), names)
    pairs = _pair(cells, held_groups, len(names))
    samples = _take_samples(stored.take(pa.array(closed)), cells, pairs, names, sight)
    known, untimely = _find_known(stored, closed, pairs, names, sight, doubtful, samples.no_ledger)
    pairs = pairs._replace(known=known, untimely=untimely)
    if earlier is not None and earlier.num_rows and len(pairs.ledger):
        pairs = pairs._replace(lacking=_take_lacking(stored.take(pa.array(closed)), earlier, pairs, names))
    together = zip(pairs.lacking, samples.lacks, strict=True)
    pairs = pairs._replace(lacking=KeyedGroups(*(np.concatenate(column) for column in together)))
    suspects, counted = _find_suspects(cells, held_groups, pairs, len(closed), samples)
    dark_cells = ~known[pairs.of_cell] & ~counted[pairs.of_cell]
    dark = _find_dark(pairs, counted, suspects, samples.asked)
    load = _weigh(cells, held_groups, suspects & ~dark)
    heavy = load > _TOO_MANY
    # A ledger with too many runs to expand is not judged, whichever bookies were scanned.
    is_hidden = dark_cells | heavy[cells.ledger]
    is_answered = ~known & ~counted & ~heavy[pairs.ledger]
    positions, judged = np.zeros(len(closed), np.int64), np.zeros(len(closed), np.int64)
    np.add.at(positions, cells.ledger, cells.due)
    np.add.at(judged, cells.ledger, np.where(is_hidden, 0, cells.due))
    np.add.at(judged, pairs.ledger, np.where(is_answered, samples.answered, 0))
    parts, undecided = [FAULTS.empty_table()], [np.flatnonzero(heavy | dark)]
    missing = [MISSING_ROWS.empty_table()]
    quorums = np.column_stack([_numbers(stored, name)[closed] for name in ("write_quorum", "ack_quorum")])
    for selected, low, high in _cut(cells, held_groups, np.where(heavy, 0, load)):
        faults_of_part, missing_of_part, open_ = _judge(
            cells, held_groups, pairs, samples.lacking, quorums, names, selected, low, high
        )
        parts.append(faults_of_part)
        missing.append(missing_of_part)
        undecided.append(open_)
    faults = merge_faults(pa.concat_tables(parts))
    faults, lacks, named = (
        rows.set_column(0, rows.schema.field("row"), pa.array(closed[rows["row"].to_numpy()]))
        for rows in (faults, pa.concat_tables(missing), _list_pairs(pairs, names))
    )
    left = np.unique(np.concatenate(undecided))
    rows = np.concatenate([closed[left], beyond])
    of_left = _find_doubts(pairs, counted, heavy, samples)[left]
    doubts = np.concatenate([of_left, np.full(len(beyond), UndecidedReason.NOT_SEEN, np.int8)])
    order = np.argsort(rows, kind="stable")
    coverage = pa.table([closed, positions, judged], schema=COVERAGE)
    return CopyFaults(lacks, named, faults, rows[order], doubts[order], coverage)


def _find_doubts(pairs: _Pairs, counted: Mask, heavy: Mask, samples: _Samples) -> npt.NDArray[np.int8]:
    """Return of each ledger why it stays undecided, if it does."""
    dark = ~pairs.known & ~counted
    unseen = np.where(
        samples.asked & ~samples.failed, np.int8(UndecidedReason.SAMPLED), np.int8(UndecidedReason.NOT_SEEN)
    )
    kind = np.where(pairs.untimely > 0, pairs.untimely, unseen)
    doubts = np.where(heavy, np.int8(UndecidedReason.NOT_SEEN), np.int8(UndecidedReason.SAMPLED))
    np.minimum.at(doubts, pairs.ledger[dark], kind[dark])
    return doubts


def _numbers(table: pa.Table, name: str) -> Ints:
    return np.asarray(pc.fill_null(table[name], 0).to_numpy(), np.int64)


def _find_places(closed: pa.Table, rows: pa.Table) -> Ints:
    """Return the place of each row's ledger among the closed ones; -1: it is not closed."""
    keys = (np.concatenate([table[name].to_numpy() for table in (closed, rows)]) for name in ("scope", "ledger"))
    first, codes = distinct(*keys)
    place = np.full(len(first), -1)
    place[codes[: closed.num_rows]] = np.arange(closed.num_rows)
    found: Ints = place[codes[closed.num_rows :]]
    return found


def _keep_served(copies: pa.Table, sight: Sight) -> pa.Table:
    """Return the rows that bookies serve, or will serve after a start: after a crash they read journals again."""
    starts = pc.invert(pc.is_in(copies["bookie"], value_set=pa.array(sorted(sight.stopped), pa.string())))
    journal = pc.and_(pc.equal(copies["source"], "journal"), starts)
    return copies.filter(pc.or_(pc.is_in(copies["source"], value_set=_SERVED), journal))


def _take_held(
    stored: pa.Table, closed: Ints, copies: pa.Table, names: list[str]
) -> tuple[list[str], _Held, tuple[Ints, Ints]]:
    """Return all names of bookies, their entries of closed ledgers, and (ledger, bookie) of doubtful rows."""
    ledger = _find_places(stored.take(pa.array(closed)), copies)
    copies, ledger = copies.filter(pa.array(ledger >= 0)), ledger[ledger >= 0]
    coded = pc.dictionary_encode(copies["bookie"].combine_chunks()) if copies.num_rows else None
    numbers = {name: number for number, name in enumerate(names)}
    known = [] if coded is None else coded.dictionary.to_pylist()
    for name in known:
        numbers.setdefault(name, len(numbers))
    bookie = (
        np.empty(0, np.int64)
        if coded is None
        else np.array([numbers[name] for name in known])[coded.indices.to_numpy(zero_copy_only=False)]
    )
    groups = sequence.from_arrow(copies["groups"])
    doubt = (pc.or_(pc.invert(copies["complete"]), copies["limbo"])).to_numpy()
    return list(numbers), _Held(ledger[groups.key], bookie[groups.key], groups), (ledger[doubt], bookie[doubt])


def _pair(cells: Cells, held_groups: _Held, bookies: int) -> _Pairs:
    keys = np.concatenate([part.ledger * max(bookies, 1) + part.bookie for part in (cells, held_groups)])
    pairs, numbers = np.unique(keys, return_inverse=True)
    ledger, bookie = np.divmod(pairs, max(bookies, 1))
    count = len(cells.ledger)
    none = np.zeros(len(pairs), np.int8)
    lacking = KeyedGroups(*(np.empty(0, np.int64) for _ in KeyedGroups._fields))
    return _Pairs(ledger, bookie, numbers[:count], numbers[count:], np.ones(len(pairs), np.bool_), lacking, none)


def _list_pairs(pairs: _Pairs, names: Sequence[str]) -> pa.Table:
    """Return PAIRS, keyed by closed ledger."""
    number = len(pairs.ledger)
    named = np.flatnonzero(np.bincount(pairs.of_cell, minlength=number))
    holds = np.bincount(pairs.of_group, minlength=number) > 0
    bookie = pa.array(list(names), pa.string()).take(pa.array(pairs.bookie[named]))
    columns = [pairs.ledger[named], bookie, holds[named], pairs.known[named]]
    return pa.table([pa.array(column) for column in columns], schema=PAIRS)


def _take_lacking(closed: pa.Table, earlier: pa.Table, pairs: _Pairs, names: Sequence[str]) -> KeyedGroups:
    """Return the entries that an earlier look found missing, for pairs that are not known now and unchanged records."""
    earlier = earlier.filter(pc.is_valid(earlier["record_txn"]))
    row = _find_places(closed, earlier)
    number = {name: place for place, name in enumerate(names)}
    bookie = np.array([number.get(name, -1) for name in earlier["bookie"].to_pylist()], np.int64)
    txn = pc.fill_null(closed["changed_txn"], -1).to_numpy()
    code = row * len(names) + bookie
    codes_of_pairs = pairs.ledger * len(names) + pairs.bookie
    pair = np.minimum(np.searchsorted(codes_of_pairs, code), max(len(codes_of_pairs) - 1, 0))
    is_same = (row >= 0) & (bookie >= 0)
    is_same[is_same] &= (codes_of_pairs[pair] == code)[is_same] & ~pairs.known[pair[is_same]]
    is_same[is_same] &= txn[row[is_same]] == earlier["record_txn"].to_numpy()[is_same]
    groups = sequence.from_arrow(earlier["groups"].filter(pa.array(is_same)))
    return groups._replace(key=pair[is_same][groups.key])


def _take_samples(closed: pa.Table, cells: Cells, pairs: _Pairs, names: Sequence[str], sight: Sight) -> _Samples:
    """Return the answers about single entries, of each pair."""
    rows, count = sight.samples, max(len(names), 1)
    number = {name: place for place, name in enumerate(names)}
    ledger = _find_places(closed, rows)
    bookie = np.array([number.get(name, -1) for name in rows["bookie"].to_pylist()], np.int64)
    keys, wanted = pairs.ledger * count + pairs.bookie, ledger * count + bookie
    pair = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    due = np.zeros(len(keys), np.int64)
    np.add.at(due, pairs.of_cell, cells.due)
    mine = (ledger >= 0) & (bookie >= 0)
    mine[mine] = (keys[pair[mine]] == wanted[mine]) & (due[pair[mine]] > 0)
    rows, pair = rows.filter(pa.array(mine)), pair[mine]
    asked, failed, no_ledger = (np.zeros(len(keys), np.bool_) for _ in range(3))
    held, answered = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
    asked[pair] = True
    failed[pair] = rows["failed"].to_numpy() > 0
    no_ledger[pair] = rows["no_ledger"].to_numpy()
    held[pair] = rows["entries"].to_numpy()
    answered[pair] = rows["entries"].to_numpy() + rows["lacking"].to_numpy()
    groups = sequence.from_arrow(rows["lacks"])
    lacks = groups._replace(key=pair[groups.key])
    return _Samples(asked, held, np.minimum(answered, due), failed, no_ledger, lacks)


def _find_known(
    stored: pa.Table,
    closed: Ints,
    pairs: _Pairs,
    names: Sequence[str],
    sight: Sight,
    doubtful: tuple[Ints, Ints],
    no_ledger: Mask,
) -> tuple[Mask, npt.NDArray[np.int8]]:
    """Return the pairs with a bookie that truly lacks what it does not show; and `_Pairs.untimely`."""
    whole = np.array([name in sight.since and name not in sight.blind for name in names], np.bool_)
    known = whole[pairs.bookie] | no_ledger if len(names) else np.empty(0, np.bool_)
    time_doubt = np.zeros(len(pairs.ledger), np.int8)
    if len(names):
        unscoped = np.array([name in sight.unscoped for name in names], np.bool_)
        known &= ~(unscoped[pairs.bookie] & (_numbers(stored, "scope")[closed] != 0)[pairs.ledger])
        time_doubt = _find_untimely(stored.take(pa.array(closed)), pairs, names, sight)
    number = {name: place for place, name in enumerate(names)}
    rows = sight.hidden.filter(pc.is_in(sight.hidden["bookie"], value_set=pa.array(list(names), pa.string())))
    ledger = _find_places(stored.take(pa.array(closed)), rows)
    bookie = np.array([number[name] for name in rows["bookie"].to_pylist()], np.int64)
    hidden = np.concatenate([doubtful[0], ledger[ledger >= 0]]) * max(len(names), 1)
    hidden += np.concatenate([doubtful[1], bookie[ledger >= 0]])
    known &= ~np.isin(pairs.ledger * max(len(names), 1) + pairs.bookie, hidden)
    return known & (time_doubt == 0), np.where(known, time_doubt, np.int8(0))


def _find_untimely(closed: pa.Table, pairs: _Pairs, names: Sequence[str], sight: Sight) -> npt.NDArray[np.int8]:
    """Return the `UndecidedReason` of pairs with a record that is, or may be, newer than the bookie's facts; else 0."""
    never = np.iinfo(np.int64).max
    doubt = np.zeros(len(pairs.ledger), np.int8)
    by_txn = {name: sight.as_of[name] for name in names if name in sight.as_of}
    by_time = {name: at for name in names if name not in by_txn and (at := sight.since.get(name)) is not None}
    for looked, column in ((by_txn, closed["changed_txn"]), (by_time, pc.cast(closed["changed_at"], pa.int64()))):
        limit = np.array([looked.get(name, never) for name in names], np.int64)[pairs.bookie]
        concerned = limit < never
        changed = pc.fill_null(column, never).to_numpy()[pairs.ledger]
        doubt[concerned & (changed > limit)] = UndecidedReason.CHANGED
        doubt[concerned & (changed == never)] = UndecidedReason.UNDATED
    return doubt


def _find_suspects(
    cells: Cells, held_groups: _Held, pairs: _Pairs, ledgers: int, samples: _Samples
) -> tuple[Mask, Mask]:
    """Return the ledgers that counting does not prove clean, and the pairs that it does."""
    number = len(pairs.ledger)
    count = np.bincount(pairs.of_cell, minlength=number)
    cell = np.zeros(number, np.int64)
    cell[pairs.of_cell] = np.arange(len(pairs.of_cell))
    own, groups = cell[pairs.of_group], held_groups.groups
    in_one = count[pairs.of_group] == 1
    inside = in_one.copy()
    if len(cells.ledger):
        ensemble, write = cells.ensemble[own], cells.write[own]
        phase = (cells.position[own] - write + 1) % ensemble
        runs = sequence.run_counts(groups.first, groups.last, groups.period)
        striped = (groups.first - phase) % ensemble + groups.size <= write
        # Two runs may be a whole stripe and the half of one that the end cuts off: closer than a step.
        striped &= (groups.last - phase) % ensemble + groups.size <= write
        striped &= (runs <= 2) | (groups.period % ensemble == 0)
        inside &= (striped | (write == ensemble)) & (groups.first >= cells.low[own])
        inside &= groups.last + (groups.size - 1) <= cells.high[own]
    entries = sequence.count(groups.first, groups.last, groups.size, groups.period)
    sums = np.zeros(number, np.int64)
    np.add.at(sums, pairs.of_group, np.where(inside, entries, 0))
    due = np.zeros(number, np.int64)
    np.add.at(due, pairs.of_cell, cells.due)
    clean = (count == 1) & (sums == due)
    clean[pairs.of_group[~inside]] = False
    # Only what belongs there was asked for: who has as many entries has all of them.
    clean |= samples.asked & (samples.held == due)
    suspects = np.zeros(ledgers, np.bool_)
    suspects[pairs.ledger[~clean]] = True
    return suspects, clean


def _find_dark(pairs: _Pairs, counted: Mask, suspects: Mask, sampled: Mask) -> Mask:
    """Return the suspects with dark bookies and nothing else odd: undecided without reading entries."""
    holds = np.bincount(pairs.of_group, minlength=len(pairs.ledger)) > 0
    lacks = np.bincount(pairs.lacking.key, minlength=len(pairs.ledger)) > 0
    dark = suspects.copy()
    dark[pairs.ledger[~counted & (pairs.known | (holds & ~sampled) | lacks)]] = False
    return dark


def _weigh(cells: Cells, held_groups: _Held, suspects: Mask) -> Ints:
    """Return how many runs each suspect ledger would be laid out in; of the others 0."""
    load = np.zeros(len(suspects), np.int64)
    np.add.at(load, cells.ledger, np.where(cells.write < cells.ensemble, cells.due // cells.write + 2, 1))
    groups = held_groups.groups
    np.add.at(load, held_groups.ledger, sequence.run_counts(groups.first, groups.last, groups.period))
    return np.where(suspects, load, 0)


def _cut(cells: Cells, held_groups: _Held, load: Ints) -> Iterator[tuple[Mask, int, int]]:
    """Yield ledgers and bounds of entries, so that few runs are expanded at a time."""
    rows = np.flatnonzero(load)
    heavy = rows[load[rows] > _RUNS]
    rows = rows[load[rows] <= _RUNS]
    part = np.cumsum(load[rows]) // _RUNS
    for begin, end in zip(*_stretches(part), strict=True):
        selected = np.zeros(len(load), np.bool_)
        selected[rows[begin:end]] = True
        yield selected, 0, np.iinfo(np.int64).max - 1
    for row in heavy.tolist():
        selected = np.zeros(len(load), np.bool_)
        selected[row] = True
        end = int(cells.high[cells.ledger == row].max(initial=-1)) + 1
        # Runs of two cells and of what they hold are at least as far apart as entries, so no window has more of them.
        step = max(1, _RUNS // max(1, int((cells.ledger == row).sum() + (held_groups.ledger == row).sum())))
        for low in range(0, end, step):
            yield selected, low, min(low + step, end) - 1


def _stretches(values: Ints) -> tuple[list[int], list[int]]:
    """Return the begins and ends of stretches of equal neighbours."""
    begins = np.flatnonzero(np.append(True, values[1:] != values[:-1])) if len(values) else np.empty(0, np.int64)
    return begins.tolist(), np.append(begins[1:], len(values)).tolist() if len(begins) else []


def _judge(
    cells: Cells,
    held_groups: _Held,
    pairs: _Pairs,
    sampled: Mask,
    quorums: Ints,
    names: Sequence[str],
    selected: Mask,
    low: int,
    high: int,
) -> tuple[pa.Table, pa.Table, Ints]:
    """Return FAULTS and MISSING_ROWS of some ledgers and entries, and the ledgers with something undecided."""
    rows = np.flatnonzero(selected[cells.ledger])
    expected = lay_out_due(cells.select(rows), *(np.full(len(rows), bound) for bound in (low, high)))
    expected = expected._replace(key=pairs.of_cell[rows][expected.key])
    part_number = selected[held_groups.ledger]
    groups = KeyedGroups(pairs.of_group[part_number], *(column[part_number] for column in held_groups.groups[1:]))
    inside = sequence.within(groups, low, high)
    lacking = KeyedGroups(*(column[selected[pairs.ledger[pairs.lacking.key]]] for column in pairs.lacking))
    intervals = _sweep([expected, inside, sequence.within(lacking, low, high)])
    is_due, is_held, is_lacking = intervals.counts > 0
    known = pairs.known[intervals.key] | is_lacking
    channels = [is_due & is_held, is_due & ~is_held & known, is_due & ~is_held & ~known, ~is_due & is_held]
    runs = [
        KeyedRuns(pairs.ledger[intervals.key[mask]], intervals.first[mask], intervals.size[mask]) for mask in channels
    ]
    entries = _sweep(runs)
    right, gone, dark, strays = entries.counts
    due = right + gone + dark > 0
    fault = np.select(
        [
            ~due | ((gone == 0) & (strays == 0)),
            gone == 0,
            (strays > 0) & (right + dark == 0),
            strays > 0,
            right + dark == 0,
            right + dark < quorums[entries.key, 1],
        ],
        [0, Fault.OVER_REPLICATED, Fault.MISPLACED_ALL, Fault.MISPLACED, Fault.LOST, Fault.BELOW_ACK_QUORUM],
        Fault.BELOW_WRITE_QUORUM,
    )
    undecided = np.unique(entries.key[due & (dark > 0)])
    bookies = [_list_bookies(intervals, mask, pairs, names) for mask in channels[1:]]
    return (
        _make_faults(entries, fault, right, bookies),
        _list_missing(intervals, channels[1], pairs, sampled, names),
        undecided,
    )


def _list_missing(intervals: _Intervals, gone: Mask, pairs: _Pairs, sampled: Mask, names: Sequence[str]) -> pa.Table:
    """Return MISSING_ROWS of intervals, keyed by closed ledger."""
    number, place = np.unique(intervals.key[gone], return_inverse=True)
    runs = KeyedRuns(place, intervals.first[gone], intervals.size[gone])
    entries = np.zeros(len(number), np.int64)
    np.add.at(entries, place, runs.size)
    bookie = pa.array(list(names), pa.string()).take(pa.array(pairs.bookie[number]))
    groups = sequence.to_arrow(sequence.group_runs(runs), len(number))
    columns = [
        pa.array(pairs.ledger[number]),
        bookie,
        pa.array(entries),
        groups,
        pa.array((pairs.known | sampled)[number]),
    ]
    return pa.table(columns, schema=MISSING_ROWS)


def _sweep(parts: Sequence[KeyedRuns]) -> _Intervals:
    """Return the stretches of entries with a constant number of runs in each part; empty ones are left out."""
    key = np.concatenate([part.key for part in parts] * 2)
    begin = np.concatenate([part.first for part in parts])
    position = np.concatenate([begin, begin + np.concatenate([part.size for part in parts])])
    order = sequence.sort_positions(key, position.astype(np.uint64))
    key, position = key[order], position[order]
    last = np.ones(len(order), np.bool_)
    last[:-1] = (key[1:] != key[:-1]) | (position[1:] != position[:-1])
    channel = np.repeat(np.arange(len(parts), dtype=np.int8), [len(part.key) for part in parts])
    channel = np.concatenate([channel, channel])[order]
    change = np.where(order < len(begin), np.int8(1), np.int8(-1))
    key, position = key[last], position[last]
    counts = np.empty((len(parts), len(key)), np.int64)
    for number in range(len(parts)):
        counts[number] = np.cumsum(np.where(channel == number, change, np.int8(0)), dtype=np.int32)[last]
    filled = counts.any(0)
    # What is not zero goes on: a key ends with zeros.
    begins = np.flatnonzero(filled)
    return _Intervals(key[begins], position[begins], position[begins + 1] - position[begins], counts[:, begins])


def _list_bookies(intervals: _Intervals, mask: Mask, pairs: _Pairs, names: Sequence[str]) -> dict[int, list[str]]:
    """Return the bookies of the pairs of some intervals, by ledger: in the order of their names."""
    by_row: dict[int, list[str]] = {}
    for pair in np.unique(intervals.key[mask]).tolist():
        by_row.setdefault(int(pairs.ledger[pair]), []).append(names[pairs.bookie[pair]])
    return {ledger: sorted(bookies) for ledger, bookies in by_row.items()}


def _make_faults(entries: _Intervals, fault: Ints, right: Ints, bookies: Sequence[dict[int, list[str]]]) -> pa.Table:
    """Return FAULTS of intervals, keyed by ledger and fault."""
    bad = np.flatnonzero(fault)
    kinds = len(Fault) + 1
    key = entries.key[bad] * kinds + fault[bad]
    order = np.lexsort((entries.first[bad], key))
    bad, key = bad[order], key[order]
    numbers, begin = np.unique(key, return_index=True)
    ends = np.append(begin[1:], len(key)).astype(np.int64)
    listed = sequence.group_runs(
        KeyedRuns(np.repeat(np.arange(len(numbers)), ends - begin), entries.first[bad], entries.size[bad])
    )
    ledger, kind = np.divmod(numbers, kinds)
    rank = np.arange(len(listed.key)) - np.searchsorted(listed.key, listed.key)
    listed = KeyedGroups(*(column[rank < MOST_GROUPS] for column in listed))
    names = [[of.get(row, []) for row in ledger.tolist()] for of in bookies]
    return pa.table(
        {
            "row": ledger,
            "fault": kind.astype(np.int8),
            "entries": np.add.reduceat(entries.size[bad], begin) if len(begin) else np.empty(0, np.int64),
            "least": np.minimum.reduceat(right[bad], begin) if len(begin) else np.empty(0, np.int64),
            "groups": sequence.to_arrow(listed, len(numbers)),
            **dict(zip(("lacking", "strays", "dark"), _order(names), strict=True)),
        },
        schema=FAULTS,
    )


def _order(names: Sequence[Sequence[list[str]]]) -> list[Any]:
    """Order the lists of lacking, dark and stray bookies like the columns."""
    gone, dark, strays = (pa.array(column, pa.list_(pa.string())) for column in names)
    return [gone, strays, dark]
