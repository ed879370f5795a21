"""How Spark's Java process starts with little CPU: an archive of its classes, and one compiler."""

import importlib.util
from collections.abc import Mapping
from importlib.metadata import version
from typing import Final

from tests.support.class_archives import find_archive, list_options

BRIEF: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a Java process that lives for seconds: what the second compiler makes faster comes too late."""
_SPARK: Final = importlib.util.find_spec("pyspark")
PYSPARK: Final = f"{version('pyspark')} {_SPARK and _SPARK.origin}"
"""Says which jars PySpark brings."""
ARCHIVE: Final = find_archive("spark-jobs", PYSPARK)


def spark_environment() -> Mapping[str, str]:
    """Return what `spark-submit`, and so each session, takes its options of Java from."""
    return {"SPARK_SUBMIT_OPTS": " ".join((BRIEF, *list_options(ARCHIVE))), "SPARK_LAUNCHER_OPTS": BRIEF}
