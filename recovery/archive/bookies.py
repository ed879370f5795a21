"""Bookies that an archive reads entries from: running ones, all at the same time, or their disks, one by one."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from backends.bookie import frames
from backends.bookie.client import Address, BookieOptions, BookieWire
from backends.bookie.frames import BookieAnswer, RequestOutcome
from recovery.archive.copies import AskableBookies, EntriesQuestion, Take
from recovery.bookies.disk_reader import BookieDisks, open_disks

Ints = npt.NDArray[np.int64]

_SCOPED: Final = "a read over the wire cannot name a scope"
_NO_DISKS: Final = "no disks of it were given"
_NOT_ALL: Final = "not all of its disks could be looked at"
_UNREADABLE: Final = "its place cannot be read"


@dataclass(frozen=True, slots=True)
class RunningSource:
    """Running bookies, to be asked without fencing; travels to tasks.

    Attributes:
        addresses: of bookies, by the names that records have.
        unresolved: names that no bookie can be asked under, each with the reason.
        options: this task's share of the caps in them.
    """

    addresses: Mapping[str, Address]
    unresolved: Mapping[str, str]
    options: BookieOptions

    @contextmanager
    def open(self) -> Iterator[AskableBookies]:
        """Give the bookies; connections are made where one is asked."""
        with asyncio.Runner() as runner, BookieWire(self.addresses, self.options) as wire:
            yield _RunningBookies(runner, wire, self)


@dataclass(frozen=True, slots=True)
class DiskSource:
    """Disks of bookies, mounted wherever a task runs; travels to tasks.

    Attributes:
        folders: by the bookie's id.
        aliases: other names of bookies in records → ids.
    """

    folders: Mapping[str, Sequence[Path]]
    aliases: Mapping[str, str]

    @contextmanager
    def open(self) -> Iterator[AskableBookies]:
        """Give the disks, open for reading.

        Raises:
            InputError: folders that are no bookie's.
        """
        with ExitStack() as stack:
            disks = {
                bookie: stack.enter_context(open_disks(bookie, list(paths))) for bookie, paths in self.folders.items()
            }
            yield _MountedBookies(disks, self.aliases)


Source = RunningSource | DiskSource


class _RunningBookies:
    def __init__(self, runner: asyncio.Runner, wire: BookieWire, source: RunningSource) -> None:
        self._runner = runner
        self._wire = wire
        self._source = source

    def ask(self, questions: Sequence[EntriesQuestion], take: Take) -> None:
        """Ask all of them at the same time."""
        self._runner.run(self._ask_all(questions, take))

    async def _ask_all(self, questions: Sequence[EntriesQuestion], take: Take) -> None:
        def hand_on(place: int, answer: BookieAnswer) -> None:
            if answer.outcome is RequestOutcome.ANSWER:
                take(place, answer.body, "")
            elif answer.outcome is RequestOutcome.NEGATIVE:
                take(place, b"", "")
            else:
                take(place, None, answer.said)

        # Two names of a bookie are asked one after the other: it has one connection.
        by_address: dict[Address, list[EntriesQuestion]] = {}
        for question in questions:
            address = self._source.addresses.get(question.bookie)
            if address is None:
                why = self._source.unresolved.get(question.bookie, "nothing says where it listens")
                for place in question.place.tolist():
                    take(place, None, why)
            else:
                by_address.setdefault(address, []).append(question)

        async def ask(own: Sequence[EntriesQuestion]) -> None:
            for question in own:
                await self._wire[question.bookie].ask(_make_requests(question, take), hand_on)

        await asyncio.gather(*(ask(own) for own in by_address.values()))


def _make_requests(question: EntriesQuestion, take: Take) -> Iterator[tuple[int, frames.BookieQuestion]]:
    for place, ledger, number in zip(question.place.tolist(), question.ledger, question.entry.tolist(), strict=True):
        if ledger.scope:
            take(place, None, _SCOPED)
        else:
            yield place, frames.read_entry(ledger.ledger, number)


class _MountedBookies:
    def __init__(self, disks: Mapping[str, BookieDisks], aliases: Mapping[str, str]) -> None:
        self._disks = disks
        self._aliases = aliases

    def ask(self, questions: Sequence[EntriesQuestion], take: Take) -> None:
        """Read from the disks of each bookie, in the order that its files have."""
        for question in questions:
            disks = self._disks.get(self._aliases.get(question.bookie, question.bookie))
            if disks is None:
                for place in question.place.tolist():
                    take(place, None, _NO_DISKS)
            else:
                _read(disks, question, take)


def _read(disks: BookieDisks, question: EntriesQuestion, take: Take) -> None:
    order = np.argsort(question.entry, kind="stable")
    ledgers = sorted(set(question.ledger))
    number_of = {ledger: number for number, ledger in enumerate(ledgers)}
    own = np.array([number_of[ledger] for ledger in question.ledger], np.int64)
    order = order[np.argsort(own[order], kind="stable")]
    place, file, position = [], [], []
    has_place = np.zeros(len(question.entry), np.bool_)
    is_sure = np.ones(len(question.entry), np.bool_)
    for number, group in groupby(order.tolist(), key=lambda row: int(own[row])):
        rows_of_ledger = np.array(list(group), np.int64)
        wanted = question.entry[rows_of_ledger]
        places_found = disks.find(ledgers[number], wanted)
        is_sure[rows_of_ledger] = places_found.sure
        # What the journal has is served before what the index says.
        for places in (places_found.journal, places_found.index):
            rows = rows_of_ledger[np.searchsorted(wanted, places.entry)]
            has_place[rows] = True
            place.append(rows)
            file.append(places.file)
            position.append(places.position)
    for row in np.flatnonzero(~has_place).tolist():
        take(int(question.place[row]), b"" if is_sure[row] else None, _NOT_ALL)
    if not place:
        return
    rows, files, positions = (np.concatenate(column) for column in (place, file, position))
    got = np.zeros(len(question.entry), np.bool_)
    for at_row, record in disks.read(files, positions):
        row = int(rows[at_row])
        got[row] = True
        take(int(question.place[row]), record, "")
    for row in np.flatnonzero(has_place & ~got).tolist():
        take(int(question.place[row]), None, _UNREADABLE)
