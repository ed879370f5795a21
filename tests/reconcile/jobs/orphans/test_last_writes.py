"""When real bookies' ledgers were written last, by the times that their files were given."""

import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from reconcile.jobs.orphans.last_writes import read_last_writes
from recovery.collect.incremental import state as state_module
from recovery.dataset import Dataset, open_dataset
from recovery.model.ids import BUCKETS
from tests.support.cases import copy_of, operator
from tests.support.command import run

EARLY, LATE, LATEST = 1_700_000_000, 1_700_000_100, 1_700_000_200
TEXTS = {EARLY: "2023-11-14T22:13:20+00:00", LATE: "2023-11-14T22:15:00+00:00", LATEST: "2023-11-14T22:16:40+00:00"}
Collect = Callable[..., Dataset]


@pytest.fixture
def collect(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Collect:
    """Give a function that collects the first bookie of a case, whose files have times by the ends of their names."""
    monkeypatch.setattr(state_module, "_TICK_NS", -(10**15))

    def make(case: str, times: Mapping[str, int], *more: str) -> Dataset:
        home = copy_of(case, tmp_path / "copies")
        bookie = operator(case)["bookies"][0]
        for path in (home / "bookies").rglob("*"):
            if path.is_file():
                at = next((at for end, at in times.items() if f"/{path}".endswith(end)), EARLY)
                os.utime(path, (at, at))
        words = [w for folder in bookie["ledgers"] for w in ("--ledger-dir", home / folder)]
        words += [w for folder in bookie["journals"] for w in ("--journal-dir", home / folder)]
        done = run(capsys, "collect", *words, "--out", tmp_path / "inventory", *more)
        assert done.code == 0, done.out + done.err
        return open_dataset(tmp_path / "inventory", "inventory")

    return make


def read(inventory: Dataset) -> dict[int, str]:
    """Return ledger → when it was written last."""
    return {row["ledger"]: row["last_write"] for row in read_last_writes([inventory], range(BUCKETS)).to_pylist()}


def test_an_index_file_says_when(collect: Collect) -> None:
    """Whatever the logs' times are: what the file names was there when it was written."""
    inventory = collect("c02", {"/5.idx": LATE, ".log": LATEST, ".txn": LATEST}, "--incremental")
    found = read(inventory)
    beside = {r["ledger"] for r in inventory.read("copies").to_pylist() if r["source"] != "index"}
    assert found[5] == TEXTS[LATE]
    assert set(found) == set(inventory.read("copies")["ledger"].to_pylist())
    for ledger, text in found.items():
        assert text == (TEXTS[LATEST] if ledger in beside else TEXTS[LATE] if ledger == 5 else TEXTS[EARLY])


def list_ledgers(log: Path) -> set[int]:
    """Return the ledgers that a log has entries of: each record is its size, ledger and entry, from byte 1024 on."""
    raw, ledgers, position = log.read_bytes(), set(), 1024
    while position + 4 <= len(raw) and (size := struct.unpack_from(">i", raw, position)[0]) > 0:
        ledgers.add(struct.unpack_from(">q", raw, position + 4)[0])
        position += 4 + size
    return {ledger for ledger in ledgers if ledger >= 0}


def test_a_database_says_which_logs(collect: Collect, tmp_path: Path) -> None:
    """The youngest of the logs that have a ledger's entries; logs of one number in two folders count together.

    What only a journal has is no younger than the journal.
    """
    inventory = collect("c09", {"/1.log": LATEST, "/2.log": LATE}, "--incremental")
    logs = [path for path in tmp_path.rglob("b0/*/current/[0-9]*.log") if path.name in ("1.log", "2.log")]
    of_first = {ledger for path in logs if path.name == "1.log" for ledger in list_ledgers(path)}
    of_second = {ledger for path in logs if path.name == "2.log" for ledger in list_ledgers(path)}
    found = read(inventory)
    assert of_second - of_first
    in_no_log = found.keys() - of_first - of_second
    assert len(in_no_log) == 1
    assert {found[ledger] for ledger in in_no_log} == {TEXTS[EARLY]}
    for ledger in of_first | of_second:
        assert found[ledger] == TEXTS[LATEST if ledger in of_first else LATE]


def test_what_kept_no_times_says_so(collect: Collect) -> None:
    """It is not known, and which bookie's inventory would tell it."""
    inventory = collect("c02", {})
    assert set(read(inventory).values()) == {"not known: the inventory of 10.0.0.1:3181 keeps no times"}
