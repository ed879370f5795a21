"""`audit show` and `audit verify`: the journals of what was written to a store."""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.options import FOLDER, make_output, output_options, quote_command
from reconcile.cli.output import Result
from reconcile.errors import JournalError
from reconcile.words import count_noun

_TYPED: Final = 8
"""Digits of a hash that count as having read it."""


@click.group(epilog="Example: bkmeta audit verify plan/journal")
def audit() -> None:
    """Read journals: the hash-chained record of every write. No store is touched."""


@dataclass(slots=True)
class _Run:
    """One run of a command that wrote, as its journal tells it."""

    event: str
    at: str
    by: Mapping[str, str]
    reason: str | None
    approved: Mapping[str, str] | None
    events: Counter[str] = field(default_factory=Counter)
    writes: Counter[str] = field(default_factory=Counter)
    conflicts: int = 0
    until: str = ""
    ended: str = ""

    def __str__(self) -> str:
        who = f"{self.by.get('user', 'somebody')}@{self.by.get('host', '?')}, bkmeta {self.by.get('version', '?')}"
        wrote = ", ".join(f"{count} {op}" for op, count in sorted(self.writes.items())) or "nothing written"
        conflicts = f", {count_noun(self.conflicts, 'conflict')}" if self.conflicts else ""
        why = f" ({self.reason})" if self.reason else ""
        if self.approved:
            why += f", approved by {self.approved.get('by', '?')} as {self.approved.get('hash', '?')[:_SHOWN_DIGITS]}"
        begun, ended = (at.partition(".")[0].replace("T", " ") for at in (self.at, self.until))
        return f"{begun} to {ended} UTC: {who}{why}: {wrote}{conflicts}; {self.ended or 'did not end'}"

    @property
    def has_end(self) -> bool:
        """Whether its last line says how it ended: the run was not killed, and is not still under way."""
        return bool(self.ended)


_SHOWN_DIGITS: Final = 12
_ENDS: Final = {"end": "ended", "frozen": "frozen", "thawed": "thawed", "undone": "undone", "stopped": "stopped"}


@dataclass(slots=True)
class _Told:
    """One journal."""

    path: Path
    binding: Mapping[str, Any] = field(default_factory=dict)
    runs: list[_Run] = field(default_factory=list)
    records: int = 0
    torn: int = 0
    head: str = ""
    hashes: set[str] = field(default_factory=set)


def _journals(places: Sequence[Path]) -> list[Path]:
    """Return the journals in folders and below them.

    Raises:
        JournalError: a folder has none.
    """
    from reconcile.write.audit_journal import JOURNAL

    found: list[Path] = []
    for place in places:
        here = sorted(place.rglob(JOURNAL)) if place.is_dir() else []
        if not here:
            raise JournalError(str(place), "holds no journal", "name the folder that a command wrote its journal to")
        found += here
    return found


def tell(path: Path, heads: Sequence[str]) -> _Told:
    """Return what a journal says of its runs, and of the hashes that begin as heads that were kept.

    Raises:
        JournalError: there is none, it was altered, or its lines do not say what ours say.
    """
    from reconcile.write.audit_journal import report_foreign

    with report_foreign(path):
        return _read_journal(path, heads)


def _read_journal(path: Path, heads: Sequence[str]) -> _Told:
    from reconcile.write.audit_journal import Torn, scan

    told = _Told(path)
    pending: dict[int, list[str]] = {}
    for record in scan(path):
        if isinstance(record, Torn):
            told.torn = record.length
            break
        told.records, told.head = told.records + 1, record.hash
        told.hashes.update(head for head in heads if record.hash.startswith(head))
        fields = record.fields
        if record.event in ("begin", "resume"):
            told.binding = fields.get("binding", {})
            told.runs.append(
                _Run(record.event, record.at, fields.get("by", {}), fields.get("reason"), fields.get("approved"))
            )
        if not told.runs:
            continue
        run = told.runs[-1]
        run.until = record.at
        run.events[record.event] += 1
        run.ended = _ENDS.get(record.event, run.ended)
        if record.event == "intent" and "writes" in fields:
            pending[fields["batch"]] = [str(row[1]) for row in fields["writes"]]
        elif record.event == "intent":
            run.writes[str(fields["op"])] += 1
        elif record.event == "done" and "versions" in fields:
            ops = pending.pop(fields["batch"], [])
            run.writes.update(op for op, version in zip(ops, fields["versions"], strict=True) if version is not None)
            run.conflicts += len(fields["conflicts"])
        elif record.event == "undoing":
            run.writes["taken back"] += len(fields["writes"])
    return told


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
    told = [tell(path, ()) for path in _journals(places)]
    runs = sum(len(one.runs) for one in told)
    result = Result(
        "audit-show",
        f"{count_noun(runs, 'run')} in {count_noun(len(told), 'journal')}",
        Exit.DONE,
        counts={"journals": len(told), "runs": runs},
        details=[line for one in told for line in _lines(one)],
        following=quote_command("bkmeta", "audit", "verify", *places),
        facts={"journals": [_facts(one) for one in told]},
    )
    sys.exit(output.show(result))


def _lines(one: _Told) -> Iterator[str]:
    what = one.binding.get("journal") or "apply"
    on = f" of plan {str(one.binding['plan'])[:12]}" if "plan" in one.binding else ""
    yield f"{one.path}: {what}{on}, root {one.binding.get('root', '?')} {one.binding.get('store', '')}".rstrip()
    yield from (f"  {run}" for run in one.runs)


def _word_keeping(places: Sequence[Path], told: Sequence[_Told]) -> str:
    """Name the command that shows later that no lines were cut off."""
    heads = [word for one in told if one.head for word in ("--head", one.head[:_SHOWN_DIGITS])]
    later = quote_command("bkmeta", "audit", "verify", *places, *heads)
    return f"keep this line somewhere else; it shows later that nothing was cut off: {later}"


def _without_end(one: _Told) -> str:
    last = one.runs[-1]
    return (
        f"{one.path}: the run of {last.at} has no end: it was killed, or it is still under way; if nothing runs, run "
        "the same command again, with --resume where it has that option"
    )


def _facts(one: _Told) -> dict[str, object]:
    return {
        "journal": str(one.path),
        "binding": dict(one.binding),
        "records": one.records,
        "torn_bytes": one.torn,
        "head": one.head,
        "runs": [
            {
                "from": run.at,
                "until": run.until,
                "by": dict(run.by),
                "reason": run.reason,
                "approved": run.approved,
                "writes": dict(run.writes),
                "conflicts": run.conflicts,
                "ended": run.ended,
            }
            for run in one.runs
        ],
    }


@audit.command(
    cls=Command,
    exits={
        Exit.DONE: "every line agrees with its hash and with the line before it",
        Exit.USAGE: "no journal",
        Exit.FOUND: "a line was altered, or a head that was kept is not there: lines were cut off",
        Exit.PARTLY: "a run, or a line, without its end: what wrote it was killed, or is still under way",
    },
    epilog="Example: bkmeta audit verify plan/journal --head 9b1c42d07f3e",
)
@click.argument("places", metavar="FOLDER...", nargs=-1, required=True, type=FOLDER)
@click.option("--head", "heads", multiple=True, metavar="HASH", help="Of a last line as it was printed once.")
@output_options
def verify(places: tuple[Path, ...], heads: tuple[str, ...], **shared: Any) -> None:  # noqa: ANN401 - click's options
    """Say whether the journals in and below FOLDER are as they were written, line by line.

    A journal that was cut short at the end of a line agrees with itself: only a --head that somebody kept shows it.
    """
    output = make_output(shared)
    wanted = [head.lower() for head in heads]
    if any(len(head) < _TYPED for head in wanted):
        raise click.BadParameter(f"give at least {_TYPED} digits", param_hint="--head")
    altered: list[str] = []
    told: list[_Told] = []
    paths = _journals(places)
    for path in paths:
        try:
            told.append(tell(path, wanted))
        except JournalError as error:
            altered.append(f"{error.subject}: {error.problem}")
    seen = set().union(*(one.hashes for one in told)) if told else set()
    gone = [f"no line has the hash {head}: lines were cut off, or it is of another journal"
            for head in wanted if head not in seen]  # fmt: skip
    torn = [f"{one.path}: {one.torn} bytes of an unfinished line at its end" for one in told if one.torn]
    records = sum(one.records for one in told)
    endless = [_without_end(one) for one in told if one.runs and not one.runs[-1].has_end]
    code = Exit.DONE
    verdict = f"{count_noun(len(told), 'journal')}, {count_noun(records, 'line')}: all as they were written"
    if altered or gone:
        code, verdict = Exit.FOUND, (altered + gone)[0]
    elif torn or endless:
        code, verdict = Exit.PARTLY, f"{verdict}; {(endless or torn)[0]}"
    result = Result(
        "audit-verify",
        verdict,
        code,
        counts={
            "journals": len(paths),
            "lines": records,
            "altered": len(altered),
            "torn": len(torn),
            "without_end": len(endless),
        },
        coverage={"heads": wanted, "heads_not_found": [head for head in wanted if head not in seen]},
        details=[*(altered + gone)[1:], *endless, *torn, *(f"{one.path}: head {one.head}" for one in told)],
        following=_word_keeping(places, told),
        facts={"journals": [_facts(one) for one in told]},
    )
    sys.exit(output.show(result))
