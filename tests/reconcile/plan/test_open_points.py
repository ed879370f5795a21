"""What a plan leaves open that a person may know."""

from pathlib import Path

import pytest

from reconcile.plan.views.open_points import Keys, Rights, count_rights, count_unopened
from recovery.dataset import open_dataset
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
    assert count_unopened(plan) == Keys(2, 0)
    assert count_unopened(write_plan(tmp_path / "known", [known])) == Keys(0, 0)


def test_rights_are_counted_of_what_is_created(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A counter that is raised is none of that; an edit names rights for all."""
    plan = write_plan(tmp_path / "plan", [Ledger(1, SEGMENTS), Ledger(2, SEGMENTS, reason="damage")])
    assert count_rights(plan) == Rights(4, 4, {})
    rights = "digest:bookkeeper:x:cdrwa"
    done = run(capsys, "plan", "edit", tmp_path / "plan", "--acl", rights, "--out", tmp_path / "edited")
    assert done.code == 0, done.err
    assert count_rights(open_dataset(tmp_path / "edited", "plan")) == Rights(4, 0, {rights: 2})
