"""A simulated bookie: what it stores of each ledger, and what a stop, a kill, a checkpoint and a wipe leave of it."""

from typing import NamedTuple

from recovery.model.metadata import NO_ENTRY


class Copy(NamedTuple):
    """An entry as a bookie has it.

    Attributes:
        lac: last add confirmed in its header.
        length: payload bytes of the ledger up to and with it, as its writer counted.
        size: payload bytes.
        life: which ledger of that id wrote it: equal for copies of the same bytes.
    """

    lac: int
    length: int
    size: int
    life: int


class Shelf:
    """What a bookie has of one ledger.

    Attributes:
        key: the master key that it knows.
        index: entries in its index.
        fresh: entries in memory and journal only.
        left: entries in logs and old journals that it does not serve.
        listed: the index has the ledger.
        said: a journal has a record that names it; keyed: its key, too, which only comes with an entry.
        fenced: it takes no more adds.
        fence_stored: a scan finds the fence.
        explicit: the explicit LAC that it serves; NO_ENTRY - 1 if there is none.
    """

    __slots__ = ("explicit", "fence_stored", "fenced", "fresh", "index", "key", "keyed", "left", "listed", "said")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.index: dict[int, Copy] = {}
        self.fresh: dict[int, Copy] = {}
        self.left: dict[int, Copy] = {}
        self.listed = False
        self.said = True
        self.keyed = False
        self.fenced = False
        self.fence_stored = False
        self.explicit = NO_ENTRY - 1

    def get(self, entry: int) -> Copy | None:
        """Return the copy that is served."""
        return self.fresh.get(entry) or self.index.get(entry)

    def list_served(self) -> dict[int, Copy]:
        """Return all entries that are served."""
        return {**self.index, **self.fresh}

    def find_lac(self) -> int:
        """Return the largest LAC that the bookie was told."""
        return max(self.explicit, *(copy.lac for copy in self.list_served().values()))


class Bookie:
    """One bookie.

    Attributes:
        name: its id in ensembles.
        incarnation: raised when it comes back with empty disks.
        up: it answers.
        registered: clients may choose it.
        writable: it takes entries. One that is read-only takes those of recoveries and repairs alone.
        database: it has Db storage: every ledger that it knows is in its index.
        shelves: what it has, by ledger.
        clean: it was stopped cleanly.
        dropped: ledgers that were deleted, with what logs and journals still have of them.
    """

    def __init__(self, name: str, *, database: bool = False) -> None:
        self.name = name
        self.database = database
        self.incarnation = 1
        self.up = self.registered = self.writable = True
        self.clean = False
        self.shelves: dict[int, Shelf] = {}
        self.dropped: dict[int, Shelf] = {}

    @property
    def is_hung(self) -> bool:
        """Whether clients may choose it, and it answers nothing."""
        return self.registered and not self.up

    def shelf(self, ledger: int, key: bytes) -> Shelf:
        """Return the shelf of a ledger, made if it is not there."""
        shelf = self.shelves.get(ledger)
        if shelf is None:
            shelf = self.shelves[ledger] = Shelf(key)
            gone = self.dropped.pop(ledger, None)
            if gone is not None:
                shelf.left = {**gone.left, **gone.fresh}
        return shelf

    def add(self, ledger: int, entry: int, copy: Copy, key: bytes, *, recovery: bool = False) -> bool:
        """Store an entry, unless the bookie is down, the ledger fenced, or its key another one."""
        if not self.up or not (self.writable or recovery):
            return False
        shelf = self.shelf(ledger, key)
        if shelf.key != key or (shelf.fenced and not recovery):
            return False
        shelf.fresh[entry] = copy
        shelf.keyed = True
        return True

    def fence(self, ledger: int, key: bytes) -> Shelf | None:
        """Fence a ledger and return its shelf; None: no answer that counts."""
        if not self.up:
            return None
        shelf = self.shelf(ledger, key)
        if shelf.key != key:
            return None
        shelf.fenced = shelf.fence_stored = True
        return shelf

    def flush(self) -> None:
        """Checkpoint: memory goes to logs and index, and the journal before is old.

        Db storage writes down all ledgers that it knows, but only if it has an entry to write.
        """
        dirty = any(shelf.fresh for shelf in self.shelves.values())
        for shelf in self.shelves.values():
            if shelf.fresh:
                shelf.index.update(shelf.fresh)
                shelf.fresh = {}
                shelf.listed = True
            shelf.listed |= dirty and self.database
        for shelf in self.dropped.values():
            shelf.left.update(shelf.fresh)
            shelf.fresh = {}

    def stop(self, *, journals_kept: bool = True) -> None:
        """Stop cleanly. A fence or explicit LAC of a ledger with nothing dirty is then only in old journals."""
        for shelf in self.shelves.values():
            if not shelf.fresh and not self.database and not journals_kept:
                shelf.fence_stored = False
                shelf.explicit = NO_ENTRY - 1
            if not shelf.fresh and not self.database:
                shelf.fenced = False
            if not journals_kept:
                shelf.said = shelf.keyed = False
        self.flush()
        self.up, self.registered, self.clean = False, False, True

    def kill(self) -> None:
        """End as `kill -9` ends it."""
        self.up = self.registered = self.clean = False

    def start(self) -> None:
        """Come back; the journal is replayed, and flushed."""
        if not self.clean:
            for ledger, gone in list(self.dropped.items()):
                if gone.fresh:
                    shelf = self.dropped.pop(ledger)
                    self.shelves[ledger] = shelf
            self.flush()
        self.up, self.registered, self.clean = True, True, False

    def lose_journal(self) -> None:
        """Lose what is in no log and no index yet; the bookie is down."""
        for ledger, shelf in list(self.shelves.items()):
            shelf.fresh, shelf.said, shelf.keyed = {}, False, False
            shelf.fenced = shelf.fence_stored = shelf.fence_stored and shelf.listed
            if not shelf.listed:
                self.shelves.pop(ledger)
        for shelf in self.dropped.values():
            shelf.fresh, shelf.said, shelf.keyed = {}, False, False

    def wipe(self) -> None:
        """Lose everything, and be another incarnation."""
        self.shelves, self.dropped = {}, {}
        self.incarnation += 1

    def delete(self, ledger: int) -> None:
        """Delete a ledger as garbage collection does: the index forgets it, logs and journals keep it for now."""
        shelf = self.shelves.pop(ledger)
        shelf.left.update(shelf.index)
        shelf.index, shelf.listed = {}, False
        self.dropped[ledger] = shelf

    def compact(self, *, journals: bool = True) -> None:
        """Rewrite logs without what no index has; old journals go, too, or still have it."""
        if not journals:
            return
        for ledger, shelf in list(self.dropped.items()):
            shelf.left, shelf.said, shelf.keyed = {}, False, False
            if not shelf.fresh:
                self.dropped.pop(ledger)
        for shelf in self.shelves.values():
            shelf.left = {}
