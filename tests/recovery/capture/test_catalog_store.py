"""A catalog as a store: whatever was captured is there again, at the same keys."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.errors import ReadOnlyStoreError, UnavailableError, UnsupportedStoreError
from backends.protocols import ScannableStore, Write
from reconcile.stores import open_store
from recovery.capture.catalog_store import CatalogStore
from recovery.capture.live import capture
from recovery.codecs import store
from recovery.codecs.store import Layout
from recovery.dataset import DatasetWriter, open_dataset
from recovery.errors import DatasetError
from recovery.model.ids import LedgerId
from tests.recovery.capture.test_scan import READ_AT, RECORD, fill
from tests.support.scannable_store import ScannableMemory


def captured(source: Any, folder: Path, root: str = "/ledgers") -> CatalogStore:
    """Capture a store, and open what was written as a store."""
    with DatasetWriter(folder, "catalog", binding={"root": root}, secret=True) as out:
        capture(source, root, None, out, clock=lambda: READ_AT)
    return CatalogStore(open_dataset(folder, "catalog"), root)


@pytest.fixture(params=[one for one in Layout if one not in (Layout.LONGLONGHIERARCHICAL, Layout.ETCD)])
def original(request: pytest.FixtureRequest) -> ScannableMemory:
    """A store of each layout."""
    made = ScannableMemory()
    fill(made, request.param)
    made.put("/ledgers/cookies/b1:3181-old", b"old")
    return made


def test_a_catalog_of_a_catalog_is_the_same_catalog(original: ScannableMemory, tmp_path: Path) -> None:
    """Ledgers, nodes, history, point: nothing is lost or made up on the way through a store."""
    once = captured(original, tmp_path / "one")
    captured(once, tmp_path / "two")
    first, second = (open_dataset(tmp_path / name, "catalog") for name in ("one", "two"))
    for table in ("ledgers", "history"):
        assert first.read(table).equals(second.read(table)), table
    nodes = [sorted(d.read("nodes").to_pylist(), key=lambda row: row["path"]) for d in (first, second)]
    assert nodes[0] == nodes[1]
    one, two = (d.read("sources").to_pylist()[0] for d in (first, second))
    assert {**one, "uri": "", "kind": ""} == {**two, "uri": "", "kind": ""}
    assert isinstance(once, ScannableStore)


def test_every_key_and_every_name_is_there_again(original: ScannableMemory, tmp_path: Path) -> None:
    """Values, versions and stamps of every key; the children of every key, the folders of ledgers among them."""
    copy = captured(original, tmp_path / "one")
    for key in ["/", *original.dump()]:
        assert copy.children(key) == original.children(key), key
        ours, theirs = copy.get(key), original.get(key)
        assert ours is not None
        assert theirs is not None
        assert ours.value == theirs.value
        if theirs.value:
            # A ledger's node is not numbered from.
            assert ours == replace(theirs, children_created=ours.children_created, children_txn=None)
    for key in ("/ledgers/nothing", "/ledgers/00/0000/L0002", "/elsewhere", "/ledgers/cookies/b1:3181/below"):
        assert copy.get(key) is None
        assert copy.children(key) is None
    asked = ["/ledgers/LAYOUT", "/nothing"]
    assert [key for key, _ in copy.get_many(asked)] == asked


def test_nothing_is_ever_written_to_a_catalog(tmp_path: Path) -> None:
    """Not by a write, not by raising a counter; nor is it opened for that; and a point in time is its own."""
    source = ScannableMemory()
    fill(source, Layout.HIERARCHICAL)
    copy = captured(source, tmp_path / "one")
    with pytest.raises(ReadOnlyStoreError):
        copy.write([Write("/ledgers/x", b"")])
    with pytest.raises(ReadOnlyStoreError):
        copy.raise_counter("/ledgers/idgen", 5)
    uri = f"catalog://{tmp_path / 'one'}"
    with pytest.raises(UnsupportedStoreError, match="never written"):
        open_store(uri, writable=True)
    with pytest.raises(UnsupportedStoreError, match="one point in time"):
        open_store(uri, at="5")
    with pytest.raises(DatasetError, match="no such folder"):
        open_store("catalog:///nowhere/at/all")
    copy.close()
    with pytest.raises(UnavailableError):
        copy.get("/ledgers")


def test_a_catalog_is_opened_by_its_uri_or_its_folder(tmp_path: Path) -> None:
    """With the root and the layout of the store that it was made from."""
    source = ScannableMemory()
    fill(source, Layout.LONGHIERARCHICAL, "/chroot/ledgers")
    captured(source, tmp_path / "one", "/chroot/ledgers")
    key = "/chroot/ledgers" + store.ledger_key(Layout.LONGHIERARCHICAL, LedgerId(7, 1))
    for uri in (f"catalog://{tmp_path / 'one'}", str(tmp_path / "one")):
        with open_store(uri) as opened:
            assert (opened.root, opened.layout_hint) == ("/chroot/ledgers", "longhierarchical")
            held = opened.store.get(key)
            assert held is not None
            assert held.value == RECORD
            assert opened.store.children("/chroot") == ["ledgers"]
