"""Rows about scrutiny: a whole run against the auditor's own check, the rules alone against reading the same."""

import os
import resource
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.data import catalogs, inventories
from benchmarks.data.cache import kept
from benchmarks.measure import Cost, RunFailedError, beside_servers, count_cpu, python, run, staying
from benchmarks.pairs import Contestant
from benchmarks.rows.row import STAGES, Place, Row, require_whole
from tests.support.bookie_processes import BookieProcess, running
from tests.support.cluster import Bookie, Cluster, encoded
from tests.support.waiting import until

_BOOKIES: Final = 3
_ENTRIES: Final = 20
_SETTINGS: Final = {
    "openFileLimit": 500,
    "gcWaitTime": 86_400_000,
    "journalSyncData": "false",
    "entryLogSizeLimit": 64 << 20,
}
"""Of a bookie: it collects nothing meanwhile, and keeps at most so many files open to write, and as many to read."""
_SERVERS: Final = ("-Xmx4g", "-XX:TieredStopAtLevel=4")
"""ZooKeeper and the auditor in one process, each bookie in its own: a server's memory, and all that Java compiles."""
_OTHER_FILES: Final = 2_000
"""That a bookie has open besides index files."""


@contextmanager
def _whole(place: Place) -> Iterator[dict[str, Contestant]]:
    # A bookie keeps the index file of each ledger that it has listed open (docs/formats/wire.md).
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= limit < (needed := place.ledgers + _OTHER_FILES):
        raise RunFailedError(f"a bookie will have {needed:,} files open, and {limit:,} are allowed: raise `ulimit -n`")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bkmeta-bench-")))
        cluster = stack.enter_context(Cluster(folder / "home", options=_SERVERS))
        cluster.start_zookeeper("zookeeper", "/ledgers")
        cluster("format", layout="hierarchical")
        shape = {"E": 3, "W": 3, "A": 2, "password": encoded(b"")}
        bookies = _start_bookies(cluster, folder, stack)
        if lacking := cluster("fill", count=place.ledgers, entries=_ENTRIES, **shape):
            raise RunFailedError(f"{lacking:,} of {place.ledgers:,} ledgers could not be written")
        for bookie in bookies:
            bookie.stop()  # what stood in memory is in its files then
        pids = [bookie.pid for bookie in _start_bookies(cluster, folder, stack)]
        os.sync()
        uri = f"zk+hierarchical://{cluster.zookeeper}/ledgers"

        # The auditor runs in ZooKeeper's process: CPU seconds are both sides' with what ZooKeeper does for them.
        def scrutinize() -> Cost:
            before = count_cpu(cluster.pid)
            cost = require_whole(place, run(python(STAGES, "scrutinize", uri)))
            return replace(cost, cpu_s=cost.cpu_s + count_cpu(cluster.pid) - before)

        stages = {"scrutinize": lambda: beside_servers(pids, scrutinize)}

        def audit() -> Cost:
            before = count_cpu(cluster.pid)
            answer = cluster("audit_all", rounds=1)
            if answer["said"]:
                raise RunFailedError(f"the auditor says {answer['said']} of a healthy cluster")
            return Cost(answer["seconds"][0], count_cpu(cluster.pid) - before, {}, {})

        audits = {"the auditor's check of replicas": lambda: beside_servers(pids, audit)}
        yield stages if place.alone else stages | audits


def _start_bookies(cluster: Cluster, folder: Path, stack: ExitStack) -> Sequence[BookieProcess]:
    """Start the bookies, which are gone when the stack ends, and wait until they can be written to."""
    started = [
        BookieProcess(
            Bookie(n, f"bk{n}:3181", "sorted", [f"b{n}/journal"], [f"b{n}/ledgers"]),
            folder / "home",
            folder / f"bk{n}.conf",
            f"zk+hierarchical://{cluster.zookeeper}/ledgers",
            _SETTINGS,
            options=_SERVERS,
        )
        for n in range(_BOOKIES)
    ]
    stack.enter_context(running(started))
    for bookie in started:
        until(bookie.answers, f"{bookie.bookie.id} answers")
    return started


@contextmanager
def _rules(place: Place) -> Iterator[dict[str, Contestant]]:
    copies = kept(place.home, inventories.write, place.ledgers)
    stored = kept(place.home, catalogs.write, place.ledgers)
    with ExitStack() as stack:
        product = stack.enter_context(
            staying(python(STAGES, "scrutiny-rules", copies, stored, place.scratch / "scrutiny"))
        )
        stages = {"rules": product.run}
        if not place.alone:
            floor = stack.enter_context(staying(python(STAGES, "scrutiny-read", copies, stored)))
            stages |= {"Spark, pass-through": floor.run}
        yield stages


ROWS: Final = (
    Row(
        "scrutiny",
        0.143,
        "a whole `scrutinize` of three running bookies, capture and lists asked for, against the auditor's check of "
        "replicas of the same cluster, inside a virtual machine that is warm",
        15_000,
        _whole,
    ),
    Row(
        "scrutiny-rules",
        1.5,
        "the rules of `scrutinize` on three copies a ledger and a catalog, verdicts written, against Spark that "
        "reads the same files, hands every row to Python and back, and drops it; both sessions run already",
        1_000_000,
        _rules,
    ),
)
