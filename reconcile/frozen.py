"""What keeps a cluster frozen: the rights below its root, whether they are in force, and the proof as a bookie.

    node below the root       others keep  so that
    /00, /000                 a            the listing fails at its first folder, before anything is deleted
    /underreplication/locks   d r a        the over-replicated check gets no lock and deletes nothing
    /idgen, /idgen-long       a            no client gets an id (where they exist: a new idgen-long would make ids jump)
    /                         r a          no new folder; READ stays: a bookie that starts asks for the root

Others are all principals but one digest identity, which has every right. Where nobody else can read the root, that
identity is the bookies' own, as in a cluster whose nodes are all their maker's, and nothing is frozen.

It does not stop compaction, the removal of logs whose ledgers are gone already, a pass that had begun before, a super
user, or a server that ignores rights (skipACL).

Source: bookie-storage §8.5, run against BookKeeper 4.17.2 and Pulsar's driver 4.0.6.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from backends.errors import AccessDeniedError, BackendError
from backends.protocols import AccessControl, ControlledStore, MetadataStore, Right, Write, parse_rights
from recovery.codecs.store import LOCKS, LONG_GENERATOR, REPLICATION_DISABLED, ROOT, SHORT_GENERATOR, Layout

LAYOUTS: Final = (Layout.HIERARCHICAL, Layout.LONGHIERARCHICAL)
SHORT_TREE: Final = "/00"
LONG_TREE: Final = "/000"
KEPT: Final = {
    SHORT_TREE: "a",
    LONG_TREE: "a",
    LOCKS: "dra",
    SHORT_GENERATOR: "a",
    LONG_GENERATOR: "a",
    ROOT: "ra",
}
"""Node → what principals other than ours keep of their rights, in the order of a freeze."""
_TAKEN: Final = {SHORT_TREE: "r", LONG_TREE: "r", LOCKS: "c", SHORT_GENERATOR: "c", LONG_GENERATOR: "c", ROOT: "c"}
"""Node → the right that nobody else may have while the cluster counts as frozen."""
MADE: Final = (SHORT_TREE, LONG_TREE, LOCKS)
ALL: Final = "cdrwa"
WORLD: Final = "world:anyone"
_PROBE: Final = "bkmeta-probe"


class State(StrEnum):
    """How far a cluster is frozen."""

    FROZEN = "frozen"
    PARTLY = "partly"
    THAWED = "thawed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FreezeState:
    """What the rights of a store say now; they are all that is looked at.

    Attributes:
        state: FROZEN only if every node of the freeze is there and closed to all but one digest identity.
        open: what is not closed, and to whom.
        unknown: what could not be read, and why.
        identity: the principal that still has every right; None if there is none, or several.
        replication_disabled: None where it could not be read.
    """

    state: State
    open: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    identity: str | None = None
    replication_disabled: bool | None = None

    @property
    def frozen(self) -> bool:
        """Whether it may be counted on."""
        return self.state is State.FROZEN


def is_frozen(store: MetadataStore, root: str) -> FreezeState:
    """Return whether the rights below a root keep all bookies from listing ledgers.

    Raises:
        UnavailableError: the store does not answer.
    """
    if not isinstance(store, AccessControl):
        return FreezeState(State.UNKNOWN, unknown=("this store has no rights",))
    held: dict[str, set[str]] = {}
    readers: set[str] = set()
    opened, unknown, shut = [], [], 0
    for key, perm in _TAKEN.items():
        try:
            rights = store.get_acl(at(root, key))
        except AccessDeniedError:
            unknown.append(f"{key}: its rights may not be read")
            continue
        if rights is None:
            if key in (*MADE, ROOT):
                opened.append(f"{key} is absent")
            continue
        holders = {principal_of(right) for right in parse_rights(rights.acl) if perm in right.perms}
        held[key] = {holder for holder in holders if holder.startswith("digest:")}
        others = holders - held[key]
        if others:
            opened.append(f"{key} is open to {', '.join(sorted(others))}")
        else:
            shut += 1
        if key == ROOT:
            readers = {principal_of(right) for right in parse_rights(rights.acl) if "r" in right.perms}
    owners = set().union(*held.values())
    if len(owners) > 1:
        opened.append(f"more than one identity has rights: {', '.join(sorted(owners))}")
    elif readers and readers <= owners:
        opened.append(f"nobody but {', '.join(sorted(owners))} can read the root: then the bookies are that identity")
    try:
        disabled: bool | None = store.children(at(root, REPLICATION_DISABLED)) is not None
    except AccessDeniedError:
        disabled = None
    state = State.UNKNOWN if unknown else State.FROZEN
    if opened:
        state = State.PARTLY if shut else State.THAWED
    identity = next(iter(owners)) if len(owners) == 1 and shut else None
    return FreezeState(state, tuple(opened), tuple(unknown), identity, disabled)


@dataclass(frozen=True, slots=True)
class Proof:
    """What somebody without our identity was seen to be refused.

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


def prove(stranger: MetadataStore, store: MetadataStore, root: str) -> Proof:
    """Try as a bookie what a frozen bookie must be refused.

    Args:
        stranger: connected as the bookies are, or as nobody, and never with the identity of the freeze.
        store: connected with that identity; takes away what the stranger could make.
        root: of the ledgers.
    """
    refused, allowed, failed = [], [], []
    starts = False
    for key, perm in _TAKEN.items():
        where = at(root, key)
        attempt = f"list {where}" if perm == "r" else f"create below {where}"
        try:
            if perm == "r":
                there = stranger.children(where) is not None
            else:
                there = store.get(where) is not None
                if there:
                    stranger.write([Write(f"{where}/{_PROBE}", b"")])
                    _take_away(store, f"{where}/{_PROBE}")
            if there:
                allowed.append(attempt)
            elif key in MADE:
                failed.append(f"{attempt}: it is absent")
        except AccessDeniedError:
            refused.append(attempt)
        except BackendError as error:
            failed.append(f"{attempt}: {error}")
    try:
        starts = stranger.get(root) is not None
    except BackendError as error:
        failed.append(f"read {root}: {error}")
    return Proof(tuple(refused), tuple(allowed), tuple(failed), starts)


def _take_away(store: MetadataStore, key: str) -> None:
    held = store.get(key)
    if held is not None:
        store.write([Write(key, None, held.version)])


def principals(store: ControlledStore, root: str, identity: str) -> tuple[str, ...]:
    """Return who else is named in the rights of a freeze: nobody can be seen to be refused but by being it."""
    found: set[str] = set()
    for key in KEPT:
        held = store.get_acl(at(root, key))
        if held is not None:
            found |= {principal_of(right) for right in parse_rights(held.acl)}
    return tuple(sorted(found - {WORLD, identity}))


def closed(rights: str, key: str, identity: str) -> str:
    """Return rights without what a freeze takes from all but one principal."""
    kept = []
    for right in parse_rights(rights):
        perms = "".join(perm for perm in right.perms if perm in KEPT[key])
        if perms and principal_of(right) != identity:
            kept.append(f"{principal_of(right)}:{perms}")
    return ",".join([*kept, f"{identity}:{ALL}"])


def principal_of(right: Right) -> str:
    """Return scheme and name as text."""
    return f"{right.scheme}:{right.name}"


def at(root: str, key: str) -> str:
    """Return the absolute key of one that is below the root."""
    return root if key == ROOT else root + key
