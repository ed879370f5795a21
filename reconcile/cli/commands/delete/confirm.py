"""`delete confirm`: bookies looked at for ledgers that were purged."""

import sys
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.option_groups.deletes import (
    list_lines,
    look_options,
    retention_option,
    take_looks,
    take_target,
    target_options,
    to_ms,
)
from reconcile.cli.options import carry_options, make_context, make_output, output_options, quote_command
from reconcile.cli.output import Result
from reconcile.words import count_noun

if TYPE_CHECKING:
    from reconcile.jobs.deletes.receipts import RemovedCopies


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "no holder has any of the purged ledgers",
        Exit.FAILED: "the store did not answer, or the journal's disk is full",
        Exit.USAGE: "a URI or inventories that cannot be used",
        Exit.FOUND: "data of deleted ledgers came back; or a bookie is away longer than the retention",
        Exit.UNDECIDABLE: "some bookies may still hold something",
        Exit.REFUSED: "the node at the key of bkmeta's own root was not made by bkmeta",
        Exit.PARTLY: "stopped midway: run the same command again",
    },
    epilog="Example: bkmeta delete confirm --metadata zk+hierarchical://zk1:2181/ledgers --wire",
)
@target_options
@look_options
@retention_option
@output_options
def confirm(retention: timedelta, **shared: Any) -> None:  # noqa: ANN401 - the shared options
    """Look at bookies for purged ledgers, and record which were seen without them. WRITES tombstones."""
    from reconcile.jobs.deletes import receipts as job

    output = make_output(shared)
    target, looks = take_target(shared), take_looks(shared)
    if not looks.are_asked:
        raise click.UsageError("say how bookies are read: --wire, or --inventory for each of them")
    done = job.confirm_deletes(
        job.ConfirmRequest(target=target, looks=looks, retention_ms=to_ms(retention)), make_context(output)
    )
    code = Exit.FOUND if done.returned or done.overdue else Exit.UNDECIDABLE if done.waiting else Exit.DONE
    verdict = (
        f"{len(done.confirmed)} of {count_noun(len(done.confirmed) + len(done.waiting), 'purged ledger')} confirmed"
    )
    if done.returned:
        verdict = f"ENTRIES_OF_DELETED_LEDGER: data of {count_noun(len(done.returned), 'ledger')} came back; {verdict}"
    total = done.removed_in_all
    waiting = {ledger: f"may be on {', '.join(bookies)}" for ledger, bookies in done.waiting.items()}
    details = [
        *list_lines({ledger: f"came back on {', '.join(bookies)}" for ledger, bookies in done.returned.items()}),
        *(
            f"bookie {bookie} was not seen without {count_noun(count, 'ledger')} for longer than the retention: "
            "take it out of service with its disks, add it as a new one, and run bkmeta tombstones decommission"
            for bookie, count in sorted(done.overdue.items())
        ),
        *(_describe_removed(f"bookie {bookie}", removed) for bookie, removed in sorted(done.removed.items())),
        *([_describe_removed("in all they", total)] if len(done.removed) > 1 else []),
        *list_lines(waiting),
        *filter(None, [done.collection_stops]),
    ]
    result = Result(
        "delete-confirm",
        verdict,
        code,
        counts={
            "confirmed": len(done.confirmed),
            "waiting": len(done.waiting),
            "returned": len(done.returned),
            "overdue": len(done.overdue),
            "removed_copies": total.ledgers,
            "removed_entries": total.entries,
            "removed_bytes": total.bytes,
        },
        details=details,
        following=_describe_next(target.uri, is_waiting=bool(done.waiting), is_asked=looks.wire is not None),
        facts={
            "confirmed": [str(item) for item in done.confirmed],
            "waiting": {str(ledger): list(bookies) for ledger, bookies in done.waiting.items()},
            "returned": {str(ledger): list(bookies) for ledger, bookies in done.returned.items()},
            "overdue": done.overdue,
            "removed": {bookie: asdict(removed) for bookie, removed in done.removed.items()},
        },
    )
    sys.exit(output.show(result))


def _describe_removed(subject: str, removed: "RemovedCopies") -> str:
    entries = (
        "entries, how many is not known,"
        if removed.entries is None
        else count_noun(removed.entries, "entry", "entries")
    )
    size = "not known" if removed.bytes is None else f"about {removed.bytes}"
    copies = count_noun(removed.ledgers, "copy", "copies")
    return f"{subject} removed {entries} of {copies} of ledgers; bytes of payload: {size}"


def _describe_next(uri: str, *, is_waiting: bool, is_asked: bool) -> str:
    if not is_waiting:
        return quote_command("bkmeta", "tombstones", "expire", "--metadata", uri)
    looks = [*carry_options("--inventory", "--inventory-dir"), *(["--wire"] if is_asked else [])]
    again = quote_command("bkmeta", "delete", "confirm", "--metadata", uri, *looks)
    return f"when the bookies have collected garbage, and were read again: {again}"
