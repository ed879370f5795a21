"""The node of a schema, made of the entry of its last version: as a broker wrote both."""

import base64
import json

import pytest

from recovery.codecs._pb.managed_ledger_pb2 import SchemaEntry, SchemaInfo
from recovery.codecs.pulsar_schema import StoredSchema, decode_entry, extends
from recovery.errors import FormatError
from tests.support.cases import DATA

TYPED, KEPT = "public/default/typed", "public/default/kept"


def read_schemas() -> dict[str, tuple[bytes, dict[int, bytes]]]:
    """Return the record of each schema, and the entry of each of its ledgers."""
    lines = (DATA.parent / "pulsar" / "schemas.jsonl").read_text().splitlines()
    schemas = [json.loads(line) for line in lines]
    return {
        schema["path"].removeprefix("/schemas/"): (
            base64.b64decode(schema["raw"]),
            {int(ledger): base64.b64decode(raw) for ledger, raw in schema["entries"].items()},
        )
        for schema in schemas
    }


@pytest.mark.parametrize("name", [TYPED, KEPT])
def test_the_last_entry_makes_the_record_byte_for_byte(name: str) -> None:
    """Of one version, whose entry has itself without a place, and of three."""
    record, entries = read_schemas()[name]
    ledger = max(entries)
    assert decode_entry(entries[ledger], ledger, 0) == StoredSchema(name, len(entries) - 1, record)


def test_each_version_goes_on_from_the_one_before() -> None:
    """A record has the first versions of a later one; another topic's has not, nor has a later one of an earlier."""
    schemas = read_schemas()
    made = [decode_entry(raw, ledger, 0) for ledger, raw in sorted(schemas[TYPED][1].items())]
    assert [schema.version for schema in made] == [0, 1, 2]
    first, second, third = (schema.record for schema in made)
    assert (extends(third, second), extends(third, first), extends(third, third)) == (True, True, False)
    assert (extends(first, second), extends(third, schemas[KEPT][0])) == (False, False)


def test_a_version_that_deletes_the_schema_has_no_hash() -> None:
    """As the broker stores it (SchemaRegistryServiceImpl, deleteSchema)."""
    entries = read_schemas()[TYPED][1]
    stored = SchemaEntry.FromString(entries[max(entries)])
    info = SchemaInfo.FromString(stored.schema_data)
    info.deleted, info.schema = True, b""
    stored.schema_data = info.SerializeToString()
    record = decode_entry(stored.SerializeToString(), 9, 0).record
    assert record.count(b"\x1a\x00") == 2, "its hash, as the last version and in the list"


def test_what_is_no_entry_of_a_schema_is_refused() -> None:
    """Messages, subscriptions, records of schemas; a version out of turn, one without a place, one of no topic."""
    record, entries = read_schemas()[TYPED]
    last = SchemaEntry.FromString(entries[max(entries)])
    for wrong in ("of no topic", "not numbered", "has no ledger"):
        made = SchemaEntry()
        made.CopyFrom(last)
        if wrong == "of no topic":
            info = SchemaInfo.FromString(made.schema_data)
            info.schema_id = b"public/default/../typed"
            made.schema_data = info.SerializeToString()
        elif wrong == "not numbered":
            made.index[1].version = 7
        else:
            made.index[0].position.ledgerId = -1
        with pytest.raises(FormatError, match=wrong):
            decode_entry(made.SerializeToString(), 9, 0)
    for raw in (b"", b"\x08\x07\x10\x01", record):
        with pytest.raises(FormatError):
            decode_entry(raw, 9, 0)
