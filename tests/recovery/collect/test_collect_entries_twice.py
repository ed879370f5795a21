"""An entry that journals have twice: of one ledger, or of two that had its id and key."""

from pathlib import Path
from typing import Any, Final

import pytest

from recovery.codecs import entry, journal
from recovery.codecs.entry import EntryHeader
from recovery.infer.refusal import Refusal
from recovery.model.metadata import Digest
from tests.recovery.infer.test_reconstruct import recover
from tests.simulation.bookie_dir import BOOKIE, BookieDir, make_bookie, write_journal, write_mark
from tests.support.collecting import look

LEDGER: Final = 7
JOURNAL: Final = 0x100


def written(number: int, size: int, *, lac: int | None = None) -> bytes:
    """An entry of a ledger whose entries are all of one size."""
    header = EntryHeader(LEDGER, number, number - 1 if lac is None else lac, size * (number + 1))
    return entry.encode(header, bytes(size), Digest.CRC32C)


def killed(root: Path, journals: list[list[bytes]]) -> BookieDir:
    """Make a bookie that was killed before it flushed anything."""
    made = make_bookie(root / "disks", {}, dirty=True)
    key = journal.encode_master_key(LEDGER, entry.master_key(b""))
    for at, records in enumerate(journals):
        write_journal(made, JOURNAL + at, [key, *records])
    write_mark(made, JOURNAL, 512)
    return made


def heads(row: dict[str, Any]) -> list[tuple[int, int, int]]:
    """Entry, LAC and length of each header."""
    return [(head["entry"], head["lac"], head["length"]) for head in row["headers"]]


FIRST: Final = [written(number, 20) for number in range(5)]
SECOND: Final = [written(number, 35) for number in range(2)]


@pytest.mark.parametrize("journals", [[FIRST + SECOND], [FIRST, SECOND]], ids=["one journal", "two"])
def test_two_ledgers_of_one_id_and_key_show_both_their_lengths(tmp_path: Path, journals: list[list[bytes]]) -> None:
    """Whichever of them replay leaves, what the bookie has is not taken for one ledger."""
    made = killed(tmp_path, journals)
    (row,) = look(made, tmp_path / "now", keep=True).copies
    assert (row["source"], row["entries"]) == ("journal", 5)
    assert heads(row) == [(0, -1, 20), (0, -1, 35), (3, 2, 80), (4, 3, 100)]
    found = recover([row], names=[BOOKIE])
    assert (found["outcome"], found["reason"]) == ("held", Refusal.LENGTHS_DIFFER)
    assert look(made, tmp_path / "later", since=tmp_path / "now/inventory").copies == [row]


def test_an_entry_that_a_recovery_wrote_again_is_one_entry(tmp_path: Path) -> None:
    """It has another LAC, and the same length."""
    (row,) = look(killed(tmp_path, [[*FIRST, written(4, 20, lac=1)]]), tmp_path).copies
    assert heads(row) == [(0, -1, 20), (3, 2, 80), (4, 3, 100)]
    assert recover([row], names=[BOOKIE])["outcome"] == "restored"
