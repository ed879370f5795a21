"""`doctor`: whether this installation is complete."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.options import csv_option, executor_option, make_context, make_output, output_options
from reconcile.cli.output import Result


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "everything that was checked is there",
        Exit.USAGE: "options or a URI that cannot be used",
        Exit.FOUND: "something is missing or wrong",
    },
    epilog="Example: bkmeta doctor --spark --metadata zk+hierarchical://zk1:2181/ledgers",
)
@click.option("--metadata", "uri", metavar="URI", help="A store that must be reachable from here.")
@click.option("--master", default="local[2]", show_default=True, help="Spark's master, for --spark.")
@executor_option
@click.option(
    "--spark", "session", is_flag=True, help="Start a Spark session there, and compare its executors with this host."
)
@click.option("--no-spark", "without", is_flag=True, help="This machine needs no Java, though PySpark is installed.")
@csv_option
@output_options
def doctor(uri: str | None, master: str, python: Path | None, *, session: bool, without: bool, **shared: Any) -> None:  # noqa: ANN401 - the shared options
    """Say whether this installation is complete, and what to do about each thing that is missing.

    Extras that are not installed are listed as optional. Java is needed where PySpark is installed, and for --spark.
    """
    from reconcile.jobs.diagnose.doctor import CheckState, DoctorRequest, examine_installation

    if session and without:
        raise click.UsageError("--spark and --no-spark exclude each other")
    if python and not session:
        raise click.UsageError("--executor-python is for --spark")
    output = make_output(shared)
    request = DoctorRequest(uri=uri, spark=not without, master=master if session else None, python=python)
    checks = examine_installation(request, make_context(output))
    counts = {str(state): sum(check.state is state for check in checks) for state in CheckState}
    missing = [check for check in checks if check.state is CheckState.MISSING]
    skipped = counts[CheckState.SKIPPED]
    verdict = "everything that was checked is there"
    if missing:
        verdict = f"{len(missing)} of {len(checks)} are missing or wrong: {', '.join(check.name for check in missing)}"
    width = max(len(check.name) for check in checks) + 2
    details = [f"{check.state:<9}{check.name:<{width}}{check.found}" for check in checks]
    details += [f"{check.name}: {check.remedy}" for check in checks if check.remedy]
    result = Result(
        "doctor",
        verdict,
        Exit.FOUND if missing else 0,
        counts={**counts, "checks": len(checks)},
        coverage={"spark_session": session, "store": uri is not None, "not_looked_at": skipped},
        details=details,
        facts={"checks": [{**asdict(check), "state": str(check.state)} for check in checks]},
        rows="checks",
        columns=("name", "state", "found", "remedy"),
    )
    sys.exit(output.show(result))
