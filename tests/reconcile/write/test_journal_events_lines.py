"""What a journal's lines say of the runs before: done, in conflict, presumed, locked, and of which wave."""

from pathlib import Path
from typing import Any

import pytest

from reconcile.errors import GuardRefusedError
from reconcile.write.audit_journal import JournalLine
from reconcile.write.guards import require_sound_waves, require_waves_before
from reconcile.write.journal_events import FREEZE, LOCK, THAW, EarlierRuns, FreezeHistory, WriteCount
from reconcile.write.plan_actions import RELEASE


def replayed(*lines: tuple[str, dict[str, Any]], before: int = -1, last: int = 99) -> EarlierRuns:
    """Return what runs left that wrote these lines."""
    kinds = (("ledger", "create"), (LOCK, LOCK), (LOCK, RELEASE))
    runs = EarlierRuns(before, last, {kind: WriteCount() for kind in kinds})
    for number, (event, fields) in enumerate(lines):
        runs.replay(JournalLine(number, "", event, fields, ""))
    return runs


def intent(batch: int, *seqs: int, kind: str = "ledger", op: str = "create") -> tuple[str, dict[str, Any]]:
    """Return the line that announces writes."""
    writes = [[seq, op, "id", f"/{seq}", None, None, f"was {batch}"] for seq in seqs]
    return "intent", {"batch": batch, "kind": kind, "writes": writes}


def done(batch: int, *versions: int | None, conflicts: tuple[int, ...] = ()) -> tuple[str, dict[str, Any]]:
    """Return the line that says what became of them."""
    return "done", {"batch": batch, "versions": list(versions), "conflicts": [[place, "why"] for place in conflicts]}


def judged(wave: int, unexpected: int, *absent: str) -> tuple[str, dict[str, Any]]:
    """Return the line of a scrutiny."""
    found = {"wave": wave, "ledgers": 9, "unexpected": unexpected, "undecided": 0, "absent": list(absent)}
    return "scrutiny", found


def test_what_was_announced_is_open_until_a_line_answers() -> None:
    """Written, there already and in conflict are told apart; what no line answers is presumed, and so open."""
    runs = replayed(intent(0, 1, 2, 3), done(0, 4, None, None, conflicts=(2,)), intent(1, 5, 6))
    count = runs.counts["ledger", "create"]
    assert (count.written, count.there, count.conflicts) == (1, 1, 0)
    assert (runs.finished, runs.in_conflict, runs.presumed, runs.next_batch) == (3, {3}, {5, 6}, 2)
    assert [seq for seq in range(1, 8) if runs.is_open(seq)] == [3, 4, 5, 6, 7]
    behind = replayed(intent(0, 1), intent(1, 2, 3), done(1, 9, None, conflicts=(1,)))
    assert [seq for seq in range(5) if behind.is_open(seq)] == [1, 3, 4]
    assert runs.replaced == {5: "was 1", 6: "was 1"}
    assert runs.has_announced
    assert not replayed(("verified", {})).has_announced
    again = replayed(intent(0, 1), intent(1, 1), done(1, 4))
    assert (again.presumed, again.finished, again.is_open(1)) == (set(), 1, False)
    assert replayed(intent(0, 1), intent(1, 1)).replaced == {1: "was 0"}, "what stood there first"
    solved = replayed(intent(0, 1), done(0, None, conflicts=(0,)), intent(1, 1), done(1, 4))
    assert solved.in_conflict == set()


def test_only_the_waves_own_actions_count() -> None:
    """The bounds of the wave: behind the last of those before, up to its own last."""
    lines = (intent(0, 1, 2, 3, 4, 5), done(0, 9, 9, None, 9, 9))
    runs = replayed(*lines, before=1, last=4)
    count = runs.counts["ledger", "create"]
    assert (count.written, count.there) == (2, 1)
    left = replayed(intent(0, 1, 2), done(0, None, None, conflicts=(0, 1)), before=1)
    assert left.conflicts_before == {1}
    locks = replayed(intent(0, 1, 2, 3, kind=LOCK, op=LOCK), done(0, 9, 9, 9), before=1, last=2)
    assert locks.counts[LOCK, LOCK].written == 1
    assert locks.locked == {1, 2, 3}


def test_locks_are_made_and_released_once() -> None:
    """One that was refused is neither; one that is counted is not counted again; what they held is known until then."""
    lines = (intent(0, 1, 2, kind=LOCK, op=LOCK), done(0, 9, None, conflicts=(1,)))
    runs = replayed(*lines)
    assert (runs.locked, runs.released, runs.presumed_locks) == ({1}, set(), {})
    assert (runs.finished, runs.presumed) == (-1, set()), "a lock is no record"
    assert runs.counts[LOCK, LOCK].written == 1
    again = replayed(*lines, intent(1, 1, 2, kind=LOCK, op=LOCK), done(1, None, None))
    assert (again.locked, again.counts[LOCK, LOCK].written, again.counts[LOCK, LOCK].there) == ({1, 2}, 1, 1)
    ended = replayed(intent(0, 1, kind=LOCK, op=RELEASE), done(0, 9))
    assert (ended.locked, ended.released) == (set(), {1})
    open_lock = replayed(intent(0, 1, kind=LOCK, op=RELEASE), intent(1, 1, kind=LOCK, op=RELEASE))
    assert open_lock.presumed_locks == {1: "was 0"}


@pytest.mark.parametrize(
    ("lines", "is_refused"),
    [
        ((intent(0, 1, 2), done(0, 9, 9)), False),
        ((intent(0, 1), done(0, 9)), True),
        ((), True),
        ((intent(0, 1, 2), intent(1, 3), done(1, 9)), True),
        ((intent(0, 2), intent(1, 1, 3), done(1, 9, 9)), True),
        ((intent(0, 1, 2), done(0, 9, None, conflicts=(1,))), False),
        ((intent(0, 1, 2), done(0, 9, 9), intent(1, 3)), False),
    ],
)
def test_a_wave_waits_for_those_before_it(lines: tuple[Any, ...], *, is_refused: bool) -> None:
    """Up to the last action of those, none of them presumed; what was left in conflict came to its end."""
    runs = replayed(*lines, before=2)
    if not is_refused:
        require_waves_before(runs, Path("j"), 1)
        return
    with pytest.raises(GuardRefusedError, match="wave 1"):
        require_waves_before(runs, Path("j"), 1)


@pytest.mark.parametrize(
    ("lines", "wave", "accepted", "problem"),
    [
        ((), None, 0, None),
        ((), 1, 0, None),
        ((), 2, 0, "wave 1 was not scrutinized"),
        ((judged(1, 0),), 2, 0, None),
        ((judged(1, 0),), 3, 0, "wave 2 was not scrutinized"),
        ((judged(1, 0, "bk1"),), 2, 0, "wave 1 was not judged by bk1"),
        ((judged(1, 2), judged(2, 1)), 3, 0, "have 3 findings"),
        ((judged(1, 2), judged(2, 1)), 3, 3, None),
        ((judged(1, 2),), 2, 3, "have 2 findings"),
    ],
)
def test_a_wave_waits_for_scrutinies(
    lines: tuple[Any, ...], wave: int | None, accepted: int, problem: str | None
) -> None:
    """Of all waves before it, by all bookies, with as many unexpected findings as a person accepts."""
    runs = replayed(*lines)
    if problem is None:
        require_sound_waves(runs, wave, accepted)
        return
    with pytest.raises(GuardRefusedError, match=problem):
        require_sound_waves(runs, wave, accepted)


def frozen(*lines: tuple[str, dict[str, Any]]) -> FreezeHistory:
    """Return what is in force after these lines."""
    history = FreezeHistory()
    for number, (event, fields) in enumerate(lines):
        history.replay(JournalLine(number, "", event, fields, ""))
    return history


def begun(root_txn: int | None, name: str = "ours", former: str | None = "open") -> tuple[str, dict[str, Any]]:
    """Return the line that begins a freeze."""
    return FREEZE, {"hash": "h", "changes": [], "root_txn": root_txn, "identity": name, "former": former}


def rights(key: str, before: str | None, after: str, of: str = FREEZE) -> tuple[str, dict[str, Any]]:
    """Return the line that announces a node's rights."""
    return "intent", {"of": of, "op": "rights", "key": key, "before": before, "after": after}


def test_a_freeze_keeps_what_its_end_does_not_say() -> None:
    """Of which root it was; an earlier program told no former rights. Where none was begun, none is unfinished."""
    ended = frozen(begun(5, former=None), ("frozen", {"root_txn": None}))
    assert (ended.root_txn, ended.former, ended.is_ended) == (5, "", True)
    assert FreezeHistory().is_ended


def test_a_freeze_remembers_the_first_rights_until_a_thaw() -> None:
    """Of one root: another root has rights of its own; one that was about to be made is the one that came."""
    twice = frozen(begun(5), rights("/", "first", "shut"), begun(5, former="other"), rights("/", "shut", "shut again"))
    assert twice.originals == {"/": "first"}
    assert twice.frozen_as == {"/": {"shut", "shut again"}}
    assert (twice.is_ended, twice.root_txn, twice.former, twice.identity) == (False, 5, "open", "ours")
    other = frozen(
        begun(5), rights("/", "first", "shut"), ("frozen", {"root_txn": None}), begun(6), rights("/", "x", "y")
    )
    assert other.originals == {"/": "x"}
    made = frozen(begun(None), rights("/", None, "shut"), begun(7))
    assert made.originals == {"/": None}, "the run that was killed had made it"
    ended = frozen(begun(None), rights("/", None, "shut"), ("frozen", {"root_txn": 7}))
    assert (ended.is_ended, ended.root_txn) == (True, 7)
    assert ended.is_same_root(7)
    assert not ended.is_same_root(8)
    unnamed = frozen(begun(None), rights("/", None, "shut"), ("frozen", {"root_txn": None}))
    assert not unnamed.is_same_root(8)
    thawing = frozen(*[begun(5), rights("/", "first", "shut")], (THAW, {"hash": "t", "changes": [], "root_txn": None}))
    assert (thawing.kind, thawing.identity, thawing.originals) == (THAW, "ours", {"/": "first"})
    assert not thawing.is_same_root(8)
    thawed = frozen(begun(5), rights("/", "first", "shut"), ("thawed", {}))
    assert (thawed.originals, thawed.frozen_as, thawed.is_ended, thawed.former) == ({}, {}, True, "")
    assert frozen(begun(5), rights("/", "first", "open", of=THAW)).originals == {}
