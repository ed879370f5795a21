"""What is kept of some entries of many ledgers, read from real disks."""

from contextlib import ExitStack

import pytest

from recovery.bookies import ledger_entries
from recovery.bookies.disk_reader import BookieDisks, open_disks
from recovery.bookies.ledger_entries import LedgerReading, decode_payloads, read_entries
from recovery.model.ids import LedgerId
from tests.support.cases import pulsar_dir

WANTED = (0, 3)
LEDGERS = [LedgerId(0, number) for number in range(40)]


def keep(ledger: LedgerId, number: int, payload: bytes) -> tuple[int, int, bytes]:
    """Keep all."""
    return ledger.ledger, number, payload


@pytest.mark.parametrize("together", [1, 5, 4096])
def test_first_and_last_entries_are_those_of_reading_whole_ledgers(
    together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order that was asked for, however many are looked up together; of a ledger that nobody has nothing."""
    monkeypatch.setattr(ledger_entries, "_LEDGERS_AT_ONCE", together)
    with ExitStack() as stack:
        disks: dict[str, BookieDisks] = {}
        for number in range(4):
            home = pulsar_dir() / "bookies" / f"b{number}"
            bookie = f"10.0.0.{number + 1}:3181"
            disks[bookie] = stack.enter_context(open_disks(bookie, [home / "journal", home / "ledgers"]))
        whole = {
            ledger: {read.header.entry: read.payload for read in read_entries(disks, ledger, (b"",), LedgerReading())}
            for ledger in LEDGERS
        }
        found = dict(decode_payloads(disks, ((ledger, WANTED) for ledger in LEDGERS), (b"",), keep))
    assert list(found) == LEDGERS
    for ledger, entries in whole.items():
        wanted = {number: (ledger.ledger, number, raw) for number, raw in entries.items() if number in WANTED}
        assert found[ledger] == wanted
    assert {len(entries) for entries in found.values()} >= {0, len(WANTED)}
