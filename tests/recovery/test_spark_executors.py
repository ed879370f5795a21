"""Executors that have nothing of ours but what a session brings: a packed environment, and the program as a zip."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyspark
import pytest

from recovery.dataset import open_dataset
from tests.support import command, paths
from tests.support.cases import cache_home, case_dir, operator, truth
from tests.support.packed import pack_environment
from tests.support.spark_classes import BRIEF

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

MASTER: Final = "local-cluster[2,1,1024]"
"""Two executors, each a Java process that starts Python processes of its own, and forgets where this one is."""
CASE: Final = "c03"
PARTS_OF_SPARK: Final = ("bin", "jars", "sbin")


@pytest.fixture(scope="module")
def packed() -> Path:
    """What `scripts/pack` makes."""
    return pack_environment()


@dataclass(frozen=True, slots=True)
class Run:
    """A plan that executors made, where they unpacked what they ran, and what was seen of them."""

    plan: Path
    unpacked: Path
    found: dict[str, Any]


@pytest.fixture(scope="module")
def run(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Disks collected and ledgers recovered by executors; their folders are below a Spark of their own."""
    work = tmp_path_factory.mktemp("cluster")
    home = work / "spark"
    home.mkdir()
    ours = Path(pyspark.__file__).parent
    for part in PARTS_OF_SPARK:
        (home / part).symlink_to(ours / part)
    shutil.copytree(ours / "python" / "lib", home / "python" / "lib")
    secrets = work / "passwords"
    secrets.write_text("\n".join(operator(CASE)["passwords"]) + "\n")
    secrets.chmod(0o600)
    disks = [
        f"--disk={bookie['id']}={case_dir(CASE) / folder}"
        for bookie in operator(CASE)["bookies"]
        for folder in [*bookie["ledgers"], *bookie["journals"]]
    ]
    words: list[str | Path] = [sys.executable, paths.SUPPORT / "executors.py", work / "found.json"]
    words += ["recover", "--layout", "hierarchical", "--passwords", secrets, *disks]
    words += ["--master", MASTER, "--executor-python", packed, "--out", work / "plan"]
    unpacked = cache_home() / "pex"  # once a machine: it takes long
    folders = os.environ["PATH"].split(os.pathsep)  # executors have no environment of ours
    path = os.pathsep.join(folder for folder in folders if not Path(folder).is_relative_to(command.ROOT))
    done = subprocess.run(
        words,
        env=command.environment(
            SPARK_HOME=str(home), PEX_ROOT=str(unpacked), PYTHONPATH=None, PATH=path, JAVA_TOOL_OPTIONS=BRIEF
        ),
        cwd=work,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Run(work / "plan", unpacked, json.loads((work / "found.json").read_text()))


def test_executors_import_the_shipped_program_and_the_packed_libraries(run: Run) -> None:
    """Nothing that a task has imported is of this folder: the program is of the zip, libraries are of the one file."""
    seen = run.found["seen"]
    assert len({task["executor"] for task in seen}) == 2
    for task in seen:
        assert not Path(task["python"]).is_relative_to(command.ROOT)
        for file in task["ours"]:
            assert file.startswith(f"{task['executor']}/bkmeta.zip/")
        assert not [file for file in task["files"] if Path(file).is_relative_to(command.ROOT)]
        libraries = [file for file in task["files"] if "/numpy/" in file or "/scipy/" in file or "/pyarrow/" in file]
        assert len(libraries) > 100
        assert all(Path(file).is_relative_to(run.unpacked) for file in libraries)


def test_the_doctor_finds_executors_equipped(run: Run) -> None:
    """They ran tasks, and have the Python and the packages that are here."""
    assert run.found["checks"] == {"Spark session": "ok", "executors": "ok"}


def test_disks_are_collected_and_ledgers_recovered_there(run: Run) -> None:
    """Every ledger with an entry comes back, with the end and the length that it had."""
    rows = {row["ledger"]: row for row in open_dataset(run.plan, "plan").read("reconstruction").to_pylist()}
    wanted = {row["ledger"]: row for row in truth(CASE)["ledgers"] if row["entries"]}
    assert rows.keys() == wanted.keys()
    for ledger, row in wanted.items():
        assert (rows[ledger]["outcome"], rows[ledger]["state"]) == ("restored", "CLOSED")
        assert (rows[ledger]["last_entry"], rows[ledger]["length"]) == (row["last"], row["length"])


def test_an_environment_that_nobody_runs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file for executors of a master that has none, or one that cannot be run: said before anything starts."""
    words = ("recover", "--layout", "hierarchical", "--inventory", tmp_path, "--out", tmp_path / "plan")
    local = command.run(capsys, *words, "--master", "local[2]", "--executor-python", sys.executable)
    assert local.code == 2
    assert "local[2]" in local.err
    text = tmp_path / "text"
    text.write_text("")
    useless = command.run(capsys, *words, "--master", MASTER, "--executor-python", text)
    assert useless.code == 2
    assert "scripts/pack" in useless.err
    assert not (tmp_path / "plan").exists()
