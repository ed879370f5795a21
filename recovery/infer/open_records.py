"""Records that were open when the store was lost: which of them can stay open.

The next client that opens an open ledger closes it. Its recovery reads on from the last add confirmed, entry by entry,
and stops at an entry that W - A + 1 members of the last ensemble lack. So an entry on A members of its write set is
safe.
"""

import numpy as np

from recovery.infer.copies import Ints
from recovery.infer.facts import LedgerFacts
from recovery.infer.search import TAIL
from recovery.infer.segment_cases import NOBODY, Copies
from recovery.infer.solve import mark_held
from recovery.model.metadata import LedgerMetadata


def can_stay_open(known: LedgerFacts, ledger: int, stored: LedgerMetadata, copies: Copies, members: Ints) -> bool:
    """Whether the recovery of an open ledger, through its own record, reads every entry that some bookie has.

    An entry on fewer than A members was never acknowledged, or a bookie lost its copy without a trace. A recovery may
    stop before such an entry. A close behind it loses nothing.

    Args:
        known: the facts of bookies; nothing of the ledger is hidden.
        ledger: its number there.
        stored: its last record.
        copies: of the ledger.
        members: rows of `copies`, or NOBODY: the last ensemble.
    """
    first, end = stored.segments[-1].first, int(known.copies.end[ledger])
    lac = max(int(known.lac[ledger]), first - 1)
    low = max(first, end + 1 - TAIL)
    if lac > end or lac < low - 1:
        return False
    if low > end:
        return True
    entries = np.arange(low, end + 1)
    counts = np.zeros(len(entries), np.int64)
    holds = mark_held(copies, low, end + 1)
    for i in range(stored.write_quorum):
        row = members[(entries + i) % stored.ensemble_size]
        counts += (row != NOBODY) & holds[row, entries - low]
    return bool((counts >= stored.ack_quorum).all())
