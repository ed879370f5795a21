"""A limit of operations a second is kept, however they come."""

from hypothesis import given
from hypothesis import strategies as st

from backends.pace import Pace


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(0, 5)), min_size=1, max_size=50), st.floats(1, 10_000))
def test_no_more_than_was_allowed(asked: list[tuple[int, float]], ops_s: float) -> None:
    """From any moment on no more is begun than the rate allows, beside the last lot and a tenth of a second's worth."""
    now = 0.0

    def wait(seconds: float) -> None:
        nonlocal now
        assert seconds > 0
        now += seconds

    pace = Pace(ops_s, clock=lambda: now, wait=wait)
    begun: list[tuple[float, int]] = []
    for count, pause in asked:
        now += pause
        pace.take(count)
        begun.append((now, count))
    for first, (since, _) in enumerate(begun):
        passed = sum(count for _, count in begun[first:-1])
        assert passed <= (begun[-1][0] - since + 0.1) * ops_s * (1 + 1e-9) + 1e-6


def test_without_a_limit_nobody_waits() -> None:
    """None is as many as come."""

    def never(_seconds: float) -> None:
        raise AssertionError("nobody waits")

    Pace(None, wait=never).take(10**9)
