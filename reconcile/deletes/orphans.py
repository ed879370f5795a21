"""Orphans of a bucket range: ledgers that nothing names, data without a record, records that went past bkmeta.

finding              is
UNREFERENCED         the store has a record, no upper layer names it: a candidate for a delete, once two listings say so
DATA_WITHOUT_RECORD  bookies hold it, the store does not list it: deleted and not collected yet, or its record is lost
DELETED_OUTSIDE      an earlier copy of the store, or its history, has a record; the store has none, and no tombstone

Nothing is ever deleted by what is found here. Pure functions of their tables.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.check.scrutiny.unlisted import find_unlisted
from reconcile.deletes.verification.evidence import ReferenceListing
from reconcile.deletes.verification.makers import read_makers
from reconcile.deletes.verification.objections import Objections, UnsafeReason
from reconcile.deletes.verification.unreferenced import find_births, judge_references, select_live
from reconcile.deletes.verification.wanted import WantedLedgers
from reconcile.findings.categories import Category
from reconcile.findings.table import FindingRun, FindingStatement, make_ledger_findings
from reconcile.rules.copy_bytes import state_bytes, state_last_writes
from reconcile.rules.sides import ABSENT, Relation, compare, take_rows, unite
from recovery.model import tables
from recovery.model.ids import LedgerId, to_unsigned
from recovery.model.tables import KEY_COLUMNS

Mask = npt.NDArray[np.bool_]

TOMBSTONES: Final = pa.schema([*tables.KEY, pa.field("removed", pa.bool_())])
"""Ledgers with a tombstone; whether bkmeta removed their record."""
LISTED_ONCE: Final = "LISTED_ONCE"
DELETE_REQUESTED: Final = "DELETE_REQUESTED"
_KEYS: Final = list(KEY_COLUMNS)
_HELD: Final = pa.array(["index", "journal"])
_GONE: Final = (Relation.DELETED, Relation.GONE, Relation.SNAPSHOT_ONLY)


@dataclass(frozen=True, slots=True, eq=False)
class Sides:
    """A bucket range as every side shows it.

    Attributes:
        stored: CATALOG_LEDGERS of the store, before and after references were listed.
        copies: COPIES of inventories.
        earlier: CATALOG_LEDGERS of earlier copies of the store, and up to which transaction each is known to have
            stood, as `rules.sides.pick_newest_records` has both.
        history: CATALOG_HISTORY of all copies.
        tombstones: `TOMBSTONES`.
        known: key columns of the ledgers that the run before found unreferenced, by a listing before this run's.
        last_writes: key columns, and as text when each was written last, at the latest, or that this is not known.
    """

    stored: tuple[pa.Table, pa.Table]
    copies: pa.Table
    earlier: tuple[pa.Table, npt.NDArray[np.int64]]
    history: pa.Table
    tombstones: pa.Table
    known: pa.Table
    last_writes: pa.Table


@dataclass(frozen=True, slots=True, eq=False)
class Orphans:
    """What was found in a bucket range.

    Attributes:
        findings: FINDINGS.
        candidates: key columns of the ledgers whose delete may be asked for.
        left_out: why other ledgers of the store are none → how many; one may have several reasons.
    """

    findings: pa.Table
    candidates: pa.Table
    left_out: Counter[str]


def find_orphans(
    sides: Sides,
    listings: tuple[ReferenceListing, ReferenceListing],
    min_age_ms: int,
    run: FindingRun,
    *,
    lists_all: bool,
    has_earlier: bool,
) -> Orphans:
    """Return the orphans of a bucket range.

    Args:
        sides: of the range.
        listings: of references, the rows of this range.
        min_age_ms: of a ledger when references were listed first.
        run: this one.
        lists_all: the store was listed completely, twice: what it lacks is not there.
        has_earlier: an earlier copy of the store is there, or a history.
    """
    named = _unite_live(listings)
    unreferenced, candidates, left_out = _find_unreferenced(sides, named, listings, min_age_ms, run)
    parts = [unreferenced]
    if lists_all:
        parts.append(_find_data_alone(sides, named, run))
    if lists_all and has_earlier:
        parts.append(_find_deleted_outside(sides, named, run))
    return Orphans(pa.concat_tables(parts), candidates, left_out)


def _unite_live(listings: Sequence[ReferenceListing]) -> pa.Table:
    """Return the ledgers that any listing names, each once, with an owner."""
    parts = [
        select_live(listing.references.rows).select([*_KEYS, "owner"]) for listing in listings if listing.references
    ]
    if not parts:
        return pa.schema([*tables.KEY, pa.field("owner", pa.string())]).empty_table()
    rows = pa.concat_tables(parts).group_by(_KEYS).aggregate([("owner", "max")])
    return rows.rename_columns([*_KEYS, "owner"])


def _find_unreferenced(
    sides: Sides, named: pa.Table, listings: tuple[ReferenceListing, ReferenceListing], min_age_ms: int, run: FindingRun
) -> tuple[pa.Table, pa.Table, Counter[str]]:
    """Return the findings of ledgers that nothing names, the keys of those listed twice, and why others are none."""
    first_stored, stored = sides.stored
    left_out: Counter[str] = Counter()
    is_named = _find_among(stored, named)
    asked = _find_among(stored, sides.tombstones) & ~is_named
    unparsable = pc.is_valid(stored["error"]).to_numpy(zero_copy_only=False) & ~is_named & ~asked
    changed = ~_is_unchanged(first_stored, stored) & ~is_named & ~asked & ~unparsable
    left_out[UnsafeReason.REFERENCED] = int(is_named.sum())
    left_out[DELETE_REQUESTED] = int(asked.sum())
    left_out[UnsafeReason.UNPARSABLE] = int(unparsable.sum())
    left_out[UnsafeReason.CHANGED] = int(changed.sum())
    rest = stored.filter(pa.array(~(is_named | asked | unparsable | changed))).combine_chunks()
    ids = zip(rest["scope"].to_pylist(), rest["ledger"].to_pylist(), strict=True)
    wanted = WantedLedgers([LedgerId(*pair) for pair in ids])
    numbers = wanted.find_rows(rest)
    objections = Objections(len(wanted))
    judge_references(wanted, rest.append_column("row", pa.array(numbers)), listings, min_age_ms, objections)
    _, reasons = objections.judge()
    for texts in reasons:
        left_out.update({text.partition(":")[0] for text in texts})
    rest = rest.filter(pa.array([not reasons[number] for number in numbers.tolist()], pa.bool_())).combine_chunks()
    first, second = (listing.at_ms for listing in listings)
    twice = _find_among(rest, sides.known) | (second > first)
    left_out[LISTED_ONCE] = int((~twice).sum())
    findings = make_ledger_findings(
        Category.UNREFERENCED,
        rest.select(_KEYS),
        _state_record(rest, sides, listings, twice),
        run,
        subject="references",
        severity=pc.if_else(pa.array(twice), "warning", "info"),
        unknowns=["whether a client needs it that is in no listing"],
    )
    return findings, rest.select(_KEYS).filter(pa.array(twice)), +left_out


def _state_record(
    rows: pa.Table, sides: Sides, listings: tuple[ReferenceListing, ReferenceListing], twice: Mask
) -> list[FindingStatement]:
    """Return the evidence of ledgers that nothing names."""
    born, copies = find_births(rows), sides.copies
    indexed = copies.filter(pc.is_in(copies["source"], value_set=_HELD)).group_by(_KEYS).aggregate([("entries", "max")])
    places, on = unite([rows, indexed]).rows
    entries = np.full(rows.num_rows, ABSENT)
    entries[places[places != ABSENT]] = on[places != ABSENT]
    times = " and ".join(dict.fromkeys(_show_time(listing.at_ms) for listing in listings))
    return [
        FindingStatement("store", "state", rows["state"], "record"),
        FindingStatement("store", "length", rows["length"], "record"),
        FindingStatement("store", "created", pa.array([_show_time(ms) if ms >= 0 else None for ms in born.tolist()])),
        FindingStatement("store", "made by", read_makers(rows["custom"]), "record"),
        FindingStatement("reference", "named by no listing of", times, "references"),
        FindingStatement("reference", "listed twice", pc.if_else(pa.array(twice), "yes", "not yet")),
        FindingStatement(
            "bookies",
            "entries on one of them, at most",
            indexed["entries_max"].take(pa.array(entries, mask=entries == ABSENT)),
            "inventories",
        ),
        *state_bytes(rows, copies),
        state_last_writes(rows, sides.last_writes),
    ]


def _find_data_alone(sides: Sides, named: pa.Table, run: FindingRun) -> pa.Table:
    """Return the findings of data without a record; critical where an upper layer names the ledger."""
    listed = pa.concat_tables([table.select(_KEYS) for table in sides.stored])
    listed = pa.concat_tables([listed, _select_removed(sides.tombstones)]).group_by(_KEYS).aggregate([])
    earlier = sides.earlier[0] if sides.earlier[0].num_rows else None
    findings = find_unlisted(listed, sides.copies, earlier, run, last_writes=sides.last_writes)
    grave = pa.array(_find_among(findings, named))
    column = findings.schema.get_field_index("severity")
    severity = pc.if_else(grave, "critical", findings["severity"])
    return findings.set_column(column, findings.schema.field(column), severity)


def _find_deleted_outside(sides: Sides, named: pa.Table, run: FindingRun) -> pa.Table:
    """Return the findings of records that went, with who deleted them and when; critical where one is still named."""
    indexed = sides.copies.filter(pc.is_in(sides.copies["source"], value_set=_HELD)).group_by(_KEYS).aggregate([])
    earlier, seen = sides.earlier
    joined = compare(indexed.select(_KEYS), sides.stored[1], earlier, seen, sides.history, has_snapshot=True)
    keys = take_rows(joined.sides, joined.where(*_GONE))
    keys = keys.filter(pa.array(~_find_among(keys, _select_removed(sides.tombstones))))
    # What only bookies and history tell of may have come and gone between two copies.
    owners, places = unite([named, keys]).rows
    owner = np.full(keys.num_rows, ABSENT)
    owner[places[places != ABSENT]] = owners[places != ABSENT]
    unknown = "unknown: no named history has it"
    txn = [unknown if t is None else f"{t} ({to_unsigned(t):#x})" for t in keys["deleted_txn"].to_pylist()]
    session = [None if s is None else f"{to_unsigned(s):#x}" for s in keys["deleted_session"].to_pylist()]
    on = keys["on_bookies"]
    statements = [
        FindingStatement("history", "deleted in transaction", pa.array(txn, pa.string()), "history"),
        FindingStatement("history", "deleted by session", pa.array(session, pa.string()), "history"),
        FindingStatement("history", "deleted at", keys["deleted_at"], "history"),
        FindingStatement(
            "store", "tombstone", "none: not deleted with bkmeta, or its tombstone has expired", "tombstones"
        ),
        FindingStatement(
            "reference", "named by", named["owner"].take(pa.array(owner, mask=owner == ABSENT)), "references"
        ),
        FindingStatement("bookies", "have it", pc.if_else(on, "yes", "no") if len(sides.copies) else "not looked at"),
    ]
    return make_ledger_findings(
        Category.DELETED_OUTSIDE,
        keys.select(_KEYS),
        statements,
        run,
        subject="deletion",
        severity=pc.if_else(pa.array(owner != ABSENT), "critical", "warning"),
        unknowns=["whether it was wanted"],
    )


def _select_removed(tombstones: pa.Table) -> pa.Table:
    return tombstones.filter(tombstones["removed"]).select(_KEYS)


def _find_among(rows: pa.Table, keys: pa.Table) -> Mask:
    """Return which rows have one of some keys; each of both at most once."""
    mask = np.zeros(rows.num_rows, np.bool_)
    places, matches = unite([rows, keys]).rows
    mask[places[(places != ABSENT) & (matches != ABSENT)]] = True
    return mask


def _is_unchanged(earlier: pa.Table, stored: pa.Table) -> Mask:
    """Return which records was in the same version before."""
    old_rows, rows = unite([earlier, stored]).rows
    mask = np.zeros(stored.num_rows, np.bool_)
    stays = (old_rows != ABSENT) & (rows != ABSENT)
    versions: Any = earlier["version"].to_numpy()
    mask[rows[stays]] = versions[old_rows[stays]] == stored["version"].to_numpy()[rows[stays]]
    return mask


def _show_time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")
