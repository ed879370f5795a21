"""What every job has from its caller: whom stores take it for, whom it tells how far it is, and the time."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from reconcile.estimates import EstimatedStep, is_short

if TYPE_CHECKING:
    from backends.bookie.client import BookieOptions
    from backends.registry import OpenStore
    from reconcile.stores import Access
    from recovery.spark import SparkSession


class StageProgress(Protocol):
    """Takes (done, of all) of a stage; a total of 0 is not known yet."""

    def __call__(self, done: int, total: int, stage: str = "") -> None: ...


class Reporter(Protocol):
    """Shows how far a job is."""

    def progress(self, title: str, unit: str) -> AbstractContextManager[StageProgress]:
        """Give a function to call with (done, of all) while something is done.

        Args:
            title: what is done.
            unit: what is counted.
        """

    def expect(self, step: EstimatedStep, things: int) -> None:
        """Show about how long a step will take.

        Args:
            step: which.
            things: how many things it works on, in the unit of its rate.
        """


class SilentReporter:
    """Shows nothing."""

    @contextmanager
    def progress(self, title: str, unit: str) -> Iterator[StageProgress]:
        """Give a function that drops what it is given."""
        del title, unit
        yield lambda done, total, stage="": None  # noqa: ARG005 - the protocol's names

    def expect(self, step: EstimatedStep, things: int) -> None:
        """Show nothing."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a job has from its caller.

    Attributes:
        access: whom stores take the job for, and how connections are secured.
        reporter: shows how far the job is.
        now: the clock; aware.
    """

    access: "Access"
    reporter: Reporter
    now: Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class WireOptions:
    """How running bookies are asked.

    Attributes:
        options: of the connections.
        aliases: other names of bookies.
    """

    options: "BookieOptions"
    aliases: Mapping[str, str]


@contextmanager
def connect(
    uri: str, context: Context, *, writable: bool = False, at: str | None = None, ops_s: float | None = None
) -> "Iterator[OpenStore]":
    """Give the store of a URI, and close it afterwards.

    Args:
        uri: a store's or a catalog's.
        context: of the job.
        writable: whether writes pass.
        at: the point in time to be shown; None: the latest.
        ops_s: reads a second, at most.

    Raises:
        UnsupportedStoreError: the URI is malformed, or of a store that is not read.
        UnavailableError: it does not answer.
    """
    from reconcile.stores import open_store  # noqa: PLC0415 - who only shows how far a job is loads no store

    with context.reporter.progress("connecting to the store", "stores"):
        opened = open_store(uri, context.access, writable=writable, at=at, ops_s=ops_s)
    with opened:
        yield opened


@contextmanager
def start_spark(master: str | None, python: Path | None, context: Context) -> "Iterator[SparkSession]":
    """Give a session, as `recovery.spark.session` does.

    Args:
        master: as `spark-submit --master` takes it; None: that of Spark's own settings, else this host.
        python: what executors run as their Python; None: what they have.
        context: of the job.

    Raises:
        InputError: no pyspark, no Java that it can use, a master that does not answer, or a file that is of no use.
    """
    with ExitStack() as stack:
        with context.reporter.progress("starting Spark", "sessions"):
            from recovery.spark import session  # noqa: PLC0415 - only jobs that need Spark load it

            spark = stack.enter_context(session(master, python=python))
        yield spark


@contextmanager
def choose_spark(
    step: EstimatedStep, things: int, master: str | None, python: Path | None, context: Context
) -> "Iterator[SparkSession | None]":
    """Give what carries a step over bucket ranges: a session, or None for this process.

    Args:
        step: which.
        things: how many things it works on, in the unit of its rate.
        master: as `spark-submit --master` takes it; None: a session on this host, and only where the step is long.
        python: what executors run as their Python; None: what they have.
        context: of the job.

    Raises:
        InputError: as of `start_spark`.
    """
    if master is None and is_short(step, things):
        yield None
        return
    with start_spark(master, python, context) as spark:
        yield spark


@contextmanager
def add_remedy(remedy: str) -> Iterator[None]:
    """Say what to do where what happens inside is stopped, or fails without a remedy of its own."""
    try:
        yield
    except BaseException as error:
        error.add_note(remedy)
        raise


def throttle(progress: StageProgress, *, every_s: float = 0.2) -> StageProgress:
    """Return a function that passes calls on at most once in so many seconds, and both ends of a stage always."""
    last = float("-inf")
    current: str | None = None

    def pass_on(done: int, total: int, stage: str = "") -> None:
        nonlocal last, current
        now = time.monotonic()
        if now - last >= every_s or stage != current or done >= total > 0:
            last, current = now, stage
            # What is read twice counts twice; nobody wants to hear of 101 %.
            progress(min(done, total) if total else done, total, stage)

    return pass_on


def now_ms(context: Context) -> int:
    """Return the time, ms since 1970."""
    return int(context.now().timestamp() * 1000)
