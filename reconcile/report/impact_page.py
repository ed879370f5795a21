"""The report page of an impact check: its verdict, a matrix of failure domains and impacts, segments that are hit."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from reconcile.check.impact.names import Impact
from reconcile.check.impact.sample import EnsembleMember
from reconcile.report.pages import make_environment

if TYPE_CHECKING:
    from reconcile.check.impact.answer import ImpactAnswer, SetAnswer


@dataclass(frozen=True, slots=True)
class Cell:
    """One impact in one row of the matrix: `caused`, `already` or `none`, and the number of segments."""

    kind: str
    segments: int


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """A domain, or a set of bookies, and its impacts in the order of `Impact`."""

    label: str
    bookies: int
    verdict: str
    cells: tuple[Cell, ...]


def impact_page(answer: "ImpactAnswer", *, summary: str, target: str, made: datetime) -> str:
    """Return the page.

    Args:
        answer: of the check.
        summary: the line that the command printed.
        target: the action on the bookies.
        made: an aware time, printed.
    """
    rows = [_make_row("now, with nothing taken", answer.now)]
    rows += [_make_row(outcome.label, outcome) for outcome in answer.sets]
    rows += [] if answer.together is None else [_make_row(answer.together.label, answer.together)]
    page: str = (
        make_environment()
        .get_template("impact.html.j2")
        .render(
            summary=summary,
            target=target,
            made=made.isoformat(timespec="seconds"),
            answer=answer,
            impacts=[str(impact) for impact in Impact],
            rows=rows,
            drill=[_make_row(outcome.label, outcome) for outcome in answer.drill],
            tables=[(segment, _group_members(segment.members)) for segment in answer.sample],
        )
    )
    return page


def _make_row(label: str, outcome: "SetAnswer") -> MatrixRow:
    cells = []
    for impact in map(str, Impact):
        tally = outcome.impacts.get(impact)
        kind = "none" if tally is None else "caused" if impact in outcome.caused and outcome.label else "already"
        cells.append(Cell(kind, 0 if tally is None else tally.segments))
    return MatrixRow(label, len(outcome.bookies), str(outcome.verdict), tuple(cells))


def _group_members(members: Sequence[EnsembleMember]) -> dict[str, list[EnsembleMember]]:
    by_domain: dict[str, list[EnsembleMember]] = {}
    for member in members:
        by_domain.setdefault(member.domain, []).append(member)
    return dict(sorted(by_domain.items()))
