"""What a collection knows of files and ledgers that it may take over, or keeps for the next one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Protocol

from recovery.collect.rows.source_copies import Ints

FINGERPRINT_WIDTH: Final = 6
"""Columns: ledger, number of the index, and of a file inode, size, time of content and of status; of a database the
sum of its slots' hashes, their count, and zeros."""
LOG_WIDTH: Final = 2
"""Columns: ledger, id of a log that a slot of it names."""
SOURCE_COLUMN, FILE_COLUMN = 1, 1
"""Of rows, behind the ledger's key."""


@dataclass(slots=True)
class SeenFile:
    """A file, and what reading it gave beside its entries.

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
    """Takes what special records of journals say about ledgers."""

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
    """What the special records of one journal say, without what they say twice.

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
    """What did not have to be read.

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
    """What must be the same for anything to be taken over.

    Attributes:
        bookie, incarnation: its bookie.
        folders: with their roles, in their order.
        passwords: that were given.
    """

    bookie: str
    incarnation: int
    folders: tuple[str, ...]
    passwords: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """What tells the same passwords again and is slow to guess them by; in hex digits."""

    salt: str
    scrypt: str


@dataclass(frozen=True, slots=True)
class Binding:
    """What the manifest of the dataset says about the collection that wrote it; the fields are its JSON keys.

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

    @classmethod
    def from_json(cls, binding: Mapping[str, Any]) -> "Binding":
        """Return the binding of a manifest that the same version of the program wrote."""
        passwords = binding["passwords"]
        return cls(**{**binding, "passwords": None if passwords is None else PasswordHash(**passwords)})

    def to_json(self) -> dict[str, Any]:
        """Return it as it is in the manifest."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class KeptLedgers:
    """What was taken over of indexes.

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
