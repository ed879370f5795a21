"""Bookies as on hosts of their own: each a process, which can be stopped, killed and left to collect garbage."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support import jars
from tests.support.cluster import JVM, Bookie
from tests.support.waiting import free_port

_STORAGES: Final = {
    "sorted": "SortedLedgerStorage",
    "interleaved": "InterleavedLedgerStorage",
    "db": "storage.ldb.DbLedgerStorage",
}
_CONF: Final = """metadataServiceUri={uri}
bookieId={bookie.id}
bookiePort={port}
listeningInterface=lo
advertisedAddress=127.0.0.1
allowLoopback=true
journalDirectories={journals}
ledgerDirectories={ledgers}
ledgerStorageClass=org.apache.bookkeeper.bookie.{storage}
minorCompactionInterval=0
majorCompactionInterval=0
autoRecoveryDaemonEnabled=false
diskUsageThreshold=0.99
diskUsageWarnThreshold=0.99
httpServerEnabled=false
entryLogFilePreallocationEnabled=false
journalMaxSizeMB=1
"""


_MAIN: Final = "org.apache.bookkeeper.server.Main"


class BookieProcess:
    """One bookie; started when made.

    Args:
        bookie: its folders are relative to `home`, as its cookie has them.
        home: of the cluster.
        conf: its configuration is written there; the log stands beside it.
        uri: of the store.
        settings: more of its configuration.
        options: more of its virtual machine.
    """

    def __init__(
        self,
        bookie: Bookie,
        home: Path,
        conf: Path,
        uri: str,
        settings: Mapping[str, object],
        *,
        options: Sequence[str] = (),
    ) -> None:
        self.bookie = bookie
        self.conf = conf
        self._port = bookie.port or free_port()
        text = _CONF.format(
            uri=uri,
            bookie=bookie,
            port=self._port,
            journals=",".join(bookie.journals),
            ledgers=",".join(bookie.ledgers),
            storage=_STORAGES[bookie.storage],
        )
        conf.write_text(text + "".join(f"{name}={value}\n" for name, value in settings.items()))
        command = ["java", *JVM, *options, "-cp", jars.class_path(), _MAIN, "--conf", str(conf)]
        with conf.with_suffix(".log").open("wb") as log:
            self._process = subprocess.Popen(command, cwd=home, stdout=log, stderr=subprocess.STDOUT)

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def answers(self) -> bool:
        """Return whether somebody can connect to it; one that waits for an earlier session to end resets what comes."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def stop(self) -> None:
        """Let it write what it has in memory, and end."""
        self._process.terminate()
        self._process.wait()

    def pause(self) -> None:
        """Do what `kill -STOP` does."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def kill(self) -> None:
        """Do what `kill -KILL` does, and wait until it is gone."""
        self._process.kill()
        self._process.wait()


@contextmanager
def running(processes: Sequence[BookieProcess]) -> Iterator[Sequence[BookieProcess]]:
    """Give processes that are gone afterwards."""
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
