"""One bookie's disks into an inventory."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import pyarrow.compute as pc

from reconcile.jobs.context import Context, connect, throttle
from recovery.collect import pipeline
from recovery.collect.options import CollectOptions, CollectSummary
from recovery.dataset import Dataset, open_dataset
from recovery.errors import InputError, Reason
from recovery.model.ids import LedgerId
from recovery.place import DatasetPlace

_SHOWN: Final = 3
"""Places of damage of each rank."""


@dataclass(frozen=True, slots=True)
class DamagePlace:
    """A place of a bookie's disks that is damaged.

    Attributes:
        file: the file, or the folder of a disk.
        offset: in it; None: all of it.
        reason: what is wrong.
        detail: more of it; empty: nothing.
        ledger: whose it is; None: not known.
    """

    file: str
    offset: int | None
    reason: str
    detail: str
    ledger: LedgerId | None


@dataclass(frozen=True, slots=True)
class BookieDamage:
    """What is damaged of a bookie's disks.

    Attributes:
        reasons: how many places of each, the most first.
        places: the first of each rank: disks, what hides entries, the rest.
        suspect: folders whose disks are suspect.
    """

    reasons: Mapping[str, int]
    places: tuple[DamagePlace, ...]
    suspect: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CollectedBookie:
    """What came of a collection.

    Attributes:
        summary: of the inventory.
        damage: what is damaged.
    """

    summary: CollectSummary
    damage: BookieDamage


def collect_bookie(options: CollectOptions, out: DatasetPlace, context: Context) -> CollectedBookie:
    """Read one bookie's disks into an inventory.

    Raises:
        InputError: folders that are no bookie's.
        DatasetError: the folder cannot be written.
        DiskError: its disk is full.
    """
    with context.reporter.progress("collecting", "bytes") as progress:
        show = throttle(progress)
        summary = pipeline.collect(
            options,
            out,
            now=context.now,
            progress=lambda p: show(p.bytes or p.files, p.bytes_total or p.files_total, p.stage),
        )
    damage = read_damage(open_dataset(out, "inventory")) if summary.damaged else BookieDamage({}, (), ())
    return CollectedBookie(summary, damage)


def read_latest_txn(uri: str, context: Context) -> int | None:
    """Return the last transaction, or revision, of a running store: what ended before this call is in it.

    Raises:
        UnsupportedStoreError: the URI is malformed, or of a store that is not read.
        InputError: it is of a copy, which says nothing of now.
        UnavailableError: the store does not answer.
    """
    from backends.protocols import LiveStore, ScannableStore  # noqa: PLC0415 - a bookie is collected without a store
    from backends.registry import parse_store_uri  # noqa: PLC0415 - likewise

    if not parse_store_uri(uri).is_live:
        raise InputError(uri, "is a copy of a store, and does not say where the store is now", "name the running store")
    with connect(uri, context) as opened:
        store = opened.store
        if isinstance(store, LiveStore):
            return store.latest_txn()
        return store.point().txn if isinstance(store, ScannableStore) else None


def read_damage(inventory: Dataset) -> BookieDamage:
    """Return how much is damaged, and where the first places are."""
    reasons: Counter[str] = Counter()
    disk = pc.field("reason") == Reason.SUSPECT_DISK.value
    suspect: list[str] = []
    for batch in inventory.batches("damage"):
        reasons.update({row["values"]: row["counts"] for row in batch["reason"].value_counts().to_pylist()})
        suspect += batch.filter(disk)["file"].to_pylist()
    return BookieDamage(dict(reasons.most_common()), tuple(_first_places(inventory)), tuple(suspect))


def _first_places(inventory: Dataset) -> Iterator[DamagePlace]:
    disk = pc.field("reason") == Reason.SUSPECT_DISK.value
    file, hides = pc.is_null(pc.field("ledger")), pc.field("hides_entries")
    ranks = (disk, file & hides, ~file & hides, ~disk & file & ~hides, ~file & ~hides)
    for rank in ranks:
        rows = (row for batch in inventory.batches("damage") for row in batch.filter(rank).slice(0, _SHOWN).to_pylist())
        yield from map(_place, islice(rows, _SHOWN))


def _place(row: Mapping[str, Any]) -> DamagePlace:
    ledger = None if row["ledger"] is None else LedgerId(row["scope"], row["ledger"])
    return DamagePlace(row["file"], row["offset"], row["reason"], row["detail"] or "", ledger)
