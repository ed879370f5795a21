"""Index files that disappeared: the bookie deletes ledgers while it is collected.

Those that go before they are read are met by their reader. Those that go afterwards would never be, so some are looked
for at the end.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from recovery.codecs import index_file
from recovery.collect.rows.source_copies import Ints

_SOME: Final = 1000
"""Ledgers in the sample: some milliseconds; a bookie that deletes one in a hundred is hardly ever missed."""


def count_vanished(ledgers: Ints, folders: Sequence[Path]) -> int:
    """Return how many of some ledgers have no index file any more; 0 where a folder went as a whole.

    Args:
        ledgers: that had one (their keys, see `scoped_ids`).
        folders: the index folders.
    """
    if not all(folder.is_dir() for folder in folders):
        return 0
    own = ledgers[ledgers >= 0]
    names = [index_file.path_of(ledger) for ledger in own[:: -(-len(own) // _SOME) or 1].tolist()]
    return sum(
        not any(os.path.lexists(f"{folder}/{name}{copy}") for folder in folders for copy in ("", ".rloc"))
        for name in names
    )
