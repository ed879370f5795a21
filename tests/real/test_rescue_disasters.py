"""Four disasters, each ended by one command and at most five answers, on real bookies, over ssh on loopback.

What comes back is what the single commands give of copies of the same disks, byte for byte, and nothing is lost.
`scripts/soak rescue` kills the rescue, cuts connections and lets hosts crash, at random, and comes to the same end.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import pytest

from recovery.dataset import open_dataset
from tests.support.acid import write_set
from tests.support.bookie_processes import BookieProcess
from tests.support.cases import truth
from tests.support.command import process, started
from tests.support.rescues import (
    CASE,
    ROOT,
    Site,
    SshServer,
    count_read,
    name_host,
    read_all,
    run_single_commands,
    site_on_etcd,
    site_on_zookeeper,
    ssh_server,
    write_ledger,
    zookeeper_client,
)

pytestmark = [pytest.mark.real, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

RUNS: Final = int(os.environ.get("BKMETA_SOAK_RESCUE", "0"))
BASE: Final = int(os.environ.get("BKMETA_SOAK_SEED", "0"))
FAULTS: Final = 12
"""Faults of one run, at most: then it is left alone."""
ANSWERS: Final = 5
"""A rescue asks for no more than these."""


@dataclass(frozen=True)
class Disaster:
    """What happened to a cluster.

    Attributes:
        site: the cluster.
        answers: recorded; of what is not here the same is asked again.
        records: ledger → record that must be back, byte for byte.
        check: reads every entry that must be there, and what else this disaster promises.
        ends: exit codes of a rescue that came to its end.
        hosts: host → its bookie; None: of the host only the connections end.
    """

    site: Site
    answers: Mapping[str, str]
    records: Mapping[int, bytes]
    check: Callable[[], None]
    ends: frozenset[int] = frozenset({0})
    hosts: Mapping[str, BookieProcess | None] | None = None


Happen = Callable[[Path], AbstractContextManager[Disaster]]


@contextmanager
def store_is_emptied(work: Path) -> Iterator[Disaster]:
    """All disks are there, and ZooKeeper's own files tell who emptied it."""
    with site_on_zookeeper(work) as site:
        session = empty_store(site)
        records = run_single_commands(site, "--snapshot", site.work / "home" / "zookeeper")

        def check() -> None:
            good, total = read_all(site)
            assert good == total

        yield Disaster(site, {f"session {session}": "mistake", "confirm": "any"}, records, check)


@contextmanager
def store_bookie_and_folder_are_gone(work: Path) -> Iterator[Disaster]:
    """The store is empty, one bookie's disks and a folder of another's are gone; there is yesterday's capture."""
    with site_on_zookeeper(work) as site:
        site.has_files, yesterday, home = False, site.work / "yesterday", site.work / "home"
        captured = process("capture", "--metadata", site.uri, "--out", yesterday)
        assert captured.code == 0, captured.err
        site.incident += f"\nsnapshots = [{json.dumps(str(yesterday))}]"
        add_password(site)
        members = [bookie.bookie.id for bookie in site.bookies[:2]]
        younger = [write_ledger(site.cluster, 2, members=members, entries=7) for _ in range(3)]
        empty_store(site)
        part, gone = site.bookies[2], site.bookies[3]
        for bookie in (part, gone):
            bookie.kill()
        shutil.rmtree(home / "bookies" / "b3")
        folder = part.bookie.ledgers[0]
        (home / folder).rename(site.work / "away")
        lost = ("--lost", gone.bookie.id, "--lost", f"{part.bookie.id}={folder}")
        records = run_single_commands(site, "--snapshot", yesterday, *lost)
        answers = {"bookies off": "off", "disks of host3": "gone", f"folder {folder} of host2": "gone"}
        answers |= {"id of host3": gone.bookie.id, "confirm": "any", "wire read": "yes"}

        def check() -> None:
            # Whose disks are gone is asked, and by the capture recommended: of four bookies three are there.
            named = tomllib.loads((site.out / "incident.toml").read_text())["lost"]
            assert named == [gone.bookie.id, f"{part.bookie.id}={folder}"]
            assert [count_read(site.cluster, ledger) for ledger in younger] == [7] * 3
            kept = set(members)
            promised = sum(
                bool(write_set(row, entry) & kept)
                for row in truth(CASE)["ledgers"]
                if row["state"] == "CLOSED"
                for entry in range(len(row["entries"]))
            )
            good, total = read_all(site)
            assert total > good >= promised

        hosts = {name_host(bookie.bookie.n): bookie for bookie in site.bookies[:2]}
        yield Disaster(site, answers, records, check, frozenset({0, 3}), hosts)


@contextmanager
def store_was_put_back(work: Path) -> Iterator[Disaster]:
    """The store is an older copy, and has given ids out again; of what was only in the later one no log tells."""
    with site_on_zookeeper(work) as site:
        site.has_files = False
        add_password(site)
        ids = [bookie.bookie.id for bookie in site.bookies]
        reused = [write_ledger(site.cluster, 2, members=ids[:2], entries=count) for count in (9, 8)]
        later = write_ledger(site.cluster, 2, members=ids[2:4], entries=7)
        rows = site.cluster.ledgers()
        site.cluster("zk_wipe", paths=[rows[ledger]["path"] for ledger in (*reused, later)])
        for ledger in reused:
            write_ledger(site.cluster, 2, members=ids[2:4], entries=3, id=ledger)
        records = run_single_commands(site)
        assert set(records) == {later}
        answers = {"kind": "lost", "older ledgers": "export", "quorums": "unknown", "confirm": "any"}

        def check() -> None:
            for host in ("host0", "host1"):
                saved = [path for path in (site.out / "older" / host).rglob("*") if path.is_file()]
                assert {ledger for ledger in reused if any(f"{ledger}" in path.name for path in saved)} == set(reused)
            record = site.read_record()
            assert record["answers"]["older ledgers"]["question"].startswith("2 ids of two ledgers")
            assert record["phases"]["decide"]["ended"] < record["phases"]["start"]["ended"]
            assert [count_read(site.cluster, ledger) for ledger in (*reused, later)] == [3, 3, 7]
            good, total = read_all(site)
            assert good == total

        yield Disaster(site, answers, records, check)


@contextmanager
def ledgers_were_deleted(work: Path) -> Iterator[Disaster]:
    """One session deleted a hundred ledgers of a cluster that lives."""
    with site_on_zookeeper(work) as site:
        written = [write_ledger(site.cluster, 2, entries=2) for _ in range(100)]
        rows = site.cluster.ledgers()
        before = {ledger: rows[ledger]["path"] for ledger in written}
        with zookeeper_client(site) as client:
            records = {ledger: client.get(path)[0] for ledger, path in before.items()}
            for path in before.values():
                client.delete(path)
            session = f"0x{client.client_id[0]:x}"
        answers = {"kind": "deletes", "freeze": "freeze", f"session {session}": "mistake", "confirm": "any"}

        def check() -> None:
            record = site.read_record()
            assert "deleted 100 ledgers" in record["answers"][f"session {session}"]["question"]
            seconds = [row["seconds"] for row in record["commands"] if row["command"].startswith("bkmeta undelete")]
            print(f"undelete of 100 ledgers: {seconds} s")  # noqa: T201 - a soak shows its figures
            assert [count_read(site.cluster, ledger) for ledger in written] == [2] * 100
            # Nothing was stopped.
            assert all(psutil.Process(item.pid).status() != psutil.STATUS_STOPPED for item in site.bookies)
            good, total = read_all(site)
            assert good == total

        yield Disaster(site, answers, records, check, hosts={"zk1.example": None})


@contextmanager
def etcd_is_gone(work: Path) -> Iterator[Disaster]:
    """The data of etcd are gone; there is yesterday's snapshot, and ledgers came after it."""
    with site_on_etcd(work) as (site, server):
        add_password(site)
        snapshot, written = work / "yesterday.db", []
        for number in range(8):
            if number == 4:
                server.etcdctl("snapshot", "save", str(snapshot))
            written.append(write_ledger(site.cluster, 3 if number % 2 else 2))
        server.kill()
        shutil.rmtree(server.data)
        server.start()
        site.incident += f"\nsnapshots = [{json.dumps(str(snapshot))}]"
        records = run_single_commands(site, "--snapshot", snapshot)
        assert set(written) <= set(records)

        def check() -> None:
            assert [count_read(site.cluster, ledger) for ledger in written] == [12] * 8
            assert "freeze" not in [row["command"].split()[1] for row in site.read_record()["commands"]]

        yield Disaster(site, {"confirm": "any", "quorums": "unknown"}, records, check)


DISASTERS: Final = (
    store_is_emptied,
    store_bookie_and_folder_are_gone,
    store_was_put_back,
    ledgers_were_deleted,
    etcd_is_gone,
)


@pytest.mark.parametrize("happen", DISASTERS[1:], ids=lambda happen: happen.__name__)
def test_one_command_and_five_answers_at_most(happen: Happen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers were recorded before; the command is run once."""
    (tmp_path / "home").mkdir()
    # Folders of the bookies are named from there.
    monkeypatch.chdir(tmp_path / "home")
    with happen(tmp_path) as disaster, ssh_server(tmp_path / "ssh") as server:
        done = disaster.site.rescue(transport="ssh", answers=disaster.answers)
        assert done.code in disaster.ends, done.out + done.err
        assert len(disaster.site.read_record()["answers"]) <= ANSWERS
        assert ".example" in server.list_reached()
        require_same_end(disaster)


@pytest.mark.skipif(not RUNS, reason="faults at random, a minute each: scripts/soak rescue")
@pytest.mark.parametrize("happen", DISASTERS, ids=lambda happen: happen.__name__)
@pytest.mark.parametrize("seed", range(max(RUNS, 1)))
def test_whatever_fails_it_comes_to_the_same_end(
    happen: Happen,
    seed: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rescue is killed, connections are cut, hosts crash, again and again, whatever it was doing.

    The same command comes to the end, with the same answers: that a crashed host's bookie is off is the only other one.
    """
    rng = random.Random(BASE + seed)
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    with happen(tmp_path) as disaster, ssh_server(tmp_path / "ssh") as server:
        hosts = disaster.hosts or {name_host(bookie.bookie.n): bookie for bookie in disaster.site.bookies}
        answers = {"bookies off": "off", **disaster.answers}
        faults = fail_until_done(Disaster(**{**vars(disaster), "answers": answers, "hosts": hosts}), server, rng)
        asked = set(disaster.site.read_record()["answers"])
        # A soak shows its figures.
        print(f"{happen.__name__}, seed {BASE + seed}: {faults}, {len(asked)} answers")  # noqa: T201 - see above
        for bookie in hosts.values():
            # Its host crashed after its ledgers were read: a person starts it.
            if bookie is not None and not disaster.site.runs(bookie):
                disaster.site.start(bookie)
        assert len(asked - {"bookies off"} | (asked & set(disaster.answers))) <= ANSWERS
        require_same_end(disaster)


def fail_until_done(disaster: Disaster, server: SshServer, rng: random.Random) -> dict[str, int]:
    """Run the same command until it has come to its end, with faults; return how many there were of each kind."""
    site, faults = disaster.site, dict.fromkeys(("rescue", "connection", "host"), 0)
    words = [*site.word(transport="ssh"), "--answers", site.write_answers(disaster.answers), "--json"]
    for number in range(100):
        fault = rng.choice(sorted(faults)) if number < FAULTS else ""
        with ExitStack() as down, started("rescue", *words) as running:
            try:
                out, err = running.communicate(timeout=rng.uniform(0.5, 15.0) if fault else 600)
                fault = ""
            except subprocess.TimeoutExpired:
                faults[fault] += 1
                strike(fault, running, server, disaster, rng, down)
                out, err = running.communicate(timeout=600)
        if running.returncode == -signal.SIGKILL:
            continue
        result = json.loads(out.splitlines()[-1])
        # 1: a host was not reached; it is named, and the same command goes on.
        assert running.returncode in (0, 1, 3, 4, 5), out + err
        assert fault in ("connection", "host") or "kind" in result, out + err
        if "kind" in result:
            assert running.returncode in disaster.ends, out + err
            return faults
    raise AssertionError("it never came to its end")


def strike(
    fault: str,
    running: "subprocess.Popen[str]",
    server: SshServer,
    disaster: Disaster,
    rng: random.Random,
    down: ExitStack,
) -> None:
    """Let something fail; a host that crashed is not reached until `down` ends, and its bookie does not start again."""
    match fault:
        case "rescue":
            running.kill()
        case "connection":
            server.cut()
        case "host":
            assert disaster.hosts
            name, bookie = rng.choice(sorted(disaster.hosts.items()))
            down.enter_context(server.host_down(name))
            if bookie is not None:
                disaster.site.kill(bookie)


def require_same_end(disaster: Disaster) -> None:
    """Hold the store and the bookies against what the single commands give, and what must be read."""
    site = disaster.site
    found = {ledger: raw for ledger, raw in read_records(site).items() if ledger in disaster.records}
    assert found == disaster.records
    disaster.check()


def read_records(site: Site) -> dict[int, bytes]:
    """Return every record of the store: ledger → bytes."""
    out = site.work / "records"
    captured = process("capture", "--metadata", site.uri, "--out", out)
    assert captured.code == 0, captured.err
    rows = open_dataset(out, "catalog").read("ledgers", columns=["ledger", "raw"]).to_pylist()
    return {row["ledger"]: row["raw"] for row in rows}


def empty_store(site: Site) -> str:
    """Remove all below the root, as a re-created ensemble would have it; return the session that did."""
    with zookeeper_client(site) as client:
        for child in client.get_children(ROOT):
            client.delete(f"{ROOT}/{child}", recursive=True)
        return f"0x{client.client_id[0]:x}"


def add_password(site: Site) -> None:
    """Add that of the ledgers that a test writes to the candidates."""
    with site.passwords.open("a") as file:
        file.write("pw\n")
