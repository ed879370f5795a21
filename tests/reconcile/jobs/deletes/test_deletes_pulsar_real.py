"""Deletes beside Pulsar: of all ledgers of a cluster, none that a broker needs is ever safe to delete."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support import pulsar
from tests.support.cluster import Bookie, Cluster
from tests.support.command import run
from tests.support.deletes import write_references

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

ROOT: Final = "/ledgers"
BOOKIES: Final = tuple(
    Bookie(n, f"10.0.0.{n + 1}:3181", "sorted" if n % 2 else "interleaved", (f"b{n}/journal",), (f"b{n}/ledgers",))
    for n in range(3)
)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three bookies and their ZooKeeper."""
    with Cluster(tmp_path / "home") as made:
        made.start_zookeeper("zookeeper", ROOT)
        made("format", layout="hierarchical")
        for bookie in BOOKIES:
            made.start(bookie)
        yield made


def test_nothing_that_a_broker_needs_is_safe(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Topics, offloaded, ended and trimmed ones, cursors and schemas: asked for all, only what nobody names goes.

    Then a broker that starts anew reads every entry of every topic.
    """
    monkeypatch.chdir(tmp_path)
    truth: dict[str, Any] = dict(pulsar.write_topics(cluster.zookeeper, ROOT, tmp_path / "jvm"))
    # What Pulsar's own trimming and deletion of topics removed is not there any more.
    ledgers = {ledger: row["state"] for ledger, row in cluster.ledgers().items()}
    named = {one["ledger"] for name, said in truth.items() if "/" in name for one in said.get("ledgers", ())}
    assert named <= ledgers.keys()
    assert truth["public/default/persistent/offloaded"]["offloaded"]
    assert any(ledgers[ledger] == "CLOSED" for ledger in named)
    looks: list[object] = []
    for bookie in BOOKIES:
        cluster("bookie_stop", n=bookie.n)
        disks = [word for d in (*bookie.ledgers, *bookie.journals) for word in ("--ledger-dir", cluster.home / d)]
        assert run(capsys, "collect", *disks, "--out", tmp_path / f"look-{bookie.n}").code == 0
        looks += ["--inventory", tmp_path / f"look-{bookie.n}"]
        cluster.start(bookie)
    store = ("--metadata", f"zk+hierarchical://{cluster.zookeeper}{ROOT}", "--json")
    assert run(capsys, "delete", "request", *sorted(ledgers), *store, "--soak", "0s").code == 0

    def verify(*words: object) -> dict[str, list[str]]:
        known = ("--min-age", "0s", "--confirm", len(ledgers), *words)
        done = run(capsys, "delete", "verify", "--due", *looks, *known, *store)
        assert done.code == 3, done.out + done.err
        found: dict[str, list[str]] = {}
        for row in done.result["ledgers"]:
            found.setdefault(row["verdict"], []).append(row["ledger"])
        return found

    # By Pulsar's records alone: somebody else may refer to what no part of Pulsar made.
    assert "SAFE" not in verify()
    for _ in range(2):
        nothing_else = write_references(tmp_path / "refs.jsonl", [])
        verdicts = verify("--references", nothing_else, "--certificate", "c.json")
        assert verdicts["SAFE"] == [str(truth["unreferenced"])]
    assert run(capsys, "delete", "purge", "--certificate", "c.json", *store).result["counts"]["purged"] == 1
    assert set(cluster.ledgers()) == set(ledgers) - {truth["unreferenced"]}
    topics = {name: 12 for name in truth if "/kept-" in name or name.endswith("/offloaded")}
    topics["public/default/persistent/ended"] = 3
    read = pulsar.read_topics(cluster.zookeeper, ROOT, tmp_path / "jvm", list(topics))
    assert read == {name: [f"entry {n}" for n in range(count)] for name, count in topics.items()}
