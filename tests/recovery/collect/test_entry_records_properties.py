"""Headers read in entry logs: those of entries that stand close together are those of each read alone."""

import tempfile
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.codecs import entry, entry_log
from recovery.codecs.entry import EntryHeader
from recovery.codecs.framing import SIZE_FIELD
from recovery.collect.disk.file_reader import Meter
from recovery.collect.rows.damage import DamageList
from recovery.collect.rows.entry_headers import DIGEST_COLUMN, DIGESTS, SIZE_COLUMN
from recovery.collect.rows.scoped_ids import Scopes
from recovery.collect.sources.entry_records import RecordFile, RecordFiles
from recovery.model.metadata import Digest

METER = Meter(None, lambda _: None)
COUNT = 48
"""Entries of a log: more than are looked at one by one."""
PASSWORD = b"secret"
SEEN: Counter[str] = Counter()
"""What became of entries, over all examples."""


@settings(max_examples=25)
@given(
    st.randoms(use_true_random=False),
    st.lists(st.tuples(st.integers(0, COUNT - 1), st.integers(0, 60), st.integers(0, 255)), max_size=8),
    st.lists(st.tuples(st.integers(0, COUNT - 1), st.integers(-30, 30)), max_size=3),
    st.integers(0, 90),
)
def _compare(random: Random, changed: list[tuple[int, int, int]], moved: list[tuple[int, int]], lost: int) -> None:
    scopes = Scopes()
    log, ledgers, entries, positions = bytearray(entry_log.encode([], with_map=False)), [], [], []
    for number in range(COUNT):
        scope = random.choice((0, 0, 0, 0, 7))
        header = EntryHeader(random.choice((3, 5, 1 << 62)), number, number - 1, random.choice((9, 1 << 40)), scope)
        payload = bytes(random.choice((0, 3, 4, 5, 100, 5000)))
        record = entry.encode(header, payload, random.choice((Digest.CRC32C, *Digest)), PASSWORD)
        ledgers.append(scopes.key(scope, header.ledger))
        entries.append(number)
        positions.append(len(log) + SIZE_FIELD)
        log += len(record).to_bytes(SIZE_FIELD) + record
    for number, place, value in changed:
        at = positions[number] - SIZE_FIELD + place
        log[at : at + 1] = bytes([value]) if at < len(log) else b""
    for number, step in moved:
        positions[number] += step
    data = bytes(log[: len(log) - lost])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "0.log")
        path.write_bytes(data)
        logs = RecordFiles({0: [RecordFile(str(path), len(data))]}, METER, DamageList(), (PASSWORD,), scopes=scopes)
        columns = [np.array(column, np.int64) for column in (ledgers, entries, [0] * COUNT, positions)]
        found, heads = logs.fetch(*columns)
        alone = [logs.fetch(*(column[n : n + 1] for column in columns)) for n in range(COUNT)]
    assert found.tolist() == [bool(is_found[0]) for is_found, _ in alone]
    assert heads.tolist() == [head[0].tolist() for _, head in alone]
    SEEN.update("none" if n < 0 else str(DIGESTS[n]) for n in heads[found, DIGEST_COLUMN].tolist())
    SEEN.update(absent=int((~found).sum()), unread=int((heads[found, SIZE_COLUMN] == 0).sum()))


def test_headers_of_entries_close_together_are_those_of_each_alone() -> None:
    """Every digest type, scopes, wrong bytes and places, a log that lost its end: as columns, and one by one."""
    SEEN.clear()
    _compare()
    assert {*map(str, Digest), "none", "absent"} - {str(Digest.DUMMY)} <= {*(+SEEN)}
