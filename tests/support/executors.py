"""A program of its own for tests: one command that needs Spark, and what can be seen in its session once it is done.

    executors.py FOUND WORD…    run `bkmeta WORD…`; FOUND gets a JSON object

A Java process stays with the Python process that started it, with its environment: so this one needs its own.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import recovery.spark
from reconcile.cli.main import main
from reconcile.jobs.diagnose.doctor import examine_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_session = recovery.spark.session
_found: dict[str, Any] = {}


def _look(_: range) -> dict[str, Any]:
    """Say where a task runs, and from which files it has what it imported."""
    import importlib  # noqa: PLC0415 - this function goes to executors by itself
    import sys  # noqa: PLC0415 - as above
    from pathlib import Path  # noqa: PLC0415 - as above

    names = ("recovery.infer.reconstruct", "reconcile.jobs.make_plan.range_task")
    ours = [importlib.import_module(name).__file__ for name in names]
    files = [getattr(module, "__file__", None) or "." for module in list(sys.modules.values())]
    return {
        "executor": str(Path.cwd()),
        "python": sys.executable,
        "ours": [str(Path(file or ".").absolute()) for file in ours],
        "files": [str(Path(file).absolute()) for file in files],
    }


@contextmanager
def _watched(master: str | None = None, **options: Any) -> "Iterator[SparkSession]":
    with _session(master, **options) as spark:
        yield spark
        _found["seen"] = recovery.spark.over_buckets(spark, _look, [range(n, n + 1) for n in range(8)])
        _found["checks"] = {check.name: str(check.state) for check in examine_session(spark, master or "")}


if __name__ == "__main__":
    recovery.spark.session = _watched
    try:
        main(sys.argv[2:])
    finally:
        Path(sys.argv[1]).write_text(json.dumps(_found))
