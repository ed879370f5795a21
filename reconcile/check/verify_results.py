"""The results for ledgers that were read back, and the sources that they are read from."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import numpy.typing as npt

from recovery.model.ids import LedgerId

if TYPE_CHECKING:
    from recovery.bookies.entry_places import FoundPlaces


Ints = npt.NDArray[np.int64]


LISTED: Final = 100
"""Most ledgers with a problem that are named; all are counted."""


ABOVE_END: Final = "above_end"
"""In place of an outcome: bookies have entries above the ledger's end."""


class VerifyOutcome(StrEnum):
    """The result for a restored ledger; stored in --json, so never renamed."""

    READABLE = "readable"
    MISSING = "missing"
    CORRUPT = "corrupt"
    UNCHECKED = "not_checkable"
    LENGTH = "length_differs"
    NO_RECORD = "no_record"
    """The store has no record of it, or an unreadable one."""


class RecordInStore(StrEnum):
    """The store's record compared with the plan's; stored in --json, so never renamed."""

    PLANNED = "as_planned"
    CHANGED = "changed"
    ABSENT = "absent"
    UNPARSABLE = "unparsable"
    DENIED = "denied"
    """The store does not show it to us."""


class Held(Protocol):
    """The source of one bookie's copies: its disks, or the bookie itself."""

    @property
    def complete(self) -> bool:
        """Whether the source could be read whole."""
        ...

    @property
    def problems(self) -> tuple[str, ...]:
        """The first few obstacles."""
        ...

    def find(self, ledger: LedgerId, wanted: Ints) -> "FoundPlaces":
        """Return the places of some entries of a ledger, ascending, each once."""
        ...

    def each(self, file: Ints, position: Ints, take: Callable[[int, bytes | None], None]) -> None:
        """Pass on the row and bytes of each place: None for an unreadable place, empty bytes for an empty one."""
        ...


class ReadableCluster(Protocol):
    """Bookies by the names that records give them."""

    def get(self, name: str, /) -> Held | None:
        """Return the source of its copies; None without one."""
        ...

    def items(self) -> Iterable[tuple[str, Held]]:
        """Return the bookies with a source."""
        ...


@dataclass(frozen=True, slots=True)
class VerifyProblem:
    """A ledger with a problem, and the reason."""

    ledger: LedgerId
    outcome: str
    detail: str


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """What was checked, with the results.

    Attributes:
        ledgers, held: in the plan.
        drawn: how many of each to check.
        seed: of the sample; empty where every ledger was checked.
        outcomes: of the checked restored ledgers.
        full: readable ledgers with every copy good.
        longer: readable ledgers with a record that is longer than its entries.
        above: ledgers, entries: readable ledgers with entries above their end on bookies, and how many follow the end;
            open_ledgers, open_entries: ledgers with an open planned record, and their consecutive entries from the
            first.
        records: of these ledgers' records.
        holds: of the holds' records that were checked.
        entries: looked_at, readable, missing, corrupt, not_checkable.
        copies: promised, good, unproven, bad, absent, not_looked_at.
        problems: the first `LISTED`.
        without_disks: bookies in a record, without given disks, and the copies that they should hold.
        incomplete: bookies with disks that could not be read whole, and the reasons.
    """

    ledgers: int
    held: int
    drawn: tuple[int, int]
    seed: str
    outcomes: Mapping[VerifyOutcome, int]
    full: int
    longer: int
    above: Mapping[str, int]
    records: Mapping[RecordInStore, int]
    holds: Mapping[RecordInStore, int]
    entries: Mapping[str, int]
    copies: Mapping[str, int]
    problems: tuple[VerifyProblem, ...]
    without_disks: Mapping[str, int]
    incomplete: Mapping[str, tuple[str, ...]]

    @property
    def looked_at(self) -> int:
        """Restored ledgers that were checked."""
        return sum(self.outcomes.values())

    @property
    def adds_up(self) -> bool:
        """Whether every ledger, hold, entry and copy is in exactly one category."""
        entries, copies = Counter(self.entries), Counter(self.copies)
        sums = (
            (self.looked_at, self.drawn[0]),
            (sum(self.records.values()), self.drawn[0]),
            (sum(self.holds.values()), self.drawn[1]),
            (entries.total() - entries["looked_at"], entries["looked_at"]),
            (copies.total() - copies["promised"], copies["promised"]),
        )
        return all(total == other for total, other in sums)

    @property
    def wrong(self) -> int:
        """Ledgers and holds with a finding."""
        fine = self.outcomes.get(VerifyOutcome.READABLE, 0) + self.outcomes.get(VerifyOutcome.UNCHECKED, 0)
        changed = self.records.get(RecordInStore.CHANGED, 0)
        fine_holds = self.holds.get(RecordInStore.PLANNED, 0) + self.holds.get(RecordInStore.DENIED, 0)
        return self.looked_at - fine + changed + sum(self.holds.values()) - fine_holds

    @property
    def denied(self) -> int:
        """Records and holds that the store does not show to us."""
        return self.records.get(RecordInStore.DENIED, 0) + self.holds.get(RecordInStore.DENIED, 0)
