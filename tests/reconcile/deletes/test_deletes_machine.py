"""Whatever happens to deletes: nothing goes without a certificate, no tombstone is lost, an undo is exact."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from recovery.codecs.store import Layout
from tests.support.delete_schedules import World
from tests.support.memory_store import MemoryStore

pytestmark = pytest.mark.long

SCHEDULES: Final = int(os.environ.get("BKMETA_SOAK_DELETES", "500"))
SEED: Final = int(os.environ.get("BKMETA_SOAK_SEED", "0"))
STEPS: Final = 30
SHARES: Final = max(SCHEDULES // 1000, 1)
"""Tests that the schedules are dealt to, so that several processes play them."""


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_disks() -> Iterator[None]:
    """A killed process loses nothing that it wrote, synced or not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.mark.timeout(36000)
@pytest.mark.parametrize("share", range(SHARES))
def test_random_schedules_of_deletes(share: int) -> None:
    """Requests, verifications, purges, undos, receipts, with crashes, rivals, bookies that go, return or are wiped."""
    counts: Counter[str] = Counter()
    with TemporaryDirectory() as folder:
        for seed in range(SEED + share, SEED + SCHEDULES, SHARES):
            world = World(MemoryStore(), "/ledgers", Path(folder, str(seed)), seed, Layout.HIERARCHICAL)
            try:
                world.run(STEPS)
            except BaseException as error:
                error.add_note(f"schedule {seed}")
                raise
            counts += world.counts
    # A schedule in which nothing is ever deleted would show nothing.
    dealt = SCHEDULES // SHARES
    assert counts["purged"] > dealt // 6
    assert counts["expired"] > dealt // 20
    assert counts["held to the end"] > dealt // 20
    assert counts["put back"] > dealt // 20
    assert counts["meddled"] > dealt // 4
