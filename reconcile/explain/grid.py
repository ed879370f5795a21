"""One ledger's entries by bookie, as lines of text.

A row is a bookie, and a column a stretch of entries, all of about the same size:

    #    holds all entries that the record sends it, or without a record all entries
    -    holds some of them
    !    holds none of those that the record sends it
    +    holds entries, and the record sends it none
    .    holds none, and without a record or by it that is as it should be

What is told apart is how many entries a bookie holds of a stretch, not which.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recovery.model.groups import rank

Ints = npt.NDArray[np.int64]

COLUMNS: Final = 60


class GridSegment(NamedTuple):
    """One stretch of a record: its first entry, its ensemble, E and W."""

    first: int
    members: Sequence[str]
    ensemble: int
    write: int


def grid(copies: pa.Table, segments: Sequence[GridSegment]) -> Iterator[str]:
    """Yield the lines of a ledger's grid; none where no bookie holds an entry.

    Args:
        copies: COPIES of the ledger.
        segments: of the record that it is compared with, ascending by first entry; none: there is no record.
    """
    rows: dict[str, list[Mapping[str, int]]] = {}
    for copy in copies.select(["bookie", "groups"]).to_pylist():
        rows.setdefault(copy["bookie"], []).extend(copy["groups"])
    end = max([0, *(group["last"] + group["size"] for groups in rows.values() for group in groups)])
    if not end:
        return
    members = {member for _, names, _, _ in segments for member in names}
    names = sorted(rows.keys() | members)
    # Whole numbers: as floats, edges of entries above 2^53 would miss the end.
    count = min(COLUMNS, end)
    edges = np.array([end * n // count for n in range(count + 1)], np.int64)
    width = max(len(name) for name in names)
    marks = [" "] * (len(edges) - 1)
    for first, *_ in segments:
        if first < end:
            marks[int(np.searchsorted(edges, first, side="right")) - 1] = "|"
    yield f"{'entries':<{width}}  0 to {end - 1}, {-(-end // (len(edges) - 1))} a column at most"
    if segments:
        yield f"{'segments':<{width}}  {''.join(marks)}".rstrip()
    for name in names:
        counts = np.diff(_below(rows.get(name, []), edges))
        due = np.diff(_due(name, segments, edges)) if segments else None
        yield f"{name:<{width}}  {''.join(_cells(counts, due, np.diff(edges)))}"


def _below(groups: Sequence[Mapping[str, int]], edges: Ints) -> Ints:
    """Return how many entries of groups are below each edge."""
    total = np.zeros(len(edges), np.int64)
    for group in groups:
        period = max(group["period"], 1)
        behind = edges - group["first"]
        runs = (group["last"] - group["first"]) // period
        whole = np.clip((behind - 1) // period, -1, runs)
        total += np.where(behind > 0, whole * group["size"] + np.clip(behind - whole * period, 0, group["size"]), 0)
    return total


def _due(bookie: str, segments: Sequence[GridSegment], edges: Ints) -> Ints:
    """Return how many entries below each edge the record sends to a bookie."""
    total = np.zeros(len(edges), np.int64)
    ends = [first for first, *_ in segments[1:]] + [int(edges[-1])]
    for (first, members, size, write), end in zip(segments, ends, strict=True):
        if bookie in members and first < end:
            place, ensemble, quorum = (np.array(n) for n in (members.index(bookie), size, write))
            upto = np.clip(edges, first, end)
            total += rank(upto, place, ensemble, quorum) - rank(np.array(first), place, ensemble, quorum)
    return total


def _cells(counts: Ints, due: Ints | None, size: Ints) -> Iterator[str]:
    for n in range(len(counts)):
        have, wanted = int(counts[n]), int(size[n] if due is None else due[n])
        if have and not wanted:
            yield "+"
        elif not have:
            yield "!" if wanted and due is not None else "."
        else:
            yield "#" if have >= wanted else "-"
