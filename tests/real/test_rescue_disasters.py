"""`rescue` on real bookies and ZooKeeper: disasters that one command and at most five answers end, over real ssh.

How it waits, goes on and refuses; topics; a second person. The tests are in the order that takes few clusters: what
lives, what is stopped and comes back, and at last what is harmed. `scripts/soak rescue` lets them fail in the middle.
"""

import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest

from reconcile.plan.views.open_points import count_unopened
from reconcile.plan.views.topics import list_topics_back
from recovery.codecs.managed_ledger import encode_cursor
from recovery.dataset import open_dataset
from scripts.walkthrough import wipe
from tests.reconcile.jobs.undelete.test_topics import make_schema
from tests.reconcile.test_references_pulsar import topic as make_topic
from tests.support.cases import truth
from tests.support.command import call, process, started
from tests.support.rescue_disasters import (
    ledgers_were_deleted,
    require_rescued,
    store_bookie_and_folder_are_gone,
    store_was_put_back,
)
from tests.support.rescues import (
    CASE,
    ROOT,
    SharedSite,
    SshServer,
    count_read,
    name_host,
    read_all,
    share_site,
    share_ssh_server,
    site_on_zookeeper,
    write_ledger,
    zookeeper_client,
)
from tests.support.signing import make_person
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

shared, ssh = share_site(site_on_zookeeper), share_ssh_server()


def test_a_topic_comes_back_with_its_ledgers(shared: SharedSite, tmp_path: Path) -> None:
    """Of a store that is whole: its record, subscription, schema and policies, and only its ledgers, byte for byte."""
    with shared.lend(tmp_path) as site:
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
            other = next(
                row for row in truth(CASE)["ledgers"] if row["state"] == "CLOSED" and row["ledger"] not in ledgers
            )
            record = client.get(other["path"])[0]
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
            client.create(other["path"], record)
            for path in ("/admin", "/managed-ledgers", "/schemas"):
                client.delete(path, recursive=True)
        [plan] = site.out.glob("plan-*")
        back = list_topics_back(open_dataset(plan, "plan"), 10)
        [topic] = back.topics
        assert (topic.url, topic.ledgers, topic.subscriptions) == ("persistent://shop/orders/new", 3, ["reader"])
        assert topic.entries == sum(len(row["entries"]) for row in rows[:3])
        assert "persistent://shop/orders/new" in (plan / "report.html").read_text()


def test_a_hundred_deletes_are_taken_back(shared: SharedSite, ssh: SshServer, tmp_path: Path) -> None:
    """One session's, on a cluster that lives, and of which nothing is stopped."""
    with shared.lend(tmp_path) as site:
        require_rescued(ledgers_were_deleted, site, ssh)


def test_a_wiped_store_comes_back_by_one_command(shared: SharedSite, ssh: SshServer, tmp_path: Path) -> None:
    """Over ssh; it waits where it must be told, refuses another hash, and goes on where it was killed."""
    with shared.lend(tmp_path) as site:
        # Its folders on the hosts, which are this machine; other tests have theirs beside them.
        marks = [
            hashlib.sha256(str(site.out / "inv" / f"host{n}").encode()).hexdigest() for n in range(len(site.bookies))
        ]
        rooms = [Path(f"/tmp/bkmeta-rescue-{mark[:12]}") for mark in marks]
        wipe(site.cluster.zookeeper, ROOT)
        with started("rescue", *site.word(transport="ssh"), "--json") as running:
            until(lambda: any(room.exists() for room in rooms), "a host has a folder")
            until((site.out / "inv" / "host1").exists, "a bookie is collected")
            running.kill()
            running.communicate()
        asked = site.rescue(transport="ssh", is_process=True)
        [session] = asked.result["questions"]
        assert (asked.code, session["recommended"], "0x" in session["text"]) == (4, "later", True), asked.err
        waiting = site.rescue(transport="ssh", answers={session["id"]: "mistake"})
        assert (waiting.code, [one["id"] for one in waiting.result["questions"]]) == (4, ["confirm"]), waiting.err
        digest = json.loads((site.out / "rescue.json").read_text())["phases"]["decide"]["hash"]
        status = process("rescue", "status", "--out", site.out, "--json").result
        assert [phase for phase, at in status["phases"].items() if at is None] == ["review", "restore", "start"]
        wrong = site.rescue(transport="ssh", answers={"confirm": "0" * 8})
        assert (wrong.code, digest in wrong.result["verdict"]) == (5, True), wrong.err
        done = site.rescue(transport="ssh", answers={"confirm": digest[:8]}, is_process=True)
        assert (done.code, done.result["kind"], done.result["may_not_start"]) == (0, "lost", {}), done.out + done.err
        good, total = read_all(site)
        assert (good, total > 0) == (total, True)
        assert all(name_host(n) in ssh.list_reached() for n in range(len(site.bookies)))
        assert not any(room.exists() for room in rooms)
        # Each command stands in the record, and none is run again.
        ran = json.loads((site.out / "rescue.json").read_text())["commands"]
        assert site.rescue(transport="ssh").code == 0
        assert json.loads((site.out / "rescue.json").read_text())["commands"] == ran
        names = [row["command"].split()[1] for row in ran]
        assert [name for name in names if name in ("apply", "thaw")] == ["apply", "thaw", "thaw"]
        # It was tried beside the root, and the trial removed, before it was confirmed.
        assert names.count("rehearse") == 2


def test_a_bookie_that_is_gone_is_asked_about(shared: SharedSite, tmp_path: Path) -> None:
    """Its disks are away, and may come back: nothing is given up, and everything that the others have is read."""
    with shared.lend(tmp_path) as site:
        gone, disks_of_it = site.bookies[3], site.home / "bookies" / "b3"
        with zookeeper_client(site) as client:
            cookie = client.get(f"{ROOT}/cookies/{gone.bookie.id}")[0]
        wipe(site.cluster.zookeeper, ROOT)
        site.kill(gone)
        disks_of_it.rename(tmp_path / "away")
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
        # It comes back, for the next test.
        (tmp_path / "away").rename(disks_of_it)
        with zookeeper_client(site) as client:
            client.set(f"{ROOT}/cookies/{gone.bookie.id}", cookie)
        site.start(gone)


def test_a_store_a_bookie_and_a_folder_are_gone(shared: SharedSite, ssh: SshServer, tmp_path: Path) -> None:
    """Yesterday's capture is there: all that the disks which are left have is read."""
    with shared.lend(tmp_path, is_harmed=True) as site:
        require_rescued(store_bookie_and_folder_are_gone, site, ssh)


def test_a_second_person_approves_what_is_given_up_written_and_thawed(shared: SharedSite, tmp_path: Path) -> None:
    """By a policy that is in the store: the same command goes on with each approval, and names the next.

    A password that was forgotten is asked for meanwhile, and the plan is made again with it.
    """
    with shared.lend(tmp_path, is_harmed=True) as site:
        people = [make_person(site.work, name) for name in ("ann", "bob")]
        words = [word for one in people for word in ("--approver", f"{one.name}={one.public}")]
        kept = call("delete", "policy", "set", "--metadata", site.uri, "--approvals", "1", *words)
        assert kept.code == 0, kept.err
        members = [bookie.bookie.id for bookie in site.bookies[:2]]
        written = write_ledger(site.cluster, 2, members=members)
        wipe(site.cluster.zookeeper, ROOT)
        # An earlier disaster may have taken some of them already.
        for bookie in site.bookies[2:]:
            site.kill(bookie)
            shutil.rmtree(site.home / "bookies" / f"b{bookie.bookie.n}", ignore_errors=True)
        site.has_files, site.with_ids = False, (2, 3)
        *others, password = site.passwords.read_text().splitlines()
        site.passwords.write_text("".join(f"{other}\n" for other in others))
        answers = {"bookies off": "off", "disks of host2": "gone", "disks of host3": "gone"}
        answers |= {"quorums": "unknown", "confirm": "any"}
        # Of what is given up some entries are nowhere.
        answers |= {"disks read": "yes", "wire read": "yes"}
        approvals: list[Path] = []

        def refuse_and_approve(kind: str) -> None:
            waiting = site.rescue(answers=answers, approvals=approvals)
            assert waiting.code == 5, waiting.out + waiting.err
            [what] = re.findall(rf"{kind}=[0-9a-f]{{64}}", waiting.result["verdict"])
            for one in people:
                approvals.append(site.work / f"{kind}-{one.name}.json")
                signed = call("approve", what, "--key", one.private, "--out", approvals[-1])
                assert signed.code == 0, signed.err

        refuse_and_approve("lost")
        waiting = site.rescue(answers=answers, approvals=approvals)
        [question] = waiting.result["questions"]
        assert re.match(r"\d+ ledgers? opens? with none of the known passwords", question["text"]), waiting.err
        assert any("1 password" in line for line in question["known"])
        site.passwords.write_text("".join(f"{line}\n" for line in (*others, password)))
        answers["passwords"] = "added"
        refuse_and_approve("plan")
        plan = Path(site.read_record()["phases"]["decide"]["plan"])
        assert count_unopened(open_dataset(plan, "plan")).ledgers == 0
        refuse_and_approve("thaw")
        done = site.rescue(answers=answers, approvals=approvals)
        assert done.code in (0, 3), done.out + done.err
        assert done.result["kind"] == "lost"
        assert count_read(site.cluster, written) == 12
        good, total = read_all(site)
        assert good > total // 2


def test_a_store_that_was_put_back_has_given_ids_again(shared: SharedSite, ssh: SshServer, tmp_path: Path) -> None:
    """Both ledgers of such an id are kept: the younger one in the store, the older one in files."""
    with shared.lend(tmp_path) as site:
        require_rescued(store_was_put_back, site, ssh)
        # Of an id with two ledgers no later disaster knows which one it is.
        shared.close()
