"""Slots of an index, as the readers of index files and of databases yield them, and their rows."""

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from recovery.collect.rows.ledger_facts import FACT_WIDTH
from recovery.collect.rows.source_copies import Ints, find_patterns
from recovery.model.groups import KeyedGroups

Slots = npt.NDArray[np.int64]
"""Locations in the byte order of an index file: bytes are swapped only on request."""


@dataclass(frozen=True, slots=True, eq=False)
class IndexPiece:
    """A part of an index; a ledger's slots come together and ascending, and may go on in the next piece.

    Attributes:
        ledger, entry, location: of each slot that is not empty.
        facts: rows of ledgers, see `ledger_facts`.
    """

    ledger: Ints
    entry: Ints
    location: Ints
    facts: Ints

    def to_piece(self) -> "IndexPiece":
        """Return itself."""
        return self

    def select(self, rows: slice) -> "IndexPiece":
        """Return some of the slots, and no facts."""
        return IndexPiece(self.ledger[rows], self.entry[rows], self.location[rows], self.facts[:0])


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Neighbouring slots of one ledger; a few patterns show which are empty.

    A bookie of an ensemble of E holds W of every E entries, so nearly all of a large index is like that; rows are laid
    out only for who asks for them.

    Attributes:
        ledger: of the slots.
        first: the entry of the first.
        slots: the location of each, in the byte order of the file; 0: empty.
        groups: the entries of non-empty slots, in the form of `Grouper.feed_groups`.
    """

    ledger: int
    first: int
    slots: Slots
    groups: KeyedGroups

    def to_piece(self) -> IndexPiece:
        """Return a row for each slot that is not empty."""
        return make_piece(self.ledger, self.first, self.slots)

    def find_location(self, entry: int) -> int:
        """Return where an entry is; 0 if that is not known here."""
        row = entry - self.first
        return int(self.slots[row]) if 0 <= row < len(self.slots) else 0


def make_piece(ledger: int, first: int, slots: Slots) -> IndexPiece:
    """Return neighbouring slots of one ledger from entry `first` on; 0: empty."""
    filled = np.flatnonzero(slots.view(np.int64))
    location = slots[filled].astype(np.int64)
    return IndexPiece(np.full(len(filled), ledger), filled + first, location, np.empty((0, FACT_WIDTH), np.int64))


def make_block(ledger: int, first: int, slots: Slots) -> IndexPiece | Block:
    """Return the slots as a block, if a few patterns show which are empty."""
    groups = find_patterns(slots.view(np.int64) != 0, ledger, first)
    return make_piece(ledger, first, slots) if groups is None else Block(ledger, first, slots, groups)


class TakesRows(Protocol):
    """Receives rows of ledgers, in any order."""

    def add(self, rows: Ints) -> None:
        """Take rows."""
        ...


Rows_co = TypeVar("Rows_co", bound=TakesRows, covariant=True)


@dataclass(frozen=True, slots=True)
class IndexRows(Generic[Rows_co]):
    """The content of indexes, as rows of ledgers: groups of entries, headers, facts, and groups of dangling slots."""

    groups: Rows_co
    heads: Rows_co
    facts: Rows_co
    dangling: Rows_co
