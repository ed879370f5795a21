"""Ledger metadata as a value: what BookKeeper stores for one ledger, in any format."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class LedgerState(StrEnum):
    """The stored life of a ledger; values are stored, so never renamed."""

    OPEN = "OPEN"
    IN_RECOVERY = "IN_RECOVERY"
    CLOSED = "CLOSED"


class Digest(StrEnum):
    """The type of an entry's digest, by its stored name (the Java client calls HMAC MAC)."""

    CRC32 = "CRC32"
    HMAC = "HMAC"
    CRC32C = "CRC32C"
    DUMMY = "DUMMY"


DIGEST_SIZES: Final = {Digest.CRC32: 8, Digest.HMAC: 20, Digest.CRC32C: 4, Digest.DUMMY: 0}
"""Bytes of each digest inside an entry."""

NO_ENTRY: Final = -1
"""Last entry of a ledger without entries, and last add confirmed of a writer without an acknowledgement."""


FORMAT_WITHOUT_PASSWORD: Final = 1
"""The format of records that plans write where a ledger has no password: the others need one."""

WRITTEN_FORMAT: Final = 3
"""The format of all other records that plans write; it has custom metadata. BookKeeper writes it from 4.9 on."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment of a ledger: its first entry, and its ensemble in placement order."""

    first: int
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """The metadata of one ledger; the ledger id is not in it, it comes from the key.

    Attributes:
        format: 1, 2 or 3: the version that the bytes have and must keep.
        ensemble_size, write_quorum, ack_quorum: E, W, A.
        last_entry: final last entry if CLOSED, else None; NO_ENTRY for a closed ledger without entries.
        length: payload bytes if CLOSED, else None.
        segments: ascending by first entry.
        digest, password: both or neither; format 1 has neither.
        ctime: creation time in ms since 1970, if the record holds it.
        custom: key to value, in stored order.
        creator_token: BookKeeper's cToken, format 3 only; None where the field is absent.
        unknown: bytes of fields that we do not know, kept as they were (format 3).
    """

    format: int
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    state: LedgerState
    last_entry: int | None
    length: int | None
    segments: tuple[Segment, ...]
    digest: Digest | None = None
    password: bytes | None = None
    ctime: int | None = None
    custom: tuple[tuple[str, bytes], ...] = ()
    creator_token: int | None = None
    unknown: bytes = b""

    def __repr__(self) -> str:
        """Without the password: a value may land in a log."""
        quorums = f"{self.ensemble_size}/{self.write_quorum}/{self.ack_quorum}"
        return (
            f"LedgerMetadata(format={self.format}, {quorums}, {self.state}, last_entry={self.last_entry}, "
            f"length={self.length}, segments={self.segments}, digest={self.digest}, ctime={self.ctime})"
        )
