"""`rescue` of a secured store and of Pulsar's topics, from disks alone: no bookie runs, ZooKeeper is a real one."""

import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import ACL, make_acl, make_digest_acl

from tests.support.cluster import Cluster
from tests.support.command import environment, process
from tests.support.paths import DATA

pytestmark = [pytest.mark.real, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

OWNER = "bookkeeper:secret"
TOPICS = "/managed-ledgers/public/default/persistent"


@contextmanager
def owner(hosts: str) -> Iterator[KazooClient]:
    """Give a client that has the rights of whoever secured the store."""
    client = KazooClient(hosts, auth_data=[("digest", OWNER)])
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def list_below(client: KazooClient, path: str) -> list[str]:
    """Return a node and all below it, each behind what is above it."""
    nodes = [path]
    for child in client.get_children(path):
        nodes += list_below(client, f"{path}/{child}")
    return nodes


def list_records(client: KazooClient) -> list[str]:
    """Return the paths of ledgers' records."""
    return [path for path in list_below(client, "/ledgers") if path.rpartition("/")[2].startswith("L")]


def secure(client: KazooClient, path: str, acl: list[ACL]) -> None:
    """Give a node and all below it rights."""
    for node in list_below(client, path):
        client.set_acls(node, acl)


def test_records_of_a_secured_store_get_their_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the snapshot has them, the younger one as the others; topics come with them; a missing folder is asked about.

    Entries are read from the folders that are left.
    """
    home = tmp_path / "home"
    home.mkdir()
    with tarfile.open(DATA / "pulsar" / "disks.tar.gz") as archive:
        archive.extractall(home, filter="data")
    # Cookies name folders from there.
    monkeypatch.chdir(home / "bookies")
    as_owner = environment(BKMETA_ZK_AUTH=OWNER)
    # Bookies are somebody else, who may read.
    mine = [make_digest_acl(*OWNER.split(":"), all=True), make_acl("world", "anyone", read=True)]
    with Cluster(home) as cluster:
        cluster.start_zookeeper("zookeeper", "/ledgers")
        uri = f"zk+hierarchical://{cluster.zookeeper}/ledgers"
        with owner(cluster.zookeeper) as client:
            secure(client, "/ledgers", mine)
            before = {path: client.get(path)[0] for path in list_below(client, TOPICS)}
            records = list_records(client)
            # One is younger than the snapshot.
            client.delete(younger := records[0])
            captured = process("capture", "--metadata", uri, "--pulsar", "--out", tmp_path / "yesterday", env=as_owner)
            assert captured.code == 0, captured.err
            for path in ("/ledgers", "/managed-ledgers"):
                for node in reversed(list_below(client, path)):
                    client.delete(node)
            client.create("/ledgers", acl=mine)
        # The index of one bookie is gone; its journal is there.
        (home / "bookies" / "b2" / "ledgers").rename(tmp_path / "away")
        bookies = ""
        for n in range(4):
            conf = tmp_path / f"bk{n}.conf"
            conf.write_text(
                f"metadataServiceUri={uri}\njournalDirectories=b{n}/journal\nledgerDirectories=b{n}/ledgers\n"
            )
            bookies += f'[[bookie]]\nname = "host{n}"\ntransport = "local"\nconf = {json.dumps(str(conf))}\n'
        hosts = tmp_path / "hosts.toml"
        hosts.write_text(f"[incident]\nsnapshots = [{json.dumps(str(tmp_path / 'yesterday'))}]\n{bookies}")
        words = ["rescue", "--metadata", uri, "--hosts", hosts, "--out", tmp_path / "incident", "--json"]
        answers = {"bookies off": "off", "confirm": "any", "quorums": "unknown", "adopt": "yes"}
        question = {"id": ""}
        for _ in range(4):
            (tmp_path / "answers.json").write_text(json.dumps(answers))
            waiting = process(*words, "--answers", tmp_path / "answers.json", env=as_owner, patience_s=600)
            assert waiting.code == 4, waiting.out + waiting.err
            [question] = waiting.result["questions"]
            if question["id"].startswith("started "):
                break
            assert question["text"].endswith("of host2 is missing: may it come back?"), question
            answers[question["id"]] = question["recommended"]
        assert question["id"] == "started host0"
        with owner(cluster.zookeeper) as client:
            back = list_records(client)
            assert younger in back
            # Of what Pulsar had deleted bookies still have some: no log says so here.
            assert len(back) > len(set(back) & set(records)) > len(records) // 2
            # The freeze that stands until the thaw is on listings, and not on records.
            assert all(set(client.get_acls(path)[0]) == set(mine) for path in back)
            assert {path: client.get(path)[0] for path in list_below(client, TOPICS)} == before
        commands = json.loads((tmp_path / "incident" / "rescue.json").read_text())["commands"]
        [apply] = [row["command"] for row in commands if row["command"].startswith("bkmeta apply")]
        assert "--acl from-snapshot" in apply
