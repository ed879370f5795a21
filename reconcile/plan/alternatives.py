"""What a person can choose in place of what a plan writes by itself."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.compare.three_way import Range
from reconcile.plan.actions import Passwords, make_leave_actions, make_ledger_actions, number_actions
from reconcile.plan.plan_hash import with_ids
from reconcile.rules import holds, sides
from reconcile.rules.sides import Relation, take_rows
from recovery.codecs.ledger_metadata import decode_columns
from recovery.codecs.store import Layout
from recovery.infer.refusal import Refusal
from recovery.model import tables

RESTORE: Final = "restore"
"""Label of the alternative that is the last record that anything had."""


def offer_alternatives(part: Range, layout: Layout, passwords: Passwords, actions: pa.Table) -> tuple[pa.Table, int]:
    """Return the actions with what a person can choose instead, and how many more they are.

    For what was deleted, is held by the plan or in the store, or is in a snapshot alone, its last record; for
    what cannot be read, the earlier one; for all, what bookies show. Where the plan writes nothing, an action that
    writes nothing carries them.

    Args:
        part: the range, settled.
        layout: of the target.
        passwords: as of the plan.
        actions: ACTIONS of the range, in their order.
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
    for places in (deleted, unparsable, held_rows, left_out):
        if not len(places):
            continue
        records = sides.last_records(part.compared, part.snapshot, part.history, places)
        bad = pc.or_(pc.is_valid(records["error"]), pa.array(holds.is_hold(records)))
        raw = pc.if_else(bad, pa.scalar(None, pa.binary()), records["raw"]).combine_chunks()
        readings = [(RESTORE, raw, describe_records(records))]
        for label, outcomes in ((FROM_BOOKIES, ["restored", "deleted"]), (GUARDED, ["guarded"])):
            shown = _encode_shown(part, layout, passwords, places, outcomes)
            readings.append((label, shown, describe_records(decode_columns(shown))))
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


def _find_deleted_by_owner(part: Range) -> npt.NDArray[np.int64]:
    """Return the rows of the join that an upper layer deleted, and that the store lacks."""
    shown = part.compared.shown
    reasons = pc.fill_null(
        pc.equal(part.rows["reason"], str(Refusal.DELETED_BY_REFERENCE)), fill_value=False
    ).to_numpy()
    on = shown != sides.ABSENT
    by_owner = np.zeros(len(shown), np.bool_)
    by_owner[on] = reasons[shown[on]]
    return np.flatnonzero(by_owner & (part.compared.stored == sides.ABSENT))


def _encode_shown(
    part: Range, layout: Layout, passwords: Passwords, places: npt.NDArray[np.int64], outcomes: Sequence[str]
) -> pa.Array:
    """Return, of rows of the join with these outcomes, the record that bookies show; null where they give none."""
    shown = part.compared.shown[places]
    rows = part.shown.take(pa.array(shown[shown != sides.ABSENT]))
    # What an upper layer deleted keeps the record that it would have had.
    restored = pc.and_(pc.is_in(rows["outcome"], pa.array(outcomes)), pc.is_valid(rows["state"])).to_numpy()
    made = rows.filter(pa.array(restored))
    column = made.schema.get_field_index("outcome")
    outcome = pa.array(["restored"] * made.num_rows, pa.string())
    made = made.set_column(column, made.schema.field(column), outcome)
    made = make_ledger_actions(made, layout, passwords, b"")["value"].combine_chunks()
    place = np.full(len(places), sides.ABSENT)
    place[np.flatnonzero(shown != sides.ABSENT)[restored]] = np.arange(len(made))
    return made.take(pa.array(place, mask=place == sides.ABSENT))


FROM_BOOKIES: Final = "from bookies"
"""Label of the alternative that is the record that bookies show, where something else speaks against it."""
GUARDED: Final = "guarded"
"""Label of the alternative by which all that bookies show is readable, under a lock that keeps every copy."""


def list_alternatives(rows: int, readings: Sequence[tuple[str, pa.Array, pa.Array]]) -> pa.Array:
    """Return a list of alternatives for each row.

    Args:
        rows: how many.
        readings: label, bytes (null: this row has no such alternative) and in words, of each.
    """
    kind = tables.ACTIONS.field("alternatives").type
    item = kind.value_type
    if not readings or not rows:
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
    filled = pc.fill_null(texts, "cannot be read")
    return filled.combine_chunks() if isinstance(filled, pa.ChunkedArray) else filled
