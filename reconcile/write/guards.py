"""What must hold before anything is written: each guard looks, and refuses by `GuardRefusedError`.

    require_same_root      the store's LAYOUT and instance id are the plan's
    require_same_cluster   the same by the bookies' cookies, where the plan writes no instance id
    require_unused         no bookie is registered in a root that can be listed
    require_stopped        no bookie answers at the address in its id
    require_room_for_locks the store can list the locks that guard ledgers
    require_no_replication replication is disabled, where ledgers are guarded by names alone
    require_usable_acl     an ACL leaves this session what it needs
    choose_acl            a store that somebody secured says nothing of the ACL that records must have
    require_not_undone     no undo has begun with the journal
    require_waves_before   the waves before were written to their end
    require_sound_waves    what the waves before wrote was scrutinized, and nothing unexpected was found
    require_frozen         no bookie can list the store while records are removed
    require_separate_root  a rehearsal's root is in no cluster's
    require_unregistered   no bookie is registered in a rehearsal's root
    require_layout         a freeze knows the layout
    require_admin, …       the identity of a freeze may change rights, and make nodes

What a thaw must find is judged by listings, in `reconcile.check`.
"""

import re
import socket
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from backends.bookie import frames
from backends.errors import AccessDeniedError
from backends.protocols import AccessControl, Acl, ControlledStore, MetadataStore, parents, parse_acl
from reconcile import clusters
from reconcile.errors import Advice, GuardRefusedError, Remedy
from reconcile.words import count_noun, is_or_are, list_names
from reconcile.write.audit_journal import find_next_journal
from reconcile.write.freezing.freeze_state import ALL, WORLD, join_key, name_principal, read_freeze_state
from reconcile.write.journal_events import EarlierRuns, UndoBegun
from reconcile.write.plan_actions import CHANGES, Action
from recovery.codecs import store as keys
from recovery.codecs.replication_lock import MAX_LOCKS
from recovery.errors import FormatError, InputError

OPEN_ACL: Final = f"{WORLD}:{ALL}"
_LISTED: Final = 5
"""Bookies, or principals, that a message names."""
_SHOWN_BYTES: Final = 100
_NEEDED: Final = "cdr"
"""Rights without which a session could not read, make or remove what it writes."""
_JUDGED: Final = ("world", "digest", "sasl")
"""Schemes by which a session knows whom it is taken for."""
_SUPER: Final = "digest:super:"
_MASKED: Final = ":x"
"""How a store ends the name of a digest principal that it does not show."""
_ADDRESS: Final = re.compile(r"[^:]+:[0-9]{1,5}")
_ANSWER_S: Final = 5.0
_SIZE_FIELD: Final = 4
_CONNECTIONS: Final = 256


def list_registered(store: MetadataStore, base: str) -> Iterator[tuple[str, str]]:
    """Yield the bookies that are registered below a root, each with the folder that names it."""
    for folder in keys.REGISTRATIONS:
        for name in store.children(base + folder) or ():
            if f"{folder}/{name}" != keys.READ_ONLY:
                yield folder, name


def _name_some(names: Sequence[str]) -> str:
    return ", ".join(names[:_LISTED]) + (", …" if len(names) > _LISTED else "")


def require_same_root(fixed: Iterable[Action], store: MetadataStore, base: str) -> None:
    """Refuse a root whose LAYOUT or instance id is another one than the plan's.

    Args:
        fixed: the plan's actions of these keys.
        store: only read.
        base: key of the root; empty: all of the store.

    Raises:
        GuardRefusedError: it is another cluster's, or the plan's bookies are of two clusters.
    """
    by_key: dict[str, list[Action]] = {}
    for action in fixed:
        by_key.setdefault(action.key, []).append(action)
    for key, actions in by_key.items():
        values = {action.value for action in actions}
        if len(values) > 1:
            raise GuardRefusedError(
                base + key, "the plan has two values for it: the bookies are of two clusters", "recover each by itself"
            )
        stored = store.get(base + key)
        # One that a person asked to be replaced stands for itself.
        known = values | {action.before for action in actions if action.op in CHANGES}
        if stored is not None and stored.value not in known:
            stands, planned = (
                (value or b"")[:_SHOWN_BYTES].decode(errors="replace") for value in (stored.value, *values)
            )
            raise GuardRefusedError(
                base + key,
                f"the store has {stands!r}, the plan {planned!r}: it is another cluster's root",
                "choose the root of the plan's cluster",
            )


def require_same_cluster(store: MetadataStore, base: str, instance_ids: Sequence[str]) -> None:
    """Refuse a store whose instance id is none of those that the plan was made of.

    Raises:
        GuardRefusedError: it is another cluster's.
    """
    if not instance_ids:
        return
    for key, instance_id in clusters.read_instance_ids(store, base):
        if instance_id not in instance_ids:
            raise GuardRefusedError(
                key,
                f"the store has {instance_id!r}, the plan was made of {instance_ids[0]!r}: it is another cluster's "
                "root",
                "choose the root of the plan's cluster",
            )


def require_unused(store: MetadataStore, root: str) -> None:
    """Refuse a root in which bookies are registered, unless it is frozen: they delete what a partial root lacks.

    Raises:
        GuardRefusedError: bookies are running.
    """
    base = root.rstrip("/")
    registered = sorted({name for _, name in list_registered(store, base)})
    if registered and not read_freeze_state(store, root).frozen:
        is_freezable = isinstance(store, AccessControl)
        advice = Advice.FREEZE_OR_ACCEPT_UNFROZEN if is_freezable else Advice.STOP_OR_ACCEPT_UNFROZEN
        raise GuardRefusedError(
            base or "/",
            f"{count_noun(len(registered), 'bookie')} {is_or_are(len(registered))} running "
            f"({_name_some(registered)}): what a partial root does not name is deleted",
            Remedy(advice),
        )


def require_room_for_locks(locks: Collection[str], store: MetadataStore, base: str) -> None:
    """Refuse more locks than a store lists in one answer: past that no worker finds out which ledgers are free.

    Args:
        locks: keys below the root of those that a plan makes.
        store: only read.
        base: key of the root; empty: all of the store.

    Raises:
        GuardRefusedError: with those that are there they are too many.
    """
    if not locks:
        return
    locks_in_store = {f"{keys.LOCKS}/{name}" for name in store.children(base + keys.LOCKS) or ()}
    if len(locks_in_store | set(locks)) > MAX_LOCKS:
        raise GuardRefusedError(
            base + keys.LOCKS,
            f"holds {len(locks_in_store)} locks; with those of the plan there would be more than the {MAX_LOCKS} that "
            "one listing was seen to hold",
            Remedy(Advice.COUNT_LOCKS_AGAIN),
        )


def require_no_replication(named: int, store: MetadataStore, base: str) -> None:
    """Refuse guards by names while replication is enabled: a worker replaces a silent member, whose copies then go.

    Args:
        named: how many ledgers a plan guards by names.
        store: only read; not etcd, where BookKeeper has no replication.
        base: key of the root; empty: all of the store.

    Raises:
        GuardRefusedError: replication is not disabled.
    """
    if named and store.get(base + keys.REPLICATION_DISABLED) is None:
        raise GuardRefusedError(
            base + keys.REPLICATION_DISABLED,
            f"is not there: replication is enabled, and {count_noun(named, 'ledger')} of the plan "
            f"{is_or_are(named)} guarded by names alone, which holds while it is not",
            "bookkeeper shell autorecovery -disable, and leave it so until these ledgers are settled",
        )


def ask_whether_running(bookies: Iterable[str]) -> Mapping[str, bool]:
    """Return of each bookie whose id is host:port whether a bookie answers there, in the order of the ids."""
    names = sorted(bookie for bookie in set(bookies) if _ADDRESS.fullmatch(bookie))
    with ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="bookies") as pool:
        return dict(zip(names, pool.map(_is_answered, names), strict=True))


def require_stopped(bookies: Iterable[str]) -> None:
    """Refuse where a bookie answers at the address in its id.

    On etcd a bookie that lost its lease once runs on and never registers again. An id that is not a host:port is passed
    over.

    Raises:
        GuardRefusedError: a bookie answers.
    """
    if running := [name for name, answers in ask_whether_running(bookies).items() if answers]:
        raise GuardRefusedError(
            ", ".join(running[:_LISTED]),
            f"{count_noun(len(running), 'bookie')} {is_or_are(len(running))} running, registered or not (what "
            "answers at the address in an id): what a partial root does not name is deleted",
            Remedy(Advice.STOP_OR_ACCEPT_UNFROZEN),
        )


def _is_answered(address: str) -> bool:
    """Whether a bookie's protocol is spoken at an address; a proxy may accept connections without a bookie."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=_ANSWER_S) as connection:
            connection.sendall(frames.encode(frames.bookie_info(), 1))
            size = connection.recv(_SIZE_FIELD, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(size) == _SIZE_FIELD and 0 < int.from_bytes(size) <= frames.LARGEST_FRAME


def find_lacking_permissions(acl: str, principals: Iterable[str]) -> str:
    """Return the permissions that a session needs and that an ACL does not give it; empty: it has them all.

    Principals of other schemes than these three may be the session's: nothing here knows addresses and certificates.

    Args:
        acl: scheme:id:perms,…
        principals: whom the session is taken for, besides anybody.
    """
    session = {WORLD, *principals}
    if any(name.startswith(_SUPER) for name in session):
        return ""
    given = {
        perm
        for right in parse_acl(acl)
        if right.scheme not in _JUDGED or name_principal(right) in session
        for perm in right.perms
    }
    return "".join(perm for perm in _NEEDED if perm not in given)


def require_usable_acl(acl: str, principals: Sequence[str]) -> None:
    """Refuse an ACL under which this session could not read, go on below or remove what it makes.

    Raises:
        GuardRefusedError: it would lock this session out.
    """
    lacking = find_lacking_permissions(acl, principals)
    if lacking:
        raise GuardRefusedError(
            acl,
            f"leaves this session without {lacking}: it could not read, make or remove what it writes",
            f"name whom it connects as, too, e.g. {min(principals, default=WORLD)}:cdrwa",
        )


def choose_acl(store: MetadataStore, root: str) -> str | None:
    """Return the ACL that records must have where neither plan nor person names one, from what is in the store.

    Raises:
        GuardRefusedError: somebody secured the store, so a person has to say who may do what with the records.
    """
    if not isinstance(store, AccessControl):
        return None
    base = root.rstrip("/")
    neighbours = (keys.LAYOUT, keys.INSTANCE_ID, keys.COOKIES, keys.AVAILABLE, keys.READ_ONLY, keys.UNDERREPLICATION)
    granted = _read_grants(store, [base + key for key in neighbours])
    state = read_freeze_state(store, root)
    on_root = _read_grants(store, [base or "/"])
    if state.frozen:
        # The freeze took rights from the root and added one identity: only the other names say something.
        granted |= {(name, "") for name, _ in on_root if name not in (WORLD, state.identity)}
    else:
        granted |= on_root
    if not granted:
        above = reversed(["/", *parents(base)])
        granted = next((grants for key in above if (grants := _read_grants(store, [key]))), set())
    secured = {f"{name}:{perms}" for name, perms in granted} - {OPEN_ACL}
    if secured:
        raise GuardRefusedError(
            base or "/",
            f"has ACLs of its own ({', '.join(sorted(secured)[:_LISTED])}), and nothing says which the records shall "
            "have",
            Remedy(Advice.NAME_ACL_OF_LEDGERS),
        )
    return OPEN_ACL


def _read_grants(store: AccessControl, absolute_keys: Iterable[str]) -> set[tuple[str, str]]:
    acls = [store.get_acl(key) for key in absolute_keys]
    return {(name_principal(right), right.perms) for acl in acls if acl is not None for right in parse_acl(acl.text)}


def require_frozen(store: MetadataStore, root: str, ledgers: int) -> None:
    """Refuse to remove records from a store that bookies can list.

    Args:
        store: only read.
        root: of the ledgers.
        ledgers: whose records would be removed.

    Raises:
        GuardRefusedError: it is not frozen.
    """
    if not read_freeze_state(store, root).frozen:
        raise GuardRefusedError(
            root,
            f"is not frozen: the undo removes records of {count_noun(ledgers, 'ledger')}, and bookies delete "
            "what has none",
            Remedy(Advice.FREEZE_OR_UNDO_REPLACED),
        )


def require_separate_root(store: MetadataStore, root: str, marks: Sequence[str]) -> None:
    """Refuse a rehearsal's root that stands inside a ledgers root, or inside another rehearsal's.

    Args:
        store: only read.
        root: of the rehearsal.
        marks: keys, below a root, that tell one.

    Raises:
        GuardRefusedError: it stands inside one.
    """
    for above in parents(root):
        if any(store.get(above + mark) is not None for mark in marks):
            problem = f"stands inside {above}, which is a ledgers root"
            raise GuardRefusedError(root, problem, "name a root of its own, e.g. /bkmeta-rehearsal/ledgers")


def require_unregistered(store: MetadataStore, root: str) -> None:
    """Refuse to remove a root in which bookies are registered.

    Raises:
        GuardRefusedError: bookies are.
    """
    by_folder: dict[str, list[str]] = {}
    for folder, name in list_registered(store, root):
        by_folder.setdefault(folder, []).append(name)
    for folder, names in by_folder.items():
        problem = f"bookies are registered in it: {', '.join(names[:_LISTED])}"
        raise GuardRefusedError(root + folder, problem, "stop them first")


def require_not_undone(earlier: EarlierRuns, journal: Path) -> None:
    """Refuse a journal that an undo has begun with: what it says is written may be gone.

    Raises:
        GuardRefusedError: an undo began, or has ended.
    """
    if isinstance(earlier.undo, UndoBegun):
        problem = "is being undone: an undo was begun and has not ended"
        raise GuardRefusedError(str(journal), problem, Remedy(Advice.END_UNDO, str(journal.parent)))
    if earlier.undo is not None:
        problem = "was undone: what it says is written is gone"
        remedy = Remedy(Advice.APPLY_WITH_NEW_JOURNAL, str(find_next_journal(journal.parent)))
        raise GuardRefusedError(str(journal), problem, remedy)


def require_waves_before(earlier: EarlierRuns, journal: Path, wave: int | None) -> None:
    """Refuse to go on where a wave before was not written to its end: a resumed run would take it for done.

    Raises:
        GuardRefusedError: one was not.
    """
    if earlier.finished < earlier.before or any(seq <= earlier.before for seq in earlier.presumed):
        raise GuardRefusedError(
            f"wave {wave}",
            f"the waves before it were not written to their end, by the journal {journal}",
            Remedy(Advice.APPLY_WAVES_BEFORE),
        )


def require_sound_waves(earlier: EarlierRuns, wave: int | None, accepted: int) -> None:
    """Refuse a wave before what the earlier ones wrote was scrutinized, or while something unexpected was found.

    Args:
        earlier: runs of the same journal.
        wave: that comes next; None: all of the plan, which waits for nothing.
        accepted: how many unexpected findings a person accepts.

    Raises:
        GuardRefusedError: a wave was not scrutinized, or with another number of unexpected findings.
    """
    unexpected = 0
    for number in range(1, wave or 1):
        scrutiny = earlier.scrutinies.get(number)
        if scrutiny is None or scrutiny.absent:
            why = "was not scrutinized" if scrutiny is None else f"was not judged by {list_names(scrutiny.absent)}"
            raise GuardRefusedError(f"wave {wave}", f"wave {number} {why}", Remedy(Advice.SCRUTINIZE_WAVE, str(number)))
        unexpected += scrutiny.unexpected
    if unexpected != accepted:
        problem = f"the waves before it have {count_noun(unexpected, 'finding')} that the plan does not have"
        raise GuardRefusedError(f"wave {wave}", problem, Remedy(Advice.FIX_OR_ACCEPT_FINDINGS, str(unexpected)))


def require_layout(store: MetadataStore, root: str, named: keys.Layout | None) -> keys.Layout:
    """Return a layout that can be frozen.

    Raises:
        InputError: LAYOUT and the URI do not say one layout between them.
    """
    stored = store.get(join_key(root, keys.LAYOUT))
    layout = named
    if stored is not None:
        try:
            layout = keys.layout_of(stored.value)
        except FormatError as error:
            if named is None:
                raise InputError(
                    join_key(root, keys.LAYOUT),
                    f"cannot be used ({error})",
                    "name the layout in the URI: zk+hierarchical://",
                ) from error
    if layout is None:
        raise InputError(
            join_key(root, keys.LAYOUT), "is missing", "name the cluster's layout in the URI: zk+hierarchical://"
        )
    if named not in (None, layout) and (named, layout) != (
        keys.Layout.LONGLONGHIERARCHICAL,
        keys.Layout.LONGHIERARCHICAL,
    ):
        raise InputError(
            join_key(root, keys.LAYOUT), f"says {layout}, the store URI says {named}", "name the one that is true"
        )
    return layout


def read_acl(store: ControlledStore, root: str, key: str, identity: str) -> Acl | None:
    """Return the ACL of a node; None if it is absent.

    Raises:
        GuardRefusedError: the identity may not read them.
    """
    try:
        return store.get_acl(join_key(root, key))
    except AccessDeniedError as error:
        raise _describe_powerless(root, key, "READ", identity) from error


def require_admin(root: str, key: str, acl: str, identity: str) -> None:
    """Refuse to change the ACL of a node where the identity may not.

    Raises:
        GuardRefusedError: it lacks the right, or the store hides who has which.
    """
    is_masked = any(right.scheme == "digest" and right.name.endswith(_MASKED) for right in parse_acl(acl))
    if is_masked or not _has_right("a", acl, identity):
        raise _describe_powerless(root, key, "ADMIN", identity)


def require_creation(store: ControlledStore, root: str, key: str, identity: str) -> None:
    """Refuse to make a node below a root where the identity may not.

    Raises:
        GuardRefusedError: it lacks the right.
    """
    above = read_acl(store, root, keys.UNDERREPLICATION, identity) if key.startswith(keys.UNDERREPLICATION) else None
    above = above or read_acl(store, root, keys.ROOT, identity)
    if above is not None and not _has_right("c", above.text, identity):
        raise _describe_powerless(root, key, "CREATE above it", identity)


def require_root_creation(root: str, acl: str, identity: str) -> None:
    """Refuse to make a root where the identity may not, or with an ACL that would lock it out.

    Args:
        root: that is absent.
        acl: of the lowest key above it that is there; the root gets the same.
        identity: of the freeze.

    Raises:
        GuardRefusedError: it lacks a right.
    """
    if not _has_right("c", acl, identity):
        raise _describe_powerless(root, keys.ROOT, "CREATE above it", identity)
    lacking = find_lacking_permissions(acl, (identity,))
    if lacking:
        # The nodes below the root get the same rights, and thaw gives them to the root.
        raise GuardRefusedError(
            root,
            f"would be made with the ACL of what is above it ({acl}), which leaves {identity} without {lacking}",
            "make it with an ACL that names it, or keep the bookies stopped until apply has ended",
        )


def _has_right(perm: str, acl: str, identity: str) -> bool:
    if identity.startswith(_SUPER):
        return True
    return any(perm in right.perms and name_principal(right) in (WORLD, identity) for right in parse_acl(acl))


def _describe_powerless(root: str, key: str, right: str, identity: str) -> GuardRefusedError:
    return GuardRefusedError(
        join_key(root, key),
        f"{identity} lacks the right {right}, so it cannot freeze",
        f"connect as ZooKeeper's super user, or have a principal with ADMIN add {identity}:{ALL} to the ACL of "
        f"{root} and of what the freeze changes below it",
    )
