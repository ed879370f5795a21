"""Collecting from disks that are not as they should be: what is found, and what is said of the rest."""

import shutil
import struct
from datetime import UTC, datetime
from pathlib import Path

import pytest

from recovery.codecs import entry, entry_log, index_file, journal
from recovery.collect.options import CollectOptions
from recovery.collect.pipeline import collect
from recovery.errors import DatasetError, InputError
from recovery.infer.prior import Prior
from recovery.infer.reconstruct import InferOptions, reconstruct
from recovery.model.metadata import Digest
from tests.simulation import bookie_dir
from tests.simulation.bookie_dir import (
    BookieDir,
    make_bookie,
    record,
    write_index,
    write_journal,
    write_log,
    write_mark,
)
from tests.support.collecting import Row, Seen, look

pytestmark = pytest.mark.long

JOURNAL = 0x18BCFE56801


def test_a_whole_bookie_is_complete(tmp_path: Path) -> None:
    """The made bookie, with nothing broken, has every entry in index rows and no damage."""
    held = {5: [0, 1, 2], 6: [1, 4, 7], 7: []}
    seen = look(make_bookie(tmp_path, held), tmp_path)
    assert {ledger: seen.entries("index", ledger) for ledger in held} == held
    assert seen.bookie["complete"]
    assert seen.damage == []
    assert all(row["complete"] for row in seen.copies)
    assert seen.row(6)["g_period"] == 3
    assert [head["entry"] for head in seen.row(6)["headers"]] == [1, 7], "the first entry and the last"


def test_five_damaged_files_cost_only_their_ledgers(tmp_path: Path) -> None:
    """Incident 13: an empty index file, a bad magic, header version 7, a cut last page and garbage in a log.

    Five typed findings; the entries of the damaged ledgers come from the log; every other ledger is complete.
    """
    held = {ledger: list(range(20)) for ledger in range(1, 13)}
    made = make_bookie(tmp_path, held)
    made.index(1).write_bytes(b"")
    raw = made.index(2).read_bytes()
    made.index(2).write_bytes(b"XXXX" + raw[4:])
    made.index(3).write_bytes(made.index(3).read_bytes()[:4] + struct.pack(">i", 7) + made.index(3).read_bytes()[8:])
    made.index(4).write_bytes(made.index(4).read_bytes()[: 1024 + 8 * 12 + 3])
    garbage = b"\x00\x00\x01\x00" + b"\xde\xad\xbe\xef" * 64
    whole = made.log().read_bytes()
    tail = bookie_dir.record(13, 0)
    made.log().write_bytes(whole + garbage + struct.pack(">i", len(tail)) + tail)
    seen = look(made, tmp_path)
    assert seen.reasons() == {
        ("empty", 1, True),
        ("bad_magic", 2, True),
        ("bad_version", 3, True),
        ("truncated", 4, True),
        ("bad_value", None, True),
        ("suspect_disk", None, False),
    }
    assert (seen.bookie["complete"], seen.bookie["gaps_named"]) == (False, False)
    assert [seen.entries("log", ledger) for ledger in (1, 2, 3)] == [list(range(20))] * 3
    assert (seen.entries("index", 4), seen.entries("log", 4)) == (list(range(12)), list(range(12, 20)))
    assert seen.entries("log", 13) == [0]
    for ledger in range(5, 13):
        assert seen.entries("index", ledger) == held[ledger]
        assert seen.row(ledger)["complete"]
    assert not any(row["complete"] for row in seen.copies if row["ledger"] in (1, 2, 3, 4, 13))
    unread = {(folder["role"], folder["unread"]) for folder in seen.bookie["dirs"]}
    assert ("ledger", len(garbage)) in unread


def test_a_slot_that_dangles_is_not_held(tmp_path: Path) -> None:
    """The last entry is read where the index says; where it is not, the last one that is there counts."""
    made = make_bookie(tmp_path, {5: [0, 1, 2], 6: [0, 1, 2]})
    slots = bookie_dir.locations(made, 0, 5)
    write_index(made, 5, {**slots, 2: slots[1]})
    seen = look(made, tmp_path)
    assert seen.entries("index", 5) == [0, 1]
    assert seen.reasons() == {("dangling", 5, True)}
    assert [head["entry"] for head in seen.row(5)["headers"]] == [0, 1]
    assert not seen.row(5)["complete"]
    assert seen.row(6)["complete"]
    # What is hidden has a name: of other ledgers absence may be believed.
    assert (seen.bookie["complete"], seen.bookie["gaps_named"]) == (False, True)
    assert seen.damage[0]["file"] == str(made.index(5))
    assert seen.damage[0]["offset"] == 1024 + 8 * 2
    assert (seen.damage[0]["hides"], seen.damage[0]["entries"]) == (
        "ledger", [{"first": 2, "last": 2, "size": 1, "period": 0}]
    )  # fmt: skip
    assert seen.entries("log", 5) == [2]


def test_what_dangles_is_held_if_the_journal_has_it(tmp_path: Path) -> None:
    """A page flushed before its log, then a crash: the journal lists the entry, and nothing is hidden."""
    made = make_bookie(tmp_path, {5: [0, 1]}, dirty=True)
    slots = bookie_dir.locations(made, 0, 5)
    write_index(made, 5, {**slots, 2: (9 << 32) | 1028, 3: slots[0]})
    write_journal(made, JOURNAL, [record(5, e) for e in range(4)])
    seen = look(made, tmp_path)
    assert (seen.entries("index", 5), seen.entries("journal", 5)) == ([0, 1], [2, 3])
    assert seen.reasons() == {("dangling", 5, False)}
    assert seen.bookie["complete"]
    assert 3 in [head["entry"] for head in seen.row(5, "journal")["headers"]]


def test_a_ledger_that_only_damage_names_is_listed(tmp_path: Path) -> None:
    """An index file that cannot be read, and a log that is gone: the bookie has that ledger, and a plan must hold it.

    Left out of a plan it would have no record, and the bookie would delete what a repair of the disk may bring back.
    """
    made = make_bookie(tmp_path, {5: [0, 1], 6: [0]})
    made.index(5).write_bytes(b"")
    made.log().unlink()
    seen = look(made, tmp_path)
    row = seen.row(5)
    assert (row["entries"], row["complete"], row["key_kind"]) == (0, False, "absent")
    assert seen.bookie["ledgers"] == 2
    copies, bookies, damage = seen.tables
    rows = reconstruct(copies, bookies, damage, Prior(()), InferOptions()).to_pylist()
    assert {(row["ledger"], row["outcome"], row["reason"], *row["holders"]) for row in rows} == {
        (ledger, "held", "damage", bookie_dir.BOOKIE) for ledger in (5, 6)
    }


def test_what_stands_only_before_the_mark_is_a_candidate(tmp_path: Path) -> None:
    """What replay does not bring back no bookie serves: it lists as in a log, with what special records say of it.

    What stands behind the mark too, or in the index, is listed there and not again.
    """
    made = make_bookie(tmp_path, {5: [0, 1]}, dirty=True)
    key = entry.master_key(b"")
    write_journal(
        made,
        JOURNAL,
        [journal.encode_master_key(7, key), *(record(7, e) for e in range(3)), journal.encode_fence(7), record(5, 1)],
    )
    write_journal(made, JOURNAL + 1, [record(5, 1), record(8, 0), record(5, 2), record(7, 1)])
    parts = journal.scan(made.journal(JOURNAL + 1).read_bytes())
    places = {(p.ledger, p.entry): p.at for p in parts if isinstance(p, journal.JournalEntry)}
    write_mark(made, JOURNAL + 1, places[5, 2] - 4)
    seen = look(made, tmp_path)
    assert (seen.entries("index", 5), seen.entries("journal", 5), seen.entries("log", 5)) == ([0, 1], [2], [])
    assert (seen.entries("journal", 7), seen.entries("log", 7)) == ([1], [0, 2])
    assert (seen.entries("journal", 8), seen.entries("log", 8)) == ([], [0])
    assert [head["entry"] for head in seen.row(7, "log")["headers"]] == [0, 2]
    assert all(row["fenced"] and row["key_kind"] == "set" for row in seen.copies if row["ledger"] == 7)
    assert {row["source"] for row in seen.copies if row["ledger"] == 8} == {"log"}
    assert seen.bookie["complete"]
    assert not seen.row(8, "log")["complete"]


def test_a_deleted_ledger_is_not_copies_of_the_bookie_that_deleted_it(tmp_path: Path) -> None:
    """The key, the fence and all entries before the mark make one candidate row, and none that a bookie serves."""
    made = make_bookie(tmp_path, {5: [0]}, dirty=True)
    said = [journal.encode_master_key(7, entry.master_key(b"")), journal.encode_fence(7)]
    write_journal(made, JOURNAL, [*said, record(7, 0), record(7, 1)])
    write_journal(made, JOURNAL + 1, [])
    write_mark(made, JOURNAL + 1, 512)
    seen = look(made, tmp_path)
    row = seen.row(7, "log")
    assert {found["source"] for found in seen.copies if found["ledger"] == 7} == {"log"}
    assert (row["entries"], row["fenced"], row["key_kind"]) == (2, True, "set")
    assert [head["entry"] for head in row["headers"]] == [0, 1]


def test_a_lost_log_is_noticed_on_a_clean_bookie(tmp_path: Path) -> None:
    """Every location must lie in a log that exists, not only the last one."""
    made = make_bookie(tmp_path, {5: [0, 1, 2, 3]})
    slots = bookie_dir.locations(made, 0, 5)
    write_index(made, 5, {**slots, 1: (7 << 32) | 1028})
    seen = look(made, tmp_path)
    assert seen.entries("index", 5) == [0, 2, 3]
    assert seen.reasons() == {("dangling", 5, True)}


def test_after_an_unclean_stop_every_location_is_looked_at(tmp_path: Path) -> None:
    """A slot in the middle that names another entry is found out on a dirty bookie, on a clean one by a deep look."""
    for name, dirty, deep, held in (
        ("clean", False, False, [0, 1, 2, 3]),
        ("dirty", True, False, [0, 2, 3]),
        ("deep", False, True, [0, 2, 3]),
    ):
        made = make_bookie(tmp_path / name, {5: [0, 1, 2, 3]}, dirty=dirty)
        slots = bookie_dir.locations(made, 0, 5)
        write_index(made, 5, {**slots, 1: slots[0]})
        assert look(made, tmp_path / name, deep=deep).entries("index", 5) == held


def test_an_old_bookie_with_entries_behind_its_mark_was_not_stopped_cleanly(tmp_path: Path) -> None:
    """Before 4.15 there is no DIRTY file: then the journal tells, and all locations are looked at."""
    made = make_bookie(tmp_path, {5: [0, 1, 2]}, layout=4)
    slots = bookie_dir.locations(made, 0, 5)
    write_index(made, 5, {**slots, 1: slots[0]})
    write_journal(made, JOURNAL, [record(5, 2)])
    write_mark(made, JOURNAL, 512)
    seen = look(made, tmp_path)
    assert seen.bookie["dirty"] is None
    assert seen.entries("index", 5) == [0, 2]


def test_where_the_digest_cannot_be_told_the_lengths_can(tmp_path: Path) -> None:
    """With an unknown password the header of the entry before the last is there too."""
    made = make_bookie(tmp_path, {5: list(range(8))}, digest=Digest.HMAC, password=b"unknown")
    heads = look(made, tmp_path).row(5)["headers"]
    assert [(head["entry"], head["digest"]) for head in heads] == [(0, None), (6, None), (7, None)]
    known = look(made, tmp_path / "known", passwords=(b"unknown",)).row(5)["headers"]
    assert [(head["entry"], head["digest"]) for head in known] == [(0, "HMAC"), (7, "HMAC")]


def test_a_relocated_copy_counts_only_where_the_index_is_gone(tmp_path: Path) -> None:
    """`.idx.rloc` beside `.idx` is passed over; alone it is the index."""
    made = make_bookie(tmp_path, {5: [0, 1], 6: [0, 1]}, index_dirs=2)
    both = made.index_dirs[0] / "current" / index_file.path_of(5)
    both.parent.mkdir(parents=True)
    both.with_suffix(".idx.rloc").write_bytes(b"half")
    made.index(6).rename(made.index(6).with_suffix(".idx.rloc"))
    seen = look(made, tmp_path)
    assert [seen.entries("index", ledger) for ledger in (5, 6)] == [[0, 1], [0, 1]]
    assert seen.damage == []


def test_of_two_index_files_the_first_folder_counts(tmp_path: Path) -> None:
    """As the bookie does; the other one is reported, and the ledger is not complete."""
    made = make_bookie(tmp_path, {6: [0, 1]}, index_dirs=2)
    other = made.index_dirs[1] / "current" / index_file.path_of(6)
    other.parent.mkdir(parents=True)
    shutil.copy(made.index(6), other)
    seen = look(made, tmp_path)
    assert seen.entries("index", 6) == [0, 1]
    assert seen.reasons() == {("conflict", 6, True)}
    assert seen.damage[0]["file"] == str(other)


def test_an_index_file_in_the_wrong_place_is_reported(tmp_path: Path) -> None:
    """A bookie would not find it; what is no index file at all is only named."""
    made = make_bookie(tmp_path, {6: [0, 1]})
    wrong = made.index(6).parent.parent / "7" / "6.idx"
    wrong.parent.mkdir()
    made.index(6).rename(wrong)
    (wrong.parent / "notes.txt").write_text("x")
    seen = look(made, tmp_path)
    assert seen.reasons() == {("misplaced", 6, True), ("unknown_file", None, False)}
    assert seen.entries("log", 6) == [0, 1]


def test_a_folder_that_was_not_given_makes_the_bookie_incomplete(tmp_path: Path) -> None:
    """The cookie names it: it is listed as missing, and no absence is believed."""
    made = make_bookie(tmp_path, {5: [0], 6: [0]}, ledger_dirs=2)
    seen = look(made, tmp_path, ledger_dirs=made.ledger_dirs[:1])
    assert not seen.bookie["complete"]
    assert not any(row["complete"] for row in seen.copies)
    missing = [folder["path"] for folder in seen.bookie["dirs"] if not folder["complete"]]
    assert set(missing) == {str(made.ledger_dirs[1])}
    assert ("missing", None, True) in seen.reasons()


def test_folders_of_two_bookies_are_refused(tmp_path: Path) -> None:
    """The error names both files and both ids."""
    one = make_bookie(tmp_path / "one", {5: [0]})
    two = make_bookie(tmp_path / "two", {5: [0]}, bookie="10.0.0.2:3181")
    with pytest.raises(InputError) as refused:
        look(one, tmp_path, journal_dirs=two.journal_dirs)
    for part in ("10.0.0.1:3181", "10.0.0.2:3181", str(one.ledger_dirs[0]), str(two.journal_dirs[0])):
        assert part in str(refused.value)
    assert not (tmp_path / "inventory" / "manifest.json").exists()


def test_folders_of_two_clusters_are_refused(tmp_path: Path) -> None:
    """Equal ids do not help where the instances differ."""
    one = make_bookie(tmp_path / "one", {5: [0]})
    two = make_bookie(tmp_path / "two", {5: [0]}, instance="other")
    with pytest.raises(InputError, match="cluster instance"):
        look(one, tmp_path, journal_dirs=two.journal_dirs)


def test_another_id_than_the_cookies_is_refused(tmp_path: Path) -> None:
    """An id may be given where the cookie says the same."""
    made = make_bookie(tmp_path, {5: [0]})
    assert look(made, tmp_path / "same", bookie_id=bookie_dir.BOOKIE).bookie["complete"]
    with pytest.raises(InputError, match=r"10\.0\.0\.1:3181"):
        look(made, tmp_path / "other", bookie_id="10.0.0.9:3181")


def test_without_a_cookie_an_id_is_needed_and_nothing_is_complete(tmp_path: Path) -> None:
    """The remedy is in the error; with an id everything is read, and no absence believed."""
    made = make_bookie(tmp_path, {5: [0, 1]})
    for folder in made.all_dirs:
        (folder / "current" / "VERSION").unlink()
    with pytest.raises(InputError, match="name the bookie"):
        look(made, tmp_path / "without")
    seen = look(made, tmp_path / "with", bookie_id="b1:3181")
    assert seen.entries("index", 5) == [0, 1]
    assert not seen.bookie["complete"]
    assert not seen.row(5)["complete"]
    assert seen.bookie["bookie"] == "b1:3181"


def test_a_cookie_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    """Another folder's cookie says whose the disks are; nothing is complete."""
    made = make_bookie(tmp_path, {5: [0]})
    (made.journal_dirs[0] / "current" / "VERSION").write_bytes(b"garbage")
    seen = look(made, tmp_path)
    assert ("bad_magic", None, True) in seen.reasons()
    assert not seen.bookie["complete"]


def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    """A missing path never reads as an empty one."""
    made = make_bookie(tmp_path, {5: [0]})
    with pytest.raises(InputError, match="no such folder"):
        look(made, tmp_path, journal_dirs=(tmp_path / "nowhere",))
    with pytest.raises(InputError, match="nothing to collect from"):
        collect(CollectOptions(()), tmp_path / "out", now=lambda: datetime.now(UTC), progress=lambda _: None)


def test_nothing_is_written_below_a_bookies_folder(tmp_path: Path) -> None:
    """An output folder there is refused, and so is one that already holds something."""
    made = make_bookie(tmp_path / "bookie", {5: [0]})
    options = CollectOptions(made.ledger_dirs)
    with pytest.raises(InputError, match="inside the bookie's folder"):
        collect(options, made.ledger_dirs[0] / "out", now=lambda: datetime.now(UTC), progress=lambda _: None)
    with pytest.raises(DatasetError):
        collect(options, tmp_path, now=lambda: datetime.now(UTC), progress=lambda _: None)


def test_roles_are_found_by_content(tmp_path: Path) -> None:
    """All folders named as ledger folders, with `current/`, are read for what they are."""
    made = make_bookie(tmp_path, {5: [0, 1]}, index_dirs=1)
    write_journal(made, JOURNAL, [record(5, 2)])
    given = tuple(folder / "current" for folder in made.all_dirs)
    seen = look(made, tmp_path, ledger_dirs=given, index_dirs=(), journal_dirs=())
    assert (seen.entries("index", 5), seen.entries("journal", 5)) == ([0, 1], [2])
    assert seen.bookie["complete"]


def test_all_files_in_one_folder(tmp_path: Path) -> None:
    """A bookie may keep everything in one `current/`."""
    made = make_bookie(tmp_path / "apart", {5: [0, 1]})
    write_journal(made, JOURNAL, [record(5, 2)])
    one = BookieDir(made.ledger_dirs, (), made.ledger_dirs)
    shutil.move(made.journal(JOURNAL), one.journal(JOURNAL))
    cookie = made.ledger_dirs[0] / "current" / "VERSION"
    cookie.write_bytes(cookie.read_bytes().replace(b"journal0", b"ledgers0"))
    seen = look(one, tmp_path)
    assert (seen.entries("index", 5), seen.entries("journal", 5)) == ([0, 1], [2])
    assert seen.bookie["complete"]


# Journals


def test_special_records_count_whatever_the_index_says(tmp_path: Path) -> None:
    """Fence, key and the largest explicit LAC of the journal reach the index row, also from before the mark."""
    made = make_bookie(tmp_path, {5: [0, 1]})
    lacs = [journal.encode_lac(5, entry.encode_lac_record(5, lac, Digest.CRC32C)) for lac in (0, 1, 0)]
    write_journal(made, JOURNAL, [journal.encode_fence(5), *lacs, journal.encode_master_key(8, b"k" * 20)])
    write_mark(made, JOURNAL, 4096)
    seen = look(made, tmp_path)
    assert (seen.row(5)["fenced"], seen.row(5)["explicit_lac"]) == (True, 1)
    assert seen.row(5)["lac_record"] == entry.encode_lac_record(5, 1, Digest.CRC32C)
    alone = seen.row(8, "journal")
    assert (alone["key_kind"], alone["entries"], alone["groups"]) == ("set", 0, [])
    assert seen.bookie["max_ids"] == [{"scope": 0, "ledger": 8}]
    assert seen.bookie["complete"]


@pytest.mark.parametrize(("journaled", "shown"), [(1, 2), (2, 2), (3, 3)])
def test_the_newer_explicit_lac_counts(tmp_path: Path, journaled: int, shown: int) -> None:
    """Of an index file that has one and a journal that has another, with the record that it was read from."""
    made = make_bookie(tmp_path, {5: [0, 1]})
    records = {lac: entry.encode_lac_record(5, lac, Digest.CRC32C) for lac in (1, 2, 3)}
    header = index_file.IndexHeader(1, entry.master_key(b""), fenced=False, explicit_lac=records[2])
    made.index(5).write_bytes(index_file.encode_header(header) + made.index(5).read_bytes()[index_file.HEADER_SIZE :])
    write_journal(made, JOURNAL, [journal.encode_lac(5, records[journaled])])
    seen = look(made, tmp_path)
    assert (seen.row(5)["explicit_lac"], seen.row(5)["lac_record"]) == (shown, records[shown])
    assert seen.damage == []


def test_two_keys_for_one_ledger_are_both_kept(tmp_path: Path) -> None:
    """An id that was used twice: the index row has its key, a journal row the other, and damage says so."""
    made = make_bookie(tmp_path, {5: [0]})
    write_journal(made, JOURNAL, [journal.encode_master_key(5, entry.master_key(b"other"))])
    seen = look(made, tmp_path)
    assert seen.row(5)["key"] != seen.row(5, "journal")["key"]
    assert seen.reasons() == {("conflict", 5, False)}


def test_an_explicit_lac_that_does_not_verify_is_passed_over(tmp_path: Path) -> None:
    """A wrong CRC, and a record of another ledger."""
    made = make_bookie(tmp_path, {5: [0]})
    bad = bytearray(entry.encode_lac_record(5, 0, Digest.CRC32C))
    bad[-1] ^= 1
    other = entry.encode_lac_record(6, 0, Digest.CRC32)
    write_journal(made, JOURNAL, [journal.encode_lac(5, bytes(bad)), journal.encode_lac(5, other)])
    seen = look(made, tmp_path)
    assert seen.row(5)["explicit_lac"] is None
    assert seen.reasons() == {("digest", 5, False), ("bad_value", 5, False)}


def test_the_journal_of_the_mark_must_be_there(tmp_path: Path) -> None:
    """Missing, it may have held entries of any ledger; a gap behind it is the same."""
    made = make_bookie(tmp_path, {5: [0]})
    write_mark(made, JOURNAL, 512)
    seen = look(made, tmp_path / "missing")
    assert seen.reasons() == {("missing", None, True)}
    assert not seen.bookie["complete"]
    assert not seen.row(5)["complete"]
    for number in (0, 1, 3):
        write_journal(made, JOURNAL + number, [record(5, 1)])
    gap = look(made, tmp_path / "gap")
    assert [row["file"] for row in gap.damage] == [str(made.journal(JOURNAL + 2))]


@pytest.mark.parametrize("version", range(1, 7))
def test_only_ids_that_are_no_times_tell_of_a_missing_journal(tmp_path: Path, version: int) -> None:
    """Before 4.2, which wrote versions 1 to 3, each journal is named by the time at which it was begun."""
    made = make_bookie(tmp_path, {5: [0]})
    write_mark(made, JOURNAL, 0)
    for number in (0, 1_371):
        write_journal(made, JOURNAL + number, [record(5, 1 + number)], version=version)
    seen = look(made, tmp_path / "whole")
    assert seen.entries("journal", 5) == [1, 1_372]
    assert seen.reasons() == (set() if version <= 3 else {("missing", None, True)})
    made.journal(JOURNAL).unlink()  # the mark's own is always looked for
    assert ("missing", None, True) in look(made, tmp_path / "cut").reasons()
    made.journal(JOURNAL + 1_371).write_bytes(bytes(512) + made.journal(JOURNAL + 1_371).read_bytes()[512:])
    assert ("missing", None, True) in look(made, tmp_path / "mangled").reasons()


def test_journals_trimmed_before_the_mark_are_no_loss(tmp_path: Path) -> None:
    """The largest mark of all ledger folders counts; what is before it was applied."""
    made = make_bookie(tmp_path, {5: [0]}, ledger_dirs=2)
    write_mark(made, JOURNAL + 4, 512)
    (made.ledger_dirs[0] / "current" / "lastMark").write_bytes(journal.encode_last_mark(journal.LastMark(JOURNAL, 0)))
    write_journal(made, JOURNAL + 2, [record(9, 0)])
    write_journal(made, JOURNAL + 4, [record(5, 1)])
    seen = look(made, tmp_path)
    assert seen.bookie["complete"]
    assert seen.bookie["journals"] == [{"id": JOURNAL + 2, "mark": -1}, {"id": JOURNAL + 4, "mark": 512}]
    assert (seen.entries("journal", 9), seen.entries("log", 9)) == ([], [0])


def test_a_torn_end_is_normal_and_damage_behind_the_mark_is_not(tmp_path: Path) -> None:
    """A cut last record was never acknowledged; garbage hides entries only from the mark on."""
    made = make_bookie(tmp_path, {5: [0]})
    whole = journal.encode([record(5, 1), record(5, 2)])
    at = whole.rindex(record(5, 2))
    made.journal(JOURNAL).write_bytes(whole[: at + 20])
    seen = look(made, tmp_path / "torn")
    assert (seen.entries("journal", 5), seen.damage) == ([1], [])
    broken = bytearray(whole)
    broken[at - 4 : at] = b"\x80\x00\x00\x00"
    made.journal(JOURNAL).write_bytes(broken + bytes(4096))
    assert not look(made, tmp_path / "behind").bookie["complete"]
    write_mark(made, JOURNAL, len(whole) + 4096)
    before = look(made, tmp_path / "before")
    assert before.bookie["complete"]
    assert len(before.damage) == 1


@pytest.mark.parametrize("reserved", [4096, 20 << 20])
def test_a_torn_record_that_was_replayed_hides_nothing(tmp_path: Path, reserved: int) -> None:
    """A bookie that starts again reads it as a record, puts the mark behind it, and begins another journal."""
    made = make_bookie(tmp_path, {5: [0]}, dirty=True)
    whole = journal.encode([record(5, 1), record(5, 2)])
    at = whole.rindex(record(5, 2))
    made.journal(JOURNAL).write_bytes(whole[: at + 10] + bytes(reserved))
    torn = look(made, tmp_path / "torn")  # its last journal, however much is reserved
    assert (torn.entries("journal", 5), torn.damage, torn.bookie["complete"]) == ([1], [], True)
    write_journal(made, JOURNAL + 1, [record(5, 2)])
    write_mark(made, JOURNAL, at + len(record(5, 2)) + 4)
    seen = look(made, tmp_path / "replayed")
    assert (seen.entries("journal", 5), seen.damage, seen.bookie["complete"]) == ([2], [], True)
    write_mark(made, JOURNAL, at)  # not replayed: another journal tells that this one was left whole
    assert not look(made, tmp_path / "lost").bookie["complete"]


def test_a_journal_that_ends_before_its_mark_lost_its_end(tmp_path: Path) -> None:
    """The mark was written when there was more of it, and what stood behind the mark may be gone too."""
    made = make_bookie(tmp_path, {5: [0]})
    made.journal(JOURNAL).write_bytes(b"")
    write_mark(made, JOURNAL, 512)
    assert look(made, tmp_path).reasons() == {("truncated", None, True)}


def test_a_journal_of_a_version_that_nobody_knows_is_damage(tmp_path: Path) -> None:
    """It is passed over whole; from the mark on it hides entries."""
    made = make_bookie(tmp_path, {5: [0]})
    made.journal(JOURNAL).write_bytes(b"BKLG" + struct.pack(">i", 9) + bytes(1024))
    seen = look(made, tmp_path)
    assert seen.reasons() == {("bad_version", None, True)}


def test_several_journal_folders_have_marks_of_their_own(tmp_path: Path) -> None:
    """`lastMark.N` belongs to folder number N of the cookie, in whatever order the folders are given."""
    made = make_bookie(tmp_path, {5: [0]}, journal_dirs=2)
    write_journal(made, JOURNAL, [record(6, 0)], folder=0)
    write_journal(made, JOURNAL + 7, [record(5, 1)], folder=1)
    write_mark(made, JOURNAL, 512, folder=0)
    write_mark(made, JOURNAL + 7, 512, folder=1)
    seen = look(made, tmp_path, journal_dirs=made.journal_dirs[::-1])
    assert seen.bookie["complete"]
    assert seen.bookie["journals"] == [{"id": JOURNAL, "mark": 512}, {"id": JOURNAL + 7, "mark": 512}]


# Entry logs


def test_a_rotated_log_is_read_only_for_what_the_index_does_not_know(tmp_path: Path) -> None:
    """Its map names the ledgers: one that no index knows is a candidate, and its log is gone through."""
    made = make_bookie(tmp_path / "known", {5: [0, 1]}, rotated=True)
    small = collect(
        CollectOptions(made.ledger_dirs), tmp_path / "out", now=lambda: datetime.now(UTC), progress=lambda _: None
    )
    assert small.bytes_read < 1024 * 20
    made.index(5).unlink()
    seen = look(made, tmp_path)
    assert seen.entries("log", 5) == [0, 1]
    assert not seen.row(5, "log")["complete"]
    assert 1 in [head["entry"] for head in seen.row(5, "log")["headers"]]


def test_a_log_of_zeros_was_reserved_and_never_written(tmp_path: Path) -> None:
    """The direct I/O logger reserves space first; zeros before records are damage."""
    made = make_bookie(tmp_path, {5: [0, 1]})
    made.log(1).write_bytes(bytes(1 << 16))
    assert look(made, tmp_path / "reserved").damage == []
    made.log(1).write_bytes(bytes(1024) + entry_log.encode([record(9, 0)], with_map=False)[1024:])
    lost = look(made, tmp_path / "lost")
    assert (lost.entries("log", 9), lost.reasons()) == ([0], {("bad_magic", None, False)})


def test_a_log_that_was_rotated_before_its_first_record_is_whole(tmp_path: Path) -> None:
    """A full disk makes a bookie begin another log at once: the empty one names a map at its end, and has none."""
    made = make_bookie(tmp_path, {5: [0, 1]}, rotated=True)
    made.log(1).write_bytes(entry_log.encode_header(entry_log.LogHeader(1, 1024, 0)))
    seen = look(made, tmp_path)
    assert seen.damage == []
    assert seen.bookie["complete"]


@pytest.mark.parametrize("listed", [[], [5]])
@pytest.mark.parametrize("behind", [False, True])
def test_a_map_that_leaves_records_out_is_not_believed(tmp_path: Path, listed: list[int], *, behind: bool) -> None:
    """What it does not account for may be of ledgers that no index knows: the log is gone through."""
    made = make_bookie(tmp_path, {5: [0]})
    records = [record(9, 0), *([] if behind else [record(5, 0)])]
    log = entry_log.encode([record(5, 0)] if behind else records[::-1], with_map=False)
    rows = b"".join(struct.pack(">qq", ledger, 4 + len(record(5, 0))) for ledger in listed)
    log += struct.pack(">iqqi", 20 + len(rows), -1, -2, len(listed)) + rows
    log += struct.pack(">i", len(records[0])) + records[0] if behind else b""
    header = entry_log.LogHeader(1, log.index(struct.pack(">qq", -1, -2)) - 4, len(listed))
    made.log().write_bytes(entry_log.encode_header(header) + log[1024:])
    seen = look(made, tmp_path)
    assert (seen.entries("index", 5), seen.entries("log", 9), seen.damage) == ([0], [0], [])


def test_empty_and_cut_logs_are_normal(tmp_path: Path) -> None:
    """The next log is made ahead of time; a killed bookie's active log ends anywhere."""
    made = make_bookie(tmp_path, {5: [0, 1]})
    made.log(1).write_bytes(b"")
    made.log(2).write_bytes(b"BKLO")
    whole = made.log().read_bytes()
    made.log().write_bytes(whole + struct.pack(">i", 100) + record(5, 2)[:30])
    seen = look(made, tmp_path)
    assert seen.damage == []
    assert seen.bookie["complete"]


def test_half_finished_compactions_are_read_under_their_new_id(tmp_path: Path) -> None:
    """`3.log.0.compacted` is log 3 where 3.log is missing; `.compacting` is passed over."""
    made = make_bookie(tmp_path, {5: [0, 1]})
    pairs = [(5, 0), (5, 1)]
    write_log(made, 3, pairs, rotated=True)
    slots = bookie_dir.locations(made, 3, 5)
    made.log(3).rename(made.log(3).with_name("3.log.0.compacted"))
    made.log(4).with_name("4.log.compacting").write_bytes(b"BKLO half")
    made.log(0).unlink()
    write_index(made, 5, slots)
    seen = look(made, tmp_path)
    assert seen.entries("index", 5) == [0, 1]
    assert seen.damage == []


def test_a_log_under_its_decimal_name_is_found_and_reported(tmp_path: Path) -> None:
    """A restart links 1f.log.0.compacted to 31.log: the bookie looks for 1f.log and finds none."""
    made = make_bookie(tmp_path, {5: [0, 1]})
    write_log(made, 0x1F, [(5, 0), (5, 1)])
    slots = bookie_dir.locations(made, 0x1F, 5)
    made.log(0x1F).rename(made.log(0x31))
    made.log(0).unlink()
    write_index(made, 5, slots)
    seen = look(made, tmp_path)
    assert seen.entries("index", 5) == [0, 1]
    assert seen.reasons() == {("misplaced", None, False)}
    assert seen.damage[0]["file"] == str(made.log(0x31))


def test_both_links_of_a_compacted_log_are_one_log(tmp_path: Path) -> None:
    """While both names are there nothing is read twice, and nothing is wrong."""
    made = make_bookie(tmp_path, {5: [0, 1]})
    write_log(made, 0x1F, [(5, 0), (5, 1)], rotated=True)
    slots = bookie_dir.locations(made, 0x1F, 5)
    compacted = made.log(0x1F).with_name("1f.log.0.compacted")
    made.log(0x1F).rename(compacted)
    made.log(0x31).hardlink_to(compacted)
    write_index(made, 5, slots)
    seen = look(made, tmp_path)
    assert seen.entries("index", 5) == [0, 1]
    assert seen.damage == []


def test_a_log_with_a_broken_header_is_still_read(tmp_path: Path) -> None:
    """Records do not depend on it."""
    made = make_bookie(tmp_path, {5: [0, 1]}, rotated=True)
    made.log().write_bytes(b"XXXX" + made.log().read_bytes()[4:])
    made.index(5).unlink()
    seen = look(made, tmp_path)
    assert seen.entries("log", 5) == [0, 1]
    assert seen.reasons() == {("bad_magic", None, False)}


def test_an_unreadable_index_file_costs_its_ledger(tmp_path: Path) -> None:
    """A link to nowhere stands for a file that the system refuses; the log still has the entries."""
    made = make_bookie(tmp_path, {5: [0, 1], 6: [0]})
    made.index(5).unlink()
    made.index(5).symlink_to(tmp_path / "nowhere")
    seen = look(made, tmp_path)
    assert seen.reasons() == {("unreadable", 5, True)}
    assert seen.entries("log", 5) == [0, 1]
    assert seen.row(6)["complete"]


# Large ledgers


def test_a_sparse_index_of_a_billion_entries_is_read_through_its_holes(tmp_path: Path) -> None:
    """Only what is there is read; the entries on both sides of the hole are found."""
    made = make_bookie(tmp_path, {5: [0, 1]})
    far = 999_999_999
    write_log(made, 1, [(5, far)])
    location = bookie_dir.locations(made, 1, 5)[far]
    with made.index(5).open("r+b") as file:
        file.truncate(1024 + -(-(far + 1) // 1024) * 8192)
        file.seek(1024 + 8 * far)
        file.write(struct.pack(">q", location))
    out = tmp_path / "out"
    options = CollectOptions(made.ledger_dirs, (), made.journal_dirs)
    summary = collect(options, out, now=lambda: datetime.now(UTC), progress=lambda _: None)
    assert summary.bytes_read < 4 << 20
    assert Seen(out).entries("index", 5) == [0, 1, far]
    assert summary.complete


def test_many_groups_go_into_several_rows(tmp_path: Path) -> None:
    """Rows hold at most 65,536 groups; facts and headers stand in the first, and counts add up."""
    gaps = [0]
    for n in range(140_000):
        gaps.append(gaps[-1] + 2 + n % 3)  # no two distances alike, so that hardly two runs join
    made = make_bookie(tmp_path, {5: gaps})
    seen = look(made, tmp_path)
    rows = sorted((row for row in seen.copies if row["ledger"] == 5), key=lambda row: row["part"])
    assert [row["part"] for row in rows] == list(range(len(rows)))
    assert len(rows) > 1
    assert all(len(row["groups"]) <= 65_536 for row in rows)
    assert seen.entries("index", 5) == gaps
    assert sum(row["entries"] for row in rows) == len(gaps)
    assert [row["key_kind"] for row in rows] == ["set", *["absent"] * (len(rows) - 1)]
    assert [bool(row["headers"]) for row in rows] == [True, *[False] * (len(rows) - 1)]


def test_small_steps_find_what_large_ones_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledgers that are confirmed in pieces and merged in shares give the same rows and the same damage."""
    held = {ledger: [e for e in range(ledger * 3) if (e * ledger) % 7 != 3] for ledger in range(1, 30)}
    made = make_bookie(tmp_path / "bookie", held, dirty=True)
    for ledger in (7, 20, 25):
        slots = bookie_dir.locations(made, 0, ledger)
        last = max(slots)
        write_index(made, ledger, {**slots, last: slots[min(slots)], last + 1: 9 << 32 | 1028})
    write_journal(made, JOURNAL, [record(ledger, e) for e in range(0, 90, 5) for ledger in (3, 20, 99)])
    whole = look(made, tmp_path / "whole", passwords=())
    for name, value in (
        ("sources.index._BATCH", 5),
        ("sources.index._KEPT", 2),
        ("merge._FEW", 0),
        ("sources.entry_records._CHUNK", 4),
    ):
        monkeypatch.setattr(f"recovery.collect.{name}", value)
    monkeypatch.setattr("recovery.collect.rows.source_copies._SLICE", 3)
    pieces = look(made, tmp_path / "pieces", passwords=())

    def plain(seen: Seen) -> list[Row]:
        return [{name: value for name, value in row.items() if name != "headers"} for row in seen.copies]

    def heads(seen: Seen) -> list[list[Row]]:
        return [[head for head in row["headers"] if head["entry"] == row["last"]] for row in seen.copies]

    assert plain(pieces) == plain(whole)
    assert heads(pieces) == heads(whole)
    assert sorted(map(str, pieces.damage)) == sorted(map(str, whole.damage))
