"""Elections on real servers: one leader at a time, and a leader that is cut off knows it before another one leads."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from backends.errors import UnavailableError, UnsupportedStoreError
from backends.protocols import Election
from backends.registry import open_election
from tests.support.etcd_server import EtcdServer
from tests.support.failing_stores import Proxy
from tests.support.waiting import until
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.real

SESSION_S = 3.0
Open = Callable[[str, str], Election]


class Instance:
    """One that campaigns in a thread of its own, and what it was told, with times."""

    def __init__(self, election: Election) -> None:
        self.election = election
        self.told: list[tuple[str, float]] = []
        self._thread: threading.Thread | None = None

    def campaign(self) -> None:
        """Begin; what comes of it is told."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            won = self.election.campaign(lambda: self._tell("lost"))
        except UnavailableError:
            self._tell("unavailable")
        else:
            self._tell("leads" if won else "closed")

    def _tell(self, word: str) -> None:
        self.told.append((word, time.monotonic()))

    @property
    def words(self) -> list[str]:
        """What it was told."""
        return [word for word, _ in self.told]

    def is_told(self, word: str) -> bool:
        """Whether it was told so last."""
        return self.words[-1:] == [word]


@pytest.fixture(params=["zookeeper", "etcd"])
def cluster(
    request: pytest.FixtureRequest, zookeeper_server: ZooKeeperServer, etcd_server: EtcdServer, tmp_path: Path
) -> Iterator[tuple[str, Callable[..., Instance]]]:
    """Give the server's hosts, and a function that makes an instance, by way of other hosts if they are named."""
    is_zookeeper = request.param == "zookeeper"
    server = zookeeper_server if is_zookeeper else etcd_server
    scheme = "zk+hierarchical" if is_zookeeper else "etcd"
    with ExitStack() as stack:

        def make(name: str, hosts: str | None = None) -> Instance:
            uri = f"{scheme}://{hosts or server.hosts}{tmp_path}"
            election = open_election(uri, f"{tmp_path}-bkmeta/leader", name, session_s=SESSION_S)
            stack.callback(election.close)
            return Instance(election)

        yield server.hosts, make


def test_the_second_leads_when_the_first_resigns_and_can_lead_again(
    cluster: tuple[str, Callable[..., Instance]],
) -> None:
    """Nobody is told of a loss for it; who waits and closes never leads."""
    _, make = cluster
    first, second = make("first"), make("second")
    first.campaign()
    until(lambda: first.is_told("leads"), "the first leads")
    second.campaign()
    first.election.resign()
    until(lambda: second.is_told("leads"), "the second leads")
    first.campaign()
    first.election.close()
    until(lambda: first.is_told("closed"), "the first gave up")
    assert first.words == ["leads", "closed"]
    assert second.words == ["leads"]


def test_a_leader_that_is_cut_off_is_told_before_another_one_leads(
    cluster: tuple[str, Callable[..., Instance]],
) -> None:
    """By its own clock, while the store still takes it for the leader."""
    hosts, make = cluster
    host, port = hosts.split(":")
    with Proxy(host, int(port)) as proxy:
        first, second = make("first", proxy.hosts), make("second")
        first.campaign()
        until(lambda: first.is_told("leads"), "the first leads")
        second.campaign()
        proxy.down()
        until(lambda: second.is_told("leads"), "the second leads")
        assert first.words == ["leads", "lost"]
        assert first.told[-1][1] < second.told[-1][1]
        first.election.resign()
        first.campaign()
        until(lambda: first.is_told("unavailable"), "the first is told that nothing answers")


def test_files_elect_no_leader(tmp_path: Path) -> None:
    """Only a live store knows who lives."""
    with pytest.raises(UnsupportedStoreError, match="name the live store"):
        open_election(f"zkfiles://{tmp_path}", "/x", "first")
