"""`explain` asks a real ZooKeeper for one record: where the layout has it, without its password, without a write."""

import base64
import itertools
from pathlib import Path
from typing import Any

import pytest

from backends.protocols import Write
from backends.registry import open_store
from tests.support import cases
from tests.support.command import run
from tests.support.zookeeper_server import ZooKeeperServer

_roots = itertools.count()


@pytest.fixture
def root(zookeeper_server: ZooKeeperServer) -> str:
    """Servers and a ledgers root with LAYOUT, two cookies and one true record with a password, as in a URI."""
    where = f"{zookeeper_server.hosts}/explain-{next(_roots)}/ledgers"
    with open_store(f"zk+hierarchical://{where}", writable=True) as opened:
        key = _row()["path"].removeprefix("/ledgers")
        opened.store.write(
            [
                Write(opened.root + "/LAYOUT", b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"),
                Write(opened.root + "/cookies/b1", b""),
                Write(opened.root + "/cookies/b2", b""),
                Write(opened.root + key, base64.b64decode(_row()["raw"])),
            ]
        )
    return where


def _row() -> dict[str, Any]:
    return next(r for r in cases.truth("c01")["ledgers"] if r["password"] == base64.b64encode(b"hunter2").decode())


@pytest.mark.parametrize("scheme", ["zk+hierarchical", "zk"])
def test_the_record_is_found_and_shown(scheme: str, root: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By the layout that the URI names, or that LAYOUT does; with its version and times, and without its password."""
    done = run(capsys, "explain", _row()["ledger"], "--metadata", f"{scheme}://{root}", "--json")
    assert (done.code, done.result["standing"]) == (0, "settled")
    assert done.result["stored"]["last entry"] == str(_row()["last"])
    assert done.result["stored"]["password"] == "set, not shown"
    assert "hunter2" not in done.out
    assert "its record was created" in done.result["timeline"][0]


def test_a_guarded_ledger_waits_to_be_settled(root: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Readable, and not done: by the lock that stands for it, live or in a capture; a worker's lock says nothing."""
    uri, ledger = f"zk://{root}", _row()["ledger"]
    key = f"/underreplication/locks/urL{ledger:010d}"
    for holder, code in (("worker-1", 0), ("bkmeta-guard 0123456789abcdef", 3)):
        with open_store(uri, writable=True) as opened:
            held = opened.store.get(opened.root + key)
            value = f'bookieId: "{holder}"\n'.encode()
            opened.store.write([Write(opened.root + key, value, None if held is None else held.version)])
        catalog = tmp_path / holder[:6]
        assert run(capsys, "capture", "--metadata", uri, "--out", catalog).code == 0
        for source in (uri, f"catalog://{catalog}"):
            done = run(capsys, "explain", ledger, "--metadata", source, "--json")
            assert (done.code, "guarded" in done.result["verdict"]) == (code, code == 3)


def test_a_ledger_that_the_store_lacks_may_be_on_its_bookies(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The cookies name bookies that were not looked at, so nothing is certain: exit code 4, and their names."""
    done = run(capsys, "explain", 999, "--metadata", f"zk://{root}", "--json")
    assert done.code == 4
    assert done.result["coverage"]["not_scanned"] == ["b1", "b2"]
    assert done.result["stored"] is None


def test_without_a_layout_nothing_is_guessed(
    zookeeper_server: ZooKeeperServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where neither the URI nor the store names a layout, another key would be read: that is usage."""
    done = run(capsys, "explain", 1, "--metadata", f"zk://{zookeeper_server.hosts}/nothing-here/ledgers")
    assert (done.code, "layout" in done.err) == (2, True)


def test_asking_writes_nothing(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No node is made, changed or touched by an explanation."""

    def seen() -> list[Any]:
        with open_store(f"zk://{root}") as opened:
            return [
                opened.store.children(opened.root),
                opened.store.get(opened.root),
                opened.store.get(opened.root + _row()["path"].removeprefix("/ledgers")),
            ]

    before = seen()
    run(capsys, "explain", _row()["ledger"], "--metadata", f"zk://{root}")
    assert seen() == before
