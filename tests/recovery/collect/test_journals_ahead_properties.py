"""Records taken many at a time are those that are found one by one, whatever the bytes."""

from collections.abc import Callable, Iterator
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from recovery.codecs import entry, entry_log, journal
from recovery.codecs.entry import EntryHeader
from recovery.codecs.entry_log import EntryAt
from recovery.codecs.framing import Entries, Met, ahead
from recovery.codecs.journal import JournalEntry
from recovery.errors import Damage, FormatError
from recovery.model.metadata import Digest
from tests.simulation.bookie_dir import record
from tests.support.mangling import mangled

UNUSUAL = 1 << 48
"""Entry ids that are taken only where their ledger was met; how many at a time decides when it was."""

Scan = Callable[[bytes], Iterator[object]]


def entry_of(ledger: int, number: int, more: int) -> bytes:
    """An entry with its digest, of a size that grows with `more`; most end in a payload that no CRC covers."""
    return record(ledger, number) + bytes(more)


def scoped_entry_of(ledger: int, number: int, more: int, digest: Digest) -> bytes:
    """The same of a scope, or for ledger 0 of scope 0; its digest is right."""
    if not ledger:
        return entry_of(0, number, more)
    header = EntryHeader(ledger % 3 - 1, number, number - 1, (more + 7) * (number + 1), ledger - 4 or 1 << 40)
    return entry.encode(header, bytes(more), digest)


STRETCHES = st.lists(
    st.one_of(
        st.tuples(st.just(None), st.integers(1, 80)),
        st.tuples(st.integers(0, 9), st.integers(1, 20)),
    ),
    min_size=1,
    max_size=5,
)
"""Stretches of records: how much larger than the least each is, None: all differ; how many there are."""


@st.composite
def bodies(draw: st.DrawFn) -> list[bytes]:
    """Records of few ledgers, mostly alike, with ledgers maps and fences between; of scopes among them, or none."""
    found: list[bytes] = []
    if draw(st.booleans()):
        for more, many in draw(STRETCHES):
            ledgers, digest = draw(st.integers(1, 7)), draw(st.sampled_from(list(Digest)))
            least = draw(st.integers(0, 1))
            found += [
                scoped_entry_of(least + n % ledgers, len(found) + n, n % 7 if more is None else more, digest)
                for n in range(many)
            ]
            if draw(st.booleans()):
                found.append(journal.encode_fence(1, scope=draw(st.integers(0, 2))))
        return found
    for more, many in draw(STRETCHES):
        ledgers = draw(st.integers(1, 4))
        found += [entry_of(n % ledgers, len(found) + n, n % 7 if more is None else more) for n in range(many)]
        if draw(st.booleans()):
            found.append(journal.encode_fence(1))
    return found


def flat(scan: Scan, raw: bytes, *, one_by_one: bool) -> list[object]:
    """All that a scan yields, with records looked at in twos and fours already where many are taken at a time."""
    few = patch("recovery.codecs.framing.FEW", 1 << 30 if one_by_one else 4)
    with few, patch("recovery.codecs.framing._ALIKE", 2):
        try:
            return list(scan(raw))
        except FormatError as error:  # of the header
            return [str(error)]


@pytest.mark.parametrize(
    ("encode", "scan"),
    [
        (lambda records: entry_log.encode(records, with_map=True), entry_log.scan),
        (lambda records: journal.encode(records, 6), journal.scan),
        (lambda records: journal.encode(records, 3), journal.scan),
    ],
    ids=["log", "journal-6", "journal-3"],
)
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_many_at_a_time_are_one_by_one(encode: Callable[[list[bytes]], bytes], scan: Scan, data: st.DataObject) -> None:
    """Whole or mangled, a log or a journal: the same records, the same special records, the same damage."""
    whole = encode(data.draw(bodies()))
    raw = data.draw(st.one_of(st.just(whole), mangled(whole)))
    slowly, quickly = (flat(scan, raw, one_by_one=one) for one in (True, False))
    assume(not any(isinstance(one, EntryAt | JournalEntry) and one.entry >= UNUSUAL for one in [*slowly, *quickly]))
    assert quickly == slowly


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=400), st.integers(0, 40), st.booleans(), st.booleans())
def test_looking_ahead_takes_any_bytes(raw: bytes, at: int, scoped: bool, sure: bool) -> None:
    """Any bytes at any place: entries that lie inside and follow each other, or nothing."""
    with patch("recovery.codecs.framing.FEW", 1), patch("recovery.codecs.framing.DOUBTED", 0):
        found = ahead(memoryview(raw), at, Met(()), lambda _: None, scoped=scoped, sure=sure)
    assert found is None or found.end() <= len(raw)


@pytest.mark.parametrize("sizes", [[40], [40, 41], [*range(40, 90)], [40] * 300 + [50] * 300])
def test_a_long_stretch_is_looked_ahead(sizes: list[int]) -> None:
    """At its real size, in a log of records alike or not: nearly all entries come in arrays, and all are right."""
    many = 3000
    records = [entry_of(7, n, sizes[n % len(sizes)]) for n in range(many)]
    raw = entry_log.encode(records, with_map=True)
    parts = list(entry_log.scan_columns(raw))
    assert not any(isinstance(part, Damage) for part in parts)
    entries = [part for part in parts if isinstance(part, Entries)]
    assert max(len(part.ledger) for part in entries) > many // 2
    assert [number for part in entries for number in part.entry.tolist()] == [*range(many)]
    places = [(at, size) for part in entries for at, size in zip(part.position, part.size, strict=True)]
    assert [raw[at : at + size] for at, size in places] == records


@pytest.mark.parametrize("digest", [Digest.CRC32C, Digest.DUMMY])
@pytest.mark.parametrize("of_zero", [0, 1])
def test_a_long_stretch_of_scopes_is_looked_ahead(digest: Digest, of_zero: int) -> None:
    """In a log and in a journal, ledgers in turns, of scope 0 among them or not: in arrays, each with its scope."""
    many = 3000
    records = [scoped_entry_of(1 - of_zero + n % 6, n, n % 7, digest) for n in range(many)]
    log, whole = entry_log.encode(records, with_map=True), journal.encode(records)
    for raw, parts in ((log, [*entry_log.scan_columns(log)]), (whole, [*journal.scan_columns(whole)])):
        entries = [part for part in parts if isinstance(part, Entries)]
        assert len(entries) == len(parts)
        assert max(len(part.ledger) for part in entries) > many // 2
        found = Entries.join(entries)
        assert found.entry.tolist() == [*range(many)]
        assert [raw[at : at + size] for at, size in zip(found.position, found.size, strict=True)] == records
        assert found.scope is not None
        assert [*zip(found.scope.tolist(), found.ledger.tolist(), strict=True)] == [entry.ids_of(r) for r in records]


def test_special_records_between_cost_no_memory() -> None:
    """What is given out of a journal with a master key behind each 700 entries holds hardly more than it says."""
    one = [scoped_entry_of(n % 7, n, 0, Digest.CRC32C) for n in range(700)]
    raw = journal.encode([body for _ in range(48) for body in (*one, journal.encode_master_key(1, bytes(20)))])
    entries = [part for part in journal.scan_columns(raw) if isinstance(part, Entries)]
    assert all(len(part.ledger) for part in entries)
    held = sum((column if column.base is None else column.base).nbytes for part in entries for column in part.columns())
    assert held <= 8 * sum(column.nbytes for part in entries for column in part.columns())
