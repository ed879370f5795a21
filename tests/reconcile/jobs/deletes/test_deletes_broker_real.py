"""Deletes beside a broker that runs: whatever it made, nothing that it still needs is ever safe to delete."""

import base64
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from tests.support import pulsar
from tests.support.cluster import Bookie, Cluster
from tests.support.command import run
from tests.support.deletes import write_references

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]

ROOT: Final = "/ledgers"
TOPICS: Final = ("kept", "offloaded", "compacted", "delayed", "ended")
MESSAGES: Final = [f"message {n}" for n in range(12)]


def test_what_a_broker_needs_is_never_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Asked for every ledger of the store, only one that nobody names goes; the broker then reads all it had.

    It has topics, cursors with ledgers of their own, a schema, a compacted topic, delayed messages in buckets, an
    offloaded topic whose ledgers it deleted from the bookies, and has deleted a topic. It compresses its records.
    """
    monkeypatch.chdir(tmp_path)
    with Cluster(tmp_path / "home") as cluster:
        cluster.start_zookeeper("zookeeper", ROOT)
        cluster("format", layout="hierarchical")
        for n in range(3):
            name = "sorted" if n % 2 else "interleaved"
            cluster.start(Bookie(n, f"broker-{n}", name, (f"b{n}/journal",), (f"b{n}/ledgers",)))
        nobody = cluster("create", E=3, W=2, A=2, digest="CRC32C", password="", custom={})
        cluster("add", ledger=nobody, sizes=[40] * 5, ids=None)
        cluster("close", ledger=nobody)
        with closing(pulsar.Broker(cluster.zookeeper, ROOT, tmp_path / "jvm")) as broker:
            ledgers = cluster.ledgers()
            made = broker.truth
            # What the broker deleted is not there; what it keeps is.
            assert not {*made["deleted"], *made["offloaded"][:1]} & ledgers.keys()
            assert {*made["kept"], *made["ended"], made["compacted_ledger"]} <= ledgers.keys()
            parts = {base64.b64decode(row["custom"].get("component", "")).decode() for row in ledgers.values()}
            assert {"managed-ledger", "schema", "compacted-ledger", "delayed-index-bucket"} <= parts
            store = ("--metadata", f"zk+hierarchical://{cluster.zookeeper}{ROOT}", "--json")
            assert run(capsys, "delete", "request", *ledgers, *store, "--soak", "0s").code == 0
            for _ in range(2):
                nothing_else = write_references(tmp_path / "refs.jsonl", [])
                words = ("--wire", "--references", nothing_else, "--min-age", "0s", "--confirm", len(ledgers))
                done = run(capsys, "delete", "verify", "--due", *words, *store, "--certificate", "c.json")
                assert done.code == 3, done.out + done.err
                safe = [row["ledger"] for row in done.result["ledgers"] if row["verdict"] == "SAFE"]
                assert safe == [str(nobody)], done.out
            assert run(capsys, "delete", "purge", "--certificate", "c.json", *store).result["counts"]["purged"] == 1
            read = broker.read_topics()
        assert {name: read[name] for name in TOPICS} == dict.fromkeys(TOPICS, MESSAGES)
        assert read["latest"] == MESSAGES[-3:]
        assert (read["left"], read["schema"]) == (6, "STRING")
