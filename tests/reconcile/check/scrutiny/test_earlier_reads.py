"""What earlier runs of sampled reads saw counts as there only while nothing speaks against it."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from reconcile.check.scrutiny.earlier_reads import ReadAge, add_earlier, keep_valid, note_reads
from recovery.bookies.entry_choice import Rotation
from recovery.model.tables import MISSING, READS, SAMPLES
from tests.reconcile.jobs.scrutiny.test_sampled_look import make_sample
from tests.recovery.bookies.test_sampled_reads import list_entries
from tests.support.inventories import fill_row

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
LATER = datetime(2026, 1, 2, tzinfo=UTC)
COOKIES = {"bk0": 3, "bk1": 3}
TXN = 100
"""The store's last transaction in the run before."""


def make_reads(held: range = range(5), ledger: int = 1, bookie: str = "bk0", txn: int = 7, run: int = 4) -> pa.Table:
    """One row of READS."""
    groups = [{"first": held[0], "last": held[0], "size": len(held), "period": 0}]
    row = {"ledger": ledger, "bookie": bookie, "held": groups, "entries": len(held), "record_txn": txn, "run": run}
    return pa.Table.from_pylist([fill_row(READS, {**row, "read": BEGIN})], schema=READS)


def make_stored(txn: int | None = 7) -> pa.Table:
    """The records of ledgers 1 and 2."""
    schema = pa.schema([("scope", pa.int64()), ("ledger", pa.int64()), ("changed_txn", pa.int64())])
    return pa.Table.from_pylist([{"scope": 0, "ledger": n, "changed_txn": txn} for n in (1, 2)], schema=schema)


def make_samples(*rows: dict[str, Any]) -> pa.Table:
    """SAMPLES."""
    return pa.Table.from_pylist(list(rows), schema=SAMPLES)


NOTHING_MISSING = MISSING.empty_table()
NOW = Rotation(5, 3)


@pytest.mark.parametrize(
    ("changed", "counts"),
    [
        ({}, True),
        ({"rotation": None}, True),
        ({"rotation": Rotation(6, 3)}, True),
        ({"rotation": Rotation(7, 3)}, False),
        ({"rotation": Rotation(4, 3)}, False),
        ({"rotation": Rotation(0, 9)}, False),
        ({"stored": make_stored(8)}, False),
        ({"stored": make_stored(None)}, False),
        ({"stored": make_stored().slice(1)}, False),
        ({"cookies": {"bk0": TXN}}, True),
        ({"cookies": {"bk0": TXN + 1}}, False),
        ({"cookies": {"bk1": 3}}, False),
        ({"known_txn": None}, False),
    ],
)
def test_what_was_read_counts_while_record_and_bookie_are_the_same(changed: dict[str, Any], counts: bool) -> None:
    """Of the last N runs, of a record that did not change, of a bookie that has the cookie that it had."""
    usual = {"stored": make_stored(), "missing": NOTHING_MISSING, "rotation": NOW, "cookies": COOKIES, "known_txn": TXN}
    kept = keep_valid(make_reads(), **(usual | changed))
    assert kept.num_rows == counts
    assert kept.schema == READS


def test_what_a_run_saw_missing_was_not_there_since() -> None:
    """An earlier read of it is older than the miss."""
    group = {"first": 1, "last": 2, "size": 1, "period": 1}
    row = {"ledger": 1, "bookie": "bk0", "entries": 2, "groups": [group], "record_txn": 7, "seen": BEGIN}
    missing = pa.Table.from_pylist([fill_row(MISSING, row)], schema=MISSING)
    kept = keep_valid(make_reads(), make_stored(), missing, NOW, COOKIES, TXN)
    assert list_entries(kept, "held") == {(1, "bk0"): {0, 3, 4}}
    assert kept["entries"].to_pylist() == [3]


def test_earlier_reads_count_beside_answers_of_this_run() -> None:
    """Not where the bookie was not asked, answered in part, knows no such ledger, or says that it lacks the entry."""
    reads = pa.concat_tables([make_reads(range(2, 6)), make_reads(range(8, 9), run=3), make_reads(bookie="bk1")])
    asked = make_sample(1, "bk0", held=range(3), lacks=range(4, 5))
    known, age = add_earlier(make_samples(asked, make_sample(2, "bk1", held=range(1))), reads)
    assert list_entries(known, "held") == {(1, "bk0"): {0, 1, 2, 3, 5, 8}, (2, "bk1"): {0}}
    assert list_entries(known, "lacks") == {(1, "bk0"): {4}}
    assert age == ReadAge(3, BEGIN)
    twice = pa.concat_tables([reads, reads])
    assert add_earlier(make_samples(asked, make_sample(2, "bk1", held=range(1))), twice) == (known, age)
    for odd in ({"failed": 1}, {"no_ledger": True}):
        partly = make_samples({**asked, **odd})
        assert add_earlier(partly, reads) == (partly, ReadAge())
    assert add_earlier(make_samples(), reads) == (make_samples(), ReadAge())


def test_a_run_hands_on_what_it_read_and_what_still_counts() -> None:
    """Each entry once, by the newest run that read it; nothing of a ledger that the bookie does not know any more."""
    reads = pa.concat_tables([make_reads(range(2, 8)), make_reads(bookie="bk1")])
    samples = make_samples(
        make_sample(1, "bk0", held=range(3), lacks=range(4, 5)), make_sample(1, "bk1", no_ledger=True)
    )
    noted = note_reads(samples, make_stored(), reads, 5, LATER)
    rows = {(row["bookie"], row["run"]): row for row in noted.to_pylist()}
    assert {key: (row["entries"], row["read"]) for key, row in rows.items()} == {
        ("bk0", 4): (4, BEGIN), ("bk0", 5): (3, LATER),
    }  # fmt: skip
    assert list_entries(noted.filter(pa.array([row == 4 for row in noted["run"].to_pylist()])), "held") == {
        (1, "bk0"): {3, 5, 6, 7}
    }
    assert note_reads(samples, make_stored(None), reads.slice(0, 0), 5, LATER).num_rows == 0
    again = keep_valid(noted, make_stored(), NOTHING_MISSING, Rotation(6, 3), COOKIES, TXN)
    assert again.num_rows == 2


def test_ages_add_up_to_the_oldest() -> None:
    """Copies of both, and the earlier begin; of none there is none."""
    assert ReadAge(1, LATER).add(ReadAge(2, BEGIN)) == ReadAge(3, BEGIN)
    assert ReadAge().add(ReadAge(2, LATER)) == ReadAge(2, LATER)
    for age in (ReadAge(), ReadAge(2, LATER)):
        assert ReadAge.from_json(age.to_json()) == age
