"""Three sides of each ledger: bookies, the store now, and the store in a snapshot.

    relation           the store now                the snapshot            what is right
    equal              the same bytes               the same bytes          the store
    moved              other members only                                   the store
    changed            closed, grown, rewritten                             the store
    created            a record                     none                    the store
    store_and_bookies  a record                     not read                the store, as far as nothing disagrees
    store_only         a record, on no bookie       not read                the store
    went_back          an older record                                      earlier
    reused             another ledger under the id                          nobody: a person decides
    unparsable         bytes that cannot be read    a record, or none       earlier, else bookies
    deleted            none, and history shows how  maybe a record          history
    gone               none                         a record; on bookies    earlier
    earlier_only       none                         a record; on no bookie  earlier
    bookies_only       none                         none                    bookies

`earlier` is the stored name of snapshots. Every side is a table of one bucket range, with a ledger at most once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings.categories import Category
from reconcile.findings.table import FindingRun, FindingStatement, make_ledger_findings
from recovery.codecs.ledger_metadata import decode_columns
from recovery.model import tables
from recovery.model.tables import KEY_COLUMNS

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
ABSENT: Final = -1


class Relation(StrEnum):
    """The relation of the three sides of a ledger; stored, so never renamed."""

    EQUAL = "equal"
    MOVED = "moved"
    CHANGED = "changed"
    CREATED = "created"
    STORE_AND_BOOKIES = "store_and_bookies"
    STORE_ONLY = "store_only"
    WENT_BACK = "went_back"
    REUSED = "reused"
    UNPARSABLE = "unparsable"
    DELETED = "deleted"
    GONE = "gone"
    SNAPSHOT_ONLY = "earlier_only"
    BOOKIES_ONLY = "bookies_only"


RIGHT: Final = {
    Relation.EQUAL: "store",
    Relation.MOVED: "store",
    Relation.CHANGED: "store",
    Relation.CREATED: "store",
    Relation.STORE_AND_BOOKIES: "store",
    Relation.STORE_ONLY: "store",
    Relation.WENT_BACK: "earlier",
    Relation.REUSED: "nobody",
    Relation.UNPARSABLE: "earlier",
    Relation.DELETED: "history",
    Relation.GONE: "earlier",
    Relation.SNAPSHOT_ONLY: "earlier",
    Relation.BOOKIES_ONLY: "bookies",
}
"""The side that is right; an unparsable record without a record in a snapshot is the bookies' matter."""

WORDS: Final = {
    Relation.EQUAL: "the store has the same record as the snapshot, byte for byte",
    Relation.MOVED: "the same ledger on other bookies: an ensemble change or re-replication since",
    Relation.CHANGED: "the same ledger further on: closed, grown or written again since",
    Relation.CREATED: "created since the snapshot",
    Relation.STORE_AND_BOOKIES: "in the store and on bookies",
    Relation.STORE_ONLY: "in the store, on no scanned bookie",
    Relation.WENT_BACK: "the store holds an older record than the snapshot: a backup was put over it",
    Relation.REUSED: "another ledger than in the snapshot has this id: other password, digest or ctime",
    Relation.UNPARSABLE: "the store's record cannot be read",
    Relation.DELETED: "deleted, as the store's own history shows",
    Relation.GONE: "in the snapshot and on bookies, not in the store; nothing shows a deletion",
    Relation.SNAPSHOT_ONLY: "in the snapshot only; nothing shows a deletion",
    Relation.BOOKIES_ONLY: "on bookies only: no other source that was read has a record of it",
}

SHORT: Final = {
    Relation.EQUAL: "as in the snapshot",
    Relation.MOVED: "moved since",
    Relation.CHANGED: "changed since",
    Relation.CREATED: "created since",
    Relation.STORE_AND_BOOKIES: "in the store and on bookies",
    Relation.STORE_ONLY: "in the store only",
    Relation.WENT_BACK: "older in the store than in the snapshot",
    Relation.REUSED: "of another ledger than in the snapshot",
    Relation.UNPARSABLE: "that cannot be read",
    Relation.DELETED: "deleted by a client",
    Relation.GONE: "gone from the store",
    Relation.SNAPSHOT_ONLY: "in a snapshot only",
    Relation.BOOKIES_ONLY: "on bookies only",
}
"""Relation → words for it, after a number of ledgers."""

AFTER_SNAPSHOT: Final = "created after the snapshot was taken, or deleted before that"
"""Words for a ledger that only bookies have, if there is a snapshot."""

_CODES: Final = {relation: code for code, relation in enumerate(Relation)}
_DIGITS: Final = 12
_SHOWN: Final = ("state", "last_entry", "digest", "ctime", "password_hash")
"""The fields that distinguish differing records."""
_STATES: Final = ("OPEN", "IN_RECOVERY", "CLOSED")
_CLOSED: Final = _STATES.index("CLOSED")
_SAME_WHERE_MOVED: Final = (
    "state",
    "last_entry",
    "length",
    "ensemble_size",
    "write_quorum",
    "ack_quorum",
    "digest",
    "password_hash",
    "ctime",
    "custom",
)


@dataclass(frozen=True, slots=True, eq=False)
class Union:
    """The ledgers of several tables.

    Attributes:
        keys: the key columns, in key order, each ledger once.
        rows: for each table, the row that each ledger has there, or `ABSENT`.
    """

    keys: pa.Table
    rows: tuple[Rows, ...]


def unite(sides: Sequence[pa.Table]) -> Union:
    """Unite tables by ledger; each has a ledger at most once."""
    counts = [side.num_rows for side in sides]
    columns = [np.concatenate([side[name].to_numpy() for side in sides]) for name in KEY_COLUMNS]
    # Scope 0 is nearly everything: it is not sorted by.
    order = np.lexsort(columns[::-1] if columns[1].any() else [columns[2], columns[0]])
    columns = [column[order] for column in columns]
    new = np.ones(len(order), np.bool_)
    new[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    place = np.empty(len(order), np.int64)
    place[order] = np.cumsum(new) - 1
    rows = []
    start = 0
    for count in counts:
        places = np.full(int(new.sum()), ABSENT, np.int64)
        places[place[start : start + count]] = np.arange(count)
        rows.append(places)
        start += count
    keys = pa.table({name: column[new] for name, column in zip(KEY_COLUMNS, columns, strict=True)})
    return Union(keys, tuple(rows))


def pick_newest_records(catalogs: Sequence[tuple[pa.Table, int | None]]) -> tuple[pa.Table, Rows]:
    """Unite snapshots: each ledger's record from the first that has it.

    Args:
        catalogs: CATALOG_LEDGERS in key order, the newest first, each with the transaction of its capture.

    Returns:
        CATALOG_LEDGERS, and for each row the transaction up to which the record is known to have existed; -1: not
        known.
    """
    if not catalogs:
        return tables.CATALOG_LEDGERS.empty_table(), np.zeros(0, np.int64)
    if len(catalogs) == 1:
        table, txn = catalogs[0]
        return table, np.full(table.num_rows, ABSENT if txn is None else txn, np.int64)
    united = unite([table for table, _ in catalogs])
    start, picked, seen = 0, np.full(united.keys.num_rows, ABSENT, np.int64), np.zeros(united.keys.num_rows, np.int64)
    for (table, txn), rows in zip(catalogs, united.rows, strict=True):
        fresh = (picked == ABSENT) & (rows != ABSENT)
        picked[fresh] = rows[fresh] + start
        seen[fresh] = ABSENT if txn is None else txn
        start += table.num_rows
    records = pa.concat_tables([table for table, _ in catalogs])
    return records.take(pa.array(picked)), seen


def deletions(history: pa.Table) -> pa.Table:
    """Return the last thing that happened to each ledger, where that is its deletion: CATALOG_HISTORY, a row a ledger.

    `before` is the last record that is known of it.

    Args:
        history: of any number of catalogs, in any order.
    """
    if not history.num_rows:
        return history
    names = [*KEY_COLUMNS, "txn"]
    order = np.lexsort([history[name].to_numpy() for name in reversed(names)])
    keys = [history[name].to_numpy()[order] for name in KEY_COLUMNS]
    last = np.ones(len(order), np.bool_)
    last[:-1] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    changes = history.take(pa.array(order[last]))
    return changes.filter(pc.equal(changes["op"], "deleted"))


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """The three sides of all ledgers of a bucket range.

    Attributes:
        sides: SIDES without category and verdict, in key order.
        shown, stored, snapshot, deleted: the row of each ledger in the table of that side, or `ABSENT`.
    """

    sides: pa.Table
    shown: Rows
    stored: Rows
    snapshot: Rows
    deleted: Rows

    def where(self, *relations: Relation) -> Rows:
        """Return the rows of ledgers of these relations."""
        wanted = pc.is_in(self.sides["relation"], pa.array([str(relation) for relation in relations]))
        return np.flatnonzero(wanted.to_numpy())


def compare(
    shown: pa.Table, stored: pa.Table, snapshot: pa.Table, seen: Rows, history: pa.Table, *, has_snapshot: bool
) -> Joined:
    """Return the relation of the three sides of each ledger.

    Args:
        shown: RECONSTRUCTION of the bookies, or its key columns.
        stored: CATALOG_LEDGERS of the store.
        snapshot: CATALOG_LEDGERS of snapshots, from `pick_newest_records`.
        seen: from `pick_newest_records`.
        history: CATALOG_HISTORY of all catalogs.
        has_snapshot: whether there is a snapshot at all.
    """
    gone = deletions(history)
    keys = list(KEY_COLUMNS)
    united = unite([table.select(keys) for table in (shown, stored, snapshot, gone)])
    h, s, e, d = united.rows
    on, is_stored, is_in_snapshot = h != ABSENT, s != ABSENT, e != ABSENT
    # A record that was seen after the deletion was made again.
    deleted = (d != ABSENT) & ~is_stored
    is_known = deleted & is_in_snapshot
    deleted[is_known] &= gone["txn"].to_numpy()[d[is_known]] > seen[e[is_known]]
    relation = np.full(len(h), _CODES[Relation.BOOKIES_ONLY], np.int8)
    relation[~is_stored & is_in_snapshot] = _CODES[Relation.SNAPSHOT_ONLY]
    relation[~is_stored & is_in_snapshot & on] = _CODES[Relation.GONE]
    relation[deleted] = _CODES[Relation.DELETED]
    relation[is_stored] = _CODES[Relation.CREATED if has_snapshot else Relation.STORE_ONLY]
    if not has_snapshot:
        relation[is_stored & on] = _CODES[Relation.STORE_AND_BOOKIES]
    pairs = np.flatnonzero(is_stored & is_in_snapshot)
    relation[pairs] = _relate_pairs((stored, s[pairs]), (snapshot, e[pairs]))
    broken = np.zeros(len(h), np.bool_)
    broken[is_stored] = pc.is_valid(stored["error"]).to_numpy()[s[is_stored]]
    relation[broken] = _CODES[Relation.UNPARSABLE]
    readable = np.zeros(len(h), np.bool_)
    readable[is_in_snapshot] = pc.is_null(snapshot["error"]).to_numpy()[e[is_in_snapshot]]
    right = pa.array([RIGHT[side] for side in Relation]).take(pa.array(relation))
    right = pc.if_else(pa.array(broken & ~readable), "bookies", right)
    of_deleted = pa.array(d, mask=~deleted)
    sides = {
        **{name: united.keys[name] for name in keys},
        "on_bookies": pa.array(on),
        "in_store": pa.array(is_stored),
        "in_earlier": pa.array(is_in_snapshot),
        "relation": pa.array([str(side) for side in Relation]).take(pa.array(relation)),
        "right": right,
        "deleted_txn": gone["txn"].take(of_deleted),
        "deleted_at": gone["at"].take(of_deleted),
        "deleted_session": gone["session"].take(of_deleted),
    }
    return Joined(pa.table(sides), h, s, e, np.where(deleted, d, ABSENT))


def _relate_pairs(*sides: tuple[pa.Table, Rows]) -> npt.NDArray[np.int8]:
    """Return the relation of records that both the store and the snapshot have: some rows of each."""
    relations = np.full(len(sides[0][1]), _CODES[Relation.EQUAL], np.int8)
    # Records are the widest rows there are: of those that are equal nothing else is taken.
    differ = np.flatnonzero(~are_equal(*(side["raw"].take(pa.array(rows)) for side, rows in sides)))
    if len(differ):
        relations[differ] = _relate_differing(*(side.take(pa.array(rows[differ])) for side, rows in sides))
    return relations


def _relate_differing(stored: pa.Table, snapshot: pa.Table) -> npt.NDArray[np.int8]:
    relations = np.full(stored.num_rows, _CODES[Relation.CHANGED], np.int8)
    is_same = np.logical_and.reduce([are_equal(stored[name], snapshot[name]) for name in _SAME_WHERE_MOVED])
    is_placed = are_equal(stored["segments"], snapshot["segments"])
    relations[is_same & ~is_placed] = _CODES[Relation.MOVED]
    # Bytes may differ where one has another name of a bookie.
    are_the_rest = np.logical_and.reduce([are_equal(stored[name], snapshot[name]) for name in ("format", "custom")])
    relations[is_same & is_placed & are_the_rest] = _CODES[Relation.EQUAL]
    ranks = [pc.fill_null(pc.index_in(side["state"], pa.array(_STATES)), -1).to_numpy() for side in (stored, snapshot)]
    # The caller reports an unreadable record, whatever its relation is here.
    back = (ranks[0] < ranks[1]) | ((ranks[1] == _CLOSED) & ~are_equal(stored["last_entry"], snapshot["last_entry"]))
    relations[back] = _CODES[Relation.WENT_BACK]
    other = np.zeros(len(relations), np.bool_)
    for name in ("password_hash", "digest", "ctime"):
        known = pc.and_(pc.is_valid(stored[name]), pc.is_valid(snapshot[name])).to_numpy()
        other |= known & ~are_equal(stored[name], snapshot[name])
    relations[other] = _CODES[Relation.REUSED]
    return relations


def are_equal(left: pa.ChunkedArray, other: pa.ChunkedArray) -> Mask:
    """Compare two columns row by row; two nulls are equal, and so are lists of the same values."""
    if pa.types.is_nested(left.type):
        # Arrow compares no lists: their rows as Python values, only where a record changed.
        pairs = zip(left.to_pylist(), other.to_pylist(), strict=True)
        return np.fromiter((a == b for a, b in pairs), np.bool_, len(left))
    equal = pc.fill_null(pc.equal(left, other), fill_value=False)
    are_null = pc.and_(pc.is_null(left), pc.is_null(other))
    mask: Mask = pc.or_(equal, are_null).to_numpy()
    return mask


def last_records(compared: Joined, snapshot: pa.Table, history: pa.Table, rows: Rows) -> pa.Table:
    """Return the last record before the deletion of each ledger: raw (null if not known), and parsed.

    Args:
        compared: from `compare`.
        snapshot: as given to it.
        history: as given to it.
        rows: of `compared.sides`.
    """
    gone = deletions(history)
    d, e = compared.deleted[rows], compared.snapshot[rows]
    of_history = gone["before"].take(pa.array(d, mask=d == ABSENT))
    of_catalog = snapshot["raw"].take(pa.array(e, mask=e == ABSENT))
    raw = pc.coalesce(of_history, of_catalog).combine_chunks()
    parsed = decode_columns(raw)
    return pa.table({"raw": raw, **{name: parsed[name] for name in parsed.column_names}})


def take_rows(rows: pa.Table, places: npt.NDArray[np.int64]) -> pa.Table:
    """Return some rows; of none, Arrow would still lay out all columns."""
    return rows.take(pa.array(places)) if len(places) else rows.schema.empty_table()


def find_other_records(
    compared: Joined, stored: pa.Table, snapshot: pa.Table, run: FindingRun, store: str, source: str
) -> pa.Table:
    """Return a finding for each record that went back (STORE_WENT_BACK), or is another ledger's (ID_REUSE).

    Args:
        compared: the sides of a bucket range.
        stored: CATALOG_LEDGERS of the store, as it was compared.
        snapshot: the same of the snapshot.
        run: this one.
        store: source of the store's records.
        source: source of the snapshot's records.
    """
    parts = []
    for relation, category in ((Relation.REUSED, Category.ID_REUSE), (Relation.WENT_BACK, Category.STORE_WENT_BACK)):
        places = compared.where(relation)
        current, earlier = take_rows(stored, compared.stored[places]), take_rows(snapshot, compared.snapshot[places])
        statements = [
            FindingStatement(side, name, _describe_column(rows, name), where)
            for name in _SHOWN
            for side, rows, where in (("store", current, store), ("earlier", earlier, source))
        ]
        keys = take_rows(compared.sides, places)
        parts.append(make_ledger_findings(category, keys, statements, run, subject="record"))
    return pa.concat_tables(parts)


def _describe_column(rows: pa.Table, name: str) -> Any:  # noqa: ANN401 - an Arrow column
    if name != "password_hash":
        return rows[name]
    return pa.array(
        [None if value is None else f"key {value.hex()[:_DIGITS]}…" for value in rows[name].to_pylist()], pa.string()
    )
