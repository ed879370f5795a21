"""One ledger decided from what was read of it alone: which rows are its own, and what is said of where it is from."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pyarrow as pa
import pytest

from reconcile.compare import decide as decide_module
from reconcile.compare import single_ledger
from reconcile.compare.decide import decide_range
from reconcile.compare.evidence import Catalog
from reconcile.compare.knowledge import Knowledge
from reconcile.compare.single_ledger import (
    StoredLedger,
    as_history_rows,
    decide_ledger,
    is_of,
    select_ledger,
)
from reconcile.compare.three_way import ComparedRange
from recovery.codecs.store import Layout, generator_key
from recovery.dataset import Dataset, DatasetWriter, open_dataset
from recovery.infer.references import SCHEMA
from recovery.model import tables
from recovery.model.coverage import Coverage
from recovery.model.ids import LedgerId
from recovery.model.metadata import LedgerMetadata
from tests.reconcile.compare.test_compare_evidence import at, written
from tests.reconcile.compare.test_deleted_since import CLOSED, OPEN, A, B, C, catalog
from tests.simulation.simulator import bookies, copy_row
from tests.support.inventories import write_inventory

LEDGER: Final = LedgerId(0, 1)
WHOLE: Final = Coverage(members_known_from=("the test",), scanned=(A, B, C), complete=(A, B, C))
EMPTY: Final = replace(CLOSED, last_entry=-1, length=0)


def stored(record: LedgerMetadata | None, source: str = "zk://here", catalog_of: Any = None) -> StoredLedger:
    """Return what a store or a snapshot has of the ledger."""
    rows = catalog(record) if record else catalog(CLOSED).slice(0, 0)
    return StoredLedger(
        source, rows, tables.CATALOG_HISTORY.empty_table(), 5, (A, B, C), complete=True, catalog=catalog_of
    )


def held(*names: str, entries: int = 10) -> list[dict[str, Any]]:
    """Return full copies of the ledger."""
    key = catalog(CLOSED)["password_hash"][0].as_py()
    head = {"entry": entries - 1, "lac": entries - 2, "length": 10 * entries, "size": 46, "digest": "CRC32C"}
    return [copy_row(1, name, range(entries), key=key, headers=[head]) for name in names]


def decide(
    live: StoredLedger | None,
    snapshots: Sequence[StoredLedger],
    rows: Sequence[dict[str, Any]] = (),
    knowledge: Knowledge = Knowledge(layout=Layout.HIERARCHICAL),  # noqa: B008 - it is frozen
    inventories: Sequence[Dataset] = (),
) -> single_ledger.LedgerDecision:
    """Decide of ledger 1 by what is given."""
    copies = pa.Table.from_pylist(list(rows), schema=tables.COPIES)
    return decide_ledger(LEDGER, list(inventories), live, snapshots, copies, bookies([A, B, C]), None, knowledge, WHOLE)


@pytest.fixture(name="inventory")
def an_inventory(tmp_path: Path) -> Dataset:
    """Return an inventory of a bookie that has other ledgers."""
    return open_dataset(write_inventory(tmp_path / "inventory", A, [5], instance=None), "inventory")


def test_without_inventories_a_store_that_was_not_captured_decides_nothing() -> None:
    """Whether it has other ledgers nobody knows; a snapshot alone is enough."""
    assert decide(None, []).row is None
    assert decide(stored(EMPTY), []).row is None
    assert decide(stored(None), [stored(EMPTY, "snapshot")]).row is None
    alone = decide(None, [stored(EMPTY, "snapshot")])
    assert alone.row is not None
    assert (alone.row["outcome"], alone.row["last_entry"]) == ("restored", -1)
    assert alone.origin == (
        "made now; shapes counted on all their ledgers; of snapshot only this ledger was read: a capture of it may "
        "tell recover more"
    )
    assert alone.shown == ()


def test_of_what_bookies_show_and_is_not_restored_both_are_said(inventory: Dataset) -> None:
    """What is held has beside it what bookies alone show; of what is restored nothing is repeated."""
    plain = decide(None, [], held(A, B, C), inventories=[inventory])
    assert plain.row is not None
    assert (plain.row["outcome"], plain.shown) == ("restored", ())
    assert plain.origin == "made now; shapes counted on all their ledgers"
    other = decide(None, [stored(replace(CLOSED, password=b"another"))], held(A, B, C), inventories=[inventory])
    assert other.row is not None
    assert other.row["outcome"] == "held"
    assert [row["outcome"] for row in other.shown] == ["guarded"]


def test_the_stores_own_record_counts_as_the_stores(inventory: Dataset) -> None:
    """What is in the store is no ledger that something has to become of; one that it has not is."""
    there = decide(stored(CLOSED), [], held(A, B, C), inventories=[inventory])
    assert "of zk://here only this ledger was read" in there.origin
    missing = decide(stored(None), [], held(A, B, C), inventories=[inventory])
    assert missing.row is not None
    assert missing.row["outcome"] == "restored"


def test_an_open_record_of_the_last_store_alone_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its files were read to their end; of an earlier one nobody knows what came after it."""
    empty = replace(OPEN, segments=OPEN.segments[:1])
    fake: Any = SimpleNamespace(is_last=True, taken_at=7.0)
    monkeypatch.setattr(Catalog, "read", lambda dataset: dataset)
    snapshot = stored(empty, "files", catalog_of=fake)
    last = single_ledger._select_last([snapshot])
    assert last is not None
    assert last["ledger"].to_pylist() == [1]
    assert (snapshot.at, stored(empty).at) == (7.0, math.inf)
    fake.is_last = False
    assert single_ledger._select_last([snapshot]) is None
    assert single_ledger._select_last([stored(empty)]) is None
    assert single_ledger._select_last([]) is None


def test_rows_of_a_ledger_have_its_scope_and_its_id() -> None:
    """Both: another scope's ledger may have the same lower half."""
    rows = pa.table({"scope": [0, 0, 3, 3], "ledger": [1, 2, 1, 2]})
    assert is_of(rows, LedgerId(0, 1)).to_pylist() == [True, False, False, False]
    references = pa.Table.from_pylist(
        [{"bucket": 5, "scope": scope, "ledger": ledger} for scope, ledger in ((0, 1), (0, 2), (3, 1))], schema=SCHEMA
    )
    mine = select_ledger(references, LedgerId(0, 1))
    assert mine is not None
    assert mine["ledger"].to_pylist() == [1]
    assert select_ledger(None, LedgerId(0, 1)) is None


def test_references_of_a_bucket_range_are_those_from_its_first_to_its_last() -> None:
    """Neither one less nor one more."""
    references = pa.Table.from_pylist([{"bucket": n, "scope": 0, "ledger": n} for n in range(6)], schema=SCHEMA)
    mine = single_ledger._select_range(references, range(2, 4))
    assert mine is not None
    assert mine["bucket"].to_pylist() == [2, 3]
    assert single_ledger._select_range(None, range(2, 4)) is None


def test_history_of_a_key_is_history_of_its_ledger() -> None:
    """Rows of other keys are passed over; what they lack is the ledger's own, and times are in microseconds."""
    plain = {field.name: None for field in tables.CATALOG_HISTORY}
    made = [
        {**plain, "key": key, "at_ms": at, "op": "delete", "txn": txn, "gap": False}
        for key, at, txn in (("/L1", 5, 7), ("/L2", 6, 8))
    ]
    schema = pa.schema(
        [*(field for field in tables.CATALOG_HISTORY if field.name not in ("bucket", "scope", "ledger", "at")),
         pa.field("key", pa.string()), pa.field("at_ms", pa.int64())]
    )  # fmt: skip
    batch = pa.RecordBatch.from_pylist([{name: row.get(name) for name in schema.names} for row in made], schema=schema)
    [row] = as_history_rows([batch], "/L1", LedgerId(0, 1)).to_pylist()
    assert (row["scope"], row["ledger"], row["bucket"], row["txn"]) == (0, 1, LedgerId(0, 1).bucket, 7)
    assert row["at"].timestamp() == 0.005


class Seen:
    """Keeps what is decided of, and lets it be decided."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._decide = decide_range
        monkeypatch.setattr(decide_module, "decide_range", self)

    def __call__(self, *given: Any) -> ComparedRange:
        """Keep the case, what is known, and the id below which all were known."""
        self.case, _, _, self.known, self.issued = given
        return self._decide(*given)


def a_catalog(folder: Path, *records: LedgerMetadata, time: int = 5) -> Dataset:
    """Write a catalog with 7 in its counter of ids."""
    counter = {"path": generator_key(Layout.HIERARCHICAL), "children_created": 7}
    numbered = dict(enumerate(records, 1))
    return written(folder, numbered, nodes=[counter], coverage={"complete": ["nodes"]}, uri=folder.name, at=at(time))


def test_captures_are_compared_whole_and_stores_by_the_ledger_alone(
    inventory: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store's capture is the store; those of snapshots are the snapshots, the newest first."""
    seen = Seen(monkeypatch)
    live = stored(CLOSED, "live", a_catalog(tmp_path / "live"))
    old, new = (a_catalog(tmp_path / name, EMPTY, time=time) for name, time in (("old", 1), ("new", 2)))
    snapshots = [stored(EMPTY, "new", new), stored(EMPTY, "old", old), stored(EMPTY, "asked")]
    found = decide(live, snapshots, held(A, B, C), inventories=[inventory])
    evidence = seen.case.evidence
    assert evidence.live is not None
    assert (evidence.live.source, [one.source for one in evidence.snapshots]) == ("live", ["new", "old"])
    assert evidence.looked_at
    assert seen.known.stored.equals(live.row)
    assert (len(seen.known.snapshots), seen.issued) == (3, 7)
    assert found.origin.endswith("of asked only this ledger was read: a capture of it may tell recover more")
    alone = decide(None, snapshots[:2], held(A, B, C), inventories=[inventory])
    assert (seen.case.evidence.live, seen.known.stored.num_rows) == (None, 0)
    assert "only this ledger" not in alone.origin
    # Which ids a store gave out is known by its layout alone.
    decide(None, snapshots[:2], held(A, B, C), replace(Knowledge(), layout=None), inventories=[inventory])
    assert seen.issued == 0


def test_without_inventories_a_captured_store_decides(tmp_path: Path) -> None:
    """What it has not, a snapshot has; alone it has nothing that is to be decided."""
    live = stored(None, "live", a_catalog(tmp_path / "live"))
    found = decide(live, [stored(EMPTY, "snapshot")])
    assert found.row is not None
    assert found.row["outcome"] == "restored"
    assert decide(live, []).row is None


def test_it_is_said_on_how_much_shapes_were_counted(inventory: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large cluster on a share."""
    ranges = [range(2048), range(2048, 4096)]
    monkeypatch.setattr(decide_module, "cut_ranges", lambda _: ranges)
    for counted, text in ((ranges, "all their ledgers"), (ranges[:1], "1 of 2 bucket ranges")):
        monkeypatch.setattr(decide_module, "sample_ranges", lambda *_, counted=counted: counted)
        origin = decide(None, [], held(A, B, C), inventories=[inventory]).origin
        assert origin == f"made now; shapes counted on {text}"


def test_a_ledger_of_another_scope_with_the_same_lower_half_collides(tmp_path: Path) -> None:
    """Where no dataset has another scope none is read."""
    plain = a_catalog(tmp_path / "plain", CLOSED)
    assert single_ledger._find_collision(LEDGER, [plain]).num_rows == 0
    with DatasetWriter(tmp_path / "scoped", "catalog", binding={}) as out:
        rows = catalog(CLOSED).to_pylist()
        scoped = [{**row, "scope": 3, "bucket": LedgerId(3, 1).bucket} for row in rows]
        out.append("ledgers", pa.Table.from_pylist([*rows, *scoped], schema=tables.CATALOG_LEDGERS))
        out.close(coverage={})
    found = single_ledger._find_collision(LEDGER, [plain, open_dataset(tmp_path / "scoped", "catalog")])
    assert [(row["scope"], row["ledger"]) for row in found.to_pylist()] == [(0, 1)]


def test_what_a_plan_says_of_the_ledger_is_not_decided_again(inventory: Dataset) -> None:
    """One that does not know it says nothing."""
    found = decide(None, [], held(A, B, C), inventories=[inventory])
    assert found.row is not None
    copies = pa.Table.from_pylist(held(A, B, C), schema=tables.COPIES)
    looked, knowledge = bookies([A, B, C]), Knowledge(layout=Layout.HIERARCHICAL)
    origins = []
    for ledger in (1, 2):
        row = {**found.row, "ledger": ledger, "outcome": "waiting"}
        rows = pa.Table.from_pylist([row], schema=tables.RECONSTRUCTION)
        plan: Any = SimpleNamespace(path="p", manifest={}, read=lambda *_, rows=rows, **__: rows)
        said = decide_ledger(LEDGER, [inventory], None, [], copies, looked, plan, knowledge, WHOLE)
        assert said.row is not None
        origins.append((said.row["outcome"], said.origin.split(";")[0]))
    assert origins == [("waiting", "from the plan p"), ("restored", "made now")]
