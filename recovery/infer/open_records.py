"""Records that were open when the store was lost: which of them can stay open.

Whoever opens an open ledger next closes it: a recovery reads on from the last add confirmed, entry by entry, and stops
where W - A + 1 members of the last ensemble have none. So an entry is safe that A of its write set have.
"""

import numpy as np

from recovery.infer.copies import Ints
from recovery.infer.facts import Facts
from recovery.infer.search import TAIL
from recovery.infer.segment_cases import NOBODY, Copies
from recovery.infer.solve import mark_held
from recovery.infer.wiped_bookies import Kept, has_kept
from recovery.model.metadata import LedgerMetadata


def can_stay_open(known: Facts, ledger: int, stored: LedgerMetadata, copies: Copies, members: Ints, kept: Kept) -> bool:
    """Say whether the recovery of an open ledger, through its own record, loses nothing that was acknowledged.

    An entry that fewer than A have ends it; that one was never acknowledged only if no member can have lost a copy.

    Args:
        known: what bookies show; nothing of the ledger is hidden.
        ledger: its number there.
        stored: its last record.
        copies: of the ledger.
        members: rows of `copies`, or NOBODY: the last ensemble.
        kept: from which id on bookies are seen to have kept their ledgers.
    """
    last, end = stored.segments[-1], int(known.copies.end[ledger])
    lac = max(int(known.lac[ledger]), last.first - 1)
    low = max(last.first, end + 1 - TAIL)
    if lac > end or lac < low - 1:
        return False
    entries = np.arange(low, end + 1)
    counts = np.zeros(len(entries), np.int64)
    if len(entries):
        holds = mark_held(copies, low, end + 1)
        for i in range(stored.write_quorum):
            row = members[(entries + i) % stored.ensemble_size]
            counts += (row != NOBODY) & holds[row, entries - low]
    short = np.append(counts < stored.ack_quorum, True)
    first_short = int(short.argmax())
    if first_short == len(entries):
        return True
    scope, number = int(known.scope[ledger]), int(known.ledger[ledger])
    is_lossless = all(has_kept(kept, scope, number, name) for name in last.members)
    return is_lossless and bool(short[first_short:].all()) and low + first_short > lac
