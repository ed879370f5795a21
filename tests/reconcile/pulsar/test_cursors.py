"""Subscriptions that stand beyond what is left of their topics, each with the position that remains."""

from pathlib import Path

import pyarrow as pa
import pytest

from backends.protocols import Write
from reconcile.findings.categories import Category
from reconcile.pulsar.cursors import find_beyond
from reconcile.pulsar.topic_records import read_topic_records
from recovery.codecs._pb.managed_ledger_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from recovery.dataset import Dataset, write_part
from recovery.manifest import Part
from recovery.model import tables
from tests.reconcile.jobs.make_plan.test_subtree_writes import take
from tests.support.memory_store import MemoryStore
from tests.support.plan_folder import Ledger

TOP = "/managed-ledgers/public/default/persistent"
MEMBERS = ((0, ("b1", "b2", "b3")),)
LEDGERS = (
    Ledger(3, MEMBERS, last=9),
    Ledger(5, MEMBERS, last=9),
    Ledger(6, MEMBERS, state="OPEN", last=None, length=None),
    Ledger(7, MEMBERS, reason="LAST_ENTRY_UNKNOWN"),
)


def topic(*ledgers: int, offloaded: int = -1, unsaid: int = -1) -> bytes:
    """A topic of closed ledgers with ten entries each, the last one written to."""
    message = ManagedLedgerInfo()
    for ledger in ledgers:
        info = message.ledgerInfo.add(ledgerId=ledger)
        if ledger != unsaid:
            info.entries, info.size = 10, 100
        info.offloadContext.bookkeeperDeleted = ledger == offloaded
    return message.SerializeToString()


def cursor(ledger: int, entry: int, state: int = -1) -> bytes:
    """A subscription at a position."""
    message = ManagedCursorInfo(cursorsLedgerId=state, markDeleteLedgerId=ledger, markDeleteEntryId=entry)
    return message.SerializeToString()


def remaining(snapshot: Dataset, folder: Path, live: Dataset | None = None) -> dict[str, str]:
    """Return the position that remains of each subscription that is found."""
    by_key = [(name, "ascending") for name in tables.KEY_COLUMNS]
    rows = pa.Table.from_pylist([one.row() for one in LEDGERS], schema=tables.RECONSTRUCTION).sort_by(by_key)
    part: Part = write_part(folder, "reconstruction", "all", [rows], secret=True)
    found = list(find_beyond(snapshot, read_topic_records(snapshot).cursors, folder, [part], live))
    assert {finding.category for finding in found} <= {Category.CURSOR_BEYOND_END}
    return {finding.subject.removeprefix(f"{TOP}/"): finding.statements[-1].value for finding in found}


@pytest.fixture
def snapshot(tmp_path: Path) -> Dataset:
    """Topics and subscriptions, just inside of what is left and just outside."""
    store = MemoryStore()
    nodes = {
        "a": topic(3, 5, 6, 7, 99),
        "a/at-end": cursor(5, 9),
        "a/beyond": cursor(5, 10, state=44),
        "a/of-open": cursor(6, 1_000),
        "a/of-held": cursor(7, 0),
        "a/of-lost": cursor(99, 4),
        "a/trimmed": cursor(2, 9),
        "a/nowhere": b"\x08" + b"\xff" * 12,
        "b": topic(98, 99, offloaded=99),
        "b/first": cursor(98, 3),
        "b/elsewhere": cursor(99, 3),
        "c": topic(3, 6, 99, unsaid=6),
        "c/behind-open": cursor(99, 4),
        "d": topic(3, 97, 99, offloaded=97),
        "d/behind-offloaded": cursor(99, 4),
    }
    for name, raw in nodes.items():
        store.write([Write(f"{TOP}/{name}", raw)])
    return take(store, tmp_path / "snapshot", pulsar=True)


def test_each_subscription_beyond_the_end_is_found_with_what_remains(snapshot: Dataset, tmp_path: Path) -> None:
    """A ledger that ends earlier, one that is held and one that is lost; not one that is open, trimmed or offloaded."""
    assert remaining(snapshot, tmp_path / "plan") == {
        "a/beyond": "5:9",
        "a/of-held": "6:9",
        "a/of-lost": "6:9",
        "b/first": "the topic's first message",
        "c/behind-open": "3:9",
        "d/behind-offloaded": "97:9",
    }


def test_what_the_store_has_is_there(snapshot: Dataset, tmp_path: Path) -> None:
    """A ledger that is not lost needs no bookie that was looked at."""
    live = MemoryStore()
    live.write([Write("/ledgers/LAYOUT", b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1")])
    live.write([Write("/ledgers/00/0000/L0099", b"BookieMetadataFormatVersion\t3\n")])
    catalog = take(live, tmp_path / "live")
    assert catalog.rows("ledgers") == 1
    assert "a/of-lost" not in remaining(snapshot, tmp_path / "plan", catalog)
