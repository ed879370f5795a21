"""Rows about the files of a bookie: each format by itself, against what only reads the bytes."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.data import bookie_folder, large_index, locations, records, scoped
from benchmarks.data.cache import kept
from benchmarks.measure import Cost, RunFailedError, bkmeta, python, run
from benchmarks.pairs import Contestant
from benchmarks.rows.row import STAGES, Place, Row, require_whole

_PROCESSES: Final = 2
_SOURCES: Final = Path(__file__).with_name("c")
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
def small(place: Place) -> Iterator[dict[str, Contestant]]:
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
def cold(place: Place) -> Iterator[dict[str, Contestant]]:
    """Small index files that nothing has read since the system started, as far as the page cache knows."""
    with small(place) as warm:
        yield _from_disk(warm)


@contextmanager
def slow(place: Place) -> Iterator[dict[str, Contestant]]:
    """The same on a disk each of whose reads waits, any number of them at a time."""
    folder = kept(place.home, bookie_folder.write, place.ledgers) / bookie_folder.LEDGERS
    image, shown, mounted = (place.scratch / name for name in ("image", "shown", "mounted"))
    for made in (shown, mounted):
        made.mkdir()
    size = sum(file.stat().st_blocks for file in folder.rglob("*")) // 2 * 3
    _do("mkfs.ext4", "-q", "-d", folder, "-N", 4 * place.ledgers + 100_000, image, f"{size // 2 + (1 << 18)}k")
    program = build_program(place, "slow_disk", "libfuse (libfuse3-dev, fuse3)", "-I/usr/include/fuse3", "-lfuse3")
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


def build_program(place: Place, name: str, needs: str, *options: str) -> Path:
    """Compile a program of this folder.

    Args:
        place: where the program is put.
        name: of its source.
        needs: what must be installed, for the message of an error.
        options: of the compiler.

    Raises:
        RunFailedError: it cannot be compiled.
    """
    program = place.scratch / name
    try:
        _do("cc", "-O2", "-o", program, _SOURCES / f"{name}.c", *options)
    except RunFailedError as error:
        raise RunFailedError(f"this row needs a C compiler and {needs}: {error}") from error
    return program


@contextmanager
def large(place: Place) -> Iterator[dict[str, Contestant]]:
    """Large index files."""
    folder = kept(place.home, large_index.write, place.ledgers)
    files = max(1, place.ledgers // large_index.SHARE)
    yield {
        "large index files": lambda: shares("index", folder, "ledgers", files),
        "find | xargs -P2 cat": lambda: cat(folder),
    }


@contextmanager
def one_log(place: Place) -> Iterator[dict[str, Contestant]]:
    """An entry log."""
    yield from _one(place, records.LOG, "log")


@contextmanager
def one_journal(place: Place) -> Iterator[dict[str, Contestant]]:
    """A journal."""
    yield from _one(place, records.JOURNAL, "journal")


def _one(place: Place, name: str, stage: str) -> Iterator[dict[str, Contestant]]:
    file = kept(place.home, records.write, place.ledgers) / name
    entries = records.EACH * place.ledgers
    yield {
        stage: lambda: _demand(run(python(STAGES, stage, file)), "entries", entries),
        "cat | cat": lambda: run(["bash", "-c", f"cat {shlex.quote(str(file))} | cat > /dev/null"]),
    }


@contextmanager
def all_locations(place: Place) -> Iterator[dict[str, Contestant]]:
    """A database of locations."""
    folder = kept(place.home, locations.write, place.ledgers)
    program = build_program(place, "iterate", "RocksDB's C API (librocksdb-dev)", "-lrocksdb")

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


def _collecting(place: Place, ledgers: Path, journal: Path) -> Contestant:
    """Return the whole command on the folders of a bookie."""
    out = place.scratch / "inventory"
    folders = ["--ledger-dir", ledgers, "--journal-dir", journal]
    collect = bkmeta("collect", *folders, "--out", out, "--progress", "none", "--json")

    def product() -> Cost:
        shutil.rmtree(out, ignore_errors=True)
        cost = run(collect)
        found = {"ledgers": cost.said["counts"]["ledgers"], "code": cost.said["exit_code"]}
        return require_whole(place, replace(cost, said=found))

    return product


@contextmanager
def _collect(place: Place) -> Iterator[dict[str, Contestant]]:
    folder = kept(place.home, bookie_folder.write, place.ledgers)
    ledgers = folder / bookie_folder.LEDGERS
    product = _collecting(place, ledgers, folder / bookie_folder.JOURNAL)
    yield {"collect": product, "find | xargs -P2 cat": lambda: cat(ledgers / "current")}


def _scoped(kind: str) -> Callable[[Place], AbstractContextManager[dict[str, Contestant]]]:
    @contextmanager
    def row(place: Place) -> Iterator[dict[str, Contestant]]:
        folder = kept(place.home, scoped.write, place.ledgers)
        plain, of_scopes = (folder / side / kind for side in scoped.SIDES)
        stages = {"collect, scopes": _collecting(place, of_scopes / scoped.LEDGERS, of_scopes / scoped.JOURNAL)}
        if kind == "index":
            stages["cat, scopes"] = lambda: cat(of_scopes / scoped.LEDGERS)
            stages["cat, scope 0"] = lambda: cat(plain / scoped.LEDGERS)
        yield stages | {"collect, scope 0": _collecting(place, plain / scoped.LEDGERS, plain / scoped.JOURNAL)}

    return row


_COLD: Final = (
    (
        Row(
            "index-cold",
            0.5,
            "the same small index files from the disk, the page cache dropped before each: several reads in flight",
            1_000_000,
            cold,
        ),
        Row(
            "index-slow",
            0.5,
            "the same from a disk each of whose reads waits a millisecond, several of them at a time",
            20_000,
            slow,
        ),
    )
    if os.access(DROP, os.W_OK)
    else ()
)
"""Only root may drop the page cache."""

ROWS: Final = (
    Row(
        "collect",
        2.0,
        "`bkmeta collect` of a bookie with a small index file a ledger, as a whole command: index files, a header read "
        "in the entry log for each ledger, the inventory written; against cat of the same index files, two at a time",
        1_000_000,
        _collect,
    ),
    Row(
        "index",
        0.6,
        "small index files into groups, two processes, against cat of them, two at a time",
        1_000_000,
        small,
    ),
    *_COLD,
    Row(
        "large",
        2.0,
        "index files of 64 KiB to 2 MiB, one for twenty ledgers, into groups, two processes, against cat of them",
        100_000,
        large,
    ),
    Row(
        "locations",
        1.1,
        "a hundred locations a ledger in RocksDB into groups, two processes, against RocksDB's C API",
        200_000,
        all_locations,
    ),
    Row(
        "log",
        1.0,
        "ten records of 1 KiB a ledger in an entry log into groups, against cat of the log into cat",
        100_000,
        one_log,
    ),
    Row(
        "journal",
        1.5,
        "ten records of 1 KiB a ledger in a journal into groups, against cat of the journal into cat",
        100_000,
        one_journal,
    ),
    *(
        Row(
            f"scoped-{kind}",
            1.5,
            f"`bkmeta collect` of a bookie whose ledgers are of scopes, {what}, as a whole command; against that of "
            "a bookie that has the same ledgers in scope 0",
            100_000,
            _scoped(kind),
        )
        for kind, what in scoped.KINDS.items()
    ),
)
