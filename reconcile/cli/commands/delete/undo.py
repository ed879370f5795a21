"""`delete undo`: deletes taken back."""

import sys
from typing import Any

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.option_groups.deletes import (
    ledger_arguments,
    list_lines,
    look_options,
    take_ledgers,
    take_looks,
    take_target,
    target_options,
)
from reconcile.cli.options import make_context, make_output, output_options, quote_command
from reconcile.cli.output import Result
from reconcile.words import count_noun


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "each ledger is as it was before its delete was requested",
        Exit.FAILED: "the store did not answer, or the journal's disk is full",
        Exit.USAGE: "ledgers, a URI or inventories that cannot be used",
        Exit.REFUSED: "some deletes cannot be taken back: each has its reason; the others are taken back",
        Exit.PARTLY: "stopped midway: run the same command again",
    },
    epilog="Example: bkmeta delete undo --metadata zk+hierarchical://zk1:2181/ledgers 123",
)
@ledger_arguments
@target_options
@look_options
@output_options
def undo(**shared: Any) -> None:  # noqa: ANN401 - the shared options
    """Take deletes back. WRITES: the tombstone goes, and nothing else was changed before the purge.

    In a quarantine the record is put back in the place of its hold, byte for byte; which copies were lost meanwhile is
    said, as far as --wire or --inventory shows it.
    After the purge the record is put back only while every holder is seen to have the ledger since: --wire or
    --inventory shows that. What bookies have deleted does not come back.
    """
    from reconcile.jobs.deletes import requests as job

    output = make_output(shared)
    target, ledgers, looks = take_target(shared), take_ledgers(shared), take_looks(shared)
    done = job.undo(job.UndoDeletesRequest(target=target, ledgers=ledgers, looks=looks), make_context(output))
    verdict = f"{len(done.undone)} of {count_noun(len(ledgers), 'delete')} taken back"
    if done.put_back:
        verdict += f"; the records of {len(done.put_back)} are put back"
    lost = {ledger: "; ".join(texts) for ledger, texts in sorted(done.lost.items())}
    if lost:
        verdict += f"; copies of {len(lost)} were lost in quarantine"
    result = Result(
        "delete-undo",
        verdict,
        Exit.REFUSED if done.refused else Exit.DONE,
        counts={
            "undone": len(done.undone),
            "put_back": len(done.put_back),
            "refused": len(done.refused),
            "lost_copies": len(lost),
        },
        details=[*list_lines(done.refused), *list_lines(lost), f"journal {target.folder}"],
        following=quote_command("bkmeta", "delete", "status", "--metadata", target.uri),
        facts={
            "undone": [str(item) for item in done.undone],
            "put_back": [str(item) for item in done.put_back],
            "refused": {str(ledger): why for ledger, why in done.refused.items()},
            "lost_copies": {str(ledger): list(texts) for ledger, texts in done.lost.items()},
        },
    )
    sys.exit(output.show(result))
