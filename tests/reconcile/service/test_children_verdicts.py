"""Commands that end without a word: what is said of them, and that a result is never made up."""

import sys
from pathlib import Path

import pytest

from reconcile.service.runs.children import Children


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9, "ended by SIGKILL"),
        ("import sys; sys.exit(7)", 7, "it ended with 7, without a word"),
        ("import sys; sys.exit('no such store')", 1, "no such store"),
        ("print('[1]')", 0, "it ended with 0, without a word"),
        ('print(\'{"verdict": "fine"}\')', 0, "fine"),
    ],
)
def test_a_verdict_is_what_the_command_said_or_how_it_ended(tmp_path: Path, program: str, code: int, said: str) -> None:
    """Its object, else the last line of its log, else its end."""
    finished = Children((sys.executable, "-c", program)).run([], tmp_path, timeout_s=60)
    assert (finished.exit_code, said in finished.verdict) == (code, True), finished
    assert bool(finished.result) == (said == "fine")
