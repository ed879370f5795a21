"""Ledgers that went since the store was listed last: by when each was made, as its record and the store say."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from reconcile.deletes.records import LastListing
from reconcile.deletes.tombstones import DAY_MS
from reconcile.deletes.verification.absence import Absence, count_born, measure_absence
from recovery.dataset import Dataset, DatasetWriter, open_dataset
from recovery.model import tables
from recovery.model.ids import LedgerId
from tests.support.inventories import fill_row

LISTED_MS = 1_700_000_000_000


def write_capture(folder: Path, births: Sequence[tuple[int | None, int | None]]) -> Dataset:
    """Write a capture of ledgers: when the store says that the record was made, and when the record does."""
    rows = []
    for number, (stored, own) in enumerate(births):
        ledger = LedgerId(0, number)
        made = None if stored is None else datetime.fromtimestamp(stored / 1000, UTC)
        about = {"bucket": ledger.bucket, "scope": 0, "ledger": number, "raw": b"", "created_at": made, "ctime": own}
        rows.append(fill_row(tables.CATALOG_LEDGERS, about))
    rows.sort(key=lambda row: row["bucket"])
    with DatasetWriter(folder, "catalog", binding={}, secret=True) as writer:
        writer.append("ledgers", pa.Table.from_pylist(rows, schema=tables.CATALOG_LEDGERS))
        writer.close(coverage={})
    return open_dataset(folder, "catalog")


@pytest.mark.parametrize(
    ("stored", "own", "counts"),
    [
        (LISTED_MS, None, True), (LISTED_MS + 1, None, False), (None, LISTED_MS, True), (None, LISTED_MS + 1, False),
        (LISTED_MS + 1, LISTED_MS, True), (LISTED_MS, LISTED_MS + 1, True), (None, None, True),
        (LISTED_MS + 1, LISTED_MS + 1, False), (0, LISTED_MS + 1, True), (LISTED_MS + 1, 0, True),
    ],
)  # fmt: skip
def test_a_ledger_counts_by_its_earlier_birth(
    stored: int | None, own: int | None, counts: bool, tmp_path: Path
) -> None:
    """A record that was put back is younger than its ledger; of one that says nothing, nobody knows that it is new."""
    assert count_born(write_capture(tmp_path / "c", [(stored, own)]), LISTED_MS) == counts


def test_new_ledgers_do_not_hide_what_went(tmp_path: Path) -> None:
    """Sixty of a hundred are there, and two hundred new ones; four were purged by us."""
    capture = write_capture(tmp_path / "c", [(LISTED_MS, None)] * 60 + [(LISTED_MS + 5, None)] * 200)
    found = measure_absence(capture, LastListing(LISTED_MS, 100, "op"), 4, LISTED_MS + 9)
    assert found == Absence(LISTED_MS, 100, 36, 10)
    assert found.is_mass
    assert measure_absence(capture, LastListing(LISTED_MS, 50, "op"), 4, LISTED_MS + 9).gone == 0


@pytest.mark.parametrize(
    ("listed", "days", "limit"),
    [(100, 0, 10), (1000, 0, 50), (1000, 1, 50), (1000, 2, 100), (1000, 10, 500), (1000, 100, 500), (20, 100, 10)],
)
def test_what_may_go(listed: int, days: int, limit: int, tmp_path: Path) -> None:
    """5 % a day, ten at least, half of all at most; what is just at the limit is no mass."""
    capture = write_capture(tmp_path / "c", [])
    found = measure_absence(capture, LastListing(LISTED_MS, listed, "op"), listed - limit, LISTED_MS + days * DAY_MS)
    assert (found.limit, found.gone, found.is_mass) == (limit, limit, False)
    found = measure_absence(
        capture, LastListing(LISTED_MS, listed, "op"), listed - limit - 1, LISTED_MS + days * DAY_MS
    )
    assert found.is_mass
