"""`export`: ledgers' entries from bookies' disks as files, whatever their records say."""

import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.option_groups.entries import describe_messages, format_option
from reconcile.cli.option_groups.ledger_files import read_ledger_file
from reconcile.cli.options import (
    FILE,
    FOLDER,
    by_bookie,
    make_context,
    make_output,
    names_options,
    output_options,
    parse_ledgers,
    read_passwords,
)
from reconcile.cli.output import Result
from reconcile.words import count_noun

if TYPE_CHECKING:
    from reconcile.jobs.export import Exported, ExportedLedger

_SHOWN: Final = 10
_WORDS: Final = {
    "absent": "that no bookie has, below the last one",
    "unreadable": "that a bookie has a place for, and that are not there",
    "several": "with several contents",
    "unproven": "whose digest nothing proves",
}


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "every entry up to each ledger's highest is written once, each digest agrees",
        Exit.FAILED: "the disk of --out is full, or the tool failed",
        Exit.USAGE: "an id, folders or files that cannot be used",
        Exit.FOUND: "entries are missing below a ledger's highest, have several contents, or have no proven digest; "
        "or a ledger has no entry",
        Exit.UNDECIDABLE: "no such entry, but disks were not read completely: more entries may exist",
    },
    epilog="Example: bkmeta export 12345 --disk bk1:3181=/mnt/bk1 --disk bk2:3181=/mnt/bk2 --out entries",
)
@click.argument("ledgers", metavar="[LEDGER]...", nargs=-1)
@click.option("--from", "source", type=FILE, help="Also the ledgers of this file, one a line.")
@names_options
@click.option(
    "--disk", "disks", multiple=True, required=True, callback=by_bookie, metavar="ID=DIR", help="A bookie's folder."
)
@click.option(
    "--passwords", type=FILE, help="Candidate passwords, one a line; mode 0600. They prove digests of type HMAC."
)
@click.option(
    "--logs",
    is_flag=True,
    help="Also write entries that no index names: every byte of entry logs and journals is read.",
)
@format_option
@click.option("--out", type=FOLDER, required=True, help="A new folder for the files; only you may read it.")
@output_options
def export(
    ledgers: tuple[str, ...],
    source: Path | None,
    scope: str | None,
    qualified: tuple[str, ...],
    disks: dict[str, list[Path]],
    passwords: Path | None,
    *,
    logs: bool,
    form: str,
    out: Path,
    **shared: Any,  # noqa: ANN401 - click's options
) -> None:
    """Write the entries of each LEDGER as a file, from disks, whatever its record says, or without one. Reads no store.

    An entry is what its bookie would serve: by its index, or by the journal that is replayed at its next start; with
    --logs also what stands in entry logs and old journals alone, as of a ledger that a bookie deleted. Of each
    entry the copies whose digest agrees are taken; two contents of one entry, of two histories, are both written.
    """
    from reconcile.jobs import export as job
    from recovery.bookies.entry_files import EntryFormat

    output = make_output(shared)
    named = parse_ledgers(ledgers, scope, qualified)
    if source is not None:
        named = tuple(dict.fromkeys([*named, *read_ledger_file(source, scope)]))
    if not named:
        raise click.UsageError("name ledgers: LEDGER, --ledger-qualified-name, or a file of them: --from FILE")
    request = job.ExportRequest(
        ledgers=named,
        disks=disks,
        out=out,
        passwords=read_passwords(passwords),
        form=EntryFormat(form),
        has_leftovers=logs,
    )
    sys.exit(output.show(_make_result(job.export(request, make_context(output)), out, has_logs=logs)))


def _make_result(done: "Exported", out: Path, *, has_logs: bool) -> Result:
    written = [ledger for ledger in done.ledgers if ledger.file is not None]
    doubtful = [ledger for ledger in done.ledgers if not ledger.is_whole]
    entries = sum(ledger.entries for ledger in written)
    verdict = f"{count_noun(entries, 'entry', 'entries')} of {count_noun(len(written), 'ledger')} written to {out}"
    code = Exit.DONE
    if any(not ledger.is_sure for ledger in done.ledgers):
        code, verdict = Exit.UNDECIDABLE, f"{verdict}; disks were not read completely: more may exist"
    if doubtful:
        code, verdict = Exit.FOUND, f"{count_noun(len(doubtful), 'ledger')} not whole: {verdict}"
    details = [
        _describe_ledger(ledger)
        for ledger in [*doubtful, *(ledger for ledger in done.ledgers if ledger.is_whole)][:_SHOWN]
    ]
    if len(done.ledgers) > _SHOWN:
        details.append("all of them with --json")
    details += [
        f"{bookie} was not read completely: {problems[0] if problems else 'no cookie'}"
        for bookie, problems in list(done.incomplete.items())[:_SHOWN]
    ]
    messages: Counter[str] = Counter()
    for ledger in done.ledgers:
        messages.update(ledger.messages)
    details += describe_messages(messages)
    if not has_logs and any(ledger.absent or ledger.last is None for ledger in done.ledgers):
        details.append("entry logs may have entries that no index names: --logs reads them")
    details.append("an end is the highest entry that was found: what only other bookies have is not counted")
    return Result(
        "export",
        verdict,
        code,
        counts={
            "ledgers": len(done.ledgers),
            "written": len(written),
            "not_whole": len(doubtful),
            "entries": entries,
            **{name: sum(getattr(ledger, name) for ledger in done.ledgers) for name in _WORDS},
            **messages,
        },
        coverage={"incomplete": {bookie: list(problems) for bookie, problems in done.incomplete.items()}},
        details=details,
        facts={
            "out": str(out),
            "exported": [{**asdict(ledger), "ledger": str(ledger.ledger)} for ledger in done.ledgers],
        },
    )


def _describe_ledger(ledger: "ExportedLedger") -> str:
    if ledger.last is None:
        text = f"{ledger.ledger}: no entry was found"
    else:
        text = f"{ledger.ledger}: {count_noun(ledger.entries, 'entry', 'entries')} up to {ledger.last}"
    for name, words in _WORDS.items():
        count = getattr(ledger, name)
        if count:
            first = ", ".join(map(str, ledger.listed.get(name, ())[:_SHOWN]))
            text += f"; {count} {words}" + (f" ({first})" if first else "")
    return text
