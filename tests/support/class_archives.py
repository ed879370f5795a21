"""Archives of the classes that Java processes of the tests load: each of some hundred starts costs half the CPU.

    ${XDG_CACHE_HOME:-~/.cache}/bkmeta/<name>-<hash of Java and the jars>.jsa     written by Java (class data sharing)

`fill_cache.py` makes them. Java takes no archive of another Java or of other jars: processes start slower then, and
do the same.
"""

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from recovery.spark import find_java
from tests.support.cases import cache_home

QUIET: Final = "-Xlog:disable"
"""An archive that does not fit is no news for stdout."""


def find_archive(name: str, jars: str) -> Path:
    """Return where the archive of some programs is, or will be.

    Args:
        name: of the programs.
        jars: says which jars they are, and of which version.
    """
    java = Path(find_java() or "/nowhere").resolve()
    changed = java.stat().st_mtime_ns if java.exists() else 0
    made_of = f"{java} {changed} {jars}"
    return cache_home() / f"{name}-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}.jsa"


def list_options(archive: Path) -> list[str]:
    """Return Java's options that take classes from an archive, if it is there."""
    return [QUIET, f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []


def make_archive(archive: Path, run: Callable[[list[str]], str]) -> None:
    """Have an archive made, if it is not there.

    Args:
        archive: where.
        run: starts and ends a process with some options, which loads what others will; returns what it said.
    """
    if archive.exists():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    fresh = archive.with_suffix(f".{os.getpid()}")
    said = run([QUIET, f"-XX:ArchiveClassesAtExit={fresh}"])
    if not fresh.exists():
        sys.exit(f"no archive of classes for {archive.name}:\n{said}")
    fresh.rename(archive)
