"""BookKeeper's own round robin and coverage rule: what the check computes, and what its judge in Python does."""

import subprocess

import numpy as np
import pytest

from reconcile.check.impact.names import CopyHealth
from reconcile.check.impact.segments.columns import NO_END, SegmentColumns, Shape
from reconcile.check.impact.segments.judgement import judge
from tests.support import impact_judge, jars

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def lines() -> list[list[str]]:
    """What BookKeeper's classes say of every ensemble of up to six bookies."""
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", jars.class_path(), "Quorums"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines()]


def make_open(shape: Shape) -> SegmentColumns:
    """One segment that may grow, of bookies 0 to E - 1."""
    zero = np.zeros(1, np.int64)
    yes = np.ones(1, np.bool_)
    return SegmentColumns(
        shape, zero, zero, zero, zero + NO_END, np.arange(shape.ensemble, dtype=np.int32)[:, None], yes, yes
    )


def test_entries_stand_where_bookkeeper_puts_them(lines: list[list[str]]) -> None:
    """Each entry of each shape: it is readable on each of its positions alone, and on no other."""
    placed = [line for line in lines if line[0] == "place"]
    assert len(placed) > 500
    for _, *numbers, positions in placed:
        size, write, ack, entry = map(int, numbers)
        wanted = [int(position) for position in positions.split(",")]
        assert impact_judge.place(entry, (size, write, ack)) == wanted
        segment = make_open(Shape(size, write, ack))
        for only in range(size):
            states = np.full((size, 1), CopyHealth.DOWN, np.int8)
            states[only] = CopyHealth.READ_WRITE
            copies = judge(segment, segment.find_residues(), states).copies[entry % size, 0]
            assert copies == (only in wanted)


def test_a_recovery_needs_what_bookkeeper_asks_for(lines: list[list[str]]) -> None:
    """Every choice of bookies that do not answer."""
    asked = [line for line in lines if line[0] == "covered"]
    assert len(asked) > 2000
    for _, *numbers, covered in asked:
        size, write, ack, silent = map(int, numbers)
        answering = [not silent >> position & 1 for position in range(size)]
        assert impact_judge.is_covered(answering, (size, write, ack)) == (covered == "true")
        segment = make_open(Shape(size, write, ack))
        states = np.where(answering, CopyHealth.READ_WRITE, CopyHealth.DOWN).astype(np.int8)[:, None]
        uncovered = judge(segment, segment.find_residues(), states).uncovered[0]
        assert (uncovered == 0) == (covered == "true")
