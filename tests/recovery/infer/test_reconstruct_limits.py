"""Where a rule of the reconstruction turns: each case lies on one side, and its neighbour on the other."""

from dataclasses import replace
from typing import Final

import pytest

from recovery.infer.prior import Prior, ShapeCounts
from recovery.infer.reconstruct import InferOptions
from recovery.infer.refusal import Refusal
from tests.recovery.infer.test_reconstruct import KNOWN, NAMES, Row, full, header, recover, row, striped
from tests.simulation import simulator

KEPT: Final = {0: dict.fromkeys(NAMES, 6)}


@pytest.mark.parametrize(
    ("stored", "default", "wanted"),
    [
        ({}, None, 1),
        ({(3, 3, 2): 9}, None, 2),
        ({(3, 3, 1): 1, (3, 3, 2): 9}, None, 1),
        ({(5, 5, 5): 9}, None, 4),
        ({}, (3, 2, 2), 2),
        ({(5, 5, 3): 9}, (3, 2, 2), 2),
        ({(4, 4, 3): 9, (3, 3, 1): 9}, None, 3),
    ],
)
def test_an_unsure_ack_quorum_is_the_least_that_anybody_stands_for(
    stored: dict[tuple[int, int, int], int], default: tuple[int, int, int] | None, wanted: int
) -> None:
    """Never W for want of something better: an entry with one copy less would be cut off."""
    assert Prior.build(ShapeCounts(), stored, default).fewest_acked(4, 4) == wanted


def test_entries_on_fewer_bookies_than_w_may_be_acknowledged() -> None:
    """A shape that nobody stands for: what one unseen bookie may have is guarded if some shape has A = 1, else not."""
    rows = striped(30)[:2]
    options = InferOptions(passwords=(simulator.PASSWORD,), unscanned_bookies=1)
    for ack, outcome in ((1, "guarded"), (2, "restored")):
        prior = Prior.build(ShapeCounts(), {(2, 2, ack): 9})
        found = recover(rows, options=options, prior=prior)
        assert found["outcome"] == outcome, ack


def ragged(lacking: set[int]) -> list[Row]:
    """Return a 3/2 ledger of 25 entries, five more on one bookie alone; another lacks some of its share."""
    ends = (30, 25, 25)
    held = [[e for e in range(end) if simulator.holds(p, e, 3, 2)] for p, end in enumerate(ends)]
    held[1] = [e for e in held[1] if e not in lacking]
    return [row(bookie, own, headers=[header(own[-1], lac=3)]) for bookie, own in zip(NAMES, held, strict=False)]


@pytest.mark.parametrize(("lacking", "last"), [(set(), 24), ({0}, None), ({4}, None)])
def test_a_member_without_an_entry_of_its_share_may_have_lost_others(lacking: set[int], last: int | None) -> None:
    """Be it the first one or one in the middle."""
    found = recover(ragged(lacking), prior=replace(KNOWN, kept=KEPT), states={"ledgers": 9})
    if last is None:
        assert found["reason"] == Refusal.RAGGED_TAIL
    else:
        assert found["last_entry"] == last


@pytest.mark.parametrize(("lac", "outcome"), [(-1, "restored"), (0, "guarded")])
def test_who_heard_of_the_segment_was_a_member_of_it(lac: int, outcome: str) -> None:
    """A bookie in no segment was replaced before anything was answered: its LAC lies before the segment."""
    both = [header(0), header(1)]
    found = recover([*full(3, 2, headers=both), row("d:3181", [1], headers=[header(1, lac=lac)])])
    assert found["outcome"] == outcome
    assert (found["reason"] == Refusal.TWO_HISTORIES) is (outcome == "guarded")


def test_rows_beside_an_ensemble_are_copies_or_what_copies_replaced() -> None:
    """Two rows are left over, and one copy was made: the other is something else, and the search has to say what."""
    mark = [header(0, lac=19), header(19, lac=19)]
    copy = row("d:3181", range(20), headers=mark)
    found = recover([*full(3), copy])
    assert (found["class"], found["ensemble_size"]) == ("re-replicated", 3)
    more = recover([*full(3), copy, row("e:3181", range(20))])
    assert more["class"] != "re-replicated"
    assert recover([*full(3), copy, row("e:3181", range(20), headers=mark)])["class"] == "re-replicated"
