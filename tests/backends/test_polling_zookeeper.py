"""A live ZooKeeper that is polled: what is put together from a base and its rows is what stands there."""

import random
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.security import make_acl

from backends.protocols import FeedGap, Followed
from backends.zookeeper import polling
from backends.zookeeper.polling import PolledTree, PollingFeed
from backends.zookeeper.reader import ZooKeeperReader
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.real

Shown = dict[str, tuple[Any, ...]]


@pytest.fixture
def client(zookeeper_server: ZooKeeperServer) -> Iterator[KazooClient]:
    """A session with the server."""
    client = KazooClient(zookeeper_server.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


def _show(base: PolledTree, top: str) -> Shown:
    columns = ("value", "version", "acl", "created_txn", "owner", "children_created")
    rows = [row for batch in base.scan(top) for row in batch.to_pylist()]
    return {row["key"]: tuple(row[name] for name in columns) for row in rows}


def _fold(shown: Shown, step: Followed) -> None:
    for row in step.rows.to_pylist():
        key = row["key"]
        match row["op"]:
            case "created":
                columns = ("after", "version", "acl", "created_txn", "owner", "children_created")
                shown[key] = tuple(row[name] for name in columns)
            case "changed":
                assert row["before"] == shown[key][0]
                shown[key] = (row["after"], row["version"], *shown[key][2:])
            case "children":
                shown[key] = (*shown[key][:5], row["children_created"])
            case "deleted":
                assert row["before"] == shown.pop(key)[0]


def _change(client: KazooClient, top: str, chance: random.Random) -> None:
    key = f"{top}/{chance.randrange(5)}"
    value = chance.randbytes(5)
    try:
        match chance.randrange(6):
            case 0:
                client.create(key, value)
            case 1:
                client.create(f"{key}/{chance.randrange(3)}", value)
            case 2:
                client.set(key, value)
            case 3:
                client.delete(key, recursive=True)
            case 4:
                client.create(f"{key}-", value, sequence=True, ephemeral=True)
            case _:
                client.create(key, value, acl=[make_acl("world", "anyone", read=True)])
    except KazooException:
        pass  # not every change can be made


@pytest.mark.parametrize("rows", [polling._ROWS, 3])
def test_a_base_with_its_rows_is_what_stands_there(
    rows: int, zookeeper_server: ZooKeeperServer, client: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each pass behind the last change, keys, values, versions, rights of creation, owners and counters agree.

    So it is where a pass is given in several parts, each of whole transactions.
    """
    monkeypatch.setattr(polling, "_ROWS", rows)
    top = f"/poll-{uuid4()}"
    client.create(top)
    chance = random.Random(35)
    feed = PollingFeed(ZooKeeperReader(zookeeper_server.hosts), [top], pause_s=0)
    try:
        base = feed.open_base()
        shown = _show(base, top)
        given = base.point().txn or 0
        steps = feed.follow(given)
        for _ in range(12):
            for _ in range(25):
                _change(client, top, chance)
            client.sync("/")
            last = client.last_zxid
            for step in steps:
                assert isinstance(step, Followed)
                assert all(given < txn <= step.through for txn in step.rows["txn"].to_pylist())
                given = step.through
                _fold(shown, step)
                if step.through >= last:
                    break
            with_reader = PollingFeed(ZooKeeperReader(zookeeper_server.hosts), [top])
            assert shown == _show(with_reader.open_base(), top)
            with_reader.close()
    finally:
        feed.close()


def test_polling_that_begins_again_goes_on_only_where_nothing_changed(
    zookeeper_server: ZooKeeperServer, client: KazooClient
) -> None:
    """Another feed goes on where nothing changed since; else there is a gap: removals are not known."""
    top = f"/poll-{uuid4()}"
    client.create(top)
    client.create(f"{top}/a")
    after = client.exists(f"{top}/a").czxid
    feed = PollingFeed(ZooKeeperReader(zookeeper_server.hosts), [top], pause_s=0)
    steps = feed.follow(after)
    assert all(isinstance(next(steps), Followed) for _ in range(6))
    feed.close()
    client.delete(f"{top}/a")
    feed = PollingFeed(ZooKeeperReader(zookeeper_server.hosts), [top], pause_s=0)
    last = [step for step in feed.follow(after) if isinstance(step, FeedGap)]
    assert [gap.after for gap in last] == [after]
    feed.close()


def test_nodes_that_one_transaction_made_with_those_above_them_are_seen(
    zookeeper_server: ZooKeeperServer, client: KazooClient
) -> None:
    """In a base, and in what follows: none of the nodes above was changed since it was made."""
    top = f"/poll-{uuid4()}"

    def make(*names: str) -> None:
        transaction = client.transaction()
        for name in names:
            transaction.create(f"{top}{name}", b"x")
        assert all(isinstance(made, str) for made in transaction.commit())

    make("", "/a", "/a/b", "/a/b/c")
    feed = PollingFeed(ZooKeeperReader(zookeeper_server.hosts), [top], pause_s=0)
    try:
        base = feed.open_base()
        shown = _show(base, top)
        assert set(shown) == {top, f"{top}/a", f"{top}/a/b", f"{top}/a/b/c"}
        make("/d", "/d/e")
        client.sync("/")
        for step in feed.follow(base.point().txn or 0):
            assert isinstance(step, Followed)
            _fold(shown, step)
            if step.through >= client.last_zxid:
                break
        assert {f"{top}/d", f"{top}/d/e"} <= set(shown)
    finally:
        feed.close()


def test_what_polling_cannot_know_is_said(zookeeper_server: ZooKeeperServer, client: KazooClient) -> None:
    """A base says that it was polled, and what is not seen; a removal has neither time nor session."""
    top = f"/poll-{uuid4()}"
    client.create(top)
    client.create(f"{top}/a", b"v")
    feed = PollingFeed(ZooKeeperReader(zookeeper_server.hosts), [top], pause_s=0)
    base = feed.open_base()
    assert feed.means == "polling"
    assert any("made and removed between two passes" in note for note in base.point().notes)
    client.delete(f"{top}/a")
    rows: list[dict[str, Any]] = []
    for step in feed.follow(base.point().txn or 0):
        assert isinstance(step, Followed)
        rows += step.rows.to_pylist()
        if any(row["op"] == "deleted" for row in rows):
            break
    feed.close()
    [row] = [row for row in rows if row["op"] == "deleted"]
    assert (row["key"], row["before"], row["at_ms"], row["session"]) == (f"{top}/a", b"v", None, None)
    assert row["txn"] == client.exists(top).pzxid
