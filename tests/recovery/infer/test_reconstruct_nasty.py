"""Histories written against the reconstruction, and those that it once got wrong: every guarantee holds in all.

`scripts/soak nasty` takes more of each.
"""

import os
from typing import Final

import pytest

from recovery.infer.search import Tail
from tests.recovery.infer.test_reconstruct_histories import FIRST, said
from tests.simulation import judge
from tests.simulation.nasty import NASTY

pytestmark = pytest.mark.long

COUNT: Final = int(os.environ.get("BKMETA_SOAK_NASTY", "120"))
"""Ledgers of each history, and of each with each policy a third of it."""
ENOUGH: Final = 120
"""Ledgers of which some of each history are restored."""

ONCE_WRONG: Final = (
    # A copy made in place of another bookie: who deleted the ledger looked like who was replaced.
    ("mixed", 2000, 500, Tail.ACKNOWLEDGED, False),
    # Who wrote the second half lost all: a LAC at the end of the first half is a lower bound only.
    ("mixed", 13, 500, Tail.INCLUSIVE, False),
    # Two bookies of a 4/2 ledger lost all: what the others lack in the middle says that they may not have had it all.
    ("deferred-lost", 7000, 100, Tail.INCLUSIVE, True),
    # The first entries are of a later ledger of the id, on the same bookies: the stripes are those of the one before.
    ("reused-same", 1000, 40, Tail.INCLUSIVE, True),
    # The ledger that an id was given to later has no entry: what is claimed is true of the one before.
    ("mixed", 5000, 500, Tail.OPEN, True),
    # A recovery read the length beside the LAC, of an entry above the end, and nothing after that LAC.
    ("adv-holes", 98000829, 100, Tail.ACKNOWLEDGED, True),
)


@pytest.mark.parametrize("name", NASTY)
def test_every_guarantee_holds_in_the_worst(name: str) -> None:
    """Nothing served is unreadable or cut off, no hold leaves a bookie out, no sure grade is wrong, truth is listed."""
    tally = judge.run(name, COUNT, seed=FIRST)
    assert not tally.violations, said(tally)
    assert tally.readable == tally.entries
    # Of few ledgers all may be held.
    assert tally.entries > 0 or COUNT < ENOUGH


@pytest.mark.parametrize("tail", list(Tail))
def test_every_guarantee_holds_in_the_worst_by_every_policy(tail: Tail) -> None:
    """The same with a snapshot's quorums, by every policy."""
    for name in NASTY:
        tally = judge.run(name, COUNT // 3, seed=FIRST + 1000, tail=tail, is_snapshot_known=True)
        assert not tally.violations, said(tally)


@pytest.mark.parametrize(("name", "seed", "ledgers", "tail", "told"), ONCE_WRONG)
def test_what_was_wrong_once_is_right(name: str, seed: int, ledgers: int, tail: Tail, *, told: bool) -> None:
    """Histories that broke a guarantee keep it."""
    tally = judge.judge(name, seed, ledgers, tail=tail, is_snapshot_known=told)
    assert not tally.violations, said(tally)


def test_an_id_that_was_given_out_twice_is_seen() -> None:
    """Two ledgers of one key under one id are never restored as one where bookies of both hold their first entries."""
    tally = judge.run("reused", 500)
    assert tally.blended == 0
    assert tally.reasons["lengths_differ"] > 0
