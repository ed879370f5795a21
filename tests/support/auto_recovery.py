"""BookKeeper's auto-recovery, auditor and replication workers, in processes of their own."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support import jars
from tests.support.cluster import JVM

IMPATIENT: Final = {
    "lostBookieRecoveryDelay": "0",
    "auditorPeriodicBookieCheckInterval": "2",
    "auditorPeriodicCheckInterval": "3",
    "auditorPeriodicReplicasCheckInterval": "3",
    "auditorPeriodicPlacementPolicyCheckInterval": "3",
    "auditorAcquireConcurrentOpenLedgerOperationsTimeoutMSec": "2000",
    "openLedgerRereplicationGracePeriod": "2000",
    "rwRereplicateBackoffMs": "500",
    "readEntryTimeoutSec": "3",
}
"""An auditor that checks everything every few seconds, and workers that wait for nothing."""
FORGIVING: Final = {
    "lostBookieRecoveryDelay": "10",
    "auditorPeriodicBookieCheckInterval": "5",
    "openLedgerRereplicationGracePeriod": "1000",
    "rwRereplicateBackoffMs": "1000",
    "lockReleaseOfFailedLedgerGracePeriod": "1000",
}
"""A bookie that is away for less than ten seconds is not noticed. A replication that failed is tried again at once; by
default that takes five minutes, and of bookies that come and go most ledgers are marked then."""
_APART: Final = {
    "allowLoopback": "true",
    "advertisedAddress": "127.0.0.1",
    "zkTimeout": "10000",
    "httpServerEnabled": "false",
}


@contextmanager
def auto_recovery(
    zookeeper: str, folder: Path, settings: Mapping[str, str] = IMPATIENT, *, root: str = "/ledgers", nodes: int = 1
) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Run replication workers beside a cluster, one of them the auditor.

    Args:
        zookeeper: its address.
        folder: for their configuration and logs.
        settings: of `bk_server.conf`.
        root: of the ledgers.
        nodes: how many workers.
    """
    processes = []
    command = ["java", *JVM, "-cp", jars.class_path(), "org.apache.bookkeeper.replication.AutoRecoveryMain"]
    folder.mkdir(exist_ok=True)
    try:
        for node in range(nodes):
            conf = folder / f"autorecovery-{node}.conf"
            own = {"metadataServiceUri": f"zk+null://{zookeeper}{root}", "bookieId": f"autorecovery-{node}"}
            conf.write_text("".join(f"{key}={value}\n" for key, value in {**own, **_APART, **settings}.items()))
            with conf.with_suffix(".log").open("ab") as log:
                arguments = [*command, "--conf", str(conf)]
                processes.append(subprocess.Popen(arguments, stdout=log, stderr=subprocess.STDOUT))
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()
