"""`approve`: an Ed25519 approval of a plan, a certificate, or a hash that another command printed."""

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.options import DURATION, FILE, make_context, make_output, output_options
from reconcile.cli.output import Result


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "the approval is written",
        Exit.USAGE: "no plan or certificate that holds, no kind and hash, or a key or a file that cannot be used",
    },
    epilog="Example: bkmeta approve purge.json --key ann.pem --out ann-purge.json\n\n"
    "Example: bkmeta approve thaw=HASH --key ann.pem --out ann-thaw.json",
)
@click.argument("named", metavar="FILE|KIND=HASH")
@click.option("--key", type=FILE, required=True, help="PEM of your Ed25519 private key.")
@click.option("--valid", type=DURATION, default="1d", show_default=True, help="How long the approval holds.")
@click.option("--out", type=FILE, required=True, help="File that the approval is written to.")
@output_options
def approve(named: str, key: Path, valid: timedelta, out: Path, **shared: Any) -> None:  # noqa: ANN401 - the shared options
    """Sign that you approve a plan's folder or a certificate's file. No store is touched.

    Of a thaw, an undo, a loss (--lost) and a policy, give the kind and the hash that the command prints: thaw=HASH,
    undo=HASH, lost=HASH, policy=HASH. Read what you sign first.
    """
    from reconcile.jobs import approvals as job

    output = make_output(shared)
    context = make_context(output)
    approval = job.approve(job.ApproveRequest(named=named, key=key, lifetime=valid), context.now())
    job.write_approval(approval, out)
    subject = approval.subject
    result = Result(
        "approve",
        f"approved until {approval.not_after.isoformat()}: {subject}",
        Exit.DONE,
        following=f"add to the command that is approved: --approval {out}",
        facts={"approval": str(out), "of": str(subject.kind), "hash": subject.hash},
    )
    sys.exit(output.show(result))
