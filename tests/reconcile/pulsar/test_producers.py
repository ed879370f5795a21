"""Whose a ledger may be by its producers: names, numbers and times compared, and none of them written."""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence

import google_crc32c

from reconcile.pulsar.producers import Head, LedgerEnd, Match, Producers, decode_head
from recovery.codecs._pb.pulsar_message_pb2 import MessageMetadata
from recovery.model.ids import LedgerId

NONE = b"\x08\x01"
"""What a subscription writes."""
Sent = tuple[str, int, int]
"""Producer, number, time."""


def message(sent: Sent) -> bytes:
    """Return an entry's payload as Pulsar has it."""
    head = MessageMetadata(producer_name=sent[0], sequence_id=sent[1], publish_time=sent[2]).SerializeToString()
    checked = struct.pack(">i", len(head)) + head + b"secret"
    return struct.pack(">HI", 0x0E01, google_crc32c.value(checked)) + checked


class Bookies:
    """Ledgers of messages; some entries are none."""

    def __init__(self, **ledgers: Sequence[Sent | None]) -> None:
        self._ledgers = {int(name[1:]): sent for name, sent in ledgers.items()}
        self.asked: list[tuple[int, tuple[int, ...]]] = []

    def read(self, wanted: Iterable[tuple[LedgerId, Sequence[int]]]) -> Iterator[tuple[LedgerId, Mapping[int, Head]]]:
        """Yield what entries have."""
        for ledger, numbers in wanted:
            self.asked.append((ledger.ledger, tuple(numbers)))
            sent = self._ledgers[ledger.ledger]
            raws = {number: message(sent_now) if (sent_now := sent[number]) else NONE for number in numbers if sent}
            yield ledger, {number: decode_head(ledger, number, raw) for number, raw in raws.items()}

    def end(self, ledger: int) -> LedgerEnd:
        """Return a ledger with its last entry."""
        return LedgerEnd(ledger, len(self._ledgers[ledger]) - 1)

    def match(self, ledgers: Sequence[int], topics: Mapping[str, int], named: Mapping[int, str]) -> list[Match]:
        """Match ledgers that nothing names with topics' last ones."""
        producers = Producers(self.read, [self.end(ledger) for ledger in ledgers])
        producers.learn([(path, self.end(ledger)) for path, ledger in topics.items()])
        return list(producers.match(named))


def words(matches: Sequence[Match]) -> list[tuple[int, str, int, str]]:
    """Return ledger, topic, the ledger before it, and how numbers compare."""
    return [
        (match.ledger, match.path, match.previous, match.detail.partition("numbers ")[2].partition(",")[0])
        for match in matches
    ]


def test_ledgers_of_the_same_producer_follow_each_other() -> None:
    """The first goes on where the topic's last one ended, the next where that did: nothing of others is mixed in."""
    bookies = Bookies(
        b5=[("p", 0, 10), ("p", 1, 20)],
        b6=[("q", 0, 15)],
        b7=[("p", 2, 30), ("p", 9, 40)],
        b8=[("p", 10, 50), ("p", 12, 60)],
        b9=[("r", 0, 70)],
    )
    matches = bookies.match([7, 8, 9], {"a": 5, "b": 6}, {})
    assert words(matches) == [(7, "a", 5, "go on without a gap"), (8, "a", 7, "go on without a gap")]
    assert matches[0].detail.startswith("1 of 1 producer of its first and last message wrote to ledger 5")
    assert "secret" not in repr(matches)
    assert not {"'p'", "'q'"} & set(repr(matches).split())
    # Of each no more than its first and last message is read.
    assert {entries for _, entries in bookies.asked} <= {(0,), (0, 1)}


def test_a_ledger_whose_topic_is_known_is_what_later_ones_are_compared_with() -> None:
    """Though the topic's own last ledger has other producers."""
    bookies = Bookies(b5=[("old", 0, 10)], b7=[("new", 0, 30), ("new", 4, 31)], b8=[("new", 5, 40)])
    assert words(bookies.match([7, 8], {"a": 5}, {7: "a"})) == [(8, "a", 7, "go on without a gap")]
    assert not bookies.match([7, 8], {"a": 5}, {})


def test_a_name_that_several_topics_know_leaves_the_choice() -> None:
    """Each topic with how its numbers compare; what follows is compared with what was sure."""
    bookies = Bookies(b5=[("named", 8, 10)], b6=[("named", 3, 20)], b7=[("named", 4, 30)], b8=[("named", 9, 40)])
    assert words(bookies.match([7, 8], {"a": 5, "b": 6}, {})) == [
        (7, "a", 5, "do not go on"),
        (7, "b", 6, "go on without a gap"),
        (8, "a", 5, "go on without a gap"),
        (8, "b", 6, "go on"),
    ]


def test_what_was_sent_before_is_not_of_the_topic() -> None:
    """A message that is older than the topic's last one, and a ledger with a lower id, are of another topic."""
    bookies = Bookies(b5=[("p", 1, 20)], b7=[("p", 2, 19)], b8=[("p", 2, 20)], b4=[("p", 3, 30)])
    assert words(bookies.match([4, 7], {"a": 5}, {})) == []
    assert words(bookies.match([8], {"a": 5}, {})) == [(8, "a", 5, "go on without a gap")]


def test_a_producer_of_two_is_enough_and_what_is_no_message_says_nothing() -> None:
    """A subscription's state, an entry that nobody has, a ledger without an end."""
    bookies = Bookies(b5=[None, ("p", 1, 20)], b7=[("q", 0, 30), ("p", 2, 30)], b8=[None, None], b9=[])
    [match] = bookies.match([7, 8, 9], {"a": 5}, {})
    assert match.detail.startswith("1 of 2 producers")
    producers = Producers(bookies.read, [LedgerEnd(8, None), LedgerEnd(9, -1)])
    assert not producers.are_known
    assert producers.strangers == [8]
