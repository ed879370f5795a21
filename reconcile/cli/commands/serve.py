"""`serve`: the service."""

import logging
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.options import FILE, make_context, make_output, output_options
from reconcile.cli.output import Result
from recovery.errors import InputError


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "it was asked to end, and has ended; with --check: the configuration can be used",
        Exit.USAGE: "a configuration, a token file, an address or a folder that cannot be used",
        Exit.FOUND: "with --check: a host, file or folder that the configuration names does not exist here",
    },
    epilog="Example: bkmeta serve --config /etc/bkmeta/serve.toml",
)
@click.option("--config", "path", type=FILE, required=True, help="TOML; conf/serve.toml shows every key.")
@click.option("--check", is_flag=True, help="Read the configuration, say what it means, and end.")
@output_options
def serve(path: Path, check: bool, **shared: Any) -> None:  # noqa: ANN401, FBT001 - click's options
    """Run scrutinies, captures and drills by a schedule, and answer requests. WRITES its own record to the store.

    Several instances may run for one store: one of them is elected, and runs the jobs; all answer questions. What a
    token holder asks for, deletes among it, is written as its own command writes it.
    """
    from reconcile.service.config import list_missing, read_config, read_tls, read_tokens

    output = make_output(shared)
    config = read_config(path)
    if check:
        read_tokens(config.access.tokens)
        read_tls(config.access)
        jobs = [f"{name}: every {job.every:g} s, {job.shares} shares" for name, job in sorted(config.jobs.items())]
        at = config.listen
        listens = [f"http {at.http}", f"grpc {at.grpc}", f"health {at.health}"]
        missing = list_missing(config)
        facts = {"instance": config.name, "jobs": sorted(config.jobs), "missing": missing}
        verdict = (
            f"{path} names {len(missing)} things that this host does not have" if missing else f"{path} can be used"
        )
        code = Exit.FOUND if missing else Exit.DONE
        sys.exit(output.show(Result("serve", verdict, code, details=[*missing, *listens, *jobs], facts=facts)))
    try:
        from reconcile.service.server import serve as run
    except ImportError as error:
        raise InputError("serve", f"{error.name} is not installed", "install bkmeta[service]") from error
    logging.getLogger("reconcile.service").setLevel(logging.INFO)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: ended.set())
    run(config, make_context(output), ended)
    sys.exit(output.show(Result("serve", "ended as asked", Exit.DONE)))
