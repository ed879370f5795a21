"""Pulsar's driver of BookKeeper's metadata, and the BookKeeper that it brings, in place of the released one."""

from pathlib import Path
from typing import Final

from tests.golden.cases import cache_home
from tests.real import jars

_POM: Final = jars.SOURCES / "pulsar-bookie" / "pom.xml"
DRIVER: Final = "org.apache.pulsar.metadata.bookkeeper.PulsarMetadataBookieDriver"
_LOG4J: Final = """<Configuration status="error"><Appenders><Console name="c" target="SYSTEM_ERR">
<PatternLayout pattern="%d %p %t %c{1} %m%n%throwable{3}"/></Console></Appenders>
<Loggers><Root level="warn"><AppenderRef ref="c"/></Root></Loggers></Configuration>"""


def class_path() -> str:
    """Return the class path of the driver of tests, with Pulsar's jars."""

    def copy(target: Path) -> None:
        goal = "dependency:copy-dependencies"
        command = ["mvn", "-B", "-q", "-f", str(_POM), goal, f"-DoutputDirectory={target}"]
        jars._run("fetching Pulsar's driver", command, attempts=3)

    library = jars._made_once(cache_home() / f"pulsar-bookie-{jars._digest(_POM.read_bytes())}", copy)
    return f"{jars.class_path().split(':')[0]}:{library}/*"


def options(folder: Path) -> list[str]:
    """Return what the JVM needs to know: the driver, and that warnings are to be logged."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "log4j2.xml"
    config.write_text(_LOG4J)
    return [f"-Dbookkeeper.metadata.bookie.drivers={DRIVER}", f"-Dlog4j2.configurationFile={config}"]
