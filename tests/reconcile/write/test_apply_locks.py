"""A guarded ledger's record is written under a lock that is there before it, and that goes after a settled record."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from backends.errors import UnavailableError
from backends.protocols import Write
from reconcile.errors import GuardRefusedError, PartlyAppliedError, PlanError
from reconcile.write import guards, undo
from reconcile.write.apply import ApplyOptions, apply
from reconcile.write.apply_results import Applied, AppliedTally, Conflict
from reconcile.write.plan_actions import survey_plan
from recovery.codecs import replication_lock
from recovery.codecs.replication_lock import MAX_LOCKS, encode_guard, encode_reuse
from tests.support.memory_store import MemoryStore
from tests.support.plans import action, clock, plan_of, state_of
from tests.support.waiting import until

ROOT = "/ledgers"
PLAN = "3f" * 32
OURS = encode_guard(PLAN)
WORKER = b'bookieId: "worker-1"\n'


def record(number: int) -> str:
    """Return the key of a ledger's record."""
    return f"/00/0000/L{number:04d}"


def lock(number: int) -> str:
    """Return the key of a ledger's lock, as BookKeeper names it."""
    return f"{ROOT}/underreplication/locks/urL{number:010d}"


def guarded(number: int, guard: str | None = "lock", **fields: Any) -> dict[str, Any]:
    """Return the action of a ledger; it replaces where a version is given."""
    op = "replace" if "expects" in fields else "create"
    return action("ledger", op, record(number), b"record %d" % number, ledger=number, guard=guard, **fields)


def replaced(number: int, guard: str) -> dict[str, Any]:
    """Return the action that replaces what `filled` wrote."""
    return guarded(number, guard, expects=0, before=b"former")


def filled(*numbers: int, lock_value: bytes | None = None) -> MemoryStore:
    """Return a store that has records of ledgers, and their locks if a value is given."""
    store = MemoryStore()
    for number in numbers:
        store.write([Write(ROOT + record(number), b"former")])
        if lock_value is not None:
            store.write([Write(lock(number), lock_value)])
    return store


def applied(store: Any, rows: list[dict[str, Any]], journal: Path, **options: Any) -> Applied:
    """Apply rows as a plan; nothing is waited for unless that is asked for."""
    wanted = ApplyOptions(PLAN, **{"patience_s": 0, "batch_rows": 3, **options})
    return apply(lambda: [plan_of(rows)], store, ROOT, journal, wanted, now=clock())


def undone(store: Any, journal: Path, **options: Any) -> undo.Undone:
    """Take an apply back."""
    return undo.undo(undo.propose(journal, store, ROOT, **options), store, ROOT, now=clock())


def value(store: MemoryStore, key: str) -> bytes | None:
    """Return what stands at a key."""
    held = store.get(key)
    return held.value if held else None


def test_the_lock_is_there_before_the_record(tmp_path: Path) -> None:
    """Each guarded ledger has a lasting lock that names the plan, older than its record; no other ledger has one."""
    store = MemoryStore()
    rows = [guarded(n, "lock" if n % 2 else None) for n in range(20)]
    result = applied(store, rows, tmp_path / "j")
    for n in range(20):
        kept, written = store.get(lock(n)), store.get(ROOT + record(n))
        assert written is not None
        assert (kept is not None) == bool(n % 2)
        if kept is not None:
            assert (kept.value, kept.owner) == (b'bookieId: "bkmeta-guard 3f3f3f3f3f3f3f3f"\n', 0)
            assert (kept.created_txn or 0) < (written.created_txn or 0)
    assert result.tallies == {
        ("ledger", "create"): AppliedTally(20, 20, 0, 0, 0),
        ("lock", "lock"): AppliedTally(10, 10, 0, 0, 0),
    }
    assert (result.checked, result.exit_code) == (30, 0)


def test_named_guards_have_no_lock(tmp_path: Path) -> None:
    """Where the record names everybody, nothing is locked."""
    store = MemoryStore()
    assert applied(store, [guarded(1, "named")], tmp_path / "j").exit_code == 0
    assert store.children(f"{ROOT}/underreplication") is None


def test_scoped_ledgers_have_a_lock_that_no_listing_of_java_takes_for_another(tmp_path: Path) -> None:
    """Their lock has the qualified name."""
    store = MemoryStore()
    row = action("ledger", "create", "/scoped/1", b"record", scope=7, ledger=12345, guard="lock")
    applied(store, [row], tmp_path / "j")
    assert store.children(f"{ROOT}/underreplication/locks") == ["urS00000000000000070000000000003039"]


def test_somebody_elses_lock_is_never_taken(tmp_path: Path) -> None:
    """The record under it is not written, and that is said; once it is gone, --resume writes both."""
    store = MemoryStore()
    store.write([Write(lock(2), WORKER)])
    result = applied(store, [guarded(n) for n in range(4)], tmp_path / "j")
    assert result.exit_code == 6
    assert value(store, lock(2)) == WORKER
    assert value(store, ROOT + record(2)) is None
    assert [value(store, ROOT + record(n)) is None for n in range(4)] == [False, False, True, False]
    assert set(result.conflicts) == {
        Conflict("lock", "lock", lock(2).removeprefix(ROOT), "worker-1 holds it"),
        Conflict("ledger", "create", record(2), "its lock was not had: worker-1 holds it"),
    }
    store.write([Write(lock(2), None, 0)])
    again = applied(store, [guarded(n) for n in range(4)], tmp_path / "j", resume=True)
    assert again.exit_code == 0
    assert value(store, lock(2)) == OURS
    assert again.tallies == {
        ("ledger", "create"): AppliedTally(4, 4, 0, 0, 0),
        ("lock", "lock"): AppliedTally(4, 4, 0, 0, 0),
    }


def test_somebody_elses_lock_is_waited_for(tmp_path: Path) -> None:
    """A worker that lets go in time costs nothing but that time."""
    store = MemoryStore()
    store.write([Write(lock(2), WORKER)])
    results: list[Applied] = []
    rows = [guarded(n) for n in range(4)]
    run = threading.Thread(target=lambda: results.append(applied(store, rows, tmp_path / "j", patience_s=60)))
    run.start()
    until(lambda: value(store, lock(1)) == OURS, "the other locks are made")
    store.write([Write(lock(2), None, 0)])
    run.join()
    assert [result.exit_code for result in results] == [0]
    assert value(store, lock(2)) == OURS
    assert value(store, ROOT + record(2)) == b"record 2"


def test_a_record_in_conflict_gets_no_lock(tmp_path: Path) -> None:
    """What cannot be written is not locked either: nothing of ours stays with somebody else's ledger."""
    store = filled(1)
    result = applied(store, [guarded(1), guarded(2)], tmp_path / "j")
    assert store.children(f"{ROOT}/underreplication/locks") == ["urL0000000002"]
    assert result.conflicts == (Conflict("ledger", "create", record(1), "other bytes are there"),)


def test_a_guard_of_an_earlier_plan_is_as_good(tmp_path: Path) -> None:
    """Its lock is counted as there, and an undo of the later plan leaves it."""
    former = encode_guard("ab" * 32)
    store = filled(1, lock_value=former)
    before = state_of(store)
    result = applied(store, [replaced(1, "lock")], tmp_path / "j")
    assert result.tallies["lock", "lock"] == AppliedTally(1, 0, 1, 0, 0)
    assert undone(store, tmp_path / "j").exit_code == 0
    assert value(store, lock(1)) == former
    assert value(store, ROOT + record(1)) == b"former"
    assert state_of(store).keys() == before.keys()


def test_a_settled_record_is_written_before_the_lock_goes(tmp_path: Path) -> None:
    """The lock is removed, and nothing but the lock; what is in conflict stays guarded; others' locks are left."""
    former = encode_guard("ab" * 32)
    store = filled(1, 2, 3, lock_value=former)
    store.write([Write(lock(3), None, 0)])
    store.write([Write(lock(3), WORKER)])
    store.write([Write(ROOT + record(2), b"somebody's", 0)])
    seen: list[tuple[bytes | None, bytes | None]] = []

    inner_write = store.write

    def write(changes: Any) -> list[int]:
        seen.append((value(store, ROOT + record(1)), value(store, lock(1))))
        return inner_write(changes)

    store.write = write  # type: ignore[method-assign]  # the store in memory, troubled
    result = applied(store, [replaced(n, "release") for n in (1, 2, 3)], tmp_path / "j")
    assert seen[0] == (b"former", former)
    assert seen[-1] == (b"record 1", former)
    assert value(store, lock(1)) is None
    assert value(store, lock(2)) == former
    assert value(store, lock(3)) == WORKER
    assert result.tallies == {
        ("ledger", "replace"): AppliedTally(3, 2, 0, 1, 0),
        ("lock", "release"): AppliedTally(3, 1, 1, 0, 0),
    }
    assert result.exit_code == 6


def test_undo_takes_record_and_lock_back(tmp_path: Path) -> None:
    """What was locked is free, what was released is locked again, each after or before its record."""
    former = encode_guard("ab" * 32)
    store = filled(2, 3, lock_value=None)
    store.write([Write(lock(3), former)])
    before = {key: value(store, key) for key in store.dump()}
    rows = [replaced(2, "lock"), replaced(3, "release")]
    assert applied(store, rows, tmp_path / "j").exit_code == 0
    assert (value(store, lock(2)), value(store, lock(3))) == (OURS, None)
    result = undone(store, tmp_path / "j")
    assert result.exit_code == 0
    assert dict(result.done) == {"replace": 2, "lock": 1, "release": 1}
    assert {key: value(store, key) for key in store.dump()} == before


def test_undo_of_what_was_replaced_leaves_locks_of_what_was_created(tmp_path: Path) -> None:
    """A record that stays keeps its lock, and that is no failure."""
    store = filled(2)
    assert applied(store, [guarded(1), replaced(2, "lock")], tmp_path / "j").exit_code == 0
    result = undone(store, tmp_path / "j", replaced_only=True)
    assert result.exit_code == 0
    assert (value(store, lock(1)), value(store, ROOT + record(1))) == (OURS, b"record 1")
    assert (value(store, lock(2)), value(store, ROOT + record(2))) == (None, b"former")


def test_undo_leaves_the_lock_of_a_record_that_somebody_changed(tmp_path: Path) -> None:
    """Without its lock such a record would let copies go; the other way round no record comes back without its lock."""
    former = encode_guard("ab" * 32)
    store = filled(2, 3)
    store.write([Write(lock(3), former)])
    applied(store, [replaced(2, "lock"), replaced(3, "release")], tmp_path / "j")
    store.write([Write(ROOT + record(2), b"somebody's", 1)])
    store.write([Write(lock(3), WORKER)])
    result = undone(store, tmp_path / "j")
    assert result.exit_code == 6
    assert value(store, lock(2)) == OURS
    assert (value(store, lock(3)), value(store, ROOT + record(3))) == (WORKER, b"record 3")
    assert dict(result.left) == {"replace": 2, "lock": 1, "release": 1}


def test_undo_leaves_the_lock_of_a_record_that_was_there_before(tmp_path: Path) -> None:
    """The record is not the apply's to take back, so what keeps its copies stays with it; the others go."""
    store = filled(2)
    store.write([Write(ROOT + record(1), b"record 1")])
    result = applied(store, [guarded(1), replaced(2, "lock")], tmp_path / "j")
    assert result.tallies["ledger", "create"] == AppliedTally(1, 0, 1, 0, 0)
    assert result.tallies["lock", "lock"] == AppliedTally(2, 2, 0, 0, 0)
    back = undone(store, tmp_path / "j")
    assert (back.exit_code, dict(back.done), dict(back.left)) == (6, {"replace": 1, "lock": 1}, {"lock": 1})
    assert (value(store, lock(1)), value(store, ROOT + record(1))) == (OURS, b"record 1")
    assert (value(store, lock(2)), value(store, ROOT + record(2))) == (None, b"former")


def test_undo_puts_a_record_back_whose_lock_was_gone_before(tmp_path: Path) -> None:
    """The apply had no lock to end: none comes back, and the record does, as where a worker has the lock."""
    store = filled(3, 4)
    store.write([Write(lock(4), WORKER)])
    before = {key: value(store, key) for key in store.dump()}
    result = applied(store, [replaced(3, "release"), replaced(4, "release")], tmp_path / "j")
    assert result.tallies["lock", "release"] == AppliedTally(2, 0, 2, 0, 0)
    back = undone(store, tmp_path / "j")
    assert (back.exit_code, dict(back.done)) == (0, {"replace": 2})
    assert {key: value(store, key) for key in store.dump()} == before


def test_undo_takes_the_lock_of_a_record_that_somebody_else_made_meanwhile(tmp_path: Path) -> None:
    """Between the lock and its record: what was refused is nobody's to keep copies for."""
    store = MemoryStore()
    inner_write = store.write

    def write(changes: Any) -> list[int]:
        versions = inner_write(changes)
        if value(store, lock(1)) is not None and value(store, ROOT + record(1)) is None:
            inner_write([Write(ROOT + record(1), b"somebody's")])
        return versions

    store.write = write  # type: ignore[method-assign]  # the store in memory, troubled
    result = applied(store, [guarded(1)], tmp_path / "j")
    assert result.tallies == {
        ("ledger", "create"): AppliedTally(1, 0, 0, 1, 0),
        ("lock", "lock"): AppliedTally(1, 1, 0, 0, 0),
    }
    assert value(store, lock(1)) == OURS
    back = undone(store, tmp_path / "j")
    assert (back.exit_code, dict(back.done)) == (0, {"lock": 1})
    assert (value(store, lock(1)), value(store, ROOT + record(1))) == (None, b"somebody's")


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_lock_that_a_broken_off_run_made_counts_once(is_taken: bool, tmp_path: Path) -> None:
    """The run that goes on finds it, and writes its record; or a worker who took it meanwhile, whom it leaves it."""
    store = MemoryStore()
    inner_write = store.write

    def write(changes: Any) -> list[int]:
        if any(change.key == ROOT + record(1) for change in changes):
            raise UnavailableError(store.uri, "gone")
        return inner_write(changes)

    store.write = write  # type: ignore[method-assign]  # the store in memory, troubled
    with pytest.raises(PartlyAppliedError):
        applied(store, [guarded(1), guarded(2)], tmp_path / "j")
    store.write = inner_write  # type: ignore[method-assign]  # likewise
    assert (value(store, lock(1)), value(store, ROOT + record(1))) == (OURS, None)
    if is_taken:
        store.write([Write(lock(1), None, 0)])
        store.write([Write(lock(1), WORKER)])
    again = applied(store, [guarded(1), guarded(2)], tmp_path / "j", resume=True)
    assert again.exit_code == (6 if is_taken else 0)
    assert value(store, ROOT + record(1)) == (None if is_taken else b"record 1")
    assert again.tallies["ledger", "create"] == AppliedTally(2, 1 if is_taken else 2, 0, int(is_taken), 0)
    assert again.tallies["lock", "lock"].conflicts == int(is_taken)


@pytest.mark.parametrize("guard", ["lock", "release"])
@pytest.mark.parametrize("is_of_lock", [False, True])
def test_what_a_run_wrote_without_an_answer_is_its_own(guard: str, is_of_lock: bool, tmp_path: Path) -> None:
    """The lock, its end, or the record: the run that goes on counts it as written, and an undo takes it back."""
    store = filled(1, 2, lock_value=encode_guard("ab" * 32) if guard == "release" else None)
    keys = [key for n in (1, 2) for key in (ROOT + record(n), lock(n))]
    before = [value(store, key) for key in keys]
    rows = [replaced(1, guard), replaced(2, guard)]
    inner_write, failing = store.write, lock(1) if is_of_lock else ROOT + record(1)

    def write(changes: Any) -> list[int]:
        versions = inner_write(changes)
        if any(change.key == failing for change in changes):
            raise UnavailableError(store.uri, "gone")
        return versions

    store.write = write  # type: ignore[method-assign]  # the store in memory, troubled
    with pytest.raises(PartlyAppliedError):
        applied(store, rows, tmp_path / "j")
    store.write = inner_write  # type: ignore[method-assign]  # likewise
    again = applied(store, rows, tmp_path / "j", resume=True)
    assert again.exit_code == 0
    assert again.tallies == {
        ("ledger", "replace"): AppliedTally(2, 2, 0, 0, 0),
        ("lock", guard): AppliedTally(2, 2, 0, 0, 0),
    }
    back = undone(store, tmp_path / "j")
    assert (back.exit_code, dict(back.done)) == (0, {"replace": 2, guard: 2})
    assert [value(store, key) for key in keys] == before


def test_a_record_whose_lock_cannot_come_back_is_said_to_stay(tmp_path: Path) -> None:
    """Also where only what was replaced is taken back: the record is left, with its reason, and not passed over."""
    store = filled(3)
    store.write([Write(lock(3), encode_guard("ab" * 32))])
    applied(store, [replaced(3, "release")], tmp_path / "j")
    store.write([Write(lock(3), WORKER)])
    result = undone(store, tmp_path / "j", replaced_only=True)
    assert (result.exit_code, dict(result.left)) == (6, {"replace": 1, "release": 1})
    assert (value(store, lock(3)), value(store, ROOT + record(3))) == (WORKER, b"record 3")


def test_undo_takes_the_lock_of_a_reused_id_back(tmp_path: Path) -> None:
    """Without a freeze, for it adds no record; locks that were there, or that somebody changed since, stay."""
    end = datetime(2030, 1, 8, tzinfo=UTC)
    store = filled(1, 2, 3)
    earlier = encode_reuse(end + timedelta(days=1))
    store.write([Write(lock(2), earlier)])
    before = {key: value(store, key) for key in store.dump()}
    rows = [action("reuse_lock", "keep", lock(n).removeprefix(ROOT), encode_reuse(end), ledger=n) for n in (1, 2, 3)]
    result = applied(store, rows, tmp_path / "j")
    assert result.tallies == {("reuse_lock", "keep"): AppliedTally(3, 2, 1, 0, 0)}
    assert (value(store, lock(1)), value(store, lock(2))) == (encode_reuse(end), earlier)
    store.write([Write(lock(3), WORKER, 0)])
    again = undone(store, tmp_path / "j")
    assert (again.exit_code, dict(again.done), dict(again.left)) == (6, {"keep": 1}, {"keep": 1})
    assert {key: value(store, key) for key in store.dump()} == {**before, lock(3): WORKER}


def test_more_locks_than_a_listing_holds_are_refused(tmp_path: Path) -> None:
    """With the locks that are there; those of the plan that are there already count once."""
    store = MemoryStore()
    names = [f"{ROOT}/underreplication/locks/urL{n:010d}" for n in range(10, 10 + MAX_LOCKS - 1)]
    store.write([Write(names[0], OURS)])
    listed = [name.rpartition("/")[2] for name in names]
    inner = store.children
    store.children = lambda key: listed if key.endswith("/locks") else inner(key)  # type: ignore[method-assign]  # the store in memory, troubled
    with pytest.raises(GuardRefusedError, match="50000"):
        applied(store, [guarded(1), guarded(2)], tmp_path / "j")
    assert not (tmp_path / "j").exists()
    assert applied(store, [guarded(1), guarded(10)], tmp_path / "j").exit_code == 0


def test_locks_are_counted_until_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more than any store takes is enough to refuse a plan, however many files it has."""
    monkeypatch.setattr(replication_lock, "MAX_LOCKS", 2)
    tables = [[guarded(1), guarded(2), guarded(9, None)], [guarded(3)], [guarded(4)], [guarded(5, None)]]
    numbers = iter(range(100))
    rows = [[row | {"seq": 2 << 48 | next(numbers)} for row in table] for table in tables]
    found = survey_plan(lambda: map(plan_of, rows), None)
    assert found.planned == {("ledger", "create"): 6, ("lock", "lock"): 4}
    assert found.locks == {lock(n).removeprefix(ROOT) for n in (1, 2, 3)}


@pytest.mark.parametrize(
    "row",
    [
        guarded(1, "padlock"),
        action("cookie", "create", "/cookies/b", b"c", guard="lock"),
        action("ledger", "hold", record(1), b"h", guard="lock"),
        action("ledger", "create", record(1), b"r", ledger=None, guard="lock"),
        action("ledger", "create", "/ledgers/00000000-0000-0000-0000-000000000001", b"r", guard="lock"),
    ],
)
def test_a_guard_of_something_else_is_no_plan(tmp_path: Path, row: dict[str, Any]) -> None:
    """Refused before anything is written."""
    store = MemoryStore()
    with pytest.raises(PlanError, match="guard"):
        applied(store, [row], tmp_path / "j")
    assert store.dump() == {}


def test_a_lock_that_is_gone_is_made_again_by_another_apply(tmp_path: Path) -> None:
    """The records are there; only what is missing is written. The first journal's own run says what it found."""
    store = MemoryStore()
    rows = [guarded(1), guarded(2)]
    applied(store, rows, tmp_path / "j")
    store.write([Write(lock(2), None, 0)])
    resumed = applied(store, rows, tmp_path / "j", resume=True)
    assert (resumed.exit_code, resumed.changed) == (6, (lock(2).removeprefix(ROOT),))
    again = applied(store, rows, tmp_path / "k")
    assert (again.exit_code, value(store, lock(2))) == (0, OURS)
    assert again.tallies == {
        ("ledger", "create"): AppliedTally(2, 0, 2, 0, 0),
        ("lock", "lock"): AppliedTally(2, 1, 1, 0, 0),
    }


def test_guards_by_names_wait_until_replication_is_disabled() -> None:
    """A worker would replace a silent member, whose copies then go; a plan without such guards is not asked."""
    store = MemoryStore()
    guards.require_no_replication(0, store, ROOT)
    with pytest.raises(GuardRefusedError, match="replication is enabled, and 3 ledgers of the plan"):
        guards.require_no_replication(3, store, ROOT)
    store.write([Write(f"{ROOT}/underreplication/disable", b"")])
    guards.require_no_replication(3, store, ROOT)
