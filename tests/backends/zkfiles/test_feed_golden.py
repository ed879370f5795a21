"""Logs of a real ensemble after elections: what was never committed is in no base and in no row."""

import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from backends.errors import CorruptStoreError, UnavailableError
from backends.protocols import KEYS, FeedGap, Followed, ScannableStore
from backends.zkfiles.feed import ZooKeeperLogFeed
from backends.zkfiles.store import At, ZooKeeperFiles
from tests.backends.zkfiles.test_zkfiles_golden import DATA

COMMITTED: Final = 0x2_0000_0017
"""The last transaction of epoch 2 that most servers had; the killed leader has three more."""
LOOKS: Final = 6


class _Door:
    def __init__(self, zxid: int) -> None:
        self._zxid = zxid

    def take(self) -> tuple[int | None, list[tuple[int, int]]]:
        return self._zxid, [(1, self._zxid)]

    def close(self) -> None:
        """Nothing is open."""


def _feed(folder: Path, shown: int | None = None) -> ZooKeeperLogFeed:
    ticks = iter(range(0, 1 << 40, 5_000))
    door = None if shown is None else _Door(shown)
    return ZooKeeperLogFeed("zk", [folder], ["/"], shown=door, pause_s=0, clock_ms=lambda: next(ticks))


def _keys(store: Any) -> list[dict[str, Any]]:
    return sorted(pa.Table.from_batches(store.scan("/"), schema=KEYS).to_pylist(), key=lambda row: row["key"])


def _base(feed: ZooKeeperLogFeed) -> ScannableStore:
    base = feed.open_base()
    assert isinstance(base, ScannableStore)
    return base


def _steps(feed: ZooKeeperLogFeed, after: int) -> Iterator[Followed | FeedGap]:
    return islice(feed.follow(after), LOOKS)


def test_a_follower_s_log_is_shown_as_far_as_clients_were() -> None:
    """A base at the state that clients were shown is, key by key, what the files show at that transaction."""
    folder = DATA / "quorum-clean"
    for shown in (0x3_0000_0003, 0x3_0000_0007):
        base = _base(_feed(folder, shown))
        assert base.point().txn == shown
        assert _keys(base) == _keys(ZooKeeperFiles(folder, point=At(zxid=shown)))


def test_without_clients_a_later_epoch_proves_the_one_before() -> None:
    """Nobody can ask: the last epoch of the log proves all before it by its digests, and is itself not shown."""
    assert _base(_feed(DATA / "quorum-clean")).point().txn == COMMITTED


def test_what_a_killed_leader_logged_last_is_not_shown() -> None:
    """Its three last transactions are committed for nobody, whether its epoch is still shown or a later one is."""
    folder = DATA / "quorum-uncommitted-tail"
    assert _base(_feed(folder, COMMITTED)).point().txn == COMMITTED
    for step in _steps(_feed(folder, COMMITTED), 0x1_0000_0035):
        assert isinstance(step, Followed)
        assert step.through <= COMMITTED
    # The next epoch is shown, and not in this log: nothing of epoch 2 is proven, and what was before it is.
    assert _base(_feed(folder, 0x3_0000_0003)).point().txn == 0x1_0000_0035


def test_a_whole_snapshot_that_was_given_is_a_gap() -> None:
    """Behind the snapshot the three still stand in the old log: there is a gap, with no row of them, then a base."""
    feed = _feed(DATA / "quorum-rejoined", 0x3_0000_0007)
    steps = list(_steps(feed, COMMITTED))
    rows = [row for step in steps if isinstance(step, Followed) for row in step.rows.to_pylist()]
    assert rows == []
    assert isinstance(steps[-1], FeedGap)
    assert steps[-1].after == COMMITTED
    base = _base(feed)
    assert base.point().txn == 0x3_0000_0007
    assert _keys(base) == _keys(ZooKeeperFiles(DATA / "quorum-rejoined"))


def test_most_logs_prove_what_is_in_them(tmp_path: Path) -> None:
    """Folders of two of three servers, both still in the epoch: what both have is committed, what one has is not."""
    for number, name in ((1, "quorum-clean"), (2, "quorum-uncommitted-tail")):
        shutil.copytree(DATA / name / "version-2", tmp_path / str(number) / "version-2")
        (tmp_path / str(number) / "myid").write_text(str(number))
        (tmp_path / str(number) / "version-2" / "currentEpoch").write_text("2")
    (tmp_path / "1" / "version-2" / "log.300000001").unlink()
    base = _base(_feed(tmp_path))
    assert base.point().txn == COMMITTED
    # One of them went on with a later epoch: what it has of this one is no vote.
    (tmp_path / "1" / "version-2" / "currentEpoch").write_text("3")
    assert _base(_feed(tmp_path)).point().txn == 0x1_0000_0035


def test_a_session_s_end_removes_its_nodes_by_its_session() -> None:
    """Rows of v39-plain: each is what its log says; ephemeral nodes go with the session that owned them."""
    folder = DATA / "v39-plain"
    feed = _feed(folder)
    rows = [row for step in _steps(feed, 0) if isinstance(step, Followed) for row in step.rows.to_pylist()]
    told = [row for batch in ZooKeeperFiles(folder).history("/") for row in batch.to_pylist()]
    changes = [row for row in rows if row["op"] in ("created", "changed", "deleted")]
    names = ("key", "txn", "at_ms", "session", "op", "after")
    assert sorted(tuple(map(str, (row[name] for name in names))) for row in changes) == sorted(
        tuple(map(str, (row[name] for name in names))) for row in told
    )
    ended = [row for row in changes if row["op"] == "deleted" and row["owner"]]
    assert ended
    assert all(row["owner"] == row["session"] for row in ended)


def test_files_that_begin_behind_a_transaction_are_a_gap(tmp_path: Path) -> None:
    """What a backup has and the files do not have any more is not made up: the gap says what is there."""
    copy = Path(shutil.copytree(DATA / "v39-plain", tmp_path / "a")) / "version-2"
    for name in ("snapshot.0", "log.1"):
        (copy / name).unlink()
    [gap] = list(_steps(_feed(copy), 5))
    assert isinstance(gap, FeedGap)
    assert (gap.after, "no snapshot is as old" in gap.why) == (5, True)
    assert _base(_feed(copy)).point().txn == 0x2D


def test_no_base_is_older_than_the_gap_that_it_is_for(tmp_path: Path) -> None:
    """A log is gone, or damaged, and no snapshot is later: a base of what was before would take the backup back."""
    gone = Path(shutil.copytree(DATA / "v39-plain", tmp_path / "gone")) / "version-2"
    for name in ("snapshot.28", "log.1"):
        (gone / name).unlink()
    damaged = Path(shutil.copytree(DATA / "v39-plain", tmp_path / "damaged")) / "version-2"
    raw = bytearray((damaged / "log.29").read_bytes())
    raw[len(raw.rstrip(b"\0")) // 2] ^= 0xFF
    (damaged / "log.29").write_bytes(raw)
    for folder, after in ((gone, 0x28), (damaged, 0x28)):
        feed = _feed(folder)
        _base(feed)
        gap = list(_steps(feed, after))[-1]
        assert isinstance(gap, FeedGap)
        assert gap.after >= after
        with pytest.raises(UnavailableError, match=f"changes are missing after {gap.after:#x}"):
            feed.open_base()


def test_another_history_is_not_followed() -> None:
    """Clients are shown less than was followed: it is another store; where no client says so, it is waited for."""
    with pytest.raises(CorruptStoreError, match="another history"):
        list(_steps(_feed(DATA / "v39-plain", 0x2D), 0x5000))
    assert all(isinstance(step, Followed) for step in _steps(_feed(DATA / "v39-plain"), 0x5000))


def test_a_folder_without_servers_is_waited_for(tmp_path: Path) -> None:
    """A server that has not started yet has no files: there is no base, and following says nothing happened."""
    feed = _feed(tmp_path)
    with pytest.raises(UnavailableError, match="no store there"):
        feed.open_base()
    assert all(isinstance(step, Followed) and step.through == 7 for step in _steps(feed, 7))
