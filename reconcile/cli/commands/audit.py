"""`audit show` and `audit verify`: the journals of what was written to a store."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.options import FOLDER, make_output, output_options, quote_command
from reconcile.cli.output import Result
from reconcile.words import count_noun

if TYPE_CHECKING:
    from reconcile.jobs.diagnose.audit import JournalAccount, JournalRun

_TYPED: Final = 8
"""Digits of a hash that count as having read it."""


@click.group(epilog="Example: bkmeta audit verify plan/journal")
def audit() -> None:
    """Read journals: the hash-chained record of every write. No store is touched."""


_SHOWN_DIGITS: Final = 12


def _describe_run(run: "JournalRun") -> str:
    who = f"{run.by.get('user', 'somebody')}@{run.by.get('host', '?')}, bkmeta {run.by.get('version', '?')}"
    wrote = ", ".join(f"{count} {op}" for op, count in sorted(run.writes.items())) or "nothing written"
    conflicts = f", {count_noun(run.conflicts, 'conflict')}" if run.conflicts else ""
    why = f" ({run.reason})" if run.reason else ""
    for approval in run.approved:
        why += f", approved by {approval.get('by', '?')} as {approval.get('hash', '?')[:_SHOWN_DIGITS]}"
    begun, ended = (time.partition(".")[0].replace("T", " ") for time in (run.at, run.until))
    return f"{begun} to {ended} UTC: {who}{why}: {wrote}{conflicts}; {run.ended or 'did not end'}"


@audit.command(
    cls=Command,
    exits={
        Exit.DONE: "every journal was read to its end",
        Exit.USAGE: "no journal, or one that was altered",
    },
    epilog="Example: bkmeta audit show plan",
)
@click.argument("places", metavar="FOLDER...", nargs=-1, required=True, type=FOLDER)
@output_options
def show(places: tuple[Path, ...], **shared: Any) -> None:  # noqa: ANN401 - click's options
    """Say who wrote what when: every run that the journals in and below FOLDER tell of, with its result."""
    output = make_output(shared)
    from reconcile.jobs.diagnose.audit import read_journals

    journals = read_journals(places)
    runs = sum(len(journal.runs) for journal in journals)
    result = Result(
        "audit-show",
        f"{count_noun(runs, 'run')} in {count_noun(len(journals), 'journal')}",
        Exit.DONE,
        counts={"journals": len(journals), "runs": runs},
        details=[line for journal in journals for line in _describe_journal(journal)],
        following=quote_command("bkmeta", "audit", "verify", *places),
        facts={"journals": [_facts(journal) for journal in journals]},
    )
    sys.exit(output.show(result))


def _describe_journal(journal: "JournalAccount") -> Iterator[str]:
    binding = journal.binding
    title = binding.get("journal") or "apply"
    plan = f" of plan {str(binding['plan'])[:12]}" if "plan" in binding else ""
    yield f"{journal.path}: {title}{plan}, root {binding.get('root', '?')} {binding.get('store', '')}".rstrip()
    yield from (f"  {_describe_run(run)}" for run in journal.runs)


def _describe_keeping(places: Sequence[Path], journals: "Sequence[JournalAccount]") -> str:
    """Name the command that shows later that no lines were cut off."""
    kept = [journal.head[:_SHOWN_DIGITS] for journal in journals if journal.head]
    heads = [word for head in kept for word in ("--head", head)]
    later = quote_command("bkmeta", "audit", "verify", *places, *heads)
    return f"keep this line somewhere else; it shows later that nothing was cut off: {later}"


def _describe_endless(journal: "JournalAccount") -> str:
    last = journal.runs[-1]
    return (
        f"{journal.path}: the run of {last.at} has no end: it was killed, or it is still under way; if nothing runs, "
        "run the same command again, with --resume where it has that option"
    )


def _facts(journal: "JournalAccount") -> dict[str, object]:
    return {
        "journal": str(journal.path),
        "binding": dict(journal.binding),
        "records": journal.records,
        "torn_bytes": journal.torn,
        "head": journal.head,
        "runs": [
            {
                "from": run.at,
                "until": run.until,
                "by": dict(run.by),
                "reason": run.reason,
                "approved": list(run.approved),
                "writes": dict(run.writes),
                "conflicts": run.conflicts,
                "ended": run.ended,
            }
            for run in journal.runs
        ],
    }


@audit.command(
    cls=Command,
    exits={
        Exit.DONE: "every line agrees with its hash and with the line before it",
        Exit.USAGE: "no journal",
        Exit.FOUND: "a line was altered, or a head that was kept is not there: lines were cut off",
        Exit.PARTLY: "a run or a line has no end: its command was killed, or still runs",
    },
    epilog="Example: bkmeta audit verify plan/journal --head 9b1c42d07f3e",
)
@click.argument("places", metavar="FOLDER...", nargs=-1, required=True, type=FOLDER)
@click.option(
    "--head", "heads", multiple=True, metavar="HASH", help="Hash of a last line that `audit verify` printed earlier."
)
@output_options
def verify(places: tuple[Path, ...], heads: tuple[str, ...], **shared: Any) -> None:  # noqa: ANN401 - click's options
    """Say whether the journals in and below FOLDER are as they were written, line by line.

    A journal that was cut short at the end of a line agrees with itself: only a --head that somebody kept shows it.
    """
    output = make_output(shared)
    wanted = [head.lower() for head in heads]
    if any(len(head) < _TYPED for head in wanted):
        raise click.BadParameter(f"give at least {_TYPED} digits", param_hint="--head")
    from reconcile.jobs.diagnose.audit import verify_journals

    verified = verify_journals(places, wanted)
    journals = verified.journals
    altered = [f"{error.subject}: {error.problem}" for error in verified.altered]
    gone = [
        f"no line has the hash {head}: lines were cut off, or the hash is of another journal"
        for head in verified.missing_heads
    ]
    torn = [f"{journal.path}: {journal.torn} bytes of an unfinished line at its end"
            for journal in journals if journal.torn]  # fmt: skip
    records = sum(journal.records for journal in journals)
    endless = [_describe_endless(journal) for journal in journals if journal.is_endless]
    code = Exit.DONE
    verdict = f"{count_noun(len(journals), 'journal')}, {count_noun(records, 'line')}: all as they were written"
    if altered or gone:
        code, verdict = Exit.FOUND, (altered + gone)[0]
    elif torn or endless:
        code, verdict = Exit.PARTLY, f"{verdict}; {(endless or torn)[0]}"
    result = Result(
        "audit-verify",
        verdict,
        code,
        counts={
            "journals": len(journals) + len(altered),
            "lines": records,
            "altered": len(altered),
            "torn": len(torn),
            "without_end": len(endless),
        },
        coverage={"heads": wanted, "heads_not_found": list(verified.missing_heads)},
        details=[
            *(altered + gone)[1:],
            *endless,
            *torn,
            *(f"{journal.path}: head {journal.head}" for journal in journals),
        ],
        following=_describe_keeping(places, journals),
        facts={"journals": [_facts(journal) for journal in journals]},
    )
    sys.exit(output.show(result))
