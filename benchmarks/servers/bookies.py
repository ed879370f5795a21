"""Real bookies with ledgers, and BookKeeper's own client beside them, from the jars that the tests fetch."""

import hashlib
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from backends.registry import open_store
from recovery.bookies.addresses import read_members
from tests.support import jars
from tests.support.cluster import Bookie, Cluster, encoded

LEDGERS: Final = 200
"""On every bookie; requests go round them."""
ENTRIES: Final = 20
JAVA_IN_FLIGHT: Final = 500

_SOURCES: Final = Path(__file__).with_name("java")


def client(home: Path) -> list[str]:
    """Return the command of BookKeeper's client that asks for lists.

    Args:
        home: where benchmarks keep their data.
    """
    return find_java(home, "BookieLists")


def find_java(home: Path, program: str) -> list[str]:
    """Return the command of a program of BookKeeper's client, which is compiled first if it is not there.

    Args:
        home: where benchmarks keep their data.
        program: name of its class.
    """
    source = _SOURCES / f"{program}.java"
    classes = home / f"java-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}"
    path = f"{classes}:{jars.jars()}/*"
    if not classes.exists():
        with tempfile.TemporaryDirectory(dir=home) as made:
            subprocess.run(["javac", "-cp", path, "-d", f"{made}/classes", str(source)], check=True)
            Path(made, "classes").replace(classes)
    return ["java", "-Xmx1g", "-cp", path, program]


@contextmanager
def bookies(count: int) -> Iterator[tuple[int, list[str]]]:
    """Run so many bookies that all have the same ledgers, and give their process and their addresses."""
    with tempfile.TemporaryDirectory(prefix="bkmeta-bench-bookies-") as folder, Cluster(Path(folder, "cluster")) as one:
        one.start_zookeeper("zookeeper", "/ledgers")
        one("format", layout="hierarchical")
        names = [f"bench-{n}" for n in range(count)]
        for n, name in enumerate(names):
            one.start(Bookie(n, name, "sorted", [f"b{n}/journal"], [f"b{n}/ledgers"]))
        for _ in range(LEDGERS):
            ledger = one("create", E=count, W=count, A=count, digest="CRC32C", password=encoded(b""), custom={})
            one("add", ledger=ledger, sizes=[10] * ENTRIES, ids=None)
            one("close", ledger=ledger)
        with open_store(f"zk://{one.zookeeper}/ledgers") as opened:
            members = read_members(opened.store, opened.root, None, {})
        yield one.pid, [str(members.find(name).address) for name in names]
