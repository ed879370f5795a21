"""Logs of real servers followed while clients write and servers are killed: all values come out as they stand there."""

import random
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError, NotEmptyError

from backends.errors import UnavailableError
from backends.protocols import Followed, ScannableStore
from backends.zkfiles.feed import ShownState, ZooKeeperLogFeed
from backends.zookeeper.reader import ZooKeeperReader
from tests.support.waiting import until
from tests.support.zookeeper_server import ZooKeeperServer, ensemble

pytestmark = pytest.mark.real

TOP = "/ledgers"
_REFUSED = (NodeExistsError, NoNodeError, NotEmptyError)


class Follower:
    """A feed that is followed in a thread, and the values that it comes to.

    Attributes:
        through: last transaction that was given.
        values: by key.
        gaps: how often it had to begin with a base again.
        error: why it ended, if it failed.
    """

    def __init__(self, feed: ZooKeeperLogFeed) -> None:
        self._feed = feed
        self.through = -1
        self.values: dict[str, bytes] = {}
        self.gaps = -1
        self.error: BaseException | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self._follow()
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.error = error

    def _follow(self) -> None:
        try:
            base = self._feed.open_base()
        except UnavailableError:
            return
        assert isinstance(base, ScannableStore)
        self.values = {row["key"]: row["value"] for batch in base.scan(TOP) for row in batch.to_pylist()}
        self.through = base.point().txn or 0
        self.gaps += 1
        for step in self._feed.follow(self.through):
            if not isinstance(step, Followed):
                return
            for row in step.rows.to_pylist():
                self._take(row)
            self.through = step.through

    def _take(self, row: dict[str, Any]) -> None:
        key = row["key"]
        if row["op"] in ("changed", "deleted"):
            assert row["before"] == self.values[key]
        if row["op"] == "deleted":
            del self.values[key]
        elif row["op"] in ("created", "changed"):
            assert (row["op"] == "created") == (key not in self.values)
            self.values[key] = row["after"]

    def await_through(self, zxid: int) -> None:
        """Wait until all up to a transaction was given."""
        until(lambda: self.error is not None or self.through >= zxid, f"{zxid:#x} was followed")
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """End it."""
        self._ended.set()
        self._feed.close()
        self._thread.join()


@contextmanager
def _client(hosts: str) -> Iterator[KazooClient]:
    client = KazooClient(hosts, connection_retry={"max_tries": -1, "max_delay": 1})
    client.start(timeout=120)
    yield client
    client.stop()
    client.close()


def _write(client: KazooClient, chance: random.Random, count: int) -> None:
    """Make so many changes, whatever the servers do meanwhile."""
    done = 0
    while done < count:
        key = f"{TOP}/{chance.randrange(40)}"
        value = chance.randbytes(30)
        try:
            match chance.randrange(4):
                case 0:
                    client.create(key, value)
                case 1:
                    client.set(key, value)
                case 2:
                    client.delete(key)
                case _:
                    transaction = client.transaction()
                    transaction.create(f"{key}-m", value)
                    transaction.delete(f"{TOP}/{chance.randrange(40)}-m")
                    transaction.commit()
        except _REFUSED:
            pass
        except KazooException:
            client.handler.sleep_func(0.05)
            continue
        done += 1


def _last(client: KazooClient) -> int:
    """Return a transaction after all that was acknowledged: one is made."""
    return int(client.set(TOP, b"end").mzxid)


def _read(client: KazooClient) -> dict[str, bytes]:
    values = {TOP: client.get(TOP)[0]}
    for name in client.get_children(TOP):
        values[f"{TOP}/{name}"] = client.get(f"{TOP}/{name}")[0]
    return values


def _feed(folders: Sequence[Path], hosts: str | None) -> ZooKeeperLogFeed:
    shown = None if hosts is None else ShownState(lambda: ZooKeeperReader(hosts, patience_s=5))
    return ZooKeeperLogFeed("zk", folders, [TOP], shown=shown, pause_s=0.05)


def _is_leader(server: ZooKeeperServer) -> bool:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(b"srvr")
        answer = b""
        while part := connection.recv(1 << 12):
            answer += part
    return b"Mode: leader" in answer


def test_a_server_that_is_killed_again_and_again_is_followed(tmp_path: Path) -> None:
    """Logs roll, snapshots are written, the server dies and starts: no gap, and every value is the server's."""
    server = ZooKeeperServer(tmp_path, settings="snapCount=80\npreAllocSize=64")
    server.start()
    chance = random.Random(35)
    try:
        with _client(server.hosts) as client:
            client.create(TOP)
            follower = Follower(_feed([server.data_dir], None))
            for _ in range(3):
                _write(client, chance, 120)
                server.restart()
            _write(client, chance, 20)
            follower.await_through(_last(client))
            assert follower.values == _read(client)
            follower.close()
            assert follower.gaps == 0
    finally:
        server.kill()


def test_an_ensemble_whose_leader_is_killed_is_followed(tmp_path: Path) -> None:
    """One participant's log beside what clients are shown, and the logs of all three: both come to the same values."""
    chance = random.Random(36)
    with ensemble(tmp_path) as servers:
        hosts = ",".join(server.hosts for server in servers)
        with _client(hosts) as client:
            client.create(TOP)
            leader = next(server for server in servers if _is_leader(server))
            other = next(server for server in servers if server is not leader)
            followers = [
                Follower(_feed([other.data_dir], hosts)),
                Follower(_feed([server.data_dir for server in servers], None)),
            ]
            _write(client, chance, 100)
            leader.kill()
            _write(client, chance, 100)
            leader.launch()
            leader.await_answer()
            _write(client, chance, 50)
            last, values = _last(client), _read(client)
            for follower in followers:
                follower.await_through(last)
                assert follower.values == values
                follower.close()
