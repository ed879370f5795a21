"""A broker as a process: what it needs is never safe to delete; and all it had comes back after everything is lost."""

import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from backends.zookeeper.store import ZooKeeperStore
from recovery.codecs.store import Layout, ledger_key
from recovery.dataset import open_dataset
from recovery.model.ids import LedgerId
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
FOLLOWED_YOUNG: Final = 3
"""Messages that a follower acknowledges of a topic that is younger than the moment."""
PER_LEDGER: Final = 5
MOMENTS: Final = int(os.environ.get("BKMETA_SOAK_PULSAR", "0"))
"""Moments besides the page's that the cluster is brought back to."""
NO_TOPIC: Final = "is of a topic that neither the plan nor the store has"
LARGE: Final = b"large " * 60
"""What is sent in chunks."""
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


def require_all_read(read: Mapping[str, Any], *, kept: int = len(MESSAGES), versions: int = 2) -> None:
    """See that every message of before is consumed in order, and every subscription stands where it stood.

    Args:
        read: what the broker read.
        kept: messages of the topic that goes on after the moment.
        versions: of the schema that does.
    """
    assert {name: read[name][: len(MESSAGES)] for name in TOPICS} == dict.fromkeys(TOPICS, MESSAGES)
    assert (read["latest"], read["partitions"]) == (MESSAGES[-3:], 1)
    assert set(read["schemas"].values()) == {"STRING"}
    assert (read["versions"], read["fields"]) == (versions, versions)
    # Of one every other message was acknowledged, of the rest none.
    unread = [*MESSAGES[::2], *(f"message {n}" for n in range(len(MESSAGES), kept))]
    assert read["unread"] == dict.fromkeys(read["unread"], MESSAGES) | {"kept": unread}
    # What a follower had acknowledged, and what was there before a topic was truncated, the broker trimmed by ledgers.
    assert (read["followed"], read["followed left"]) == (MESSAGES[5:], MESSAGES[7:])
    assert read["truncated"][-len(MESSAGES) :] == MESSAGES
    assert len(read["truncated"]) < 2 * len(MESSAGES)
    assert "persistent://public/default/deleted" not in read["topics"]


def require_young_read(read: Mapping[str, Any]) -> None:
    """See that a topic that no snapshot has is there: messages, schema, and a subscription that had acknowledged."""
    assert read["young"] == MESSAGES
    assert "follower" in read["young subscriptions"]
    assert read["young left"] == MESSAGES[FOLLOWED_YOUNG:]


def test_messages_come_out_of_an_archive_and_of_disks_as_consumers_read_them(
    desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Alone and in batches, compressed in each way, without a value; encrypted messages and chunks are said."""
    made = desk.broker.write_shapes()
    place = tmp_path / "place"
    topics = ("--topics", "persistent://public/default/s*", "--max-mb-s", 100)
    words = ("--metadata", desk.store, "--wire", "--to", place, "--master", "local[2]", *topics, "--json")
    done = run(capsys, "archive", "run", *words)
    assert done.code == 0, done.out + done.err
    # The last ledger of a topic may have been opened again.
    ledgers = [ledger for ledger in made["shapes ledgers"] if ledger in list_closed(desk)]
    sealed = [ledger for ledger in made["sealed ledgers"] if ledger in list_closed(desk)]
    assert done.result["counts"]["copied"] == len(ledgers) + len(sealed)

    def read(ledger: int) -> list[dict[str, Any]]:
        done = run(capsys, "archive", "read", "--from", place, ledger, "--as", "pulsar")
        assert done.code == 0, done.err
        return [json.loads(line) for line in done.out.splitlines()]

    messages = [line for ledger in ledgers for line in read(ledger)]
    chunks = [line for line in messages if "chunk" in line]
    whole = [line for line in messages if "chunk" not in line]
    assert {line["topic"] for line in messages} == {"public/default/persistent/shapes"}
    keys = ("ledger", "entry", "batch", "publish_time", "event_time", "producer", "sequence", "key", "properties")
    consumed = [line for line in made["shapes"] if base64.b64decode(line["payload"] or "") != LARGE]
    assert len(consumed) == len(made["shapes"]) - 1 > 20
    shown = [{name: line[name] for name in (*keys, "payload")} for line in whole]
    assert shown == consumed
    assert [line.get("null_value", False) for line in whole] == [line["payload"] is None for line in consumed]
    assert {line.get("ordering_key") for line in whole} == {None, "AQI="}
    assert len({line["chunk"]["uuid"] for line in chunks}) == 1
    assert [line["chunk"]["number"] for line in chunks] == list(range(chunks[0]["chunk"]["count"]))
    assert b"".join(base64.b64decode(line["payload"]) for line in chunks) == LARGE
    [secret] = [line for ledger in sealed for line in read(ledger)]
    assert (secret["encrypted"], secret["payload"]) == (["a key"], None)
    assert b"a secret" not in base64.b64decode(secret["sealed"])
    disks = [w for b in desk.bookies for w in ("--disk", f"{b.id}={desk.cluster.home / f'b{b.n}'}")]
    done = run(capsys, "export", *ledgers, *disks, "--as", "pulsar", "--out", tmp_path / "out", "--json")
    assert done.code == 0, done.out + done.err
    assert done.result["counts"]["messages"] == len(messages)
    files = [tmp_path / "out" / f"{ledger}.messages.jsonl" for ledger in ledgers]
    exported = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert exported == [{**line, "topic": None} for line in messages]


def list_closed(desk: Desk) -> set[int]:
    """Return the ledgers that are closed and have entries."""
    return {ledger for ledger, row in desk.cluster.ledgers().items() if row["state"] == "CLOSED" and row["last"] >= 0}


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
        # The broker has the compacted topic loaded: no record names its ledger, and bookies do.
        named = {row["ledger"]: " ".join(row["reasons"]) for row in done.result["ledgers"]}
        assert "compacted topic of public/default/persistent/compacted" in named[str(made["compacted_ledger"])]
        assert done.result["verdicts"]["UNDECIDED"] == 0, done.out
    assert run(capsys, "delete", "purge", "--certificate", "c.json", *store).result["counts"]["purged"] == 1
    require_all_read(desk.broker.read_topics())


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
        moments = [(store.latest_txn(), desk.broker.grow_topics()) for _ in range(MOMENTS)]
        last = store.latest_txn()
        desk.broker.close()
        begun = store.get(ROOT + ledger_key(Layout.HIERARCHICAL, LedgerId(0, more["kept"][0])))
        assert begun is not None
        assert begun.created_txn is not None
        later = begun.created_txn
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
        for bookie in desk.bookies if moments else ():
            shutil.copytree(cluster.home / f"b{bookie.n}", desk.folder / f"b{bookie.n}")
        desk.variables = {"STORE": desk.store, "MOMENT": f"{moment:#x}", "LATER": f"{later:#x}"}
        desk.variables["REHEARSAL"] = f"zk+hierarchical://{cluster.zookeeper}/bkmeta-rehearsal/ledgers"
        first, second = more["kept"]
        desk.variables |= {"SECOND": str(second), "THIRD": str(more["later"][0])}
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
            if "--adopt-candidates" in line:
                refused = [line for line in done.out.splitlines() if "not adopted" in line]
                # What grew in a soak is younger than the later capture, too: only schemas name such topics.
                told = (NO_TOPIC, "more are not adopted")
                assert all(line.endswith(told) for line in refused) if moments else not refused
            if line == "bkmeta plan show plan-2":
                left = desk.type(capsys, f"{line} --first 99 --json").result["candidates"]["listed"]
                missing = {int(row["ledger"]) for row in left}
                assert missing.isdisjoint([*more["kept"], *more["young"], more["later"][0]])
                assert missing >= set(more["later"][1:])
            if line == "bkmeta plan show plan":
                listed = desk.type(capsys, f"{line} --first 99 --json").result["candidates"]["listed"]
                known = {(row["ledger"], row["topic"], row["evidence"]) for row in listed}
                kept_topic = "public/default/persistent/kept"
                assert {(str(first), kept_topic, "record"), (str(second), kept_topic, "producers")} <= known
                assert {row[2] for row in known if int(row[0]) in more["later"]} <= {"order", "none"}
                assert not [row for row in known if row[0] in map(str, more["kept"]) and row[1] != kept_topic]
        written = {f"/{name}" for name in store.children("/") or ()}
        assert not written & set(NEVER)
        assert "/managed-ledgers" in written
        now = {
            path: node["data"] for top in written - {"/zookeeper", ROOT} for path, node in cluster.nodes(top).items()
        }
    later_topic = "/managed-ledgers/public/default/persistent/later"
    assert kept.keys() >= {later_topic, f"{later_topic}/subscription"}
    assert {path for path in now if path.startswith(later_topic)} == {later_topic, f"{later_topic}/bkmeta-adopted"}
    for bookie in desk.bookies:
        cluster.start(bookie)
    with closing(pulsar.Broker(cluster.zookeeper, ROOT, desk.folder.parent / "jvm")) as broker:
        read = broker.read_topics()
    # Schemas of after the moment, too, byte for byte; not of what grew after the later capture.
    grown = {topic for _, counts in moments for topic in counts}
    schemas = {path: raw for path, raw in kept.items() if path.startswith("/schemas/") and raw}
    schemas = {path: raw for path, raw in schemas.items() if path.rpartition("/")[2] not in grown}
    assert schemas
    assert {path: now[path] for path in schemas} == schemas
    require_all_read(read, kept=2 * len(MESSAGES), versions=3)
    require_young_read(read)
    # Of what came after the moment, all that was adopted; what is missing is what the plan still lists.
    assert read["kept"] == [f"message {n}" for n in range(2 * len(MESSAGES))]
    assert read["later"] == MESSAGES[:PER_LEDGER]
    assert read["later subscriptions"] == ["bkmeta-adopted"]
    for number, (begun_at, _) in enumerate(moments):
        behind = moments[number + 1][0] if number + 1 < len(moments) else last
        bring_back(desk, capsys, number, (begun_at, behind), moments)


def bring_back(
    desk: Desk,
    capsys: pytest.CaptureFixture[str],
    number: int,
    between: tuple[int, int],
    moments: Sequence[tuple[int, Mapping[str, int]]],
) -> None:
    """Remove everything again, and bring a moment back with what records of a later one name.

    Args:
        desk: with the disks and files of the loss.
        capsys: of the test.
        number: of the moment.
        between: its transaction, and that of a capture of ledgers alone.
        moments: transactions, each with how many messages every topic had when the next one came.
    """
    cluster, name = desk.cluster, f"moment-{number}"
    for bookie in desk.bookies:
        cluster("bookie_kill", n=bookie.n)
        shutil.rmtree(cluster.home / f"b{bookie.n}")
        shutil.copytree(desk.folder / f"b{bookie.n}", cluster.home / f"b{bookie.n}")
    with closing(ZooKeeperStore(cluster.zookeeper)) as store:
        cluster("zk_wipe", paths=[f"/{top}" for top in store.children("/") or () if top != "zookeeper"])
    files = f"zkfiles://{desk.folder}/zookeeper-files?root={ROOT}"
    words = [
        word
        for bookie in desk.bookies
        for role in ("journal", "ledgers")
        for word in ("--disk", f"broker-{bookie.n}={desk.folder}/b{bookie.n}/{role}")
    ]
    for moment, out, options in zip(between, (f"{name}-then", f"{name}-later"), (("--pulsar",), ()), strict=True):
        done = run(capsys, "capture", "--metadata", files, "--at", f"{moment:#x}", *options, "--out", out)
        assert done.code == 0, done.out + done.err
    snapshots = ("--snapshot", f"{name}-then", "--snapshot", f"{name}-later", "--pulsar", "--read-payload")
    done = run(capsys, "recover", *words, *snapshots, "--metadata", desk.store, "--out", f"{name}-plan", "--json")
    assert done.code in (0, 3), done.out + done.err
    print(name, f"{between[0]:#x}", done.result["candidates"])  # noqa: T201 - figures of a soak
    done = run(capsys, "plan", "edit", f"{name}-plan", "--adopt-candidates", "--out", f"{name}-plan-2", "--json")
    assert done.code == 0, done.out + done.err
    # Of a topic that is younger than the later capture, too, only its schema is named.
    reasons = set(done.result["not_adopted"].values())
    assert reasons <= {NO_TOPIC}
    done = run(capsys, "apply", f"{name}-plan-2", "--metadata", desk.store, "--confirm", done.result["hash"])
    assert done.code == 0, done.out + done.err
    for bookie in desk.bookies:
        cluster.start(bookie)
    with closing(pulsar.Broker(cluster.zookeeper, ROOT, desk.folder.parent / "jvm")) as broker:
        read = broker.read_topics()
    require_all_read(read, kept=2 * len(MESSAGES), versions=3)
    require_young_read(read)
    # All that a record of the later capture names is there: every message of then, in order, of old topics and of new.
    for topic, count in moments[number][1].items():
        assert read[topic] == [f"message {n}" for n in range(len(read[topic]))]
        assert len(read[topic]) >= count, topic


def find_code(line: str) -> int:
    """Return how a command of the page ends: a plan in which the broker itself had deleted ledgers needs a look."""
    return 3 if "bkmeta recover" in line else 0
