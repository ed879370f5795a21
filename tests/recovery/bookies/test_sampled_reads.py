"""Single entries asked over sockets: what each answer says, and at which pace they are asked for."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.bookie.client import Address, BookieConnection, BookieOptions
from backends.bookie.frames import BookieAnswer, RequestOutcome
from recovery.bookies.entry_choice import READ_AHEAD, Rotation
from recovery.bookies.sampled_reads import ByteBudget, Sampler, find_cells
from recovery.bookies.wire_task import WireTarget
from recovery.model.groups import KeyedRuns, expand, from_arrow
from recovery.model.ids import buckets
from recovery.model.tables import CATALOG_LEDGERS, SAMPLES
from tests.recovery.bookies.test_wire_inventory import FakeBookie, Has, record
from tests.support.inventories import fill_row

OPTIONS = BookieOptions(deadline_s=5.0, patience_s=0.05)


def has(ledger: int, entries: range | set[int], *, unreadable: bool = False) -> Has:
    """A ledger that a bookie has, and never lists."""
    return Has(records={number: record(ledger, number) for number in entries}, silent=True, unreadable=unreadable)


def make_stored(*rows: dict[str, Any]) -> pa.Table:
    """CATALOG_LEDGERS of closed ledgers on bk1."""
    usual = {"state": "CLOSED", "write_quorum": 1, "raw": b"", "segments": [{"first": 0, "members": ["bk1"]}]}
    filled = [
        fill_row(CATALOG_LEDGERS, usual | {"bucket": int(buckets(*np.array([[0], [row["ledger"]]]))[0])} | row)
        for row in rows
    ]
    table = pa.Table.from_pylist(filled, schema=CATALOG_LEDGERS)
    return table.sort_by([(name, "ascending") for name in ("bucket", "scope", "ledger")])


def list_entries(rows: pa.Table, name: str) -> dict[tuple[int, str], set[int]]:
    """The entries of a column, by ledger and bookie."""
    found: dict[tuple[int, str], set[int]] = {}
    place, entry = expand(from_arrow(rows[name]))
    for row, number in zip(place.tolist(), entry.tolist(), strict=True):
        found.setdefault((rows["ledger"][row].as_py(), rows["bookie"][row].as_py()), set()).add(number)
    return found


def test_each_answer_says_what_it_says() -> None:
    """There, not there, no such ledger, and errors, of which nothing is known; a bookie that is gone knows nothing."""
    bookie = FakeBookie({1: has(1, range(10)), 2: has(2, {0, 1, 3, 4}), 4: has(4, range(5), unreadable=True)})
    stored = make_stored(*({"ledger": ledger, "last_entry": 9 if ledger == 1 else 4} for ledger in (1, 2, 3, 4)))
    with bookie.running() as address:
        targets = (WireTarget("bk1", address, 0, ("old1",)), WireTarget("gone", Address("127.0.0.1", 1), 0, ("bk1",)))
        with Sampler(targets[:1], OPTIONS, 1e9) as sampler:
            rows, (sample,) = sampler.read_chosen(find_cells(stored, targets[:1]), Rotation(0, 1))
        with Sampler(targets[1:], OPTIONS, 1e9) as sampler:
            silent, (nothing,) = sampler.read_chosen(find_cells(stored, targets[1:]), Rotation(0, 1))
    assert rows.schema == SAMPLES
    assert list_entries(rows, "held") == {(1, "bk1"): set(range(10)), (2, "bk1"): {0, 1, 3, 4}}
    assert list_entries(rows, "lacks") == {(2, "bk1"): {2}, (3, "bk1"): set(range(5))}
    said = {row["ledger"]: (row["no_ledger"], row["failed"]) for row in rows.to_pylist()}
    assert said == {1: (False, 0), 2: (False, 0), 3: (True, 0), 4: (False, 5)}
    assert (sample.asked, sample.held, sample.lacking, sample.failed, sample.why) == (25, 14, 6, 5, "EIO")
    assert sample.bytes == sum(len(record(1, n)) for n in range(10)) + sum(len(record(2, n)) for n in (0, 1, 3, 4))
    assert (nothing.failed, nothing.held, nothing.lacking) == (25, 0, 0)
    assert sum(row["failed"] for row in silent.to_pylist()) == 25


def test_of_a_ledger_that_a_bookie_does_not_know_one_entry_is_asked_for() -> None:
    """The others follow from that answer: a wiped bookie is not asked for each entry that it had."""
    asked: list[int] = []

    class Counting(FakeBookie):
        def _answer(self, request: Any) -> Any:
            asked.append(request.read.entryId)
            return super()._answer(request)

    stored = make_stored({"ledger": 3, "last_entry": 9_999})
    with Counting({}).running() as address:
        targets = (WireTarget("bk1", address, 0),)
        with Sampler(targets, OPTIONS, 1e9) as sampler:
            rows, (sample,) = sampler.read_chosen(find_cells(stored, targets), Rotation(0, 1))
    assert (rows["no_ledger"].to_pylist(), rows["lacking"].to_pylist()) == ([True], [10_000])
    assert sample.lacking == 10_000
    assert len(asked) <= 256


def test_only_closed_ledgers_of_scope_0_with_an_end_that_can_be_are_asked_for() -> None:
    """No released bookie can be asked for another scope; a record far above all that is held is damaged."""
    stored = make_stored(
        {"ledger": 1, "last_entry": 4},
        {"ledger": 2, "last_entry": 4, "state": "OPEN"},
        {"ledger": 3, "last_entry": 4, "scope": 7},
        {"ledger": 4, "last_entry": 1 << 62},
        {"ledger": 5, "last_entry": 4, "segments": [{"first": 0, "members": ["other"]}]},
    )
    own = find_cells(stored, [WireTarget("bk1", Address("h", 1), 0)])
    assert own.ledgers.tolist() == [1]


def test_every_bookie_is_asked_for_what_is_missing() -> None:
    """Each of them, whoever is named for it."""
    one, two = FakeBookie({1: has(1, {5})}), FakeBookie({})
    with one.running() as first, two.running() as second:
        targets = (WireTarget("bk1", first, 0), WireTarget("bk2", second, 0))
        with Sampler(targets, OPTIONS, 1e9) as sampler:
            rows, _ = sampler.read_everywhere(
                np.array([1]), KeyedRuns(*(np.array([value]) for value in (0, 4, 2))), np.array([100.0])
            )
    assert list_entries(rows, "held") == {(1, "bk1"): {5}}
    assert list_entries(rows, "lacks") == {(1, "bk1"): {4}, (1, "bk2"): {4, 5}}


@given(
    rate=st.floats(1.0, 1e9),
    steps=st.lists(st.tuples(st.floats(0, 10), st.floats(0, 1e8)), min_size=1, max_size=30),
)
def test_no_more_bytes_are_read_than_the_budget_gives(rate: float, steps: list[tuple[float, float]]) -> None:
    """Over any time: what was begun in it, but for its last step, was paid for within it."""
    budget, moment = ByteBudget(rate), 0.0
    begun: list[tuple[float, float]] = []
    for pause, count in steps:
        moment += pause
        moment += budget.find_wait(moment)
        budget.spend(moment, count)
        begun.append((moment, count))
    for first in range(len(begun)):
        total = 0.0
        for at, count in begun[first:]:
            assert total <= rate * (at - begun[first][0]) * (1 + 1e-9) + 1e-3
            total += count


def test_what_is_read_is_paid_for_in_small_steps_and_so_is_what_is_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stretch of a hundred entries, and both ends: the bookie reads up to two hundred more into its cache."""
    spent: list[float] = []
    spend = ByteBudget.spend

    def note_spent(budget: ByteBudget, moment: float, count: float) -> None:
        spent.append(count)
        spend(budget, moment, count)

    monkeypatch.setattr(ByteBudget, "spend", note_spent)
    monkeypatch.setattr("recovery.bookies.sampled_reads.asyncio.sleep", wait_for_nothing)
    size = len(record(1, 0))
    stored = make_stored({"ledger": 1, "last_entry": 9_999, "length": 10_000 * (size - 64)})
    with FakeBookie({1: has(1, range(10_000))}).running() as address:
        targets = (WireTarget("bk1", address, 0),)
        with Sampler(targets, OPTIONS, 40_000.0) as sampler:
            _, (sample,) = sampler.read_chosen(find_cells(stored, targets), Rotation(0, 100))
    assert 101 <= sample.held <= 102
    assert sample.bytes == sample.held * size
    assert sum(spent) == pytest.approx((sample.held + 2 * READ_AHEAD) * size)
    assert max(spent) <= 10_000


@pytest.mark.parametrize(("times", "failed"), [(6, 0), (7, 10)])
def test_a_bookie_that_is_away_for_a_while_is_asked_again(
    times: int, failed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart costs a run of hours some minutes, and not all that it would have read of the bookie; it ends, too."""
    away = [BookieAnswer(RequestOutcome.NO_ANSWER)] * times
    ask = BookieConnection.ask

    async def ask_later(bookie: BookieConnection, requests: Any, take: Any) -> None:
        if not away:
            await ask(bookie, requests, take)
            return
        answer = away.pop()
        for tag, _ in requests:
            take(tag, answer)

    monkeypatch.setattr(BookieConnection, "ask", ask_later)
    monkeypatch.setattr("recovery.bookies.sampled_reads.asyncio.sleep", wait_for_nothing)
    with FakeBookie({1: has(1, range(10)), 2: has(2, range(10))}).running() as address:
        targets = (WireTarget("bk1", address, 0),)
        stored = make_stored({"ledger": 1, "last_entry": 9}, {"ledger": 2, "last_entry": 9})
        with Sampler(targets, OPTIONS, 1e3) as sampler:
            # A quarter of a second's worth of bytes is fewer entries than all.
            _, (sample,) = sampler.read_chosen(find_cells(stored, targets), Rotation(0, 1))
    assert (sample.failed > 0, sample.held + sample.failed) == (failed > 0, 20)


async def wait_for_nothing(_seconds: float) -> None:
    """Do not wait."""
