"""One entry log and one journal of the same records: ten of 1 KiB for each ledger, ledgers in turns.

0.log   with its ledgers map, as after a rotation
1.txn   version 6, one batch
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from recovery.codecs import entry, entry_log, journal
from recovery.codecs.entry import EntryHeader
from recovery.model.metadata import Digest

LOG: Final = "0.log"
JOURNAL: Final = "1.txn"
EACH: Final = 10
_SIZE: Final = 1024


def write(folder: Path, ledgers: int) -> None:
    """Write both files."""
    payload = bytes(_SIZE)

    def records() -> Iterator[bytes]:
        for number in range(EACH):
            for ledger in range(ledgers):
                front = EntryHeader(ledger, number, number - 1, (number + 1) * _SIZE)
                yield entry.encode(front, payload, Digest.DUMMY)

    (folder / LOG).write_bytes(entry_log.encode(records(), with_map=True))
    (folder / JOURNAL).write_bytes(journal.encode(records()))
