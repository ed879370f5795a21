"""Topics that a ledger may be of by its id, and by the time of its first message, where that was read.

    a topic's last known ledger     the topic
    has a higher id                 is not the ledger's: ids are given in their order
    got a message a minute after    is not the ledger's: a topic writes to its last ledger only. Clocks of producers may
    the ledger's first one          differ, so a minute is granted

Columns in, columns out: neither ledgers nor topics are gone through one by one.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.plan.views.candidates import OwnerEvidence
from reconcile.topics import TOPIC
from reconcile.words import count_noun
from recovery.capture.subtrees import TOPICS
from recovery.model import tables

Ints = npt.NDArray[np.int64]

_FEW: Final = 5
"""Topics that are listed where only the order says anything."""
_GRANTED_MS: Final = 60_000
_LATE: Final = 1 << 61
_BLOCK: Final = 1_024
"""Topics that are counted together."""
_AT_ONCE: Final = 256
"""Ledgers whose few topics are searched for together."""
_NOTHING: Final = "every topic has a last ledger with a higher id, or was ended"


@dataclass(frozen=True, slots=True, eq=False)
class MessageTimes:
    """When messages were sent, by their producers' clocks: ms since 1970.

    Attributes:
        first: of ledgers that no node names: ledger → its first message.
        latest: path of a topic → the last message of its last known ledger.
    """

    first: dict[int, int]
    latest: dict[str, int]


NO_TIMES: Final = MessageTimes({}, {})


def find_earlier(lasts: pa.Table, unnamed: pa.Table, times: MessageTimes = NO_TIMES) -> pa.Table:
    """Return CANDIDATES of ledgers of which nothing else says anything.

    Args:
        lasts: path, last ledger and whether it was ended, of each topic.
        unnamed: keys of the ledgers.
        times: as far as messages were read.
    """
    topics = lasts.filter(pc.invert(lasts["is_ended"])).sort_by("last")
    paths = topics["path"].combine_chunks()
    by_id = np.searchsorted(topics["last"].to_numpy(), unnamed["ledger"].to_numpy(), side="left").astype(np.int64)
    latest, until = _list_times(paths, unnamed, times)
    count = _count_earlier(latest, by_id, until) if times.latest else by_id
    ledger, topic = _list_few(latest, by_id, until, count)
    alone = np.flatnonzero((count == 0) | (count > _FEW))
    place = np.concatenate([ledger, alone])
    names = pc.replace_substring_regex(paths.take(pa.array(topic)), f".*{TOPICS}/", "")
    nulls = pa.nulls(len(place), pa.string())
    columns = {
        **{name: unnamed[name].take(pa.array(place)) for name in tables.KEY_COLUMNS},
        "topic": pa.concat_arrays([names, pa.nulls(len(alone), pa.string())]),
        "use": pa.repeat(TOPIC, len(place)),
        "evidence": pc.if_else(pa.array(count[place] > 0), OwnerEvidence.ORDER, OwnerEvidence.NONE),
        "source": nulls,
        "detail": _word(by_id, count).take(pa.array(place)),
        "node": nulls.cast(pa.binary()),
    }
    return pa.table([columns[name] for name in tables.CANDIDATES.names], schema=tables.CANDIDATES)


def _list_times(paths: pa.Array, unnamed: pa.Table, times: MessageTimes) -> tuple[Ints, Ints]:
    """Return the last known message of each topic, and up to when that of a ledger's topic may have been sent."""
    latest = np.full(len(paths), -_LATE)
    until = np.full(unnamed.num_rows, _LATE)
    if times.latest:
        latest[:] = [times.latest.get(path, -_LATE) for path in paths.to_pylist()]
        until[:] = [times.first.get(ledger, _LATE) + _GRANTED_MS for ledger in unnamed["ledger"].to_pylist()]
    return latest, until


def _count_earlier(latest: Ints, first: Ints, until: Ints) -> Ints:
    """Count, of so many of the first topics each, those whose last message is not too late."""
    counts = np.zeros(len(first), np.int64)
    for low in range(0, len(latest), _BLOCK):
        block = latest[low : low + _BLOCK]
        whole = first >= low + len(block)
        counts[whole] += np.searchsorted(np.sort(block), until[whole], side="right")
        cut = np.flatnonzero((first > low) & ~whole)
        for rows in np.array_split(cut, len(cut) // _BLOCK + 1):
            is_first = np.arange(len(block)) < (first[rows] - low)[:, None]
            counts[rows] += (is_first & (block <= until[rows][:, None])).sum(axis=1)
    return counts


def _list_few(latest: Ints, first: Ints, until: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Return pairs of a ledger and a topic, where a ledger has few."""
    few = np.flatnonzero((count > 0) & (count <= _FEW))
    pairs = [(few[:0], few[:0])]
    for low in range(0, len(few), _AT_ONCE):
        rows = few[low : low + _AT_ONCE]
        most = int(first[rows].max())
        is_one = (np.arange(most) < first[rows][:, None]) & (latest[:most] <= until[rows][:, None])
        ledger, topic = np.nonzero(is_one)
        pairs.append((rows[ledger], topic.astype(np.int64)))
    ledgers, topics = (np.concatenate(column) for column in zip(*pairs, strict=True))
    return ledgers, topics


def _word(by_id: Ints, count: Ints) -> pa.Array:
    """Return what is said about each ledger."""
    pairs, place = np.unique(np.column_stack((by_id, count)), axis=0, return_inverse=True)
    words = [_describe_counts(*pair) for pair in pairs.tolist()]
    return pa.array(words, pa.string()).take(pa.array(place.ravel()))


def _describe_counts(by_id: int, count: int) -> str:
    if not by_id:
        return _NOTHING
    words = f"{count_noun(count, 'topic')} whose last ledger has a lower id"
    if count == by_id:
        return words
    return f"{words}, and got no message more than a minute after this one's first; {by_id - count} did"
