"""The packages as docs/ARCHITECTURE.md describes them, and the names of test files."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.paths import ROOT

PACKAGES: Final = ("recovery", "reconcile", "backends")


def _modules() -> Iterator[Path]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "_pb" not in path.parts:
                yield path.relative_to(ROOT)


def test_the_page_names_every_room_and_no_other() -> None:
    """Each package of the tree has a row in docs/ARCHITECTURE.md, and each row a package or a module."""
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    named = set(re.findall(r"^\| `([a-z_/.]+)`", page, re.MULTILINE))
    rooms = {path.parent.as_posix() for path in _modules() if path.name == "__init__.py"}
    assert sorted(rooms - {name.rstrip("/") for name in named}) == []
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_page_names_every_module_that_stands_in_no_room() -> None:
    """Modules right below a package have a row each, so that nobody has to guess what they are for."""
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    loose = [path.as_posix() for path in _modules() if len(path.parts) == 2 and path.name != "__init__.py"]
    assert [path for path in loose if f"\n| `{path}` |" not in page] == []


def test_the_page_has_the_layers_that_are_held() -> None:
    """Its lines of layers are those of the import contracts, in their order."""
    page = " ".join((ROOT / "docs" / "ARCHITECTURE.md").read_text().split())
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = {"".join(one.get("containers", [])): " → ".join(one["layers"]) for one in contracts if "layers" in one}
    assert layers.keys() == {"", *PACKAGES, "recovery.collect"}
    assert [name for name, line in layers.items() if f"{name}: {line}".removeprefix(": ") not in page] == []


def test_the_page_names_files_that_are_there() -> None:
    """A file or folder that a row names by its whole path is there."""
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    named = re.findall(r"`((?:recovery|reconcile|backends|tests|docs)/[\w/.-]+)`", page)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []
    # One that a row names short, beside another of the same folder.
    short = re.findall(r"`(\w+\.(?:py|spec|toml|proto))`", page)
    names = {path.name for top in (*PACKAGES, "scripts", "proto") for path in (ROOT / top).rglob("*.*")}
    assert short
    assert [name for name in short if name not in {*names, "pyproject.toml"}] == []


def test_the_page_of_helpers_names_each() -> None:
    """Who looks for a helper of tests finds it on tests/support/README.md, and nothing there is gone."""
    folder = ROOT / "tests" / "support"
    named = set(re.findall(r"`((?:java/)?\w+\.(?:py|java))`", (folder / "README.md").read_text()))
    helpers = {path.relative_to(folder).as_posix() for path in (*folder.glob("*.py"), *folder.glob("java/*.java"))}
    assert named == helpers


def test_a_test_file_bears_the_name_of_its_module() -> None:
    """tests/PACKAGE/ROOM/test_MODULE….py tests PACKAGE/ROOM/MODULE.py, or all of that room."""
    strangers = []
    for package in PACKAGES:
        for path in sorted((ROOT / "tests" / package).rglob("test_*.py")):
            room = ROOT / path.parent.relative_to(ROOT / "tests")
            names = {room.name, *(entry.stem for entry in room.rglob("*") if not entry.name.startswith("_"))}
            stem = path.stem.removeprefix("test_")
            if not any(stem == name or stem.startswith(f"{name}_") for name in names):
                strangers.append(path.relative_to(ROOT).as_posix())
    assert strangers == []


def test_no_test_imports_a_private_name() -> None:
    """What a test needs of a module is what the module offers."""
    private = [
        f"{path.relative_to(ROOT)}: {alias.name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES
        for alias in node.names
        if alias.name.startswith("_") and alias.name != "_pb"
    ]
    assert private == []
