"""What goes wrong around a command: Spark dies, a disk is full, a store refuses, somebody stops it."""

import itertools
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl, make_digest_acl

from recovery.dataset import MANIFEST, open_dataset
from tests.support import cases
from tests.support.command import PATIENCE_S, PROGRAM, Done, environment, process, run, started
from tests.support.plan_folder import Ledger, write_plan
from tests.support.processes import find_children, is_running
from tests.support.zookeeper_server import ZooKeeperServer

_ROOTS = itertools.count()

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("zookeeper")]


@pytest.fixture(scope="module")
def inventories(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options that name the inventories of a real cluster's bookies."""
    folder = tmp_path_factory.mktemp("inventories")
    words = []
    for bookie in sorted((cases.case_dir("c01") / "bookies").iterdir()):
        disks = ("--ledger-dir", bookie / "ledgers", "--journal-dir", bookie / "journal")
        assert process("collect", *disks, "--out", folder / bookie.name).code == 0
        words += ["--inventory", str(folder / bookie.name)]
    return words


@pytest.fixture
def uri(zookeeper_server: ZooKeeperServer) -> str:
    """The URI of a root that is not there yet."""
    return f"zk+hierarchical://{zookeeper_server.hosts}/bad-input-{next(_ROOTS)}/ledgers"


@pytest.fixture
def raw(zookeeper_server: ZooKeeperServer) -> Iterator[KazooClient]:
    """A plain client of another program."""
    client = KazooClient(zookeeper_server.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


def root_of(uri: str) -> str:
    """The path of a URI."""
    return "/" + uri.split("/", 3)[3]


def plan_for(uri: str, folder: Path, ledgers: int = 40) -> tuple[Path, str]:
    """Write a plan for a root; return it and its hash."""
    many = (Ledger(n, [(0, ("b1", "b2", "b3"))], last=n, length=n + 1) for n in range(ledgers))
    made = write_plan(folder / "plan", many, root=root_of(uri))
    return Path(made.path), made.manifest["hash"]


def on_a_disk_of(kilobytes: int, *arguments: object) -> Done:
    """Run the program where no file can grow beyond a size: what a full disk says, without one."""
    done = subprocess.run(
        ["/bin/bash", "-c", f'ulimit -f {kilobytes}; exec "$@"', "bash", PROGRAM, *map(str, arguments)],
        env=environment(JDK_JAVA_OPTIONS="-XX:-UsePerfData"),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def events(running: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """The progress of a command while it runs."""
    assert running.stderr is not None
    for line in running.stderr:
        yield json.loads(line)


# Spark


BREAKS: dict[str, tuple[Callable[[int, int], None], int, str]] = {
    "its JVM dies": (lambda _group, java: os.kill(java, signal.SIGKILL), 1, "Spark failed: its Java process ended"),
    "Ctrl-C": (lambda group, _java: os.killpg(group, signal.SIGINT), 130, "stopped before the end"),
    "SIGTERM": (lambda group, _java: os.kill(group, signal.SIGTERM), 143, "stopped before the end"),
    "SIGTERM to all": (lambda group, _java: os.killpg(group, signal.SIGTERM), 143, "stopped before the end"),
}


def test_recover_that_is_broken_off(inventories: list[str], tmp_path: Path) -> None:
    """In the middle of the job: the right code, one message, no process left; then the same command makes the plan."""
    out = tmp_path / "plan"
    command = ["recover", *inventories, "--layout", "hierarchical", "--master", "local[2]", "--out", str(out)]
    for what, (break_off, code, words) in BREAKS.items():
        with started(*command, "--progress", "json") as running:
            next(event for event in events(running) if event["stage"] == "shapes")
            (java,) = find_children(running.pid, word="SparkSubmit")
            break_off(running.pid, java)
            printed, err = running.communicate(timeout=PATIENCE_S)
        assert (running.returncode, printed) == (code, ""), what
        said = [line for line in err.splitlines() if line and not line.startswith("{")]
        assert len(said) == 1, said
        assert words in said[0]
        assert "run" in said[0].partition(words)[2]
        assert not is_running(java), what
        assert not (out / MANIFEST).exists()
    done = process(*command, "--json")
    assert (done.code, done.result["counts"]["restored"]) == (0, 27)
    open_dataset(out, "plan").verify()


def test_a_full_disk_under_recover(inventories: list[str], tmp_path: Path) -> None:
    """A task that cannot write its part ends the job with exit code 1 and the file; there is no plan."""
    out = tmp_path / "plan"
    done = on_a_disk_of(8, "recover", *inventories, "--layout", "hierarchical", "--out", out)
    assert (done.code, done.out) == (1, "")
    assert str(out) in done.err
    assert "free space" in done.err
    assert "Traceback" not in done.err
    assert not (out / MANIFEST).exists()


def test_a_master_that_is_none(inventories: list[str], tmp_path: Path) -> None:
    """What Spark says of it is said, without its stack."""
    command = ["recover", *inventories, "--layout", "flat", "--out", tmp_path / "plan", "--master", "nonsense://here"]
    done = process(*command)
    assert (done.code, done.out) == (2, "")
    assert "nonsense://here" in done.err
    assert "\tat " not in done.err
    assert len(done.err.splitlines()) == 1


def test_spark_that_is_not_whole(inventories: list[str], tmp_path: Path) -> None:
    """PySpark without what it needs is said to be so, with the command that mends it."""
    (tmp_path / "py4j").mkdir()
    (tmp_path / "py4j" / "__init__.py").write_text("raise ImportError('py4j was removed')\n")
    command = ["recover", *inventories, "--layout", "flat", "--master", "local[1]", "--out", tmp_path / "plan"]
    done = process(*command, env=environment(PYTHONPATH=str(tmp_path)))
    assert (done.code, done.out) == (2, "")
    assert "py4j was removed" in done.err
    assert "pip install" in done.err


# A store


def test_roots_that_are_not_what_was_named(uri: str, raw: KazooClient, tmp_path: Path) -> None:
    """No root: exit code 3, and an empty catalog says so. A layout that is not the URI's, or is none: exit code 2."""
    absent = process("capture", "--metadata", uri, "--out", tmp_path / "absent", "--json")
    assert (absent.code, absent.result["coverage"]["root"]) == (3, "missing")
    assert "does not exist" in absent.result["verdict"]
    raw.create(f"{root_of(uri)}/LAYOUT", b"1\nflat:1", makepath=True)
    other = process("capture", "--metadata", uri, "--out", tmp_path / "other")
    assert (other.code, "says flat" in other.err) == (2, True)
    raw.set(f"{root_of(uri)}/LAYOUT", b"\xff\0 nonsense")
    unnamed = uri.replace("zk+hierarchical", "zk")
    broken = process("capture", "--metadata", unnamed, "--out", tmp_path / "broken")
    assert (broken.code, f"{root_of(uri)}/LAYOUT" in broken.err) == (2, True)
    for folder in ("other", "broken"):
        assert not (tmp_path / folder / MANIFEST).exists()


def test_a_store_that_may_not_be_read(uri: str, raw: KazooClient, tmp_path: Path) -> None:
    """What others' rights hide is exit code 4 and listed, or, where nothing can be read, exit code 1 and whom to be."""
    root = root_of(uri)
    mine = [make_digest_acl("owner", "secret", all=True)]
    raw.create(f"{root}/LAYOUT", b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1", makepath=True)
    raw.create(f"{root}/00/0000/L0001", b"x", makepath=True)
    raw.create(f"{root}/00/0001", b"", acl=mine)
    some = process("capture", "--metadata", uri, "--out", tmp_path / "some")
    assert (some.code, "not read: /00/0001: access denied" in some.out) == (4, True)
    raw.set_acls(root, mine)
    none = process("capture", "--metadata", uri, "--out", tmp_path / "none")
    assert (none.code, none.out) == (1, "")
    assert f"{root}: access denied" in none.err
    assert "BKMETA_ZK_AUTH" in none.err
    assert not (tmp_path / "none" / MANIFEST).exists()


# apply


def test_apply_that_is_stopped(uri: str, tmp_path: Path) -> None:
    """In the midst of writing: its own code, and how it is gone on with, which then ends as if it had not been."""
    plan, digest = plan_for(uri, tmp_path, 10_000)
    command = ["apply", plan, "--metadata", uri, "--confirm", digest]
    more: list[str] = []
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        with started(*command, *more, "--progress", "json") as running:
            before = -1
            for event in events(running):
                if event.get("unit") != "writes":
                    continue
                before = before if before >= 0 else event["done"]
                if event["done"] > before:
                    break
            running.send_signal(number)
            printed, err = running.communicate(timeout=PATIENCE_S)
        assert (running.returncode, printed) == (code, "")
        last = err.splitlines()[-1]
        assert last.startswith("bkmeta: stopped before the end; every write so far is recorded in")
        assert f"bkmeta apply {plan} --metadata" in last
        assert "--resume" in last
        assert "Traceback" not in err
        more = ["--resume"]
    again = process(*command)
    assert (again.code, "begun before" in again.err) == (2, True)
    done = process(*command, "--resume", "--json")
    assert done.code == 0, done.err
    tally = done.result["counts"]["create ledger"]
    assert (tally["planned"], tally["conflicts"]) == (10_000, 0)
    assert tally["written"] + tally["there"] == 10_000


def test_a_full_disk_under_a_journal(uri: str, raw: KazooClient, tmp_path: Path) -> None:
    """Nothing is written that is not announced there: exit code 6, and it is gone on with when there is room."""
    plan, digest = plan_for(uri, tmp_path, 400)
    command = ["apply", plan, "--metadata", uri, "--confirm", digest]
    later = on_a_disk_of(24, *command)
    assert (later.code, later.out) == (6, "")
    assert "journal.jsonl" in later.err
    assert "File too large" in later.err
    assert "--resume" in later.err
    assert "Traceback" not in later.err
    assert process(*command, "--resume").code == 0
    assert raw.exists(f"{root_of(uri)}/00/0000/L0399")


def test_a_journal_that_cannot_be_begun(uri: str, raw: KazooClient, tmp_path: Path) -> None:
    """The folder is named, and nothing is written to the store."""
    plan, digest = plan_for(uri, tmp_path)
    command = ["apply", plan, "--metadata", uri, "--confirm", digest, "--journal"]
    for folder, code in (("/proc/nowhere", 2), (plan / "journal", 1)):
        done = on_a_disk_of(0, *command, folder) if code == 1 else process(*command, folder)
        assert (done.code, done.out) == (code, "")
        assert str(folder) in done.err
        assert "Traceback" not in done.err
    assert not raw.exists(root_of(uri))


def test_guards_of_apply(uri: str, raw: KazooClient, tmp_path: Path) -> None:
    """Not confirmed, confirmed for another plan, another root, another cluster, running bookies: 5, nothing written."""
    plan, digest = plan_for(uri, tmp_path)
    root = root_of(uri)
    command = ["apply", plan, "--metadata", uri]

    def refused(*more: object, words: str) -> None:
        done = process(*command, *more)
        assert (done.code, done.out) == (5, "")
        assert words in done.err

    refused(words=f"--confirm {digest}")
    refused("--confirm", "0" * 64, words="another hash")
    done = process("apply", plan, "--metadata", uri + "-other", "--confirm", digest)
    assert (done.code, f"made for the root {root}" in done.err) == (5, True)
    raw.create(f"{root}/INSTANCEID", b"another-cluster", makepath=True)
    refused("--confirm", digest, words="another cluster's root")
    raw.delete(f"{root}/INSTANCEID")
    raw.create(f"{root}/available/b1:3181", b"", makepath=True)
    refused("--confirm", digest, words="1 bookie is running (b1:3181)")
    assert raw.get_children(root) == ["available"]
    assert not (plan / "journal").exists()


def test_what_stands_in_the_way_is_left(
    uri: str, raw: KazooClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A key with other bytes is a conflict: exit code 6, listed, as it was; all else is written."""
    plan, digest = plan_for(uri, tmp_path)
    key = f"{root_of(uri)}/00/0000/L0007"
    raw.create(key, b"somebody's", makepath=True)
    done = run(capsys, "apply", plan, "--metadata", uri, "--confirm", digest, "--json")
    assert done.code == 6
    assert [conflict["key"] for conflict in done.result["conflicts"]] == ["/00/0000/L0007"]
    assert raw.get(key)[0] == b"somebody's"
    assert done.result["counts"]["create ledger"]["written"] == 39


def test_a_store_that_may_not_be_written(uri: str, raw: KazooClient, tmp_path: Path) -> None:
    """Refused by the store's rights: said with the key, and nothing is there afterwards.

    In a store with rights of its own a person first says which the records shall have.
    """
    plan, digest = plan_for(uri, tmp_path)
    readable = [make_acl("world", "anyone", read=True)]
    raw.create(root_of(uri), b"", makepath=True)
    raw.set_acls(root_of(uri), readable)
    unsaid = process("apply", plan, "--metadata", uri, "--confirm", digest)
    assert (unsaid.code, unsaid.out, "--acl" in unsaid.err) == (5, "", True)
    for lacking in ("world:anyone:", "world:anyone:r"):
        locked = process("apply", plan, "--metadata", uri, "--confirm", digest, "--acl", lacking)
        assert (locked.code, "leaves this session without" in locked.err) == (5, True)
    done = process("apply", plan, "--metadata", uri, "--confirm", digest, "--acl", "world:anyone:cdrwa")
    assert (done.code, done.out) == (6, "")
    assert "access denied" in done.err
    assert raw.get_children(root_of(uri)) == []
