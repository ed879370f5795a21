"""The names that this project takes in the world outside it: import packages, and test files."""

import subprocess
import sys
from collections import Counter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("name", ["recovery", "reconcile", "backends"])
def test_an_import_name_has_one_owner(name: str) -> None:
    """No other installed distribution brings a package of the same name, which would overwrite ours silently."""
    # An editable install lists no packages of its own.
    assert set(packages_distributions().get(name, ["bkmeta"])) == {"bkmeta"}


def test_a_test_file_has_a_name_of_its_own() -> None:
    """No two test files have one name, so that a report's line is enough to find a test."""
    names = Counter(path.name for path in TESTS.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_the_program_starts_without_spark() -> None:
    """Loading the program loads neither Spark nor pandas: a bookie's host has no Java, and nobody wants to wait."""
    code = "import sys, reconcile.cli.main; print(sorted({'pyspark', 'pandas', 'py4j'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
