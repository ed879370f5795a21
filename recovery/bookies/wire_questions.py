"""One bookie asked about some ledgers: their lists, their last records, and the headers that prove their digests.

Source: docs/formats/wire.md.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from backends.bookie import frames
from backends.bookie.client import BookieConnection
from backends.bookie.frames import BookieAnswer, RequestOutcome, Status
from recovery.bookies.wire_results import SCOPE, WIRE, Ints
from recovery.collect.rows.copies import NO_LAC, CopySource, Known, make_copies
from recovery.collect.rows.damage import Hides, UnreadPiece, make_damage_table
from recovery.collect.rows.entry_headers import DIGEST_COLUMN, HEAD_WIDTH, SIZE_COLUMN, make_head
from recovery.collect.rows.ledger_facts import read_explicit_lac
from recovery.collect.rows.source_copies import are_members, find_starts, join_groups, pick_groups
from recovery.errors import FormatError, Reason
from recovery.model.groups import KeyedGroups, decode_availabilities, union
from recovery.model.ids import LedgerId

_RAW: Final = 32 << 20
"""Bytes of lists that are held before they are decoded: grouped they are far smaller."""
_SCOPED: Final = b"\x80"
"""First byte, and above, of a record of another scope than 0."""
_ENTRY: Final = 1
"""Column of a header row."""
_NAMED_AT_MOST: Final = 1000
"""Ledgers without an answer that are named one by one; more are reported together."""


@dataclass(slots=True)
class BookieAnswers:
    """What a bookie said of some ledgers."""

    known: Known
    groups: KeyedGroups
    heads: Ints
    negatives: int
    unanswered: list[tuple[int, BookieAnswer]]
    """Ledgers whose list did not come, with what came instead."""
    unread: list[UnreadPiece]
    silent: bool
    """It answered a read of a ledger whose list it does not answer."""

    def make_rows(self, bookie: str, incarnation: int) -> pa.Table:
        """Return rows of COPIES."""
        return make_copies(CopySource.WIRE, self.known, self.groups, self.heads, bookie, incarnation)

    def make_damage(self, bookie: str, incarnation: int) -> pa.Table:
        """Return rows of DAMAGE; what was not answered hides entries."""
        unread = list(self.unread)
        if len(self.unanswered) > _NAMED_AT_MOST:
            detail = f"{len(self.unanswered)} ledgers were not answered: {self.unanswered[0][1].said}"
            unread.append(UnreadPiece(WIRE, Reason.UNREADABLE, Hides.EVERYTHING, detail=detail))
        else:
            unread += [
                UnreadPiece(WIRE, Reason.UNREADABLE, Hides.LEDGER, ledger=ledger, detail=answer.said)
                for ledger, answer in self.unanswered
            ]
        return make_damage_table(unread, bookie, incarnation)


class LedgerQuestions:
    """The questions to one bookie about some ledgers; what is known of ledger n stands at place n."""

    def __init__(self, bookie: BookieConnection, ledgers: Ints, passwords: Sequence[bytes]) -> None:
        self._bookie = bookie
        self._ledgers = ledgers.tolist()
        self._passwords = passwords
        self._listed: set[int] = set()
        self._parts: list[KeyedGroups] = []
        self._failed: dict[int, BookieAnswer] = {}
        self._negatives = 0
        self._heads: dict[int, tuple[int, ...]] = {}
        self._more_heads: list[tuple[int, ...]] = []
        self._lac_records: dict[int, bytes] = {}
        self._unsure: set[int] = set()
        self._unread: list[UnreadPiece] = []

    async def ask_all(self) -> BookieAnswers:
        """Ask everything; return the answers."""
        await self._ask_lists(range(len(self._ledgers)))
        await self._ask_last(sorted(self._listed))
        groups = self._merge_groups()
        odd = self._find_lacking(groups)
        if odd:
            # A ledger that is written to changes meanwhile; what does not change is a list that lacks its last entry.
            first_answers = {n: (_encode_list(groups, n), self._heads[n]) for n in odd}
            self._parts = [pick_groups(groups, ~np.isin(groups.key, odd))]
            self._listed.difference_update(odd)
            await self._ask_lists(odd)
            await self._ask_last([n for n in odd if n in self._listed], lac=False)
            groups = self._merge_groups()
            self._unsure.update(n for n in odd if (_encode_list(groups, n), self._heads.get(n)) != first_answers[n])
            odd = self._find_lacking(groups)
            extra = np.array([(n, self._heads[n][_ENTRY], self._heads[n][_ENTRY], 1, 0) for n in odd], np.int64)
            is_odd = np.isin(groups.key, odd)
            whole = union(pick_groups(groups, is_odd), KeyedGroups(*extra.reshape(-1, 5).T.copy()))
            self._parts = [pick_groups(groups, ~is_odd), whole]
            groups = self._merge_groups()
        await self._read_proofs(groups)
        return self._make_answers(groups, silent=await self._is_silent())

    async def ask_lists(self, lacs_of: Collection[int] = ()) -> BookieAnswers:
        """Ask for the lists alone, one question a ledger; return the answers. A list may lack the last entry.

        Args:
            lacs_of: ledgers whose explicit LACs are asked for, too: the bookie reads the last entry for it.
        """
        await self._ask_lists(range(len(self._ledgers)))
        wanted = frozenset(lacs_of)
        await self._ask_explicit_lacs([n for n in sorted(self._listed) if self._ledgers[n] in wanted])
        return self._make_answers(self._merge_groups(), silent=await self._is_silent())

    async def _ask_lists(self, places: Iterable[int]) -> None:
        raw: dict[int, bytes] = {}
        waiting = 0

        def decode() -> None:
            nonlocal waiting
            places_of = np.array(list(raw), np.int64)
            groups, errors = decode_availabilities(list(raw.values()))
            self._parts.append(groups._replace(key=places_of[groups.key]))
            self._listed.update(raw)
            for row, error in errors.items():
                n = int(places_of[row])
                self._listed.discard(n)
                self._failed[n] = BookieAnswer(RequestOutcome.NOT_UNDERSTOOD, detail=str(error))
            raw.clear()
            waiting = 0

        def take(n: int, answer: BookieAnswer) -> None:
            nonlocal waiting
            if answer.outcome is RequestOutcome.ANSWER:
                raw[n] = answer.body
                waiting += len(answer.body)
                if waiting > _RAW:
                    decode()
            elif answer.outcome is RequestOutcome.NEGATIVE:
                self._negatives += 1
            else:
                self._failed[n] = answer

        await self._bookie.ask(((n, frames.list_entries(self._ledgers[n])) for n in places), take)
        decode()

    def _merge_groups(self) -> KeyedGroups:
        """Return the groups of all lists, in the order of their places."""
        groups = join_groups(self._parts)
        self._parts = [pick_groups(groups, np.argsort(groups.key, kind="stable"))]
        return self._parts[0]

    async def _ask_last(self, places: Iterable[int], *, lac: bool = True) -> None:
        """Learn each ledger's last record, and its explicit LAC."""
        without_head: list[int] = []

        def take_lac(n: int, answer: BookieAnswer) -> None:
            if answer.lac_record:
                self._lac_records[n] = answer.lac_record
            if not self._take_head(n, answer.body):
                without_head.append(n)

        def take_read(n: int, answer: BookieAnswer) -> None:
            if answer.outcome is RequestOutcome.ANSWER and self._take_head(n, answer.body):
                return
            self._heads.pop(n, None)
            if answer.outcome is not RequestOutcome.NEGATIVE or answer.status != Status.ENOENTRY:
                self._doubt(n, f"its last entry: {answer.said}")

        if lac:
            await self._bookie.ask(((n, frames.read_lac(self._ledgers[n])) for n in places), take_lac)
        else:
            without_head.extend(places)
        await self._bookie.ask(((n, frames.read_entry(self._ledgers[n], frames.LAST)) for n in without_head), take_read)

    async def _ask_explicit_lacs(self, places: Iterable[int]) -> None:
        """Learn the explicit LACs of ledgers, and nothing else."""

        def take(n: int, answer: BookieAnswer) -> None:
            if answer.lac_record:
                self._lac_records[n] = answer.lac_record

        await self._bookie.ask(((n, frames.read_lac(self._ledgers[n])) for n in places), take)

    def _take_head(self, n: int, record: bytes) -> bool:
        head = make_head(record, self._passwords) if record[:1] < _SCOPED else ()
        if not head or not head[SIZE_COLUMN] or head[0] != self._ledgers[n]:
            return False
        self._heads[n] = head
        return True

    def _doubt(self, n: int, detail: str) -> None:
        self._unsure.add(n)
        ledger = self._ledgers[n]
        self._unread.append(UnreadPiece(WIRE, Reason.UNREADABLE, Hides.LEDGER, ledger=ledger, detail=detail))

    def _find_lacking(self, groups: KeyedGroups) -> list[int]:
        places = np.array(sorted(n for n in self._heads if n in self._listed), np.int64)
        entries = np.array([self._heads[n][_ENTRY] for n in places.tolist()], np.int64)
        lacking: list[int] = places[~are_members(groups, places, entries)].tolist()
        return lacking

    async def _read_proofs(self, groups: KeyedGroups) -> None:
        """Read the headers of first entries, of the one before the last where that proves no digest type, of lasts."""
        wanted: list[tuple[int, int]] = []
        begin = find_starts(groups.key)
        ends = np.append(begin[1:], len(groups.key))[: len(begin)] - 1
        lasts = groups.last[ends] + groups.size[ends] - 1 if len(begin) else begin
        for n, first, last in zip(
            groups.key[begin].tolist(), groups.first[begin].tolist(), lasts.tolist(), strict=True
        ):
            head = self._heads.get(n)
            if head is None or head[_ENTRY] != last:
                wanted.append((n, last))
            elif head[DIGEST_COLUMN] < 0 and first < last - 1:
                wanted.append((n, last - 1))
            if first < last:
                wanted.append((n, first))
        pairs = np.array(wanted, np.int64).reshape(-1, 2)
        pairs = pairs[are_members(groups, pairs[:, 0], pairs[:, 1])]

        def take(place: tuple[int, int], answer: BookieAnswer) -> None:
            n, entry = place
            head = make_head(answer.body, self._passwords) if answer.outcome is RequestOutcome.ANSWER else ()
            if head and head[:2] == (self._ledgers[n], entry):
                self._more_heads.append(head)
            else:
                self._doubt(n, f"entry {entry}, which is listed: {answer.said}")

        questions = (((n, e), frames.read_entry(self._ledgers[n], e)) for n, e in map(tuple, pairs.tolist()))
        await self._bookie.ask(questions, take)

    async def _is_silent(self) -> bool:
        """Whether the bookie serves a ledger whose list it does not answer."""
        for n, answer in self._failed.items():
            if answer.outcome is RequestOutcome.NO_ANSWER:
                read = await self._bookie.one(frames.read_entry(self._ledgers[n], frames.LAST))
                return read.outcome is RequestOutcome.ANSWER or read.status == Status.ENOENTRY
        return False

    def _make_answers(self, groups: KeyedGroups, *, silent: bool) -> BookieAnswers:
        places = sorted(self._listed)
        ledgers = np.array([self._ledgers[n] for n in places], np.int64)
        count = len(places)
        lacs, records = np.full(count, NO_LAC), [self._lac_records.get(n) for n in places]
        for row, record in enumerate(records):
            if record is None:
                continue
            try:
                lacs[row] = read_explicit_lac(record, LedgerId(SCOPE, int(ledgers[row])))
            except FormatError as error:
                records[row] = None
                unread = UnreadPiece(WIRE, error.reason, Hides.NOTHING, ledger=int(ledgers[row]), detail=error.detail)
                self._unread.append(unread)
        not_known = np.zeros(count, np.bool_)
        known = Known(
            ledger=ledgers,
            complete=np.array([n not in self._unsure for n in places], np.bool_),
            fenced=not_known,
            limbo=not_known,
            key=np.full(count, -1),
            keys=(),
            lac=lacs,
            lac_record=records,
        )
        ledger_of = np.array(self._ledgers, np.int64)
        heads = [head for n, head in self._heads.items() if n in self._listed] + self._more_heads
        return BookieAnswers(
            known,
            groups._replace(key=ledger_of[groups.key]),
            np.array(heads, np.int64).reshape(-1, HEAD_WIDTH),
            self._negatives,
            [(self._ledgers[n], answer) for n, answer in self._failed.items()],
            self._unread,
            silent,
        )


def _encode_list(groups: KeyedGroups, key: int) -> bytes:
    """Return what tells one list from another."""
    low, high = np.searchsorted(groups.key, [key, key + 1])
    return np.column_stack([column[low:high] for column in groups[1:]]).tobytes()
