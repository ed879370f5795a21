"""One row of numbers for each source of an entry, and the comparison of the rows of a share.

A row is seven int64:

    KEY      mixed of ledger and the upper bits of the entry id; rows of one entry share it
    LEDGER   id
    ENTRY    id
    TAG      kind << 48 | scoped << 40 | verdict << 32 | number of the file; of the index: the log id that it names
    PLACE    position << 31 | size; of the index: size 0
    LENGTH   the cumulative length in the entry's header
    CONTENT  CRC32C of the payload, to compare copies; where its begin is not known, CRC32C of what is
             behind the widest digest, and << 32 of everything behind the header
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

import numpy as np

from recovery.codecs import entry as entry_codec
from recovery.collect.rows.entry_headers import DIGESTS
from recovery.collect.rows.source_copies import Ints, Mask, find_starts
from recovery.collect.rows.spool import SHARES, Spool
from recovery.model.metadata import DIGEST_SIZES

WIDTH: Final = 7
KEY, LEDGER_ID, ENTRY, TAG, PLACE, LENGTH, CONTENT = range(WIDTH)
LOG, APPLIED, AHEAD, INDEX = range(4)
"""Kinds: a record of an entry log, of a journal before and after the mark, a slot of the index."""
KIND_SHIFT: Final = 48
SCOPED_SHIFT: Final = 40
VERDICT_SHIFT: Final = 32
FILE: Final = (1 << VERDICT_SHIFT) - 1
VERDICT: Final = 0xFF
SIZE_BITS: Final = 31
SIZE: Final = (1 << SIZE_BITS) - 1
LOG_SHIFT: Final = 32
POSITION: Final = (1 << LOG_SHIFT) - 1
MIX: Final = 0x9E3779B97F4A7C15 - (1 << 64)
_DIGEST_SIZES: Final = np.array([0, *(DIGEST_SIZES[digest] for digest in DIGESTS)])
_FEW: Final = 1 << 18
"""Rows that are held at once."""


class EntryShare:
    """Rows that are compared together, sorted by ledger, entry and kind; columns of the same length.

    Attributes:
        ledger, entry, kind, verdict, file, place, position: of each row.
        pair: number of the (ledger, entry) pair, ascending.
        ledger_number: number of the ledger, ascending.
        matched: a slot with its entry at its place; a record that a slot names.
        tag: kind, verdict and file.
        doubted: the digest is wrong.
        believed: the ids are no matter of doubt.
        bare: the ledger has no digests.
    """

    def __init__(self, rows: Ints, log_ids: Ints) -> None:
        self.ledger, self.entry, self.tag, self.place = (rows[:, n] for n in (LEDGER_ID, ENTRY, TAG, PLACE))
        self.kind = self.tag >> KIND_SHIFT
        self.verdict = (self.tag >> VERDICT_SHIFT) & VERDICT
        self.file = self.tag & FILE
        self.position = self.place >> SIZE_BITS
        self._front = np.where(self.tag >> SCOPED_SHIFT & 1, entry_codec.SCOPED_HEADER_SIZE, entry_codec.HEADER_SIZE)
        self._length, self._content = rows[:, LENGTH], rows[:, CONTENT]
        fresh = np.append(True, self.ledger[1:] != self.ledger[:-1])
        self.ledger_number = np.cumsum(fresh) - 1
        fresh[1:] |= self.entry[1:] != self.entry[:-1]
        self.pair = np.cumsum(fresh) - 1
        self.doubted, self.believed = np.zeros(len(rows), np.bool_), np.ones(len(rows), np.bool_)
        self.bare = np.zeros(len(rows), np.bool_)
        self.matched = self._match(log_ids)

    def _match(self, log_ids: Ints) -> Mask:
        matched = np.zeros(len(self.pair), np.bool_)
        rows = np.flatnonzero((self.kind == INDEX) | (self.kind == LOG))
        slot = self.kind[rows] == INDEX
        log_id = np.where(slot, self.file[rows], log_ids[np.where(slot, 0, self.file[rows])] if len(log_ids) else -1)
        _, address = np.unique((log_id << LOG_SHIFT) | self.position[rows], return_inverse=True)
        order = np.lexsort((slot, address, self.pair[rows]))
        rows, slot, address = rows[order], slot[order], address[order]
        starts = np.flatnonzero(
            np.append(True, (address[1:] != address[:-1]) | (self.pair[rows[1:]] != self.pair[rows[:-1]]))
        )
        if not len(rows):
            return matched
        size = np.diff(np.append(starts, len(rows)))
        slots = np.add.reduceat(slot.astype(np.int64), starts)
        matched[rows] = np.repeat((slots > 0) & (slots < size), size)
        return matched

    def count_in_pairs(self, rows: Mask) -> Ints:
        """Return how many of some rows each pair has."""
        return np.bincount(self.pair[rows], minlength=int(self.pair[-1]) + 1)

    def find_vouched(self) -> Mask:
        """Return the rows with ids that an undoubted row has too."""
        is_vouched: Mask = (self.count_in_pairs(~self.doubted) > 0)[self.pair]
        return is_vouched

    def measure_digests(self, rows: Mask) -> Ints:
        """Return the width of each ledger's digest as the lengths of some of its entries show; -1 where none does."""
        sample = np.flatnonzero(rows)
        sample = sample[find_starts(self.pair[sample])]
        body = (self.place[sample] & SIZE) - self._front[sample]
        length_before = np.append(0, self._length[sample[:-1]]) if len(sample) else sample
        follows = np.zeros(len(sample), np.bool_)
        follows[1:] = (np.diff(self.ledger_number[sample]) == 0) & (np.diff(self.entry[sample]) == 1)
        tells = follows | (self.entry[sample] == 0)
        width = body - (self._length[sample] - np.where(follows, length_before, 0))
        width_of = np.full(int(self.ledger_number[-1]) + 1, -1, np.int64)
        width_of[self.ledger_number[sample[tells]][::-1]] = width[tells][::-1]
        return width_of

    def find_differing(self) -> tuple[Ints, Ints]:
        """Return two rows of each pair with differing copies, none of them known to be damaged."""
        rows = np.flatnonzero((self.kind != INDEX) & ~self.doubted)
        payload = (self.place[rows] & SIZE) - self._front[rows] - _DIGEST_SIZES[self.verdict[rows]]
        content = np.where(self.bare[rows] & (self.verdict[rows] == 0), self._content[rows] >> 32, self._content[rows])
        sign = (content << LOG_SHIFT) ^ (payload * MIX) ^ (self._length[rows] * (MIX | 2))
        starts = find_starts(self.pair[rows])
        first = np.repeat(starts, np.diff(np.append(starts, len(rows))))
        other = np.flatnonzero(sign != sign[first])
        other = other[find_starts(first[other])]
        return rows[first[other]], rows[other]


def read_parts(spool: Spool) -> Iterable[Ints]:
    """Return the rows at once where they are few, else a share after the other."""
    return [spool.read_all()] if spool.count <= _FEW else map(spool.share, range(SHARES))


def find_stretches(values: Ints) -> Iterable[tuple[int, int]]:
    """Return where each stretch of equal elements begins and ends."""
    return pairwise([*find_starts(values).tolist(), len(values)])
