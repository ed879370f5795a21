"""Pulsar's driver of BookKeeper's metadata, with the BookKeeper that it brings; and topics that its code writes."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.support import jars
from tests.support.cases import cache_home
from tests.support.cluster import ClusterError

_POM: Final = jars.SOURCES / "pulsar-bookie" / "pom.xml"
_TOPICS: Final = jars.SOURCES / "pulsar-ledgers"
_BROKER: Final = jars.SOURCES / "pulsar-broker"
_PACKAGES: Final = jars.SOURCES / "pulsar-packages" / "Packages.java"
DRIVER: Final = "org.apache.pulsar.metadata.bookkeeper.PulsarMetadataBookieDriver"
_LOG4J: Final = """<Configuration status="error"><Appenders><Console name="c" target="SYSTEM_ERR">
<PatternLayout pattern="%d %p %t %c{1} %m%n%throwable{3}"/></Console></Appenders>
<Loggers><Root level="warn"><AppenderRef ref="c"/></Root></Loggers></Configuration>"""


def library(pom: Path) -> Path:
    """Return the folder of the jars that a pom names."""

    def copy(target: Path) -> None:
        goal = "dependency:copy-dependencies"
        command = ["mvn", "-B", "-q", "-f", str(pom), goal, f"-DoutputDirectory={target}"]
        jars._run("fetching Pulsar", command, attempts=3)

    return jars._made_once(cache_home() / f"{pom.parent.name}-{jars._digest(pom.read_bytes())}", copy)


def class_path() -> str:
    """Return the class path of the driver of tests, with Pulsar's jars."""
    return f"{jars.class_path().split(':')[0]}:{library(_POM)}/*"


def options(folder: Path) -> list[str]:
    """Return what the JVM needs to know: the driver, that warnings are to be logged, and that it lives for seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "log4j2.xml"
    config.write_text(_LOG4J)
    drivers = f"-Dbookkeeper.metadata.bookie.drivers={DRIVER}"
    return ["-XX:TieredStopAtLevel=1", drivers, f"-Dlog4j2.configurationFile={config}"]


def write_topics(zookeeper: str, root: str, folder: Path) -> Mapping[str, Any]:
    """Write topics as a broker does (java/pulsar-ledgers/Ledgers.java), and return what is true of them.

    Args:
        zookeeper: of a cluster with three bookies at least, ``host:port``.
        root: its ledgers root.
        folder: for settings of the JVM.
    """
    return _ledgers(zookeeper, root, folder)


def read_topics(zookeeper: str, root: str, folder: Path, topics: Sequence[str]) -> Mapping[str, list[str]]:
    """Open topics as a broker does that starts anew, and return all entries of each."""
    return _ledgers(zookeeper, root, folder, *topics)


def write_packages(zookeeper: str, root: str, folder: Path) -> Mapping[str, list[int]]:
    """Write packages of functions as a function worker does (java/pulsar-packages/Packages.java); return the truth.

    Args:
        zookeeper: of a cluster with two bookies at least, ``host:port``.
        root: its ledgers root.
        folder: for settings of the JVM.
    """
    words = (*options(folder), "-cp", f"{library(_BROKER / 'pom.xml')}/*", str(_PACKAGES), zookeeper, root)
    return run_program("Pulsar's packages", *words, str(folder))


class Broker:
    """A broker as a process of its own, with topics that were written, offloaded, compacted and deleted through it.

    Attributes:
        truth: the ledgers of its topics (java/pulsar-broker/Broker.java).
    """

    def __init__(self, zookeeper: str, root: str, folder: Path) -> None:
        """Start it, and wait until the topics are written; `folder` has its log.

        Args:
            zookeeper: of a cluster with three bookies at least, ``host:port``.
            root: its ledgers root.
            folder: for settings of the JVM, and for what is offloaded; that of an earlier broker: it goes on with what
                the store has, and writes nothing.
        """
        jars_of = library(_BROKER / "pom.xml")
        command = ["java", "-Xmx768m", *options(folder), "-cp", f"{jars_of}/*", str(_BROKER / "Broker.java")]
        with (folder / "broker.log").open("w") as log:
            self._process = subprocess.Popen(
                [*command, zookeeper, root, str(folder / "offloaded")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._folder = folder
        self.truth = self._take()

    def read_topics(self) -> Mapping[str, Any]:
        """Have it load every topic anew; return what it reads of each."""
        return self._ask("read")

    def write_more(self) -> Mapping[str, Any]:
        """Have it write to a topic that there is, and to a new one; return the new ledgers of both."""
        return self._ask("more")

    def write_shapes(self) -> Mapping[str, Any]:
        """Have it write messages of every shape, and sealed ones; return what a consumer reads, and the ledgers."""
        return self._ask("shapes")

    def grow_topics(self) -> Mapping[str, int]:
        """Have it make two more topics, and write to all that this made; return how many messages each has."""
        return self._ask("grow")

    def _ask(self, line: str) -> Mapping[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._take()

    def close(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.communicate()

    def _take(self) -> Mapping[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                found: Mapping[str, Any] = json.loads(line)
                return found
        self.close()
        raise ClusterError(f"Pulsar's broker ended: {(self._folder / 'broker.log').read_text()[-4000:]}")


def _ledgers(zookeeper: str, root: str, folder: Path, *topics: str) -> Mapping[str, Any]:
    source, jars_of = _TOPICS / "Ledgers.java", library(_TOPICS / "pom.xml")
    words = (*options(folder), "-cp", f"{jars_of}/*", str(source), zookeeper, root, *topics)
    return run_program("Pulsar's program", *words)


def run_program(name: str, *words: str) -> Mapping[str, Any]:
    """Run a program of Java, and return the JSON object that is the last line that it prints.

    Raises:
        ClusterError: it failed.
    """
    done = subprocess.run(["java", "-Xmx512m", *words], capture_output=True, text=True, check=False, timeout=600)
    printed = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not printed:
        raise ClusterError(f"{name} failed: {done.stdout[-1000:]}{done.stderr[-4000:]}")
    found: Mapping[str, Any] = json.loads(printed[-1])
    return found
