"""A Spark cluster of its own: a standalone master and its workers, each a process, from the package pyspark."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyspark

from tests.support.class_archives import list_options
from tests.support.spark_classes import ARCHIVE, BRIEF
from tests.support.waiting import free_port, until

_SPARK: Final = Path(pyspark.__file__).parent
_APART: Final = """
spark=$1 home=$2; shift 2
mkdir -p "$home" && mount --bind "$spark" "$home"
while [ "$1" != -- ]; do mount -t tmpfs none "$1"; shift; done
shift
exec "$@"
"""
"""Starts a program that finds Spark at another place, and some folders empty."""


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """A master and its workers.

    Attributes:
        master: as `spark-submit --master` takes it.
        log: what the master says.
        workers: process ids; each leads a session, which its executors and their Python are of.
    """

    master: str
    log: Path
    workers: Sequence[int]

    def count_applications(self) -> int:
        """Return how many applications got executors here."""
        return self.log.read_text().count("Registered app bkmeta")

    def count_executors(self) -> int:
        """Return how many executors were launched."""
        return self.log.read_text().count("Launching executor app-")

    def count_removed(self) -> int:
        """Return how many applications are gone."""
        return self.log.read_text().count("Removing app app-")

    def kill_worker(self, session: int) -> None:
        """End a worker with everything that it started, as a host ends that loses its power."""
        assert session in self.workers
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(ProcessLookupError):
                if os.getsid(int(folder.name)) == session:
                    os.kill(int(folder.name), signal.SIGKILL)


@contextmanager
def spark_cluster(
    folder: Path,
    *,
    workers: int = 1,
    cores: int = 2,
    environment: Mapping[str, str] | None = None,
    hidden: Sequence[Path] = (),
) -> Iterator[SparkCluster]:
    """Give a cluster that takes applications.

    Args:
        folder: for its logs, and what executors write.
        workers: how many.
        cores: of each.
        environment: of the workers and what they start, besides this process's.
        hidden: folders that workers find empty; needs the right to mount.
    """
    folder.mkdir()
    port = free_port()
    log = folder / "master.log"
    # Executors are told by their worker's environment alone.
    surroundings = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "JAVA_TOOL_OPTIONS": " ".join((BRIEF, *list_options(ARCHIVE))),
    }
    with ExitStack() as stack:

        def start(kind: str, name: str, env: Mapping[str, str], *words: str) -> int:
            home = folder / "spark" if hidden and kind == "Worker" else _SPARK
            line = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind.lower()}.{kind}"]
            line += ["--host", "127.0.0.1", *words]
            if home is not _SPARK:
                apart = ["unshare", "--mount", "sh", "-euc", _APART, "sh", str(_SPARK), str(home)]
                line = [*apart, *map(str, hidden), "--", *line]
            output = stack.enter_context((folder / f"{name}.log").open("wb"))
            process = subprocess.Popen(
                line,
                cwd=folder,
                env={**env, "SPARK_HOME": str(home)},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process.pid

        start("Master", "master", surroundings, "--port", str(port), "--webui-port", "0")
        master = f"spark://127.0.0.1:{port}"
        own = {**surroundings, **(environment or {})}
        words = ("--cores", str(cores), "--memory", "2g", "--webui-port", "0", "--work-dir", str(folder), master)
        started = [start("Worker", f"worker-{number}", own, *words) for number in range(workers)]
        until(lambda: log.read_text().count("Registering worker") == workers, "the workers are known to the master")
        yield SparkCluster(master, log, started)
