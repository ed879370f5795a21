"""The commands of `bkmeta backup`, and a backup as the store of other commands, on a real etcd that is lost."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from recovery.backup.chain import open_backup
from recovery.codecs import ledger_metadata
from recovery.codecs.store import Layout, ledger_key, places
from recovery.dataset import open_dataset
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.support.command import ROOT, run
from tests.support.etcd_server import EtcdServer
from tests.support.waiting import until

pytestmark = pytest.mark.real

PROGRAM = (sys.executable, "-m", "reconcile.cli")


def encode(last: int) -> bytes:
    """Return the record of a closed ledger."""
    return ledger_metadata.encode(
        LedgerMetadata(
            3, 1, 1, 1, LedgerState.CLOSED, last, 30, (Segment(0, ("b1:3181",)),), Digest.CRC32, b"pw", creator_token=0
        )
    )


def test_a_lost_store_comes_back_from_its_backup(
    etcd_server: EtcdServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Followed by the program, which ends in good order; then captured and explained, now and at an earlier moment."""
    etcd_server.wipe()
    root, place = f"/{tmp_path.name}", tmp_path / "b"
    keys = [root + ledger_key(Layout.ETCD, LedgerId(0, number)) for number in range(20)]
    etcd_server.put(root)
    etcd_server.put(
        root + places(Layout.ETCD).layout, b"org.apache.bookkeeper.metadata.etcd.EtcdLedgerManagerFactory\n1"
    )
    words = ["backup", "follow", "--metadata", f"etcd://{etcd_server.hosts}{root}", "--to", str(place)]
    follower = subprocess.Popen(
        [*PROGRAM, *words, "--seal-after", "1s|1KiB", "--json"], cwd=ROOT, stdout=subprocess.PIPE, env=os.environ
    )
    try:
        until(lambda: (place / "head.json").exists() and bool(open_backup(place).manifest.bases), "a base")
        early = 0
        for key in keys:
            early = etcd_server.put(key, encode(1))
        etcd_server.put(keys[3], encode(7))
        late = etcd_server.delete(keys[5])
        until(lambda: open_backup(place).manifest.through >= late, "all is sealed")
        follower.send_signal(signal.SIGTERM)
        told, _ = follower.communicate(timeout=60)
    finally:
        follower.kill()
        follower.wait()
    result = json.loads(told)
    assert (follower.returncode, result["counts"]["changes"], result["counts"]["gaps"]) == (0, 22, 0)
    wanted = etcd_server.dump(f"{root}/ledgers/")
    etcd_server.delete(root, below=True)

    listed = run(capsys, "backup", "list", place, "--json")
    assert (listed.code, listed.result["counts"]["changes"]) == (0, 22)
    [base] = csv.DictReader(io.StringIO(run(capsys, "backup", "list", place, "--csv").out))
    assert base == {name: str(value) for name, value in listed.result["bases"][0].items()}
    [base] = csv.DictReader(io.StringIO(run(capsys, "backup", "list", place, "--csv").out))
    assert base == {name: str(value) for name, value in listed.result["bases"][0].items()}
    assert run(capsys, "backup", "verify", place, "--at", str(early), "--json").code == 0
    captured = run(capsys, "capture", "--metadata", f"backup:{place}", "--out", tmp_path / "now", "--json")
    assert (captured.code, captured.result["counts"]["ledgers"]) == (0, 19)
    rows = open_dataset(tmp_path / "now", "catalog").read("ledgers").to_pylist()
    assert {keys[row["ledger"]]: row["raw"] for row in rows} == wanted
    then = ["--at", str(early), "--out", tmp_path / "then"]
    assert run(capsys, "capture", "--metadata", f"backup:{place}", *then, "--json").result["counts"]["ledgers"] == 20
    rows = open_dataset(tmp_path / "then", "catalog").read("ledgers").to_pylist()
    assert {row["raw"] for row in rows} == {encode(1)}
    life = run(capsys, "explain", "5", "--metadata", f"backup:{place}")
    assert f": created at revision {early - 14}: CLOSED, 2 entries" in life.out, life.out
    assert f": deleted at revision {late}: it was CLOSED, 2 entries" in life.out, life.out
    assert f"deleted at revision {late}, received 20" in life.out.splitlines()[0]
    assert sum(line.startswith("    received 20") for line in life.out.splitlines()) == 2
    earlier = run(capsys, "explain", "5", "--metadata", f"backup:{place}", "--at", str(early))
    assert (life.code, earlier.code) != (0, 0)
    assert "CLOSED" in earlier.out
    refused = run(capsys, "explain", "5", "--metadata", f"catalog://{tmp_path}/now", "--at", str(early))
    assert (refused.code, "names a moment of a backup" in refused.err) == (2, True)
