"""What bookies show against what a store holds, ledger by ledger: which records are missing, and which disagree.

Both sides are tables of one bucket range, sorted by key, as their datasets give them; nothing is joined across ranges.
"""

from collections.abc import Callable
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
    DELETED_OUTSIDE = "DELETED_OUTSIDE"
    """The store's own history shows that somebody deleted the ledger."""
    ID_REUSE = "ID_REUSE"
    """One id, two ledgers: another password, digest or creation time than earlier."""
    STORE_WENT_BACK = "STORE_WENT_BACK"
    """The store has an older record of the ledger than it had."""
    ONLY_IN_EARLIER = "ONLY_IN_EARLIER"
    """An earlier catalog has a ledger with entries of which neither the store nor any bookie knows."""
    RECORD_CONTRADICTED = "RECORD_CONTRADICTED"
    """An earlier record says of the ledger what its entries on bookies do not: another digest, length, end or key."""
    SCOPE_COLLISION = "SCOPE_COLLISION"
    """Ledgers of different scopes share the lower half of their ids: what knows no scopes takes one for the other."""
    REFERENCE_DIFFERS = "REFERENCE_DIFFERS"
    """An upper layer knows another end or length of the ledger than bookies or the store show."""
    REFERENCE_NOT_FOUND = "REFERENCE_NOT_FOUND"
    """An upper layer names a ledger that neither the store nor any bookie has."""
    DELETED_BY_OWNER = "DELETED_BY_OWNER"
    """An upper layer deleted the ledger, and the store or bookies still have it."""
    REFERENCE_UNREADABLE = "REFERENCE_UNREADABLE"
    """A record of an upper layer cannot be read: what it names counts as not referenced."""
    STALE_UR_MARK = "STALE_UR_MARK"
    """A ledger is marked as under-replicated and is not in the store."""
    DEAD_LOCK = "DEAD_LOCK"
    """A replication worker's lock that no session holds: nobody will ever take it away."""
    DEAD_REGISTRATION = "DEAD_REGISTRATION"
    """A bookie's registration that no session holds: it is shown as alive for ever."""
    EPHEMERAL_NOT_RESTORED = "EPHEMERAL_NOT_RESTORED"
    """A registration, lock or vote of an earlier catalog; it lived with a session and is never written again."""
    COOKIE_WITHOUT_BOOKIE = "COOKIE_WITHOUT_BOOKIE"
    """The store has a cookie of a bookie that is not registered, and that no inventory is of."""
    BOOKIE_WITHOUT_COOKIE = "BOOKIE_WITHOUT_COOKIE"
    """A bookie has data or is registered, and the store has no cookie of it: it will refuse to start."""
    COOKIE_DIFFERS = "COOKIE_DIFFERS"
    """The store's cookie of a bookie is not that of its disks, or not the earlier one."""
    GENERATOR_BEHIND = "GENERATOR_BEHIND"
    """A generator of ids may give one that is used."""
    LAYOUT_DIFFERS = "LAYOUT_DIFFERS"
    """The store's layout is not the earlier one."""
    INSTANCE_ID_DIFFERS = "INSTANCE_ID_DIFFERS"
    """The cluster's instance id is not the same on all sides."""


SEVERITIES: Final[dict[Category, str]] = {
    Category.HELD: "warning",
    Category.METADATA_UNPARSABLE: "critical",
    Category.ENTRIES_BEYOND_LAST_ENTRY: "critical",
    Category.ENTRIES_MISSING: "critical",
    Category.QUORUM_DIFFERS: "critical",
    Category.NOT_ON_BOOKIES: "critical",
    Category.DELETED_OUTSIDE: "warning",
    Category.ID_REUSE: "critical",
    Category.STORE_WENT_BACK: "critical",
    Category.ONLY_IN_EARLIER: "critical",
    Category.RECORD_CONTRADICTED: "critical",
    Category.SCOPE_COLLISION: "critical",
    Category.REFERENCE_DIFFERS: "warning",
    Category.REFERENCE_NOT_FOUND: "warning",
    Category.DELETED_BY_OWNER: "warning",
    Category.REFERENCE_UNREADABLE: "warning",
    Category.STALE_UR_MARK: "info",
    Category.DEAD_LOCK: "warning",
    Category.DEAD_REGISTRATION: "critical",
    Category.EPHEMERAL_NOT_RESTORED: "info",
    Category.COOKIE_WITHOUT_BOOKIE: "warning",
    Category.BOOKIE_WITHOUT_COOKIE: "warning",
    Category.COOKIE_DIFFERS: "critical",
    Category.GENERATOR_BEHIND: "critical",
    Category.LAYOUT_DIFFERS: "critical",
    Category.INSTANCE_ID_DIFFERS: "critical",
}

SUGGESTED: Final = {
    Category.HELD: "see what would settle it: bkmeta explain LEDGER --plan PLAN",
    Category.METADATA_UNPARSABLE: "compare the record with what bookies show (bkmeta explain); its bytes are in the "
    "plan's store/ catalog; the plan's alternative replaces it",
    Category.ENTRIES_BEYOND_LAST_ENTRY: "never trim them; find out why they were written: bkmeta explain LEDGER",
    Category.ENTRIES_MISSING: "look for the bookie that has them: its disks, or the wiped bookie's old ones",
    Category.QUORUM_DIFFERS: "a person compares both: bkmeta explain LEDGER",
    Category.NOT_ON_BOOKIES: "look for bookies that were not collected, and for wiped ones' old disks",
    Category.DELETED_OUTSIDE: "ask whose session it was; if it was a mistake, choose the alternative that restores it",
    Category.ID_REUSE: "restore nothing under this id before a person has compared both: bkmeta explain LEDGER",
    Category.STORE_WENT_BACK: "find out which backup was put back; the earlier catalog has the newer record",
    Category.ONLY_IN_EARLIER: "look for bookies that were not collected; else its entries are lost",
    Category.RECORD_CONTRADICTED: "a person compares both: bkmeta explain LEDGER; two ledgers may have had this id",
    Category.SCOPE_COLLISION: "name which of them is to be restored; keep clients and bookies without scopes away",
    Category.REFERENCE_DIFFERS: "a person compares both: bkmeta explain LEDGER --references …",
    Category.REFERENCE_NOT_FOUND: "look for bookies that were not collected; else its entries are lost",
    Category.DELETED_BY_OWNER: "none, if that was wanted; else choose the alternative that restores it",
    Category.REFERENCE_UNREADABLE: "look at the record; what it names stands among the ledgers that nothing references",
    Category.STALE_UR_MARK: "none: a replication worker removes it when it finds no ledger",
    Category.DEAD_LOCK: "delete this node by hand when no replication worker runs",
    Category.DEAD_REGISTRATION: "delete this node by hand: the bookie registers anew when it starts",
    Category.EPHEMERAL_NOT_RESTORED: "none: whoever lives makes it anew",
    Category.COOKIE_WITHOUT_BOOKIE: "collect that bookie, or decommission it",
    Category.BOOKIE_WITHOUT_COOKIE: "its cookie is in the plan once all its ledgers are settled",
    Category.COOKIE_DIFFERS: "find out whether its disks were wiped or moved before it starts",
    Category.GENERATOR_BEHIND: "let no client create ledgers before the generator is past them",
    Category.LAYOUT_DIFFERS: "do not start a bookie: under another layout it deletes what it does not find",
    Category.INSTANCE_ID_DIFFERS: "do not mix clusters: find out which of them this store is of",
}
"""Category → what to do about it."""


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
    keys = list(KEY_COLUMNS)
    compared = ["last_entry", "ensemble_size", "write_quorum"]
    catalog = catalog.select([*keys, "state", "error", *compared])
    ours = reconstruction.select(["outcome", "grades", *compared]).take(matched.held_rows)
    theirs = catalog.take(matched.stored_rows)
    closed = pc.fill_null(pc.equal(theirs["state"], "CLOSED"), fill_value=False)
    known = pc.and_(pc.fill_null(pc.equal(ours["outcome"], "restored"), fill_value=False), closed)
    grade = pc.struct_field(ours["grades"].combine_chunks(), "ensemble_size")
    striped = pc.is_in(grade, _OBSERVED)
    quorums = pc.or_(
        pc.not_equal(ours["ensemble_size"], theirs["ensemble_size"]),
        pc.not_equal(ours["write_quorum"], theirs["write_quorum"]),
    )
    lost = catalog.take(matched.unheld)
    has_entries = pc.and_(pc.equal(lost["state"], "CLOSED"), pc.greater_equal(lost["last_entry"], 0))

    def said(
        category: Category,
        field: str,
        when: Any,  # noqa: ANN401 - an Arrow column
        shown: Callable[[pa.Table], Any],
        stored: pa.Table,
        held: pa.Table | None = None,
    ) -> pa.Table:
        when = pc.fill_null(when, fill_value=False)
        stored = stored.filter(when)
        table = stored.select(keys)
        for name, value in (("category", str(category)), ("field", field)):
            table = table.append_column(name, pa.repeat(value, table.num_rows))
        for name, side in (("stored", stored), ("held", None if held is None else held.filter(when))):
            text = pa.nulls(table.num_rows, pa.string()) if side is None else pc.cast(shown(side), pa.string())
            table = table.append_column(name, pc.fill_null(text, "nothing"))
        return table

    def last(side: pa.Table) -> Any:  # noqa: ANN401 - an Arrow column
        return side["last_entry"]

    beyond = pc.and_(known, pc.greater(last(theirs), last(ours)))
    other = pc.and_(pc.and_(known, striped), quorums)
    return pa.concat_tables(
        [
            said(Category.METADATA_UNPARSABLE, "raw", pc.is_valid(catalog["error"]), lambda s: s["error"], catalog),
            said(Category.ENTRIES_MISSING, "last_entry", beyond, last, theirs, ours),
            said(Category.QUORUM_DIFFERS, "ensemble_size/write_quorum", other, _slashed, theirs, ours),
            said(Category.NOT_ON_BOOKIES, "last_entry", has_entries, last, lost),
        ]
    )


def _slashed(table: pa.Table) -> Any:  # noqa: ANN401 - an Arrow column
    both = [pc.cast(table[name], pa.string()) for name in ("ensemble_size", "write_quorum")]
    return pc.binary_join_element_wise(*both, "/")
