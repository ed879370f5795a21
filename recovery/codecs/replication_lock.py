r"""The replication lock of a ledger: while it exists, no bookie deletes surplus copies, and no worker copies any.

    key below the root                        of
    /underreplication/locks/urL%010d          a ledger of scope 0: its id with at least ten decimal digits
    /underreplication/locks/urS<32 hex>       any other: its qualified name (no released BookKeeper makes one)

The value is text of the message LockDataFormat: ``bookieId: "<who>"\n``. A worker's lock is ephemeral, with its host.
A guard's lock is persistent and names this program and its plan, so it is not mistaken for another owner's lock.
So is the lock of an id that two ledgers have: it names this program and when it ends.

Source: apache/bookkeeper 9590a97, org.apache.bookkeeper.meta: ZkLedgerUnderreplicationManager; scoped keys:
docs/formats/store-keys.md.
"""

import re
from datetime import UTC, datetime
from typing import Final

from recovery.codecs.store import LOCKS
from recovery.model.ids import LedgerId, parse

GUARD: Final = "bkmeta-guard"
"""The begin of the owner in a guard's lock."""
GUARD_PREFIX: Final = f'bookieId: "{GUARD}'.encode()
"""Begins the value of a guard's lock."""
REUSE: Final = "bkmeta-reuse"
"""The begin of the owner in the lock of an id with two ledgers."""
MAX_LOCKS: Final = 50_000
"""Locks that were measured to fit into one listing of ZooKeeper's default size; docs/operations/safety.md."""
_PLAN_DIGITS: Final = 16
_HOLDER: Final = re.compile(rb'\s*bookieId:\s*"([^"\\]*)"\s*')
_REUSE: Final = re.compile(rb'bookieId: "bkmeta-reuse until ([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z)"\n')
_NAME: Final = re.compile(r"ur(?:L([0-9]{10}|[1-9][0-9]{10,18})|S([0-9a-f]{32}))")
_MAX: Final = (1 << 63) - 1


def lock_key(ledger: LedgerId) -> str:
    """Return the key of a ledger's lock, below the root.

    Raises:
        ValueError: a negative id of scope 0; no layout has a place for one.
    """
    if ledger.scope:
        return f"{LOCKS}/urS{ledger.qualified_name}"
    if ledger.ledger < 0:
        raise ValueError(f"no lock is of ledger {ledger}")
    return f"{LOCKS}/urL{ledger.ledger:010d}"


def ledger_of_lock(key: str) -> LedgerId | None:
    """Return the ledger of a lock; None if the key is not a lock's."""
    folder, _, name = key.rpartition("/")
    match = _NAME.fullmatch(name) if folder == LOCKS else None
    if match is None:
        return None
    if match[2] is not None:
        ledger = parse(match[2])
        return ledger if ledger.scope else None
    return LedgerId(0, int(match[1])) if int(match[1]) <= _MAX else None


def encode_guard(plan_hash: str) -> bytes:
    """Return the value of the locks that guard a plan's ledgers."""
    return f'bookieId: "{GUARD} {plan_hash[:_PLAN_DIGITS]}"\n'.encode()


def is_guard(value: bytes, owner: int) -> bool:
    """Whether a lock is a guard's.

    Args:
        value: of the key.
        owner: session that an ephemeral key ends with; 0: it stays.
    """
    return owner == 0 and value.startswith(GUARD_PREFIX)


def encode_reuse(end: datetime) -> bytes:
    """Return the value of the lock of an id that two ledgers have.

    Args:
        end: from when on the lock is to be removed; aware, told in whole seconds.
    """
    return f'bookieId: "{REUSE} until {end.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"\n'.encode()


def read_reuse_end(value: bytes, owner: int) -> datetime | None:
    """Return when the lock of an id with two ledgers ends; None: it is another lock.

    Args:
        value: of the key.
        owner: session that an ephemeral key ends with; 0: it stays.
    """
    match = _REUSE.fullmatch(value) if owner == 0 else None
    try:
        return None if match is None else datetime.fromisoformat(match[1].decode())
    except ValueError:
        return None


def decode_holder(value: bytes) -> str | None:
    """Return the owner that a lock names; None if it names no owner."""
    match = _HOLDER.fullmatch(value)
    return match[1].decode(errors="replace") if match else None
