"""What a collection keeps so that the next one of the same bookie need read only what changed since.

It is a dataset of its own in the inventory's folder (`AGAIN`): fingerprints of files, and for each file what reading it
gave. What a file gives depends on its bytes alone, so a file whose fingerprint is the same gives the same:

    ledger of index files   taken over if its file, and every entry log that its slots name, are as they were
    ledger of Db storage    likewise; its slots are compared by a hash, for which a database that changed is read
    entry log               neither gone through, nor its map read, if it is as it was
    journal                 not read if it is as it was, and its place before, in or behind the mark is

Then everything is merged anew. A fingerprint is inode, size, time of content and time of status. One whose times are
not older than the collection that took it does not count: the file may have changed again within the same tick of the
clock. What damage touched is always read again.
"""

import hashlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from recovery import __version__
from recovery.collect.rows.entry_headers import DIGEST_COLUMN, DIGESTS
from recovery.collect.rows.index_slots import Block, Found, Piece
from recovery.collect.rows.ledger_facts import FACT_WIDTH, FENCED, KEY, LAC, LEDGER, LIMBO, NONE, SOURCE, Interned
from recovery.collect.rows.scoped_ids import bucket_of
from recovery.collect.rows.source_copies import (
    GROUP_WIDTH,
    Ints,
    Mask,
    canonical,
    entries_of,
    less,
    members,
    starts_of,
    to_groups,
)
from recovery.collect.rows.spool import SHARES, Spool
from recovery.dataset import AGAIN, MANIFEST, Dataset, DatasetWriter, open_dataset
from recovery.errors import DatasetError, InputError
from recovery.model import tables
from recovery.model.groups import KeyedGroups
from recovery.model.ids import BUCKETS
from recovery.model.metadata import Digest

_TICK_NS: Final = 2_000_000_000
"""The coarsest clock of a file system (FAT); clocks of other machines should be off by less."""
_PER_SHARE: Final = BUCKETS // SHARES
_FEW: Final = 1 << 17
"""Rows of a table that are compared at once."""
_CRCS: Final = tuple(DIGESTS.index(digest) for digest in (Digest.CRC32, Digest.CRC32C))
_MIX: Final = tuple(n - (1 << 64) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_LOG_SHIFT: Final = 32

# Columns of rows, behind the ledger's key.
_SOURCE, _FILE, _ENTRY_LOG = 1, 1, 2
_TIMES: Final = slice(4, 6)
_SPECIAL_WIDTH: Final = 5
FINGERPRINT_WIDTH: Final = 6
"""Columns: ledger, number of the index, and of a file inode, size, time of content and of status; of a database the
sum of its slots' hashes, their count, and zeros."""
LOG_WIDTH: Final = 2
"""Columns: ledger, id of a log that a slot of it names."""
_FENCE_SEEN, _KEY_SEEN, _LAC_SEEN = range(3)


@dataclass(slots=True)
class Taken:
    """A file, and what reading it gave beside its entries.

    Attributes:
        number: in this collection; in the order in which files are read.
        path, kind: log, journal, or a file of a database.
        shape: inode, size, time of content and of status in ns; all -1: it does not count.
        id: of a log.
        mark: of a journal, where replay of it would begin.
        newest: a journal is the newest of its folder.
        listed: a log has a ledgers map.
        read: it was gone through.
        sound: no damage.
        largest, met: largest ledger id of its map, and of its records; -1: none.
    """

    number: int
    path: str
    kind: str
    shape: tuple[int, ...]
    id: int = -1
    mark: int = -1
    newest: bool = False
    listed: bool = False
    read: bool = False
    sound: bool = True
    largest: int = -1
    met: int = -1


class TakesSpecial(Protocol):
    """Takes what special records of journals say of ledgers."""

    def see_fence(self, ledger: int) -> None:
        """Take a fence."""
        ...

    def see_key(self, ledger: int, key: bytes) -> None:
        """Take a key's stamp, which comes later than those before."""
        ...

    def see_lac(self, ledger: int, lac: int, record: bytes) -> None:
        """Take an explicit LAC."""
        ...


@dataclass(slots=True)
class SpecialFacts:
    """What the special records of one journal say, without what they say twice.

    Attributes:
        fenced: ledgers.
        keys: of each ledger in their order.
        lacs: the largest of each ledger, with its record.
    """

    fenced: set[int] = field(default_factory=set)
    keys: dict[int, list[bytes]] = field(default_factory=dict)
    lacs: dict[int, tuple[int, bytes]] = field(default_factory=dict)

    def see_fence(self, ledger: int) -> None:
        """Take a fence."""
        self.fenced.add(ledger)

    def see_key(self, ledger: int, key: bytes) -> None:
        """Take a key's stamp, which comes later than those before."""
        keys = self.keys.setdefault(ledger, [])
        if keys[-1:] != [key]:
            keys.append(key)

    def see_lac(self, ledger: int, lac: int, record: bytes) -> None:
        """Take an explicit LAC."""
        if ledger not in self.lacs or lac > self.lacs[ledger][0]:
            self.lacs[ledger] = lac, record


@dataclass(slots=True)
class Reused:
    """What did not have to be read.

    Attributes:
        ledgers: of indexes.
        files: entry logs and journals.
        reason: why nothing, or nothing of the index, could be taken over; empty: it could.
        inventory: the earlier one's folder.
        collected: when that one was begun.
        whole: when the collection was begun that took nothing over, from which on each took over from the one before:
            what rots without a change of times since is not seen.
    """

    ledgers: int = 0
    files: int = 0
    reason: str = ""
    inventory: str = ""
    collected: str = ""
    whole: str = ""


@dataclass(frozen=True, slots=True)
class Terms:
    """What must be the same for anything to be taken over.

    Attributes:
        bookie, incarnation: whose it is.
        folders: with their roles, in their order.
        passwords: that were given.
    """

    bookie: str
    incarnation: int
    folders: tuple[str, ...]
    passwords: tuple[bytes, ...] = field(repr=False)


class Again:
    """Takes over what an earlier collection read, and keeps what this one does.

    Args:
        terms: of this collection.
        since: folder of the earlier inventory; None: there is none.
        scratch: folder for rows.
        started: when this collection began.
        interned: the numbers of byte strings; its scopes name the ledgers.

    Raises:
        InputError: the earlier inventory is not there, not whole, or another bookie's.
        DatasetError: it is damaged.
    """

    def __init__(self, terms: Terms, since: Path | None, scratch: Path, started: datetime, interned: Interned) -> None:
        self._terms = terms
        self._scratch = scratch
        self._started = started
        self._limit = int(started.timestamp() * 1_000_000) * 1000 - _TICK_NS
        self._secrets = interned
        self._scopes = interned.scopes
        self.reused = Reused()
        self._earlier = None if since is None else self._open(since)
        self._binding: Mapping[str, Any] = {} if self._earlier is None else self._earlier.manifest["binding"]
        told = self._binding.get("passwords")
        self._same_passwords = told == _hidden(terms.passwords, told["salt"] if told else "")
        self._before: dict[str, Taken] = {}
        self._read_files()
        self._files: dict[str, Taken] = {}
        self._spools: dict[str, Spool] = {
            name: Spool(1 + len(_columns(name)), scratch)
            for name in ("ledgers", "slots", "held", "listed", "file_heads")
        }
        self._specials = Spool(_SPECIAL_WIDTH, scratch)
        self._waiting: list[tuple[int, ...]] = []
        self._every = False
        self._index_sound = True
        self._harmed: set[int] = set()
        self._stable = np.empty(0, np.int64)

    def close(self) -> None:
        """Give back the room that was taken on disk."""
        for spool in (*self._spools.values(), self._specials):
            spool.close()

    def _open(self, since: Path) -> Dataset | None:
        try:
            return self._fitting(since)
        except DatasetError as error:
            remedy = "name another earlier inventory of this bookie, or leave --since out: then everything is read"
            raise InputError(error.path, error.problem, remedy) from error

    def _fitting(self, since: Path) -> Dataset | None:
        inventory = open_dataset(since, "inventory")
        self.reused.inventory, self.reused.collected = str(since), inventory.manifest["coverage"].get("started", "")
        theirs = inventory.manifest["binding"]
        if theirs.get("bookie") != self._terms.bookie:
            problem = f"is an inventory of bookie {theirs.get('bookie')}; these folders are of {self._terms.bookie}"
            raise InputError(str(since), problem, "name the earlier inventory of this bookie, or leave --since out")
        if theirs.get("incarnation") != self._terms.incarnation:
            self.reused.reason = "the bookie was formatted anew since, or databases that tell its identity came or went"
            return None
        if not (since / AGAIN).exists():
            self.reused.reason = "the earlier inventory was not made with --incremental"
            return None
        found = open_dataset(since / AGAIN, "again")
        if inventory.manifest["coverage"].get("again") != _hash_of(since):
            raise DatasetError(str(since / AGAIN), "is not what was written with this inventory", "make it again")
        found.verify()
        binding = found.manifest["binding"]
        # The same bytes may give something else.
        if found.manifest.get("tool_version") != __version__:
            self.reused.reason = "another version of the program made the earlier inventory"
        elif binding.get("folders") != list(self._terms.folders):
            self.reused.reason = "the earlier inventory was made of other folders, or the cookie changed"
        if self.reused.reason:
            return None
        self.reused.whole = binding.get("whole") or self.reused.collected
        return found

    def _read_files(self) -> None:
        for row in () if self._earlier is None else self._earlier.read("files").to_pylist():
            shape = tuple(row.pop(name) for name in ("inode", "size", "mtime", "ctime"))
            self._before[row["path"]] = Taken(shape=shape, **row)

    def _shares(self, *names: str) -> Iterator[int | None]:
        """Yield the shares of the ledgers that are taken one after the other; None: all at once, where they are few."""
        many = [spool.count for spool in (*self._spools.values(), self._specials)]
        if self._earlier is not None:
            many += [self._earlier.rows(name) for name in names]
        if max(many) <= _FEW:
            yield None
        else:
            yield from range(SHARES)

    def _table_of(self, name: str, share: int | None) -> tuple[pa.Table, Ints]:
        """Return rows of the earlier collection, and the keys of their ledgers."""
        if self._earlier is None:
            return tables.AGAIN[name].empty_table(), np.empty(0, np.int64)
        of = None if share is None else range(share * _PER_SHARE, (share + 1) * _PER_SHARE)
        rows = self._earlier.read(name, buckets=of)
        scope, ledger = (rows[column].to_numpy().astype(np.int64) for column in ("scope", "ledger"))
        return rows, self._scopes.keys(scope if scope.any() else None, ledger)

    def _then(self, name: str, share: int | None) -> Ints:
        """Return rows of the earlier collection as a matrix, keys first."""
        rows, keys = self._table_of(name, share)
        return np.column_stack((keys, *(rows[column].to_numpy() for column in _columns(name))))

    # Files: entry logs, journals, those of databases.

    def see(self, path: str, kind: str, **more: Any) -> Taken:  # noqa: ANN401 - attributes of Taken
        """Look at a file before it is read."""
        try:
            found = Path(path).stat()
            shape = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        except OSError:
            shape = (-1,) * 4
        self._files[path] = Taken(len(self._files), path, kind, shape, **more)
        return self._files[path]

    def taken(self, path: str) -> Taken:
        """Return a file that was seen."""
        return self._files[path]

    def _unchanged(self, now: Taken) -> Taken | None:
        """Return what the earlier collection took of a file, if it is as it was; None if not."""
        before = self._before.get(now.path)
        same = before is not None and before.kind == now.kind and before.shape == now.shape and now.shape[0] >= 0
        return before if same else None

    def hold(self, file: Taken, groups: Ints, *, ahead: bool = False) -> None:
        """Keep rows of groups that a file gave; of a journal those behind the mark are ahead of the index."""
        file.read = True
        file.met = max(file.met, int(groups[:, 0].max(initial=-1)))
        front = np.tile(np.array([[file.number, int(ahead)]]), (len(groups), 1))
        self._spools["held"].add(np.column_stack((groups[:, :1], front, groups[:, 1:])))

    def _hand_on(self, kept: Mapping[int, Taken], give: Callable[[Ints, Mask], None]) -> None:
        """Take over what files held.

        Args:
            kept: the files, by the number that they had.
            give: takes rows of groups, and which are behind the mark.
        """
        for share in self._shares("held") if kept else ():
            rows = self._then("held", share)
            rows = rows[np.isin(rows[:, _FILE], list(kept))]
            rows[:, _FILE] = _renumbered(rows[:, _FILE], {old: now.number for old, now in kept.items()})
            self._spools["held"].add(rows)
            give(np.delete(rows, (1, 2), axis=1), rows[:, 2] > 0)

    # Journals.

    def journals(self, journals: Sequence[Taken], groups: Spool, applied: Spool) -> set[str]:
        """Take over journals that are as they were; return their paths.

        Args:
            journals: in order of folder and id.
            groups: takes what replay would bring back.
            applied: takes what stands before the mark.
        """
        same: dict[int, Taken] = {}
        past: dict[int, Taken] = {}
        for now in journals:
            before = self._unchanged(now)
            if before is None or not before.sound:
                continue
            # What is behind the mark depends on it, and whether a torn end is normal on there being a newer journal.
            if now.mark == -1:
                past[before.number] = now
            elif (before.mark, before.newest) == (now.mark, now.newest):
                same[before.number] = now
            else:
                continue
            now.read, now.met = before.read, before.met
        for kept, everything in ((same, False), (past, True)):

            def give(rows: Ints, ahead: Mask, *, everything: bool = everything) -> None:
                behind = ahead & (not everything)
                groups.add(rows[behind])
                applied.add(rows[~behind])

            self._hand_on(kept, give)
        kept = same | past
        for share in self._shares("specials") if kept else ():
            self._take_specials(share, kept)
        self.reused.files += len(kept)
        return {now.path for now in kept.values()}

    def _take_specials(self, share: int | None, kept: Mapping[int, Taken]) -> None:
        table, keys = self._table_of("specials", share)
        some = np.flatnonzero(np.isin(table["file"].to_numpy(), list(kept)))
        for key, row in zip(keys[some].tolist(), table.take(pa.array(some)).to_pylist(), strict=True):
            raw, number = row["raw"], NONE
            if row["kind"] == _KEY_SEEN:
                number = self._secrets.stamped(raw)
            elif row["kind"] == _LAC_SEEN:
                number = self._secrets.lac(raw)
            self._special(kept[row["file"]], key, row["kind"], number, row["lac"])

    def _special(self, file: Taken, ledger: int, kind: int, number: int = NONE, lac: int = 0) -> None:
        """Keep one: the number of a key or of a LAC's record, and that LAC."""
        file.met = max(file.met, ledger)
        self._waiting.append((ledger, file.number, kind, number, lac))
        if len(self._waiting) >= _FEW:
            self._flush_specials()

    def said(self, file: Taken, facts: "SpecialFacts") -> None:
        """Keep what the special records of a journal say, all of which was read by now."""
        file.read = True
        for ledger in facts.fenced:
            self._special(file, ledger, _FENCE_SEEN)
        for ledger, keys in facts.keys.items():
            for key in keys:
                self._special(file, ledger, _KEY_SEEN, self._secrets.stamped(key))
        for ledger, (lac, record) in facts.lacs.items():
            self._special(file, ledger, _LAC_SEEN, self._secrets.lac(record), lac)

    def tell(self, facts: "TakesSpecial") -> None:
        """Say what the special records of all journals say, of each ledger in the order of the journals."""
        self._flush_specials()
        for share in self._shares():
            rows = _part(self._specials, share)
            for ledger, _, kind, number, lac in rows[np.lexsort((rows[:, _FILE], rows[:, 0]))].tolist():
                if kind == _FENCE_SEEN:
                    facts.see_fence(ledger)
                elif kind == _KEY_SEEN:
                    facts.see_key(ledger, self._secrets.keys[number])
                else:
                    facts.see_lac(ledger, lac, self._secrets.lacs[number])

    def _flush_specials(self) -> None:
        self._specials.add(np.array(self._waiting, np.int64).reshape(-1, _SPECIAL_WIDTH))
        self._waiting = []

    # Indexes.

    def begin_index(self, *, every: bool) -> None:
        """Find out which logs are as they were, now that all are seen.

        Args:
            every: all locations are confirmed.
        """
        self._every = every
        now, then = _by_log(self._files.values()), _by_log(self._before.values())
        stable = [
            log_id
            for log_id, paths in now.items()
            if then.get(log_id) == paths and all(self._unchanged(self._files[path]) for path in paths)
        ]
        self._stable = np.array(sorted(stable), np.int64)
        if self._earlier is not None and self._binding["every"] != every:
            self.reused.reason = "the bookie was not stopped then as it is now, so all places of entries are looked at"
        elif self._earlier is not None and not self._binding["index_sound"]:
            self.reused.reason = "the index was damaged when the earlier inventory was made"

    def compare(self, fingerprints: Ints, logs: Ints | None = None) -> None:
        """Take fingerprints of ledgers, and which logs their slots name."""
        self._spools["ledgers"].add(fingerprints)
        if logs is not None:
            self._spools["slots"].add(logs)

    def is_unchanged(self, files: Iterable[Taken]) -> bool:
        """Whether files of a database are those that there were, and nothing of it has to be read again."""
        now = {file.path: self._unchanged(file) for file in files}
        folders = {str(Path(path).parent) for path in now}
        then = {path for path, before in self._before.items() if str(Path(path).parent) in folders}
        return (
            self.usable
            and bool(now)
            and now.keys() == then
            and all(before is not None and before.sound for before in now.values())
        )

    def recall(self, source: int) -> None:
        """Take the hashes of a database that is as it was from the earlier collection."""
        for share in self._shares("ledgers"):
            rows = self._then("ledgers", share)
            self._spools["ledgers"].add(rows[rows[:, _SOURCE] == source])

    @property
    def usable(self) -> bool:
        """Whether anything of an index can be taken over."""
        return self._earlier is not None and not self.reused.reason

    def kept(self, sources: range, found: Found[Spool], *, facts: bool) -> "Kept":
        """Take over the ledgers of indexes that are as they were.

        Args:
            sources: numbers of the indexes.
            found: takes groups and headers.
            facts: take over the facts, too; otherwise they were read.
        """
        ledgers, holding, rest = [np.empty(0, np.int64)], [np.empty(0, np.int64)], not self.usable
        for share in self._shares("ledgers", "groups", "heads", "slots", "facts") if self.usable else ():
            same, every = self._same(share, sources)
            rest |= len(same) < every
            if not len(same):
                continue
            ledgers.append(same)
            for name, spool in (("groups", found.groups), ("heads", found.heads), ("slots", self._spools["slots"])):
                rows = self._then(name, share)
                rows = rows[np.isin(rows[:, 0], same)]
                spool.add(rows)
                if name == "groups":
                    holding.append(np.unique(rows[:, 0]))
            if facts:
                found.facts.add(self._facts(share, same))
        kept = Kept(np.sort(np.concatenate(ledgers)), np.sort(np.concatenate(holding)), rest)
        self.reused.ledgers += len(kept.ledgers)
        return kept

    def _same(self, share: int | None, sources: range) -> tuple[Ints, int]:
        """Return the ledgers that are as they were, and how many there are."""
        now, then = (
            rows[(rows[:, _SOURCE] >= sources.start) & (rows[:, _SOURCE] < sources.stop)]
            for rows in (_summed(_part(self._spools["ledgers"], share)), self._then("ledgers", share))
        )
        every = len(now)
        now, then = now[_alone(now[:, 0])], then[np.argsort(then[:, 0], kind="stable")]
        if not len(then):
            return then[:, 0], every
        at = np.minimum(np.searchsorted(then[:, 0], now[:, 0]), len(then) - 1)
        same = now[(then[at] == now).all(axis=1), 0]
        slots, heads = self._then("slots", share), self._then("heads", share)
        moved = slots[~np.isin(slots[:, 1], self._stable), 0]
        doubted = heads[self._doubted(heads[:, DIGEST_COLUMN]), 0]
        return np.setdiff1d(same, np.concatenate((moved, doubted))), every

    def _doubted(self, digest: Ints) -> Mask:
        """Return which digests may be told otherwise, since other passwords were given."""
        return np.zeros(len(digest), np.bool_) if self._same_passwords else ~np.isin(digest, _CRCS)

    def _facts(self, share: int | None, ledgers: Ints) -> Ints:
        rows, keys = self._table_of("facts", share)
        of = np.flatnonzero(np.isin(keys, ledgers))
        rows = rows.take(pa.array(of))
        facts = np.empty((len(of), FACT_WIDTH), np.int64)
        facts[:, LEDGER] = keys[of]
        for column, name in ((SOURCE, "source"), (FENCED, "fenced"), (LIMBO, "limbo")):
            facts[:, column] = rows[name].to_numpy()
        for column, name, number in ((KEY, "key", self._secrets.stamped), (LAC, "lac", self._secrets.lac)):
            facts[:, column] = [NONE if raw is None else number(raw) for raw in rows[name].to_pylist()]
        return facts

    def harm(self, ledger: int | None) -> None:
        """Keep nothing of a ledger; None: of any index."""
        if ledger is None:
            self._index_sound = False
        else:
            self._harmed.add(ledger)

    # Entry logs.

    def logs(self, known: Ints, give: Callable[[Ints], None]) -> dict[str, bool]:
        """Take over logs that are as they were; return their paths, and whether they count as gone through.

        Args:
            known: ledgers whose index was read whole and holds entries.
            give: takes rows of groups.
        """
        same = {
            before.number: now
            for now in self._files.values()
            if now.kind == "log" and (before := self._unchanged(now)) is not None and before.sound
        }
        unlisted: set[int] = set()
        for share in self._shares("listed") if same else ():
            rows = self._then("listed", share)
            unlisted.update(np.unique(rows[~np.isin(rows[:, 0], known), _FILE]).tolist())
        found: dict[str, bool] = {}
        for number, now in list(same.items()):
            before = self._before[now.path]
            wanted = not before.listed or number in unlisted
            if wanted and not before.read:
                del same[number]
                continue
            now.listed, now.largest, now.met, now.read = before.listed, before.largest, before.met, before.read
            found[now.path] = wanted
        asked = {now.number for now in same.values() if found[now.path]}

        def take(rows: Ints, numbers: Ints) -> None:
            give(rows[np.isin(numbers, list(asked))])

        self._hand_on_logs(same, take)
        self.reused.files += len(found)
        return found

    def _hand_on_logs(self, same: Mapping[int, Taken], take: Callable[[Ints, Ints], None]) -> None:
        numbers = {old: now.number for old, now in same.items()}
        for share in self._shares("held", "listed") if same else ():
            for name in ("held", "listed"):
                rows = self._then(name, share)
                rows = rows[np.isin(rows[:, _FILE], list(same))]
                rows[:, _FILE] = _renumbered(rows[:, _FILE], numbers)
                self._spools[name].add(rows)
                if name == "held":
                    take(np.delete(rows, (1, 2), axis=1), rows[:, _FILE])

    def list(self, file: Taken, ledgers: Ints) -> None:
        """Keep the ledgers of a log's map."""
        file.listed = True
        file.largest = int(ledgers.max(initial=-1))
        self._spools["listed"].add(np.column_stack((ledgers, np.full(len(ledgers), file.number))))

    # Headers of entries in logs and journals.

    def heads(
        self, paths: Sequence[str], wanted: KeyedGroups, read: "ReadsHeads", give: Callable[[Ints], None]
    ) -> KeyedGroups:
        """Hand on the headers that are wanted and stand in some files; return what stands in none of them.

        Args:
            paths: the files in the order in which they were seen.
            wanted: the entries.
            read: reads headers in some of the files, by their places in `paths`.
            give: takes header rows; of several of one entry, that of the first file comes first.
        """
        files = [self._files[path] for path in paths]
        old = {
            before.number: n
            for n, file in enumerate(files)
            if (before := self._unchanged(file)) is not None and before.sound and before.read
        }
        again = {n for n in range(len(files)) if n not in old.values()}
        asked = np.concatenate([np.empty((0, 2), np.int64), *map(np.column_stack, entries_of(wanted))])
        met = [np.empty((0, 2), np.int64)]
        found = Spool(1 + len(_columns("file_heads")), self._scratch)
        kept = Spool(1 + len(_columns("file_heads")), self._scratch)
        try:
            for share in self._shares("held", "file_heads") if old else ():
                some = asked if share is None else asked[bucket_of(asked[:, 0]) // _PER_SHARE == share]
                held, heads = (self._then(name, share) for name in ("held", "file_heads"))
                stands = _standing(held[np.isin(held[:, _FILE], list(old))], some)
                heads = heads[~self._doubted(heads[:, DIGEST_COLUMN + 1])]
                lacking = ~_among(stands, heads[:, :3])
                again.update(old[n] for n in np.unique(stands[lacking, _FILE]).tolist())
                heads = heads[_among(heads[:, :3], stands)]
                heads[:, _FILE] = _renumbered(heads[:, _FILE], old)
                kept.add(heads)
                met.append(stands[:, (0, 2)])
            if again:
                places, rows, located = read(sorted(again))
                found.add(np.column_stack((rows[:, 0], places, rows[:, 1:])))
                met.append(located)
            numbers = np.array([file.number for file in files], np.int64)
            for share in self._shares("file_heads"):
                some = _part(kept, share)
                every = np.concatenate((some[~np.isin(some[:, _FILE], list(again))], _part(found, share)))
                every = every[np.lexsort((every[:, _FILE], every[:, 0]))]
                give(np.delete(every, _FILE, axis=1))
                every[:, _FILE] = numbers[every[:, _FILE]]
                self._spools["file_heads"].add(every)
        finally:
            found.close()
            kept.close()
        pairs = np.concatenate(met)
        return less(wanted, to_groups(pairs[:, 0], pairs[:, 1]))

    # Writing.

    def write(self, folder: Path, found: Found[Spool], doubled: Ints) -> str:
        """Keep what was read and what was taken over; return the hash of the manifest, which tells every part.

        Args:
            folder: of the inventory.
            found: what the indexes gave.
            doubled: ledgers that stand in several indexes.
        """
        harmed = np.union1d(np.fromiter(self._harmed, np.int64, len(self._harmed)), doubled)
        left_out: set[int] = set()
        binding = {
            "whole": self.reused.whole or self._started.isoformat(),
            "bookie": self._terms.bookie,
            "incarnation": self._terms.incarnation,
            "folders": list(self._terms.folders),
            "passwords": _hidden(self._terms.passwords, secrets.token_hex(16)),
            "every": self._every,
            "index_sound": self._index_sound,
        }
        with DatasetWriter(folder / AGAIN, "again", binding=binding) as writer:
            for share in self._shares():
                left_out |= self._write_index(writer, share, found, harmed)
                for name in ("held", "listed", "file_heads"):
                    writer.append(name, self._table(name, _part(self._spools[name], share)))
                self._write_specials(writer, share)
            writer.append("files", self._files_table(left_out))
            writer.close(coverage={})
        return _hash_of(folder)

    def _write_index(self, writer: DatasetWriter, share: int | None, found: Found[Spool], harmed: Ints) -> set[int]:
        """Write what is kept of the ledgers; return the indexes of those that are left out."""
        rows = _summed(_part(self._spools["ledgers"], share))
        good = (rows[:, _TIMES] < self._limit).all(axis=1) & _alone(rows[:, 0])
        good &= ~np.isin(rows[:, 0], harmed) & ~np.isin(rows[:, 0], _part(found.dangling, share)[:, 0])
        ledgers = rows[good, 0]
        writer.append("ledgers", self._table("ledgers", rows[good]))
        for name, spool in (("groups", found.groups), ("heads", found.heads), ("slots", self._spools["slots"])):
            of = _part(spool, share)
            of = of[np.isin(of[:, 0], ledgers)]
            writer.append(name, self._table(name, np.unique(of, axis=0) if name == "slots" else of))
        facts = _part(found.facts, share)
        facts = facts[np.isin(facts[:, LEDGER], ledgers)]
        columns = {
            "source": facts[:, SOURCE],
            "fenced": facts[:, FENCED],
            "limbo": facts[:, LIMBO],
            "key": _named(self._secrets.keys, facts[:, KEY]),
            "lac": _named(self._secrets.lacs, facts[:, LAC]),
        }
        writer.append("facts", pa.table({**self._ids(facts[:, LEDGER]), **columns}))
        return set(rows[~good, _SOURCE].tolist())

    def _write_specials(self, writer: DatasetWriter, share: int | None) -> None:
        rows = _part(self._specials, share)
        raw = [
            self._secrets.keys[n] if kind == _KEY_SEEN else self._secrets.lacs[n] if kind == _LAC_SEEN else None
            for kind, n in rows[:, 2:4].tolist()
        ]
        columns = {"file": rows[:, 1], "kind": rows[:, 2], "raw": pa.array(raw, pa.binary()), "lac": rows[:, 4]}
        writer.append("specials", pa.table({**self._ids(rows[:, 0]), **columns}))

    def _files_table(self, left_out: set[int]) -> pa.Table:
        rows = []
        for file in self._files.values():
            shape = file.shape if max(file.shape[2:]) < self._limit else (-1,) * 4
            fields = {name: getattr(file, name) for name in tables.AGAIN["files"].names if hasattr(file, name)}
            if file.kind == "database":
                fields["sound"] = file.id not in left_out
            rows.append({**fields, **dict(zip(("inode", "size", "mtime", "ctime"), shape, strict=True))})
        return pa.Table.from_pylist(rows, schema=tables.AGAIN["files"])

    def _table(self, name: str, rows: Ints) -> pa.Table:
        columns = {column: np.ascontiguousarray(rows[:, 1 + n]) for n, column in enumerate(_columns(name))}
        return pa.table({**self._ids(rows[:, 0]), **columns})

    def _ids(self, keys: Ints) -> dict[str, Ints]:
        keys = np.ascontiguousarray(keys)
        scope, ledger = self._scopes.ids(keys)
        return {"bucket": bucket_of(keys).astype(np.int16), "scope": scope, "ledger": ledger}


@dataclass(frozen=True, slots=True)
class Kept:
    """What was taken over of indexes.

    Attributes:
        ledgers: ascending.
        holding: those with entries, ascending.
        rest: there are others, which are to be read.
    """

    ledgers: Ints
    holding: Ints
    rest: bool


ReadsHeads = Callable[[Sequence[int]], tuple[Ints, Ints, Ints]]
"""Reads headers in files: the place of each row's file, the rows, and the (ledger, entry) pairs that stand there."""


def _hash_of(inventory: Path) -> str:
    return hashlib.sha256((inventory / AGAIN / MANIFEST).read_bytes()).hexdigest()


def _hidden(passwords: Sequence[bytes], salt: str) -> dict[str, str] | None:
    """Return what tells the same passwords again and is slow to guess them by; None: there are none."""
    if not passwords:
        return None
    text = b"".join(hashlib.sha256(password).digest() for password in sorted(set(passwords)))
    return {"salt": salt, "scrypt": hashlib.scrypt(text, salt=bytes.fromhex(salt), n=1 << 14, r=8, p=1).hex()}


def _named(names: Sequence[bytes], numbers: Ints) -> pa.Array:
    return pa.array([None if n == NONE else names[n] for n in numbers.tolist()], pa.binary())


def _columns(name: str) -> list[str]:
    return [column for column in tables.AGAIN[name].names if column not in tables.KEY_COLUMNS]


def _part(spool: Spool, share: int | None) -> Ints:
    return spool.all() if share is None else spool.share(share)


def _by_log(files: Iterable[Taken]) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for file in files:
        if file.kind == "log":
            found.setdefault(file.id, set()).add(file.path)
    return found


def _renumbered(values: Ints, numbers: Mapping[int, int]) -> Ints:
    """Return other numbers for each of some, which all have one."""
    old = np.array(sorted(numbers), np.int64)
    new = np.array([numbers[n] for n in old.tolist()], np.int64)
    return new[np.searchsorted(old, values)] if len(values) else values


def _alone(sorted_keys: Ints) -> Mask:
    """Return which of ascending keys there are only once."""
    starts = starts_of(sorted_keys)
    size = np.diff(np.append(starts, len(sorted_keys)))
    return np.repeat(size == 1, size)


def logs_of(piece: Piece | Block) -> Ints:
    """Return ledger and log of the slots of a piece, of neighbours that are alike one row."""
    if isinstance(piece, Block):
        log = piece.slots[piece.slots != 0] >> _LOG_SHIFT
        ledger = np.full(len(log), piece.ledger)
    else:
        ledger, log = piece.ledger, piece.location >> _LOG_SHIFT
    fresh = np.flatnonzero(np.append(True, (ledger[1:] != ledger[:-1]) | (log[1:] != log[:-1]))[: len(ledger)])
    return np.column_stack((ledger[fresh], log[fresh]))


def hashes_of(rows: Piece, source: int) -> Ints:
    """Return a fingerprint row for each ledger of a piece: the sum over its slots of a mixed number, and their count.

    Sums of several pieces add up to that of the whole; ledgers of which there are only facts have 0.
    """
    mixed = rows.location * _MIX[0]
    mixed = (mixed ^ (mixed >> 29) ^ rows.entry) * _MIX[1]
    mixed = (mixed ^ (mixed >> 32)) * _MIX[2]
    starts = starts_of(rows.ledger)
    ledger = np.append(rows.ledger[starts], rows.facts[:, LEDGER])
    found = np.zeros((len(ledger), FINGERPRINT_WIDTH), np.int64)
    found[:, 0], found[:, _SOURCE] = ledger, source
    if len(starts):
        found[: len(starts), 2] = np.add.reduceat(mixed, starts)
        found[: len(starts), 3] = np.diff(np.append(starts, len(rows.ledger)))
    return found


def _summed(rows: Ints) -> Ints:
    """Return fingerprint rows by ledger and source, those of several pieces of one index added up."""
    rows = rows[np.lexsort((rows[:, _SOURCE], rows[:, 0]))]
    if not len(rows):
        return rows
    starts = np.flatnonzero(np.append(True, (rows[1:, :2] != rows[:-1, :2]).any(axis=1)))
    return np.column_stack((rows[starts, :2], np.add.reduceat(rows[:, 2:], starts, axis=0)))


def _among(rows: Ints, others: Ints) -> Mask:
    """Return which rows are among others of the same width."""
    both = np.unique(np.concatenate((rows, others)), axis=0, return_inverse=True)[1].reshape(-1)
    return np.isin(both[: len(rows)], both[len(rows) :])


def _standing(held: Ints, asked: Ints) -> Ints:
    """Return ledger, file and entry of each of the asked (ledger, entry) pairs, once for each file that holds it."""
    pairs, of = np.unique(held[:, :2], axis=0, return_inverse=True)
    groups = canonical(KeyedGroups(of.reshape(-1), *(held[:, n] for n in range(3, 2 + GROUP_WIDTH))))
    low = np.searchsorted(pairs[:, 0], asked[:, 0], "left")
    many = np.searchsorted(pairs[:, 0], asked[:, 0], "right") - low
    row = np.repeat(np.arange(len(asked)), many)
    pair = np.arange(len(row)) - np.repeat(np.cumsum(many) - many, many) + np.repeat(low, many)
    there = members(groups, pair, asked[row, 1])
    row, pair = row[there], pair[there]
    return np.column_stack((asked[row, 0], pairs[pair, 1], asked[row, 1]))
