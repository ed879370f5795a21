"""What is asked again of records that vanished, and what explains them."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from backends.protocols import Write
from reconcile.check.scrutiny.vanished import BKMETA, HISTORY, OWNER, VANISHED, Vanished
from reconcile.deletes.own_root import make_own_root, open_log
from reconcile.deletes.packed import PackedDecision
from reconcile.jobs.scrutiny import vanished_records
from reconcile.references import References
from recovery.capture import live
from recovery.codecs.store import Layout, generator_key
from recovery.dataset import Dataset, DatasetWriter, open_dataset
from recovery.infer import references
from recovery.model.ids import LedgerId
from tests.reconcile.deletes.test_own_root import clock
from tests.reconcile.deletes.test_tombstones import ask, make_purged
from tests.support.deletes import Ledger, fill_store
from tests.support.inventories import fill_row
from tests.support.memory_store import MemoryStore

ROOT = "/ledgers"
LEDGERS = tuple(Ledger(LedgerId(0, number)) for number in range(4))


def make_store(counter: int) -> MemoryStore:
    """A cluster whose generator gave that number."""
    store = MemoryStore()
    fill_store(store, ROOT, Layout.HIERARCHICAL, LEDGERS)
    store.raise_counter(ROOT + generator_key(Layout.HIERARCHICAL), counter)
    return store


def capture(store: MemoryStore, folder: Path) -> Dataset:
    """Its catalog."""
    with DatasetWriter(folder, "catalog", binding={"uri": "memory"}) as out:
        live.capture(store, ROOT, None, out, clock=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    return open_dataset(folder, "catalog")


def list_signs(earlier: Dataset, now: Dataset, store: MemoryStore) -> list[str]:
    """Return the signs that a store went back, if `store` is what it shows when it is read again."""
    task: Any = SimpleNamespace(layout=Layout.HIERARCHICAL)
    opened: Any = SimpleNamespace(store=store, root=ROOT)
    return list(vanished_records._list_signs(now, earlier, task, opened))


def test_a_store_went_back_if_it_is_behind_when_it_is_asked_again(tmp_path: Path) -> None:
    """Its last transaction, and the number that its generator gave; a server that lagged behind is none."""
    newer, older = make_store(9), make_store(5)
    newer.write([Write(f"{ROOT}/cookies/new", b"")])
    earlier, now = capture(newer, tmp_path / "earlier"), capture(older, tmp_path / "now")
    went_back = list_signs(earlier, now, older)
    assert [sign.split(" ")[0] for sign in went_back] == ["its", "/idgen"]
    assert list_signs(earlier, now, newer) == list_signs(earlier, earlier, newer) == []


def test_records_that_are_asked_for_by_their_keys_are_counted() -> None:
    """Those that a listing left out."""
    rows = pa.table({"scope": pa.array([0, 0, 0], pa.int64()), "ledger": pa.array([1, 2, 77], pa.int64())})
    task: Any = SimpleNamespace(layout=Layout.HIERARCHICAL)
    opened: Any = SimpleNamespace(store=make_store(9), root=ROOT)
    assert vanished_records._count_again(rows, opened, task) == 2
    assert vanished_records._count_again(rows.slice(0, 0), opened, task) == 0


def test_what_explains_a_record_that_is_gone(tmp_path: Path) -> None:
    """The store's history, a tombstone that was purged, an upper layer that let it go; the rest is unexplained."""
    store = make_store(9)
    by_history, purged, asked_for, dropped, kept, unnamed = range(6)
    stones = {
        LedgerId(0, n): replace(made, ledger=LedgerId(0, n))
        for n, made in ((purged, make_purged()), (asked_for, ask()))
    }
    with open_log(tmp_path, store, ROOT, clock) as log:
        own = make_own_root(store, ROOT, log)
        own.tombstones.change(list(stones), lambda n, *_: PackedDecision(stones[n]), log, rows=1)
    gone = pa.Table.from_pylist(
        [{"bucket": 0, "scope": 0, "ledger": n, "deleted_txn": 5 if n == by_history else None} for n in range(6)],
        schema=VANISHED,
    )
    rows = [{"scope": 0, "ledger": n, "deleted": n == dropped} for n in (purged, asked_for, dropped, kept)]
    named = pa.Table.from_pylist([fill_row(references.SCHEMA, row) for row in rows], schema=references.SCHEMA)
    opened: Any = SimpleNamespace(store=store, root=ROOT)
    for names_all, owner, left in ((False, 1, [asked_for, kept, unnamed]), (True, 2, [asked_for, kept])):
        vanished = Vanished()
        rest = vanished_records._explain(gone, opened, References(named, names_all=names_all), vanished)
        assert vanished.explained == {HISTORY: 1, BKMETA: 1, OWNER: owner}
        assert rest["ledger"].to_pylist() == left
    # What a backup of the store has as deleted is history, too.
    deletes = pa.table({"bucket": pa.array([0], pa.int16()), "scope": [0], "ledger": [kept]})
    vanished = Vanished()
    rest = vanished_records._explain(gone, opened, References(named), vanished, deletes)
    assert (vanished.explained[HISTORY], rest["ledger"].to_pylist()) == (2, [asked_for])
