"""What a command says: for people, the verdict first and the next command last; for programs, one JSON object."""

import io
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self, TextIO, cast

import click

from reconcile.chosen_settings import list_chosen
from reconcile.cli.command import TELEMETRY, Exit
from reconcile.cli.settings import TYPED, effective_settings
from reconcile.estimates import EstimatedStep, estimate_s, in_words
from reconcile.words import printable, printable_line

if TYPE_CHECKING:
    from reconcile.chosen_settings import Setting
    from reconcile.cli.telemetry import Telemetry
    from reconcile.jobs.context import Reporter, StageProgress

SCHEMA_VERSION: Final = 1
"""Of every object; raised when a key goes or changes its meaning (docs/operations/json.md)."""


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a line for people, in a colour where colours are shown."""

    text: str
    colour: str = ""


class PaintedLine(str):
    """A line for people, made of pieces, some of them in a colour; as text it has no colour."""

    __slots__ = ("spans",)

    spans: tuple[Span, ...]

    def __new__(cls, *spans: Span) -> Self:
        """Join pieces."""
        line = super().__new__(cls, "".join(span.text for span in spans))
        line.spans = spans
        return line


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
        rows: the key in `facts` of the rows that --csv prints.
        columns: of these rows, in their order.
    """

    command: str
    verdict: str
    exit_code: int
    counts: Mapping[str, object] = field(default_factory=dict)
    coverage: Mapping[str, object] = field(default_factory=dict)
    details: Sequence[str] = ()
    following: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)
    rows: str = ""
    columns: Sequence[str] = ()


STAGES: Final[Mapping[str, str]] = {
    "scopes": "looking for ids that several scopes share",
    "shapes": "learning from a sample how ledgers of this cluster are spread over bookies",
    "ledgers": "reconstructing ledgers",
}
"""Stages of `recover`, as a person reads them."""

_COLOURS: Final[Mapping[int, str]] = {Exit.DONE: "green", Exit.FOUND: "yellow", Exit.UNDECIDABLE: "yellow"}


_WORTH_SAYING_S: Final = 60
"""What is over sooner needs no word before it begins."""


class Output:
    """Prints results, errors and progress in the way that was asked for."""

    def __init__(self, *, as_json: bool, progress: str, short: bool = False, as_csv: bool = False) -> None:
        self._json = as_json
        self._csv = as_csv
        self._progress = progress
        self._short = short

    @property
    def is_drawn(self) -> bool:
        """Whether progress is drawn on a terminal."""
        return self._progress == "auto" and sys.stderr.isatty() and not self._json

    @property
    def are_events(self) -> bool:
        """Whether progress is events on stderr."""
        return self._progress == "json"

    def trace(self) -> "Reporter":
        """Return what shows how far a job is: this, and where steps are recorded (`telemetry.py`) that, too."""
        telemetry = _find_telemetry()
        return self if telemetry is None else telemetry.trace_steps(self)

    def show(self, result: Result) -> int:
        """Print a result, with the settings that were not defaults; return its exit code."""
        if (telemetry := _find_telemetry()) is not None:
            telemetry.record_result(result.counts)
        chosen = list_settings()
        if self._json:
            click.echo(
                json.dumps(
                    {
                        "schema": f"bkmeta.{result.command}/{SCHEMA_VERSION}",
                        "verdict": result.verdict,
                        "exit_code": result.exit_code,
                        "counts": result.counts,
                        "coverage": result.coverage,
                        "next": result.following,
                        "settings": {
                            setting.name: {"value": setting.value, "from": setting.origin} for setting in chosen
                        },
                        **result.facts,
                    }
                )
            )
            return result.exit_code
        if self._csv:
            _print_csv(result)
            return result.exit_code
        colour = _COLOURS.get(result.exit_code, "red")
        click.echo(_style(_fit(printable_line(result.verdict), sys.stdout), colour))
        if self._short:
            return result.exit_code
        for line in result.details:
            if isinstance(line, PaintedLine):
                click.echo("  " + "".join(_paint(span) for span in line.spans))
            else:
                click.echo(_fit(f"  {printable_line(line)}", sys.stdout) if line else "")
        if words := [
            f"{setting.name} {setting.value} ({setting.origin})" for setting in chosen if setting.origin != TYPED
        ]:
            click.echo(_fit(f"  settings that were not typed: {printable_line('; '.join(words))}", sys.stdout))
        if result.following:
            click.echo(f"\nnext: {printable(result.following)}")
        return result.exit_code

    @staticmethod
    def failure(message: str, exit_code: int, *, as_json: bool, following: str = "") -> None:
        """Print an error, which ends with what to do next: to stderr for people, as the result object for programs."""
        if as_json:
            body = {"schema": f"bkmeta.error/{SCHEMA_VERSION}", "verdict": message, "exit_code": exit_code}
            click.echo(json.dumps({**body, "counts": {}, "coverage": {}, "next": following}))
        else:
            click.echo(_fit(f"bkmeta: {printable(message)}", sys.stderr), err=True)

    def expect(self, step: EstimatedStep, things: int) -> None:
        """Say about how long a step will take: a line on a terminal, or an event."""
        seconds = estimate_s(step, things)
        if self._progress == "json":
            click.echo(json.dumps({"event": "estimate", "stage": str(step), "seconds": round(seconds)}), err=True)
        elif self.is_drawn and seconds >= _WORTH_SAYING_S:
            click.echo(f"{step}: {in_words(seconds)}, by what was measured on two cores", err=True)

    @contextmanager
    def progress(self, title: str, unit: str) -> "Iterator[StageProgress]":
        """Give a function to call with (done, of all): a bar on a terminal, events with --progress json, else nothing.

        What is done is said at once, before any of it is done.

        Args:
            title: what is done, for people; with the stage behind it, unless `STAGES` has words for that.
            unit: what is counted.
        """
        if self._progress == "json":

            def say(done: int, total: int, stage: str = "") -> None:
                event = {"event": "progress", "stage": stage or title, "done": done, "total": total, "unit": unit}
                click.echo(json.dumps(event), err=True)

            say(0, 0)
            yield say
        elif self.is_drawn:
            from reconcile.cli.bar import draw

            with draw(title, no_color=_is_plain()) as show:
                yield lambda done, total, stage="": show(
                    done, total, printable_line(STAGES.get(stage, f"{title} {stage}".strip()))
                )
        else:
            yield lambda done, total, stage="": None  # noqa: ARG005 - the protocol's names


def _print_csv(result: Result) -> None:
    """Print rows as RFC 4180 has them, a line each, below the names of their columns; the verdict goes to stderr."""
    import csv

    rows = cast("Sequence[Mapping[str, object]]", result.facts[result.rows])
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(result.columns)
    writer.writerows([_to_cell(row[column]) for column in result.columns] for row in rows)
    click.echo(text.getvalue(), nl=False)
    click.echo(printable_line(result.verdict), err=True)


def _to_cell(value: object) -> str:
    """Return text as it is, null as nothing, and what has parts as JSON; none has a line break."""
    if value is None:
        return ""
    return printable_line(value) if isinstance(value, str) else json.dumps(value)


def _find_telemetry() -> "Telemetry | None":
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(TELEMETRY)


def say_line(text: str, *, err: bool = False) -> None:
    """Print a line for people; on a terminal above a bar that is drawn there.

    Args:
        text: of the line, or of several.
        err: whether it goes to stderr.
    """
    stream = sys.stderr if err else sys.stdout
    # While it draws, rich stands for the stream. click writes past it, into the line of the bar.
    if hasattr(stream, "rich_proxied_file") and stream.isatty():
        print(printable(text), file=stream)
    else:
        click.echo(printable(text), err=err)


def list_settings() -> "list[Setting]":
    """Return the settings of the command that runs, as far as they are no defaults; none where a program calls."""
    return [] if click.get_current_context(silent=True) is None else list_chosen(effective_settings())


def _paint(span: Span) -> str:
    text = printable_line(span.text)
    return _style(text, span.colour) if span.colour else text


def _is_plain() -> bool:
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def _style(text: str, colour: str) -> str:
    # click takes the codes out again where stdout is not a terminal.
    return text if _is_plain() else click.style(text, fg=colour, bold=True)


def _fit(text: str, stream: TextIO) -> str:
    """Wrap lines that are longer than the terminal, below where they began; in a pipe they stay whole."""
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    fitted = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        if len(line) > width:
            line = textwrap.fill(  # noqa: PLW2901 - the same line, fitted
                line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
            )
        fitted.append(line)
    return "\n".join(fitted)
