"""Bookies of DbLedgerStorage give no lists: their inventories are made beside them, and what these lack is read."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recovery.dataset import open_dataset
from tests.support.cluster import Bookie, Cluster, encoded
from tests.support.command import Done, run
from tests.support.scrutinized_cluster import ScrutinizedCluster

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScrutinizedCluster]:
    """Three bookies, each with ledgers in its databases and in its journal."""
    with Cluster(tmp_path_factory.mktemp("db") / "cluster") as cluster:
        healthy = ScrutinizedCluster(cluster, storage="db", bookies=3)
        for _ in range(3):
            healthy.write((3, 2, 2), 20)
        for bookie in healthy.bookies:
            cluster("bookie_stop", n=bookie.n)
            cluster.start(bookie)
        for _ in range(3):
            healthy.write((2, 2, 2), 20)
        yield healthy


def collect(capsys: pytest.CaptureFixture[str], uri: str, home: Path, bookie: Bookie, out: Path) -> Path:
    """Make the inventory of a bookie's disks; it runs meanwhile."""
    folders = ["--journal-dir", home / bookie.journals[0], "--ledger-dir", home / bookie.ledgers[0]]
    run(capsys, "collect", *folders, "--metadata", uri, "--out", out)
    return out


def scrutinize(
    capsys: pytest.CaptureFixture[str], there: ScrutinizedCluster, inventories: Path, out: Path
) -> tuple[Done, dict[str, set[Any]], dict[int, tuple[str, str | None]]]:
    """Run the command; return how it ended, category → ledgers, ledger → verdict."""
    done = run(
        capsys, "scrutinize", "--metadata", there.uri, "--wire", "--inventory-dir", inventories, "--out", out,
        "--recheck-after", "0s", "--deadline", "20", "--json",
    )  # fmt: skip
    seen = open_dataset(out, "scrutiny")
    found: dict[str, set[Any]] = {}
    for row in seen.read("findings").to_pylist():
        found.setdefault(row["category"], set()).add(row["subject"] if row["ledger"] is None else row["ledger"])
    rows = seen.read("verdicts").to_pylist()
    return done, found, {row["ledger"]: (row["verdict"], row["reason"]) for row in rows}


def test_inventories_beside_running_bookies_and_entries_that_are_read_decide(
    there: ScrutinizedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Clean; misplaced where the bookie says that it lacks it; undecided where the record is newer than the list.

    An old copy of a disk is no proof either: what the bookie itself gives when it is asked counts.
    """
    home, first = there.cluster.home, there.bookies[0]
    copy = tmp_path / "old"
    for folder in (*first.journals, *first.ledgers):
        shutil.copytree(home / folder, copy / folder)
    few, many = there.write((3, 3, 3), 10), there.write((3, 3, 3), 40)
    how = {"E": 1, "W": 1, "A": 1, "digest": "CRC32C", "password": encoded(b"pw"), "custom": {}}
    wrong: int = there.cluster("create", members=[first.id], **how)
    there.cluster("add", ledger=wrong, sizes=[20] * 10, ids=None)
    there.cluster("close", ledger=wrong)
    there.rename(wrong, first.id, there.bookies[1].id)
    # Its record will name a bookie whose list is older: not the first, which has no list later and is asked instead.
    late = there.write((2, 2, 2), 10)
    while there.stranger(late) == first.id:
        late = there.write((2, 2, 2), 10)
    inventories = tmp_path / "inventories"
    for bookie in there.bookies:
        collect(capsys, there.uri, home, bookie, inventories / str(bookie.n))
    stranger = there.stranger(late)
    there.rename(late, there.members(late)[0], stranger)
    done, found, judged = scrutinize(capsys, there, inventories, tmp_path / "run")
    assert found == {"ENTRIES_MISPLACED": {wrong}, "ONE_COPY": {wrong}, "OVER_REPLICATED": {late}}
    assert done.code == 3
    assert judged.pop(wrong)[0] == "ENTRIES_MISPLACED"
    assert judged.pop(late) == ("undecided", "changed")
    assert set(judged.values()) == {("clean", None)}
    assert (done.result["coverage"]["inventories"], done.result["coverage"]["asked"]) == (3, 0)

    shutil.rmtree(inventories / "0")
    collect(capsys, there.uri, copy, first, inventories / "0")
    done, found, judged = scrutinize(capsys, there, inventories, tmp_path / "stale")
    # Only the copy's bookie has the misplaced ledger: it is asked before anything is called lost.
    assert found["ENTRIES_MISPLACED"] == {wrong}
    assert found.keys() <= {"ENTRIES_MISPLACED", "ONE_COPY", "OVER_REPLICATED"}
    assert done.result["counts"]["rechecked"] >= 2
    assert judged[few] == ("clean", None)
    # Of forty entries sixteen were read, and are there: nothing shows that the others are not.
    assert judged[many] == ("undecided", "no answer")
