"""A follower of files that no server writes any longer: what it captures, and what it leaves on the disk."""

import tempfile
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from backends.zkfiles.feed import ZooKeeperLogFeed
from reconcile.cli.output import Output
from reconcile.jobs.backup import follow
from reconcile.jobs.backup.follow import FollowRequest, FollowStatus, follow_store
from reconcile.jobs.capture import capture_store
from reconcile.jobs.context import Context
from reconcile.stores import NOBODY
from recovery.backup.encryption import Recipient
from recovery.errors import DatasetError, InputError
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


@pytest.mark.parametrize("tool", [None, "age"])
def test_a_base_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str | None) -> None:
    """A full disk while it is captured: what was written of it goes, also what was not encrypted yet."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))

    def capture(_opened: Any, folder: Path, *_: Any, **__: Any) -> None:
        folder.mkdir()
        (folder / "part").write_bytes(b"a password")
        raise DatasetError(str(folder), "the disk is full", "make room")

    monkeypatch.setattr(follow, "capture_store", capture)
    with pytest.raises(DatasetError, match="the disk is full"):
        _follow(tmp_path / "b", monkeypatch, 80, recipient=None if tool is None else Recipient(tool, "age1x"))
    assert [path.name for path in [*(tmp_path / "b" / "bases").iterdir(), *temporary.iterdir()]] == []


def test_a_base_of_another_cluster_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store was made anew where it stood: its base is none of the backup's, and goes."""
    _follow(tmp_path / "b", monkeypatch, 80)
    monkeypatch.setattr(follow, "capture_store", lambda *a, **b: replace(capture_store(*a, **b), instance_id="another"))
    with pytest.raises(InputError, match="is of cluster instance another now"):
        _follow(tmp_path / "b", monkeypatch, 1 << 20, base_every=timedelta(0))
    assert len(list((tmp_path / "b" / "bases").iterdir())) == 1
