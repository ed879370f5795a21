"""What bookies tell of a compacted ledger whose name no record of the store has."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from backends.bookie import frames
from backends.bookie.client import Address
from backends.bookie.frames import BookieAnswer, BookieQuestion, RequestOutcome, Status
from reconcile.deletes.verification.evidence import ReferenceListing
from reconcile.deletes.verification.wanted import Ints, WantedLedgers
from reconcile.jobs.deletes.compactions import CursorLedger, find_loaded
from reconcile.references import COMPACTION, References
from recovery.bookies.addresses import BookieNames, NamedMember
from recovery.codecs import entry
from recovery.codecs._pb.managed_ledger_pb2 import LongProperty, PositionInfo
from recovery.codecs.entry import EntryHeader
from recovery.dataset import Dataset
from recovery.infer.references import SCHEMA
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from recovery.model.tables import CUSTOM

LEDGER = 50
NAMES = ("b1:1", "b2:1", "b3:1")
NEGATIVE = BookieAnswer(RequestOutcome.NEGATIVE, Status.ENOENTRY)
SILENT = BookieAnswer(RequestOutcome.NO_ANSWER, 0)


def write(number: int, named: int | None, *, raw: bytes | None = None) -> bytes:
    """Return an entry of a subscription's own ledger, as a bookie has it."""
    properties = [] if named is None else [LongProperty(name="CompactedTopicLedger", value=named)]
    position = PositionInfo(ledgerId=3, entryId=number, properties=properties).SerializeToString()
    header = EntryHeader(LEDGER, number, number - 1, 100 * (number + 1))
    return entry.encode(header, position if raw is None else raw, Digest.CRC32C)


class Bookies(dict[str, Any]):
    """Bookies that hold entries; None in place of these: one that does not answer."""

    def __init__(self, held: Mapping[str, Mapping[int, bytes] | None]) -> None:
        super().__init__({name: self._Bookie(entries) for name, entries in held.items()})

    class _Bookie:
        def __init__(self, entries: Mapping[int, bytes] | None) -> None:
            self._entries = entries

        async def one(self, question: BookieQuestion) -> BookieAnswer:
            if self._entries is None:
                return SILENT
            number = max(self._entries, default=-1) if question.entry == frames.LAST else question.entry
            raw = self._entries.get(number)
            return NEGATIVE if raw is None else BookieAnswer(RequestOutcome.ANSWER, Status.EOK, raw)


class Members(BookieNames):
    """Bookies that are known by their own names."""

    def __init__(self) -> None:
        super().__init__({}, {}, {})

    def find(self, name: str) -> NamedMember:
        return NamedMember(name, Address("h", 1))


def read(held: Mapping[str, Mapping[int, bytes] | None], *, last: int | None = None, scope: int = 0) -> set[int] | None:
    """Return what three bookies tell, of a ledger that is open, or closed at an entry."""
    record = LedgerMetadata(
        3, 3, 2, 2, LedgerState.OPEN if last is None else LedgerState.CLOSED, last, None if last is None else 1,
        (Segment(0, NAMES),), Digest.CRC32C, b"",
    )  # fmt: skip
    wire: Any = Bookies(held)
    return asyncio.run(CursorLedger(LedgerId(scope, LEDGER), record, Members(), NAMES, wire).read())


FIRST, SECOND = {0: write(0, 7)}, {1: write(1, 8)}


@pytest.mark.parametrize(
    ("held", "named"),
    [
        ((FIRST | SECOND, FIRST | SECOND, FIRST), {8}),
        # One bookie alone has the last entry: it may get lost, and then the one before counts.
        ((FIRST | SECOND, FIRST, FIRST), {7, 8}),
        ((SECOND, {}, {}), None),
        ((FIRST, FIRST, {}), {7}),
        ((FIRST, {}, {}), {7}),
        (({0: write(0, None)}, {0: write(0, None)}, {}), set()),
        (({}, {}, {}), None),
        ((FIRST | SECOND, FIRST | SECOND, None), None),
        (({0: write(0, 7, raw=b"odd")}, {0: write(0, 7, raw=b"odd")}, {}), None),
        # A flipped bit proves no digest: another copy is taken.
        (({0: write(0, 7)[:-1] + b"\0"}, FIRST, {}), {7}),
    ],
)
def test_the_last_entry_of_an_open_ledger_is_the_highest_that_any_of_its_bookies_has(
    held: tuple[Mapping[int, bytes] | None, ...], named: set[int] | None
) -> None:
    """All of them must answer; what cannot be read is not known."""
    assert read(dict(zip(NAMES, held, strict=True))) == named


def test_the_last_entry_of_a_closed_ledger_is_that_of_its_record() -> None:
    """One copy is enough; what is above the end was never acknowledged. Of a scope nothing can be read."""
    assert read(dict.fromkeys(NAMES) | {NAMES[2]: FIRST | SECOND}, last=0) == {7}
    assert read({name: {} for name in NAMES}, last=-1) == set()
    assert read(dict.fromkeys(NAMES), last=0) is None
    assert read(dict.fromkeys(NAMES, FIRST), last=0, scope=1) is None


class CompactedLedgers(WantedLedgers):
    """Wanted ledgers that are compacted copies of some topics, as their records say."""

    def read(self, dataset: Dataset, name: str, columns: Sequence[str]) -> Iterator[tuple[pa.Table, Ints]]:
        del dataset, name, columns
        topics = [f"persistent://public/default/{topic}".encode() for topic in ("moved", "doubted", "kept")]
        kind = {"key": "component", "value": b"compacted-ledger"}
        custom = [[kind, {"key": "pulsar/compactedTopic", "value": topic}] for topic in topics]
        yield pa.table({"custom": pa.array(custom, CUSTOM)}), np.arange(len(topics))


def test_the_ledger_of_a_compaction_is_the_one_that_it_has_now() -> None:
    """Not one that it let go of, as a history has it; where two are named, neither is believed."""
    named = [("moved", 10, True), ("moved", 11, None), ("moved", 12, True)]
    named += [("doubted", 13, None), ("doubted", 14, None), ("kept", 15, None)]
    above = "public/default/persistent/"
    rows = [
        {"bucket": 0, "scope": 0, "ledger": ledger, "deleted": deleted, "owner": f"{COMPACTION}{above}{topic}"}
        for topic, ledger, deleted in named
    ]
    table = pa.Table.from_pylist([{**row, "source": "zk"} for row in rows], schema=SCHEMA)
    found = find_loaded(CompactedLedgers([]), Dataset("", {}), ReferenceListing(References(table), 0))
    assert found == {f"{above}moved": LedgerId(0, 11), f"{above}kept": LedgerId(0, 15)}
