"""A plan into another one, with a hash of its own: edited, or cut into waves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reconcile.errors import PlanError
from reconcile.jobs.context import Context
from reconcile.plan.alternatives import RESTORE
from reconcile.plan.edits import Edits, edit_plan
from reconcile.plan.manifest import PlanManifest, read_plan_manifest
from reconcile.plan.views.deletions import group_by_session, select_deleted_by
from reconcile.plan.views.ledger_lists import HeldChoice, select_held
from reconcile.plan.waves import Wave, split_plan
from reconcile.pulsar.layer import PULSAR
from reconcile.stores import list_principals
from reconcile.write.guards import find_lacking_permissions
from recovery.codecs.store_kind import kind_of
from recovery.dataset import Dataset, open_dataset
from recovery.model.ids import LedgerId
from recovery.place import DatasetPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class EditRequest:
    """What is changed in a plan.

    Attributes:
        plan: its folder, which stays as it is.
        out: a new folder; it will hold passwords.
        drop: ledgers of which nothing is written; they wait for a person.
        accept_loss: ledgers that somebody accepts to lose.
        choose: ledger → label of the alternative that is written.
        choose_all: held ledgers that are meant, by the label that they have: its alternative is written.
        accept_loss_all: held ledgers that are meant: somebody accepts to lose each; None: none.
        restore_deleted_by: sessions: the last record of each ledger that they deleted is written.
        accept_deleted_by: sessions: what they deleted stays deleted.
        acl: ACL of everything that is created.
        acl_of: place of a catalog whose ACLs everything that is created gets.
        replace_instance_id: the captured store's instance id is replaced by the bookies' own.
        replace_cookies: bookies whose cookie in the captured store is replaced by their own.
        replace_below: paths: nodes of upper layers at and below them are replaced by the snapshot's.
        adopt: ledger → topic whose record names it from now on.
        adopt_recorded: the same of every ledger whose own record names its topic, as far as it can be; and nodes of
            younger subscriptions and schemas, whose ledgers say whose they are.
    """

    plan: DatasetPlace
    out: DatasetPlace
    drop: frozenset[LedgerId] = frozenset()
    accept_loss: frozenset[LedgerId] = frozenset()
    choose: Mapping[LedgerId, str] = field(default_factory=dict)
    choose_all: Sequence[HeldChoice] = ()
    accept_loss_all: HeldChoice | None = None
    restore_deleted_by: Sequence[int | None] = ()
    accept_deleted_by: Sequence[int | None] = ()
    acl: str | None = None
    acl_of: DatasetPlace | None = None
    replace_instance_id: bool = False
    replace_cookies: frozenset[str] = frozenset()
    replace_below: frozenset[str] = frozenset()
    adopt: Mapping[LedgerId, str] = field(default_factory=dict)
    adopt_recorded: bool = False


@dataclass(frozen=True, slots=True)
class LockingAcl:
    """An ACL of a plan that would lock out whom a store takes us for.

    Attributes:
        acl: as the plan has it.
        lacking: permissions that we would not have.
        principals: whom a store takes us for; empty: anybody.
    """

    acl: str
    lacking: str
    principals: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EditedPlan:
    """The new plan.

    Attributes:
        manifest: what it says about itself.
        texts: each edit as a line.
        locking: ACLs that apply would refuse.
        not_adopted: ledgers that say themselves whose they are, and that no node can name: each with the reason.
        left_purged: ledgers of the sessions whose deletions are taken back that bkmeta purged: they stay deleted.
    """

    manifest: PlanManifest
    texts: tuple[str, ...]
    locking: tuple[LockingAcl, ...]
    not_adopted: Mapping[LedgerId, str] = field(default_factory=dict)
    left_purged: int = 0


def edit(request: EditRequest, context: Context) -> EditedPlan:
    """Write a plan again with some of its actions changed.

    Raises:
        DatasetError: no whole plan or catalog, or the new folder cannot be written.
        InputError: the catalog is of another cluster.
        PlanError: the plan is not what its hash was made of, or has nothing that an edit names.
    """
    plan = open_dataset(request.plan, "plan")
    plan.verify()
    deleted = request.restore_deleted_by
    restored = select_deleted_by(plan, deleted, restorable=True) if deleted else frozenset()
    accepted = request.accept_deleted_by
    lost = select_deleted_by(plan, accepted, restorable=False) if accepted else frozenset()
    chosen = {ledger: str(many.label) for many in request.choose_all for ledger in _require_held(plan, many)}
    if request.accept_loss_all is not None:
        lost |= _require_held(plan, request.accept_loss_all)
    adoption = PULSAR.adopt(
        plan, request.adopt, request.accept_loss | lost, request.replace_below, recorded=request.adopt_recorded
    )
    if request.adopt_recorded and not (adoption.owners or adoption.nodes or adoption.left):
        problem = "has no ledger that came after the snapshot and names its topic itself"
        raise PlanError(plan.path, problem, "see their candidates: bkmeta plan show PLAN")
    edits = Edits(
        drop=request.drop,
        accept_loss=request.accept_loss | lost,
        choose=dict.fromkeys(restored, RESTORE) | chosen | dict(request.choose),
        acl=request.acl,
        acl_of=None if request.acl_of is None else open_dataset(request.acl_of, "catalog"),
        replace_instance_id=request.replace_instance_id,
        replace_cookies=request.replace_cookies,
        replace_below=request.replace_below,
        adopt=adoption.owners,
        named=adoption.named,
        nodes=adoption.nodes,
    )
    manifest = edit_plan(plan, edits, request.out)
    names_acl = request.acl is not None or request.acl_of is not None
    locking = _find_locking_acls(open_dataset(request.out, "plan"), context) if names_acl else ()
    sessions = group_by_session(plan) if deleted else ()
    purged = sum(session.purged for session in sessions if session.session in deleted)
    return EditedPlan(manifest, tuple(edits.texts), locking, adoption.left, purged)


def _require_held(plan: Dataset, choice: HeldChoice) -> frozenset[LedgerId]:
    """Return the held ledgers that are meant.

    Raises:
        PlanError: there is none.
    """
    ledgers = select_held(plan, choice)
    if not ledgers:
        offered = "" if choice.label is None else f" with an alternative {choice.label!r}"
        problem = f"holds no such ledger{offered}"
        raise PlanError(plan.path, problem, "look at what it holds, and why: bkmeta plan show PLAN")
    return ledgers


def _find_locking_acls(plan: Dataset, context: Context) -> tuple[LockingAcl, ...]:
    if not kind_of(read_plan_manifest(plan).binding.layout).has_acls:
        return ()
    principals = tuple(list_principals(context.access) or ())
    acls = sorted({acl for rows in plan.batches("actions") for acl in rows["acl"].unique().to_pylist() if acl})
    return tuple(
        LockingAcl(acl, lacking, principals) for acl in acls if (lacking := find_lacking_permissions(acl, principals))
    )


@dataclass(frozen=True, slots=True)
class CutPlan:
    """The new plan in waves.

    Attributes:
        whole: the plan that it was cut from.
        manifest: what the new one says about itself.
        waves: in their order.
    """

    whole: Dataset
    manifest: PlanManifest
    waves: tuple[Wave, ...]


def split(path: DatasetPlace, waves: Sequence[range], out: DatasetPlace) -> CutPlan:
    """Write a plan again, with a wave for every action.

    Args:
        path: of the plan, which stays as it is.
        waves: bucket ranges, together all buckets.
        out: a new folder; it will hold passwords.

    Raises:
        DatasetError: it is not a whole plan, or the new folder cannot be written.
        PlanError: it is not what its hash was made of.
    """
    whole = open_dataset(path, "plan")
    whole.verify()
    manifest, cut = split_plan(whole, waves, out)
    return CutPlan(whole, manifest, tuple(cut))
