"""`recover` says what it does from its start: before Spark, while Spark starts, and then stage by stage."""

import json
from pathlib import Path

import pytest

from tests.support.command import process
from tests.support.inventories import write_inventory

pytestmark = pytest.mark.spark


def test_starting_spark_is_said_before_it_has_started(tmp_path: Path) -> None:
    """Events in their order: looking at what was given, starting Spark, what Spark does, the report."""
    inventory = write_inventory(tmp_path / "inventory", "b1:3181", [1], instance=None)
    words = ["recover", "--inventory", inventory, "--layout", "flat", "--out", tmp_path / "plan", "--progress", "json"]
    words += ["--master", "local[1]"]
    done = process(*words)
    assert done.code in (0, 3), done.err
    stages = list(dict.fromkeys(json.loads(line)["stage"] for line in done.err.splitlines()))
    stages.remove("recover")  # how long all of it will take
    assert stages[0] == "looking at what was given"
    assert stages[1] == "starting Spark"
    assert stages[2:] == ["reconstructing", "shapes", "ledgers", "writing the report"]
