"""Ledgers with copies in other places than their records ask for: do bookies show another striping than the record?

What `recover` would make of these copies says it, so the rule is one. It is asked for their striping alone: keys,
lengths and LACs, which bookies do not tell by the wire, are taken as if all agreed.
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings.categories import Category
from reconcile.findings.table import FindingRun
from reconcile.rules import diff
from recovery.model import tables

_SHOWN_BY: Final = pa.array(
    [
        str(category)
        for category in (
            Category.BELOW_ACK_QUORUM,
            Category.BELOW_WRITE_QUORUM,
            Category.ENTRIES_MISPLACED,
            Category.OVER_REPLICATED,
        )
    ]
)
"""Findings that another striping leads to."""


def find_other_stripes(
    records: pa.Table, copies: pa.Table, bookies: pa.Table, damage: pa.Table, findings: pa.Table, run: FindingRun
) -> pa.Table:
    """Return a finding for each ledger with another striping of its copies than in its record.

    Args:
        records: CATALOG_LEDGERS.
        copies: COPIES of these ledgers.
        bookies: BOOKIES that these are from.
        damage: DAMAGE of these.
        findings: FINDINGS of these ledgers: only ledgers with odd copies are checked.
        run: this one.
    """
    odd = findings.filter(pc.is_in(findings["category"], value_set=_SHOWN_BY))["ledger"].unique()
    if not len(odd):
        return tables.FINDINGS.empty_table()
    from recovery.infer.prior import Prior, ShapeCounts  # noqa: PLC0415 - a healthy cluster's scrutiny never needs it
    from recovery.infer.reconstruct import InferOptions, reconstruct  # noqa: PLC0415 - likewise

    stored, held = (rows.filter(pc.is_in(rows["ledger"], value_set=odd)) for rows in (records, copies))
    shown = reconstruct(_leave_striping(held), bookies, damage, Prior.build(ShapeCounts()), InferOptions())
    rows = diff.disagreements(shown, stored, diff.match(shown, stored))
    return diff.findings(rows.filter(pc.equal(rows["category"], Category.QUORUM_DIFFERS)), run)


def _leave_striping(copies: pa.Table) -> pa.Table:
    """Return COPIES with the entries of each bookie and all else equal; rows without entries are left out.

    Each row's last entry has a header, with as many bytes up to there as entries.
    """
    copies = copies.filter(pc.is_valid(copies["last"]))
    last, rows = copies["last"].combine_chunks(), copies.num_rows
    kind = tables.COPIES.field("headers").type
    fields = {"entry": last, "lac": pa.repeat(-1, rows), "length": pc.add(last, 1), "size": pa.repeat(1, rows)}
    fields["digest"] = pa.repeat("CRC32C", rows)
    columns = [fields[entry.name].cast(entry.type) for entry in kind.value_type]
    headers = pa.ListArray.from_arrays(
        pa.array(range(rows + 1), pa.int32()),
        pa.StructArray.from_arrays(columns, fields=list(kind.value_type)),
        type=kind,
    )
    fresh = {
        "key_kind": pa.repeat("set", rows),
        "key": pa.repeat(bytes(32), rows),
        "explicit_lac": pa.nulls(rows),
        "lac_record": pa.nulls(rows),
        "limbo": pa.repeat(False, rows),  # noqa: FBT003 - a value of a column
        "headers": headers,
    }
    for name, column in fresh.items():
        place = tables.COPIES.get_field_index(name)
        copies = copies.set_column(place, tables.COPIES.field(name), column.cast(tables.COPIES.field(name).type))
    return copies
