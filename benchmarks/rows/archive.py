"""The row of archives: ledgers copied from running bookies, against BookKeeper's own client reading them."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.measure import Cost, beside_servers, python, run
from benchmarks.pairs import Contestant
from benchmarks.rows.row import STAGES, Place, Row, require_whole
from benchmarks.servers.bookies import find_java
from tests.support.cluster import Bookie, Cluster, encoded

_BOOKIES: Final = 3
_ENTRIES: Final = 200
_SIZE: Final = 4 << 10
_SPEED: Final = 1 / 0.8
"""The clock's ratio at 0.8 of the speed."""
_CPU: Final = 0.5


@contextmanager
def _archive(place: Place) -> Iterator[dict[str, Contestant]]:
    java = find_java(place.home, "LedgerReads")
    with (
        tempfile.TemporaryDirectory(prefix="bkmeta-bench-archive-") as folder,
        Cluster(Path(folder, "home")) as cluster,
    ):
        cluster.start_zookeeper("zookeeper", "/ledgers")
        cluster("format", layout="hierarchical")
        for n in range(_BOOKIES):
            cluster.start(Bookie(n, f"bench-{n}", "sorted", [f"b{n}/journal"], [f"b{n}/ledgers"]))
        shape = {"E": _BOOKIES, "W": 2, "A": 2, "digest": "CRC32C", "password": encoded(b""), "custom": {}}
        for _ in range(place.ledgers):
            ledger = cluster("create", **shape)
            cluster("add", ledger=ledger, sizes=[_SIZE] * _ENTRIES, ids=None)
            cluster("close", ledger=ledger)
        uri = f"zk+hierarchical://{cluster.zookeeper}/ledgers"

        def measure(command: list[str]) -> Cost:
            return require_whole(place, beside_servers([cluster.pid], lambda: run(command)))

        yield {
            "archive": lambda: measure(python(STAGES, "archive", uri, place.scratch)),
            "BookKeeper's client": lambda: measure([*java, uri, str(place.ledgers)]),
        }


ROWS: Final = (
    Row(
        "archive",
        _SPEED,
        f"ledgers of {_ENTRIES} entries of {_SIZE >> 10} KiB copied from three running bookies into objects, "
        "by one process, against BookKeeper's own client reading them; both warm",
        2_000,
        _archive,
        cpu_goal=_CPU,
    ),
)
