"""Runs of a stage and of its floor in turns, and what they come to.

Times of one run say nothing on a machine that is shared; the ratio of two that were taken right after each other does.
So contestants take turns, A B A B …, and the ratio is the median over the rounds. One round goes before that counts for
nothing but a line of its own: caches and compilers are cold in it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from statistics import median
from typing import Final

from benchmarks.measure import BUSIEST, SERVERS, Cost

Contestant = Callable[[], Cost]
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Result:
    """What a row came to at one size.

    Attributes:
        ledgers: how many.
        first: the round before those that count; None: there was none.
        rounds: of each contestant; the last one is the floor.
    """

    ledgers: int
    first: Mapping[str, Cost] | None
    rounds: Mapping[str, list[Cost]]

    def ratios(
        self, name: str, of: Callable[[Cost], float] = attrgetter("seconds"), floor_name: str | None = None
    ) -> list[float]:
        """Return, round by round, how many times a floor's seconds, or what else is said, a contestant took."""
        floor = self.rounds[floor_name] if floor_name else list(self.rounds.values())[-1]
        return [of(one) / of(other) for one, other in zip(self.rounds[name], floor, strict=True)]

    def peaks(self, name: str) -> dict[str, int]:
        """Return the peak memory of a contestant's largest process of each kind, over all rounds."""
        found: dict[str, int] = {}
        for cost in (*(() if self.first is None else (self.first[name],)), *self.rounds[name]):
            for kind, peak in cost.peaks.items():
                found[kind] = max(found.get(kind, 0), peak)
        return found


def in_turns(contestants: Mapping[str, Contestant], ledgers: int, rounds: int, *, warm: bool = True) -> Result:
    """Let contestants take turns, after a round that does not count where they are to be warm."""
    first = {name: run() for name, run in contestants.items()} if warm else None
    taken: dict[str, list[Cost]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            taken[name].append(run())
    return Result(ledgers, first, taken)


_COLUMNS: Final = f"{'':24}{'min s':>9}{'median s':>10}{'ledgers/s':>12}{'ratio':>8}{'cpu s':>8}{'ratio':>8}  peak MiB"


def table(result: Result) -> list[str]:
    """Return a result as lines of text."""
    lines = [_COLUMNS]
    for name, costs in result.rounds.items():
        seconds = [cost.seconds for cost in costs]
        middle = median(seconds)
        lines.append(
            f"{name:24}{min(seconds):9.2f}{middle:10.2f}{result.ledgers / middle:12,.0f}"
            f"{median(result.ratios(name)):8.2f}{median(cost.cpu_s for cost in costs):8.2f}"
            f"{median(result.ratios(name, attrgetter('cpu_s'))):8.2f}  {_shown(result.peaks(name))}"
        )
    names = list(result.rounds)
    lines.append(f"{'ratios, round by round':24}" + " ".join(f"{ratio:.2f}" for ratio in result.ratios(names[0])))
    if result.first is not None:
        first = ", ".join(f"{name} {cost.seconds:.2f} s" for name, cost in result.first.items())
        lines.append(f"{'first round, not counted':24}  {first}")
    return lines


def beside(result: Result, goals: Mapping[str, float]) -> list[str]:
    """Return how the stage stands to other floors than the last one, each with its goal."""
    stage = next(iter(result.rounds))
    return [
        f"to {name}: {median(result.ratios(stage, floor_name=name)):.2f}, "
        f"cpu {median(result.ratios(stage, attrgetter('cpu_s'), name)):.2f}; goal {goal:g}"
        for name, goal in goals.items()
    ]


def served(result: Result) -> list[str]:
    """Return what the servers used that contestants asked, on the same cores; nothing where there were none."""
    medians = {
        name: [median(cost.said[what] for cost in costs) for what in (SERVERS, BUSIEST)]
        for name, costs in result.rounds.items()
        if all(SERVERS in cost.said for cost in costs)
    }
    each = ", ".join(f"{name} {all_s:.2f} ({busiest_s:.2f})" for name, (all_s, busiest_s) in medians.items())
    return [f"cpu s of the servers meanwhile (of their busiest thread), median: {each}"] if medians else []


@dataclass(frozen=True, slots=True)
class Limits:
    """What each contestant but the floor may take, whatever the floor does.

    Attributes:
        seconds: of a run.
        peak: bytes of its largest process.
    """

    seconds: float
    peak: int

    def __str__(self) -> str:
        return f"{self.seconds:g} s and {self.peak / _MIB:,.0f} MiB"


def held_to(result: Result, limits: Limits) -> list[str]:
    """Return which contestants stay within limits, and which do not, by the longest run of each."""
    lines = []
    for name, costs in list(result.rounds.items())[:-1]:
        seconds, peak = max(cost.seconds for cost in costs), max(result.peaks(name).values())
        verdict = "within" if seconds <= limits.seconds and peak <= limits.peak else "MISSED:"
        lines.append(f"{name}: {seconds:.1f} s, {peak / _MIB:,.0f} MiB; {verdict} {limits}")
    return lines


_GROWTH_COLUMNS: Final = f"{'':24}{'ledgers':>12}{'median s':>10}{'cpu s':>9}{'µs each':>9}{'µs more':>9}  peak MiB"


def growth(results: list[Result]) -> list[str]:
    """Return how time and memory of every contestant grow from the smallest size to the largest.

    Beside the CPU time of each ledger stands that of each one more than at the size before, which knows no start.
    """
    lines = [_GROWTH_COLUMNS]
    for name in results[0].rounds:
        before: tuple[int, float] | None = None
        for result in results:
            costs = result.rounds[name]
            cpu = median(cost.cpu_s for cost in costs)
            more = "" if before is None else f"{(cpu - before[1]) / (result.ledgers - before[0]) * 1e6:.1f}"
            lines.append(
                f"{name if before is None else '':24}{result.ledgers:12,}{median(c.seconds for c in costs):10.2f}"
                f"{cpu:9.2f}{cpu / result.ledgers * 1e6:9.1f}{more:>9}  {_shown(result.peaks(name))}"
            )
            before = result.ledgers, cpu
    return lines


def _shown(peaks: Mapping[str, int]) -> str:
    return ", ".join(f"{peak / _MIB:.0f} {kind}".rstrip() for kind, peak in sorted(peaks.items()))
