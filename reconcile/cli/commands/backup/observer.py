"""`backup observer`: a ZooKeeper observer of one's own, whose files `backup follow --logs` follows."""

import os
import sys
from pathlib import Path
from typing import Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.options import FOLDER, LocalPath, make_context, make_output, output_options, quote_command
from reconcile.cli.output import Result

_PORTS: Final = 65_533


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "with --write-only: the configuration is written; else ZooKeeper runs, and its own code is returned",
        Exit.FAILED: "the ensemble did not answer, or the disk is full",
        Exit.USAGE: "Java or ZooKeeper's jars are missing, or a setting, a number or a folder cannot be used",
    },
    epilog="Example: bkmeta backup observer --zookeeper zk1:2181,zk2:2181,zk3:2181 --dir /var/lib/bkmeta/observer",
)
@click.option("--zookeeper", "hosts", required=True, metavar="HOSTS", help="host:port of the ensemble's servers.")
@click.option(
    "--dir",
    "folder",
    required=True,
    type=FOLDER,
    help="Folder of the observer: empty, or already used by it.",
)
@click.option(
    "--id",
    "number",
    type=click.IntRange(1, 254),
    help="Number of the observer, above those of all servers. [default: 200, or one more than the highest]",
)
@click.option(
    "--port",
    type=click.IntRange(1, _PORTS),
    default=12181,
    show_default=True,
    help="Port for clients on loopback. The next two are the observer's own for the quorum, on loopback, too.",
)
@click.option(
    "--settings",
    type=LocalPath(exists=True, dir_okay=False, path_type=Path),
    help="File with more lines of zoo.cfg, such as TLS and SASL of the quorum, and with Java's options (lines with "
    "-D or -X).",
)
@click.option(
    "--jars",
    type=LocalPath(exists=True, path_type=Path),
    help="Folder of ZooKeeper's jars. [default: ZOOKEEPER_HOME/lib, and where packages put them]",
)
@click.option("--write-only", is_flag=True, help="Write the configuration, show the command, and run nothing.")
@output_options
def observer(
    hosts: str,
    folder: Path,
    number: int | None,
    port: int,
    settings: Path | None,
    jars: Path | None,
    *,
    write_only: bool,
    **shared: Any,  # noqa: ANN401 - the shared options
) -> None:
    """Run a ZooKeeper observer: it has no vote, and its files have committed transactions only.

    ZooKeeper's own class runs in this process, until you stop it. Follow its folder with `backup follow --logs`.
    The ensemble needs no change: it is not told of the observer's ports, which are open on loopback only.
    """
    from reconcile.jobs.backup.observer import ObserverRequest, prepare_observer

    output = make_output(shared)
    request = ObserverRequest(
        hosts=hosts,
        folder=folder.absolute(),
        number=number,
        port=port,
        settings=settings,
        jars=jars,
        environ=os.environ,
    )
    prepared = prepare_observer(request, make_context(output))
    follow = ["bkmeta", "backup", "follow", "--metadata", "URI", "--logs", str(request.folder), "--to", "PLACE"]
    result = Result(
        "backup-observer",
        f"observer {prepared.number} beside {prepared.servers} servers is configured in {request.folder}",
        Exit.DONE,
        counts={"servers": prepared.servers},
        details=[quote_command(*prepared.command)],
        following=quote_command(*follow),
        facts={"command": list(prepared.command), "config": str(prepared.config), "id": prepared.number},
    )
    code = output.show(result)
    if write_only:
        sys.exit(code)
    sys.stdout.flush()
    os.execv(prepared.command[0], prepared.command)  # noqa: S606 - ZooKeeper takes this process's place and signals
