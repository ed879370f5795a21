"""A bookie that deletes while it is collected: it is said first, nothing is believed, and what to do stands there."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from recovery.collect.disk.file_reader import ReadProgress
from recovery.collect.options import CollectOptions, CollectSummary
from recovery.collect.pipeline import collect
from tests.simulation.bookie_dir import BookieDir, make_bookie, write_log
from tests.support.command import run


@pytest.fixture
def made(tmp_path: Path) -> BookieDir:
    """A bookie that runs; its log 9 holds only what was deleted."""
    made = make_bookie(tmp_path / "bookie", {ledger: [0, 1, 2] for ledger in range(5, 9)})
    (made.ledger_dirs[0] / "current" / "DIRTY").touch()
    write_log(made, 9, [(3, 0), (3, 1)])
    return made


def collected(made: BookieDir, out: Path, stage: str, happens: Callable[[], object]) -> CollectSummary:
    """Collect a bookie; something happens when a stage begins."""
    done: list[object] = []

    def progress(now: ReadProgress) -> None:
        if now.stage == stage and not done:
            done.append(happens())

    options = CollectOptions(made.ledger_dirs, made.index_dirs, made.journal_dirs)
    return collect(options, out, now=lambda: datetime.now(UTC), progress=progress)


@pytest.mark.parametrize("stage", ["index", "inventory"])
def test_index_files_that_go_are_ledgers_that_are_deleted(stage: str, made: BookieDir, tmp_path: Path) -> None:
    """Before they are read, after that, and while the end is being written: the bookie is not complete."""

    def delete() -> None:
        for ledger in (5, 7):
            made.index(ledger).unlink()

    summary = collected(made, tmp_path / "out", stage, delete)
    # Before the folders are listed nobody can know.
    assert (summary.deleted, summary.complete) == ((2, False) if stage == "inventory" else (0, True))


def test_logs_that_go_with_their_entries_are_ledgers_that_are_deleted(made: BookieDir, tmp_path: Path) -> None:
    """The ledgers are listed still, with no entries: the collection is not complete, and says why."""
    summary = collected(made, tmp_path / "out", "journals", made.log().unlink)
    assert summary.deleted == 4
    assert not summary.complete


def test_a_log_that_goes_alone_is_none(made: BookieDir, tmp_path: Path) -> None:
    """Compaction and collection of garbage remove logs all the time."""
    summary = collected(made, tmp_path / "out", "journals", made.log(9).unlink)
    assert (summary.deleted, summary.complete) == (0, True)


def test_the_first_line_says_so_and_the_last_what_to_do(
    made: BookieDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 3, and the bookie is to be stopped before anything else."""
    real = os.open

    def opened(path: Any, *more: Any, **options: Any) -> int:
        if str(path) == str(made.index(6)):
            made.index(6).unlink(missing_ok=True)
        return real(path, *more, **options)

    monkeypatch.setattr(os, "open", opened)
    done = run(capsys, "collect", "--ledger-dir", made.ledger_dirs[0], "--out", tmp_path / "out", "--processes", 1)
    assert done.code == 3
    assert done.out.splitlines()[0].startswith("THE BOOKIE DELETES: 1 or more ledgers disappeared")
    assert "the metadata store is lost: stop it now; the cluster is healthy: retention" in done.out.splitlines()[0]
    assert "the inventory can be used. What disappeared is listed as damage" in done.out
    following = done.out.splitlines()[-1]
    assert following.startswith("next: if the store is lost: kill -STOP")
    assert "If the cluster is healthy: when every bookie's inventory is in" in following
    assert "collected completely" not in done.out
