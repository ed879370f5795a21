"""Topics that Pulsar's own code wrote: BookKeeper's records lost and brought back, with Pulsar's own as references."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from recovery.dataset import open_dataset
from tests.support import pulsar
from tests.support.cluster import Bookie, Cluster
from tests.support.command import run

pytestmark = pytest.mark.real

ROOT: Final = "/ledgers"
BOOKIES: Final = tuple(
    Bookie(n, f"10.0.0.{n + 1}:3181", "sorted" if n % 2 else "interleaved", (f"b{n}/journal",), (f"b{n}/ledgers",))
    for n in range(4)
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Four bookies and their ZooKeeper."""
    with Cluster(tmp_path_factory.mktemp("pulsar") / "home") as made:
        made.start_zookeeper("zookeeper", ROOT)
        made("format", layout="hierarchical")
        for bookie in BOOKIES:
            made.start(bookie)
        yield made


def test_topics_are_read_whole_after_bookkeepers_records_were_lost(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every ledger of every topic is matched in the live store, and a broker that starts anew reads every entry."""
    truth: dict[str, Any] = dict(pulsar.write_topics(cluster.zookeeper, ROOT, tmp_path / "jvm"))
    for bookie in BOOKIES:
        cluster("bookie_kill", n=bookie.n)
    inventories: list[object] = []
    for bookie in BOOKIES:
        out = tmp_path / f"inventory-{bookie.n}"
        folders = ("--ledger-dir", cluster.home / bookie.ledgers[0], "--journal-dir", cluster.home / bookie.journals[0])
        assert run(capsys, "collect", *folders, "--out", out).code == 0
        inventories += ["--inventory", out]
    cluster("zk_wipe", paths=[ROOT])
    (tmp_path / "members").write_text("".join(f"{bookie.id}\n" for bookie in BOOKIES))
    store = f"zk+hierarchical://{cluster.zookeeper}{ROOT}"
    made = run(
        capsys, "recover", *inventories, "--metadata", store, "--references", f"metadata-store:zk:{cluster.zookeeper}",
        "--expect-bookies", tmp_path / "members", "--default-quorum", "3/2/2",
        "--out", tmp_path / "plan", "--json",
    )  # fmt: skip
    wanted = {one["ledger"]: one for name, said in truth.items() if "/" in name for one in said.get("ledgers", ())}
    plan = open_dataset(tmp_path / "plan", "plan")
    rows = {row["ledger"]: row for row in plan.read("reconstruction").to_pylist()}
    for ledger, one in wanted.items():
        assert rows[ledger]["outcome"] == "restored", (ledger, rows[ledger]["reason"], made.out)
        if one.get("last_entry") is not None:
            assert rows[ledger]["last_entry"] == one["last_entry"]
    sides = {row["ledger"]: row for row in plan.read("sides").to_pylist()}
    # A live store forgets what a topic let go of: without history that is not called deleted, only not referenced.
    let_go = {one["ledger"] for name, said in truth.items() if "/" in name for one in said.get("before", ())}
    unreferenced = {ledger for ledger, row in sides.items() if not row["referenced"]}
    assert unreferenced == {truth["unreferenced"]} | (let_go - wanted.keys())
    assert made.result["references"]["referenced_not_found"] == 0
    applied = run(
        capsys, "apply", tmp_path / "plan", "--metadata", store, "--confirm", plan.manifest["hash"],
        "--accept-unfrozen", "--acl", "world:anyone:cdrwa", "--json",
    )  # fmt: skip
    assert applied.code == 0, applied.out
    for bookie in BOOKIES:
        cluster.start(bookie)
    topics = {name: 12 for name in truth if "/kept-" in name} | {"public/default/persistent/ended": 3}
    read = pulsar.read_topics(cluster.zookeeper, ROOT, tmp_path / "jvm", list(topics))
    assert read == {name: [f"entry {n}" for n in range(count)] for name, count in topics.items()}
