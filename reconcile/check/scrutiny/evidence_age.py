"""The age of inventories, compared with the store's records: the last transaction of the store before each began.

    what the inventory says                 its age
    a transaction of this store             that one
    only when it began                      the last transaction until then, where a backup of the store has it; that
                                            time, where the store keeps times; else the newest transaction that an
                                            earlier run had read by then
    a transaction that the store never had  likewise: the store went back since
    neither                                 none: no record can be said to be older

Clocks are allowed to differ by `CLOCK_SKEW`. A bookie that was stopped when it was collected, and does not run now, may
have run between: where its inventory names a transaction, that is its age.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

import pyarrow as pa

from reconcile.rules.segments.copy_findings import CLOCK_SKEW

_TABLE: Final = "table"


@dataclass(frozen=True, slots=True)
class Moment:
    """A transaction that a store had by some time."""

    txn: int
    time: datetime

    @classmethod
    def from_json(cls, fields: list[Any]) -> Self:
        """Return the object from the values of `to_json`."""
        return cls(int(fields[0]), datetime.fromisoformat(fields[1]))

    def to_json(self) -> list[Any]:
        """Return it as a manifest keeps it."""
        return [self.txn, self.time.isoformat()]


def find_ages(
    bookies: pa.Table, registered: Collection[str], moments: Iterable[Moment], newest: int | None
) -> dict[str, int | None]:
    """Return the bookies with inventories that may be older than records: each with the transaction before its begin.

    Args:
        bookies: BOOKIES of inventories that were made before the store was read.
        registered: bookies that run; of one that was stopped in good order and is none of them, an inventory that names
            no transaction counts as new.
        moments: what is known of the store's past; of earlier runs none where the store keeps times: these say it
            better.
        newest: the store's last transaction that was read; None: it counts none.

    Returns:
        None: only the time of its begin is known.
    """
    known = sorted(moments, key=lambda moment: moment.txn, reverse=True)
    ages: dict[str, int | None] = {}
    for row in bookies.select(["bookie", "mode", "dirty", "started", "as_of"]).to_pylist():
        is_down = row["dirty"] is False and row["bookie"] not in registered
        # Of a table nothing is believed to be missing, however old it is.
        if row["mode"] == _TABLE or (is_down and row["as_of"] is None):
            continue
        age = row["as_of"]
        if age is not None and newest is not None and age > newest:
            age = None
        if age is None:
            latest = find_latest(row["started"])
            age = next((moment.txn for moment in known if moment.time <= latest), None)
        ages[row["bookie"]] = age
    return ages


def find_latest(started: datetime) -> datetime:
    """Return the time before which, by any clock, changes of the store precede an inventory that began at a time."""
    return started - CLOCK_SKEW
