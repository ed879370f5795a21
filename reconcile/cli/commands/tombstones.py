"""`tombstones`: what is kept of deletes: listed, let go, bookies that are taken out of service."""

import sys
from collections import Counter
from datetime import timedelta
from typing import Any

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.option_groups.deletes import (
    SHOWN,
    TOMBSTONE_COLUMNS,
    describe_scopes,
    describe_state,
    describe_tombstones,
    metadata_option,
    name_ledgers,
    retention_option,
    select_scope,
    take_target,
    target_options,
    to_ms,
)
from reconcile.cli.options import (
    csv_option,
    list_scope_option,
    make_context,
    make_output,
    output_options,
    parse_scope,
    quote_command,
    require_bookie_ids,
)
from reconcile.cli.output import Result
from reconcile.words import count_noun

_STATES = ("REQUESTED", "VERIFIED", "SOAKING", "PURGEABLE", "QUARANTINED", "PURGED", "CONFIRMED")


@click.group(epilog="Example: bkmeta tombstones list --metadata zk+hierarchical://zk1:2181/ledgers --state PURGED")
def tombstones() -> None:
    """List tombstones of deleted ledgers, let those go that may, and say which bookies are out of service."""


@tombstones.command(
    "list",
    cls=Command,
    exits={
        Exit.DONE: "they are listed",
        Exit.FAILED: "the store did not answer",
        Exit.USAGE: "a URI that cannot be used",
        Exit.REFUSED: "the node at the key of bkmeta's own root was not made by bkmeta",
    },
    epilog="Example: bkmeta tombstones list --metadata zk+hierarchical://zk1:2181/ledgers --state PURGED",
)
@metadata_option
@list_scope_option
@click.option("--state", "states", type=click.Choice(_STATES), multiple=True, help="Only tombstones in this state.")
@csv_option
@output_options
def list_tombstones(
    uri: str,
    scope: str | None,
    states: tuple[str, ...],
    **shared: Any,  # noqa: ANN401 - the shared options
) -> None:
    """List the tombstones of a scope, and what all of them cost the store. Nothing is written."""
    from reconcile.jobs.context import now_ms
    from reconcile.jobs.deletes.requests import measure_tombstones, read_tombstones

    output = make_output(shared)
    context = make_context(output)
    of_scope, unlisted = select_scope(read_tombstones(uri, (), context), parse_scope(scope))
    rows = describe_tombstones(of_scope, now_ms(context))
    chosen = [row for row in rows if not states or row["state"] in states]
    counts = Counter(str(row["state"]) for row in chosen)
    nodes, size = measure_tombstones(uri, context)
    result = Result(
        "tombstones-list",
        f"{count_noun(len(chosen), 'tombstone')} in {count_noun(nodes, 'node')} of {size:,} bytes",
        Exit.DONE,
        counts={**counts, "tombstones": len(chosen), "nodes": nodes, "bytes": size},
        details=[
            *map(describe_state, chosen[:SHOWN]),
            *describe_scopes(unlisted),
        ],
        facts={"ledgers": chosen, "other_scopes": unlisted},
        rows="ledgers",
        columns=TOMBSTONE_COLUMNS,
    )
    sys.exit(output.show(result))


@tombstones.command(
    cls=Command,
    exits={
        Exit.DONE: "tombstones that are no longer needed are removed; perhaps there were none",
        Exit.FAILED: "the store did not answer, or the journal's disk is full",
        Exit.USAGE: "a URI or a journal that cannot be used",
        Exit.REFUSED: "bkmeta's own root is not ours, or this host's clock is not the store's",
        Exit.PARTLY: "stopped midway: run the same command again",
    },
    epilog="Example: bkmeta tombstones expire --metadata zk+hierarchical://zk1:2181/ledgers",
)
@target_options
@retention_option
@output_options
def expire(retention: timedelta, **shared: Any) -> None:  # noqa: ANN401 - the shared options
    """Remove tombstones of ledgers that nobody holds any more, after the retention. WRITES beside the ledgers root."""
    from reconcile.jobs.deletes.receipts import expire_tombstones

    output = make_output(shared)
    target = take_target(shared)
    expired, kept = expire_tombstones(target, to_ms(retention), make_context(output))
    result = Result(
        "tombstones-expire",
        f"{count_noun(len(expired), 'tombstone')} expired; {kept} of purged ledgers are kept",
        Exit.DONE,
        counts={"expired": len(expired), "kept": kept},
        details=[f"expired: {name_ledgers(expired)}"] if expired else [],
        following=quote_command("bkmeta", "delete", "confirm", "--metadata", target.uri, "--wire") if kept else "",
        facts={"expired": [str(item) for item in expired], "journal": str(target.folder)},
    )
    sys.exit(output.show(result))


@tombstones.command(
    cls=Command,
    exits={
        Exit.DONE: "no tombstone waits for the bookie any longer",
        Exit.FAILED: "the store did not answer, or the journal's disk is full",
        Exit.USAGE: "a bookie id, a URI or a journal that cannot be used",
        Exit.REFUSED: "the bookie is registered: it is in service; or bkmeta's own root is not ours",
        Exit.PARTLY: "stopped midway: run the same command again",
    },
    epilog="Example: bkmeta tombstones decommission bk3:3181 --metadata zk+hierarchical://zk1:2181/ledgers",
)
@click.argument("bookie")
@target_options
@output_options
def decommission(bookie: str, **shared: Any) -> None:  # noqa: ANN401 - the shared options
    """Say that BOOKIE is out of service with its disks, which never come back. WRITES tombstones."""
    from reconcile.jobs.deletes.receipts import decommission_bookie

    output = make_output(shared)
    target = take_target(shared)
    require_bookie_ids([bookie], "BOOKIE")
    concerned = decommission_bookie(target, bookie, make_context(output))
    result = Result(
        "tombstones-decommission",
        f"{count_noun(concerned, 'tombstone')} no longer {'waits' if concerned == 1 else 'wait'} for {bookie}",
        Exit.DONE,
        counts={"tombstones": concerned},
        details=["if its disks come back, their data are of deleted ledgers: wipe them before"],
        following=quote_command("bkmeta", "tombstones", "expire", "--metadata", target.uri),
        facts={"bookie": bookie, "journal": str(target.folder)},
    )
    sys.exit(output.show(result))
