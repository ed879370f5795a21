"""RocksDB of DbLedgerStorage: rows of the `ledgers` and `locations` databases of one ledger folder.

Big-endian.

    database   key                                   value
    ledgers    int64 ledger id                       LedgerData (proto/recovery/codecs/_pb/ledger_data.proto)
    ledgers    int64 ledger id, int64 0              LedgerData, by an offline rebuild: fenced, no key
    ledgers    int64 -0xeefd                         int64 storage flags; bit 0: needs an integrity check
    ledgers    other negative int64                  reserved
    locations  int64 ledger id, int64 entry id       int64 location (see `entry_log.location`); 0: none

    metadata-cache   int64 log id   int16 0, int64 log id, int64 bytes of entries, int64 of them alive, int64 c, then c
                                    times int64 ledger id, int64 bytes: a ledgers map that collection keeps (a hint)

    of scopes other than 0, in databases that no released BookKeeper makes:
    ledgers-scoped     int64 scope, int64 ledger id                    LedgerData
    locations-scoped   int64 scope, int64 ledger id, int64 entry id    int64 location; 0: none

Ledger `L` of any scope belongs to folder ``L mod N`` of the N configured ones (`L` signed, the remainder not negative);
log ids are counted in each folder on its own.

Source: apache/bookkeeper 9590a97, bookie/storage/ldb/LedgerMetadataIndex, EntryLocationIndex, DbLedgerStorage,
DbLedgerStorageDataFormats.proto; docs/formats/bookie-storage.md.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from recovery.codecs._pb.ledger_data_pb2 import LedgerData
from recovery.errors import Damage, FormatError, Reason
from recovery.model.ids import LedgerId

STORAGE_FLAGS_ID: Final = -0xEEFD
_NEEDS_INTEGRITY_CHECK: Final = 1
_I64: Final = struct.Struct(">q")
_LOCATION_KEY: Final = struct.Struct(">qq")
_CACHED: Final = struct.Struct(">hqqqq")
_SCOPED_LOCATION_KEY: Final = struct.Struct(">qqq")


@dataclass(frozen=True, slots=True)
class BookieLedgerRow:
    """The row of a bookie for one ledger, beside its entries.

    Attributes:
        ledger: not negative in scope 0.
        fenced: False proves nothing: a clean stop can lose a fence.
        master_key: as stored; see `entry.key_kind`.
        explicit_lac: as stored; None if there is none.
        limbo: the bookie does not know whether it lost entries of this ledger; None: the field is absent (no).
        rebuilt: the key is that of an offline rebuild, which marks every ledger fenced.
        scope: of the ledger.
    """

    ledger: int
    fenced: bool
    master_key: bytes = field(repr=False)
    explicit_lac: bytes | None = None
    limbo: bool | None = None
    rebuilt: bool = False
    scope: int = 0


@dataclass(frozen=True, slots=True)
class StorageFlags:
    """The state of the whole storage; is in folder 0 only."""

    bits: int

    @property
    def needs_integrity_check(self) -> bool:
        """Whether the bookie itself considers entries as possibly missing."""
        return bool(self.bits & _NEEDS_INTEGRITY_CHECK)


class LocationRows(NamedTuple):
    """Rows of `locations` in their order, as arrays of equal length, and the rows that were not taken.

    A row has no offset in a file: `Damage.offset` is its number in the batch, `detail` names its key. `scope` is None
    where all are of scope 0.
    """

    ledger: npt.NDArray[np.int64]
    entry: npt.NDArray[np.int64]
    location: npt.NDArray[np.int64]
    damage: tuple[Damage, ...]
    scope: npt.NDArray[np.int64] | None = None


def shard(ledger: int, dirs: int) -> int:
    """Return the number, in configured order, of the folder that a ledger belongs to."""
    return ledger % dirs


def decode_ledgers_row(key: bytes, value: bytes) -> BookieLedgerRow | StorageFlags | None:
    """Return a row of the `ledgers` database; None for a reserved key.

    Raises:
        FormatError: the key has none of the forms, or the value does not fit it.
    """
    if len(key) not in (_I64.size, _LOCATION_KEY.size):
        raise FormatError(Reason.BAD_LENGTH, "ledgers key", 0, f"{len(key)} bytes")
    (ledger,) = _I64.unpack_from(key)
    if ledger == STORAGE_FLAGS_ID:
        if len(value) != _I64.size:
            raise FormatError(Reason.BAD_LENGTH, "storage flags", 0, f"{len(value)} bytes")
        return StorageFlags(*_I64.unpack(value))
    if ledger < 0:
        return None
    if any(key[_I64.size :]):
        raise FormatError(Reason.BAD_VALUE, "ledgers key", _I64.size, f"ledger {ledger}, not followed by zeros")
    return _ledger_row(LedgerId(0, ledger), value, rebuilt=len(key) > _I64.size)


def read_plain_key(key: bytes) -> int | None:
    """Return the ledger that a key of `ledgers` names by its id alone; None: another form, or a reserved key."""
    ledger: int = _I64.unpack(key)[0] if len(key) == _I64.size else -1
    return ledger if ledger >= 0 else None


def decode_scoped_ledgers_row(key: bytes, value: bytes) -> BookieLedgerRow:
    """Return a row of the `ledgers-scoped` database.

    Raises:
        FormatError: the key is not made of scope and ledger id, or the value does not fit it.
    """
    if len(key) != _LOCATION_KEY.size:
        raise FormatError(Reason.BAD_LENGTH, "ledgers-scoped key", 0, f"{len(key)} bytes")
    ledger = LedgerId(*_LOCATION_KEY.unpack(key))
    if not ledger.scope:
        raise FormatError(Reason.BAD_VALUE, "ledgers-scoped key", 0, f"ledger {ledger}, of scope 0")
    return _ledger_row(ledger, value, rebuilt=False)


def _ledger_row(ledger: LedgerId, value: bytes, *, rebuilt: bool) -> BookieLedgerRow:
    data = LedgerData()
    try:
        data.ParseFromString(value)
    except DecodeError as error:
        raise FormatError(Reason.BAD_VALUE, "ledgers row", 0, f"ledger {ledger}: not LedgerData") from error
    if not data.IsInitialized():
        raise FormatError(
            Reason.TRUNCATED, "ledgers row", len(value), f"ledger {ledger}: a required field is not there"
        )
    return BookieLedgerRow(
        ledger.ledger,
        data.fenced,
        data.masterKey,
        data.explicitLac or None,
        data.limbo if data.HasField("limbo") else None,
        rebuilt,
        ledger.scope,
    )


def encode_ledgers_row(row: BookieLedgerRow) -> tuple[bytes, bytes]:
    """Return key and value of a ledger's row, in `ledgers` or, of another scope than 0, in `ledgers-scoped`."""
    data = LedgerData(exists=True, fenced=row.fenced, masterKey=row.master_key)
    if row.explicit_lac is not None:
        data.explicitLac = row.explicit_lac
    if row.limbo is not None:
        data.limbo = row.limbo
    if row.scope:
        key = _LOCATION_KEY.pack(row.scope, row.ledger)
    else:
        key = _LOCATION_KEY.pack(row.ledger, 0) if row.rebuilt else _I64.pack(row.ledger)
    return key, data.SerializeToString(deterministic=True)


def decode_cached_map(key: bytes, value: bytes) -> dict[int, int]:
    """Return the bytes of each ledger in a log, from a row of `metadata-cache`.

    Raises:
        FormatError: the row is not of that form.
    """
    if len(key) != _I64.size or len(value) < _CACHED.size:
        raise FormatError(Reason.BAD_LENGTH, "cached map", 0, f"a key of {len(key)} bytes, a value of {len(value)}")
    version, log_id, _, _, count = _CACHED.unpack_from(value)
    if version != 0:
        raise FormatError(Reason.BAD_VERSION, "cached map", 0, f"version {version}")
    if _I64.pack(log_id) != key:
        raise FormatError(Reason.BAD_VALUE, "cached map", 2, f"of log {log_id:x}, at another log's key")
    if count < 0 or len(value) != _CACHED.size + count * _LOCATION_KEY.size:
        raise FormatError(Reason.BAD_LENGTH, "cached map", 26, f"{count} ledgers in {len(value)} bytes")
    return dict(_LOCATION_KEY.iter_unpack(value[_CACHED.size :]))


def encode_storage_flags(flags: StorageFlags) -> tuple[bytes, bytes]:
    """Return key and value of the storage flags."""
    return _I64.pack(STORAGE_FLAGS_ID), _I64.pack(flags.bits)


def location_key(ledger: int, entry: int, scope: int = 0) -> bytes:
    """Return the key of a row of `locations` or, of another scope than 0, of `locations-scoped`."""
    return _SCOPED_LOCATION_KEY.pack(scope, ledger, entry) if scope else _LOCATION_KEY.pack(ledger, entry)


def encode_location(ledger: int, entry: int, location: int, *, scope: int = 0) -> tuple[bytes, bytes]:
    """Return key and value of a row of `locations` or, of another scope than 0, of `locations-scoped`."""
    return location_key(ledger, entry, scope), _I64.pack(location)


def _all_of_size(strings: Sequence[bytes], size: int) -> bool:
    return list(map(len, strings)).count(size) == len(strings)


def decode_locations(keys: Sequence[bytes], values: Sequence[bytes], *, scoped: bool = False) -> LocationRows:
    """Return rows of the `locations` database; rows with location 0 hold no entry and are left out.

    Args:
        keys: in any order.
        values: as many.
        scoped: they are of the `locations-scoped` database.
    """
    size = (_SCOPED_LOCATION_KEY if scoped else _LOCATION_KEY).size
    rows = np.arange(len(keys))
    damage: list[Damage] = []
    if not (_all_of_size(keys, size) and _all_of_size(values, _I64.size)):
        whole = []
        for row, (key, value) in enumerate(zip(keys, values, strict=True)):
            if len(key) == size and len(value) == _I64.size:
                whole.append(row)
            else:
                detail = f"key {bytes(key[:size]).hex()} of {len(key)} bytes, value of {len(value)}"
                damage.append(Damage(row, 0, Reason.BAD_LENGTH, detail))
        keys, values = [keys[row] for row in whole], [values[row] for row in whole]
        rows = np.array(whole, np.int64)
    columns = np.frombuffer(b"".join(keys), ">i8").astype(np.int64).reshape(-1, size // _I64.size)
    ledger, entry = columns[:, -2], columns[:, -1]
    scope = columns[:, 0] if scoped else None
    location = np.frombuffer(b"".join(values), ">i8").astype(np.int64)
    bad = (entry < 0) | (location < 0) | (ledger < 0 if scope is None else scope == 0)
    if bad.any():
        for index in np.flatnonzero(bad):
            named = ledger[index] if scope is None else LedgerId(int(scope[index]), int(ledger[index]))
            detail = f"ledger {named}, entry {entry[index]}, location {location[index]}"
            damage.append(Damage(int(rows[index]), 0, Reason.BAD_VALUE, detail))
    taken = ~bad & (location != 0)
    if not taken.all():
        ledger, entry, location = ledger[taken], entry[taken], location[taken]
        scope = None if scope is None else scope[taken]
    return LocationRows(ledger, entry, location, tuple(damage), scope)
