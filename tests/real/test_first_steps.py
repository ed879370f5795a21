"""The runbook's first five steps, as a stranger takes them, while a bookie deletes what the store lost.

Every bookie is a process of its own, as on a host of its own, so that each can be stopped as the program says.
"""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from kazoo.client import KazooClient

from recovery.dataset import open_dataset
from scripts.walkthrough import wipe
from tests.real.test_runbook import written_file
from tests.support.bookie_processes import BookieProcess, running
from tests.support.cases import case_dir, truth
from tests.support.cluster import bookies_of
from tests.support.command import run
from tests.support.kept_bytes import Kept, Place, kept, less
from tests.support.waiting import until
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.real, pytest.mark.spark]

CASE: Final = "c01-clean-sorted"
ROOT: Final = "/ledgers"
SOON_MS, LATER_MS = 1000, 600_000
"""From one pass of garbage collection to the next: of the bookie that deletes, and as BookKeeper has it by default."""


@dataclass(frozen=True, slots=True)
class There:
    """A cluster whose metadata was removed a moment ago, and whose first bookie has begun to delete.

    Attributes:
        work: with the incident file and what it names.
        bookies: that run.
    """

    work: Path
    bookies: list[BookieProcess]

    def kept(self) -> dict[Place, Kept]:
        """Return what every bookie has of every ledger on its disk."""
        return kept(self.work / "home", [process.bookie for process in self.bookies])


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[There]:
    """Disks and ZooKeeper data that BookKeeper wrote, started again, and emptied."""
    was, case = truth(CASE), case_dir(CASE)
    shutil.copytree(case / "zookeeper", tmp_path / "zookeeper" / "data")
    shutil.copytree(case / "bookies", tmp_path / "home" / "bookies")
    server = ZooKeeperServer(tmp_path / "zookeeper")
    with ExitStack() as stack:
        server.start()
        stack.callback(server.kill)
        client = KazooClient(server.hosts)
        client.start()
        stack.callback(client.close)
        stack.callback(client.stop)
        started = [
            BookieProcess(
                bookie,
                tmp_path / "home",
                tmp_path / f"bk{bookie.n}.conf",
                f"zk+hierarchical://{server.hosts}{ROOT}",
                {"gcWaitTime": SOON_MS if bookie.n == 0 else LATER_MS},
            )
            for bookie in bookies_of(was)
        ]
        there = There(tmp_path, list(stack.enter_context(running(started))))
        until(lambda: len(client.get_children(f"{ROOT}/available")) == len(started) + len(["readonly"]), "bookies run")
        (tmp_path / "incident.toml").write_text(written_file().replace("zk1:2181", server.hosts))
        (tmp_path / "bookies.txt").write_text("\n".join(process.bookie.id for process in started))
        (tmp_path / "passwords.txt").touch(0o600)
        (tmp_path / "passwords.txt").write_text("".join(f"{password}\n" for password in was["passwords"]))
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("BKMETA_ZK_AUTH", "bkmeta:SECRET")
        whole = there.kept()
        wipe(server.hosts, ROOT)
        until(lambda: bool(less(whole, there.kept())), "the first bookie deletes")
        yield there


@pytest.mark.timeout(600)
def test_from_the_first_step_on_nothing_more_is_lost(there: There, capsys: pytest.CaptureFixture[str]) -> None:
    """What is on disks when the first step is begun is there at the end, and the plan has every ledger of it."""
    # Step 0 says what to do before anything is connected to.
    begun = there.kept()
    first = run(capsys, "preflight")
    assert "On each bookie: kill -STOP" in first.out
    # Who asks first, instead of doing it, is told that bookies delete, though none is registered any more.
    asked = run(capsys, "preflight", "--incident", "incident.toml")
    assert asked.code == 3
    assert asked.out.index("kill -STOP") < asked.out.index("CRITICAL: /ledgers is EMPTY")
    for process in there.bookies:
        process.pause()
    stopped = there.kept()
    deleting = there.bookies[0].bookie.id
    assert {bookie for bookie, _ in less(begun, stopped)} <= {deleting}
    assert "Then kill -KILL the bookies" in first.out
    for process in there.bookies:
        process.kill()

    said = {}
    for process in there.bookies:
        # Its folders are relative to where it was started: a bookie's own are not.
        folders = [
            word
            for option, names in (("--ledger-dir", process.bookie.ledgers), ("--journal-dir", process.bookie.journals))
            for name in names
            for word in (option, there.work / "home" / name)
        ]
        out = Path("inv") / f"bk{process.bookie.n}"
        done = run(capsys, "collect", *folders, "--passwords", "passwords.txt", "--out", out)
        assert done.code in (0, 4)
        said[process.bookie.id] = done.out
    assert [bookie for bookie, text in said.items() if "old journals only" in text] == [deleting]
    done = run(capsys, "recover", "--incident", "incident.toml", "--out", "plan")
    assert done.code in (0, 3), done.err
    shown = run(capsys, "plan", "show", "plan")
    assert shown.code == 0

    assert less(stopped, there.kept()) == {}
    on_disks = {ledger for (_, ledger), has in stopped.items() if has.index}
    rows = open_dataset("plan", "plan").read("reconstruction").to_pylist()
    outcomes = {row["ledger"]: row["outcome"] for row in rows}
    assert on_disks <= outcomes.keys()
    assert "left" not in {outcomes[ledger] for ledger in on_disks}
    # Of ledgers that the first bookie was no member of nothing is in doubt.
    was = {row["ledger"]: row for row in truth(CASE)["ledgers"]}
    members = {ledger: {name for _, names in was[ledger]["segments"] for name in names} for ledger in on_disks}
    never = {ledger for ledger in on_disks if deleting not in members[ledger]}
    assert never
    assert {outcomes[ledger] for ledger in never} == {"restored"}
    explained = run(capsys, "explain", min(never), "--plan", "plan", "--incident", "incident.toml")
    assert explained.code == 0
