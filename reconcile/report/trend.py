"""How findings went over the last scrutinies, as bars."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

WIDTH: Final = 600
HEIGHT: Final = 90
UNDECIDABLE: Final = 4
"""Exit code of a scrutiny without findings that judged too few copies (docs/operations/exit-codes.md)."""


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """One scrutiny in the picture.

    Attributes:
        at: its end, ISO 8601.
        failing: findings to act on; None: it came to no verdict.
        covered_pct: percent of the copies that were judged.
        exit_code: of the run.
    """

    at: str
    failing: int | None
    covered_pct: float | None
    exit_code: int


@dataclass(frozen=True, slots=True)
class TrendBar:
    """A scrutiny as a bar: its place and size in the picture, its kind, and its words."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    words: str


def draw_trend(trend: Sequence[TrendPoint]) -> list[TrendBar]:
    """Return a bar for each scrutiny: as high as its findings, low and green without any, grey if not known."""
    most = max((point.failing or 0 for point in trend), default=0)
    step = WIDTH / max(len(trend), 12)
    bars = []
    for place, point in enumerate(trend):
        covered = "" if point.covered_pct is None else f", {point.covered_pct:.1f} % of the copies judged"
        if point.failing is None:
            kind, share, words = "none", 0.05, f"no verdict, exit code {point.exit_code}"
        elif point.failing:
            kind, share, words = "found", 0.1 + 0.9 * point.failing / most, f"{point.failing} to act on{covered}"
        elif point.exit_code == UNDECIDABLE:
            kind, share, words = "none", 0.05, f"nothing found, too little judged{covered}"
        else:
            kind, share, words = "clean", 0.05, f"none to act on{covered}"
        height = share * HEIGHT
        bars.append(TrendBar(place * step, HEIGHT - height, step * 0.8, height, kind, f"{point.at}: {words}"))
    return bars
