"""`capture`: a metadata store into a catalog."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.options import (
    FOLDER,
    connected,
    make_output,
    now,
    output_options,
    quoted,
)
from reconcile.cli.output import Output, Result, broken_off, throttled
from reconcile.words import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from backends.registry import OpenStore


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
@click.option(
    "--max-ops-s",
    "ops_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="At most N nodes are asked of a live ZooKeeper in a second: a value, names, or rights each count one.",
)
@click.option("--out", type=FOLDER, required=True, help="A new folder for the catalog; it will hold passwords.")
@output_options
def capture(uri: str, at: str | None, ops_s: float | None, out: Path, **shared: Any) -> None:  # noqa: ANN401 - the shared options
    """Read a metadata store into a catalog: every ledger's record, and the nodes beside them.

    Run daily it is the cheapest insurance there is: `recover --snapshot catalog:///DIR` takes it. Stores that remember
    what happened (files of a ZooKeeper, etcd) give each ledger's history, too.
    """
    output = make_output(shared)
    with (
        broken_off(f"{out} is not a catalog yet: run the same command again"),
        connected(uri, output, at=at, ops_s=ops_s) as opened,
    ):
        summary = capture_into(opened, out, output, at=at)
    complete, present = bool(summary["complete"]), summary["root"] == "present"
    ledgers, bad = summary["ledgers"], summary["unparsable"]
    found = f"{counted(ledgers, 'ledger')} captured" if present else "the ledgers root does not exist"
    verdict = found if complete else f"{found}, but not all of the store could be read"
    result = Result(
        "capture",
        verdict + (f"; {counted(bad, 'record')} cannot be parsed" if bad else ""),
        Exit.UNDECIDABLE if not complete else Exit.DONE if present else Exit.FOUND,
        counts={"ledgers": ledgers, "unparsable": bad, "nodes": summary["nodes"], "changes": summary["changes"]},
        coverage={
            **{name: summary[name] for name in ("complete", "root", "gaps", "notes", "since_txn", "txn")},
            "at": summary["at"].isoformat(),
        },
        details=[
            *([] if summary["since_txn"] is None else [_between(summary["since_txn"], summary["txn"])]),
            *(f"not read: {gap}" for gap in summary["gaps"][:_SHOWN]),
            *(f"note: {note}" for note in summary["notes"][:_SHOWN]),
        ],
        following="keep it somewhere else; after a loss, recover takes it: "
        + quoted("--snapshot", f"catalog://{out.resolve()}"),
        facts={"out": str(out), "layout": summary["layout"], "instance_id": summary["instance_id"]},
    )
    sys.exit(output.show(result))


def _between(since: int, until: int) -> str:
    if since == until:
        return f"as it was at transaction {until:#x}: nothing changed while it was read"
    return f"read between transactions {since:#x} and {until:#x}: what happened there is in it or not"


def capture_into(
    opened: "OpenStore", out: Path, output: Output, known: "Iterable[pa.Table]" = (), *, at: str | None = None
) -> Mapping[str, Any]:
    """Read an open store into a catalog; return what `recovery.capture.summary.CaptureSummary` says.

    Args:
        opened: the store.
        out: a new folder.
        output: is told how far it is.
        known: scope and ledger of ledgers that somebody knows of: asked for by key where no listing names them.
        at: the point in time that a person named; None: the latest.
    """
    from recovery.capture.live import capture as run
    from recovery.codecs.store import Layout
    from recovery.dataset import DatasetWriter

    named = Layout(opened.layout_hint) if opened.layout_hint else None
    binding = {"uri": opened.uri, "root": opened.root} | ({} if at is None else {"at": at})
    with (
        DatasetWriter(out, "catalog", binding=binding, secret=True) as writer,
        output.progress("reading the store", "ledgers") as told,
    ):
        summary = run(opened.store, opened.root, named, writer, now=now, progress=throttled(told), known=known)
    return {name: getattr(summary, name) for name in type(summary).__slots__}
