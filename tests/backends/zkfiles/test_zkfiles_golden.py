"""The files of real ZooKeeper servers come to exactly what those servers served."""

import base64
import hashlib
import json
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from backends.protocols import KEYS, ScannableStore
from backends.registry import open_store
from backends.zkfiles.records import acl_text, session_of
from backends.zkfiles.servers import find, history_of
from backends.zkfiles.snapshot import SnapshotNode
from backends.zkfiles.store import ZooKeeperFiles, parse_at
from backends.zkfiles.tree import EXISTS, NO_NODE, VOID, Tree
from backends.zkfiles.txnlog import LogEnd, survey
from tests.support import paths

DATA: Final = paths.DATA / "zookeeper"
CASES: Final = [
    *((folder.name, "expected.json", None) for folder in sorted(DATA.iterdir()) if folder.is_dir()),
    ("v39-plain", "expected-at-stop.json", "0x1b"),
]
ENDS: Final = {
    "padding": LogEnd.PADDING,
    "eof": LogEnd.FILE,
    "torn-eor": LogEnd.TORN_MARK,
    "torn-len": LogEnd.TORN_SIZE,
}
RESULTS: Final = {"EXISTS": EXISTS, "NONODE": NO_NODE, "FAILED-MULTI": VOID}


def _expected(name: str, file: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / name / file).read_text())
    return found


def _nodes(tree: Tree) -> dict[bytes, SnapshotNode]:
    still = {tree.base.path_at(row): tree.base.node_at(row) for row in np.flatnonzero(~tree.hidden).tolist()}
    return tree.changed | still


def _data(data: bytes | None) -> str | None:
    if data is None:
        return None
    short = len(data) <= 48
    return (
        f"b64:{base64.b64encode(data).decode()}" if short else f"sha256:{hashlib.sha256(data).hexdigest()}:{len(data)}"
    )


def _row(tree: Tree, path: bytes, node: SnapshotNode) -> list[Any]:
    kin = len(list(tree.children(path)))
    numbers = [node.czxid, node.mzxid, node.pzxid, node.ctime, node.mtime, node.version, node.cversion, node.aversion]
    rights = [list(entry) for entry in node.acl or ()]
    return [*numbers, hex(node.owner & (1 << 64) - 1), _data(node.data), rights, 2 * node.cversion - kin, kin]


@pytest.mark.parametrize(("name", "file", "at"), CASES)
def test_the_tree_is_the_server_s(name: str, file: str, at: str | None) -> None:
    """Every node with every number, byte and right, the sessions, the digest, and how the state came about."""
    expected = _expected(name, file)
    found = ZooKeeperFiles(DATA / name, point=parse_at(at) if at else None).restored
    rows = {path.decode() or "/": _row(found.tree, path, node) for path, node in _nodes(found.tree).items()}
    assert rows == {path: [*row[:10], expected["acls"][row[10]], *row[11:]] for path, row in expected["nodes"].items()}
    assert found.gaps == []
    assert {
        "snapshot": found.source.name if found.source else None,
        "last_zxid": hex(found.txn or 0),
        "txns_applied": found.applied,
        "fuzzy_end": hex(found.fuzzy_end) if found.source else None,
        "replay_results": {
            word: found.tree.results[ours] for word, ours in RESULTS.items() if found.tree.results[ours]
        },
        "txn_digests_checked": found.digests,
        "txn_digests_bad": found.wrong,
        "tree_digest_v2": hex(found.tree.digest or 0),
        "sessions": {hex(session): timeout for session, timeout in found.tree.sessions.items()},
    } == {key: expected[key] for key in expected if key in KNOWN}


KNOWN: Final = {
    "snapshot",
    "last_zxid",
    "txns_applied",
    "fuzzy_end",
    "replay_results",
    "txn_digests_checked",
    "txn_digests_bad",
    "tree_digest_v2",
    "sessions",
}


@pytest.mark.parametrize(("name", "file", "at"), CASES)
def test_every_log_ends_where_it_ends(name: str, file: str, at: str | None) -> None:
    """The last good record of every log, and what stands behind it, are found; a crash's tail is no damage."""
    logs = {path.name: survey(path) for path in find(DATA / name)[0].logs}
    for told in _expected(name, file)["logs"]:
        log = logs[told["file"]]
        assert (log.size, log.damage) == (told["size"], None)
        if told["why"] == "stop":
            rows = history_of([log])[0].rows
            behind = rows[rows["zxid"] > int(at or "", 16)]
            assert int(behind["at"][0]) == told["end_offset"]
        else:
            assert (log.end, log.why) == (told["end_offset"], ENDS[told["why"]])


@pytest.mark.parametrize(("name", "file", "at"), CASES)
def test_the_store_shows_that_tree(name: str, file: str, at: str | None) -> None:
    """A scan has each key once, as single reads have it; owners are sessions, and counters those of clients."""
    expected = _expected(name, file)
    with open_store(f"zkfiles://{DATA / name}", at=at) as opened:
        store = opened.store
        assert isinstance(store, ScannableStore)
        table = pa.Table.from_batches(store.scan("/"), schema=KEYS)
        table.validate(full=True)
        rows = {row.pop("key"): row for row in table.to_pylist()}
        assert len(rows) == table.num_rows
        assert rows.keys() == expected["nodes"].keys()
        for key, row in rows.items():
            told = expected["nodes"][key]
            held = store.get(key)
            assert held is not None
            assert row == {column: getattr(held, column) for column in KEYS.names[1:]}
            assert [row[c] for c in ("created_txn", "changed_txn", "created_ms", "changed_ms", "version")] == [
                told[0], told[1], told[3], told[4], told[5],
            ]  # fmt: skip
            assert row["children_created"] == (told[11] + told[12]) // 2
            owner = int(told[8], 16)
            assert row["owner"] == session_of(owner - (1 << 64) if owner >> 63 else owner)
            assert row["acl"] == acl_text(tuple(tuple(entry) for entry in expected["acls"][told[10]]))
            names = store.children(key)
            assert names is not None
            assert len(names) == told[12]
            assert all((key.rstrip("/") + "/" + name) in rows for name in names)
        point = store.point()
        assert (point.txn, point.gaps) == (int(expected["last_zxid"], 16), ())


def test_a_subtree_alone() -> None:
    """A scan below a key has that key and what is below it, and nothing beside; of an absent key nothing."""
    store = ZooKeeperFiles(DATA / "v39-plain")
    every = pa.Table.from_batches(store.scan("/"), schema=KEYS)["key"].to_pylist()
    for root in ("/app", "/app/cfg", "/seq", "/new-eph", "/m"):
        keys = pa.Table.from_batches(store.scan(root), schema=KEYS)["key"].to_pylist()
        assert sorted(keys) == sorted(key for key in every if key == root or key.startswith(f"{root}/"))
    assert list(store.scan("/ap")) == []
    assert [batch.num_rows for batch in store.scan("/gone-eph1") if batch.num_rows] == []
