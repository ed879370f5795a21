"""The best assignment, judged by SciPy's: the same pairs, among equals too."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.optimize import linear_sum_assignment

from recovery.infer.assignment import assign_best

SHAPES = arrays.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=9)
FEW_VALUES = st.sampled_from([-1.0, 0.0, 0.1, 1.0, 1.1, 3.0])
"""Many equals: what reconstruction asks is mostly full of them."""


def check(worth: np.ndarray) -> None:
    """Hold one matrix against SciPy."""
    rows, columns = assign_best(worth)
    wanted_rows, wanted_columns = linear_sum_assignment(worth, maximize=True)
    assert rows.tolist() == wanted_rows.tolist()
    assert columns.tolist() == wanted_columns.tolist()


@given(arrays.arrays(np.float64, SHAPES, elements=FEW_VALUES))
def test_equals_are_settled_as_scipy_settles_them(worth: np.ndarray) -> None:
    """More rows than columns, as many, or fewer."""
    check(worth)


@given(arrays.arrays(np.float64, SHAPES, elements=st.floats(-1e6, 1e6, width=32)))
def test_any_worth(worth: np.ndarray) -> None:
    """Numbers of any size, above and below zero."""
    check(worth)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (40, 5), (5, 40), (30, 30)])
def test_sizes(shape: tuple[int, int]) -> None:
    """Nothing at all, and more than any ensemble has."""
    check(np.random.default_rng(7).integers(0, 4, shape).astype(float))
