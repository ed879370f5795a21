"""A rehearsal writes only where nothing was or where it wrote before, and removes only what it made."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backends.errors import OutcomeUnknownError
from backends.protocols import Write
from reconcile.errors import GuardRefusedError
from reconcile.write import apply, rehearse
from reconcile.write.apply_results import Applied
from recovery.dataset import Dataset, DatasetWriter, open_dataset
from recovery.model import tables
from tests.support.memory_store import MemoryStore
from tests.support.plan_folder import Ledger, write_plan

ROOT = "/bkmeta-rehearsal/ledgers"
LEDGERS = [Ledger(n, [(0, ("b1", "b2", "b3"))]) for n in range(1, 30)]


def _now() -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def made(tmp_path: Path) -> Dataset:
    """A plan for the root /ledgers."""
    return write_plan(tmp_path / "plan", LEDGERS)


def _begin(dataset: Dataset, store: MemoryStore, root: str = ROOT) -> rehearse.Mark:
    return rehearse.begin(dataset, dataset.manifest["hash"], store, root, now=_now)


def _applied(dataset: Dataset, store: MemoryStore, folder: Path) -> Applied:
    options = apply.ApplyOptions(plan_hash=dataset.manifest["hash"], resume=folder.exists())
    return apply.apply(lambda: dataset.batches("actions"), store, ROOT, folder, options, now=_now)


def test_an_absent_root_is_marked_before_anything_else(made: Dataset) -> None:
    """The mark says which plan, when, and which journal; nothing else is written by it."""
    store = MemoryStore()
    mark = _begin(made, store)
    assert rehearse.read_mark(store, ROOT) == mark
    assert (mark.plan, mark.made) == (made.manifest["hash"], "2026-01-01T00:00:00+00:00")
    assert set(store.dump()) == {"/bkmeta-rehearsal", ROOT, ROOT + rehearse.MARK}


def test_two_that_begin_at_the_same_time_share_one_mark(made: Dataset) -> None:
    """The slower one takes up what the faster one made."""
    store = MemoryStore()
    write, marks = store.write, []

    def race(changes: Sequence[Write]) -> list[int]:
        store.write = write  # type: ignore[method-assign] # the rival writes in peace
        marks.append(_begin(made, store))
        return write(changes)

    store.write = race  # type: ignore[method-assign] # somebody else comes first
    assert [_begin(made, store)] == marks
    assert rehearse.read_mark(store, ROOT) == marks[0]


@pytest.mark.parametrize("after", [False, True])
def test_a_mark_whose_answer_is_lost_is_read_back(made: Dataset, *, after: bool) -> None:
    """It is there once, written or not by then."""
    store = MemoryStore()
    write = store.write

    def lose(changes: Sequence[Write]) -> list[int]:
        store.write = write  # type: ignore[method-assign] # one answer is lost
        if after:
            write(changes)
        raise OutcomeUnknownError("memory:", "cut")

    store.write = lose  # type: ignore[method-assign] # the next answer is lost
    assert rehearse.read_mark(store, ROOT) is None
    assert _begin(made, store) == rehearse.read_mark(store, ROOT)


def test_a_marked_root_is_taken_up_again(made: Dataset, tmp_path: Path) -> None:
    """The same plan goes on where it was; what was written already is there."""
    store = MemoryStore()
    mark = _begin(made, store)
    first = _applied(made, store, tmp_path / "journal")
    assert first.exit_code == 0
    assert _begin(made, store) == mark
    again = _applied(made, store, tmp_path / "journal")
    assert again.exit_code == 0
    assert {key: value for key, value in store.dump().items() if "/L0" in key} == {
        ROOT + row["key"]: row["value"] for row in made.read("actions").to_pylist() if row["kind"] == "ledger"
    }


def test_a_root_of_somebody_else_is_refused(made: Dataset) -> None:
    """An existing root without our mark is never written to, empty or not, nor one whose mark is not ours."""
    for content in ({}, {"/LAYOUT": b"x"}, {rehearse.MARK: b"something"}, {rehearse.MARK: b"[]"}):
        store = MemoryStore()
        store.write([Write(ROOT, b"")])
        for key, value in content.items():
            store.write([Write(ROOT + key, value)])
        before = store.dump()
        with pytest.raises(GuardRefusedError, match="not marked"):
            _begin(made, store)
        with pytest.raises(GuardRefusedError, match="not marked"):
            rehearse.remove(store, ROOT, progress=lambda _done, _all: None)
        assert store.dump() == before


def test_the_rehearsal_of_another_plan_is_refused(made: Dataset, tmp_path: Path) -> None:
    """Two plans are never mixed in one root."""
    store = MemoryStore()
    _begin(made, store)
    other = write_plan(tmp_path / "other", LEDGERS[:3])
    with pytest.raises(GuardRefusedError, match="another plan"):
        _begin(other, store)


def test_the_plans_own_root_is_refused_even_if_it_is_absent(made: Dataset) -> None:
    """The lost root is absent too: a rehearsal in it would be half a restore, and its removal a second loss."""
    with pytest.raises(GuardRefusedError, match="the root that the plan is for"):
        _begin(made, MemoryStore(), "/ledgers")


KNOWN = "zk://zk1:2181,zk2:2181/ledgers"


@pytest.mark.parametrize(
    ("known", "uri", "allowed"),
    [
        (KNOWN, "zk://test:2181", True),
        (KNOWN, "zk://zk2:2181,zk9:2181", False),
        (KNOWN, "memory", False),
        ("snapshot.5", "zk://test:2181", False),
    ],
)
def test_the_same_root_in_another_store_is_another_root(
    made: Dataset, monkeypatch: pytest.MonkeyPatch, known: str, uri: str, *, allowed: bool
) -> None:
    """Where both name their servers, and none is in both, the root may have the same name."""
    with DatasetWriter(Path(made.path) / "store", "catalog", binding={}, secret=True) as out:
        source = {
            "kind": "zookeeper", "uri": known, "at": _now(), "complete": True,
            "root": "missing", "gaps": [],
        }  # fmt: skip
        out.append("sources", tables.CATALOG_SOURCES.empty_table().from_pylist([source], tables.CATALOG_SOURCES))
        out.close(coverage={})
    monkeypatch.setattr(MemoryStore, "uri", property(lambda _self: uri))
    store = MemoryStore()
    if allowed:
        assert _begin(open_dataset(made.path, "plan"), store, "/ledgers").plan == made.manifest["hash"]
        return
    with pytest.raises(GuardRefusedError, match="the root that the plan is for"):
        _begin(open_dataset(made.path, "plan"), store, "/ledgers")


@pytest.mark.parametrize("name", ["/LAYOUT", "/cookies", rehearse.MARK])
def test_a_root_inside_a_ledgers_root_is_refused(made: Dataset, name: str) -> None:
    """Bookies and clients list what is below their root: a rehearsal there would be part of it."""
    store = MemoryStore()
    store.write([Write("/ledgers" + name, b"")])
    with pytest.raises(GuardRefusedError, match="inside /ledgers"):
        _begin(made, store, "/ledgers/deep/rehearsal")


def test_removal_leaves_nothing_of_it_and_everything_else(made: Dataset, tmp_path: Path) -> None:
    """All keys below the marked root go, the mark with the root last; what is beside it stays."""
    store = MemoryStore()
    store.write([Write("/ledgers/LAYOUT", b"x")])
    _begin(made, store)
    _applied(made, store, tmp_path / "journal")
    inside = [key for key in store.dump() if key.startswith(ROOT)]
    assert rehearse.remove(store, ROOT, progress=lambda _done, _all: None) == len(inside)
    assert set(store.dump()) == {"/ledgers", "/ledgers/LAYOUT", "/bkmeta-rehearsal"}
    assert rehearse.remove(store, ROOT, progress=lambda _done, _all: None) == 0


def test_a_removal_goes_on_where_somebody_else_removed_the_rest(made: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was listed and is gone by then has no children."""
    store = MemoryStore()
    _begin(made, store)
    monkeypatch.setattr(MemoryStore, "children", lambda _self, _key: None)
    assert rehearse.remove(store, ROOT, progress=lambda _done, _all: None) == 2


def test_a_removal_that_was_stopped_is_gone_on_with(made: Dataset, tmp_path: Path) -> None:
    """The mark goes last, so what is left after a stop is still a rehearsal of ours."""
    store = MemoryStore()
    _begin(made, store)
    _applied(made, store, tmp_path / "journal")
    writes = 0

    class Stopped(Exception):  # noqa: N818 - it stands for kill -9
        pass

    def dying(changes: list[Write]) -> list[int]:
        nonlocal writes
        writes += 1
        if writes == 1:
            MemoryStore.write(store, changes[: len(changes) // 2])
            raise Stopped
        return MemoryStore.write(store, changes)

    store.write = dying  # type: ignore[method-assign, assignment] # it dies in the middle
    with pytest.raises(Stopped):
        rehearse.remove(store, ROOT, progress=lambda _done, _all: None)
    assert rehearse.read_mark(store, ROOT) is not None
    assert rehearse.remove(store, ROOT, progress=lambda _done, _all: None) > 0
    assert set(store.dump()) == {"/bkmeta-rehearsal"}


def test_a_rehearsal_with_bookies_in_it_is_not_removed(made: Dataset, tmp_path: Path) -> None:
    """Somebody started bookies on it: without their root they would delete what they hold."""
    store = MemoryStore()
    _begin(made, store)
    store.put_ephemeral(f"{ROOT}/available/b1:3181", b"", 1)
    with pytest.raises(GuardRefusedError, match="b1:3181"):
        rehearse.remove(store, ROOT, progress=lambda _done, _all: None)
