"""Rows about the files of a bookie: each format by itself, against what only reads the bytes."""

import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks import bookie_folder, large_index, locations, records
from benchmarks.data import kept
from benchmarks.measure import ROOT, Cost, RunFailedError, python, run
from benchmarks.pairs import Contestant

if TYPE_CHECKING:
    from benchmarks.rows import Place

STAGES: Final = "benchmarks.stages"
_PROCESSES: Final = 2
_SOURCES: Final = ROOT / "benchmarks" / "c"
_WAIT_US: Final = 1000
"""What each read of the slow disk waits: between a good and a bad volume over a network."""


def _demand(cost: Cost, what: str, many: int) -> Cost:
    """See that a run did all of its work."""
    if cost.said.get(what) != many:
        raise RunFailedError(f"{many} {what} were there, and the run says {dict(cost.said)}")
    return cost


def shares(stage: str, folder: Path, what: str, many: int) -> Cost:
    """Read a folder with two processes, each its share."""
    commands = [python(STAGES, stage, folder, n, _PROCESSES) for n in range(_PROCESSES)]
    with ThreadPoolExecutor(_PROCESSES) as pool:
        costs = list(pool.map(run, commands))
    whole = Cost(
        max(cost.seconds for cost in costs),
        sum(cost.cpu_s for cost in costs),
        {"": max(cost.peaks[""] for cost in costs)},
        {what: sum(cost.said[what] for cost in costs)},
    )
    return _demand(whole, what, many)


def cat(folder: Path) -> Cost:
    """Read the index files of a folder, two at a time."""
    command = f"find {shlex.quote(str(folder))} -name '*.idx' -print0 | xargs -0 -P2 -n500 cat > /dev/null"
    return run(["bash", "-c", command])


@contextmanager
def small(place: "Place") -> Iterator[dict[str, Contestant]]:
    """Small index files."""
    yield _small(
        kept(place.home, bookie_folder.write, place.ledgers) / bookie_folder.LEDGERS / "current", place.ledgers
    )


def _small(current: Path, ledgers: int) -> dict[str, Contestant]:
    return {
        "index files": lambda: shares("index", current, "ledgers", ledgers),
        "find | xargs -P2 cat": lambda: cat(current),
    }


DROP: Final = Path("/proc/sys/vm/drop_caches")
"""Where the system is told to forget what it keeps of files; only for root."""


@contextmanager
def cold(place: "Place") -> Iterator[dict[str, Contestant]]:
    """Small index files that nothing has read since the system started, as far as the page cache knows."""
    with small(place) as warm:
        yield _from_disk(warm)


@contextmanager
def slow(place: "Place") -> Iterator[dict[str, Contestant]]:
    """The same on a disk each of whose reads waits, any number of them at a time."""
    folder = kept(place.home, bookie_folder.write, place.ledgers) / bookie_folder.LEDGERS
    image, shown, mounted = (place.scratch / name for name in ("image", "shown", "mounted"))
    for made in (shown, mounted):
        made.mkdir()
    size = sum(file.stat().st_blocks for file in folder.rglob("*")) // 2 * 3
    _do("mkfs.ext4", "-q", "-d", folder, "-N", 4 * place.ledgers + 100_000, image, f"{size // 2 + (1 << 18)}k")
    program = _built(place, "slow_disk", "libfuse (libfuse3-dev, fuse3)", "-I/usr/include/fuse3", "-lfuse3")
    with ExitStack() as stack:
        # It goes on in the background once it is mounted, and ends with that.
        _do(program, image, _WAIT_US, shown)
        stack.callback(_do, "umount", shown)
        device = _do("losetup", "--show", "--find", "--read-only", "--direct-io=on", shown / "disk")
        stack.callback(_do, "losetup", "--detach", device)
        _do("mount", "-o", "ro,noload", device, mounted)
        stack.callback(_do, "umount", mounted)
        yield _from_disk(_small(mounted / "current", place.ledgers))


def _from_disk(contestants: Mapping[str, Contestant]) -> dict[str, Contestant]:
    def from_disk(contestant: Contestant) -> Contestant:
        def alone() -> Cost:
            os.sync()
            DROP.write_text("3\n")
            return contestant()

        return alone

    return {name: from_disk(contestant) for name, contestant in contestants.items()}


def _do(*command: object) -> str:
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    except OSError as error:
        raise RunFailedError(f"{command[0]} does not run: {error.strerror}") from error
    if done.returncode:
        raise RunFailedError(f"{command[0]} ended with {done.returncode}: {done.stderr}")
    return done.stdout.strip()


def _built(place: "Place", name: str, needs: str, *options: str) -> Path:
    program = place.scratch / name
    try:
        _do("cc", "-O2", "-o", program, _SOURCES / f"{name}.c", *options)
    except RunFailedError as error:
        raise RunFailedError(f"this row needs a C compiler and {needs}: {error}") from error
    return program


@contextmanager
def large(place: "Place") -> Iterator[dict[str, Contestant]]:
    """Large index files."""
    folder = kept(place.home, large_index.write, place.ledgers)
    files = max(1, place.ledgers // large_index.SHARE)
    yield {
        "large index files": lambda: shares("index", folder, "ledgers", files),
        "find | xargs -P2 cat": lambda: cat(folder),
    }


@contextmanager
def one_log(place: "Place") -> Iterator[dict[str, Contestant]]:
    """An entry log."""
    yield from _one(place, records.LOG, "log")


@contextmanager
def one_journal(place: "Place") -> Iterator[dict[str, Contestant]]:
    """A journal."""
    yield from _one(place, records.JOURNAL, "journal")


def _one(place: "Place", name: str, stage: str) -> Iterator[dict[str, Contestant]]:
    file = kept(place.home, records.write, place.ledgers) / name
    entries = records.EACH * place.ledgers
    yield {
        stage: lambda: _demand(run(python(STAGES, stage, file)), "entries", entries),
        "cat | cat": lambda: run(["bash", "-c", f"cat {shlex.quote(str(file))} | cat > /dev/null"]),
    }


@contextmanager
def all_locations(place: "Place") -> Iterator[dict[str, Contestant]]:
    """A database of locations."""
    folder = kept(place.home, locations.write, place.ledgers)
    program = _built(place, "iterate", "RocksDB's C API (librocksdb-dev)", "-lrocksdb")

    def floor() -> Cost:
        cost = run([str(program), str(folder)])
        return replace(cost, said={"keys": cost.said["keys"]})

    # The stage finds the database by its usual name.
    named = place.scratch / "locations"
    named.symlink_to(folder)
    keys = floor().said["keys"]
    yield {
        "locations": lambda: shares("locations", named, "keys", keys),
        "C, one thread": floor,
    }
