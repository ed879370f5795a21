"""A bookie of a real cluster: files of ids, a page, and what changes when another bookie is not collected."""

import json
from pathlib import Path

import pytest

from recovery.dataset import REPORT, open_dataset
from recovery.errors import DatasetError
from recovery.model.tables import BOOKIE_LISTS
from tests.support import acid
from tests.support.cases import case_dir, truth
from tests.support.cluster import Bookie, bookies_of
from tests.support.command import Done, run

CASE = "c06"
"""Re-replicated ledgers: bookies have entries that no record asks of them."""


@pytest.fixture(scope="module")
def inventories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an inventory of each bookie, by its number."""
    work = tmp_path_factory.mktemp("inventories")
    for bookie in bookies_of(truth(CASE)):
        roles = {"--journal-dir": bookie.journals, "--ledger-dir": bookie.ledgers, "--index-dir": bookie.indexes or ()}
        disks = [word for role, names in roles.items() for name in names for word in (role, case_dir(CASE) / name)]
        acid.run("collect", *disks, "--out", work / str(bookie.n))
    return work


def explain(capsys: pytest.CaptureFixture[str], given: list[Path], bookie: Bookie, *more: object) -> Done:
    """Run the command."""
    store = f"zkfiles://{case_dir(CASE) / 'zookeeper'}?root={truth(CASE)['root']}"
    named = [word for path in given for word in ("--inventory", path)]
    return run(capsys, "explain", "--bookie", bookie.id, "--metadata", store, *named, "--json", *more)


def test_what_names_it_and_what_it_holds(inventories: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of every bookie: named by the records that name it, segment by segment; it holds what its inventory says."""
    strays = 0
    for bookie in bookies_of(truth(CASE)):
        out = tmp_path / str(bookie.n)
        done = explain(capsys, sorted(inventories.iterdir()), bookie, "--out", out)
        files = {name: (out / f"{name}.txt").read_text().split() for name in BOOKIE_LISTS}
        counts = done.result["counts"]
        assert {name: len(ids) for name, ids in files.items()} == counts["ledgers"]
        naming = {
            str(row["ledger"]): [n for n, (_, members) in enumerate(row["segments"]) if bookie.id in members]
            for row in truth(CASE)["ledgers"]
        }
        assert set(files["named"]) == {ledger for ledger, segments in naming.items() if segments}
        assert counts["segments"] == sum(map(len, naming.values()))
        rows = {str(row["ledger"]): row for row in open_dataset(out, "bookie").read("ledgers").to_pylist()}
        assert all(rows[ledger]["segments"] == naming[ledger] for ledger in files["named"])
        copies = open_dataset(inventories / str(bookie.n), "inventory").read("copies").to_pylist()
        assert set(files["held"]) == {str(row["ledger"]) for row in copies if row["entries"] and row["source"] != "log"}
        assert bookie.id in (out / REPORT).read_text()
        assert done.code == (3 if files["only"] or files["lacking"] else 0)
        strays += len(files["strays"])
    assert strays > 0, "the case has copies that no record asks for"


def test_what_it_alone_holds_depends_on_who_was_collected(
    inventories: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Alone, a bookie has everything alone; without its inventory nothing is known; other options are refused."""
    bookie = bookies_of(truth(CASE))[0]
    own = inventories / str(bookie.n)
    alone = explain(capsys, [own], bookie)
    assert alone.code == 3
    assert alone.result["counts"]["only"] == alone.result["counts"]["held"] > 0
    assert len(alone.result["coverage"]["not_collected"]) == len(bookies_of(truth(CASE))) - 1
    together = explain(capsys, sorted(inventories.iterdir()), bookie)
    assert together.result["counts"]["only"] < alone.result["counts"]["only"]
    unknown = explain(capsys, [path for path in inventories.iterdir() if path != own], bookie)
    assert (unknown.code, unknown.result["counts"]["held"]) == (4, 0)
    assert explain(capsys, [own], bookie, "--layout", "flat").code == 2


def test_a_table_of_ones_own_stands_for_the_bookie(
    inventories: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it lists of a ledger is held; a folder that is none of inventories is said to be a file elsewhere."""
    bookie = bookies_of(truth(CASE))[0]
    rows = open_dataset(inventories / str(bookie.n), "inventory").read("copies").to_pylist()
    ledger = min(row["ledger"] for row in rows if row["entries"])
    table = tmp_path / "listed.jsonl"
    table.write_text(json.dumps({"bookie": bookie.id, "ledger": ledger, "entries": [[0, 0]]}) + "\n")
    done = explain(capsys, [table], bookie)
    assert (done.result["counts"]["held"], done.result["counts"]["ledgers"]["held"]) == (1, 1)
    with pytest.raises(DatasetError, match=r"listed\.jsonl: is a file"):
        open_dataset(table, "inventory")
