"""Commands of this program that a rescue runs: each is a process of its own, which ends with the rescue."""

import json
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Thread
from typing import IO, Any

from reconcile.cli.output import Output, say_line
from reconcile.cli.rescue.transports import make_own_command
from reconcile.jobs.context import StageProgress

_NO_RESULT = {"verdict": "it ended without a result", "next": "", "counts": {}}


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended: its exit code, its result object, and the seconds that it took."""

    code: int
    result: dict[str, Any]
    seconds: float


def run_own(words: tuple[object, ...], environment: Mapping[str, str], output: Output, *, is_told: bool) -> Ran:
    """Run a command of this program, and show its progress as that of this one.

    Args:
        words: of it, without `bkmeta`, --json and --progress.
        environment: of it.
        output: of this command.
        is_told: what it says for people was said before.
    """
    wants_events = output.are_events or output.is_drawn
    program = make_own_command(*words, "--json", "--progress", "json" if wants_events else "none")
    begun = time.monotonic()
    stderr = subprocess.PIPE if output.is_drawn else subprocess.DEVNULL if is_told else None
    with (
        output.progress(f"bkmeta {words[0]}", "steps") as show,
        # Not of this terminal: at one it would ask a person by itself, and what it asks is not seen.
        subprocess.Popen(
            program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, env=dict(environment)
        ) as running,
    ):
        reader = None
        if running.stderr is not None:
            reader = Thread(target=_pass_on, args=(running.stderr, show, is_told), daemon=True)
            reader.start()
        out = running.stdout.read() if running.stdout is not None else b""
        code = running.wait()
        if reader is not None:
            reader.join()
    lines = out.decode(errors="replace").splitlines()
    try:
        result: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, ValueError):
        result = dict(_NO_RESULT)
    return Ran(code, result, time.monotonic() - begun)


def _pass_on(stderr: IO[bytes], show: StageProgress, is_told: bool) -> None:  # noqa: FBT001 - of a thread
    """Show the events of a command; what is no event is for people."""
    for line in stderr:
        text = line.decode(errors="replace").rstrip("\n")
        try:
            event = json.loads(text)
        except ValueError:
            event = None
        if not isinstance(event, dict) or "event" not in event:
            if not is_told:
                say_line(text, err=True)
        elif event["event"] == "progress":
            show(event["done"], event["total"], event["stage"])
