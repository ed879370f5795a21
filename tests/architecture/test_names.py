"""Names: of import packages, which other distributions may have; of test files, classes and functions."""

import ast
import functools
import subprocess
import sys
from collections import Counter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
ROOT = TESTS.parent
PACKAGES = ("recovery", "reconcile", "backends")


@functools.cache
def _parse() -> list[ast.Module]:
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if "_pb" not in path.parts)
    return [ast.parse(path.read_text()) for path in paths]


@pytest.mark.parametrize("name", PACKAGES)
def test_an_import_name_has_one_owner(name: str) -> None:
    """No other installed distribution brings a package of the same name, which would overwrite ours silently."""
    # An editable install lists no packages of its own.
    assert set(packages_distributions().get(name, ["bkmeta"])) == {"bkmeta"}


def test_a_test_file_has_a_name_of_its_own() -> None:
    """No two test files have one name, so that a report's line is enough to find a test."""
    names = Counter(path.name for path in TESTS.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_a_public_class_has_a_name_of_its_own() -> None:
    """A name says what the thing is, without the module that it is in."""
    names = Counter(
        node.name
        for tree in _parse()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_functions_that_refuse_and_that_describe_say_so() -> None:
    """`require_…` refuses and `describe_…` puts into words: one verb for each."""
    others = [
        node.name
        for tree in _parse()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.lstrip("_").startswith(("demand_", "word_"))
    ]
    assert others == []


def test_the_program_starts_without_spark() -> None:
    """Loading the program loads neither Spark nor pandas: a bookie's host has no Java, and nobody wants to wait."""
    code = "import sys, reconcile.cli.main; print(sorted({'pyspark', 'pandas', 'py4j'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
