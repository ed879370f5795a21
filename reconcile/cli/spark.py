"""Spark, started by a command that says so while it waits."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from reconcile.cli.output import Output

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def started(master: str, python: Path | None, output: Output) -> "Iterator[SparkSession]":
    """Give a session, as `recovery.spark.session` does.

    Args:
        master: as `spark-submit --master` takes it.
        python: what executors run as their Python; None: what they have.
        output: says "starting Spark" until it has started.

    Raises:
        InputError: no pyspark, no Java that it can use, a master that does not answer, or a file that is of no use.
    """
    with ExitStack() as stack:
        with output.progress("starting Spark", "sessions"):
            from recovery.spark import session

            spark = stack.enter_context(session(master, python=python))
        yield spark
