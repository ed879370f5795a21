"""What keeps a cluster frozen: the rights below its root, whether they are in force, and the proof as a bookie.

    node below the root       others keep  for which reason
    /00, /000                 a            the listing fails at its first folder, before anything is deleted
    /underreplication/locks   d r a        the over-replicated check gets no lock and deletes nothing
    /idgen, /idgen-long       a            no client gets an id (the second where it exists: a new one makes ids jump)
    /                         r a          no new folder; READ stays: a bookie that starts asks for the root

In the flat layout ledgers are in the root itself: READ is taken there instead of on folders, and no bookie starts.

Frozen for deletes only, the first two lines are, and of the folders only READ is taken: the listing fails, and clients
go on to create, write, close and delete ledgers. What they delete bookies keep until the thaw. Of the root DELETE is
taken: a client before 4.10 deletes an empty folder without reading it, and the next client makes one that is open.

Others are all principals but one digest identity, which has every right. Where nobody else can read the root, that
identity is the bookies' own, as in a cluster whose nodes are all their maker's, and nothing is frozen; where nobody
else can register a bookie, it may be.

It does not stop compaction, the removal of logs whose ledgers are gone already, a pass that had begun before, a super
user, or a server that ignores rights (skipACL).

Tried with BookKeeper 4.17.2 and Pulsar's driver 4.0.6.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from backends.errors import AbsentKeyError, AccessDeniedError, BackendError, VersionConflictError
from backends.protocols import AccessControl, AclEntry, ControlledStore, MetadataStore, Write, parse_acl
from recovery.codecs.store import (
    AVAILABLE,
    LAYOUT,
    LOCKS,
    LONG_GENERATOR,
    REPLICATION_DISABLED,
    ROOT,
    SHORT_GENERATOR,
    Layout,
    layout_of,
)
from recovery.errors import FormatError

SHORT_TREE: Final = "/00"
LONG_TREE: Final = "/000"
KEPT: Final[Mapping[str, str]] = {
    SHORT_TREE: "a",
    LONG_TREE: "a",
    LOCKS: "dra",
    SHORT_GENERATOR: "a",
    LONG_GENERATOR: "a",
    ROOT: "ra",
}
"""Node → what other principals than the identity keep of their rights, in the order of a freeze."""
KEPT_FLAT: Final[Mapping[str, str]] = {LOCKS: "dra", SHORT_GENERATOR: "a", LONG_GENERATOR: "a", ROOT: "a"}
"""As `KEPT`, of the flat layout, whose ledgers are in the root itself."""
_KEPT_DELETES: Final[Mapping[str, str]] = {SHORT_TREE: "cdwa", LONG_TREE: "cdwa", LOCKS: "dra", ROOT: "crwa"}
_KEPT_DELETES_FLAT: Final[Mapping[str, str]] = {LOCKS: "dra", ROOT: "cdwa"}
"""As `KEPT` and `KEPT_FLAT`, where only what bookies delete is frozen."""
_TAKEN: Final = {SHORT_TREE: "r", LONG_TREE: "r", LOCKS: "c", SHORT_GENERATOR: "c", LONG_GENERATOR: "c", ROOT: "c"}
"""Node → the right that nobody else may have while the cluster counts as frozen.

Of a flat root also to read it; of another one, of which clients keep CREATE, to delete below it.
"""
MADE: Final = (SHORT_TREE, LONG_TREE, LOCKS, SHORT_GENERATOR)
"""What a freeze makes where it is missing; who makes `SHORT_GENERATOR` later would make it open."""
MADE_FLAT: Final = (LOCKS,)
ALL: Final = "cdrwa"
WORLD: Final = "world:anyone"
_PROBE: Final = "bkmeta-probe"
_NO_VERSION: Final = 2**31 - 1
"""No node has it: who may delete is told that the version is another one, and deletes nothing."""
_ATTEMPTS: Final = {"r": "list", "c": "create below", "d": "delete below"}


class FreezeExtent(StrEnum):
    """How far a cluster is frozen."""

    FROZEN = "frozen"
    DELETES = "deletes-only"
    PARTLY = "partly"
    THAWED = "thawed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FreezeState:
    """What the rights of a store say now; they are all that is looked at.

    Attributes:
        state: FROZEN only if every node of the freeze is there and closed to all but one digest identity; DELETES if
            only those are that keep bookies from deleting.
        open: what is not closed, and to whom.
        unknown: what could not be read, and why.
        identity: the principal that still has every right; None if there is none, or several.
        replication_disabled: None where it could not be read.
    """

    state: FreezeExtent
    open: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    identity: str | None = None
    replication_disabled: bool | None = None

    @property
    def frozen(self) -> bool:
        """Whether it may be counted on that bookies cannot list ledgers."""
        return self.state in (FreezeExtent.FROZEN, FreezeExtent.DELETES)


def read_freeze_state(store: MetadataStore, root: str, *, deletes_only: bool = False) -> FreezeState:
    """Return whether the rights below a root keep all bookies from listing ledgers.

    Args:
        store: only read.
        root: of the ledgers.
        deletes_only: whether what clients need may be open, and is not named then.

    Raises:
        UnavailableError: the store does not answer.
    """
    if not isinstance(store, AccessControl):
        return FreezeState(FreezeExtent.UNKNOWN, unknown=("this store has no rights",))
    acls, denied = _read_acls(store, root)
    is_flat = _is_flat(store, root, acls)
    try:
        disabled: bool | None = store.children(join_key(root, REPLICATION_DISABLED)) is not None
    except AccessDeniedError:
        disabled = None
    state = _judge_rights(acls, denied, is_flat=is_flat)
    if state.state in (FreezeExtent.PARTLY, FreezeExtent.THAWED):
        deletes = _judge_rights(acls, denied, is_flat=is_flat, deletes_only=True)
        if deletes.state is FreezeExtent.FROZEN:
            state = replace(state, state=FreezeExtent.DELETES, identity=deletes.identity)
        if deletes_only:
            state = replace(state, open=deletes.open)
    return replace(state, replication_disabled=disabled)


def _judge_rights(
    acls: Mapping[str, str], denied: Sequence[str], *, is_flat: bool, deletes_only: bool = False
) -> FreezeState:
    owners: set[str] = set()
    opened, shut = [], 0
    unknown = [f"{key}: its rights may not be read" for key in denied]
    for key, perm in _list_taken(is_flat=is_flat, deletes_only=deletes_only):
        if key in denied:
            continue
        if key not in acls:
            # Nobody else can make a generator while the root is closed.
            if key in (SHORT_TREE, LONG_TREE, LOCKS, ROOT):
                opened.append(f"{key} is absent")
            continue
        holders = _list_holders(acls[key], perm)
        identities = {holder for holder in holders if holder.startswith("digest:")}
        owners |= identities
        if holders - identities:
            opened.append(f"{key} is open to {', '.join(sorted(holders - identities))}")
        else:
            shut += 1
    # Of a flat root READ is taken from all: then who may change rights tells who else there is.
    readers = _list_holders(acls.get(ROOT, ""), "a" if is_flat else "r")
    registrars = _list_holders(acls.get(AVAILABLE, ""), "c")
    if len(owners) > 1:
        opened.append(f"more than one identity has rights: {', '.join(sorted(owners))}")
    elif readers and readers <= owners:
        opened.append(f"nobody but {', '.join(sorted(owners))} can read the root: then the bookies are that identity")
    elif registrars and registrars <= owners:
        name = ", ".join(sorted(owners))
        unknown.append(f"nobody but {name} can register a bookie: then the bookies are that identity, and not frozen")
    state = FreezeExtent.UNKNOWN if unknown else FreezeExtent.FROZEN
    if opened:
        state = FreezeExtent.PARTLY if shut else FreezeExtent.THAWED
    identity = next(iter(owners)) if len(owners) == 1 and shut else None
    return FreezeState(state, tuple(opened), tuple(unknown), identity)


def _read_acls(store: AccessControl, root: str) -> tuple[dict[str, str], list[str]]:
    """Return the ACLs that tell a freeze, and the nodes of which they may not be read."""
    acls: dict[str, str] = {}
    denied = []
    for key in (*_TAKEN, AVAILABLE):
        try:
            acl = store.get_acl(join_key(root, key))
        except AccessDeniedError:
            denied.append(key)
            continue
        if acl is not None:
            acls[key] = acl.text
    return acls, denied


def _list_holders(acl: str, perm: str) -> set[str]:
    return {name_principal(entry) for entry in parse_acl(acl) if perm in entry.perms} if acl else set()


def _is_flat(store: MetadataStore, root: str, acls: Mapping[str, str]) -> bool:
    """Whether ledgers are in the root, by LAYOUT; without one, whether the root is closed as only a flat one is."""
    try:
        stored = store.get(join_key(root, LAYOUT))
        if stored is not None:
            return layout_of(stored.value) is Layout.FLAT
    except (AccessDeniedError, FormatError):
        pass
    readers = _list_holders(acls.get(ROOT, ""), "r")
    return SHORT_TREE not in acls and bool(readers) and all(name.startswith("digest:") for name in readers)


def _list_taken(*, is_flat: bool, deletes_only: bool) -> list[tuple[str, str]]:
    """Return the nodes of a freeze, each with the right that nobody else may have."""
    kept = select_kept(Layout.FLAT if is_flat else Layout.HIERARCHICAL, deletes_only=deletes_only)
    taken = [(key, perm) for key, perm in _TAKEN.items() if key in kept and perm not in kept[key]]
    if is_flat:
        return [*taken, (ROOT, "r")]
    return [*taken, (ROOT, "d")] if deletes_only else taken


def list_made_nodes(layout: Layout) -> tuple[str, ...]:
    """Return what a freeze makes where it is missing, for a layout."""
    return MADE_FLAT if layout is Layout.FLAT else MADE


def select_kept(layout: Layout, *, deletes_only: bool = False) -> Mapping[str, str]:
    """Return the nodes that a freeze changes, with the rights that other principals keep, for a layout."""
    if deletes_only:
        return _KEPT_DELETES_FLAT if layout is Layout.FLAT else _KEPT_DELETES
    return KEPT_FLAT if layout is Layout.FLAT else KEPT


@dataclass(frozen=True, slots=True)
class RefusalProof:
    """What somebody without the identity of the freeze was seen to be refused.

    Attributes:
        refused: attempts that the store refused.
        allowed: attempts that it let pass: the freeze does not hold.
        failed: attempts whose outcome is not known, and why.
        starts: whether the root can be read, which a bookie needs to start.
    """

    refused: tuple[str, ...]
    allowed: tuple[str, ...]
    failed: tuple[str, ...]
    starts: bool


def prove_refusals(
    stranger: MetadataStore, store: MetadataStore, root: str, layout: Layout, *, deletes_only: bool = False
) -> RefusalProof:
    """Try as a bookie what a frozen bookie must be refused.

    Args:
        stranger: connected as the bookies are, or as nobody, and never with the identity of the freeze.
        store: connected with that identity; takes away what the stranger could make.
        root: of the ledgers.
        layout: of the ledgers.
        deletes_only: whether only what bookies delete is frozen.
    """
    refused, allowed, failed = [], [], []
    is_flat = layout is Layout.FLAT
    for key, perm in _list_taken(is_flat=is_flat, deletes_only=deletes_only):
        node = join_key(root, key)
        attempt = f"{_ATTEMPTS[perm]} {node}"
        try:
            if perm == "r":
                exists = stranger.children(node) is not None
            elif perm == "d":
                exists = _may_delete(stranger, store, node)
            else:
                exists = store.get(node) is not None
                if exists:
                    stranger.write([Write(f"{node}/{_PROBE}", b"")])
                    _remove_probe(store, f"{node}/{_PROBE}")
            if exists:
                allowed.append(attempt)
            elif key in (SHORT_TREE, LONG_TREE, LOCKS, ROOT):
                failed.append(f"{attempt}: it is absent")
        except AccessDeniedError:
            refused.append(attempt)
        except BackendError as error:
            failed.append(f"{attempt}: {error}")
    starts = False
    try:
        starts = not is_flat and stranger.get(root) is not None
    except BackendError as error:
        failed.append(f"read {root}: {error}")
    return RefusalProof(tuple(refused), tuple(allowed), tuple(failed), starts)


def _may_delete(stranger: MetadataStore, store: MetadataStore, root: str) -> bool:
    """Whether a stranger could delete a folder of a root; nothing is deleted. False: the root is absent.

    ZooKeeper asks for the root's rights before it looks for the folder: that the folder is absent is no refusal.

    Raises:
        AccessDeniedError: it could not.
    """
    try:
        stranger.write([Write(root + SHORT_TREE, None, _NO_VERSION)])
    except AbsentKeyError:
        return store.get(root) is not None
    except VersionConflictError:
        pass
    return True


def _remove_probe(store: MetadataStore, key: str) -> None:
    stored = store.get(key)
    if stored is not None:
        store.write([Write(key, None, stored.version)])


def list_other_principals(
    store: ControlledStore, root: str, identity: str, nodes: Iterable[str] = tuple(KEPT)
) -> tuple[str, ...]:
    """Return the other principals that a freeze's ACLs name: only a connection as one shows whether it is refused.

    Args:
        store: only read.
        root: of the ledgers.
        identity: of the freeze.
        nodes: that it changes, below the root.
    """
    principals: set[str] = set()
    for key in nodes:
        acl = store.get_acl(join_key(root, key))
        if acl is not None:
            principals |= {name_principal(entry) for entry in parse_acl(acl.text)}
    return tuple(sorted(principals - {WORLD, identity}))


def close_acl(acl: str, keep: str, identity: str) -> str:
    """Return an ACL as a freeze closes it.

    Args:
        acl: of the node.
        keep: the rights that other principals keep, where they had them.
        identity: the principal that has every right.
    """
    kept = []
    for entry in parse_acl(acl):
        perms = "".join(perm for perm in entry.perms if perm in keep)
        if perms and name_principal(entry) != identity:
            kept.append(f"{name_principal(entry)}:{perms}")
    return ",".join([*kept, f"{identity}:{ALL}"])


def choose_kept_acl(store: MetadataStore, base: str, key: str, acl: str | None) -> str | None:
    """Return the ACL of a node that is made: in a frozen store as the freeze has it, which thaw opens.

    Args:
        store: only read.
        base: key of the root.
        key: of the node, below the root.
        acl: that it has in a store that is not frozen; None: what the store gives.
    """
    if key not in KEPT:
        return acl
    state = read_freeze_state(store, base)
    kept = _KEPT_DELETES if state.state is FreezeExtent.DELETES else KEPT
    if not state.frozen or key not in kept:
        return acl
    return close_acl(acl or f"{WORLD}:{ALL}", kept[key], state.identity or "")


def name_principal(entry: AclEntry) -> str:
    """Return the scheme and the name of an entry of an ACL as text."""
    return f"{entry.scheme}:{entry.name}"


def join_key(root: str, key: str) -> str:
    """Return the store's key of one below a root."""
    return root if key == ROOT else root + key
