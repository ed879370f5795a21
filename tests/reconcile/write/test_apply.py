"""A plan is written as it says, and nothing is written over anything."""

import base64
import itertools
import json
import re
import stat
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from backends.errors import AccessDeniedError, OutcomeUnknownError, UnavailableError
from backends.protocols import Write
from reconcile.cli.wording.remedies import describe_error
from reconcile.errors import GuardRefusedError, JournalError, PartlyAppliedError, PlanError
from reconcile.write.apply import ApplyOptions, apply
from reconcile.write.apply_results import LISTED, Applied, AppliedTally, Conflict
from reconcile.write.audit_journal import JOURNAL, AuditJournal, JournalLine, scan
from reconcile.write.counters import raise_counter
from reconcile.write.plan_actions import Action
from reconcile.write.writer import ChangeOutcome
from tests.support import plans
from tests.support.failing_stores import Fault, FaultyStore
from tests.support.memory_store import WORLD, MemoryStore
from tests.support.plans import action, clock, plan_of, restore_of, state_of

ROOT = "/ledgers"


def applied(
    store: Any, rows: list[dict[str, Any]], journal: Path, *, tables: int = 1, root: str = ROOT, **options: Any
) -> Applied:
    """Apply rows as a plan in a few tables."""
    table = plan_of(rows)
    size = -(-table.num_rows // tables) or 1
    parts = [table.slice(at, size) for at in range(0, table.num_rows, size)]
    return apply(lambda: parts, store, root, journal, ApplyOptions("hash", **options), now=clock())


def value(store: MemoryStore, key: str) -> bytes | None:
    """Return what stands at a key."""
    held = store.get(key)
    return held.value if held else None


@pytest.mark.parametrize("tables", [1, 3, 50])
def test_an_empty_root_gets_everything(tmp_path: Path, tables: int) -> None:
    """All of a plan is there afterwards, with the plan's bytes, counted by kind and op, however it was cut."""
    store, rows = MemoryStore(), restore_of(250)
    result = applied(store, rows, tmp_path / "j", tables=tables)
    assert {key: value(store, ROOT + key) for key in (r["key"] for r in rows) if key != "/idgen"} == {
        r["key"]: r["value"] for r in rows if r["op"] != "raise"
    }
    counter = store.get(f"{ROOT}/idgen")
    assert counter is not None
    assert counter.children_created == 1_235
    assert result.exit_code == 0
    assert result.checked == len(rows) - 2
    assert result.tallies == {
        ("cookie", "create"): AppliedTally(2, 2, 0, 0, 0),
        ("generator", "raise"): AppliedTally(1, 1, 0, 0, 0),
        ("instance_id", "create"): AppliedTally(1, 1, 0, 0, 0),
        ("layout", "create"): AppliedTally(1, 1, 0, 0, 0),
        ("ledger", "create"): AppliedTally(166, 166, 0, 0, 0),
        ("ledger", "hold"): AppliedTally(84, 84, 0, 0, 0),
        ("node", "create"): AppliedTally(1, 1, 0, 0, 0),
    }


def test_phases_come_in_their_order(tmp_path: Path) -> None:
    """Counters before ledgers, ledgers before LAYOUT, LAYOUT before the instance id, cookies last."""
    store = MemoryStore()
    applied(store, restore_of(250), tmp_path / "j", batch_rows=7)

    def txns(prefix: str) -> list[int]:
        return [
            held.created_txn or 0 for key in store.dump() if key.startswith(ROOT + prefix) if (held := store.get(key))
        ]

    phases = [txns(p) for p in ("/idgen", "/00/0000/", "/LAYOUT", "/INSTANCEID", "/cookies/")]
    assert all(max(earlier) < min(later) for earlier, later in itertools.pairwise(phases))


def test_a_phase_waits_for_the_one_before_it(tmp_path: Path) -> None:
    """Only ledgers are under way together: what else is written ends before the next is begun."""
    overtaken: list[str] = []
    another = threading.Event()

    class Slow(FaultyStore):
        """A store whose answers to all but ledgers come when another write was begun, or late."""

        def write(self, changes: Any) -> list[int]:
            another.set()
            if "/00/" not in changes[0].key:
                another.clear()
                if another.wait(0.05):
                    overtaken.append(changes[0].key)
            return super().write(changes)

    store = Slow(MemoryStore(), lambda _: None)
    assert applied(store, restore_of(9), tmp_path / "j", batch_rows=2).exit_code == 0
    assert overtaken == []


def test_a_second_apply_writes_nothing(tmp_path: Path) -> None:
    """What is there with the same bytes is counted as there, and is not touched."""
    store = MemoryStore()
    applied(store, restore_of(120), tmp_path / "one")
    before = {key: store.get(key) for key in store.dump()}
    result = applied(store, restore_of(120), tmp_path / "two")
    assert {key: store.get(key) for key in store.dump()} == before
    assert result.exit_code == 0
    assert all(tally.there == tally.planned for tally in result.tallies.values())


def test_other_bytes_are_a_conflict_and_stay(tmp_path: Path) -> None:
    """A key that holds something else is left alone and named; all others are written; no cookie is."""
    store = MemoryStore()
    store.write([Write(f"{ROOT}/00/0000/L{n:04d}", b"somebody's") for n in range(0, 250, 2)])
    result = applied(store, restore_of(250), tmp_path / "j")
    for n in range(250):
        assert value(store, f"{ROOT}/00/0000/L{n:04d}") == (b"record %d" % n if n % 2 else b"somebody's")
    assert result.exit_code == 6
    assert sum(tally.conflicts for tally in result.tallies.values()) == 125
    assert len(result.conflicts) == LISTED
    assert result.conflicts[0] == Conflict("ledger", "hold", "/00/0000/L0000", "other bytes are there")
    assert result.tallies["cookie", "create"] == AppliedTally(2, 0, 0, 0, 2)
    assert "125 writes" in result.cookies_withheld
    assert store.children(f"{ROOT}/cookies") is None


def test_a_conflict_that_was_solved_is_written_on_resume(tmp_path: Path) -> None:
    """After somebody removed what stood in the way the same journal brings the rest, cookies too."""
    store = MemoryStore()
    store.write([Write(f"{ROOT}/00/0000/L0007", b"somebody's")])
    assert applied(store, restore_of(50), tmp_path / "j").exit_code == 6
    store.write([Write(f"{ROOT}/00/0000/L0007", None, 0)])
    result = applied(store, restore_of(50), tmp_path / "j", resume=True)
    assert result.exit_code == 0
    assert all(tally.written == tally.planned for tally in result.tallies.values())
    assert store.children(f"{ROOT}/cookies") == ["b0:3181", "b1:3181"]


def test_cookies_are_withheld_where_told(tmp_path: Path) -> None:
    """While ledgers wait for a person no bookie may start: no cookie is written, and that is said."""
    store = MemoryStore()
    result = applied(store, restore_of(5), tmp_path / "j", withhold_cookies="3 ledgers wait for a decision")
    assert store.children(f"{ROOT}/cookies") is None
    assert result.cookies_withheld == "3 ledgers wait for a decision"
    assert result.exit_code == 6


def test_cookies_wait_for_the_second_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that vanished after they were written are found before any cookie is there; the first are listed."""
    monkeypatch.setattr("reconcile.write.apply.LISTED", 1)
    inner = MemoryStore()

    class Losing(FaultyStore):
        """Somebody removes ledgers when LAYOUT is written."""

        def write(self, changes: Any) -> list[int]:
            if any(change.key.endswith("/LAYOUT") for change in changes):
                inner.write([Write(f"{ROOT}/00/0000/L000{number}", None, 0) for number in (3, 4)])
            return super().write(changes)

    result = applied(Losing(inner, lambda _: None), restore_of(9), tmp_path / "j")
    assert (result.changed, result.changed_count) == (("/00/0000/L0003",), 2)
    assert result.exit_code == 6
    assert inner.children(f"{ROOT}/cookies") is None


@pytest.mark.parametrize("where", ["available", "available/readonly"])
def test_running_bookies_are_a_guard(tmp_path: Path, where: str) -> None:
    """A root that bookies are registered in is not written to, unless that is accepted; nothing is left behind."""
    store = MemoryStore()
    store.write([Write(f"{ROOT}/available/readonly", b"")])
    store.put_ephemeral(f"{ROOT}/{where}/b1:3181", b"", owner=7)
    before = state_of(store)
    with pytest.raises(GuardRefusedError, match="1 bookie is running") as refused:
        applied(store, restore_of(3), tmp_path / "j")
    assert refused.value.exit_code == 5
    assert state_of(store) == before
    assert not (tmp_path / "j").exists()
    assert applied(store, restore_of(3), tmp_path / "j", accept_unfrozen=True).exit_code == 0


@pytest.mark.parametrize("key", ["/LAYOUT", "/INSTANCEID"])
def test_another_cluster_is_a_guard(tmp_path: Path, key: str) -> None:
    """A root with another layout or another instance id is never written to."""
    store = MemoryStore()
    store.write([Write(ROOT + key, b"another")])
    before = state_of(store)
    with pytest.raises(GuardRefusedError, match="another cluster"):
        applied(store, restore_of(3), tmp_path / "j", accept_unfrozen=True)
    assert state_of(store) == before


def test_a_plan_without_an_instance_id_of_its_own_is_bound_to_its_cluster(tmp_path: Path) -> None:
    """Where a store names another cluster than the one that the plan was made from, nothing is written there."""
    plan = [one for one in restore_of(3) if one["kind"] != "instance_id"]
    for stored, refused in (("another", True), ("an-instance", False)):
        store = MemoryStore()
        store.write([Write(f"{ROOT}/INSTANCEID", stored.encode())])
        before = state_of(store)
        if refused:
            with pytest.raises(GuardRefusedError, match="another cluster"):
                applied(store, plan, tmp_path / stored, instance_ids=("an-instance",))
            assert state_of(store) == before
        else:
            assert applied(store, plan, tmp_path / stored, instance_ids=("an-instance",)).exit_code == 0


def test_a_plan_with_an_instance_id_is_compared_by_it_alone(tmp_path: Path) -> None:
    """The id that a person chose may be none of those that the evidence named."""
    store = MemoryStore()
    store.write([Write(f"{ROOT}/INSTANCEID", b"1c0b")])
    assert applied(store, restore_of(3), tmp_path / "j", instance_ids=("an-instance",)).exit_code == 0


def test_without_cookies_none_are_withheld(tmp_path: Path) -> None:
    """A conflict is reported, and no cookie is spoken of that the plan does not have."""
    store = MemoryStore()
    store.write([Write(f"{ROOT}/00/0000/L0001", b"somebody's")])
    result = applied(store, [one for one in restore_of(3) if one["kind"] != "cookie"], tmp_path / "j")
    assert (result.exit_code, result.cookies_withheld) == (6, "")


def test_bookies_of_two_clusters_are_a_guard(tmp_path: Path) -> None:
    """A plan with two instance ids is of two clusters, and neither is written."""
    store = MemoryStore()
    with pytest.raises(GuardRefusedError, match="two clusters"):
        applied(store, [*restore_of(3), action("instance_id", "create", "/INSTANCEID", b"other")], tmp_path / "j")
    assert store.dump() == {}


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (action("ledger", "create", "/L1", None), "value"),
        (action("ledger", "create", "/L1", b"", expects=0), "version"),
        (action("ledger", "replace", "/L1", b""), "version"),
        (action("ledger", "remove", "/L1", b"x", expects=0), "value"),
        (action("ledger", "raise", "/L1", b"1"), "generator"),
        (action("ledger", "rename", "/L1", b"1"), "op"),
        (action("ledger", "create", "L1", b"1"), "key"),
        (action("ledger", "create", "/", b"1"), "key"),
        (action("ledger", "create", "/a//b", b"1"), "key"),
        (action("cookie", "create", "/ledgers/cookies/../../evil:3181", b"1"), "key"),
        (action("cookie", "create", "/ledgers/cookies/.", b"1"), "key"),
        (action("cookie", "create", "/ledgers/cookies/b\x1b[2J", b"1"), "key"),
        (action("ledger", "create", "/L1\x85", b"1"), "key"),
        (action("ledger", "create", "/L1\ue000", b"1"), "key"),
        (action("generator", "raise", "/idgen", b"-1"), "raised past"),
        (action("generator", "raise", "/idgen", b"2147483647"), "raised past"),
        (action("generator", "raise", "/idgen", b"many"), "raised past"),
        (action("ledger", "create", "/L1", b"1", acl="everybody"), "scheme:id:perms"),
        (action("ledger", "create", "/L1", b"1", seq=0), "out of order"),
        ({**action("ledger", "create", "/L1", b"1"), "kind": "topic", "seq": 9 << 48}, "kind"),
    ],
)
def test_what_is_no_plan_is_refused_before_anything_is_written(
    tmp_path: Path, row: dict[str, Any], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A field that cannot be makes the whole plan refused, by the key of its action."""
    monkeypatch.setitem(plans.PHASES, "topic", 6)
    store = MemoryStore()
    with pytest.raises(PlanError, match=problem):
        applied(store, [*restore_of(3), row], tmp_path / "j")
    assert store.dump() == {}


def test_rights_of_the_plan_win_over_those_of_the_run(tmp_path: Path) -> None:
    """Created keys, their parents and generators get the rights that were decided, or else the store's."""
    store = MemoryStore()
    own, run = "digest:bob:x=:cdrwa", "digest:eve:y=:r,world:anyone:r"
    rows = [*restore_of(1), action("ledger", "create", "/own", b"1", acl=own)]
    applied(store, rows, tmp_path / "j", acl=run)
    rights = {key: entry[3] for key, entry in state_of(store).items() if key != "/"}
    assert rights.pop(f"{ROOT}/own") == own
    assert set(rights.values()) == {run}
    plain = MemoryStore()
    applied(plain, restore_of(1), tmp_path / "k")
    assert {entry[3] for entry in state_of(plain).values()} == {WORLD}


def test_a_replacement_needs_version_and_bytes(tmp_path: Path) -> None:
    """A record is replaced or removed only while it is what the plan saw, and the journal keeps what was there."""
    store = MemoryStore()
    store.write([Write(f"{ROOT}/{name}", b"old") for name in ("a", "b", "c", "d", "e", "f")])
    store.write([Write(f"{ROOT}/{name}", b"new", 0) for name in ("b", "f")])
    rows = [
        action("ledger", "replace", "/a", b"good", expects=0, before=b"old"),
        action("ledger", "replace", "/b", b"good", expects=0, before=b"old"),
        action("ledger", "replace", "/c", b"good", expects=0, before=b"not this"),
        action("ledger", "remove", "/d", None, expects=0, before=b"old"),
        action("ledger", "remove", "/e", None, expects=3),
        action("ledger", "replace", "/f", b"new", expects=0),
        action("ledger", "remove", "/never", None, expects=0),
        action("ledger", "replace", "/gone", b"x", expects=0),
    ]
    result = applied(store, rows, tmp_path / "j")
    assert {key: value(store, f"{ROOT}/{key}") for key in "abcdef"} == {
        "a": b"good", "b": b"new", "c": b"old", "d": None, "e": b"old", "f": b"new",
    }  # fmt: skip
    assert result.tallies["ledger", "replace"] == AppliedTally(5, 1, 1, 3, 0)
    assert result.tallies["ledger", "remove"] == AppliedTally(3, 1, 1, 1, 0)
    assert {c.key: c.reason for c in result.conflicts} == {
        "/b": "it has version 1, not 0",
        "/c": "its bytes are not those that were to be replaced",
        "/e": "it has version 0, not 3",
        "/gone": "it is absent",
    }
    [intent] = [r for r in scan(tmp_path / "j" / JOURNAL) if isinstance(r, JournalLine) and r.event == "intent"]
    kept = {w[3]: base64.b64decode(w[6]) for w in intent.fields["writes"] if w[6]}
    assert kept["/a"] == kept["/d"] == b"old"


def test_a_key_twice_in_a_plan_is_written_once(tmp_path: Path) -> None:
    """The first of two different values stands; the second is a conflict, not an endless fight."""
    store = MemoryStore()
    rows = [action("ledger", "create", "/L1", b"one"), action("ledger", "create", "/L1", b"two")]
    result = applied(store, rows, tmp_path / "j")
    assert value(store, f"{ROOT}/L1") == b"one"
    assert result.tallies["ledger", "create"] == AppliedTally(2, 1, 0, 1, 0)


def test_a_record_too_large_for_the_store_is_one_conflict(tmp_path: Path) -> None:
    """The others of its batch are written."""
    store = MemoryStore()
    rows = [action("ledger", "create", f"/L{n}", b"x" * (2_000_000 if n == 3 else 10)) for n in range(6)]
    result = applied(store, rows, tmp_path / "j")
    assert result.tallies["ledger", "create"] == AppliedTally(6, 5, 0, 1, 0)
    assert [c.key for c in result.conflicts] == ["/L3"]


def test_the_root_itself_can_be_a_counter(tmp_path: Path) -> None:
    """With the flat layout ids come from the root's own counter, also where the root is the store's."""
    for root in (ROOT, "/"):
        store = MemoryStore()
        applied(store, [action("generator", "raise", "/", b"99")], tmp_path / root.strip("/") / "j", root=root)
        held = store.get(root)
        assert held is not None
        assert held.children_created == 100


def test_as_many_conflicts_as_are_borne_do_not_end_a_run(tmp_path: Path) -> None:
    """One more does; what is in conflict is not read back as if it had been written."""
    keys = [f"/00/0000/L{number:04d}" for number in range(3)]
    rows = [action("ledger", "create", key, b"record", ledger=number) for number, key in enumerate(keys)]
    store = MemoryStore()
    store.write([Write(ROOT + key, b"another") for key in keys[:2]])
    result = applied(store, rows, tmp_path / "two", surprises=2, in_flight=1)
    assert (result.exit_code, len(result.conflicts), result.checked, result.changed_count) == (6, 2, 1, 0)
    with pytest.raises(PartlyAppliedError, match="stopped: 2 keys"):
        applied(store, rows, tmp_path / "one", surprises=1, in_flight=1)


def test_a_counter_that_was_raised_before_counts_as_there(tmp_path: Path) -> None:
    """By somebody else, and far enough."""
    store, rows = MemoryStore(), [action("generator", "raise", "/idgen", b"99")]
    assert applied(store, rows, tmp_path / "one").tallies["generator", "raise"] == AppliedTally(1, 1, 0, 0, 0)
    assert applied(store, rows, tmp_path / "two").tallies["generator", "raise"] == AppliedTally(1, 0, 1, 0, 0)


def test_a_counter_that_is_there_is_not_raised() -> None:
    """It counts as written where an earlier run announced it."""
    store, raising = MemoryStore(), Action(1, "raise", "generator", b"id", "/idgen", b"99", None, None, None)
    asked = partial(raise_counter, raising, store, ROOT, f"{ROOT}/idgen", acl=None)
    made, there = asked(was_announced=False), store.get(f"{ROOT}/idgen")
    assert there is not None
    assert made == asked(was_announced=True) == ChangeOutcome(version=there.version)
    assert asked(was_announced=False) == ChangeOutcome()


@pytest.mark.parametrize(("reached", "is_raised"), [(99, True), (100, False)])
def test_a_counter_that_does_not_keep_its_number_is_a_conflict(
    monkeypatch: pytest.MonkeyPatch, reached: int, *, is_raised: bool
) -> None:
    """By what the store answers, or by what is read back."""
    store, raising = MemoryStore(), Action(1, "raise", "generator", b"id", "/idgen", b"99", None, None, None)
    really = store.raise_counter

    def answer(key: str, target: int) -> int:
        if is_raised:
            really(key, target)
        return reached

    monkeypatch.setattr(store, "raise_counter", answer)
    made = raise_counter(raising, store, ROOT, f"{ROOT}/idgen", acl=None, was_announced=False)
    assert made.conflict == "it did not keep the number that it was raised to"


def test_a_record_that_was_not_read_back_is_a_partial_apply(tmp_path: Path) -> None:
    """Also where nothing is in conflict and no cookies are withheld."""
    result = applied(MemoryStore(), restore_of(3), tmp_path / "j", principals=[WORLD])
    assert (result.exit_code, result.starts_after_thaw) == (0, False)
    assert replace(result, changed_count=1).exit_code == PartlyAppliedError.exit_code


@pytest.mark.parametrize("after", [False, True])
def test_a_lost_answer_is_resolved_by_reading_back(tmp_path: Path, after: bool) -> None:
    """Whether or not a write was made whose answer was lost, it is there once in the end, counted as written."""
    whole = MemoryStore()
    total = FaultyStore(whole, lambda _: None)
    applied(total, restore_of(20), tmp_path / "whole", batch_rows=6)
    for at in range(total.calls):
        inner = MemoryStore()
        lost = Fault(OutcomeUnknownError("memory:", "cut"), after)

        class OnlyWrites(FaultyStore):
            """Answers are lost of writes only; a read that has none is tried again by the adapter."""

            def write(self, changes: Any, at: int = at, lost: Fault = lost) -> list[int]:
                self._faults = lambda n: lost if n == at else None
                try:
                    return super().write(changes)
                finally:
                    self._faults = lambda _: None

        result = applied(OnlyWrites(inner, lambda _: None), restore_of(20), tmp_path / f"{at}", batch_rows=6)
        assert result.exit_code == 0
        assert state_of(inner) == state_of(whole)
        assert all(tally.written == tally.planned for tally in result.tallies.values())


def test_a_store_that_never_answers_ends_the_run(tmp_path: Path) -> None:
    """Answers that are lost again and again end as partly applied, not as conflicts."""

    class Deaf(FaultyStore):
        """No write of a cookie is ever answered, nor made."""

        def write(self, changes: Any) -> list[int]:
            if "/cookies/" in changes[0].key:
                raise OutcomeUnknownError("memory:", "cut")
            return super().write(changes)

    inner = MemoryStore()
    with pytest.raises(PartlyAppliedError, match="no answer") as refused:
        applied(Deaf(inner, lambda _: None), restore_of(3), tmp_path / "j")
    assert refused.value.exit_code == 6
    assert applied(inner, restore_of(3), tmp_path / "j", resume=True).exit_code == 0


def test_a_store_that_fails_before_the_first_write_is_no_partial_apply(tmp_path: Path) -> None:
    """Nothing was written, so nothing needs to be resumed; and no batch was announced."""
    inner = MemoryStore()
    error = UnavailableError("memory:", "away")
    with pytest.raises(UnavailableError):
        applied(FaultyStore(inner, lambda n: Fault(error, after=False) if n == 0 else None), restore_of(3), tmp_path)
    assert inner.dump() == {}


def test_a_resumed_run_that_fails_at_once_is_partly_applied(tmp_path: Path) -> None:
    """What the run before it announced may stand there, though this one wrote nothing."""
    inner = MemoryStore()
    inner.write([Write(f"{ROOT}/00/0000/L{n}", b"former") for n in range(4)])
    rows = [
        action("ledger", "replace", f"/00/0000/L{n}", b"record", expects=0, before=b"former", ledger=n)
        for n in range(4)
    ]
    away = Fault(UnavailableError("memory:", "away"), after=False)
    with pytest.raises(PartlyAppliedError):
        applied(FaultyStore(inner, lambda n: away if n >= 9 else None), rows, tmp_path / "j", batch_rows=1)
    begun: list[int] = []
    store = FaultyStore(inner, lambda _: away if begun else None)
    options = ApplyOptions("hash", resume=True, batch_rows=1)
    with pytest.raises(PartlyAppliedError):
        apply(
            lambda: [plan_of(rows)],
            store,
            ROOT,
            tmp_path / "j",
            options,
            now=clock(),
            progress=lambda *_: begun.append(1),
        )
    assert {value(inner, f"{ROOT}/00/0000/L{n}") for n in range(4)} == {b"former", b"record"}


def test_a_refusal_midway_says_to_resume(tmp_path: Path) -> None:
    """Rights that are missing are not a property of one record: the run ends, and says what to do."""
    inner = MemoryStore()
    denied = Fault(AccessDeniedError("/k"), after=False)
    with pytest.raises(PartlyAppliedError, match="go on with the journal"):
        applied(FaultyStore(inner, lambda n: denied if n == 9 else None), restore_of(3), tmp_path / "j")


def test_a_journal_is_gone_on_with_only_when_told(tmp_path: Path) -> None:
    """An earlier journal is neither overwritten nor silently continued, and never by another plan or store."""
    store = MemoryStore()
    applied(store, restore_of(3), tmp_path / "j")
    raw = (tmp_path / "j" / JOURNAL).read_bytes()
    with pytest.raises(JournalError, match="go on with the journal"):
        applied(store, restore_of(3), tmp_path / "j")
    table = plan_of(restore_of(3))
    acl = ApplyOptions("hash", resume=True, acl=WORLD)
    for options, root in (
        (ApplyOptions("other", resume=True), ROOT),
        (ApplyOptions("hash", resume=True), "/other"),
        (acl, ROOT),
    ):
        with pytest.raises(JournalError, match="another plan, store or root"):
            apply(lambda: [table], store, root, tmp_path / "j", options, now=clock())
    assert (tmp_path / "j" / JOURNAL).read_bytes() == raw


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(
    ("events", "said"), [(("undo",), "end it: bkmeta undo"), (("undo", "undone"), "--journal .*/j-2$")]
)
def test_after_an_undo_the_one_way_on_is_said_at_once(
    tmp_path: Path, events: tuple[str, ...], said: str, *, resume: bool
) -> None:
    """With --resume or without: end the undo, or apply with the journal that is named; nothing is written."""
    store, folder = MemoryStore(), tmp_path / "j"
    applied(store, restore_of(3), folder)
    binding = next(record.fields["binding"] for record in scan(folder / JOURNAL) if isinstance(record, JournalLine))
    with AuditJournal.open(folder, binding, resume=True, now=clock(), replay=lambda _: None) as journal:
        for event in events:
            journal.append(event, {})
    raw = (folder / JOURNAL).read_bytes()
    with pytest.raises(GuardRefusedError) as refused:
        applied(store, restore_of(3), folder, resume=resume)
    assert re.search(said, describe_error(refused.value))
    assert (folder / JOURNAL).read_bytes() == raw


def test_the_journal_is_private_and_holds_no_new_values(tmp_path: Path) -> None:
    """Only its owner may read it; what was written is in it as a hash."""
    applied(MemoryStore(), restore_of(3), tmp_path / "new" / "j")
    file = tmp_path / "new" / "j" / JOURNAL
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    text = file.read_text()
    assert "record 1" not in text
    assert base64.b64encode(b"record 1").decode() not in text
    assert json.loads(text.splitlines()[-1])["counts"]["ledger.create"] == [2, 2, 0, 0, 0]


def test_progress_reaches_its_end(tmp_path: Path) -> None:
    """What is told never falls and ends at the whole."""
    table, told = plan_of(restore_of(230)), []
    apply(
        lambda: [table], MemoryStore(), ROOT, tmp_path, ApplyOptions("hash"),
        now=clock(), progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert told == sorted(told)
    assert told[-1] == (2 * (table.num_rows - 2) + 2,) * 2


def test_an_empty_plan_is_done(tmp_path: Path) -> None:
    """Nothing to write is no failure."""
    result = apply(list, MemoryStore(), ROOT, tmp_path, ApplyOptions("hash"), now=clock())
    assert (result.exit_code, result.checked, dict(result.tallies)) == (0, 0, {})


def in_waves() -> list[dict[str, Any]]:
    """Return a restore of nine ledgers in three waves of three, the counter in the first, cookies in the last."""

    def wave(row: dict[str, Any]) -> int:
        if row["kind"] == "ledger":
            return 1 + int(row["key"][-1]) // 3
        return 1 if row["kind"] == "generator" else 3

    return [{**row, "wave": wave(row)} for row in restore_of(9)]


def test_waves_one_by_one_are_the_whole_plan(tmp_path: Path) -> None:
    """Each wave is counted by itself, its sums add up, and after the last one all is there and was read back."""
    store = MemoryStore()
    for wave in (1, 2, 3):
        result = applied(store, in_waves(), tmp_path / "j", wave=wave, resume=wave > 1)
        assert result.exit_code == 0
        assert all(tally.written == tally.planned for tally in result.tallies.values())
        assert result.tallies["ledger", "create"] == AppliedTally(2, 2, 0, 0, 0)
        assert result.checked == {1: 4, 2: 7, 3: 13}[wave]
    other = MemoryStore()
    applied(other, restore_of(9), tmp_path / "other")
    assert store.dump() == other.dump()


@pytest.mark.parametrize("before", [(), (1,)])
def test_a_wave_waits_for_those_before_it(tmp_path: Path, before: tuple[int, ...]) -> None:
    """The last wave brings cookies, which let bookies start: refused while ledgers of other waves have no record."""
    store = MemoryStore()
    for wave in before:
        applied(store, in_waves(), tmp_path / "j", wave=wave)
    there = state_of(store)
    with pytest.raises(GuardRefusedError, match="waves before"):
        applied(store, in_waves(), tmp_path / "j", wave=3, resume=bool(before))
    assert state_of(store) == there
    for wave in {1, 2, 3} - {*before}:
        assert applied(store, in_waves(), tmp_path / "j", wave=wave, resume=wave > 1).exit_code == 0
    assert store.children(f"{ROOT}/00/0000") == [f"L{n:04d}" for n in range(9)]


def test_a_wave_waits_for_one_that_was_cut_short(tmp_path: Path) -> None:
    """A wave that was ended midway is gone on with before the next begins: nothing of it is left out."""
    store = MemoryStore()
    applied(store, in_waves(), tmp_path / "j", wave=1, batch_rows=1)
    lines = (tmp_path / "j" / JOURNAL).read_bytes().splitlines(keepends=True)
    announced = [n for n, line in enumerate(lines) if b'"event":"intent"' in line]
    (tmp_path / "j" / JOURNAL).write_bytes(b"".join(lines[: announced[2] + 1]))
    store.write([Write(f"{ROOT}/00/0000/L0002", None, 0)])
    with pytest.raises(GuardRefusedError, match="waves before"):
        applied(store, in_waves(), tmp_path / "j", wave=2, resume=True)
    for wave in (1, 2, 3):
        assert applied(store, in_waves(), tmp_path / "j", wave=wave, resume=True).exit_code == 0
    assert store.children(f"{ROOT}/00/0000") == [f"L{n:04d}" for n in range(9)]


def test_the_first_wave_knows_another_clusters_root(tmp_path: Path) -> None:
    """LAYOUT and instance id come in the last wave, and are compared with the store before the first one."""
    store = MemoryStore()
    store.write([Write(f"{ROOT}/INSTANCEID", b"another")])
    there = state_of(store)
    with pytest.raises(GuardRefusedError, match="another cluster"):
        applied(store, in_waves(), tmp_path / "j", wave=1)
    assert state_of(store) == there


def test_a_conflict_of_an_earlier_wave_withholds_cookies(tmp_path: Path) -> None:
    """What stood in the way in the first wave still keeps bookies from starting after the last."""
    store = MemoryStore()
    store.write([Write(f"{ROOT}/00/0000/L0001", b"somebody's")])
    assert applied(store, in_waves(), tmp_path / "j", wave=1).exit_code == 6
    assert applied(store, in_waves(), tmp_path / "j", wave=2, resume=True).exit_code == 0
    result = applied(store, in_waves(), tmp_path / "j", wave=3, resume=True)
    assert result.exit_code == 6
    assert result.tallies["cookie", "create"] == AppliedTally(2, 0, 0, 0, 2)
    assert "conflict" in result.cookies_withheld
    store.write([Write(f"{ROOT}/00/0000/L0001", None, 0)])
    for wave in (1, 3):
        assert applied(store, in_waves(), tmp_path / "j", wave=wave, resume=True).exit_code == 0
    assert store.children(f"{ROOT}/cookies") == ["b0:3181", "b1:3181"]


def test_a_record_of_an_earlier_wave_that_went_withholds_cookies(tmp_path: Path) -> None:
    """All waves are read back before cookies, not only the last one."""
    store = MemoryStore()
    for wave in (1, 2):
        applied(store, in_waves(), tmp_path / "j", wave=wave, resume=wave > 1)
    store.write([Write(f"{ROOT}/00/0000/L0001", None, 0)])
    result = applied(store, in_waves(), tmp_path / "j", wave=3, resume=True)
    assert result.changed == ("/00/0000/L0001",)
    assert store.children(f"{ROOT}/cookies") is None


def test_waves_against_the_order_of_a_restore_are_no_plan(tmp_path: Path) -> None:
    """A plan in which a later wave comes first is refused: what is done could not be told from it."""
    rows = [{**row, "wave": 3 - row["wave"]} for row in in_waves()]
    store = MemoryStore()
    with pytest.raises(PlanError, match="wave"):
        applied(store, rows, tmp_path / "j", wave=1)
    assert store.dump() == MemoryStore().dump()
