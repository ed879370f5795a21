"""What is drawn on a terminal while a command works: what it does, for how long, and a bar once something is done."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text


class _Where(ProgressColumn):
    """Shows a column only while a share of the work is done; or only while it is not known how much there is."""

    def __init__(self, column: ProgressColumn, *, is_moving: bool) -> None:
        super().__init__()
        self._column = column
        self._is_moving = is_moving

    def render(self, task: Task) -> Text:
        """Return what the column shows of a task, or nothing."""
        is_moving = bool(task.total and task.completed)
        # Every column renders to what a table can hold; the stubs name only the commonest.
        return self._column.render(task) if is_moving is self._is_moving else Text("")  # type: ignore[return-value] # rich's own columns answer so, too


@contextmanager
def draw(title: str, *, no_color: bool) -> Iterator[Callable[[int, int, str], None]]:
    """Draw until the end of the block; give a function to call with (done, of all, what is done now).

    A bar that is at 0 says nothing, and looks broken: until something is done the time that passed is shown.
    """
    moving = (BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TimeRemainingColumn())
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        *(_Where(column, is_moving=True) for column in moving),
        _Where(TimeElapsedColumn(), is_moving=False),
    )
    # A file of its own: while Java starts, what is written to stderr goes into a log.
    with os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8", errors="replace") as terminal:
        console = Console(file=terminal, no_color=no_color)
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(title, total=None)

            def show(done: int, total: int, words: str) -> None:
                bar.update(task, completed=done, total=total or None, description=words)

            yield show
