"""`delete request`: a tombstone for each ledger; nothing is removed."""

import sys
from datetime import timedelta
from typing import Any

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.option_groups.deletes import (
    ledger_arguments,
    list_lines,
    take_ledgers,
    take_target,
    target_options,
    to_ms,
)
from reconcile.cli.options import (
    DURATION,
    make_context,
    make_output,
    output_options,
    quote_command,
    reason_option,
    references_option,
)
from reconcile.cli.output import Result
from reconcile.words import count_noun


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "each ledger has a tombstone",
        Exit.FAILED: "the store did not answer, or the journal's disk is full",
        Exit.USAGE: "ledgers, a URI or a journal that cannot be used",
        Exit.FOUND: "the store has no record of some; the others have a tombstone",
        Exit.REFUSED: "bkmeta's own root is not ours; or ledgers without an archive mark where the policy requires it, "
        "or with a record too large for a tombstone: the others have one",
        Exit.PARTLY: "stopped midway: run the same command again",
    },
    epilog="Example: bkmeta delete request --metadata zk+hierarchical://zk1:2181/ledgers --from ids.txt --reason T7",
)
@ledger_arguments
@target_options
@reason_option
@click.option(
    "--soak", type=DURATION, default="7d", show_default=True, help="Time between the first verification and the purge."
)
@references_option
@output_options
def request(reason: str | None, soak: timedelta, references: tuple[str, ...], **shared: Any) -> None:  # noqa: ANN401 - the shared options
    """Ask for the delete of ledgers. WRITES tombstones beside the ledgers root; no ledger is touched."""
    from reconcile.jobs.deletes import requests as job

    output = make_output(shared)
    target, ledgers = take_target(shared), take_ledgers(shared)
    asked = job.DeleteRequest(
        target=target, ledgers=ledgers, reason=reason or "", soak_ms=to_ms(soak), references=references
    )
    done = job.request_deletes(asked, make_context(output))
    verdict = f"{count_noun(len(done.requested), 'delete')} requested"
    if done.earlier:
        verdict += f"; {len(done.earlier)} had been before"
    if done.absent:
        verdict += f"; the store has no record of {count_noun(len(done.absent), 'ledger')}"
    if done.refused:
        verdict += f"; {count_noun(len(done.refused), 'ledger')} refused"
    result = Result(
        "delete-request",
        verdict,
        Exit.REFUSED if done.refused else Exit.FOUND if done.absent else Exit.DONE,
        counts={
            "requested": len(done.requested),
            "earlier": len(done.earlier),
            "absent": len(done.absent),
            "refused": len(done.refused),
        },
        details=[
            *list_lines(done.refused),
            *list_lines(dict.fromkeys(done.absent, "no record")),
            f"journal {target.folder}",
        ],
        following=quote_command("bkmeta", "delete", "verify", "--metadata", target.uri, "--due", "--wire")
        if done.requested or done.earlier
        else "",
        facts={
            "ledgers": [{"ledger": str(item), "state": "REQUESTED"} for item in done.requested],
            "absent": [str(item) for item in done.absent],
            "earlier": [str(item) for item in done.earlier],
            "refused": {str(ledger): why for ledger, why in done.refused.items()},
            "journal": str(target.folder),
        },
    )
    sys.exit(output.show(result))
