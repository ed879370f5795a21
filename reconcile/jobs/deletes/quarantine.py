"""Ledgers in quarantine: how many, and those that a bookie of theirs has left."""

from reconcile.deletes.purge import end_quarantines
from reconcile.deletes.tombstones import DeleteState, Tombstone
from reconcile.jobs.deletes.clusters import OpenDeletes
from reconcile.write.guards import list_registered
from recovery.codecs.ledger_record import decode
from recovery.codecs.store import mark_key, places
from recovery.codecs.store_kind import kind_of
from recovery.model.ids import LedgerId


def list_quarantined(target: OpenDeletes) -> list[Tombstone]:
    """Return the tombstones of ledgers in quarantine; there are at most as many as the policy lets in."""
    return [item for node in target.own.tombstones.read_all() for item in node if item.state is DeleteState.QUARANTINED]


def end_where_bookies_left(target: OpenDeletes, at_ms: int) -> dict[LedgerId, str]:
    """Put the records of quarantined ledgers back that a bookie has left, and return why, of each.

    BookKeeper repairs no hold, and who takes a bookie away waits until all its ledgers are repaired. A bookie has left
    if it is not registered, and the ledger is marked for repair or its cookie is gone.

    Raises:
        UnavailableError: the store does not answer.
    """
    store, root = target.cluster.store, target.cluster.root
    tombstones = list_quarantined(target)
    if not tombstones:
        return {}
    registered = {name for _, name in list_registered(store, root)}
    cookies = set(store.children(root + places(target.cluster.layout).cookies) or ())
    is_marked = dict.fromkeys((item.ledger for item in tombstones), False)
    if kind_of(target.cluster.layout).has_replication:
        keys = {root + mark_key(item.ledger): item.ledger for item in tombstones}
        is_marked = {keys[key]: node is not None for key, node in store.get_many(keys)}
    reasons = dict[LedgerId, str]()
    for item in tombstones:
        members = {member for segment in decode(item.hold).segments for member in segment.members}
        left = [name for name in sorted(members - registered) if is_marked[item.ledger] or name not in cookies]
        if left:
            reasons[item.ledger] = f"its quarantine ended early, for {left[0]} left: its record is back to be repaired"
    if reasons:
        end_quarantines(reasons, target.cluster, target.own, target.log, at_ms, target.by)
    return reasons
