"""Rows of the databases: the worked examples byte for byte, and every row of the real disks."""

from pathlib import Path

import pytest

from backends.rocks import open_read_only
from recovery.codecs import entry, ledger_db
from recovery.codecs.entry_log import log_id_of, split_location
from recovery.codecs.ledger_db import BookieLedgerRow, StorageFlags
from tests.support.cases import NAMES, case_dir, truth

KEY = bytes.fromhex("850bf1071c5e3d8c24235676f8816ae0cbe2f14f")
LAC = bytes.fromhex("0000000000000005000000000000000289bafe66")
ROWS = [
    (BookieLedgerRow(5, fenced=False, master_key=KEY), "080110001a14850bf1071c5e3d8c24235676f8816ae0cbe2f14f"),
    (
        BookieLedgerRow(5, fenced=True, master_key=KEY, explicit_lac=LAC, limbo=False),
        "080110011a14850bf1071c5e3d8c24235676f8816ae0cbe2f14f22140000000000000005000000000000000289bafe662800",
    ),
    (BookieLedgerRow(5, fenced=True, master_key=b"", rebuilt=True), "080110011a00"),
]


@pytest.mark.parametrize(("row", "value"), ROWS)
def test_the_worked_rows(row: BookieLedgerRow, value: str) -> None:
    """Each example is made and read; a rebuilt row has the longer key."""
    key = (5).to_bytes(8, "big") + (bytes(8) if row.rebuilt else b"")
    assert ledger_db.encode_ledgers_row(row) == (key, bytes.fromhex(value))
    assert ledger_db.decode_ledgers_row(key, bytes.fromhex(value)) == row


def test_the_worked_storage_flags() -> None:
    """The flags stand under a negative key."""
    key = bytes.fromhex("ffffffffffff1103")
    flags = ledger_db.decode_ledgers_row(key, (1).to_bytes(8, "big"))
    assert flags == StorageFlags(1)
    assert StorageFlags(1).needs_integrity_check
    assert ledger_db.encode_storage_flags(StorageFlags(1)) == (key, (1).to_bytes(8, "big"))


def test_the_worked_location() -> None:
    """A location is made and read."""
    key, value = bytes.fromhex("00000000000000050000000000000003"), bytes.fromhex("0000001f00000404")
    assert ledger_db.encode_location(5, 3, 0x1F00000404) == (key, value)
    found = ledger_db.decode_locations([key], [value])
    assert [column.tolist() for column in found[:3]] == [[5], [3], [0x1F00000404]]
    assert found.damage == ()


WITH_DATABASES = [name for name in NAMES if any(b["storage"] == "db" for b in truth(name)["bookies"])]


def shards(case: str) -> list[tuple[Path, Path]]:
    """Return (databases, logs) of every ledger folder of every bookie with databases."""
    root = case_dir(case)
    return [
        (root / index / "current", root / ledgers / "current")
        for bookie in truth(case)["bookies"]
        if bookie["storage"] == "db"
        for ledgers, index in zip(bookie["ledgers"], bookie["indexes"] or bookie["ledgers"], strict=True)
    ]


@pytest.mark.parametrize("case", WITH_DATABASES)
def test_every_real_ledgers_row_is_whole(case: str) -> None:
    """Each real row re-encodes to its own bytes, its key is the writer's, and it stands in its ledger's folder."""
    writers = {row["ledger"]: row["writer"] for row in truth(case)["ledgers"]}
    folders = {bookie["id"]: bookie["ledgers"] for bookie in truth(case)["bookies"]}
    rows = 0
    for databases, logs in shards(case):
        [siblings] = [paths for paths in folders.values() if any(case_dir(case) / p == logs.parent for p in paths)]
        number = siblings.index(str(logs.parent.relative_to(case_dir(case))))
        with open_read_only(databases / "ledgers") as reader:
            found = [pair for keys, values in reader.items() for pair in zip(keys, values, strict=True)]
        for key, value in found:
            row = ledger_db.decode_ledgers_row(key, value)
            if isinstance(row, BookieLedgerRow):
                assert ledger_db.encode_ledgers_row(row) == (key, value)
                assert ledger_db.shard(row.ledger, len(siblings)) == number
                if row.ledger in writers:
                    assert row.master_key == entry.master_key(writers[row.ledger]["password"].encode())
                rows += 1
    assert rows


@pytest.mark.parametrize("case", WITH_DATABASES)
def test_every_real_location_leads_to_its_entry(case: str) -> None:
    """Each real location leads, in the logs of its own folder, to a record that says the same ids."""
    for databases, logs in shards(case):
        raw = {log_id_of(path.name): path.read_bytes() for path in logs.glob("*.log")}
        with open_read_only(databases / "locations") as reader:
            for keys, values in reader.items():
                found = ledger_db.decode_locations(keys, values)
                assert found.damage == ()
                assert len(found.ledger) == len(keys)
                for ledger, number, location in zip(*(column.tolist() for column in found[:3]), strict=True):
                    log_id, position = split_location(location)
                    front = raw[log_id][position : position + 16]
                    assert front == ledger.to_bytes(8, "big") + number.to_bytes(8, "big")
