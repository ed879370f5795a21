"""Records that agree with what bookies show are taken as they are: whole columns say what a look at each would say."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recovery.infer import snapshot_records
from recovery.infer.snapshot_agreement import mark_agreeing
from tests.simulation.judge import live, reconstruct_alone


def say(table: pa.Table) -> list[dict[str, Any]]:
    """Return all columns of all rows, but for which members are assumed: of those taken at once, a record says all."""
    rows: list[dict[str, Any]] = table.to_pylist()
    for row in rows:
        for segment in row["segments"] or ():
            del segment["assumed"]
    return rows


@pytest.mark.parametrize(
    "history", ["mixed@now", "mixed@stale", "mixed/damaged@contradicting", "full@foreign", "short@now"]
)
def test_what_is_taken_at_once_is_what_a_look_at_each_would_take(history: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ledgers to which anything happened, beside records that are true, old, wrong or of another cluster."""
    _, inventory, evidence, _ = live(history, 3, 60)
    at_once = reconstruct_alone(inventory, evidence=evidence)
    agreeing = []

    def look_at_each(*given: object) -> object:
        agreeing.append(mark_agreeing(*given))  # type: ignore[arg-type]  # what it is given
        return np.zeros_like(agreeing[-1])

    monkeypatch.setattr(snapshot_records, "mark_agreeing", look_at_each)
    assert say(reconstruct_alone(inventory, evidence=evidence)) == say(at_once)
    assert agreeing[0].any() or "foreign" in history
