"""Mounted disks of several bookies into inventories, a task of Spark for each bookie."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reconcile.plan.actions import Passwords
from recovery.collect.disk.folders import list_folders_in, survey
from recovery.collect.options import CollectOptions
from recovery.collect.pipeline import collect
from recovery.errors import InputError
from recovery.place import DatasetPlace
from recovery.spark import over_buckets

if TYPE_CHECKING:
    from recovery.spark import SparkSession

_NAMED: Final = 16


def see(disks: Mapping[str, Sequence[Path]]) -> None:
    """Check that folders are those of the bookies that they were given for; nothing is read yet.

    Raises:
        InputError: they are not, or are not there.
    """
    for bookie, folders in disks.items():
        surveyed = survey(_expand(folders), (), (), bookie)
        if surveyed.bookie != bookie:
            problem = f"was given for {bookie}, and its cookie is that of {surveyed.bookie}"
            raise InputError(str(folders[0]), problem, f"name {surveyed.bookie} as its bookie")


def collect_all(
    disks: Mapping[str, Sequence[Path]],
    passwords: Passwords,
    out: DatasetPlace,
    spark: "SparkSession",
    *,
    now: Callable[[], datetime],
    progress: Callable[[int, int], None],
) -> list[str]:
    """Collect every bookie into a folder of its own below `out`, and return these folders.

    Args:
        disks: folders of each bookie, mounted wherever a task may run.
        passwords: that may have made HMACs.
        out: a new folder.
        spark: runs one task a bookie.
        now: the clock.
        progress: called with how many bookies of how many are done.

    Raises:
        DatasetError: an inventory cannot be written.
        SparkError: Spark failed.
    """
    # Tasks are run where Spark's workers were started.
    out = out.absolute()
    asked = [(bookie, tuple(folder.absolute() for folder in folders)) for bookie, folders in disks.items()]
    # An id may hold what no file name should.
    folders = [out / hashlib.sha256(bookie.encode()).hexdigest()[:_NAMED] for bookie, _ in asked]
    out.mkdir(mode=0o700, parents=True, exist_ok=True)

    def task(number: range) -> Mapping[str, bool]:
        bookie, mounted = asked[number.start]
        options = CollectOptions(_expand(mounted), bookie_id=bookie, passwords=passwords.values)
        return {"complete": collect(options, folders[number.start], now=now, progress=lambda _: None).complete}

    over_buckets(spark, task, [range(n, n + 1) for n in range(len(asked))], done=progress)
    return [str(folder) for folder in folders]


def _expand(given: Sequence[Path]) -> tuple[Path, ...]:
    """Return folders of a bookie, those in place of one that they are in."""
    return tuple(folder for path in given for folder in list_folders_in(path))
