"""Topics that a ledger may be of by its id and its first message, against a loop over all of both."""

import numpy as np
import pyarrow as pa
import pytest

from reconcile.pulsar import earlier_topics
from reconcile.pulsar.earlier_topics import MessageTimes, find_earlier
from recovery.model import tables

TOP = "/managed-ledgers/t/n/persistent/"
FEW = 5
MINUTE = 60_000


def list_topics(topics: dict[str, tuple[int, bool]]) -> pa.Table:
    """Return topics with their last ledgers, and whether each was ended."""
    columns = {
        "path": pa.array([TOP + name for name in topics], pa.string()),
        "last": pa.array([last for last, _ in topics.values()], pa.int64()),
        "is_ended": pa.array([is_ended for _, is_ended in topics.values()], pa.bool_()),
    }
    return pa.table(columns)


def list_ledgers(ledgers: list[int]) -> pa.Table:
    """Return keys of ledgers."""
    rows = [{"bucket": ledger % 7, "scope": 0, "ledger": ledger} for ledger in ledgers]
    schema = pa.schema([tables.CANDIDATES.field(name) for name in tables.KEY_COLUMNS])
    return pa.Table.from_pylist(rows, schema=schema)


def find(topics: dict[str, tuple[int, bool]], ledgers: list[int], times: MessageTimes) -> dict[int, set[str | None]]:
    """Return the topics of each ledger."""
    found: dict[int, set[str | None]] = {}
    for row in find_earlier(list_topics(topics), list_ledgers(ledgers), times).to_pylist():
        name = None if row["topic"] is None else row["topic"].rpartition("/")[2]
        found.setdefault(row["ledger"], set()).add(name)
        assert (row["evidence"] == "none") == row["detail"].startswith(("every topic", "0 topics")), row
    return found


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("has_times", [True, False])
def test_topics_are_those_of_a_loop_over_all(seed: int, *, has_times: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are looked at together."""
    monkeypatch.setattr(earlier_topics, "_BLOCK", 3)
    monkeypatch.setattr(earlier_topics, "_AT_ONCE", 2)
    random = np.random.default_rng(seed)
    names = [f"topic-{number}" for number in range(int(random.integers(0, 14)))]
    topics = {name: (int(random.integers(-1, 40)), bool(random.integers(0, 5) == 0)) for name in names}
    ledgers = sorted({int(ledger) for ledger in random.integers(0, 50, 12)})
    hours = {name: int(random.integers(0, 20)) * MINUTE for name in names if random.integers(0, 4)}
    first = {ledger: int(random.integers(0, 20)) * MINUTE for ledger in ledgers if random.integers(0, 4)}
    times = MessageTimes(first, {TOP + name: at for name, at in hours.items()}) if has_times else MessageTimes({}, {})
    wanted: dict[int, set[str | None]] = {}
    for ledger in ledgers:
        may_be = {
            name
            for name, (last, is_ended) in topics.items()
            if not is_ended
            and last < ledger
            and not (has_times and ledger in first and name in hours and hours[name] > first[ledger] + MINUTE)
        }
        wanted[ledger] = set(may_be) if 0 < len(may_be) <= FEW else {None}
    assert find(topics, ledgers, times) == wanted


def test_a_topic_that_wrote_on_to_its_last_ledger_is_ruled_out_and_counted() -> None:
    """A message a minute later at most may be another clock's."""
    topics = {"same": (3, False), "later": (4, False), "ended": (5, True)}
    times = MessageTimes({9: 100}, {TOP + "same": 100 + MINUTE, TOP + "later": 101 + MINUTE})
    [row] = find_earlier(list_topics(topics), list_ledgers([9]), times).to_pylist()
    assert (row["topic"], row["evidence"]) == ("t/n/persistent/same", "order")
    assert row["detail"] == (
        "1 topic whose last ledger has a lower id, and got no message more than a minute after this one's first; 1 did"
    )
