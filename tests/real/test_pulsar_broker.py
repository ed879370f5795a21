"""A broker as a process: what it needs is never safe to delete; and all it had comes back after everything is lost."""

import base64
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from backends.zookeeper.store import ZooKeeperStore
from recovery.dataset import open_dataset
from tests.support import pulsar
from tests.support.cluster import Bookie, Cluster
from tests.support.command import ROOT as CHECKOUT
from tests.support.command import Done, run
from tests.support.deletes import write_references

pytestmark = [pytest.mark.real, pytest.mark.spark, pytest.mark.timeout(1200)]

ROOT: Final = "/ledgers"
PAGE: Final = CHECKOUT / "docs/operations/pulsar.md"
TOPICS: Final = ("kept", "offloaded", "compacted", "delayed", "parted", "ended")
MESSAGES: Final = [f"message {n}" for n in range(12)]
NEVER: Final = ("/namespace", "/loadbalance", "/service_unit_state")


@dataclass
class Desk:
    """Three bookies and a broker that run, and the folder that somebody types in."""

    cluster: Cluster
    bookies: list[Bookie]
    broker: pulsar.Broker
    folder: Path
    nobody: int
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def store(self) -> str:
        """The URI of the store."""
        return f"zk+hierarchical://{self.cluster.zookeeper}{ROOT}"

    def type(self, capsys: pytest.CaptureFixture[str], line: str) -> Done:
        """Run a line with the words that a shell makes of it."""
        environment = {**os.environ, **self.variables}
        words = subprocess.run(
            ["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, text=True, env=environment, check=True
        )
        program, *arguments = words.stdout.split("\0")[:-1]
        assert program == "bkmeta"
        return run(capsys, *arguments)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A cluster with a broker that has written its topics, and a ledger that nobody names."""
    work = tmp_path_factory.mktemp("pulsar")
    with Cluster(work / "home") as cluster:
        cluster.start_zookeeper("zookeeper", ROOT)
        cluster("format", layout="hierarchical")
        bookies = [
            Bookie(n, f"broker-{n}", "sorted" if n % 2 else "interleaved", (f"b{n}/journal",), (f"b{n}/ledgers",))
            for n in range(3)
        ]
        for bookie in bookies:
            cluster.start(bookie)
        nobody = cluster("create", E=3, W=2, A=2, digest="CRC32C", password="", custom={})
        cluster("add", ledger=nobody, sizes=[40] * 5, ids=None)
        cluster("close", ledger=nobody)
        (work / "desk").mkdir()
        with closing(pulsar.Broker(cluster.zookeeper, ROOT, work / "jvm")) as broker:
            yield Desk(cluster, bookies, broker, work / "desk", nobody)


@pytest.fixture(autouse=True)
def _at_the_desk(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk.folder)


def demand_all_read(read: dict[str, Any]) -> None:
    """See that every message of before is consumed in order, and every subscription stands where it stood."""
    assert {name: read[name][: len(MESSAGES)] for name in TOPICS} == dict.fromkeys(TOPICS, MESSAGES)
    assert (read["latest"], read["schema"], read["partitions"]) == (MESSAGES[-3:], "STRING", 1)
    # What a follower had acknowledged, and what was there before a topic was truncated, the broker trimmed by ledgers.
    assert (read["followed"], read["followed left"]) == (MESSAGES[5:], MESSAGES[7:])
    assert read["truncated"][-len(MESSAGES) :] == MESSAGES
    assert len(read["truncated"]) < 2 * len(MESSAGES)


def test_what_a_broker_needs_is_never_safe(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """Asked for every ledger of the store, only one that nobody names goes; the broker then reads all it had.

    It has topics, cursors with ledgers of their own, a schema, a compacted topic, delayed messages in buckets, an
    offloaded topic whose ledgers it deleted from the bookies, a truncated one, and has deleted a topic. It
    compresses its records.
    """
    ledgers, made = desk.cluster.ledgers(), desk.broker.truth
    # What the broker deleted is not there; what it keeps is.
    assert not {*made["deleted"], *made["offloaded"][:1]} & ledgers.keys()
    assert {*made["kept"], *made["ended"], made["compacted_ledger"]} <= ledgers.keys()
    parts = {base64.b64decode(row["custom"].get("component", "")).decode() for row in ledgers.values()}
    assert {"managed-ledger", "schema", "compacted-ledger", "delayed-index-bucket"} <= parts
    store = ("--metadata", desk.store, "--json")
    assert run(capsys, "delete", "request", *ledgers, *store, "--soak", "0s").code == 0
    for _ in range(2):
        nothing_else = write_references(desk.folder / "refs.jsonl", [])
        words = ("--wire", "--references", nothing_else, "--min-age", "0s", "--confirm", len(ledgers))
        done = run(capsys, "delete", "verify", "--due", *words, *store, "--certificate", "c.json")
        assert done.code == 3, done.out + done.err
        safe = [row["ledger"] for row in done.result["ledgers"] if row["verdict"] == "SAFE"]
        assert safe == [str(desk.nobody)], done.out
    assert run(capsys, "delete", "purge", "--certificate", "c.json", *store).result["counts"]["purged"] == 1
    read = desk.broker.read_topics()
    demand_all_read(dict(read))
    assert read["left"] == 6


def list_commands() -> list[str]:
    """Every command of the page's shell blocks."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def test_all_that_a_broker_had_comes_back_by_the_page(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """Everything in ZooKeeper is removed; bookies' disks and ZooKeeper's own files bring a moment before that back.

    Every message acknowledged before that moment is consumed in order, subscriptions go on where they stood, and
    nothing of sessions, load or ownership is written.
    """
    cluster = desk.cluster
    store = ZooKeeperStore(cluster.zookeeper)
    with closing(store):
        moment = store.latest_txn()
        more = desk.broker.write_more()
        desk.broker.close()
        for bookie in desk.bookies:
            cluster("bookie_kill", n=bookie.n)
        tops = sorted({f"/{name}" for name in store.children("/") or ()} - {"/zookeeper"})
        kept = {
            path: node["data"]
            for top in tops
            if not top.startswith((ROOT, *NEVER))
            for path, node in cluster.nodes(top).items()
        }
        cluster("zk_wipe", paths=tops)
        shutil.copytree(cluster.home / "zookeeper", desk.folder / "zookeeper-files")
        desk.variables = {"STORE": desk.store, "MOMENT": f"{moment:#x}"}
        desk.variables["REHEARSAL"] = f"zk+hierarchical://{cluster.zookeeper}/bkmeta-rehearsal/ledgers"
        desk.variables["FIRST"], desk.variables["SECOND"] = (str(ledger) for ledger in more["kept"])
        for bookie in desk.bookies:
            desk.variables[f"BK{bookie.n + 1}"] = str(cluster.home / f"b{bookie.n}")
        for line in list_commands():
            done = desk.type(capsys, line)
            assert done.code == find_code(line), f"{line}\n{done.out}{done.err}"
            if "plan show" in line:
                desk.variables["HASH"] = desk.type(capsys, f"{line} --json").result["hash"]
            if "recover" in line:
                sides = open_dataset(desk.folder / "plan", "plan").read("sides").to_pylist()
                unnamed = {row["ledger"] for row in sides if row["referenced"] is False}
                assert {*more["kept"], *more["later"]} <= unnamed
        written = {f"/{name}" for name in store.children("/") or ()}
        assert not written & set(NEVER)
        assert "/managed-ledgers" in written
        now = {
            path: node["data"] for top in written - {"/zookeeper", ROOT} for path, node in cluster.nodes(top).items()
        }
    later = "/managed-ledgers/public/default/persistent/later"
    assert later in kept
    assert later not in now
    for bookie in desk.bookies:
        cluster.start(bookie)
    with closing(pulsar.Broker(cluster.zookeeper, ROOT, desk.folder.parent / "jvm")) as broker:
        read = broker.read_topics()
    demand_all_read(dict(read))
    # Of what came after the moment, all that was adopted.
    assert read["kept"] == [f"message {n}" for n in range(2 * len(MESSAGES))]
    assert "persistent://public/default/later" not in read["topics"]
    assert "persistent://public/default/deleted" not in read["topics"]


def find_code(line: str) -> int:
    """Return how a command of the page ends: a plan in which the broker itself had deleted ledgers needs a look."""
    return 3 if "bkmeta recover" in line else 0
