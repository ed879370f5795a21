"""What a bookie would serve from its disks: by index and journal, never by what merely lies in a log."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.bookies.disk_reader import BookieDisks, open_disks
from recovery.codecs import index_file
from recovery.codecs.entry import digest_agrees
from recovery.errors import InputError
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest
from tests.simulation.bookie_dir import (
    BOOKIE,
    BookieDir,
    locations,
    make_bookie,
    record,
    write_index,
    write_journal,
    write_log,
    write_mark,
)

HELD = {7: [0, 1, 2, 5]}
WANTED = np.arange(8, dtype=np.int64)


def _served(disks: BookieDisks, ledger: int = 7) -> tuple[dict[int, bytes], bool]:
    """Return the bytes of each entry that is served, the journal's first, and whether the rest is surely not."""
    found = disks.find(LedgerId(0, ledger), WANTED)
    served: dict[int, bytes] = {}
    for places in (found.index, found.journal):
        for row, raw in disks.read(places.file, places.position):
            if raw[8:16] == int(places.entry[row]).to_bytes(8):
                served[int(places.entry[row])] = raw
    return served, found.sure


def _read(made: BookieDir, ledger: int = 7) -> tuple[dict[int, bytes], bool]:
    with open_disks(BOOKIE, made.all_dirs) as disks:
        return _served(disks, ledger)


def test_what_the_index_names_is_served(tmp_path: Path) -> None:
    """Every entry of the index with its bytes, and nothing that it does not name."""
    served, sure = _read(make_bookie(tmp_path, HELD))
    assert served == {number: record(7, number) for number in HELD[7]}
    assert sure


def test_folders_may_be_named_by_the_one_they_stand_in(tmp_path: Path) -> None:
    """A mounted disk with all folders of a bookie is enough; so are the folders, in any order."""
    made = make_bookie(tmp_path, HELD, ledger_dirs=2, index_dirs=2, journal_dirs=2)
    for given_dirs in ([tmp_path], list(reversed(made.all_dirs))):
        with open_disks(BOOKIE, given_dirs) as disks:
            assert disks.complete
            assert set(_served(disks)[0]) == set(HELD[7])


def test_what_only_a_log_has_is_not_served(tmp_path: Path) -> None:
    """A ledger without an index was deleted, or never indexed: no bookie serves it from its logs alone."""
    made = make_bookie(tmp_path, HELD)
    made.index(7).unlink()
    assert _read(made) == ({}, True)


def test_what_stands_behind_the_mark_is_served_and_what_stands_before_is_not(tmp_path: Path) -> None:
    """Replay begins at the mark: an entry before it must be in the index."""
    made = make_bookie(tmp_path, HELD)
    write_journal(made, 0x1A, [record(7, 3), record(7, 4)])
    write_mark(made, 0x1A, 0)
    assert set(_read(made)[0]) == {0, 1, 2, 3, 4, 5}
    write_mark(made, 0x1A, 512 + 4 + len(record(7, 3)))
    assert set(_read(made)[0]) == {0, 1, 2, 4, 5}
    write_mark(made, 0x1A, 4096)
    assert set(_read(made)[0]) == set(HELD[7])


def test_replay_puts_the_journals_copy_in_place(tmp_path: Path) -> None:
    """Of an entry that stands several times behind the mark the last copy counts, whatever the index names."""
    made = make_bookie(tmp_path, HELD)
    other = record(7, 1, password=b"x")[:-1] + b"!"
    write_journal(made, 0x1A, [record(7, 1), other])
    write_mark(made, 0x1A, 0)
    assert _read(made)[0][1] == other


def test_an_index_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path) -> None:
    """A damaged header hides the ledger: it is neither served nor surely absent; other ledgers are not touched."""
    made = make_bookie(tmp_path, {**HELD, 8: [0]})
    made.index(7).write_bytes(b"XXXX" + made.index(7).read_bytes()[4:])
    assert _read(made) == ({}, False)
    assert _read(made, 8) == ({0: record(8, 0)}, True)


def test_a_half_moved_index_counts_where_there_is_no_whole_one(tmp_path: Path) -> None:
    """A copy that was being made in another folder is complete once the original is gone, and ignored before."""
    made = make_bookie(tmp_path, HELD)
    copy = made.index(7).with_suffix(".idx.rloc")
    whole = made.index(7).read_bytes()
    copy.write_bytes(whole[: index_file.HEADER_SIZE] + bytes(64))
    assert set(_read(made)[0]) == set(HELD[7])
    made.index(7).unlink()
    copy.write_bytes(whole)
    assert set(_read(made)[0]) == set(HELD[7])


def test_a_log_under_its_decimal_name_is_found(tmp_path: Path) -> None:
    """A restart after a compaction may leave log 1f as 31.log; what stands there is confirmed by its ids alone."""
    made = make_bookie(tmp_path, {})
    write_log(made, 0x1F, [(7, 0), (7, 1)])
    write_index(made, 7, locations(made, 0x1F, 7))
    made.log(0x1F).rename(made.log(0x31))
    assert set(_read(made)[0]) == {0, 1}


def test_a_missing_folder_makes_absence_uncertain(tmp_path: Path) -> None:
    """With a folder of the cookie not given, what is not found may be there."""
    made = make_bookie(tmp_path, HELD, ledger_dirs=2)
    with open_disks(BOOKIE, [made.ledger_dirs[0], *made.journal_dirs]) as disks:
        assert not disks.complete
        assert "ledgers1 was not given" in disks.problems[0]
        assert not _served(disks, 99)[1]


def test_a_damaged_journal_behind_the_mark_makes_absence_uncertain(tmp_path: Path) -> None:
    """What replay would bring is unknown there; what the index has is served all the same."""
    made = make_bookie(tmp_path, HELD)
    write_journal(made, 0x1A, [record(7, 3), record(7, 4)])
    write_mark(made, 0x1A, 0)
    content = bytearray(made.journal(0x1A).read_bytes())
    content[512:516] = (5).to_bytes(4)
    made.journal(0x1A).write_bytes(content)
    served, sure = _read(made)
    assert set(HELD[7]) <= set(served)
    assert not sure


def test_folders_of_somebody_else_are_refused(tmp_path: Path) -> None:
    """Another bookie's folder, and a folder that is not there, are named."""
    made = make_bookie(tmp_path, HELD)
    with pytest.raises(InputError, match="another:3181"), open_disks("another:3181", made.all_dirs):
        pass
    with pytest.raises(InputError, match="gone"), open_disks(BOOKIE, [tmp_path / "gone"]):
        pass


@given(st.data())
def test_no_bytes_make_it_serve_what_is_not_there(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever stands in index, log and journal ends nothing; what carries its digest is what was written."""
    made = make_bookie(tmp_path_factory.mktemp("odd"), HELD)
    write_journal(made, 0x1A, [record(7, 3)])
    write_mark(made, 0x1A, 0)
    path = data.draw(st.sampled_from([made.index(7), made.log(), made.journal(0x1A)]))
    content = bytearray(path.read_bytes())
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=12)):
        content[at] = data.draw(st.integers(0, 255))
    del content[data.draw(st.integers(0, len(content))) :]
    path.write_bytes(content)
    served, _ = _read(made)
    sound = {number: raw for number, raw in served.items() if digest_agrees(raw, Digest.CRC32C)}
    assert sound == {number: record(7, number) for number in sound}
