"""The entries of lost ledgers by what becomes of them: the first figure of a plan."""

from collections import Counter
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.rules.holds import count_holes

SHARES: Final = ("restored", "guarded", "held", "lost")
"""What becomes of an entry that a bookie has or had."""


def count_entries(rows: pa.Table, copies: pa.Table) -> dict[str, int]:
    """Return how many entries there are of each of `SHARES`.

    Args:
        rows: RECONSTRUCTION of lost ledgers.
        copies: COPIES of these ledgers, or of more.
    """
    shares: Counter[str] = Counter()
    rows = rows.select(["scope", "ledger", "outcome", "reason", "last_entry", "lac_low", "holes"])
    for outcome in ("restored", "guarded"):
        own = rows.filter(pc.equal(rows["outcome"], outcome))
        holes = int(count_holes(own).sum())
        shares[outcome] = int((pc.fill_null(own["last_entry"], -1).to_numpy() + 1).sum()) - holes
        if outcome == "restored":
            gone = own.filter(pc.is_valid(own["reason"]))
            above = pc.fill_null(pc.subtract(gone["lac_low"], gone["last_entry"]), 0).to_numpy()
            shares["lost"] = holes + int(np.maximum(above, 0).sum())
    held_keys = rows.filter(pc.equal(rows["outcome"], "held")).select(["scope", "ledger"])
    if held_keys.num_rows:
        ends = copies.select(["scope", "ledger", "last"]).join(held_keys, ["scope", "ledger"], join_type="inner")
        last = ends.group_by(["scope", "ledger"]).aggregate([("last", "max")])["last_max"]
        shares["held"] = int((pc.fill_null(last, -1).to_numpy() + 1).sum())
    return dict(shares)
