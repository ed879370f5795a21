"""Capture from a store that shows one point in time: the same catalog as from a live one, and its history."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from backends.protocols import MetadataStore, Write
from recovery.capture import scan
from recovery.capture.live import capture
from recovery.capture.summary import CaptureSummary
from recovery.codecs import ledger_metadata, store
from recovery.codecs.store import Layout
from recovery.dataset import Dataset, DatasetWriter, open_dataset
from recovery.errors import InputError
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.support.memory_store import MemoryStore
from tests.support.scannable_store import ScannableMemory

READ_AT = datetime(2031, 1, 1, tzinfo=UTC)
RECORD = ledger_metadata.encode(
    LedgerMetadata(
        3, 1, 1, 1, LedgerState.CLOSED, 2, 30, (Segment(0, ("b1:3181",)),), Digest.CRC32, b"pw", creator_token=0
    )
)
IDS = (0, 1, 9999, 10000, 2147483646)
LONG_IDS = (2147483647, 4294967296, (1 << 63) - 1)
SCOPED = (LedgerId(7, 0), LedgerId(7, 1), LedgerId(-1, -1))


def fill(made: MemoryStore, layout: Layout, root: str = "/ledgers") -> None:
    """Put ledgers wherever the layout keeps them, the nodes beside them, and keys that are nearly ledgers'."""
    ids = IDS if layout is Layout.LEGACY else IDS + LONG_IDS
    ledgers = [*(LedgerId(0, one) for one in ids), *SCOPED]
    nodes = {
        store.LAYOUT: store.layout_bytes(layout),
        store.INSTANCE_ID: b"d1a6f3b2-0c6e-4a57-9a5b-5d0d1c2e3f40",
        "/cookies/b1:3181": b"5\n",
        "/available/readonly": b"",
        "/idgen": b"",
        "/underreplication/ledgers/0000/0000/0000/0001/urL0000000001": b'replica: "b1:3181"\n',
        "/00/0000/L00001": b"stray",
        "/stray": b"",
        store.SCOPED: store.SCOPED_MARKER,
        **{store.ledger_key(layout, ledger): RECORD for ledger in ledgers},
    }
    for key, value in nodes.items():
        made.write([Write(root + key, value)])
    made.put_ephemeral(f"{root}/available/b1:3181", b"", 77)


def run(
    source: MetadataStore,
    folder: Path,
    layout: Layout | None = None,
    *,
    with_own_root: bool = True,
    with_history: bool = True,
) -> tuple[CaptureSummary, Dataset]:
    """Capture into a folder, and open what was written."""
    with DatasetWriter(folder, "catalog", binding={}, secret=True) as out:
        summary = capture(
            source,
            "/ledgers",
            layout,
            out,
            clock=lambda: READ_AT,
            with_own_root=with_own_root,
            with_history=with_history,
        )
    return summary, open_dataset(folder, "catalog")


def rows(dataset: Dataset, table: str) -> list[dict[str, Any]]:
    """A table's rows without rights, which a live capture does not read everywhere, in the order of their keys."""
    found = [{name: value for name, value in row.items() if name != "acl"} for row in dataset.read(table).to_pylist()]
    return sorted(found, key=lambda row: row.get("path", ""))


@pytest.mark.parametrize("layout", [layout for layout in Layout if layout is not Layout.ETCD])
@pytest.mark.parametrize("batch", [16_384, 3])
def test_in_bulk_and_key_by_key_give_one_catalog(
    layout: Layout, batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ledgers and nodes of every layout, in one batch or many: equal to a live capture of the same."""
    monkeypatch.setattr(scan, "_BATCH", batch)
    live, scannable = MemoryStore(lambda: 1_700_000_000_123), ScannableMemory()
    fill(live, layout)
    fill(scannable, layout)
    slow, one = run(live, tmp_path / "one", layout)
    quick, two = run(scannable, tmp_path / "two", layout)
    assert rows(one, "ledgers") == rows(two, "ledgers")
    assert rows(one, "nodes") == rows(two, "nodes")
    for name in ("layout", "instance_id", "root", "complete", "gaps", "ledgers", "unparsable", "nodes"):
        assert getattr(slow, name) == getattr(quick, name), name
    assert quick.ledgers > 8 or layout is Layout.LEGACY


def test_the_time_and_the_transaction_are_the_points(tmp_path: Path) -> None:
    """A catalog of files is as old as they are; where they keep no times that is said."""
    source = ScannableMemory()
    fill(source, Layout.HIERARCHICAL)
    summary, dataset = run(source, tmp_path / "one")
    (row,) = dataset.read("sources").to_pylist()
    assert row["at"] == summary.at == datetime(2023, 11, 14, 22, 13, 20, 123000, UTC)
    assert (row["txn"], row["notes"]) == (source.point().txn, [])
    timeless = ScannableMemory(at=False)
    fill(timeless, Layout.HIERARCHICAL)
    summary, _ = run(timeless, tmp_path / "two")
    assert summary.at == READ_AT
    assert "keeps no times" in summary.notes[0]


def test_history_says_who_deleted_what_and_what_it_was(tmp_path: Path) -> None:
    """Creation, change and deletion of a ledger, in their order, with transaction, time, session and bytes."""
    source = ScannableMemory()
    fill(source, Layout.HIERARCHICAL)
    key = "/ledgers" + store.ledger_key(Layout.HIERARCHICAL, LedgerId(0, 1))
    source.session = 0x200
    source.put(key, RECORD + b"")
    source.put(key, None)
    summary, dataset = run(source, tmp_path / "out")
    found = [row for row in dataset.read("history").to_pylist() if (row["scope"], row["ledger"]) == (0, 1)]
    assert [row["op"] for row in found] == ["created", "changed", "deleted"]
    assert found[-1]["before"] == RECORD
    assert (found[-1]["after"], found[-1]["session"], found[-1]["txn"]) == (None, 0x200, source.point().txn)
    assert summary.changes == dataset.rows("history") == summary.ledgers + 3
    assert (0, 1) not in {(row["scope"], row["ledger"]) for row in dataset.read("ledgers").to_pylist()}


def test_who_looks_at_what_stands_reads_no_history(tmp_path: Path) -> None:
    """The ledgers are the same, and the catalog says what it does not have."""
    source = ScannableMemory()
    fill(source, Layout.HIERARCHICAL)
    _, whole = run(source, tmp_path / "whole")
    summary, dataset = run(source, tmp_path / "look", with_history=False)
    assert rows(dataset, "ledgers") == rows(whole, "ledgers")
    assert (summary.changes, dataset.rows("history"), summary.complete) == (0, 0, True)
    assert any("its history was not asked for" in note for note in summary.notes)


def test_a_store_that_cannot_be_read_to_its_end_has_a_gap(tmp_path: Path) -> None:
    """What was read is in the catalog, which says that it is not all."""
    source = ScannableMemory(torn=True)
    fill(source, Layout.HIERARCHICAL)
    summary, dataset = run(source, tmp_path / "out")
    assert not summary.complete
    assert "torn" in summary.gaps[0]
    assert dataset.rows("ledgers") == summary.ledgers > 0


def test_a_root_that_was_deleted_leaves_its_history(tmp_path: Path) -> None:
    """Everything removed, LAYOUT too: the root is missing, and the deletions are read by the layout that was."""
    source = ScannableMemory()
    key = "/ledgers" + store.ledger_key(Layout.HIERARCHICAL, LedgerId(0, 1))
    source.put("/ledgers/LAYOUT", store.layout_bytes(Layout.HIERARCHICAL))
    source.put(key, RECORD)
    for gone in (key, "/ledgers/00/0000", "/ledgers/00", "/ledgers/LAYOUT", "/ledgers"):
        source.put(gone, None)
    summary, dataset = run(source, tmp_path / "out")
    assert (summary.root, summary.ledgers, summary.layout) == ("missing", 0, "hierarchical")
    assert [row["op"] for row in dataset.read("history").to_pylist()] == ["created", "deleted"]


def test_a_store_without_layout_needs_a_name(tmp_path: Path) -> None:
    """As with a live store."""
    source = ScannableMemory()
    source.put("/ledgers/cookies", b"")
    with pytest.raises(InputError, match="no layout was named"):
        run(source, tmp_path / "out")
