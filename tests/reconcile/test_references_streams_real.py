"""Streams of a function worker and logs of Pravega, by their own code: what they need is never safe to delete."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pytest

from backends.protocols import Write
from backends.zookeeper.store import ZooKeeperStore
from tests.support import pravega, pulsar
from tests.support.cluster import Bookie, Cluster
from tests.support.command import run

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

BOOKIES: Final = tuple(Bookie(n, f"streams-{n}", "sorted", (f"b{n}/journal",), (f"b{n}/ledgers",)) for n in range(3))
UNKNOWN: Final = "its record does not say who made it"


@contextmanager
def start_cluster(home: Path, root: str, *keys: str) -> Iterator[Cluster]:
    """Three bookies below a root, and nodes that exist before."""
    with Cluster(home) as cluster:
        cluster.start_zookeeper("zookeeper", root)
        with closing(ZooKeeperStore(cluster.zookeeper)) as store:
            for key in keys:
                store.write([Write(key, b"")])
        cluster("format", layout="hierarchical")
        for bookie in BOOKIES:
            cluster.start(bookie)
        yield cluster


def make_unnamed(cluster: Cluster, custom: Mapping[str, str]) -> int:
    """Make a closed ledger that nothing names."""
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in custom.items()}
    ledger = int(cluster("create", E=3, W=2, A=2, digest="CRC32C", password="", custom=encoded))
    cluster("add", ledger=ledger, sizes=[40] * 5, ids=None)
    cluster("close", ledger=ledger)
    return ledger


def judge_all(
    cluster: Cluster, root: str, capsys: pytest.CaptureFixture[str], *more: object
) -> dict[int, tuple[str, Sequence[str]]]:
    """Return ledger → verdict and reasons, of every ledger."""
    uri = f"zk+hierarchical://{cluster.zookeeper}{root}"
    words = ("--metadata", uri, "--wire", "--min-age", "0s", "--confirm", len(cluster.ledgers()), *more, "--json")
    done = run(capsys, "delete", "verify", *cluster.ledgers(), *words)
    assert done.code in (0, 3, 4), done
    return {int(row["ledger"]): (row["verdict"], row["reasons"]) for row in done.result["ledgers"]}


def test_packages_of_functions_are_named_by_their_streams(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a ledger that no stream names nothing shows whose it is, until a file says what others need."""
    with start_cluster(tmp_path / "home", "/ledgers", "/managed-ledgers") as cluster:
        truth = pulsar.write_packages(cluster.zookeeper, "/ledgers", tmp_path / "jvm")
        assert not {*truth["overwritten"], *truth["deleted"]} & cluster.ledgers().keys()
        unnamed = make_unnamed(cluster, {})
        kept = {n for name, ledgers in truth.items() for n in ledgers if name not in ("overwritten", "deleted")}
        assert kept | {unnamed} == cluster.ledgers().keys()
        judged = judge_all(cluster, "/ledgers", capsys)
        verdicts = {n: verdict for n, (verdict, _) in judged.items()}
        assert verdicts == dict.fromkeys(kept, "UNSAFE") | {unnamed: "UNDECIDED"}
        [managed] = truth["managed"]
        assert any("stream /pulsar/packages/" in reason for reason in judged[managed][1])
        assert all(UNKNOWN in reason for reason in judged[unnamed][1])
        others = tmp_path / "others.jsonl"
        others.touch()
        told = judge_all(cluster, "/ledgers", capsys, "--references", others)
        assert {n: verdict for n, (verdict, _) in told.items()} == dict.fromkeys(kept, "UNSAFE") | {unnamed: "SAFE"}


def test_ledgers_of_pravega_are_named_by_its_containers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of a truncated log, too, as long as it lists them; one that no container lists may be deleted."""
    above = ("/pravega", "/pravega/cluster", "/pravega/cluster/bookkeeper")
    root = f"{above[-1]}/ledgers"
    with start_cluster(tmp_path / "home", root, *above) as cluster:
        truth = pravega.write_logs(cluster.zookeeper, "pravega/cluster", root, tmp_path / "jvm")
        kept = {ledger for ledgers in truth.values() for ledger in ledgers}
        assert kept == cluster.ledgers().keys()
        assert len(kept) >= 3 * len(truth)
        dropped, unnamed = make_unnamed(cluster, {"application": "Pravega"}), make_unnamed(cluster, {})
        judged = judge_all(cluster, root, capsys)
        verdicts = {n: verdict for n, (verdict, _) in judged.items()}
        assert verdicts == dict.fromkeys(kept, "UNSAFE") | {dropped: "SAFE", unnamed: "UNDECIDED"}
