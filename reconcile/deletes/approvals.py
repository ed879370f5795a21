"""Approvals: a person's signature under the hash of what is to be done.

file          one JSON object: approval, signature
signature     Ed25519 over the canonical JSON (RFC 8785) of `approval`, with the public key, both base64
approval.schema            bkmeta.approval/1
approval.of, hash          what kind of thing, and its hash
approval.issued, not_after UTC

What asks for N approvals wants N + 1 different keys of the policy: those of N people, and that of the one who made what
they approve, who signs, too. So no person approves what that person made, whoever the maker is.
"""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from reconcile.deletes.policy import DeletePolicy
from reconcile.deletes.signatures import Signature, canonicalize, sign
from reconcile.errors import Advice, GuardRefusedError, Remedy
from reconcile.operator_files import read_json
from reconcile.words import count_noun, list_names
from reconcile.write.audit_journal import Approval
from recovery.errors import InputError

_SCHEMA: Final = "bkmeta.approval/1"
_LOSS_SCHEMA: Final = "bkmeta.loss/1"
SKEW: Final = timedelta(minutes=5)
"""So much may the clocks of who approves and who checks it differ."""
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_REMEDY: Final = "name the file that `bkmeta approve` wrote"


class Approvable(StrEnum):
    """What may need approval; the values are signed."""

    PLAN = "plan"
    CERTIFICATE = "certificate"
    THAW = "thaw"
    UNDO = "undo"
    LOST = "lost"
    POLICY = "policy"


@dataclass(frozen=True, slots=True)
class Subject:
    """What is approved.

    Attributes:
        kind: of it.
        hash: of it, 64 hex digits.
    """

    kind: Approvable
    hash: str

    def __str__(self) -> str:
        """Return it as `bkmeta approve` takes it."""
        return f"{self.kind}={self.hash}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return what a text names, as `thaw=HASH`; None: it names nothing."""
        kind, _, digits = text.partition("=")
        if kind not in tuple(Approvable) or not _HASH.fullmatch(digits.lower()):
            return None
        return cls(Approvable(kind), digits.lower())


@dataclass(frozen=True, slots=True)
class SignedApproval:
    """An approval as its file has it, unchecked.

    Attributes:
        subject: what is approved.
        issued: when.
        not_after: when it ends.
        signature: of it.
    """

    subject: Subject
    issued: datetime
    not_after: datetime
    signature: Signature

    def encode(self) -> bytes:
        """Return the bytes of its file."""
        body = _describe(self.subject, self.issued, self.not_after)
        return json.dumps({"approval": body, "signature": self.signature.to_json()}, indent=1).encode() + b"\n"

    def holds(self) -> bool:
        """Whether its signature is of what it says."""
        return self.signature.holds(canonicalize(_describe(self.subject, self.issued, self.not_after)))


def name_loss(clusters: Collection[str], disks: Collection[str]) -> Subject:
    """Return what is approved where disks are stated to be gone for good.

    Args:
        clusters: instance ids of the cluster that they are of; empty: nothing names one.
        disks: bookies, or folders of them.
    """
    body = {"schema": _LOSS_SCHEMA, "clusters": sorted(clusters), "disks": sorted(disks)}
    return Subject(Approvable.LOST, hashlib.sha256(canonicalize(body)).hexdigest())


def make_approval(subject: Subject, issued: datetime, lifetime: timedelta, key: Path) -> SignedApproval:
    """Return an approval that was signed.

    Args:
        subject: what is approved.
        issued: now, aware.
        lifetime: after which it ends.
        key: PEM file of the Ed25519 private key.

    Raises:
        InputError: the key cannot be used.
    """
    begun = issued.astimezone(UTC).replace(microsecond=0)
    raw = canonicalize(_describe(subject, begun, begun + lifetime))
    return SignedApproval(subject, begun, begun + lifetime, sign(raw, key))


def read_approval(path: Path) -> SignedApproval:
    """Return what an approval's file says, unchecked but for its form.

    Raises:
        InputError: the file cannot be read, or is not an approval.
    """
    content = read_json(path, _REMEDY)
    try:
        body = content["approval"]
        subject = Subject.parse(f"{body['of']}={body['hash']}")
        signed = SignedApproval(
            subject or Subject(Approvable.PLAN, ""),
            datetime.fromisoformat(body["issued"]).astimezone(UTC),
            datetime.fromisoformat(body["not_after"]).astimezone(UTC),
            msgspec.convert(content["signature"], Signature),
        )
        is_whole = subject is not None and body == _describe(subject, signed.issued, signed.not_after)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(str(path), "is not an approval", _REMEDY) from error
    if not is_whole:
        raise InputError(str(path), "is not an approval that this program reads", _REMEDY)
    return signed


def require_approvals(
    policy: DeletePolicy,
    subject: Subject,
    files: Sequence[Path],
    now: datetime,
    *,
    maker: bytes | None = None,
    is_hash: Callable[[str], bool] | None = None,
) -> tuple[Approval, ...]:
    """Return who approved something, for the journal, where as many did as a policy asks for.

    Args:
        policy: that holds.
        subject: what is to be done.
        files: of approvals; each must hold, though the policy asks for fewer.
        now: the time, aware.
        maker: public key that signed what is to be done; None: it is not signed by itself.
        is_hash: says whether a hash names it, too; None: its own does.

    Raises:
        GuardRefusedError: too few approved it, or an approval does not hold.
        InputError: a file cannot be read.
    """
    names = {approver.key: approver.name for approver in policy.approvers}
    signed = dict[bytes, Approval]()
    for path in files:
        approval = read_approval(path)
        problem = _find_problem(approval, subject, names, now, is_hash or subject.hash.__eq__)
        if problem:
            raise GuardRefusedError(str(path), problem, Remedy(Advice.APPROVE, str(subject)))
        key = approval.signature.public_key
        signed[key] = Approval(names[key], approval.subject.hash)
    if maker is not None and maker in names:
        signed[maker] = Approval(names[maker], subject.hash)
    if len(signed) < policy.signatures:
        signers = list_names([approval.by for approval in signed.values()]) if signed else "no person"
        problem = (
            f"needs {policy.signatures} signatures, those of {count_noun(policy.approvals, 'person', 'people')} and of "
            f"the one who made it; it has {len(signed)} ({signers})"
        )
        name = "loss" if subject.kind is Approvable.LOST else subject.kind
        raise GuardRefusedError(f"the {name}", problem, Remedy(Advice.APPROVE, str(subject)))
    return tuple(signed.values())


def _find_problem(
    approval: SignedApproval,
    subject: Subject,
    names: dict[bytes, str],
    now: datetime,
    is_hash: Callable[[str], bool],
) -> str:
    """Return why an approval does not count; empty: it does."""
    if not approval.holds():
        return "has a signature that does not hold"
    if approval.subject.kind is not subject.kind or not is_hash(approval.subject.hash):
        return f"approves {approval.subject}, and what would be done is {subject}"
    if approval.signature.public_key not in names:
        return "is signed with a key that the policy does not name"
    if now > approval.not_after or approval.issued > now + SKEW:
        return f"holds from {approval.issued.isoformat()} to {approval.not_after.isoformat()}, not now"
    return ""


def _describe(subject: Subject, issued: datetime, not_after: datetime) -> dict[str, Any]:
    """Return what is signed."""
    return {
        "schema": _SCHEMA,
        "of": str(subject.kind),
        "hash": subject.hash,
        "issued": issued.isoformat(timespec="seconds"),
        "not_after": not_after.isoformat(timespec="seconds"),
    }
