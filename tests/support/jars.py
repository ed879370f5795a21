"""The jars of a released BookKeeper and the compiled driver, both kept in a cache of the user.

    ${XDG_CACHE_HOME:-~/.cache}/bkmeta/jars-<hash of java/pom.xml>/                       copied by Maven
    ${XDG_CACHE_HOME:-~/.cache}/bkmeta/driver-<hash of java/*.java and of the jars>/driver.jar    compiled by javac
    ${XDG_CACHE_HOME:-~/.cache}/bkmeta/pulsar-<hash of java/pulsar/pom.xml>/              Pulsar's (pulsar.py)

Run as a program it fills the cache and prints the class path: ``python -m tests.support.jars``.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.support.cases import cache_home

SOURCES: Final = Path(__file__).resolve().parent / "java"
_POM: Final = SOURCES / "pom.xml"
_DRIVER: Final = sorted(SOURCES.glob("*.java"))
_PACKAGES: Final = "default-jdk-headless maven"
_PACKED: Final = "driver.jar"
_ATTEMPTS: Final = 3


class PrerequisiteError(Exception):
    """Something that the machine must have is not there; the message says what, what for, and the command."""


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise PrerequisiteError(
            f"{name} is missing: tests with a real BookKeeper need a JDK (17 or later) and Maven; "
            f"on Debian: apt-get install {_PACKAGES}"
        )
    return found


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _made_once(target: Path, make: Callable[[Path], None]) -> Path:
    """Return `target` as `make` fills it, whole or not at all; when two processes make it, either one's is kept."""
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        make(fresh)
        fresh.rename(target)
    except OSError:
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return target


def _run(what: str, command: list[str], *, attempts: int = 1) -> None:
    for attempt in range(1, attempts + 1):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        if attempt == attempts:
            raise PrerequisiteError(f"{what} failed: {' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def _copy_jars(target: Path) -> None:
    command = [
        _program("mvn"),
        "-B",
        "-q",
        "-f",
        str(_POM),
        "dependency:copy-dependencies",
        f"-DoutputDirectory={target}",
    ]
    # Maven keeps what it has fetched, so that another attempt goes on where a broken connection ended one.
    _run("fetching BookKeeper", command, attempts=_ATTEMPTS)
    if not any(target.glob("bookkeeper-server-*.jar")):
        raise PrerequisiteError(f"Maven reported success, and there is no bookkeeper-server in {target}")


def jars() -> Path:
    """Return the folder of the jars, fetched if they are not there."""
    return _made_once(cache_home() / _name_library(), _copy_jars)


def _name_library() -> str:
    return f"jars-{_digest(_POM.read_bytes())}"


def name_driver() -> str:
    """Return the name of the folder that the driver is in: other sources and other jars give another."""
    return f"driver-{_digest(*(source.read_bytes() for source in _DRIVER), f'{_name_library()} {_PACKED}'.encode())}"


def class_path() -> str:
    """Return the class path of the compiled driver and everything it needs: of jars alone, for class archives."""
    library = jars()

    def compile_driver(target: Path) -> None:
        classes = target / "classes"
        # The release fixes the language, so that a class compiled by a newer JDK runs on an older one.
        command = [
            _program("javac"),
            "-nowarn",
            "--release",
            "17",
            "-cp",
            f"{library}/*",
            "-d",
            str(classes),
            *map(str, _DRIVER),
        ]
        _run("compiling the driver", command)
        _run("packing the driver", [_program("jar"), "cf", str(target / _PACKED), "-C", str(classes), "."])

    return f"{_made_once(cache_home() / name_driver(), compile_driver) / _PACKED}:{library}/*"


def main() -> int:
    """Fill the cache."""
    try:
        sys.stdout.write(f"{class_path()}\n")
    except PrerequisiteError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
