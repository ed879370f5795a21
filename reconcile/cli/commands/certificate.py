"""`certificate check`: a delete certificate, without a store."""

import sys
from pathlib import Path
from typing import Any

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.options import FILE, make_context, make_output, names_options, output_options, parse_ledgers
from reconcile.cli.output import Result
from reconcile.words import count_noun


@click.group(epilog="Example: bkmeta certificate check purge.json")
def certificate() -> None:
    """Read certificates of deletes. No store is touched."""


@certificate.command(
    cls=Command,
    exits={
        Exit.DONE: "valid",
        Exit.USAGE: "no certificate, or a key that cannot be used",
        Exit.FOUND: "not valid: altered, signed by another key or by none, or without a ledger that was named",
        Exit.UNDECIDABLE: "it was valid, and has expired",
    },
    epilog="Example: bkmeta certificate check purge.json --key pub.pem 123",
)
@click.argument("file", type=FILE)
@click.argument("ledgers", metavar="[LEDGER]...", nargs=-1)
@click.option("--key", type=FILE, help="PEM of the Ed25519 public key that must have signed it.")
@names_options
@output_options
def check(
    file: Path,
    ledgers: tuple[str, ...],
    key: Path | None,
    scope: str | None,
    qualified: tuple[str, ...],
    **shared: Any,  # noqa: ANN401 - the shared options
) -> None:
    """Say whether the certificate in FILE holds, and names each LEDGER."""
    from reconcile.jobs.deletes import certificate as job

    output = make_output(shared)
    named = parse_ledgers(ledgers, scope, qualified)
    done = job.check(job.CertificateRequest(file=file, key=key, ledgers=named), make_context(output))
    verdict = f"valid, of {count_noun(done.ledgers, 'ledger')}"
    if done.problems:
        verdict = f"{done.validity.name.lower()}: {done.problems[0]}"
    elif done.is_signed and key is None:
        verdict += "; signed; give --key to check by whom"
    result = Result(
        "certificate-check",
        verdict,
        Exit(done.validity.value),
        counts={"ledgers": done.ledgers},
        details=list(done.problems[1:]),
        facts={"hash": done.hash, "problems": list(done.problems), "signed": done.is_signed},
    )
    sys.exit(output.show(result))
