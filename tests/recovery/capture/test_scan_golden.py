"""Capture of the tree of a real cluster."""

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from backends.protocols import Write
from recovery.capture.live import capture
from recovery.codecs import store
from recovery.codecs.store import Layout
from recovery.dataset import DatasetWriter, open_dataset
from recovery.model.ids import LedgerId
from tests.support.cases import DATA
from tests.support.memory_store import MemoryStore


def nodes_of(name: str) -> list[dict[str, Any]]:
    """The nodes of a dumped tree, parents first."""
    return [json.loads(line) for line in (DATA.parent / "zk-tree" / f"{name}.jsonl").read_text().splitlines()]


def loaded(nodes: list[dict[str, Any]]) -> MemoryStore:
    """A store that holds a dumped tree."""
    made = MemoryStore()
    for node in nodes:
        value = base64.b64decode(node["data"])
        if node["ephemeral"]:
            made.put_ephemeral(node["path"], value, 1)
        else:
            made.write([Write(node["path"], value)])
    return made


@pytest.mark.parametrize("name", ["before", "final"])
def test_every_node_of_a_real_tree_is_in_the_catalog(name: str, tmp_path: Path) -> None:
    """Each node with data stands in the catalog once, byte for byte, and every ledger is parsed."""
    nodes = nodes_of(name)
    with DatasetWriter(tmp_path / "out", "catalog", binding={}, secret=True) as out:
        summary = capture(loaded(nodes), "/ledgers", None, out, clock=lambda: datetime.now(UTC))
    assert (summary.complete, summary.unparsable, summary.layout) == (True, 0, "hierarchical")
    dataset = open_dataset(tmp_path / "out", "catalog")
    captured = {row["path"]: row["raw"] for row in dataset.read("nodes").to_pylist()}
    for row in dataset.read("ledgers").to_pylist():
        captured[store.ledger_key(Layout.HIERARCHICAL, LedgerId(row["scope"], row["ledger"]))] = row["raw"]
        assert row["error"] is None
    held = {node["path"].removeprefix("/ledgers") or "/": base64.b64decode(node["data"]) for node in nodes}
    assert {path: value for path, value in held.items() if value} == {k: v for k, v in captured.items() if v}
    assert captured.keys() <= held.keys()
    assert summary.instance_id is not None
    assert store.encode_instance_id(summary.instance_id) == held["/INSTANCEID"]
    assert store.layout_bytes(Layout.HIERARCHICAL) == held["/LAYOUT"]


def test_ledgers_on_both_sides_of_the_boundary_are_found(tmp_path: Path) -> None:
    """Ids that the Java client created at the edge of the short tree stand where the layout says."""
    with DatasetWriter(tmp_path / "out", "catalog", binding={}, secret=True) as out:
        capture(loaded(nodes_of("final")), "/ledgers", None, out, clock=lambda: datetime.now(UTC))
    found = open_dataset(tmp_path / "out", "catalog").read("ledgers")["ledger"].to_pylist()
    assert {2147483646, 2147483647, 2147483648, 12345678901, (1 << 63) - 1} <= set(found)
