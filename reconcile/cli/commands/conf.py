"""`conf write`: the examples of configuration that come with the program."""

import sys
from pathlib import Path
from typing import Any

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.options import FOLDER, make_output, output_options
from reconcile.cli.output import Result
from reconcile.words import count_noun


@click.group(epilog="Example: bkmeta conf write conf")
def conf() -> None:
    """Give out the examples of configuration: the service, units of systemd, Kubernetes, alerts, a dashboard."""


@conf.command(
    cls=Command,
    exits={
        Exit.DONE: "the files are there",
        Exit.FAILED: "this installation has none",
        Exit.USAGE: "the folder has another file of such a name, or cannot be written",
    },
    epilog="Example: bkmeta conf write conf",
)
@click.argument("folder", metavar="DIR", type=FOLDER)
@output_options
def write(folder: Path, **shared: Any) -> None:  # noqa: ANN401 - the shared options
    """Write every example into DIR; a file that is there is never written over."""
    from reconcile.jobs.diagnose.conf_files import write_conf

    output = make_output(shared)
    names = [str(name) for name in write_conf(folder)]
    result = Result(
        "conf-write",
        f"{count_noun(len(names), 'example')} in {folder}",
        Exit.DONE,
        counts={"files": len(names)},
        details=names,
        facts={"files": names},
    )
    sys.exit(output.show(result))
