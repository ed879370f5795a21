"""Ways in which restores went wrong elsewhere, and what happens here."""

from pathlib import Path

import pytest

from backends.memory import MemoryStore
from backends.protocols import Write
from reconcile.apply import Options, apply
from reconcile.errors import GuardRefusedError, PlanError
from recovery.codecs import store as keys
from recovery.codecs.store import Layout, layout_bytes
from tests import plans
from tests.plan_folder import Ledger, write_plan
from tests.plans import action, clock, plan_of, restore_of, state_of

ROOT = "/ledgers"


def test_a_plan_is_never_applied_to_another_cluster(tmp_path: Path) -> None:
    """Wrong era: another instance id or layout than the plan's: refused with 5, nothing written, no journal begun.

    HBase's repair of a cluster with another version's tool dropped its regions.
    """
    made = write_plan(tmp_path / "plan", [Ledger(n, [(0, ["b1", "b2", "b3"])]) for n in range(4)])
    for key, value in (("/INSTANCEID", b"of cluster B"), ("/LAYOUT", layout_bytes(Layout.FLAT))):
        store = MemoryStore()
        store.write([Write(ROOT + key, value)])
        before = state_of(store)
        with pytest.raises(GuardRefusedError, match="another cluster") as refused:
            apply(lambda: made.batches("actions"), store, ROOT, tmp_path / "j", Options("h"), now=clock())
        assert refused.value.exit_code == 5
        assert state_of(store) == before
        assert not (tmp_path / "j").exists()


def test_ids_go_on_past_all_that_bookies_hold(tmp_path: Path) -> None:
    """A store that counts from 5,000 while bookies hold up to 5,900: the next id is above, and never goes back.

    A store that was restored from an old snapshot gave ids out twice.
    """
    store = MemoryStore()
    store.raise_counter(f"{ROOT}/idgen", 5_000)
    rows = [action("generator", "raise", "/idgen", b"5900"), *restore_of(3)[1:]]
    for number, beyond in enumerate((5_901, 5_901)):
        apply(lambda: [plan_of(rows)], store, ROOT, tmp_path / f"{number}", Options("h"), now=clock())
        held = store.get(f"{ROOT}/idgen")
        assert held is not None
        assert held.children_created == beyond
    store.raise_counter(f"{ROOT}/idgen", 70_000)
    apply(lambda: [plan_of(rows)], store, ROOT, tmp_path / "late", Options("h"), now=clock())
    held = store.get(f"{ROOT}/idgen")
    assert held is not None
    assert held.children_created == 70_001


@pytest.mark.parametrize("kind", ["registration", "lock", "mark", "other"])
def test_nothing_that_lives_with_a_session_is_ever_written(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Registrations, locks and marks are no kind of action: a plan that has one is none, and writes nothing.

    Tools that restored ephemeral nodes as permanent ones made dead servers look alive.
    """
    monkeypatch.setitem(plans.PHASES, kind, 3)
    store = MemoryStore()
    rows = [*restore_of(2), action(kind, "create", f"{keys.AVAILABLE}/bk1:3181", b"")]
    with pytest.raises(PlanError, match="kind is not known"):
        apply(lambda: [plan_of(rows)], store, ROOT, tmp_path / "j", Options("h"), now=clock())
    assert store.dump() == {}


def test_a_restore_makes_no_bookie_look_alive(tmp_path: Path) -> None:
    """After it no bookie is registered, nothing is locked, and no ledger is marked, whatever was restored."""
    store = MemoryStore()
    apply(lambda: [plan_of(restore_of(9))], store, ROOT, tmp_path / "j", Options("h"), now=clock())
    assert store.children(ROOT + keys.AVAILABLE) == ["readonly"]
    assert store.children(ROOT + keys.READ_ONLY) == []
    assert store.children(ROOT + keys.UNDERREPLICATION) is None
    for key in store.dump():
        held = store.get(key)
        assert held is not None
        assert held.owner == 0
