"""Which bookies of a plan may start now: by the store's cookies, and in a frozen flat root after its thaw alone."""

import pytest

from backends.memory import MemoryStore
from backends.protocols import Write
from backends.registry import OpenStore
from reconcile.cli.wording.starts import AFTER_THAW, list_starts
from reconcile.jobs import starts
from reconcile.jobs.starts import BookieStarts, decide_starts_now
from reconcile.plan.bookie_starts import KnownBookie, Source, hash_cookie
from reconcile.plan.manifest import PlanBinding, PlanManifest
from reconcile.write.freezing.freeze_state import FreezeState, State

WHOLE = KnownBookie("a:1", Source.DISKS, complete=True, cookie=hash_cookie(b"own"))


def opened_with(cookie: bytes, layout: str) -> OpenStore:
    """Return a store that has the cookie of a bookie."""
    store = MemoryStore()
    store.write([Write("/ledgers/cookies/a:1", cookie)])
    return OpenStore(store, "/ledgers", layout, "zk://h:1/ledgers")


@pytest.mark.parametrize("layout", ["flat", "hierarchical"])
@pytest.mark.parametrize("state", [State.FROZEN, State.THAWED])
def test_no_bookie_starts_in_a_frozen_flat_root(monkeypatch: pytest.MonkeyPatch, layout: str, state: State) -> None:
    """Its ledgers are in the root itself, which no bookie can read; of other layouts bookies start while frozen."""
    monkeypatch.setattr(starts, "read_freeze_state", lambda *_: FreezeState(state))
    manifest = PlanManifest(binding=PlanBinding(layout=layout), bookies=(WHOLE,))
    found = decide_starts_now(manifest, opened_with(b"own", layout))
    assert ([one.may_start for one in found.bookies], found.after_thaw) == (
        [True],
        layout == "flat" and state is State.FROZEN,
    )
    assert "1 of 1 bookie may start only after bkmeta thaw" in next(list_starts(found.bookies, AFTER_THAW))


def test_a_plan_that_knows_no_bookies_asks_and_says_nothing() -> None:
    """As one of `undelete`, which changes no cookie."""
    found = decide_starts_now(PlanManifest(), opened_with(b"own", "hierarchical"))
    assert found == BookieStarts()
    assert not list(list_starts(found.bookies, "now"))
