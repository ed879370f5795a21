"""Every record that real BookKeeper wrote, and BookKeeper's own judgement of records that nobody wrote."""

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from recovery.codecs import ledger_metadata as codec
from recovery.errors import FormatError
from recovery.model.metadata import LedgerMetadata, LedgerState
from tests.support.cases import DATA, NAMES, truth

TREES = ("zk-tree/before.jsonl", "zk-tree/final.jsonl", "etcd/final.jsonl")
JUDGED = "ledger-metadata/java-4.17.2.jsonl"


def lines(name: str) -> Iterator[dict[str, Any]]:
    """The objects of a JSON lines file of golden data."""
    yield from map(json.loads, (DATA.parent / name).read_text().splitlines())


def records(name: str) -> list[bytes]:
    """Every stored record of a tree."""
    values = (base64.b64decode(line.get("data") or line.get("value") or "") for line in lines(name))
    return [value for value in values if value.startswith(codec.MAGIC)]


def assert_same_bytes(raws: list[bytes]) -> None:
    """Each record re-encodes to itself, alone and through columns, and nothing in it is odd."""
    assert raws
    for raw in raws:
        reading = codec.read(raw)
        assert codec.encode(reading.metadata) == raw
        assert reading.oddities == ()
        assert not reading.metadata.unknown
    assert codec.decode_columns(pa.array(raws, pa.binary()))["error"].null_count == len(raws)


@pytest.mark.parametrize("name", TREES)
def test_every_record_of_a_tree_re_encodes_to_itself(name: str) -> None:
    """Formats 1, 2 and 3, as the Java client left them in ZooKeeper and in etcd."""
    assert_same_bytes(records(name))


@pytest.mark.parametrize("name", NAMES)
def test_every_record_of_a_case_says_what_was_true(name: str) -> None:
    """The bytes re-encode to themselves, and the fields are those that the Java client reported."""
    rows = [row for row in truth(name)["ledgers"] if row["raw"]]
    assert_same_bytes([base64.b64decode(row["raw"]) for row in rows])
    for row in rows:
        metadata = codec.decode(base64.b64decode(row["raw"]))
        closed = metadata.state is LedgerState.CLOSED
        assert (metadata.format, metadata.ensemble_size, metadata.write_quorum) == (row["format"], row["E"], row["W"])
        assert (metadata.ack_quorum, metadata.state) == (row["A"], row["state"])
        if closed:
            assert (metadata.last_entry, metadata.length) == (row["last"], row["length"])
        assert [[segment.first, list(segment.members)] for segment in metadata.segments] == row["segments"]
        assert dict(metadata.custom) == {key: base64.b64decode(value) for key, value in row["custom"].items()}
        assert (metadata.ctime is not None) == row["ctime_stored"]
        if metadata.password is not None:
            assert metadata.digest is not None
            assert {"HMAC": "MAC"}.get(metadata.digest, metadata.digest) == row["digest"]


def fields(metadata: LedgerMetadata) -> dict[str, Any]:
    """What the Java program prints of a record, from ours."""

    def packed(raw: bytes) -> str:
        return base64.b64encode(raw).decode()

    digest = metadata.digest and {"HMAC": "MAC"}.get(metadata.digest, str(metadata.digest))
    return {
        "format": metadata.format,
        "quorums": [metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum],
        "state": str(metadata.state),
        "last_entry": -1 if metadata.last_entry is None else metadata.last_entry,
        "length": metadata.length or 0,
        "digest": digest,
        "password": None if metadata.password is None else packed(metadata.password),
        "ctime": -1 if metadata.ctime is None else metadata.ctime,
        "token": metadata.creator_token or 0,
        "segments": [[part.first, [packed(member.encode()) for member in part.members]] for part in metadata.segments],
        "custom": [[packed(key.encode()), packed(value)] for key, value in sorted(dict(metadata.custom).items())],
    }


def test_what_java_reads_we_read_the_same() -> None:
    """Whatever BookKeeper 4.17.2 takes, we take for the same values; and what only we take is said to be odd."""
    taken = refused = 0
    for line in lines(JUDGED):
        raw, java = base64.b64decode(line["raw"]), line["java"]
        if java is None:
            refused += 1
            try:
                reading = codec.read(raw)
            except FormatError:
                continue
            assert reading.oddities, raw
        else:
            taken += 1
            ours = fields(codec.decode(raw))
            if java["format"] == 2:
                # Java reports a token that it never writes in this format.
                java["token"] = 0
            assert ours == {name: java[name] for name in ours}, raw
    assert min(taken, refused) > 100


def test_what_java_writes_we_write_the_same() -> None:
    """Re-encoded as an update would, each record has the bytes that BookKeeper 4.17.2 wrote for it."""
    compared = 0
    for line in lines(JUDGED):
        if line["java"] is None or line["java"]["written"] is None:
            continue
        written = base64.b64decode(line["java"]["written"])
        metadata = codec.decode(base64.b64decode(line["raw"]))
        # Java drops what it does not know, always writes the token in format 3, and orders custom metadata by hash.
        token = (metadata.creator_token or 0) if metadata.format == 3 else None
        custom = dict(metadata.custom)
        order = tuple((key, custom[key]) for key, _ in codec.decode(written).custom)
        assert codec.encode(replace(metadata, unknown=b"", creator_token=token, custom=order)) == written
        compared += 1
    assert compared > 100
