"""What keeps a cluster frozen: the rights below its root, whether they are in force, and the proof as a bookie.

    node below the root       others keep  so that
    /00, /000                 a            the listing fails at its first folder, before anything is deleted
    /underreplication/locks   d r a        the over-replicated check gets no lock and deletes nothing
    /idgen, /idgen-long       a            no client gets an id (the second where it exists: a new one makes ids jump)
    /                         r a          no new folder; READ stays: a bookie that starts asks for the root

In the flat layout ledgers stand in the root itself: READ is taken there instead of on folders, and no bookie starts.

Others are all principals but one digest identity, which has every right. Where nobody else can read the root, that
identity is the bookies' own, as in a cluster whose nodes are all their maker's, and nothing is frozen; where nobody
else can register a bookie, it may be.

It does not stop compaction, the removal of logs whose ledgers are gone already, a pass that had begun before, a super
user, or a server that ignores rights (skipACL).

Source: bookie-storage §8.5, run against BookKeeper 4.17.2 and Pulsar's driver 4.0.6.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from backends.errors import AccessDeniedError, BackendError
from backends.protocols import AccessControl, ControlledStore, MetadataStore, Right, Write, parse_rights
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
"""Node → what principals other than ours keep of their rights, in the order of a freeze."""
KEPT_FLAT: Final[Mapping[str, str]] = {LOCKS: "dra", SHORT_GENERATOR: "a", LONG_GENERATOR: "a", ROOT: "a"}
"""The same where the ledgers stand in the root itself."""
_TAKEN: Final = {SHORT_TREE: "r", LONG_TREE: "r", LOCKS: "c", SHORT_GENERATOR: "c", LONG_GENERATOR: "c", ROOT: "c"}
"""Node → the right that nobody else may have while the cluster counts as frozen; of a flat root also to read it."""
MADE: Final = (SHORT_TREE, LONG_TREE, LOCKS, SHORT_GENERATOR)
"""What a freeze makes where it is missing; who makes `SHORT_GENERATOR` later would make it open."""
MADE_FLAT: Final = (LOCKS,)
ALL: Final = "cdrwa"
WORLD: Final = "world:anyone"
_PROBE: Final = "bkmeta-probe"


class State(StrEnum):
    """How far a cluster is frozen."""

    FROZEN = "frozen"
    PARTLY = "partly"
    THAWED = "thawed"
    UNKNOWN = "unknown"


_NEEDED: Final = "cdr"
"""Rights without which a session could not read, make or remove what it writes."""
_JUDGED: Final = ("world", "digest", "sasl")
"""Schemes by which a session knows whom it is taken for."""


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
    opened, unknown, shut = [], [], 0
    rights, denied = _rights(store, root)
    unknown += [f"{key}: its rights may not be read" for key in denied]
    flat = _is_flat(store, root, rights)
    for key, perm in _demands(flat):
        if key in denied:
            continue
        if key not in rights:
            # Nobody else can make a generator while the root is closed.
            if key in (SHORT_TREE, LONG_TREE, LOCKS, ROOT):
                opened.append(f"{key} is absent")
            continue
        holders = _holders(rights[key], perm)
        ours = {holder for holder in holders if holder.startswith("digest:")}
        held[key] = held.get(key, set()) | ours
        others = holders - ours
        if others:
            opened.append(f"{key} is open to {', '.join(sorted(others))}")
        else:
            shut += 1
    owners = set().union(*held.values())
    # Of a flat root READ is taken from all: then who may change rights tells who else there is.
    readers = _holders(rights.get(ROOT, ""), "a" if flat else "r")
    registrars = _holders(rights.get(AVAILABLE, ""), "c")
    if len(owners) > 1:
        opened.append(f"more than one identity has rights: {', '.join(sorted(owners))}")
    elif readers and readers <= owners:
        opened.append(f"nobody but {', '.join(sorted(owners))} can read the root: then the bookies are that identity")
    elif registrars and registrars <= owners:
        name = ", ".join(sorted(owners))
        unknown.append(f"nobody but {name} can register a bookie: then the bookies are that identity, and not frozen")
    try:
        disabled: bool | None = store.children(at(root, REPLICATION_DISABLED)) is not None
    except AccessDeniedError:
        disabled = None
    state = State.UNKNOWN if unknown else State.FROZEN
    if opened:
        state = State.PARTLY if shut else State.THAWED
    identity = next(iter(owners)) if len(owners) == 1 and shut else None
    return FreezeState(state, tuple(opened), tuple(unknown), identity, disabled)


def _rights(store: AccessControl, root: str) -> tuple[dict[str, str], list[str]]:
    """Return the rights of what a freeze is told by, and the nodes of which they may not be read."""
    found: dict[str, str] = {}
    denied = []
    for key in (*_TAKEN, AVAILABLE):
        try:
            rights = store.get_acl(at(root, key))
        except AccessDeniedError:
            denied.append(key)
            continue
        if rights is not None:
            found[key] = rights.acl
    return found, denied


def _holders(rights: str, perm: str) -> set[str]:
    return {principal_of(right) for right in parse_rights(rights) if perm in right.perms} if rights else set()


def _is_flat(store: MetadataStore, root: str, rights: Mapping[str, str]) -> bool:
    """Whether ledgers stand in the root, by LAYOUT; without one, whether the root is closed as only a flat one is."""
    try:
        held = store.get(at(root, LAYOUT))
        if held is not None:
            return layout_of(held.value) is Layout.FLAT
    except (AccessDeniedError, FormatError):
        pass
    readers = _holders(rights.get(ROOT, ""), "r")
    return SHORT_TREE not in rights and bool(readers) and all(name.startswith("digest:") for name in readers)


def _demands(flat: bool) -> list[tuple[str, str]]:  # noqa: FBT001 - which of the two recipes
    taken = [(key, perm) for key, perm in _TAKEN.items() if not flat or key in KEPT_FLAT]
    return [*taken, (ROOT, "r")] if flat else taken


def made_in(flat: bool) -> tuple[str, ...]:  # noqa: FBT001 - which of the two recipes
    """Return what a freeze makes where it is missing."""
    return MADE_FLAT if flat else MADE


def kept_in(layout: Layout) -> Mapping[str, str]:
    """Return the nodes that a freeze changes, with what others keep, for a layout."""
    return KEPT_FLAT if layout is Layout.FLAT else KEPT


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


def prove(stranger: MetadataStore, store: MetadataStore, root: str, layout: Layout) -> Proof:
    """Try as a bookie what a frozen bookie must be refused.

    Args:
        stranger: connected as the bookies are, or as nobody, and never with the identity of the freeze.
        store: connected with that identity; takes away what the stranger could make.
        root: of the ledgers.
        layout: of the ledgers.
    """
    refused, allowed, failed = [], [], []
    starts = False
    flat = layout is Layout.FLAT
    for key, perm in _demands(flat):
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
            elif key in (SHORT_TREE, LONG_TREE, LOCKS):
                failed.append(f"{attempt}: it is absent")
        except AccessDeniedError:
            refused.append(attempt)
        except BackendError as error:
            failed.append(f"{attempt}: {error}")
    try:
        starts = not flat and stranger.get(root) is not None
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


def closed(rights: str, keep: str, identity: str) -> str:
    """Return rights without what a freeze takes from all but one principal, who keep so many."""
    kept = []
    for right in parse_rights(rights):
        perms = "".join(perm for perm in right.perms if perm in keep)
        if perms and principal_of(right) != identity:
            kept.append(f"{principal_of(right)}:{perms}")
    return ",".join([*kept, f"{identity}:{ALL}"])


def principal_of(right: Right) -> str:
    """Return scheme and name as text."""
    return f"{right.scheme}:{right.name}"


def find_lacking_rights(acl: str, principals: Iterable[str]) -> str:
    """Return the rights that a session needs and that an ACL does not give it; empty: it has them all.

    Names of other schemes than these three may be the session's: nothing here knows addresses and certificates.

    Args:
        acl: scheme:id:perms,…
        principals: whom the session is taken for, besides anybody.
    """
    session = {WORLD, *principals}
    if any(name.startswith("digest:super:") for name in session):
        return ""
    given = {
        perm
        for right in parse_rights(acl)
        if right.scheme not in _JUDGED or principal_of(right) in session
        for perm in right.perms
    }
    return "".join(perm for perm in _NEEDED if perm not in given)


def at(root: str, key: str) -> str:
    """Return the absolute key of one that is below the root."""
    return root if key == ROOT else root + key
