"""What a person can choose in place of what a plan writes by itself."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.compare.three_way import Range
from reconcile.plan.actions import Passwords, in_order, ledger_actions, left_alone
from reconcile.plan.plan_hash import with_ids
from reconcile.rules import holds, sides
from reconcile.rules.sides import Relation, _take
from recovery.codecs.ledger_metadata import decode_columns
from recovery.codecs.store import Layout
from recovery.infer.refusal import Refusal
from recovery.model import tables

RESTORE: Final = "restore"
"""Label of the alternative that is the last record that anything had."""


def offered(one: Range, layout: Layout, passwords: Passwords, actions: pa.Table) -> tuple[pa.Table, int]:
    """Return the actions with what a person can choose instead, and how many more they are.

    For what was deleted, is held by the plan or in the store, or is in an earlier catalog alone, its last record; for
    what cannot be read, the earlier one; for all, what bookies show. Where the plan writes nothing, an action that
    writes nothing carries them.

    Args:
        one: the range, settled.
        layout: of the target.
        passwords: as of the plan.
        actions: ACTIONS of the range, in their order.
    """
    keys = list(tables.KEY_COLUMNS)
    found = [actions]
    deleted, unparsable = (one.compared.where(relation) for relation in (Relation.DELETED, Relation.UNPARSABLE))
    deleted = np.union1d(deleted, _deleted_by_owner(one))
    proposed = actions.filter(pc.equal(actions["op"], "hold")).select(keys)
    place, hold = sides.unite([one.compared.sides.select(keys), proposed]).rows
    now = one.compared.stored
    is_held = np.zeros(len(now), np.bool_)
    is_held[now != sides.ABSENT] = holds.is_hold(one.stored)[now[now != sides.ABSENT]]
    is_held[place[(place != sides.ABSENT) & (hold != sides.ABSENT)]] = True
    held = np.setdiff1d(np.flatnonzero(is_held), np.append(deleted, unparsable))
    left_out = np.setdiff1d(one.left_out(), deleted)
    for at in (deleted, unparsable, held, left_out):
        if not len(at):
            continue
        records = sides.last_records(one.compared, one.earlier, one.history, at)
        bad = pc.or_(pc.is_valid(records["error"]), pa.array(holds.is_hold(records)))
        raw = pc.if_else(bad, pa.scalar(None, pa.binary()), records["raw"]).combine_chunks()
        shown = _shown_records(one, layout, passwords, at)
        readings = [
            (RESTORE, raw, reads_as(records)),
            (FROM_BOOKIES, shown, reads_as(decode_columns(shown))),
        ]
        choices = alternatives(len(at), readings)
        mine, written = sides.unite([_take(one.compared.sides, at).select(keys), found[0].select(keys)]).rows
        both = (mine != sides.ABSENT) & (written != sides.ABSENT)
        found[0] = with_alternatives(found[0], written[both], choices.take(pa.array(mine[both])))
        alone = np.sort(mine[(mine != sides.ABSENT) & (written == sides.ABSENT)])
        if at is held or at is left_out:
            # Of the store's holds, and of what nothing becomes, those that another record is known of.
            alone = alone[pc.list_value_length(choices).to_numpy()[alone] > 0]
        instead = None
        if at is not deleted and at is not left_out:
            instead = _take(one.stored, one.compared.stored[at[alone]]).select(["version", "raw"])
        left = left_alone(_take(one.compared.sides, at[alone]), layout, choices.take(pa.array(alone)), instead=instead)
        found.append(left)
    more = sum(table.num_rows for table in found[1:])
    return (in_order(found) if more else found[0]), more


def _deleted_by_owner(one: Range) -> npt.NDArray[np.int64]:
    """Return the rows of the join that an upper layer deleted, and that the store lacks."""
    held = one.compared.held
    reasons = pc.fill_null(pc.equal(one.rows["reason"], str(Refusal.DELETED_BY_REFERENCE)), fill_value=False).to_numpy()
    on = held != sides.ABSENT
    by_owner = np.zeros(len(held), np.bool_)
    by_owner[on] = reasons[held[on]]
    return np.flatnonzero(by_owner & (one.compared.stored == sides.ABSENT))


def _shown_records(one: Range, layout: Layout, passwords: Passwords, at: npt.NDArray[np.int64]) -> pa.Array:
    """Return, of rows of the join, the record that bookies show; null where they do not settle one."""
    held = one.compared.held[at]
    rows = one.shown.take(pa.array(held[held != sides.ABSENT]))
    # What an upper layer deleted keeps the record that it would have had.
    restored = pc.and_(
        pc.is_in(rows["outcome"], pa.array(["restored", "deleted"])), pc.is_valid(rows["state"])
    ).to_numpy()
    made = rows.filter(pa.array(restored))
    column = made.schema.get_field_index("outcome")
    outcome = pa.array(["restored"] * made.num_rows, pa.string())
    made = made.set_column(column, made.schema.field(column), outcome)
    made = ledger_actions(made, layout, passwords, b"")["value"].combine_chunks()
    place = np.full(len(at), sides.ABSENT)
    place[np.flatnonzero(held != sides.ABSENT)[restored]] = np.arange(len(made))
    return made.take(pa.array(place, mask=place == sides.ABSENT))


FROM_BOOKIES: Final = "from bookies"
"""Label of the alternative that is the record that bookies show, where something else speaks against it."""


def alternatives(rows: int, readings: Sequence[tuple[str, pa.Array, pa.Array]]) -> pa.Array:
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
    value = pa.concat_arrays([one.cast(pa.binary()) for _, one, _ in readings]).take(order)
    reads_as = pa.concat_arrays([one.cast(pa.string()) for _, _, one in readings]).take(order)
    label = pa.concat_arrays([pa.array([name] * rows, pa.string()) for name, _, _ in readings]).take(order)
    there = pc.is_valid(value)
    columns = {"label": label, "value": value, "reads_as": pc.fill_null(reads_as, "")}
    structs = pa.StructArray.from_arrays([columns[one.name].filter(there) for one in item], fields=list(item))
    counts = there.to_numpy(zero_copy_only=False).reshape(rows, len(readings)).sum(axis=1)
    return pa.ListArray.from_arrays(pa.array(np.r_[0, np.cumsum(counts)], pa.int32()), structs, type=kind)


def with_alternatives(actions: pa.Table, rows: npt.NDArray[np.int64], alternatives: pa.Array) -> pa.Table:
    """Return actions, some of which get the given alternatives, a list for each of these rows."""
    if not len(rows):
        return actions
    at = tables.ACTIONS.get_field_index("alternatives")
    place = np.arange(actions.num_rows)
    place[rows] = actions.num_rows + np.arange(len(rows))
    both = pa.concat_arrays([actions["alternatives"].combine_chunks(), alternatives])
    return with_ids(actions.set_column(at, tables.ACTIONS.field(at), both.take(pa.array(place))))


def reads_as(parsed: pa.Table) -> pa.Array:
    """Say in words what readers would see of records; columns as `ledger_metadata.decode_columns` gives them."""
    entries = pc.cast(pc.add(parsed["last_entry"], 1), pa.string())
    shape = pc.binary_join_element_wise(
        *(pc.cast(parsed[name], pa.string()) for name in ("ensemble_size", "write_quorum", "ack_quorum")), "/"
    )
    entries = pc.coalesce(pc.binary_join_element_wise(entries, " entries", ""), pa.scalar("open"))
    said = pc.binary_join_element_wise(parsed["state"], entries, shape, ", ")
    filled = pc.fill_null(said, "cannot be read")
    return filled.combine_chunks() if isinstance(filled, pa.ChunkedArray) else filled
