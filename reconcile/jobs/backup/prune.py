"""A backup without what is older than wanted: the chain goes on with the last base before that."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from reconcile.jobs.context import Context
from recovery.backup.chain import BackupWriter, open_backup
from recovery.backup.encryption import Recipient
from recovery.place import DatasetPlace

_MS: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Pruned:
    """What is gone.

    Attributes:
        links: of the chain.
        strays: files that no manifest named.
        first: transaction that can be restored first; None: there is no base.
    """

    links: int
    strays: int
    first: int | None


def prune_backup(place: DatasetPlace, keep: timedelta, keep_bases: int, context: Context) -> Pruned:
    """Forget what is older than wanted; what a reader may still read goes a quarter of an hour later.

    Args:
        place: the backup's folder.
        keep: every point in time of so long stays.
        keep_bases: so many bases stay in any case, at least one.
        context: the clock.

    Raises:
        BackupTakenError: a follower wrote at the same time; run it again.
        DatasetError: there is no backup, or the folder cannot be written.
    """
    manifest = open_backup(place).manifest
    tool = manifest.encryption
    # Nothing new is encrypted here.
    recipient = None if tool is None else Recipient(tool, "")
    writer = BackupWriter(place, dict(manifest.binding), recipient)
    now_ms = int(context.now().timestamp() * 1000)
    links = forget_before(writer, keep, keep_bases, now_ms)
    strays = writer.remove_strays(now_ms)
    kept = writer.manifest.bases
    return Pruned(links, strays, min((base.txn for base in kept), default=None))


def forget_before(writer: BackupWriter, keep: timedelta, keep_bases: int, now_ms: int) -> int:
    """Forget what is older than wanted; return how many links are gone.

    Args:
        writer: of the backup.
        keep: every point in time of so long stays.
        keep_bases: so many bases stay in any case, at least one.
        now_ms: the time.
    """
    bases = sorted(writer.manifest.bases, key=lambda base: base.until_ms)
    horizon_ms = now_ms - int(keep / _MS)
    # The last base before the horizon is what everything behind it is made of.
    old = [base for base in bases[: len(bases) - max(1, keep_bases) + 1] if base.until_ms <= horizon_ms]
    return writer.drop_before(old[-1].txn, now_ms) if old else 0
