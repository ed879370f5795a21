"""Copies of closed ledgers that a scrutiny did not judge, by reason."""

from collections.abc import Mapping
from typing import Any


def list_not_judged(coverage: Mapping[str, Any]) -> dict[str, int]:
    """Return reason → copies; `coverage`: ``positions``, ``judged`` and ``passed`` of a run."""
    passed: dict[str, int] = dict(coverage["passed"])
    undecided = coverage["positions"] - coverage["judged"] - sum(passed.values())
    return {**passed, **({"undecided": undecided} if undecided else {})}


def describe_not_judged(coverage: Mapping[str, Any]) -> str:
    """Return how much was not judged and why, in words; empty: all was judged."""
    asked = coverage["positions"]
    return ", ".join(f"{100.0 * count / asked:.1f} % {why}" for why, count in list_not_judged(coverage).items())


def find_covered_pct(coverage: Mapping[str, Any]) -> float:
    """Return the percent of the copies that were judged."""
    asked: int = coverage["positions"]
    return 100.0 * coverage["judged"] / asked if asked else 100.0
