"""A bookie's facts of ledgers beside their entries: fences, master keys, explicit LACs; as rows of numbers.

A row has FACT_WIDTH columns: ledger, source (number of the folder), fenced, limbo, and the numbers of the master key
and of the explicit LAC record in `Interned`; NONE where there is none.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Final

from recovery.codecs.entry import decode_lac_record, key_kind, lac_record_agrees
from recovery.collect.rows.scoped_ids import Scopes
from recovery.errors import FormatError, Reason
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest

NONE: Final = -1
FACT_WIDTH: Final = 6
LEDGER, SOURCE, FENCED, LIMBO, KEY, LAC = range(FACT_WIDTH)


@dataclass(slots=True)
class Interned:
    """Byte strings by number (most ledgers share a few keys), and the scopes of the ledgers that they belong to."""

    scopes: Scopes = field(default_factory=Scopes)
    keys: list[bytes] = field(default_factory=list)
    """Master keys as `stamp` has them."""
    lacs: list[bytes] = field(default_factory=list)
    _key_numbers: dict[bytes, int] = field(default_factory=dict)

    def add_key(self, key: bytes) -> int:
        """Return the number of a master key."""
        return self.add_stamp(make_stamp(key))

    def add_stamp(self, key: bytes) -> int:
        """Return the number of a master key's stamp."""
        number = self._key_numbers.setdefault(key, len(self.keys))
        if number == len(self.keys):
            self.keys.append(key)
        return number

    def add_lac(self, record: bytes) -> int:
        """Return the number of an explicit LAC record."""
        self.lacs.append(record)
        return len(self.lacs) - 1


def make_stamp(key: bytes) -> bytes:
    """Return the substitute of a master key for comparison and storage: of the same kind, with its hash alone.

    `entry.key_kind` of it is that of the key; the stamp of a key that is set is its SHA-256.
    """
    return hashlib.sha256(key).digest() if key_kind(key) == "set" else key[:1]


def read_explicit_lac(record: bytes, ledger: LedgerId) -> int:
    """Return the last add confirmed of a ledger's explicit LAC record; an HMAC in it is not checked.

    Raises:
        FormatError: it is none, is another ledger's, or its CRC disagrees.
    """
    lac = decode_lac_record(record)
    if (ledger_of_record := LedgerId(lac.scope, lac.ledger)) != ledger:
        raise FormatError(Reason.BAD_VALUE, "explicit LAC", 0, f"of ledger {ledger_of_record}")
    if lac.digest is not Digest.HMAC and not lac_record_agrees(record):
        raise FormatError(Reason.DIGEST, "explicit LAC", 16, str(lac.digest))
    return lac.lac
