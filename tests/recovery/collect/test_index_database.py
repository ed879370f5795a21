"""Collecting from RocksDB indexes that are split, moved, marked or broken."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest
import rocksdict

from recovery.codecs import ledger_db
from recovery.codecs.entry import master_key
from recovery.codecs.ledger_db import BookieLedgerRow, StorageFlags
from tests.simulation import bookie_dir
from tests.simulation.bookie_dir import BookieDir, make_bookie, write_log
from tests.support.collecting import look

pytestmark = pytest.mark.long

HELD: Mapping[int, Sequence[int]] = {4: [0, 1, 2], 5: [0, 2, 4], 7: [0]}


def write_database(folder: Path, rows: Iterable[tuple[bytes, bytes]]) -> None:
    """Write or add to a RocksDB folder."""
    db = rocksdict.Rdict(str(folder), rocksdict.Options(raw_mode=True))
    for key, value in rows:
        db[key] = value
    db.close()


def row(ledger: int, *, limbo: bool | None = None, fenced: bool = False) -> tuple[bytes, bytes]:
    """A row of `ledgers`."""
    return ledger_db.encode_ledgers_row(BookieLedgerRow(ledger, fenced, master_key(b""), None, limbo))


def make_db(
    root: Path, held: Mapping[int, Sequence[int]] = HELD, *, folders: int = 2, index_dirs: int = 0
) -> BookieDir:
    """Make a Db bookie: ledger L in folder L mod N, each folder with a log 0 and databases of its own."""
    made = make_bookie(root, {}, ledger_dirs=folders, index_dirs=index_dirs)
    for number in range(folders):
        mine = {ledger: entries for ledger, entries in held.items() if ledger % folders == number}
        add_to_db(made, number, 0, mine)
    return made


def add_to_db(made: BookieDir, number: int, log: int, held: Mapping[int, Sequence[int]]) -> None:
    """Write a log of some entries into a ledger folder, and their rows into the databases of the same number."""
    write_log(made, log, [(ledger, entry) for ledger, entries in held.items() for entry in entries], folder=number)
    index = (made.index_dirs or made.ledger_dirs)[number] / "current"
    places = [
        ledger_db.encode_location(ledger, entry, location)
        for ledger in held
        for entry, location in bookie_dir.locations(made, log, ledger, number).items()
    ]
    write_database(index / "locations", places)
    write_database(index / "ledgers", [row(ledger) for ledger in held])


@pytest.mark.parametrize("index_dirs", [0, 2])
def test_each_folder_has_its_own_logs(tmp_path: Path, index_dirs: int) -> None:
    """Log 0 of one folder is not log 0 of the other; index folders of their own belong to them by number."""
    made = make_db(tmp_path, index_dirs=index_dirs)
    seen = look(made, tmp_path)
    assert {ledger: seen.entries("index", ledger) for ledger in HELD} == HELD
    assert seen.bookie["storage"] == "db"
    assert seen.bookie["complete"]
    assert seen.damage == []
    assert seen.row(5)["key_kind"] == "set"


def test_databases_in_the_ledger_folders_although_there_are_index_folders(tmp_path: Path) -> None:
    """Before 4.16 the index folders were passed over: both are looked at."""
    made = make_db(tmp_path / "bookie", index_dirs=2)
    for index, ledgers in zip(made.index_dirs, made.ledger_dirs, strict=True):
        for name in ("ledgers", "locations"):
            shutil.move(index / "current" / name, ledgers / "current" / name)
    seen = look(made, tmp_path)
    assert {ledger: seen.entries("index", ledger) for ledger in HELD} == HELD
    assert seen.bookie["complete"]


def test_a_row_in_another_folder_is_taken_and_reported(tmp_path: Path) -> None:
    """After a change of the number of folders the bookie does not find it; it is there all the same."""
    made = make_db(tmp_path)
    add_to_db(made, 1, 3, {8: [0, 1]})
    seen = look(made, tmp_path)
    assert seen.entries("index", 8) == [0, 1]
    assert seen.reasons() == {("misplaced", 8, False)}
    assert seen.bookie["complete"]


def test_a_rebuild_says_nothing_of_another_folders_ledger(tmp_path: Path) -> None:
    """The offline rebuild enters every ledger everywhere, fenced and without a key."""
    made = make_db(tmp_path)
    for folder in made.ledger_dirs:
        rebuilt = [ledger_db.encode_ledgers_row(BookieLedgerRow(9, True, b"", rebuilt=True))]
        write_database(folder / "current" / "ledgers", rebuilt)
    seen = look(made, tmp_path)
    assert (seen.row(9)["fenced"], seen.row(9)["key_kind"], seen.row(9)["entries"]) == (True, "empty", 0)
    assert seen.damage == []


def test_limbo_makes_the_ledger_incomplete(tmp_path: Path) -> None:
    """The bookie does not know whether it lost entries of it; other ledgers are not touched."""
    made = make_db(tmp_path)
    write_database(made.ledger_dirs[0] / "current" / "ledgers", [row(4, limbo=True)])
    seen = look(made, tmp_path)
    assert (seen.row(4)["limbo"], seen.row(4)["complete"]) == (True, False)
    assert seen.row(5)["complete"]
    assert not seen.bookie["complete"]


def test_a_bookie_that_asks_for_an_integrity_check_is_incomplete(tmp_path: Path) -> None:
    """Its own flag says that entries of any ledger may be missing."""
    made = make_db(tmp_path)
    write_database(made.ledger_dirs[0] / "current" / "ledgers", [ledger_db.encode_storage_flags(StorageFlags(1))])
    seen = look(made, tmp_path)
    assert not seen.bookie["complete"]
    assert not any(one["complete"] for one in seen.copies)


def test_a_location_that_dangles_is_found_out(tmp_path: Path) -> None:
    """Index before data: the batch was written, the log was not flushed."""
    made = make_db(tmp_path)
    write_database(made.ledger_dirs[0] / "current" / "locations", [ledger_db.encode_location(4, 3, (9 << 32) | 1028)])
    seen = look(made, tmp_path)
    assert seen.entries("index", 4) == [0, 1, 2]
    assert seen.reasons() == {("dangling", 4, True)}
    assert seen.damage[0]["file"] == str(made.ledger_dirs[0] / "current" / "locations")


def test_a_missing_database_hides_entries(tmp_path: Path) -> None:
    """`ledgers` alone says that `locations` was there; the logs still list what they hold."""
    made = make_db(tmp_path)
    shutil.rmtree(made.ledger_dirs[0] / "current" / "locations")
    seen = look(made, tmp_path)
    assert ("missing", None, True) in seen.reasons()
    assert seen.entries("log", 4) == [0, 1, 2]
    assert seen.entries("index", 5) == [0, 2, 4]
    assert (seen.bookie["complete"], seen.bookie["gaps_named"]) == (False, False)


def test_rows_that_are_none_are_damage(tmp_path: Path) -> None:
    """A short location, a row that is no ledger's: all others are read."""
    made = make_db(tmp_path)
    first = made.ledger_dirs[0] / "current"
    write_database(first / "locations", [(b"short", b"x")])
    write_database(first / "ledgers", [(bytes(8), b"\xff\xff")])
    seen = look(made, tmp_path)
    assert {ledger: seen.entries("index", ledger) for ledger in HELD} == HELD
    assert seen.reasons() == {("bad_length", None, True), ("bad_value", None, False)}


def test_a_broken_table_file_costs_its_folder_only(tmp_path: Path) -> None:
    """What another folder holds is read; no absence is believed any more."""
    many = {ledger: range(3000) for ledger in range(0, 40, 2)}
    made = make_db(tmp_path, {**many, 5: [0]})
    folder = made.ledger_dirs[0] / "current" / "locations"
    db = rocksdict.Rdict(str(folder), rocksdict.Options(raw_mode=True))
    db.flush()
    db.close()
    (table,) = folder.glob("*.sst")
    raw = bytearray(table.read_bytes())
    raw[len(raw) // 2 : len(raw) // 2 + 64] = bytes(64)
    table.write_bytes(raw)
    seen = look(made, tmp_path)
    assert ("unreadable", None, True) in seen.reasons()
    assert seen.entries("index", 5) == [0]
    assert not seen.bookie["complete"]


def test_both_kinds_of_index_are_read(tmp_path: Path) -> None:
    """A bookie whose storage was changed: each ledger's entries of both."""
    made = make_db(tmp_path, folders=1)
    write_log(made, 7, [(4, 5), (6, 0)])
    for ledger in (4, 6):
        bookie_dir.write_index(made, ledger, bookie_dir.locations(made, 7, ledger))
    seen = look(made, tmp_path)
    assert (seen.entries("index", 4), seen.entries("index", 6)) == ([0, 1, 2, 5], [0])
    assert seen.bookie["storage"] == "mixed"


def test_rows_with_the_same_value_are_of_their_own_ledgers(tmp_path: Path) -> None:
    """What one ledger's value says is taken for others that have the same; fenced ones and reserved keys are apart."""
    held = {ledger: [0] for ledger in range(1, 7)}
    made = make_db(tmp_path, held, folders=1)
    current = made.ledger_dirs[0] / "current"
    _, plain = row(1)
    reserved = (-7).to_bytes(8, "big", signed=True)
    write_database(
        current / "ledgers", [row(3, fenced=True), row(5, limbo=True), row(6, fenced=True), (reserved, plain)]
    )
    seen = look(made, tmp_path)
    assert {ledger for ledger in held if seen.row(ledger)["fenced"]} == {3, 6}
    assert {ledger for ledger in held if seen.row(ledger)["limbo"]} == {5}
    assert {seen.row(ledger)["key_kind"] for ledger in held} == {"set"}
    assert seen.damage == []
    assert seen.bookie["ledgers"] == len(held)
