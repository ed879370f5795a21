"""The answer of an impact check, in words and as JSON."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from reconcile.check.impact.names import Impact
from reconcile.cli.output import PaintedLine, Span
from reconcile.words import count_noun, describe_age

if TYPE_CHECKING:
    from reconcile.check.impact.answer import EvidenceState, ImpactAnswer, SetAnswer
    from reconcile.check.impact.sample import EnsembleMember, SegmentImpact

WORDS: Final[Mapping[str, str]] = {
    Impact.DATA_LOSS: "entries without any copy that could come back",
    Impact.READ_AVAILABILITY_LOSS: "entries that cannot be read until a bookie returns",
    Impact.RECOVERY_LOSS: "ledgers that no client can fence or close",
    Impact.WRITE_AVAILABILITY_LOSS: "writers, or new ledgers, that find no bookie",
    Impact.REBUILDING_STALL: "lost copies without a source, or without a bookie that may take them",
    Impact.READ_MARGIN_LOSS: "entries that could not be read if one more went",
    Impact.STORAGE_CAPACITY_LOSS: "too much of what can be written to is lost",
    Impact.METADATA_QUORUM: "ZooKeeper's servers on these hosts lose their majority",
}
"""What each impact means."""
SEQUENCING: Final = (
    "BookKeeper has no sequencers: each ledger's writer orders its own entries. What a cluster needs besides: "
    "METADATA_QUORUM, and the candidates for the auditor"
)
_COLOURS: Final = {"SAFE": "green", "UNSAFE": "red", "UNDECIDED": "yellow"}
_STATE_COLOURS: Final = {"read-write": "", "read-only": "cyan"}
_SHOWN: Final = 10
"""Segments that are described on a terminal; fewer below a table of domains."""
_SHOWN_OF_DRILL: Final = 3
_SOME: Final = 5


def describe_verdict(answer: "ImpactAnswer", target: str) -> str:
    """Return the answer in one sentence."""
    looked_at = f"{count_noun(answer.ledgers, 'ledger')} checked"
    if answer.unreadable and answer.verdict != "UNDECIDED":
        names = _list_some(answer.unreadable_sample)
        looked_at += f"; undecided: {count_noun(answer.unreadable, 'record')} cannot be read: {names}"
    bad = [outcome.label for outcome in (*answer.sets, *answer.drill) if outcome.verdict == "UNSAFE"]
    already = f"; {', '.join(answer.now.impacts)} already, whatever is taken" if answer.now.impacts else ""
    match str(answer.verdict):
        case "UNDECIDED":
            return f"UNDECIDED: {answer.undecided[0]} ({looked_at})"
        case "UNSAFE" if bad:
            caused = sorted({name for outcome in (*answer.sets, *answer.drill) for name in outcome.caused})
            return f"UNSAFE: {_list_some(bad)} may not be {_describe_target(target)}: {', '.join(caused)} ({looked_at})"
        case "UNSAFE":
            return f"UNSAFE: already now, with nothing taken: {', '.join(answer.now.impacts)} ({looked_at})"
        case _ if answer.sets:
            taken = _list_some([outcome.label for outcome in answer.sets])
            alone = "each alone " if len(answer.sets) > 1 else ""
            return f"SAFE: {taken} may {alone}be {_describe_target(target)} ({looked_at}){already}"
        case _ if answer.drill:
            domains = f"each of {count_noun(len(answer.drill), 'domain')} may be {_describe_target(target)} alone"
            return f"SAFE: {domains} ({looked_at}){already}"
        case _:
            return f"SAFE: nothing is affected now ({looked_at})"


def _describe_target(target: str) -> str:
    return {"down": "taken down", "gone": "removed for good"}.get(target, f"made {target}")


def _list_some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SOME} more" if len(names) > _SOME else ""
    return "; ".join(names[:_SOME]) + more


def describe_details(answer: "ImpactAnswer", target: str, not_applicable: Mapping[str, str]) -> list[str]:
    """Return the lines behind the verdict.

    Args:
        answer: of the check.
        target: what is done to the bookies.
        not_applicable: impacts that mean nothing here, and why.
    """
    lines: list[str] = []
    several = len(answer.sets) > 1
    for outcome in answer.sets or (() if answer.drill else (answer.now,)):
        lines += _describe_set(outcome, titled=several)
    if answer.together is not None:
        lines += _describe_set(answer.together, titled=True)
    if answer.sets and answer.now.impacts:
        lines.append("already now, with nothing taken:")
        lines += [f"  {line}" for line in _describe_tallies(answer.now)]
    if answer.drill:
        lines += [f"each alone, {target}:", *_describe_drill(answer.drill)]
    if answer.largest is not None:
        largest = answer.largest
        names = ", ".join(largest.bookies) or "none"
        sure = "" if largest.is_exact else " at least"
        asked = f" of the {largest.asked} that were asked for"
        lines += ["", f"{len(largest.bookies)}{sure}{asked} may be taken at once: {names}"]
    shown = _SHOWN_OF_DRILL if answer.drill else _SHOWN
    for segment in answer.sample[:shown]:
        lines += ["", *describe_segment_impact(segment)]
    if len(answer.sample) > shown:
        lines += ["", "there are more: --json lists fifty, --out DIR writes all"]
    unasked = [f"{impact} is not applicable: {reason}" for impact, reason in not_applicable.items()]
    return [*lines, "", *_describe_ground(answer), *unasked]


def _describe_set(outcome: "SetAnswer", *, titled: bool) -> Iterator[str]:
    if titled:
        yield PaintedLine(Span(f"{outcome.label}: "), Span(str(outcome.verdict), _COLOURS[str(outcome.verdict)]))
    if outcome.label:
        yield from (f"{'  ' if titled else ''}{line}" for line in _describe_tallies(outcome, only_caused=True))
    else:
        yield from _describe_tallies(outcome)
    if outcome.capacity.after > 0:
        yield (
            f"{'  ' if titled else ''}capacity that cannot be written to: {outcome.capacity.before:.1f} % → "
            f"{outcome.capacity.after:.1f} % (at most {outcome.capacity.most:g} %)"
        )


def _describe_tallies(outcome: "SetAnswer", *, only_caused: bool = False) -> list[str]:
    lines = []
    for impact, tally in outcome.impacts.items():
        if only_caused and impact not in outcome.caused:
            continue
        numbers = ""
        if tally.segments:
            entries = f", {count_noun(tally.entries, 'entry', 'entries')}" if tally.entries else ""
            numbers = f" {count_noun(tally.segments, 'segment')} of {count_noun(tally.ledgers, 'ledger')}{entries};"
        extra = ""
        if impact == Impact.WRITE_AVAILABILITY_LOSS and outcome.new_ledgers:
            extra = f"; no ensemble for new ledgers of {', '.join(outcome.new_ledgers)}"
        if impact == Impact.METADATA_QUORUM and outcome.quorum is not None:
            extra = f"; {outcome.quorum.left} of {outcome.quorum.servers} stay, {outcome.quorum.needs} are needed"
        lines.append(f"{impact}:{numbers} {WORDS[impact]}{extra}")
    return lines


def describe_segment_impact(segment: "SegmentImpact") -> Iterator[str]:
    """Yield what becomes of one segment, and a table of its bookies by failure domain."""
    entries = f"entries {segment.first} to {segment.last}"
    if segment.last is None:
        entries = f"entries from {segment.first} on"
    elif segment.last < segment.first:
        entries = "no entry"
    owner = f" ({segment.owner}; critical: {segment.kind})" if segment.owner else ""
    when = " already" if segment.already else f" by {segment.target}" if segment.target else ""
    impacts = ", ".join(segment.impacts)
    yield PaintedLine(
        Span(f"ledger {segment.ledger}{owner}, {entries}, {segment.shape}: "),
        Span(impacts, "yellow" if segment.already else "red"),
        Span(when),
    )
    copies = segment.copies
    lost = ""
    if segment.would_lose:
        places = f" on {count_noun(segment.would_lose_domains, 'rack')}" if segment.would_lose_domains else ""
        lost = f"; may lose {count_noun(segment.may_lose, 'bookie')}, would lose {segment.would_lose}{places}"
    yield f"  copies of the worst entry: {copies.before} → {copies.after} (needs {copies.needs}){lost}"
    if Impact.RECOVERY_LOSS in segment.impacts:
        answers = segment.answers
        yield f"  answers to a recovery: {answers.before} → {answers.after} (needs {answers.needs})"
    if {Impact.WRITE_AVAILABILITY_LOSS, Impact.REBUILDING_STALL} & set(segment.impacts):
        yield (
            f"  positions that want another bookie: {segment.wanted}; bookies outside of the ensemble that can be "
            f"written to: {max(segment.outside, 0)}"
        )
    yield (
        f"  its bookies that can be read from: {segment.readable.before} → {segment.readable.after}; "
        f"written to: {segment.writable.before} → {segment.writable.after}"
    )
    by_domain: dict[str, list[EnsembleMember]] = {}
    for member in segment.members:
        by_domain.setdefault(member.domain, []).append(member)
    width = max(len(domain) for domain in by_domain)
    for domain, members in sorted(by_domain.items()):
        spans = [Span(f"  {domain:{width}}")]
        for member in members:
            spans += [Span(f"   {member.bookie} "), *_describe_state(member)]
        yield PaintedLine(*spans)


def _describe_state(member: "EnsembleMember") -> list[Span]:
    if member.before != member.after:
        return [Span(f"{member.before} → {member.after}", "yellow")]
    return [Span(member.after, _STATE_COLOURS.get(member.after, "red"))]


def _describe_drill(drill: Sequence["SetAnswer"]) -> Iterator[str]:
    width = max(len(outcome.label) for outcome in drill)
    for outcome in drill:
        caused = []
        for impact in outcome.caused:
            worse = outcome.impacts[impact].worse
            caused.append(f"{impact} {count_noun(worse, 'segment')}" if worse else impact)
        yield PaintedLine(
            Span(f"  {outcome.label:{width}}  "),
            Span(f"{outcome.verdict:9}", _COLOURS[str(outcome.verdict)]),
            Span(f"  {count_noun(len(outcome.bookies), 'bookie')}{'; ' if caused else ''}{', '.join(caused)}"),
        )


def _describe_ground(answer: "ImpactAnswer") -> Iterator[str]:
    """Yield what the answer rests on, and what could not be told."""
    yield from (f"not told: {reason}" for reason in answer.undecided)
    cache, replication = answer.cache, answer.replication
    if answer.stable > 1:
        yield f"safe in {answer.stable} captures in a row"
    fresh = (
        ", captured for this answer" if cache.is_fresh else "; who is registered was read now" if cache.alive else ""
    )
    yield f"records of {cache.at.isoformat(timespec='seconds')}, {describe_age(cache.age_s)} old{fresh}"
    if not cache.alive:
        yield "registrations in files and captures are not of today: every bookie with a cookie counts as registered"
    if answer.evidence is not None:
        yield from _describe_evidence(answer.evidence)
    states = ", ".join(f"{count} {state}" for state, count in answer.states.items() if count)
    yield f"bookies now: {states or 'none'}"
    if replication.disabled:
        yield "re-replication is disabled: nothing that is lost is copied again"
    elif cache.alive and replication.auditor is None:
        yield "there is no auditor: nothing that is lost is copied again"
    taken = {name for outcome in answer.sets for name in outcome.bookies}
    if replication.candidates and taken.issuperset(replication.candidates):
        yield "auto-recovery runs on these bookies alone: while they are away nothing that is lost is copied again"
    if replication.marked:
        marked = count_noun(replication.marked, "ledger")
        yield f"{marked} marked as under-replicated: marked copies count as lost, unless they were seen since"
    if answer.shapes:
        yield f"new ledgers: of {', '.join(answer.shapes)}"
        if answer.undated:
            undated = count_noun(answer.undated, "ledger")
            yield f"  {undated} without a time of creation may be new: --default-quorum E/W/A names what new ones need"
    else:
        yield "new ledgers: no checked ledger was made in the last day; --default-quorum E/W/A names their quorums"
    for statement in answer.declared:
        reason = f", {statement.reason}" if statement.reason else ""
        yield (
            f"{statement.bookie} was declared unrecoverable on {statement.at} by {statement.by}{reason}: "
            f"if that still holds, add --unrecoverable {statement.bookie}"
        )


def _describe_evidence(evidence: "EvidenceState") -> Iterator[str]:
    covered = evidence.covered
    share = f"{100 * covered.judged / covered.positions:.1f} %" if covered.positions else "none"
    for run in evidence.runs:
        part = "" if run.share[1] == 1 else f", share {run.share[0]} of {run.share[1]}"
        when = run.at.isoformat(timespec="seconds")
        yield f"copies as the scrutiny of {when} saw them, {describe_age(run.age_s)} ago{part}: {run.path}"
        if run.wiped:
            yield f"  wiped bookies, whose copies count as gone: {_list_some(run.wiped)}"
    yield (
        f"copies that are known to exist or to be missing: {share}; of the others records are believed. "
        f"Copies that lack entries: {covered.missing}; marked copies that were seen to be there: {covered.overruled}"
    )


def make_evidence_json(evidence: "EvidenceState") -> dict[str, Any]:
    """Return what is known of copies besides their records."""
    return {
        "runs": [
            {
                "path": run.path,
                "at": run.at.isoformat(),
                "age_s": round(run.age_s, 1),
                "share": list(run.share),
                "wiped": list(run.wiped),
            }
            for run in evidence.runs
        ],
        "inventories": evidence.inventories,
        "copies": evidence.covered.positions,
        "known": evidence.covered.judged,
        "missing": evidence.covered.missing,
        "marks_overruled": evidence.covered.overruled,
    }


def list_not_applicable(answer: "ImpactAnswer", *, asked: bool) -> dict[str, str]:
    """Return the impacts that mean nothing here, and why."""
    reasons = {"SEQUENCING_CAPACITY_LOSS": SEQUENCING}
    if not any(outcome.quorum for outcome in (*answer.sets, *answer.drill)):
        reason = "none of these bookies is on a host of its servers" if asked else "--zookeeper names no server's host"
        reasons[str(Impact.METADATA_QUORUM)] = reason
    return reasons


def make_set_json(outcome: "SetAnswer") -> dict[str, Any]:
    """Return what becomes of the cluster by one set."""
    return {
        "bookies": list(outcome.bookies),
        "verdict": str(outcome.verdict),
        "impacts": {
            impact: {"segments": tally.segments, "ledgers": tally.ledgers, "entries": tally.entries}
            for impact, tally in outcome.impacts.items()
        },
        "caused": list(outcome.caused),
        "capacity_pct": {
            "before": outcome.capacity.before,
            "after": outcome.capacity.after,
            "most": outcome.capacity.most,
        },
        "new_ledgers": list(outcome.new_ledgers),
        "zookeeper": None
        if outcome.quorum is None
        else {"servers": outcome.quorum.servers, "left": outcome.quorum.left, "needs": outcome.quorum.needs},
    }
