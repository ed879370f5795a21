"""Entries that a bookie's index lists and its disks have lost: what hides no more than these, and is served elsewhere.

A torn entry log takes entries of many ledgers, and the index still lists each of them. So all that is hidden of such a
ledger on that bookie is known by entry. Where other bookies serve each of these, nothing of the ledger is in doubt: its
copies there are missing, as if a disk had never had them.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recovery.infer.lost_disks import list_explained
from recovery.model.groups import KeyedGroups, difference_runs, from_arrow, run_counts, to_runs

_ID: Final = ["scope", "ledger"]
_BOUNDED: Final = ("ledger", "unlisted")
"""What damage hides that leaves alone whatever an index lists."""
_MOST_RUNS: Final = 2_000_000
"""Runs of entries that are laid out for one piece of damage."""


@dataclass(frozen=True, slots=True)
class SettledEntries:
    """Inventories, and what of their damage is in no doubt.

    Attributes:
        copies: COPIES; rows that lack nothing but entries which others serve are complete.
        harmless: which rows of DAMAGE hide such entries, and no others.
    """

    copies: pa.Table
    harmless: npt.NDArray[np.bool_]


def settle_entries(copies: pa.Table, bookies: pa.Table, damage: pa.Table) -> SettledEntries:
    """Find damage whose entries other bookies serve.

    Args:
        copies: COPIES of whole ledgers.
        bookies: BOOKIES of all inventories.
        damage: DAMAGE of all inventories, of these ledgers or of more.
    """
    harmless = np.zeros(damage.num_rows, np.bool_)
    if "entries" not in damage.column_names or damage["entries"].null_count == damage.num_rows:
        return SettledEntries(copies, harmless)
    places = pa.array(np.arange(damage.num_rows))
    hiding = damage.append_column("place", places).filter(damage["hides_entries"])
    bounded = pc.fill_null(pc.is_in(hiding["hides"], value_set=pa.array(_BOUNDED)), fill_value=False)
    loose = hiding.filter(pc.invert(bounded))["bookie"]
    explained = pa.array(list_explained(bookies, hiding), pa.string())
    named = hiding.filter(pc.is_valid(hiding["ledger"]))
    named = named.set_column(named.column_names.index("scope"), "scope", pc.fill_null(named["scope"], 0))
    is_listed = pc.and_(pc.is_valid(named["entries"]), pc.is_in(named["bookie"], value_set=explained))
    listed = named.filter(pc.and_not(is_listed, pc.is_in(named["bookie"], value_set=loose.combine_chunks())))
    served = listed.filter(pa.array(_mark_served(listed, copies, bookies)))
    harmless[served["place"].to_numpy()] = True
    # A pair of a bookie and a ledger with other damage, too, stays in doubt.
    doubted = named.filter(pc.invert(pc.is_in(named["place"], value_set=served["place"].combine_chunks())))
    pairs = [*_ID, "bookie"]
    sound = served.select(pairs).join(doubted.select(pairs), pairs, join_type="left anti")
    return SettledEntries(_complete(copies, sound), harmless)


def _mark_served(listed: pa.Table, copies: pa.Table, bookies: pa.Table) -> npt.NDArray[np.bool_]:
    """Say of which rows of damage every entry is served by another bookie."""
    dirty = bookies.filter(pc.fill_null(bookies["dirty"], fill_value=True))["bookie"].combine_chunks()
    serves = pc.or_(
        pc.is_in(copies["source"], value_set=pa.array(["index", "wire"])),
        pc.and_(pc.equal(copies["source"], "journal"), pc.is_in(copies["bookie"], value_set=dirty)),
    )
    strong = copies.select([*_ID, "bookie"]).append_column("row", pa.array(np.arange(copies.num_rows))).filter(serves)
    numbered = listed.select([*_ID, "bookie"]).append_column("number", pa.array(np.arange(listed.num_rows)))
    pairs = numbered.join(strong.rename_columns([*_ID, "holder", "row"]), _ID, join_type="inner")
    pairs = pairs.filter(pc.not_equal(pairs["bookie"], pairs["holder"]))
    own = from_arrow(listed["entries"])
    held = from_arrow(copies["groups"].take(pairs["row"]))
    held = held._replace(key=pairs["number"].to_numpy()[held.key])
    keys, counts = (
        np.concatenate(pair)
        for pair in zip(*((g.key, run_counts(g.first, g.last, g.period)) for g in (own, held)), strict=True)
    )
    few = np.bincount(keys, counts, listed.num_rows) <= _MOST_RUNS
    own, held = (KeyedGroups(*(column[few[groups.key]] for column in groups)) for groups in (own, held))
    lacking = difference_runs(to_runs(own), to_runs(held)).key
    is_served: npt.NDArray[np.bool_] = few & ~np.isin(np.arange(listed.num_rows), lacking)
    return is_served


def _complete(copies: pa.Table, sound: pa.Table) -> pa.Table:
    """Return the copies with rows of some ledgers on some bookies complete, but for what logs alone have."""
    if not sound.num_rows:
        return copies
    keys = [*_ID, "bookie"]
    numbered = copies.select(keys).append_column("row", pa.array(np.arange(copies.num_rows)))
    rows = numbered.join(sound, keys, join_type="left semi")["row"].to_numpy()
    is_whole = np.zeros(copies.num_rows, np.bool_)
    is_whole[rows] = True
    is_whole &= pc.not_equal(copies["source"], "log").to_numpy()
    at = copies.column_names.index("complete")
    return copies.set_column(at, copies.schema.field(at), pc.or_(copies["complete"], pa.array(is_whole)))
