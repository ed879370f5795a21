"""A Spark cluster of its own: a standalone master and a worker, each a process, from the package pyspark."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.support.waiting import free_port, until

_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """A master and a worker.

    Attributes:
        master: as `spark-submit --master` takes it.
        log: what the master says.
    """

    master: str
    log: Path

    def count_applications(self) -> int:
        """Return how many applications got executors here."""
        return self.log.read_text().count("Registered app bkmeta")

    def count_executors(self) -> int:
        """Return how many executors were launched."""
        return self.log.read_text().count("Launching executor app-")


@contextmanager
def spark_cluster(folder: Path) -> Iterator[SparkCluster]:
    """Give a cluster that takes applications.

    Args:
        folder: for its logs, and what executors write.
    """
    folder.mkdir()
    port = free_port()
    made = SparkCluster(f"spark://127.0.0.1:{port}", folder / "master.log")
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    with ExitStack() as stack:

        def start(name: str, *words: str) -> None:
            log = stack.enter_context((folder / f"{name.lower()}.log").open("wb"))
            line = [str(_CLASS), f"org.apache.spark.deploy.{name.lower()}.{name}", "--host", "127.0.0.1", *words]
            process = subprocess.Popen(line, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT)
            stack.callback(process.wait)
            stack.callback(process.kill)

        start("Master", "--port", str(port), "--webui-port", "0")
        start("Worker", "--cores", "2", "--memory", "2g", "--webui-port", "0", "--work-dir", str(folder), made.master)
        until(lambda: "Registering worker" in made.log.read_text(), "the worker is known to the master")
        yield made
