"""The entry that a Pulsar broker writes into the ledger of one schema version, and the record of these ledgers.

Each version has a ledger of its own with one entry (proto/recovery/codecs/_pb/managed_ledger.proto):

    message      field        says
    SchemaEntry  schema_data  SchemaInfo: the topic of the schema, its definition, whether this version deletes it
                 index        every version before, as the record had them; of the first one itself, without a ledger
    SchemaLocator             the record: the last version, and each with its number, its place and its hash

So the entry of the last version says all that the record says but its own place and hash. The hash is the SHA-256 of
the definition; of a version that deletes the schema it is empty.

Source: apache/pulsar 4.0.7, org.apache.pulsar.broker.service.schema: BookkeeperSchemaStorage,
SchemaRegistryServiceImpl; the path is of org.apache.pulsar.common.naming.TopicName, getSchemaName.
"""

import hashlib
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError, Message

from recovery.codecs._pb.managed_ledger_pb2 import LedgerPosition, SchemaEntry, SchemaInfo, SchemaLocator, SchemaVersion
from recovery.errors import FormatError, Reason

_NOUN: Final = "schema"
_NAMES: Final = 3
"""Of a schema: tenant, namespace, topic."""


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """One version of a schema, as its ledger has it.

    Attributes:
        name: tenant/namespace/topic, as the record's path has it.
        version: its number.
        record: the record that names this version and all earlier ones.
    """

    name: str
    version: int
    record: bytes


def decode_entry(payload: bytes, ledger: int, number: int) -> StoredSchema:
    """Return the schema version in an entry.

    Args:
        payload: of the entry.
        ledger: of the entry.
        number: of the entry.

    Raises:
        FormatError: no schema of Pulsar.
    """
    stored, info = SchemaEntry(), SchemaInfo()
    _parse(stored, payload)
    _parse(info, stored.schema_data)
    try:
        name = info.schema_id.decode()
    except UnicodeDecodeError as error:
        raise FormatError(Reason.BAD_VALUE, _NOUN, 0, "of no topic") from error
    names = name.split("/")
    if len(names) != _NAMES or any(name in ("", ".", "..") for name in names):
        raise FormatError(Reason.BAD_VALUE, _NOUN, 0, "of no topic")
    earlier = list(stored.index)
    if not earlier or [version.version for version in earlier] != list(range(len(earlier))):
        raise FormatError(Reason.BAD_VALUE, _NOUN, 0, "its versions are not numbered one by one")
    digest = b"" if info.deleted else hashlib.sha256(info.schema).digest()
    if earlier[-1].position.ledgerId == -1:
        digest = earlier.pop().hash
    if any(version.position.ledgerId < 0 or version.position.entryId < 0 for version in earlier):
        raise FormatError(Reason.BAD_VALUE, _NOUN, 0, "a version before has no ledger")
    position = LedgerPosition(ledgerId=ledger, entryId=number)
    own = SchemaVersion(version=len(earlier), position=position, hash=digest)
    record = SchemaLocator(info=own, index=[*earlier, own]).SerializeToString()
    return StoredSchema(name, len(earlier), record)


def extends(record: bytes, earlier: bytes) -> bool:
    """Return whether a schema's record has all versions of an earlier one, and more.

    Raises:
        FormatError: one is not a record of a schema.
    """
    longer, shorter = SchemaLocator(), SchemaLocator()
    _parse(longer, record)
    _parse(shorter, earlier)
    count = len(shorter.index)
    return len(longer.index) > count and list(longer.index[:count]) == list(shorter.index)


def _parse(message: Message, raw: bytes) -> None:
    try:
        message.ParseFromString(raw)
    except (DecodeError, RecursionError) as error:
        raise FormatError(Reason.BAD_VALUE, _NOUN, 0, "no protobuf of it") from error
    # The parser does not check required fields inside of repeated ones.
    if not message.IsInitialized():
        raise FormatError(Reason.BAD_VALUE, _NOUN, 0, "a field is missing")
