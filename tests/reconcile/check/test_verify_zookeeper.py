"""What was written, proved as it is typed: rehearse and verify on a real ZooKeeper and real bookies' disks."""

import base64
import dataclasses
import itertools
from pathlib import Path

import pytest

from backends.protocols import Write
from backends.registry import open_store
from recovery.dataset import Dataset
from tests.support import cases
from tests.support.command import run
from tests.support.plan_folder import of_truth, write_plan
from tests.support.zookeeper_server import ZooKeeperServer

_roots = itertools.count()


@pytest.fixture
def made(tmp_path: Path) -> Dataset:
    """A plan with the true records of a real cluster's closed ledgers."""
    rows = cases.truth("c01")["ledgers"]
    known = [base64.b64decode(row["password"]) for row in rows]
    return write_plan(tmp_path / "plan", [of_truth(row) for row in rows], passwords=known)


@pytest.fixture
def uri(zookeeper_server: ZooKeeperServer) -> str:
    """A root that nobody has."""
    return f"zk+hierarchical://{zookeeper_server.hosts}/verify-{next(_roots)}/ledgers"


def _disks(*leave_out: int) -> list[str]:
    return [
        argument
        for bookie in cases.truth("c01")["bookies"]
        if bookie["n"] not in leave_out
        for argument in ("--disk", f"{bookie['id']}={cases.case_dir('c01') / 'bookies' / 'b'}{bookie['n']}")
    ]


def test_a_rehearsal_is_read_back_and_removed(made: Dataset, uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Written, read back, entries checked, said how to look at it; twice is once; --remove leaves nothing."""
    first = run(capsys, "rehearse", made.path, "--metadata", uri, *_disks(), "--json")
    assert first.code == 0, first.out
    assert first.result["counts"]["entries"]["readable"] == first.result["counts"]["entries"]["looked_at"] == 1174
    assert first.result["coverage"]["read_back"] == made.rows("actions")
    again = run(capsys, "rehearse", made.path, "--metadata", uri)
    assert again.code == 0
    assert "--remove" in again.out
    gone = run(capsys, "rehearse", made.path, "--metadata", uri, "--remove", "--json")
    assert (gone.code, gone.result["counts"]["removed"] > 33) == (0, True)
    assert "no such root" in run(capsys, "rehearse", made.path, "--metadata", uri, "--remove").out


def test_a_root_that_is_not_ours_is_refused_with_5(made: Dataset, uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An existing root is neither written to nor removed, and the message names a way out."""
    with open_store(uri, writable=True) as opened:
        opened.store.write([Write(opened.root + "/LAYOUT", b"1\nflat:1")])
        for extra in ((), ("--remove",)):
            done = run(capsys, "rehearse", made.path, "--metadata", uri, *extra)
            assert (done.code, "not marked" in done.err) == (5, True)
        assert opened.store.children(opened.root) == ["LAYOUT"]


def test_verify_tells_readable_from_not_looked_at_from_gone(
    made: Dataset, uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """All disks: 0. A bookie's disks left out: 4, and it is named. A record gone: 3, whatever else."""
    assert run(capsys, "rehearse", made.path, "--metadata", uri).code == 0
    good = run(capsys, "verify", made.path, "--metadata", uri, "--sample", "all", *_disks())
    assert good.code == 0, good.out
    assert good.out.startswith("33 of 33 ledgers are readable")
    less = run(capsys, "verify", made.path, "--metadata", uri, *_disks(0), "--json")
    assert (less.code, list(less.result["coverage"]["without_disks"])) == (4, ["10.0.0.1:3181"])
    some = run(capsys, "verify", made.path, "--metadata", uri, "--sample", "4", *_disks(), "--json")
    assert (some.code, some.result["coverage"]["looked_at"]) == (0, 4)
    assert some.result["coverage"]["sample_seed"] == made.manifest["hash"][:16]
    key = next(row["key"] for row in made.read("actions").to_pylist() if row["kind"] == "ledger")
    with open_store(uri, writable=True) as opened:
        opened.store.write([Write(opened.root + key, None, 0)])
    gone = run(capsys, "verify", made.path, "--metadata", uri, "--sample", "all", *_disks(0))
    assert gone.code == 3
    assert "no record" in gone.out


def test_locks_are_looked_at_again(uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All there, and young: 0, and when to look again. One gone: 3, whatever the sample, and how to make it again.

    A rehearsal has its locks in its own root; with them it goes.
    """
    rows = cases.truth("c01")["ledgers"]
    known = [base64.b64decode(row["password"]) for row in rows]
    guards = itertools.cycle(["lock", None, "named"])
    ledgers = [dataclasses.replace(of_truth(row), guard=next(guards)) for row in rows]
    path = write_plan(tmp_path / "plan", ledgers, passwords=known).path
    written = run(capsys, "rehearse", path, "--metadata", uri, "--json").result["counts"]["writes"]["lock lock"]
    assert (written["planned"], written["written"]) == (11, 11)
    look = ("verify", path, "--metadata", uri, *_disks())
    good = run(capsys, *look, "--json")
    assert good.code == 0
    states = {"kept": 11, "gone": 0, "released": 0, "unreleased": 0, "named": 11, "exposed": 0, "replaced": 0}
    states |= {"reuse_kept": 0, "reuse_gone": 0, "reuse_over": 0}
    assert good.result["counts"]["guards"] == states
    assert good.result["looked_at_locks_early"]
    words = run(capsys, *look).out
    assert "younger than five minutes" in words
    assert "replication must stay disabled" in words
    with open_store(uri, writable=True) as opened:
        name = (opened.store.children(f"{opened.root}/underreplication/locks") or [])[3]
        opened.store.write([Write(f"{opened.root}/underreplication/locks/{name}", None, 0)])
    gone = run(capsys, *look, "--sample", "1", "--json")
    assert (gone.code, gone.result["counts"]["guards"]["gone"]) == (3, 1)
    assert [one["ledger"] for one in gone.result["guards"]] == [str(int(name.removeprefix("urL")))]
    assert "--journal" in run(capsys, *look, "--sample", "1").out
    assert run(capsys, "rehearse", path, "--metadata", uri, "--remove").code == 0
    with open_store(uri) as opened:
        assert opened.store.children(opened.root) is None


@pytest.mark.parametrize(
    "arguments",
    [
        ["--sample", "0"],
        ["--sample", "most"],
        ["--disk", "b1"],
        ["--disk", "=/x"],
        ["--disk", "b1=/no/such/folder"],
    ],
)
def test_what_cannot_be_used_is_usage(
    made: Dataset, uri: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Options that say nothing, and folders that are not there, end with exit code 2 and their names."""
    if "--disk" not in arguments:
        arguments = [*arguments, *_disks()]
    done = run(capsys, "verify", made.path, "--metadata", uri, *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err


def test_no_disks_are_no_verification(made: Dataset, uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without any disks there is nothing to read entries from: that is usage, not an answer."""
    done = run(capsys, "verify", made.path, "--metadata", uri)
    assert (done.code, "--disk" in done.err) == (2, True)
