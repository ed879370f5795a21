"""What bookies show against what a store holds, ledger by ledger: which records are missing, and which disagree.

Both sides are tables of one bucket range, sorted by key, as their datasets give them; nothing is joined across ranges.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recovery.model.tables import KEY_COLUMNS

HOLD_MARK: Final = "bkmeta.hold"
"""Key of the custom metadata that says why a record is a hold."""

_OBSERVED: Final = pa.array(["observed", "verified"])


class Category(StrEnum):
    """What a finding says; stored, so never renamed."""

    HELD = "HELD"
    """Not restored: a record that keeps the data and serves nobody is proposed instead."""
    METADATA_UNPARSABLE = "METADATA_UNPARSABLE"
    """The store has a record that no BookKeeper can read."""
    ENTRIES_BEYOND_LAST_ENTRY = "ENTRIES_BEYOND_LAST_ENTRY"
    """Bookies hold entries above the last entry of a closed ledger."""
    ENTRIES_MISSING = "ENTRIES_MISSING"
    """A closed ledger's last entry is above everything that bookies hold."""
    QUORUM_DIFFERS = "QUORUM_DIFFERS"
    """The striping that bookies show is not the record's."""
    NOT_ON_BOOKIES = "NOT_ON_BOOKIES"
    """The store has a ledger with entries of which no bookie that was looked at knows."""


SEVERITIES: Final = {
    Category.HELD: "warning",
    Category.METADATA_UNPARSABLE: "critical",
    Category.ENTRIES_BEYOND_LAST_ENTRY: "warning",
    Category.ENTRIES_MISSING: "critical",
    Category.QUORUM_DIFFERS: "critical",
    Category.NOT_ON_BOOKIES: "critical",
}

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Matched:
    """Row numbers of both sides.

    Attributes:
        missing: rows of the reconstruction that the store has no record of.
        held_rows, stored_rows: rows that belong to one ledger, side by side.
        unheld: rows of the catalog that no bookie shows.
    """

    missing: Rows
    held_rows: Rows
    stored_rows: Rows
    unheld: Rows


def match(reconstruction: pa.Table, catalog: pa.Table) -> Matched:
    """Match the two sides by (scope, ledger); each has a ledger at most once."""
    keys = list(KEY_COLUMNS)

    def numbered(table: pa.Table, name: str) -> pa.Table:
        return table.select(keys).append_column(name, pa.array(np.arange(table.num_rows)))

    both = numbered(reconstruction, "left").join(numbered(catalog, "right"), keys, join_type="full outer")
    left, right = both["left"], both["right"]

    def rows(column: pa.ChunkedArray, wanted: pa.ChunkedArray) -> Rows:
        picked: Rows = column.filter(wanted).to_numpy().astype(np.int64)
        return picked

    pairs = pc.and_(pc.is_valid(left), pc.is_valid(right))
    held = rows(left, pairs)
    stored = rows(right, pairs)
    order = np.argsort(held, kind="stable")
    return Matched(
        np.sort(rows(left, pc.is_null(right))), held[order], stored[order], np.sort(rows(right, pc.is_null(left)))
    )


def still_held(catalog: pa.Table) -> pa.Table:
    """Return the holds that a store has: the columns of a key, reason and holders, as RECONSTRUCTION has them."""
    lists = catalog["custom"].combine_chunks()
    marked = pc.equal(pc.struct_field(lists.flatten(), 0), HOLD_MARK)
    found = catalog.take(pc.unique(pc.list_parent_indices(lists).filter(marked)))
    customs = [{one["key"]: one["value"] for one in custom} for custom in found["custom"].to_pylist()]
    reasons = [custom[HOLD_MARK].decode(errors="replace") for custom in customs]
    holders = [sorted({m for s in segments or () for m in s["members"]}) for segments in found["segments"].to_pylist()]
    return (
        found.select(list(KEY_COLUMNS))
        .append_column("reason", pa.array(reasons, pa.string()))
        .append_column("holders", pa.array(holders, pa.list_(pa.string())))
    )


def disagreements(reconstruction: pa.Table, catalog: pa.Table, matched: Matched) -> pa.Table:
    """Name what the two sides disagree in, one row a disagreement, in no particular order.

    Returns:
        scope, ledger, bucket, category, field, stored, held: the last two as text.
    """
    ours = reconstruction.take(matched.held_rows)
    theirs = catalog.take(matched.stored_rows)
    closed = pc.fill_null(pc.equal(theirs["state"], "CLOSED"), False)  # noqa: FBT003 - Arrow's signature
    known = pc.and_(pc.fill_null(pc.equal(ours["outcome"], "restored"), False), closed)  # noqa: FBT003
    grade = pc.struct_field(ours["grades"].combine_chunks(), "ensemble_size")
    striped = pc.is_in(grade, _OBSERVED)
    quorums = pc.or_(
        pc.not_equal(ours["ensemble_size"], theirs["ensemble_size"]),
        pc.not_equal(ours["write_quorum"], theirs["write_quorum"]),
    )
    lost = catalog.take(matched.unheld)
    has_entries = pc.and_(pc.equal(lost["state"], "CLOSED"), pc.greater_equal(lost["last_entry"], 0))

    def said(category: Category, side: pa.Table, when: Any, field: str, stored: Any, held: Any) -> pa.Table:  # noqa: ANN401 - Arrow columns
        table = side.select(list(KEY_COLUMNS))
        for name, value in (("category", str(category)), ("field", field)):
            table = table.append_column(name, pa.array([value] * table.num_rows, pa.string()))
        for name, column in (("stored", stored), ("held", held)):
            text = pa.nulls(table.num_rows, pa.string()) if column is None else pc.cast(column, pa.string())
            table = table.append_column(name, pc.fill_null(text, "nothing"))
        return table.filter(pc.fill_null(when, False))  # noqa: FBT003 - Arrow's signature

    both_last = (theirs["last_entry"], ours["last_entry"])
    return pa.concat_tables(
        [
            said(Category.METADATA_UNPARSABLE, catalog, pc.is_valid(catalog["error"]), "raw", catalog["error"], None),
            said(
                Category.ENTRIES_BEYOND_LAST_ENTRY,
                theirs,
                pc.and_(known, pc.less(*both_last)),
                "last_entry",
                *both_last,
            ),
            said(Category.ENTRIES_MISSING, theirs, pc.and_(known, pc.greater(*both_last)), "last_entry", *both_last),
            said(
                Category.QUORUM_DIFFERS,
                theirs,
                pc.and_(pc.and_(known, striped), quorums),
                "ensemble_size/write_quorum",
                _slashed(theirs),
                _slashed(ours),
            ),
            said(Category.NOT_ON_BOOKIES, lost, has_entries, "last_entry", lost["last_entry"], None),
        ]
    )


def _slashed(table: pa.Table) -> Any:  # noqa: ANN401 - an Arrow column
    both = [pc.cast(table[name], pa.string()) for name in ("ensemble_size", "write_quorum")]
    return pc.binary_join_element_wise(*both, "/")
