"""Ledger indexes: round trips, and any bytes at all."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from recovery.codecs import index_file
from recovery.codecs.index_file import IndexHeader
from recovery.errors import FormatError
from tests.support import bookie_files
from tests.support.entries import LEDGERS
from tests.support.mangling import mangled

I64 = st.integers(-(1 << 63), (1 << 63) - 1)
KEYS = st.one_of(st.just(bytes(20)), st.binary(max_size=40))
HEADERS = st.one_of(
    st.builds(IndexHeader, st.just(0), KEYS, st.booleans(), st.none()),
    st.builds(IndexHeader, st.just(1), KEYS, st.booleans(), st.one_of(st.none(), st.binary(min_size=16, max_size=36))),
)
REAL = bookie_files.index_files("c05")[0].read_bytes()


@given(HEADERS, st.lists(I64, max_size=20), st.binary(max_size=7))
def test_an_index_comes_back(header: IndexHeader, locations: list[int], partial: bytes) -> None:
    """Header and slots are what was encoded; a partial slot at the end is ignored."""
    raw = index_file.encode(header, np.array(locations, np.int64)) + partial
    assert index_file.decode_header(raw) == header
    slots = index_file.slots(memoryview(raw)[index_file.HEADER_SIZE :])
    assert slots.dtype == np.dtype(np.int64)
    assert slots.dtype.isnative
    assert slots.tolist() == locations


@given(
    st.one_of(st.binary(max_size=1100), mangled(REAL[:100]), mangled(REAL), st.binary(max_size=60).map(b"BKLE".__add__))
)
@example(b"")
def test_any_bytes_are_a_header_or_a_named_error(raw: bytes) -> None:
    """What is taken is made again, but for bytes that the format does not define; else FormatError inside the bytes."""
    try:
        header = index_file.decode_header(raw)
    except FormatError as error:
        assert 0 <= error.offset <= min(len(raw), 1024)  # noqa: PT017  # both ways are right
    else:
        assert index_file.decode_header(index_file.encode_header(header)) == header
    assert len(index_file.slots(raw)) == len(raw) // 8


@given(LEDGERS)
def test_a_path_names_its_ledger(ledger: int) -> None:
    """The path of a ledger is the only one that names it."""
    path = index_file.path_of(ledger)
    assert index_file.ledger_of(path) == ledger
    assert index_file.ledger_of(f"0{path}") is None
    assert index_file.ledger_of(f"{path}.rloc") is None


@given(st.text("0123456789abcdefx/.id", max_size=30))
def test_any_path_is_an_index_or_not(path: str) -> None:
    """A path names a ledger only if it is that ledger's own."""
    ledger = index_file.ledger_of(path)
    assert ledger is None or index_file.path_of(ledger) == path
