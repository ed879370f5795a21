"""Every command that names a ledger takes every form of its id."""

import re
from pathlib import Path

import pytest

from recovery.capture.live import capture
from recovery.codecs import store
from recovery.codecs.store import Layout
from recovery.dataset import DatasetWriter
from recovery.model.ids import LedgerId
from tests.recovery.capture.test_scan import READ_AT, RECORD
from tests.support.command import commands, run
from tests.support.plan_folder import write_plan
from tests.support.scannable_store import ScannableMemory

LEDGER = LedgerId(7, 1005)
FORMS = (
    ("7:1005",),
    ("0x7:0x3ed",),
    (LEDGER.qualified_name,),
    ("00000000-0000-0007-0000-0000000003ed",),
    ("1005", "--ledger-scope-id", "7"),
    ("1005", "--ledger-scope-id", "0x7"),
    ("7:1005", "--ledger-scope-id", "7"),
)
TAKING = {"check-impact", "explain", "export", "plan edit", "undelete"} | {
    "archive mark", "archive read", "archive run", "archive show", "archive unmark", "archive verify",
    "certificate check",
    "delete request", "delete status", "delete undo", "delete verify",
}  # fmt: skip
"""Commands that are given a ledger. Those of archive, certificate and delete take it by one reader, as export does."""


def test_these_are_all_commands_that_name_a_ledger() -> None:
    """Anybody who adds one adds it here."""
    found = set()
    for name, command in commands().items():
        named = [(parameter.human_readable_name, getattr(parameter, "metavar", None)) for parameter in command.params]
        if any(re.search(r"\bLEDGER\b", text.upper()) for names in named for text in names if text):
            found.add(name)
            assert any("--ledger-scope-id" in parameter.opts for parameter in command.params), name
    assert found == TAKING


def write_catalog(folder: Path) -> str:
    """Write a catalog of this one ledger; return its URI."""
    source = ScannableMemory()
    source.put("/ledgers/LAYOUT", store.layout_bytes(Layout.HIERARCHICAL))
    source.put("/ledgers" + store.ledger_key(Layout.HIERARCHICAL, LEDGER), RECORD)
    with DatasetWriter(folder, "catalog", binding={"root": "/ledgers"}, secret=True) as out:
        capture(source, "/ledgers", None, out, clock=lambda: READ_AT)
    return f"catalog://{folder}"


@pytest.mark.parametrize("form", FORMS)
def test_check_impact_takes_every_form(
    form: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the ledgers of a catalog this one is judged; of one that it does not have nothing is said to be safe."""
    catalog = write_catalog(tmp_path / "cat")
    done = run(capsys, "check-impact", "--metadata", catalog, "--ledgers", *form, "--json")
    assert done.result["counts"]["ledgers"] == 1
    other = run(capsys, "check-impact", "--metadata", catalog, "--ledgers", "8:1005", "--json")
    assert (other.code, other.result["counts"]["ledgers"]) == (4, 0)
    assert other.result["coverage"]["undecided"] == ["the store has no record of ledger 8:1005"]


@pytest.mark.parametrize("form", [*FORMS, ("--ledger-qualified-name", LEDGER.qualified_name)])
def test_explain_takes_every_form(form: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same ledger, by its number and scope, as a pair, or as a qualified name."""
    done = run(capsys, "explain", *form, "--metadata", write_catalog(tmp_path / "cat"), "--json")
    assert (done.code, done.result["ledger"], done.result["qualified_name"]) == (0, "7:1005", LEDGER.qualified_name)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("option", ["--drop", "--accept-loss"])
def test_plan_edit_takes_every_form(
    form: tuple[str, ...], option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the plan lacks is named in the shortest form, whatever was typed."""
    plan = write_plan(tmp_path / "plan", []).path
    done = run(capsys, "plan", "edit", plan, option, *form, "--out", tmp_path / "out", "--json")
    assert done.code == 2
    assert "ledger 7:1005 " in done.result["verdict"]


@pytest.mark.parametrize("words", [["--drop", "-"], ["--accept-loss", "-"], ["--choose", "-=restore"]])
def test_plan_edit_takes_the_qualified_name_as_an_option(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A hyphen stands for it; the one without the other is an error of usage."""
    plan = write_plan(tmp_path / "plan", []).path
    option = ["--ledger-qualified-name", LEDGER.qualified_name]
    done = run(capsys, "plan", "edit", plan, *words, *option, "--out", tmp_path / "out", "--json")
    assert done.code == 2
    assert "ledger 7:1005 " in done.result["verdict"]
    for lonely in (words, [*option, "--drop", "5"]):
        done = run(capsys, "plan", "edit", plan, *lonely, "--out", tmp_path / "out")
        assert done.code == 2
        assert "--ledger-qualified-name goes with -" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["8:1005", "--ledger-scope-id", "7"], "is of scope 8, not 7"),
        (["1005", "--ledger-scope-id", "x"], "'x' is not a scope: write a number"),
        (["1005", "--ledger-qualified-name", LEDGER.qualified_name], "name one ledger"),
        ([], "name one ledger"),
        (["1:2:3"], "write 123, scope:123 or 32 hex digits"),
    ],
)
def test_what_names_no_ledger_or_two_is_an_error_of_usage(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One clear error."""
    done = run(capsys, "explain", *words, "--metadata", "catalog:///nowhere")
    assert done.code == 2
    assert said in done.err
