"""Bookies and the client of other releases of BookKeeper, in a JVM of their own (java/peers/Peer.java).

${XDG_CACHE_HOME:-~/.cache}/bkmeta/peers-<release>-<hash of java/peers>/    jars, by Maven, and the compiled Peer
"""

import base64
import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.support import jars
from tests.support.cases import cache_home
from tests.support.cluster import JVM, ClusterError

RELEASES: Final = ("4.14.7", "4.16.6", "4.17.2", "4.18.0")
"""The last of each minor release that can be had: of 4.18.2 the parent's pom is missing at Maven Central."""
_FOLDER: Final = jars.SOURCES / "peers"


def class_path(release: str) -> str:
    """Return the class path of a release's Peer, fetched and compiled if it is not there."""
    sources = [_FOLDER / "pom.xml", _FOLDER / "Peer.java"]

    def build(target: Path) -> None:
        goal = ("dependency:copy-dependencies", f"-DoutputDirectory={target / 'library'}", f"-Dbookkeeper={release}")
        jars._run("fetching BookKeeper", ["mvn", "-B", "-q", "-f", str(sources[0]), *goal], attempts=3)
        options = ("-nowarn", "--release", "17", "-cp", f"{target / 'library'}/*", "-d", str(target / "classes"))
        jars._run("compiling the peer", ["javac", *options, str(sources[1])])

    digest = jars._digest(*(path.read_bytes() for path in sources))
    built = jars._made_once(cache_home() / f"peers-{release}-{digest}", build)
    return f"{built / 'classes'}:{built / 'library'}/*"


class Peer:
    """The JVM; folders of its bookies are in `home`, and what it logs beside that. Ends with the `with` block.

    Args:
        release: of BookKeeper.
        home: of the cluster.
        uri: of the store, as Java takes it.
    """

    def __init__(self, release: str, home: Path, uri: str) -> None:
        home.mkdir(parents=True)
        self._log = home.with_name(f"{home.name}.log").open("w")
        self._jvm = subprocess.Popen(
            ["java", *JVM, "-cp", class_path(release), "Peer", uri],
            cwd=home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._jvm.kill()
        self._jvm.communicate()
        self._log.close()

    def __call__(self, op: str, **arguments: Any) -> Any:
        """Do one operation and return its result; bytes are encoded.

        Raises:
            ClusterError: with the error's class and message as Java gave them.
        """
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        self._jvm.stdin.write(json.dumps({"op": op, **arguments}, default=_encode) + "\n")
        self._jvm.stdin.flush()
        line = self._jvm.stdout.readline()
        if not line:
            raise ClusterError(f"{op}: the JVM ended, see {self._log.name}")
        answer = json.loads(line)
        if "error" in answer:
            raise ClusterError(f"{op}: {answer['error']}")
        return answer["result"]


def _encode(value: object) -> str:
    assert isinstance(value, bytes)
    return base64.b64encode(value).decode()
