"""Runs that are kept: the newest, one of each hour, day and week, and whatever the record names."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reconcile.service.config import KeptRuns
from reconcile.service.runs.folders import OUT, choose_kept, list_runs, make_folder, remove_abandoned, remove_others

NOON = datetime(2026, 3, 4, 12, 30, tzinfo=UTC)  # a Wednesday


def make_run(data: Path, at: datetime, number: int, *, whole: bool = True) -> str:
    """Make the folder of a run, and return its name."""
    folder = make_folder(data, "capture", at, 1, number)
    (folder / OUT).mkdir()
    if whole:
        (folder / OUT / "manifest.json").write_text("{}")
    return folder.name


@pytest.mark.parametrize(
    ("kept", "ages"),
    [
        (KeptRuns(runs=2), [0, 1]),
        (KeptRuns(runs=0, hourly=3), [0, 1, 2]),
        (KeptRuns(runs=1, hourly=0, daily=3), [0, 13, 37]),  # the last of each day before
        (KeptRuns(runs=0, weekly=2), [0, 61]),  # the last of Sunday
        (KeptRuns(runs=0), []),
    ],
)
def test_the_newest_of_each_span_is_kept(kept: KeptRuns, ages: list[int]) -> None:
    """Of a run an hour, for two weeks."""
    hours = range(14 * 24)
    runs = [(NOON - timedelta(hours=age), str(age)) for age in hours]
    assert sorted(choose_kept(runs, kept), key=int) == [str(age) for age in ages]


def test_what_the_record_names_and_what_others_put_there_stays(tmp_path: Path) -> None:
    """A run that is not whole goes, unless it is the newest: another instance may write it at this moment."""
    names = [make_run(tmp_path, NOON - timedelta(hours=age), 10 - age) for age in range(5)]
    broken = make_run(tmp_path, NOON - timedelta(hours=7), 3, whole=False)
    newest = make_run(tmp_path, NOON + timedelta(hours=1), 11, whole=False)
    (tmp_path / "capture" / "before-the-upgrade").mkdir()
    gone = remove_others(tmp_path, "capture", KeptRuns(runs=2), [f"capture/{names[4]}"], NOON)
    assert set(gone) == {names[2], names[3], broken}
    left = {entry.name for entry in (tmp_path / "capture").iterdir()}
    assert left == {names[0], names[1], names[4], newest, "before-the-upgrade"}
    assert [name for _, name in list_runs(tmp_path / "capture")] == [newest, names[0], names[1], names[4]]


def test_runs_of_a_clock_that_was_ahead_take_the_place_of_no_other(tmp_path: Path) -> None:
    """They go as soon as the clock is right again; but for one that the record names."""
    true = [make_run(tmp_path, NOON - timedelta(hours=age), 9 - age) for age in range(4)]
    ahead = [make_run(tmp_path, NOON + timedelta(days=3650 + age), 20 + age) for age in range(4)]
    near = make_run(tmp_path, NOON + timedelta(minutes=59), 30)
    gone = remove_others(tmp_path, "capture", KeptRuns(runs=4), [f"capture/{ahead[0]}"], NOON)
    assert set(gone) == {*ahead[1:], true[3]}
    assert (tmp_path / "capture" / near).is_dir()


def test_folders_of_requests_that_were_killed_go_when_no_request_can_last_so_long(tmp_path: Path) -> None:
    """One that is under way stays."""
    for name, age_s in (("killed", 1201), ("under way", 1199)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ledgers.txt").write_text("7\n")
        os.utime(tmp_path / name, (NOON.timestamp() - age_s,) * 2)
    remove_abandoned(tmp_path, NOON, 1200)
    assert [path.name for path in tmp_path.iterdir()] == ["under way"]


def test_nobody_else_reads_what_runs_hold(tmp_path: Path) -> None:
    """Captures hold passwords."""
    make_run(tmp_path / "data", NOON, 1)
    assert (tmp_path / "data" / "capture").stat().st_mode & 0o077 == 0
    assert (tmp_path / "data").stat().st_mode & 0o077 == 0
