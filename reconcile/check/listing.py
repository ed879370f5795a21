"""The ledgers that a store lists, held against those on bookies' disks: what garbage collection would delete.

Names are listed, no record is read: one request for each folder, several at a time. A listing is not believed where it
leaves something out: a folder that is named above and cannot be listed makes it incomplete, and a ledger that bookies
hold is asked for by its key before it is called absent. `left_out` reads records: a closed one that does not name a
bookie lets the over-replicated check of that bookie delete its copy.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backends.errors import AccessDeniedError
from backends.protocols import MetadataStore
from reconcile.errors import Advice, GuardRefusedError, Remedy
from reconcile.rules import clusters
from recovery.capture.ledger_tree import LISTINGS_IN_FLIGHT, LedgerTree, Piece, Unlisted, sort_root_names
from recovery.codecs.keys import ledger_keys, ledgers_of
from recovery.codecs.ledger_metadata import decode_columns
from recovery.codecs.store import (
    COOKIES,
    INSTANCE_ID,
    LAYOUT,
    REGISTRATIONS,
    Layout,
    placeless,
)
from recovery.dataset import Dataset
from recovery.model.groups import KeyedGroups, from_arrow, next_entry, within
from recovery.model.ids import BUCKETS, LedgerId
from recovery.model.metadata import State
from recovery.spark import bucket_ranges

_READ_AT_ONCE: Final = 8_192
_BUCKETS_AT_ONCE: Final = 256
_KEYS: Final = pa.schema([pa.field("scope", pa.int64()), pa.field("ledger", pa.int64())])
_EXAMPLES: Final = 5
_ENTRIES_AT_ONCE: Final = 1 << 20
_FEW_RUNS: Final = 64


@dataclass(frozen=True, slots=True)
class Listing:
    """What a store lists.

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


def list_ledgers(store: MetadataStore, root: str, layout: Layout, *, within_s: float = float("inf")) -> Listing:
    """List the ledgers of a store, for so many seconds at most.

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
    return Listing(ids, complete, tuple(unlisted[Unlisted.DENIED]), tree.is_late, tuple(unlisted[Unlisted.LOST]))


def _read_ids(layout: Layout, pieces: Iterable[Piece]) -> pa.Table:
    """Return scope and ledger of all whose keys are among pieces of a tree."""
    tables = [_KEYS.empty_table()]
    keys: list[str] = []
    for piece in chain(pieces, [None]):
        keys += piece.keys if piece is not None else ()
        if len(keys) >= _READ_AT_ONCE or piece is None:
            ledgers = ledgers_of(layout, pa.array(keys, pa.string()))
            tables.append(pa.table([ledgers.scope, ledgers.ledger], schema=_KEYS))
            keys.clear()
    return pa.concat_tables(tables).combine_chunks()


def known_ledgers(inventories: Iterable[Dataset]) -> Iterator[pa.Table]:
    """Yield scope and ledger of everything that bookies hold, each at least once, in pieces.

    Raises:
        DatasetError: an inventory is damaged.
    """
    for inventory in inventories:
        for low in range(0, BUCKETS, _BUCKETS_AT_ONCE):
            yield inventory.read("copies", columns=_KEYS.names, buckets=range(low, low + _BUCKETS_AT_ONCE))


def demanded(store: MetadataStore, root: str, layout: Layout, ids: pa.Table) -> npt.NDArray[np.bool_]:
    """Say which ledgers have a record after all, asked for by key; what may not be read counts as there.

    Args:
        store: only read.
        root: of the ledgers.
        layout: of the store.
        ids: scope and ledger; those that the layout has no place for are not there.

    Raises:
        UnavailableError: the store does not answer.
    """
    scope, ledger = (ids[name].to_numpy() for name in _KEYS.names)
    there = np.zeros(len(scope), np.bool_)
    fits = np.flatnonzero(~placeless(layout, scope, ledger))
    for at in range(0, len(fits), _READ_AT_ONCE):
        some = fits[at : at + _READ_AT_ONCE]
        keys = [root + key for key in ledger_keys(layout, scope[some], ledger[some]).to_pylist()]
        try:
            there[some] = [held is not None for _, held in store.get_many(keys)]
        except AccessDeniedError:
            there[some] = [_is_there(store, key) for key in keys]
    return there


def _is_there(store: MetadataStore, key: str) -> bool:
    try:
        return store.get(key) is not None
    except AccessDeniedError:
        return True


def held_ledgers(inventories: Sequence[Dataset]) -> pa.Table:
    """Return scope and ledger of everything that bookies hold, each once.

    Raises:
        DatasetError: an inventory is damaged.
    """
    found = [_KEYS.empty_table()]
    for inventory in inventories:
        rows = inventory.read("copies", columns=_KEYS.names)
        found.append(rows.cast(_KEYS).group_by(_KEYS.names).aggregate([]))
    return pa.concat_tables(found).group_by(_KEYS.names).aggregate([])


def absent_ledgers(held: pa.Table, listing: Listing) -> pa.Table:
    """Return those that bookies hold and the store does not list, ascending."""
    absent: pa.Table = held.join(listing.ids, _KEYS.names, join_type="left anti")
    return absent.sort_by([(name, "ascending") for name in _KEYS.names])


def examples(ids: pa.Table) -> list[str]:
    """Return some ledgers as text, the first of a table."""
    return [str(LedgerId(row["scope"], row["ledger"])) for row in ids.slice(0, _EXAMPLES).to_pylist()]


def instances(inventories: Sequence[Dataset]) -> Iterator[tuple[str, str | None]]:
    """Yield each bookie of the inventories with the instance id of its cookie."""
    for inventory in inventories:
        for row in inventory.read("bookies", columns=["bookie", "instance_id"]).to_pylist():
            yield row["bookie"], row["instance_id"]


def demand_described(store: MetadataStore, root: str, inventories: Sequence[Dataset]) -> None:
    """Refuse a thaw of a store without LAYOUT, without INSTANCEID if bookies may belong to one, or of another cluster.

    Raises:
        GuardRefusedError: one of them is missing, or inventories are of bookies of another cluster.
    """
    known = {bookie: instance for bookie, instance in instances(inventories) if instance is not None}
    for key in (LAYOUT, *([INSTANCE_ID] if known or not inventories else [])):
        if store.get(root + key) is None:
            raise GuardRefusedError(root + key, "is missing: the restore has not ended", "end it with apply first")
    held = store.get(root + INSTANCE_ID)
    stored = clusters.decode_named(held.value if held is not None else None)
    foreign = sorted(bookie for bookie, instance in known.items() if instance != stored)
    if foreign:
        raise GuardRefusedError(
            root + INSTANCE_ID,
            f"the store is of cluster instance {stored}, the inventory of bookie {foreign[0]} is of "
            f"{known[foreign[0]]}: to those bookies every ledger that is not in it is garbage",
            "give the inventories of this cluster's bookies, or restore into their own store",
        )


def demand_restored(
    store: MetadataStore, root: str, layout: Layout, inventories: Sequence[Dataset], *, accept_absent: int = 0
) -> dict[str, int | None]:
    """Refuse a thaw after which bookies would delete what is known to have no record.

    Args:
        store: must be able to list ledgers.
        root: of the ledgers.
        layout: of the store.
        inventories: of the bookies; without them nothing is known of what bookies hold.
        accept_absent: how many ledgers without a record somebody accepts to lose.

    Returns:
        How many ledgers are listed, held (None: no inventory), and held without a record.

    Raises:
        GuardRefusedError: no ledger is listed, the listing is not whole, or ledgers of inventories are not in it.
    """
    listing = list_ledgers(store, root, layout)
    held = held_ledgers(inventories) if inventories else None
    if listing.lost:
        problem = f"could not be listed whole: {', '.join(listing.lost[:_EXAMPLES])} named, and not there"
        raise GuardRefusedError(root, problem, "let nobody change the tree, and run it again")
    if not listing.complete:
        problem = f"could not be listed whole: access denied to {', '.join(listing.denied[:_EXAMPLES])}"
        raise GuardRefusedError(root, problem, "connect as the identity of the freeze")
    if held is None:
        if listing.ledgers == 0:
            raise GuardRefusedError(
                root,
                "lists no ledger, and thawed bookies delete every ledger that is not listed",
                Remedy(Advice.SHOW_THAT_NONE_IS_STORED),
            )
        return {"listed": listing.ledgers, "held": None, "absent": 0}
    absent = absent_ledgers(held, listing)
    unlisted = demanded(store, root, layout, absent)
    if unlisted.any():
        names = ", ".join(examples(absent.filter(pa.array(unlisted))))
        problem = f"has ledgers that no listing names: {names}; bookies, which believe listings, would delete them"
        raise GuardRefusedError(root, problem, "find out why the folders above them are not listed, then run it again")
    if accept_absent and not absent.num_rows:
        problem = "has a record of every ledger on the bookies' disks"
        raise GuardRefusedError(root, problem, Remedy(Advice.ACCEPT_NONE_ABSENT))
    if absent.num_rows and (absent.num_rows != accept_absent or listing.ledgers == 0):
        more = ", …" if absent.num_rows > _EXAMPLES else ""
        remedy = Remedy(Advice.RESTORE_OR_ACCEPT_ABSENT, absent.num_rows) if listing.ledgers else Remedy(Advice.RESTORE)
        raise GuardRefusedError(
            root,
            f"lists {listing.ledgers} ledgers; {absent.num_rows} of the {held.num_rows} on the bookies' disks are not "
            f"among them and would be deleted: {', '.join(examples(absent))}{more}",
            remedy,
        )
    return {"listed": listing.ledgers, "held": held.num_rows, "absent": absent.num_rows}


def demand_seen(store: MetadataStore, root: str, inventories: Sequence[Dataset], *, accept: int | None = None) -> int:
    """Refuse a thaw of bookies of which nobody knows what they hold; return how many these are.

    They are those that run, or have a cookie and so can start, and that no inventory is of. Without any inventory the
    number has to be given even where it is 0: a bookie that lost its session and its cookie deletes all the same.

    Args:
        store: only read.
        root: of the ledgers.
        inventories: of bookies.
        accept: how many bookies somebody lets delete what has no record; None: nobody gave a number.

    Raises:
        GuardRefusedError: there are others than were accepted, or no inventory was given and no number.
    """
    folders = (*REGISTRATIONS, COOKIES)
    present = {
        name for folder in folders for name in store.children(root + folder) or () if f"{folder}/{name}" not in folders
    }
    unseen = sorted(present - {bookie for bookie, _ in instances(inventories)})
    if accept is None and not inventories:
        names = f" ({', '.join(unseen[:_EXAMPLES])}{', …' if len(unseen) > _EXAMPLES else ''})" if unseen else ""
        raise GuardRefusedError(
            root,
            f"has {len(unseen)} bookies that run or have a cookie{names}, and no inventory was given: what they hold "
            "without a record would be deleted",
            Remedy(Advice.INVENTORIES_OR_ACCEPT_UNSEEN, len(unseen)),
        )
    if len(unseen) != (accept or 0):
        more = ", …" if len(unseen) > _EXAMPLES else ""
        problem = f"has {len(unseen)} bookies that no inventory is of ({', '.join(unseen[:_EXAMPLES])}{more}): "
        problem += "what only they hold would be deleted"
        remedy = Remedy(Advice.COLLECT_OR_ACCEPT_UNSEEN, len(unseen))
        if not unseen:
            problem, remedy = "has no bookie that no inventory is of", Remedy(Advice.ACCEPT_NONE_UNSEEN)
        raise GuardRefusedError(root, problem, remedy)
    return len(unseen)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A bookie that a closed record does not name, and that holds entries which are not on their full write set.

    Attributes:
        ledger: the ledger.
        bookie: holds a copy that the over-replicated check may delete.
        entries: so many of its entries.
        first: the first of them.
    """

    ledger: LedgerId
    bookie: str
    entries: int
    first: int

    def __str__(self) -> str:
        more = f" and {self.entries - 1} more" if self.entries > 1 else ""
        return f"ledger {self.ledger} on {self.bookie}: entry {self.first}{more}"


def left_out(store: MetadataStore, root: str, layout: Layout, inventories: Sequence[Dataset]) -> Iterator[LeftOut]:
    """Yield every copy that a thaw lets go although its entries are not on all bookies that the record names for them.

    An entry above the record's end is on no write set. What a bookie without an inventory holds is not known, so it
    counts as nothing.

    Raises:
        DatasetError: an inventory is damaged.
        BackendError: the store does not answer.
    """
    rows = sum(inventory.rows("copies") for inventory in inventories)
    for buckets in bucket_ranges(rows):
        names = ["scope", "ledger", "bookie", "groups", "source", "entries"]
        copies = pa.concat_tables([one.read("copies", buckets=buckets, columns=names) for one in inventories])
        # What only a log has may be a ledger that was deleted long ago.
        copies = copies.filter(pc.and_(pc.not_equal(copies["source"], "log"), pc.greater(copies["entries"], 0)))
        ids = copies.select(_KEYS.names).group_by(_KEYS.names).aggregate([])
        bad = placeless(layout, ids["scope"].to_numpy(), ids["ledger"].to_numpy())
        ids = ids.filter(pa.array(~bad))
        keys = ledger_keys(layout, ids["scope"].to_numpy(), ids["ledger"].to_numpy()).to_pylist()
        raws = [None if held is None else held.value for _, held in store.get_many([root + key for key in keys])]
        records = decode_columns(pa.array(raws, pa.binary()))
        columns = ["state", "ensemble_size", "write_quorum", "last_entry", "segments"]
        known = ids.append_column("row", pa.array(np.arange(ids.num_rows)))
        for name in columns:
            known = known.append_column(name, records[name])
        yield from _left_out(
            copies, known.filter(pc.fill_null(pc.equal(known["state"], str(State.CLOSED)), fill_value=False))
        )


def _left_out(copies: pa.Table, closed: pa.Table) -> Iterator[LeftOut]:
    """Look at the closed ledgers of which a bookie that is not named holds something; those are few."""
    segments = closed["segments"].combine_chunks()
    of_segment = pc.list_parent_indices(segments)
    members = pc.struct_field(segments.flatten(), "members")
    named = pa.table(
        {
            "at": of_segment.take(pc.list_parent_indices(members)).cast(pa.int64()),
            "bookie": members.flatten(),
        }
    )
    at = closed.select(_KEYS.names).append_column("at", pa.array(np.arange(closed.num_rows)))
    held = copies.select([*_KEYS.names, "bookie"]).join(at, _KEYS.names, join_type="inner")
    strays = held.join(named, ["at", "bookie"], join_type="left anti")
    for ledger in pc.unique(strays["at"]).to_pylist() if strays.num_rows else []:
        record = closed.slice(ledger, 1).to_pylist()[0]
        mine = pc.and_(pc.equal(copies["scope"], record["scope"]), pc.equal(copies["ledger"], record["ledger"]))
        yield from _of_ledger(copies.filter(mine), record)


def _of_ledger(copies: pa.Table, record: Mapping[str, Any]) -> Iterator[LeftOut]:
    """Compare the entries of each bookie that a record does not name with those of the bookies that it does.

    A million entries at a time: a ledger may have thousands of millions, in a few groups.
    """
    names = pc.unique(copies["bookie"]).to_pylist()
    groups = {name: from_arrow(copies.filter(pc.equal(copies["bookie"], name))["groups"]) for name in names}
    named = {member for segment in record["segments"] for member in segment["members"]}
    for bookie in sorted(set(names) - named):
        mine = groups[bookie]
        lacking = 0
        first = None
        low, end = next_entry(mine, 0), int((mine.last + (mine.size - 1)).max(initial=-1))
        while low is not None:
            high = min(low + _ENTRIES_AT_ONCE - 1, end)
            found = np.flatnonzero(_held(mine, low, high) & ~_everywhere(groups, record, low, high))
            lacking += len(found)
            first = low + int(found[0]) if first is None and len(found) else first
            low = next_entry(mine, high + 1) if high < end else None
        if first is not None:
            yield LeftOut(LedgerId(record["scope"], record["ledger"]), bookie, lacking, first)


def _held(groups: KeyedGroups, low: int, high: int) -> npt.NDArray[np.bool_]:
    """Say of each entry from `low` to `high` whether a bookie has it."""
    runs = within(groups, low, high)
    begin, end = runs.first - low, runs.first - low + runs.size
    entries = high - low + 1
    if len(begin) > _FEW_RUNS:
        depth = np.bincount(begin, minlength=entries + 1) - np.bincount(end, minlength=entries + 1)
        return np.cumsum(depth[:entries]) > 0
    held = np.zeros(entries, np.bool_)
    for one, other in zip(begin.tolist(), end.tolist(), strict=True):
        held[one:other] = True
    return held


def _everywhere(
    groups: Mapping[str, KeyedGroups], record: Mapping[str, Any], low: int, high: int
) -> npt.NDArray[np.bool_]:
    """Say of each entry from `low` to `high` whether all bookies have it that a record names for it."""
    last = record["last_entry"] if record["last_entry"] is not None else -1
    found = np.zeros(high - low + 1, np.bool_)
    firsts = [segment["first"] for segment in record["segments"]]
    for segment, upto in zip(record["segments"], [*(first - 1 for first in firsts[1:]), last], strict=True):
        begin, end = max(segment["first"], low), min(upto, last, high)
        if begin > end:
            continue
        there = np.ones(end - begin + 1, np.bool_)
        size = len(segment["members"])
        for position, member in enumerate(segment["members"]):
            turn = (position - np.arange(begin, begin + size)) % size < record["write_quorum"]
            held = _held(groups[member], begin, end) if member in groups else False
            there &= held | ~np.tile(turn, -(-len(there) // size))[: len(there)]
        found[begin - low : end - low + 1] = there
    return found


def demand_named(
    store: MetadataStore, root: str, layout: Layout, inventories: Sequence[Dataset], *, accept: int = 0
) -> int:
    """Refuse a thaw after which the over-replicated check would delete copies that nothing else has; return how many.

    Raises:
        GuardRefusedError: there are others than were accepted.
    """
    found = 0
    shown: list[str] = []
    for one in left_out(store, root, layout, inventories):
        found += 1
        if len(shown) < _EXAMPLES:
            shown.append(str(one))
    if found != accept:
        more = "; …" if found > len(shown) else ""
        raise GuardRefusedError(
            root,
            f"has closed records that leave out {found} bookies which hold entries that are not on all the bookies "
            f"named for them, and these would be deleted: {'; '.join(shown)}{more}"
            if found
            else "has no closed record that leaves out what only one bookie holds",
            Remedy(Advice.RESTORE_OR_ACCEPT_LEFT_OUT, found) if found else Remedy(Advice.ACCEPT_NONE_LEFT_OUT),
        )
    return found
