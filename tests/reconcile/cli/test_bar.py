"""What is said while a command works: at once, in words, and without a bar that stands at 0."""

import json
import os
import pty
import re
import select
import sys
from pathlib import Path
from typing import Final

import pytest

from reconcile.cli.output import STAGES, Output
from tests.support.command import PATIENCE_S, ROOT, environment

DRAW: Final = """
import os, sys
from reconcile.cli.output import Output
with Output(as_json=False, progress="auto").progress("reconstructing", "parts") as told:
    sys.stdin.readline()
    told(0, 12, "ledgers")
    sys.stdin.readline()
    kept, log = os.dup(2), os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 2)
    told(6, 12, "ledgers")
    sys.stdin.readline()
    os.dup2(kept, 2)
"""
"""Waits for a line before each step: until what the one before it draws was seen."""
DRAWN: Final = (r"reconstructing .*\d:\d\d:\d\d", re.escape(STAGES["ledgers"]), "50%")
"""What each step draws."""


def on_a_terminal(log: Path) -> str:
    """Run DRAW on a terminal of its own, a step when that before it was drawn; return all that it drew."""
    child, terminal = pty.fork()
    if child == 0:  # pragma: no cover - another program from here on
        os.chdir(ROOT)
        env = environment(TERM="xterm", COLUMNS="120", NO_COLOR=None)
        os.execve(sys.executable, [sys.executable, "-c", DRAW, str(log)], env)  # noqa: S606 - the terminal is the point
    drawn, awaited = b"", [*DRAWN]
    while True:
        assert select.select([terminal], [], [], PATIENCE_S)[0], f"{awaited[:1]} is not drawn: {drawn!r}"
        try:
            drawn += os.read(terminal, 1 << 16)
        except OSError:  # what Linux says at the end of a terminal
            break
        if awaited and re.search(awaited[0], drawn.decode(errors="ignore")):
            awaited.pop(0)
            os.write(terminal, b"\n")
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
