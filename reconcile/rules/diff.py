"""Bookies compared with a store, ledger by ledger: missing records, and disagreements.

Both sides are tables of one bucket range, sorted by key, as their datasets give them; nothing is joined across ranges.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings.categories import Category
from reconcile.findings.table import Finding, FindingRun, FindingStatement, LedgerKey, make_rows
from reconcile.rules.sides import ABSENT, unite
from recovery.model.tables import KEY_COLUMNS

_OBSERVED: Final = pa.array(["observed", "verified"])


Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


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
    held, stored = unite([reconstruction, catalog]).rows
    is_held, is_stored = held != ABSENT, stored != ABSENT
    return Matched(
        held[is_held & ~is_stored], held[is_held & is_stored], stored[is_held & is_stored], stored[~is_held & is_stored]
    )


def disagreements(reconstruction: pa.Table, catalog: pa.Table, matched: Matched, newer: Mask | None = None) -> pa.Table:
    """Return the disagreements of the two sides, one row each, in no particular order.

    Args:
        reconstruction: RECONSTRUCTION.
        catalog: CATALOG_LEDGERS.
        matched: of both.
        newer: which records are newer than what was seen of their bookies: what these lack is no disagreement; None:
            none is.

    Returns:
        scope, ledger, bucket, category, field, stored, held: the last two as text.
    """
    compared = ["last_entry", "ensemble_size", "write_quorum"]
    catalog = catalog.select([*KEY_COLUMNS, "state", "error", *compared])
    shown_rows = reconstruction.select(["outcome", "grades", *compared]).take(matched.held_rows)
    stored_rows = catalog.take(matched.stored_rows)
    known = pc.and_(pc.equal(shown_rows["outcome"], "restored"), pc.equal(stored_rows["state"], "CLOSED"))
    grade = pc.struct_field(shown_rows["grades"].combine_chunks(), "ensemble_size")
    striped = pc.is_in(grade, _OBSERVED)
    quorums = pc.or_(
        pc.not_equal(shown_rows["ensemble_size"], stored_rows["ensemble_size"]),
        pc.not_equal(shown_rows["write_quorum"], stored_rows["write_quorum"]),
    )
    older = np.ones(catalog.num_rows, np.bool_) if newer is None else ~newer
    beyond = pc.and_(known, pc.greater(_last(stored_rows), _last(shown_rows)))
    beyond = pc.and_(beyond, pa.array(older[matched.stored_rows]))
    other = pc.and_(pc.and_(known, striped), quorums)
    return pa.concat_tables(
        [
            _make_rows(
                Category.METADATA_UNPARSABLE, "raw", pc.is_valid(catalog["error"]), lambda s: s["error"], catalog
            ),
            _make_rows(Category.ENTRIES_MISSING, "last_entry", beyond, _last, stored_rows, shown_rows),
            _make_rows(
                Category.QUORUM_DIFFERS, "ensemble_size/write_quorum", other, _join_quorums, stored_rows, shown_rows
            ),
            list_unknown(catalog.take(matched.unheld[older[matched.unheld]])),
        ]
    )


def list_unknown(stored: pa.Table) -> pa.Table:
    """Return closed ledgers with entries that no bookie shows, as rows of `disagreements`.

    Args:
        stored: CATALOG_LEDGERS, of these ledgers.
    """
    has_entries = pc.and_(pc.equal(stored["state"], "CLOSED"), pc.greater_equal(stored["last_entry"], 0))
    return _make_rows(Category.NOT_ON_BOOKIES, "last_entry", has_entries, _last, stored)


def _make_rows(
    category: Category,
    field: str,
    when: Any,  # noqa: ANN401 - an Arrow column
    shown: Callable[[pa.Table], Any],
    stored: pa.Table,
    held: pa.Table | None = None,
) -> pa.Table:
    when = pc.fill_null(when, fill_value=False)
    stored = stored.filter(when)
    table = stored.select(list(KEY_COLUMNS))
    for name, value in (("category", str(category)), ("field", field)):
        table = table.append_column(name, pa.repeat(value, table.num_rows))
    for name, side in (("stored", stored), ("held", None if held is None else held.filter(when))):
        text = pa.nulls(table.num_rows, pa.string()) if side is None else pc.cast(shown(side), pa.string())
        table = table.append_column(name, pc.fill_null(text, "nothing"))
    return table


def _last(side: pa.Table) -> Any:  # noqa: ANN401 - an Arrow column
    return side["last_entry"]


def _join_quorums(table: pa.Table) -> Any:  # noqa: ANN401 - an Arrow column
    texts = [pc.cast(table[name], pa.string()) for name in ("ensemble_size", "write_quorum")]
    return pc.binary_join_element_wise(*texts, "/")


def findings(disagreements: pa.Table, run: FindingRun) -> pa.Table:
    """Return a finding for each disagreement; a table as `disagreements` returns it in."""
    return make_rows(
        (
            Finding(
                category=Category(row["category"]),
                subject=row["field"],
                statements=[
                    FindingStatement("store", row["field"], row["stored"]),
                    FindingStatement("bookies", row["field"], row["held"]),
                ],
                key=LedgerKey.from_row(row),
            )
            for row in disagreements.to_pylist()
        ),
        run,
    )
