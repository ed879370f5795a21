"""Ids of two ledgers: what shows it, what does not, and what each finding says."""

import hashlib
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from backends.protocols import Versioned
from reconcile.compare.single_ledger import as_catalog_row
from reconcile.findings.table import Run
from reconcile.rules import id_reuse
from reconcile.rules.holds import HOLD_MARK
from recovery.codecs import ledger_metadata
from recovery.codecs.entry import master_key
from recovery.model import metadata as md
from recovery.model import tables
from recovery.model.ids import LedgerId
from recovery.testing import simulator

RUN = Run("test", datetime(2030, 1, 1, tzinfo=UTC))
NAMES = ("a:1", "b:1", "c:1")
LAST = 9


def stored(**changed: Any) -> pa.Table:
    """The record of ledger 7 in the store."""
    values: dict[str, Any] = {
        "format": 3, "ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2, "state": md.State.CLOSED,
        "last_entry": LAST, "length": 90, "segments": (md.Segment(0, NAMES),), "digest": md.Digest.CRC32C,
        "password": simulator.PASSWORD, **changed,
    }  # fmt: skip
    return as_catalog_row(Versioned(ledger_metadata.encode(md.LedgerMetadata(**values)), 0), LedgerId(0, 7))


def copies(held: dict[str, set[int]], lac: int = LAST, **changed: Any) -> pa.Table:
    """What bookies hold of ledger 7."""
    rows = []
    for name, entries in held.items():
        header = {"entry": max(entries), "lac": lac, "length": 1, "size": 46, "digest": "CRC32C"} if entries else None
        row = simulator.copy_row(7, name, sorted(entries), headers=[header] if header else [])
        rows.append(row | changed)
    return pa.Table.from_pylist(rows, schema=tables.COPIES)


def keyed(password: bytes) -> bytes:
    """The hash of a master key, as inventories have it."""
    return hashlib.sha256(master_key(password)).digest()


def test_another_key_than_the_records_is_another_ledger() -> None:
    """Both keys are named, never a password; so are holders that the record does not name, for they may delete it."""
    held = copies({"a:1": {1}, "z:1": {1}}, key_kind="set", key=keyed(b"older"))
    [found] = id_reuse.findings(held, stored(), tables.RECONSTRUCTION.empty_table(), RUN).to_pylist()
    evidence = {(one["side"], one["field"]): one["value"] for one in found["evidence"]}
    assert evidence["bookies", "key"] == f"key {keyed(b'older').hex()[:12]}…"
    assert evidence["store", "key"] == f"key {keyed(simulator.PASSWORD).hex()[:12]}…"
    assert evidence["bookies", "hold it, and are not in the record"] == "z:1"
    assert found["severity"] == "critical"
    assert simulator.PASSWORD.decode() not in repr(found)


@pytest.mark.parametrize(
    ("key", "record"),
    [
        (keyed(simulator.PASSWORD), {}),
        (hashlib.sha256(simulator.PASSWORD).digest(), {}),
        (keyed(b"older"), {"custom": ((HOLD_MARK, b"hole"),), "state": md.State.IN_RECOVERY, "last_entry": None,
                           "length": None}),
        (keyed(b"older"), {"format": 1, "password": None, "digest": None}),
    ],
)  # fmt: skip
def test_the_same_ledger_is_not_called_two(key: bytes, record: dict[str, Any]) -> None:
    """Its own key, the password where a copy has it for a key, a hold of ours, a record that has no password."""
    held = copies({"a:1": {1}}, key_kind="set", key=key)
    assert id_reuse.findings(held, stored(**record), tables.RECONSTRUCTION.empty_table(), RUN).num_rows == 0
