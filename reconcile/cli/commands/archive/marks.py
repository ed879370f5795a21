"""`archive mark`, `unmark`, `show`: the marks that `delete verify --archived required` demands."""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.option_groups.deletes import (
    SHOWN,
    ledger_arguments,
    metadata_option,
    show_time,
    take_copies,
    take_ledgers,
    take_target,
    target_options,
)
from reconcile.cli.options import csv_option, make_context, make_output, output_options, quote_command
from reconcile.cli.output import Result
from reconcile.words import count_noun

if TYPE_CHECKING:
    from reconcile.jobs.deletes.clusters import DeleteTarget
    from recovery.model.ids import LedgerId

_WRITES = {
    Exit.FAILED: "the store did not answer, or the journal's disk is full",
    Exit.USAGE: "ledgers, a URI or a journal that cannot be used",
    Exit.REFUSED: "the node at the key of bkmeta's own root was not made by bkmeta",
    Exit.PARTLY: "stopped midway: run the same command again",
}


@click.command(
    cls=Command,
    exits={Exit.DONE: "each ledger is marked", **_WRITES},
    epilog="Example: bkmeta archive mark --metadata zk+hierarchical://zk1:2181/ledgers 123 --by backup --to s3://b/123",
)
@ledger_arguments
@target_options
@click.option("--by", default="", metavar="NAME", help="The backup application. [default: who runs this]")
@click.option("--to", "place", default="", metavar="PLACE", help="Where the copies are.")
@click.option("--checksum", default="", metavar="TEXT", help="Checksum of the copy, if one ledger is named.")
@output_options
def mark(by: str, place: str, checksum: str, **shared: Any) -> None:  # noqa: ANN401 - the shared options
    """Mark ledgers as archived. WRITES beside the ledgers root; an earlier mark is replaced.

    A line of --from may say "to" and "checksum" beside "ledger", which count instead of the options.
    """
    from reconcile.jobs.deletes.archive import MarkRequest, mark_archived

    output = make_output(shared)
    target, copies = take_target(shared), take_copies(shared, place, checksum)
    ledgers = tuple(copies)
    if checksum and len(ledgers) > 1:
        raise click.UsageError("--checksum is of one ledger: mark each by itself")
    marked = mark_archived(MarkRequest(target=target, copies=copies, by=by), make_context(output))
    verdict = f"{count_noun(marked, 'ledger')} marked"
    sys.exit(output.show(_make_result("archive-mark", verdict, {"marked": marked}, target, ledgers)))


@click.command(
    cls=Command,
    exits={Exit.DONE: "none of the ledgers has a mark", **_WRITES},
    epilog="Example: bkmeta archive unmark --metadata zk+hierarchical://zk1:2181/ledgers 123",
)
@ledger_arguments
@target_options
@output_options
def unmark(**shared: Any) -> None:  # noqa: ANN401 - the shared options
    """Remove the marks of ledgers. WRITES beside the ledgers root."""
    from reconcile.jobs.deletes.archive import unmark_archived

    output = make_output(shared)
    target, ledgers = take_target(shared), take_ledgers(shared)
    removed = unmark_archived(target, ledgers, make_context(output))
    verdict = f"{count_noun(removed, 'mark')} removed"
    sys.exit(output.show(_make_result("archive-unmark", verdict, {"unmarked": removed}, target, ledgers)))


def _make_result(
    command: str, verdict: str, counts: Mapping[str, int], target: "DeleteTarget", ledgers: Sequence["LedgerId"]
) -> Result:
    following = quote_command("bkmeta", "archive", "show", "--metadata", target.uri)
    facts = {"ledgers": [str(item) for item in ledgers], "journal": str(target.folder)}
    return Result(command, verdict, Exit.DONE, counts=counts, following=following, facts=facts)


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "they are shown",
        Exit.FAILED: "the store did not answer",
        Exit.USAGE: "a ledger or a URI that cannot be used",
        Exit.FOUND: "some that were named have no mark",
        Exit.REFUSED: "the node at the key of bkmeta's own root was not made by bkmeta",
    },
    epilog="Example: bkmeta archive show --metadata zk+hierarchical://zk1:2181/ledgers 123",
)
@ledger_arguments
@metadata_option
@csv_option
@output_options
def show(uri: str, **shared: Any) -> None:  # noqa: ANN401 - the shared options
    """Show the marks of ledgers, or all. Nothing is written."""
    from reconcile.jobs.deletes.archive import read_marks

    output = make_output(shared)
    ledgers = take_ledgers(shared, may_be_none=True)
    marks = read_marks(uri, ledgers, make_context(output))
    missing = sorted(set(ledgers) - {item.ledger for item in marks})
    rows = [
        {
            "ledger": str(item.ledger),
            "by": item.by,
            "to": item.place,
            "checksum": item.checksum or None,
            "at": show_time(item.at_ms),
        }
        for item in marks
    ]
    verdict = count_noun(len(marks), "archive mark")
    if missing:
        verdict += f"; none of {count_noun(len(missing), 'ledger')} that were named"
    result = Result(
        "archive-show",
        verdict,
        Exit.FOUND if missing else Exit.DONE,
        counts={"marks": len(marks), "missing": len(missing)},
        details=[
            *(
                f"{row['ledger']}: by {row['by']}, {row['to'] or 'no place was named'}, {row['at']}"
                for row in rows[:SHOWN]
            ),
            *(f"{item}: no mark" for item in missing[:SHOWN]),
        ],
        facts={"marks": rows, "missing": [str(item) for item in missing]},
        rows="marks",
        columns=("ledger", "by", "to", "checksum", "at"),
    )
    sys.exit(output.show(result))
