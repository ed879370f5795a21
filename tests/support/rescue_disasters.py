"""Disasters that a rescue ends by one command and a few answers, and what must be true then.

What comes back is what the single commands give of copies of the same disks, byte for byte, and nothing is lost.
"""

import json
import shutil
import tomllib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from recovery.dataset import open_dataset
from tests.support.acid import write_set
from tests.support.bookie_processes import BookieProcess
from tests.support.cases import truth
from tests.support.command import call
from tests.support.rescues import (
    CASE,
    ROOT,
    Site,
    SshServer,
    count_read,
    name_host,
    read_all,
    run_single_commands,
    site_of_flat_layout,
    site_on_etcd,
    site_on_zookeeper,
    write_ledger,
    zookeeper_client,
)

MOST_ANSWERS: Final = 5
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


Happen = Callable[[Site], Disaster]


def store_is_emptied(site: Site) -> Disaster:
    """All disks are there, and ZooKeeper's own files tell who emptied it."""
    session = empty_store(site)
    records = run_single_commands(site, "--snapshot", site.home / "zookeeper")

    def check() -> None:
        good, total = read_all(site)
        assert good == total

    return Disaster(site, {f"session {session}": "mistake", "confirm": "any"}, records, check)


def flat_store_is_emptied(site: Site) -> Disaster:
    """The same in the flat layout, whose bookies do not start frozen: they start thawed, replication disabled."""
    written = [write_ledger(site.cluster, 3 if number % 2 else 2) for number in range(6)]
    session = empty_store(site)
    records = run_single_commands(site, "--snapshot", site.home / "zookeeper")
    assert set(written) <= set(records)

    def check() -> None:
        assert [count_read(site.cluster, ledger) for ledger in written] == [12] * 6
        record = site.read_record()
        ran = [row["command"].split()[1] for row in record["commands"] if row["exit_code"] == 0]
        assert ran.index("thaw") < ran.index("verify") < len(ran) - 1 - ran[::-1].index("thaw")
        assert record["phases"]["start"]["replication_disabled"] is False

    return Disaster(site, {f"session {session}": "mistake", "confirm": "any"}, records, check)


def store_bookie_and_folder_are_gone(site: Site) -> Disaster:
    """The store is empty, one bookie's disks and a folder of another's are gone; there is yesterday's capture."""
    site.has_files, yesterday, home = False, site.work / "yesterday", site.home
    captured = call("capture", "--metadata", site.uri, "--out", yesterday)
    assert captured.code == 0, captured.err
    site.incident += f"\nsnapshots = [{json.dumps(str(yesterday))}]"
    members = [bookie.bookie.id for bookie in site.bookies[:2]]
    younger = [write_ledger(site.cluster, 2, members=members, entries=7) for _ in range(3)]
    empty_store(site)
    part, gone = site.bookies[2], site.bookies[3]
    for bookie in (part, gone):
        site.kill(bookie)
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
    return Disaster(site, answers, records, check, frozenset({0, 3}), hosts)


def store_was_put_back(site: Site) -> Disaster:
    """The store is an older copy, and has given ids out again; of what was only in the later one no log tells."""
    site.has_files = False
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
        # The store answered: it was frozen before its bookies were stopped.
        assert record["phases"]["stop"]["frozen"] <= record["phases"]["stop"]["ended"]
        assert [count_read(site.cluster, ledger) for ledger in (*reused, later)] == [3, 3, 7]
        good, total = read_all(site)
        assert good == total

    return Disaster(site, answers, records, check)


def ledgers_were_deleted(site: Site) -> Disaster:
    """One session deleted a hundred ledgers of a cluster that lives."""
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
        # Nothing was stopped, and nothing is left behind.
        assert record["phases"]["start"]["replication_disabled"] is False
        assert site.list_stopped() == [False] * len(site.bookies)
        good, total = read_all(site)
        assert good == total

    return Disaster(site, answers, records, check, hosts={"zk1.example": None})


def etcd_is_gone(site: Site) -> Disaster:
    """The data of etcd are gone; there is yesterday's snapshot, and ledgers came after it."""
    server, snapshot, written = site.etcd, site.work / "yesterday.db", []
    assert server is not None
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

    return Disaster(site, {"confirm": "any", "quorums": "unknown"}, records, check)


DISASTERS: Final[Mapping[Happen, Callable[[Path], AbstractContextManager[Site]]]] = {
    store_is_emptied: site_on_zookeeper,
    flat_store_is_emptied: site_of_flat_layout,
    store_bookie_and_folder_are_gone: site_on_zookeeper,
    store_was_put_back: site_on_zookeeper,
    ledgers_were_deleted: site_on_zookeeper,
    etcd_is_gone: site_on_etcd,
}
"""Disaster → what starts a cluster for it."""


def require_rescued(happen: Happen, site: Site, server: SshServer) -> None:
    """Let a disaster happen, and end it by one command with the answers that were recorded before."""
    disaster = happen(site)
    done = site.rescue(transport="ssh", answers=disaster.answers)
    assert done.code in disaster.ends, done.out + done.err
    record = site.read_record()
    assert len(record["answers"]) <= MOST_ANSWERS
    # What it runs is printed as a person would type it, and each bookie is named as it is done.
    assert all(f"\n$ {row['command']}\n" in done.err for row in record["commands"])
    assert done.result["kind"] != "lost" or f"({len(site.bookies)} of {len(site.bookies)} bookies)" in done.err
    assert ".example" in server.list_reached()
    require_same_end(disaster)


def require_same_end(disaster: Disaster) -> None:
    """Hold the store and the bookies against what the single commands give, and what must be read."""
    site = disaster.site
    found = {ledger: raw for ledger, raw in read_records(site).items() if ledger in disaster.records}
    assert found == disaster.records
    disaster.check()


def read_records(site: Site) -> dict[int, bytes]:
    """Return every record of the store: ledger → bytes."""
    out = site.work / "records"
    captured = call("capture", "--metadata", site.uri, "--out", out)
    assert captured.code == 0, captured.err
    rows = open_dataset(out, "catalog").read("ledgers", columns=["ledger", "raw"]).to_pylist()
    return {row["ledger"]: row["raw"] for row in rows}


def empty_store(site: Site) -> str:
    """Remove all below the root, as a re-created ensemble would have it; return the session that did."""
    with zookeeper_client(site) as client:
        for child in client.get_children(ROOT):
            client.delete(f"{ROOT}/{child}", recursive=True)
        return f"0x{client.client_id[0]:x}"
