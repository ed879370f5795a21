"""Freeze and thaw: every bookie's listing of ledgers made to fail instead of being empty or partial, and back again.

Which rights are taken is in `freeze_state`. Nobody gets a right that they did not have, and missing nodes are made
with the final rights. A root that is gone is made with them, and with what the freeze needs below it,
in one transaction: there is no moment at which it is there, empty, and can be listed. Replication is disabled before:
an auditor whose listing fails ends, and where it lives in a bookie it takes that bookie with it. Thaw goes the other
way round, the listing's rights last, and leaves replication disabled, unless it is asked to enable it and a freeze of
the same journal disabled it.

One journal folder serves a root for all its freezes and thaws; its lines are in `journal_events`, its binding is
{"journal": "freeze", "root"}.

Tried with BookKeeper 4.17.2 and Pulsar's driver 4.0.6.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from backends.errors import AccessDeniedError, OutcomeUnknownError, UnavailableError, VersionConflictError
from backends.protocols import Acl, ControlledStore, Write, parents, parse_acl
from reconcile.errors import Advice, GuardRefusedError, JournalError, PartlyAppliedError, Remedy
from reconcile.write import audit_journal
from reconcile.write.freezing.freeze_state import (
    KEPT,
    LONG_TREE,
    SHORT_TREE,
    WORLD,
    close_acl,
    join_key,
    list_made_nodes,
    name_principal,
    select_kept,
)
from reconcile.write.guards import OPEN_ACL, read_acl, require_admin, require_creation, require_root_creation
from reconcile.write.journal_events import (
    FREEZE,
    AclChangesBegun,
    AclChangesEnded,
    AclDone,
    AclIntent,
    AclRow,
    FreezeHistory,
    append_event,
)
from reconcile.write.writer import Writer, WriteStep, settle_changes
from recovery.codecs.store import (
    AVAILABLE,
    LONG_GENERATOR,
    READ_ONLY,
    REPLICATION_DISABLED,
    ROOT,
    SHORT_GENERATOR,
    UNDERREPLICATION,
    Layout,
)

_REMOVED: Final = (SHORT_TREE, LONG_TREE)
"""What thaw removes if a full freeze made it and it is empty; a process that runs may count on LOCKS by then."""
_LISTED: Final = (ROOT, SHORT_TREE, LONG_TREE)
"""Nodes whose names bookies may have cached, and must ask for again."""
_TOUCH: Final = "bkmeta-touch"
_CLIENTS_GO_ON: Final = (
    "clients go on to create, write, close and delete ledgers; what they delete bookies keep until the thaw"
)
_NO_NEW_LEDGERS: Final = "until the thaw no client can create a ledger: writers that need a new one wait or fail"


@dataclass(frozen=True, slots=True)
class AclChange:
    """The change of one node's rights.

    Attributes:
        key: below the root, which is "/".
        before: None: the node is absent, and made.
        after: None: the node is removed.
    """

    key: str
    before: str | None
    after: str | None
    value: ClassVar[bytes] = b""

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.key}: made, with {self.after}"
        if self.key == REPLICATION_DISABLED:
            return f"{self.key}: removed, so that replication goes on; freeze made it"
        if self.after is None:
            return f"{self.key}: removed, it is empty and freeze made it"
        return f"{self.key}: {self.before} -> {self.after}"

    @property
    def op(self) -> str:
        """What is done to the node, as the journal names it."""
        return "create" if self.before is None else "remove" if self.after is None else "rights"

    def is_made(self, stored: Acl | None) -> bool:
        """Whether the node has the rights that it must have, or is gone where it must be."""
        return stored is None if self.after is None else stored is not None and stored.text == self.after

    def find_objection(self, stored: Acl | None) -> str | None:
        """Return why the rights that a node has forbid the change; None if it can be made."""
        if self.op == "create":
            return None if stored is None else f"it was made meanwhile, with {stored.text}"
        if self.op == "remove" or (stored is not None and stored.text == self.before):
            return None
        return f"its rights are not {self.before} any more"


@dataclass(frozen=True, slots=True)
class _Disabling:
    """The node that disables replication; anybody who makes it, with whatever rights, it does.

    Attributes:
        value: names the freeze: a thaw that enables replication takes away this node and no other's.
    """

    after: str
    value: bytes
    before: None = None
    key: str = REPLICATION_DISABLED

    def is_made(self, stored: Acl | None) -> bool:
        """Whether the node is there."""
        return stored is not None

    def find_objection(self, stored: Acl | None) -> str | None:  # noqa: ARG002 - as of every change
        """Object to nothing."""
        return None


@dataclass(frozen=True, slots=True)
class FreezeProposal:
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
    changes: tuple[AclChange, ...]
    notes: tuple[str, ...] = ()
    former: str = ""

    @property
    def makes_root(self) -> bool:
        """Whether the root is absent, and made with all that is below it at once."""
        return self.kind == "freeze" and any(change.key == ROOT and change.before is None for change in self.changes)

    @property
    def hash(self) -> str:
        """SHA-256 of what will be done to what; the same proposal always has the same."""
        content = [self.kind, self.root, self.root_txn, self.identity, self.disable, _list_rows(self.changes)]
        return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.changes and self.disable is None


def _list_rows(changes: Iterable[AclChange]) -> list[AclRow]:
    return [AclRow(change.key, change.before, change.after) for change in changes]


def make_binding(root: str) -> dict[str, str]:
    """Return what a journal of freezes belongs to."""
    return {"journal": "freeze", "root": root}


def read_history(folder: Path, root: str) -> FreezeHistory | None:
    """Return what the journal in a folder says; None if there is none.

    Raises:
        JournalError: altered, or of something else.
    """
    path = folder / audit_journal.JOURNAL
    if not path.exists():
        return None
    history = FreezeHistory()
    for record in audit_journal.scan(path):
        if isinstance(record, audit_journal.Torn):
            break
        if record.number == 0 and record.fields.get("binding") != make_binding(root):
            raise JournalError(str(path), f"it is not of a freeze of {root}", Remedy(Advice.NAME_OTHER_JOURNAL))
        with audit_journal.report_foreign(path):
            history.replay(record)
    return history


def propose_freeze(
    store: ControlledStore,
    root: str,
    identity: str,
    history: FreezeHistory | None = None,
    *,
    layout: Layout = Layout.HIERARCHICAL,
    deletes_only: bool = False,
) -> FreezeProposal:
    """Return the changes that freeze a cluster, from the rights that it has now; what is closed already is left out.

    Args:
        store: connected with the identity.
        root: of the ledgers; where it is absent it is made.
        identity: ``digest:user:hash``, which keeps every right.
        history: what the journal says.
        layout: of the ledgers; only flat is a case of its own.
        deletes_only: freeze what bookies delete, and let clients go on.

    Raises:
        GuardRefusedError: the identity may not change rights, or not make the root; or clients were to go on in a root
            that is absent.
    """
    node = store.get(root)
    if node is None or node.acl is None:
        if deletes_only:
            problem = "does not exist: ids that clients would get in an empty one were given out before"
            raise GuardRefusedError(root, problem, Remedy(Advice.FREEZE_ALL))
        return _propose_root(store, root, identity, layout)
    keep, made = select_kept(layout, deletes_only=deletes_only), list_made_nodes(layout)
    former = (
        _select_originals(history, node.created_txn).get(ROOT)
        or (history.former if history is not None else "")
        or node.acl
    )
    changes = []
    for key in keep:
        acl = read_acl(store, root, key, identity)
        if acl is not None:
            after = close_acl(acl.text, keep[key], identity)
            if after != acl.text:
                require_admin(root, key, acl.text, identity)
                changes.append(AclChange(key, acl.text, after))
        elif key in made:
            require_creation(store, root, key, identity)
            changes.append(AclChange(key, None, close_acl(former, keep[key], identity)))
    disable = None
    if read_acl(store, root, REPLICATION_DISABLED, identity) is None:
        require_creation(store, root, REPLICATION_DISABLED, identity)
        disable = former
    notes = (_CLIENTS_GO_ON if deletes_only else _NO_NEW_LEDGERS, *_note_principals(former, identity))
    return FreezeProposal("freeze", root, node.created_txn, identity, disable, tuple(changes), notes, former)


def _propose_root(store: ControlledStore, root: str, identity: str, layout: Layout) -> FreezeProposal:
    """Propose a root that is there, frozen, at once: else Pulsar's bookies make it again, empty, and delete all."""
    above = next((acl for key in (*reversed(parents(root)), "/") if (acl := store.get_acl(key)) is not None), None)
    former = above.text if above is not None else OPEN_ACL
    require_root_creation(root, former, identity)
    keep, made = select_kept(layout), list_made_nodes(layout)
    changes = [AclChange(ROOT, None, close_acl(former, keep[ROOT], identity))]
    # What bookies that run register in again; they may not make it themselves.
    changes += [AclChange(key, None, former) for key in (AVAILABLE, READ_ONLY, UNDERREPLICATION)]
    changes += [AclChange(key, None, close_acl(former, keep[key], identity)) for key in keep if key in made]
    absent = f"{root} does not exist: it is made, frozen. Is it the root that bk_server.conf names?"
    notes = (absent, _NO_NEW_LEDGERS)
    return FreezeProposal("freeze", root, None, identity, former, tuple(changes), notes, former)


def _note_principals(acl: str, identity: str) -> list[str]:
    principals = {name_principal(right) for right in parse_acl(acl)}
    losers = sorted(principals - {WORLD, identity})
    notes = []
    if losers:
        notes.append(f"these principals lose the same rights: {', '.join(losers)}")
    if identity in principals:
        notes.append(f"{identity} had rights here before: if the bookies connect as it, they are not frozen")
    return notes


def _select_originals(history: FreezeHistory | None, root_txn: int | None) -> Mapping[str, str | None]:
    return history.originals if history is not None and history.root_txn == root_txn else {}


def propose_thaw(
    store: ControlledStore, root: str, history: FreezeHistory, *, enable_replication: bool = False
) -> FreezeProposal:
    """Return the changes that give back the rights which freezes took.

    Args:
        store: connected with the identity.
        root: of the ledgers.
        history: what the journal says.
        enable_replication: whether replication goes on, if a freeze of this journal disabled it.

    Raises:
        GuardRefusedError: the root is another one than was frozen, or somebody changed the rights meanwhile.
    """
    node = store.get(root)
    if node is None:
        raise GuardRefusedError(root, "does not exist, so nothing is frozen", "apply makes it; there is no thaw to do")
    if history.originals and not history.is_same_root(node.created_txn):
        raise GuardRefusedError(
            root,
            "is not the root that was frozen: that one was removed, and its freeze with it",
            "freeze this one if bookies run",
        )
    changes, notes = [], []
    _adopt_generators(store, root, history)
    # The listing's last: that of the trees, or of the root where ledgers are in it.
    last = ROOT if SHORT_TREE not in history.originals else SHORT_TREE
    for key in sorted((key for key in reversed(tuple(KEPT)) if key in history.originals), key=lambda key: key == last):
        acl = store.get_acl(join_key(root, key))
        before = history.originals[key]
        if acl is None:
            if before is not None:
                notes.append(f"{key} was removed since it was frozen")
            continue
        wanted = before if before is not None else history.former or history.originals.get(ROOT) or acl.text
        if acl.text == wanted:
            continue
        if acl.text not in history.frozen_as[key]:
            raise GuardRefusedError(
                join_key(root, key),
                f"has the rights {acl.text}, which no freeze of this journal gave it",
                f"set them to {wanted} by hand if these are right, and thaw again",
            )
        # Where clients go on, the first ledger may come below it at any time: it stays, and the hash is the same.
        is_shut = before is None and not _may_create(acl.text, history.identity)
        if is_shut and key in _REMOVED and not store.children(join_key(root, key)):
            changes.append(AclChange(key, acl.text, None))
        else:
            changes.append(AclChange(key, acl.text, wanted))
    if enable_replication:
        disabled = store.get(join_key(root, REPLICATION_DISABLED))
        if disabled is not None and disabled.value != _name_freeze(history.disabled_by):
            notes.append("no freeze of this journal disabled replication: it stays disabled")
        elif disabled is not None:
            changes.append(AclChange(REPLICATION_DISABLED, disabled.acl, None))
    return FreezeProposal("thaw", root, node.created_txn, history.identity, None, tuple(changes), tuple(notes))


def _name_freeze(hash_: str) -> bytes:
    """Return what the node has that disables replication, by the hash of its freeze."""
    return f"bkmeta-freeze {hash_}".encode()


def _may_create(acl: str, identity: str) -> bool:
    """Whether anybody but an identity may create nodes below one with these rights."""
    return any("c" in right.perms for right in parse_acl(acl) if name_principal(right) != identity)


def _adopt_generators(store: ControlledStore, root: str, history: FreezeHistory) -> None:
    """Count what was made since, closed as a freeze closes it, as made by the freeze: an apply makes generators so."""
    former = history.former or history.originals.get(ROOT)
    for key in (SHORT_GENERATOR, LONG_GENERATOR):
        acl = store.get_acl(join_key(root, key)) if history.originals and former else None
        if acl is None or former is None or acl.text in history.frozen_as.get(key, ()):
            continue
        if acl.text == close_acl(former, KEPT[key], history.identity):
            history.originals.setdefault(key, None)
            history.frozen_as.setdefault(key, set()).add(acl.text)


def is_rest(proposal: FreezeProposal, history: FreezeHistory, confirmed: str) -> bool:
    """Whether a hash was confirmed of a run that stopped midway, and a proposal is what is left of it."""
    return (
        not history.is_ended
        and history.hash.startswith(confirmed)
        and proposal.kind == history.kind
        and history.is_same_root(proposal.root_txn)
        and set(_list_rows(proposal.changes)) <= set(history.changes)
    )


def carry_out(
    proposal: FreezeProposal, store: ControlledStore, journal: audit_journal.AuditJournal, *, resumed: bool = False
) -> None:
    """Make the changes in order, each journalled and synced before it is sent, and each naming the rights it replaces.

    Can be stopped anywhere and run again: what is left is then proposed again, and is the rest of what was confirmed.

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
        begun = AclChangesBegun(proposal.kind, proposal.hash, _list_rows(proposal.changes), proposal.root_txn)
        if proposal.kind == FREEZE:
            begun = replace(begun, disable=proposal.disable, identity=proposal.identity, former=proposal.former)
        append_event(journal, begun)
    run = _Run(proposal, store, journal)
    try:
        run.make_changes()
    except UnavailableError as error:
        raise PartlyAppliedError(str(journal.path.parent), str(error), "run the same command again") from error
    except (_ConflictError, AccessDeniedError, VersionConflictError) as error:
        if run.made:
            raise PartlyAppliedError(
                str(journal.path.parent),
                f"changes made: {run.made}; then {error}",
                Remedy(Advice.SEE_WHAT_IS_LEFT),
            ) from error
        raise GuardRefusedError(proposal.root, str(error), Remedy(Advice.SEE_WHAT_IS_LEFT)) from error
    node = store.get(proposal.root)
    append_event(journal, AclChangesEnded(proposal.kind, node.created_txn if node is not None else None))
    journal.sync()


class _ConflictError(Exception):
    """A node is not as the proposal expected it."""

    def __init__(self, key: str, conflict: str) -> None:
        super().__init__(f"{key}: {conflict}")


class _AclTarget:
    """The rights below a root."""

    def __init__(self, store: ControlledStore, root: str) -> None:
        self._store = store
        self._root = root

    def make_absolute(self, key: str) -> str:
        """Return the store's key of one below the root."""
        return join_key(self._root, key)

    def read(self, changes: Sequence[AclChange | _Disabling]) -> dict[str, Acl | None]:
        """Return the rights that nodes have."""
        return {change.key: self._store.get_acl(self.make_absolute(change.key)) for change in changes}

    def send(self, changes: Sequence[AclChange | _Disabling], stored: Mapping[str, Acl | None]) -> None:
        """Make nodes in one transaction; change or remove one by itself."""
        made = [Write(self.make_absolute(c.key), c.value, acl=c.after) for c in changes if c.before is None]
        if made:
            self._store.write(made)
        for change in changes:
            acl, key = stored[change.key], self.make_absolute(change.key)
            if change.before is None or acl is None:
                continue
            if change.after is not None:
                self._store.set_acl(key, change.after, expected=acl.version)
            elif (node := self._store.get(key)) is not None:
                self._store.write([Write(key, None, node.version)])


class _Run:
    """One run of a freeze or a thaw.

    Attributes:
        made: changes that were made.
    """

    def __init__(self, proposal: FreezeProposal, store: ControlledStore, journal: audit_journal.AuditJournal) -> None:
        self.made = 0
        self._proposal = proposal
        self._store = store
        self._target = _AclTarget(store, proposal.root)
        self._writer = Writer(journal)

    def make_changes(self) -> None:
        """Make all changes of the proposal, in its order."""
        rights = self._proposal.disable
        disabling = None if rights is None else _Disabling(rights, _name_freeze(self._proposal.hash))
        if self._proposal.makes_root and disabling is not None:
            # In one transaction: there is no moment at which the root is there, empty, and can be listed.
            announcements = [self._announce(change) for change in self._proposal.changes]
            self._carry_out(announcements, [*self._proposal.changes, disabling], done=None)
        else:
            if disabling is not None:
                announcement = AclIntent(self._proposal.kind, "disable", disabling.key)
                self._carry_out([announcement], [disabling], AclDone(disabling.key))
            for change in self._proposal.changes:
                self._carry_out([self._announce(change)], [change], AclDone(change.key))
        if self._proposal.kind == FREEZE:
            self._touch()

    def _announce(self, change: AclChange) -> AclIntent:
        row = AclRow(change.key, change.before, change.after)
        return AclIntent(self._proposal.kind, change.op, change.key, row)

    def _carry_out(
        self, announcements: Sequence[AclIntent], changes: Sequence[AclChange | _Disabling], done: AclDone | None
    ) -> None:
        """Make changes that belong together.

        Raises:
            _ConflictError: a node is not as expected.
        """

        def make() -> None:
            stored = self._target.read(changes)
            outcomes = settle_changes(self._target, changes, stored, is_whole=True)
            for key, outcome in outcomes.items():
                if outcome.conflict is not None:
                    raise _ConflictError(self._target.make_absolute(key), outcome.conflict)

        def report(_made: None) -> AclDone | None:
            self.made += len(changes)
            return done

        self._writer.carry_out([WriteStep(announcements, make, report)])

    def _touch(self) -> None:
        """Make every cache of the names below these nodes forget them: Pulsar's bookies list from a cache.

        A change of rights notifies nobody; a child that comes and goes does.
        """
        for key in _LISTED:
            if self._store.get_acl(self._target.make_absolute(key)) is None:
                continue
            announcement = AclIntent(self._proposal.kind, "touch", key)
            make = partial(self._touch_one, f"{self._target.make_absolute(key)}/{_TOUCH}")
            self._writer.carry_out([WriteStep([announcement], make, lambda _made: None)])

    def _touch_one(self, child: str) -> None:
        # Nothing that could be read back is left: where the answer is lost the pair is sent once more.
        with suppress(OutcomeUnknownError):
            self._store.write([Write(child, b""), Write(child, None, 0)])
            return
        self._store.write([Write(child, b""), Write(child, None, 0)])
