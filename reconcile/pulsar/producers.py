"""Topics whose producers wrote to a ledger that no node names: by what is in front of its first and last message.

A producer has a name, which brokers make up so that no two have the same, unless a client named it; it numbers its
messages, and says when each was sent. Where a producer of the ledger wrote to a topic's last known ledger before:

    published before that      not of the topic
    numbers go on              of the topic, unless another one says the same; later ledgers are compared with this one
    numbers do not go on       perhaps: a client that names its producer may begin again

Ledgers are gone through in the order of their ids. Names, numbers and times are compared, and kept nowhere: only how
they compare is written.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.pulsar.earlier_topics import MessageTimes
from reconcile.words import count_noun
from recovery.codecs import pulsar_message, pulsar_schema
from recovery.codecs.pulsar_message import MessageHead
from recovery.codecs.pulsar_schema import StoredSchema
from recovery.errors import FormatError
from recovery.model.ids import LedgerId

Head = MessageHead | StoredSchema | None
"""What an entry has of Pulsar; None: nothing."""
ReadHeads = Callable[[Iterable[tuple[LedgerId, Sequence[int]]]], Iterable[tuple[LedgerId, Mapping[int, Head]]]]
"""Gives what some entries of ledgers have, in the order of these, as far as a bookie has them and a digest agrees."""
_FIRST: Final = 0


@dataclass(frozen=True, slots=True)
class LedgerEnd:
    """A ledger, and its last entry; None: not known, or it has none."""

    ledger: int
    last_entry: int | None


@dataclass(frozen=True, slots=True)
class Match:
    """A topic that a ledger may be of.

    Attributes:
        ledger: it.
        path: of the topic.
        previous: ledger of the topic that the producers wrote to before.
        detail: how both compare, for people.
    """

    ledger: int
    path: str
    previous: int
    detail: str


@dataclass(frozen=True, slots=True)
class _Sent:
    """The last that a producer is known to have sent to a topic."""

    ledger: int
    sequence: int
    published_ms: int


class Producers:
    """What the producers of some ledgers are known to have sent to topics.

    Attributes:
        schemas: ledgers whose first entry is a version of a schema, which names its topic.
        times: of the first messages of the ledgers, and of the last known ones of topics.
        strangers: other ledgers whose first and last entry can be read, and are no messages: of subscriptions.
    """

    def __init__(self, read: ReadHeads, ledgers: Iterable[LedgerEnd]) -> None:
        """Read the first and the last message of ledgers that no node names.

        Args:
            read: gives what entries have.
            ledgers: in the order of their ids.
        """
        self._read = read
        self._heads: dict[int, tuple[MessageHead, ...]] = {}
        self.schemas: dict[int, StoredSchema] = {}
        self.strangers: list[int] = []
        for ledger, entries in read(map(_want_ends, ledgers)):
            heads = _list_messages(entries)
            first = entries.get(_FIRST)
            if heads:
                self._heads[ledger.ledger] = heads
            elif isinstance(first, StoredSchema) and len(entries) == 1:
                self.schemas[ledger.ledger] = first
            elif entries:
                self.strangers.append(ledger.ledger)
        self._wanted = {head.producer for heads in self._heads.values() for head in heads}
        self._sent: dict[str, dict[str, _Sent]] = {}
        self.times = MessageTimes({number: heads[0].published_ms for number, heads in self._heads.items()}, {})

    @property
    def are_known(self) -> bool:
        """Whether any ledger has a message of Pulsar."""
        return bool(self._wanted)

    def learn(self, topics: Sequence[tuple[str, LedgerEnd]]) -> None:
        """Take what is known of topics, by their paths, from a ledger of each."""
        read = self._read(_want_ends(ledger) for _, ledger in topics)
        for (path, _), (ledger, entries) in zip(topics, read, strict=True):
            heads = _list_messages(entries)
            self._note(path, ledger.ledger, heads)
            if heads:
                self.times.latest[path] = max(head.published_ms for head in heads)

    def _note(self, path: str, ledger: int, heads: Iterable[MessageHead]) -> None:
        for head in heads:
            # Other producers than those that are searched for are nobody's business.
            if head.producer in self._wanted:
                sent = _Sent(ledger, head.last_sequence, head.published_ms)
                self._sent.setdefault(head.producer, {})[path] = sent

    def match(self, named: Mapping[int, str]) -> Iterator[Match]:
        """Yield the topics that ledgers may be of, in the order of their ids.

        Args:
            named: ledgers whose topics are known, with these topics' paths: what follows is compared with them.
        """
        for ledger, heads in self._heads.items():
            if ledger in named:
                self._note(named[ledger], ledger, heads)
                continue
            producers = {head.producer for head in heads}
            first_of = {head.producer: head for head in reversed(heads)}
            matches: list[tuple[Match, bool]] = []
            for path in sorted({path for producer in producers for path in self._sent.get(producer, ())}):
                known = {name: sent[path] for name in producers if path in (sent := self._sent.get(name, {}))}
                pairs = [(first_of[name], sent) for name, sent in known.items()]
                if any(head.published_ms < sent.published_ms or ledger < sent.ledger for head, sent in pairs):
                    continue
                goes_on = all(head.sequence > sent.sequence for head, sent in pairs)
                is_next = all(head.sequence == sent.sequence + 1 for head, sent in pairs)
                previous = max(sent.ledger for _, sent in pairs)
                numbers = "go on without a gap" if is_next else "go on" if goes_on else "do not go on"
                detail = (
                    f"{len(known)} of {count_noun(len(producers), 'producer')} of its first and last message wrote to "
                    f"ledger {previous} of the topic before; numbers {numbers}, published later"
                )
                matches.append((Match(ledger, path, previous, detail), goes_on))
            if len(matches) == 1 and matches[0][1]:
                self._note(matches[0][0].path, ledger, heads)
            yield from (match for match, _ in matches)


def _want_ends(ledger: LedgerEnd) -> tuple[LedgerId, Sequence[int]]:
    """Return a ledger with its first and its last entry."""
    last = _FIRST if ledger.last_entry is None else max(ledger.last_entry, _FIRST)
    return LedgerId(0, ledger.ledger), sorted({_FIRST, last})


def decode_head(ledger: LedgerId, number: int, payload: bytes) -> Head:
    """Return what an entry has of Pulsar."""
    try:
        return pulsar_message.decode(payload)
    except FormatError:
        pass
    try:
        return pulsar_schema.decode_entry(payload, ledger.ledger, number)
    except FormatError:
        return None


def _list_messages(entries: Mapping[int, Head]) -> tuple[MessageHead, ...]:
    """Return what is in front of messages, in the order of their entries."""
    heads = (entries[entry] for entry in sorted(entries))
    return tuple(head for head in heads if isinstance(head, MessageHead))


def list_ends(ledgers: pa.Table) -> Iterator[LedgerEnd]:
    """Yield ledgers of a table with their last entries, in the order of their ids."""
    ordered = ledgers.select(["ledger", "last_entry"]).take(pc.sort_indices(ledgers["ledger"]))
    for row in ordered.to_pylist():
        yield LedgerEnd(row["ledger"], row["last_entry"])
