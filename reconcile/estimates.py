"""How long a step takes: a start, and a share for each thing that it goes through, as the runbook has them.

What this process does in a few seconds it does itself; for what takes longer Spark is started, or where a master is
named.

The machine that measured had two cores, did other things besides, and had servers and disks of its own. A faster one is
faster; a disk that waits, or a store far away, is slower. So a figure is right to a factor of three or so.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class EstimatedStep(StrEnum):
    """A step whose time is known before it begins."""

    LIST = "listing the store"
    """Of each ledger that the store lists; in freeze and thaw."""
    COLLECT = "collect"
    """Of each ledger of a bookie, on a disk that does not seek."""
    RECOVER = "recover"
    """Of each copy of a ledger in the inventories, and each record of the store and of snapshots."""
    SCRUTINIZE = "scrutinize"
    """Of each ledger, whose bookies may be asked."""
    CHECK_IMPACT = "check-impact"
    """Of each ledger."""
    APPLY = "apply"
    """Of each write."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What a step costs: seconds to begin with, and of each thing."""

    start_s: float
    each_s: float


RATES: Final = {
    EstimatedStep.LIST: Rate(1, 0.3e-3),
    EstimatedStep.COLLECT: Rate(1, 0.05e-3),
    EstimatedStep.RECOVER: Rate(10, 5e-6),
    EstimatedStep.SCRUTINIZE: Rate(5, 1e-4),
    EstimatedStep.CHECK_IMPACT: Rate(1, 1e-6),
    EstimatedStep.APPLY: Rate(1, 0.8e-3),
}
HERE_S: Final = 10.0
"""So much is done without Spark, whose start and workers take as long."""
_MINUTE: Final = 60
_HOUR: Final = 3_600


def estimate_s(step: EstimatedStep, things: int) -> float:
    """Return about how many seconds a step takes.

    Args:
        step: which.
        things: how many of what its rate is of.
    """
    rate = RATES[step]
    return rate.start_s + rate.each_s * things


def is_short(step: EstimatedStep, things: int) -> bool:
    """Whether a step is done sooner in this process than by Spark."""
    return RATES[step].each_s * things <= HERE_S


def in_words(seconds: float) -> str:
    """Return a duration as somebody would say it who knows it only about."""
    if seconds < _MINUTE:
        return "less than a minute"
    if seconds < 2 * _HOUR:
        minutes = round(seconds / _MINUTE)
        return f"about {minutes} minute{'s' if minutes > 1 else ''}"
    return f"about {round(seconds / _HOUR)} hours"
