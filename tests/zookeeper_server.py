"""A real ZooKeeper server, standalone, from the jars that pyspark brings."""

import importlib.util
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ANSWER_S = 30.0
"""A server on a busy machine answers its first question within this."""


class ZooKeeperServer:
    """One server on 127.0.0.1, on a port of its own, that keeps its data over restarts."""

    def __init__(self, folder: Path, port: int | None = None, *, settings: str = "") -> None:
        self.folder = folder
        self._settings = settings
        self.port = port or _free_port()
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
        self.data_dir.mkdir(parents=True, exist_ok=True)
        config = self.folder / "zoo.cfg"
        config.write_text(
            f"dataDir={self.data_dir}\nclientPortAddress=127.0.0.1\nclientPort={self.port}\ntickTime=500\n"
            "maxSessionTimeout=60000\nmaxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=ruok\n"
            f"{self._settings}\n"
        )
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "java",
                    "-Xmx1g",
                    "-XX:+ExitOnOutOfMemoryError",
                    "-XX:+UseSerialGC",
                    "-Dzookeeper.forceSync=no",
                    "-cp",
                    f"{_jars()}/*",
                    "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                    str(config),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
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
                connection.sendall(b"ruok")
                return connection.recv(4) == b"imok"
        except OSError:
            return False

    def kill(self) -> None:
        """End it as ``kill -9`` does; its data stay."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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
