"""What each byte of a bookie's file is: all of a whole file, and of a broken one all but what is broken."""

import errno
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rocksdict

from recovery.codecs import cookie, entry, entry_log, index_file, journal, ledger_db
from recovery.codecs.entry import EntryHeader
from recovery.errors import InputError
from recovery.inspect.bookie_file import look
from recovery.inspect.byte_account import ROCKSDB, UNKNOWN, File, account_for
from recovery.inspect.file_kinds import FileKind
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest
from tests.recovery.collect.test_index_database import write_database
from tests.simulation.bookie_dir_scoped import Held, Storage, make_scoped_bookie
from tests.support.command import run

RECORDS = [entry.encode(EntryHeader(7, n, n - 1, 5 * n + 5), b"hello", Digest.CRC32C) for n in range(5)]
SCOPED = [entry.encode(EntryHeader(7, n, n - 1, 5 * n + 5, scope=9), b"hello", Digest.CRC32C) for n in range(5)]
KEY = entry.master_key(b"secret")
LAC = entry.encode_lac_record(7, 3, Digest.CRC32C)
LOG = entry_log.encode(RECORDS, with_map=True)
JOURNAL = journal.encode(
    [journal.encode_master_key(7, KEY), *RECORDS, journal.encode_fence(7), journal.encode_lac(7, LAC)]
)
INDEX = index_file.encode(
    index_file.IndexHeader(1, KEY, fenced=True, explicit_lac=LAC), np.array([0, 1 << 32 | 1028, 0, 2 << 32 | 1028])
)

HELD = [
    Held(LedgerId(0, 5), range(5), fenced=True),
    Held(LedgerId(0, 6), range(3)),
    *(Held(LedgerId(7, n), (0, 2, 4), ahead=(6,), lac=3, lac_ahead=4, fenced_ahead=True) for n in (4, 5)),
    Held(LedgerId(-1, -1), range(9), digest=Digest.HMAC, password=b"secret"),
]


def _account(folder: Path, name: str, content: bytes) -> File:
    path = folder / name
    path.write_bytes(content)
    [found] = account_for([path]).named
    assert sum(region.length for region in found.regions) == len(content) == sum(found.parts.values())
    assert [region.offset for region in found.regions][1:] == [r.offset + r.length for r in found.regions][:-1]
    return found


def _direct_log(*blocks: bytes, reserved: int) -> bytes:
    """Return a log as the direct I/O logger leaves it: a filler, blocks padded with 0xf0, zeros."""
    head = entry_log.encode_header(entry_log.LogHeader(1, 0, 0)) + struct.pack(">iq", 3068, -1)
    padded = b"".join(block + b"\xf0" * (-len(block) % 4096) for block in blocks)
    return head.ljust(4096, b"\0") + padded + bytes(reserved)


def _framed(records: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(record)) + record for record in records)


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("0.log", LOG, {"entries": 5 * 45, "ledgers maps": 40}),
        ("1.log", entry_log.encode(SCOPED, with_map=True), {"entries": 5 * 54, "ledgers maps": 48}),
        (
            "2.log",
            entry_log.encode(RECORDS, with_map=False)[: 1024 + 200],
            {"entries": 4 * 45, "a record that was not finished": 20},
        ),
        ("3.log", entry_log.encode(RECORDS, with_map=False) + bytes(50), {"zeros, never written": 50}),
        ("4.log", _direct_log(_framed(RECORDS), _framed(RECORDS), reserved=8192), {"reserved space": 8192}),
        ("5.log", b"BKLO\0\0", {"fields that the end cuts": 6}),
        ("5.log", bytes(8192), {"zeros, never written": 8192}),  # reserved, and killed before its header was written
        ("6.log", b"", {}),
        ("3.log.compacting", LOG, {"entries": 225}),
        ("3.log.1.compacted", LOG, {"entries": 225}),
        ("1a.txn", JOURNAL + bytes(1024), {"entries": 225, "master keys": 44, "fences": 20, "reserved space": 1024}),
        ("1.txn", _framed([journal.encode_master_key(7, KEY), *RECORDS]), {"entries": 225, "master keys": 44}),
        *(
            (f"{version}.txn", journal.encode(RECORDS, version), {"entries": 225, "fields": 8})
            for version in (2, 3, 4, 5, 6)
        ),
        ("7.idx", INDEX, {"places": 16, "empty": 16, "explicit LAC": 24, "master key": 20}),
        ("7.idx.rloc", INDEX, {"places": 16}),
        ("8.idx", index_file.encode_header(index_file.IndexHeader(0, KEY, fenced=False, explicit_lac=None)), {}),
        ("9.idx", INDEX + b"\0\0\0", {"a slot that the end cuts": 3}),
        ("a.idx", b"BKLE\0\0\0\0\0\0\0\x14" + KEY, {"fields": 12, "master key": 20}),  # as BookKeeper 4.0 has it
        ("lastMark", bytes(16), {"fields": 16}),
        ("lastId", b"1f\n", {"text": 3}),
        ("BOOKIE_STATUS", b"1,READ_ONLY,1700000000000\n", {"text": 26}),
        ("DIRTY", b"", {}),
        ("VERSION", b"2\n", {"layout version": 2}),
        *(
            ("VERSION", cookie.encode(cookie.Cookie(layout, "b1:3181", ("/j",), ("/l",))), {})
            for layout in (3, 4, 5, 6)
        ),
    ],
)
def test_every_byte_of_a_whole_file_is_explained(
    tmp_path: Path, name: str, content: bytes, parts: dict[str, int]
) -> None:
    """Every format and version, finished or as a crash leaves it, by the kinds of things that are in it."""
    found = _account(tmp_path, name, content)
    assert found.is_whole
    assert {what: found.parts[what] for what in parts} == parts


@pytest.mark.parametrize(
    ("name", "content", "offset", "length"),
    [
        ("0.log", LOG[:100] + b"\x01" + LOG[101:], 100, 924),  # in the zeros of the header: no more is claimed of it
        ("0.log", b"XXXX" + LOG[4:], 0, 20),
        ("0.log", LOG[:1024] + struct.pack(">i", 3) + LOG[1028:], 1024, 45),
        ("0.log", LOG[:-1], len(LOG) - 40, 39),  # a log that was finished does not end inside its map
        ("1a.txn", JOURNAL[:-1] + b"\x01", len(JOURNAL) - 179, 179),
        ("1a.txn", b"BKLG\0\0\0\x63" + bytes(600), 0, 608),
        ("7.idx", INDEX[:1040] + struct.pack(">q", -5) + INDEX[1048:], 1040, 8),
        ("7.idx", INDEX[:1040] + struct.pack(">q", 1 << 32 | 7) + INDEX[1048:], 1040, 8),
        ("7.idx", INDEX[:32] + struct.pack(">i", 2) + INDEX[36:], 32, 4),
        ("lastMark", bytes(17), 16, 1),
        ("lastMark", bytes(15), 0, 15),
        ("DIRTY", b"x", 0, 1),
        ("VERSION", b"3\nb1:3181\n/j\n1\t/l\nmore", 18, 4),
        ("VERSION", cookie.encode(cookie.Cookie(4, "b1:3181", ("/j",), ("/l",))) + b"more: 1\n", 61, 8),
        ("lastId", b"none", 0, 4),
        ("notes.txt", b"hello", 0, 5),
    ],
)
def test_what_no_format_says_is_left_over(tmp_path: Path, name: str, content: bytes, offset: int, length: int) -> None:
    """A byte where none belongs, a size or a place that cannot be, a file of nobody: located, with its length."""
    found = _account(tmp_path, name, content)
    [odd] = [region for region in found.regions if not region.explained]
    assert (odd.offset, odd.length, found.unexplained) == (offset, length, length)
    assert not found.is_whole


def test_a_bookies_folder_may_be_called_as_a_database(tmp_path: Path) -> None:
    """Before layout 3 its files stood in the configured folder itself, which many call `ledgers`."""
    folder = tmp_path / "ledgers"
    folder.mkdir()
    for name, content in (("0.log", LOG), ("lastId", b"0\n"), ("lastMark", bytes(16)), ("VERSION", b"1")):
        (folder / name).write_bytes(content)
    found = account_for([tmp_path])
    assert (found.odd, found.files[FileKind.LOG], found.unexplained) == ([], 1, 0)


def test_a_scoped_entry_in_a_log_of_version_1_is_left_over(tmp_path: Path) -> None:
    """Logs of header version 1 and less never hold entries of scopes."""
    content = entry_log.encode(SCOPED, with_map=False)
    found = _account(tmp_path, "0.log", content[:4] + struct.pack(">i", 1) + content[8:])
    assert found.unexplained == 5 * 54


@pytest.mark.parametrize("storage", ["interleaved", "db"])
@pytest.mark.parametrize("rotated", [False, True])
def test_a_bookie_with_scopes_is_explained(tmp_path: Path, storage: Storage, *, rotated: bool) -> None:
    """Four-level index folders, databases, records and maps of scopes, as another writer than the codecs makes them."""
    make_scoped_bookie(tmp_path, HELD, storage, put=write_database, folders=2, rotated=rotated, dirty=True)
    for config in tmp_path.rglob("rocksdict-config.json"):
        config.unlink()  # the library's, which no bookie has
    found = account_for([tmp_path])
    assert [file.path for file in found.odd] == []
    assert found.parts[FileKind.JOURNAL]["explicit LACs"]
    assert bool(found.parts[FileKind.LOG]["ledgers maps"]) == rotated
    for path in tmp_path.rglob("*"):
        if path.name.endswith(("-scoped", ".log", ".txn")) and (path.is_dir() or path.parent.name == "current"):
            seen = look(path)
            assert seen.damaged == 0
            assert any("scope 7:" in line for line in seen.ranges)


def test_a_log_in_many_pieces_keeps_what_is_not_explained(tmp_path: Path) -> None:
    """Of more regions than are listed those are kept that nobody can explain, and all are counted."""
    slots = np.tile(np.array([0, 1 << 32 | 1028, -1]), 300)
    header = index_file.IndexHeader(1, KEY, fenced=False, explicit_lac=None)
    path = tmp_path / "7.idx"
    path.write_bytes(index_file.encode(header, slots))
    [found] = account_for([path]).named
    assert found.unexplained == 300 * 8
    assert (len(found.regions), found.more) == (100, 1 + 600 - 100)
    assert not any(region.explained for region in found.regions)


def _database(folder: Path, rows: dict[bytes, bytes], *, flush: bool) -> None:
    folder.mkdir(parents=True)
    database = rocksdict.Rdict(str(folder), rocksdict.Options(raw_mode=True))
    for key, value in rows.items():
        database[key] = value
    if flush:
        database.flush()
    database.close()
    (folder / "rocksdict-config.json").unlink()


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("locations", ledger_db.encode_location(5, 3, 0x1F00000404)),
        ("ledgers", ledger_db.encode_ledgers_row(ledger_db.BookieLedgerRow(5, fenced=False, master_key=KEY))),
        ("locations-scoped", ledger_db.encode_location(5, 3, 0x1F00000404, scope=7)),
        ("ledgers-scoped", ledger_db.encode_ledgers_row(ledger_db.BookieLedgerRow(5, False, KEY, scope=7))),
        ("metadata-cache", (struct.pack(">q", 31), struct.pack(">hqqqqqq", 0, 31, 51, 51, 1, 5, 51))),
    ],
)
def test_a_rocksdb_is_rocksdbs(tmp_path: Path, name: str, row: tuple[bytes, bytes], *, flush: bool) -> None:
    """Its own files are RocksDB's where it opens them and every row is of its format; one bad row takes that away."""
    _database(tmp_path / "good" / name, dict([row]), flush=flush)
    found = account_for([tmp_path / "good"])
    assert (set(found.files), found.odd_files, found.unexplained) == ({ROCKSDB}, 0, 0)
    _database(tmp_path / "bad" / name, dict([row, (row[0][:-1] + b"x", b"no")]), flush=flush)
    found = account_for([tmp_path / "bad"])
    assert found.odd_files
    assert all("row" in file.why for file in found.odd)


def test_a_foreign_file_in_a_rocksdb_is_left_over(tmp_path: Path) -> None:
    """A table that ends as none does, and a name that RocksDB does not give."""
    _database(tmp_path / "locations", dict([ledger_db.encode_location(5, 3, 0x1F00000404)]), flush=True)
    (tmp_path / "locations" / "000099.sst").write_bytes(b"not a table")
    (tmp_path / "locations" / "notes.txt").write_bytes(b"hello")
    found = account_for([tmp_path])
    assert {file.path.name: file.unexplained for file in found.odd} == {"000099.sst": 11, "notes.txt": 5}


def test_a_half_made_database_is_known_by_its_folder(tmp_path: Path) -> None:
    """What a rebuild that was broken off leaves has no CURRENT yet; its files are RocksDB's by their names."""
    folder = tmp_path / "ledgers.TEMP-2024-05-01T10:00:00.000+0000"
    folder.mkdir()
    (folder / "LOCK").write_bytes(b"")
    assert set(account_for([tmp_path]).files) == {ROCKSDB}


def test_links_are_told_and_not_followed(tmp_path: Path) -> None:
    """Below a folder, a link to a file or a folder is named as something that was not looked at."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "current").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "here" / "0.log").symlink_to(tmp_path / "nothing")
    found = account_for([tmp_path / "here"])
    assert (found.files[UNKNOWN], found.odd_files) == (2, 2)
    with pytest.raises(InputError, match="cannot be read"):
        account_for([tmp_path / "nothing"])


def test_a_folder_that_cannot_be_listed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops nothing: what is beside it is accounted for."""
    for name in ("closed", "open"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.log").write_bytes(LOG)

    listed = os.scandir

    def refuse(path: str) -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found = account_for([tmp_path])
    assert [(file.path.name, file.why) for file in found.odd] == [("closed", "it cannot be listed (Permission denied)")]
    assert found.bytes.total() == len(LOG)


def test_a_sparse_index_is_read_through_its_holes(tmp_path: Path) -> None:
    """A hole of 128 MiB: every slot counted, as one region."""
    path = tmp_path / "7.idx"
    with path.open("wb") as file:
        file.write(INDEX[:1024])
        file.truncate(1024 + (8 << 24) - 8)
        file.seek(0, os.SEEK_END)
        file.write(struct.pack(">q", 1 << 32 | 1028))
    [found] = account_for([path]).named
    assert found.is_whole
    assert found.regions[1].parts == {"empty": ((1 << 24) - 1, (8 << 24) - 8), "places": (1, 8)}


def test_inspect_accounts_for_files_and_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Text names each region; JSON has it with its parts; 0 if every byte is explained, 3 if not, 2 without a file."""
    (tmp_path / "current").mkdir()
    log = tmp_path / "current" / "0.log"
    log.write_bytes(LOG)
    good = run(capsys, "inspect", "--account", log, tmp_path)
    assert good.code == 0
    assert "every byte is explained" in good.out
    assert "5 entries, 225" in good.out
    told = run(capsys, "inspect", "--account", log, "--json").result
    [one] = told["accounts"]
    assert [region["name"] for region in one["regions"]] == ["header", "records"]
    assert sum(region["length"] for region in one["regions"]) == len(LOG) == told["counts"]["bytes"]
    (tmp_path / "current" / "notes.txt").write_bytes(b"hello")
    bad = run(capsys, "inspect", "--account", tmp_path, "--json")
    assert (bad.code, bad.result["counts"]["unexplained"], bad.result["odd"][0]["kind"]) == (3, 5, UNKNOWN)
    assert "notes.txt" in run(capsys, "inspect", "--account", tmp_path).out
    assert run(capsys, "inspect", "--account", tmp_path / "gone").code == 2
    assert run(capsys, "inspect", log, log).code == 2
