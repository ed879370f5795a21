"""Tombstones and archive marks as bytes: many to a node, each text of a node once (docs/formats/tombstones.md).

Values of nodes are protobuf messages of our own, with a version in each; one that is newer is refused, never read in
part.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from google.protobuf.message import DecodeError

from reconcile.deletes._pb import tombstones_pb2 as pb
from reconcile.deletes.tombstones import Holder, State, Step, StoredRecord, Tombstone
from recovery.errors import FormatError, Reason
from recovery.model.ids import LedgerId

VERSION: Final = 1
PROGRAM: Final = "bkmeta"
_STATES: Final = {
    State.REQUESTED: pb.REQUESTED,
    State.VERIFIED: pb.VERIFIED,
    State.PURGEABLE: pb.PURGEABLE,
    State.PURGED: pb.PURGED,
    State.CONFIRMED: pb.CONFIRMED,
}
_STATES_READ: Final = {number: state for state, number in _STATES.items()}
_WHERE: Final = "node of tombstones"


@dataclass(frozen=True, slots=True)
class RootMark:
    """What our own root says of itself.

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


@dataclass(slots=True)
class _Texts:
    """The texts of a node, each once; 0 is no text."""

    texts: list[str] = field(default_factory=lambda: [""])
    numbers: dict[str, int] = field(default_factory=lambda: {"": 0})

    def add(self, text: str) -> int:
        """Return the number of a text."""
        number = self.numbers.setdefault(text, len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
        return number


def decode_root_mark(raw: bytes) -> RootMark:
    """Return what our own root says of itself.

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
    _demand_version(mark.version, "mark of a root")
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
    _demand_version(message.version, where)
    return LastListing(message.at_ms, message.ledgers, message.by)


def encode_tombstones(tombstones: Iterable[Tombstone]) -> bytes:
    """Return the value of a node."""
    texts = _Texts()
    node = pb.TombstoneNode(version=VERSION)
    for tombstone in tombstones:
        record = tombstone.record
        node.tombstones.append(
            pb.Tombstone(
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
                    )
                    for holder in tombstone.holders
                ],
                steps=[
                    pb.Step(state=_STATES[step.state], at_ms=step.at_ms, by=texts.add(step.by))
                    for step in tombstone.steps
                ],
                reason=texts.add(tombstone.reason),
                soak_ms=tombstone.soak_ms,
                safe_in_row=tombstone.safe_in_row,
                listed_ms=tombstone.listed_ms,
                objections=map(texts.add, tombstone.objections),
                certificate=texts.add(tombstone.certificate),
                references=map(texts.add, tombstone.references),
            )
        )
    node.texts.extend(texts.texts)
    return bytes(node.SerializeToString(deterministic=True))


def decode_tombstones(raw: bytes) -> list[Tombstone]:
    """Return the tombstones of a node.

    Raises:
        FormatError: not a node of ours, of a later version, or with a number that has no text.
    """
    node = pb.TombstoneNode()
    _parse(raw, node.ParseFromString)
    _demand_version(node.version, _WHERE)
    texts: Sequence[str] = list(node.texts)
    try:
        return [_make_tombstone(message, texts) for message in node.tombstones]
    except (IndexError, KeyError, ValueError) as error:
        raise FormatError(Reason.BAD_VALUE, _WHERE, 0, f"a field has no meaning ({error})") from error


def encode_marks(marks: Iterable[ArchiveMark]) -> bytes:
    """Return the value of a node of archive marks."""
    texts = _Texts()
    node = pb.ArchiveNode(version=VERSION)
    for mark in marks:
        node.marks.append(
            pb.ArchiveMark(
                scope=mark.ledger.scope,
                ledger=mark.ledger.ledger,
                by=texts.add(mark.by),
                place=texts.add(mark.place),
                checksum=mark.checksum,
                at_ms=mark.at_ms,
            )
        )
    node.texts.extend(texts.texts)
    return bytes(node.SerializeToString(deterministic=True))


def decode_marks(raw: bytes) -> list[ArchiveMark]:
    """Return the archive marks of a node.

    Raises:
        FormatError: not a node of ours, of a later version, or with a number that has no text.
    """
    node = pb.ArchiveNode()
    _parse(raw, node.ParseFromString)
    _demand_version(node.version, "node of archive marks")
    try:
        return [
            ArchiveMark(
                LedgerId(mark.scope, mark.ledger),
                node.texts[mark.by],
                node.texts[mark.place],
                mark.checksum,
                mark.at_ms,
            )
            for mark in node.marks
        ]
    except IndexError as error:
        raise FormatError(Reason.BAD_VALUE, "node of archive marks", 0, "a text is missing") from error


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
            )
            for holder in message.holders
        ),
        tuple(Step(_STATES_READ[step.state], step.at_ms, texts[step.by]) for step in message.steps),
        texts[message.reason],
        message.soak_ms,
        message.safe_in_row,
        message.listed_ms if message.HasField("listed_ms") else None,
        tuple(texts[number] for number in message.objections),
        texts[message.certificate],
        tuple(texts[number] for number in message.references),
    )


def _parse(raw: bytes, parse: Callable[[bytes], int]) -> None:
    try:
        parse(raw)
    except DecodeError as error:
        raise FormatError(Reason.BAD_VALUE, _WHERE, 0, "not a protobuf message of ours") from error


def _demand_version(version: int, where: str) -> None:
    if version != VERSION:
        raise FormatError(Reason.BAD_VERSION, where, 0, f"version {version}; this program reads {VERSION}")
