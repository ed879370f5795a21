"""Collecting from bookies that hold ledgers of scopes, made by writers that know nothing of the codecs."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from recovery.collect.options import CollectOptions
from recovery.collect.pipeline import collect
from recovery.model.ids import LedgerId, to_signed
from recovery.model.metadata import Digest
from tests.recovery.collect.test_index_database import write_database
from tests.simulation.bookie_dir import BookieDir
from tests.simulation.bookie_dir_scoped import Held, Storage, make_scoped_bookie
from tests.support.collecting import Row, Seen, look

pytestmark = pytest.mark.long

STORAGES: Sequence[Storage] = get_args(Storage)
LOW = 12_345
FULL = LedgerId(-1, -1)
"""All bits set: both halves are negative to Java, and the largest there are."""
PLAIN = [Held(LedgerId(0, LOW), range(5)), Held(LedgerId(0, 7), (0, 1, 3), fenced=True)]
MIXED = [
    *PLAIN,
    Held(LedgerId(7, LOW), (0, 2, 4, 6), ahead=(8, 10), digest=Digest.CRC32, lac=3, lac_ahead=6),
    Held(LedgerId(7, LOW + 1), (), ahead=(0, 1)),
    Held(LedgerId(8, LOW), (0, 1), digest=Digest.HMAC, password=b"secret", fenced=True),
    Held(LedgerId(1 << 40, 5), range(3), logged=(3, 4), digest=Digest.DUMMY),
    Held(FULL, range(300), fenced_ahead=True),
    Held(LedgerId(-(1 << 63), 0), (1,)),
]


def made(root: Path, held: Sequence[Held], storage: Storage, folders: int = 2, *, rotated: bool = False) -> BookieDir:
    """Make a bookie."""
    return make_scoped_bookie(root / "bookie", held, storage, put=write_database, folders=folders, rotated=rotated)


def rows_of(seen: Seen, ledger: LedgerId, source: str) -> list[Row]:
    """The rows of a ledger and a source."""
    ids = (ledger.scope, ledger.ledger, source)
    return [row for row in seen.copies if (row["scope"], row["ledger"], row["source"]) == ids]


def entries(rows: Iterable[Row]) -> list[int]:
    """The entries that rows list."""
    return [
        entry
        for row in rows
        for group in row["groups"]
        for start in range(group["first"], group["last"] + 1, group["period"] or 1)
        for entry in range(start, start + group["size"])
    ]


def assert_true(seen: Seen, held: Sequence[Held], *, more: int = 0) -> None:
    """See that an inventory says what was written, and nothing else."""
    assert {(row["scope"], row["ledger"]) for row in seen.copies} == {(o.id.scope, o.id.ledger) for o in held}
    for one in held:
        (index,) = rows_of(seen, one.id, "index")
        assert entries([index]) == list(one.indexed)
        assert entries(rows_of(seen, one.id, "journal")) == list(one.ahead)
        assert entries(rows_of(seen, one.id, "log")) == list(one.logged)
        assert index["bucket"] == one.id.bucket
        assert index["fenced"] is (one.fenced or one.fenced_ahead)
        assert index["key"] == hashlib.sha256(one.key).digest()
        lacs = [lac for lac in (one.lac, one.lac_ahead) if lac is not None]
        assert index["explicit_lac"] == max(lacs, default=None)
        heads = {head["entry"]: head for head in index["headers"]}
        if one.indexed:
            head = heads[one.indexed[-1]]
            assert (head["lac"], head["length"]) == (one.indexed[-1] - 1, one.length(one.indexed[-1]))
            assert head["size"] == len(one.record(one.indexed[-1]))
            assert head["digest"] == (None if one.digest is Digest.DUMMY else str(one.digest))
    assert seen.bookie["entries"] == sum(len(one.indexed) + len(one.ahead) for one in held)
    assert seen.bookie["ledgers"] == len(held)
    assert len(seen.damage) == more


@pytest.mark.parametrize("folders", [1, 3])
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize(("deep", "rotated"), [(False, False), (True, True)])
def test_a_mixed_bookie_is_what_was_written(
    tmp_path: Path, storage: Storage, folders: int, *, deep: bool, rotated: bool
) -> None:
    """Entries, fences, keys, explicit LACs and headers of every ledger; four ledgers share a lower half."""
    bookie = made(tmp_path, MIXED, storage, folders, rotated=rotated)
    seen = look(bookie, tmp_path, passwords=(b"secret",), deep=deep)
    # What no index names and no journal brings back is said with --deep, of ledgers that have an index.
    assert_true(seen, MIXED, more=1 if deep else 0)
    assert seen.bookie["complete"]
    assert seen.bookie["storage"] == storage
    assert all(row["complete"] for row in seen.copies if row["source"] != "log")
    keys = [(row["bucket"], row["scope"], row["ledger"]) for row in seen.copies]
    assert keys == sorted(keys)


def test_each_scope_has_its_largest_id(tmp_path: Path) -> None:
    """They are compared as unsigned; scope 0 stands first."""
    seen = look(made(tmp_path, MIXED, "interleaved"), tmp_path)
    largest = [(row["scope"], row["ledger"]) for row in seen.bookie["max_ids"]]
    assert largest == [(0, LOW), (7, LOW + 1), (8, LOW), (1 << 40, 5), (-(1 << 63), 0), (-1, -1)]


@pytest.mark.parametrize("storage", STORAGES)
def test_scopes_beside_change_nothing_of_scope_0(tmp_path: Path, storage: Storage) -> None:
    """The rows of scope 0 are equal whether ledgers of scopes are on the same bookie or not, master keys and all."""
    alone, mixed = (
        look(made(tmp_path / name, held, storage, rotated=True), tmp_path / name).tables[0].drop_columns("incarnation")
        for name, held in (("alone", PLAIN), ("mixed", MIXED))
    )
    assert mixed.filter(pc.equal(mixed["scope"], 0)).equals(alone)


def test_a_collision_is_told_apart_in_one_log(tmp_path: Path) -> None:
    """Entries of ledgers whose lower halves are equal never count for each other, index or not."""
    held = [Held(LedgerId(scope, LOW), (), logged=(scope, 40)) for scope in (0, 7, 8)]
    seen = look(made(tmp_path, held, "interleaved", 1), tmp_path)
    assert [entries(rows_of(seen, one.id, "log")) for one in held] == [[0, 40], [7, 40], [8, 40]]


def test_an_index_that_names_the_wrong_scope_dangles(tmp_path: Path) -> None:
    """A slot of (7, 12345) that leads to an entry of (0, 12345) is no entry of it, and the damage names the ledger."""
    plain, other = Held(LedgerId(0, LOW), range(3)), Held(LedgerId(7, LOW), range(3))
    bookie = made(tmp_path, [plain, other], "interleaved", 1)
    (scoped,) = (bookie.ledger_dirs[0] / "current").glob("????????/????????/????????/*.idx")
    scoped.write_bytes(bookie.index(LOW).read_bytes())
    seen = look(bookie, tmp_path)
    (damage,) = seen.damage
    assert (damage["reason"], damage["scope"], damage["ledger"]) == ("dangling", 7, LOW)
    assert damage["file"] == str(scoped)
    assert entries(rows_of(seen, other.id, "index")) == []
    assert entries(rows_of(seen, plain.id, "index")) == [0, 1, 2]


def test_what_cannot_be_read_is_of_its_scope(tmp_path: Path) -> None:
    """A broken index file costs the ledger of its path, which is in the inventory nevertheless."""
    bookie = made(tmp_path, MIXED, "interleaved", 1)
    path = bookie.ledger_dirs[0] / "current" / "00000000/00000007/00000000/00003039.idx"
    path.write_bytes(b"XXXX" + path.read_bytes()[4:])
    seen = look(bookie, tmp_path)
    assert {(row["reason"], row["scope"], row["ledger"]) for row in seen.damage} == {("bad_magic", 7, LOW)}
    (row,) = rows_of(seen, LedgerId(7, LOW), "index")
    assert (row["complete"], entries([row])) == (False, [])
    assert entries(rows_of(seen, LedgerId(7, LOW), "log")) == [0, 2, 4, 6]
    (other,) = rows_of(seen, LedgerId(0, LOW), "index")
    assert other["complete"]


def test_strays_in_folders_of_scopes_are_told(tmp_path: Path) -> None:
    """Index files that no scope can have there hide what they hold; other files do not."""
    bookie = made(tmp_path, MIXED, "interleaved", 1)
    top = bookie.ledger_dirs[0] / "current"
    inside = top / "00000000/00000007/00000000"
    (inside / "note.txt").touch()
    (inside / "5.idx").touch()
    zero = top / "00000000/00000000/00000000"
    zero.mkdir(parents=True)
    (zero / "00000005.idx").touch()
    seen = look(bookie, tmp_path)
    told = {(Path(row["file"]).name, row["reason"], row["hides_entries"]) for row in seen.damage}
    assert told == {
        ("note.txt", "unknown_file", False),
        ("5.idx", "misplaced", True),
        ("00000005.idx", "misplaced", True),
    }


def test_several_processes_find_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers that other processes gave ledgers are theirs alone, also where ledgers are taken over."""
    monkeypatch.setattr("recovery.collect.workers._WORTH_S", -1.0)
    held = [Held(LedgerId(scope << 32, LOW), range(3)) for scope in range(1, 40)]
    bookie = made(tmp_path, [*MIXED, *held], "interleaved", 1)
    (bookie.ledger_dirs[0] / "current/00000001/00000000/00000000/00003039.idx").write_bytes(b"")
    one, several = look(bookie, tmp_path / "1"), look(bookie, tmp_path / "2", processes=2)
    for ours, theirs in zip(one.tables[:1], several.tables[:1], strict=True):
        assert ours.equals(theirs)
    assert [row | {"detail": ""} for row in one.damage] == [row | {"detail": ""} for row in several.damage]
    again = CollectOptions(bookie.ledger_dirs, bookie.index_dirs, bookie.journal_dirs, processes=2, keep=True)
    summaries = [
        collect(options, tmp_path / out, now=lambda: datetime.now(UTC) + timedelta(hours=1), progress=lambda _: None)
        for options, out in ((again, "kept"), (replace(again, since=tmp_path / "kept"), "since"))
    ]
    taken_over = summaries[1].reused
    assert taken_over is not None
    assert taken_over.ledgers == summaries[0].ledgers - 1
    for out in ("kept", "since"):
        ours, theirs = Seen(tmp_path / out), one
        assert ours.tables[0].equals(theirs.tables[0])
        assert [row | {"detail": ""} for row in ours.damage] == [row | {"detail": ""} for row in theirs.damage]


def test_small_steps_find_what_large_ones_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that went through the disk, share by share, are the same, in the order of their buckets."""
    bookie = made(tmp_path, MIXED, "interleaved")
    whole = look(bookie, tmp_path / "whole").tables[0]
    monkeypatch.setattr("recovery.collect.merge._FEW", 0)
    monkeypatch.setattr("recovery.collect.rows.spool._HELD_BYTES", 1)
    assert look(bookie, tmp_path / "parts").tables[0].equals(whole)


HEX = LedgerId(0xABCDEF, 0xABCDEF)
ITS_PATH = "00000000/00abcdef/00000000/00abcdef.idx"


@pytest.mark.parametrize(
    ("moved", "told"),
    [
        ("00000000/00abcdef/00abcdef.idx", ""),
        ("00000000/00abcdef.idx", ""),
        ("00abcdef.idx", ""),
        ("00000000/00abcdef/00000000/00000000/00abcdef.idx", "00000000/00abcdef/00000000/00000000"),
        ("00000000/00abcdef/00000000/00ABCDEF.idx", ""),
        ("00000000/00abcdef/0000000A/00abcdef.idx", "00000000/00abcdef/0000000A"),
        ("00000000/00ABCDEF/00000000/00abcdef.idx", "00000000/00ABCDEF"),
        ("0000000A/00abcdef/00000000/00abcdef.idx", "0000000A"),
        ("00000000/00abcdef/00000000/abcdef.idx", ""),
        ("0/abcdef/0/abcdef.idx", "0/abcdef"),
        ("00000000/00000000/00000000/00003039.idx", ""),
        ("cd/ef/0000000000abcdef0000000000abcdef.idx", ""),
    ],
)
def test_an_index_file_where_nothing_looks_for_it_is_told(tmp_path: Path, moved: str, told: str) -> None:
    """Wrong depth, upper case, zeros that lack, a path of scope 0: absence of what no list names is not believed."""
    bookie = made(tmp_path, [*PLAIN, Held(HEX, range(3))], "interleaved", 1)
    current = bookie.ledger_dirs[0] / "current"
    (current / moved).parent.mkdir(parents=True, exist_ok=True)
    (current / ITS_PATH).rename(current / moved)
    seen = look(bookie, tmp_path)
    (damage,) = seen.damage
    assert (damage["file"], damage["reason"], damage["ledger"]) == (str(current / (told or moved)), "misplaced", None)
    assert damage["hides_entries"]
    assert not seen.bookie["complete"]
    assert entries(rows_of(seen, HEX, "log")) == [0, 1, 2]
    assert all(row["complete"] for row in seen.copies if row["source"] == "index")


def test_a_number_that_is_a_path_of_scope_0_is_taken_for_one(tmp_path: Path) -> None:
    """Eight digits in a folder of scope 0 may be a ledger of it with leading zeros: that one is not complete."""
    bookie = made(tmp_path, [*PLAIN, Held(HEX, range(3))], "interleaved", 1)
    current = bookie.ledger_dirs[0] / "current"
    (current / "cd/ef").mkdir(parents=True)
    (current / ITS_PATH).rename(current / "cd/ef/00abcdef.idx")
    seen = look(bookie, tmp_path)
    (damage,) = seen.damage
    assert (damage["reason"], damage["scope"], damage["ledger"]) == ("misplaced", 0, 0xABCDEF)
    assert not seen.bookie["complete"]


@pytest.mark.parametrize("folders", [1, 3])
def test_of_several_index_files_of_a_ledger_the_first_is_taken(tmp_path: Path, folders: int) -> None:
    """As the bookie does; a copy that was being made counts where nothing else is."""
    bookie = made(tmp_path, [*PLAIN, Held(HEX, range(3))], "interleaved", folders)
    currents = [folder / "current" for folder in bookie.ledger_dirs]
    (home,) = (current for current in currents if (current / ITS_PATH).exists())
    path = home / ITS_PATH
    path.rename(f"{path}.rloc")
    seen = look(bookie, tmp_path / "copy")
    assert (entries(rows_of(seen, HEX, "index")), seen.damage) == ([0, 1, 2], [])
    raw = Path(f"{path}.rloc").read_bytes()
    for current in currents:
        (current / ITS_PATH).parent.mkdir(parents=True, exist_ok=True)
        (current / ITS_PATH).write_bytes(raw)
    seen = look(bookie, tmp_path / "double")
    doubles = sorted(str(current / ITS_PATH) for current in currents[1:])
    assert sorted((row["file"], row["reason"], row["scope"]) for row in seen.damage) == [
        (file, "conflict", HEX.scope) for file in doubles
    ]
    assert entries(rows_of(seen, HEX, "index")) == [0, 1, 2]


def mixed(scope: int) -> int:
    """What the bucket of an id mixes its ledger with."""
    value = scope % (1 << 64) + 0x9E3779B97F4A7C15
    value = (value ^ value % (1 << 64) >> 30) * 0xBF58476D1CE4E5B9 % (1 << 64)
    value = (value ^ value >> 27) * 0x94D049BB133111EB % (1 << 64)
    return to_signed(value ^ value >> 31)


LEAST, MOST = -(1 << 63), (1 << 63) - 1
HOSTILE = [
    *(LedgerId(scope, ledger) for scope in (1, -1, LEAST, MOST, 1 << 32) for ledger in (0, 1, -1, LEAST, MOST, LOW)),
    *(LedgerId(0, ledger) for ledger in (0, 1, LOW, MOST)),
    *(LedgerId(scope, 5 ^ mixed(7) ^ mixed(scope)) for scope in (7, 8, -5)),
]
"""Halves that are alike, negative, of all bits or the largest; the last three fall together under the 64-bit mix."""


@pytest.mark.parametrize("storage", STORAGES)
def test_hostile_ids_are_kept_apart(tmp_path: Path, storage: Storage) -> None:
    """Each has its own entries, in one collection, a deep one and one that takes over what another kept."""
    held = [
        Held(
            one,
            range(n % 4 + 1) if n % 3 else (),
            ahead=(10, 11) if n % 2 else (),
            logged=(20,) if n % 5 == 0 else (),
            digest=list(Digest)[n % 4],
            password=b"secret" if n % 4 == 1 else b"",
            fenced=n % 7 == 0,
            lac=3 if n % 6 == 0 else None,
        )
        for n, one in enumerate(HOSTILE)
    ]
    bookie = made(tmp_path, held, storage, 3)
    kept = tmp_path / "kept"
    first = look(bookie, kept, passwords=(b"secret",), keep=True)
    deep = look(bookie, tmp_path / "deep", passwords=(b"secret",), deep=True)
    again = look(bookie, tmp_path / "again", passwords=(b"secret",), since=kept / "inventory")
    assert_true(first, held)
    assert {row["reason"] for row in deep.damage} == {"unindexed"}
    assert first.tables[0].equals(deep.tables[0])
    assert first.tables[0].equals(again.tables[0])
    assert len({one.bucket for one in HOSTILE[-3:]}) == 1


@pytest.mark.parametrize("storage", STORAGES)
def test_a_second_collection_finds_the_same(tmp_path: Path, storage: Storage) -> None:
    """What is taken over from the first has its scopes; what changed since is read."""
    bookie = made(tmp_path, MIXED, storage)
    first = look(bookie, tmp_path / "1", keep=True)
    again = look(bookie, tmp_path / "2", since=tmp_path / "1" / "inventory", keep=True)
    assert again.tables[0].equals(first.tables[0])
    assert again.bookie["max_ids"] == first.bookie["max_ids"]
    if storage == "interleaved":
        (path,) = bookie.ledger_dirs[1].glob("current/00000000/00000007/00000000/00003039.idx")
        path.write_bytes(path.read_bytes()[: 1024 + 8])
    else:
        write_database(bookie.ledger_dirs[1] / "current/locations-scoped", [(bytes(7) + b"\7" + bytes(16), bytes(8))])
    whole, parts = look(bookie, tmp_path / "3"), look(bookie, tmp_path / "4", since=tmp_path / "2" / "inventory")
    assert whole.tables[0].equals(parts.tables[0])
    assert whole.tables[0].equals(first.tables[0]) is (storage == "db")


@pytest.mark.parametrize("name", ["ledgers-scoped", "locations-scoped"])
def test_one_database_of_scopes_without_the_other_hides_everything(tmp_path: Path, name: str) -> None:
    """A Db bookie that has one of them had both."""
    bookie = made(tmp_path, MIXED, "db", 1)
    (bookie.ledger_dirs[0] / "current" / name).rename(tmp_path / name)
    seen = look(bookie, tmp_path)
    assert {(Path(row["file"]).name, row["reason"], row["hides_entries"]) for row in seen.damage} == {
        (name, "missing", True)
    }
    assert not seen.bookie["complete"]


def test_databases_of_scopes_change_no_incarnation(tmp_path: Path) -> None:
    """They are made with the first ledger of a scope: the bookie's life goes on."""
    bookie = made(tmp_path, PLAIN, "db", 1)
    before = look(bookie, tmp_path / "before").bookie["incarnation"]
    write_database(bookie.ledger_dirs[0] / "current" / "ledgers-scoped", [])
    write_database(bookie.ledger_dirs[0] / "current" / "locations-scoped", [])
    assert look(bookie, tmp_path / "after").bookie["incarnation"] == before


def test_rows_in_a_folder_that_is_not_theirs_are_told(tmp_path: Path) -> None:
    """The folder is chosen by the lower half, as of scope 0, the remainder of a signed number not negative."""
    held = [Held(LedgerId(7, ledger), (0,)) for ledger in (-3, -2, -1, 0, 1)]
    bookie = made(tmp_path, held, "db", 3)
    assert_true(look(bookie, tmp_path / "right"), held)
    first, second = (folder / "current" / "locations-scoped" for folder in bookie.ledger_dirs[:2])
    first.rename(tmp_path / "aside")
    second.rename(first)
    (tmp_path / "aside").rename(second)
    told = [row for row in look(bookie, tmp_path / "wrong").damage if row["reason"] == "misplaced"]
    assert {(row["scope"], row["ledger"]) for row in told} == {(7, -3), (7, 0), (7, -2), (7, 1)}


def test_an_explicit_lac_of_another_scope_is_refused(tmp_path: Path) -> None:
    """The record names scope and ledger: that of (7, 5) says nothing of (8, 5)."""
    theirs = Held(LedgerId(7, 5)).lac_record(9)

    class Odd(Held):
        def lac_record(self, lac: int) -> bytes:
            assert lac == self.lac
            return theirs

    odd = Odd(LedgerId(8, 5), (0,), lac=9)
    seen = look(made(tmp_path, [odd], "interleaved", 1), tmp_path)
    (damage,) = seen.damage
    assert (damage["reason"], damage["scope"], damage["ledger"], damage["detail"]) == (
        "bad_value",
        8,
        5,
        "of ledger 7:5",
    )
    assert rows_of(seen, odd.id, "index")[0]["explicit_lac"] is None


def test_a_log_of_version_1_holds_no_scopes(tmp_path: Path) -> None:
    """Records of a scope in such a log are damage; the index that names them is confirmed where it points."""
    held = [replace(one, logged=()) for one in MIXED]
    bookie = made(tmp_path, held, "interleaved", 1)
    log = bookie.log()
    log.write_bytes(log.read_bytes()[:4] + b"\0\0\0\1" + bytes(12) + log.read_bytes()[20:])
    seen = look(bookie, tmp_path)
    assert {row["reason"] for row in seen.damage} == {"bad_value"}
    for one in held:
        assert entries(rows_of(seen, one.id, "index")) == list(one.indexed)
        assert rows_of(seen, one.id, "log") == []


def test_arrow_sees_no_other_types(tmp_path: Path) -> None:
    """Columns are the same bits in the same types as of scope 0."""
    copies = look(made(tmp_path, MIXED, "interleaved"), tmp_path).tables[0]
    assert copies.schema.field("scope").type == pa.int64()
    assert copies.schema.field("ledger").type == pa.int64()
