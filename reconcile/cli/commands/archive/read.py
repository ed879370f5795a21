"""`archive read`: a ledger's entries out of an archive."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.option_groups.entries import describe_messages, format_option
from reconcile.cli.options import (
    FILE,
    PLACE,
    make_context,
    make_output,
    output_options,
    parse_ledger,
    scope_option,
)
from reconcile.cli.output import Result
from reconcile.words import count_noun
from recovery.place import DatasetPlace

if TYPE_CHECKING:
    from reconcile.jobs.archive.read import ReadLedger


def _parse_entries(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[int, int | None]:
    """Read A-B, or A."""
    if value is None:
        return 0, None
    match = re.fullmatch(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", value)
    if match is None or int(match[2] or match[1]) < int(match[1]):
        raise click.BadParameter("write the first and the last entry, for example 0-99, or one of them")
    return int(match[1]), int(match[2] or match[1])


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "every entry that was asked for is written, each digest agrees",
        Exit.FAILED: "the disk of --out is full, or the tool failed",
        Exit.USAGE: "a place or a file that cannot be used; or the archive does not have the ledger",
        Exit.FOUND: "written, and some digest does not agree, or nothing proves it; or fewer entries than asked for",
    },
    epilog="Example: bkmeta archive read --from s3://backup/ledgers 123 --entries 0-99 --as parquet --out 123.parquet",
)
@click.argument("ledger", required=False)
@scope_option
@click.option("--ledger-qualified-name", "qualified", metavar="NAME", help="Instead of LEDGER: its 32 hex digits.")
@click.option("--from", "place", type=PLACE, required=True, metavar="PLACE", help="The archive.")
@click.option("--entries", callback=_parse_entries, metavar="A-B", help="Only these entries. [default: all]")
@format_option
@click.option("--out", type=FILE, help="A new file, which only you may read. [default: stdout]")
@output_options
def read(
    ledger: str | None,
    scope: str | None,
    qualified: str | None,
    place: DatasetPlace,
    entries: tuple[int, int | None],
    form: str,
    out: Path | None,
    **shared: Any,  # noqa: ANN401 - the shared options
) -> None:
    """Give the entries of LEDGER out of an archive. Reads no store and no bookie.

    Without --out the entries go to stdout, and the summary to stderr.
    """
    from reconcile.jobs.archive.read import ReadRequest, read_ledger, read_to_file
    from recovery.bookies.entry_files import EntryFormat

    typed = ledger if ledger is not None else qualified
    if typed is None or (ledger is not None and qualified is not None):
        raise click.UsageError("name one ledger: LEDGER, or --ledger-qualified-name")
    if out is None and (shared["as_json"] or (form in ("raw", "parquet") and sys.stdout.isatty())):
        raise click.UsageError("name a file: --out FILE")
    if out is not None and out.exists():
        raise click.BadParameter(f"{out} is there already: name a new file", param_hint="--out")
    output = make_output(shared)
    first, last = entries
    request = ReadRequest(
        place=place, ledger=parse_ledger(typed, scope), form=EntryFormat(form), first=first, last=last
    )
    context = make_context(output)
    if out is None:
        done = read_ledger(request, sys.stdout.buffer, context)
        sys.stdout.buffer.flush()
        result = _make_result(done, request.first, request.last, str(request.ledger), out)
        if result.exit_code:
            click.echo(f"bkmeta: {result.verdict}", err=True)
        sys.exit(result.exit_code)
    done = read_to_file(request, out, context)
    sys.exit(output.show(_make_result(done, request.first, request.last, str(request.ledger), out)))


def _make_result(done: "ReadLedger", first: int, last: int | None, ledger: str, out: Path | None) -> Result:
    asked = (done.last_entry if last is None else last) - first + 1
    verdict = f"{count_noun(done.entries, 'entry', 'entries')} of ledger {ledger}"
    verdict += "" if out is None else f" written to {out}"
    code = Exit.DONE
    if done.entries < asked:
        code, verdict = Exit.FOUND, f"{verdict}; it ends with entry {done.last_entry}"
    if done.unproven:
        code, verdict = Exit.FOUND, f"{done.unproven} without a digest that agrees: {verdict}"
    return Result(
        "archive-read",
        verdict,
        code,
        counts={"entries": done.entries, "unproven": done.unproven, **done.messages},
        details=describe_messages(done.messages),
        facts={"ledger": ledger, "last_entry": done.last_entry, "out": None if out is None else str(out)},
    )
