"""One cluster's records in ZooKeeper and in etcd, as before and after a move: equal, or which field is not."""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.protocols import Write
from backends.registry import open_store
from recovery.codecs import ledger_metadata
from recovery.codecs.store import Layout, layout_bytes, ledger_key, places
from recovery.dataset import open_dataset
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.support.command import Done, run
from tests.support.etcd_server import EtcdServer
from tests.support.findings import said
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.real

ROOTS = itertools.count()
PAIR = ("bk1:3181", "bk2:3181")
RECORD = LedgerMetadata(
    3, 2, 2, 2, LedgerState.CLOSED, 9, 100, (Segment(0, PAIR),), Digest.CRC32C, b"pw", 1_700_000_000_000
)
IDS = [LedgerId(0, 1), LedgerId(0, 1 << 40), LedgerId(7, 1), LedgerId(-1, (1 << 62) + 5)]
"""Of scope 0, beyond ten digits, and of other scopes: UUIDs in etcd, the tree of scopes in ZooKeeper."""


@pytest.fixture
def stores(zookeeper_server: ZooKeeperServer, etcd_server: EtcdServer) -> dict[Layout, str]:
    """Two roots that nobody has."""
    number = next(ROOTS)
    return {
        Layout.LONGLONGHIERARCHICAL: f"zk+longlonghierarchical://{zookeeper_server.hosts}/against-{number}",
        Layout.ETCD: f"etcd://{etcd_server.hosts}/against-{number}",
    }


def fill(uri: str, layout: Layout, records: Mapping[LedgerId, bytes], instance: bytes = b"one") -> None:
    """Write a cluster's records as the layout has them."""
    where = places(layout)
    with open_store(uri, writable=True) as opened:
        nodes = {where.layout: layout_bytes(layout), where.instance_id: instance}
        nodes |= {ledger_key(layout, ledger): raw for ledger, raw in records.items()}
        for key, value in nodes.items():
            opened.store.write([Write(opened.root + key, value)])


def compare(capsys: pytest.CaptureFixture[str], stores: Mapping[Layout, str], out: Path, *more: object) -> Done:
    """Hold etcd against ZooKeeper."""
    first, second = stores.values()
    return run(capsys, "scrutinize", "--metadata", first, "--against", second, "--out", out, "--json", *more)


def test_after_a_move_all_is_equal(
    stores: dict[Layout, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every ledger, under other keys; one is the same said in other bytes. The sums are those of both stores."""
    raw = ledger_metadata.encode(RECORD)
    fill(stores[Layout.LONGLONGHIERARCHICAL], Layout.LONGLONGHIERARCHICAL, dict.fromkeys(IDS, raw))
    moved = dict.fromkeys(IDS, raw) | {IDS[0]: ledger_metadata.encode(replace(RECORD, creator_token=5))}
    fill(stores[Layout.ETCD], Layout.ETCD, moved)
    done = compare(capsys, stores, tmp_path / "run")
    counts = done.result["counts"]
    assert (done.code, counts["clean"], counts["first"], counts["second"]) == (0, 4, 4, 4)
    assert (counts["only_first"], counts["only_second"], counts["other_bytes"]) == (0, 0, 1)
    rows = open_dataset(tmp_path / "run", "scrutiny").read("verdicts").to_pylist()
    assert {(row["scope"], row["ledger"]): row["verdict"] for row in rows} == {
        (one.scope, one.ledger): "clean" for one in IDS
    }


def test_which_field_differs_and_which_ledger_is_gone(
    stores: dict[Layout, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An end, members, a time; a ledger in one store only: each is said, with its severity, and nothing else."""
    changes: dict[LedgerId, dict[str, Any]] = {
        LedgerId(0, 10): {"last_entry": 8},
        LedgerId(0, 11): {"segments": (Segment(0, PAIR[::-1]),)},
        LedgerId(0, 12): {"ctime": 5},
        LedgerId(5, 13): {"password": b"no", "ack_quorum": 1},
    }
    raw = ledger_metadata.encode(RECORD)
    only_first, only_second, equal = LedgerId(0, 20), LedgerId(9, 21), LedgerId(0, 22)
    first = dict.fromkeys([*changes, only_first, equal], raw)
    second = {one: ledger_metadata.encode(replace(RECORD, **change)) for one, change in changes.items()}
    fill(stores[Layout.LONGLONGHIERARCHICAL], Layout.LONGLONGHIERARCHICAL, first)
    fill(stores[Layout.ETCD], Layout.ETCD, second | {only_second: raw, equal: raw})
    done = compare(capsys, stores, tmp_path / "run")
    assert done.code == 3
    rows = open_dataset(tmp_path / "run", "scrutiny").read("findings").to_pylist()
    found = {
        LedgerId(row["scope"], row["ledger"]): (row["severity"], said(row)["both", "fields that differ"])
        for row in rows
    }
    assert found == {
        LedgerId(0, 10): ("critical", "last_entry"),
        LedgerId(0, 11): ("critical", "segments"),
        LedgerId(0, 12): ("warning", "ctime"),
        LedgerId(5, 13): ("critical", "ack_quorum, password_hash"),
        only_first: ("critical", "record"),
        only_second: ("critical", "record"),
    }
    counts = done.result["counts"]
    assert (counts["only_first"], counts["only_second"], counts["clean"], counts["listed"]) == (1, 1, 1, 7)
    assert done.result["fields"] == {
        "last_entry": 1, "segments": 1, "ctime": 1, "ack_quorum": 1, "password_hash": 1, "record": 2
    }  # fmt: skip
    assert b"pw" not in done.out.encode()
    assert compare(capsys, stores, tmp_path / "refused", "--deadline", "5").code == 2


def test_two_clusters_are_refused(
    stores: dict[Layout, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another instance id is another cluster: nothing is compared."""
    fill(stores[Layout.LONGLONGHIERARCHICAL], Layout.LONGLONGHIERARCHICAL, {})
    fill(stores[Layout.ETCD], Layout.ETCD, {}, b"another")
    done = compare(capsys, stores, tmp_path / "run")
    assert (done.code, "another" in done.err + done.out) == (2, True)
