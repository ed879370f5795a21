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
DRIVER: Final = "org.apache.pulsar.metadata.bookkeeper.PulsarMetadataBookieDriver"
_LOG4J: Final = """<Configuration status="error"><Appenders><Console name="c" target="SYSTEM_ERR">
<PatternLayout pattern="%d %p %t %c{1} %m%n%throwable{3}"/></Console></Appenders>
<Loggers><Root level="warn"><AppenderRef ref="c"/></Root></Loggers></Configuration>"""


def _library(pom: Path) -> Path:
    """Return the folder of the jars that a pom names."""

    def copy(target: Path) -> None:
        goal = "dependency:copy-dependencies"
        command = ["mvn", "-B", "-q", "-f", str(pom), goal, f"-DoutputDirectory={target}"]
        jars._run("fetching Pulsar", command, attempts=3)

    return jars._made_once(cache_home() / f"{pom.parent.name}-{jars._digest(pom.read_bytes())}", copy)


def class_path() -> str:
    """Return the class path of the driver of tests, with Pulsar's jars."""
    return f"{jars.class_path().split(':')[0]}:{_library(_POM)}/*"


def options(folder: Path) -> list[str]:
    """Return what the JVM needs to know: the driver, and that warnings are to be logged."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "log4j2.xml"
    config.write_text(_LOG4J)
    return [f"-Dbookkeeper.metadata.bookie.drivers={DRIVER}", f"-Dlog4j2.configurationFile={config}"]


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


def _ledgers(zookeeper: str, root: str, folder: Path, *topics: str) -> Mapping[str, Any]:
    source, library = _TOPICS / "Ledgers.java", _library(_TOPICS / "pom.xml")
    command = ["java", "-Xmx512m", *options(folder), "-cp", f"{library}/*", str(source), zookeeper, root, *topics]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode or not done.stdout:
        raise ClusterError(f"Pulsar's program failed: {done.stdout[-1000:]}{done.stderr[-4000:]}")
    found: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
