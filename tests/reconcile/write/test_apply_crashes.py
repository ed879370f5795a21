"""An apply that is killed anywhere, and gone on with, ends as one that was not."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.errors import UnavailableError
from backends.protocols import Write
from reconcile.errors import PartlyAppliedError
from reconcile.write import apply as engine
from reconcile.write import undo
from reconcile.write.apply import ApplyOptions
from reconcile.write.apply_results import Applied
from reconcile.write.audit_journal import JOURNAL, AuditJournal, JournalLine, Torn, scan
from recovery.codecs.replication_lock import encode_guard, encode_reuse
from tests.support.failing_stores import CrashError, Fault, FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.plans import action, clock, plan_of, restore_of, state_of

pytestmark = pytest.mark.long

ROOT = "/ledgers"
BATCH = 4


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_disks() -> Iterator[None]:
    """A killed process loses nothing that it wrote, synced or not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


def run(store: Any, table: pa.Table, journal: Path, *, resume: bool = False) -> Applied:
    """Apply a plan in small batches, one after the other: then a call has the same number each time."""
    return engine.apply(
        lambda: [table],
        store,
        ROOT,
        journal,
        ApplyOptions("hash", resume=resume, batch_rows=BATCH, in_flight=1),
        now=clock(),
    )


def store_with(keys: Sequence[tuple[str, bytes]]) -> MemoryStore:
    """Return a store that holds something already."""
    store = MemoryStore()
    for key, value in keys:
        if store.get(ROOT + key) is None:
            store.write([Write(ROOT + key, value)])
    return store


def only(at: int, fault: Fault) -> Callable[[int], Fault | None]:
    """Let one call fail."""
    return lambda n: fault if n == at else None


def settled(result: Applied) -> dict[tuple[str, str], tuple[int, int, int, int]]:
    """Return the counts; bytes that were there before a batch was announced and cut off count as written by it."""
    return {
        group: (tally.planned, tally.written + tally.there, tally.conflicts, tally.withheld)
        for group, tally in result.tallies.items()
    }


def killed_at_byte(limit: int) -> Callable[[int, bytes], int]:
    """Return an `os.write` that dies when so many bytes were written, in the middle of a line if need be."""
    left = limit

    def write(handle: int, data: bytes) -> int:
        nonlocal left
        if len(data) > left:
            os.write(handle, data[:left])
            left = 0
            raise CrashError
        left -= len(data)
        return os.write(handle, data)

    return write


def crash_journal_at(patch: pytest.MonkeyPatch, limit: int) -> None:
    """Make the next journals die after so many bytes."""
    opened = AuditJournal.open

    def dying(*arguments: Any, **named: Any) -> AuditJournal:
        return opened(*arguments, **named, write=killed_at_byte(limit))

    patch.setattr(AuditJournal, "open", dying)


FOREIGN = [("/00/0000/L0001", b"record 1"), ("/00/0000/L0002", b"somebody's"), ("/cookies/b0:3181", b"cookie 0")]


UNTIL = datetime(2030, 1, 8, tzinfo=UTC)
GUARD = encode_guard("an earlier plan")
STORED = [(f"/00/0000/L{n:04d}", b"former") for n in (20, 21, 22)]
LOCKED = [(f"/underreplication/locks/urL{n:010d}", GUARD) for n in (20, 21)]


REUSE = [
    action("reuse_lock", "keep", f"/underreplication/locks/urL{n:010d}", encode_reuse(UNTIL), ledger=n)
    for n in (30, 31, 32)
]
"""Locks of ids that two ledgers have: 31 is locked by an earlier plan already, 32 by a worker."""
REUSED = [
    ("/underreplication/locks/urL0000000031", encode_reuse(UNTIL + timedelta(days=1))),
    ("/underreplication/locks/urL0000000032", b'bookieId: "worker-1"\n'),
]


def guarded_restore() -> list[dict[str, Any]]:
    """Return a plan that makes locks, ends some, and leaves one that is somebody's."""
    rows = [action("ledger", "create", f"/00/0000/L{n:04d}", b"r %d" % n, ledger=n, guard="lock") for n in range(5)]
    for n, guard in ((20, "release"), (21, "lock"), (22, "lock")):
        was = {"expects": 0, "before": b"former", "ledger": n, "guard": guard}
        rows.append(action("ledger", "replace", f"/00/0000/L{n:04d}", b"true", **was))
    return [*rows, *REUSE, action("layout", "create", "/LAYOUT", b"2\nlayout:1"), restore_of(0)[-1]]


CASES = [(restore_of(9), []), (restore_of(9), FOREIGN)]
GUARDED = [
    (guarded_restore(), [*STORED, *LOCKED]),
    (guarded_restore(), [*STORED, *LOCKED, *REUSED, ("/00/0000/L0002", b"x")]),
]


@pytest.mark.parametrize(("rows", "held"), [*CASES, *GUARDED])
def test_killed_at_any_byte_of_the_journal(
    tmp_path: Path, rows: list[dict[str, Any]], held: list[tuple[str, bytes]]
) -> None:
    """Wherever in a journal's line the process dies: resumed, the store and the counts are those of one whole run."""
    table = plan_of(rows)
    whole = store_with(held)
    expected = run(whole, table, tmp_path / "whole")
    raw = (tmp_path / "whole" / JOURNAL).read_bytes()
    ends = [at + 1 for at, byte in enumerate(raw) if byte == ord("\n")]
    step = 23 if len(raw) < 5_000 else 71
    near = {max(end + n, 0) for end in [0, *ends[:-1]] for n in (-2, -1, 0, 1)}
    for limit in sorted(near | set(range(0, len(raw), step))):
        store, folder = store_with(held), tmp_path / f"{limit}"
        with pytest.MonkeyPatch.context() as patch:
            crash_journal_at(patch, limit)
            with pytest.raises(CrashError):
                run(store, table, folder)
        result = run(store, table, folder, resume=True)
        assert state_of(store) == state_of(whole)
        assert (settled(result), result.exit_code) == (settled(expected), expected.exit_code)
        assert not any(isinstance(record, Torn) for record in scan(folder / JOURNAL))


@pytest.mark.parametrize(("rows", "held"), [(restore_of(9), FOREIGN), *GUARDED])
@pytest.mark.parametrize("after", [False, True])
def test_killed_at_any_call_of_the_store(
    tmp_path: Path, after: bool, rows: list[dict[str, Any]], held: list[tuple[str, bytes]]
) -> None:
    """Before or after any read or write of the store: resumed, the store and the counts are those of one whole run."""
    table = plan_of(rows)
    whole = FaultyStore(inner := store_with(held), lambda _: None)
    expected = run(whole, table, tmp_path / "whole")
    for at in range(whole.calls):
        store, folder = store_with(held), tmp_path / f"{at}"
        with pytest.raises(CrashError):
            run(FaultyStore(store, only(at, Fault(CrashError(), after))), table, folder)
        result = run(store, table, folder, resume=True)
        assert state_of(store) == state_of(inner)
        assert (settled(result), result.exit_code) == (settled(expected), expected.exit_code)


def test_a_journal_that_lost_its_end(tmp_path: Path) -> None:
    """Cut anywhere, by a disk that lied about what it had synced: all is there once, and nothing is written again."""
    table = plan_of(restore_of(9))
    store = store_with(FOREIGN)
    run(store, table, tmp_path / "j")
    before = {key: store.get(key) for key in store.dump()}
    raw = (tmp_path / "j" / JOURNAL).read_bytes()
    for cut in range(0, len(raw), 13):
        (tmp_path / "j" / JOURNAL).write_bytes(raw[:cut])
        result = run(store, table, tmp_path / "j", resume=True)
        assert {key: store.get(key) for key in store.dump()} == before
        assert result.tallies["ledger", "create"].conflicts == 1


values = st.sampled_from([b"", b"a", b"b"])
keys = st.sampled_from([f"/{a}/{b}" for a in "xyz" for b in "123"])
held_keys = st.lists(st.tuples(keys, values), max_size=4)
creates = st.builds(lambda key, value: action("ledger", "create", key, value), keys, values)
replaces = st.builds(
    lambda key, value, version, before: action("ledger", "replace", key, value, expects=version, before=before),
    keys, values, st.integers(0, 1), st.none() | values,
)  # fmt: skip
removes = st.builds(lambda key: action("ledger", "remove", key, None, expects=0), keys)
raises = st.builds(lambda n: action("generator", "raise", "/idgen", b"%d" % n), st.integers(0, 3_000))
plans = st.builds(
    lambda ledgers, generators, rest: plan_of([*generators, *ledgers, *rest]),
    st.lists(creates | replaces | removes, max_size=14, unique_by=lambda row: row["key"]),
    st.lists(raises, max_size=1),
    st.sampled_from([[], [r for r in restore_of(0) if r["op"] != "raise"]]),
)


@given(plans, held_keys, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 3)), max_size=4))
def test_any_plan_killed_any_number_of_times(
    table: pa.Table, held: list[tuple[str, bytes]], deaths: list[tuple[int, int]]
) -> None:
    """Any plan over any store, killed or cut off again and again: the end is that of one whole run.

    What stood there and was not to be replaced has its bytes and its version still.
    """
    with TemporaryDirectory() as folder:
        whole = store_with(held)
        expected = run(whole, table, Path(folder) / "whole")
        store, journal = store_with(held), Path(folder) / "killed"
        for at, how in deaths:
            error = UnavailableError("memory:", "away") if how & 2 else CrashError()
            fault = Fault(error, after=bool(how & 1))
            with contextlib.suppress(CrashError, UnavailableError, PartlyAppliedError):
                run(FaultyStore(store, only(at, fault)), table, journal, resume=True)
        result = run(store, table, journal, resume=True)
        assert state_of(store) == state_of(whole)
        assert settled(result) == settled(expected)
        assert result.changed_count == expected.changed_count == 0
        planned = {row["key"] for row in table.to_pylist() if row["op"] in ("replace", "remove")}
        first = store_with(held)
        for key in {key for key, _ in held} - planned:
            before, after = first.get(ROOT + key), store.get(ROOT + key)
            assert before is not None
            assert after is not None
            assert (before.value, before.version) == (after.value, after.version)
        for tally in result.tallies.values():
            assert tally.planned == tally.written + tally.there + tally.conflicts + tally.withheld
        records = [record for record in scan(journal / JOURNAL) if isinstance(record, JournalLine)]
        assert [record.number for record in records] == list(range(len(records)))


def test_what_is_put_back_is_what_stood_there_when_it_was_replaced(tmp_path: Path) -> None:
    """Between a run that announced a write and did not make it, and the next one, somebody else wrote the record."""
    store, key = store_with([("/a", b"first")]), f"{ROOT}/a"
    plan = plan_of([action("ledger", "replace", "/a", b"good", expects=0)])

    class Away(FaultyStore):
        """No write reaches it."""

        def write(self, changes: Any) -> list[int]:
            raise UnavailableError(changes[0].key, "away")

    with pytest.raises((UnavailableError, PartlyAppliedError)):
        run(Away(store, lambda _: None), plan, tmp_path)
    # Another record of the same version: anybody who wrote it removed the first one.
    store.write([Write(key, None, 0)])
    store.write([Write(key, b"second")])
    assert run(store, plan, tmp_path, resume=True).exit_code == 0
    assert store.dump()[key] == b"good"
    undo.undo(undo.propose(tmp_path, store, ROOT, replaced_only=True), store, ROOT, now=clock())
    assert store.dump()[key] == b"second"


@pytest.mark.parametrize("gone", [(), ("b0:3181",), ("b0:3181", "b1:3181")])
def test_cookies_that_stand_are_recorded_though_no_more_are_written(gone: Sequence[str], tmp_path: Path) -> None:
    """They were written before the kill; by the next run a record went, so that no cookie is written any more."""
    store, table = MemoryStore(), plan_of(restore_of(5))

    class Killed(FaultyStore):
        """Its process is killed when the cookies are written, and nothing says so yet."""

        def write(self, changes: Any) -> list[int]:
            versions = super().write(changes)
            if "/cookies/" in changes[0].key:
                raise CrashError
            return versions

    with pytest.raises(CrashError):
        run(Killed(store, lambda _: None), table, tmp_path)
    store.write([Write(f"{ROOT}/00/0000/L0003", None, 0)])
    for name in gone:
        store.write([Write(f"{ROOT}/cookies/{name}", None, 0)])
    result = run(store, table, tmp_path, resume=True)
    assert result.changed == ("/00/0000/L0003",)
    cookies = result.tallies["cookie", "create"]
    assert (cookies.planned, cookies.written, cookies.withheld) == (2, 2 - len(gone), len(gone))
    again = run(store, table, tmp_path, resume=True)
    assert again.tallies["cookie", "create"] == cookies
    store.write([Write(f"{ROOT}/00/0000/L0003", b"record 3")])
    done = run(store, table, tmp_path, resume=True)
    assert (done.exit_code, done.tallies["cookie", "create"].written) == (0, 2)


def test_progress_goes_on_where_the_last_run_stopped(tmp_path: Path) -> None:
    """What was written and what was there already count once, and the end is reached."""
    table = plan_of(restore_of(20))
    store = store_with([(f"/00/0000/L{n:04d}", b"record %d" % n) for n in range(0, 20, 2)])
    with pytest.raises((UnavailableError, PartlyAppliedError)):
        run(FaultyStore(store, only(30, Fault(UnavailableError("memory:", "away"), after=False))), table, tmp_path)
    told: list[tuple[int, int]] = []
    engine.apply(
        lambda: [table],
        store,
        ROOT,
        tmp_path,
        ApplyOptions("hash", resume=True, batch_rows=BATCH, in_flight=1),
        now=clock(),
        progress=lambda done, total: told.append((done, total)),
    )
    begun = [record for record in scan(tmp_path / JOURNAL) if isinstance(record, JournalLine)]
    assert [record.event for record in begun].count("resume") == 1
    assert told[0][0] > 2 * BATCH
    assert told[-1][0] == told[-1][1]
    assert told == sorted(told)
    assert all(done <= total for done, total in told)
