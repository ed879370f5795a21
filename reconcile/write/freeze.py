"""Freeze and thaw: every bookie's listing of ledgers made to fail instead of being empty or partial, and back again.

Which rights are taken stands in `freeze_state`. Nobody gets a right that was not there before, and nodes that are
missing are made with the final rights. A root that is gone is made with them, and with what the freeze needs below it,
in one transaction: there is no moment at which it is there, empty, and can be listed. Replication is disabled before:
an auditor whose listing fails ends, and where it lives in a bookie it takes that bookie with it. Thaw goes the other
way round, the listing's rights last, and leaves replication disabled.

The journal is `reconcile.write.audit_journal`'s; one folder serves a root for all its freezes and thaws:

    begin     binding: {"journal": "freeze", "root"}
    freeze    hash, changes: [key, rights before (null: absent), rights after], disable, identity, root_txn, former:
              the rights that nodes which freeze makes get at the thaw
    thaw      hash, changes: [key, rights before, rights after (null: removed)], root_txn
    intent    of (freeze or thaw), op (disable, create, rights, remove, touch), key, before, after
    done      key
    frozen, thawed   the end of either; root_txn

Source: bookie-storage §8.5, run against BookKeeper 4.17.2 and Pulsar's driver 4.0.6.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from backends.errors import (
    AccessDeniedError,
    NotEmptyError,
    OutcomeUnknownError,
    UnavailableError,
    VersionConflictError,
)
from backends.protocols import ControlledStore, MetadataStore, Rights, Write, parents, parse_rights
from reconcile.errors import GuardRefusedError, JournalError, PartlyAppliedError
from reconcile.write import audit_journal
from reconcile.write.freeze_state import (
    ALL,
    KEPT,
    LONG_TREE,
    SHORT_TREE,
    WORLD,
    at,
    closed,
    find_lacking_rights,
    kept_in,
    made_in,
    principal_of,
)
from recovery.codecs.store import (
    AVAILABLE,
    LAYOUT,
    LONG_GENERATOR,
    READ_ONLY,
    REPLICATION_DISABLED,
    ROOT,
    SHORT_GENERATOR,
    UNDERREPLICATION,
    Layout,
    layout_of,
)
from recovery.errors import FormatError, InputError

_REMOVED: Final = (SHORT_TREE, LONG_TREE)
"""What thaw removes if a freeze made it and it is empty; a process that runs may count on LOCKS by then."""
_SUPER: Final = "digest:super:"
_MASKED: Final = ":x"
_TOUCH: Final = "bkmeta-touch"


@dataclass(frozen=True, slots=True)
class Change:
    """One node's rights; of its key, below the root.

    Attributes:
        key: below the root, which is "/".
        before: None: the node is absent, and made.
        after: None: the node is removed.
    """

    key: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.key}: made, with {self.after}"
        if self.after is None:
            return f"{self.key}: removed, it is empty and freeze made it"
        return f"{self.key}: {self.before} -> {self.after}"


@dataclass(frozen=True, slots=True)
class Proposal:
    """The changes of a freeze or a thaw, as a person confirms them.

    Attributes:
        kind: freeze or thaw.
        root: of the ledgers.
        root_txn: transaction that created the root; tells it from another one at the same place.
        identity: the principal that keeps every right.
        disable: whether replication is to be disabled first, with these rights for the node; None: it is.
        changes: in the order in which they are made.
        notes: what a person should know before confirming.
        former: rights that nodes get at the thaw which were absent before the freeze.
    """

    kind: str
    root: str
    root_txn: int | None
    identity: str
    disable: str | None
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()
    former: str = ""

    @property
    def makes_root(self) -> bool:
        """Whether the root is absent, and made with all that is below it at once."""
        return self.kind == "freeze" and any(change.key == ROOT and change.before is None for change in self.changes)

    @property
    def hash(self) -> str:
        """SHA-256 of what will be done to what; the same proposal always has the same."""
        content = [self.kind, self.root, self.root_txn, self.identity, self.disable, _rows(self.changes)]
        return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.changes and self.disable is None


def _rows(changes: Iterable[Change]) -> list[list[str | None]]:
    return [[change.key, change.before, change.after] for change in changes]


@dataclass(slots=True)
class Past:
    """What a journal says of the freeze that is in force or under way, if any.

    Attributes:
        originals: node → rights before the first freeze since the last thaw; None: it was absent.
        frozen_as: node → all rights that freezes gave it since.
        kind, hash, changes: of the last proposal that was begun; "" and empty if there was none since the last thaw.
        ended: whether that one came to its end.
        root_txn: transaction that created the root which was frozen; None: a freeze was about to make it.
        identity: of the freeze.
        former: rights that nodes get at the thaw which were absent before the freeze.
    """

    originals: dict[str, str | None] = field(default_factory=dict)
    frozen_as: dict[str, set[str]] = field(default_factory=dict)
    kind: str = ""
    hash: str = ""
    changes: tuple[Change, ...] = ()
    ended: bool = True
    root_txn: int | None = None
    identity: str = ""
    former: str = ""

    def replay(self, record: audit_journal.Record) -> None:
        """Take one record of the journal, in order."""
        of = record.fields
        match record.event:
            case "freeze" | "thaw":
                if record.event == "freeze" and not self.is_same_root(of["root_txn"]):
                    self.originals, self.frozen_as, self.former = {}, {}, ""
                self.kind, self.hash, self.ended, self.root_txn = record.event, of["hash"], False, of["root_txn"]
                self.changes = tuple(Change(*row) for row in of["changes"])
                self.identity = of.get("identity", self.identity)
                self.former = self.former or of.get("former", "")
            case "intent" if of["of"] == "freeze" and of["op"] in ("create", "rights"):
                self.originals.setdefault(of["key"], of["before"])
                self.frozen_as.setdefault(of["key"], set()).add(of["after"])
            case "frozen":
                self.ended, self.root_txn = True, of.get("root_txn", self.root_txn)
            case "thawed":
                self.originals, self.frozen_as, self.ended, self.former = {}, {}, True, ""
            case _:
                pass

    def is_same_root(self, root_txn: int | None) -> bool:
        """Whether a root is the one that was frozen, or the one that a run which was killed had announced and made."""
        return root_txn == self.root_txn or (self.root_txn is None and self.kind == "freeze" and not self.ended)

    def covers(self, proposal: Proposal, confirmed: str) -> bool:
        """Whether a hash that was confirmed before is of a run that stopped midway, and this is the rest of it."""
        return (
            not self.ended
            and self.hash.startswith(confirmed)
            and proposal.kind == self.kind
            and self.is_same_root(proposal.root_txn)
            and set(proposal.changes) <= set(self.changes)
        )


def binding(root: str) -> dict[str, str]:
    """Return what a journal of freezes belongs to."""
    return {"journal": "freeze", "root": root}


def read_past(folder: Path, root: str) -> Past | None:
    """Return what the journal in a folder says; None if there is none.

    Raises:
        JournalError: altered, or of something else.
    """
    path = folder / audit_journal.JOURNAL
    if not path.exists():
        return None
    past = Past()
    for record in audit_journal.scan(path):
        if isinstance(record, audit_journal.Torn):
            break
        if record.number == 0 and record.fields.get("binding") != binding(root):
            raise JournalError(str(path), f"it is not of a freeze of {root}", "name another folder with --journal")
        with audit_journal.taking(path):
            past.replay(record)
    return past


def demand_layout(store: MetadataStore, root: str, named: Layout | None) -> Layout:
    """Return a layout that can be frozen.

    Raises:
        InputError: LAYOUT and the URI do not say one layout between them.
    """
    held = store.get(at(root, LAYOUT))
    layout = named
    if held is not None:
        try:
            layout = layout_of(held.value)
        except FormatError as error:
            if named is None:
                raise InputError(
                    at(root, LAYOUT), f"cannot be used ({error})", "name the layout in the URI: zk+hierarchical://"
                ) from error
    if layout is None:
        raise InputError(at(root, LAYOUT), "is missing", "name the cluster's layout in the URI: zk+hierarchical://")
    if named not in (None, layout) and (named, layout) != (Layout.LONGLONGHIERARCHICAL, Layout.LONGHIERARCHICAL):
        raise InputError(at(root, LAYOUT), f"says {layout}, the store URI says {named}", "name the one that is true")
    return layout


def propose_freeze(
    store: ControlledStore,
    root: str,
    identity: str,
    past: Past | None = None,
    *,
    layout: Layout = Layout.HIERARCHICAL,
) -> Proposal:
    """Return the changes that freeze a cluster, from the rights that it has now; what is closed already is left out.

    Args:
        store: connected with the identity.
        root: of the ledgers; where it is absent it is made.
        identity: ``digest:user:hash``, which keeps every right.
        past: what the journal says.
        layout: of the ledgers; only flat is a case of its own.

    Raises:
        GuardRefusedError: the identity may not change rights, or not make the root.
    """
    node = store.get(root)
    if node is None or node.acl is None:
        return _propose_root(store, root, identity, layout)
    keep, made = kept_in(layout), made_in(layout is Layout.FLAT)
    former = _original(past, node.created_txn).get(ROOT) or (past.former if past is not None else "") or node.acl
    changes = []
    for key in keep:
        held = _rights(store, root, key, identity)
        if held is not None:
            after = closed(held.acl, keep[key], identity)
            if after != held.acl:
                _demand_admin(root, key, held.acl, identity)
                changes.append(Change(key, held.acl, after))
        elif key in made:
            _demand_create(store, root, key, identity)
            changes.append(Change(key, None, closed(former, keep[key], identity)))
    disable = None
    if _rights(store, root, REPLICATION_DISABLED, identity) is None:
        _demand_create(store, root, REPLICATION_DISABLED, identity)
        disable = former
    notes = tuple(_notes(former, identity))
    return Proposal("freeze", root, node.created_txn, identity, disable, tuple(changes), notes, former)


def _propose_root(store: ControlledStore, root: str, identity: str, layout: Layout) -> Proposal:
    """Propose a root that is there, frozen, at once: else Pulsar's bookies make it again, empty, and delete all."""
    above = next((held for key in (*reversed(parents(root)), "/") if (held := store.get_acl(key)) is not None), None)
    former = above.acl if above is not None else f"{WORLD}:{ALL}"
    if not _may("c", former, identity):
        raise _powerless(root, ROOT, "CREATE above it", identity)
    lacking = find_lacking_rights(former, (identity,))
    if lacking:
        # The nodes below the root get the same rights, and thaw gives them to the root.
        raise GuardRefusedError(
            root,
            f"would be made with the rights of what is above it ({former}), which leave {identity} without {lacking}",
            "make it with rights that name it, or keep the bookies stopped until apply has ended",
        )
    keep, made = kept_in(layout), made_in(layout is Layout.FLAT)
    changes = [Change(ROOT, None, closed(former, keep[ROOT], identity))]
    # What bookies that run register in again; they may not make it themselves.
    changes += [Change(key, None, former) for key in (AVAILABLE, READ_ONLY, UNDERREPLICATION)]
    changes += [Change(key, None, closed(former, keep[key], identity)) for key in keep if key in made]
    notes = (f"{root} does not exist: it is made, frozen. Is it the root that bk_server.conf names?",)
    return Proposal("freeze", root, None, identity, former, tuple(changes), notes, former)


def _rights(store: ControlledStore, root: str, key: str, identity: str) -> Rights | None:
    try:
        return store.get_acl(at(root, key))
    except AccessDeniedError as error:
        raise _powerless(root, key, "READ", identity) from error


def _notes(rights: str, identity: str) -> list[str]:
    others = sorted({principal_of(right) for right in parse_rights(rights)} - {WORLD, identity})
    notes = []
    if others:
        notes.append(f"these principals lose the same rights: {', '.join(others)}")
    if any(principal_of(right) == identity for right in parse_rights(rights)):
        notes.append(f"{identity} had rights here before: if the bookies connect as it, they are not frozen")
    return notes


def _original(past: Past | None, root_txn: int | None) -> Mapping[str, str | None]:
    return past.originals if past is not None and past.root_txn == root_txn else {}


def _demand_admin(root: str, key: str, rights: str, identity: str) -> None:
    masked = any(right.scheme == "digest" and right.name.endswith(_MASKED) for right in parse_rights(rights))
    if masked or not _may("a", rights, identity):
        raise _powerless(root, key, "ADMIN", identity)


def _demand_create(store: ControlledStore, root: str, key: str, identity: str) -> None:
    above = _rights(store, root, UNDERREPLICATION, identity) if key.startswith(UNDERREPLICATION) else None
    above = above or _rights(store, root, ROOT, identity)
    if above is not None and not _may("c", above.acl, identity):
        raise _powerless(root, key, "CREATE above it", identity)


def _may(perm: str, rights: str, identity: str) -> bool:
    if identity.startswith(_SUPER):
        return True
    return any(perm in right.perms and principal_of(right) in (WORLD, identity) for right in parse_rights(rights))


def _powerless(root: str, key: str, right: str, identity: str) -> GuardRefusedError:
    return GuardRefusedError(
        at(root, key),
        f"{identity} lacks the right {right}, so it cannot freeze",
        f"connect as ZooKeeper's super user, or have a principal with ADMIN add {identity}:{ALL} to the rights of "
        f"{root} and of what the freeze changes below it",
    )


def propose_thaw(store: ControlledStore, root: str, past: Past) -> Proposal:
    """Return the changes that give back the rights which freezes took.

    Raises:
        GuardRefusedError: the root is another one than was frozen, or somebody changed the rights meanwhile.
    """
    node = store.get(root)
    if node is None:
        raise GuardRefusedError(root, "does not exist, so nothing is frozen", "apply makes it; there is no thaw to do")
    if past.originals and not past.is_same_root(node.created_txn):
        raise GuardRefusedError(
            root,
            "is not the root that was frozen: that one was removed, and its freeze with it",
            "freeze this one if bookies run",
        )
    changes, notes = [], []
    _take_in(store, root, past)
    # The listing's last: that of the trees, or of the root where ledgers stand in it.
    last = ROOT if SHORT_TREE not in past.originals else SHORT_TREE
    for key in sorted((key for key in reversed(tuple(KEPT)) if key in past.originals), key=lambda key: key == last):
        held = store.get_acl(at(root, key))
        before = past.originals[key]
        if held is None:
            if before is not None:
                notes.append(f"{key} was removed since it was frozen")
            continue
        wanted = before if before is not None else past.former or past.originals.get(ROOT) or held.acl
        if held.acl == wanted:
            continue
        if held.acl not in past.frozen_as[key]:
            raise GuardRefusedError(
                at(root, key),
                f"has the rights {held.acl}, which no freeze of this journal gave it",
                f"set them to {wanted} by hand if that is what they shall be, and thaw again",
            )
        if before is None and key in _REMOVED and not store.children(at(root, key)):
            changes.append(Change(key, held.acl, None))
        else:
            changes.append(Change(key, held.acl, wanted))
    return Proposal("thaw", root, node.created_txn, past.identity, None, tuple(changes), tuple(notes))


def _take_in(store: ControlledStore, root: str, past: Past) -> None:
    """Count what was made since, closed as a freeze closes it, as made by the freeze: an apply makes generators so."""
    former = past.former or past.originals.get(ROOT)
    for key in (SHORT_GENERATOR, LONG_GENERATOR):
        held = store.get_acl(at(root, key)) if past.originals and former else None
        if held is None or former is None or held.acl in past.frozen_as.get(key, ()):
            continue
        if held.acl == closed(former, KEPT[key], past.identity):
            past.originals.setdefault(key, None)
            past.frozen_as.setdefault(key, set()).add(held.acl)


def carry_out(
    proposal: Proposal, store: ControlledStore, journal: audit_journal.Journal, *, resumed: bool = False
) -> None:
    """Make the changes in order, each journalled and synced before it is sent, and each naming the rights it replaces.

    Can be stopped anywhere and run again: what is left is then proposed anew, and is the rest of what was confirmed.

    Args:
        proposal: made just now.
        store: connected with the identity.
        journal: open for writing.
        resumed: whether the proposal is the rest of the one that the journal has begun.

    Raises:
        GuardRefusedError: the first change is not what the proposal expected; nothing was changed.
        PartlyAppliedError: the same further on, or the store stopped answering.
        JournalError: the journal cannot be written.
    """
    if not resumed:
        facts = {"hash": proposal.hash, "changes": _rows(proposal.changes), "root_txn": proposal.root_txn}
        if proposal.kind == "freeze":
            facts |= {"disable": proposal.disable, "identity": proposal.identity, "former": proposal.former}
        journal.append(proposal.kind, facts)
    run = _Run(proposal, store, journal)
    try:
        run.all()
    except UnavailableError as error:
        raise PartlyAppliedError(str(journal.path.parent), str(error), "run the same command again") from error
    except (VersionConflictError, NotEmptyError, AccessDeniedError) as error:
        if run.done:
            raise PartlyAppliedError(
                str(journal.path.parent),
                f"changes made: {run.done}; then {error}",
                "run it again without --confirm, and see what is left",
            ) from error
        raise GuardRefusedError(proposal.root, str(error), "run it again without --confirm, and look again") from error
    node = store.get(proposal.root)
    ended = {"root_txn": node.created_txn if node is not None else None}
    journal.append("frozen" if proposal.kind == "freeze" else "thawed", ended)
    journal.sync()


class _Run:
    def __init__(self, proposal: Proposal, store: ControlledStore, journal: audit_journal.Journal) -> None:
        self._proposal = proposal
        self._store = store
        self._journal = journal
        self.done = 0

    def all(self) -> None:
        """Do everything."""
        if self._proposal.makes_root:
            self._make_root()
            self._touch()
            return
        if self._proposal.disable is not None:
            self._intend("disable", REPLICATION_DISABLED)
            self._make(REPLICATION_DISABLED, self._proposal.disable, exact=False)
            self._did(REPLICATION_DISABLED)
            self.done += 1
        for change in self._proposal.changes:
            if change.before is None:
                self._intend("create", change.key, change)
                self._make(change.key, change.after or "", exact=True)
            elif change.after is None:
                self._intend("remove", change.key, change)
                self._remove(change.key)
            else:
                self._intend("rights", change.key, change)
                self._set(change.key, change.before, change.after)
            self._did(change.key)
            self.done += 1
        if self._proposal.kind == "freeze":
            self._touch()

    def _make_root(self) -> None:
        """Make the root with all that is below it in one transaction."""
        for change in self._proposal.changes:
            self._intend("create", change.key, change)
        writes = [Write(self._at(change.key), b"", acl=change.after) for change in self._proposal.changes]
        writes.append(Write(self._at(REPLICATION_DISABLED), b"", acl=self._proposal.disable))
        try:
            self._store.write(writes)
        except OutcomeUnknownError:
            if self._store.get(self._at(ROOT)) is None:
                raise
        self.done += len(writes)

    def _intend(self, op: str, key: str, change: Change | None = None) -> None:
        facts: dict[str, Any] = {"of": self._proposal.kind, "op": op, "key": key}
        if change is not None:
            facts |= {"before": change.before, "after": change.after}
        self._journal.append("intent", facts)
        self._journal.sync()

    def _did(self, key: str) -> None:
        self._journal.append("done", {"key": key})

    def _at(self, key: str) -> str:
        return at(self._proposal.root, key)

    def _make(self, key: str, rights: str, *, exact: bool) -> None:
        try:
            self._store.write([Write(self._at(key), b"", acl=rights)])
        except (VersionConflictError, OutcomeUnknownError):
            found = self._store.get_acl(self._at(key))
            if found is None or (exact and found.acl != rights):
                raise

    def _set(self, key: str, before: str, after: str) -> None:
        held = self._store.get_acl(self._at(key))
        if held is None or held.acl != before:
            raise VersionConflictError(self._at(key), f"its rights are not {before} any more")
        try:
            self._store.set_acl(self._at(key), after, expected=held.version)
        except OutcomeUnknownError:
            found = self._store.get_acl(self._at(key))
            if found is None or found.acl != after:
                raise

    def _remove(self, key: str) -> None:
        held = self._store.get(self._at(key))
        if held is None:
            return
        try:
            self._store.write([Write(self._at(key), None, held.version)])
        except OutcomeUnknownError:
            if self._store.get(self._at(key)) is not None:
                raise

    def _touch(self) -> None:
        """Have every cached list of the names below these nodes forgotten: Pulsar's bookies list from a cache.

        A change of rights tells nobody; a child that comes and goes does.
        """
        trees = (SHORT_TREE, LONG_TREE)
        for key in (ROOT, *(key for key in trees if self._store.get_acl(self._at(key)) is not None)):
            child = f"{self._at(key)}/{_TOUCH}"
            self._intend("touch", key)
            # Unknown means unseen: sent once more, the pair is complete or leaves nothing.
            with suppress(OutcomeUnknownError):
                self._store.write([Write(child, b""), Write(child, None, 0)])
                continue
            self._store.write([Write(child, b""), Write(child, None, 0)])
