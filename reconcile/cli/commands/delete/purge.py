"""`delete purge`: the records of a certificate's ledgers removed."""

import sys
from pathlib import Path
from typing import Any

import click

from reconcile.cli.approval import approval_option, take_approvals
from reconcile.cli.command import Command, Exit
from reconcile.cli.option_groups.deletes import list_lines, show_time, take_target, target_options, write_list
from reconcile.cli.options import FILE, make_context, make_output, output_options, quote_command
from reconcile.cli.output import Result
from reconcile.words import count_noun


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "the records of all its ledgers are removed",
        Exit.FAILED: "the store did not answer, or the journal's disk is full",
        Exit.USAGE: "a certificate, a key or a URI that cannot be used",
        Exit.FOUND: "some ledgers differ from the certificate and were left out; the others are removed",
        Exit.REFUSED: "no valid certificate of this cluster, too few approvals, no ledger that may be purged "
        "now, the breaker, or this host's clock is not the store's",
        Exit.PARTLY: "stopped midway: many ledgers have changed, or the store did not answer",
    },
    epilog="Example: bkmeta delete purge --metadata zk+hierarchical://zk1:2181/ledgers --certificate purge.json",
)
@target_options
@click.option("--certificate", type=FILE, required=True, help="The certificate that `delete verify` wrote.")
@click.option("--key", type=FILE, help="PEM of the Ed25519 public key that must have signed it.")
@click.option(
    "--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="At most N ledgers are purged in a second."
)
@click.option(
    "--batch", type=click.IntRange(min=1), help="Ledgers in a transaction, at most. [default: 200, on etcd 50]"
)
@click.option(
    "--confirm",
    "confirmed",
    metavar="HASH",
    help="Number of ledgers of the certificate; required if the breaker trips.",
)
@approval_option
@output_options
def purge(
    certificate: Path,
    key: Path | None,
    rate: float | None,
    batch: int | None,
    confirmed: str | None,
    **shared: Any,  # noqa: ANN401 - the shared options
) -> None:
    """Remove the metadata of a certificate's ledgers. WRITES to the store; from here on bookies delete the data.

    Where the policy of the cluster asks for a quarantine, a hold takes the place of each record first: bookies keep the
    data, and no client can open the ledger. Run again with the same certificate when the quarantine is over.

    Each ledger is looked at again right before its removal; its tombstone is written in the same transaction. One that
    is not as the certificate has it is left out, and named; many end the run. Run again with the same certificate, it
    goes on.
    """
    from reconcile.jobs.context import add_remedy
    from reconcile.jobs.deletes import purge as job

    output = make_output(shared)
    target, approvals = take_target(shared), take_approvals(shared)
    with add_remedy(f"every purge so far is recorded in {target.folder}; to continue, run the same command again"):
        request = job.PurgeJob(target, certificate, key, rate, batch, confirmed, approvals)
        done = job.purge_deletes(request, make_context(output))
    result = done.result
    purged, earlier, quarantined, beyond = result.purged, result.earlier, result.quarantined, result.beyond
    left_out = dict(sorted(result.left_out.items()))
    parts = [f"{count_noun(len(purged), 'ledger')} purged"] if purged or not (quarantined or result.waiting) else []
    if quarantined:
        parts.append(f"{count_noun(len(quarantined), 'ledger')} put into quarantine")
    if result.waiting:
        parts.append(f"{count_noun(len(result.waiting), 'ledger')} in quarantine")
    if left_out:
        parts.append(f"{count_noun(len(left_out), 'ledger')} left out")
    if beyond:
        parts.append(f"{len(beyond)} stay as they are: the quarantine has as many as the policy allows")
    if earlier:
        parts.append(f"{len(earlier)} had been before")
    confirm = quote_command("bkmeta", "delete", "confirm", "--metadata", target.uri, "--wire")
    repeat = quote_command("bkmeta", "delete", "purge", "--metadata", target.uri, "--certificate", str(certificate))
    in_quarantine = bool(quarantined or result.waiting)
    ids, lines = write_list(target, "left-out.txt", "the ledgers that were left out", left_out)
    shown = Result(
        "delete-purge",
        "; ".join(parts),
        Exit.FOUND if left_out or beyond else Exit.DONE,
        counts={
            "purged": len(purged),
            "earlier": len(earlier),
            "quarantined": len(quarantined),
            "waiting": len(result.waiting),
            "beyond": len(beyond),
            "left_out": len(left_out),
            "transactions": done.transactions,
            "written_bytes": done.written_bytes,
        },
        details=[
            *list_lines(left_out),
            *lines,
            *(f"references were not read again, but taken as they were then: {name}" for name in done.as_then),
            *list_lines(done.ended_early),
            *list_lines(
                {ledger: f"in quarantine until {show_time(ms)}" for ledger, ms in sorted(result.waiting.items())}
            ),
            f"journal {target.folder}",
            *(["bookies keep the data in a quarantine; when it is over, run this again"] if in_quarantine else []),
            *(["bookies delete the data when they collect garbage next"] if purged or earlier else []),
        ],
        following=repeat if in_quarantine else confirm,
        facts={
            "ledgers": [
                *({"ledger": str(item), "state": "PURGED"} for item in (*purged, *earlier)),
                *({"ledger": str(item), "state": "QUARANTINED"} for item in (*quarantined, *result.waiting)),
            ],
            "left_out": {str(ledger): reason for ledger, reason in left_out.items()},
            "ids": None if ids is None else str(ids),
            "ended_early": {str(ledger): reason for ledger, reason in done.ended_early.items()},
            "references_as_then": list(done.as_then),
            "certificate": str(certificate),
            "hash": done.certificate.hash,
            "journal": str(target.folder),
        },
    )
    sys.exit(output.show(shown))
