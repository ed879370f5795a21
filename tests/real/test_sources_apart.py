"""What is put together with the bookies, on a real ZooKeeper: another cluster's snapshot, ids that only a store knows.

A cluster of the same bookie names and ledger ids stands beside the lost one, as staging does beside production.
"""

import base64
import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from recovery.codecs.store import Layout, layout_bytes, ledger_key
from recovery.collect.pipeline import collect
from recovery.dataset import MANIFEST, open_dataset
from recovery.model.ids import LedgerId
from tests.recovery.collect.test_pipeline_golden import options
from tests.support.cases import operator, truth
from tests.support.command import Done, run
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.real, pytest.mark.spark]

CASE = "c02-clean-interleaved"
GIVEN = 60_000
"""Ids that the lost store had given, far more than its bookies still have."""
_ROOTS = itertools.count()
Made = Callable[..., str]


@pytest.fixture(scope="module")
def inventories(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The disks of all bookies, as arguments."""
    folder = tmp_path_factory.mktemp("inventories")
    arguments = []
    for number in range(len(operator(CASE)["bookies"])):
        collect(options(CASE, number), folder / str(number), now=lambda: datetime.now(UTC), progress=lambda _: None)
        arguments += ["--inventory", str(folder / str(number))]
    return arguments


@pytest.fixture
def client(zookeeper_server: ZooKeeperServer) -> Iterator[KazooClient]:
    """A plain client."""
    client = KazooClient(zookeeper_server.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def made(zookeeper_server: ZooKeeperServer, client: KazooClient) -> Made:
    """Makes a store with the cluster's records, of a given instance id; returns its URI."""

    def make(instance: str | None, *, given: int = 0) -> str:
        root = f"/apart-{next(_ROOTS)}/ledgers"
        nodes = {"/LAYOUT": layout_bytes(Layout.HIERARCHICAL), "/idgen": b"", "/available/readonly": b""}
        nodes |= {} if instance is None else {"/INSTANCEID": instance.encode()}
        for row in truth(CASE)["ledgers"]:
            nodes[ledger_key(Layout.HIERARCHICAL, LedgerId(0, row["ledger"]))] = base64.b64decode(row["raw"])
        for key, value in nodes.items():
            client.create(root + key, value, makepath=True)
        for start in range(0, given, 500):
            transaction = client.transaction()
            for _ in range(min(500, given - start)):
                transaction.create(f"{root}/idgen/x")
                transaction.delete(f"{root}/idgen/x")
            transaction.commit()
        return f"zk+hierarchical://{zookeeper_server.hosts}{root}"

    return make


@pytest.fixture
def target(zookeeper_server: ZooKeeperServer) -> str:
    """A root that does not exist."""
    return f"zk+hierarchical://{zookeeper_server.hosts}/apart-{next(_ROOTS)}/ledgers"


def ours(inventories: list[str]) -> str:
    """The instance id that the bookies' cookies name."""
    (named,) = {row["instance_id"] for row in open_dataset(inventories[1], "inventory").read("bookies").to_pylist()}
    assert isinstance(named, str)
    return named


def files(folder: Path) -> list[str]:
    """The passwords and the members of the cluster, as arguments."""
    passwords, bookies = folder / "passwords.txt", folder / "bookies.txt"
    passwords.touch(0o600)
    passwords.write_text("".join(f"{one}\n" for one in operator(CASE)["passwords"]))
    bookies.write_text("".join(f"{one['id']}\n" for one in operator(CASE)["bookies"]))
    return ["--passwords", str(passwords), "--expect-bookies", str(bookies)]


def names_both(done: Done, inventories: list[str], uri: str) -> bool:
    """Whether a refusal names both instance ids, and where the foreign one stands."""
    return done.code == 2 and all(part in done.err for part in (ours(inventories), "instance staging", uri))


def test_another_cluster_s_snapshot_is_refused(
    inventories: list[str], made: Made, target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Same bookie names, same ledger ids, another instance id: nothing is made of it, live or captured."""
    staging = made("staging")
    recover = ("recover", *inventories, "--metadata", target, *files(tmp_path))
    live = run(capsys, *recover, "--snapshot", staging, "--out", tmp_path / "live")
    assert names_both(live, inventories, staging.partition("://")[2])
    assert run(capsys, "capture", "--metadata", staging, "--out", tmp_path / "kept").code == 0
    kept = run(capsys, *recover, "--snapshot", f"catalog://{tmp_path}/kept", "--out", tmp_path / "of-kept")
    assert names_both(kept, inventories, f"{tmp_path}/kept")
    assert not [path for name in ("live", "of-kept") if (path := tmp_path / name / MANIFEST).exists()]
    ledger = truth(CASE)["ledgers"][0]["ledger"]
    explained = run(capsys, "explain", ledger, *inventories, "--snapshot", f"catalog://{tmp_path}/kept")
    assert names_both(explained, inventories, f"{tmp_path}/kept")


def test_another_cluster_s_references_are_refused(
    inventories: list[str],
    made: Made,
    target: str,
    client: KazooClient,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Topics of a store whose INSTANCEID is not the bookies' say nothing of these ledgers, however alike they look."""
    staging = made("staging")
    client.create(f"/{staging.split('/')[3]}/managed-ledgers", b"")
    recover = ("recover", *inventories, "--metadata", target, *files(tmp_path))
    done = run(capsys, *recover, "--references", staging, "--out", tmp_path / "plan")
    assert names_both(done, inventories, staging)
    assert not (tmp_path / "plan" / MANIFEST).exists()
    ledger = truth(CASE)["ledgers"][0]["ledger"]
    assert names_both(run(capsys, "explain", ledger, *inventories, "--references", staging), inventories, staging)


def test_ids_that_only_the_snapshot_s_counter_knows_are_not_given_again(
    inventories: list[str],
    made: Made,
    target: str,
    client: KazooClient,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The next client gets an id above all that the lost store had given; the snapshot is of the bookies' cluster."""
    snapshot = made(ours(inventories), given=GIVEN)
    recover = ("recover", *inventories, "--metadata", target, *files(tmp_path))
    done = run(capsys, *recover, "--snapshot", snapshot, "--out", tmp_path / "plan", "--json").result
    assert done["coverage"]["cluster_not_named"] == []
    assert run(capsys, "apply", tmp_path / "plan", "--metadata", target, "--confirm", done["hash"]).code == 0
    root = "/" + target.split("/", 3)[3]
    assert client.create(f"{root}/idgen/ID-", b"", ephemeral=True, sequence=True) == f"{root}/idgen/ID-{GIVEN:010d}"


def test_a_snapshot_that_names_no_cluster_is_taken_and_named(
    inventories: list[str], made: Made, target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither INSTANCEID nor cookies: it may be of any cluster, so it is not refused, and said."""
    nameless = made(None)
    recover = ("recover", *inventories, "--metadata", target, *files(tmp_path))
    done = run(capsys, *recover, "--snapshot", nameless, "--out", tmp_path / "plan")
    assert done.code in (0, 3)
    where = nameless.partition("://")[2]
    assert f"no instance id, so their cluster is not known: snapshot zk://{where}" in done.out
