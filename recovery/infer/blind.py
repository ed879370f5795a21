"""Where entries may stand that no inventory shows, and what that does to what is claimed.

An acknowledged entry has at least A copies (A of its own ledger), so fewer than A blind bookies cannot hide one. Where
nobody vouches for A, one blind bookie is enough.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recovery.infer.facts import Facts
from recovery.infer.holdings import Ints, Mask
from recovery.infer.prior import Source

_VOUCHED: Final = (Source.SNAPSHOT, Source.DEFAULT_QUORUM)


@dataclass(frozen=True, slots=True)
class Blind:
    """How much of a ledger may be hidden.

    Attributes:
        named: damage that names the ledger hides entries of it.
        holders: bookies that hold entries of the ledger, and have damage of no particular one that hides entries.
        bookies: all that may hide entries of the ledger, at least: not scanned, not completely, or with such damage.
    """

    named: Mask
    holders: Ints
    bookies: Ints

    @classmethod
    def of(cls, known: Facts, bookies: pa.Table, damage: pa.Table, unscanned: int) -> "Blind":
        """Find out, of all ledgers.

        Args:
            known: the ledgers.
            bookies: BOOKIES.
            damage: DAMAGE.
            unscanned: members of the cluster that no inventory is of.
        """
        hiding = damage.filter(damage["hides_entries"])
        damaged = _among(known.bookies, hiding.filter(pc.is_null(hiding["ledger"]))["bookie"])
        partly = _among(known.bookies, bookies.filter(pc.invert(bookies["complete"]))["bookie"])
        anywhere = int((damaged | partly).sum()) + unscanned
        of = known.held.row_ledger
        return cls(
            _named(known, hiding.filter(pc.is_valid(hiding["ledger"]))),
            np.bincount(of[damaged[known.row_bookie]], minlength=known.count),
            np.maximum(anywhere, known.incomplete.astype(np.int64)),
        )


def enough_to_hide(ack: Ints, source: Ints) -> Ints:
    """Return how many blind bookies can hide an acknowledged entry.

    Args:
        ack: A of each ledger.
        source: where each is known from, as the place in `Source`.
    """
    vouched = np.isin(source, [list(Source).index(source) for source in _VOUCHED])
    return np.where(vouched, ack, 1)


def _among(names: pa.Array, others: pa.ChunkedArray) -> Mask:
    found: Mask = pc.is_in(names, value_set=others.combine_chunks()).to_numpy(zero_copy_only=False)
    return found


def _named(known: Facts, damage: pa.Table) -> Mask:
    """Say which ledgers the rows of damage name."""
    if not damage.num_rows:
        return np.zeros(known.count, np.bool_)
    scope = pc.fill_null(damage["scope"], 0).to_numpy().astype(np.int64)
    ledger = damage["ledger"].to_numpy().astype(np.int64)
    pairs = np.stack([np.append(scope, known.scope), np.append(ledger, known.ledger)], axis=1)
    same = np.unique(pairs, axis=0, return_inverse=True)[1].ravel()
    return np.isin(same[len(ledger) :], same[: len(ledger)])
