"""Java's metadata drivers as judges: BookKeeper's own and Pulsar's, in a JVM of their own (java/Metadata.java)."""

import base64
import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support import jars
from tests.support import pulsar as of_pulsar
from tests.support.cluster import JVM, ClusterError


class JavaMetadata:
    """The JVM; ends with the `with` block. What it logs goes to a file.

    Args:
        log: the file.
        pulsar: with Pulsar's drivers, which take ``metadata-store:`` URIs.
    """

    def __init__(self, log: Path, *, pulsar: bool = False) -> None:
        path = of_pulsar.class_path() if pulsar else jars.class_path()
        options = of_pulsar.options(log.with_suffix(".pulsar")) if pulsar else []
        self._log = log.open("w")
        self._jvm = subprocess.Popen(
            ["java", "-Xmx300m", *JVM[1:], *options, "-cp", path, "Metadata"],
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
        order = {k: base64.b64encode(v).decode() if isinstance(v, bytes) else v for k, v in arguments.items()}
        self._jvm.stdin.write(json.dumps({"op": op, **order}) + "\n")
        self._jvm.stdin.flush()
        line = self._jvm.stdout.readline()
        if not line:
            raise ClusterError(f"{op}: the JVM ended, see {self._log.name}")
        answer = json.loads(line)
        if "error" in answer:
            raise ClusterError(f"{op}: {answer['error']}")
        return answer["result"]
