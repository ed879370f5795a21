"""The page of the service: who leads, what was run, what was found, and how that went over the last runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from reconcile.report.pages import make_environment

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH: Final = 600
_HEIGHT: Final = 90


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job in the table: times are ISO 8601, None where there is none."""

    name: str
    verdict: str
    exit_code: int | None
    ended: str | None
    due: str | None
    missed: int
    broken_off: int
    failures: int


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """One scrutiny in the picture.

    Attributes:
        at: its end, ISO 8601.
        failing: findings to act on; None: it came to no verdict.
        covered_pct: percent of the copies that were judged.
        exit_code: of it.
    """

    at: str
    failing: int | None
    covered_pct: float | None
    exit_code: int


@dataclass(frozen=True, slots=True)
class ServiceView:
    """What is shown.

    Attributes:
        instance: that shows it.
        leads: it leads.
        leader: who does.
        ready: the store was seen lately.
        problem: why not.
        made: ISO 8601.
        rows: of jobs.
        gates: maintenances that are not safe.
        scrutinized: the last scrutinies together; None: there is none here.
        shares: how many of how many shares that is.
        worst: findings to act on: severity, category, about, since, suggested.
        trend: scrutinies, the oldest first.
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
    worst: "Sequence[Mapping[str, str]]"
    trend: "Sequence[TrendPoint]"


@dataclass(frozen=True, slots=True)
class TrendBar:
    """A scrutiny as a bar: place and size in the picture, what it is, and its words."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    words: str


def draw_service(view: ServiceView) -> str:
    """Return the page as HTML."""
    failing = view.scrutinized.failing if view.scrutinized is not None else None
    if not view.ready:
        verdict, good = f"the store is not seen: {view.problem}", False
    elif failing is None:
        verdict, good = "no scrutiny has come to a verdict yet", False
    elif failing:
        verdict, good = f"{failing} finding{'' if failing == 1 else 's'} to act on", False
    else:
        verdict, good = "bookies and metadata agree", True
    page: str = (
        make_environment()
        .get_template("service.html.j2")
        .render(
            view=view,
            verdict=verdict,
            good=good,
            bars=draw_trend(view.trend),
            width=_WIDTH,
            height=_HEIGHT,
            most=max((point.failing or 0 for point in view.trend), default=0),
        )
    )
    return page


def draw_trend(trend: "Sequence[TrendPoint]") -> list[TrendBar]:
    """Return a bar for each scrutiny: as high as its findings, low and green without any, grey without a verdict."""
    most = max((point.failing or 0 for point in trend), default=0)
    step = _WIDTH / max(len(trend), 12)
    bars = []
    for place, point in enumerate(trend):
        covered = "" if point.covered_pct is None else f", {point.covered_pct:.1f} % of the copies judged"
        if point.failing is None:
            kind, share, words = "none", 0.05, f"no verdict, exit code {point.exit_code}"
        elif point.failing:
            kind, share, words = "found", 0.1 + 0.9 * point.failing / most, f"{point.failing} to act on{covered}"
        else:
            kind, share, words = "clean", 0.05, f"none to act on{covered}"
        height = share * _HEIGHT
        bars.append(TrendBar(place * step, _HEIGHT - height, step * 0.8, height, kind, f"{point.at}: {words}"))
    return bars
