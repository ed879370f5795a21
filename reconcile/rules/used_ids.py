"""Used ids of all sources: no generator may give one of them again.

    source                         ids
    bookies                        of every ledger that they hold, and the largest that their files name
    store, snapshots               of every record, those that their history shows as created or deleted included
    references                     of every ledger that an upper layer names, the deleted ones, too
    counters of store, snapshots   the last that each gave: ledgers that were deleted since had the ids below it

Only ids of scope 0 come from generators. What counts as used is decided here, and nowhere else.

One wrong bit in an entry log or an index makes an id that no ledger has. To raise a generator past it takes hours and
cannot be undone. So ids far above all others that bookies alone name raise nothing until a person says so: at most
`FEW_IDS` of them, more than `FAR_ABOVE` and more than twice above the next smaller one of any source.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recovery.codecs import store
from recovery.codecs.store import Layout
from recovery.codecs.store_kind import kind_of

RAISE_LIMIT: Final = 100_000_000
"""Largest number that a counter is raised past: more takes hours, and BookKeeper skips ids with a record."""

FEW_IDS: Final = 8
"""Ids that damage may have made. A cluster that gave ids so far above has more ledgers there."""
FAR_ABOVE: Final = 1_000_000
"""Ids between one far above all others and the next: to raise past fewer takes minutes, and costs nothing."""

Ids = npt.NDArray[np.int64]
_NO_IDS: Final = np.array([], np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class NamedIds:
    """Ids by their source.

    Attributes:
        recorded: ids that a store, a snapshot, a counter or an upper layer names.
        on_bookies: ids that bookies alone name.
    """

    recorded: Ids = field(default_factory=_NO_IDS.copy)
    on_bookies: Ids = field(default_factory=_NO_IDS.copy)


@dataclass(frozen=True, slots=True)
class UsedNumbers:
    """The evidence of some ids about the generators.

    Attributes:
        recorded: key of each counter to the largest number that something beside bookies names.
        on_bookies: key of each counter to the largest numbers that bookies alone name, descending.
        above_short: ids that no short generator gives.
        above_raise: ids that no counter is raised past.
    """

    recorded: dict[str, int] = field(default_factory=dict)
    on_bookies: dict[str, list[int]] = field(default_factory=dict)
    above_short: int = 0
    above_raise: int = 0


@dataclass(frozen=True, slots=True)
class RaiseTargets:
    """How far generators are raised.

    Attributes:
        taken: key of each counter to the largest number that it is raised past.
        far_above: counter and number of each id that raises nothing, the largest first.
        next_below: the largest number below these; -1: none.
    """

    taken: dict[str, int]
    far_above: tuple[tuple[str, int], ...] = ()
    next_below: int = -1


def is_behind(next_id: int | None, largest: int) -> bool:
    """Whether a counter would give a used id again; next_id: its next id, None: it never gave any."""
    return (next_id or 0) <= largest


def gather_ids_of_ledgers(sides: pa.Table, history: pa.Table, references: pa.Table | None) -> NamedIds:
    """Return the ids that count of a bucket range, each once.

    Args:
        sides: SIDES: bookies, the store, and its earlier states.
        history: CATALOG_HISTORY.
        references: of `infer.references.SCHEMA`; None: not given.
    """
    keys = sides.select(["scope", "ledger"])
    alone = pc.invert(pc.or_(sides["in_store"], sides["in_earlier"]))
    on_bookies = _list_ids(keys.filter(alone))
    recorded = _list_ids(keys.filter(pc.invert(alone)))
    named = [_list_ids(rows) for rows in (history, references) if rows is not None and rows.num_rows]
    if named:  # else every id of SIDES is there once
        recorded = np.unique(np.concatenate([recorded, *named]))
        on_bookies = np.setdiff1d(on_bookies, recorded)
    return NamedIds(recorded, on_bookies)


def gather_ids_of_bookies(bookies: pa.Table) -> NamedIds:
    """Return the largest id that the files of each bookie name; BOOKIES in."""
    rows = bookies["max_ids"].to_pylist()
    ids = [largest["ledger"] for row in rows for largest in row if largest["scope"] == 0]
    return NamedIds(on_bookies=np.array(ids, np.int64))


def of_counters(catalogs: Iterable[tuple[pa.Table, Layout]]) -> NamedIds:
    """Return the last id that each counter of some stores gave; CATALOG_NODES and layout of each in."""
    ids = [last for nodes, layout in catalogs for last in _last_given(nodes, layout)]
    return NamedIds(recorded=np.array(ids, np.int64))


def _last_given(nodes: pa.Table, layout: Layout) -> Iterator[int]:
    nodes = nodes.filter(pc.greater(nodes["children_created"], 0)).select(["path", "children_created"])
    if not kind_of(layout).has_bucket_counters:
        next_ids = nodes.filter(pc.equal(nodes["path"], store.generator_key(layout)))["children_created"]
        yield from (next_id - 1 for next_id in next_ids.to_pylist())
        return
    for row in nodes.to_pylist():
        bucket = store.bucket_of(row["path"])
        if bucket is not None:
            yield bucket << store.BUCKET_BITS | (row["children_created"] - 1)


def numbers(layout: Layout, named: NamedIds) -> UsedNumbers:
    """Return the evidence of ids about the generators of a layout."""
    ids = np.concatenate([named.recorded, named.on_bookies])
    past_raise = ids > RAISE_LIMIT
    past_short = ids >= store.FIRST_LONG_ID
    if kind_of(layout).has_bucket_counters:
        past_raise = past_short = (ids & ((1 << store.BUCKET_BITS) - 1)) > RAISE_LIMIT
    return UsedNumbers(
        store.numbers_taken(layout, named.recorded, RAISE_LIMIT),
        store.list_largest_numbers(layout, named.on_bookies, RAISE_LIMIT, FEW_IDS + 1),
        int(past_short.sum()),
        int(past_raise.sum()),
    )


def decide_raises(parts: Iterable[UsedNumbers], raise_past: int | None = None) -> RaiseTargets:
    """Return how far generators are raised, from the evidence of all sources.

    Args:
        parts: of sources and bucket ranges.
        raise_past: a person states that numbers up to this one are used; None: no statement.
    """
    recorded: dict[str, int] = {}
    on_bookies: dict[str, set[int]] = {}
    for part in parts:
        recorded |= {key: max(number, recorded.get(key, -1)) for key, number in part.recorded.items()}
        for key, largest in part.on_bookies.items():
            on_bookies[key] = {*on_bookies.get(key, ()), *largest}
    trusted = max([*recorded.values(), *([] if raise_past is None else [raise_past])], default=None)
    far = _far_above({number for largest in on_bookies.values() for number in largest}, trusted)
    taken = {
        key: max(used)
        for key in sorted({*recorded, *on_bookies})
        if (
            used := [number for number in on_bookies.get(key, ()) if number not in far]
            + _list_optional(recorded.get(key))
        )
    }
    far_above = sorted(((key, n) for key, named in on_bookies.items() for n in named & far), key=lambda pair: -pair[1])
    below = [*taken.values(), *_list_optional(trusted)]
    return RaiseTargets(taken, tuple(far_above), max(below, default=-1))


def _far_above(on_bookies: set[int], trusted: int | None) -> set[int]:
    """Return the few numbers far above all others; none where there are no others.

    Args:
        on_bookies: numbers that bookies alone name, at least the largest.
        trusted: a certainly used number; None: there is none.
    """
    descending = sorted((n for n in on_bookies if trusted is None or n > trusted), reverse=True)
    steps: Sequence[int] = [*descending, *_list_optional(trusted)][: FEW_IDS + 1]
    ends = [i for i in range(1, len(steps)) if steps[i - 1] - steps[i] > max(FAR_ABOVE, steps[i])]
    return set(steps[: ends[-1]]) if ends else set()


def _list_optional(number: int | None) -> list[int]:
    return [] if number is None else [number]


def _list_ids(rows: pa.Table) -> Ids:
    """Return the ids of scope 0."""
    return np.asarray(rows["ledger"].filter(pc.equal(rows["scope"], 0)).to_numpy(), np.int64)
