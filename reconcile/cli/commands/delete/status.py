"""`delete status`: where deletes are."""

import sys
from collections import Counter
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
    select_scope,
)
from reconcile.cli.options import (
    csv_option,
    make_context,
    make_output,
    names_options,
    output_options,
    parse_ledgers,
    parse_scope,
    quote_command,
)
from reconcile.cli.output import Result
from reconcile.words import count_noun


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "they are shown",
        Exit.FAILED: "the store did not answer",
        Exit.USAGE: "a ledger or a URI that cannot be used",
        Exit.FOUND: "no delete was requested for some that were named",
        Exit.REFUSED: "the node at the key of bkmeta's own root was not made by bkmeta",
    },
    epilog="Example: bkmeta delete status --metadata zk+hierarchical://zk1:2181/ledgers 123",
)
@click.argument("ledgers", metavar="[LEDGER]...", nargs=-1)
@names_options
@metadata_option
@csv_option
@output_options
def status(
    ledgers: tuple[str, ...],
    scope: str | None,
    qualified: tuple[str, ...],
    uri: str,
    **shared: Any,  # noqa: ANN401 - the shared options
) -> None:
    """Say where deletes are: of the ledgers that are named, or of all in a scope. Nothing is written.

    Without LEDGER all of the scope of --ledger-scope-id are listed; without that option, all of scope 0.
    """
    from reconcile.jobs.context import now_ms
    from reconcile.jobs.deletes.requests import read_tombstones

    output = make_output(shared)
    context = make_context(output)
    named = parse_ledgers(ledgers, scope, qualified)
    tombstones, unlisted = read_tombstones(uri, named, context), dict[int, int]()
    if not named:
        tombstones, unlisted = select_scope(tombstones, parse_scope(scope))
    shown = describe_tombstones(tombstones, now_ms(context))
    states = Counter(str(item["state"]) for item in shown)
    missing = sorted(set(named) - {item.ledger for item in tombstones})
    verdict = count_noun(len(shown), "delete")
    if states:
        verdict += ": " + ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    if missing:
        verdict += f"; no delete was requested for {count_noun(len(missing), 'ledger')}"
    lines = [describe_state(item) for item in shown[:SHOWN]]
    result = Result(
        "delete-status",
        verdict,
        Exit.FOUND if missing else Exit.DONE,
        counts=dict(states),
        details=[
            *lines,
            *(f"{item}: no delete was requested" for item in missing[:SHOWN]),
            *describe_scopes(unlisted),
        ],
        following=quote_command("bkmeta", "delete", "verify", "--metadata", uri, "--due", "--wire") if shown else "",
        facts={"ledgers": shown, "missing": [str(item) for item in missing], "other_scopes": unlisted},
        rows="ledgers",
        columns=TOMBSTONE_COLUMNS,
    )
    sys.exit(output.show(result))
