"""The commands that look at one thing: a bookie's file, this installation."""

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.options import executor_option, make_output, output_options, store_auth
from reconcile.cli.output import Result, throttled

if TYPE_CHECKING:
    from backends.registry import OpenStore

_WIDTH: Final = 22
_PATIENCE_S: Final = 10.0
"""How long a store may take to answer before it counts as unreachable."""


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "read to its end, no damage",
        Exit.USAGE: "no such file, or no file of a bookie",
        Exit.FOUND: "damage; the rest was read",
    },
    epilog="Example: bkmeta inspect /mnt/bk1/ledgers/current/1f.log",
)
@click.argument("file", type=click.Path(path_type=Path))
@output_options
def inspect(file: Path, **shared: Any) -> None:  # noqa: ANN401 - click's options
    """Read one FILE of a bookie, or a RocksDB folder, by itself: kind, header, counts, ranges, damage.

    The kind is found by name and content. Payload, passwords and master keys are never shown.
    """
    from reconcile.look import LISTED, Kind, look

    output = make_output(shared)
    found = look(file)
    counted = ", ".join(_counted(count, name) for name, count in found.counts.items())
    damage = f"damaged in {_counted(found.damaged, 'places')}" if found.damaged else "no damage"
    verdict = f"{found.kind}, {found.size} bytes" + (f": {counted}" if counted else "") + f"; {damage}"
    unit = "row" if found.kind in (Kind.LOCATIONS, Kind.LEDGERS) else "byte"
    details = [f"{name:<{_WIDTH}}{text}" for name, text in found.header.items()]
    details += [f"{name:<{_WIDTH}}{text}" for name, text in (("first", found.first), ("last", found.last)) if text]
    details += found.ranges
    details += [f"note: {note}" for note in found.notes]
    details += [
        f"damage at {unit} {part.offset}, {part.length or 'unknown'} bytes: {part.reason}"
        + (f" ({part.detail})" if part.detail else "")
        for part in found.damage
    ]
    if found.damaged > LISTED:
        details.append(f"and {found.damaged - LISTED} more pieces of damage")
    result = Result(
        "inspect",
        verdict,
        Exit.FOUND if found.damaged else 0,
        counts={**found.counts, "damaged": found.damaged},
        coverage={"file": str(file), "bytes": found.size, "complete": True},
        details=details,
        facts={
            "kind": str(found.kind),
            "header": found.header,
            "first": found.first,
            "last": found.last,
            "ranges": list(found.ranges),
            "notes": list(found.notes),
            "damage": [asdict(part) for part in found.damage],
        },
    )
    sys.exit(output.show(result))


def _counted(count: int, plural: str) -> str:
    words = plural.replace("_", " ")
    if count == 1:
        words = words.removesuffix("ies") + "y" if words.endswith("ies") else words.removesuffix("s")
    return f"{count} {words}"


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "everything that was looked at is there",
        Exit.USAGE: "options or a URI that cannot be used",
        Exit.FOUND: "something is missing or wrong",
    },
    epilog="Example: bkmeta doctor --spark --metadata zk+hierarchical://zk1:2181/ledgers",
)
@click.option("--metadata", "uri", metavar="URI", help="A store that must be reachable from here.")
@click.option("--master", default="local[2]", show_default=True, help="Spark's master, for --spark.")
@executor_option
@click.option("--spark", "session", is_flag=True, help="Start a session there, and compare its executors with here.")
@click.option("--no-spark", "without", is_flag=True, help="This machine needs neither Java nor Spark.")
@output_options
def doctor(uri: str | None, master: str, python: Path | None, *, session: bool, without: bool, **shared: Any) -> None:  # noqa: ANN401 - the shared options
    """Say whether this installation is complete, and what to do about each thing that is missing."""
    from reconcile.doctor import State, examine
    from reconcile.stores import demand_store_uri, open_store

    if session and without:
        raise click.UsageError("--spark and --no-spark exclude each other")
    if python and not session:
        raise click.UsageError("--executor-python is for --spark")
    output = make_output(shared)
    connect: Callable[[], OpenStore] | None = None
    if uri is not None:
        demand_store_uri(uri)  # what is misspelt is an error of usage, not a store that is down
        named, auth = uri, store_auth()
        connect = lambda: open_store(named, auth=auth, patience_s=_PATIENCE_S)  # noqa: E731 - typed where it is declared
    with output.progress("looking", "checks") as told:
        checks = examine(
            spark=not without,
            master=master if session else None,
            python=python,
            connect=connect,
            progress=throttled(told),
        )
    counts = {str(state): sum(check.state is state for check in checks) for state in State}
    missing = [check for check in checks if check.state is State.MISSING]
    skipped = counts[State.SKIPPED]
    verdict = "everything that was looked at is there"
    if missing:
        verdict = f"{len(missing)} of {len(checks)} are missing or wrong: {', '.join(check.name for check in missing)}"
    details = [f"{check.state:<9}{check.name:<{_WIDTH}}{check.found}" for check in checks]
    details += [f"{check.name}: {check.remedy}" for check in checks if check.remedy]
    result = Result(
        "doctor",
        verdict,
        Exit.FOUND if missing else 0,
        counts={**counts, "checks": len(checks)},
        coverage={"spark_session": session, "store": uri is not None, "not_looked_at": skipped},
        details=details,
        facts={"checks": [{**asdict(check), "state": str(check.state)} for check in checks]},
    )
    sys.exit(output.show(result))
