"""Skew breaks no task: a ledger of 10⁹ entries, one of 10⁵ groups a bookie, a bookie with most ledgers."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import command, paths

pytestmark = pytest.mark.long

PEAK_MB = 700
"""Of one process, libraries and what it made its inventories with included; the largest of the three takes 450."""


def skewed(kind: str, folder: Path) -> dict[str, Any]:
    """Recover inventories with a skew, in a process of their own, and return what it said."""
    words: list[str | Path] = [sys.executable, paths.SUPPORT / "skewed_ledgers.py", kind, folder]
    env = command.environment(PYTHONPATH=str(command.ROOT))
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["peak_mb"] < PEAK_MB
    assert found["restored"] == found["rows"]
    return found


def test_ledgers_of_a_thousand_million_entries_are_decided_and_compared(tmp_path: Path) -> None:
    """Striped, on all, and with a bookie replaced half-way: whole, from a few groups; a thaw counts what would go."""
    found = skewed("giants", tmp_path)
    ends = {row["ledger"]: (row["last_entry"], row["missing"]) for row in found["skewed"]}
    assert ends == {0: (10**9 - 2, 0), 1: (10**9 - 1, 0), 2: (10**9 - 1, 0)}
    assert len(found["left_out"]) == 1
    assert found["left_out"][0].endswith("entry 0 and 999999999 more")


def test_a_ledger_in_very_many_pieces_is_decided(tmp_path: Path) -> None:
    """Three bookies that each lack some of it, at no distance that repeats: whole, and what they lack is counted."""
    (row,) = skewed("pieces", tmp_path)["skewed"]
    assert (row["class"], row["last_entry"]) == ("solved", 40 * 100_000 - 1)
    assert row["missing"] > 250_000


def test_a_bookie_with_most_ledgers_is_of_every_task(tmp_path: Path) -> None:
    """Tasks are cut by buckets, which are a hash of the id: each sees about as many rows, no matter who has them."""
    tasks = skewed("singles", tmp_path)["tasks"]
    assert len(tasks) == 8
    assert max(tasks) < 1.2 * min(tasks)
