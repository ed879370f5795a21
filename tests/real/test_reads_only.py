"""What is looked at stays as it is, and what is shown before a restore is what it writes."""

from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from reconcile.write.audit_journal import JOURNAL, JournalLine, scan
from recovery.codecs.store import Layout, layout_bytes
from tests.support.command import run
from tests.support.inventories import write_inventory
from tests.support.plan_folder import Ledger, write_plan
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.real

SEGMENTS = [(0, ["b1", "b2", "b3"])]


def traces(client: KazooClient, key: str) -> dict[str, Any]:
    """Return value, rights and the server's own counts of a node and all below: whatever is written raises one."""
    found = {key: (*client.get(key), client.get_acls(key)[0])}
    for name in client.get_children(key):
        found |= traces(client, f"{key.rstrip('/')}/{name}")
    return found


def test_commands_that_look_leave_no_trace(
    zookeeper_server: ZooKeeperServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Even with an identity that may do everything, and for what would write if it were confirmed: no node changes."""
    monkeypatch.setenv("BKMETA_ZK_AUTH", "bkmeta:secret")
    monkeypatch.chdir(tmp_path)
    root, uri = "/looked-at", f"zk+hierarchical://{zookeeper_server.hosts}/looked-at"
    made = write_plan(tmp_path / "plan", [Ledger(n, SEGMENTS) for n in range(9)], root=root)
    held = write_inventory(tmp_path / "inventory", "b1", range(9), instance="an-instance")
    client = KazooClient(zookeeper_server.hosts)
    client.start()
    nodes = {
        "/LAYOUT": layout_bytes(Layout.HIERARCHICAL),
        "/INSTANCEID": b"an-instance",
        "/available/readonly": b"",
        "/cookies/b1": b"",
        "/idgen": b"",
        "/00/0000/L0001": b"record",
    }
    for key, value in nodes.items():
        client.create(root + key, value, makepath=True)

    def all_traces() -> dict[str, Any]:
        # Other trees of this server may be closed to us; a new one would show among the names.
        return traces(client, root) | {"/": client.get("/")[1].children_version}

    before = all_traces()
    store = ("--metadata", uri)
    for line, code in {
        ("capture", *store, "--out", tmp_path / "catalog"): 0,
        ("preflight", *store, "--inventory", held): 3,
        ("explain", "1", *store): 3,
        ("explain", "4", *store, "--plan", made.path): 0,
        ("plan", "show", made.path): 0,
        ("verify", made.path, *store, "--wire", "--sample", "all"): 3,
        ("freeze", *store): 5,
        ("apply", made.path, *store): 5,
    }.items():
        done = run(capsys, *line)
        assert done.code == code, (line, done.out, done.err)
        assert all_traces() == before, line
    client.stop()
    client.close()


def test_what_is_shown_is_what_is_written(
    zookeeper_server: ZooKeeperServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`plan show` lists the very writes that `apply` makes, with their places in the order: none more, none less."""
    root, uri = "/as-shown", f"zk+hierarchical://{zookeeper_server.hosts}/as-shown"
    ledgers = [Ledger(n, SEGMENTS, reason="limbo" if n > 6 else None) for n in range(9)]
    made = write_plan(tmp_path / "plan", ledgers, root=root)
    shown = run(capsys, "plan", "show", made.path, "--first", "1000", "--json").result
    done = run(capsys, "apply", made.path, "--metadata", uri, "--confirm", shown["hash"], "--json")
    assert done.code == 0, done.out
    names = ("seq", "op", "key", "expects")
    announced = [
        dict(zip(names, (seq, op, key, expects), strict=True))
        for record in scan(Path(made.path) / "journal" / JOURNAL)
        if isinstance(record, JournalLine) and record.event == "intent"
        for seq, op, _, key, expects, *_ in record.fields["writes"]
    ]
    in_order = sorted(shown["first"], key=lambda row: row["seq"])
    assert announced == [{name: row[name] for name in names} for row in in_order]
    assert len(announced) == shown["counts"]["writes"]
    client = KazooClient(zookeeper_server.hosts)
    client.start()
    keys = {row["key"] for row in shown["first"] if row["op"] != "raise"}
    assert {key.removeprefix(root) for key, (value, *_) in traces(client, root).items() if value} <= keys
    assert all(client.exists(root + key) for key in keys)
    client.stop()
    client.close()
