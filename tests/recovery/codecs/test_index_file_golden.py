"""Ledger indexes: the worked examples byte for byte, and every index of the real disks."""

import numpy as np
import pytest

from recovery.codecs import entry, entry_log, index_file
from recovery.codecs.index_file import IndexHeader
from tests.support import bookie_files
from tests.support.cases import NAMES, truth

KEY = bytes.fromhex("850bf1071c5e3d8c24235676f8816ae0cbe2f14f")
LAC = bytes.fromhex("0000000000000005000000000000000289bafe66")
FENCED = """
424b4c45 00000001 00000014 850bf1071c5e3d8c24235676f8816ae0cbe2f14f 00000001 00000014
0000000000000005 0000000000000002 89bafe66
"""
OLD = "424b4c450000000000000014850bf1071c5e3d8c24235676f8816ae0cbe2f14f00000000"
HEADERS = [
    (IndexHeader(version=1, master_key=KEY, fenced=True, explicit_lac=LAC), FENCED),
    (IndexHeader(version=0, master_key=KEY, fenced=False, explicit_lac=None), OLD),
]
PATHS = [
    (0, "0/0/0.idx"),
    (5, "0/5/5.idx"),
    (255, "0/ff/ff.idx"),
    (256, "1/0/100.idx"),
    (4660, "12/34/1234.idx"),
    (65536, "0/0/10000.idx"),
    ((1 << 32) + 0xABCD, "ab/cd/10000abcd.idx"),
    ((1 << 63) - 1, "ff/ff/7fffffffffffffff.idx"),
]


@pytest.mark.parametrize(("header", "raw"), HEADERS)
def test_the_worked_headers(header: IndexHeader, raw: str) -> None:
    """Each example is made and read."""
    assert index_file.encode_header(header) == bytes.fromhex(raw).ljust(1024, b"\0")
    assert index_file.decode_header(bytes.fromhex(raw).ljust(1024, b"\0")) == header


@pytest.mark.parametrize(("ledger", "path"), PATHS)
def test_the_worked_paths(ledger: int, path: str) -> None:
    """Each ledger has its path, and the path names it."""
    assert index_file.path_of(ledger) == path
    assert index_file.ledger_of(path) == ledger


@pytest.mark.parametrize("case", NAMES)
def test_every_real_index_is_whole_and_true(case: str) -> None:
    """Each real index re-encodes to its own bytes, its key is the writer's, and its slots lead to their entries."""
    writers = {row["ledger"]: row["writer"] for row in truth(case)["ledgers"]}
    for path in bookie_files.index_files(case):
        raw = path.read_bytes()
        header = index_file.decode_header(raw)
        slots = index_file.slots(memoryview(raw)[index_file.HEADER_SIZE :])
        assert index_file.encode(header, slots) == raw
        ledger = index_file.ledger_of("/".join(path.parts[-3:]))
        assert ledger is not None
        if ledger in writers:
            assert header.master_key == entry.master_key(writers[ledger]["password"].encode())
        logs = {
            entry_log.log_id_of(log.name): log
            for log in bookie_files.entry_logs(case)
            if bookie_of(log.parts) == bookie_of(path.parts)
        }
        for number in np.flatnonzero(slots).tolist():
            log_id, position = entry_log.split_location(int(slots[number]))
            with logs[log_id].open("rb") as log:
                log.seek(position)
                front = log.read(16)
            assert front == ledger.to_bytes(8, "big") + number.to_bytes(8, "big")


def bookie_of(parts: tuple[str, ...]) -> str:
    """Return the name of the bookie's folder in a path."""
    return parts[parts.index("bookies") + 1]


def test_the_cases_have_both_versions() -> None:
    """Headers of version 0 and 1 are among what is read above."""
    headers = [index_file.decode_header(path.read_bytes()) for path in bookie_files.index_files("c08b")]
    assert {header.version for header in headers} == {0, 1}
