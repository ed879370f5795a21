"""What holds for all deletes and restores of a cluster, whatever the options of a command are.

It is kept in our own root beside the tombstones (docs/formats/tombstones.md), and in a file of JSON for a cluster whose
store is lost. A person who may write to the store may change it past this program: it is a rule with a record.
"""

import base64
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError

from reconcile.deletes._pb import tombstones_pb2 as pb
from reconcile.deletes.nodes import VERSION
from reconcile.deletes.signatures import canonicalize
from reconcile.operator_files import OperatorTable, convert_values, read_json
from reconcile.words import count_noun
from recovery.errors import FormatError, InputError, Reason

MOST_IN_A_DAY: Final = 1000
"""Ledgers that a day may purge without a confirmation, where no policy says less."""
QUARANTINE_MOST: Final = 1000
"""Ledgers that may be in quarantine at a time, where no policy says otherwise: BookKeeper repairs none of them."""
_CHANGE_SCHEMA: Final = "bkmeta.policy-change/1"
_WHERE: Final = "policy"
_KEY_BYTES: Final = 32
_REMEDY: Final = "write the object `policy` that `bkmeta delete policy show` prints as JSON"


@dataclass(frozen=True, slots=True)
class Approver:
    """A person who may approve.

    Attributes:
        name: as the policy calls them.
        key: their public Ed25519 key, 32 bytes.
    """

    name: str
    key: bytes


@dataclass(frozen=True, slots=True)
class DeletePolicy:
    """The rules of a cluster.

    Attributes:
        archived: a ledger without an archive mark is never deleted.
        soak_ms: least soak.
        min_age_ms: least age of a ledger when references were listed.
        most_in_a_day: ledgers that a day may purge without a confirmation, at most.
        approvals: people besides the one who made it who must approve a plan, a certificate, a thaw, an undo, a loss.
        approvers: who may; the one who makes it signs with such a key, too.
        quarantine_ms: how long a hold is in the place of a record before it is removed; 0: it is removed at once.
        quarantine_most: ledgers that may be in quarantine at a time.
    """

    archived: bool = False
    soak_ms: int = 0
    min_age_ms: int = 0
    most_in_a_day: int = MOST_IN_A_DAY
    approvals: int = 0
    approvers: tuple[Approver, ...] = ()
    quarantine_ms: int = 0
    quarantine_most: int = QUARANTINE_MOST

    @property
    def signatures(self) -> int:
        """How many different keys must have signed what needs approval; 0: none."""
        return self.approvals + 1 if self.approvals else 0

    def to_json(self) -> dict[str, Any]:
        """Return it as a file has it; numbers that may be large are strings."""
        return {
            "archived": self.archived,
            "soak_ms": str(self.soak_ms),
            "min_age_ms": str(self.min_age_ms),
            "most_in_a_day": str(self.most_in_a_day),
            "quarantine_ms": str(self.quarantine_ms),
            "quarantine_most": str(self.quarantine_most),
            "approvals": self.approvals,
            "approvers": [
                {"name": approver.name, "key": base64.b64encode(approver.key).decode()}
                for approver in sorted(self.approvers, key=lambda approver: approver.name)
            ],
        }

    def encode(self, at_ms: int, by: str) -> bytes:
        """Return the value of its node.

        Args:
            at_ms: when it is set.
            by: who sets it.
        """
        message = pb.Policy(
            version=VERSION,
            at_ms=at_ms,
            by=by,
            archived=self.archived,
            soak_ms=self.soak_ms,
            min_age_ms=self.min_age_ms,
            most_in_a_day=self.most_in_a_day,
            approvals=self.approvals,
            quarantine_ms=self.quarantine_ms,
            quarantine_most=self.quarantine_most,
            approvers=[pb.Approver(name=approver.name, key=approver.key) for approver in self.approvers],
        )
        return bytes(message.SerializeToString(deterministic=True))


class _PolicyFile(OperatorTable, frozen=True):
    archived: bool
    soak_ms: int
    min_age_ms: int
    most_in_a_day: int
    approvals: int
    approvers: tuple[Approver, ...]
    quarantine_ms: int = 0
    quarantine_most: int = QUARANTINE_MOST


NO_POLICY: Final = DeletePolicy()
"""That asks for nothing."""


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """A policy as a store has it.

    Attributes:
        policy: the rules.
        at_ms: when it was set.
        by: who set it.
        version: of its node.
        raw: value of its node.
    """

    policy: DeletePolicy
    at_ms: int
    by: str
    version: int
    raw: bytes


def decode_policy(raw: bytes, version: int) -> StoredPolicy:
    """Return the policy of a node.

    Raises:
        FormatError: not a node of ours, or of a later version.
    """
    message = pb.Policy()
    try:
        message.ParseFromString(raw)
    except DecodeError as error:
        raise FormatError(Reason.BAD_VALUE, _WHERE, 0, "not a protobuf message of ours") from error
    if message.version != VERSION:
        detail = f"version {message.version}; this program reads {VERSION}"
        raise FormatError(Reason.BAD_VERSION, _WHERE, 0, detail)
    policy = DeletePolicy(
        message.archived,
        message.soak_ms,
        message.min_age_ms,
        message.most_in_a_day,
        message.approvals,
        tuple(Approver(approver.name, approver.key) for approver in message.approvers),
        message.quarantine_ms,
        message.quarantine_most if message.HasField("quarantine_most") else QUARANTINE_MOST,
    )
    return StoredPolicy(policy, message.at_ms, message.by, version, raw)


def read_policy_file(path: Path) -> DeletePolicy:
    """Return the policy of a file of JSON, as `DeletePolicy.to_json` has it.

    Raises:
        InputError: it cannot be read, or is not a policy.
    """
    values = convert_values(read_json(path, _REMEDY), _PolicyFile, path, _REMEDY, strict=False)
    policy = DeletePolicy(**msgspec.structs.asdict(values))
    require_possible(policy, str(path))
    return policy


def require_possible(policy: DeletePolicy, where: str) -> None:
    """Refuse a policy that could never be kept.

    Raises:
        InputError: fewer people than signatures, a name or a key twice, or a number below 0.
    """
    names = {approver.name for approver in policy.approvers}
    keys = {approver.key for approver in policy.approvers}
    numbers = (policy.soak_ms, policy.min_age_ms, policy.most_in_a_day, policy.approvals, policy.quarantine_ms)
    if min(numbers) < 0 or any(len(key) != _KEY_BYTES for key in keys):
        raise InputError(where, "has a number below 0, or a key that is not of 32 bytes", _REMEDY)
    if policy.quarantine_most < 1:
        raise InputError(where, "lets no ledger be in quarantine", "ask for no quarantine, or let one ledger be in it")
    if not len(names) == len(keys) == len(policy.approvers):
        problem = "names a person or a key twice: one person would count as two"
        raise InputError(where, problem, "give each person one name and one key")
    if len(keys) < policy.signatures:
        problem = (
            f"asks for {policy.signatures} signatures, those of {count_noun(policy.approvals, 'person', 'people')} and "
            f"of the one who made what is approved, and names {count_noun(len(keys), 'key')}"
        )
        raise InputError(where, problem, "name more people, or ask for fewer approvals")


def list_loosened(current: DeletePolicy, wanted: DeletePolicy) -> Iterator[str]:
    """Yield each way in which a policy asks for less than the current one; a further key lets more people approve."""
    if current.archived and not wanted.archived:
        yield "no archive mark is required"
    for name, less, more in (
        ("least soak", wanted.soak_ms, current.soak_ms),
        ("least age", wanted.min_age_ms, current.min_age_ms),
        ("number of approvals", wanted.approvals, current.approvals),
        ("breaker", current.most_in_a_day, wanted.most_in_a_day),
        ("quarantine", wanted.quarantine_ms, current.quarantine_ms),
        ("bound of the quarantine", current.quarantine_most, wanted.quarantine_most),
    ):
        if less < more:
            yield f"the {name} is weaker"
    known = {(approver.name, approver.key) for approver in current.approvers}
    yield from (
        f"{approver.name} may approve" for approver in wanted.approvers if (approver.name, approver.key) not in known
    )


def hash_change(instance_id: str, root: str, replaced: bytes, policy: DeletePolicy) -> str:
    """Return the hash that a change of a cluster's policy is approved by.

    Args:
        instance_id: of the cluster.
        root: key of its ledgers root.
        replaced: value of the node that is replaced.
        policy: that takes its place.
    """
    return _hash(
        {
            "schema": _CHANGE_SCHEMA,
            "cluster": {"instance_id": instance_id, "root": root},
            "replaces": hashlib.sha256(replaced).hexdigest(),
            "policy": policy.to_json(),
        }
    )


def _hash(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonicalize(body)).hexdigest()
