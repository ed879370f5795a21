"""Copies of ledgers that are to be deleted, judged as a scrutiny judges them."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from reconcile.deletes.verification.durability import Durability, judge_copies
from reconcile.deletes.verification.wanted import WantedLedgers
from recovery.model.ids import LedgerId
from tests.support.damaged_ledgers import CREATED, TXN, Damaged, write_lists, write_store
from tests.support.impact_judge import Ledger

NAMES = tuple(f"bk{number}:3181" for number in range(4))
WHOLE = {NAMES[0]: range(4), NAMES[1]: range(4), NAMES[2]: range(4)}


def make(held: Mapping[str, range]) -> Damaged:
    """Return one ledger of four entries on three of four bookies, two of which acknowledge; and who has what."""
    ledger = Ledger(1, (3, 3, 2), "CLOSED", 3, ((0, NAMES[:3]),))
    return Damaged(NAMES, (ledger,), {(1, name): frozenset(held.get(name, ())) for name in NAMES})


def judge(folder: Path, *sides: tuple[Damaged, str, int | None]) -> Durability:
    """Judge the ledger by inventories: what there is, of which bookie, as of which transaction."""
    lists = [
        write_lists(folder / str(number), held, name, mode="disks", as_of=as_of)
        for number, (held, name, as_of) in enumerate(sides)
    ]
    return judge_copies(WantedLedgers([LedgerId(0, 1)]), write_store(folder / "store", sides[0][0]), lists, (), {})


@pytest.mark.parametrize(
    ("held", "is_breached"),
    [
        (WHOLE, False),
        (WHOLE | {NAMES[0]: range(0)}, False),
        (WHOLE | {NAMES[0]: range(0), NAMES[1]: range(3)}, True),
        # A reader asks only where the record says: copies elsewhere are none.
        (WHOLE | {NAMES[0]: range(0), NAMES[1]: range(3), NAMES[3]: range(4)}, True),
        ({NAMES[3]: range(4)}, True),
        (WHOLE | {NAMES[0]: range(0), NAMES[3]: range(4)}, False),
        ({}, True),
    ],
)
def test_copies_where_readers_ask_for_them_count(held: dict[str, range], *, is_breached: bool, tmp_path: Path) -> None:
    """As many as acknowledge an entry are enough; every bookie was looked at."""
    found = judge(tmp_path, *((make(held), name, TXN) for name in NAMES))
    assert (set(found.breaches), found.undecided) == ({0} if is_breached else set(), frozenset())


def test_what_nobody_looked_at_is_undecided(tmp_path: Path) -> None:
    """A bookie without an inventory, or with one that is older than the record, may have a copy: one is too few."""
    lost = make({NAMES[2]: range(4)})
    for number, as_of in enumerate((TXN, CREATED)):
        found = judge(tmp_path / str(number), (lost, NAMES[0], as_of), (lost, NAMES[1], as_of), (lost, NAMES[2], TXN))
        assert (set(found.breaches), found.undecided) == ({0}, frozenset()), as_of
    gone = make({})
    found = judge(tmp_path / "gone", (gone, NAMES[0], TXN), (gone, NAMES[1], TXN))
    assert set(found.breaches) == {0}
    for number, sides in enumerate([[(lost, NAMES[2], TXN)], [(lost, name, CREATED - 1) for name in NAMES]]):
        found = judge(tmp_path / f"dark-{number}", *sides)
        assert (dict(found.breaches), found.undecided) == ({}, frozenset({0}))


def test_the_first_entry_that_lacks_copies_is_named(tmp_path: Path) -> None:
    """Of several runs of such entries."""
    held = {NAMES[0]: frozenset({2}), NAMES[1]: frozenset({2}), NAMES[2]: frozenset(range(4))}
    ledger = Ledger(1, (3, 3, 2), "CLOSED", 3, ((0, NAMES[:3]),))
    lost = Damaged(NAMES, (ledger,), {(1, name): held.get(name, frozenset()) for name in NAMES})
    found = judge(tmp_path, *((lost, name, TXN) for name in NAMES))
    assert "entry 0 is known to lack copies" in found.breaches[0]


def test_copies_elsewhere_decide_nothing_while_a_member_was_not_seen(tmp_path: Path) -> None:
    """It may have what the record says: not safe, and no breach."""
    lost = make({NAMES[3]: range(4)})
    found = judge(tmp_path, *((lost, name, TXN) for name in NAMES[1:]))
    assert (dict(found.breaches), found.undecided) == ({}, frozenset({0}))


def test_the_last_inventory_of_a_bookie_counts(tmp_path: Path) -> None:
    """What an older one shows does not stand in for what is lost since."""
    whole, lost = make(WHOLE), make({})
    old = [write_lists(tmp_path / f"old-{name}", whole, name, mode="disks", as_of=TXN) for name in NAMES]
    store, wanted = write_store(tmp_path / "store", whole), WantedLedgers([LedgerId(0, 1)])
    new = [write_lists(tmp_path / f"new-{name}", lost, name, mode="disks", as_of=TXN) for name in NAMES]
    assert not judge_copies(wanted, store, old, (), {}).breaches
    assert set(judge_copies(wanted, store, [*new, *old], (), {}).breaches) == {0}
