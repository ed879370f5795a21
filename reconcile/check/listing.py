"""The ledgers that a store lists, compared with those on bookies' disks: which ones garbage collection would delete.

Names are listed, no record is read: one request for each folder, several at a time. A listing is not believed where it
leaves something out: a folder that is named above and cannot be listed makes it incomplete, and a ledger that bookies
hold is asked for by its key before it is called absent.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from backends.errors import AccessDeniedError
from backends.protocols import MetadataStore
from recovery.capture.ledger_tree import LISTINGS_IN_FLIGHT, LedgerTree, TreePiece, Unlisted, sort_root_names
from recovery.codecs.keys import ledger_keys, ledgers_of
from recovery.codecs.store import (
    Layout,
    find_placeless,
)
from recovery.dataset import Dataset
from recovery.model.ids import BUCKETS, LedgerId

_READ_AT_ONCE: Final = 8_192


_BUCKETS_AT_ONCE: Final = 256


KEYS: Final = pa.schema([pa.field("scope", pa.int64()), pa.field("ledger", pa.int64())])


EXAMPLES: Final = 5


@dataclass(frozen=True, slots=True)
class StoreListing:
    """The listing of a store.

    Attributes:
        ids: scope and ledger.
        complete: whether every folder was listed.
        denied: folders that may not be listed.
        late: whether the time ran out.
        lost: folders that are named by the one above them, and are not there when they are listed.
    """

    ids: pa.Table
    complete: bool
    denied: tuple[str, ...] = ()
    late: bool = False
    lost: tuple[str, ...] = ()

    @property
    def ledgers(self) -> int:
        """How many there are; at least, where the listing is not complete."""
        return int(self.ids.num_rows)


def list_ledgers(store: MetadataStore, root: str, layout: Layout, *, within_s: float = float("inf")) -> StoreListing:
    """List the ledgers of a store within a time limit.

    Raises:
        AccessDeniedError: the root itself may not be listed.
        UnavailableError: the store does not answer.
    """
    unlisted: dict[Unlisted, list[str]] = {reason: [] for reason in Unlisted}
    with ThreadPoolExecutor(LISTINGS_IN_FLIGHT, thread_name_prefix="listing") as pool:
        tree = LedgerTree(store, root, pool, lambda key, reason: unlisted[reason].append(key))
        names = sort_root_names(layout, tree.list_root())
        ids = _read_ids(layout, tree.walk(layout, names, within_s=within_s))
    complete = not any(unlisted.values()) and not tree.is_late
    return StoreListing(ids, complete, tuple(unlisted[Unlisted.DENIED]), tree.is_late, tuple(unlisted[Unlisted.LOST]))


def _read_ids(layout: Layout, pieces: Iterable[TreePiece]) -> pa.Table:
    """Return scope and ledger of all ledgers with a key among pieces of a tree."""
    tables = [KEYS.empty_table()]
    keys: list[str] = []
    for piece in chain(pieces, [None]):
        keys += piece.keys if piece is not None else ()
        if len(keys) >= _READ_AT_ONCE or piece is None:
            ledgers = ledgers_of(layout, pa.array(keys, pa.string()))
            tables.append(pa.table([ledgers.scope, ledgers.ledger], schema=KEYS))
            keys.clear()
    return pa.concat_tables(tables).combine_chunks()


def list_known_ledgers(inventories: Iterable[Dataset]) -> Iterator[pa.Table]:
    """Yield scope and ledger of everything that bookies hold, each at least once, bucket range by bucket range.

    Raises:
        DatasetError: an inventory is damaged.
    """
    datasets = [*inventories]
    for low in range(0, BUCKETS if datasets else 0, _BUCKETS_AT_ONCE):
        part = range(low, low + _BUCKETS_AT_ONCE)
        yield pa.concat_tables(one.read("copies", columns=KEYS.names, buckets=part) for one in datasets)


def require_each(store: MetadataStore, root: str, layout: Layout, ids: pa.Table) -> npt.NDArray[np.bool_]:
    """Mark ledgers that have a record when asked for by key; a record that may not be read counts as there.

    Args:
        store: only read.
        root: of the ledgers.
        layout: of the store.
        ids: scope and ledger; ledgers without a place in the layout count as absent.

    Raises:
        UnavailableError: the store does not answer.
    """
    scope, ledger = (ids[name].to_numpy() for name in KEYS.names)
    there = np.zeros(len(scope), np.bool_)
    fits = np.flatnonzero(~find_placeless(layout, scope, ledger))
    for start in range(0, len(fits), _READ_AT_ONCE):
        batch = fits[start : start + _READ_AT_ONCE]
        keys = [root + key for key in ledger_keys(layout, scope[batch], ledger[batch]).to_pylist()]
        try:
            there[batch] = [node is not None for _, node in store.get_many(keys)]
        except AccessDeniedError:
            there[batch] = [_is_there(store, key) for key in keys]
    return there


def _is_there(store: MetadataStore, key: str) -> bool:
    try:
        return store.get(key) is not None
    except AccessDeniedError:
        return True


def list_ledgers_on_bookies(inventories: Sequence[Dataset]) -> pa.Table:
    """Return scope and ledger of everything that bookies hold, each once.

    Raises:
        DatasetError: an inventory is damaged.
    """
    parts = [KEYS.empty_table()]
    for inventory in inventories:
        rows = inventory.read("copies", columns=KEYS.names)
        parts.append(rows.cast(KEYS).group_by(KEYS.names).aggregate([]))
    return pa.concat_tables(parts).group_by(KEYS.names).aggregate([])


def absent_ledgers(held: pa.Table, listing: StoreListing) -> pa.Table:
    """Return the ledgers that bookies hold and the store does not list, ascending."""
    absent: pa.Table = held.join(listing.ids, KEYS.names, join_type="left anti")
    return absent.sort_by([(name, "ascending") for name in KEYS.names])


def examples(ids: pa.Table) -> list[str]:
    """Return some ledgers as text, the first of a table."""
    return [str(LedgerId(row["scope"], row["ledger"])) for row in ids.slice(0, EXAMPLES).to_pylist()]


def instances(inventories: Sequence[Dataset]) -> Iterator[tuple[str, str | None]]:
    """Yield each bookie of the inventories with the instance id of its cookie."""
    for inventory in inventories:
        for row in inventory.read("bookies", columns=["bookie", "instance_id"]).to_pylist():
            yield row["bookie"], row["instance_id"]
