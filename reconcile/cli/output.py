"""What a command says: for people, the verdict first and the next command last; for programs, one JSON object."""

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

import click

SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Result:
    """What a command found.

    Attributes:
        command: its name.
        verdict: one line; the first thing that is printed.
        exit_code: docs/operations/exit-codes.md.
        counts: what was counted, each with what it is out of.
        coverage: what was looked at, and what was not.
        details: lines for people.
        following: the exact next command, or what to do.
        facts: more keys for programs.
    """

    command: str
    verdict: str
    exit_code: int
    counts: Mapping[str, object] = field(default_factory=dict)
    coverage: Mapping[str, object] = field(default_factory=dict)
    details: Sequence[str] = ()
    following: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)


class Told(Protocol):
    """Takes (done, of all) of a stage; a total of 0 is not known yet."""

    def __call__(self, done: int, total: int, stage: str = "") -> None: ...


class Output:
    """Prints results, errors and progress in the way that was asked for."""

    def __init__(self, *, as_json: bool, progress: str) -> None:
        self._json = as_json
        self._progress = progress

    def show(self, result: Result) -> int:
        """Print a result; return its exit code."""
        if self._json:
            click.echo(
                json.dumps(
                    {
                        "schema": f"bkmeta.{result.command}/{SCHEMA_VERSION}",
                        "verdict": result.verdict,
                        "exit_code": result.exit_code,
                        "counts": result.counts,
                        "coverage": result.coverage,
                        **result.facts,
                    }
                )
            )
            return result.exit_code
        colour = {0: "green", 3: "yellow", 4: "yellow"}.get(result.exit_code, "red")
        click.echo(_styled(result.verdict, colour))
        for line in result.details:
            click.echo(f"  {line}" if line else "")
        if result.following:
            click.echo(f"\nnext: {result.following}")
        return result.exit_code

    @staticmethod
    def failure(message: str, exit_code: int, *, as_json: bool) -> None:
        """Print an error: to stderr for people, as the result object for programs."""
        if as_json:
            body = {"schema": f"bkmeta.error/{SCHEMA_VERSION}", "verdict": message, "exit_code": exit_code}
            click.echo(json.dumps({**body, "counts": {}, "coverage": {}}))
        else:
            click.echo(f"bkmeta: {message}", err=True)

    @contextmanager
    def progress(self, title: str, unit: str) -> Iterator[Told]:
        """Give a function to be told (done, of all): a bar on a terminal, events with --progress json, else nothing."""
        if self._progress == "json":
            yield lambda done, total, stage="": click.echo(
                json.dumps({"event": "progress", "stage": stage or title, "done": done, "total": total, "unit": unit}),
                err=True,
            )
        elif self._progress == "auto" and sys.stderr.isatty() and not self._json:
            from rich.console import Console  # noqa: PLC0415 - only where there is a terminal to draw on
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
            console = Console(stderr=True, no_color="NO_COLOR" in os.environ)
            with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
                task = bar.add_task(title, total=None)
                yield lambda done, total, stage="": bar.update(
                    task, completed=done, total=total or None, description=f"{title} {stage}".strip()
                )
        else:
            yield lambda done, total, stage="": None  # noqa: ARG005 - the protocol's names


def throttled(report: Told, *, every: float = 0.2) -> Told:
    """Pass on what is told at most once in so many seconds, and the end always."""
    last = float("-inf")

    def told(done: int, total: int, stage: str = "") -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= every or done >= total:
            last = now
            report(done, total, stage)

    return told


def _styled(text: str, colour: str) -> str:
    return text if "NO_COLOR" in os.environ else click.style(text, fg=colour, bold=True)
