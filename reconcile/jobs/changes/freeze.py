"""Bookies' listings made to fail, and given back: freeze and thaw."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from backends.errors import UnavailableError
from backends.protocols import ControlledStore
from backends.registry import OpenStore, parse_store_uri
from backends.zookeeper.acl import digest_principal
from reconcile.check import thaw_guards
from reconcile.check.guard_locks import count_guards
from reconcile.deletes.approvals import Approvable, Subject
from reconcile.errors import Advice, GuardRefusedError, JournalError, Remedy
from reconcile.jobs.approvals import NO_APPROVALS, Approvals
from reconcile.jobs.context import Context, add_remedy
from reconcile.jobs.starts import BookieStarts, decide_starts_of, list_known
from reconcile.stores import Access, AccessAs, has_rights, list_session_principals, open_store
from reconcile.write import audit_journal, guards
from reconcile.write.audit_journal import Approval
from reconcile.write.freezing import freeze as engine
from reconcile.write.freezing import freeze_state
from reconcile.write.journal_events import FreezeHistory
from recovery.codecs.store import LAYOUT, REPLICATION_DISABLED, Layout
from recovery.dataset import Dataset
from recovery.errors import InputError
from recovery.infer.lost_disks import LostDisk

TYPED: Final = 8
"""Digits of the hash that count as having read it."""
_THAW: Final = "thaw"
_SERVER_PATIENCE_S: Final = 5.0
_STOP: Final = "keep the bookies stopped until apply has ended"
_PULSAR: Final = "metadata-store:"
_PULSAR_ELSEWHERE: Final = re.compile(r"metadata-store:(?:etcd|oxia)\b", re.IGNORECASE)

Ask = Callable[[engine.FreezeProposal], str | None]
"""Shows a proposal to a person; returns the hash that the person confirms, None where nobody can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeRequest:
    """What is frozen.

    Attributes:
        uri: the store.
        journal: folder where every change is recorded.
        confirmed: hash of the changes that are confirmed; None: nobody confirmed any yet.
        reason: why, for the journal.
        approvals: that were given; to freeze is urgent, and needs none.
        deletes_only: whether only what bookies delete is frozen, and clients go on.
    """

    uri: str
    journal: Path
    confirmed: str | None = None
    reason: str | None = None
    approvals: Approvals = NO_APPROVALS
    deletes_only: bool = False


@dataclass(frozen=True, slots=True)
class Accepted:
    """What somebody accepts that bookies delete after a thaw.

    Attributes:
        absent: ledgers of the inventories that have no record.
        unseen: bookies that no inventory is of; None: nobody gave a number.
        left_out: copies that closed records leave out.
    """

    absent: int = 0
    unseen: int | None = None
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ThawRequest(FreezeRequest):
    """What is thawed: as of a freeze, whose journal it is, and besides that what bookies have.

    Attributes:
        inventories: of the bookies.
        accepted: what may be deleted.
        lost: disks that are gone for good, as was stated when the plan was made.
        enable_replication: whether replication goes on, if a freeze of the journal disabled it.
    """

    inventories: tuple[Dataset, ...] = ()
    accepted: Accepted = Accepted()
    lost: tuple[LostDisk, ...] = ()
    enable_replication: bool = False


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing was changed: the changes are not confirmed.

    Attributes:
        root: of the ledgers.
        identity: whom the rights are given to.
        proposal: what would be done.
        confirmed: the hash that was given; None: none was.
        counts: what the guards of a thaw counted.
    """

    root: str
    identity: str
    proposal: engine.FreezeProposal
    confirmed: str | None
    counts: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class Trial:
    """What one server answered to one principal."""

    server: str
    principal: str
    proof: freeze_state.RefusalProof


@dataclass(frozen=True, slots=True)
class Frozen:
    """What holds after a freeze.

    Attributes:
        root: of the ledgers.
        identity: whom the rights are given to.
        proposal: what is left to be done: nothing, where nobody interfered.
        state: of the rights.
        trials: what servers answered to principals without the identity.
        silent: servers that did not answer.
        untried: principals whose rights are taken, and nobody could try as them.
        has_journal: whether there is a journal.
    """

    root: str
    identity: str
    proposal: engine.FreezeProposal
    state: freeze_state.FreezeState
    trials: tuple[Trial, ...]
    silent: tuple[str, ...]
    untried: tuple[str, ...]
    has_journal: bool


@dataclass(frozen=True, slots=True)
class Thawed:
    """What holds after a thaw.

    Attributes:
        root: of the ledgers.
        state: of the rights.
        was_frozen: whether the journal had a freeze in force.
        has_enabled: whether this run enabled replication.
        counts: what the guards counted.
        starts: which bookies may start now; none without an inventory.
    """

    root: str
    state: freeze_state.FreezeState
    was_frozen: bool
    has_enabled: bool
    counts: Mapping[str, int | None]
    starts: BookieStarts


def freeze(request: FreezeRequest, context: Context, ask: Ask) -> Waiting | Frozen:
    """Make every bookie's listing of ledgers fail, where the changes are confirmed.

    Raises:
        GuardRefusedError: the store has no rights to take, or the identity may not.
        InputError: no identity, or that of the bookies.
        JournalError: the journal is of something else.
        UnavailableError: the store does not answer.
    """
    with _open_run(request, context) as run:
        layout = guards.require_layout(run.store, run.root, run.layout)

        def propose(past: FreezeHistory | None) -> engine.FreezeProposal:
            only = request.deletes_only
            return engine.propose_freeze(run.store, run.root, run.identity, past, layout=layout, deletes_only=only)

        waiting = run.change("freeze", propose, ask, {})
        return waiting or run.prove(propose(engine.read_history(request.journal, run.root)), layout)


def thaw(request: ThawRequest, context: Context, ask: Ask) -> Waiting | Thawed:
    """Give the bookies back what a freeze took, where the changes are confirmed and nothing is lost by it.

    Raises:
        GuardRefusedError: bookies would delete more than was accepted, or it is not approved.
        InputError: no identity, or that of the bookies.
        JournalError: there is no journal of a freeze, or it is of something else.
        UnavailableError: the store does not answer.
    """
    with _open_run(request, context) as run:
        history = engine.read_history(request.journal, run.root)
        if history is None:
            problem = "holds no journal of a freeze, which alone knows the former rights"
            raise JournalError(str(request.journal), problem, Remedy(Advice.NAME_FREEZE_JOURNAL))
        counts: dict[str, int | None] = {}
        # What cannot be used is refused before anything is changed.
        known = list_known(run.store, run.root, request.inventories, request.lost) if request.inventories else ()
        if history.originals:
            counts = _require_safe(run, request)

        def propose(history: FreezeHistory | None) -> engine.FreezeProposal:
            known_history = history or FreezeHistory()
            return engine.propose_thaw(
                run.store, run.root, known_history, enable_replication=request.enable_replication
            )

        disabled = run.store.get(run.root + REPLICATION_DISABLED)
        waiting = run.change(_THAW, propose, ask, counts)
        if waiting:
            return waiting
        state = freeze_state.read_freeze_state(run.store, run.root)
        is_shut = state.frozen and guards.require_layout(run.store, run.root, run.layout) is Layout.FLAT
        starts = decide_starts_of(known, run.store, run.root, after_thaw=is_shut)
        has_enabled = disabled is not None and state.replication_disabled is False
        return Thawed(run.root, state, bool(history.originals), has_enabled, counts, starts)


def _require_safe(run: "_Run", request: ThawRequest) -> dict[str, int | None]:
    """Refuse a thaw after which bookies would delete more than was accepted; return what was counted."""
    inventories, accepted = request.inventories, request.accepted
    thaw_guards.require_described(run.store, run.root, inventories)
    layout = guards.require_layout(run.store, run.root, run.layout)
    counts = thaw_guards.require_restored(run.store, run.root, layout, inventories, accept_absent=accepted.absent)
    counts["unseen"] = thaw_guards.require_seen(
        run.store, run.root, inventories, accept=accepted.unseen, lost=request.lost
    )
    counts["guarded"] = count_guards(run.store, run.root)
    if inventories:
        counts["left_out"] = thaw_guards.require_named(
            run.store, run.root, layout, inventories, accept=accepted.left_out
        )
    return counts


def require_access_control(uri: str) -> None:
    """Refuse a store that has no rights by which listings could be made to fail.

    Raises:
        GuardRefusedError: it has none.
    """
    is_elsewhere = _PULSAR_ELSEWHERE.match(uri.strip()) is not None
    if is_elsewhere or not has_rights(uri):
        raise GuardRefusedError(uri, "has no rights by which listings could be made to fail", _STOP)


def default_journal(uri: str) -> Path:
    """Return the folder that the journal of a store's freeze is in, unless another one is named."""
    address = parse_store_uri(uri)
    place = re.sub(r"[^A-Za-z0-9.]+", "-", address.hosts.split(",")[0] + address.root)
    return Path(f"bkmeta-freeze-{place}")


@contextmanager
def _open_run(request: FreezeRequest, context: Context) -> "Iterator[_Run]":
    require_access_control(request.uri)
    identity = context.access.digest
    if identity is None or identity == context.access.bookie_digest:
        raise InputError(request.uri, "is to be frozen without an identity of its own", "freeze as no bookie connects")
    with open_store(request.uri, context.access, writable=True) as opened:
        if not isinstance(opened.store, ControlledStore):
            raise GuardRefusedError(opened.uri, "has no rights that could be taken", _STOP)
        yield _Run(opened.store, opened.root, digest_principal(identity), _find_layout(opened), request, context)


def _find_layout(opened: OpenStore) -> Layout | None:
    """Return the layout that the URI names, or that Pulsar's driver takes for granted; None: LAYOUT says it."""
    if opened.layout_hint:
        return Layout(opened.layout_hint)
    # Pulsar's driver never reads LAYOUT when it lists: it looks into the folders of both trees.
    pulsar = opened.uri.strip().lower().startswith(_PULSAR) and opened.store.get(opened.root + LAYOUT) is None
    return Layout.HIERARCHICAL if pulsar else None


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of either on an open store."""

    store: ControlledStore
    root: str
    identity: str
    layout: Layout | None
    request: FreezeRequest
    context: Context

    def change(
        self,
        kind: str,
        propose: Callable[[FreezeHistory | None], engine.FreezeProposal],
        ask: Ask,
        counts: Mapping[str, int | None],
    ) -> Waiting | None:
        """Make the changes if they are confirmed; return what waits if they are not."""
        folder, confirmed = self.request.journal, self.request.confirmed
        history = engine.read_history(folder, self.root)
        proposal = propose(history)
        if proposal.is_empty and (history is None or history.is_ended or history.kind != kind):
            return None
        if confirmed is None:
            confirmed = ask(proposal)
        if confirmed is None or not _is_confirmed(proposal, history, confirmed):
            return Waiting(self.root, self.identity, proposal, confirmed, counts)
        approvals = self._require_approvals(proposal, history) if kind == _THAW else ()
        begun = FreezeHistory()
        opening = partial(
            audit_journal.AuditJournal.open,
            resume=True,
            now=self.context.now,
            replay=begun.replay,
            reason=self.request.reason,
            approvals=approvals,
        )
        stopped = add_remedy(f"what was changed is recorded in {folder}, go on: run the same command again")
        with stopped, opening(folder, engine.make_binding(self.root)) as journal:
            # Once more, now that no other process can write the journal.
            proposal = propose(begun)
            if not _is_confirmed(proposal, begun, confirmed):
                return Waiting(self.root, self.identity, proposal, confirmed, counts)
            engine.carry_out(proposal, self.store, journal, resumed=engine.is_rest(proposal, begun, confirmed))
        return None

    def _require_approvals(
        self, proposal: engine.FreezeProposal, history: FreezeHistory | None
    ) -> tuple[Approval, ...]:
        """Return who approved a thaw; what is left of one that was approved and stopped is approved, too."""
        approvals = self.request.approvals
        policy = approvals.find_policy(self.store, self.root)
        subject = Subject(Approvable.THAW, proposal.hash)
        return approvals.require(policy, subject, self.context.now(), is_hash=partial(_is_confirmed, proposal, history))

    def prove(self, proposal: engine.FreezeProposal, layout: Layout) -> Frozen:
        """Return whether the freeze holds: what the rights are, and what was refused without our identity."""
        only = self.request.deletes_only
        state = freeze_state.read_freeze_state(self.store, self.root, deletes_only=only)
        trials, silent = self._trials(layout)
        tried_as = {trial.principal for trial in trials}
        nodes = freeze_state.select_kept(layout, deletes_only=only)
        untried = sorted({*freeze_state.list_other_principals(self.store, self.root, self.identity, nodes)} - tried_as)
        has_journal = (self.request.journal / audit_journal.JOURNAL).exists()
        return Frozen(
            self.root, self.identity, proposal, state, tuple(trials), tuple(silent), tuple(untried), has_journal
        )

    def _trials(self, layout: Layout) -> tuple[Sequence[Trial], Sequence[str]]:
        """Try on each server that the URI names, as nobody and as the bookies; return also who did not answer.

        Where connections are made as somebody, by SASL or a certificate, nobody's is, too: what is refused to that one
        is refused to nobody.
        """
        access = self.context.access
        bookie = access.bookie_digest
        trials: list[Trial] = []
        silent: list[str] = []
        for server in parse_store_uri(self.request.uri).hosts.split(","):
            address = f"zk://{server}{self.root}"
            try:
                session = list_session_principals(access, address, patience_s=_SERVER_PATIENCE_S)
                for digest in (None, bookie) if bookie else (None,):
                    with _open_as(address, access, digest) as stranger:
                        proof = freeze_state.prove_refusals(
                            stranger.store, self.store, self.root, layout, deletes_only=self.request.deletes_only
                        )
                    tried = [digest_principal(digest)] if digest else session or [freeze_state.WORLD]
                    trials += [Trial(server, principal, proof) for principal in tried]
            except UnavailableError:
                silent.append(server)
        return trials, silent


def _open_as(address: str, access: Access, digest: tuple[str, str] | None) -> OpenStore:
    return open_store(address, AccessAs(access, digest), writable=True, patience_s=_SERVER_PATIENCE_S)


def _is_confirmed(proposal: engine.FreezeProposal, history: FreezeHistory | None, confirmed: str) -> bool:
    digits = confirmed.lower()
    if len(digits) < TYPED:
        return False
    return proposal.hash.startswith(digits) or (history is not None and engine.is_rest(proposal, history, digits))
