"""The page of the service: the leader, the runs, the findings, and the trend over the last runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from reconcile.findings.view import FindingView
from reconcile.report.pages import make_environment
from reconcile.report.trend import HEIGHT, WIDTH, TrendPoint, draw_trend
from reconcile.words import count_noun

if TYPE_CHECKING:
    from collections.abc import Sequence

FACTS_SHOWN: Final = 3
"""Facts that are shown of a finding."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job in the table: times are words, None where there is none."""

    name: str
    verdict: str
    exit_code: int | None
    ended: str | None
    due: str | None
    missed: int
    broken_off: int
    failures: int


@dataclass(frozen=True, slots=True)
class FindingRow:
    """A finding in the table; `command` explains its ledger, empty without one."""

    finding: FindingView
    command: str


@dataclass(frozen=True, slots=True)
class ServiceView:
    """The content of the page.

    Attributes:
        instance: that shows the page.
        leads: it leads.
        leader: the leading instance.
        ready: the store was seen lately.
        problem: why not.
        made: when.
        rows: of jobs.
        gates: maintenances that are not safe.
        scrutinized: the sum of the last scrutinies; None: there is none here.
        shares: number of these shares, and of all.
        doubts: reasons why missing findings do not prove that all is well; one line each.
        worst: the gravest findings, without notes.
        notes: category → how many findings are notes.
        passed_over: reason → ledgers that were not judged.
        trend: scrutinies, the oldest first.
        backup: which moments the backup can restore now, a sentence; empty: there is no backup.
    """

    instance: str
    leads: bool
    leader: str
    ready: bool
    problem: str
    made: str
    rows: "Sequence[JobRow]"
    gates: "Sequence[Any]"
    scrutinized: Any
    shares: tuple[int, int]
    doubts: "Sequence[str]"
    worst: "Sequence[FindingRow]"
    notes: "Mapping[str, int]"
    passed_over: "Mapping[str, int]"
    trend: "Sequence[TrendPoint]"
    backup: str = ""


def draw_service(view: ServiceView) -> str:
    """Return the page as HTML."""
    failing = view.scrutinized.failing if view.scrutinized is not None else None
    if not view.ready:
        verdict, tone = f"the store is not seen: {view.problem}", "bad"
    elif failing is None:
        verdict, tone = "no scrutiny has come to a verdict yet", "bad"
    elif failing:
        verdict, tone = f"{failing} finding{'' if failing == 1 else 's'} to act on", "bad"
    elif view.doubts:
        verdict, tone = f"no finding to act on, but: {'; '.join(view.doubts)}", "open"
    elif view.scrutinized.passed_over:
        some = count_noun(view.scrutinized.passed_over, "finding")
        verdict, tone = f"nothing to act on; {some} suppressed or lighter than asked for", "open"
    else:
        verdict, tone = "bookies and metadata agree", "good"
    page: str = (
        make_environment()
        .get_template("service.html.j2")
        .render(
            view=view,
            verdict=verdict,
            facts_shown=FACTS_SHOWN,
            tone=tone,
            bars=draw_trend(view.trend),
            width=WIDTH,
            height=HEIGHT,
            most=max((point.failing or 0 for point in view.trend), default=0),
        )
    )
    return page
