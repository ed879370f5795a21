"""What a cluster's policy asks for before something is done, and the approvals that were given."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from backends.protocols import MetadataStore
from reconcile.deletes.approvals import (
    Approvable,
    SignedApproval,
    Subject,
    make_approval,
    require_approvals,
)
from reconcile.deletes.certificate import Validity, judge_certificate, read_certificate
from reconcile.deletes.own_root import read_policy
from reconcile.deletes.policy import NO_POLICY, DeletePolicy
from reconcile.plan.plan_reader import open_whole
from reconcile.write.audit_journal import Approval
from recovery.errors import InputError


@dataclass(frozen=True, slots=True)
class Approvals:
    """What somebody gives where approvals are asked for.

    Attributes:
        files: of approvals.
        local: policy of this host, for a cluster whose store has none: it was lost; None: there is none.
    """

    files: tuple[Path, ...] = ()
    local: DeletePolicy | None = None

    def find_policy(self, store: MetadataStore, ledgers_root: str) -> DeletePolicy:
        """Return the policy of a cluster: the store's, else this host's, else one that asks for nothing.

        Raises:
            GuardRefusedError: the store's cannot be read.
        """
        stored = read_policy(store, ledgers_root)
        return stored.policy if stored is not None else self.local or NO_POLICY

    def require(
        self,
        policy: DeletePolicy,
        subject: Subject,
        now: datetime,
        *,
        maker: bytes | None = None,
        is_hash: Callable[[str], bool] | None = None,
    ) -> tuple[Approval, ...]:
        """Return who approved something, as `require_approvals` does.

        Raises:
            GuardRefusedError: too few approved it, or an approval does not hold.
            InputError: a file cannot be read.
        """
        return require_approvals(policy, subject, self.files, now, maker=maker, is_hash=is_hash)


NO_APPROVALS: Final = Approvals()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproveRequest:
    """What is approved.

    Attributes:
        named: a plan's folder, a certificate's file, or a kind and a hash, as `thaw=HASH`.
        key: PEM file of the private key.
        lifetime: after which the approval ends.
    """

    named: str
    key: Path
    lifetime: timedelta


def approve(request: ApproveRequest, now: datetime) -> SignedApproval:
    """Return an approval of a plan, a certificate, or a hash that another command printed.

    Raises:
        DatasetError: the folder is not a whole plan.
        InputError: the file is not a certificate that holds, or the key cannot be used.
        PlanError: the plan is not what its hash was made of.
    """
    return make_approval(_read_subject(request.named), now, request.lifetime, request.key)


def write_approval(approval: SignedApproval, path: Path) -> None:
    """Write an approval's file.

    Raises:
        InputError: it cannot be written.
    """
    try:
        path.write_bytes(approval.encode())
    except OSError as error:
        raise InputError(str(path), f"cannot be written ({error.strerror})", "name another file") from error


def _read_subject(named: str) -> Subject:
    subject = Subject.parse(named)
    if subject is not None:
        return subject
    path = Path(named)
    if path.is_dir():
        return Subject(Approvable.PLAN, open_whole(path)[1].hash)
    certificate = read_certificate(path)
    check = judge_certificate(certificate)
    # One that has ended is approved again for the end of a quarantine.
    if check.validity is Validity.INVALID:
        raise InputError(named, f"does not hold: {'; '.join(check.problems)}", "verify again for a new one")
    return Subject(Approvable.CERTIFICATE, certificate.hash)
