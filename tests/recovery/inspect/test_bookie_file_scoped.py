"""Files with ledgers of scopes looked at one by one: made by writers that know nothing of the reader."""

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import pytest

from recovery.inspect.bookie_file import look
from recovery.model.ids import LedgerId
from tests.recovery.collect.test_index_database import write_database
from tests.simulation.bookie_dir_scoped import Held, Storage, make_scoped_bookie

STORAGES: Sequence[Storage] = get_args(Storage)
LARGEST = (1 << 64) - 1
HELD = [
    Held(LedgerId(0, 5), range(3)),
    Held(LedgerId(7, 5), range(3), ahead=(3,), lac=2),
    Held(LedgerId(7, -1), (0,), fenced_ahead=True),
    Held(LedgerId(7, 6), (0,)),
]
SCOPED = f"ledgers of scope 7: 5 to 6, {LARGEST}"


@pytest.mark.parametrize("storage", STORAGES)
def test_logs_and_journals_name_scopes(tmp_path: Path, storage: Storage) -> None:
    """Ledgers of each scope apart, as unsigned; nothing in the files is damage or odd."""
    made = make_scoped_bookie(tmp_path, HELD, storage, put=write_database)
    for path in (made.log(), made.journal(1)):
        found = look(path)
        assert (found.damaged, found.notes) == (0, ())
        assert found.ranges[-2:] == ("ledgers 5", SCOPED)
        assert found.counts["ledgers"] == len(HELD)
    assert look(made.log()).header["version"] == "2"
    assert look(made.journal(1)).last.startswith("master key of ledger 7:6, ")


def test_an_index_file_of_a_scope_names_its_ledger(tmp_path: Path) -> None:
    """From its four folders; it stands where a bookie looks for it."""
    made = make_scoped_bookie(tmp_path, HELD)
    found = look(made.ledger_dirs[0] / "current/00000000/00000007/ffffffff/ffffffff.idx")
    assert (found.header["ledger"], found.notes, found.damaged) == (f"7:{LARGEST}", (), 0)
    with_lac = look(made.ledger_dirs[0] / "current/00000000/00000007/00000000/00000005.idx")
    assert with_lac.header["explicit LAC"] == "2, CRC32C, digest agrees"


@pytest.mark.parametrize(
    ("name", "ledger"),
    [
        ("00000005.idx", "5"),
        ("ABCDEF.idx", "11259375"),
        ("zz.idx", None),
        ("-1.idx", None),
        ("1_0.idx", None),
        ("0x10.idx", None),
        ("x.idx.rloc", None),
        ("00000000000000070000000000000005.idx", None),
    ],
)
def test_an_index_file_under_any_name_is_read(tmp_path: Path, name: str, ledger: str | None) -> None:
    """Only a number is taken for a ledger, of scope 0; what the file holds is told whatever its name is."""
    made = make_scoped_bookie(tmp_path / "bookie", HELD)
    file = tmp_path / name
    file.write_bytes((made.ledger_dirs[0] / "current/00000000/00000007/00000000/00000005.idx").read_bytes())
    found = look(file)
    assert (found.header.get("ledger"), found.damaged) == (ledger, 0)
    assert bool(found.notes) == (ledger is not None)
    assert found.header["explicit LAC"] == "2, CRC32C, digest agrees"


def test_databases_of_scopes_are_told_by_their_keys(tmp_path: Path) -> None:
    """Rows, ledgers and the logs that they name."""
    made = make_scoped_bookie(tmp_path, HELD, "db", put=write_database)
    for name in ("ledgers-scoped", "locations-scoped"):
        found = look(made.ledger_dirs[0] / "current" / name)
        assert found.ranges[0] == SCOPED
        assert (found.damaged, found.counts["ledgers"]) == (0, 3)
        assert found.first.startswith("ledger 7:5, ")
