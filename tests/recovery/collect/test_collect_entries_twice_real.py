"""What replay leaves of an entry that journals have twice, since its ledger's id was given out again with the same key.

That depends on the storage, which its disks do not tell: so both headers are collected.
"""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from backends.bookie import frames
from backends.bookie.client import BookieOptions, BookieWire
from backends.registry import open_store
from recovery.bookies.addresses import read_members
from recovery.codecs.entry import decode_header
from recovery.collect.options import CollectOptions
from recovery.collect.pipeline import collect
from recovery.dataset import open_dataset
from tests.support.cluster import Cluster, History

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

BEFORE, AFTER = 20, 35
"""Bytes of the first entry before and after the id was given out again."""
SERVED: Final = {"sorted": BEFORE, "interleaved": AFTER, "db": AFTER}
"""Storages, and which of the two each serves after replay."""


def served_length(cluster: Cluster, bookie: str, ledger: int) -> int:
    """Return the length in the header of a ledger's first entry, as a running bookie serves it."""
    with open_store(f"zk+hierarchical://{cluster.zookeeper}/ledgers") as opened:
        address = read_members(opened.store, opened.root, None, {}).find(bookie).address
    assert address is not None

    async def ask() -> bytes:
        with BookieWire({bookie: address}, BookieOptions(deadline_s=60, patience_s=120)) as wire:
            return (await wire[bookie].one(frames.read_entry(ledger, 0))).body

    return decode_header(asyncio.run(ask())).length


def test_both_ledgers_that_replay_may_leave_are_collected(tmp_path: Path) -> None:
    """Bookies of all storages, killed before they flushed anything, collected, started again and asked."""
    with Cluster(tmp_path / "home") as cluster:
        history = History(cluster)
        for n, storage in enumerate(SERVED):
            history.bookie(n, storage)
        known = {"E": 3, "W": 3, "A": 3, "digest": "CRC32C", "password": "", "custom": {}}
        ledger: int = cluster("create", **known)
        cluster("add", ledger=ledger, sizes=[BEFORE] * 5, ids=None)
        cluster("close", ledger=ledger)
        cluster("delete", ledger=ledger)
        assert cluster("create", **known, adv=True, id=ledger) == ledger
        cluster("add", ledger=ledger, sizes=[AFTER] * 2, ids=[0, 1])
        for n in range(len(SERVED)):
            history.down(n, "killed")
        for n in range(len(SERVED)):
            folder = tmp_path / f"home/bookies/b{n}"
            options = CollectOptions((folder / "ledgers0",), (), (folder / "journal0",))
            collect(options, tmp_path / f"b{n}", now=lambda: datetime.now(UTC), progress=lambda _: None)
            rows = open_dataset(tmp_path / f"b{n}", "inventory").read("copies").to_pylist()
            (row,) = [row for row in rows if row["ledger"] == ledger]
            assert (row["source"], row["entries"]) == ("journal", 5)
            assert {head["length"] for head in row["headers"] if head["entry"] == 0} == {BEFORE, AFTER}
        for n in range(len(SERVED)):
            history.up(n)
        served = {s: served_length(cluster, f"10.0.0.{n + 1}:3181", ledger) for n, s in enumerate(SERVED)}
    assert served == SERVED
