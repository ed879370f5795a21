"""Capture: what a store holds ends in the catalog, and what could not be read is said."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from backends.errors import AccessDeniedError, UnavailableError
from backends.protocols import MetadataStore, Versioned, Write
from recovery.capture.live import capture
from recovery.capture.summary import CaptureSummary
from recovery.codecs import ledger_metadata, store
from recovery.codecs.store import Layout
from recovery.dataset import Dataset, DatasetWriter, open_dataset
from recovery.errors import DatasetError, InputError
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.support.memory_store import MemoryStore

AT = datetime(2026, 7, 1, 12, tzinfo=UTC)
RECORD = ledger_metadata.encode(
    LedgerMetadata(
        3, 1, 1, 1, LedgerState.CLOSED, 2, 30, (Segment(0, ("b1:3181",)),), Digest.CRC32, b"pw", creator_token=0
    )
)
IDS = (0, 1, 9999, 10000, 2147483646)
LONG_IDS = (2147483647, 4294967296, (1 << 63) - 1)
SCOPED = (LedgerId(7, 0), LedgerId(7, 1), LedgerId(-1, -1))


def tree(layout: Layout, *, root: str = "/ledgers", now_ms: int = 1_700_000_000_123) -> MemoryStore:
    """A store with ledgers wherever the layout keeps them, scopes included, and the nodes beside them."""
    made = MemoryStore(lambda: now_ms)
    nodes = {
        store.LAYOUT: store.layout_bytes(layout),
        store.INSTANCE_ID: b"d1a6f3b2-0c6e-4a57-9a5b-5d0d1c2e3f40",
        "/cookies/b1:3181": b"5\n",
        "/available/readonly": b"",
        "/idgen": b"",
        "/underreplication/ledgers/0000/0000/0000/0001/urL0000000001": b'replica: "b1:3181"\n',
        "/underreplication/disable": b"",
        store.SCOPED: store.SCOPED_MARKER,
        **{store.ledger_key(layout, ledger): RECORD for ledger in expected(layout)},
    }
    for key, value in nodes.items():
        made.write([Write(root + key, value)])
    made.put_ephemeral(f"{root}/available/b1:3181", b"", 77)
    return made


def expected(layout: Layout) -> set[LedgerId]:
    """The ledgers of `tree`."""
    ids = IDS if layout is Layout.LEGACY else IDS + LONG_IDS
    return {LedgerId(0, ledger) for ledger in ids} | set(SCOPED)


def run(source: MetadataStore, folder: Path, *, layout: Layout | None = None) -> tuple[CaptureSummary, Dataset]:
    """Capture into a folder, and open what was written."""
    with DatasetWriter(folder, "catalog", binding={}, secret=True) as out:
        summary = capture(source, "/ledgers", layout, out, clock=lambda: AT)
    return summary, open_dataset(folder, "catalog")


def ledgers_of(dataset: Dataset) -> set[LedgerId]:
    """The ids that a catalog lists, each once."""
    rows = [LedgerId(row["scope"], row["ledger"]) for row in dataset.read("ledgers").to_pylist()]
    assert len(rows) == len(set(rows))
    return set(rows)


def source_of(dataset: Dataset) -> dict[str, Any]:
    """The one row about the source."""
    (row,) = dataset.read("sources").to_pylist()
    return dict(row)


@dataclass
class Flawed:
    """A store of which some keys are refused, and some vanish between being named and being read."""

    inner: MemoryStore
    denied: set[str] = field(default_factory=set)
    vanished: set[str] = field(default_factory=set)
    down: set[str] = field(default_factory=set)
    reads: int = 0

    @property
    def uri(self) -> str:
        """As of the store itself."""
        return self.inner.uri

    def _check(self, key: str) -> bool:
        self.reads += 1
        if key in self.denied:
            raise AccessDeniedError(key)
        if key in self.down:
            raise UnavailableError(self.uri, "gone")
        return key not in self.vanished

    def get(self, key: str) -> Versioned | None:
        """Refuse, or answer."""
        return self.inner.get(key) if self._check(key) else None

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Versioned | None]]:
        """Stop at the first refusal, as the protocol's adapters do."""
        for key in keys:
            found = self.get(key)
            yield key, found and replace(found, acl=None)

    def children(self, key: str) -> list[str] | None:
        """Refuse, or answer."""
        return self.inner.children(key) if self._check(key) else None

    def write(self, changes: Any) -> list[int]:
        """A capture writes nothing."""
        raise AssertionError(changes)

    def raise_counter(self, key: str, beyond: int) -> int:
        """A capture writes nothing."""
        raise AssertionError(key, beyond)

    def close(self) -> None:
        """The caller's business."""


@pytest.mark.parametrize("layout", [layout for layout in Layout if layout is not Layout.ETCD])
def test_every_ledger_of_a_layout_is_captured(layout: Layout, tmp_path: Path) -> None:
    """Short, long and scoped ids: each ledger once, with its bytes, its stamps and its parsed fields."""
    summary, dataset = run(tree(layout), tmp_path / "out", layout=layout)
    assert ledgers_of(dataset) == expected(layout)
    assert summary.complete
    assert (summary.ledgers, summary.unparsable, summary.vanished) == (len(expected(layout)), 0, 0)
    for row in dataset.read("ledgers").to_pylist():
        assert row["raw"] == RECORD
        assert row["bucket"] == LedgerId(row["scope"], row["ledger"]).bucket
        assert (row["version"], row["error"], row["state"], row["last_entry"]) == (0, None, "CLOSED", 2)
        assert row["created_at"] == datetime(2023, 11, 14, 22, 13, 20, 123000, UTC)


def test_every_other_node_is_captured_with_its_kind(tmp_path: Path) -> None:
    """Cookies, registrations, generators, marks, LAYOUT: path, bytes, session, counter; rights but for marks."""
    _, dataset = run(tree(Layout.HIERARCHICAL), tmp_path / "out")
    nodes = {row["path"]: row for row in dataset.read("nodes").to_pylist()}
    assert {path: row["kind"] for path, row in nodes.items() if row["kind"] != "other"} == {
        "/LAYOUT": "layout",
        "/INSTANCEID": "instance_id",
        "/cookies/b1:3181": "cookie",
        "/available/b1:3181": "registration",
        "/idgen": "generator",
        "/underreplication/ledgers/0000/0000/0000/0001/urL0000000001": "mark",
    }
    assert {"/", "/underreplication/disable", "/available/readonly", "/scoped"} < set(nodes)
    assert not any(path.startswith(("/00", "/000", "/scoped/")) for path in nodes)
    assert (nodes["/available/b1:3181"]["owner"], nodes["/cookies/b1:3181"]["owner"]) == (77, None)
    assert nodes["/cookies"]["children_created"] == 1
    assert nodes["/LAYOUT"]["acl"] == "world:anyone:cdrwa"


def test_the_source_is_described(tmp_path: Path) -> None:
    """One row says what was read, when, and that it was all; the manifest says it too."""
    summary, dataset = run(tree(Layout.HIERARCHICAL), tmp_path / "out")
    source = source_of(dataset)
    assert source["uri"] == "memory:/ledgers"
    assert (source["layout"], source["instance_id"]) == ("hierarchical", "d1a6f3b2-0c6e-4a57-9a5b-5d0d1c2e3f40")
    assert (source["complete"], source["root"], source["gaps"], source["at"]) == (True, "present", [], AT)
    assert source["txn"] > 0
    assert dataset.manifest["coverage"]["complete"] is True
    assert dataset.manifest["coverage"]["ledgers"] == summary.ledgers


def test_a_missing_root_is_stated(tmp_path: Path) -> None:
    """No root is an answer: complete, no rows, and not to be confused with an empty root."""
    summary, dataset = run(MemoryStore(), tmp_path / "out")
    assert (summary.root, summary.complete, summary.layout, summary.ledgers, summary.nodes) == (
        "missing",
        True,
        None,
        0,
        0,
    )
    assert source_of(dataset)["root"] == "missing"
    assert dataset.rows("ledgers") == dataset.rows("nodes") == 0


def test_an_empty_root_is_stated(tmp_path: Path) -> None:
    """A root without ledgers is present, and complete."""
    empty = MemoryStore()
    empty.write([Write("/ledgers", b"")])
    summary, dataset = run(empty, tmp_path / "out", layout=Layout.LONGHIERARCHICAL)
    assert (summary.root, summary.complete, summary.ledgers, summary.layout) == ("present", True, 0, "longhierarchical")
    assert [row["path"] for row in dataset.read("nodes").to_pylist()] == ["/"]


def test_without_a_layout_nothing_is_guessed(tmp_path: Path) -> None:
    """No LAYOUT, one that cannot be read, or one that contradicts the operator: refused, and nothing is written."""
    empty = MemoryStore()
    empty.write([Write("/ledgers", b"")])
    with pytest.raises(InputError, match="no layout was named"):
        run(empty, tmp_path / "out")
    empty.write([Write("/ledgers/LAYOUT", b"2\norg.example.Other:1")])
    with pytest.raises(InputError, match="cannot be used"):
        run(empty, tmp_path / "out")
    with pytest.raises(InputError, match="says hierarchical"):
        run(tree(Layout.HIERARCHICAL), tmp_path / "out", layout=Layout.LONGHIERARCHICAL)
    with pytest.raises(DatasetError):
        open_dataset(tmp_path / "out", "catalog")


def test_a_damaged_layout_does_not_stop_who_names_one(tmp_path: Path) -> None:
    """With the layout named, a LAYOUT that cannot be read is a node like any other."""
    damaged = tree(Layout.HIERARCHICAL)
    damaged.write([Write("/ledgers/LAYOUT", b"\xff", 0)])
    summary, dataset = run(damaged, tmp_path / "out", layout=Layout.HIERARCHICAL)
    assert ledgers_of(dataset) == expected(Layout.HIERARCHICAL)
    assert summary.complete


def test_a_damaged_instance_id_is_unknown(tmp_path: Path) -> None:
    """It is kept as a node, and no id is made up."""
    damaged = tree(Layout.HIERARCHICAL)
    damaged.write([Write("/ledgers/INSTANCEID", b"\xff", 0)])
    summary, dataset = run(damaged, tmp_path / "out")
    assert summary.instance_id is None
    assert b"\xff" in dataset.read("nodes")["raw"].to_pylist()


def test_a_bad_record_is_a_row(tmp_path: Path) -> None:
    """It has its bytes and its error; the others are read."""
    bad = tree(Layout.HIERARCHICAL)
    bad.write([Write("/ledgers/00/0000/L0001", b"zzz", 0)])
    summary, dataset = run(bad, tmp_path / "out")
    assert (summary.unparsable, summary.complete) == (1, True)
    (row,) = [row for row in dataset.read("ledgers").to_pylist() if row["error"]]
    assert (row["ledger"], row["raw"], row["version"], row["state"]) == (1, b"zzz", 1, None)
    assert row["error"].startswith("bad_magic")


def test_what_is_no_ledgers_key_is_kept_as_a_node(tmp_path: Path) -> None:
    """Foreign names, ids in the wrong tree and unknown folders are in the catalog, with all below them."""
    strays = [
        "/00/0000/tmp7",
        "/21/4748/L3647",
        "/00/backup/x/y",
        "/foreign/deep/node",
        "/scoped/0000/0000/0000/0000/0000/0000/0000/L0001",
        "/scoped/zzzz",
    ]
    odd = tree(Layout.HIERARCHICAL)
    for key in strays:
        odd.write([Write("/ledgers" + key, RECORD)])
    summary, dataset = run(odd, tmp_path / "out")
    assert summary.complete
    assert ledgers_of(dataset) == expected(Layout.HIERARCHICAL)
    nodes = {row["path"]: row for row in dataset.read("nodes").to_pylist()}
    for key in strays:
        assert (nodes[key]["raw"], nodes[key]["kind"]) == (RECORD, "other")


def test_what_may_not_be_read_is_a_gap(tmp_path: Path) -> None:
    """A refused record, folder or node costs itself only, and the catalog says that it is not complete."""
    flawed = Flawed(
        tree(Layout.HIERARCHICAL),
        denied={
            "/ledgers/00/0000/L0001",
            "/ledgers/000/0000/0021/4748",
            "/ledgers/cookies/b1:3181",
            "/ledgers/foreign",
        },
    )
    flawed.inner.write([Write("/ledgers/foreign", b"")])
    summary, dataset = run(flawed, tmp_path / "out")
    assert ledgers_of(dataset) == expected(Layout.HIERARCHICAL) - {LedgerId(0, 1), LedgerId(0, 2147483647)}
    assert not summary.complete
    assert sorted(summary.gaps) == [
        "/00/0000/L0001: access denied, not read",
        "/000/0000/0021/4748: access denied, not listed",
        "/cookies/b1:3181: access denied, not read",
        "/foreign: access denied, not listed",
        "/foreign: access denied, not read",
    ]
    assert (source_of(dataset)["complete"], source_of(dataset)["gaps"]) == (False, list(summary.gaps))


def test_a_folder_that_vanishes_is_a_gap(tmp_path: Path) -> None:
    """What was listed and is not there any more may have held ledgers."""
    flawed = Flawed(tree(Layout.HIERARCHICAL), vanished={"/ledgers/00/0001"})
    summary, dataset = run(flawed, tmp_path / "out")
    assert ledgers_of(dataset) == expected(Layout.HIERARCHICAL) - {LedgerId(0, 10000)}
    assert summary.gaps == ("/00/0001: named by the folder above it, and not to be found when listed",)


def test_a_ledger_that_vanishes_was_deleted(tmp_path: Path) -> None:
    """Removed between listing and reading, it is as if it had been removed before; it is counted."""
    flawed = Flawed(tree(Layout.HIERARCHICAL), vanished={"/ledgers/00/0000/L0001"})
    summary, dataset = run(flawed, tmp_path / "out")
    assert ledgers_of(dataset) == expected(Layout.HIERARCHICAL) - {LedgerId(0, 1)}
    assert (summary.complete, summary.vanished) == (True, 1)


def test_many_refusals_cost_one_read_each(tmp_path: Path) -> None:
    """A store that refuses everything is asked once or twice a key, and the gaps stay a short list."""
    closed = MemoryStore()
    keys = [store.ledger_key(Layout.HIERARCHICAL, LedgerId(0, ledger)) for ledger in range(1500)]
    for key in keys:
        closed.write([Write("/ledgers" + key, RECORD)])
    flawed = Flawed(closed, denied={"/ledgers" + key for key in keys})
    summary, dataset = run(flawed, tmp_path / "out", layout=Layout.HIERARCHICAL)
    assert flawed.reads < 2 * len(keys)
    assert (dataset.rows("ledgers"), summary.complete) == (0, False)
    assert len(summary.gaps) == 1001
    assert summary.gaps[-1] == "and 500 more"


def test_a_store_that_stops_answering_leaves_no_catalog(tmp_path: Path) -> None:
    """Half a catalog must not pass for one: the error goes up, and the folder has no manifest."""
    for key in ("/ledgers/00/0000/L0001", "/ledgers/00/0000", "/ledgers/cookies/b1:3181"):
        with pytest.raises(UnavailableError):
            run(Flawed(tree(Layout.HIERARCHICAL), down={key}), tmp_path / "out")
        with pytest.raises(DatasetError):
            open_dataset(tmp_path / "out", "catalog")


def test_a_root_that_may_not_be_listed_is_an_error(tmp_path: Path) -> None:
    """Nothing can be said about a store whose root is refused; least of all that it is empty."""
    with pytest.raises(AccessDeniedError):
        run(Flawed(tree(Layout.HIERARCHICAL), denied={"/ledgers"}), tmp_path / "out")


def test_a_refused_layout_does_not_stop_who_names_one(tmp_path: Path) -> None:
    """Refused nodes beside the ledgers are gaps; only where nothing names the layout is the refusal an error."""
    flawed = Flawed(tree(Layout.HIERARCHICAL), denied={"/ledgers/LAYOUT", "/ledgers/INSTANCEID"})
    with pytest.raises(AccessDeniedError):
        run(flawed, tmp_path / "out")
    summary, dataset = run(flawed, tmp_path / "out", layout=Layout.HIERARCHICAL)
    assert ledgers_of(dataset) == expected(Layout.HIERARCHICAL)
    assert sorted(summary.gaps) == ["/INSTANCEID: access denied, not read", "/LAYOUT: access denied, not read"]


def test_progress_ends_where_it_said(tmp_path: Path) -> None:
    """Anybody who is told hears rising numbers below their estimate, and at the end that all is done."""
    told: list[tuple[int, int]] = []
    many = MemoryStore()
    for ledger in range(9_000):
        many.write([Write("/ledgers" + store.ledger_key(Layout.FLAT, LedgerId(0, ledger)), RECORD)])
    with DatasetWriter(tmp_path / "out", "catalog", binding={}, secret=True) as out:
        capture(
            many,
            "/ledgers",
            Layout.FLAT,
            out,
            clock=lambda: AT,
            progress=lambda done, total: told.append((done, total)),
        )
    assert len(told) > 2
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert all(done < total for done, total in told[:-1])
    assert told[-1] == (9_000, 9_000)
