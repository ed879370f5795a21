"""Files that are damaged, misnamed or not a bookie's: told apart, located, and answered with what to do."""

import struct
from pathlib import Path

import pytest

from recovery.codecs import cookie, entry, entry_log, index_file, journal, ledger_metadata
from recovery.codecs.entry import EntryHeader
from recovery.codecs.entry_log import EntryAt
from recovery.errors import InputError, Reason
from recovery.inspect.bookie_file import look
from recovery.inspect.file_kinds import FileKind
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.support.command import run

RECORDS = [entry.encode(EntryHeader(7, n, n - 1, 5 * n + 5), b"hello", Digest.CRC32C) for n in range(3)]


def _write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def test_an_entry_log_says_what_it_holds(tmp_path: Path) -> None:
    """Header, map, entries, ledgers, first and last record with header and digest."""
    found = look(_write(tmp_path, "1f.log", entry_log.encode(RECORDS, with_map=True)))
    assert (found.kind, found.damaged, found.notes) == (FileKind.LOG, 0, ())
    assert found.header["log id"] == "1f"
    assert (found.counts["entries"], found.counts["ledgers"]) == (3, 1)
    assert "entry 0" in found.first
    assert "entry 2" in found.last
    assert "CRC32C agrees" in found.last
    assert found.ranges == ("ledgers 7",)


def test_what_a_crash_leaves_at_the_end_is_no_damage(tmp_path: Path) -> None:
    """A log cut inside its last record is as a killed bookie leaves it; the same cut in the middle is damage."""
    whole = entry_log.encode(RECORDS, with_map=False)
    cut = look(_write(tmp_path, "0.log", whole[:-3]))
    assert cut.damaged == 0
    assert any("not finished" in note for note in cut.notes)
    last = [part for part in entry_log.scan(whole) if isinstance(part, EntryAt)][1]
    broken = bytearray(whole)
    broken[last.position - 4 : last.position] = struct.pack(">i", 3)
    middle = look(_write(tmp_path, "1.log", bytes(broken)))
    assert middle.damaged == 1
    assert middle.damage[0].offset == last.position - 4


def test_a_log_without_a_header_is_still_read(tmp_path: Path) -> None:
    """Records do not depend on the header: a wrong magic is one piece of damage, and the entries are counted."""
    whole = entry_log.encode(RECORDS, with_map=False)
    found = look(_write(tmp_path, "0.log", b"XXXX" + whole[4:]))
    assert [part.reason for part in found.damage] == [Reason.BAD_MAGIC]
    assert found.counts["entries"] == 3


def test_an_empty_log_is_normal(tmp_path: Path) -> None:
    """The next log is made ahead of time; it has no bytes and no damage."""
    found = look(_write(tmp_path, "2.log", b""))
    assert (found.kind, found.damaged) == (FileKind.LOG, 0)
    assert found.notes


def test_what_a_bookie_whose_disk_is_full_leaves_is_no_damage(tmp_path: Path) -> None:
    """A log that was rotated before its first record; one that went on behind its map, as no next could be made."""
    empty = look(_write(tmp_path, "0.log", entry_log.encode_header(entry_log.LogHeader(1, 1024, 0))))
    assert (empty.damaged, empty.counts["entries"], empty.notes) == (0, 0, ())
    on = entry_log.encode(RECORDS[:2], with_map=True) + struct.pack(">i", len(RECORDS[2])) + RECORDS[2]
    found = look(_write(tmp_path, "1.log", on))
    assert (found.damaged, found.counts["entries"]) == (0, 3)
    assert any("records follow the ledgers map" in note for note in found.notes)


@pytest.mark.parametrize("offset", [-(1 << 62), -5, 12, 1030, 5000, 1 << 62])
def test_a_map_that_is_nowhere_is_damage(tmp_path: Path, offset: int) -> None:
    """Wherever the header says that it is; the entries are counted."""
    log = entry_log.encode_header(entry_log.LogHeader(1, offset, 1)) + entry_log.encode(RECORDS, with_map=True)[1024:]
    found = look(_write(tmp_path, "0.log", log))
    assert [(part.offset, part.reason) for part in found.damage] == [(offset, Reason.BAD_VALUE)]
    assert found.counts["entries"] == 3


def test_first_bytes_win_over_a_name(tmp_path: Path) -> None:
    """A journal that was renamed to a log is read as a journal, and that is said."""
    found = look(_write(tmp_path, "0.log", journal.encode([journal.encode_fence(7), *RECORDS])))
    assert (found.kind, found.counts["entries"], found.counts["fences"]) == (FileKind.JOURNAL, 3, 1)
    assert any("entry log" in note for note in found.notes)
    assert look(_write(tmp_path, "noname", entry_log.encode(RECORDS, with_map=False))).kind is FileKind.LOG


def test_an_index_in_the_wrong_place_is_noted(tmp_path: Path) -> None:
    """A bookie finds an index by its path alone, so the path that it belongs to is named."""
    import numpy as np  # noqa: PLC0415 - one array

    header = index_file.IndexHeader(1, entry.master_key(b"secret"), fenced=True, explicit_lac=None)
    content = index_file.encode(header, np.array([0, 1 << 32 | 1028, 0, -5], np.int64))
    found = look(_write(tmp_path, "5.idx", content + b"\0\0\0"))
    assert (found.kind, found.counts["slots"], found.counts["entries"]) == (FileKind.INDEX, 4, 2)
    assert "0/5/5.idx" in found.notes[0]
    assert {part.reason for part in found.damage} == {Reason.TRUNCATED, Reason.BAD_VALUE}
    folder = tmp_path / "0" / "5"
    folder.mkdir(parents=True)
    assert look(_write(folder, "5.idx", content)).notes == ()


def test_a_ledgers_record_is_shown_without_its_password(tmp_path: Path) -> None:
    """Everything that the record says is shown, but for the password: only whether there is one."""
    record = LedgerMetadata(
        format=3,
        ensemble_size=2,
        write_quorum=2,
        ack_quorum=1,
        state=LedgerState.CLOSED,
        last_entry=9,
        length=90,
        segments=(Segment(0, ("b1", "b2")), Segment(5, ("b1", "b3"))),
        digest=Digest.HMAC,
        password=b"hunter2",
        custom=(("application", b"something private"),),
    )
    found = look(_write(tmp_path, "L0005", ledger_metadata.encode(record)))
    assert (found.kind, found.counts["segments"]) == (FileKind.METADATA, 2)
    assert found.header["E/W/A"] == "2/2/1"
    assert found.header["password"] == "set, not shown"
    assert "hunter2" not in repr(found)
    assert "private" not in repr(found)


def test_a_cookie_is_known_by_its_content(tmp_path: Path) -> None:
    """The value of a cookie node that was saved under any name is read as one."""
    held = cookie.Cookie(5, "b1:3181", ("/j",), ("/l1", "/l2"), instance_id="i")
    found = look(_write(tmp_path, "b1", cookie.encode(held)))
    assert (found.kind, found.header["bookie id"], found.header["ledger folders"]) == (
        FileKind.COOKIE,
        "b1:3181",
        "/l1, /l2",
    )


@pytest.mark.parametrize(
    ("name", "content", "kind", "damaged"),
    [
        ("lastId", b"1f\n", FileKind.LAST_ID, 0),
        ("lastId", b"no\n", FileKind.LAST_ID, 1),
        ("lastMark", b"\0" * 16, FileKind.LAST_MARK, 0),
        ("lastMark.1", b"\0" * 15, FileKind.LAST_MARK, 1),
        ("VERSION", b"2\n", FileKind.COOKIE, 1),
        ("BOOKIE_STATUS", b"1,READ_ONLY,1700000000000,true\n", FileKind.STATUS, 0),
        ("BOOKIE_STATUS", b"\xff\xff", FileKind.STATUS, 1),
        ("1a.txn", b"", FileKind.JOURNAL, 0),
        ("1a.txn", b"BKLG\0\0\0\x63", FileKind.JOURNAL, 1),
        ("5.idx", b"", FileKind.INDEX, 1),
    ],
)
def test_small_files_are_whole_or_damaged(
    tmp_path: Path, name: str, content: bytes, kind: FileKind, damaged: int
) -> None:
    """Every small file of a bookie is read, and one that is cut or foreign is damage, not an end."""
    found = look(_write(tmp_path, name, content))
    assert (found.kind, found.damaged) == (kind, damaged)


def test_what_is_no_file_of_a_bookie_is_refused_by_name(tmp_path: Path) -> None:
    """A foreign file, a folder, a missing one, and a file of a RocksDB: each answer says what to name instead."""
    (tmp_path / "locations").mkdir()
    (tmp_path / "locations" / "CURRENT").write_text("MANIFEST-000001\n")
    for path, words in (
        (_write(tmp_path, "part.parquet", b"PAR1" + b"\0" * 8), "Parquet file"),
        (_write(tmp_path, "notes.txt", b"hello"), "neither the name nor the first bytes"),
        (_write(tmp_path / "locations", "000004.log", b"\0" * 40), "name its folder"),
        (tmp_path, "without a database"),
        (tmp_path / "gone.log", "no such file"),
    ):
        with pytest.raises(InputError, match=words):
            look(path)


def test_a_broken_database_is_damage(tmp_path: Path) -> None:
    """A RocksDB whose files are gone is one piece of damage with the reason, and no traceback."""
    (tmp_path / "ledgers").mkdir()
    (tmp_path / "ledgers" / "CURRENT").write_text("MANIFEST-000001\n")
    found = look(tmp_path / "ledgers")
    assert (found.kind, found.damaged) == (FileKind.LEDGERS, 1)


def test_inspect_ends_with_0_or_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A whole file is exit code 0, a damaged one 3, one that cannot be read 2; the JSON has the same in it."""
    whole = entry_log.encode(RECORDS, with_map=True)
    good = run(capsys, "inspect", _write(tmp_path, "0.log", whole), "--json")
    assert (good.code, good.result["schema"], good.result["kind"]) == (0, "bkmeta.inspect/1", "entry log")
    assert good.result["counts"]["entries"] == 3
    bad = run(capsys, "inspect", _write(tmp_path, "1.log", b"XXXX" + whole[4:]))
    assert bad.code == 3
    assert "damage at byte 0" in bad.out
    missing = run(capsys, "inspect", tmp_path / "2.log", "--json")
    assert (missing.code, missing.result["schema"]) == (2, "bkmeta.error/1")
