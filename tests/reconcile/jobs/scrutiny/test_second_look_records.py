"""What a record alone shows is read again before it is reported, and nothing of it is said of marked ledgers."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from backends.protocols import Write
from backends.registry import open_store
from reconcile.jobs.scrutiny import scrutinize as job
from reconcile.jobs.scrutiny.first_look import write_first_look
from recovery.codecs.keys import mark_keys
from recovery.codecs.store import Layout, ledger_key
from recovery.dataset import open_dataset
from recovery.model.ids import LedgerId
from tests.support.command import run
from tests.support.deletes import Ledger, fill_store, write_looks
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.real

LEDGERS = tuple(Ledger(LedgerId(0, number)) for number in range(6))
GONE, MARKED, CHANGED, MARKED_BEFORE = 1, 2, 3, 4


def test_what_stood_once_is_not_reported(
    zookeeper_server: ZooKeeperServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All are against the policy: one is deleted, one marked, one written between the looks; one is marked anyway."""
    root = f"/{tmp_path.name}/ledgers"
    uri = f"zk+hierarchical://{zookeeper_server.hosts}{root}"
    record = {number: root + ledger_key(Layout.HIERARCHICAL, LedgerId(0, number)) for number in range(6)}
    marks = {n: root + mark_keys(*(pa.array([half]).to_numpy() for half in (0, n)))[0] for n in (MARKED, MARKED_BEFORE)}
    with open_store(uri, writable=True) as opened:
        fill_store(opened.store, root, Layout.HIERARCHICAL, LEDGERS)
        opened.store.write([Write(marks[MARKED_BEFORE], b"")])
    looks = write_looks(tmp_path / "looks", LEDGERS)
    (tmp_path / "racks").write_text("".join(f"bk{n}:3181 /region/rack\n" for n in range(1, 9)))
    (tmp_path / "policy").write_text("enforceMinNumRacksPerWriteQuorum=true\n")

    def go_on(*arguments: Any) -> None:
        write_first_look(*arguments)
        with open_store(uri, writable=True) as opened:
            nodes = {number: opened.store.get(record[number]) for number in (GONE, CHANGED)}
            for number, node in nodes.items():
                assert node is not None
                opened.store.write([Write(record[number], None if number == GONE else node.value, node.version)])
            opened.store.write([Write(marks[MARKED], b"")])

    monkeypatch.setattr(job, "write_first_look", go_on)
    done = run(
        capsys, "scrutinize", "--metadata", uri, *(word for path in looks for word in ("--inventory", path)),
        "--topology", tmp_path / "racks", "--placement", tmp_path / "policy", "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    assert done.code == 3, done.err
    seen = open_dataset(tmp_path / "run", "scrutiny")
    found = {row["ledger"] for row in seen.read("findings").to_pylist() if row["category"] == "PLACEMENT_VIOLATED"}
    assert found == {0, 5}
    verdicts = {row["ledger"]: (row["verdict"], row["reason"]) for row in seen.read("verdicts").to_pylist()}
    assert {number: verdicts[number] for number in (GONE, MARKED, CHANGED, MARKED_BEFORE)} == {
        GONE: ("skipped", "gone"), MARKED: ("skipped", "marked"), CHANGED: ("undecided", "changed"),
        MARKED_BEFORE: ("skipped", "marked"),
    }  # fmt: skip
    assert done.result["counts"]["rechecked"] == 5
