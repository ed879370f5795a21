"""What users install: the wheel, in an environment without Spark, used from a folder that is not the checkout."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

pytestmark = pytest.mark.real


def _uv(*arguments: str | Path, cwd: Path = ROOT) -> str:
    uv = shutil.which("uv")
    assert uv is not None, "uv is missing: scripts/test brings it, or https://docs.astral.sh/uv"
    done = subprocess.run([uv, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as content:
        return set(content.namelist())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    _uv("build", "-q", "--wheel", "--out-dir", folder)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean environment with the wheel and what it needs, in the versions of the lock file."""
    folder = tmp_path_factory.mktemp("clean")
    locked = folder / "locked.txt"
    locked.write_text(_uv("export", "-q", "--frozen", "--no-dev", "--no-hashes", "--no-emit-project"))
    _uv("venv", "-q", "--python", sys.executable, folder / "env")
    _uv("pip", "install", "-q", "--python", folder / "env/bin/python", "--constraint", locked, wheel, cwd=folder)
    return folder / "env"


def _run(environment: Path, program: str, *arguments: str) -> str:
    command = [str(environment / "bin" / program), *arguments]
    done = subprocess.run(command, cwd=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    """No test, script or example becomes an import package of the user's environment; `bkmeta` is the library."""
    tops = {name.split("/", 1)[0] for name in _names(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"recovery", "reconcile", "backends", "bkmeta"}


def test_the_source_distribution_gives_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """Nothing that the program needs is missing from what is published as source."""
    _uv("build", "-q", "--out-dir", tmp_path)
    assert _names(next(tmp_path.glob("*.whl"))) == _names(wheel)


def test_the_program_runs_without_spark(environment: Path) -> None:
    """On a bookie's host there is neither Spark nor Java; the program says its version and how to collect."""
    assert _run(environment, "python", "-c", "import importlib.util as u; print(u.find_spec('pyspark'))") == "None\n"
    assert re.search(r"\b\d+\.\d+\.\d+", _run(environment, "bkmeta", "--version"))
    assert "--ledger-dir" in _run(environment, "bkmeta", "collect", "--help")
    assert _run(environment, "python", "-c", "import bkmeta; print(bkmeta.collect.__module__)") == "reconcile.library\n"


def test_every_import_name_is_ours_alone(environment: Path) -> None:
    """Each of the import packages belongs to this distribution, and to no other that it brings along."""
    code = (
        "from importlib.metadata import packages_distributions as owners\n"
        "print(*(sorted(set(owners()[name])) for name in ('bkmeta', 'recovery', 'reconcile', 'backends')))"
    )
    assert _run(environment, "python", "-c", code) == "['bkmeta'] ['bkmeta'] ['bkmeta'] ['bkmeta']\n"


def test_it_is_built_the_same_each_time(wheel: Path, tmp_path: Path) -> None:
    """Who builds the wheel of a commit gets the same bytes as who published it."""
    _uv("build", "-q", "--wheel", "--out-dir", tmp_path)
    assert next(tmp_path.glob("*.whl")).read_bytes() == wheel.read_bytes()


def test_it_holds_its_licence_and_the_examples(environment: Path, wheel: Path, tmp_path: Path) -> None:
    """What the pages name below conf/ is there without the checkout; what a user changed is never written over."""
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in _names(wheel))
    assert "bkmeta/py.typed" in _names(wheel)
    _run(environment, "bkmeta", "conf", "write", str(tmp_path / "conf"))
    kept = {path.relative_to(ROOT / "conf"): path.read_bytes() for path in (ROOT / "conf").rglob("*") if path.is_file()}
    given = {path.relative_to(tmp_path / "conf") for path in (tmp_path / "conf").rglob("*") if path.is_file()}
    assert given == set(kept)
    assert all((tmp_path / "conf" / name).read_bytes() == data for name, data in kept.items())
    changed = tmp_path / "conf/serve.toml"
    changed.write_text("mine")
    command = [str(environment / "bin/bkmeta"), "conf", "write", str(tmp_path / "conf")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"bkmeta: {changed}: is there, and is another file; ")
    assert changed.read_text() == "mine"


def test_a_package_that_wrote_over_ours_is_named(environment: Path, wheel: Path, tmp_path: Path) -> None:
    """A file of PyPI's `reconcile` in place of ours: the program starts, and says whose it is and what to do."""
    shared = tmp_path / "shared"
    shutil.copytree(environment, shared, symlinks=True)
    _uv("pip", "install", "-q", "--no-deps", "--python", shared / "bin/python", "reconcile==0.0.5", cwd=tmp_path)
    for words, code in ((["doctor"], 3), (["collect", "--help"], 1)):
        done = subprocess.run(
            [str(shared / "bin/python"), "-m", "bkmeta", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        said = done.stderr.splitlines()
        assert said[0].startswith("bkmeta shares its environment with what breaks it: 1 of its files in ")
        assert said[0].endswith(
            "the first is reconcile/__init__.py; reconcile installs files into folders of the same names"
        )
        assert "uv tool install bkmeta" in said[1]
    _run(environment, "bkmeta", "doctor", "--no-spark")
