"""`preflight` on a real etcd, which nothing can freeze: its words and exit codes."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from backends.etcd.store import EtcdStore
from backends.protocols import Write
from recovery.codecs import store
from recovery.codecs.keys import ledger_keys
from recovery.codecs.store import Layout
from tests.support.command import run
from tests.support.etcd_server import EtcdServer
from tests.support.inventories import write_inventory

pytestmark = pytest.mark.real

ROOT = "/preflight"
INSTANCE = "d1a6f3b2-0c6e-4a57-9a5b-5d0d1c2e3f40"
LEDGERS = np.arange(100)


@pytest.fixture
def filled(etcd_server: EtcdServer) -> Iterator[EtcdStore]:
    """A cluster's keys, and the ledgers' records."""
    etcd_server.wipe()
    opened = EtcdStore(etcd_server.hosts, top=ROOT)
    where = store.places(Layout.ETCD)
    keys = ledger_keys(Layout.ETCD, np.zeros_like(LEDGERS), LEDGERS).to_pylist()
    names = {where.layout: store.layout_bytes(Layout.ETCD), where.instance_id: INSTANCE.encode()}
    opened.write([Write(ROOT + key, value) for key, value in names.items()])
    for at in range(0, len(keys), 50):
        opened.write([Write(ROOT + key, b"record") for key in keys[at : at + 50]])
    yield opened
    opened.close()


def test_a_root_that_is_gone(etcd_server: EtcdServer, capsys: pytest.CaptureFixture[str]) -> None:
    """CRITICAL, exit 3; etcd is to be copied, the bookies kept stopped; no freeze is offered, no ZooKeeper named."""
    done = run(capsys, "preflight", "--metadata", f"etcd://{etcd_server.hosts}/nowhere")
    assert done.code == 3
    assert "ZooKeeper" not in done.out
    assert "EVERY etcd member" in done.out
    assert "Keep all of them stopped until apply has ended" in done.out
    assert "CRITICAL: nothing is below /nowhere" in done.out
    following = done.out.splitlines()[-1]
    assert following.startswith("next: stop every bookie (kill -STOP) and keep them stopped until apply has ended")


def test_all_that_bookies_hold_is_listed(
    etcd_server: EtcdServer, filled: EtcdStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 0: that etcd has no rights, marks or auditor leaves nothing open; one ledger gone is a warning, exit 3."""
    made = write_inventory(
        tmp_path / "b1", "b1", LEDGERS.tolist(), instance=INSTANCE, formatted=[datetime(2021, 3, 4, tzinfo=UTC)],
        ended=datetime.now(UTC),
    )  # fmt: skip
    arguments = ["--metadata", f"etcd://{etcd_server.hosts}{ROOT}", "--inventory", str(made), "--json"]
    done = run(capsys, "preflight", *arguments)
    assert (done.code, done.result["level"], done.result["freeze"]) == (0, "ok", None)
    said = " ".join(finding["text"] for finding in done.result["findings"])
    assert "cannot be frozen" in said
    assert any("EVERY etcd member" in step for step in done.result["first_ten_minutes"])
    key = ROOT + ledger_keys(Layout.ETCD, np.zeros(1, np.int64), LEDGERS[:1]).to_pylist()[0]
    held = filled.get(key)
    assert held is not None
    filled.write([Write(key, None, held.version)])
    done = run(capsys, "preflight", *arguments)
    assert (done.code, done.result["counts"]["ledgers_absent"]) == (3, 1)
    assert "freeze" not in done.result["next"]


def test_that_bookies_stop_collecting_is_said_once(
    etcd_server: EtcdServer, filled: EtcdStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the setting that makes it so, and the bookies that have it; one that is set to go on is none of them."""
    etcd_server.put(f"{ROOT}/bookies/writable/10.0.0.1:3181")
    etcd_server.put(f"{ROOT}/bookies/readonly/10.0.0.2:3181")
    (tmp_path / "conf").write_text("bookieId=10.0.0.2:3181\ngcOverreplicatedLedgerWaitTime=0\n")
    arguments = ["--metadata", f"etcd://{etcd_server.hosts}{ROOT}", "--bookie-conf", tmp_path / "conf", "--json"]
    done = run(capsys, "preflight", *arguments)
    [text] = [row["text"] for row in done.result["findings"] if "gcOverreplicatedLedgerWaitTime" in row["text"]]
    assert text.endswith("with 0 it goes on: 10.0.0.1:3181")
    assert "so deleted ledgers stay on its disks until it is started again" in text
