"""What is said while a command works: at once, in words, and without a bar that stands at 0."""

import json
import os
import pty
import re
import sys
from pathlib import Path
from typing import Final

import pytest

from reconcile.cli.output import STAGES, Output
from tests.support.command import ROOT, environment

DRAW: Final = """
import os, sys, time
from reconcile.cli.output import Output
with Output(as_json=False, progress="auto").progress("reconstructing", "parts") as told:
    time.sleep(0.3)
    told(0, 12, "ledgers")
    time.sleep(0.3)
    kept, log = os.dup(2), os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 2)
    told(6, 12, "ledgers")
    time.sleep(0.3)
    os.dup2(kept, 2)
"""


def on_a_terminal(log: Path) -> str:
    """Run DRAW on a terminal of its own; return all that it drew."""
    child, terminal = pty.fork()
    if child == 0:  # pragma: no cover - another program from here on
        os.chdir(ROOT)
        env = environment(TERM="xterm", COLUMNS="120", NO_COLOR=None)
        os.execve(sys.executable, [sys.executable, "-c", DRAW, str(log)], env)  # noqa: S606 - the terminal is the point
    drawn = b""
    while True:
        try:
            drawn += os.read(terminal, 1 << 16)
        except OSError:  # what Linux says at the end of a terminal
            break
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, drawn
    return drawn.decode()


def test_a_bar_is_drawn_once_something_is_done(tmp_path: Path) -> None:
    """Before that: what is done, and for how long; also while stderr goes elsewhere, as it does while Java starts."""
    drawn = on_a_terminal(tmp_path / "log")
    waiting, _, moving = drawn.partition(STAGES["ledgers"])
    assert re.search(r"reconstructing .*\d:\d\d:\d\d", waiting)
    assert "%" not in waiting
    assert not re.search(r"\b0%", moving)
    assert "50%" in moving
    assert (tmp_path / "log").read_bytes() == b""


def test_events_begin_before_the_work(capsys: pytest.CaptureFixture[str]) -> None:
    """With --progress json what is done is said before anything of it is done, by its title."""
    with Output(as_json=True, progress="json").progress("starting Spark", "sessions"):
        event = json.loads(capsys.readouterr().err)
    assert event == {"event": "progress", "stage": "starting Spark", "done": 0, "total": 0, "unit": "sessions"}
