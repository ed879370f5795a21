"""ZooKeeper's files as ZooKeeper's own tools read them, and those of a live server as its clients see it."""

import base64
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from kazoo.client import KazooClient, KazooRetry
from kazoo.exceptions import KazooException
from kazoo.security import make_acl

from backends.protocols import CHANGES, KEYS
from backends.zkfiles import snapshot, txnlog
from backends.zkfiles.snapshot import SnapshotNode
from backends.zkfiles.store import At, ZooKeeperFiles
from tests.backends.zkfiles.test_zkfiles_golden import DATA
from tests.support.zookeeper_server import ZooKeeperServer, _jars

pytestmark = pytest.mark.real

_SNAPSHOTS: Final = ("v39-plain/version-2/snapshot.28", "v39-snappy/version-2/snapshot.34.snappy",
                     "v39-gzip/version-2/snapshot.34.gz", "v34-snapshot/version-2/snapshot.42")  # fmt: skip
_LOGS: Final = ("v39-plain/version-2/log.1", "v34-logs-only/version-2/log.1", "v39-torn-padded/version-2/log.1")
_ROUNDS: Final = 900
_CHECKPOINTS: Final = 12
_NODE: Final = re.compile(r"^----\n(/.*?)\n((?:  [a-zA-Z]+ = ?.*\n)+)", re.MULTILINE)
_RECORD: Final = re.compile(r"session 0x([0-9a-f]+) cxid 0x[0-9a-f]+ zxid 0x([0-9a-f]+) (\w+)")


def _tool(name: str, file: Path, *, fails: bool = False) -> str:
    command = ["java", "-Dfile.encoding=UTF-8", "-cp", f"{_jars()}/*", f"org.apache.zookeeper.server.{name}", "-d"]
    done = subprocess.run([*command, str(file)], capture_output=True, check=False, timeout=300)
    assert (done.returncode != 0) == fails, done.stderr.decode()
    return done.stdout.decode("utf-8", "replace")


def _nodes_of_tool(text: str) -> dict[str, dict[str, Any]]:
    found = {}
    for path, lines in _NODE.findall(text):
        pairs = (line.partition("=") for line in lines.splitlines())
        fields = {name.strip(): value.strip() for name, _, value in pairs}
        found[path] = {
            **{name: int(fields[name], 16) for name in ("cZxid", "mZxid", "pZxid", "ephemeralOwner")},
            **{name: int(fields[name]) for name in ("cversion", "dataVersion", "aclVersion")},
            "data": base64.b64decode(fields.get("data", "")),
        }
    return found


def _as_tool(node: SnapshotNode) -> dict[str, Any]:
    return {
        "cZxid": node.czxid,
        "mZxid": node.mzxid,
        "pZxid": node.pzxid,
        "ephemeralOwner": node.owner & (1 << 64) - 1,
        "cversion": node.cversion,
        "dataVersion": node.version,
        "aclVersion": node.aversion,
        "data": node.data or b"",
    }


def _compare_snapshot(file: Path) -> None:
    found = snapshot.read(file)
    assert found.damage is None
    ours = {found.path_at(row).decode() or "/": _as_tool(found.node_at(row)) for row in range(found.nodes)}
    theirs = _nodes_of_tool(_tool("SnapshotFormatter", file))
    assert ours == theirs


def _compare_log(file: Path) -> None:
    log = txnlog.survey(file)
    text = _tool("persistence.TxnLogToolkit", file, fails=log.why is txnlog.LogEnd.TORN_MARK)
    told = [(int(session, 16), int(zxid, 16)) for session, zxid, _ in _RECORD.findall(text)]
    payloads = txnlog.Payloads()
    ours = []
    for at, size, crc in log.entries[["at", "size", "crc"]].tolist():
        transaction = payloads.transaction(file, at, size, crc)
        ours.append((transaction.session & (1 << 64) - 1, transaction.zxid))
    payloads.close()
    assert ours == told


@pytest.mark.parametrize("name", _SNAPSHOTS)
def test_snapshots_are_what_zookeeper_s_formatter_prints(name: str) -> None:
    """Every node with its numbers and data, of each compression and of the oldest version."""
    _compare_snapshot(DATA / name)


@pytest.mark.parametrize("name", _LOGS)
def test_logs_are_what_zookeeper_s_toolkit_prints(name: str) -> None:
    """Every transaction, in order, and none behind a torn end."""
    _compare_log(DATA / name)


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What clients of a live server saw, and the server's files.

    Attributes:
        files: a copy of its folder, taken while it ran.
        killed: another one, taken after it was killed.
        tree: the last state, by key.
        states: values by key at some zxids.
        last: the last zxid.
    """

    files: Path
    killed: Path
    tree: dict[str, tuple[Any, ...]]
    states: dict[int, dict[str, bytes]]
    last: int


def _dump(client: KazooClient, key: str = "/") -> Iterator[tuple[str, tuple[Any, ...]]]:
    value, stat = client.get(key)
    rights, _ = client.get_acls(key)
    acl = ",".join(f"{one.id.scheme}:{one.id.id}:{one.perms}" for one in rights)
    counter = ((stat.cversion + stat.numChildren) & 0xFFFF_FFFF) // 2
    numbers = (stat.version, stat.czxid, stat.mzxid, stat.ctime, stat.mtime, stat.ephemeralOwner, counter)
    yield key, (value, *numbers, acl)
    for name in client.get_children(key):
        yield from _dump(client, f"{key.rstrip('/')}/{name}")


def _busy(client: KazooClient, other: KazooClient, chance: random.Random) -> None:
    """Make one random change, or try to."""
    key = f"/w/{chance.randrange(6)}"
    child = f"{key}/{chance.randrange(12)}"
    value = chance.randbytes(chance.randrange(80))
    match chance.randrange(11):
        case 0 | 1:
            client.create(child, value, makepath=True)
        case 2 | 3:
            client.set(child, value)
        case 4:
            client.delete(child)
        case 5:
            client.delete(key, recursive=True)
        case 6:
            client.create(f"{key}/s-", value, sequence=True, makepath=True)
        case 7:
            other.create(child, value, ephemeral=True, makepath=True)
        case 8:
            client.set_acls(child, [make_acl("world", "anyone", all=True), make_acl("ip", "127.0.0.1", read=True)])
        case 9:
            transaction = client.transaction()
            transaction.create(f"{key}/m{chance.randrange(50)}", value)
            transaction.set_data(child, value)
            transaction.delete(f"{key}/{chance.randrange(12)}")
            transaction.commit()
        case _:
            other.stop()
            other.start()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Recorded]:
    """A server that was busy while it wrote several snapshots, copied alive and after it was killed."""
    folder = tmp_path_factory.mktemp("zkfiles")
    server = ZooKeeperServer(folder, settings="snapCount=120\npreAllocSize=64\nautopurge.purgeInterval=0")
    server.start()
    chance = random.Random(20)
    once = KazooRetry(max_tries=1)
    client, other = (KazooClient(server.hosts, timeout=60, command_retry=once) for _ in range(2))
    states: dict[int, dict[str, bytes]] = {}
    try:
        client.start()
        other.start()
        for number in range(_ROUNDS):
            try:
                _busy(client, other, chance)
            except KazooException:
                continue  # refused by the server: that is part of the history too
            finally:
                if number % (_ROUNDS // _CHECKPOINTS) == 0:
                    client.create(f"/at-{number}", b"")
                    zxid = client.exists(f"/at-{number}").czxid
                    states[zxid] = {key: row[0] for key, row in _dump(client)}
        client.create("/last", b"")
        tree = dict(_dump(client))
        # As a person copies: snapshots first, logs last.
        alive = folder / "alive" / "version-2"
        alive.mkdir(parents=True)
        for pattern in ("snapshot.*", "log.*"):
            for file in (server.data_dir / "version-2").glob(pattern):
                shutil.copy(file, alive)
        server.kill()
        killed = Path(shutil.copytree(server.data_dir, folder / "killed"))
        yield _Recorded(folder / "alive", killed, tree, states, tree["/last"][2])
    finally:
        server.kill()
        for one in (client, other):
            one.stop()
            one.close()


def _shown(store: ZooKeeperFiles) -> dict[str, tuple[Any, ...]]:
    found = {}
    for row in pa.Table.from_batches(store.scan("/"), schema=KEYS).to_pylist():
        rights = ((entry.rpartition(":")) for entry in row["acl"].split(","))
        bits = {"c": 4, "d": 8, "r": 1, "w": 2, "a": 16}
        acl = ",".join(f"{name}:{sum(bits[perm] for perm in perms)}" for name, _, perms in rights)
        numbers = [row[name] for name in KEYS.names if name not in ("key", "value", "acl")]
        found[row["key"]] = (row["value"], *numbers, acl)
    return found


def test_the_files_of_a_live_server_are_its_tree(recorded: _Recorded) -> None:
    """Copied while it ran, and again after kill -9: every key, byte, number, right and owner that clients saw."""
    for folder in (recorded.files, recorded.killed):
        store = ZooKeeperFiles(folder)
        assert store.point().gaps == ()
        assert (store.point().txn or 0) >= recorded.last
        shown = _shown(store)
        assert {key: row for key, row in shown.items() if key != "/zookeeper/config"} == {
            key: row for key, row in recorded.tree.items() if key != "/zookeeper/config"
        }


def test_any_point_in_time_is_what_clients_saw_then(recorded: _Recorded) -> None:
    """At each zxid that was looked at, the files show what clients read, from whichever snapshot serves."""
    used = set()
    for zxid, values in recorded.states.items():
        store = ZooKeeperFiles(recorded.killed, point=At(zxid=zxid))
        assert (store.point().txn, store.point().gaps) == (zxid, ())
        assert {key: row[0] for key, row in _shown(store).items()} == values
        used.add(store.restored.source)
        assert store.restored.wrong == 0
        at = store.point().at_ms
        assert at is not None
        assert (ZooKeeperFiles(recorded.killed, point=At(ms=at)).point().txn or 0) >= zxid
    assert len(used) > 1


def test_history_is_what_clients_did(recorded: _Recorded) -> None:
    """Between any two states that were looked at, exactly the changes of history lie."""
    rows = pa.Table.from_batches(ZooKeeperFiles(recorded.killed).history("/"), schema=CHANGES).to_pylist()
    points = sorted(recorded.states)
    for start, end in pairwise(points):
        values: dict[str, bytes | None] = dict(recorded.states[start])
        for row in rows:
            if start < row["txn"] <= end:
                assert row["before"] == values.get(row["key"])
                values[row["key"]] = row["after"]
        assert {key: value for key, value in values.items() if value is not None} == recorded.states[end]


def test_zookeeper_s_tools_agree_on_the_live_server_s_files(recorded: _Recorded) -> None:
    """The newest snapshot and log of the live server, as ZooKeeper's own tools read them."""
    files = recorded.killed / "version-2"
    newest = {
        kind: max(files.glob(f"{kind}.*"), key=lambda path: int(path.suffix[1:], 16)) for kind in ("snapshot", "log")
    }
    _compare_snapshot(newest["snapshot"])
    _compare_log(newest["log"])
