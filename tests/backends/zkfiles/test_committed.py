"""Servers that were away, were behind or lost their place prove again what they log; what is never proven is a gap."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from backends.zkfiles import committed
from backends.zkfiles.committed import CommittedLog
from backends.zkfiles.feed import ShownState
from backends.zkfiles.servers import find_all
from backends.zkfiles.tail import Broken, Logged
from tests.support.waiting import until
from tests.support.zookeeper_logs import EMPTY, LogFolder, Op, encode, write_snapshot

CONFIG: Final = b"".join(b"server.%d=127.0.0.1:1:2:participant\n" % number for number in (1, 2, 3))
READS: Final = 100
"""More than it takes until a log that broke is read again."""


class _Servers:
    """Folders of servers, and the committed transactions of their logs."""

    def __init__(self, folder: Path, count: int) -> None:
        self.logs = [self._make(folder / str(number)) for number in range(1, count + 1)]
        self.take_part(1)
        servers = find_all([log.folder.parent for log in self.logs])
        self.committed = CommittedLog(servers, 0, lambda *_: None, lambda: CONFIG)

    @staticmethod
    def _make(folder: Path) -> LogFolder:
        (folder / "version-2").mkdir(parents=True)
        (folder / "myid").write_text(folder.name)
        write_snapshot(folder / "version-2" / "snapshot.0", EMPTY, None)
        return LogFolder(folder / "version-2")

    def take_part(self, epoch: int) -> None:
        """Write an epoch down in all of them."""
        for log in self.logs:
            (log.folder / "currentEpoch").write_text(str(epoch))

    def append(self, epoch: int, counter: int, *numbers: int) -> None:
        """Have servers log a transaction."""
        zxid = (epoch << 32) + counter
        for number in numbers:
            self.logs[number - 1].append(zxid, encode(EMPTY, zxid, 1, [Op("open")], digests=False))

    def read(self, count: int = 1) -> list[int | Broken]:
        """Return the zxids that are given, and a break."""
        items = [item for _ in range(count) for item in self.committed.read(None)]
        return [item.zxid if isinstance(item, Logged) else item for item in items if isinstance(item, Logged | Broken)]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[_Servers]:
    """Three servers in epoch 1, that have logged nothing."""
    made = _Servers(tmp_path, 3)
    yield made
    made.committed.close()


def test_a_leader_that_comes_back_and_is_cut_proves_what_it_logs_then(servers: _Servers) -> None:
    """While it is cut back the others are ahead; then one of those dies. Two of three have the last transaction."""
    for counter in (1, 2):
        servers.append(1, counter, 1, 2, 3)
    servers.append(1, 3, 3)
    assert servers.read() == [0x1_0000_0001, 0x1_0000_0002]
    servers.take_part(2)
    servers.append(2, 1, 1, 2)
    assert servers.read(2) == [0x2_0000_0001]
    servers.logs[2].truncate(0x1_0000_0002)
    assert servers.read(5) == []
    servers.append(2, 1, 3)
    servers.append(2, 2, 1, 3)
    assert servers.read(READS) == [0x2_0000_0002]


def test_a_server_that_was_given_a_snapshot_proves_what_it_logs_then(servers: _Servers) -> None:
    """Its log lacks what the snapshot had, and goes on behind it: two of three have the last transaction."""
    servers.append(1, 1, 1, 2, 3)
    servers.append(1, 2, 1, 2)
    servers.append(1, 3, 1, 3)
    assert servers.read() == [0x1_0000_0001, 0x1_0000_0002]
    assert servers.read(READS) == [0x1_0000_0003]


def test_a_server_that_is_always_behind_is_read_on(servers: _Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what the others proved before it, nothing is kept that would end its reading."""
    monkeypatch.setattr(committed, "_PENDING", 4)
    for counter in range(1, 13):
        servers.append(1, counter, 1, 2)
        assert servers.read() == [(1 << 32) + counter]
        servers.append(1, counter, 3)
    servers.append(1, 13, 1, 3)
    assert servers.read(3) == [(1 << 32) + 13]


def test_too_much_without_a_proof_is_a_gap_once_a_later_epoch_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server says what clients see, and one log is no majority: its own epoch shows that the old one is over."""
    monkeypatch.setattr(committed, "_PENDING", 4)
    alone = _Servers(tmp_path, 1)
    for counter in range(1, 7):
        alone.append(1, counter, 1)
    assert alone.read(3) == []
    alone.take_part(2)
    [broken] = alone.read()
    alone.committed.close()
    assert isinstance(broken, Broken)
    assert "a later epoch has begun" in broken.why
    assert (broken.last, broken.following) == (0, 0x1_0000_0005)


class _Failing:
    def latest_txn(self) -> int:
        raise ZeroDivisionError("no such answer is known")

    def close(self) -> None:
        """Nothing is open."""


def test_a_question_that_fails_in_an_unknown_way_fails_the_feed() -> None:
    """What clients are shown would never change again: that is an error, and no wait without an end."""
    shown = ShownState(_Failing)

    def failed() -> bool:
        try:
            shown.take()
        except ZeroDivisionError:
            return True
        return False

    until(failed, "the failure is reported")
    shown.close()
