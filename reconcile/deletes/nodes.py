"""Nodes of packed records as messages: written, read whole, or changed in place.

Who changes a few of a thousand records reads only these: the others stay the message that they were. Each text of a
node stands once; a change adds texts, and a node that has many more than its records use is written again.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from google.protobuf.message import DecodeError

from recovery.errors import FormatError, Reason
from recovery.model.ids import LedgerId, to_unsigned

VERSION: Final = 1
_SPARE_TEXTS: Final = 64
_TEXTS_EACH: Final = 2
"""A node is written again when it has more texts than so many for each record, and some to spare."""

T = TypeVar("T")


@dataclass(slots=True)
class Texts:
    """The texts of a node, each once; 0 is not a text."""

    texts: list[str] = field(default_factory=lambda: [""])
    numbers: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        """Number the texts that are there."""
        self.numbers = {text: number for number, text in reversed(list(enumerate(self.texts)))}

    def add(self, text: str) -> int:
        """Return the number of a text."""
        number = self.numbers.setdefault(text, len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
        return number


@dataclass(frozen=True, slots=True)
class NodeKind(Generic[T]):
    """How the records of one kind of node are kept.

    Attributes:
        make: makes an empty message of a node: `version`, `texts`, and the records.
        rows: name of the field that has the records; each has `scope` and `ledger`.
        write: a record as a message.
        read: a record of a message, by the texts of its node.
        find_ledger: whose a record is.
        where: what it is called in errors.
    """

    make: Callable[[], Any]
    rows: str
    write: Callable[[T, Texts], Any]
    read: Callable[[Any, Sequence[str]], T]
    find_ledger: Callable[[T], LedgerId]
    where: str

    def encode(self, records: Iterable[T]) -> bytes:
        """Return the value of a node of some records, in their order."""
        texts, node = Texts(), self.make()
        node.version = VERSION
        rows = getattr(node, self.rows)
        for record in records:
            rows.append(self.write(record, texts))
        node.texts.extend(texts.texts)
        return bytes(node.SerializeToString(deterministic=True))

    def decode(self, raw: bytes) -> list[T]:
        """Return the records of a node.

        Raises:
            FormatError: not a node of ours, of a later version, or with a number that has no text.
        """
        return ChangeableNode(self, raw).list_records()


class ChangeableNode(Generic[T]):
    """A node that may be changed."""

    def __init__(self, kind: NodeKind[T], raw: bytes) -> None:
        """Parse a node's value.

        Raises:
            FormatError: not a node of ours, or of a later version.
        """
        self._kind = kind
        self._node = kind.make()
        try:
            self._node.ParseFromString(raw)
        except DecodeError as error:
            raise FormatError(Reason.BAD_VALUE, kind.where, 0, "not a protobuf message of ours") from error
        if self._node.version != VERSION:
            problem = f"version {self._node.version}; this program reads {VERSION}"
            raise FormatError(Reason.BAD_VERSION, kind.where, 0, problem)
        self._rows = getattr(self._node, kind.rows)
        self._texts = Texts(list(self._node.texts))
        self._places: dict[LedgerId, int] | None = None
        self._removed: set[int] = set()
        self._is_added = False

    def list_records(self, wanted: Collection[LedgerId] | None = None) -> list[T]:
        """Return the records of some ledgers, in their order; None: all.

        Raises:
            FormatError: a number that has no text, or a value without a meaning.
        """
        rows = (row for place, row in enumerate(self._rows) if place not in self._removed)
        return [self._read(row) for row in rows if wanted is None or LedgerId(row.scope, row.ledger) in wanted]

    def get(self, ledger: LedgerId) -> T | None:
        """Return the record of a ledger; None if it has none.

        Raises:
            FormatError: a number that has no text, or a value without a meaning.
        """
        place = self._number_rows().get(ledger)
        return None if place is None or place in self._removed else self._read(self._rows[place])

    def put(self, record: T) -> None:
        """Give a ledger its record."""
        places, ledger = self._number_rows(), self._kind.find_ledger(record)
        message = self._kind.write(record, self._texts)
        if ledger in places:
            self._rows[places[ledger]].CopyFrom(message)
            self._removed.discard(places[ledger])
            return
        places[ledger] = len(self._rows)
        self._rows.append(message)
        self._is_added = True

    def remove(self, ledger: LedgerId) -> None:
        """Leave a ledger without a record."""
        place = self._number_rows().get(ledger)
        if place is not None:
            self._removed.add(place)

    def encode(self) -> bytes:
        """Return the value of the node, its records in the order of their ids; nothing is changed after that."""
        for place in sorted(self._removed, reverse=True):
            del self._rows[place]
        self._removed.clear()
        self._places = None
        if self._is_added:
            self._rows.sort(key=lambda row: (to_unsigned(row.scope), to_unsigned(row.ledger)))
        if len(self._texts.texts) > _SPARE_TEXTS + _TEXTS_EACH * len(self._rows):
            return self._kind.encode(self.list_records())
        del self._node.texts[:]
        self._node.texts.extend(self._texts.texts)
        return bytes(self._node.SerializeToString(deterministic=True))

    def _number_rows(self) -> dict[LedgerId, int]:
        if self._places is None:
            self._places = {LedgerId(row.scope, row.ledger): place for place, row in enumerate(self._rows)}
        return self._places

    def _read(self, row: Any) -> T:  # noqa: ANN401 - a message, whose type the kind knows
        try:
            return self._kind.read(row, self._texts.texts)
        except (IndexError, KeyError, ValueError) as error:
            problem = f"a field has no meaning ({error})"
            raise FormatError(Reason.BAD_VALUE, self._kind.where, 0, problem) from error
