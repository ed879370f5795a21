"""`preflight` as it is typed: the first ten minutes at once, then the verdict, on a real ZooKeeper."""

import itertools
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from backends.protocols import Write
from backends.zookeeper.store import ZooKeeperStore
from recovery.codecs.store import Layout, layout_bytes, ledger_key
from recovery.model.ids import LedgerId
from tests.support.command import run
from tests.support.inventories import write_inventory
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.real

PROGRAM = (sys.executable, "-c", "from reconcile.cli.main import main; main()", "preflight")
LEDGERS = 5_000
SECONDS = 15.0
"""Seconds, not minutes; most of it is for a machine that is busy with other tests."""
_ROOTS = itertools.count()


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No credentials."""
    monkeypatch.delenv("BKMETA_ZK_AUTH", raising=False)


@pytest.fixture
def client(zookeeper_server: ZooKeeperServer) -> Iterator[KazooClient]:
    """A plain client that makes what the tests need."""
    client = KazooClient(zookeeper_server.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def root(client: KazooClient) -> str:
    """What `initnewcluster` makes, at a root of its own, with three bookies registered in it."""
    root = f"/preflight-{next(_ROOTS)}"
    nodes = {"/LAYOUT": layout_bytes(Layout.HIERARCHICAL), "/INSTANCEID": b"new", "/available/readonly": b""}
    for key, value in nodes.items():
        client.create(root + key, value, makepath=True)
    for bookie in ("b1", "b2", "b3"):
        client.create(f"{root}/available/{bookie}", b"", ephemeral=True)
    return root


def inventories(folder: Path, instance: str) -> list[str]:
    """Write three bookies' inventories: each ledger of 5,000 on two of them, formatted years ago."""
    arguments = []
    for number in range(3):
        ledgers = [ledger for ledger in range(LEDGERS) if ledger % 3 != number]
        formatted = [datetime(2021, 3, 4, tzinfo=UTC)]
        made = write_inventory(
            folder / f"b{number + 1}",
            f"b{number + 1}",
            ledgers,
            instance=instance,
            formatted=formatted,
            ended=datetime.now(UTC) - timedelta(minutes=5),
        )
        arguments += ["--inventory", str(made)]
    return arguments


def confs(folder: Path) -> list[str]:
    """Write the configuration files of two of the three bookies."""
    found = []
    for bookie, wait in (("b1", 900_000), ("b3", 60_000)):
        path = folder / f"{bookie}.conf"
        path.write_text(f"bookieId={bookie}\ngcWaitTime={wait}\n")
        found += ["--bookie-conf", str(path)]
    return found


def test_a_fresh_root_under_bookies_full_of_ledgers(
    zookeeper_server: ZooKeeperServer, root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """CRITICAL within seconds; each bookie's time between passes, the order to stop them in, the exact next command."""
    uri = f"zk+hierarchical://{zookeeper_server.hosts}{root}"
    arguments = ["--metadata", uri, *inventories(tmp_path, "old"), *confs(tmp_path)]
    began = time.monotonic()
    done = run(capsys, "preflight", *arguments)
    assert time.monotonic() - began < SECONDS
    assert done.code == 3
    minutes, _, rest = done.out.partition("\n\n")
    assert minutes.startswith("THE FIRST TEN MINUTES")
    assert [line.split()[0] for line in minutes.splitlines()[1:] if line[2].isdigit()] == [f"{n}." for n in range(1, 7)]
    verdict = rest.splitlines()[0]
    assert verdict.startswith(f"CRITICAL: the store is valid and EMPTY: none of {LEDGERS} ledgers")
    assert verdict.endswith("b1, b2, b3 can delete them now")
    assert "CRITICAL: the store is of cluster new, and b1, b2, b3 of old" in rest
    assert "WARNING: INSTANCEID was created" in rest
    order = rest[rest.index("in this order") :]
    assert (
        order.index("b3 (every 1 min)") < order.index("b2 (every 10 min by default") < order.index("b1 (every 15 min)")
    )
    assert done.out.splitlines()[-1] == f"next: bkmeta freeze --metadata {uri}"


def test_the_same_for_programs(
    zookeeper_server: ZooKeeperServer, root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --json stdout is one object, and the first ten minutes are on stderr and in it."""
    uri = f"zk+hierarchical://{zookeeper_server.hosts}{root}"
    done = run(capsys, "preflight", "--metadata", uri, *inventories(tmp_path, "new"), *confs(tmp_path), "--json")
    assert done.err.startswith("THE FIRST TEN MINUTES")
    assert len(done.out.splitlines()) == 1
    result = done.result
    assert set(result) == {
        "schema", "verdict", "exit_code", "counts", "coverage", "first_ten_minutes", "next", "level", "root", "layout",
        "findings", "bookies", "freeze", "auditor", "settings",
    }  # fmt: skip
    assert (result["schema"], result["exit_code"], result["level"]) == ("bkmeta.preflight/1", 3, "critical")
    assert result["counts"] == {
        "ledgers_listed": 0,
        "ledgers_on_bookies": LEDGERS,
        "ledgers_absent": LEDGERS,
        "bookies_registered": 3,
        "cookies": 0,
    }
    assert [(b["id"], b["registered"], b["gc_wait_ms"]) for b in result["bookies"]] == [
        ("b3", "rw", 60_000),
        ("b2", "rw", 600_000),
        ("b1", "rw", 900_000),
    ]
    assert result["freeze"]["state"] == "thawed"
    assert len(result["first_ten_minutes"]) == 6


@pytest.mark.parametrize(
    ("extent", "state", "says"),
    [
        ((), "frozen", "frozen, by digest:tool"),
        (("--deletes-only",), "deletes-only", "frozen for deletes only, by digest:tool: clients go on"),
    ],
)
def test_after_a_freeze(
    extent: tuple[str, ...],
    state: str,
    says: str,
    zookeeper_server: ZooKeeperServer,
    root: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Frozen it is a WARNING and the next command is recover; without the freeze's identity it cannot be judged."""
    uri = f"zk+hierarchical://{zookeeper_server.hosts}{root}"
    held = inventories(tmp_path, "new")
    monkeypatch.setenv("BKMETA_ZK_AUTH", "tool:secret")
    freeze = ("freeze", "--metadata", uri, "--journal", tmp_path / "journal", *extent)
    assert run(capsys, *freeze, "--confirm", run(capsys, *freeze, "--json").result["hash"]).code == 0
    done = run(capsys, "preflight", "--metadata", uri, *held)
    assert done.code == 3
    assert "\nWARNING: the store is valid and EMPTY" in done.out
    assert "it is frozen" in done.out
    assert done.out.splitlines()[-1].startswith("next: bkmeta recover --inventory ")
    monkeypatch.delenv("BKMETA_ZK_AUTH")
    blind = run(capsys, "preflight", "--metadata", uri, *held, "--json").result
    assert blind["freeze"]["state"] == state
    assert says in [finding["text"] for finding in blind["findings"]]
    assert blind["counts"]["ledgers_absent"] is None
    assert any(f["level"] == "undecided" and "BKMETA_ZK_AUTH" in f["text"] for f in blind["findings"])


def test_a_restored_cluster(
    zookeeper_server: ZooKeeperServer,
    root: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every ledger listed again, in a store younger than the bookies with their instance id: OK, and it is said."""
    store = ZooKeeperStore(zookeeper_server.hosts)
    keys = [root + ledger_key(Layout.HIERARCHICAL, LedgerId(0, ledger)) for ledger in range(LEDGERS)]
    for at in range(0, LEDGERS, 1_000):
        store.write([Write(key, b"") for key in keys[at : at + 1_000]])
    store.close()
    uri = f"zk://{zookeeper_server.hosts}{root}"
    result = run(capsys, "preflight", "--metadata", uri, *inventories(tmp_path, "new"), "--json").result
    assert (result["exit_code"], result["level"]) == (0, "ok")
    assert result["counts"]["ledgers_absent"] == 0
    assert {f["subject"] for f in result["findings"] if "made again" in f["text"]} == {"instance", "layout"}


def test_no_root(zookeeper_server: ZooKeeperServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A root that does not exist: CRITICAL, and what comes next makes it, frozen."""
    uri = f"zk+longhierarchical://{zookeeper_server.hosts}/nowhere"
    done = run(capsys, "preflight", "--metadata", uri, *inventories(tmp_path, "new"))
    assert done.code == 3
    assert "CRITICAL: /nowhere does not exist, and the bookies hold 5000 ledgers" in done.out
    assert f"bkmeta freeze --metadata {uri}" in done.out.splitlines()[-1]


def test_the_first_ten_minutes_come_before_any_connection() -> None:
    """Anybody who never answers cannot keep them back: they are read while the store is still being waited for."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"zk://127.0.0.1:{silent.getsockname()[1]}/ledgers"
        with subprocess.Popen(
            [*PROGRAM, "--metadata", uri], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(13)]
            assert process.poll() is None
            out, err = process.communicate(timeout=120)
    said = "".join(lines)
    for words in ("kill -STOP", "EVERY ZooKeeper server", "metaformat", "not topics"):
        assert words in said
    assert process.returncode == 4, err
    assert "UNDECIDED: " in out
    assert out.splitlines()[-1].startswith("next: ")


def test_without_a_store_it_says_what_it_knows(capsys: pytest.CaptureFixture[str]) -> None:
    """The first ten minutes alone are an answer: exit 0, and how to ask for more."""
    done = run(capsys, "preflight")
    assert done.code == 0
    assert done.out.startswith("THE FIRST TEN MINUTES")
    assert "bkmeta preflight --metadata URI" in done.out.splitlines()[-1]
    assert json.loads(run(capsys, "preflight", "--json").out)["first_ten_minutes"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--metadata", "nonsense"),
        ("--metadata", "oxia://127.0.0.1:6648/ledgers"),
        ("--metadata", "zk://127.0.0.1:1/ledgers", "--inventory", "/absent"),
        ("--metadata", "zk://127.0.0.1:1/ledgers", "--bookie-conf", "/absent"),
    ],
)
def test_what_cannot_be_used_is_said_after_the_first_ten_minutes(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong URI or folder costs nobody the first part: exit 2."""
    done = run(capsys, "preflight", *arguments)
    assert done.code == 2
    assert done.out.startswith("THE FIRST TEN MINUTES")
    assert done.err.startswith("bkmeta: ")
