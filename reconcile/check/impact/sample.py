"""One damaged segment, with all facts that a person needs to check it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reconcile.check.impact.bookies import BookieColumns, Sets
from reconcile.check.impact.destinations import Destinations
from reconcile.check.impact.hits import NOW
from reconcile.check.impact.names import OF_SEGMENTS, UNKNOWN, CopyHealth, DomainLevel
from reconcile.check.impact.segments.columns import NO_END, SegmentColumns
from reconcile.check.impact.segments.judgement import SegmentJudgement, States, judge


@dataclass(frozen=True, slots=True)
class NumberChange:
    """A number now, afterwards, and as needed."""

    before: int
    after: int
    needs: int


@dataclass(frozen=True, slots=True)
class EnsembleMember:
    """A bookie of an ensemble, in order of position, and its states."""

    bookie: str
    domain: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class SegmentImpact:
    """The effect on one segment.

    Attributes:
        ledger: in its shortest form.
        owner: the part of the upper layer that keeps its own data in the ledger; None: a user's ledger, or not known.
        kind: what the upper layer keeps in it, as `name_kind` returns it: critical; None: likewise.
        segment: its number in the ledger, from 0.
        first, last: entries; `last` is None where it may still grow.
        shape: E/W/A.
        target: the set that is taken; None: nothing is.
        impacts: names.
        already: nothing of this is because of the target.
        copies: readable ones of the entries with the fewest.
        may_lose, would_lose: bookies of those copies.
        would_lose_domains: number of known failure domains of the copies that would be lost.
        answers: of the worst run of W positions, for a recovery.
        readable, writable: bookies of the ensemble, from and to; `needs` for writing is E, for reading 1.
        wanted, outside: positions that want another bookie, and how many outside the ensemble can be written to.
        members: of the ensemble.
    """

    ledger: str
    owner: str | None
    kind: str | None
    segment: int
    first: int
    last: int | None
    shape: str
    target: str | None
    impacts: tuple[str, ...]
    already: bool
    copies: NumberChange
    may_lose: int
    would_lose: int
    would_lose_domains: int
    answers: NumberChange
    readable: NumberChange
    writable: NumberChange
    wanted: int
    outside: int
    members: tuple[EnsembleMember, ...]


def describe_segment(
    segment: SegmentColumns,
    floors: States | None,
    bookies: BookieColumns,
    sets: Sets,
    destinations: Destinations,
    *,
    number: int,
    names: Sequence[str],
    impacts: Sequence[int],
    already: bool,
    level: DomainLevel,
    ledger: str,
    owner: str | None,
    kind: str | None,
) -> SegmentImpact:
    """Return the effect on a segment when a set is taken.

    Args:
        segment: it alone.
        floors: of it, as `judge` takes them.
        bookies: as they are now.
        sets: sets that may be taken.
        destinations: bookies for lost copies.
        number: the set; `NOW`: none.
        names: the members, as the record has them.
        impacts: places in `OF_SEGMENTS`.
        already: nothing of it is because of the set.
        level: failure domains that the members are shown in.
        ledger: in its shortest form.
        owner: as `SegmentImpact` has it.
        kind: likewise.
    """
    current = bookies.states[segment.members]
    changed = current if number == NOW else sets.change(bookies.states, number)[segment.members]
    occurs = segment.find_residues()
    was, becomes = (judge(segment, occurs, states, floors) for states in (current, changed))
    worst = _find_worst(was, becomes, occurs)
    shape = segment.shape
    domains = [bookies.domain_of(member, level) for member in segment.members[:, 0].tolist()]
    copies = [(worst + step) % shape.ensemble for step in range(shape.write)]
    lost = {
        domains[position] for position in copies if current[position, 0] <= CopyHealth.READ_ONLY < changed[position, 0]
    }
    wanted = (becomes.replaced | becomes.copied)[:, 0]
    last = int(segment.last[0])
    readable, writable = (
        NumberChange(int((current <= state).sum()), int((changed <= state).sum()), needs)
        for state, needs in ((CopyHealth.READ_ONLY, 1), (CopyHealth.READ_WRITE, shape.ensemble))
    )
    had, has = int(was.copies[worst, 0]), int(becomes.copies[worst, 0])
    return SegmentImpact(
        ledger,
        owner,
        kind,
        int(segment.number[0]),
        int(segment.first[0]),
        None if last == NO_END else last,
        str(shape),
        None if number == NOW else sets.labels[number],
        tuple(str(OF_SEGMENTS[place]) for place in sorted(set(impacts))),
        already,
        NumberChange(had, has, 1),
        max(had - 1, 0),
        had - has,
        len(lost - {UNKNOWN}),
        NumberChange(int(was.answers[0]), int(becomes.answers[0]), shape.write - shape.ack + 1),
        readable,
        writable,
        int(wanted.sum()),
        destinations.count_outside(number, int(becomes.writable[0])),
        tuple(
            EnsembleMember(name, domain, CopyHealth(old).label, CopyHealth(new).label)
            for name, domain, old, new in zip(
                names, domains, current[:, 0].tolist(), changed[:, 0].tolist(), strict=True
            )
        ),
    )


def _find_worst(was: SegmentJudgement, becomes: SegmentJudgement, occurs: Any) -> int:  # noqa: ANN401 - a mask
    """Return the residue with the fewest copies; of equal ones, the one that loses most."""
    rank = becomes.copies[:, 0].astype(np.int64) * 1000 - was.copies[:, 0]
    return int(np.argmin(np.where(occurs[:, 0] | ~occurs[:, 0].any(), rank, np.iinfo(np.int64).max)))
