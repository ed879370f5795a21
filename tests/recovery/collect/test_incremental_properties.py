"""A collection that takes over what an earlier one read gives what a whole one does, whatever happened in between."""

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
import rocksdict
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from recovery.codecs import cookie, entry, entry_log, index_file, journal, ledger_db
from recovery.codecs.index_file import IndexHeader
from recovery.collect.incremental import journals as journals_module
from recovery.collect.incremental import previous as previous_module
from recovery.collect.incremental import state as state_module
from recovery.collect.options import CollectOptions, CollectSummary
from recovery.collect.pipeline import collect
from recovery.dataset import AGAIN, open_dataset
from recovery.errors import DatasetError, InputError
from recovery.model.metadata import Digest
from tests.recovery.collect.test_index_database import add_to_db, make_db, row, write_database
from tests.simulation import bookie_dir
from tests.simulation.bookie_dir import (
    BookieDir,
    make_bookie,
    record,
    write_index,
    write_journal,
    write_log,
    write_mark,
)

pytestmark = pytest.mark.long

SOAKED: Final = "BKMETA_SOAK_AGAIN" in os.environ
EXAMPLES: Final = int(os.environ.get("BKMETA_SOAK_AGAIN", "5"))
JOURNAL: Final = 0x1000
LATER: Final = timedelta(minutes=10)
"""Files made now are older than a collection that begins then, so that their times are believed."""


class World:
    """A bookie to which things happen."""

    def __init__(self, root: Path, seed: int) -> None:
        self.random = Random(seed)
        self.made: BookieDir = make_bookie(
            root / "disks",
            {n: range(self.random.randint(1, 9)) for n in range(1, 7)},
            index_dirs=self.random.choice([0, 2]),
            ledger_dirs=2,
            dirty=self.random.random() < 0.3,
            password=b"theirs",
            digest=self.random.choice([Digest.CRC32C, Digest.HMAC]),
            rotated=self.random.random() < 0.5,
        )
        self.begin()

    def begin(self) -> None:
        """Name the folders, and write the first journal."""
        self.folders: dict[str, Any] = {
            "ledger_dirs": self.made.ledger_dirs,
            "index_dirs": self.made.index_dirs,
            "journal_dirs": self.made.journal_dirs,
        }
        self._ticks = itertools.count(1_500_000_000)
        self._log, self._ledger, self._journal = 1, 100, JOURNAL
        write_journal(self.made, self._journal, self.said())
        write_mark(self.made, self._journal, 512)
        self.settle()

    def settle(self) -> None:
        """Give every file that is as new as the clock allows a time of its own, as time between two changes would."""
        for path in self.files():
            if path.stat().st_mtime > 1_600_000_000:
                tick = next(self._ticks)
                os.utime(path, (tick, tick))

    def files(self) -> list[Path]:
        """Every file that may be broken."""
        return sorted(
            path for root in self.made.all_dirs for path in root.rglob("*") if path.is_file() and path.name != "VERSION"
        )

    def some(self, ending: str) -> list[Path]:
        """Files of a kind, in any order."""
        found = [path for path in self.files() if path.name.endswith(ending)]
        self.random.shuffle(found)
        return found

    def said(self) -> list[bytes]:
        """Records of a journal."""
        ledger = self.random.randint(1, 9)
        return [
            journal.encode_master_key(ledger, entry.master_key(self.random.choice([b"theirs", b"others"]))),
            *(record(ledger, n, Digest.HMAC, b"theirs") for n in range(self.random.randint(0, 12))),
            *([journal.encode_fence(ledger)] if self.random.random() < 0.5 else []),
            *([journal.encode_lac(ledger, self.lac(ledger))] if self.random.random() < 0.5 else []),
        ]

    def lac(self, ledger: int) -> bytes:
        """An explicit LAC of a ledger."""
        return entry.encode_lac_record(ledger, self.random.randint(0, 12), Digest.CRC32C)

    def act(self, name: str) -> None:
        """Let something happen."""
        getattr(self, name)()
        self.settle()

    def write(self) -> None:
        """Entries of a new or an old ledger in a new log."""
        self._ledger += 1
        ledger = self.random.choice([self._ledger, *range(1, 7)])
        folder, number = self.random.randrange(2), self._log
        self._log += 1
        count = self.random.randint(1, 5)
        rotated = self.random.random() < 0.5
        write_log(self.made, number, [(ledger, n) for n in range(count)], folder=folder, rotated=rotated)
        write_index(self.made, ledger, bookie_dir.locations(self.made, number, ledger, folder), password=b"theirs")

    def grow(self) -> None:
        """A log that goes on, and an index that does not know it."""
        for log in self.some(".log")[:1]:
            more = b"".join(len(r).to_bytes(4, "big") + r for r in [record(self.random.randint(1, 9), 50)])
            log.write_bytes(log.read_bytes() + more)

    def delete(self) -> None:
        """A ledger that is gone from the index."""
        for index in self.some(".idx")[:1]:
            index.unlink()

    def state(self) -> None:
        """A ledger is fenced, or has another explicit LAC, or both; its slots stay."""
        for index in self.some(".idx")[:1]:
            ledger = index_file.ledger_of("/".join(index.parts[-3:]))
            if ledger is not None and self.random.random() < 0.9:
                lac = self.lac(ledger) if self.random.random() < 0.5 else None
                header = IndexHeader(1, entry.master_key(b"theirs"), self.random.random() < 0.7, lac)
                index.write_bytes(index_file.encode_header(header) + index.read_bytes()[index_file.HEADER_SIZE :])

    def reuse(self) -> None:
        """A log is gone, and another one has its id: of the same size, with the same or other entries elsewhere."""
        for log in self.some(".log")[:1]:
            found = [at for at in entry_log.scan(log.read_bytes()) if isinstance(at, entry_log.EntryAt)]
            pairs = [(at.ledger, at.entry) for at in found]
            self.random.shuffle(pairs)
            log.unlink()
            log.write_bytes(entry_log.encode([record(*pair) for pair in pairs], with_map=self.random.random() < 0.5))

    def compact(self) -> None:
        """A ledger's entries copied into another log, and its index switched; perhaps the old log deleted."""
        ledger = self.random.randint(1, 6)
        if not self.made.index(ledger).exists():
            return
        number, self._log = self._log, self._log + 1
        write_log(self.made, number, [(ledger, n) for n in range(4)], password=b"theirs", digest=Digest.HMAC)
        write_index(self.made, ledger, bookie_dir.locations(self.made, number, ledger), password=b"theirs")
        if self.random.random() < 0.4:
            for log in self.some(".log")[:1]:
                log.unlink()

    def roll(self) -> None:
        """The next journal; the mark moves into it, behind all, or stays."""
        self._journal += 1
        write_journal(self.made, self._journal, self.said())
        where = self.random.choice([None, (self._journal, 512), (self._journal - 1, 700)])
        if where is not None:
            write_mark(self.made, *where)
        if self.random.random() < 0.3:
            for path in self.some(".txn")[:1]:
                path.unlink()

    def restart(self) -> None:
        """Stopped cleanly, or killed."""
        for folder in self.made.ledger_dirs:
            mark = folder / "current" / "DIRTY"
            if mark.exists():
                mark.unlink()
            else:
                mark.touch()

    def damage(self) -> None:
        """A byte, a stretch or an end of some file; its length may stay, and even its times are put back."""
        for path in self.random.sample(self.files(), 1):
            data, before = bytearray(path.read_bytes()), path.stat()
            if not data:
                continue
            at = self.random.randrange(len(data))
            match self.random.randrange(4):
                case 0:
                    data[at] ^= 1 << self.random.randrange(8)
                case 1:
                    data[at : at + 200] = bytes(len(data[at : at + 200]))
                case 2:
                    del data[at:]
                case _:
                    data[at : at + 60] = self.random.randbytes(len(data[at : at + 60]))
            path.write_bytes(data)
            if len(data) != before.st_size and self.random.random() < 0.5:
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def swap(self) -> None:
        """Two logs, or two index files, under each other's name; their times go with them."""
        for one, two in itertools.pairwise(self.some(self.random.choice([".log", ".idx"]))[:2]):
            aside = one.with_name("aside")
            one.rename(aside)
            two.rename(one)
            aside.rename(two)

    def misplace(self) -> None:
        """A file of another name, one in the wrong folder, a second index of a ledger."""
        for index in self.some(".idx")[:1]:
            stray = self.made.all_dirs[0] / "current" / "0" / "0" / index.name
            stray.parent.mkdir(parents=True, exist_ok=True)
            stray.write_bytes(index.read_bytes())


class DbWorld(World):
    """A bookie with Db storage, two folders, to which things happen."""

    def __init__(self, root: Path, seed: int) -> None:
        self.random = Random(seed)
        self.made = make_db(root / "disks", {n: range(self.random.randint(1, 9)) for n in range(2, 10)})
        self._number = 1
        self.begin()

    def write(self) -> None:
        """Entries of new and old ledgers in a new log, and their rows."""
        folder, number = self.random.randrange(2), self._number
        self._number += 1
        ledgers = [2 * n + folder for n in self.random.sample(range(1, 12), 2)]
        with suppress(Exception):  # a broken database takes nothing
            add_to_db(self.made, folder, number, {n: range(self.random.randint(1, 12)) for n in ledgers})

    def compact(self) -> None:
        """Entries that are in another log now; perhaps the old log is gone."""
        self.write()
        if self.random.random() < 0.4:
            for log in self.some(".log")[:1]:
                if log.parent.name == "current":
                    log.unlink()

    def delete(self) -> None:
        """A ledger's rows, or some of them, deleted."""
        folder = self.random.randrange(2)
        ledger = 2 * self.random.randint(1, 5) + folder
        index = self.made.ledger_dirs[folder] / "current"
        for name, keys in (
            ("locations", [ledger_db.encode_location(ledger, n, 1)[0] for n in range(self.random.randint(1, 12))]),
            ("ledgers", [row(ledger)[0]] if self.random.random() < 0.7 else []),
        ):
            if not keys or not (index / name / "CURRENT").exists():
                continue
            with suppress(Exception):  # a broken database says what it likes
                db = rocksdict.Rdict(str(index / name), rocksdict.Options(raw_mode=True))
                for key in keys:
                    del db[key]
                db.close()

    def misplace(self) -> None:
        """A fence, and a row in the wrong folder."""
        folder = self.random.randrange(2)
        with suppress(Exception):
            write_database(self.made.ledger_dirs[folder] / "current" / "ledgers", [row(4, fenced=True)])

    def state(self) -> None:
        """A ledger is fenced, in limbo or not; or RocksDB compacts what it has, and all is in other files."""
        folder, ledger = self.random.randrange(2), self.random.randint(1, 9)
        index = self.made.ledger_dirs[folder] / "current"
        with suppress(Exception):
            if self.random.random() < 0.5:
                fenced, limbo = (self.random.random() < 0.5 for _ in range(2))
                write_database(index / "ledgers", [row(2 * ledger + folder, fenced=fenced, limbo=limbo)])
                return
            for name in ("ledgers", "locations"):
                if (index / name / "CURRENT").exists():
                    db = rocksdict.Rdict(str(index / name), rocksdict.Options(raw_mode=True))
                    db.compact_range(None, None)
                    db.close()


ACTIONS: Final = (
    *("write", "grow", "delete", "state", "reuse", "compact", "roll", "restart", "damage", "swap", "misplace"),
)
STEPS = st.lists(st.sampled_from(ACTIONS), max_size=4)


def run(world: World, out: Path, *, now: Callable[[], datetime] | None = None, **more: Any) -> CollectSummary:
    """Collect a world."""
    options = replace(CollectOptions(**world.folders), **more)
    return collect(options, out, now=now or (lambda: datetime.now(UTC) + LATER), progress=lambda _: None)


def told(out: Path) -> tuple[Any, list[str], dict[str, Any]]:
    """All that an inventory says, but when it was made; damage in any order."""
    dataset = open_dataset(out, "inventory")
    (bookie,) = dataset.read("bookies").to_pylist()
    del bookie["started"], bookie["ended"]
    return dataset.read("copies"), sorted(map(repr, dataset.read("damage").to_pylist())), bookie


def require_same(one: Path, other: Path) -> None:
    """Two inventories say the same."""
    (copies, damage, bookie), (others, other_damage, other_bookie) = told(one), told(other)
    assert damage == other_damage
    assert bookie == other_bookie
    assert copies.equals(others), (copies.to_pylist(), others.to_pylist())


@settings(max_examples=EXAMPLES, derandomize=not SOAKED, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 32), st.lists(STEPS, min_size=1, max_size=3), st.booleans(), st.booleans())
@example(0, [[], []], False, True)
def test_what_is_taken_over_is_what_would_be_read(
    seed: int, between: list[list[str]], small: bool, knows: bool
) -> None:
    """Any chain of collections, each from the one before: rows are those of a whole collection, byte for byte."""
    require_chain(World, seed, between, small=small, knows=knows)


@settings(max_examples=EXAMPLES // 2, derandomize=not SOAKED, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 32), st.lists(STEPS, min_size=1, max_size=3), st.booleans())
@example(0, [[], ["write"], ["delete"], []], True)
def test_what_is_taken_over_of_databases_is_what_would_be_read(
    seed: int, between: list[list[str]], small: bool
) -> None:
    """The same of a bookie with Db storage."""
    require_chain(DbWorld, seed, between, small=small, knows=False)


def require_chain(
    make: Callable[[Path, int], World], seed: int, between: list[list[str]], *, small: bool, knows: bool
) -> None:
    """Collect from one inventory to the next while things happen, and compare each with a whole collection."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        if small:
            patch.setattr(state_module, "_FEW", 4)
            patch.setattr(journals_module, "_WAITING", 4)
        root = Path(folder)
        world = make(root, seed)
        passwords = (b"theirs",) if knows else ()
        run(world, root / "0", keep=True, passwords=passwords)
        for n, steps in enumerate(between, 1):
            for step in steps:
                world.act(step)
            flipped = world.random.random() < 0.2
            if flipped:
                passwords = () if passwords else (b"theirs",)
            seen = run(world, root / str(n), since=root / str(n - 1), passwords=passwords)
            run(world, root / "whole" / str(n), passwords=passwords)
            require_same(root / str(n), root / "whole" / str(n))
            assert seen.reused is not None
            if not any(between[:n]) and not flipped:
                assert seen.bytes_read == 0


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A bookie."""
    return World(tmp_path, 7)


def test_a_time_as_new_as_the_collection_is_not_believed(world: World, tmp_path: Path) -> None:
    """What was written just before it may be written again within the same tick: everything is read once more."""

    def now() -> datetime:
        return datetime.now(UTC) - LATER

    seen = run(world, tmp_path / "a", keep=True, now=now)
    again = run(world, tmp_path / "b", since=tmp_path / "a", now=now)
    assert again.bytes_read == seen.bytes_read > 0
    assert again.reused is not None
    assert (again.reused.ledgers, again.reused.files) == (0, 0)
    require_same(tmp_path / "a", tmp_path / "b")


def test_a_file_changed_under_its_old_times_is_read_again(world: World, tmp_path: Path) -> None:
    """As long as before, and its time of content put back: the time of status, which nobody can set, tells it."""
    run(world, tmp_path / "a", keep=True)
    index = world.some(".idx")[0]
    before = index.stat()
    data = bytearray(index.read_bytes())
    data[1024:] = bytes(len(data) - 1024)
    tick = tmp_path / "tick"
    tick.touch()
    while tick.stat().st_ctime_ns <= before.st_ctime_ns:
        tick.touch()
    index.write_bytes(data)
    os.utime(index, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (index.stat().st_size, index.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    run(world, tmp_path / "b", since=tmp_path / "a")
    run(world, tmp_path / "whole")
    require_same(tmp_path / "b", tmp_path / "whole")
    assert not told(tmp_path / "a")[0].equals(told(tmp_path / "b")[0])


def test_a_clock_that_is_set_back_costs_only_time(world: World, tmp_path: Path) -> None:
    """A collection that ends before it began, and one from it that begins earlier still: nothing wrong is believed."""
    hours = iter(range(100, 0, -1))

    def now() -> datetime:
        return datetime.now(UTC) + timedelta(hours=next(hours) - 90)

    seen = run(world, tmp_path / "a", keep=True, now=now)
    for name in ("b", "c"):
        world.act("write")
        run(world, tmp_path / name, since=tmp_path / "a", now=now)
        run(world, tmp_path / "whole" / name)
        require_same(tmp_path / name, tmp_path / "whole" / name)
    assert seen.ledgers > 0


def test_only_what_changed_is_read(world: World, tmp_path: Path) -> None:
    """One index file more among others: that file, and the log that it names; nothing of the others."""
    first = run(world, tmp_path / "a", keep=True)
    write_log(world.made, 0x40, [(77, n) for n in range(3)], rotated=True)
    write_index(world.made, 77, bookie_dir.locations(world.made, 0x40, 77))
    new = world.made.index(77).stat().st_size + world.made.log(0x40).stat().st_size
    again = run(world, tmp_path / "b", since=tmp_path / "a")
    assert 0 < again.bytes_read <= 3 * new < first.bytes_read
    assert again.reused is not None
    assert again.reused.ledgers == first.ledgers - len(world_only_in_journals(tmp_path / "a"))
    run(world, tmp_path / "whole")
    require_same(tmp_path / "b", tmp_path / "whole")


def world_only_in_journals(out: Path) -> set[int]:
    """Ledgers that no index knows."""
    rows = open_dataset(out, "inventory").read("copies").to_pylist()
    return {row["ledger"] for row in rows} - {row["ledger"] for row in rows if row["source"] == "index"}


def test_another_bookies_inventory_is_refused(world: World, tmp_path: Path) -> None:
    """Nothing is ever taken over from somebody else."""
    other = make_bookie(tmp_path / "other", {1: [0]}, bookie="10.0.0.2:3181")
    options = CollectOptions(other.ledger_dirs, other.index_dirs, other.journal_dirs, keep=True)
    collect(options, tmp_path / "theirs", now=lambda: datetime.now(UTC), progress=lambda _: None)
    with pytest.raises(InputError, match="name the earlier inventory of this bookie"):
        run(world, tmp_path / "mine", since=tmp_path / "theirs")


def renamed(made: BookieDir, **fields: Any) -> None:
    """Write a cookie with other fields into every folder."""
    for folder in made.all_dirs:
        version = folder / "current" / "VERSION"
        if version.parent.is_dir():
            version.write_bytes(cookie.encode(replace(cookie.decode(version.read_bytes()), **fields)))


def formatted(world: World) -> None:
    """All is gone, and other entries have the ids of ledgers and logs."""
    for path in world.files():
        path.unlink()
    renamed(world.made, instance_id="66666666-2222-3333-4444-555555555555")
    write_log(world.made, 0, [(1, n) for n in range(20)])
    write_index(world.made, 1, bookie_dir.locations(world.made, 0, 1))


def emptied(world: World) -> None:
    """A disk was replaced by an empty one, on which the bookie was told to start."""
    for path in (world.made.ledger_dirs[1] / "current").rglob("*"):
        if path.is_file() and path.name != "VERSION":
            path.unlink()


def lost(world: World) -> None:
    """A disk is not there any more, and is not given."""
    world.folders["ledger_dirs"] = world.made.ledger_dirs[:1]


def added(world: World) -> None:
    """A folder more, which the cookie names, too."""
    more = world.made.ledger_dirs[0].with_name("more")
    (more / "current").mkdir(parents=True)
    (more / "current" / "VERSION").write_bytes((world.made.ledger_dirs[0] / "current" / "VERSION").read_bytes())
    world.made = replace(world.made, ledger_dirs=(*world.made.ledger_dirs, more))
    world.folders["ledger_dirs"] = world.made.ledger_dirs
    renamed(world.made, ledger_dirs=tuple(map(str, world.made.ledger_dirs)))
    write_log(world.made, 0x77, [(88, 0)], folder=2)


def turned(world: World) -> None:
    """The same folders in another order."""
    world.folders["ledger_dirs"] = world.made.ledger_dirs[::-1]


def turned_everywhere(world: World) -> None:
    """The same folders in another order, in the cookie, too."""
    turned(world)
    renamed(world.made, ledger_dirs=tuple(map(str, world.made.ledger_dirs[::-1])))


def moved(world: World) -> None:
    """All folders are mounted elsewhere."""
    before = world.made.ledger_dirs[0].parent
    after = before.with_name("mounted")
    before.rename(after)
    for name, folders in world.folders.items():
        world.folders[name] = tuple(after / folder.name for folder in folders)


OTHER: Final = "from other folders, or the cookie changed"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (formatted, "formatted again"),
        (emptied, ""),
        (lost, OTHER),
        (added, OTHER),
        (turned, ""),
        (turned_everywhere, OTHER),
        (moved, OTHER),
    ],
)
@pytest.mark.parametrize("make", [World, DbWorld])
def test_what_changed_about_the_bookie_itself(
    make: type[World], change: Callable[[World], None], reason: str, tmp_path: Path
) -> None:
    """The reason is said, nothing is taken over that is not as it was, and the inventory is a whole one."""
    world = make(tmp_path, 7)
    run(world, tmp_path / "a", keep=True)
    change(world)
    if change is not moved:
        world.settle()
    seen = run(world, tmp_path / "b", since=tmp_path / "a")
    run(world, tmp_path / "whole")
    require_same(tmp_path / "b", tmp_path / "whole")
    assert seen.reused is not None
    if (make, change) == (DbWorld, lost):
        reason = "databases that tell its identity came or went"
    assert reason in seen.reused.reason
    assert not reason or (seen.reused.ledgers, seen.reused.files) == (0, 0)


@pytest.mark.parametrize("make", [World, DbWorld])
def test_after_another_kind_of_stop_the_index_is_read_again(make: type[World], tmp_path: Path) -> None:
    """A bookie that was killed, and then stopped: then all locations were confirmed, now those in doubt."""
    world = make(tmp_path, 7)
    marks = [folder / "current" / "DIRTY" for folder in world.made.ledger_dirs]
    for mark in marks:
        mark.touch()
    world.settle()
    run(world, tmp_path / "a", keep=True)
    for mark in marks:
        mark.unlink()
    seen = run(world, tmp_path / "b", since=tmp_path / "a")
    run(world, tmp_path / "whole")
    require_same(tmp_path / "b", tmp_path / "whole")
    assert seen.reused is not None
    assert "only one of the two collections was after a clean stop" in seen.reused.reason
    assert seen.reused.ledgers == 0


def test_what_another_version_of_the_program_kept_is_not_taken_over(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have read the same bytes otherwise: everything is read, and the reason is said."""
    first = run(world, tmp_path / "a", keep=True)
    monkeypatch.setattr(previous_module, "__version__", "99.0")
    seen = run(world, tmp_path / "b", since=tmp_path / "a")
    assert seen.reused is not None
    assert "another version of the program" in seen.reused.reason
    assert seen.bytes_read == first.bytes_read
    require_same(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize("many", range(24))
def test_a_broken_earlier_inventory_is_refused_or_taken_as_it_was(many: int, world: World, tmp_path: Path) -> None:
    """A bit, a cut, a file that is gone: one error that names the folder, or the same inventory; never another one."""
    random = Random(many)
    run(world, tmp_path / "a", keep=True)
    kept = [path for path in contents(tmp_path / "a") if path.suffix == (".json" if many < 12 else ".parquet")]
    broken = random.choice(kept)
    data = bytearray(broken.read_bytes())
    match many % 3:
        case 0:
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
            broken.write_bytes(data)
        case 1:
            broken.write_bytes(data[: random.randrange(len(data))])
        case _:
            broken.unlink()
    run(world, tmp_path / "whole")
    said = refused(lambda: run(world, tmp_path / "b", since=tmp_path / "a"))
    if said is None:
        require_same(tmp_path / "b", tmp_path / "whole")
    else:
        assert str(tmp_path / "a") in said
        assert not (tmp_path / "b" / "manifest.json").exists()


def refused(work: Callable[[], object]) -> str | None:
    """What an error says of something that is done; None: it can be done."""
    try:
        work()
    except (DatasetError, InputError) as error:
        return str(error)
    return None


def test_the_chain_says_when_all_was_read(world: World, tmp_path: Path) -> None:
    """Each inventory knows the one before it, and the first of the chain; a whole one begins it anew."""
    run(world, tmp_path / "a", keep=True)
    first = begun(tmp_path / "a")
    seen = [run(world, tmp_path / name, since=tmp_path / since) for since, name in ("ab", "bc")]
    found = [(one.reused.collected, one.reused.whole) for one in seen if one.reused is not None]
    assert found == [(first, first), (begun(tmp_path / "b"), first)]
    run(world, tmp_path / "d", keep=True)
    last = run(world, tmp_path / "e", since=tmp_path / "d")
    assert last.reused is not None
    assert last.reused.whole == begun(tmp_path / "d") > first


def begun(out: Path) -> str:
    """When the collection of an inventory began."""
    return str(open_dataset(out, "inventory").manifest["coverage"]["started"])


def test_an_inventory_without_fingerprints_is_no_reason_to_stop(world: World, tmp_path: Path) -> None:
    """Everything is read, and the reason is said."""
    first = run(world, tmp_path / "a")
    seen = run(world, tmp_path / "b", since=tmp_path / "a")
    assert seen.bytes_read == first.bytes_read
    assert seen.reused is not None
    assert "incremental" in seen.reused.reason
    assert (tmp_path / "b" / AGAIN).is_dir()


def test_nothing_secret_is_kept(world: World, tmp_path: Path) -> None:
    """Neither passwords nor master keys stand in any file, however they are written."""
    run(world, tmp_path / "a", keep=True, passwords=(b"theirs",))
    hidden = [b"theirs", entry.master_key(b"theirs"), b"others", entry.master_key(b"others")]
    tables = open_dataset(tmp_path / "a" / AGAIN, "again")
    everything = repr([tables.read(name).to_pylist() for name in tables.manifest["tables"]]).encode()
    everything += b"".join(path.read_bytes() for path in (tmp_path / "a").rglob("*.json"))
    for secret in hidden:
        for form in (secret, repr(secret)[2:-1].encode(), secret.hex().encode()):
            assert form not in everything


def test_a_run_that_breaks_off_leaves_the_earlier_inventory(world: World, tmp_path: Path) -> None:
    """Nothing is written into it: whatever happens to the new one, it is whole, and can be named again."""
    run(world, tmp_path / "a", keep=True)
    before = {path: path.read_bytes() for path in contents(tmp_path / "a")}

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    options = CollectOptions(**world.folders, since=tmp_path / "a")
    with pytest.raises(KeyboardInterrupt):
        collect(options, tmp_path / "b", now=lambda: datetime.now(UTC) + LATER, progress=stop)
    assert {path: path.read_bytes() for path in contents(tmp_path / "a")} == before
    assert not (tmp_path / "b" / "manifest.json").exists()
    run(world, tmp_path / "b", since=tmp_path / "a")
    require_same(tmp_path / "a", tmp_path / "b")


def contents(folder: Path) -> Iterator[Path]:
    """Every file below a folder."""
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def test_a_log_that_was_gone_through_is_not_again(tmp_path: Path) -> None:
    """One without a ledgers map is read once, and not while it is as it was."""
    world = World(tmp_path, 3)
    world.made.log(9).write_bytes(entry_log.encode([record(500, n) for n in range(40)], with_map=False))
    world.settle()
    run(world, tmp_path / "a", keep=True)
    again = run(world, tmp_path / "b", since=tmp_path / "a")
    assert again.bytes_read == 0
    require_same(tmp_path / "a", tmp_path / "b")
