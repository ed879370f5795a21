"""What the service keeps at hand: captures that are made again in time, and registrations that are watched."""

import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

from backends.errors import UnavailableError
from backends.registry import OpenStore
from reconcile.jobs.impact.cache import find_newest
from reconcile.service.config import read_config
from reconcile.service.runs import present
from reconcile.service.runs.children import Children, Finished
from reconcile.service.runs.present import BookieWatch, KeptRecords
from tests.support.impacts import write_catalog
from tests.support.memory_store import MemoryStore
from tests.support.service import make_context, write_config
from tests.support.waiting import until

BEGIN = datetime(2026, 3, 4, tzinfo=UTC)
URI = "etcd://127.0.0.1:1/l"


class Captures(Children):
    """In place of processes: writes a catalog; the first one fails."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[list[str]] = []
        self.held = threading.Event()
        self.held.set()

    def run(self, words: Sequence[str], *_: Any, **__: Any) -> Finished:
        """Capture, as soon as nothing holds it."""
        self.begun.append(list(words))
        self.held.wait()
        if len(self.begun) == 1:
            return Finished(1, {}, "the store does not answer")
        write_catalog(Path(words[words.index("--out") + 1]), (), ())
        return Finished(0, {}, "")


def test_captures_are_made_again_before_they_are_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed one is tried again, a young one left; at half of its age the next is made; who asks waits for it."""
    monkeypatch.setattr(present, "_AGAIN_S", 0.01)
    config = read_config(write_config(tmp_path, URI, "one", tmp_path / "data", background=True))
    age, captures = [timedelta(0)], Captures()
    records = KeptRecords(config, make_context(lambda: BEGIN + age[0]), captures)
    monkeypatch.setattr(records._stopping, "wait", lambda _: records._stopping.is_set())
    keeping = threading.Thread(target=records.keep)
    keeping.start()
    until(lambda: find_newest(URI, records.folder) == BEGIN, "a capture after the one that failed")
    assert len(captures.begun) == 2
    age[0] = timedelta(minutes=4, seconds=59)
    records.await_capture(60, threading.Event())
    assert find_newest(URI, records.folder) == BEGIN
    captures.held.clear()
    age[0] = timedelta(minutes=11)
    until(lambda: len(captures.begun) == 3, "the next one")
    asked = threading.Thread(target=records.await_capture, args=(60, threading.Event()))
    asked.start()
    asked.join(0.3)
    assert asked.is_alive()
    captures.held.set()
    asked.join()
    assert find_newest(URI, records.folder) == BEGIN + age[0]
    records.stop()
    keeping.join()
    assert captures.begun[0][:3] == ["capture", "--metadata", URI]


class Watched(MemoryStore):
    """A store that tells names; the first time it stops answering."""

    left: ClassVar[list[list[frozenset[str]]]] = []

    def watch_names(self, keys: Sequence[str]) -> Iterator[frozenset[str]]:
        """Tell the next names."""
        assert list(keys) == ["/l/available", "/l/available/readonly"]
        if not self.left:
            return
        yield from self.left.pop(0)
        raise UnavailableError(URI, "gone")


def test_each_change_of_who_is_registered_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what was there first, nor the same again after the store was away."""
    one, folder = "/l/available/bk1:3181", "/l/available/readonly"
    monkeypatch.setattr(present, "_AGAIN_S", 0.01)
    Watched.left = [[frozenset({one, folder}), frozenset({folder})], [frozenset()], [frozenset({one})]]
    monkeypatch.setattr(present, "connect", lambda *_, **__: OpenStore(Watched(), "/l", "hierarchical", URI))
    changes: list[int] = []
    watch = BookieWatch(URI, make_context(), lambda: changes.append(len(Watched.left)))
    watching = threading.Thread(target=watch.watch)
    watching.start()
    until(lambda: len(changes) == 2, "both changes")
    watch.stop()
    watching.join()
    assert changes == [2, 0]
