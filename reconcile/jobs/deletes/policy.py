"""The policy of a cluster, shown and set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from backends.registry import OpenStore
from reconcile.deletes.approvals import Approvable, Subject
from reconcile.deletes.own_root import read_instance_id, read_policy, write_policy
from reconcile.deletes.policy import (
    NO_POLICY,
    Approver,
    DeletePolicy,
    StoredPolicy,
    hash_change,
    list_loosened,
    require_possible,
)
from reconcile.deletes.signatures import read_public_key
from reconcile.jobs.approvals import NO_APPROVALS, Approvals
from reconcile.jobs.context import Context, connect, now_ms
from reconcile.jobs.deletes.clusters import DeleteTarget, open_deletes
from reconcile.write.audit_journal import Approval
from recovery.errors import InputError


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """What becomes different; None and empty: it stays as it is.

    Attributes:
        archived: whether an archive mark is required.
        soak_ms: least soak.
        min_age_ms: least age.
        most_in_a_day: ledgers a day without a confirmation.
        approvals: people who must approve.
        approvers: name → PEM file of the public key of each person who may approve from now on.
        without: names of those who may not any longer.
        quarantine_ms: how long a hold is in the place of a record.
        quarantine_most: ledgers that may be in quarantine at a time.
    """

    archived: bool | None = None
    soak_ms: int | None = None
    min_age_ms: int | None = None
    most_in_a_day: int | None = None
    approvals: int | None = None
    approvers: Mapping[str, Path] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    quarantine_ms: int | None = None
    quarantine_most: int | None = None

    def make(self, current: DeletePolicy) -> DeletePolicy:
        """Return a policy with what becomes different.

        Raises:
            InputError: a key cannot be read, a name is not in the policy, or no policy could be kept so.
        """
        known = {approver.name: approver for approver in current.approvers}
        for name in self.without:
            if known.pop(name, None) is None:
                raise InputError(name, "is not among those who may approve", "bkmeta delete policy show lists them")
        known |= {name: Approver(name, read_public_key(path)) for name, path in self.approvers.items()}
        policy = DeletePolicy(
            current.archived if self.archived is None else self.archived,
            current.soak_ms if self.soak_ms is None else self.soak_ms,
            current.min_age_ms if self.min_age_ms is None else self.min_age_ms,
            current.most_in_a_day if self.most_in_a_day is None else self.most_in_a_day,
            current.approvals if self.approvals is None else self.approvals,
            tuple(known[name] for name in sorted(known)),
            current.quarantine_ms if self.quarantine_ms is None else self.quarantine_ms,
            current.quarantine_most if self.quarantine_most is None else self.quarantine_most,
        )
        require_possible(policy, "the policy")
        return policy


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRequest:
    """A policy that is set.

    Attributes:
        target: the store.
        change: what becomes different.
        approvals: that were given.
    """

    target: DeleteTarget
    change: PolicyChange
    approvals: Approvals = NO_APPROVALS


@dataclass(slots=True)
class _Decided:
    """A change that was approved, where it had to be; `stored` is what it replaces."""

    stored: StoredPolicy | None = None
    current: DeletePolicy = NO_POLICY
    wanted: DeletePolicy = NO_POLICY


@dataclass(frozen=True, slots=True)
class ChangedPolicy:
    """A policy that was set.

    Attributes:
        policy: that holds now.
        loosened: how it asks for less than the one current.
    """

    policy: DeletePolicy
    loosened: tuple[str, ...]


def show_policy(uri: str, context: Context) -> StoredPolicy | None:
    """Return the policy of a cluster; None: it has none.

    Raises:
        GuardRefusedError: it cannot be read.
        UnavailableError: the store does not answer.
    """
    with connect(uri, context) as opened:
        return read_policy(opened.store, opened.root)


def set_policy(request: PolicyRequest, context: Context) -> ChangedPolicy:
    """Set the policy of a cluster; one that asks for less needs the approvals that the one before asks for.

    Raises:
        GuardRefusedError: it is not approved, or was set by another process meanwhile.
        InputError: a key cannot be read, a name is not in the policy, or no policy could be kept so.
        UnavailableError: the store does not answer.
    """
    decided = _Decided()

    def approve(opened: OpenStore, policy: DeletePolicy) -> Sequence[Approval]:
        decided.stored = read_policy(opened.store, opened.root)
        decided.current = policy if decided.stored is None else decided.stored.policy
        decided.wanted = request.change.make(decided.current)
        if not any(list_loosened(decided.current, decided.wanted)):
            return ()
        replaced = b"" if decided.stored is None else decided.stored.raw
        instance_id = read_instance_id(opened.store, opened.root)
        digest = hash_change(instance_id, opened.root.rstrip("/"), replaced, decided.wanted)
        return request.approvals.require(decided.current, Subject(Approvable.POLICY, digest), context.now())

    with open_deletes(request.target, context, approve) as target:
        raw = decided.wanted.encode(now_ms(context), target.by)
        write_policy(target.cluster.store, target.own, decided.stored, raw, target.log)
        target.log.end({"policy": 1}, 0)
    return ChangedPolicy(decided.wanted, tuple(list_loosened(decided.current, decided.wanted)))
