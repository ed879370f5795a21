"""Our own root beside BookKeeper's, where tombstones and archive marks are: made by us, refused if it is not ours.

    <ledgers root>-bkmeta               RootMark: whose it is
    <ledgers root>-bkmeta/tombstones    nodes of tombstones (`packed`)
    <ledgers root>-bkmeta/archive       nodes of archive marks
    <ledgers root>-bkmeta/listed        LastListing: how many ledgers the last verification listed
    <ledgers root>-bkmeta/policy        Policy: what holds for all deletes and restores (`policy`)
    <ledgers root>-bkmeta/clock         ClockCheck: written so that the store says what time it has

The nodes hold ledgers' records, which may have passwords in them: where the store has rights, they get those of the
ledgers root, or those that somebody named.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from backends.protocols import AccessControl, MetadataStore, Write, parse_acl
from reconcile.clusters import read_instance_ids
from reconcile.deletes.packed import ChangeLog, PackedRecords
from reconcile.deletes.policy import StoredPolicy, decode_policy
from reconcile.deletes.records import (
    ARCHIVE,
    TOMBSTONES,
    ArchiveMark,
    ClockCheck,
    LastListing,
    RootMark,
    decode_last_listing,
    decode_root_mark,
)
from reconcile.deletes.tombstones import SECOND_MS, SKEW_MS, Tombstone
from reconcile.errors import GuardRefusedError
from reconcile.write.audit_journal import Approval, AuditJournal, JournalLine
from recovery.codecs.store import OWN_ROOT
from recovery.errors import FormatError

JOURNAL_KIND: Final = "deletes"
_LISTED: Final = "/listed"
_CLOCK: Final = "/clock"
_POLICY: Final = "/policy"
_TOMBSTONES: Final = "tombstones"
_ARCHIVE: Final = "archive"
_MASKED: Final = "x"
"""What a store shows in place of the digest of somebody's password."""


@dataclass(frozen=True, slots=True)
class OwnRoot:
    """Our own root of one cluster.

    Attributes:
        key: of it.
        mark: what it says about itself.
        acl: rights of the nodes that are made; None: the store has none.
        tombstones, archive: its records.
    """

    key: str
    mark: RootMark
    acl: str | None
    tombstones: PackedRecords[Tombstone]
    archive: PackedRecords[ArchiveMark]


def name_own_root(ledgers_root: str) -> str:
    """Return the key of our own root beside a ledgers root.

    Raises:
        GuardRefusedError: the ledgers root is all of the store.
    """
    root = ledgers_root.rstrip("/")
    if not root:
        problem = "is the whole store: nothing can be beside it"
        raise GuardRefusedError("the ledgers root /", problem, "name the ledgers root's own key in the URI")
    return root + OWN_ROOT


def read_instance_id(store: MetadataStore, ledgers_root: str) -> str:
    """Return the instance id of a cluster; empty where it has none."""
    return next((instance_id for _, instance_id in read_instance_ids(store, ledgers_root)), "")


def open_own_root(store: MetadataStore, ledgers_root: str, acl: str | None = None) -> OwnRoot | None:
    """Return our own root beside a ledgers root; None if there is none.

    Args:
        store: writable, if anything is changed.
        ledgers_root: key.
        acl: rights of nodes that are made later; None: those of our own root.

    Raises:
        GuardRefusedError: what is there is not ours, or another cluster's.
    """
    key = name_own_root(ledgers_root)
    stored = store.get(key)
    if stored is None:
        return None
    remedy = f"see who made it; bkmeta writes only to what it made itself: remove or rename {key}"
    try:
        mark = decode_root_mark(stored.value)
    except FormatError as error:
        raise GuardRefusedError(key, f"was not made by this program ({error.detail})", remedy) from error
    instance_id = read_instance_id(store, ledgers_root)
    if mark.ledgers_root != ledgers_root.rstrip("/"):
        raise GuardRefusedError(key, f"is of ledgers root {mark.ledgers_root}", remedy)
    if mark.instance_id and instance_id and mark.instance_id != instance_id:
        problem = f"is of cluster {mark.instance_id}, and the store has {instance_id}"
        raise GuardRefusedError(key, problem, remedy)
    return _make_own_root(store, key, mark, acl if acl is not None else stored.acl)


def make_own_root(store: MetadataStore, ledgers_root: str, log: ChangeLog, acl: str | None = None) -> OwnRoot:
    """Return our own root beside a ledgers root; make it if there is none.

    Args:
        store: writable.
        ledgers_root: key.
        log: by which it is made.
        acl: its rights; None: those of the ledgers root.

    Raises:
        GuardRefusedError: what is there is not ours, or nothing says which rights it must have.
    """
    own_root = open_own_root(store, ledgers_root, acl)
    if own_root is not None:
        return own_root
    key = name_own_root(ledgers_root)
    rights = _choose_acl(store, ledgers_root, acl)
    mark = RootMark(ledgers_root.rstrip("/"), read_instance_id(store, ledgers_root))
    own = _make_own_root(store, key, mark, rights)
    writes = [Write(key, mark.encode(), None, rights), *own.tombstones.make_first(), *own.archive.make_first()]
    outcome = log.carry_out(store, "root", writes, {})
    if outcome.conflict is None:
        return own
    made = open_own_root(store, ledgers_root, acl)
    if made is None:
        raise GuardRefusedError(key, f"could not be made ({outcome.conflict})", "run the same command again")
    return made


def read_last_listing(store: MetadataStore, own: OwnRoot) -> LastListing | None:
    """Return what the last verification listed; None: there was none.

    Raises:
        FormatError: the node is not ours to read.
    """
    stored = store.get(own.key + _LISTED)
    return None if stored is None else decode_last_listing(stored.value)


def write_last_listing(store: MetadataStore, own: OwnRoot, listing: LastListing, log: ChangeLog) -> None:
    """Write what a verification listed; what another one wrote meanwhile stands."""
    key = own.key + _LISTED
    stored = store.get(key)
    change = Write(key, listing.encode(), None if stored is None else stored.version, own.acl)
    log.carry_out(store, "listed", [change], {key: None if stored is None else stored.value})


def read_policy(store: MetadataStore, ledgers_root: str) -> StoredPolicy | None:
    """Return the policy of a cluster; None: it has none. Whose our own root is does not matter: rules are kept.

    Raises:
        GuardRefusedError: it cannot be read.
    """
    root = ledgers_root.rstrip("/")
    key = root + OWN_ROOT + _POLICY
    stored = store.get(key) if root else None
    if stored is None:
        return None
    try:
        return decode_policy(stored.value, stored.version)
    except FormatError as error:
        remedy = "use the version of bkmeta that wrote it; a rule that cannot be read is not passed over"
        raise GuardRefusedError(key, f"cannot be read ({error.detail})", remedy) from error


def write_policy(store: MetadataStore, own: OwnRoot, replaced: StoredPolicy | None, raw: bytes, log: ChangeLog) -> None:
    """Set the policy of a cluster in place of the one that was read.

    Args:
        store: writable.
        own: our own root in it.
        replaced: the policy that was read; None: there was none.
        raw: value of the node.
        log: by which it is written.

    Raises:
        GuardRefusedError: another one was set meanwhile.
    """
    key = own.key + _POLICY
    change = Write(key, raw, None if replaced is None else replaced.version, own.acl)
    outcome = log.carry_out(store, "policy", [change], {key: None if replaced is None else replaced.raw})
    if outcome.conflict is not None:
        raise GuardRefusedError(key, "was set meanwhile by another process", "see what it is, then decide again")


def require_clock(store: MetadataStore, own: OwnRoot, now: Callable[[], datetime], by: str, log: ChangeLog) -> None:
    """Check this host's clock against the store's, by a node that is written for it.

    Soaks, certificates and retentions are counted by the clocks of those who verify, purge and let tombstones go: one
    that is ahead or behind would end them early, or never. A store that keeps no times (etcd) says nothing.

    Args:
        store: writable.
        own: our own root in it.
        now: the clock.
        by: whose it is.
        log: by which the node is written.

    Raises:
        GuardRefusedError: it is not the store's.
    """
    mark = store.get(own.key)
    if mark is None or mark.changed_ms is None:
        return
    key = own.key + _CLOCK
    stored = store.get(key)
    began_ms = _to_ms(now())
    change = Write(key, ClockCheck(began_ms, by).encode(), None if stored is None else stored.version, own.acl)
    log.carry_out(store, "clock", [change], {key: None if stored is None else stored.value})
    ended_ms = _to_ms(now())
    # Where another one wrote it meanwhile, its time is as good.
    written = store.get(key)
    if written is None or written.changed_ms is None:
        return
    ahead_ms, behind_ms = began_ms - written.changed_ms, written.changed_ms - ended_ms
    if max(ahead_ms, behind_ms) <= SKEW_MS:
        return
    side, off_ms = ("ahead of", ahead_ms) if ahead_ms > behind_ms else ("behind", behind_ms)
    problem = f"is {off_ms // SECOND_MS} seconds {side} the store's: what ends by time would end at a wrong one"
    raise GuardRefusedError("the clock of this host", problem, "set the clock that is wrong, then run it again")


def read_tombstones(store: MetadataStore, key: str) -> PackedRecords[Tombstone]:
    """Return the tombstones below our own root's key, to be read only."""
    return PackedRecords(store, f"{key}/{_TOMBSTONES}", TOMBSTONES, None)


@contextmanager
def open_log(
    folder: Path,
    store: MetadataStore,
    ledgers_root: str,
    now: Callable[[], datetime],
    approvals: Sequence[Approval] = (),
) -> Iterator[ChangeLog]:
    """Give the log of changes to a cluster's own root; a journal that is there is gone on with.

    Args:
        folder: of the journal.
        store: that is changed.
        ledgers_root: key.
        now: the clock.
        approvals: of what is changed, for the journal.

    Raises:
        JournalError: in use, altered, or of another root.
    """
    batches: list[int] = [-1]

    def replay(record: JournalLine) -> None:
        if "batch" in record.fields:
            batches.append(int(record.fields["batch"]))

    binding = {"journal": JOURNAL_KIND, "root": ledgers_root, "store": store.uri}
    with AuditJournal.open(folder, binding, resume=True, now=now, replay=replay, approvals=approvals) as journal:
        yield ChangeLog(journal, max(batches) + 1)


def _make_own_root(store: MetadataStore, key: str, mark: RootMark, acl: str | None) -> OwnRoot:
    tombstones = PackedRecords(store, f"{key}/{_TOMBSTONES}", TOMBSTONES, acl)
    return OwnRoot(key, mark, acl, tombstones, PackedRecords(store, f"{key}/{_ARCHIVE}", ARCHIVE, acl))


def _choose_acl(store: MetadataStore, ledgers_root: str, acl: str | None) -> str | None:
    """Return the rights of our own root, decided before anything is written."""
    if acl is not None or not isinstance(store, AccessControl):
        return acl
    rights = store.get_acl(ledgers_root.rstrip("/"))
    if rights is None:
        raise GuardRefusedError(ledgers_root, "does not exist", "name the ledgers root of a cluster")
    if any(right.scheme == "digest" and right.name.endswith(f":{_MASKED}") for right in parse_acl(rights.text)):
        problem = "has rights that the store does not show whole"
        raise GuardRefusedError(ledgers_root, problem, "name those that bkmeta's own root must have")
    return rights.text


def _to_ms(time: datetime) -> int:
    return int(time.timestamp() * 1000)
