"""Every version of every format that a bookie may have on its disks is collected; old ones from bytes made by hand."""

import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
import rocksdict

from recovery.codecs import entry_log, ledger_db
from recovery.errors import InputError
from tests.recovery.collect.test_index_database import add_to_db, make_db, row, write_database
from tests.simulation import bookie_dir
from tests.simulation.bookie_dir import make_bookie, record, write_log, write_mark
from tests.support.collecting import look

JOURNAL: Final = 0x18BCFE56801
LEDGER: Final = 5
RECORDS: Final = {
    # ledger 5: its key, entry 3 ("hello world", LAC 2, length 11, CRC32C), its fence, explicit LAC 2
    "key": "00000028 0000000000000005 fffffffffffff000 00000014 850bf1071c5e3d8c24235676f8816ae0cbe2f14f",
    "entry": "0000002f 0000000000000005 0000000000000003 0000000000000002 000000000000000b 5e82cfb2"
    " 68656c6c6f20776f726c64",
    "fence": "00000010 0000000000000005 ffffffffffffe000",
    "lac": "00000028 0000000000000005 ffffffffffff8000 00000014 0000000000000005 0000000000000002 89bafe66",
}
JOURNALS: Final[dict[int, tuple[str, tuple[str, ...]]]] = {
    1: ("", ("entry",)),
    2: ("424b4c47 00000002", ("entry",)),
    3: ("424b4c47 00000003", ("key", "entry")),
    4: ("424b4c47 00000004", ("key", "entry", "fence")),
    5: ("424b4c47 00000005" + "00" * 504, ("key", "entry", "fence")),
    6: ("424b4c47 00000006" + "00" * 504, ("key", "entry", "fence", "lac")),
}
"""Version → header, and the records that it knows."""


@pytest.mark.parametrize("version", JOURNALS)
def test_a_journal_of_each_version_is_replayed(tmp_path: Path, version: int) -> None:
    """Entry, key, fence and explicit LAC, as far as the version knows them, and zeros or nothing behind."""
    header, names = JOURNALS[version]
    raw = bytes.fromhex(header + "".join(RECORDS[name] for name in names))
    for number, tail in enumerate((b"", bytes(4096))):
        made = make_bookie(tmp_path / str(number), {7: [0]}, dirty=True)
        made.journal(JOURNAL).write_bytes(raw + tail)
        write_mark(made, JOURNAL, 0)
        seen = look(made, tmp_path / str(number))
        assert seen.entries("journal", LEDGER) == [3]
        told = seen.row(LEDGER, "journal")
        assert told["fenced"] == ("fence" in names)
        assert told["key_kind"] == ("set" if "key" in names else "absent")
        assert told["explicit_lac"] == (2 if "lac" in names else None)
        assert seen.damage == []
        assert seen.bookie["complete"]


@pytest.mark.parametrize("version", [0, 1])
def test_an_index_file_of_each_version_is_read(tmp_path: Path, version: int) -> None:
    """Version 0 has no explicit LAC; key, fence and slots stand in both."""
    made = make_bookie(tmp_path, {LEDGER: [0, 1]})
    front = f"424b4c45 {version:08x} 00000014 850bf1071c5e3d8c24235676f8816ae0cbe2f14f 00000001"
    lac = "00000014 0000000000000005 0000000000000002 89bafe66" if version else ""
    path = made.index(LEDGER)
    path.write_bytes(bytes.fromhex(front + lac).ljust(1024, b"\0") + path.read_bytes()[1024:])
    seen = look(made, tmp_path)
    told = seen.row(LEDGER)
    assert (seen.entries("index", LEDGER), told["fenced"], told["key_kind"]) == ([0, 1], True, "set")
    assert told["explicit_lac"] == (2 if version else None)
    assert seen.damage == []


@pytest.mark.parametrize("version", [0, 1])
def test_an_entry_log_of_each_version_is_read(tmp_path: Path, version: int) -> None:
    """Version 0 has no map, so the log is gone through."""
    made = make_bookie(tmp_path, {LEDGER: [0, 1]}, rotated=version > 0)
    write_log(made, 1, [(9, 0)], rotated=version > 0)
    for number in (0, 1):
        raw = bytearray(made.log(number).read_bytes())
        raw[4:8] = struct.pack(">i", version)
        made.log(number).write_bytes(raw)
    seen = look(made, tmp_path)
    assert (seen.entries("index", LEDGER), seen.entries("log", 9)) == ([0, 1], [0])
    assert seen.damage == []


def _direct(records: Sequence[bytes], *, rotated: bool, reserved: int) -> bytes:
    """Return a log of the direct I/O logger: header and filler of 4096 bytes, blocks filled up with 0xf0, zeros."""
    whole = entry_log.encode(records, with_map=rotated)
    header = entry_log.decode_header(whole)
    cut = header.map_offset or len(whole)
    blocks = [part + b"\xf0" * (-len(part) % 4096) for part in (whole[1024:cut], whole[cut:]) if part]
    if rotated:
        header = entry_log.LogHeader(1, 4096 + len(blocks[0]), header.map_ledgers)
    filler = bytes.fromhex("00000bfc ffffffffffffffff").ljust(3072, b"\0")
    return entry_log.encode_header(header) + filler + b"".join(blocks) + bytes(reserved)


@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize("reserved", [0, 1 << 20])
def test_logs_of_the_direct_logger_are_read(tmp_path: Path, *, rotated: bool, reserved: int) -> None:
    """With and without a map, with and without reserved space; locations lie behind the larger header."""
    made = make_bookie(tmp_path, {LEDGER: [0, 1, 2]})
    records = [*(record(LEDGER, number) for number in range(3)), record(9, 0)]
    made.log().write_bytes(_direct(records, rotated=rotated, reserved=reserved))
    bookie_dir.write_index(made, LEDGER, bookie_dir.locations(made, 0, LEDGER))
    places = bookie_dir.locations(made, 0, LEDGER)
    assert min(places.values()) == 4100
    seen = look(made, tmp_path)
    assert (seen.entries("index", LEDGER), seen.entries("log", 9)) == ([0, 1, 2], [0])
    assert [head["entry"] for head in seen.row(LEDGER)["headers"]][-1] == 2
    assert seen.damage == []


@pytest.mark.parametrize("layout", [3, 4, 5, 6])
def test_a_cookie_of_each_layout_names_the_bookie(tmp_path: Path, layout: int) -> None:
    """Layouts 3 and 4 of old, 5, and what may come: the bookie's id and its folders, so that nothing is missing."""
    instance = None if layout == 3 else bookie_dir.INSTANCE
    made = make_bookie(tmp_path, {LEDGER: [0]}, layout=layout, instance=instance)
    seen = look(made, tmp_path)
    assert (seen.bookie["bookie"], seen.bookie["instance_id"]) == (bookie_dir.BOOKIE, instance)
    assert seen.bookie["complete"]


def test_folders_of_before_the_first_layout_are_read_with_an_id(tmp_path: Path) -> None:
    """Layout 2 is a number alone, directly in the folder: it names no bookie, so nothing counts as complete."""
    made = make_bookie(tmp_path, {LEDGER: [0, 1]})
    for folder in made.all_dirs:
        for file in (folder / "current").iterdir():
            shutil.move(file, folder / file.name)
        (folder / "current").rmdir()
        (folder / "VERSION").write_bytes(b"2\n")
        (folder / "upgradeTmp.1700000000000").mkdir()  # where an upgrade was broken off
    with pytest.raises(InputError, match="name the bookie"):
        look(made, tmp_path / "without")
    seen = look(made, tmp_path / "with", bookie_id="b1:3181")
    assert seen.entries("index", LEDGER) == [0, 1]
    assert seen.reasons() == {("bad_version", None, True)}
    assert not seen.bookie["complete"]


def test_what_belongs_there_and_holds_nothing_new_is_passed_over(tmp_path: Path) -> None:
    """Marks, caches, a rebuild's leftovers, a compaction that was broken off: no damage, and nothing read twice."""
    made = make_db(tmp_path)
    current = made.ledger_dirs[0] / "current"
    (current / "lastId").write_bytes(b"1\n")
    (current / "BOOKIE_STATUS").write_bytes(b"1,READ_WRITE,1700000000000,true\n")
    shutil.copy(current / "0.log", current / "1.log.compacting")
    cached = struct.pack(">hqqqq", 0, 0, 51, 51, 1) + struct.pack(">qq", LEDGER, 51)
    write_database(current / "metadata-cache", [(struct.pack(">q", 0), cached)])
    write_database(current / "ledgers.PREV-2024-05-01T10:00:00.000+0000", [row(77)])
    write_database(current / "ledgers.TEMP-2024-05-01T10:00:00.000+0000", [row(78)])
    write_database(current / "locations.BACKUP-2024-05-01T10:00:00.000+0000", [ledger_db.encode_location(79, 0, 1028)])
    seen = look(made, tmp_path)
    assert {one["ledger"] for one in seen.copies} == {4, 5, 7}
    assert seen.damage == []
    assert seen.bookie["complete"]


@pytest.mark.parametrize("by_range", [False, True])
@pytest.mark.parametrize("flushed", [False, True])
def test_deletes_in_flight_are_seen_as_rocksdb_sees_them(tmp_path: Path, *, by_range: bool, flushed: bool) -> None:
    """Locations go before the ledger's row, one by one or as a range, in tables or in the write-ahead log alone."""
    made = make_bookie(tmp_path, {}, ledger_dirs=1)
    add_to_db(made, 0, 0, {4: [0, 1, 2], 6: [0, 1], 8: [0, 1, 2]})
    folder = made.ledger_dirs[0] / "current" / "locations"
    database = rocksdict.Rdict(str(folder), rocksdict.Options(raw_mode=True))
    if by_range:
        database.delete_range(ledger_db.location_key(6, 0), ledger_db.location_key(6, (1 << 63) - 1))
    else:
        for number in (0, 1):
            del database[ledger_db.location_key(6, number)]
    del database[ledger_db.location_key(8, 0)]  # a delete that a kill broke off
    if flushed:
        database.flush()
        database.close()
    else:
        # A killed bookie's: copied while it is open, since closing may flush.
        shutil.copytree(folder, tmp_path / "killed")
        database.close()
        shutil.rmtree(folder)
        shutil.move(tmp_path / "killed", folder)
    seen = look(made, tmp_path)
    assert [seen.entries("index", ledger) for ledger in (4, 6, 8)] == [[0, 1, 2], [], [1, 2]]
    assert seen.row(6)["key_kind"] == "set"
    assert (seen.entries("log", 6), seen.entries("log", 8)) == ([0, 1], [0])


def test_a_version_that_nobody_knows_is_refused_by_name(tmp_path: Path) -> None:
    """A later header of an index, a log, a journal: named with its version, and nothing of it is guessed."""
    made = make_bookie(tmp_path, {LEDGER: [0], 6: [0]})
    made.index(LEDGER).write_bytes(b"BKLE" + struct.pack(">i", 2) + bytes(1016))
    made.journal(JOURNAL).write_bytes(b"BKLG" + struct.pack(">i", 7) + bytes(504))
    write_mark(made, JOURNAL, 512)
    seen = look(made, tmp_path)
    versions = {(one["reason"], one["ledger"]) for one in seen.damage}
    assert {("bad_version", LEDGER), ("bad_version", None)} <= versions
    assert not seen.bookie["complete"]
    assert seen.entries("index", 6) == [0]
