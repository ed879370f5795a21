"""A real ZooKeeper, and the plain Java client that stages are compared with, from the jars that pyspark brings."""

import hashlib
import importlib.util
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from benchmarks.measure import RunFailedError

BATCH: Final = 100
"""Creates in a transaction."""
BATCHES: Final = 10
"""Transactions in flight."""
READS: Final = 1000
"""Reads in flight."""

_SOURCE: Final = Path(__file__).with_name("java") / "ZkClient.java"
_CLIENT_MEMORY: Final = "-Xmx1g"
_SERVER_MEMORY: Final = "-Xmx3g"
_PATIENCE_S: Final = 60.0


def _jars() -> str:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise RunFailedError("pyspark is not installed: it brings ZooKeeper")
    return f"{Path(found.origin).parent / 'jars'}/*"


def client(home: Path) -> list[str]:
    """Return the command of the Java client, which is compiled first if it is not there.

    Args:
        home: where benchmarks keep their data.
    """
    classes = home / f"java-{hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:12]}"
    path = f"{classes}:{_jars()}"
    if not classes.exists():
        with tempfile.TemporaryDirectory(dir=home) as made:
            subprocess.run(["javac", "-cp", path, "-d", f"{made}/classes", str(_SOURCE)], check=True)
            Path(made, "classes").replace(classes)
    return ["java", _CLIENT_MEMORY, "-cp", path, "ZkClient"]


def formatter(snapshot: Path) -> list[str]:
    """Return the command that prints a snapshot as JSON, by ZooKeeper's own reader."""
    return ["java", "-cp", _jars(), "org.apache.zookeeper.server.SnapshotFormatter", "-json", str(snapshot)]


def log_formatter(log: Path) -> list[str]:
    """Return the command that prints a transaction log, by ZooKeeper's own reader."""
    return ["java", "-cp", _jars(), "org.apache.zookeeper.server.persistence.TxnLogToolkit", "-d", str(log)]


@contextmanager
def server(kept: Path | None = None) -> Iterator[str]:
    """Run a standalone server with nothing in it, and give what clients connect to.

    It keeps its log in the usual way, and makes no snapshot meanwhile.

    Args:
        kept: where its folder ``data`` is and stays; None: a folder that is removed.
    """
    with ExitStack() as stack:
        made = stack.enter_context(tempfile.TemporaryDirectory(prefix="bkmeta-bench-zk-"))
        folder = made if kept is None else kept
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        config = Path(folder, "zoo.cfg")
        config.write_text(
            f"dataDir={folder}/data\nclientPortAddress=127.0.0.1\nclientPort={port}\ntickTime=2000\n"
            "maxClientCnxns=0\nadmin.enableServer=false\nautopurge.purgeInterval=0\n4lw.commands.whitelist=ruok\n"
        )
        command = ["java", _SERVER_MEMORY, "-XX:+UseSerialGC", "-Dzookeeper.snapCount=100000000", "-cp", _jars()]
        command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]
        with Path(folder, "server.log").open("wb") as log:
            running = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            _await(running, port)
            yield f"127.0.0.1:{port}"
        finally:
            running.kill()
            running.wait()


def _await(running: "subprocess.Popen[bytes]", port: int) -> None:
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
                connection.sendall(b"ruok")
                if connection.recv(4) == b"imok":
                    return
        except OSError:
            pass  # it is not there yet
        try:
            running.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            continue
        break
    raise RunFailedError("ZooKeeper did not start")
