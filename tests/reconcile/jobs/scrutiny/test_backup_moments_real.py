"""Inventories that name no revision, on a real etcd: its backup says which records are newer than they are."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from recovery.backup.chain import open_backup
from recovery.codecs import ledger_metadata
from recovery.codecs.store import Layout, places
from recovery.dataset import open_dataset
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.reconcile.jobs.backup.test_follow_etcd import Cluster, following
from tests.simulation.bookie_dir import make_bookie
from tests.support.command import run
from tests.support.etcd_server import EtcdServer
from tests.support.waiting import until

pytestmark = pytest.mark.real

BOOKIE = "b1:3181"
INSTANCE = "0a1b2c3d-0000-4000-8000-000000000001"
OTHER = "0a1b2c3d-0000-4000-8000-000000000002"
RECORD = LedgerMetadata(
    3, 1, 1, 1, LedgerState.CLOSED, 2, 30, (Segment(0, (BOOKIE,)),), Digest.CRC32C, b"", creator_token=0
)
WHOLE, LACKING, YOUNG, REPAIRED = range(10, 14)
"""Ledgers whose copy is whole; whose copy lacks an entry; made, or changed, after the bookie was collected."""


def test_a_backup_says_what_changed_since_an_inventory(
    etcd_server: EtcdServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Old records are judged, and what they lack is a finding; newer ones wait. Without the backup nothing is known."""
    etcd_server.wipe()
    cluster = Cluster(etcd_server, f"/{tmp_path.name}")
    cluster.begin()
    own = places(Layout.ETCD)
    etcd_server.put(cluster.root + own.instance_id, INSTANCE.encode())
    etcd_server.put(f"{cluster.root}{own.registrations[0]}/{BOOKIE}")
    raw = ledger_metadata.encode(RECORD)
    for ledger in (WHOLE, LACKING, REPAIRED):
        etcd_server.put(cluster.key(ledger), raw)
    held = {WHOLE: [0, 1, 2], LACKING: [0, 2]}
    disks = make_bookie(tmp_path / "disks", held, bookie=BOOKIE, instance=INSTANCE, dirty=True)
    place = tmp_path / "backup"
    with following(cluster, place) as follower:
        # Clocks may differ by two seconds: what was received later than that before the collection may be newer.
        end_ms = open_backup(place).manifest.until_ms + 2_500
        until(lambda: time.time_ns() // 1_000_000 > end_ms, "the records are older than any clock may be wrong")
        folders = [
            *(f"--ledger-dir={folder}" for folder in disks.ledger_dirs),
            *(f"--journal-dir={folder}" for folder in disks.journal_dirs),
        ]
        collected = run(capsys, "collect", *folders, "--out", tmp_path / "inventory", "--json")
        assert collected.code == 0, collected
        etcd_server.put(cluster.key(YOUNG), raw)
        follower.await_through(
            etcd_server.put(cluster.key(REPAIRED), ledger_metadata.encode(replace(RECORD, length=31)))
        )
    [bookie] = open_dataset(tmp_path / "inventory", "inventory").read("bookies").to_pylist()
    assert bookie["as_of"] is None

    asked = ("scrutinize", "--metadata", cluster.uri, "--inventory", tmp_path / "inventory", "--json")
    alone = run(capsys, *asked)
    assert alone.result["counts"]["undecided"] == {"undated": 3}
    assert alone.result["coverage"]["undated"] == [BOOKIE]
    told = "BookKeeper has no marks and no auditor on etcd: none were checked, and no bookie's loss is repaired"
    assert [line.strip() for line in run(capsys, *asked[:-1]).out.splitlines()].count(told) == 1

    history = ("--history", f"backup:{place}")
    done = run(capsys, *asked, *history, "--out", tmp_path / "run")
    assert done.code == 3, done
    assert done.result["coverage"]["undated"] == []
    assert done.result["counts"]["undecided"] == {"changed": 2}
    findings = open_dataset(tmp_path / "run", "scrutiny").read("findings").to_pylist()
    lost = [row["ledger"] for row in findings if row["category"] not in alone.result["found"]]
    assert lost == [LACKING]

    other = Cluster(etcd_server, f"/{tmp_path.name}-other")
    other.begin()
    etcd_server.put(other.root + own.instance_id, OTHER.encode())
    with following(other, tmp_path / "other"):
        """A base is enough."""
    foreign = run(capsys, *asked, "--history", f"backup:{tmp_path / 'other'}")
    assert (foreign.code, OTHER in foreign.out) == (2, True)
    refused = run(capsys, *asked, "--history", f"catalog://{tmp_path}/run/store")
    assert (refused.code, "name backup:PLACE" in refused.out) == (2, True)
