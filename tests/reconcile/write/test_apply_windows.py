"""Windows of an apply: one is announced while the one before is under way, and nothing of either is forgotten."""

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from backends.errors import UnavailableError
from backends.protocols import Write
from reconcile.errors import PartlyAppliedError
from reconcile.write.apply import ApplyOptions, apply
from reconcile.write.audit_journal import JOURNAL
from tests.support.memory_store import MemoryStore
from tests.support.plans import action, clock, plan_of, restore_of
from tests.support.waiting import PATIENCE_S

ROOT = "/ledgers"
LEDGERS = 40
FLYING = 2
BATCH = 4
OPTIONS = ApplyOptions("hash", resume=True, batch_rows=BATCH, in_flight=FLYING)


def batches(journal: Path, event: str) -> list[int]:
    """Return the batches that a journal has an event of, in their order."""
    lines = [json.loads(line) for line in (journal / JOURNAL).read_text().splitlines()]
    return [line["batch"] for line in lines if line["event"] == event and "batch" in line]


class Gated(MemoryStore):
    """A store whose first writes of ledgers wait, or fail.

    Attributes:
        flying: writes of ledgers that were under way at once, at most.
    """

    def __init__(self, journal: Path, *, fails: bool = False) -> None:
        super().__init__()
        self._journal = journal
        self._fails = fails
        self._counting = threading.Lock()
        self._now = self.flying = 0
        self._sent = threading.Event()

    def write(self, changes: Sequence[Write]) -> list[int]:
        """Write; the first window's only when one of the second is announced, and sent."""
        numbers = [int(change.key[-4:]) for change in changes if "/0000/L" in change.key]
        with self._counting:
            self._now += bool(numbers)
            self.flying = max(self.flying, self._now)
        try:
            if numbers and min(numbers) >= FLYING * BATCH:
                assert len(batches(self._journal, "intent")) > 1 + FLYING
                self._sent.set()
            elif numbers:
                assert self._sent.wait(PATIENCE_S), "the second window is sent"
                if self._fails and min(numbers) < BATCH:
                    raise UnavailableError("memory", "gone")
            return super().write(changes)
        finally:
            with self._counting:
                self._now -= bool(numbers)


def run(store: MemoryStore, journal: Path, options: ApplyOptions = OPTIONS) -> Any:
    """Apply the plan."""
    return apply(lambda: [plan_of(restore_of(LEDGERS))], store, ROOT, journal, options, now=clock())


def test_a_window_is_announced_while_the_one_before_is_under_way(tmp_path: Path) -> None:
    """Its writes are sent, too; all is written, each batch is told once, and what others did is told before."""
    store = Gated(tmp_path)
    assert run(store, tmp_path).exit_code == 0
    assert FLYING < store.flying <= 2 * FLYING
    assert batches(tmp_path, "done") == batches(tmp_path, "intent") == sorted(batches(tmp_path, "intent"))
    assert len([path for path in store.dump() if "/0000/L" in path]) == LEDGERS


def test_what_was_under_way_beside_a_failure_is_recorded(tmp_path: Path) -> None:
    """The batch that failed has no result, all others that were announced have theirs; the run can be gone on with."""
    with pytest.raises(PartlyAppliedError):
        run(Gated(tmp_path, fails=True), tmp_path)
    announced = batches(tmp_path, "intent")
    assert len(announced) > 1 + FLYING
    assert [batch for batch in announced if batch not in batches(tmp_path, "done")] == [1]


def test_a_run_that_failed_is_gone_on_with(tmp_path: Path) -> None:
    """With the store back, every ledger is there, and counted once."""
    store = Gated(tmp_path, fails=True)
    with pytest.raises(PartlyAppliedError):
        run(store, tmp_path)
    vars(store)["_fails"] = False
    done = run(store, tmp_path)
    assert done.exit_code == 0
    assert sum(tally.written for (kind, _), tally in done.tallies.items() if kind == "ledger") == LEDGERS


def test_one_in_flight_is_one_after_the_other(tmp_path: Path) -> None:
    """Each batch is recorded before the next is announced."""
    store = MemoryStore()
    run(store, tmp_path, ApplyOptions("hash", batch_rows=BATCH, in_flight=1))
    lines = [json.loads(line) for line in (tmp_path / JOURNAL).read_text().splitlines()]
    told = [line["event"] for line in lines if "batch" in line]
    assert told == ["intent", "done"] * (len(told) // 2)


@pytest.mark.parametrize("guard", [None, "lock"])
def test_a_key_of_the_window_before_waits_for_it(guard: str | None, tmp_path: Path) -> None:
    """What replaces a record that is under way is read, locked and announced when that is there, and told."""
    store = MemoryStore()
    first = [action("ledger", "create", f"/00/0000/L{n:04d}", b"first %d" % n, ledger=n) for n in range(FLYING * BATCH)]
    later = action("ledger", "replace", first[0]["key"], b"later", expects=0, before=b"first 0", ledger=0, guard=guard)
    done = apply(lambda: [plan_of([*first, later])], store, ROOT, tmp_path, OPTIONS, now=clock())
    assert done.conflicts == ()
    found = store.get(ROOT + first[0]["key"])
    assert found is not None
    assert found.value == b"later"
    lines = [json.loads(line) for line in (tmp_path / JOURNAL).read_text().splitlines()]
    told = [(line["event"], line["batch"]) for line in lines if "batch" in line]
    assert told[: 2 * FLYING] == [(event, batch) for event in ("intent", "done") for batch in range(FLYING)]
