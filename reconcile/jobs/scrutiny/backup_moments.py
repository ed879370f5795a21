"""Which transaction a store had by when, as a backup knows it: it places inventories among the store's changes."""

from collections.abc import Iterable
from datetime import datetime

from reconcile.check.scrutiny.evidence_age import Moment, find_latest
from recovery.dataset import Dataset


def read_backup_moments(uri: str, starts: Iterable[datetime], catalog: Dataset, *, keeps_times: bool) -> list[Moment]:
    """Return the last transaction that a backup has from before each of some times; none where it begins later.

    Args:
        uri: of the backup.
        starts: when inventories began.
        catalog: of the store. A transaction that is newer than this says nothing of it.
        keeps_times: whether the store keeps times: these say more than a backup that ends before an inventory.

    Raises:
        DatasetError: no backup, or a damaged one.
        InputError: the URI names something else, or the backup is of another store.
    """
    from reconcile.jobs.backup_history import open_history  # noqa: PLC0415 - loaded for backups alone
    from recovery.backup.point import find_last_txn  # noqa: PLC0415 - loaded for backups alone

    backup = open_history(uri, catalog)
    newest = catalog.manifest["coverage"]["txn"]
    times = {time: int(time.timestamp() * 1000) for time in map(find_latest, starts)}
    reached = {time: at_ms for time, at_ms in times.items() if at_ms <= backup.manifest.until_ms or not keeps_times}
    last = ((find_last_txn(backup, at_ms), time) for time, at_ms in sorted(reached.items()))
    return [Moment(txn, time) for txn, time in last if txn is not None and (newest is None or txn <= newest)]
