"""What a person can choose in place of what a plan writes by itself."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.compare.outcomes import guard_beyond_locks
from reconcile.compare.three_way import ComparedRange
from reconcile.errors import PlanError
from reconcile.plan.actions import Guard, Passwords, make_leave_actions, make_ledger_actions, number_actions
from reconcile.plan.plan_hash import with_ids
from reconcile.rules import holds, sides
from reconcile.rules.sides import Relation, take_rows
from recovery.codecs import ledger_metadata
from recovery.codecs.ledger_metadata import decode_columns
from recovery.codecs.store import Layout
from recovery.codecs.store_kind import kind_of
from recovery.dataset import sort_by_key
from recovery.infer.refusal import Refusal
from recovery.model import tables
from recovery.model.ids import LedgerId

RESTORE: Final = "restore"
"""Label of the alternative that is the last record that anything had."""
FROM_BOOKIES: Final = "from bookies"
"""Label of the alternative that is the record that bookies show, where something else speaks against it."""
GUARDED: Final = "guarded"
"""Label of the alternative by which all that bookies show is readable, under a lock that keeps every copy."""
GUARDED_BY_NAMES: Final = "guarded by names"
"""The same where the store has no locks: the record names all who may have any, and replication stays disabled."""
_OTHER: Final = ", other key"
"""Behind the label of a guarded alternative: by the copies that have another key than most."""
_UNSERVED: Final = " entries that nobody serves"
_NUMBER: Final = re.compile(r"-?[0-9]+")
_STATED_DELETIONS: Final = [str(Refusal.DELETED_BY_REFERENCE), str(Refusal.DELETED_BY_TOMBSTONE)]
_NUMBERS: Final = frozenset({"length", "last_entry"})
_COST: Final = re.compile(rf"([0-9]+){_UNSERVED}")
GUARDS: Final = {
    label + other: guard
    for label, guard in ((GUARDED, Guard.LOCK), (GUARDED_BY_NAMES, Guard.NAMED))
    for other in ("", _OTHER)
}
"""The guard that a chosen alternative needs, by its label."""


def offer_alternatives(
    part: ComparedRange,
    layout: Layout,
    passwords: Passwords,
    actions: pa.Table,
    copies: pa.Table,
    list_hiding: Callable[[], Sequence[str] | None] = lambda: None,
) -> tuple[pa.Table, int]:
    """Return the actions with what a person can choose instead, and how many more they are.

    For what was deleted, is held by the plan or in the store, or is in a snapshot alone, its last record; for
    what cannot be read, the earlier one; for all, what bookies show, and under a guard what they show of ledgers whose
    content is in doubt. Where the plan writes nothing, an action that writes nothing carries them.

    Args:
        part: the range, settled.
        layout: of the target.
        passwords: as of the plan.
        actions: ACTIONS of the range, in their order.
        copies: COPIES of the range.
        list_hiding: returns all bookies that may have more than was seen; None: not all of them are known.
    """
    keys = list(tables.KEY_COLUMNS)
    tables_of_actions = [actions]
    deleted, unparsable = (part.compared.where(relation) for relation in (Relation.DELETED, Relation.UNPARSABLE))
    deleted = np.union1d(deleted, _find_deleted_by_owner(part))
    proposed = actions.filter(pc.equal(actions["op"], "hold")).select(keys)
    place, hold = sides.unite([part.compared.sides.select(keys), proposed]).rows
    stored = part.compared.stored
    is_held = np.zeros(len(stored), np.bool_)
    is_held[stored != sides.ABSENT] = holds.is_hold(part.stored)[stored[stored != sides.ABSENT]]
    is_held[place[(place != sides.ABSENT) & (hold != sides.ABSENT)]] = True
    held_rows = np.setdiff1d(np.flatnonzero(is_held), np.append(deleted, unparsable))
    left_out = np.setdiff1d(part.find_left_out(), deleted)
    choosable = [places for places in (deleted, unparsable, held_rows, left_out) if len(places)]
    if not choosable:
        return actions, 0
    # Records are encoded of these ledgers alone.
    shown = part.compared.shown[np.unique(np.concatenate(choosable))]
    own = take_rows(part.shown, shown[shown != sides.ABSENT])
    offers = _make_offers(own, part.doubted, layout, passwords, copies, list_hiding)
    for places in choosable:
        records = sides.last_records(part.compared, part.snapshot, part.history, places)
        bad = pc.or_(pc.is_valid(records["error"]), pa.array(holds.is_hold(records)))
        raw = pc.if_else(bad, pa.scalar(None, pa.binary()), records["raw"]).combine_chunks()
        readings = [(RESTORE, raw, describe_records(records))]
        key_rows = take_rows(part.compared.sides, places).select(keys)
        readings += [offer.pick(key_rows) for offer in offers]
        choices = list_alternatives(len(places), readings)
        places_in_order, written = sides.unite(
            [take_rows(part.compared.sides, places).select(keys), tables_of_actions[0].select(keys)]
        ).rows
        is_written = (places_in_order != sides.ABSENT) & (written != sides.ABSENT)
        tables_of_actions[0] = with_alternatives(
            tables_of_actions[0], written[is_written], choices.take(pa.array(places_in_order[is_written]))
        )
        alone = np.sort(places_in_order[(places_in_order != sides.ABSENT) & (written == sides.ABSENT)])
        if places is held_rows or places is left_out:
            # Of the store's holds, and of what nothing becomes, those that another record is known of.
            alone = alone[pc.list_value_length(choices).to_numpy()[alone] > 0]
        instead = None
        if places is not deleted and places is not left_out:
            instead = take_rows(part.stored, part.compared.stored[places[alone]]).select(["version", "raw"])
        left = make_leave_actions(
            take_rows(part.compared.sides, places[alone]), layout, choices.take(pa.array(alone)), instead=instead
        )
        tables_of_actions.append(left)
    count = sum(table.num_rows for table in tables_of_actions[1:])
    return (number_actions(tables_of_actions) if count else tables_of_actions[0]), count


def _find_deleted_by_owner(part: ComparedRange) -> npt.NDArray[np.int64]:
    """Return the rows of the join that an upper layer deleted, or bkmeta, and that the store lacks."""
    shown = part.compared.shown
    reasons = pc.is_in(part.rows["reason"], pa.array(_STATED_DELETIONS)).to_numpy()
    on = shown != sides.ABSENT
    by_owner = np.zeros(len(shown), np.bool_)
    by_owner[on] = reasons[shown[on]]
    return np.flatnonzero(by_owner & (part.compared.stored == sides.ABSENT))


@dataclass(frozen=True, slots=True)
class _Offer:
    """One alternative, of the ledgers that have it.

    Attributes:
        label: of it.
        ledgers: key columns.
        values: its bytes.
        texts: what readers would see.
    """

    label: str
    ledgers: pa.Table
    values: pa.Array
    texts: pa.Array

    def pick(self, ledgers: pa.Table) -> tuple[str, pa.Array, pa.Array]:
        """Return label, bytes and words of some ledgers, null for those that have no such alternative."""
        wanted, own = sides.unite([ledgers, self.ledgers]).rows
        place = np.full(ledgers.num_rows, sides.ABSENT)
        both = (wanted != sides.ABSENT) & (own != sides.ABSENT)
        place[wanted[both]] = own[both]
        places = pa.array(place, mask=place == sides.ABSENT)
        return self.label, self.values.take(places), self.texts.take(places)


def _make_offers(
    shown: pa.Table,
    doubted: Sequence[pa.Table],
    layout: Layout,
    passwords: Passwords,
    copies: pa.Table,
    list_hiding: Callable[[], Sequence[str] | None],
) -> list[_Offer]:
    """Return what bookies show of ledgers, as records that a person can choose.

    What an upper layer deleted keeps the record that it would have had. Where a store has no locks, guarded ones name
    everybody; those that cannot are not offered.
    """
    outcome = shown["outcome"]
    plain = shown.filter(pc.is_in(outcome, pa.array(["restored", "deleted"])))
    guarded = [
        pa.concat_tables([shown.filter(pc.equal(outcome, "guarded")), *doubted[:1]]),
        *doubted[1:],
    ]
    offers = [_encode_offer(FROM_BOOKIES, plain, layout, passwords)]
    for rows, other in zip(guarded, ("", _OTHER), strict=False):
        label, readable = GUARDED, _set_outcome(rows, "guarded")
        if not kind_of(layout).has_replication:
            label = GUARDED_BY_NAMES
            readable, named = guard_beyond_locks(
                sort_by_key(readable), np.arange(rows.num_rows), 0, list_hiding, copies
            )
            readable = readable.filter(pa.array(named))
        offers.append(_encode_offer(label + other, readable, layout, passwords))
    return offers


def _encode_offer(label: str, rows: pa.Table, layout: Layout, passwords: Passwords) -> _Offer:
    made = sort_by_key(_set_outcome(rows.filter(pc.is_valid(rows["state"])), "restored"))
    values = make_ledger_actions(made, layout, passwords, b"")["value"].combine_chunks()
    texts = describe_records(decode_columns(values))
    if label != FROM_BOOKIES:
        costs = (holds.count_holes(made), _UNSERVED), (made["extra"], " copies not named")
        texts = pc.binary_join_element_wise(
            texts,
            *(pc.binary_join_element_wise(pc.cast(c, pa.string()), pa.scalar(said), "") for c, said in costs),
            ", ",
        )
    texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    return _Offer(label, made.select(list(tables.KEY_COLUMNS)), values, texts)


def _set_outcome(rows: pa.Table, outcome: str) -> pa.Table:
    column = rows.schema.get_field_index("outcome")
    return rows.set_column(column, rows.schema.field(column), pa.array([outcome] * rows.num_rows, pa.string()))


def count_readable(record: bytes, reads_as: str, highest: int) -> int:
    """Return how many entries an alternative reads.

    Args:
        record: its bytes.
        reads_as: its words, which say how many entries nobody serves.
        highest: the highest entry on a bookie: the end of a record that is not closed.
    """
    end = ledger_metadata.decode(record).last_entry
    unserved = _COST.search(reads_as)
    return (highest if end is None else end) + 1 - (int(unserved[1]) if unserved else 0)


def list_alternatives(rows: int, readings: Sequence[tuple[str, pa.Array, pa.Array]]) -> pa.Array:
    """Return a list of alternatives for each row.

    Args:
        rows: how many.
        readings: label, bytes (null: this row has no such alternative) and in words, of each.
    """
    kind = tables.ACTIONS.field("alternatives").type
    item = kind.value_type
    if not readings:
        return pa.array([[]] * rows, kind)
    order = pa.array((np.arange(rows)[:, None] + np.arange(len(readings))[None, :] * rows).ravel())
    value = pa.concat_arrays([column.cast(pa.binary()) for _, column, _ in readings]).take(order)
    reads_as = pa.concat_arrays([column.cast(pa.string()) for _, _, column in readings]).take(order)
    label = pa.concat_arrays([pa.array([name] * rows, pa.string()) for name, _, _ in readings]).take(order)
    is_valid = pc.is_valid(value)
    columns = {"label": label, "value": value, "reads_as": pc.fill_null(reads_as, "")}
    structs = pa.StructArray.from_arrays([columns[column.name].filter(is_valid) for column in item], fields=list(item))
    counts = is_valid.to_numpy(zero_copy_only=False).reshape(rows, len(readings)).sum(axis=1)
    return pa.ListArray.from_arrays(pa.array(np.r_[0, np.cumsum(counts)], pa.int32()), structs, type=kind)


def with_alternatives(actions: pa.Table, rows: npt.NDArray[np.int64], alternatives: pa.Array) -> pa.Table:
    """Return actions, some of which get the given alternatives, a list for each of these rows."""
    if not len(rows):
        return actions
    index = tables.ACTIONS.get_field_index("alternatives")
    place = np.arange(actions.num_rows)
    place[rows] = actions.num_rows + np.arange(len(rows))
    united = pa.concat_arrays([actions["alternatives"].combine_chunks(), alternatives])
    return with_ids(actions.set_column(index, tables.ACTIONS.field(index), united.take(pa.array(place))))


def describe_records(parsed: pa.Table) -> pa.Array:
    """Say in words what readers would see of records; columns as `ledger_metadata.decode_columns` gives them."""
    entries = pc.cast(pc.add(parsed["last_entry"], 1), pa.string())
    shape = pc.binary_join_element_wise(
        *(pc.cast(parsed[name], pa.string()) for name in ("ensemble_size", "write_quorum", "ack_quorum")), "/"
    )
    entries = pc.coalesce(pc.binary_join_element_wise(entries, " entries", ""), pa.scalar("no end yet"))
    texts = pc.binary_join_element_wise(parsed["state"], entries, shape, ", ")
    return pc.fill_null(texts, "cannot be read").combine_chunks()


def find_guard(label: str) -> str | None:
    """Return the guard that an alternative needs."""
    guard = GUARDS.get(label)
    return None if guard is None else str(guard)


def read_numbers(reconstruction: pa.Table, ledgers: set[LedgerId]) -> dict[LedgerId, dict[str, tuple[str, int]]]:
    """Return the alternatives of some ledgers that are one number of their record: label → field, value."""
    readings: dict[LedgerId, dict[str, tuple[str, int]]] = {}
    if not ledgers:
        return readings
    for row in reconstruction.select(["scope", "ledger", "alternatives"]).to_pylist():
        ledger = LedgerId(row["scope"], row["ledger"])
        if ledger in ledgers:
            readings[ledger] = {
                f"{other['field']}={other['value']}": (other["field"], int(other["value"]))
                for other in row["alternatives"]
                if other["field"] in _NUMBERS and _NUMBER.fullmatch(other["value"])
            }
    return readings


def pick_value(ledger: LedgerId, label: str, values: Mapping[str, bytes]) -> tuple[bytes, int]:
    """Return the bytes of an alternative, and its number."""
    if label not in values:
        if not values:
            raise PlanError(str(ledger), "has no alternative", f"see what would settle it: bkmeta explain {ledger}")
        labels = ", ".join(values)
        raise PlanError(str(ledger), f"has no alternative {label!r} (it has: {labels})", "choose one of them")
    return values[label], 1 + list(values).index(label)


def list_values(row: Mapping[str, Any], readings: Mapping[str, tuple[str, int]]) -> dict[str, bytes]:
    """Return what an action could write instead, by label."""
    values = {other["label"]: other["value"] for other in row["alternatives"]}
    base = values.get(FROM_BOOKIES) if row["op"] == "hold" else row["value"]
    if base is not None:
        record = ledger_metadata.decode(base)
        for label, (name, number) in readings.items():
            other = replace(record, length=number) if name == "length" else replace(record, last_entry=number)
            values.setdefault(label, ledger_metadata.encode(other))
    return values


def find_words(row: Mapping[str, Any], label: str) -> str:
    """Return what an action says about an alternative, or nothing."""
    return next((str(other["reads_as"]) for other in row["alternatives"] if other["label"] == label), "")
