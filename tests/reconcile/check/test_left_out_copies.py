"""Copies that a thaw would let go: closed records that leave out a bookie which alone has entries."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from backends.protocols import Write
from reconcile.check import left_out_copies, thaw_guards
from reconcile.cli.wording.remedies import describe_error
from reconcile.errors import GuardRefusedError
from recovery.codecs import ledger_metadata
from recovery.codecs.replication_lock import encode_guard, lock_key
from recovery.codecs.store import Layout, ledger_key
from recovery.dataset import Dataset, DatasetWriter, open_dataset
from recovery.model import tables
from recovery.model.groups import group_entries, to_arrow
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.support.inventories import fill_row
from tests.support.memory_store import MemoryStore
from tests.support.plan_folder import Ledger as Planned
from tests.support.plan_folder import write_plan

ROOT = "/ledgers"


def inventory(folder: Path, bookie: str, held: dict[int, Sequence[int]], source: str = "index") -> Dataset:
    """Write what one bookie holds, by ledger."""
    rows = []
    for ledger, entries in held.items():
        base = fill_row(tables.COPIES, {"bookie": bookie, "key_kind": "absent", "source": source, "complete": True})
        rows.append({**base, "ledger": ledger, "bucket": LedgerId(0, ledger).bucket, "entries": len(entries)})
    copies = pa.Table.from_pylist(rows, schema=tables.COPIES)
    groups = [group_entries(np.array(sorted(entries), np.int64)) for entries in held.values()]
    keyed = [group._replace(key=np.full(len(group.first), n, np.int64)) for n, group in enumerate(groups)]
    joined = type(groups[0])(*(np.concatenate(column) for column in zip(*keyed, strict=True)))
    at = tables.COPIES.get_field_index("groups")
    copies = copies.set_column(at, tables.COPIES.field(at), to_arrow(joined, len(held)))
    with DatasetWriter(folder, "inventory", binding={}) as writer:
        writer.append(
            "bookies", pa.Table.from_pylist([fill_row(tables.BOOKIES, {"bookie": bookie})], schema=tables.BOOKIES)
        )
        writer.append("copies", copies)
        writer.close(coverage={})
    return open_dataset(folder, "inventory")


def record(*segments: tuple[int, str], write: int = 2, last: int = 9, state: LedgerState = LedgerState.CLOSED) -> bytes:
    """Return a record; members are letters."""
    closed = state is LedgerState.CLOSED
    metadata = LedgerMetadata(
        format=3,
        ensemble_size=len(segments[0][1]),
        write_quorum=write,
        ack_quorum=1,
        state=state,
        last_entry=last if closed else None,
        length=100 if closed else None,
        segments=tuple(Segment(first, tuple(members)) for first, members in segments),
        digest=Digest.CRC32C,
        password=b"",
    )
    return ledger_metadata.encode(metadata)


def store_of(**records: bytes) -> MemoryStore:
    """Return a store with records by ledger, as L7=…."""
    store = MemoryStore()
    for name, value in records.items():
        key = ledger_key(Layout.HIERARCHICAL, LedgerId(0, int(name[1:])))
        store.write([Write(ROOT + key, value)])
    return store


def found(store: MemoryStore, *inventories: Dataset) -> list[str]:
    """Return what is left out, in words."""
    return sorted(map(str, left_out_copies.find_left_out(store, ROOT, Layout.HIERARCHICAL, inventories)))


def test_who_is_left_out_and_what_only_they_have(tmp_path: Path) -> None:
    """A stray copy of what the named bookies all have may go; one that somebody lacks, or beyond the end, may not."""
    store = store_of(
        L1=record((0, "ab")),
        L2=record((0, "ab")),
        L3=record((0, "ab"), last=4),
        L4=record((0, "ab"), state=LedgerState.OPEN),
        L5=record((0, "abc"), write=2),
        L6=record((0, "ax"), (5, "ab")),
    )
    every = range(10)
    striped = {"a": [0, 2, 3, 5, 6, 8, 9], "b": [0, 1, 3, 4, 6, 7, 9], "c": [1, 2, 4, 5, 7, 8]}
    a = {1: every, 2: every, 3: range(5), 4: every, 5: striped["a"], 6: every}
    b = {1: every, 2: [0, 1, 2, 5], 3: range(5), 4: [], 5: striped["b"], 6: range(5, 10)}
    c = {5: striped["c"]}
    x = {1: every, 2: range(2, 6), 3: range(6), 4: every, 5: every, 6: range(5)}
    every_bookie: dict[str, dict[int, Sequence[int]]] = {
        "a": dict(a),
        "b": {n: e for n, e in b.items() if len(e)},
        "c": dict(c),
        "x": dict(x),
    }
    inventories = [inventory(tmp_path / name, name, held) for name, held in every_bookie.items()]
    assert found(store, *inventories) == ["ledger 2 on x: entry 3 and 1 more", "ledger 3 on x: entry 5"]
    store.write([Write(ROOT + lock_key(LedgerId(0, 2)), encode_guard("a plan"))])
    store.write([Write(ROOT + lock_key(LedgerId(0, 3)), b'bookieId: "worker"\n')])
    assert found(store, *inventories) == ["ledger 3 on x: entry 5"]
    # What c has nobody looked at: then what x has of it may be the only copy.
    without_c = [inventories[0], inventories[1], inventories[3]]
    assert found(store, *without_c)[-1].startswith("ledger 5 on x: entry 1 and 5 more")


def test_a_plan_counts_as_written(tmp_path: Path) -> None:
    """Its records, its locks and what it removes, in place of what the store has."""
    segments = [(0, ["a", "b"])]
    guards = ((1, None), (2, "lock"), (4, "release"))
    planned = [Planned(number, segments, (2, 2, 1), guard=guard) for number, guard in guards]
    plan = write_plan(tmp_path / "plan", planned)
    stray = inventory(tmp_path / "x", "x", dict.fromkeys((1, 2, 3, 4), range(3)))
    store = store_of(L3=record((0, "ab")), L4=record((0, "ab")))
    store.write([Write(ROOT + lock_key(LedgerId(0, 4)), encode_guard("a plan"))])
    assert found(store, stray) == ["ledger 3 on x: entry 0 and 2 more"]
    left_out = left_out_copies.find_left_out(store, ROOT, Layout.HIERARCHICAL, [stray], plan)
    assert sorted(str(item.ledger) for item in left_out) == ["1", "3", "4"]


def test_only_logs_say_nothing(tmp_path: Path) -> None:
    """A ledger that only a log has was deleted long ago, perhaps: it keeps nobody from a thaw."""
    store = store_of(L1=record((0, "ab")))
    assert found(store, inventory(tmp_path / "x", "x", {1: range(3)}, source="log")) == []


def test_a_thaw_is_refused_until_just_so_many_are_accepted(tmp_path: Path) -> None:
    """The number must be named; another number is refused as well, and none is accepted where there is none."""
    store = store_of(L1=record((0, "ab")), L2=record((0, "ab")))
    stray = inventory(tmp_path / "x", "x", {1: range(3), 2: range(3)})
    for accept in (0, 1, 3):
        with pytest.raises(GuardRefusedError, match="leave out copies: 2 of a bookie") as refused:
            thaw_guards.require_named(store, ROOT, Layout.HIERARCHICAL, [stray], accept=accept)
        assert refused.value.exit_code == 5
        assert "--accept-left-out 2" in describe_error(refused.value)
    assert thaw_guards.require_named(store, ROOT, Layout.HIERARCHICAL, [stray], accept=2) == 2
    good = inventory(tmp_path / "a", "a", {1: range(3)})
    with pytest.raises(GuardRefusedError, match="no closed record"):
        thaw_guards.require_named(store, ROOT, Layout.HIERARCHICAL, [good], accept=1)
