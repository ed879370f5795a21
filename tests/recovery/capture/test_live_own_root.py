"""bkmeta's own root beside the ledgers is in every capture, whole, at the keys that it has in the store."""

import threading
from pathlib import Path

import pytest

from backends.errors import AccessDeniedError
from backends.protocols import Versioned, Write
from recovery.capture.catalog_store import CatalogStore
from recovery.codecs.store import Layout
from tests.recovery.capture.test_scan import fill, run
from tests.support.memory_store import MemoryStore
from tests.support.scannable_store import ScannableMemory

MOST_TOGETHER = 4
OWN = {
    "/ledgers-bkmeta": b"mark",
    "/ledgers-bkmeta/tombstones": b"",
    "/ledgers-bkmeta/tombstones/t0": b"left",
    "/ledgers-bkmeta/tombstones/t1": b"right",
    "/ledgers-bkmeta/archive": b"",
    "/ledgers-bkmeta/archive/t": b"marks",
}


def put_own(store: MemoryStore) -> None:
    """Write our own root, and what looks like it."""
    for key, value in {**OWN, "/ledgers-bkmeta2": b"another's", "/ledgers-old": b"another's"}.items():
        store.write([Write(key, value)])


@pytest.mark.parametrize("kind", [MemoryStore, ScannableMemory])
def test_a_capture_has_it_at_its_keys(kind: type[MemoryStore], tmp_path: Path) -> None:
    """Read live or at once, the catalog as a store has every node of it, and no more than before of the ledgers."""
    bare, source = kind(), kind()
    for store in (bare, source):
        fill(store, Layout.HIERARCHICAL)
    put_own(source)
    without, _ = run(bare, tmp_path / "bare")
    summary, catalog = run(source, tmp_path / "one")
    assert summary.complete
    assert (summary.ledgers, summary.nodes) == (without.ledgers, without.nodes)
    copy = CatalogStore(catalog, "/ledgers")
    for key, value in OWN.items():
        held, theirs = copy.get(key), source.get(key)
        assert held is not None
        assert theirs is not None
        assert (held.value, held.version) == (value, theirs.version)
        assert sorted(copy.children(key) or ()) == sorted(source.children(key) or ()), key
    assert sorted(copy.children("/") or ()) == ["ledgers", "ledgers-bkmeta"]
    assert copy.get("/ledgers-bkmeta2") is None
    again, twice = run(copy, tmp_path / "two")
    assert again.complete
    assert twice.read("own_root").num_rows == catalog.read("own_root").num_rows == len(OWN)


@pytest.mark.parametrize("kind", [MemoryStore, ScannableMemory])
def test_it_is_there_when_the_ledgers_root_is_lost(kind: type[MemoryStore], tmp_path: Path) -> None:
    """A root that is gone takes no tombstone with it."""
    source = kind()
    put_own(source)
    summary, catalog = run(source, tmp_path / "one", Layout.HIERARCHICAL)
    assert summary.root == "missing"
    assert catalog.read("own_root").num_rows == len(OWN)


@pytest.mark.parametrize("kind", [MemoryStore, ScannableMemory])
def test_who_looks_only_does_not_read_it(kind: type[MemoryStore], tmp_path: Path) -> None:
    """It may be as large as all the ledgers; the capture has these, and is whole without it."""
    source = kind()
    fill(source, Layout.HIERARCHICAL)
    put_own(source)
    whole, _ = run(source, tmp_path / "whole")
    summary, catalog = run(source, tmp_path / "look", with_own_root=False)
    assert (summary.ledgers, summary.nodes, summary.complete) == (whole.ledgers, whole.nodes, True)
    assert catalog.read("own_root").num_rows == 0


class Narrow(MemoryStore):
    """Notes how many nodes of our own root are asked for together."""

    def __init__(self) -> None:
        super().__init__()
        self._asked = threading.Condition()
        self._together = 0
        self.most = 0

    def get(self, key: str) -> Versioned | None:
        """Return what stands at a key; of a tombstone's node after all that are asked for with it have come."""
        if "/tombstones/t" in key:
            with self._asked:
                self._together += 1
                self.most = max(self.most, self._together)
                self._asked.notify_all()
                self._asked.wait_for(lambda: self._together > MOST_TOGETHER, timeout=0.05)
                self._together -= 1
        return super().get(key)


def test_its_nodes_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    """Half a MiB each: a server would answer all of a million deletes with a quarter of a gigabyte at once."""
    source = Narrow()
    fill(source, Layout.HIERARCHICAL)
    names = [f"t{number:05b}" for number in range(32)]
    source.write([Write(f"/ledgers-bkmeta/tombstones/{name}", name.encode()) for name in names])
    _, catalog = run(source, tmp_path / "one")
    paths = catalog.read("own_root")["path"].to_pylist()
    assert sorted(path.rpartition("/")[2] for path in paths if "/t" in path and path[-1] in "01") == names
    assert 1 <= source.most <= MOST_TOGETHER


class Splitting(MemoryStore):
    """Splits a node into its halves when it is read for the first time."""

    is_split = False

    def get(self, key: str) -> Versioned | None:
        """Return what stands at a key, after the split."""
        if key == "/ledgers-bkmeta/tombstones/t0" and not self.is_split:
            self.is_split = True
            held = super().get(key)
            assert held is not None
            halves = [Write(f"{key}{digit}", digit.encode(), None) for digit in "01"]
            self.write([*halves, Write(key, None, held.version)])
        return super().get(key)


def test_a_node_that_is_split_meanwhile_is_read_by_its_halves(tmp_path: Path) -> None:
    """Every place is there once."""
    source = Splitting()
    fill(source, Layout.HIERARCHICAL)
    put_own(source)
    summary, catalog = run(source, tmp_path / "one")
    assert summary.complete
    names = [path.rpartition("/")[2] for path in catalog.read("own_root")["path"].to_pylist() if "/t" in path]
    assert sorted(names) == ["t", "t00", "t01", "t1", "tombstones"]


class Denying(MemoryStore):
    """Lets nobody read our own root."""

    def get(self, key: str) -> Versioned | None:
        """Refuse our own root."""
        if key.startswith("/ledgers-bkmeta"):
            raise AccessDeniedError(self.uri, key)
        return super().get(key)


def test_one_that_may_not_be_read_is_a_gap(tmp_path: Path) -> None:
    """A capture without the tombstones that there are is not whole, and says so."""
    source = Denying()
    fill(source, Layout.HIERARCHICAL)
    put_own(source)
    summary, _ = run(source, tmp_path / "one")
    assert not summary.complete
    assert "/ledgers-bkmeta" in "".join(summary.gaps) or "-bkmeta" in "".join(summary.gaps)
