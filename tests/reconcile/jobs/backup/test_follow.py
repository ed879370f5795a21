"""A follower of files that nobody writes any more: what it captures, and what it leaves on the disk."""

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from backends.zkfiles.feed import ZooKeeperLogFeed
from reconcile.cli.output import Output
from reconcile.jobs.backup import follow
from reconcile.jobs.backup.follow import FollowRequest, FollowStatus, follow_store
from reconcile.jobs.context import Context
from reconcile.stores import NOBODY
from tests.support import cases

URI = "zk+hierarchical://127.0.0.1:1/ledgers"


def _follow(place: Path, monkeypatch: pytest.MonkeyPatch, looks: int, **options: Any) -> FollowStatus:
    """Follow the files of a server that is gone, until the time was asked for so often."""
    folder = cases.case_dir("c01") / "zookeeper"

    def open_feed(uri: str, tops: Any, **_: Any) -> ZooKeeperLogFeed:
        return ZooKeeperLogFeed(uri, [folder], tops, pause_s=0.01)

    monkeypatch.setattr(follow, "open_feed", open_feed)
    ended, asked = threading.Event(), [0]

    def now() -> datetime:
        asked[0] += 1
        if asked[0] >= looks:
            ended.set()
        return datetime.now(UTC)

    context = Context(NOBODY, Output(as_json=True, progress="none"), now)
    return follow_store(FollowRequest(URI, place, **options), context, ended, lambda _: None)


def test_a_store_in_which_nothing_happens_is_captured_once_in_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last transaction is of last year: one base a day is enough all the same."""
    status = _follow(tmp_path / "b", monkeypatch, 80)
    assert (status.bases, status.gaps) == (1, 0)
    assert len(list((tmp_path / "b" / "bases").iterdir())) == 1
    assert _follow(tmp_path / "b", monkeypatch, 80).bases == 1
