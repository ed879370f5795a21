"""The entries of lost ledgers by what becomes of them: the first figure of a plan."""

from collections import Counter
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.rules.holds import count_holes
from recovery.model import tables

SHARES: Final = ("restored", "guarded", "held", "lost")
"""What becomes of an entry that a bookie has or had."""
_READABLE: Final = ("restored", "guarded")


def add_highest(rows: pa.Table, copies: pa.Table) -> pa.Table:
    """Return the rows with the highest entry on a bookie, in logs too, of each ledger.

    Args:
        rows: RECONSTRUCTION.
        copies: COPIES of these ledgers, or of more.
    """
    if not rows.num_rows:
        return rows
    numbered = rows.select(["scope", "ledger"]).append_column("place", pa.array(np.arange(rows.num_rows)))
    ends = copies.select(["scope", "ledger", "last"]).join(numbered, ["scope", "ledger"], join_type="inner")
    highest = np.full(rows.num_rows, -1)
    np.maximum.at(highest, ends["place"].to_numpy(), pc.fill_null(ends["last"], -1).to_numpy())
    index = tables.RECONSTRUCTION.get_field_index("highest")
    return rows.set_column(index, tables.RECONSTRUCTION.field(index), pa.array(highest, mask=highest < 0))


def count_entries(rows: pa.Table) -> dict[str, int]:
    """Return how many entries there are of each of `SHARES`; RECONSTRUCTION of lost ledgers in."""
    shares: Counter[str] = Counter()
    rows = rows.select(["outcome", "reason", "last_entry", "lac_low", "holes", "highest"])
    for outcome in _READABLE:
        own = rows.filter(pc.equal(rows["outcome"], outcome))
        holes = int(count_holes(own).sum())
        # What stays open ends where bookies do, or a few entries before.
        ends = pc.coalesce(own["last_entry"], own["highest"], -1)
        shares[outcome] = int((ends.to_numpy() + 1).sum()) - holes
        if outcome == "restored":
            gone = own.filter(pc.is_valid(own["reason"]))
            above = pc.fill_null(pc.subtract(gone["lac_low"], gone["last_entry"]), 0).to_numpy()
            shares["lost"] = holes + int(np.maximum(above, 0).sum())
    held = rows["highest"].filter(pc.equal(rows["outcome"], "held"))
    shares["held"] = int((pc.fill_null(held, -1).to_numpy() + 1).sum())
    return dict(shares)
