"""Logs of containers that the code of Pravega's segment store writes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.support import jars
from tests.support.pulsar import library, run_program

_LOGS: Final = jars.SOURCES / "pravega"
_QUIET: Final = """<configuration><root level="off"/></configuration>"""


def write_logs(zookeeper: str, namespace: str, root: str, folder: Path) -> Mapping[str, list[int]]:
    """Write the logs of some containers (java/pravega/Logs.java); return the ledgers of each.

    Args:
        zookeeper: of a cluster with three bookies at least, ``host:port``.
        namespace: of Pravega in it, without a slash at its begin.
        root: the ledgers root.
        folder: for settings of the JVM.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "logback.xml"
    config.write_text(_QUIET)
    jars_of = library(_LOGS / "pom.xml")
    words = (f"-Dlogback.configurationFile={config}", "-cp", f"{jars_of}/*", str(_LOGS / "Logs.java"))
    return run_program("Pravega's logs", *words, zookeeper, namespace, root)
