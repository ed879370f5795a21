"""Commands run as `bkmeta` would run them, in this process or in one of their own: exit code, output, result object."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import click
import pytest

from reconcile.cli.command import Command, Exit
from reconcile.cli.main import main, program

ROOT: Final = Path(__file__).resolve().parents[2]
PROGRAM: Final = Path(sys.executable).with_name("bkmeta")
ANYWHERE: Final = frozenset({Exit.FAILED, Exit.USAGE, Exit.INTERRUPTED, Exit.TERMINATED})
"""Codes that every command may end with."""
PATIENCE_S: Final = 120
"""For a process on a machine that does much else."""


@dataclass(frozen=True, slots=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def result(self) -> dict[str, Any]:
        """The object on the last line of ``--json`` output."""
        found: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return found


def commands() -> dict[str, Command]:
    """Return every command by its name, those of a group as ``group command``."""
    return dict(_below(program, ()))


def _below(group: click.Group, path: tuple[str, ...]) -> Iterator[tuple[str, Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _below(command, (*path, name))
        else:
            assert isinstance(command, Command), f"{name} declares no exit codes"
            yield " ".join((*path, name)), command


def declared(arguments: list[str]) -> frozenset[int]:
    """Return the exit codes that a command line's command may end with."""
    for words in (3, 2, 1):
        command = commands().get(" ".join(arguments[:words]))
        if command is not None:
            return frozenset(command.exits) | ANYWHERE
    return ANYWHERE | {Exit.DONE}


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> Done:
    """Run a command line to its end in this process."""
    words = [str(argument) for argument in arguments]
    with pytest.raises(SystemExit) as ended:
        main(words)
    printed = capsys.readouterr()
    code = ended.value.code
    assert isinstance(code, int)
    assert code in declared(words), f"bkmeta {' '.join(words)} does not declare its exit code {code}"
    return Done(code, printed.out, printed.err)


def call(*arguments: object, env: Mapping[str, str] | None = None) -> Done:
    """Run a command line to its end in this process, as `run` does, where no fixture has its streams."""
    words = [str(argument) for argument in arguments]
    written = io.BytesIO(), io.BytesIO()
    out, err = (io.TextIOWrapper(bytes_of, "utf-8", write_through=True) for bytes_of in written)
    with (
        patch.dict(os.environ, environment() if env is None else env, clear=True),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        main(words)
    code = ended.value.code
    assert isinstance(code, int)
    assert code in declared(words), f"bkmeta {' '.join(words)} does not declare its exit code {code}"
    printed = [bytes_of.getvalue().decode() for bytes_of in written]
    return Done(code, *printed)


def environment(**changes: str | None) -> dict[str, str]:
    """Return this process's environment without the program's own variables, changed; None takes one out."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("BKMETA_", "_BKMETA"))}
    return {name: value for name, value in {**ours, **changes}.items() if value is not None}


def process(
    *arguments: object,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    patience_s: float = PATIENCE_S,
) -> Done:
    """Run the installed program to its end in a process of its own, its output in pipes."""
    done = subprocess.run(
        [PROGRAM, *map(str, arguments)],
        env=environment() if env is None else env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patience_s,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@contextmanager
def started(*arguments: object, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """Start the installed program at the head of a process group, as a shell does; it is gone afterwards."""
    running = subprocess.Popen(
        [PROGRAM, *map(str, arguments)],
        env=environment() if env is None else env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield running
    finally:
        running.kill()
        running.communicate()
