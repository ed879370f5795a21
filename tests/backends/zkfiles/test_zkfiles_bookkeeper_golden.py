"""The ZooKeeper folders of real BookKeeper clusters: every record as it was, and what became of deleted ledgers."""

import base64
from typing import Any

import pyarrow as pa
import pytest

from backends.protocols import CHANGES, KEYS
from backends.zkfiles.store import ZooKeeperFiles
from recovery.codecs.store import Layout, ledger_key, ledger_of
from recovery.model.ids import LedgerId
from tests.support import cases

ROOT = "/ledgers"


def _rows(store: ZooKeeperFiles) -> dict[str, dict[str, Any]]:
    return {row["key"]: row for row in pa.Table.from_batches(store.scan(ROOT), schema=KEYS).to_pylist()}


@pytest.mark.parametrize("name", cases.NAMES)
def test_every_record_is_there(name: str) -> None:
    """Raw bytes, versions and times of every ledger, and all that stands beside them, with nothing missing."""
    truth = cases.truth(name)
    store = ZooKeeperFiles(cases.case_dir(name) / "zookeeper")
    assert store.point().gaps == ()
    found = _rows(store)
    for ledger in truth["ledgers"]:
        row = found[ledger["path"]]
        assert row["value"] == base64.b64decode(ledger["raw"])
        assert (row["version"], row["created_ms"]) == (ledger["version"], ledger["znode_ctime"])
    for node in truth["znodes"]:
        assert found[node["path"]]["value"] == base64.b64decode(node["data"])
    with_values = {key for key, row in found.items() if row["value"]}
    assert with_values <= {row["path"] for part in ("ledgers", "znodes") for row in truth[part]}


def test_a_deleted_ledger_is_in_history_with_its_record() -> None:
    """Who deleted it, when, and the bytes that it had; the older backup still shows them."""
    folder = cases.case_dir("c07")
    store = ZooKeeperFiles(folder / "zookeeper")
    rows = pa.Table.from_batches(store.history(ROOT), schema=CHANGES).to_pylist()
    shown, older = _rows(store), _rows(ZooKeeperFiles(folder / "zookeeper-old"))
    gone = {
        row["key"]: row
        for row in rows
        if row["op"] == "deleted" and ledger_of(Layout.HIERARCHICAL, row["key"][len(ROOT) :])
    }
    keys = {ROOT + ledger_key(Layout.HIERARCHICAL, LedgerId(0, one["ledger"])) for one in cases.truth("c07")["deleted"]}
    assert keys
    assert gone.keys() == keys
    for key, row in gone.items():
        assert key not in shown
        assert row["session"]
        assert row["at_ms"] > older[key]["changed_ms"]
        assert row["before"] == older[key]["value"] != b""
