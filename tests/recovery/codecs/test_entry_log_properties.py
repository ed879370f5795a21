"""Entry logs: what is written is read, what is cut costs what it cuts, and any bytes at all."""

import struct

from hypothesis import assume, example, given
from hypothesis import strategies as st

from recovery.codecs import entry, entry_log
from recovery.codecs.entry import EntryHeader
from recovery.codecs.entry_log import EntryAt, LogHeader
from recovery.errors import Damage, FormatError, Reason
from recovery.model.metadata import Digest
from tests.support import bookie_files
from tests.support.entries import USUAL, records
from tests.support.mangling import mangled

SIZE = 4
REAL = bookie_files.entry_logs("c09")[0].read_bytes()[:12_000]
# Where reading can start again behind damage.
PROVABLE = records((Digest.CRC32, Digest.CRC32C), USUAL)


def positions(log: bytes) -> list[EntryAt]:
    """Return the entries of a log that has no damage."""
    found = list(entry_log.scan(log))
    assert all(isinstance(part, EntryAt) for part in found)
    return [part for part in found if isinstance(part, EntryAt)]


def direct(batches: list[list[bytes]], reserved: int) -> bytes:
    """Return a log as the direct I/O logger writes it: blocks padded to 4096, then reserved zeros."""
    out = bytearray(entry_log.encode_header(LogHeader(1, 0, 0)))
    out += struct.pack(">iq", 3068, -1).ljust(3072, b"\0")
    for batch in batches:
        for record in batch:
            out += struct.pack(">i", len(record)) + record
        out += b"\xf0" * (-len(out) % 4096)
    return bytes(out) + bytes(4096 * reserved)


@given(st.lists(records(), max_size=8), st.booleans())
def test_what_is_written_is_read(bodies: list[bytes], with_map: bool) -> None:
    """Every record comes back in order with its own bytes; the map, where written, says what each ledger takes."""
    log = entry_log.encode(bodies, with_map=with_map)
    found = positions(log)
    assert [log[at.position : at.position + at.size] for at in found] == bodies
    for at, body in zip(found, bodies, strict=True):
        assert (at.ledger, at.entry) == struct.unpack_from(">qq", body)
    expected: dict[int, int] = {}
    for at in found:
        expected[at.ledger] = expected.get(at.ledger, 0) + at.size + SIZE
    header = entry_log.decode_header(log)
    assert entry_log.read_map(log, header) == (expected if with_map and bodies else None)


@given(st.lists(st.lists(records(), max_size=4), max_size=4), st.integers(0, 2))
def test_a_direct_log_is_read(batches: list[list[bytes]], reserved: int) -> None:
    """Padding and reserved space are passed over, and are no damage."""
    log = direct(batches, reserved)
    assert entry_log.is_direct(log)
    found = positions(log)
    assert [log[at.position : at.position + at.size] for at in found] == [body for batch in batches for body in batch]


@given(st.lists(records(entry_ids=USUAL), min_size=1, max_size=6), st.data())
def test_a_torn_tail_costs_only_the_record_it_cuts(bodies: list[bytes], data: st.DataObject) -> None:
    """Cut anywhere inside the last record: all before it are read, then one Damage up to the end."""
    whole = entry_log.encode(bodies, with_map=False)
    last = positions(whole)[-1].position - SIZE
    cut = data.draw(st.integers(last + 1, len(whole) - 1))
    *before, damage = entry_log.scan(whole[:cut])
    assert before == positions(whole)[:-1]
    zeros = not any(whole[last:cut])
    assert isinstance(damage, Damage)
    assert (damage.offset, damage.length) == (last, cut - last)
    assert damage.reason is (Reason.ZEROS if zeros else Reason.TRUNCATED)


@given(st.lists(PROVABLE, min_size=3, max_size=8), st.data())
def test_behind_a_hole_every_provable_entry_is_found(bodies: list[bytes], data: st.DataObject) -> None:
    """One record in the middle overwritten by zeros or noise: the others are read, and one Damage is the hole."""
    log = entry_log.encode(bodies, with_map=False)
    whole = positions(log)
    victim = data.draw(st.sampled_from(whole[1:-1]))
    begin, end = victim.position - SIZE, victim.position + victim.size
    noise = data.draw(st.sampled_from([b"\0", b"\xff", b"Z"]))
    found = list(entry_log.scan(log[:begin] + noise * (end - begin) + log[end:]))
    [damage] = [part for part in found if isinstance(part, Damage)]
    assert (damage.offset, damage.length) == (begin, end - begin)
    assert [part for part in found if part != damage] == [at for at in whole if at != victim]


@given(st.lists(PROVABLE, min_size=3, max_size=8), st.data())
def test_a_wrong_size_costs_its_own_record(bodies: list[bytes], data: st.DataObject) -> None:
    """A size that is wrong, too small or running over other records, hides none of them."""
    log = bytearray(entry_log.encode(bodies, with_map=False))
    whole = positions(bytes(log))
    victim = data.draw(st.sampled_from(whole[:-1]))
    size = data.draw(st.one_of(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(0, len(log))))
    ends = {at.position + at.size for at in whole}
    assume(victim.position + size not in ends)  # such a log is one of fewer records, with a wrong digest
    log[victim.position - SIZE : victim.position] = struct.pack(">i", size)
    found = list(entry_log.scan(bytes(log)))
    kept = [part for part in found if isinstance(part, EntryAt) and part.position != victim.position]
    assert kept == [at for at in whole if at != victim]
    assert any(isinstance(part, Damage) for part in found)


def test_payloads_that_look_like_records_are_not_taken() -> None:
    """Numbers in the payload behind a wrong size are not read as entries of ledgers that nobody has."""
    payload = b"".join(struct.pack(">q", value) for value in range(1, 400))
    bodies = [
        entry.encode(EntryHeader(7, number, number - 1, (number + 1) * len(payload)), payload, Digest.HMAC, b"x")
        for number in range(6)
    ]
    log = bytearray(entry_log.encode(bodies, with_map=False))
    whole = positions(bytes(log))
    log[whole[2].position - SIZE : whole[2].position] = struct.pack(">i", -5)
    found = list(entry_log.scan(bytes(log)))
    assert [part for part in found if isinstance(part, EntryAt)] == [at for at in whole if at != whole[2]]


def test_known_ledgers_are_found_where_no_crc_helps() -> None:
    """Behind damage, a ledger that nothing in the log names is taken only if the caller knows it."""
    bodies = [entry.encode(EntryHeader(7, n, n - 1, n + 1), b"p", Digest.HMAC, b"x") for n in range(6)]
    log = bytearray(entry_log.encode(bodies, with_map=False))
    whole = positions(bytes(log))
    log[1024 : whole[0].position + 16] = bytes(20)
    assert [part for part in entry_log.scan(bytes(log)) if isinstance(part, EntryAt)] == []
    assert [part for part in entry_log.scan(bytes(log), known=[7]) if isinstance(part, EntryAt)] == whole[1:]


@given(
    st.one_of(
        st.binary(max_size=300).map(lambda body: entry_log.encode_header(LogHeader(1, 0, 0)) + body),
        mangled(REAL),
        st.lists(records(), max_size=3).map(lambda batch: direct([batch], 1)).flatmap(mangled),
    )
)
@example(b"")
@example(bytes(2000))
@example(b"\xf0" * 9000)
def test_any_bytes_are_entries_or_damage(log: bytes) -> None:
    """Whatever the bytes: parts in order, inside the log, no two over each other; as rows and as columns."""
    at = 0
    for part in entry_log.scan(log):
        begin, end = (
            (part.position - SIZE, part.position + part.size)
            if isinstance(part, EntryAt)
            else (part.offset, part.offset + part.length)
        )
        assert at <= begin < end <= len(log)
        at = end
    columns = [
        row
        for part in entry_log.scan_columns(log)
        for row in (
            [part]
            if isinstance(part, Damage)
            else [EntryAt(*map(int, row)) for row in zip(*part.columns(), strict=True)]
        )
    ]
    assert columns == list(entry_log.scan(log))
    try:
        header = entry_log.decode_header(log)
    except FormatError:
        return
    entry_log.read_map(log, header)


@given(st.integers(0, (1 << 31) - 1), st.integers(0, (1 << 31) - 1))
def test_a_location_comes_apart_again(log_id: int, position: int) -> None:
    """A location is a log id and a position, and a log's name is its id in hex."""
    assert entry_log.split_location(entry_log.location(log_id, position)) == (log_id, position)
    assert entry_log.log_id_of(f"{log_id:x}.log") == entry_log.log_id_of(f"{log_id:X}.log") == log_id


@given(st.text("0123456789abcdefgx.-log", max_size=14))
def test_any_name_is_a_log_or_not(name: str) -> None:
    """A name is one of an entry log only if it is hex digits and the ending."""
    log_id = entry_log.log_id_of(name)
    assert (log_id is None) or (name.endswith(".log") and int(name[:-4], 16) == log_id < 1 << 31)
