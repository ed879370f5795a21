"""A process that uses grpc starts other programs; the bug of grpc/grpc#43055 ended Spark's Java before it began."""

import subprocess
import sys

import pytest

_STARTS = """
import importlib, subprocess, time
importlib.import_module({first!r})
import grpc
from concurrent import futures
server = grpc.server(futures.ThreadPoolExecutor(2))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
channel = grpc.insecure_channel(f"127.0.0.1:{{port}}")
grpc.channel_ready_future(channel).result(30)
# As PySpark starts Java: a function runs in the child, so Python forks.
ends = [subprocess.run(["/bin/true"], preexec_fn=lambda: time.sleep(0.03)).returncode for _ in range(60)]
print(sorted(set(ends)))
server.stop(None)
"""


@pytest.mark.parametrize("first", ["backends.etcd.channel", "reconcile.service.api.client"])
def test_programs_start_from_a_process_that_uses_grpc(first: str) -> None:
    """All of sixty children end as the program that they became."""
    answer = subprocess.run(
        [sys.executable, "-c", _STARTS.format(first=first)], capture_output=True, text=True, check=True, timeout=300
    )

    assert answer.stdout == "[0]\n", answer.stderr[-500:]
