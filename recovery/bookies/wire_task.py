"""A share of the questions to a cluster: bookies asked for the ledgers of a bucket range, and the rows written."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backends.bookie.client import Address, BookieOptions, BookieWire
from recovery.bookies.recorded_members import cut_batches
from recovery.bookies.wire_questions import BookieAnswers, LedgerQuestions
from recovery.bookies.wire_results import COPIES, DAMAGE, SCOPE, Ints, folder_of
from recovery.dataset import Dataset, sort_by_key, write_part
from recovery.manifest import Part
from recovery.model.groups import add_counts
from recovery.place import to_place

_AT_ONCE: Final = 8
"""Bookies that a task asks at the same time."""


@dataclass(slots=True)
class WireTally:
    """What tasks wrote of one bookie, and what it answered.

    Attributes:
        copies, damage: parts of these tables.
        ledgers: that it has.
        entries: of these.
        negatives: ledgers that it said it does not know.
        unanswered: ledgers that it said nothing of.
        damaged: rows of damage.
        largest: ledger id that it has; -1: none.
        silent: it answers reads of a ledger whose list it does not answer.
        why: the first thing that came in place of an answer.
    """

    copies: list[Part] = field(default_factory=list)
    damage: list[Part] = field(default_factory=list)
    ledgers: int = 0
    entries: int = 0
    negatives: int = 0
    unanswered: int = 0
    damaged: int = 0
    largest: int = -1
    silent: bool = False
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as it travels to the driver."""
        return asdict(self)

    @classmethod
    def sum(cls, tallies: Sequence["WireTally"]) -> "WireTally":
        """Return what several tasks wrote together, in their order."""
        total = cls()
        for tally in tallies:
            total.copies += tally.copies
            total.damage += tally.damage
            total.ledgers += tally.ledgers
            total.entries += tally.entries
            total.negatives += tally.negatives
            total.unanswered += tally.unanswered
            total.damaged += tally.damaged
            total.largest = max(total.largest, tally.largest)
            total.silent |= tally.silent
            total.why = total.why or tally.why
        return total


@dataclass(frozen=True, slots=True)
class WireTarget:
    """A bookie to be asked; travels to tasks."""

    bookie: str
    address: Address
    incarnation: int
    names: tuple[str, ...] = ()
    """That records have for it."""


@dataclass(frozen=True, slots=True)
class WireTask:
    """Asks bookies for the ledgers of a bucket range, and writes their rows; picklable.

    Attributes:
        catalog: lists the ledgers.
        out: the folder that inventories stand in.
        targets: the bookies.
        options: this task's share of the caps in them.
        passwords: that may have made HMACs.
        only_members: bookies are asked for the lists of the ledgers whose records name them, and for nothing else but
            the explicit LACs of `lacs_after`.
        lacs_after: of closed ledgers whose records changed after this transaction of the store; None: of none.
    """

    catalog: Dataset
    out: str
    targets: tuple[WireTarget, ...]
    options: BookieOptions
    passwords: tuple[bytes, ...]
    only_members: bool = False
    lacs_after: int | None = None

    def __repr__(self) -> str:
        """Without the passwords: a value may land in a log."""
        return f"Task(catalog={self.catalog.path!r}, out={self.out!r}, targets={len(self.targets)})"

    def __call__(self, buckets: range) -> dict[str, Any]:
        """Ask them, and return the tally of each bookie."""
        tallies = {target.bookie: WireTally() for target in self.targets}
        asyncio.run(self._ask_targets(buckets, tallies))
        return {bookie: tally.to_json() for bookie, tally in tallies.items()}

    async def _ask_targets(self, buckets: range, tallies: Mapping[str, WireTally]) -> None:
        with BookieWire({t.bookie: t.address for t in self.targets}, self.options) as wire:
            room = asyncio.Semaphore(_AT_ONCE)

            async def ask(target: WireTarget, ledgers: Ints, lacs_of: Ints, name: str) -> None:
                async with room:
                    questions = LedgerQuestions(wire[target.bookie], ledgers, self.passwords)
                    lists = questions.ask_lists(lacs_of.tolist()) if self.only_members else questions.ask_all()
                    await asyncio.to_thread(self._write, target, await lists, name, tallies[target.bookie])

            for low, ledgers, lacs_of in self._list_ledgers(buckets):
                await asyncio.gather(
                    *(ask(target, ledgers[target.bookie], lacs_of, f"part-{low:04d}") for target in self.targets)
                )

    def _list_ledgers(self, buckets: range) -> Iterator[tuple[int, Mapping[str, Ints], Ints]]:
        """Yield ledgers of scope 0 for each bookie, ascending in each batch, with the first bucket of the batch.

        Beside them the ledgers whose explicit LACs are asked for.
        """
        columns = ["bucket", "scope", "ledger"]
        columns += ["segments", "state", "changed_txn"] if self.only_members else []
        for batch in cut_batches(self.catalog, buckets):
            rows = self.catalog.read("ledgers", buckets=batch, columns=columns)
            rows = rows.filter(pc.equal(rows["scope"], SCOPE))
            if self.only_members:
                yield batch.start, self._share_out(rows), self._find_changed(rows)
            else:
                ledgers = np.unique(rows["ledger"].to_numpy())
                yield batch.start, dict.fromkeys([t.bookie for t in self.targets], ledgers), np.empty(0, np.int64)

    def _find_changed(self, rows: pa.Table) -> Ints:
        """Return the closed ledgers whose explicit LACs are asked for."""
        if self.lacs_after is None:
            return np.empty(0, np.int64)
        changed = pc.and_(pc.equal(rows["state"], "CLOSED"), pc.greater(rows["changed_txn"], self.lacs_after))
        ledgers: Ints = rows.filter(pc.fill_null(changed, fill_value=False))["ledger"].to_numpy()
        return ledgers

    def _share_out(self, rows: pa.Table) -> dict[str, Ints]:
        """Return the ledgers whose records name each bookie."""
        segments = rows["segments"].combine_chunks()
        members = pc.struct_field(pc.list_flatten(segments), "members")
        row_of = pc.list_parent_indices(segments).take(pc.list_parent_indices(members))
        names = pc.list_flatten(members)
        ledgers = rows["ledger"].to_numpy()
        shares: dict[str, Ints] = {}
        for target in self.targets:
            named = pc.is_in(names, value_set=pa.array([target.bookie, *target.names]))
            shares[target.bookie] = np.unique(ledgers[row_of.filter(named).to_numpy()])
        return shares

    def _write(self, target: WireTarget, answers: BookieAnswers, name: str, tally: WireTally) -> None:
        folder = to_place(self.out) / folder_of(target.bookie)
        rows = sort_by_key(answers.make_rows(target.bookie, target.incarnation))
        damage = answers.make_damage(target.bookie, target.incarnation)
        for table, content, parts in ((COPIES, rows, tally.copies), (DAMAGE, damage, tally.damage)):
            if content.num_rows:
                parts.append(write_part(folder, table, name, [content]))
        ledgers = answers.known.ledger
        tally.ledgers += len(ledgers)
        tally.entries += add_counts(rows["entries"])
        tally.largest = max(tally.largest, int(ledgers.max(initial=-1)))
        tally.negatives += answers.negatives
        tally.unanswered += len(answers.unanswered)
        tally.damaged += damage.num_rows
        tally.silent |= answers.silent
        if answers.unanswered and not tally.why:
            tally.why = answers.unanswered[0][1].said
