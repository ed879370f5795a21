"""Entries that a bookie's index lists and its disks lost: damage that hides only these, if other bookies serve them.

A torn entry log takes entries of many ledgers, and the index still lists each of them. So all that is hidden of such a
ledger on that bookie is known by entry. Where other bookies serve each of these, and with them put back where they were
the copies are clean ensembles, nothing of the ledger is in doubt: its record is what it was, and copies are missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recovery.infer import facts
from recovery.infer.copies import LOST, Ints, Mask
from recovery.infer.facts import LedgerFacts
from recovery.infer.lost_disks import list_explained
from recovery.infer.prior import PriorShape
from recovery.infer.shape_fit import CLEAN, explain
from recovery.model.groups import KeyedGroups, count, difference_runs, from_arrow, run_counts, to_runs

_ID: Final = ["scope", "ledger"]
_PAIR: Final = [*_ID, "bookie"]
_BOUNDED: Final = ("ledger", "unlisted")
"""Kinds of damage that hide nothing of what an index lists."""
_MOST_RUNS: Final = 2_000_000
"""Runs of entries that are laid out for one row."""


@dataclass(frozen=True, slots=True)
class SettledEntries:
    """Inventories, and the part of their damage that hides nothing.

    Attributes:
        copies: COPIES; of settled ledgers with the entries where they were lost.
        harmless: which rows of DAMAGE hide such entries, and no others.
        lost: scope and ledger of these rows, and how many entries each hides.
    """

    copies: pa.Table
    harmless: Mask
    lost: pa.Table

    def count_lost(self, known: LedgerFacts) -> Ints:
        """Return how many copies of each ledger were put back that no bookie has."""
        counts = np.zeros(known.count, np.int64)
        numbered = pa.table({"scope": known.scope, "ledger": known.ledger, "number": np.arange(known.count)})
        found = self.lost.join(numbered, _ID, join_type="inner")
        np.add.at(counts, found["number"].to_numpy(), found["lost"].to_numpy())
        return counts


def settle_entries(
    copies: pa.Table, bookies: pa.Table, damage: pa.Table, shapes: Sequence[PriorShape], tolerances: Sequence[int]
) -> SettledEntries:
    """Find ledgers with hidden entries that other bookies serve, all of them.

    Args:
        copies: COPIES of whole ledgers.
        bookies: BOOKIES of all inventories.
        damage: DAMAGE of all inventories, of these ledgers or of more.
        shapes: of the prior.
        tolerances: of each shape, the most unseen bookies with which it cannot be a wider shape.
    """
    harmless = np.zeros(damage.num_rows, np.bool_)
    nothing = SettledEntries(copies, harmless, pa.table({name: pa.array([], pa.int64()) for name in (*_ID, "lost")}))
    if damage["entries"].null_count == damage.num_rows:
        return nothing
    listed, named = _list_named(bookies, damage)
    rows = copies.select([*_PAIR, "source", "groups"]).append_column("row", pa.array(np.arange(copies.num_rows)))
    is_strong = _mark_strong(copies, bookies)
    index, weak = rows.filter(pc.equal(rows["source"], "index")), rows.filter(pa.array(~is_strong))
    sound = listed.filter(pa.array(_mark_covered(listed, rows.filter(pa.array(is_strong)), is_of_others=True)))
    # Logs and old journals of that bookie may have the same entries, and no others; its index knows the ledger.
    weak = weak.take(pa.array(_find_rows(weak, sound, _PAIR)))
    doubts = [
        named.filter(pc.invert(pc.is_in(named["place"], value_set=sound["place"].combine_chunks()))),
        weak.filter(pa.array(~_mark_covered(weak, sound, is_of_others=False))),
        sound.take(pa.array(np.setdiff1d(np.arange(sound.num_rows), _find_rows(sound, index, _PAIR)))),
    ]
    for doubt in doubts:
        kept = np.setdiff1d(np.arange(sound.num_rows), _find_rows(sound, doubt, _ID))
        sound = sound.take(pa.array(kept))
    if not sound.num_rows:
        return nothing
    tried = _put_back(copies.take(pa.array(_find_rows(rows, sound, _ID))), sound)
    known = facts.read(tried, bookies)
    explained = explain(known, shapes, np.ones(known.count, np.bool_), tolerances, 0)
    clean = np.flatnonzero((explained.path == CLEAN) & (explained.extra == 0))
    settled = pa.table({"scope": known.scope[clean], "ledger": known.ledger[clean]})
    sound = sound.take(pa.array(_find_rows(sound, settled, _ID)))
    harmless[sound["place"].to_numpy()] = True
    others = np.setdiff1d(np.arange(copies.num_rows), _find_rows(rows, settled, _ID))
    settled_rows = tried.take(pa.array(_find_rows(tried, settled, _ID)))
    groups = from_arrow(sound["groups"])
    lost = np.bincount(groups.key, count(*groups[1:]), sound.num_rows).astype(np.int64)
    return SettledEntries(
        pa.concat_tables([copies.take(pa.array(others)), settled_rows]),
        harmless,
        sound.select(_ID).append_column("lost", pa.array(lost)),
    )


def _list_named(bookies: pa.Table, damage: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return rows of damage that list all they hide, on bookies that hide nothing else; and all rows with a ledger."""
    hiding = damage.append_column("place", pa.array(np.arange(damage.num_rows))).filter(damage["hides_entries"])
    is_bounded = pc.fill_null(pc.is_in(hiding["hides"], value_set=pa.array(_BOUNDED)), fill_value=False)
    loose = hiding.filter(pc.invert(is_bounded))["bookie"].combine_chunks()
    whole = pa.array(list_explained(bookies, hiding), pa.string())
    named = hiding.filter(pc.is_valid(hiding["ledger"]))
    named = named.set_column(named.column_names.index("scope"), "scope", pc.fill_null(named["scope"], 0))
    named = named.select([*_PAIR, "place", "entries"]).rename_columns([*_PAIR, "place", "groups"])
    is_listed = pc.and_(pc.is_valid(named["groups"]), pc.is_in(named["bookie"], value_set=whole))
    return named.filter(pc.and_not(is_listed, pc.is_in(named["bookie"], value_set=loose))), named


def _mark_strong(copies: pa.Table, bookies: pa.Table) -> Mask:
    """Mark rows that their bookies serve, or will serve after a start."""
    dirty = bookies.filter(pc.fill_null(bookies["dirty"], fill_value=True))["bookie"].combine_chunks()
    is_replayed = pc.and_(pc.equal(copies["source"], "journal"), pc.is_in(copies["bookie"], value_set=dirty))
    strong: Mask = pc.or_(pc.is_in(copies["source"], value_set=pa.array(["index", "wire"])), is_replayed).to_numpy()
    return strong


def _find_rows(rows: pa.Table, among: pa.Table, keys: list[str]) -> Ints:
    """Return the places of the rows with keys in another table."""
    numbered = rows.select(keys).append_column("number", pa.array(np.arange(rows.num_rows)))
    return np.sort(numbered.join(among.select(keys), keys, join_type="left semi")["number"].to_numpy())


def _mark_covered(parts: pa.Table, covers: pa.Table, *, is_of_others: bool) -> Mask:
    """Mark the parts with each entry in some cover of the ledger, on the same bookie or on others."""
    numbered = parts.select(_PAIR).append_column("part", pa.array(np.arange(parts.num_rows)))
    holders = covers.select(_PAIR).rename_columns([*_ID, "holder"])
    pairs = numbered.join(holders.append_column("cover", pa.array(np.arange(covers.num_rows))), _ID, join_type="inner")
    is_other = pc.not_equal(pairs["bookie"], pairs["holder"])
    pairs = pairs.filter(is_other if is_of_others else pc.invert(is_other))
    own, covering = from_arrow(parts["groups"]), from_arrow(covers["groups"].take(pairs["cover"]))
    covering = covering._replace(key=pairs["part"].to_numpy()[covering.key])
    laid_out = [(groups.key, run_counts(groups.first, groups.last, groups.period)) for groups in (own, covering)]
    keys, runs = (np.concatenate(columns) for columns in zip(*laid_out, strict=True))
    few: Mask = np.bincount(keys, runs, parts.num_rows) <= _MOST_RUNS
    own, covering = (KeyedGroups(*(column[few[groups.key]] for column in groups)) for groups in (own, covering))
    covered: Mask = few & ~np.isin(np.arange(parts.num_rows), difference_runs(to_runs(own), to_runs(covering)).key)
    return covered


def _put_back(copies: pa.Table, lost: pa.Table) -> pa.Table:
    """Return the copies with added rows of lost entries; the other rows of these bookies are complete then."""
    rows = copies.select([*_PAIR, "source"]).append_column("row", pa.array(np.arange(copies.num_rows)))
    first = rows.filter(pc.equal(rows["source"], "index")).group_by(_PAIR).aggregate([("row", "min")])
    numbered = lost.select(_PAIR).append_column("number", pa.array(np.arange(lost.num_rows)))
    pairs = numbered.join(first, _PAIR, join_type="inner")
    is_whole = np.zeros(copies.num_rows, np.bool_)
    is_whole[_find_rows(rows, lost, _PAIR)] = True
    added = copies.take(pairs["row_min"])
    columns = {
        "source": pa.array([LOST] * added.num_rows, pa.string()),
        "groups": lost["groups"].take(pairs["number"]),
        "headers": pa.array([[]] * added.num_rows, copies.schema.field("headers").type),
        "complete": pa.array([True] * added.num_rows, pa.bool_()),
    }
    for name, values in columns.items():
        added = added.set_column(copies.column_names.index(name), copies.schema.field(name), values)
    at = copies.column_names.index("complete")
    complete = pc.or_(copies["complete"], pa.array(is_whole))
    return pa.concat_tables([copies.set_column(at, copies.schema.field(at), complete), added])
