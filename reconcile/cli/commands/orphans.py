"""`orphans`: ledgers that nothing names, data without a record, records that somebody deleted past bkmeta."""

import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.option_groups.deletes import metadata_option, to_ms
from reconcile.cli.options import (
    DURATION,
    PLACE,
    inventory_options,
    make_context,
    make_output,
    output_options,
    quote_command,
    references_option,
)
from reconcile.cli.output import Result
from reconcile.cli.settings import effective_settings
from reconcile.words import count_noun
from recovery.place import DatasetPlace

if TYPE_CHECKING:
    from reconcile.jobs.orphans.request import FoundOrphans


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "none was found",
        Exit.FAILED: "the store did not answer, or the disk of --out is full",
        Exit.USAGE: "a URI, references, inventories or folders that cannot be used; or two clusters",
        Exit.FOUND: "candidates for a delete, data without a record for longer, or deletes that bypassed bkmeta",
        Exit.UNDECIDABLE: "none of these, but something that matters could not be checked: the answer says what",
        Exit.REFUSED: "the node at the key of bkmeta's own root was not made by bkmeta",
    },
    epilog="Example: bkmeta orphans --metadata zk+hierarchical://zk1:2181/ledgers --references refs.jsonl --out run",
)
@metadata_option
@references_option
@inventory_options(
    "One bookie's inventory, or a table of entries. Without any, data without a record is not searched for."
)
@click.option(
    "--earlier",
    multiple=True,
    metavar="URI",
    help="What the store held earlier: a capture; or a backup, copies of ZooKeeper's files or etcd's snapshot, whose "
    "history says who deleted what.",
)
@click.option(
    "--since", type=PLACE, metavar="RUN", help="The run before this one: its listing of references counts as the first."
)
@click.option(
    "--min-age",
    type=DURATION,
    default="1d",
    show_default=True,
    help="Age that a ledger must have when references are listed, at least.",
)
@click.option("--out", type=PLACE, required=True, help="A new folder for what is found.")
@output_options
def orphans(
    uri: str,
    references: tuple[str, ...],
    inventories: tuple[str, ...],
    earlier: tuple[str, ...],
    since: DatasetPlace | None,
    min_age: timedelta,
    out: DatasetPlace,
    **shared: Any,  # noqa: ANN401 - the shared options
) -> None:
    """Find ledgers that nothing references, data without a record, and deletes that bypassed bkmeta. Reads only.

    A candidate is old enough, and two complete listings of references do not name it. A file of references is one
    listing: write it again, and run again with --since. Nothing is deleted: delete request --from takes the candidates,
    and verify looks at each again.
    """
    from reconcile.jobs.orphans.find_orphans import look_for_orphans
    from reconcile.jobs.orphans.request import OrphansRequest

    output = make_output(shared)
    request = OrphansRequest(
        uri=uri,
        out=out,
        references=references,
        inventories=inventories,
        earlier=earlier,
        since=since,
        min_age_ms=to_ms(min_age),
        settings=effective_settings(),
    )
    answer = look_for_orphans(request, make_context(output))
    sys.exit(output.show(_make_result(answer, uri, out)))


def _make_result(answer: "FoundOrphans", uri: str, out: DatasetPlace) -> Result:
    from reconcile.findings.categories import Category
    from reconcile.findings.view import FindingView
    from reconcile.jobs.orphans.request import CANDIDATES
    from reconcile.stores import is_live

    counts = {
        "listed": answer.listed,
        "candidates": answer.candidates,
        "data_without_record": answer.count(Category.DATA_WITHOUT_RECORD),
        "deleted_outside": answer.count(Category.DELETED_OUTSIDE),
    }
    code = Exit.FOUND if answer.failing else Exit.UNDECIDABLE if answer.undecided else Exit.DONE
    verdict = (
        f"{count_noun(answer.candidates, 'candidate')} for a delete among {count_noun(answer.listed, 'ledger')}; "
        f"{counts['data_without_record']} with data and no record; {counts['deleted_outside']} deleted past bkmeta"
    )
    worst = [FindingView.from_row(row) for row in answer.worst]
    details = [
        *(f"undecided: {text}" for text in answer.undecided),
        *(f"no candidates: {count} {reason}" for reason, count in sorted(answer.left_out.items())),
        *(line for finding in worst for line in finding.lines),
    ]
    following = ""
    if answer.candidates:
        store = uri if is_live(uri) else "STORE"
        request = (
            "bkmeta",
            "delete",
            "request",
            "--metadata",
            store,
            "--from",
            out / CANDIDATES,
            "--reason",
            "orphans",
        )
        following = f"look at {out}/findings first; then: {quote_command(*request)}"
    return Result(
        "orphans",
        verdict,
        code,
        counts=counts,
        coverage={"undecided": answer.undecided, "left_out": dict(sorted(answer.left_out.items()))},
        details=details,
        following=following,
        facts={
            "found": {category: dict(counted) for category, counted in sorted(answer.found.items())},
            "worst": [finding.to_json() for finding in worst],
            "candidates": str(out / CANDIDATES),
            "out": str(out),
        },
    )
