"""What a verification goes by: listings of references, inventories of bookies, and what these hold of some ledgers."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.deletes.tombstones import Sighting
from reconcile.deletes.verification.wanted import Ints, WantedLedgers
from reconcile.references import References
from recovery.dataset import Dataset
from recovery.model.ids import to_signed

Mask = npt.NDArray[np.bool_]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WIRE: Final = "wire"
_LOG: Final = "log"
_COLUMNS: Final = ("entries", "last", "complete", "explicit_lac", "headers")


@dataclass(frozen=True, slots=True)
class ReferenceListing:
    """One listing of what upper layers refer to.

    Attributes:
        references: None: no upper layer was named.
        at_ms: when it was made, ms since 1970; of a file, when that was written; the earliest of several.
        problem: why it is not complete; empty: it is.
        is_stated: a file is among what was read: somebody says that nothing else is referred to.
        read_topics: topics whose compacted ledger was read from bookies, where no record names it.
        has_pravega: the records of Pravega's containers are among what was read.
    """

    references: References | None
    at_ms: int
    problem: str = ""
    is_stated: bool = True
    read_topics: frozenset[str] = frozenset()
    has_pravega: bool = False


@dataclass(frozen=True, slots=True)
class InventoryLook:
    """One bookie as one inventory shows it.

    Attributes:
        bookie, incarnation: whose it is; over the wire its registration counts to the latter.
        is_wire: asked over the wire: it is complete for each ledger that was answered.
        complete: of disks: what is not in it is not there.
        started_ms, ended_ms: when it was made.
        cookie: of the bookie; None: it had none.
        formatted_ms: when the youngest of its folders was formatted; None: not known.
        source: the inventory's digest.
    """

    bookie: str
    incarnation: int
    is_wire: bool
    complete: bool
    started_ms: int
    ended_ms: int
    cookie: bytes | None
    formatted_ms: int | None
    source: str


@dataclass(frozen=True, slots=True)
class Holdings:
    """What bookies hold of wanted ledgers; matrices are of ledgers by looks.

    Attributes:
        looks: of each bookie the last.
        holds: it has the ledger: in its index, or in a journal that it may replay.
        answered: what it has, or that it has nothing, is wholly known.
        last: its last entry; -1: none.
        entries: how many entries it has.
        lac: the largest LAC that its entries, or an explicit LAC, show; -1: none.
    """

    looks: list[InventoryLook]
    holds: Mask
    answered: Mask
    last: Ints
    entries: Ints
    lac: Ints

    def number_bookies(self) -> Mapping[str, int]:
        """Return the number of each bookie's look."""
        return {look.bookie: number for number, look in enumerate(self.looks)}


def read_looks(inventories: Sequence[Dataset]) -> list[tuple[InventoryLook, Dataset]]:
    """Return the last inventory of each bookie.

    Raises:
        DatasetError: one is damaged.
    """
    looks: dict[str, tuple[InventoryLook, Dataset]] = {}
    for inventory in inventories:
        for row in inventory.read("bookies").to_pylist():
            look = _read_look(row, inventory.digest)
            known = looks.get(look.bookie)
            if known is None or known[0].ended_ms < look.ended_ms:
                looks[look.bookie] = (look, inventory)
    return [looks[bookie] for bookie in sorted(looks)]


def _read_look(row: Mapping[str, Any], source: str) -> InventoryLook:
    times = [file["born"] or file["mtime"] for file in row["version_files"]]
    return InventoryLook(
        row["bookie"],
        _number_session(row) if row["mode"] == _WIRE else row["incarnation"],
        row["mode"] == _WIRE,
        row["complete"],
        to_ms(row["started"]),
        to_ms(row["ended"]),
        row["cookie"],
        to_ms(max(times)) if times else None,
        source,
    )


def _number_session(row: Mapping[str, Any]) -> int:
    """Return the number of a life that was only seen over the wire.

    An inventory's own number leaves out when the bookie registered: a wiped one that came back has the same. Here it
    counts, so that after a restart only disks can show that it is the same life.
    """
    evidence = "\n".join(sorted(f"{item['kind']}={item['value']}" for item in row["incarnation_evidence"]))
    return to_signed(int.from_bytes(hashlib.sha256(evidence.encode()).digest()[:8]))


def gather_holdings(inventories: Sequence[Dataset], wanted: WantedLedgers) -> Holdings:
    """Return what the inventories say about the wanted ledgers.

    Raises:
        DatasetError: one is damaged.
    """
    pairs = read_looks(inventories)
    shape = (len(wanted), len(pairs))
    holds, whole, hidden = np.zeros(shape, np.bool_), np.ones(shape, np.bool_), np.zeros(shape, np.bool_)
    last, lac = np.full(shape, -1), np.full(shape, -1)
    entries = np.zeros(shape, np.int64)
    for number, (look, inventory) in enumerate(pairs):
        for copies, numbers in wanted.read(inventory, "copies", ("bookie", "source", *_COLUMNS)):
            # What only entry logs have is served to nobody: the bookie deleted the ledger, or never indexed it.
            served = pc.and_(pc.equal(copies["bookie"], look.bookie), pc.not_equal(copies["source"], _LOG))
            own = served.to_numpy(zero_copy_only=False)
            rows, ledger_numbers = copies.filter(pa.array(own)).combine_chunks(), numbers[own]
            holds[ledger_numbers, number] = True
            # A ledger has several rows: one of them that is not complete is enough.
            np.logical_and.at(whole[:, number], ledger_numbers, rows["complete"].to_numpy(zero_copy_only=False))
            np.maximum.at(last[:, number], ledger_numbers, _fill(rows["last"]))
            # Each row lists only what the others of its ledger lack.
            np.add.at(entries[:, number], ledger_numbers, rows["entries"].to_numpy(zero_copy_only=False))
            np.maximum.at(lac[:, number], ledger_numbers, _read_lac(rows))
        _mark_hidden(inventory, look, wanted, hidden[:, number])
        if look.is_wire:
            hidden[:, number] |= wanted.scope != 0
    believed = np.array([look.is_wire or look.complete for look, _ in pairs], np.bool_)
    answered = np.where(holds, whole, believed[None, :]) & ~hidden
    return Holdings([look for look, _ in pairs], holds, answered, last, entries, lac)


def list_sightings(holdings: Holdings, number: int) -> list[Sighting]:
    """Return what looks that are sure say about one ledger."""
    return [
        Sighting(
            look.bookie,
            look.incarnation,
            bool(holdings.holds[number, n]),
            look.started_ms if not holdings.holds[number, n] else look.ended_ms,
            f"inventory {look.source[:16]}",
            look.formatted_ms,
            int(holdings.entries[number, n]) if holdings.holds[number, n] else None,
        )
        for n, look in enumerate(holdings.looks)
        if holdings.holds[number, n] or holdings.answered[number, n]
    ]


def to_ms(time: datetime) -> int:
    """Return a time as ms since 1970."""
    return (time - _EPOCH) // timedelta(milliseconds=1)


def _fill(column: Any) -> Ints:  # noqa: ANN401 - an Arrow column
    numbers: Ints = pc.fill_null(column, -1).to_numpy(zero_copy_only=False)
    return numbers


def _read_lac(rows: pa.Table) -> Ints:
    """Return the largest LAC that each row shows; -1: none."""
    largest = _fill(rows["explicit_lac"]).copy()
    headers = rows["headers"].combine_chunks()
    parents = pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)
    values = headers.flatten()
    if len(values):
        np.maximum.at(largest, parents, values.field("lac").to_numpy(zero_copy_only=False))
    return largest


def _mark_hidden(inventory: Dataset, look: InventoryLook, wanted: WantedLedgers, hidden: Mask) -> None:
    """Mark the ledgers of which a bookie did not say all, as its damage tells."""
    rows = inventory.read("damage", columns=["bookie", "scope", "ledger", "hides_entries"])
    rows = rows.filter(pc.and_(pc.equal(rows["bookie"], look.bookie), rows["hides_entries"]))
    if pc.any(pc.is_null(rows["ledger"])).as_py() and look.is_wire:
        hidden[:] = True
    named = rows.filter(pc.is_valid(rows["ledger"]))
    scope = pc.fill_null(named["scope"], 0).to_numpy(zero_copy_only=False).astype(np.int64)
    numbers = wanted.find(scope, named["ledger"].to_numpy(zero_copy_only=False).astype(np.int64))
    hidden[numbers[numbers >= 0]] = True
