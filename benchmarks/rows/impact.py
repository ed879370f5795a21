"""The row about the impact check: every rack taken alone, against reading the same columns."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from benchmarks.data import catalogs, impacts
from benchmarks.data.cache import kept
from benchmarks.measure import python, run
from benchmarks.pairs import Contestant
from benchmarks.rows.row import STAGES, Place, Row, require_whole


@contextmanager
def _impact(place: Place) -> Iterator[dict[str, Contestant]]:
    folder = kept(place.home, impacts.write, place.ledgers, catalogs) / impacts.CATALOG
    stages = {"check-impact": lambda: require_whole(place, run(python(STAGES, "impact", folder)))}
    if not place.alone:
        stages |= {
            "by Spark, its start included": lambda: require_whole(place, run(python(STAGES, "impact-spread", folder))),
            "pyarrow, one pass": lambda: require_whole(place, run(python(STAGES, "impact-pass", folder))),
        }
    yield stages


ROWS: Final = (
    Row(
        "impact",
        5.0,
        "`check-impact --drill rack` of a capture, by one process, against pyarrow that reads the same columns and "
        "counts how often each bookie is named",
        1_000_000,
        _impact,
    ),
)
