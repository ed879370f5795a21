"""What a row is, where it works, and how its stages are called."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.measure import Cost, RunFailedError
from benchmarks.pairs import Contestant, Limits

STAGES: Final = "benchmarks.programs.stages"
"""The module whose commands are the stages."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row works.

    Attributes:
        home: of data that is kept.
        scratch: of what stages write; empty before, removed afterwards.
        ledgers: how many.
        alone: nothing but the stage will run.
        earlier: another checkout, whose same stage runs in place of the floors; None: none.
    """

    home: Path
    scratch: Path
    ledgers: int
    alone: bool = False
    earlier: Path | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A stage and its floor.

    Attributes:
        name: on the command line.
        goal: the ratio to stay at or below.
        cpu_goal: that of CPU seconds, where the clock says more of servers on the same cores; None: there is none.
        compares: what with what, in one line.
        largest: ledgers that growth is looked at up to, and no run is larger unless told.
        open: makes ready; gives the contestants, the stage first and the floor last.
        beside: other contestants that are floors, too, and the ratio to stay at or below.
        has_earlier: whether the stage of another checkout can run in place of the floors.
        fewest: rounds that a figure needs; with one, no round goes before it.
        limits: what each run may take at `largest`, in place of a ratio; None: none.
    """

    name: str
    goal: float
    compares: str
    largest: int
    open: Callable[[Place], AbstractContextManager[dict[str, Contestant]]]
    beside: Mapping[str, float] = field(default_factory=dict)
    has_earlier: bool = False
    fewest: int = 5
    cpu_goal: float | None = None
    limits: Limits | None = None

    @property
    def goals(self) -> str:
        """What ratios, or runs, are to stay at or below, in words."""
        if self.limits is not None:
            return f"each within {self.limits} at {self.largest:,}"
        return f"{self.goal:g}" + ("" if self.cpu_goal is None else f", by CPU {self.cpu_goal:g}")


def require_whole(place: Place, cost: Cost) -> Cost:
    """See that a run did all of its work."""
    if cost.said.get("ledgers") != place.ledgers:
        raise RunFailedError(f"{place.ledgers} ledgers were there, and the run says {dict(cost.said)}")
    return cost
