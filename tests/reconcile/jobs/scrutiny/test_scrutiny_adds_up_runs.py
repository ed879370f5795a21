"""What only several runs show together, by the command: waiting adds up, marks stand still, entries rise."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kazoo.client import KazooClient

from backends.pace import Pace
from backends.protocols import Write
from backends.registry import open_store
from reconcile.cli import options
from recovery.codecs.keys import mark_keys
from recovery.codecs.store import Layout
from recovery.dataset import open_dataset
from recovery.model.ids import LedgerId
from tests.support.command import run
from tests.support.deletes import BOOKIES, Ledger, fill_store, name_looks, write_looks
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.real

GONE = "bk1:3181"
MARKED, WRITTEN_ON = 2, 5
LEDGERS = tuple(Ledger(LedgerId(0, number)) for number in range(6))
APART = timedelta(seconds=40)
"""Less than an audit may take, which is 60 s; two graces."""


@pytest.fixture
def cluster(zookeeper_server: ZooKeeperServer, tmp_path: Path) -> Iterator[str]:
    """A store with an elected auditor, a marked ledger, and a bookie with a cookie that is not registered."""
    root = f"/{tmp_path.name}/ledgers"
    uri = f"zk+hierarchical://{zookeeper_server.hosts}{root}"
    [mark] = mark_keys(*(np.array([half], np.int64) for half in (0, MARKED)))
    with open_store(uri, writable=True) as opened:
        fill_store(opened.store, root, Layout.HIERARCHICAL, LEDGERS)
        opened.store.write([Write(root + mark, b"")])
    auditor = KazooClient(zookeeper_server.hosts)
    auditor.start()
    auditor.create(f"{root}/underreplication/auditorelection/V_0000000001", b"", ephemeral=True, makepath=True)
    yield uri
    auditor.stop()
    auditor.close()


def test_what_no_run_sees_alone(
    cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three runs, 40 s apart, each after the one before; a fourth knows none of them. All read by a limit."""
    rates: list[float | None] = []

    class NotingPace(Pace):
        def __init__(self, ops_s: float | None) -> None:
            rates.append(ops_s)
            super().__init__(ops_s)

    monkeypatch.setattr("backends.zookeeper.reader.Pace", NotingPace)
    found: list[dict[str, dict[Any, str]]] = []
    figures: list[list[str]] = []
    began = datetime.now(UTC)
    for number in range(4):
        at = began + APART * min(number, 2)
        monkeypatch.setattr(options, "now", repeat(at).__next__)
        rising = replace(LEDGERS[WRITTEN_ON], last=10 + number)
        looks = write_looks(
            tmp_path / f"looks-{number}", (*LEDGERS[:WRITTEN_ON], rising),
            bookies=[name for name in BOOKIES if name != GONE], ended=began + timedelta(hours=1),
        )  # fmt: skip
        out = tmp_path / f"run-{number}"
        since = ("--since", tmp_path / f"run-{number - 1}") if 0 < number < 3 else ()
        done = run(
            capsys, "scrutinize", "--metadata", cluster, *name_looks(looks),
            "--grace", "20s", "--recheck-after", "0s", "--max-ops-s", "54321", "--out", out, *since,
            "--json",
        )  # fmt: skip
        assert done.code in (3, 4), done
        of_run: dict[str, dict[Any, str]] = {}
        for row in open_dataset(out, "scrutiny").read("findings").to_pylist():
            subject = row["subject"] if row["ledger"] is None else row["ledger"]
            of_run.setdefault(row["category"], {})[subject] = row["severity"]
        found.append(of_run)
        figures.append((out / "metrics.prom").read_text().splitlines())

    assert rates == [54_321] * 4
    unaware = [of_run.get("AUDITOR_UNAWARE", {}).keys() for of_run in found]
    assert unaware == [set(), set(), {GONE}, set()], "an auditor that lives and marks nothing: 80 s, by three runs"
    stalled = [of_run.get("REPLICATION_STALLED", {}).keys() for of_run in found]
    assert stalled == [set(), {"underreplication"}, {"underreplication"}, set()]
    risen = [of_run["ENTRIES_BEYOND_LAST_ENTRY"][WRITTEN_ON] for of_run in found]
    assert risen == ["info", "info", "critical", "info"], "higher at two later looks: a writer goes on"
    prefix = "bookkeeper_metadata_scrutiny_"
    assert f'{prefix}skipped{{reason="marked"}} 1.0' in figures[0], "later its mark is overdue: a finding"
    told = [f'{prefix}copies_not_judged{{reason="marked"}} 30.0', f"{prefix}marks 1.0"]
    for number, lines in enumerate(figures[:3]):
        assert {*told, f"{prefix}marks_same_runs {number + 1}.0"} <= set(lines)
        assert any(line.startswith(f"{prefix}marks_oldest_seconds ") for line in lines)
