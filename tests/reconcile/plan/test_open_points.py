"""What a plan leaves open that a person may know."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reconcile.plan.views.open_points import Rights, UnopenedLedgers, count_rights, count_unopened
from recovery.dataset import open_dataset
from recovery.model import tables
from tests.support.command import run
from tests.support.plan_folder import Ledger, write_plan

SEGMENTS = [(0, ["bk0:3181", "bk1:3181", "bk2:3181"])]


def test_ledgers_that_no_candidate_opens_are_counted(tmp_path: Path) -> None:
    """Those that come back without a password; held ones wait for something else."""
    known, held = Ledger(1, SEGMENTS, password=b"secret"), Ledger(4, SEGMENTS, password=None, reason="damage")
    plan = write_plan(
        tmp_path / "plan", [known, Ledger(2, SEGMENTS, password=None), Ledger(3, SEGMENTS, password=None), held]
    )
    # Their master key is known by its hash on bookies only: of these rows there is none.
    assert count_unopened(plan) == UnopenedLedgers(2, 0)
    assert count_unopened(write_plan(tmp_path / "known", [known])) == UnopenedLedgers(0, 0)


def test_rights_are_counted_of_what_is_created(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A counter that is raised is none of that; an edit names rights for all."""
    plan = write_plan(tmp_path / "plan", [Ledger(1, SEGMENTS), Ledger(2, SEGMENTS, reason="damage")])
    assert count_rights(plan) == Rights(4, 4, {})
    rights = "digest:bookkeeper:x:cdrwa"
    done = run(capsys, "plan", "edit", tmp_path / "plan", "--acl", rights, "--out", tmp_path / "edited")
    assert done.code == 0, done.err
    assert count_rights(open_dataset(tmp_path / "edited", "plan")) == Rights(4, 0, {rights: 2})


class Plan:
    """One table of a plan, each row a file of its own."""

    def __init__(self, schema: pa.Schema, rows: Sequence[dict[str, Any]]) -> None:
        self._files = [pa.Table.from_pylist([row], schema=schema) for row in rows]

    def batches(self, _table: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some of its columns."""
        yield from (file.select(columns) for file in self._files)


def test_of_what_is_created_rights_are_named_or_lacking() -> None:
    """Holds count, too. The rights that ledgers get are counted by ACL. What is replaced keeps its own."""
    rows: list[dict[str, Any]] = [
        *({"op": op, "kind": "ledger", "acl": "a"} for op in ("create", "hold", "create", "replace")),
        {"op": "create", "kind": "ledger", "acl": "b"},
        {"op": "create", "kind": "ledger", "acl": None},
        {"op": "create", "kind": "cookie", "acl": "c"},
        {"op": "remove", "kind": "ledger", "acl": None},
    ]
    plan = Plan(tables.ACTIONS, rows)
    assert count_rights(plan) == Rights(6, 1, {"a": 3, "b": 1})  # type: ignore[arg-type]  # what of a dataset is read


def test_only_what_is_made_of_bookies_and_readable_lacks_a_password() -> None:
    """Its key counts once, however many ledgers have it; a snapshot's record has what it had."""
    made: dict[str, Any] = {"outcome": "restored", "format": 1, "raw": None, "key": b"k" * 32}
    rows: list[dict[str, Any]] = [
        made,
        made | {"outcome": "guarded"},
        made | {"key": b"l" * 32},
        made | {"key": None},
        made | {"outcome": "held", "key": b"m" * 32},
        made | {"format": 3, "key": b"n" * 32},
        made | {"format": None, "key": b"o" * 32},
        made | {"raw": b"record", "key": b"p" * 32},
    ]
    found = count_unopened(Plan(tables.RECONSTRUCTION, rows))  # type: ignore[arg-type]  # what of a dataset is read
    assert found == UnopenedLedgers(4, 2)
