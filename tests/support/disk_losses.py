"""Real clusters whose records are lost, and some of whose disks are gone or damaged: what comes back of them.

`write_history` leaves the folders of a cluster that lived: ledgers of several shapes, closed and open ones, some whose
ensemble changed, some with copies that auto-recovery made. `damage` spoils disks of a copy. `Losses` says what the true
records read there, and what the records read that the program writes.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any, Final, Self

from tests.support import acid
from tests.support.acid import COLLECTING, Loss, end_of, is_hold, read_ledger
from tests.support.auto_recovery import auto_recovery
from tests.support.cluster import Bookie, Cluster, ClusterError, History, bookies_of
from tests.support.kept_bytes import Kept, Place, kept, less

STORAGES: Final = ("sorted", "interleaved", "db")
PASSWORD: Final = b"secret"
BOOKIES: Final = 6
VICTIM: Final = 0
"""The bookie that is damaged or gone."""
OTHER: Final = 1
"""The one that loses a folder where another one is gone."""
_QUORUMS: Final = ((3, 3, 2), (3, 2, 2), (2, 2, 2), (4, 3, 2), (4, 2, 2), (1, 1, 1))
_FOLDERS: Final = 2


class Damage(StrEnum):
    """What is gone of the disks."""

    BOOKIE = "a bookie"
    FOLDER = "a folder of two"
    BOTH = "a bookie, and a folder of another one"
    LOG = "the newest log is torn"
    INDEX = "index files are damaged"
    LEDGERS = "the RocksDB of ledgers"
    LOCATIONS = "the RocksDB of locations"
    JOURNAL = "the journal is cut"
    TAILS = "nothing: last entries are on some bookies only"


class Known(StrEnum):
    """What else is known."""

    NOTHING = "nothing"
    LOST = "what is gone is stated to be lost"
    STORE = "the store's complete files"


def list_damages(storage: str) -> list[Damage]:
    """Return what can be gone of a bookie of this storage."""
    own = {Damage.LEDGERS, Damage.LOCATIONS} if storage == "db" else {Damage.INDEX}
    return [kind for kind in Damage if kind in own or kind not in (Damage.LEDGERS, Damage.LOCATIONS, Damage.INDEX)]


def write_history(home: Path, storage: str, seed: int) -> dict[str, Any]:
    """Live a cluster to its end below `home`; return its truth.

    Bookies have their storages in turn, the victim the one that is named. It and another one are killed at last, with
    entries that are in their journals only; the others end cleanly.
    """
    random = Random(f"{storage} {seed}")
    turn = STORAGES.index(storage)
    with Cluster(home) as cluster:
        history = History(cluster)
        for n, kind in zip(range(BOOKIES), cycle(STORAGES[turn:] + STORAGES[:turn]), strict=False):
            history.bookie(n, kind, folders=_FOLDERS)
        writer = _Writer(history, random)
        for quorum in (*_QUORUMS, *_QUORUMS):
            writer.close(writer.write(quorum))
        changed = [writer.write(quorum) for quorum in _QUORUMS[:5]]
        gone = random.choice(history.members(changed[0]))
        history.down(gone, "clean")
        for ledger in changed:
            writer.add(ledger)
        history.up(gone)
        for ledger in changed[:3]:
            writer.close(ledger)
        copied = [writer.write(quorum) for quorum in _QUORUMS[:3]]
        gone = random.choice(history.members(copied[0]))
        for ledger in copied:
            writer.close(ledger)
        history.down(gone, "killed")
        for ledger in copied:
            if gone in history.members(ledger):
                cluster("repair", ledger=ledger, bad=history.id_of(gone), anywhere=True)
        history.up(gone)
        # What was written up to here is in indexes and logs: each bookie starts once more.
        for n in range(BOOKIES):
            history.down(n)
            history.up(n)
        for quorum in _QUORUMS[:4]:
            writer.close(writer.write(quorum))
        opened = [writer.write(quorum) for quorum in _QUORUMS[:4]]
        ragged = writer.write((3, 3, 2))
        mute = history.members(ragged)[-1]
        cluster("mute", n=mute)
        writer.add(ragged)
        history.down(mute, "killed")
        for ledger in opened:
            if mute not in history.members(ledger):
                writer.add(ledger)
        for n in reversed(range(BOOKIES)):
            if n != mute:
                history.down(n, "killed" if n in (VICTIM, BOOKIES - 1) else "clean")
        return history.truth()


class _Writer:
    """Writes ledgers of random lengths."""

    def __init__(self, history: History, random: Random) -> None:
        self.history, self.random = history, random

    def write(self, quorum: tuple[int, int, int]) -> int:
        digest = self.random.choice(("CRC32C", "CRC32", "MAC"))
        ledger = self.history.create(quorum, digest=digest, password=PASSWORD)
        self.add(ledger)
        return ledger

    def add(self, ledger: int) -> None:
        self.history.add(ledger, [self.random.randrange(1, 3000) for _ in range(self.random.randrange(3, 40))])

    def close(self, ledger: int) -> None:
        self.history.close(ledger)


@dataclass(frozen=True, slots=True)
class Spoiled:
    """Disks that are damaged.

    Attributes:
        truth: of the cluster; bookies that are gone are not present.
        stated: what `--lost` says of it.
        folders: that were gone, each made anew before its bookie starts.
    """

    truth: dict[str, Any]
    stated: tuple[str, ...]
    folders: tuple[str, ...] = ()


def damage(home: Path, truth: Mapping[str, Any], kind: Damage, seed: int) -> Spoiled:
    """Damage the disks below `home`."""
    random = Random(f"{kind} {seed}")
    rows = {row["n"]: dict(row) for row in truth["bookies"]}
    victim = rows[VICTIM]
    folders = [home / name / "current" for name in victim["ledgers"]]
    stated, gone = [victim["id"]], []
    if kind in (Damage.BOOKIE, Damage.BOTH):
        shutil.rmtree(home / f"bookies/b{VICTIM}")
        victim["present"] = False
    if kind in (Damage.FOLDER, Damage.BOTH):
        row = victim if kind is Damage.FOLDER else rows[OTHER]
        gone = [random.choice(row["ledgers"])]
        shutil.rmtree(home / gone[0])
        stated = [f"{row['id']}={gone[0]}"] + stated * (kind is Damage.BOTH)
    elif kind is Damage.LOG:
        logs = [log for folder in folders for log in folder.glob("*.log") if log.stat().st_size > 1024]
        _cut(max(logs, key=lambda log: (log.stat().st_mtime_ns, log.name)), random)
    elif kind is Damage.INDEX:
        files = sorted(file for folder in folders for file in folder.glob("*/*/*.idx"))
        for file in files[::2]:
            content = bytearray(file.read_bytes())
            at = random.choice((0, 1024))
            content[at : at + 400] = random.randbytes(len(content[at : at + 400]))
            file.write_bytes(content)
    elif kind in (Damage.LEDGERS, Damage.LOCATIONS):
        shutil.rmtree(folders[seed % _FOLDERS] / ("ledgers" if kind is Damage.LEDGERS else "locations"))
    elif kind is Damage.JOURNAL:
        journals = [file for name in victim["journals"] for file in (home / name / "current").glob("*.txn")]
        _cut(max(journals, key=lambda file: int(file.stem, 16)), random)
    elif kind is Damage.TAILS:
        stated = []
    return Spoiled({**truth, "bookies": list(rows.values())}, tuple(stated), tuple(gone))


def _count_copies(kept_places: Mapping[Place, Kept], ledger: int, places: AbstractSet[Place]) -> int:
    return sum(has.entries for place, has in kept_places.items() if place[1] == ledger and place in places)


def _cut(file: Path, random: Random) -> None:
    size = file.stat().st_size
    with file.open("r+b") as opened:
        opened.truncate(random.randrange(size // 4, 3 * size // 4))


@dataclass(slots=True)
class Reached:
    """What is read of a cluster, by ledger.

    Attributes:
        wanted: entries that the true records read on the same disks.
        read: of these, those that the program's records read.
        kept: of the others, those that the true records read, put back after bookies collected.
        wrong: ledgers with an entry that is another one than was written.
        invented: ledgers that never were.
        held: ledgers that are held, and why.
        outcomes: of the plan, by ledger.
        deleted: where a bookie that the true record names has less of a ledger that it had an index of.
        unindexed: the same without an index, which was on a disk that is gone: nobody read these copies.
        surplus: the same of a restored ledger of which as much is left elsewhere as the true record names: copies were
            made for a bookie that came back, and no byte tells which bookie's place they took; or auto-recovery made
            them now.
        moved: the same where auto-recovery copied what was missing on a bookie to another one, so that the record names
            that one now: all is read afterwards, too.
    """

    wanted: dict[int, set[int]] = field(default_factory=dict)
    read: dict[int, set[int]] = field(default_factory=dict)
    kept: dict[int, set[int]] = field(default_factory=dict)
    wrong: set[int] = field(default_factory=set)
    invented: set[int] = field(default_factory=set)
    held: dict[int, str] = field(default_factory=dict)
    outcomes: dict[int, str] = field(default_factory=dict)
    deleted: set[Place] = field(default_factory=set)
    unindexed: set[Place] = field(default_factory=set)
    surplus: set[Place] = field(default_factory=set)
    moved: set[Place] = field(default_factory=set)

    @property
    def total(self) -> int:
        """How many entries the true records read."""
        return sum(map(len, self.wanted.values()))

    @property
    def reached(self) -> int:
        """How many of them the program's records read."""
        return sum(map(len, self.read.values()))

    def find_short(self) -> dict[int, tuple[int, int, str]]:
        """Return ledgers with an entry that is not read: how many are, of how many, and what the plan made of it."""
        short = [ledger for ledger in self.wanted if self.wanted[ledger] - self.read[ledger]]
        return {
            ledger: (len(self.read[ledger]), len(self.wanted[ledger]), self.outcomes.get(ledger, "absent"))
            for ledger in short
        }

    @property
    def lost(self) -> dict[int, set[int]]:
        """Entries that no record reads any more, where that was looked at."""
        left = {ledger: self.wanted[ledger] - self.read[ledger] - self.kept[ledger] for ledger in self.kept}
        return {ledger: entries for ledger, entries in left.items() if entries}


class Losses:
    """A cluster that is damaged in one way, in a JVM of its own. Ends with the `with` block.

    Args:
        lived: folder of a cluster that `write_history` left.
        truth: of it.
        kind: the damage.
        seed: of the damage.
        work: a folder that is made.
    """

    def __init__(self, lived: Path, truth: Mapping[str, Any], kind: Damage, seed: int, work: Path) -> None:
        self.lived, self.work, self.kind = lived, work, kind
        self.disks, home = work / "disks", work / "home"
        work.mkdir()
        shutil.copytree(lived, self.disks)
        shutil.copytree(lived / "zookeeper", home / "zookeeper")
        self.spoiled = damage(self.disks, truth, kind, seed)
        self.rows: dict[int, dict[str, Any]] = {row["ledger"]: row for row in truth["ledgers"]}
        self.operator = acid.Operator(self.disks, self.spoiled.truth, [PASSWORD], work / "operator", is_partial=True)
        self.operator.collect()
        self.cluster = Cluster(home)
        self.cluster.start_zookeeper("zookeeper", truth["root"])
        with self._run({}):
            self.wanted = {ledger: self._list_right(row)[0] for ledger, row in self.rows.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.cluster.__exit__(None, None, None)

    @property
    def total(self) -> int:
        """How many entries the true records read."""
        return sum(map(len, self.wanted.values()))

    def recover(self, known: Known) -> Reached:
        """Bring the records back by the program, and read every entry; where nothing else is known, of a busy cluster.

        Its bookies look for garbage and for copies too many each second, and auto-recovery repairs what it can.
        """
        cluster, root = self.cluster, self.spoiled.truth["root"]
        found = Reached(wanted=self.wanted)
        acid.lose(cluster, self.spoiled.truth, Loss.LEDGERS)
        snapshot = self.lived / "zookeeper" if known is Known.STORE else None
        stated = [word for lost in self.spoiled.stated for word in ("--lost", lost)] if known is Known.LOST else []
        asked = partial(self.operator.recover, cluster.zookeeper, f"plan-{known.name.lower()}", snapshot)
        try:
            plan = asked(stated)
        except AssertionError as refused:
            # A journal or a log that is cut where nothing is missing then: there is nothing to state.
            if "was read whole, so nothing of it is missing; leave it out" not in str(refused):
                raise
            plan = asked([])
        found.outcomes = {ledger: row["outcome"] for ledger, row in plan.items()}
        found.held = {ledger: row["reason"] for ledger, row in plan.items() if row["outcome"] == "held"}
        records = cluster.ledgers()
        found.invented = records.keys() - self.rows.keys()
        if known is not Known.NOTHING:
            with self._run({}):
                self._read_all(records, found)
            return found
        with self._run(COLLECTING) as bookies, auto_recovery(cluster.zookeeper, self.work / "repairs", root=root):
            before = kept(self.disks, bookies)
            cluster.collect_garbage(len(bookies))
            self._read_all(records, found)
            cluster.collect_garbage(len(bookies))
            places = self._list_places()
            after = kept(cluster.home, bookies)
            less_now = less(before, after).keys()
            gone = less_now & places
            found.unindexed = {place for place in gone if not before[place].index}
            found.surplus = {
                (bookie, ledger)
                for bookie, ledger in gone - found.unindexed
                if found.outcomes.get(ledger) == "restored"
                and _count_copies(after, ledger, after.keys() - less_now) >= _count_copies(before, ledger, places)
            }
            found.moved = {
                place
                for place in gone - found.unindexed - found.surplus
                if self._is_moved(place, records, cluster.ledgers())
            }
            found.deleted = gone - found.unindexed - found.surplus - found.moved
            self._read_what_is_kept(found)
        return found

    @contextmanager
    def _run(self, props: Mapping[str, str]) -> Iterator[Sequence[Bookie]]:
        """Run the bookies, on fresh copies of the disks; of those that may be damaged, the ones that start.

        A folder that was gone is a new disk, with the file that names its bookie.
        """
        cluster, started = self.cluster, []
        shutil.rmtree(cluster.home / "bookies", ignore_errors=True)
        shutil.copytree(self.disks / "bookies", cluster.home / "bookies")
        for bookie in bookies_of(self.spoiled.truth):
            for folder in set(bookie.ledgers) & set(self.spoiled.folders):
                new = cluster.home / folder / "current"
                new.mkdir(parents=True)
                shutil.copy(cluster.home / bookie.journals[0] / "current/VERSION", new)
            with suppress(ClusterError) if bookie.n in (VICTIM, OTHER) else nullcontext():
                cluster.start(replace(bookie, props=dict(props)))
                started.append(bookie)
        try:
            yield started
        finally:
            for bookie in started:
                cluster("bookie_stop", n=bookie.n)

    def _read_all(self, records: Mapping[int, Mapping[str, Any]], found: Reached) -> None:
        """Read every ledger, and once more what was not read: on a busy machine a bookie may not answer in time."""
        for is_first in (True, False):
            for ledger, row in self.rows.items():
                record, read = records.get(ledger), found.read.setdefault(ledger, set())
                if record is None or "error" in record or is_hold(record):
                    continue
                if is_first or self.wanted[ledger] - read:
                    right, is_wrong = self._list_right({**row, "now": record["state"]})
                    read |= right & self.wanted[ledger]
                    found.wrong |= {ledger} if is_wrong else set()

    def _read_what_is_kept(self, found: Reached) -> None:
        for ledger, row in self.rows.items():
            found.kept[ledger] = set()
            if self.wanted[ledger] - found.read[ledger]:
                self.cluster("zk_put", nodes=[{"path": row["path"], "data": row["raw"]}])
                found.kept[ledger] = self._list_right(row)[0]

    def _is_moved(
        self, place: Place, ours: Mapping[int, Mapping[str, Any]], now: Mapping[int, Mapping[str, Any]]
    ) -> bool:
        bookie, ledger = place
        named, names = (
            any(bookie in members for _, members in records.get(ledger, {}).get("segments", ()))
            for records in (ours, now)
        )
        if names or not named:
            return False
        return self.wanted[ledger] <= self._list_right({**self.rows[ledger], "now": now[ledger]["state"]})[0]

    def _list_places(self) -> set[Place]:
        """Return the bookies that a true record names, each with its ledger."""
        segments = [(ledger, members) for ledger, row in self.rows.items() for _, members in row["segments"]]
        return {(bookie, ledger) for ledger, members in segments for bookie in members}

    def _list_right(self, row: Mapping[str, Any]) -> tuple[set[int], bool]:
        """Return the entries that are read as they were written, and whether another one is."""
        is_closed = row.get("now", row["state"]) == "CLOSED"
        read = read_ledger(self.cluster, row, recovery=not is_closed)["entries"][: end_of(row) + 1]
        right = {entry for entry, one in enumerate(read) if one == row["entries"][entry]}
        return right, any(one[0] is not None and entry not in right for entry, one in enumerate(read))
