"""How many bytes a ledger has, and about how many of them bookies hold."""

import pyarrow as pa
import pytest

from reconcile.rules.copy_bytes import measure_bytes, state_bytes
from recovery.model import tables
from recovery.model.ids import LedgerId
from tests.support.inventories import fill_row


def copy(ledger: int, bookie: str, entries: int, last: int | None, *lengths: int) -> dict[str, object]:
    """Return a row of COPIES: so many entries up to the last, with headers that say these lengths."""
    headers = [{"entry": n, "lac": -1, "length": length, "size": 1, "digest": None} for n, length in enumerate(lengths)]
    key = {"scope": 0, "ledger": ledger, "bucket": LedgerId(0, ledger).bucket}
    return fill_row(tables.COPIES, {**key, "bookie": bookie, "entries": entries, "last": last, "headers": headers})


@pytest.mark.parametrize(
    ("rows", "length", "held"),
    [
        ([copy(1, "a", 10, 9, 100, 1000)], 1000, 1000),
        ([copy(1, "a", 10, 9, 1000), copy(1, "b", 10, 9, 1000), copy(1, "c", 5, 9, 1000)], 1000, 2500),
        ([copy(1, "a", 4, 7, 900)], 900, 450),
        ([copy(1, "a", 4, 7)], None, None),
        ([copy(1, "a", 0, None)], None, None),
        ([copy(1, "a", 1, 0, 0)], 0, 0),
    ],
    ids=["one bookie", "three, one with half", "every second entry", "no header was read", "no entries", "empty entry"],
)
def test_the_last_entry_tells_the_bytes(rows: list[dict[str, object]], length: int | None, held: int | None) -> None:
    """Of what bookies hold it is a share by their entries."""
    [found] = measure_bytes(pa.Table.from_pylist(rows, schema=tables.COPIES)).to_pylist()
    assert (found["length"], found["bytes"]) == (length, held)


def test_each_ledger_has_its_own_and_one_without_copies_none() -> None:
    """In the order of the ledgers that are asked for."""
    rows = [copy(n, "a", 10, 9, n * 100) for n in (1, 2, 3)]
    copies = pa.Table.from_pylist(rows, schema=tables.COPIES)
    wanted = pa.Table.from_pylist(
        sorted(
            ({"bucket": LedgerId(0, n).bucket, "scope": 0, "ledger": n} for n in (3, 7, 1)),
            key=lambda row: (row["bucket"], row["ledger"]),
        ),
        schema=copies.select(list(tables.KEY_COLUMNS)).schema,
    )
    lengths, held = (statement.value.to_pylist() for statement in state_bytes(wanted, copies))
    of_ledger = dict(zip(wanted["ledger"].to_pylist(), zip(lengths, held, strict=True), strict=True))
    assert of_ledger == {1: ("100", "100"), 3: ("300", "300"), 7: ("not known", "not known")}
    assert state_bytes(wanted, copies.slice(0, 0))[0].value.to_pylist() == ["not known"] * 3
