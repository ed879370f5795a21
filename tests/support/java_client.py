"""A client of the service in Java, its classes generated from the proto, built by Maven into the user's cache."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support import jars
from tests.support.cases import cache_home
from tests.support.paths import ROOT

_FOLDER: Final = jars.SOURCES / "service-client"
_PROTO: Final = ROOT / "proto"
_SERVICE: Final = _PROTO / "reconcile" / "service" / "_pb" / "service.proto"


def class_path() -> str:
    """Return the class path of the client, built if it is not there."""
    sources = [_FOLDER / "pom.xml", _FOLDER / "Client.java", _SERVICE]

    def build(target: Path) -> None:
        goals = ("compile", "dependency:copy-dependencies", f"-DoutputDirectory={target / 'library'}")
        where = (f"-Dproto={_PROTO}", f"-Dout={target / 'build'}")
        command = ["mvn", "-B", "-q", "-f", str(_FOLDER / "pom.xml"), *where, *goals]
        jars._run("building the client", command, attempts=3)

    digest = jars._digest(*(path.read_bytes() for path in sources))
    built = jars._made_once(cache_home() / f"service-client-{digest}", build)
    return f"{built / 'build' / 'classes'}:{built / 'library'}/*"


@contextmanager
def start_client(address: str, ca: Path, token: str, ledgers: Sequence[int]) -> Iterator[subprocess.Popen[str]]:
    """Give a client that deletes ledgers; what it says, and what it waits for, is told in Client.java."""
    command = [
        "java",
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        class_path(),
        "Client",
        address,
        str(ca),
    ]
    client = subprocess.Popen(
        [*command, *map(str, ledgers)],
        env={**os.environ, "BKMETA_SERVICE_TOKEN": token},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield client
    finally:
        client.kill()
        client.communicate()
