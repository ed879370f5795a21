"""Fills the cache with what starts Java faster: archives of the classes of Spark, ZooKeeper and bookies.

python -m tests.support.fill_cache
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.support import jars
from tests.support.class_archives import make_archive
from tests.support.cluster import ARCHIVE as OF_CLUSTERS
from tests.support.cluster import Bookie, Cluster, encoded
from tests.support.paths import ROOT
from tests.support.spark_classes import ARCHIVE as OF_SPARK
from tests.support.spark_classes import BRIEF
from tests.support.zookeeper_server import ARCHIVE as OF_ZOOKEEPER
from tests.support.zookeeper_server import ZooKeeperServer

_SESSION: Final = """
from recovery.spark import over_buckets, session
with session("local[2]") as spark:
    over_buckets(spark, lambda buckets: {"first": buckets[0]}, [range(1), range(1, 2)])
"""
_STORAGES: Final = ("interleaved", "sorted", "db")


def _run_spark(options: list[str]) -> str:
    # Java holds stdout, and writes the archive when its session has ended: all is there when the pipe is closed.
    environment = os.environ | {"SPARK_SUBMIT_OPTS": " ".join((BRIEF, *options))}
    done = subprocess.run(
        [sys.executable, "-c", _SESSION], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def _run_zookeeper(options: list[str]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        server = ZooKeeperServer(Path(folder), options=options)
        server.start()
        server.end()
        return (server.folder / "server.log").read_text()


def _run_cluster(options: list[str]) -> str:
    with tempfile.TemporaryDirectory() as folder, Cluster(Path(folder) / "home", options=options) as cluster:
        cluster.start_zookeeper("zookeeper", "/ledgers")
        cluster("format", layout="hierarchical")
        for n, storage in enumerate(_STORAGES):
            cluster.start(Bookie(n, f"bk{n}:3181", storage, [f"b{n}/journal"], [f"b{n}/ledgers"]))
        ledger = cluster("create", E=3, W=3, A=2, digest="CRC32C", password=encoded(b""), custom={})
        cluster("add", ledger=ledger, sizes=[20] * 9, ids=None)
        cluster("close", ledger=ledger)
        cluster.end()
        return cluster.home.with_name(f"{cluster.home.name}.log").read_text()


def main() -> None:
    """Fill it."""
    make_archive(OF_SPARK, _run_spark)
    make_archive(OF_ZOOKEEPER, _run_zookeeper)
    jars.class_path()
    make_archive(OF_CLUSTERS, _run_cluster)


if __name__ == "__main__":
    main()
