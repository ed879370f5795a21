"""A plan into the store that it is for."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from backends.registry import OpenStore
from reconcile.deletes.approvals import Approvable, Subject
from reconcile.errors import Advice, GuardRefusedError, PlanError, Remedy
from reconcile.estimates import EstimatedStep
from reconcile.id_files import try_write_ids
from reconcile.jobs.approvals import NO_APPROVALS, Approvals
from reconcile.jobs.changes.touched import Touched, list_marked, open_evidence, scrutinize_touched
from reconcile.jobs.context import Context, WireOptions, connect, throttle
from reconcile.jobs.starts import decide_starts_now
from reconcile.plan.manifest import COOKIES_WAIT, PlanManifest, read_plan_manifest
from reconcile.plan.plan_reader import open_whole
from reconcile.plan.views.open_points import count_rights
from reconcile.stores import list_principals, require_same_keys, require_store_uri
from reconcile.words import count_noun, list_names
from reconcile.write import apply as engine
from reconcile.write import guards
from reconcile.write.apply_results import Applied
from reconcile.write.journal_events import JudgedWave
from recovery.codecs.store_kind import kind_of
from recovery.dataset import Dataset
from recovery.errors import InputError
from recovery.place import DatasetPlace

TYPED: Final = 8
"""Digits of the hash that count as having read it."""
_IDS: Final = "findings.txt"
_MARKED: Final = "marked.txt"
_NAMED: Final = 5
"""Marked ledgers that a message names where no file could be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRequest:
    """What is applied, and how.

    Attributes:
        plan: its folder.
        uri: the store.
        acl: ACL of created keys; None: what the plan names, else what the store gives.
        has_acl: the plan must name the ACL of everything that it creates.
        accept_unfrozen: write although bookies are registered.
        wave: of a plan that was split, the one to write; None: all of it.
        journal: folder where every write is recorded; None: in the plan's.
        resume: go on with the journal that is there.
        reason: why, for the journal.
        approvals: that were given.
        inventories: what is written is judged by, in place of the plan's; none: those that the plan was made from.
        wire: how running bookies are asked for what was written; None: they are not.
        aliases: other names of bookies in records → ids.
        accept_findings: unexpected findings of the waves before that a person accepts.
        accept_marked: ledgers of the waves before that may be marked for re-replication, at most.
    """

    plan: DatasetPlace
    uri: str
    acl: str | None = None
    has_acl: bool = False
    accept_unfrozen: bool = False
    wave: int | None = None
    journal: Path | None = None
    resume: bool = False
    reason: str | None = None
    approvals: Approvals = NO_APPROVALS
    inventories: tuple[str, ...] = ()
    wire: WireOptions | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    accept_findings: int = 0
    accept_marked: int = 0


@dataclass(frozen=True, slots=True)
class AppliedAndJudged:
    """What was written, and what the scrutiny of it found.

    Attributes:
        applied: what was written.
        touched: what the scrutiny found.
        ids: file of the ledgers with findings that the plan does not have; None: there are none, or `ids_problem`.
        ids_problem: why it could not be written; empty: it was, or there is none.
    """

    applied: Applied
    touched: Touched
    ids: Path | None = None
    ids_problem: str = ""


@dataclass(frozen=True, slots=True)
class Review:
    """A whole plan, and what has to be confirmed before it is written.

    Attributes:
        plan: the plan.
        hash: made from its actions.
        restored: records that will be created.
        guarded: records that will be written under a guard.
        held: holds that will be created.
        released: holds of an earlier plan that records will replace.
        named: of the guarded ones, those that no lock keeps.
        unseen: bookies that were not looked at.
    """

    plan: Dataset
    hash: str
    restored: int
    guarded: int
    held: int
    released: int
    named: int
    unseen: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What somebody confirmed.

    Attributes:
        hash: of the plan, or its first digits; None: nobody confirmed it.
        unseen: how many bookies were not looked at.
    """

    hash: str | None
    unseen: int = 0


def review(request: ApplyRequest) -> Review:
    """Open a plan, and say what has to be confirmed.

    Raises:
        DatasetError: it is no whole plan.
        PlanError: it is not what its hash was made of, or lacks the wave.
        UnsupportedStoreError: the URI is malformed.
    """
    journal_folder(request)
    plan, seen = open_whole(request.plan)
    # One of few ledgers may have waves without any.
    manifest = read_plan_manifest(plan)
    waves = {*seen.waves, *(wave.number for wave in manifest.binding.waves)}
    if request.wave is not None and request.wave not in waves:
        raise PlanError(str(request.plan), f"has no wave {request.wave}", Remedy(Advice.SEE_WAVES))
    require_store_uri(request.uri)
    counts = manifest.counts
    return Review(
        plan,
        seen.hash,
        restored=counts.restored,
        guarded=counts.guarded,
        held=counts.held,
        released=counts.released,
        named=counts.guarded_by_names,
        unseen=manifest.coverage.not_scanned,
    )


def apply(request: ApplyRequest, reviewed: Review, confirmation: Confirmation, context: Context) -> AppliedAndJudged:
    """Write what a plan proposes, and nothing over anything; then judge what was written by what bookies hold.

    Args:
        request: what is applied, and how.
        reviewed: the plan, as `review` returned it.
        confirmation: of that plan.
        context: of the job.

    Raises:
        GuardRefusedError: not confirmed or not approved; or the store is not the plan's, or bookies run.
        JournalError: the journal belongs to something else.
        PartlyAppliedError: the store stopped answering midway.
        UnavailableError: the store does not answer.
    """
    plan, manifest = reviewed.plan, read_plan_manifest(reviewed.plan)
    binding = manifest.binding
    _require_confirmation(reviewed, confirmation)
    if request.has_acl:
        _require_acls(plan)
    evidence = open_evidence(manifest, request.inventories, request.wire, request.aliases)
    with connect(request.uri, context, writable=True) as opened:
        if binding.root and binding.root != opened.root:
            problem = f"the plan was made for the root {binding.root}"
            raise GuardRefusedError(opened.uri, problem, Remedy(Advice.APPLY_AT_OWN_ROOT))
        policy = request.approvals.find_policy(opened.store, opened.root)
        approvals = request.approvals.require(policy, Subject(Approvable.PLAN, reviewed.hash), context.now())
        has_acl = request.has_acl or request.acl is not None
        require_same_keys(opened, binding.layout or "", has_acl=has_acl)
        if not (kind_of(opened.layout_hint).has_acls or request.accept_unfrozen):
            guards.require_stopped(bookie for bookie, _ in binding.bookies)
        if kind_of(opened.layout_hint).has_replication:
            guards.require_no_replication(reviewed.named, opened.store, opened.root.rstrip("/"))
            _require_unmarked(plan, request, opened, context)
        options = engine.ApplyOptions(
            plan_hash=reviewed.hash,
            acl=request.acl if has_acl else guards.choose_acl(opened.store, opened.root),
            accept_unfrozen=request.accept_unfrozen,
            withhold_cookies=COOKIES_WAIT if binding.cookies_held_back else None,
            resume=request.resume,
            wave=request.wave,
            reason=request.reason,
            approvals=approvals,
            principals=list_principals(context.access, opened),
            instance_ids=binding.instance_ids,
            accept_findings=request.accept_findings,
        )
        scrutinies: list[Touched] = []

        def judge() -> JudgedWave:
            touched = scrutinize_touched(plan, request.wave, opened, evidence, context)
            scrutinies.append(touched)
            undecided = sum(touched.undecided.values())
            return JudgedWave(request.wave, touched.ledgers, touched.unexpected, undecided, touched.absent)

        context.reporter.expect(EstimatedStep.APPLY, count_writes(plan))
        with context.reporter.progress("writing", "writes") as progress:
            applied = engine.apply(
                lambda: plan.batches("actions"),
                opened.store,
                opened.root,
                journal_folder(request),
                options,
                now=context.now,
                progress=throttle(progress),
                judge=judge,
            )
        starts = decide_starts_now(manifest, opened, _find_unfinished(manifest, applied, request))
        applied = replace(applied, bookies=starts.bookies, starts_after_thaw=starts.after_thaw)
        ids, problem = try_write_ids(journal_folder(request) / _IDS, scrutinies[-1].with_unexpected)
        return AppliedAndJudged(applied, scrutinies[-1], ids, problem)


def _require_unmarked(plan: Dataset, request: ApplyRequest, opened: OpenStore, context: Context) -> None:
    """Refuse a wave while ledgers that the waves before wrote are marked for re-replication."""
    if request.wave is None or request.wave < 2:
        return
    marked = list_marked(plan, request.wave, opened, context)
    is_accepted = len(marked) <= request.accept_marked
    ids, _ = try_write_ids(journal_folder(request) / _MARKED, () if is_accepted else marked)
    if is_accepted:
        return
    listed = f"; {ids} lists them" if ids else f" ({list_names([str(ledger) for ledger in sorted(marked)[:_NAMED]])})"
    problem = f"{count_noun(len(marked), 'ledger')} of the waves before it {'is' if len(marked) == 1 else 'are'} marked"
    problem += f" for re-replication: bookies that their records name are gone, or lack copies{listed}"
    raise GuardRefusedError(f"wave {request.wave}", problem, Remedy(Advice.WAIT_FOR_REPLICATION, len(marked)))


def _find_unfinished(manifest: PlanManifest, applied: Applied, request: ApplyRequest) -> str:
    """Return why no bookie may start yet; empty: the plan is written."""
    if applied.cookies_withheld:
        return f"no cookies were written ({applied.cookies_withheld})"
    if applied.exit_code:
        return "not all of the plan is written"
    if request.wave is not None and request.wave < max((w.number for w in manifest.binding.waves), default=0):
        return "later waves of the plan are not written"
    return ""


def journal_folder(request: ApplyRequest) -> Path:
    """Return the folder where every write of a request is recorded.

    Raises:
        InputError: the plan is in a store, and no folder is named.
    """
    if request.journal is not None:
        return request.journal
    if not isinstance(request.plan, Path):
        problem = "is in a store, and each line of a journal must be on a disk before the next write"
        raise InputError(str(request.plan), problem, "name a folder of this machine for the journal")
    return request.plan / "journal"


def count_writes(plan: Dataset) -> int:
    """Return how many keys a plan writes: actions without those that write nothing."""
    return plan.rows("actions") - read_plan_manifest(plan).counts.left_alone


def _require_confirmation(reviewed: Review, confirmation: Confirmation) -> None:
    path, unseen, digits = reviewed.plan.path, reviewed.unseen, confirmation.hash
    if digits is None:
        problem = "is not confirmed, and there is no terminal to ask on"
        raise GuardRefusedError(path, problem, Remedy(Advice.CONFIRM, reviewed.hash))
    if not reviewed.hash.startswith(digits.lower()) or len(digits) < TYPED:
        raise GuardRefusedError(path, "has another hash than the one confirmed", "review this plan first")
    if len(unseen) != confirmation.unseen:
        if not unseen:
            raise GuardRefusedError(path, "was made with every bookie", Remedy(Advice.ACCEPT_NONE_UNSEEN))
        bookies = f"{count_noun(len(unseen), 'bookie')} ({list_names(unseen)})"
        problem = f"was made without {bookies}: what only they hold would be deleted"
        raise GuardRefusedError(path, problem, Remedy(Advice.RECOVER_OR_ACCEPT_UNSEEN, len(unseen)))


def _require_acls(plan: Dataset) -> None:
    """Refuse a plan that names no ACL for what it creates."""
    lacking = count_rights(plan).lacking
    if lacking:
        problem = f"names no ACL for {lacking} of the keys that it creates"
        raise GuardRefusedError(plan.path, problem, Remedy(Advice.NAME_ACL))
