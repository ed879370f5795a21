"""Refusals of a thaw after which bookies would delete data that may still be wanted."""

from collections.abc import Sequence

import pyarrow as pa

from backends.protocols import MetadataStore
from reconcile import clusters
from reconcile.check.left_out_copies import find_left_out
from reconcile.check.listing import (
    EXAMPLES,
    absent_ledgers,
    examples,
    instances,
    list_ledgers,
    list_ledgers_on_bookies,
    require_each,
)
from reconcile.errors import Advice, GuardRefusedError, Remedy
from reconcile.words import count_noun, is_or_are
from recovery.codecs.store import (
    COOKIES,
    INSTANCE_ID,
    LAYOUT,
    REGISTRATIONS,
    Layout,
)
from recovery.dataset import Dataset
from recovery.infer.lost_disks import LostDisk


def require_described(store: MetadataStore, root: str, inventories: Sequence[Dataset]) -> None:
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


def require_restored(
    store: MetadataStore, root: str, layout: Layout, inventories: Sequence[Dataset], *, accept_absent: int = 0
) -> dict[str, int | None]:
    """Refuse a thaw after which bookies would delete ledgers that are known to have no record.

    Args:
        store: must be able to list ledgers.
        root: of the ledgers.
        layout: of the store.
        inventories: of the bookies; without them the content of bookies is not known.
        accept_absent: how many ledgers without a record the caller accepts to lose.

    Returns:
        How many ledgers are listed, held (None: no inventory), and held without a record.

    Raises:
        GuardRefusedError: no ledger is listed, the listing is not whole, or ledgers of inventories are not in it.
    """
    listing = list_ledgers(store, root, layout)
    on_bookies = list_ledgers_on_bookies(inventories) if inventories else None
    if listing.lost:
        problem = f"could not be listed whole: {', '.join(listing.lost[:EXAMPLES])} named, and not there"
        raise GuardRefusedError(root, problem, "stop the program that changes the tree, and run this command again")
    if not listing.complete:
        problem = f"could not be listed whole: access denied to {', '.join(listing.denied[:EXAMPLES])}"
        raise GuardRefusedError(root, problem, "connect as the identity of the freeze")
    if on_bookies is None:
        if listing.ledgers == 0:
            raise GuardRefusedError(
                root,
                "lists no ledger, and thawed bookies delete every ledger that is not listed",
                Remedy(Advice.SHOW_THAT_NONE_IS_STORED),
            )
        return {"listed": listing.ledgers, "held": None, "absent": 0}
    absent = absent_ledgers(on_bookies, listing)
    unlisted = require_each(store, root, layout, absent)
    if unlisted.any():
        names = ", ".join(examples(absent.filter(pa.array(unlisted))))
        problem = f"has ledgers that no listing names: {names}; bookies, which believe listings, would delete them"
        raise GuardRefusedError(root, problem, "find out why the folders above them are not listed, then run it again")
    if accept_absent and not absent.num_rows:
        problem = "has a record of every ledger on the bookies' disks"
        raise GuardRefusedError(root, problem, Remedy(Advice.ACCEPT_NONE_ABSENT))
    if absent.num_rows and (absent.num_rows != accept_absent or listing.ledgers == 0):
        more = ", …" if absent.num_rows > EXAMPLES else ""
        remedy = Remedy(Advice.RESTORE_OR_ACCEPT_ABSENT, absent.num_rows) if listing.ledgers else Remedy(Advice.RESTORE)
        raise GuardRefusedError(
            root,
            f"lists {count_noun(listing.ledgers, 'ledger')}; {absent.num_rows} of the {on_bookies.num_rows} on the "
            f"bookies' disks {is_or_are(absent.num_rows)} not among them and would be deleted: "
            f"{', '.join(examples(absent))}{more}",
            remedy,
        )
    return {"listed": listing.ledgers, "held": on_bookies.num_rows, "absent": absent.num_rows}


def require_seen(
    store: MetadataStore,
    root: str,
    inventories: Sequence[Dataset],
    *,
    accept: int | None = None,
    lost: Sequence[LostDisk] = (),
) -> int:
    """Refuse a thaw of bookies with unknown content; return how many these are.

    These bookies run, or have a cookie and so can start, and have no inventory. Without any inventory the number must
    be given even if it is 0: a bookie that lost its session and its cookie still deletes.

    Args:
        store: only read.
        root: of the ledgers.
        inventories: of bookies.
        accept: how many bookies may delete what has no record; None: no number was given.
        lost: what is gone for good: a bookie that was stated so, and does not run, has nothing to delete.

    Raises:
        GuardRefusedError: there are others than were accepted, or no inventory was given and no number.
    """
    folders = (*REGISTRATIONS, COOKIES)

    def list_names_in(*listed: str) -> set[str]:
        children = {folder: store.children(root + folder) or () for folder in listed}
        return {name for folder, names in children.items() for name in names if f"{folder}/{name}" not in folders}

    gone = {disk.bookie for disk in lost if not disk.folder} - list_names_in(*REGISTRATIONS)
    unseen = sorted(list_names_in(*folders) - gone - {bookie for bookie, _ in instances(inventories)})
    if accept is None and not inventories:
        names = f" ({', '.join(unseen[:EXAMPLES])}{', …' if len(unseen) > EXAMPLES else ''})" if unseen else ""
        raise GuardRefusedError(
            root,
            f"has {count_noun(len(unseen), 'bookie')}, running or with a cookie{names}, and no inventory was given: "
            "ledgers without a record would be deleted",
            Remedy(Advice.INVENTORIES_OR_ACCEPT_UNSEEN, len(unseen)),
        )
    if len(unseen) != (accept or 0):
        more = ", …" if len(unseen) > EXAMPLES else ""
        problem = f"has {count_noun(len(unseen), 'bookie')} without an inventory "
        problem += f"({', '.join(unseen[:EXAMPLES])}{more}): entries that no other bookie holds would be deleted"
        remedy = Remedy(Advice.COLLECT_OR_ACCEPT_UNSEEN, len(unseen))
        if not unseen:
            problem, remedy = "has no bookie without an inventory", Remedy(Advice.ACCEPT_NONE_UNSEEN)
        raise GuardRefusedError(root, problem, remedy)
    return len(unseen)


def require_named(
    store: MetadataStore, root: str, layout: Layout, inventories: Sequence[Dataset], *, accept: int = 0
) -> int:
    """Refuse a thaw after which the over-replicated check would delete the only copies; return their number.

    Raises:
        GuardRefusedError: there are others than were accepted.
    """
    count = 0
    shown: list[str] = []
    for ledger in find_left_out(store, root, layout, inventories):
        count += 1
        if len(shown) < EXAMPLES:
            shown.append(str(ledger))
    if count != accept:
        more = "; …" if count > len(shown) else ""
        raise GuardRefusedError(
            root,
            f"has closed records that leave out copies: {count} of a bookie with entries that are not on all the "
            f"bookies named for them, and these would be deleted: {'; '.join(shown)}{more}"
            if count
            else "has no closed record that leaves out the only copies of entries",
            Remedy(Advice.RESTORE_OR_ACCEPT_LEFT_OUT, count) if count else Remedy(Advice.ACCEPT_NONE_LEFT_OUT),
        )
    return count
