"""`import bkmeta`: cheap, one function a command, and pages of examples that run."""

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

import bkmeta
from reconcile import library
from reconcile.deletes.certificate import CertifiedLedger, encode_certificate, make_certificate
from recovery.errors import DatasetError, InputError
from recovery.model.ids import LedgerId
from tests.support.cases import case_dir, truth
from tests.support.command import ROOT, environment
from tests.support.plan_folder import Ledger, write_plan
from tests.support.zookeeper_server import ZooKeeperServer

CASE: Final = "c01-clean-sorted"
PAGE: Final = ROOT / "docs" / "operations" / "library.md"
NOTEBOOK: Final = ROOT / "docs" / "notebooks" / "plan.ipynb"
FEW: Final = 130
"""Modules of a process that imported it; Python itself has some sixty."""


def list_functions() -> list[str]:
    """Return the functions of the library that are for users."""
    return [name for name in library.__all__ if inspect.isfunction(getattr(library, name))]


def test_the_package_has_what_the_library_lists() -> None:
    """`bkmeta` is `reconcile.library` under another name."""
    assert {name: getattr(bkmeta, name) for name in library.__all__} == {
        name: getattr(library, name) for name in library.__all__
    }


def test_importing_it_loads_next_to_nothing() -> None:
    """Neither Arrow nor NumPy, nor anything else that takes time, is there before a function is called."""
    probe = "import bkmeta, json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", probe], env=environment(), cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    names: list[str] = json.loads(done.stdout)
    assert {"numpy", "pyarrow", "pandas", "pyspark", "click"} & set(names) == set()
    assert len(names) <= FEW


@pytest.mark.parametrize("name", [name for name in list_functions() if not name.startswith("open_")])
def test_arguments_are_keywords_that_the_docstring_describes(name: str) -> None:
    """No call depends on an order, and `help` says what each argument is."""
    function = getattr(bkmeta, name)
    parameters = inspect.signature(function).parameters.values()
    assert {parameter.kind for parameter in parameters} == {inspect.Parameter.KEYWORD_ONLY}
    described = set(re.findall(r"^        (\w+): ", inspect.getdoc(function) or "", re.MULTILINE))
    described |= set(re.findall(r"^    (\w+): ", inspect.getdoc(function) or "", re.MULTILINE))
    assert [parameter.name for parameter in parameters if parameter.name not in described] == []


def test_the_page_lists_every_function() -> None:
    """A new function has its row."""
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", PAGE.read_text(), re.MULTILINE))))
    assert named == set(list_functions())


def test_a_dataset_of_another_kind_is_refused(tmp_path: Path) -> None:
    """The error names what the folder is, and what was wanted."""
    write_plan(tmp_path / "plan", [Ledger(1, [(0, ("a", "b", "c"))])])
    with pytest.raises(DatasetError, match="kind plan, not inventory"):
        bkmeta.open_inventory(tmp_path / "plan")
    assert bkmeta.open_findings(tmp_path / "plan").kind == "plan"
    with pytest.raises(DatasetError):
        bkmeta.open_findings(tmp_path)


def test_what_cannot_be_asked_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    """Arguments that contradict each other, and names that name no ledger."""
    with pytest.raises(InputError, match="named twice"):
        bkmeta.collect(out=tmp_path / "out", ledger_dirs=["disks"], bookie_conf="bk_server.conf")
    with pytest.raises(InputError, match="give metadata, or layout"):
        bkmeta.recover(out=tmp_path / "out", inventories=[])
    with pytest.raises(InputError, match="give inventories or wire=True"):
        bkmeta.verify_deletes(metadata="zk+hierarchical://127.0.0.1:1/ledgers")
    with pytest.raises(InputError, match="give ledgers or sample"):
        bkmeta.verify_archive(place=tmp_path, ledgers=[1], sample=1)
    with pytest.raises(InputError, match="is there already"):
        bkmeta.read_archive(place=tmp_path, ledger=1, out=tmp_path)
    with pytest.raises(InputError, match="SCOPE:LEDGER"):
        bkmeta.check_certificate(file=tmp_path / "none", ledgers=["x"])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Run the page's examples from top to bottom on real disks and their real ZooKeeper; give folder and names."""
    work = tmp_path_factory.mktemp("library")
    shutil.copytree(case_dir(CASE) / "bookies", work / "disks")
    (work / "zookeeper").mkdir()
    shutil.copytree(case_dir(CASE) / "zookeeper", work / "zookeeper" / "data")
    safe = CertifiedLedger(LedgerId(0, 0), 0, "00" * 32)
    certificate = make_certificate("", truth(CASE)["root"], [safe], {}, {}, datetime.now(UTC))
    (work / "purge.json").write_bytes(encode_certificate(certificate))
    server = ZooKeeperServer(work / "zookeeper")
    server.start()
    here = Path.cwd()
    os.chdir(work)
    try:
        disks = {bookie["id"]: [work / "disks" / f"b{bookie['n']}"] for bookie in truth(CASE)["bookies"]}
        names: dict[str, Any] = {"STORE": f"zk+hierarchical://{server.hosts}{truth(CASE)['root']}", "DISKS": disks}
        for code in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE):
            exec(compile(code, str(PAGE), "exec"), names)  # noqa: S102 - the page's examples
        yield work, names
    finally:
        os.chdir(here)
        server.kill()


@pytest.mark.real
@pytest.mark.spark
def test_the_examples_give_what_is_true(made: tuple[Path, dict[str, Any]]) -> None:
    """Results are typed, and say of the sample cluster what was recorded of it."""
    _, names = made
    true = truth(CASE)
    with_entries = sum(bool(ledger["entries"]) for ledger in true["ledgers"])
    assert names["captured"].ledgers == len(true["ledgers"])
    assert names["counts"].ledgers == with_entries
    assert names["frame"].shape[0] == names["copies"].num_rows > 0
    assert names["actions"].num_rows == names["plan"].rows["actions"]
    assert names["run"].listed == len(true["ledgers"])
    assert names["run"].adds_up
    assert str(names["answer"].verdict) in ("SAFE", "UNSAFE", "UNDECIDED")
    assert len(names["verified"].ledgers) == 2
    assert names["checked"].validity.name == "VALID"
    closed = [ledger for ledger in true["ledgers"] if ledger["state"] == "CLOSED"]
    assert names["archived"].counts["copied"] == names["archived"].counts["marked"] == len(closed)
    assert (names["proven"].proven, names["proven"].damaged) == (len(closed), 0)
    assert names["given"].entries == len(names["entries"]) == len(true["ledgers"][0]["entries"]) > 0


@pytest.mark.real
@pytest.mark.spark
def test_the_notebook_runs(made: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cell, of a plan that lacks two bookies: DuckDB, pandas and Spark count what its manifest does."""
    work, _ = made
    half = [work / "inventories" / name for name in ("b0", "b1")]
    recovered = bkmeta.recover(inventories=half, layout="hierarchical", out=work / "half")
    monkeypatch.setenv("PLAN", str(work / "half"))
    found: dict[str, Any] = {}
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec(compile("".join(cell["source"]), str(NOTEBOOK), "exec"), found)  # noqa: S102 - the notebook
    counts, rows = recovered.manifest.counts, found["plan"].rows
    assert counts.guarded > 0
    assert sum(row[2] for row in found["outcomes"].fetchall()) == counts.ledgers == len(found["ledgers"])
    assert found["asked"]["findings"].sum() == rows["findings"] > 0
    assert found["actions"].num_rows == rows["actions"]
