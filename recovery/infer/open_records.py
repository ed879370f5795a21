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
from recovery.model.metadata import LedgerMetadata


def can_stay_open(known: Facts, ledger: int, stored: LedgerMetadata, copies: Copies, members: Ints) -> bool:
    """Say whether the recovery of an open ledger, through its own record, reads every entry that some bookie has.

    An entry that fewer than A have was never acknowledged, or a bookie lost its copy without a trace: a recovery may
    stop before it, and whoever closes the ledger behind it loses nothing.

    Args:
        known: what bookies show; nothing of the ledger is hidden.
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
