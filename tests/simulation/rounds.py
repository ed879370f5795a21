"""Clusters of every kind, judged in turn for some minutes: each class, scan, kind of evidence and policy.

    python -m tests.simulation.rounds MINUTES [SEED]

A line a cluster that breaks a guarantee, with what brings it back; at the end, of each kind, how many were judged.
Clusters are small, so that many kinds have their turn: some 500 ledgers in a second of CPU.
"""

import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from recovery.infer.search import Tail
from tests.reconcile.compare.test_decide_histories import decided
from tests.simulation import evidence, judge
from tests.simulation.nasty import NASTY
from tests.simulation.profiles import CLASSES, SCANS, profile_of

_LEDGERS: Final = 250
_NASTY: Final = 100
_BOTH: Final = ("tended", "mixed", "reopened", "rereplicated")
"""Classes that are scanned in each way by each kind of evidence: all together would be 4,000 kinds."""


@dataclass(frozen=True, slots=True)
class _Kind:
    what: str
    name: str
    reconstruct: Callable[..., Any]
    tail: Tail = Tail.INCLUSIVE
    is_snapshot_known: bool = False


def _list_kinds() -> Iterator[_Kind]:
    alone, rest = judge.reconstruct_alone, judge.reconstruct_rest
    every = (*CLASSES, *sorted(NASTY))
    plain = [kind for kind in evidence.KINDS if kind not in evidence.DECIDED]
    for name in every:
        yield _Kind("bookies alone", name, alone)
        for tail in (Tail.OPEN, Tail.ACKNOWLEDGED):
            yield _Kind(f"tail {tail}", name, alone, tail, is_snapshot_known=True)
        for kind in plain:
            yield _Kind("evidence", f"{name}@{kind}", alone)
    for name in CLASSES:
        for scan in SCANS:
            yield _Kind(f"/{scan}", f"{name}/{scan}", alone)
            if scan in ("unscanned", "incomplete", "damaged"):
                yield _Kind("lost", f"{name}/{scan}", rest)
            if name in _BOTH:
                for kind in plain:
                    yield _Kind("scan and evidence", f"{name}/{scan}@{kind}", alone)
        for kind in evidence.KINDS:
            yield _Kind("decided", f"{name}@{kind}", decided)


def main(minutes: float, first: int) -> int:
    """Judge for so many minutes from a seed on; return how many violations there were."""
    until = time.monotonic() + minutes * 60
    kinds = [*_list_kinds()]
    draw = random.Random(first)
    clusters, ledgers, violations = Counter[str](), Counter[str](), Counter[str]()
    seed = first
    while time.monotonic() < until:
        draw.shuffle(kinds)
        for kind in kinds:
            if time.monotonic() >= until:
                break
            own = kind.name.partition("@")[0]
            most = _NASTY if own in NASTY else profile_of(own).ledgers
            tally = judge.judge(
                kind.name,
                seed,
                min(_LEDGERS, most),
                tail=kind.tail,
                is_snapshot_known=kind.is_snapshot_known,
                reconstruct=kind.reconstruct,
            )
            clusters[kind.what] += 1
            ledgers[kind.what] += tally.ledgers
            violations[kind.what] += len(tally.violations)
            for violation in tally.violations:
                sys.stdout.write(f"{kind.what} {kind.name} seed {seed} tail {kind.tail}: {violation}\n")
                sys.stdout.flush()
            seed += 1
    sys.stdout.write(f"seeds {first} to {seed - 1}\n")
    for what in (*sorted(clusters), None):
        sums = [counts[what] if what else counts.total() for counts in (clusters, ledgers, violations)]
        sys.stdout.write(f"| {what or 'all'} | {sums[0]:,} | {sums[1]:,} | {sums[2]:,} |\n")
    return violations.total()


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())) > 0)
