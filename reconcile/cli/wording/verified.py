"""What reading a plan's ledgers back gave, in words; `verify` and `rehearse` say it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from reconcile.cli.command import Exit
from reconcile.cli.incident import OPTION as INCIDENT
from reconcile.cli.options import carry_options, quote_command
from reconcile.cli.output import Result
from reconcile.cli.wording.starts import AFTER_THAW, list_starts
from reconcile.words import count_noun, is_or_are
from recovery.place import DatasetPlace

if TYPE_CHECKING:
    from reconcile.jobs.verify import ReadBack


_SHOWN: Final = 10
_ABOVE: Final = ("ledgers", "entries", "open_ledgers", "open_entries")
_GUARDS: Final = (
    *("kept", "gone", "released", "unreleased", "named", "exposed", "replaced"),
    *("reuse_kept", "reuse_gone", "reuse_over"),
)


def make_verify_result(command: str, read: "ReadBack", plan: DatasetPlace) -> Result:
    """Say what reading back gave."""
    from reconcile.check.verify_results import RecordInStore, VerifyOutcome

    verified, guards = read.verified, read.guards
    outcomes = {str(outcome): verified.outcomes.get(outcome, 0) for outcome in VerifyOutcome}
    records = {str(stored): verified.records.get(stored, 0) for stored in RecordInStore}
    holds = {str(stored): verified.holds.get(stored, 0) for stored in RecordInStore}
    entries, copies = dict(verified.entries), dict(verified.copies)
    readable, unchecked = outcomes[VerifyOutcome.READABLE], outcomes[VerifyOutcome.UNCHECKED]
    wire, unresolved = read.has_wire, read.unresolved
    code = (
        Exit.FOUND
        if verified.wrong or guards.wrong
        else Exit.UNDECIDABLE
        if unchecked or unresolved or verified.denied
        else Exit.DONE
    )
    verdict = (
        f"{readable} of {count_noun(verified.looked_at, 'ledger')} {is_or_are(readable)} readable, every entry from a "
        f"bookie{'' if wire else chr(39) + 's disks'}, "
        f"{verified.full} of them from every bookie that should hold it"
    )
    above = {name: verified.above.get(name, 0) for name in _ABOVE}
    if above["ledgers"]:
        ends = "1 ends" if above["ledgers"] == 1 else f"{above['ledgers']} end"
        verdict += f"; {ends} below {count_noun(above['entries'], 'entry', 'entries')} that bookies have"
    bad = {name: count for name, count in outcomes.items() if name != VerifyOutcome.READABLE and count}
    if bad:
        verdict = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in bad.items()) + f"; {verdict}"
    if verified.wrong > sum(bad.values()) - unchecked:
        wrong = "1 ledger or hold is" if verified.wrong == 1 else f"{verified.wrong} ledgers or holds are"
        verdict = f"{wrong} not as they should be: {verdict}"
    if not verified.looked_at:
        verdict = "no ledger was checked" + (": the plan restores none" if not verified.ledgers else "")
    if guards.gone:
        verdict = f"{count_noun(guards.gone, 'guarded ledger')} without a lock: {verdict}"
    elif guards.reuse_gone or guards.reuse_over:
        verdict = f"{count_noun(guards.reuse_gone + guards.reuse_over, 'lock')} of reused ids gone or past: {verdict}"
    elif guards.exposed:
        exposed = count_noun(guards.exposed, "ledger")
        verdict = f"{exposed} guarded by names alone, and replication is enabled: {verdict}"
    elif guards.unreleased:
        verdict = f"{count_noun(guards.unreleased, 'settled ledger')} with a lock that should be gone: {verdict}"
    if not verified.adds_up:
        code, verdict = Exit.FAILED, f"INVALID, the sums do not add up: {verdict}"
    details = [f"ledgers of the plan: {verified.ledgers} restored, {verified.held} held"]
    if verified.seed:
        details.append(
            f"checked: {count_noun(verified.looked_at, 'ledger')}, drawn with {verified.seed}; the rest may differ"
        )
    details += [
        f"entries: {entries.get('readable', 0)} readable of {entries.get('looked_at', 0)} checked",
        "copies: " + ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sorted(copies.items()) if count),
    ]
    details.append("records: " + _describe_counts(records))
    if verified.held:
        details.append("holds: " + _describe_counts(holds) + "; no client can read their entries, so they are not read")
    if verified.longer:
        longer = "1 record is" if verified.longer == 1 else f"{verified.longer} records are"
        details.append(f"{longer} longer than the entries: a writer that closes with adds under way leaves such ones")
    if above["open_ledgers"]:
        details.append(
            f"left open, as they were: {count_noun(above['open_ledgers'], 'ledger')} with "
            f"{count_noun(above['open_entries'], 'entry', 'entries')}; the next reader closes each"
        )
    details += [
        f"{problem.ledger}: {problem.outcome.replace('_', ' ')}; {problem.detail}"
        for problem in verified.problems[:_SHOWN]
    ]
    if len(verified.problems) > _SHOWN:
        details.append("more of them with --json")
    details += _describe_guards(read)
    missing = sorted(verified.without_disks.items(), key=lambda item: -item[1])
    if missing:
        named = ", ".join(f"{bookie} ({count_noun(count, 'copy', 'copies')})" for bookie, count in missing[:_SHOWN])
        heading = "cannot be asked:" if wire else f"no disks were given of {count_noun(len(missing), 'bookie')}:"
        details.append(f"{heading} {named}")
    details += [f"{name}: {why}" for name, why in list(unresolved.items())[:_SHOWN]]
    for bookie, problems in list(verified.incomplete.items())[:_SHOWN]:
        details.append(f"{bookie} was not read completely: {problems[0] if problems else 'no cookie'}")
    details += list_starts(read.starts.bookies, AFTER_THAW if read.starts.after_thaw else "now")
    return Result(
        command,
        verdict,
        code,
        counts={
            "ledgers": outcomes,
            "every_copy_good": verified.full,
            "longer_than_entries": verified.longer,
            "above_end": above,
            "records": records,
            "holds": holds,
            "guards": {name: getattr(guards, name) for name in _GUARDS},
            "entries": entries,
            "copies": copies,
        },
        coverage={
            "ledgers": verified.ledgers,
            "looked_at": verified.looked_at,
            "held": verified.held,
            "holds_looked_at": sum(verified.holds.values()),
            "sample_seed": verified.seed or None,
            "bookies": list(read.bookies),
            "wire": wire,
            "unresolved": dict(unresolved),
            "without_disks": dict(missing),
            "incomplete": {bookie: list(problems) for bookie, problems in verified.incomplete.items()},
        },
        details=details,
        following=_next(command, code, plan, [str(problem.ledger) for problem in verified.problems], wire=wire),
        facts={
            "plan": str(plan),
            "problems": [{**asdict(problem), "ledger": str(problem.ledger)} for problem in verified.problems],
            "guards": [{"ledger": str(ledger), "detail": detail} for ledger, detail in guards.listed],
            "looked_at_locks_early": read.is_early,
            "bookies": read.starts.to_json(),
        },
    )


def _describe_guards(read: "ReadBack") -> list[str]:
    """Say how the plan's guards stand, and what must not be done while they are needed."""
    guards = read.guards
    counts = {name: getattr(guards, name) for name in _GUARDS}
    if not any(counts.values()):
        return []
    lines = ["guards: " + _describe_counts(counts)]
    lines += [f"{ledger}: {detail}" for ledger, detail in guards.listed[:_SHOWN]]
    if guards.named:
        lines.append(
            f"{count_noun(guards.named, 'ledger')} guarded by names alone: replication must stay disabled until "
            "settled, or copies go when a bookie returns, with last entries that only it has"
        )
    if guards.exposed:
        lines.append("replication is enabled: bookkeeper shell autorecovery -disable, now")
    if guards.reuse_over:
        lines.append("locks of reused ids are past their end: recover and apply again, which removes them")
    if guards.gone or guards.reuse_gone:
        lines.append("apply the plan again with a journal of its own (--journal DIR): it makes the locks that are gone")
    if read.is_early:
        lines.append(
            "some locks are younger than five minutes: a worker whose session ended may still remove one; verify again "
            "after that"
        )
    return lines


def _describe_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count) or "none"


def _next(command: str, code: int, plan: DatasetPlace, problems: Sequence[str], *, wire: bool) -> str:
    if code == Exit.FOUND:
        given = carry_options("--metadata")
        if INCIDENT not in given:
            given = [*given, "--inventory-dir", "DIR"]
        ledger = problems[0] if problems else "LEDGER"
        return f"look at one of them: {quote_command('bkmeta', 'explain', ledger, '--plan', plan, *given)}"
    if code == Exit.UNDECIDABLE:
        return "see why these bookies do not answer" if wire else "give the disks that are missing: --disk ID=DIR"
    if wire:
        return ""
    if command != "verify":
        return ""
    thaw = quote_command("bkmeta", "thaw", *carry_options("--metadata"))
    return f"start the bookies, one first, and read its log; if you froze: {thaw}"
