"""Tombstones and archive marks as bytes: many to a node, each text of a node once (docs/formats/tombstones.md).

Values of nodes are protobuf messages of our own, with a version in each; one that is newer is refused, never read in
part.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from reconcile.deletes._pb import tombstones_pb2 as pb
from reconcile.deletes.nodes import VERSION, NodeKind, Texts
from reconcile.deletes.tombstones import DeleteState, DeleteStep, Holder, StoredRecord, Tombstone
from recovery.errors import FormatError, Reason
from recovery.model.ids import LedgerId

PROGRAM: Final = "bkmeta"
_STATES: Final = {
    DeleteState.REQUESTED: pb.REQUESTED,
    DeleteState.VERIFIED: pb.VERIFIED,
    DeleteState.PURGEABLE: pb.PURGEABLE,
    DeleteState.PURGED: pb.PURGED,
    DeleteState.CONFIRMED: pb.CONFIRMED,
    DeleteState.QUARANTINED: pb.QUARANTINED,
}
_STATES_READ: Final = {number: state for state, number in _STATES.items()}


@dataclass(frozen=True, slots=True)
class RootMark:
    """What our own root says about itself.

    Attributes:
        ledgers_root: key of the ledgers root that it is of.
        instance_id: of the cluster; empty: the cluster had none.
    """

    ledgers_root: str
    instance_id: str

    def encode(self) -> bytes:
        """Return the value of the root."""
        mark = pb.RootMark(
            version=VERSION, program=PROGRAM, ledgers_root=self.ledgers_root, instance_id=self.instance_id
        )
        return bytes(mark.SerializeToString(deterministic=True))


@dataclass(frozen=True, slots=True)
class LastListing:
    """What the last verification listed that believed its listing.

    Attributes:
        at_ms: when it began, ms since 1970.
        ledgers: how many that were made before then it listed.
        by: who ran it.
    """

    at_ms: int
    ledgers: int
    by: str

    def encode(self) -> bytes:
        """Return the value of its node."""
        message = pb.LastListing(version=VERSION, at_ms=self.at_ms, ledgers=self.ledgers, by=self.by)
        return bytes(message.SerializeToString(deterministic=True))


@dataclass(frozen=True, slots=True)
class ClockCheck:
    """What a host's clock said when it was held against the store's.

    Attributes:
        at_ms: the time, ms since 1970.
        by: whose.
    """

    at_ms: int
    by: str

    def encode(self) -> bytes:
        """Return the value of its node."""
        message = pb.ClockCheck(version=VERSION, at_ms=self.at_ms, by=self.by)
        return bytes(message.SerializeToString(deterministic=True))


@dataclass(frozen=True, slots=True)
class ArchiveMark:
    """That a backup application has a ledger.

    Attributes:
        ledger: which.
        by: who says so.
        place: where the copy is.
        checksum: of the copy; empty: none was given.
        at_ms: when, ms since 1970.
    """

    ledger: LedgerId
    by: str
    place: str
    checksum: str
    at_ms: int


def decode_root_mark(raw: bytes) -> RootMark:
    """Return what our own root says about itself.

    Raises:
        FormatError: it is not a mark of ours, or of a later version.
    """
    mark = pb.RootMark()
    try:
        mark.ParseFromString(raw)
    except DecodeError as error:
        raise FormatError(Reason.BAD_VALUE, "mark of a root", 0, "not a protobuf message of ours") from error
    if mark.program != PROGRAM:
        raise FormatError(Reason.BAD_VALUE, "mark of a root", 0, "it does not name this program")
    _require_version(mark.version, "mark of a root")
    return RootMark(mark.ledgers_root, mark.instance_id)


def decode_last_listing(raw: bytes) -> LastListing:
    """Return what a verification listed.

    Raises:
        FormatError: not a node of ours, or of a later version.
    """
    message = pb.LastListing()
    where = "last listing"
    try:
        message.ParseFromString(raw)
    except DecodeError as error:
        raise FormatError(Reason.BAD_VALUE, where, 0, "not a protobuf message of ours") from error
    _require_version(message.version, where)
    return LastListing(message.at_ms, message.ledgers, message.by)


def _write_tombstone(tombstone: Tombstone, texts: Texts) -> pb.Tombstone:
    record = tombstone.record
    return pb.Tombstone(
        scope=tombstone.ledger.scope,
        ledger=tombstone.ledger.ledger,
        state=_STATES[tombstone.state],
        record=record.raw,
        record_version=record.version,
        created_ms=record.created_ms,
        acl=texts.add(record.acl or ""),
        members=map(texts.add, tombstone.members),
        holders=[
            pb.Holder(
                bookie=texts.add(holder.bookie),
                incarnation=holder.incarnation,
                seen_ms=holder.seen_ms,
                released_ms=holder.released_ms,
                release=texts.add(holder.release),
                entries=holder.entries,
            )
            for holder in tombstone.holders
        ],
        steps=[pb.Step(state=_STATES[step.state], at_ms=step.at_ms, by=texts.add(step.by)) for step in tombstone.steps],
        reason=texts.add(tombstone.reason),
        soak_ms=tombstone.soak_ms,
        safe_in_row=tombstone.safe_in_row,
        listed_ms=tombstone.listed_ms,
        objections=map(texts.add, tombstone.objections),
        certificate=texts.add(tombstone.certificate),
        references=map(texts.add, tombstone.references),
        hold=tombstone.hold,
        quarantine_ms=tombstone.quarantine_ms,
    )


def _write_mark(mark: ArchiveMark, texts: Texts) -> pb.ArchiveMark:
    return pb.ArchiveMark(
        scope=mark.ledger.scope,
        ledger=mark.ledger.ledger,
        by=texts.add(mark.by),
        place=texts.add(mark.place),
        checksum=mark.checksum,
        at_ms=mark.at_ms,
    )


def _make_mark(message: pb.ArchiveMark, texts: Sequence[str]) -> ArchiveMark:
    ledger = LedgerId(message.scope, message.ledger)
    return ArchiveMark(ledger, texts[message.by], texts[message.place], message.checksum, message.at_ms)


def _make_tombstone(message: pb.Tombstone, texts: Sequence[str]) -> Tombstone:
    return Tombstone(
        LedgerId(message.scope, message.ledger),
        _STATES_READ[message.state],
        StoredRecord(
            message.record,
            message.record_version,
            message.created_ms if message.HasField("created_ms") else None,
            texts[message.acl] or None,
        ),
        tuple(texts[number] for number in message.members),
        tuple(
            Holder(
                texts[holder.bookie],
                holder.incarnation,
                holder.seen_ms,
                holder.released_ms if holder.HasField("released_ms") else None,
                texts[holder.release],
                holder.entries if holder.HasField("entries") else None,
            )
            for holder in message.holders
        ),
        tuple(DeleteStep(_STATES_READ[step.state], step.at_ms, texts[step.by]) for step in message.steps),
        texts[message.reason],
        message.soak_ms,
        message.safe_in_row,
        message.listed_ms if message.HasField("listed_ms") else None,
        tuple(texts[number] for number in message.objections),
        texts[message.certificate],
        tuple(texts[number] for number in message.references),
        message.hold,
        message.quarantine_ms,
    )


def _require_version(version: int, where: str) -> None:
    if version != VERSION:
        raise FormatError(Reason.BAD_VERSION, where, 0, f"version {version}; this program reads {VERSION}")


TOMBSTONES: Final[NodeKind[Tombstone]] = NodeKind(
    pb.TombstoneNode,
    "tombstones",
    _write_tombstone,
    _make_tombstone,
    lambda tombstone: tombstone.ledger,
    "node of tombstones",
)
ARCHIVE: Final[NodeKind[ArchiveMark]] = NodeKind(
    pb.ArchiveNode, "marks", _write_mark, _make_mark, lambda mark: mark.ledger, "node of archive marks"
)
