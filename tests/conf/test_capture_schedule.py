"""`conf/`: a capture on a schedule, and which captures it lets go."""

import configparser
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Final

import pytest

from tests.support.command import ROOT

CONF: Final = ROOT / "conf"
PROGRAM: Final = CONF / "bkmeta-capture"
DAY_S: Final = 86_400
FAKE: Final = """#!/bin/sh
printf '%s\\n' "$@" >"$HOME/arguments"
mkdir -p "$HOME/captures" && while [ "$1" != --out ]; do shift; done && mkdir "$2"
exit "${CODE:-0}"
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a configuration, and a program that answers as `bkmeta capture` does."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bkmeta").write_text(FAKE)
    (tmp_path / "bin" / "bkmeta").chmod(0o755)
    settings = (CONF / "capture.conf").read_text(encoding="utf-8")
    settings = settings.replace("/var/lib/bkmeta/captures", str(tmp_path / "captures"))
    (tmp_path / "capture.conf").write_text(settings)
    return tmp_path


def captured(home: Path, code: int = 0) -> int:
    """Run the program once; return its exit code."""
    env = {"PATH": f"{home / 'bin'}:{os.environ['PATH']}", "HOME": str(home), "CODE": str(code)}
    return subprocess.run([PROGRAM, home / "capture.conf"], env=env, check=False, capture_output=True).returncode


def aged(home: Path, days: int, ending: str = "") -> Path:
    """Make a capture that is so many days old."""
    at = time.time() - days * DAY_S
    folder = home / "captures" / (time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at)) + ending)
    folder.mkdir(parents=True)
    os.utime(folder, (at, at))
    return folder


def left(home: Path) -> set[Path]:
    """Return what stands among the captures."""
    return set((home / "captures").iterdir())


def test_a_capture_is_named_by_its_time(home: Path) -> None:
    """The store of the configuration is captured into a new folder, which gets its name when it is complete."""
    assert captured(home) == 0
    (made,) = left(home)
    assert re.fullmatch(r"\d{8}T\d{6}Z", made.name)
    arguments = (home / "arguments").read_text().split("\n")
    assert arguments[:3] == ["capture", "--metadata", "zk+hierarchical://zk1:2181;zk2:2181;zk3:2181/ledgers"]
    assert made.parent.stat().st_mode & 0o077 == 0


def test_old_captures_go_and_the_last_ones_stay(home: Path) -> None:
    """Older than KEEP_DAYS they go, but never one of the newest KEEP_AT_LEAST, nor what somebody else put there."""
    young = [aged(home, days) for days in range(1, 4)]
    old = [aged(home, days) for days in range(40, 50)]
    broken = aged(home, 45, ".part")
    foreign = home / "captures" / "before-the-upgrade"
    foreign.mkdir()
    os.utime(foreign, (0, 0))
    assert captured(home) == 0
    stay = {*young, *old[:3], foreign}
    assert stay <= left(home)
    assert len(left(home) - stay) == 1
    assert not broken.exists()


@pytest.mark.parametrize("code", [1, 3, 4])
def test_a_capture_that_is_not_complete_lets_none_go(home: Path, code: int) -> None:
    """Its exit code is the program's: systemd and cron report it, and the last good captures stay."""
    old = {aged(home, days) for days in range(40, 60)}
    assert captured(home, code) == code
    assert old <= left(home)
    assert all(folder.name.endswith(".part") for folder in left(home) - old)


def test_the_units_are_what_systemd_takes(tmp_path: Path) -> None:
    """By systemd's own check where it is installed; in any case they parse, and name the program and a time."""
    service, timer = CONF / "bkmeta-capture.service", CONF / "bkmeta-capture.timer"
    units = {}
    for file in (service, timer):
        parser = units[file] = configparser.ConfigParser(interpolation=None, strict=True)
        parser.optionxform = str  # type: ignore[assignment, method-assign] # the way that configparser documents
        parser.read(file)
    program, configuration = units[service]["Service"]["ExecStart"].split()
    assert (Path(program).name, Path(configuration).name) == (PROGRAM.name, "capture.conf")
    assert units[timer]["Timer"]["OnCalendar"] == "daily"
    assert units[timer]["Install"]["WantedBy"] == "timers.target"
    analyze = shutil.which("systemd-analyze")
    if analyze is not None:
        here = tmp_path / service.name
        here.write_text(service.read_text().replace(program, str(PROGRAM)))
        shutil.copy(timer, tmp_path)
        done = subprocess.run(
            [analyze, "verify", here, tmp_path / timer.name], capture_output=True, text=True, check=False, timeout=60
        )
        said = [line for line in done.stderr.splitlines() if "bkmeta-capture" in line]
        assert (done.returncode, said) == (0, []), done.stderr


def test_the_line_for_cron_runs_the_same() -> None:
    """Five fields of time, a user, and the program with the configuration."""
    lines = (CONF / "bkmeta-capture.cron").read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if line and not line.startswith("#") and "=" not in line.split()[0]]
    *times, user, command = line.split(maxsplit=6)
    assert all(re.fullmatch(r"\*|\d+", field) for field in times[:5])
    assert user == "bkmeta"
    assert command.split()[-2:] == ["bkmeta-capture", "/etc/bkmeta/capture.conf"]
