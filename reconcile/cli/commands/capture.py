"""`capture`: a metadata store into a catalog."""

import sys
from pathlib import Path
from typing import Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.option_groups.subtrees import read_choice, subtree_options
from reconcile.cli.options import (
    PLACE,
    make_context,
    make_output,
    ops_option,
    output_options,
    quote_command,
)
from reconcile.cli.output import Result
from reconcile.cli.settings import effective_settings
from reconcile.cli.wording.whole_datasets import tell_if_whole
from reconcile.words import count_noun
from recovery.place import DatasetPlace

_SHOWN: Final = 10


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "the whole store was read",
        Exit.FAILED: "the store did not answer, or the disk of --out is full",
        Exit.USAGE: "a URI, a layout or a folder that cannot be used",
        Exit.FOUND: "there is no ledgers root: the catalog is empty",
        Exit.UNDECIDABLE: "parts of the store could not be read; the catalog says which",
    },
    epilog="Example: BKMETA_ZK_AUTH=me:secret bkmeta capture --metadata zk+hierarchical://zk1:2181/ledgers --out cat",
)
@click.option("--metadata", "uri", required=True, metavar="URI", help="The store, named as in bk_server.conf.")
@click.option(
    "--at", metavar="ZXID|TIME", help="A point in time: a transaction number or an ISO 8601 time. [default: the latest]"
)
@ops_option
@subtree_options
@click.option("--out", type=PLACE, required=True, help="A new folder for the catalog; it will hold passwords.")
@output_options
def capture(
    uri: str,
    at: str | None,
    ops_s: float | None,
    subtrees: tuple[str, ...],
    out: DatasetPlace,
    *,
    pulsar: bool,
    **shared: Any,  # noqa: ANN401 - the shared options
) -> None:
    """Read a metadata store into a catalog: every ledger's record, and the nodes beside them.

    Run daily it is the cheapest insurance there is: `recover --snapshot catalog:///DIR` takes it. Stores that remember
    what happened (files of a ZooKeeper, etcd) give each ledger's history, too.
    """
    from reconcile.jobs import capture as job

    output = make_output(shared)
    request = job.CaptureRequest(
        uri=uri,
        out=out,
        at=at,
        ops_s=ops_s,
        subtrees=read_choice(subtrees, pulsar=pulsar),
        settings=effective_settings(),
    )
    tell_if_whole(out, "catalog")
    summary = job.capture(request, make_context(output))
    complete, present = bool(summary.complete), summary.root == "present"
    ledgers, bad = summary.ledgers, summary.unparsable
    summary_line = f"{count_noun(ledgers, 'ledger')} captured" if present else "the ledgers root does not exist"
    verdict = summary_line if complete else f"{summary_line}, but not all of the store could be read"
    result = Result(
        "capture",
        verdict + (f"; {count_noun(bad, 'record')} cannot be parsed" if bad else ""),
        Exit.UNDECIDABLE if not complete else Exit.DONE if present else Exit.FOUND,
        counts={
            **{name: getattr(summary, name) for name in ("ledgers", "unparsable", "nodes", "changes")},
            **({"subtree_nodes": summary.subtree_nodes} if subtrees or pulsar else {}),
        },
        coverage={
            **{name: getattr(summary, name) for name in ("complete", "root", "gaps", "notes", "since_txn", "txn")},
            "at": summary.at.isoformat(),
        },
        details=[
            *([f"{count_noun(summary.subtree_nodes, 'node')} of upper layers captured"] if subtrees or pulsar else []),
            *([] if summary.since_txn is None else [_between(summary.since_txn, summary.txn)]),
            *(f"not read: {gap}" for gap in summary.gaps[:_SHOWN]),
            *(f"note: {note}" for note in summary.notes[:_SHOWN]),
        ],
        following="keep it somewhere else; after a loss, recover takes it: "
        + quote_command("--snapshot", f"catalog://{out.resolve()}" if isinstance(out, Path) else out),
        facts={"out": str(out), "layout": summary.layout, "instance_id": summary.instance_id},
    )
    sys.exit(output.show(result))


def _between(since: int, until: int | None) -> str:
    assert until is not None  # noqa: S101 - what has a first transaction has a last one
    if since == until:
        return f"as it was at transaction {until:#x}: nothing changed while it was read"
    return f"read between transactions {since:#x} and {until:#x}: what happened there is in it or not"
