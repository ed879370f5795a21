"""Outcomes that something else than bookies decides."""

import numpy as np
import pyarrow as pa
import pytest

from reconcile.compare.outcomes import hold_beyond_locks


@pytest.mark.parametrize(("share", "held"), [(9, []), (2, []), (1, [1, 5]), (0, [0, 1, 3, 5])])
def test_guarded_ledgers_beyond_a_buckets_share_of_the_locks_are_held(share: int, held: list[int]) -> None:
    """The first of each bucket get locks; what is restored, or in the store already, needs none."""
    outcomes = ["guarded", "guarded", "restored", "guarded", "guarded", "guarded"]
    rows = pa.table({"bucket": [1, 1, 1, 4, 4, 4], "outcome": outcomes})
    found = hold_beyond_locks(rows, np.array([0, 1, 2, 3, 5]), share)["outcome"].to_pylist()
    assert [place for place, outcome in enumerate(found) if outcome == "held"] == held
