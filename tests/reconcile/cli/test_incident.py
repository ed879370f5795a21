"""The incident file and the folder of inventories: nothing is typed twice, and nothing is left out in silence."""

import json
import shlex
from pathlib import Path

import pytest

from reconcile.cli.command import Exit
from reconcile.cli.incident import FIELDS, read_incident
from reconcile.cli.options import carry_options
from reconcile.jobs.collect.inventories import find_inventories
from recovery.errors import InputError
from tests.support.command import commands, run
from tests.support.inventories import write_inventory
from tests.support.plan_folder import Ledger, write_plan


def inventory(folder: Path, bookie: str) -> Path:
    """An inventory of a bookie without ledgers."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    write_inventory(folder, bookie, [], instance=None)
    return folder


def test_all_inventories_below_a_folder_are_taken(tmp_path: Path) -> None:
    """Whether they stand side by side or in folders of their own; other datasets and files are passed over."""
    made = [inventory(tmp_path / "inv" / name, name) for name in ("bk1", "east/bk2", "east/bk3")]
    (tmp_path / "inv" / "notes.txt").write_text("bk4 comes tomorrow")
    write_plan(tmp_path / "inv" / "plan", [Ledger(1, [(0, ("b1",))])])
    assert find_inventories([str(tmp_path / "inv")]) == tuple(map(str, made))
    assert find_inventories([str(made[0]), str(tmp_path / "inv")]) == tuple(map(str, made))


def test_a_collection_that_did_not_end_is_not_left_out_in_silence(tmp_path: Path) -> None:
    """A folder without a whole inventory stops the command and is named: without it a bookie would be missing."""
    inventory(tmp_path / "inv" / "bk1", "bk1")
    (tmp_path / "inv" / "bk2" / "copies").mkdir(parents=True)
    with pytest.raises(InputError, match="bk2: holds no whole inventory"):
        find_inventories([str(tmp_path / "inv")])


@pytest.mark.parametrize("wrong", ["nothing", "empty", "plan", "broken"])
def test_a_folder_without_inventories_is_an_error(tmp_path: Path, wrong: str) -> None:
    """One that is not there, is empty, is a plan, or whose manifest cannot be read."""
    folder = tmp_path / wrong
    if wrong == "plan":
        write_plan(folder, [Ledger(1, [(0, ("b1",))])])
    elif wrong != "nothing":
        folder.mkdir()
    if wrong == "broken":
        (folder / "manifest.json").write_text("{")
    with pytest.raises(InputError, match=str(folder)):
        find_inventories([str(folder)])


def test_an_incident_file_is_written_before_anything_is_collected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its folder of inventories need not be there yet; one that is typed must be."""
    (tmp_path / "i.toml").write_text('inventories = "inv"\n')
    (tmp_path / "plan").mkdir()
    write_plan(tmp_path / "plan", [Ledger(7, [(0, ("b1", "b2", "b3"))])])
    known = ("explain", 7, "--plan", tmp_path / "plan")
    assert run(capsys, *known, "--incident", tmp_path / "i.toml").code == Exit.DONE
    missing = run(capsys, *known, "--inventory-dir", tmp_path / "inv")
    assert (missing.code, "cannot be read" in missing.err) == (Exit.USAGE, True)


def test_every_command_that_takes_what_the_file_says_takes_the_file() -> None:
    """--incident stands wherever an option stands that it fills, and nowhere where it would do nothing."""
    for name, command in commands().items():
        options = {option for parameter in command.params for option in parameter.opts}
        wanted = bool(options & set(FIELDS.values()))
        assert ("--incident" in options) == wanted, name
        assert ("--inventory" in options) == ("--inventory-dir" in options), name


def test_an_incident_file_stands_for_what_would_be_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Paths are its folder's; what is typed takes its place; what comes next names it again, and no path twice."""
    for name in ("bk1", "bk2"):
        inventory(tmp_path / "inv" / name, name)
    (tmp_path / "incident.toml").write_text('inventories = "inv"\nbookies = ["bk1", "bk2", "bk3"]\nquorums = "2/2/2"\n')
    file = tmp_path / "incident.toml"
    done = run(capsys, "explain", 7, "--incident", file, "--json")
    assert done.code == Exit.UNDECIDABLE
    assert done.result["coverage"]["bookies_looked_at"] == ["bk1", "bk2"]
    assert done.result["coverage"]["not_scanned"] == ["bk3"]
    assert done.result["next"] == "collect bk3, and add the new inventories: --inventory DIR"
    typed = run(capsys, "explain", 7, "--incident", file, "--inventory", tmp_path / "inv" / "bk1", "--json")
    assert typed.result["coverage"]["bookies_looked_at"] == ["bk1"]


def test_the_next_command_names_the_file_and_what_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it can be copied as it is: what the file says is said by naming it, and what was typed is typed again."""
    file, words = tmp_path / "incident.toml", []
    file.write_text('quorums = "3/2/2"\nstore = "zk://zk1/ledgers"\n')
    command = commands()["explain"]
    named = ("--metadata", "--passwords", "--default-quorum")
    monkeypatch.setattr(command, "callback", lambda **_: words.extend(carry_options(*named)))
    given = ["7", "--incident", str(file), "--passwords", "my words.txt", "--default-quorum", "5/3/2"]
    command.main(given, standalone_mode=False)
    assert shlex.join(words) == f"--incident {file} --passwords 'my words.txt' --default-quorum 5/3/2"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("bookie = 'b1'", "has a key 'bookie'"),
        ("store = zk://a", "is not TOML"),
        ("store = ['a']", "store: is not text"),
        ("snapshots = 3", "snapshots: is not text"),
        ("disks = 'bk1=/mnt'", "disks: is not a table"),
        ("store = ''", "store: is not text"),
    ],
)
def test_what_an_incident_file_cannot_mean_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, problem: str
) -> None:
    """A misspelt key or another kind of value: exit code 2, the file, and what to do; never passed over."""
    (tmp_path / "i.toml").write_text(text)
    done = run(capsys, "preflight", "--incident", tmp_path / "i.toml")
    assert done.code == Exit.USAGE
    assert problem in done.err
    assert str(tmp_path / "i.toml") in done.err


def test_every_key_is_read_as_its_option_takes_it(tmp_path: Path) -> None:
    """Files are relative to the incident file, URIs are not; several bookies' folders are ID=DIR each."""
    (tmp_path / "i.toml").write_text(
        'store = "zk://zk1/ledgers"\nbookies = "bookies.txt"\ninventories = ["a", "/b"]\npasswords = "pw"\n'
        'quorums = "3/2/2"\nquorums_file = "shapes"\n'
        'snapshots = ["zkfiles:///zk", "before"]\nreferences = "known.jsonl"\n'
        'lost = ["bk2:3181", "bk3:3181=/d/l1"]\n[disks]\n"bk1:3181" = ["/mnt/a", "b"]\n'
    )
    assert read_incident(tmp_path / "i.toml") == {
        "store": "zk://zk1/ledgers",
        "bookies": f"{tmp_path}/bookies.txt",
        "inventories": [f"{tmp_path}/a", "/b"],
        "passwords": f"{tmp_path}/pw",
        "quorums": "3/2/2",
        "quorums_file": f"{tmp_path}/shapes",
        "snapshots": ["zkfiles:///zk", f"{tmp_path}/before"],
        "references": [f"{tmp_path}/known.jsonl"],
        "disks": ["bk1:3181=/mnt/a", f"bk1:3181={tmp_path}/b"],
        "lost": ["bk2:3181", "bk3:3181=/d/l1"],
    }
    assert set(read_incident(tmp_path / "i.toml")) == set(FIELDS)
    assert json.dumps(read_incident(tmp_path / "i.toml"))
