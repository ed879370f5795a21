"""Drills as a person runs them: what is given then decides what would come back."""

from pathlib import Path

import pytest

from reconcile.cli.option_groups.ledger_files import read_ledger_file
from recovery.dataset import open_dataset
from tests.support import acid, impact_judge
from tests.support.cases import case_dir, operator, truth
from tests.support.cluster import bookies_of
from tests.support.command import Done, run
from tests.support.impacts import write_catalog
from tests.support.inventories import write_inventory

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def drill(capsys: pytest.CaptureFixture[str], *arguments: object) -> Done:
    """Run the command."""
    return run(capsys, "drill", "--master", "local[1]", "--json", *arguments)


def test_what_a_capture_is_worth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a capture empty ledgers are lost, A is a guess, and today's advice says so; with one all is exact."""
    folder, facts = case_dir("c01"), truth("c01")
    secrets = acid.passwords_file([text.encode() for text in operator("c01")["passwords"]], tmp_path / "passwords")
    for bookie in bookies_of(facts):
        roles = {"--journal-dir": bookie.journals, "--ledger-dir": bookie.ledgers, "--index-dir": bookie.indexes or ()}
        disks = [word for role, names in roles.items() for name in names for word in (role, folder / name)]
        acid.run("collect", *disks, "--passwords", secrets, "--out", tmp_path / "inventories" / str(bookie.n))
    store = f"zkfiles://{folder / 'zookeeper'}?root={facts['root']}"
    given = ["--inventory-dir", tmp_path / "inventories", "--metadata", store, "--passwords", secrets]
    alone = drill(capsys, *given, "--out", tmp_path / "alone")
    empty = {row["ledger"] for row in facts["ledgers"] if not row["entries"]}
    assert alone.code == 3
    counts = alone.result["counts"]
    assert (counts["lost"], counts["held"], counts["undecided"], counts["entries_lost"]) == (len(empty), 0, 0, 0)
    assert counts["exact"] + counts["readable"] + len(empty) == counts["listed"] == len(facts["ledgers"])
    rows = open_dataset(tmp_path / "alone", "drill").read("drills").to_pylist()
    assert {row["ledger"] for row in rows if row["class"] == "lost"} == empty
    assert list(alone.result["ids"]) == ["lost"]
    assert {ledger.ledger for ledger in read_ledger_file(Path(alone.result["ids"]["lost"]), None)} == empty
    assert alone.result["guessed"]["ack_quorum"] == counts["listed"] - len(empty)
    assert alone.result["differs"]["ack_quorum"] > 0
    assert [word for word in ("--snapshot", "--expect-bookies") if word not in " ".join(alone.result["today"])] == []
    kept = drill(capsys, *given, "--snapshot", store, "--out", tmp_path / "kept")
    assert (kept.code, kept.result["counts"]["exact"]) == (0, len(facts["ledgers"]))
    assert kept.result["differs"] == {}
    assert "--snapshot" not in " ".join(kept.result["today"])


def test_a_record_that_nobody_can_read_is_undecided(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing says what would be true of it. A bookie that records name and nobody collected is named."""
    bookies = [f"bk{number}:3181" for number in (1, 2, 3)]
    ledgers = [impact_judge.Ledger(n, (2, 2, 2), "CLOSED", 9, ((0, (bookies[0], bookies[1])),)) for n in (1, 2)]
    write_catalog(tmp_path / "store", bookies, ledgers, unreadable=[1, 2])
    for bookie in bookies[:2]:
        write_inventory(tmp_path / "inventories" / bookie, bookie, [1, 2], instance=None, last=9, entries=10)
    done = drill(
        capsys, "--inventory-dir", tmp_path / "inventories", "--metadata", f"catalog://{tmp_path / 'store'}",
        "--out", tmp_path / "run",
    )  # fmt: skip
    assert done.code == 4
    assert done.result["counts"]["undecided"] == 2
    assert done.result["reasons"]["undecided"] == {"its record cannot be read now": 2}
    assert done.result["coverage"]["not_collected"] == [bookies[2]]
    assert any(bookies[2] in sentence for sentence in done.result["today"])
