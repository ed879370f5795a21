"""Rows about scrutiny: a whole run against the auditor's own check, the rules alone against reading the same."""

import os
import resource
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.data import catalogs, inventories
from benchmarks.data.cache import kept
from benchmarks.measure import Cost, count_cpu, python, run, staying
from benchmarks.pairs import Contestant
from benchmarks.rows.row import STAGES, Place, Row, demand_whole
from tests.support.cluster import Bookie, Cluster, encoded

_BOOKIES: Final = 3
_ENTRIES: Final = 20
_OPEN_FILES: Final = {"openFileLimit": "500"}
"""Of three bookies in one process; each keeps as many open to read as to write, and more for a while."""
_SERVERS: Final = ("-Xmx4g", "-XX:TieredStopAtLevel=4")
"""ZooKeeper, three bookies and the auditor: a server's memory, and all that Java compiles."""
_OTHER_FILES: Final = 2_000
"""That the process of all servers has open besides index files."""


@contextmanager
def _whole(place: Place) -> Iterator[dict[str, Contestant]]:
    # A bookie keeps the index file of each ledger that it has listed open (docs/formats/wire.md).
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= limit < (needed := _BOOKIES * place.ledgers + _OTHER_FILES):
        raise ValueError(f"bookies will have {needed:,} files open, and {limit:,} are allowed: raise `ulimit -n`")
    with (
        tempfile.TemporaryDirectory(prefix="bkmeta-bench-") as folder,
        Cluster(Path(folder, "home"), options=_SERVERS) as cluster,
    ):
        cluster.start_zookeeper("zookeeper", "/ledgers")
        cluster("format", layout="hierarchical")
        for n in range(_BOOKIES):
            folders = [f"b{n}/journal"], [f"b{n}/ledgers"]
            cluster.start(Bookie(n, f"bk{n}:3181", "sorted", *folders, props=_OPEN_FILES))
        shape = {"E": 3, "W": 3, "A": 2, "password": encoded(b"")}
        if lacking := cluster("fill", count=place.ledgers, entries=_ENTRIES, **shape):
            raise ValueError(f"{lacking:,} of {place.ledgers:,} ledgers could not be written")
        # An index file a ledger: while they are made, ZooKeeper waits for the same disk, and answers nobody.
        cluster("flush")
        os.sync()
        uri = f"zk+hierarchical://{cluster.zookeeper}/ledgers"

        # The auditor runs in the process of the servers: CPU seconds are both sides' with what the servers do for them.
        def scrutinize() -> Cost:
            before = count_cpu(cluster.pid)
            cost = demand_whole(place, run(python(STAGES, "scrutinize", uri)))
            return replace(cost, cpu_s=cost.cpu_s + count_cpu(cluster.pid) - before)

        stages = {"scrutinize": scrutinize}

        def audit() -> Cost:
            before = count_cpu(cluster.pid)
            answer = cluster("audit_all", rounds=1)
            if answer["said"]:
                raise ValueError(f"the auditor says {answer['said']} of a healthy cluster")
            seconds = answer["seconds"][0]
            return Cost(seconds, count_cpu(cluster.pid) - before, {}, {})

        yield stages if place.alone else stages | {"the auditor's check of replicas": audit}


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
        6_000,
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
