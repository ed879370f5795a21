"""`rescue` on real bookies, each a process of its own: how it waits, goes on and refuses; topics; a bookie is gone.

Whole disasters, and faults in the middle of them, are those of `test_rescue_disasters.py`.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from reconcile.plan.views.open_points import count_unopened
from reconcile.plan.views.topics import list_topics_back
from recovery.codecs.managed_ledger import encode_cursor
from recovery.dataset import open_dataset
from scripts.walkthrough import wipe
from tests.reconcile.jobs.undelete.test_topics import make_schema
from tests.reconcile.test_references_pulsar import topic as make_topic
from tests.support.cases import truth
from tests.support.command import process, started
from tests.support.etcd_server import EtcdServer
from tests.support.rescues import (
    CASE,
    ROOT,
    Site,
    count_read,
    name_host,
    read_all,
    site_on_etcd,
    site_on_zookeeper,
    ssh_server,
    write_ledger,
    zookeeper_client,
)
from tests.support.signing import make_person
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Disks and ZooKeeper data that BookKeeper wrote, started again."""
    (tmp_path / "home").mkdir()
    # Folders of the case are named from there.
    monkeypatch.chdir(tmp_path / "home")
    with site_on_zookeeper(tmp_path) as made:
        yield made


@pytest.fixture
def on_etcd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Site, EtcdServer]]:
    """Three bookies on etcd, that the Java client has found."""
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    with site_on_etcd(tmp_path) as made:
        yield made


def test_a_wiped_store_comes_back_by_one_command(site: Site) -> None:
    """Over ssh; it waits where it must be told, refuses another hash, and goes on where it was killed."""
    # Its folders on the hosts, which are this machine; other tests have theirs beside them.
    marks = [hashlib.sha256(str(site.out / "inv" / f"host{n}").encode()).hexdigest() for n in range(len(site.bookies))]
    rooms = [Path(f"/tmp/bkmeta-rescue-{mark[:12]}") for mark in marks]
    with ssh_server(site.work / "ssh") as server:
        wipe(site.cluster.zookeeper, ROOT)
        with started("rescue", *site.word(transport="ssh"), "--json") as running:
            until(lambda: any(room.exists() for room in rooms), "a host has a folder")
            until((site.out / "inv" / "host1").exists, "a bookie is collected")
            running.kill()
            running.communicate()
        asked = site.rescue(transport="ssh")
        [session] = asked.result["questions"]
        assert (asked.code, session["recommended"], "0x" in session["text"]) == (4, "later", True), asked.err
        waiting = site.rescue(transport="ssh", answers={session["id"]: "mistake"})
        assert (waiting.code, [one["id"] for one in waiting.result["questions"]]) == (4, ["confirm"]), waiting.err
        digest = json.loads((site.out / "rescue.json").read_text())["phases"]["decide"]["hash"]
        status = process("rescue", "status", "--out", site.out, "--json").result
        assert [phase for phase, at in status["phases"].items() if at is None] == ["review", "restore", "start"]
        wrong = site.rescue(transport="ssh", answers={"confirm": "0" * 8})
        assert (wrong.code, digest in wrong.result["verdict"]) == (5, True), wrong.err
        done = site.rescue(transport="ssh", answers={"confirm": digest[:8]})
        assert (done.code, done.result["kind"], done.result["may_not_start"]) == (0, "lost", {}), done.out + done.err
        good, total = read_all(site)
        assert (good, total > 0) == (total, True)
        assert all(name_host(n) in server.list_reached() for n in range(len(site.bookies)))
        assert not any(room.exists() for room in rooms)
        # Each command stands in the record, and none is run again.
        ran = json.loads((site.out / "rescue.json").read_text())["commands"]
        assert site.rescue(transport="ssh").code == 0
        assert json.loads((site.out / "rescue.json").read_text())["commands"] == ran
        names = [row["command"].split()[1] for row in ran]
        assert [name for name in names if name in ("apply", "thaw")] == ["apply", "thaw", "thaw"]


def test_a_bookie_that_is_gone_is_asked_about(site: Site) -> None:
    """Its disks are away, and may come back: nothing is given up, and everything that the others have is read."""
    wipe(site.cluster.zookeeper, ROOT)
    gone = site.bookies[3]
    gone.kill()
    shutil.rmtree(site.work / "home" / "bookies" / "b3")
    unseen = site.rescue()
    assert [one["id"] for one in unseen.result["questions"]] == ["bookies off"], unseen.err
    waiting = site.rescue(answers={"bookies off": "off"})
    disks, name = waiting.result["questions"]
    # The copied files of the store are those of the empty one.
    assert (disks["id"], name["id"], name["choices"]) == ("disks of host3", "id of host3", {})
    answers = {"disks of host3": "back", "id of host3": gone.bookie.id, "confirm": "any"}
    [session] = site.rescue(answers=answers).result["questions"]
    done = site.rescue(answers={**answers, session["id"]: "mistake"})
    assert done.code == 3, done.out + done.err
    # What the others have is read, whatever only that one had; it may come back, and is expected.
    good, total = read_all(site)
    assert good > total * 0.9
    assert gone.bookie.id in (site.out / "incident.toml").read_text()


def test_a_second_person_approves_what_is_given_up_written_and_thawed(site: Site) -> None:
    """By a policy that is in the store: the same command goes on with each approval, and names the next."""
    people = [make_person(site.work, name) for name in ("ann", "bob")]
    words = [word for one in people for word in ("--approver", f"{one.name}={one.public}")]
    kept = process("delete", "policy", "set", "--metadata", site.uri, "--approvals", "1", *words)
    assert kept.code == 0, kept.err
    wipe(site.cluster.zookeeper, ROOT)
    site.bookies[3].kill()
    shutil.rmtree(site.work / "home" / "bookies" / "b3")
    site.has_files, site.with_id = False, 3
    answers = {"bookies off": "off", "disks of host3": "gone", "quorums": "unknown", "confirm": "any"}
    answers |= {"wire read": "yes"}
    approvals: list[Path] = []
    for kind in ("lost", "plan", "thaw"):
        waiting = site.rescue(answers=answers, approvals=approvals)
        assert waiting.code == 5, waiting.out + waiting.err
        [what] = re.findall(rf"{kind}=[0-9a-f]{{64}}", waiting.result["verdict"])
        for one in people:
            approvals.append(site.work / f"{kind}-{one.name}.json")
            signed = process("approve", what, "--key", one.private, "--out", approvals[-1])
            assert signed.code == 0, signed.err
    done = site.rescue(answers=answers, approvals=approvals)
    assert done.code in (0, 3), done.out + done.err
    assert done.result["kind"] == "lost"
    good, total = read_all(site)
    assert good > total // 2


def test_a_topic_comes_back_with_its_ledgers(site: Site) -> None:
    """Of a store that is whole: its record, subscription, schema and policies, and only its ledgers, byte for byte."""
    rows = [row for row in truth(CASE)["ledgers"] if row["state"] == "CLOSED" and row["entries"]][:4]
    ledgers = [row["ledger"] for row in rows]
    with zookeeper_client(site) as client:
        nodes = {
            "/admin/policies/shop": b'{"adminRoles":["ann"]}',
            "/admin/policies/shop/orders": b'{"replication_clusters":["c1"]}',
            "/managed-ledgers/shop/orders/persistent/new": make_topic(*ledgers[:3]),
            "/managed-ledgers/shop/orders/persistent/new/reader": encode_cursor(ledgers[0]),
            "/schemas/shop/orders/new": make_schema(ledgers[3]),
        }
        for path, value in nodes.items():
            client.ensure_path(path)
            client.set(path, value)
        before = nodes | {row["path"]: client.get(row["path"])[0] for row in rows}
        other = next(row for row in truth(CASE)["ledgers"] if row["state"] == "CLOSED" and row["ledger"] not in ledgers)
        for path in sorted((*before, other["path"]), key=len, reverse=True):
            client.delete(path)
    unlike = site.rescue(topic="persistent://shop/orders/old", answers={"freeze": "freeze"})
    assert (unlike.code, "no history has" in unlike.result["verdict"]) == (5, True), unlike.out
    assert "end the freeze: BKMETA_ZK_AUTH_FILE=" in unlike.result["verdict"]
    done = site.rescue(topic="persistent://shop/orders/new", answers={"confirm": "any"})
    assert done.code == 0, done.out + done.err
    with zookeeper_client(site) as client:
        assert {path: client.get(path)[0] for path in before} == before
        assert client.exists(other["path"]) is None
    [plan] = site.out.glob("plan-*")
    back = list_topics_back(open_dataset(plan, "plan"), 10)
    [topic] = back.topics
    assert (topic.url, topic.ledgers, topic.subscriptions) == ("persistent://shop/orders/new", 3, ["reader"])
    assert topic.entries == sum(len(row["entries"]) for row in rows[:3])
    assert "persistent://shop/orders/new" in (plan / "report.html").read_text()


def test_deletes_on_etcd_are_taken_back_with_the_bookies_stopped(on_etcd: tuple[Site, EtcdServer]) -> None:
    """Nothing of etcd's can be frozen: bookies are stopped, and started again when all is back; it asks before."""
    site, _ = on_etcd
    ledgers = [write_ledger(site.cluster) for _ in range(4)]
    for ledger in ledgers[1:]:
        site.cluster("delete", ledger=ledger)
    asked = site.rescue(answers={"kind": "deletes"})
    [question] = asked.result["questions"]
    assert (asked.code, question["id"], question["recommended"]) == (4, "stop", "stop"), asked.err
    assert all(psutil.Process(bookie.pid).status() != psutil.STATUS_STOPPED for bookie in site.bookies)
    waiting = site.rescue(answers={"stop": "stop"})
    [session] = waiting.result["questions"]
    assert "deleted 3 ledgers" in session["text"], waiting.err
    assert all(psutil.Process(bookie.pid).status() == psutil.STATUS_STOPPED for bookie in site.bookies)
    done = site.rescue(answers={session["id"]: "mistake", "confirm": "any"})
    assert (done.code, done.result["kind"]) == (0, "deletes"), done.out + done.err
    assert [count_read(site.cluster, ledger) for ledger in ledgers] == [12] * 4
    record = json.loads((site.out / "rescue.json").read_text())
    assert sorted(record["phases"]["start"]["started"].values()) == sorted(b.bookie.id for b in site.bookies)
    [apply] = [row["command"] for row in record["commands"] if row["command"].startswith("bkmeta apply")]
    assert "--accept-unfrozen" not in apply


def test_etcd_is_gone_and_yesterdays_snapshot_is_there(on_etcd: tuple[Site, EtcdServer]) -> None:
    """Nothing can be frozen: bookies stay stopped until all is written; what came after the snapshot is inferred.

    A password that was forgotten is asked for, and the plan made again with it.
    """
    (site, server), snapshot = on_etcd, on_etcd[0].work / "yesterday.db"
    written = []
    for number in range(8):
        if number == 4:
            server.etcdctl("snapshot", "save", str(snapshot))
        written.append(write_ledger(site.cluster, quorum=3 if number % 2 else 2))
    server.kill()
    shutil.rmtree(server.data)
    server.start()
    site.incident = f'passwords = "passwords.txt"\nsnapshots = [{json.dumps(str(snapshot))}]'
    answers = {"confirm": "any", "quorums": "unknown"}
    waiting = site.rescue(answers=answers)
    [question] = waiting.result["questions"]
    assert question["text"].startswith("4 ledgers open with none of the known passwords"), waiting.err
    assert any("1 password" in line for line in question["known"])
    (site.work / "passwords.txt").write_text("pw\n")
    done = site.rescue(answers={**answers, "passwords": "added"})
    assert done.code == 0, done.out + done.err
    record = json.loads((site.out / "rescue.json").read_text())
    assert count_unopened(open_dataset(Path(record["phases"]["decide"]["plan"]), "plan")).ledgers == 0
    assert [count_read(site.cluster, ledger) for ledger in written] == [12] * 8
    assert "freeze" not in [row["command"].split()[1] for row in record["commands"]]
