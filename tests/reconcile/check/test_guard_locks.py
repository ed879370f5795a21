"""Locks of guarded ledgers, looked at after an apply."""

from pathlib import Path

import pytest

from backends.protocols import Write
from reconcile.check.guard_locks import GuardsSeen, count_guards, look_at_guards, select_guarded
from recovery.codecs.replication_lock import encode_guard, lock_key
from recovery.codecs.store import REPLICATION_DISABLED
from recovery.dataset import Dataset
from recovery.model.ids import LedgerId
from tests.support.memory_store import MemoryStore
from tests.support.plan_folder import Ledger, write_plan

ROOT = "/ledgers"
OURS = encode_guard("cd" * 32)
MADE_MS = 1_700_000_000_000
GUARDS = {1: "lock", 2: "lock", 3: "release", 4: "release", 5: "named", 6: None, 7: "lock"}


@pytest.fixture
def plan(tmp_path: Path) -> Dataset:
    """Return a plan of seven ledgers with every guard that there is, and one without."""
    return write_plan(tmp_path / "plan", [Ledger(n, [(0, ["a", "b", "c"])], guard=g) for n, g in GUARDS.items()])


def applied(plan: Dataset, locks: dict[int, bytes]) -> MemoryStore:
    """Return a store with all records of a plan, and with these locks."""
    store = MemoryStore(now_ms=lambda: MADE_MS)
    for row in plan.read("actions").to_pylist():
        if row["kind"] == "ledger":
            store.write([Write(ROOT + row["key"], row["value"])])
    for ledger, value in locks.items():
        store.write([Write(ROOT + lock_key(LedgerId(0, ledger)), value)])
    return store


def test_all_is_as_it_should_be(plan: Dataset) -> None:
    """Locks stand, settled ones are gone; while they are young a former holder may still take one away."""
    seen = look_at_guards(plan, applied(plan, {1: OURS, 2: OURS, 7: OURS}), ROOT)
    assert seen == GuardsSeen(kept=3, released=2, named=1, youngest_ms=MADE_MS)
    assert seen.wrong == 0
    assert seen.is_early(MADE_MS + 299_999)
    assert not seen.is_early(MADE_MS + 300_000)


def test_locks_that_are_gone_or_left_are_named(plan: Dataset) -> None:
    """A lock of somebody else is none of ours; a session's ends with it, whatever it says."""
    store = applied(plan, {2: b'bookieId: "worker"\n', 4: OURS})
    store.put_ephemeral(ROOT + lock_key(LedgerId(0, 7)), OURS, owner=9)
    seen = look_at_guards(plan, store, ROOT)
    assert (seen.kept, seen.gone, seen.unreleased, seen.released) == (0, 3, 1, 1)
    assert seen.wrong == 4
    assert {str(ledger) for ledger, words in seen.listed if "gone" in words} == {"1", "2", "7"}
    assert [str(ledger) for ledger, words in seen.listed if "still exists" in words] == ["4"]
    assert not seen.is_early(MADE_MS)


def test_a_ledger_that_was_settled_since_needs_no_lock(plan: Dataset) -> None:
    """Its record is another one by then."""
    store = applied(plan, {1: OURS, 7: OURS})
    key = plan.read("actions").filter([n == 2 for n in plan.read("actions")["ledger"].to_pylist()])["key"][0].as_py()
    store.write([Write(ROOT + key, b"final", 0)])
    seen = look_at_guards(plan, store, ROOT)
    assert (seen.wrong, seen.replaced) == (0, 1)


def test_a_guard_by_names_is_exposed_while_replication_is_enabled(plan: Dataset) -> None:
    """Where bookies run and nobody disabled it; one that was settled since needs nothing."""
    store = applied(plan, {1: OURS, 2: OURS, 7: OURS})
    store.put_ephemeral(f"{ROOT}/available/10.0.0.1:3181", b"", owner=9)
    seen = look_at_guards(plan, store, ROOT)
    assert (seen.named, seen.exposed, seen.wrong) == (1, 1, 1)
    store.write([Write(ROOT + REPLICATION_DISABLED, b"")])
    assert look_at_guards(plan, store, ROOT).wrong == 0
    store.write([Write(ROOT + REPLICATION_DISABLED, None, 0)])
    key = plan.read("actions").filter([n == 5 for n in plan.read("actions")["ledger"].to_pylist()])["key"][0].as_py()
    store.write([Write(ROOT + key, b"final", 0)])
    seen = look_at_guards(plan, store, ROOT)
    assert (seen.named, seen.exposed, seen.replaced) == (0, 0, 1)


def test_guards_of_a_store(plan: Dataset) -> None:
    """Of any plan; workers' locks are not among them."""
    store = applied(plan, {1: OURS, 2: b'bookieId: "worker"\n', 9: encode_guard("another plan")})
    assert count_guards(store, ROOT) == 2
    asked = [LedgerId(0, n) for n in (1, 2, 3, 9)]
    assert select_guarded(store, ROOT, asked) == {LedgerId(0, 1), LedgerId(0, 9)}
    assert count_guards(MemoryStore(), ROOT) == 0
