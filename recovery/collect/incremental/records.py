"""Records of files and ledgers that a collection takes over, or keeps for the next one."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Protocol

from recovery.collect.rows.source_copies import Ints

FINGERPRINT_WIDTH: Final = 6
"""Columns: ledger, number of the index, and of a file inode, size, time of content and of status; of a database the
sum of its slots' hashes, their count, and zeros."""
LOG_WIDTH: Final = 2
"""Columns: ledger, id of a log that a slot of it names."""
SOURCE_COLUMN, FILE_COLUMN = 1, 1
"""Columns of rows, after the ledger's key."""


@dataclass(slots=True)
class SeenFile:
    """A file, and its results beside its entries.

    Attributes:
        number: in this collection; in the order in which files are read.
        path, kind: log, journal, or a file of a database.
        fingerprint: inode, size, time of content and of status in ns; all -1: it does not count.
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
    fingerprint: tuple[int, ...]
    id: int = -1
    mark: int = -1
    newest: bool = False
    listed: bool = False
    read: bool = False
    sound: bool = True
    largest: int = -1
    met: int = -1


class TakesSpecial(Protocol):
    """Receives the special records of journals."""

    def take_fence(self, ledger: int) -> None:
        """Take a fence."""
        ...

    def take_key(self, ledger: int, key: bytes) -> None:
        """Take a key's stamp, which is newer than those that came first."""
        ...

    def take_lac(self, ledger: int, lac: int, record: bytes) -> None:
        """Take an explicit LAC."""
        ...


@dataclass(slots=True)
class SpecialFacts:
    """The special records of one journal, without repetitions.

    Attributes:
        fenced: ledgers.
        keys: of each ledger in their order.
        lacs: the largest of each ledger, with its record.
    """

    fenced: set[int] = field(default_factory=set)
    keys: dict[int, list[bytes]] = field(default_factory=dict)
    lacs: dict[int, tuple[int, bytes]] = field(default_factory=dict)

    def take_fence(self, ledger: int) -> None:
        """Take a fence."""
        self.fenced.add(ledger)

    def take_key(self, ledger: int, key: bytes) -> None:
        """Take a key's stamp, which is newer than those that came first."""
        keys = self.keys.setdefault(ledger, [])
        if keys[-1:] != [key]:
            keys.append(key)

    def take_lac(self, ledger: int, lac: int, record: bytes) -> None:
        """Take an explicit LAC."""
        if ledger not in self.lacs or lac > self.lacs[ledger][0]:
            self.lacs[ledger] = lac, record


@dataclass(slots=True)
class Reused:
    """Counts of files and ledgers that were not read.

    Attributes:
        ledgers: of indexes.
        files: entry logs and journals.
        reason: why nothing, or nothing of the index, could be taken over; empty: it could.
        inventory: the earlier one's folder.
        collected: when that one was begun.
        whole: when the collection was begun that took nothing over, from which on each took over from its predecessor:
            what rots without a change of times since then is not seen.
    """

    ledgers: int = 0
    files: int = 0
    reason: str = ""
    inventory: str = ""
    collected: str = ""
    whole: str = ""


@dataclass(frozen=True, slots=True)
class Terms:
    """The inputs that must be equal before any result is taken over.

    Attributes:
        bookie, incarnation: its bookie.
        folders: with their roles, in their order.
        passwords: the given ones.
    """

    bookie: str
    incarnation: int
    folders: tuple[str, ...]
    passwords: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """Slow salted hash that recognises the same passwords; in hex digits."""

    salt: str
    scrypt: str


@dataclass(frozen=True, slots=True)
class Binding:
    """The manifest's description of the collection that wrote it; the fields are its JSON keys.

    Attributes:
        whole: see `Reused`.
        bookie, incarnation, folders: see `Terms`.
        passwords: None: none were given.
        every: all locations were confirmed.
        index_sound: no damage of an index hides ledgers.
    """

    whole: str
    bookie: str
    incarnation: int
    folders: list[str]
    passwords: PasswordHash | None
    every: bool
    index_sound: bool

    def to_json(self) -> dict[str, Any]:
        """Return the binding in its form in the manifest."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class KeptLedgers:
    """The taken-over parts of indexes.

    Attributes:
        ledgers: ascending.
        with_entries: the ledgers among them with entries, ascending.
        has_rest: there are others, which are to be read.
    """

    ledgers: Ints
    with_entries: Ints
    has_rest: bool


ReadsHeaders = Callable[[Sequence[int]], tuple[Ints, Ints]]
"""Reads headers in files: rows as `file_heads` has them, and the (ledger, entry) pairs that are there."""
