"""Single entries read from running bookies, by the names that records give them.

    an entry is          if the bookie
    handed on            answers with a record
    absent               says that it knows no such ledger, or no such entry
    not looked at        says nothing, refuses, or is not understood; the name is no bookie's that can be asked; or the
                         ledger is of a scope: no read can name one (the field that would carry it fences)

Source: docs/formats/wire.md.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from backends.bookie import frames
from backends.bookie.client import BookieConnection, BookieOptions, BookieWire
from backends.bookie.frames import BookieAnswer, RequestOutcome
from recovery.bookies.addresses import ALIAS_UNRESOLVED, BookieNames
from recovery.bookies.entry_places import EntryPlaces, FoundPlaces
from recovery.model.ids import LedgerId

Ints = npt.NDArray[np.int64]

_NONE: Final = EntryPlaces(*(np.empty(0, np.int64) for _ in range(3)))


class RunningBookie:
    """One bookie; its places are (ledger, entry), of scope 0."""

    def __init__(self, bookie: BookieConnection, runner: asyncio.Runner) -> None:
        self._bookie = bookie
        self._runner = runner
        self._unanswered: Counter[str] = Counter()

    @property
    def complete(self) -> bool:
        """Whether everything that was asked was answered."""
        return not self._unanswered

    @property
    def problems(self) -> tuple[str, ...]:
        """What came instead of answers, the most frequent first."""
        return tuple(f"{count} entries: {problem}" for problem, count in self._unanswered.most_common())

    def find(self, ledger: LedgerId, wanted: Ints) -> FoundPlaces:
        """Return every entry as a place: only the bookie knows what it has; of a scope none, which no read can name."""
        if ledger.scope:
            self._unanswered["a read cannot name a scope"] += len(wanted)
            return FoundPlaces(_NONE, _NONE, sure=False)
        return FoundPlaces(_NONE, EntryPlaces(wanted, np.full(len(wanted), ledger.ledger), wanted), sure=True)

    def each(self, file: Ints, position: Ints, take: Callable[[int, bytes | None], None]) -> None:
        """Ask for each entry, and hand on what the bookie has."""

        def taken(row: int, answer: BookieAnswer) -> None:
            if answer.outcome is RequestOutcome.ANSWER:
                take(row, answer.body)
            elif answer.outcome is not RequestOutcome.NEGATIVE:
                self._unanswered[answer.said] += 1
                take(row, None)

        pairs = enumerate(zip(file.tolist(), position.tolist(), strict=True))
        self._runner.run(
            self._bookie.ask(((row, frames.read_entry(ledger, entry)) for row, (ledger, entry) in pairs), taken)
        )


class RunningCluster:
    """Bookies by name; a context manager that ends the connections."""

    def __init__(self, members: BookieNames, options: BookieOptions) -> None:
        self._members = members
        addresses = {m.bookie: m.address for name in members.bookies if (m := members.find(name)).address is not None}
        self._wire = BookieWire(addresses, options)
        self._addresses = addresses
        self._runner = asyncio.Runner()
        self._asked: dict[str, RunningBookie] = {}
        self.unresolved: dict[str, str] = {}
        """Names that were asked for and are no bookie's that can be asked, with the reason."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wire.close()
        self._runner.close()

    def get(self, name: str, /) -> RunningBookie | None:
        """Return the bookie that a name stands for; None: nobody that could be asked."""
        member = self._members.find(name)
        if member.bookie not in self._addresses:
            self.unresolved[name] = f"{ALIAS_UNRESOLVED}: {member.why}" if member.unresolved else member.why
            return None
        if member.bookie not in self._asked:
            self._asked[member.bookie] = RunningBookie(self._wire[member.bookie], self._runner)
        return self._asked[member.bookie]

    def items(self) -> Iterable[tuple[str, RunningBookie]]:
        """Return the bookies that were asked."""
        return self._asked.items()
