"""Inventories of a cluster that has lived: the made-up ledgers, some of them with a past from the simulated protocol.

    share        past          from `tests.simulation.histories`, all E = 3, W = 2
    1 of 100     changed       class `changes`: one to three ensemble changes, half under pending adds, and bookies that
                               keep what they got
    1 of 100     rereplicated  class `rereplicated`, those that were copied: bookies die, some under their writers;
                               auto-recovery copies what they had, batch by batch, with the copier's LAC; some come back
    1 of 1,000   damaged       class `holes`: single entries lost, or all that a bookie had; a third named as damage

and the change of one ledger in a hundred that all made-up ledgers have. Thousands of pasts are simulated, with as many
entries as the made-up ledgers have; at a million ledgers each stands for four, on other bookies each time.

The whole solver is needed by

    share        of            because
    19 of 100    changed       adds under way left a bookie with a part of what came after it, which tiles nothing
    62 of 100    rereplicated  they changed bookies, too (those died under their writers): copies of several ensembles;
                               34 have one ensemble, and `recovery.infer.replicas` fits them column-wise; 4 are held
    66 of 100    damaged       an entry is short of its copies, which nothing column-wise proves; the rest are held
"""

import itertools
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.data.inventories import copies, fill
from benchmarks.data.ledgers import BOOKIES, CHUNK, ENSEMBLE, WRITE, Ints, Ledgers
from recovery.infer import facts
from recovery.model import tables
from recovery.model.ids import buckets
from tests.simulation import histories, inventories, profiles

_CLUSTER: Final = 500
"""Ledgers that share a cluster, and its bookies' fates; fewer where few are wanted."""
_PASTS: Final = 2500
"""Ledgers that are simulated of each kind at most, a cluster after the other: so each stands for four of a million."""
_FEWEST: Final = 60
_SEED: Final = 1
_LENGTHS: Final = tuple(max(12, int(np.exp(6.5 + 1.5 * NormalDist().inv_cdf((n + 0.5) / 40)))) for n in range(40))
"""Entries: what `ledgers` draws from, at 40 places."""
KINDS: Final = (("changes", 100, 50), ("rereplicated", 100, 25), ("holes", 1000, 7))
"""Class; of how many ledgers it is one, and which."""
_NAMED: Final = 3
"""Of so many damaged ledgers, one is named as damage."""


@dataclass(frozen=True, slots=True)
class Pasts:
    """COPIES of simulated ledgers, those of one after the other.

    Attributes:
        rows: of all.
        begin, count: of each ledger, its first row and how many it has.
        bookie: of each row, by number.
    """

    rows: pa.Table
    begin: Ints
    count: Ints
    bookie: Ints

    def of(self, ledger: Ints, which: Ints) -> pa.Table:
        """Return rows of ledgers with these ids that each have the past with a number, on bookies of their own."""
        which = which % len(self.begin)
        count = self.count[which]
        owner = np.repeat(np.arange(len(which)), count)
        row = np.repeat(self.begin[which] - (np.cumsum(count) - count), count) + np.arange(len(owner))
        ids, scope = ledger[owner], np.zeros(len(owner), np.int64)
        bookie = (self.bookie[row] + ids) % len(BOOKIES)
        found = self.rows.take(pa.array(row))
        for name, column in (
            ("bucket", pa.array(buckets(scope, ids))),
            ("ledger", pa.array(ids)),
            ("bookie", pa.array(BOOKIES).take(pa.array(bookie))),
        ):
            found = found.set_column(found.schema.get_field_index(name), tables.COPIES.field(name), column)
        return found


def pasts(kind: str, wanted: int) -> Pasts:
    """Simulate clusters of a class, and take the ledgers to which it happened.

    Args:
        kind: the class.
        wanted: how many ledgers will have one of these pasts.
    """
    profile = profiles.profile_of(kind)
    profile = replace(profile, shapes=((ENSEMBLE, WRITE, WRITE),), lengths=_LENGTHS, bookies=len(BOOKIES))
    if kind == "holes":
        profile = replace(profile, holes=1.0)
    parts: list[pa.Table] = []
    found, together = 0, min(_CLUSTER, max(_FEWEST, 4 * wanted))
    for seed in itertools.count(_SEED):
        rows, happened = _happened(kind, seed, together, profile)
        # Ids count from 0 in each cluster.
        ids = pc.add(rows["ledger"], seed * together)
        parts.append(rows.set_column(rows.schema.get_field_index("ledger"), tables.COPIES.field("ledger"), ids))
        found += happened
        if found >= min(_PASTS, wanted):
            break
    rows = pa.concat_tables(parts).combine_chunks().sort_by("ledger")
    _, begin, count = np.unique(rows["ledger"].to_numpy(), return_index=True, return_counts=True)
    bookie = pc.index_in(rows["bookie"], pa.array(BOOKIES)).to_numpy().astype(np.int64)
    return Pasts(rows, begin, count, bookie)


def _happened(kind: str, seed: int, ledgers: int, profile: profiles.Profile) -> tuple[pa.Table, int]:
    """Return COPIES of the ledgers of one cluster to which it happened, and how many they are."""
    world, view = histories.make(kind, seed, ledgers, profile)
    found = inventories.inventory(world, view)
    known = facts.read(found.copies, found.bookies)
    happened = {
        "changes": np.array([len(world.records[ledger].segments) > 1 for ledger in known.ledger.tolist()]),
        "rereplicated": known.copied,
        "holes": np.ones(known.count, np.bool_),
    }[kind]
    return found.copies.filter(pc.is_in(found.copies["ledger"], pa.array(known.ledger[happened]))), int(happened.sum())


def write(folder: Path, ledgers: int) -> None:
    """Write a folder of inventories, one a bookie, of so many ledgers."""
    kinds = [(kind, pasts(kind, ledgers // every), every, place) for kind, every, place in KINDS]

    def found(number: int, made: Ledgers) -> tuple[pa.Table, pa.Table]:
        places = number * CHUNK + np.arange(len(made.ledger))
        plain = np.ones(len(places), np.bool_)
        parts, damage = [], tables.DAMAGE.empty_table()
        for kind, past, every, place in kinds:
            mine = (places % every == place) & plain
            plain &= ~mine
            parts.append(past.of(made.ledger[mine], places[mine] // every))
            if kind == "holes":
                damage = _named(parts[-1], made.ledger[mine][::_NAMED])
        rest = Ledgers(
            made.ledger[plain], made.entries[plain], made.members[plain], made.change[plain], made.newcomer[plain]
        )
        return pa.concat_tables([copies(rest), *parts]), damage

    fill(folder, ledgers, found)


def _named(rows: pa.Table, ledgers: Ints) -> pa.Table:
    """Return DAMAGE that names each of some ledgers on one bookie that has it."""
    rows = rows.filter(pc.is_in(rows["ledger"], pa.array(ledgers)))
    _, first = np.unique(rows["ledger"].to_numpy(), return_index=True)
    harmed = [
        {
            "bookie": row["bookie"], "incarnation": row["incarnation"], "file": f"{row['ledger']:x}.idx",
            "offset": 1024, "length": 8192, "reason": "bad_value", "scope": 0, "ledger": row["ledger"],
            "hides_entries": True, "detail": None,
        }
        for row in rows.select(["bookie", "incarnation", "ledger"]).take(pa.array(first)).to_pylist()
    ]  # fmt: skip
    return pa.Table.from_pylist(harmed, schema=tables.DAMAGE)
