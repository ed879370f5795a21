"""Which bookies may have entries that no inventory shows, and how many are enough to put a claim in doubt.

An acknowledged entry has at least A copies, so fewer than A unseen bookies cannot hide one. Where A is not stated,
or E and W are not seen, one unseen bookie is enough. And where every entry is on n bookies, one that was not
scanned may be the next member: W is n or more. Damage is not taken for that: it would have to hide a
whole copy.

What may be hidden is bounded by ledger: where a row says that nothing else of its ledger can be on its bookie (its
index and its journal list all), damage beside it hides nothing; and where all damage of a bookie names ledgers, it
hides nothing of the others. By entry: see `lost_entries`.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recovery.infer.copies import Ints, Mask
from recovery.infer.facts import LedgerFacts
from recovery.infer.lost_disks import list_bounded


@dataclass(frozen=True, slots=True)
class UnseenBookies:
    """How much of a ledger may be hidden.

    Attributes:
        named: damage that names the ledger hides entries of it.
        holders: bookies that hold entries of the ledger, and have damage of no particular one that hides entries.
        bookies: all that may hide entries of the ledger, at least: not scanned, not completely, or with such damage.
        elsewhere: bookies that were not scanned: each may have a full copy of any ledger.
        blank: of each ledger, unscanned and incompletely scanned bookies, except those with a complete row of it: each
            may have all of a segment, and show nothing.
        unsound: which bookies of the batch are among these; not those that are known by their number only.
    """

    named: Mask
    holders: Ints
    bookies: Ints
    elsewhere: int
    blank: Ints
    unsound: Mask

    @classmethod
    def gather(
        cls, known: LedgerFacts, bookies: pa.Table, damage: pa.Table, harmless: Mask, unscanned: int
    ) -> "UnseenBookies":
        """Count the hidden copies of all ledgers. Disks that are lost for good hide nothing.

        Args:
            known: the ledgers.
            bookies: BOOKIES.
            damage: DAMAGE.
            harmless: rows of it that hide only entries that other bookies serve.
            unscanned: members of the cluster without an inventory.
        """
        lost = known.bookies.filter(pa.array(known.lost))
        is_hiding = pc.and_not(damage["hides_entries"], pc.is_in(damage["bookie"], value_set=lost))
        hiding = damage.filter(is_hiding)
        bounded = pc.is_in(known.bookies, value_set=pa.array(list_bounded(bookies, hiding), pa.string())).to_numpy(
            zero_copy_only=False
        )
        damaged = _mark_among(known.bookies, hiding.filter(pc.is_null(hiding["ledger"]))["bookie"])
        partly = _mark_among(known.bookies, bookies.filter(pc.invert(bookies["complete"]))["bookie"])
        partly &= ~known.lost & ~bounded
        unsound = damaged | partly
        named, pairs = _find_named(
            known, damage.filter(pc.and_(pc.and_not(is_hiding, pa.array(harmless)), pc.is_valid(damage["ledger"])))
        )
        # Of each ledger, how many of the unsound ones hide nothing of it, and how many sound ones do.
        whole = np.bincount(known.whole_ledger[unsound[known.whole_bookie]], minlength=known.count)
        whole_in_part = np.bincount(known.whole_ledger[partly[known.whole_bookie]], minlength=known.count)
        harmed = np.bincount(pairs[0][bounded[pairs[1]]], minlength=known.count)
        anywhere = int(unsound.sum()) + unscanned - whole + harmed
        base = len(known.bookies)
        of_row = known.copies.row_ledger * base + known.row_bookie
        hides = np.isin(of_row, pairs[0] * base + pairs[1])
        hides |= damaged[known.row_bookie] & ~np.isin(of_row, known.whole_ledger * base + known.whole_bookie)
        unsound[known.unscanned] = True
        unsound &= ~known.lost
        return cls(
            named,
            np.bincount(known.copies.row_ledger[hides], minlength=known.count),
            np.maximum(anywhere, known.incomplete.astype(np.int64)),
            unscanned,
            unscanned + int(partly.sum()) - whole_in_part,
            unsound,
        )

    def count_outsiders(self, known: LedgerFacts) -> Ints:
        """Return how many bookies may have had an unseen entry of each ledger.

        All but those that are seen whole and have entries of it; one of which a part is lost is not. One that has none
        may have been a newcomer that was wiped: no LAC heard of what only newcomers had, and a bookie that is in use
        again shows no loss.
        """
        ledger, bookie = known.copies.row_ledger, known.row_bookie
        is_whole = ~(self.unsound | known.lost)
        seen = np.bincount(ledger[is_whole[bookie]], minlength=known.count)
        outsiders: Ints = len(known.bookies) + max(self.elsewhere - len(known.unscanned), 0) - seen
        return np.maximum(outsiders, self.bookies)


def _mark_among(names: pa.Array, group: pa.ChunkedArray) -> Mask:
    among: Mask = pc.is_in(names, value_set=group.combine_chunks()).to_numpy(zero_copy_only=False)
    return among


def _find_named(known: LedgerFacts, damage: pa.Table) -> tuple[Mask, Ints]:
    """Mark ledgers that rows of damage name; and return their pairs with bookies, each once."""
    nothing = np.zeros((2, 0), np.int64)
    if not damage.num_rows:
        return np.zeros(known.count, np.bool_), nothing
    scope = pc.fill_null(damage["scope"], 0).to_numpy().astype(np.int64)
    ledger = damage["ledger"].to_numpy().astype(np.int64)
    bookie = pc.fill_null(pc.index_in(damage["bookie"], value_set=known.bookies), 0).to_numpy().astype(np.int64)
    pairs = np.stack([np.append(scope, known.scope), np.append(ledger, known.ledger)], axis=1)
    code = np.unique(pairs, axis=0, return_inverse=True)[1].ravel()
    number = np.full(int(code.max(initial=-1)) + 1, -1)
    number[code[len(ledger) :]] = np.arange(known.count)
    owner = number[code[: len(ledger)]]
    named = np.zeros(known.count, np.bool_)
    named[owner[owner >= 0]] = True
    return named, np.unique(np.stack([owner, bookie])[:, owner >= 0], axis=1)
