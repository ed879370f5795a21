"""Which transaction a store had by when, by a backup that ends before the inventories began."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reconcile.check.scrutiny.evidence_age import Moment
from reconcile.jobs.scrutiny.backup_moments import read_backup_moments
from reconcile.rules.segments.copy_findings import CLOCK_SKEW
from recovery.backup.chain import BackupWriter
from recovery.capture.live import capture
from recovery.dataset import DatasetWriter, open_dataset
from tests.support.backups import BINDING, LAYOUT_USED, ROOT, FollowedMemory, name_ledger, seal_all, write_base


@pytest.mark.parametrize("keeps_times", [True, False])
def test_a_backup_that_ends_before_an_inventory_counts_only_where_the_store_keeps_no_times(
    keeps_times: bool, tmp_path: Path
) -> None:
    """Its last transaction is old: records that changed since would be undecided, though their times are known."""
    store = FollowedMemory()
    writer = BackupWriter(tmp_path / "backup", BINDING)
    write_base(writer, store)
    store.put(name_ledger(1), b"x")
    seal_all(writer, store)
    with DatasetWriter(tmp_path / "catalog", "catalog", binding={"root": ROOT}) as out:
        capture(store, ROOT, LAYOUT_USED, out, clock=lambda: datetime.now(UTC), with_history=False)
    end = datetime.fromtimestamp(store.now_ms / 1000, UTC)
    behind = end + timedelta(days=1)
    moments = read_backup_moments(
        f"backup:{tmp_path / 'backup'}",
        [end + CLOCK_SKEW, behind + CLOCK_SKEW],
        open_dataset(tmp_path / "catalog", "catalog"),
        keeps_times=keeps_times,
    )
    assert moments == [Moment(store.txn, end), *([] if keeps_times else [Moment(store.txn, behind)])]
