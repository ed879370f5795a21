"""What inventories say of wanted ledgers: the last of each bookie, what it holds, and what it did not say."""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reconcile.deletes.tombstones import Sighting
from reconcile.deletes.verification.evidence import Holdings, gather_holdings, list_sightings, read_looks, to_ms
from reconcile.deletes.verification.wanted import WantedLedgers
from recovery.dataset import Dataset, DatasetWriter, open_dataset
from recovery.model import tables
from recovery.model.ids import LedgerId
from tests.support.inventories import fill_row

BEGAN, ENDED = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 1, tzinfo=UTC)
NAME = "bk1:3181"
ONE, SCOPED = LedgerId(0, 1), LedgerId(7, 1)

Row = Mapping[str, Any]


def write(
    folder: Path, *, bookie: Row | None = None, copies: Sequence[Row] = (), damage: Sequence[Row] = ()
) -> Dataset:
    """Write an inventory of one bookie."""
    about = {"bookie": NAME, "incarnation": 5, "mode": "disks", "complete": True, "started": BEGAN, "ended": ENDED}
    kept = [{"bookie": NAME, "source": "index", "complete": True, "key_kind": "absent", **row} for row in copies]
    for row in kept:
        row["bucket"] = LedgerId(row.get("scope", 0), row["ledger"]).bucket
    tables_of = (
        ("bookies", tables.BOOKIES, [{**about, **(bookie or {})}]),
        ("copies", tables.COPIES, sorted(kept, key=lambda row: (row["bucket"], row.get("scope", 0), row["ledger"]))),
        ("damage", tables.DAMAGE, [{"bookie": NAME, **row} for row in damage]),
    )
    with DatasetWriter(folder, "inventory", binding={}) as writer:
        for name, schema, rows in tables_of:
            writer.append(name, pa.Table.from_pylist([fill_row(schema, row) for row in rows], schema=schema))
        writer.close(coverage={})
    return open_dataset(folder, "inventory")


def gather(folder: Path, **given: Any) -> Holdings:
    """Return what one inventory says of both ledgers."""
    return gather_holdings([write(folder, **given)], WantedLedgers([ONE, SCOPED]))


def test_the_last_inventory_of_each_bookie_counts(tmp_path: Path) -> None:
    """In whatever order they are named; bookies stand in the order of their names."""
    later = ENDED + timedelta(milliseconds=1)
    old = write(tmp_path / "old", copies=[{"ledger": 1}])
    new = write(tmp_path / "new", bookie={"ended": later})
    other = write(tmp_path / "other", bookie={"bookie": "bk0:3181"})
    for given in ([old, new, other], [other, new, old]):
        assert [(look.bookie, look.source) for look, _ in read_looks(given)] == [
            ("bk0:3181", other.digest),
            (NAME, new.digest),
        ]
        assert not gather_holdings(given, WantedLedgers([ONE])).holds.any()


@pytest.mark.parametrize(
    ("files", "formatted"),
    [
        ([], None),
        ([(None, BEGAN)], BEGAN),
        ([(BEGAN, ENDED)], BEGAN),
        ([(BEGAN, BEGAN), (None, ENDED)], ENDED),
    ],
)
def test_a_bookie_is_as_young_as_its_youngest_folder(
    files: Sequence[tuple[datetime | None, datetime]], formatted: datetime | None, tmp_path: Path
) -> None:
    """By when the file was made, where the file system keeps that, else by when it was changed."""
    rows = [{"path": "v", "inode": 1, "born": born, "mtime": changed} for born, changed in files]
    [(look, _)] = read_looks([write(tmp_path, bookie={"version_files": rows, "cookie": b"c"})])
    assert look.formatted_ms == (None if formatted is None else to_ms(formatted))
    assert (look.started_ms, look.ended_ms, look.cookie) == (to_ms(BEGAN), to_ms(ENDED), b"c")
    assert (look.incarnation, look.is_wire, look.complete) == (5, False, True)


def test_over_the_wire_a_registration_is_a_life(tmp_path: Path) -> None:
    """The same evidence is the same life, in whatever order it stands; after it registers anew it is another one."""
    first = [{"kind": "cookie", "value": "1"}, {"kind": "session", "value": "2"}]
    lives = []
    for number, evidence in enumerate((first, first[::-1], [first[0], {"kind": "session", "value": "3"}])):
        bookie = {"mode": "wire", "incarnation_evidence": evidence}
        [(look, _)] = read_looks([write(tmp_path / str(number), bookie=bookie)])
        assert look.is_wire
        lives.append(look.incarnation)
    assert lives[0] == lives[1] != lives[2]
    # As it is stored in tombstones: the first eight bytes of a SHA-256.
    assert lives[0] == int.from_bytes(hashlib.sha256(b"cookie=1\nsession=2").digest()[:8], signed=True)


def test_what_a_bookie_holds(tmp_path: Path) -> None:
    """All rows of a ledger together: the last entry, the largest LAC of entries or an explicit one."""
    headers = [{"entry": n, "lac": lac, "length": 1, "size": 1, "digest": "CRC32C"} for n, lac in ((3, 2), (4, 9))]
    copies = [
        {
            "ledger": 1,
            "last": 4,
            "entries": 5,
            "headers": headers,
        },
        {"ledger": 1, "last": 2, "explicit_lac": 3, "source": "journal"},
        {"ledger": 1, "entries": 1, "source": "journal"},
        {"ledger": 1, "scope": 7, "explicit_lac": 0, "last": 0},
    ]
    held = gather(tmp_path, copies=copies)
    assert held.holds.tolist() == held.answered.tolist() == [[True], [True]]
    assert (held.last.tolist(), held.lac.tolist()) == ([[4], [0]], [[9], [0]])
    assert held.entries.tolist() == [[6], [0]]
    assert held.number_bookies() == {NAME: 0}


def test_what_is_not_served_is_not_held(tmp_path: Path) -> None:
    """Entries in logs that no index has, and rows of another bookie of the same inventory."""
    held = gather(tmp_path, copies=[{"ledger": 1, "source": "log"}, {"ledger": 1, "bookie": "bk2:3181"}])
    assert not held.holds.any()
    assert held.answered.all()
    assert (held.last.tolist(), held.lac.tolist()) == ([[-1], [-1]], [[-1], [-1]])


def test_one_row_that_is_not_complete_is_enough(tmp_path: Path) -> None:
    """Of the ledger that it is of; a complete one before or after it does not mend it."""
    for number, states in enumerate(([True, False], [False, True])):
        copies = [{"ledger": 1, "complete": state} for state in states]
        held = gather(tmp_path / str(number), copies=[*copies, {"ledger": 1, "scope": 7}])
        assert held.answered.tolist() == [[False], [True]]


def test_what_is_not_there_is_believed_of_a_complete_inventory_only(tmp_path: Path) -> None:
    """What is there and complete is believed of any."""
    held = gather(tmp_path, bookie={"complete": False}, copies=[{"ledger": 1}])
    assert held.answered.tolist() == [[True], [False]]


@pytest.mark.parametrize(
    ("damage", "answered"),
    [
        ({"ledger": 1, "scope": 0, "hides_entries": True}, [False, True]),
        ({"ledger": 1, "hides_entries": True}, [False, True]),
        ({"ledger": 1, "scope": 7, "hides_entries": True}, [True, False]),
        ({"ledger": 2, "hides_entries": True}, [True, True]),
        ({"ledger": 1, "hides_entries": False}, [True, True]),
        ({"ledger": 1, "hides_entries": True, "bookie": "bk2:3181"}, [True, True]),
        ({"hides_entries": True}, [True, True]),
    ],
)
def test_damage_hides_the_ledger_that_it_names(damage: Row, answered: list[bool], tmp_path: Path) -> None:
    """What is damaged on disks without a name makes the inventory incomplete, and that is said there."""
    assert gather(tmp_path, damage=[damage]).answered[:, 0].tolist() == answered


def test_a_bookie_that_is_asked_over_the_wire(tmp_path: Path) -> None:
    """Complete or not, it answered what it was asked: ledgers of scope 0; what failed without a name hides all."""
    wire = {"mode": "wire", "complete": False}
    assert gather(tmp_path / "1", bookie=wire).answered.tolist() == [[True], [False]]
    nameless = [{"hides_entries": True}]
    assert gather(tmp_path / "2", bookie=wire, damage=nameless).answered.tolist() == [[False], [False]]
    some = [{"ledger": 2, "scope": 0, "hides_entries": True}, *nameless]
    assert gather(tmp_path / "4", bookie=wire, damage=some).answered.tolist() == [[False], [False]]
    assert gather(tmp_path / "3", bookie=wire, damage=[{"hides_entries": False}]).answered.tolist() == [[True], [False]]


def test_sightings_are_of_what_was_surely_seen(tmp_path: Path) -> None:
    """Who holds it held it until the look ended; who has nothing had nothing when it began; the rest says nothing."""
    files = [{"path": "v", "inode": 1, "born": None, "mtime": BEGAN}]
    inventories = [
        write(tmp_path / "1", bookie={"version_files": files}, copies=[{"ledger": 1, "complete": False}]),
        write(tmp_path / "2", bookie={"bookie": "bk2:3181"}),
        write(tmp_path / "3", bookie={"bookie": "bk3:3181", "complete": False}),
    ]
    found = list_sightings(gather_holdings(inventories, WantedLedgers([ONE])), 0)
    assert found == [
        Sighting(NAME, 5, True, to_ms(ENDED), f"inventory {inventories[0].digest[:16]}", to_ms(BEGAN), 0),
        Sighting("bk2:3181", 5, False, to_ms(BEGAN), f"inventory {inventories[1].digest[:16]}", None),
    ]


def test_without_inventories_nothing_is_known() -> None:
    """No bookie holds anything, and none answered."""
    held = gather_holdings([], WantedLedgers([ONE, SCOPED]))
    assert (held.looks, held.holds.shape, list_sightings(held, 0)) == ([], (2, 0), [])
