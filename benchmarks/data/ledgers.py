"""Made-up ledgers: the same ones for the same numbers, however many there are.

E = 3, W = 2; one ledger in a hundred changed the bookie at position 1 once, half-way
ids        ascending, with gaps as deletions leave them
entries    12 or more, log-normal: some 2,000 on average, half of the ledgers below 700
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from recovery.model.groups import KeyedGroups

Ints = npt.NDArray[np.int64]

ENSEMBLE: Final = 3
WRITE: Final = 2
PASSWORD: Final = b"benchmark"
PAYLOAD: Final = 100
"""Bytes of every entry's payload."""
INSTANCE: Final = "5a1f0a54-6d1c-4c2f-8b4b-6a3d8b7e0c11"
BOOKIES: Final = tuple(f"10.0.0.{number}:3181" for number in range(1, 13))
CHUNK: Final = 50_000
"""Ledgers that are made at a time."""

_SEED: Final = 20_260_101
_CHANGED: Final = 100
_LEAST: Final = 12
_MOST: Final = 1 << 30
_ID_STEP: Final = 3
_MIDDLE: Final = 1


@dataclass(frozen=True, slots=True)
class Ledgers:
    """Some ledgers.

    Attributes:
        ledger: ids.
        entries: how many each has.
        members: three bookies of each, by number, in order of position.
        change: first entry of the second segment; 0: there is none.
        newcomer: the bookie that then is at position 1.
    """

    ledger: Ints
    entries: Ints
    members: Ints
    change: Ints
    newcomer: Ints

    def segments(self, at: int) -> list[tuple[int, tuple[str, ...]]]:
        """Return the segments of one ledger's metadata."""
        first = [BOOKIES[number] for number in self.members[at]]
        if not self.change[at]:
            return [(0, tuple(first))]
        second = [*first[:_MIDDLE], BOOKIES[self.newcomer[at]], *first[_MIDDLE + 1 :]]
        return [(0, tuple(first)), (int(self.change[at]), tuple(second))]


@dataclass(frozen=True, slots=True)
class Stays:
    """Stretches of a ledger that a bookie was at one position of its ensemble for.

    Attributes:
        of: number of the ledger.
        bookie: by number.
        position: in the ensemble.
        low, high: the first entry, and the first one after.
    """

    of: Ints
    bookie: Ints
    position: Ints
    low: Ints
    high: Ints


def chunk(number: int, ledgers: int) -> Ledgers:
    """Make the chunk with a number, of at most `CHUNK` ledgers, of so many ledgers in all."""
    random = np.random.default_rng((_SEED, number))
    entries = np.clip(random.lognormal(6.5, 1.5, CHUNK), _LEAST, _MOST).astype(np.int64)
    chosen = random.random((CHUNK, len(BOOKIES))).argsort(axis=1)
    place = number * CHUNK + np.arange(CHUNK)
    ledger = place * _ID_STEP + random.integers(0, _ID_STEP, CHUNK)
    change = np.where(place % _CHANGED == 0, entries // 2, 0)
    kept = slice(0, max(0, min(CHUNK, ledgers - number * CHUNK)))
    return Ledgers(ledger[kept], entries[kept], chosen[kept, :ENSEMBLE], change[kept], chosen[kept, ENSEMBLE])


def stays(made: Ledgers) -> Stays:
    """Return who was where, in no order."""
    number, none = np.arange(len(made.ledger)), np.zeros(len(made.ledger), np.int64)
    changed = np.flatnonzero(made.change)
    parts = [
        (
            number,
            made.members[:, position],
            none + position,
            none,
            np.where((made.change > 0) & (position == _MIDDLE), made.change, made.entries),
        )
        for position in range(ENSEMBLE)
    ]
    parts.append(
        (changed, made.newcomer[changed], none[changed] + _MIDDLE, made.change[changed], made.entries[changed])
    )
    return Stays(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def groups(position: Ints, low: Ints, high: Ints) -> tuple[KeyedGroups, Ints]:
    """Return the sequence groups of stays, and the last entry of each.

    Position p of three has entries p - 1 and p of every three, so a stay is a cut run at most, then whole ones, then a
    cut one at most. Stays are long enough for whole ones.

    Args:
        position: of each stay.
        low: first entry.
        high: the first entry after.

    Returns:
        Groups with the number of the stay as key; last entries.
    """
    phase = (position - WRITE + 1) % ENSEMBLE
    cut = (low - phase) % ENSEMBLE == WRITE - 1
    first = low + (phase - low) % ENSEMBLE
    runs = (high - WRITE - first) // ENSEMBLE + 1
    if bool((runs < 1).any()):
        raise ValueError("a stay without a whole run")
    last = first + ENSEMBLE * (runs - 1)
    tail = last + ENSEMBLE
    ends = tail == high - 1
    number, one = np.arange(len(position)), np.ones(len(position), np.int64)
    parts = [
        (number[cut], low[cut], low[cut], one[cut], 0 * one[cut]),
        (number, first, last, one * WRITE, np.where(runs > 1, ENSEMBLE, 0)),
        (number[ends], tail[ends], tail[ends], one[ends], 0 * one[ends]),
    ]
    every = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.lexsort((every[1], every[0]))
    return KeyedGroups(*(column[order] for column in every)), np.where(ends, tail, last + WRITE - 1)
