"""BookKeeper's auto-recovery, auditor and replication worker, in a process of its own."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support import jars
from tests.support.cluster import JVM, Cluster
from tests.support.waiting import until

_SETTINGS: Final = {
    "bookieId": "autorecovery-0",
    "allowLoopback": "true",
    "advertisedAddress": "127.0.0.1",
    "lostBookieRecoveryDelay": "10",
    "auditorPeriodicBookieCheckInterval": "5",
    "openLedgerRereplicationGracePeriod": "1000",
    "zkTimeout": "10000",
    "httpServerEnabled": "false",
}
"""A bookie that is away for more than ten seconds is repaired, a shorter absence is not noticed."""


@contextmanager
def auto_recovery(cluster: Cluster, folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[None]:
    """Have a cluster on ZooKeeper repaired, from when an auditor is elected.

    Args:
        cluster: its ZooKeeper runs, with a formatted root /ledgers.
        folder: for the configuration and the log.
        settings: of `bk_server.conf`, besides those above or in their place.
    """
    conf = folder / "autorecovery.conf"
    uri = {"metadataServiceUri": f"zk+hierarchical://{cluster.zookeeper}/ledgers"}
    conf.write_text("".join(f"{key}={value}\n" for key, value in {**uri, **_SETTINGS, **(settings or {})}.items()))
    command = ["java", *JVM, "-cp", jars.class_path(), "org.apache.bookkeeper.replication.AutoRecoveryMain"]
    with (folder / "autorecovery.log").open("wb") as log:
        auditor = subprocess.Popen([*command, "--conf", str(conf)], stdout=log, stderr=subprocess.STDOUT)
    votes = "/ledgers/underreplication/auditorelection"
    try:
        until(lambda: any("/V_" in path for path in cluster.nodes(votes)), "an auditor is elected")
        yield
    finally:
        auditor.kill()
        auditor.wait()
