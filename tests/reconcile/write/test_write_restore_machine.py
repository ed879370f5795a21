"""Whatever happens between a plan and its undo: nobody's bytes are lost, nothing takes effect twice, undo is exact."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from backends.protocols import Write
from reconcile.write import audit_journal
from reconcile.write.freezing import freeze
from tests.support.memory_store import MemoryStore
from tests.support.restores import Schedule

pytestmark = pytest.mark.long

SCHEDULES: Final = int(os.environ.get("BKMETA_SOAK_SCHEDULES", "250"))
ROOT: Final = "/ledgers"


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_disks() -> Iterator[None]:
    """A killed process loses nothing that it wrote, synced or not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


def frozen_store(folder: Path) -> MemoryStore:
    """Return a store whose root is frozen."""
    store = MemoryStore()
    store.write([Write(f"{ROOT}/idgen", b"")])
    now = datetime(2026, 1, 1, tzinfo=UTC)
    with audit_journal.AuditJournal.open(
        folder, freeze.make_binding(ROOT), resume=True, now=lambda: now, replay=lambda _record: None
    ) as journal:
        freeze.carry_out(freeze.propose_freeze(store, ROOT, "digest:tool:aGFzaGhhc2g="), store, journal)
    return store


@pytest.mark.timeout(3600)
def test_random_schedules() -> None:
    """Plans over what is there, killed, cut off, raced, resumed, undone: each schedule keeps every promise."""
    with TemporaryDirectory() as folder:
        for seed in range(SCHEDULES):
            store = frozen_store(Path(folder, f"freeze-{seed}"))
            try:
                Schedule(store, ROOT, Path(folder, f"{seed}"), seed, undoable=True).run()
            except BaseException as error:
                error.add_note(f"schedule {seed}")
                raise
