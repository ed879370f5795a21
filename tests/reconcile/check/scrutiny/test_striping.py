"""Another striping than the record's is seen in what bookies list, whoever of them tells keys and lengths."""

import pyarrow as pa
import pytest

from reconcile.check.scrutiny.striping import find_other_stripes
from reconcile.findings.categories import Category
from reconcile.findings.table import FindingRun
from recovery.model import tables
from recovery.model.ids import LedgerId
from tests.reconcile.rules.test_copies_properties import Ledger, make_copies, make_stored
from tests.support.findings import AT, finding
from tests.support.inventories import fill_row

MEMBERS = ["b0", "b1", "b2"]


def list_kinds(record: Ledger, write: int, told_by: str | None) -> list[str]:
    """Return what is found of a ledger that was written with a write quorum."""
    last = record.last
    shares = {f"b{place}": {entry for entry in range(last + 1) if (place - entry) % 3 < write} for place in range(3)}
    rows = make_copies([Ledger(write, 2, last, record.segments, shares)]).to_pylist()
    for row in rows:
        held, group = shares[row["bookie"]], max(row["groups"], key=lambda one: one["last"] - one["first"])
        row["bucket"], row["source"] = LedgerId(0, 0).bucket, "wire"
        row.update({"entries": len(held), "first": min(held), "last": max(held), "g_count": len(row["groups"])})
        row.update({f"g_{name}": group[name] for name in ("first", "last", "size", "period")})
        if row["bookie"] == told_by:
            row.update({"source": "index", "key_kind": "set", "key": b"k" * 32, "explicit_lac": 1})
    bookies = [fill_row(tables.BOOKIES, {"bookie": name, "complete": True}) for name in MEMBERS]
    found = pa.Table.from_pylist([finding("BELOW_WRITE_QUORUM", "warning", 0)], schema=tables.FINDINGS)
    other = find_other_stripes(
        make_stored([record]),
        pa.Table.from_pylist(rows, schema=tables.COPIES),
        pa.Table.from_pylist(bookies, schema=tables.BOOKIES),
        tables.DAMAGE.empty_table(),
        found,
        FindingRun("run", AT),
    )
    return [str(kind) for kind in other["category"].to_pylist()]


@pytest.mark.parametrize("told_by", [None, "b0", "b1", "b2"])
@pytest.mark.parametrize("last", [11, 12, 13])
def test_stripes_show_by_lists_alone(last: int, told_by: str | None) -> None:
    """By the wire nobody tells keys or lengths; a bookie whose disks do may not have the last entry."""
    record = Ledger(3, 2, last, [(0, MEMBERS)], {})
    assert list_kinds(record, 2, told_by) == [str(Category.QUORUM_DIFFERS)]


def test_copies_that_are_as_the_record_says_show_no_other_stripes() -> None:
    """Also where one bookie more than it asks for has all: every bookie has all entries, which shows no width."""
    assert list_kinds(Ledger(2, 2, 11, [(0, MEMBERS)], {}), 2, None) == []
    assert list_kinds(Ledger(3, 2, 11, [(0, MEMBERS)], {}), 3, None) == []
    assert list_kinds(Ledger(2, 2, 11, [(0, MEMBERS)], {}), 3, None) == []
