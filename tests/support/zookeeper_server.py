"""Real ZooKeeper servers, standalone or an ensemble of three, from the jars that pyspark brings."""

import importlib.util
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.support.class_archives import find_archive, list_options
from tests.support.spark_classes import PYSPARK
from tests.support.waiting import free_port

ARCHIVE: Final = find_archive("zookeeper", PYSPARK)

ANSWER_S = 120.0
"""A server on a busy machine answers its first question within this."""


class ZooKeeperServer:
    """One server on 127.0.0.1, on a port of its own, that keeps its data over restarts.

    Args:
        folder: of its own.
        port: for clients; None: one that is free.
        settings: more lines of zoo.cfg.
        options: more of the JVM's.
    """

    def __init__(
        self, folder: Path, port: int | None = None, *, settings: str = "", options: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        self._settings = settings
        self._options = tuple(options)
        self.port = port or free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def hosts(self) -> str:
        """What a client connects to."""
        return f"127.0.0.1:{self.port}"

    @property
    def data_dir(self) -> Path:
        """Where its snapshots and logs are."""
        return self.folder / "data"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.launch()
        self.await_answer()

    def launch(self) -> None:
        """Start it; the others of an ensemble may have to be started before it answers."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        config = self.folder / "zoo.cfg"
        config.write_text(
            f"dataDir={self.data_dir}\nclientPortAddress=127.0.0.1\nclientPort={self.port}\ntickTime=500\n"
            "maxSessionTimeout=60000\nmaxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=srvr\n"
            f"{self._settings}\n"
        )
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "java",
                    "-Xmx1g",
                    "-XX:+ExitOnOutOfMemoryError",
                    "-XX:+UseSerialGC",
                    "-XX:TieredStopAtLevel=1",
                    "-Dzookeeper.forceSync=no",
                    *list_options(ARCHIVE),
                    *self._options,
                    "-cp",
                    f"{_jars()}/*",
                    "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                    str(config),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def await_answer(self) -> None:
        """Wait until it answers."""
        assert self._process is not None
        for _ in range(int(ANSWER_S / 0.05)):
            if self._answers():
                return
            try:
                self._process.wait(timeout=0.05)
            except subprocess.TimeoutExpired:
                continue
            break
        raise AssertionError(f"ZooKeeper did not start:\n{(self.folder / 'server.log').read_text()}")

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"srvr")
                return b"Zxid" in connection.recv(1 << 12)  # one that has no leader yet answers something else
        except OSError:
            return False

    def restart(self) -> None:
        """Kill it, and start it again."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Have it answer nothing more: what is sent to it from now on waits."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def end(self) -> None:
        """Ask it to end, and wait for that."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait()
        self._process = None

    def kill(self) -> None:
        """End it as ``kill -9`` does; its data stay."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def ensemble(folder: Path) -> Iterator[list[ZooKeeperServer]]:
    """Run three servers that elect a leader; the names of all of them are what a client connects to."""
    ports = [[free_port() for _ in range(3)] for _ in range(3)]
    quorum = "\n".join(f"server.{n}=127.0.0.1:{peer}:{vote}" for n, (_, peer, vote) in enumerate(ports, 1))
    servers = []
    for n, (port, _, _) in enumerate(ports, 1):
        server = ZooKeeperServer(folder / str(n), port, settings=f"initLimit=60\nsyncLimit=30\n{quorum}")
        server.data_dir.mkdir(parents=True)
        (server.data_dir / "myid").write_text(f"{n}\n")
        servers.append(server)
    try:
        for server in servers:
            server.launch()
        for server in servers:
            server.await_answer()
        yield servers
    finally:
        for server in servers:
            server.kill()


def _jars() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        pytest.skip("pyspark is not installed: it brings ZooKeeper's jars")
    if shutil.which("java") is None:
        pytest.skip("Java is not installed")
    return Path(spec.origin).parent / "jars"


@pytest.fixture(scope="session")
def zookeeper_server() -> Iterator[ZooKeeperServer]:
    """One running server for all tests; a test takes a root or a chroot of its own in it."""
    with tempfile.TemporaryDirectory(prefix="bkmeta-zookeeper-") as folder:
        server = ZooKeeperServer(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.kill()
