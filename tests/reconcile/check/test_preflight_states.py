"""Every state of a store in which bookies may delete, with and without registered bookies and inventories.

What a state does to bookies that run: docs/operations/safety.md. Who reads "next" does just that, so it must never
be to collect, which takes hours, while bookies can delete.
"""

import itertools
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Self

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from recovery.codecs.cookie import Cookie, encode
from recovery.codecs.store import Layout, layout_bytes, ledger_key
from recovery.model.ids import LedgerId
from tests.support.command import run
from tests.support.inventories import write_inventory
from tests.support.waiting import free_port
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.real

BOOKIES = ("b1", "b2")
HELD = range(20)
_ROOTS = itertools.count()
FREEZE, STOP, COLLECT, ASK = (
    "bkmeta freeze",
    "stop every bookie",
    "if metadata may be lost: kill -STOP every bookie until it is compared; on each bookie's host: bkmeta collect",
    "connect as an identity",
)
STOP_FIRST = "kill -STOP every bookie until it is compared"
CAPTURE = "bkmeta capture"

# state of the store, bookies registered in it, inventories given: level, exit code, what the next command begins with
STATES = [
    ("unreachable", False, False, "undecided", 4, "stop the bookies"),
    ("unreachable", False, True, "undecided", 4, "stop the bookies"),
    ("listing fails", True, False, "undecided", 4, ASK),
    ("listing fails", True, True, "undecided", 4, ASK),
    ("listing fails", False, False, "undecided", 4, ASK),
    ("listing fails", False, True, "undecided", 4, ASK),
    ("empty", True, False, "critical", 3, FREEZE),
    ("empty", True, True, "critical", 3, FREEZE),
    ("empty", False, False, "warning", 3, STOP_FIRST),
    ("empty", False, True, "critical", 3, FREEZE),
    ("emptied", True, False, "critical", 3, FREEZE),
    ("emptied", True, True, "critical", 3, FREEZE),
    ("emptied", False, False, "critical", 3, FREEZE),
    ("emptied", False, True, "critical", 3, FREEZE),
    ("only cookies left", False, False, "critical", 3, FREEZE),
    ("missing", False, False, "critical", 3, FREEZE),
    ("missing", False, True, "critical", 3, FREEZE),
    ("partial", True, False, "undecided", 4, COLLECT),
    ("partial", True, True, "critical", 3, FREEZE),
    ("partial", False, False, "undecided", 4, COLLECT),
    ("partial", False, True, "critical", 3, FREEZE),
    ("partial, no LAYOUT", True, False, "warning", 3, STOP_FIRST),
    ("partial, no LAYOUT", False, False, "warning", 3, STOP_FIRST),
    ("partial, no LAYOUT", False, True, "critical", 3, FREEZE),
    ("partial, no LAYOUT", True, True, "critical", 3, FREEZE),
    ("another cluster's", True, False, "undecided", 4, COLLECT),
    ("another cluster's", True, True, "critical", 3, "stop every bookie that was collected"),
    ("another cluster's", False, False, "undecided", 4, COLLECT),
    ("another cluster's", False, True, "critical", 3, FREEZE),
    ("initialised again", True, False, "critical", 3, FREEZE),
    ("initialised again", True, True, "critical", 3, FREEZE),
    ("initialised again", False, False, "critical", 3, FREEZE),
    ("initialised again", False, True, "critical", 3, FREEZE),
    ("whole", True, False, "undecided", 4, COLLECT),
    ("whole", True, True, "ok", 0, CAPTURE),
    ("whole", False, False, "undecided", 4, COLLECT),
    ("whole", False, True, "ok", 0, CAPTURE),
]  # fmt: skip


class Later(datetime):
    """A clock two days ahead: a store that is made now is no longer doubted because it is young."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        """Return the time of the day after tomorrow."""
        return super().now(tz) + timedelta(days=2)


@pytest.fixture
def client(zookeeper_server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[KazooClient]:
    """A plain client that makes what the tests need; the program has no credentials."""
    monkeypatch.delenv("BKMETA_ZK_AUTH", raising=False)
    monkeypatch.setattr("reconcile.cli.options.datetime", Later)
    client = KazooClient(zookeeper_server.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


def made(client: KazooClient, root: str, state: str, *, registered: bool) -> None:
    """Make a store in a state."""
    strangers = state == "another cluster's"
    instance = "theirs" if strangers else "new" if state == "initialised again" else "ours"
    bookies = ("x1", "x2") if strangers else BOOKIES
    kept = {"empty": 0, "partial": 10, "partial, no LAYOUT": 10}.get(state, len(HELD))
    nodes = {"/available/readonly": b"", "/idgen": b"", "/INSTANCEID": instance.encode()}
    if state != "partial, no LAYOUT":
        nodes["/LAYOUT"] = layout_bytes(Layout.HIERARCHICAL)
    for bookie in bookies:
        named = "ours" if state == "initialised again" else instance
        nodes[f"/cookies/{bookie}"] = encode(Cookie(5, bookie, ("/j",), ("/l",), None, named))
    nodes |= {ledger_key(Layout.HIERARCHICAL, LedgerId(0, ledger)): b"record" for ledger in HELD[:kept]}
    if state in ("emptied", "only cookies left"):
        client.create(root, makepath=True)
        nodes = {key: value for key, value in nodes.items() if "cookies" in key and state != "emptied"}
    for key, value in nodes.items():
        client.create(root + key, value, makepath=True)
    for bookie in bookies if registered else ():
        client.create(f"{root}/available/{bookie}", b"", ephemeral=True, makepath=True)
    if state == "listing fails":
        client.set_acls(f"{root}/00", [make_acl("digest", "somebody:hash", all=True)])


@pytest.mark.parametrize(("state", "registered", "compared", "level", "code", "following"), STATES)
def test_what_preflight_makes_of_a_state_and_what_comes_next(
    zookeeper_server: ZooKeeperServer,
    client: KazooClient,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    state: str,
    registered: bool,
    compared: bool,
    level: str,
    code: int,
    following: str,
) -> None:
    """The level, the exit code, and the next command; where bookies can delete it is to stop or to freeze them."""
    root = f"/states-{next(_ROOTS)}"
    hosts = zookeeper_server.hosts
    if state == "unreachable":
        hosts = f"127.0.0.1:{free_port()}"
    elif state != "missing":
        made(client, root, state, registered=registered)
    arguments = ["--metadata", f"zk+hierarchical://{hosts}{root}"]
    for bookie in BOOKIES if compared else ():
        inventory = write_inventory(
            tmp_path / bookie,
            bookie,
            HELD,
            instance="ours",
            formatted=[datetime.now(UTC)],
            ended=Later.now(UTC) - timedelta(minutes=5),
        )
        arguments += ["--inventory", str(inventory)]
    done = run(capsys, "preflight", *arguments, "--json")
    result = done.result
    if state == "emptied":
        # Nothing in it says the layout: neither LAYOUT nor, as here, the URI.
        unnamed = run(capsys, "preflight", "--metadata", f"zk+null://{hosts}{root}", *arguments[2:], "--json").result
        assert unnamed["level"] == level
        assert "kill -STOP" in unnamed["next"]
    assert (result.get("level", "undecided"), done.code) == (level, code), result["findings"]
    assert following in result["next"]
    if level == "critical":
        assert "bkmeta collect" not in result["next"]


def test_the_next_command_uses_what_was_given(
    zookeeper_server: ZooKeeperServer,
    client: KazooClient,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The incident file and its folder for inventories: a line to copy keeps them, and has no secret in it."""
    root = f"/states-{next(_ROOTS)}"
    file = tmp_path / "incident.toml"
    file.write_text(f'store = "zk+hierarchical://{zookeeper_server.hosts}{root}"\ninventories = "inv"\n')
    arguments = ("preflight", "--incident", file)
    made(client, root, "emptied", registered=False)
    assert run(capsys, *arguments).out.endswith(f"next: bkmeta freeze --incident {file}\n")
    client.create(f"{root}/LAYOUT", layout_bytes(Layout.HIERARCHICAL))
    said = run(capsys, *arguments).out
    assert f"bkmeta collect --bookie-conf bk_server.conf --out {tmp_path / 'inv'}/BOOKIE; " in said
    assert said.endswith(f"then: bkmeta preflight --incident {file}\n")


@pytest.mark.parametrize("running", [False, True])
def test_what_comes_next_where_bookies_were_stopped_needs_no_freeze(
    zookeeper_server: ZooKeeperServer,
    client: KazooClient,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    running: bool,
) -> None:
    """Where nothing answers; one that answers although it is not registered is named, and freeze is next."""
    root = f"/states-{next(_ROOTS)}"
    client.create(root, makepath=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        bookies = [f"127.0.0.1:{server.getsockname()[1]}", f"127.0.0.1:{free_port()}"]
        arguments = ["preflight", "--metadata", f"zk+hierarchical://{zookeeper_server.hosts}{root}"]
        for number, bookie in enumerate(bookies):
            ended = Later.now(UTC) - timedelta(minutes=5)
            folder = write_inventory(tmp_path / f"b{number}", bookie, HELD, instance="ours", ended=ended)
            arguments += ["--inventory", str(folder)]
        if running:
            threading.Thread(target=_answer, args=(server, 2), daemon=True).start()
        else:
            server.close()
        done = run(capsys, *arguments, "--json")
        said = run(capsys, *arguments).out
    result = done.result
    assert (done.code, result["level"]) == (3, "critical")
    assert {bookie["id"]: bookie["answers"] for bookie in result["bookies"]} == dict(
        zip(bookies, (running, False), strict=True)
    )
    if running:
        assert result["next"].startswith("bkmeta freeze ")
        assert f"running, they answered: {bookies[0]}. " in said
    else:
        assert result["next"].startswith("nothing answers at the addresses of the 2 bookies known here")
        assert "keep it so until apply has ended, and: bkmeta recover --inventory" in result["next"]
        assert f"else: bkmeta freeze --metadata {arguments[2]}" in result["next"]


def _answer(server: socket.socket, requests: int) -> None:
    """Answer so many requests as a bookie does: a frame's length comes first."""
    for _ in range(requests):
        connection, _address = server.accept()
        with connection:
            connection.recv(1)
            connection.sendall((4).to_bytes(4) + bytes(4))
            connection.recv(1 << 16)
