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

from benchmarks.measure import Cost

Contestant = Callable[[], Cost]
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Result:
    """What a row came to at one size.

    Attributes:
        ledgers: how many.
        first: the round before those that count.
        rounds: of each contestant; the last one is the floor.
    """

    ledgers: int
    first: Mapping[str, Cost]
    rounds: Mapping[str, list[Cost]]

    def ratios(self, name: str, of: Callable[[Cost], float] = attrgetter("seconds")) -> list[float]:
        """Return, round by round, how many times the floor's seconds, or what else is said, a contestant took."""
        floor = list(self.rounds.values())[-1]
        return [of(one) / of(other) for one, other in zip(self.rounds[name], floor, strict=True)]

    def peaks(self, name: str) -> dict[str, int]:
        """Return the peak memory of a contestant's largest process of each kind, over all rounds."""
        found: dict[str, int] = {}
        for cost in (self.first[name], *self.rounds[name]):
            for kind, peak in cost.peaks.items():
                found[kind] = max(found.get(kind, 0), peak)
        return found


def in_turns(contestants: Mapping[str, Contestant], ledgers: int, rounds: int) -> Result:
    """Let contestants take turns."""
    first = {name: run() for name, run in contestants.items()}
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
        peaks = ", ".join(f"{peak / _MIB:.0f} {kind}".rstrip() for kind, peak in sorted(result.peaks(name).items()))
        lines.append(
            f"{name:24}{min(seconds):9.2f}{middle:10.2f}{result.ledgers / middle:12,.0f}"
            f"{median(result.ratios(name)):8.2f}{median(cost.cpu_s for cost in costs):8.2f}"
            f"{median(result.ratios(name, attrgetter('cpu_s'))):8.2f}  {peaks}"
        )
    names = list(result.rounds)
    lines.append(f"{'ratios, round by round':24}" + " ".join(f"{ratio:.2f}" for ratio in result.ratios(names[0])))
    first = ", ".join(f"{name} {cost.seconds:.2f} s" for name, cost in result.first.items())
    return [*lines, f"{'first round, not counted':24}  {first}"]


def growth(results: list[Result]) -> list[str]:
    """Return how time and memory of every contestant grow from the smallest size to the largest."""
    lines = []
    for name in results[0].rounds:
        cells = []
        for result in results:
            seconds = median(cost.seconds for cost in result.rounds[name])
            peak = max(result.peaks(name).values())
            cells.append(f"{result.ledgers:,}: {seconds:.2f} s, {peak / _MIB:.0f} MiB")
        lines.append(f"{name:24}{' · '.join(cells)}")
    return lines
