"""An archive of the classes that Spark's Java process loads, so that each of some hundred starts costs half the CPU.

    ${XDG_CACHE_HOME:-~/.cache}/bkmeta/spark-<hash of Java and PySpark>.jsa     written by Java (class data sharing)

Run as a program it fills the cache: ``python -m tests.support.spark_classes``. Java takes no archive of another Java or
of other jars: sessions start slower then, and do the same.
"""

import hashlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

from recovery.spark import find_java
from tests.support.cases import cache_home
from tests.support.paths import ROOT

BRIEF: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a Java process that lives for seconds: what the second compiler makes faster comes too late."""
_QUIET: Final = "-Xlog:disable"
"""An archive that does not fit is no news for stdout."""
_PROGRAM: Final = """
from recovery.spark import session
with session("local[2]") as spark:
    spark.sparkContext.parallelize([1, 2], 2).map(str).collect()
"""


def spark_environment() -> Mapping[str, str]:
    """Return what `spark-submit`, and so each session, takes its options of Java from."""
    archive = _archive()
    shared = [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
    return {"SPARK_SUBMIT_OPTS": " ".join((BRIEF, _QUIET, *shared)), "SPARK_LAUNCHER_OPTS": BRIEF}


def _archive() -> Path:
    java = Path(find_java() or "/nowhere").resolve()
    changed = java.stat().st_mtime_ns if java.exists() else 0
    spark = importlib.util.find_spec("pyspark")
    made_of = f"{java} {changed} {version('pyspark')} {spark and spark.origin}"
    return cache_home() / f"spark-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}.jsa"


def main() -> None:
    """Fill the cache."""
    archive = _archive()
    if archive.exists():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    fresh = archive.with_suffix(f".{os.getpid()}")
    options = {"SPARK_SUBMIT_OPTS": f"{BRIEF} {_QUIET} -XX:ArchiveClassesAtExit={fresh}"}
    # Java holds stdout, and writes the archive when its session has ended: all is there when the pipe is closed.
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        cwd=ROOT,
        env=os.environ | options,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or not fresh.exists():
        sys.exit(f"no archive of Spark's classes:\n{done.stdout}{done.stderr}")
    fresh.rename(archive)


if __name__ == "__main__":
    main()
