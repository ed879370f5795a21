"""Ledgers of real clusters explained, as the command is typed: every side that is known, and the exit code."""

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from backends.protocols import Write
from recovery.capture.live import capture
from recovery.codecs.store import Layout
from recovery.collect.options import CollectOptions
from recovery.collect.pipeline import collect
from recovery.dataset import DatasetWriter, open_dataset
from recovery.model.groups import from_arrow, to_runs
from tests.support import cases
from tests.support.command import Done, run
from tests.support.memory_store import MemoryStore
from tests.support.plan_folder import of_truth, write_plan

pytestmark = pytest.mark.long

Inventories = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def inventories(tmp_path_factory: pytest.TempPathFactory) -> Inventories:
    """Gives --inventory for every bookie of a case, each collected once."""
    made: dict[str, list[str]] = {}

    def of(name: str) -> list[str]:
        if name not in made:
            made[name] = []
            for bookie in cases.operator(name)["bookies"]:
                ledgers, indexes, journals = (
                    tuple(cases.case_dir(name) / folder for folder in bookie[role] or ())
                    for role in ("ledgers", "indexes", "journals")
                )
                out = tmp_path_factory.mktemp(name) / "inventory"
                options = CollectOptions(ledgers, indexes, journals)
                collect(options, out, now=lambda: datetime.now(UTC), progress=lambda _: None)
                made[name] += ["--inventory", str(out)]
        return made[name]

    return of


@pytest.fixture
def knowledge(tmp_path: Path) -> list[str]:
    """The passwords and the bookies that an operator of c01 knows."""
    passwords, members = tmp_path / "passwords", tmp_path / "members"
    passwords.write_text("hunter2\n")
    passwords.chmod(0o600)
    members.write_text("".join(f"{bookie['id']}\n" for bookie in cases.truth("c01")["bookies"]))
    return ["--passwords", str(passwords), "--expect-bookies", str(members)]


@pytest.fixture
def catalog(tmp_path: Path) -> str:
    """A capture of the store as it was before the loss."""
    store = MemoryStore()
    for row in cases.truth("c01")["ledgers"]:
        store.write([Write(row["path"], base64.b64decode(row["raw"]))])
    with DatasetWriter(tmp_path / "catalog", "catalog", binding={}, secret=True) as out:
        capture(store, "/ledgers", Layout.HIERARCHICAL, out, clock=lambda: datetime.now(UTC))
    return f"catalog://{tmp_path / 'catalog'}"


def _explain(capsys: pytest.CaptureFixture[str], ledger: object, *arguments: str) -> Done:
    done = run(capsys, "explain", ledger, *arguments, "--json")
    assert "hunter2" not in done.out
    return done


def test_what_comes_back_is_what_was_lost(
    inventories: Inventories, knowledge: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Every ledger with entries: restored with the truth in each field that bookies show, or refused with a reason."""
    for row in cases.truth("c01")["ledgers"]:
        if row["last"] < 0:
            continue
        done = _explain(capsys, row["ledger"], *inventories("c01"), *knowledge)
        if done.result["outcome"] != "restored":
            assert (done.code, bool(done.result["reason"]), bool(done.result["settled_by"])) == (3, True, True)
            continue
        assert done.code == 0
        fields = {one["name"]: one for one in done.result["reconstruction"]["fields"]}
        assert fields["last_entry"]["value"] == str(row["last"])
        assert fields["length"]["value"] == str(row["length"])
        assert fields["digest"]["value"] == {"MAC": "HMAC"}.get(row["digest"], row["digest"])
        assert all(one["evidence"] for one in fields.values())
        assert {copy["bookie"] for copy in done.result["copies"]} <= set(row["segments"][0][1])
        assert not any(set(line.split("  ")[-1]) & set("!+-") for line in done.result["grid"][2:])


def test_store_and_bookies_that_agree_are_settled(
    inventories: Inventories, knowledge: list[str], catalog: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the true record in the store nothing disagrees, and the record is shown beside what bookies show."""
    row = next(row for row in cases.truth("c01")["ledgers"] if row["last"] > 40)
    done = _explain(capsys, row["ledger"], *inventories("c01"), *knowledge, "--metadata", catalog)
    assert (done.code, done.result["disagreements"]) == (0, [])
    assert done.result["stored"]["last entry"] == str(row["last"])
    assert "in the store, CLOSED" in done.result["verdict"]


def test_a_ledger_that_bookies_lack_is_missing_only_if_all_were_looked_at(
    inventories: Inventories, knowledge: list[str], catalog: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A record with entries that no bookie shows is a finding where all bookies were looked at, else undecided."""
    row = next(
        row for row in cases.truth("c01")["ledgers"] if row["segments"][0][1] == ["10.0.0.4:3181"] and row["last"] > 0
    )
    others = inventories("c01")[:6]
    partial = _explain(capsys, row["ledger"], *others, *knowledge, "--metadata", catalog)
    assert (partial.code, partial.result["standing"]) == (4, "undecided")
    assert partial.result["coverage"]["not_scanned"] == ["10.0.0.4:3181"]
    three = Path(knowledge[3])
    three.write_text("".join(f"10.0.0.{n}:3181\n" for n in (1, 2, 3)))
    whole = _explain(capsys, row["ledger"], *others, *knowledge, "--metadata", catalog)
    assert (whole.code, whole.result["standing"]) == (3, "open")
    assert "NOT_ON_BOOKIES" in whole.result["disagreements"][0]


def test_an_id_that_nobody_has(
    inventories: Inventories, knowledge: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Unknown to all of a cluster's bookies is an answer (3); unknown to those that were looked at is none (4)."""
    assert _explain(capsys, 999, *inventories("c01"), *knowledge).code == 3
    unsure = _explain(capsys, 999, *inventories("c01"))
    assert (unsure.code, unsure.result["coverage"]["may_exist_elsewhere"]) == (4, True)


def test_what_is_not_proved_says_why_in_words(inventories: Inventories, capsys: pytest.CaptureFixture[str]) -> None:
    """What may hide more of a guarded ledger is a sentence, and so is what would settle it."""
    done = run(capsys, "explain", 11, *inventories("c05"))
    assert done.code == 3
    assert done.out.startswith("ledger 11: comes back from bookies guarded, by the likeliest reading, readable")
    assert "what may hide more: entries near the end are on no bookie" in done.out
    assert "what would settle it: " in done.out


def test_an_earlier_catalog_counts_for_shapes_and_quorums(
    inventories: Inventories, knowledge: list[str], catalog: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A is on no bookie: it is assumed, and as the snapshot's record has it where there is one, as in a plan."""
    row = next(
        row for row in cases.truth("c01")["ledgers"] if (row["E"], row["W"], row["A"]) == (4, 2, 1) and row["last"] > 9
    )
    alone = _explain(capsys, row["ledger"], *inventories("c01"), *knowledge)
    helped = _explain(capsys, row["ledger"], *inventories("c01"), *knowledge, "--snapshot", catalog)
    quorums = [
        next(one for one in done.result["reconstruction"]["fields"] if one["name"] == "ack_quorum")
        for done in (alone, helped)
    ]
    assert [(one["value"], one["grade"]) for one in quorums] == [("2", "assumed"), ("1", "snapshot")]
    assert "snapshot's record" in quorums[1]["evidence"]
    assert helped.result["stored"] is None


def test_a_plan_is_explained_as_it_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without inventories a plan's own row, action and coverage are shown."""
    rows = cases.truth("c01")["ledgers"]
    dataset = write_plan(tmp_path / "plan", [of_truth(row) for row in rows])
    done = _explain(capsys, 0, "--plan", dataset.path)
    assert (done.code, done.result["outcome"]) == (0, "restored")
    assert done.result["planned"] == ["create /00/0000/L0000 if absent"]
    assert done.result["reconstruction"]["from"] == f"from the plan {dataset.path}"
    assert done.result["coverage"]["bookies_looked_at"] == ["b1"]


@pytest.mark.parametrize("name", ["0", "0:0", "0x0", "0" * 32, "00000000-0000-0000-0000-000000000000"])
def test_every_form_of_an_id_is_the_same_ledger(
    name: str, inventories: Inventories, knowledge: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A ledger is found by each of its names."""
    done = _explain(capsys, name, *inventories("c01"), *knowledge)
    assert (done.code, done.result["ledger"], done.result["qualified_name"]) == (0, "0", "0" * 32)


@pytest.mark.parametrize(
    "arguments", [["five"], ["5"], ["5", "--metadata", "nonsense://x"], ["5", "--plan", "/no/such/plan"],
                  ["5", "--snapshot", "oxia://h/ledgers"], ["5", "--metadata", "catalog:///no/such"]]
)  # fmt: skip
def test_what_cannot_be_used_is_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """No id, no source, or one that is not there: exit code 2, and what to do instead."""
    done = run(capsys, "explain", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err


def write_listed(inventory: str, ledger: int, table: Path, more: int = 0) -> list[str]:
    """Write what an inventory says of a ledger as a table of one's own, each range `more` entries longer."""
    copies = open_dataset(inventory, "inventory").read("copies", columns=["bookie", "ledger", "groups"])
    [row] = [row for row in copies.to_pylist() if row["ledger"] == ledger]
    runs = to_runs(from_arrow(pa.array([row["groups"]], copies.schema.field("groups").type)))
    ranges = [[int(first), int(first + size) - 1 + more] for first, size in zip(runs.first, runs.size, strict=True)]
    table.write_text(json.dumps({"bookie": row["bookie"], "ledger": ledger, "entries": ranges}) + "\n")
    return ["--inventory", str(table)]


def test_a_table_stands_for_a_bookie_that_cannot_be_collected(
    inventories: Inventories, knowledge: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it lists is on that bookie. An end that only a table names settles nothing: no header shows the length."""
    [one] = [row for row in cases.truth("c01")["ledgers"] if row["ledger"] == 14]
    first, *others = inventories("c01")[1::2]
    rest = [word for path in others for word in ("--inventory", path)]
    listed = write_listed(first, 14, tmp_path / "listed.jsonl")
    done = _explain(capsys, 14, *rest, *listed, *knowledge)
    fields = {known["name"]: known["value"] for known in done.result["reconstruction"]["fields"]}
    sources = {copy["bookie"]: copy["source"] for copy in done.result["copies"]}
    assert sources.keys() <= {*one["segments"][0][1]}
    assert [bookie for bookie, source in sources.items() if source == "wire"] == ["10.0.0.1:3181"]
    assert (done.result["outcome"], fields["last_entry"]) == ("restored", str(one["last"]))
    longer = write_listed(first, 14, tmp_path / "longer.jsonl", more=3)
    done = _explain(capsys, 14, *rest, *longer, *knowledge)
    assert (done.code, done.result["outcome"] == "restored") == (3, False)
