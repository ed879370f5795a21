"""Which bookies of a plan may start now: by the store's cookies, and in a frozen flat root after its thaw alone."""

from pathlib import Path

import pytest

from backends.protocols import Write
from backends.registry import OpenStore
from reconcile.cli.wording.starts import AFTER_THAW, list_starts
from reconcile.jobs import starts
from reconcile.jobs.starts import BookieStarts, decide_starts_now
from reconcile.plan.bookie_starts import BookieSource, KnownBookie, hash_cookie
from reconcile.plan.manifest import PlanBinding, PlanManifest
from reconcile.write.freezing.freeze_state import FreezeExtent, FreezeState
from recovery.codecs.cookie import Cookie, encode
from recovery.dataset import open_dataset
from recovery.errors import InputError
from recovery.infer.lost_disks import LostDisk
from tests.support.inventories import write_inventory
from tests.support.memory_store import MemoryStore

WHOLE = KnownBookie("a:1", BookieSource.DISKS, complete=True, cookie=hash_cookie(b"own"))


def opened_with(cookie: bytes, layout: str) -> OpenStore:
    """Return a store that has the cookie of a bookie."""
    store = MemoryStore()
    store.write([Write("/ledgers/cookies/a:1", cookie)])
    return OpenStore(store, "/ledgers", layout, "zk://h:1/ledgers")


@pytest.mark.parametrize("layout", ["flat", "hierarchical"])
@pytest.mark.parametrize("state", [FreezeExtent.FROZEN, FreezeExtent.THAWED])
def test_no_bookie_starts_in_a_frozen_flat_root(
    monkeypatch: pytest.MonkeyPatch, layout: str, state: FreezeExtent
) -> None:
    """Its ledgers are in the root itself, which no bookie can read; of other layouts bookies start while frozen."""
    monkeypatch.setattr(starts, "read_freeze_state", lambda *_: FreezeState(state))
    manifest = PlanManifest(binding=PlanBinding(layout=layout), bookies=(WHOLE,))
    found = decide_starts_now(manifest, opened_with(b"own", layout))
    assert ([one.may_start for one in found.bookies], found.after_thaw) == (
        [True],
        layout == "flat" and state is FreezeExtent.FROZEN,
    )
    assert "1 of 1 bookie may start only after bkmeta thaw" in next(list_starts(found.bookies, AFTER_THAW))
    [told] = found.to_json()
    assert told["may_start"] is not found.after_thaw
    assert ("thaw first" in told["reason"], told["is_kept_out"]) == (found.after_thaw, found.after_thaw)


def test_a_plan_that_knows_no_bookies_asks_and_says_nothing() -> None:
    """As one of `undelete`, which changes no cookie."""
    found = decide_starts_now(PlanManifest(), opened_with(b"own", "hierarchical"))
    assert found == BookieStarts()
    assert not list(list_starts(found.bookies, "now"))


def test_which_bookies_of_inventories_may_start(tmp_path: Path) -> None:
    """By what inventories and the store's cookies say, as a plan says it: whole, lost, without cookie, never seen."""
    own = {name: encode(Cookie(5, name, ("/j",), ("/l",))) for name in ("a:1", "b:1", "c:1")}
    store = MemoryStore()
    store.write([Write(f"/ledgers/cookies/{name}", raw) for name, raw in own.items()])
    inventories = [
        open_dataset(write_inventory(tmp_path / name[0], name, (), instance="i", cookie=own.get(name)), "inventory")
        for name in ("a:1", "d:1")
    ]
    lost = (LostDisk("c:1"), LostDisk("e:1"))
    known = starts.list_known(store, "/ledgers", inventories, lost)
    found = starts.decide_starts_of(known, store, "/ledgers", after_thaw=False)
    assert [one["bookie"] for one in found.to_json() if one["may_start"]] == ["a:1"]
    assert {one.bookie: one.reason for one in found.bookies if not one.may_start} == {
        "b:1": "it was not collected",
        "c:1": "its disks are stated to be lost",
        "d:1": "the store has no cookie of it",
        "e:1": "its disks are stated to be lost, the store has no cookie of it",
    }
    assert "it starts if its folders are all there" in found.bookies[0].keeping
    with pytest.raises(InputError):
        starts.list_known(store, "/ledgers", inventories, (LostDisk("a:1"),))
