"""Real disks as public reports describe them: each is collected, and what is odd about it is named."""

import shutil
import struct
from pathlib import Path
from typing import Final

import pytest

from recovery.testing.bookie_dir import BookieDir, make_bookie, write_log
from tests.support.cases import DATA
from tests.support.collecting import look

FIELD: Final = DATA / "field"


def found(name: str, tmp_path: Path) -> BookieDir:
    """A copy of one of the disks, to be changed."""
    shutil.copytree(FIELD / name, tmp_path / name)
    return BookieDir((tmp_path / name / "ledgers",), (), (tmp_path / name / "journal",))


def put_fields(log: Path, offset: int, ledgers: int, rest: bytes = b"") -> None:
    """Put a place and a number of a ledgers map into a log's header, and bytes behind them."""
    raw = bytearray(log.read_bytes())
    fields = struct.pack(">qi", offset, ledgers) + rest
    raw[8 : 8 + len(fields)] = fields
    log.write_bytes(raw)


def test_garbage_in_a_logs_header_hides_nothing(tmp_path: Path) -> None:
    """The bookie is complete with all its entries; the header is named, with what such a bookie may have done."""
    seen = look(found("garbage-log-header", tmp_path), tmp_path)
    assert (seen.bookie["complete"], seen.bookie["ledgers"], seen.bookie["entries"]) == (True, 11, 254)
    [row] = seen.damage
    assert (row["reason"], row["offset"], row["hides"]) == ("bad_value", 8, "nothing")
    assert "4.16.7" in row["detail"]
    assert "deleted entry logs" in row["detail"]


@pytest.mark.parametrize("offset", [-1, -(1 << 63), 1, 20, 1023, 1024, 1500, 57_000, 57_131, 60_000, 1 << 30, 1 << 62])
@pytest.mark.parametrize("ledgers", [-7, 0, 1, 11, 1 << 30])
def test_a_map_is_believed_only_where_one_is(tmp_path: Path, offset: int, ledgers: int) -> None:
    """Whatever place and number the garbage makes: the log is gone through to its end, and nothing is hidden."""
    made = found("garbage-log-header", tmp_path)
    put_fields(made.log(), offset, ledgers, b"\xee" * 1004)
    seen = look(made, tmp_path)
    assert (seen.bookie["complete"], seen.bookie["entries"]) == (True, 254)
    assert [(row["reason"], row["hides"]) for row in seen.damage] == [("bad_value", "nothing")]


def test_several_such_headers_say_nothing_of_the_disk(tmp_path: Path) -> None:
    """A bookie of such a release leaves one with each crash: its disk is not suspect."""
    made = make_bookie(tmp_path, {5: [0, 1]})
    for number in range(1, 6):
        write_log(made, number, [(5, 0), (5, 1)])
        put_fields(made.log(number), 0x6D69_6768_7420_6868, 7)
    seen = look(made, tmp_path)
    assert seen.reasons() == {("bad_value", None, False)}
    assert seen.bookie["complete"]


@pytest.mark.parametrize("cut", [1, 20, 40])
def test_a_crash_that_cut_such_a_log_hides_nothing_either(tmp_path: Path, cut: int) -> None:
    """Its last record is in the journal, as of any log that was being written."""
    made = make_bookie(tmp_path, {5: [0, 1]})
    write_log(made, 1, [(5, 0), (5, 1), (9, 0)])
    put_fields(made.log(1), -5, 7)
    made.log(1).write_bytes(made.log(1).read_bytes()[:-cut])
    seen = look(made, tmp_path)
    assert seen.reasons() == {("bad_value", None, False)}
    assert seen.bookie["complete"]


@pytest.mark.parametrize("keep", [1024, 1024 + 60, 1024 + 60 * 2 - 1])
def test_a_rotated_log_that_lost_its_end_hides_what_was_there(tmp_path: Path, keep: int) -> None:
    """Its header fits a larger log, and its last record is cut, or none is left: ledgers may be hidden."""
    made = make_bookie(tmp_path, {5: [0, 1]})
    write_log(made, 1, [(9, number) for number in range(5)], rotated=True)
    made.log(1).write_bytes(made.log(1).read_bytes()[:keep])
    seen = look(made, tmp_path)
    assert ("truncated", None, True) in seen.reasons()
    assert not seen.bookie["complete"]
