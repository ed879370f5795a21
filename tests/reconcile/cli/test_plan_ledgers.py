"""`plan ledgers`: the ledgers of a plan by outcome, reason and copies, with their topics."""

import csv
import io
import json
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from recovery.codecs import ledger_metadata
from recovery.dataset import Dataset
from recovery.model import tables
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.support.command import run
from tests.support.findings import finding
from tests.support.plan_folder import Ledger, write_plan

NAMES: Final = ("b1", "b2", "b3")
TOPIC: Final = b"public/default/persistent/orders"
LEDGERS: Final = (
    *(Ledger(n, [(0, NAMES)], last=9) for n in range(1, 20)),
    Ledger(20, [(0, NAMES)], last=9, missing=4, custom={"pulsar/managed-ledger": TOPIC}),
    Ledger(21, [(0, NAMES)], last=9, missing=1, owner="persistent://public/default/invoices", scope=7),
    Ledger(22, [(0, NAMES[:2])], reason="ragged_tail", missing=3),
    Ledger(23, [(0, NAMES[:2])], reason="no_key", verdict="undecided"),
)


@pytest.fixture
def made(tmp_path: Path) -> Dataset:
    """A plan of 21 restored ledgers, two with few copies, and two holds."""
    return write_plan(tmp_path / "plan", LEDGERS)


def test_those_with_few_copies_are_listed_for_replication(made: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    """Restored ledgers of which copies are missing, with their topics; --ids prints what another program reads."""
    found = run(capsys, "plan", "ledgers", made.path, "--few-copies", "--json").result
    assert {(line["ledger"], line["topic"], line["missing_copies"]) for line in found["ledgers"]} == {
        ("20", TOPIC.decode(), 4),
        ("7:21", "persistent://public/default/invoices", 1),
    }
    ids = run(capsys, "plan", "ledgers", made.path, "--few-copies", "--ids").out.splitlines()
    assert sorted(ids) == ["20", "7:21"]


@pytest.mark.parametrize(
    ("options", "ledgers"),
    [
        (["--outcome", "held"], {"22", "23"}),
        (["--outcome", "held", "--reason", "no_key"], {"23"}),
        (["--reason", "two_keys"], set()),
        (["--undecided"], {"23"}),
    ],
)
def test_a_list_is_by_outcome_reason_or_verdict(
    options: list[str], ledgers: set[str], made: Dataset, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the report leaves out stands here."""
    found = run(capsys, "plan", "ledgers", made.path, *options, "--json").result
    assert {line["ledger"] for line in found["ledgers"]} == ledgers
    assert found["counts"] == {"ledgers": len(ledgers), "listed": len(ledgers)}


def test_a_long_list_says_what_it_leaves_out(made: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    """All are counted, the first are listed, and the rest is one option away."""
    done = run(capsys, "plan", "ledgers", made.path, "--first", "5")
    assert done.out.splitlines()[0] == "23 ledgers"
    assert "and 18 more: --first 23, or --ids" in done.out
    assert len(run(capsys, "plan", "ledgers", made.path, "--ids").out.splitlines()) == 23


def test_ledgers_with_a_finding_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All of one category, whose other half the report left out; findings of no ledger are not among them."""
    rows = [finding("NOT_ON_BOOKIES", "critical", 4711, bookies=["b1"]), finding("ID_REUSE", "critical", 5)]
    rows += [finding("COOKIE_DIFFERS", "critical", None, subject="/cookies/b1")]
    findings = pa.Table.from_pylist(rows, schema=tables.FINDINGS).sort_by("bucket")
    made = write_plan(tmp_path / "plan", LEDGERS, findings=findings)
    found = run(capsys, "plan", "ledgers", made.path, "--category", "NOT_ON_BOOKIES", "--json").result
    assert [(line["ledger"], line["reason"]) for line in found["ledgers"]] == [("4711", "NOT_ON_BOOKIES")]
    assert run(capsys, "plan", "ledgers", made.path, "--category", "COOKIE_DIFFERS", "--ids").out == ""
    assert run(capsys, "plan", "ledgers", made.path, "--category", "NOTHING").code == 2


def test_options_that_exclude_each_other_are_usage(made: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    """An undecided ledger has no outcome; a list of ids is no object."""
    assert run(capsys, "plan", "ledgers", made.path, "--undecided", "--few-copies").code == 2
    assert run(capsys, "plan", "ledgers", made.path, "--undecided", "--category", "HELD").code == 2
    assert run(capsys, "plan", "ledgers", made.path, "--ids", "--json").code == 2


def test_repairs_are_commands_for_guarded_ledgers_of_a_lost_bookie(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of those under a lock alone: workers repair the others; and of this bookie alone."""
    guards = {1: "lock", 2: "lock", 3: None, 4: "named", 5: "release", 6: "lock"}
    members = {6: ["b2:1", "b3:1", "b4:1"]}
    plan = write_plan(
        tmp_path / "plan",
        [Ledger(n, [(0, members.get(n, ["b1:1", "b2:1", "b3:1"]))], guard=guard) for n, guard in guards.items()]
        + [Ledger(9, [(0, ["b1:1", "b2:1", "b3:1"])], scope=3, guard="lock")],
    )
    done = run(capsys, "plan", "ledgers", plan.path, "--repair", "b1:1")
    assert done.code == 0
    assert sorted(done.out.splitlines()) == [
        "bookkeeper shell recover -f -l 1 b1:1",
        "bookkeeper shell recover -f -l 2 b1:1",
    ]
    listed = run(capsys, "plan", "ledgers", plan.path, "--outcome", "guarded", "--ids").out.split()
    assert sorted(listed) == ["1", "2", "3:9", "4", "6"]
    assert run(capsys, "plan", "ledgers", plan.path, "--repair", "b1:1", "--ids").code == 2
    assert run(capsys, "plan", "ledgers", plan.path, "--repair", "no bookie").code == 2


def test_repairs_that_the_lock_of_a_reused_id_blocks_are_listed_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Behind those of guards; that an export comes first is no line of the commands."""
    reused = [LedgerId(0, 30), LedgerId(0, 31), LedgerId(5, 32)]
    plan = write_plan(tmp_path / "plan", [Ledger(1, [(0, ["b1:1", "b2:1", "b3:1"])], guard="lock")], reused=reused)
    done = run(capsys, "plan", "ledgers", plan.path, "--repair", "b1:1")
    assert done.code == 0, done
    first, *last = done.out.splitlines()
    assert (done.code, first) == (0, "bookkeeper shell recover -f -l 1 b1:1")
    assert sorted(last) == ["bookkeeper shell recover -f -l 30 b1:1", "bookkeeper shell recover -f -l 31 b1:1"]
    assert "the last 2 commands: two ledgers have the id" in done.err
    assert "Export the older one first" in done.err
    assert run(capsys, "plan", "ledgers", plan.path, "--repair", "b7:1").code == 2


def test_what_a_choice_guards_is_repaired_as_well_and_an_unknown_bookie_is_a_slip(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The record that is written says whom it names; a name of nobody is not answered by nothing."""
    record = LedgerMetadata(
        3, 2, 2, 2, LedgerState.CLOSED, 9, 90, (Segment(0, ("b8:1", "b9:1")),), Digest.CRC32C, b"", creator_token=0
    )
    offers = {"guarded": ledger_metadata.encode(record)}
    plan = write_plan(tmp_path / "plan", [Ledger(7, [(0, ["b1:1"])], reason="two_keys", offers=offers)])
    assert run(capsys, "plan", "edit", plan.path, "--choose", "7=guarded", "--out", tmp_path / "chosen").code == 0
    assert run(capsys, "plan", "ledgers", tmp_path / "chosen", "--repair", "b9:1").out.splitlines() == [
        "bookkeeper shell recover -f -l 7 b9:1"
    ]
    refused = run(capsys, "plan", "ledgers", tmp_path / "chosen", "--repair", "b2:1")
    assert (refused.code, refused.out) == (2, "")
    assert "names no bookie b2:1 (known: b1)" in refused.err
    assert run(capsys, "plan", "ledgers", tmp_path / "chosen", "--repair", "b1").code == 0


def test_a_list_as_csv(made: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    """The rows of --json with the names of their columns; the verdict, and what is left out, are on stderr."""
    rows = run(capsys, "plan", "ledgers", made.path, "--few-copies", "--json").result["ledgers"]
    done = run(capsys, "plan", "ledgers", made.path, "--few-copies", "--csv")
    read = list(csv.DictReader(io.StringIO(done.out)))
    assert (done.code, done.err) == (0, "2 ledgers (few copies)\n")
    assert [line.keys() for line in read] == [row.keys() for row in rows]
    assert [(line["ledger"], line["topic"], int(line["missing_copies"])) for line in read] == [
        (row["ledger"], row["topic"], row["missing_copies"]) for row in rows
    ]
    assert [json.loads(line["holders"]) for line in read] == [row["holders"] for row in rows]
    assert {line["reason"] for line in read} == {""}
    short = run(capsys, "plan", "ledgers", made.path, "--first", "5", "--csv")
    assert (len(short.out.splitlines()), short.err) == (6, "23 ledgers; and 18 more: --first 23, or --ids\n")
    none = run(capsys, "plan", "ledgers", made.path, "--reason", "two_keys", "--csv").out
    assert none.split() == [",".join(rows[0])]


@pytest.mark.parametrize("other", ["--json", "--short", "--ids", "--repair=b1"])
def test_one_form_at_a_time(other: str, made: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    """--csv beside another form is refused in one line that names both."""
    done = run(capsys, "plan", "ledgers", made.path, "--csv", other)
    assert done.code == 2
    said = done.result["verdict"] if other == "--json" else done.err
    assert other.partition("=")[0] in said
    assert "--csv" in said or "stands alone" in said


def test_differences_as_csv(made: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`plan diff --csv`: the rows of --json."""
    other = write_plan(tmp_path / "other", LEDGERS[1:])
    rows = run(capsys, "plan", "diff", made.path, other.path, "--json").result["differences"]
    done = run(capsys, "plan", "diff", made.path, other.path, "--csv")
    read = list(csv.DictReader(io.StringIO(done.out)))
    assert done.code == 3
    assert rows
    assert [line["key"] for line in read] == [row["key"] for row in rows]
    assert [line.keys() for line in read] == [row.keys() for row in rows]
