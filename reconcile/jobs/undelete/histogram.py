"""Deletes counted: by session, and of some sessions over time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_BARS: Final = 24
"""Bars of a histogram, at most, empty ones left out or not."""
_SECOND_MS: Final = 1_000
_WIDTHS_MS: Final = tuple(
    seconds * _SECOND_MS for seconds in (1, 10, 60, 600, 3_600, 6 * 3_600, 86_400, 7 * 86_400, 28 * 86_400)
)
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SessionDeletes:
    """What one session deleted.

    Attributes:
        session: as the store numbers it; None: the store keeps no sessions.
        ledgers: how many.
        first_txn, last_txn: of its first and last delete.
        first_ms, last_ms: when these were, ms since 1970; None: the store keeps no times.
    """

    session: int | None
    ledgers: int
    first_txn: int
    last_txn: int
    first_ms: int | None
    last_ms: int | None


@dataclass(frozen=True, slots=True)
class DeletesBar:
    """Deletes in a span of time.

    Attributes:
        begin_ms: when it begins, ms since 1970.
        width_ms: how long it is.
        count: deletes in it.
        chosen: those of them inside the window.
    """

    begin_ms: int
    width_ms: int
    count: int
    chosen: int


def count_sessions(deletes: pa.Table) -> tuple[SessionDeletes, ...]:
    """Return who deleted how many ledgers, most first.

    Args:
        deletes: session, txn and at_ms, a row a ledger.
    """
    sums = deletes.group_by("session").aggregate(
        [("txn", "count"), ("txn", "min"), ("txn", "max"), ("at_ms", "min"), ("at_ms", "max")]
    )
    return tuple(
        sorted(map(_make_session, sums.to_pylist()), key=lambda session: (-session.ledgers, session.first_txn))
    )


def _make_session(row: dict[str, Any]) -> SessionDeletes:
    names = ("session", "txn_count", "txn_min", "txn_max", "at_ms_min", "at_ms_max")
    return SessionDeletes(*(row[name] for name in names))


def draw_bars(at_ms: pa.ChunkedArray, chosen: npt.NDArray[np.bool_]) -> tuple[DeletesBar, ...]:
    """Return deletes over time, spans without any left out; none where nothing keeps times.

    Args:
        at_ms: when each delete was; null: not known.
        chosen: which are inside the window.
    """
    known = pc.is_valid(at_ms).to_numpy()
    times: Ints = pc.drop_null(at_ms).to_numpy().astype(np.int64)
    return tuple(_cut(times, chosen[known])) if len(times) else ()


def _cut(times: Ints, chosen: npt.NDArray[np.bool_]) -> Iterator[DeletesBar]:
    widths: Sequence[int] = [width for width in _WIDTHS_MS if len(np.unique(times // width)) <= _BARS]
    width = widths[0] if widths else _WIDTHS_MS[-1]
    numbers, places = np.unique(times // width, return_inverse=True)
    counts, of_window = np.bincount(places), np.bincount(places, weights=chosen)
    for number, count, inside in zip(numbers.tolist(), counts.tolist(), of_window.tolist(), strict=True):
        yield DeletesBar(number * width, width, count, int(inside))
