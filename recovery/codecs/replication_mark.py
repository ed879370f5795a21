r"""The mark of an under-replicated ledger: which bookies are believed to lack it, and since when.

The value is text of the message UnderreplicatedLedgerFormat; no bytes are a mark, too. Keys: `recovery.codecs.keys`.

    replica: "10.0.0.1:3181"        a bookie, any number of times
    ctime: 1700000000000            ms since 1970; absent where BookKeeper is set not to write it

Source: apache/bookkeeper 9590a97, ZkLedgerUnderreplicationManager; docs/formats/store-keys.md.
"""

import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_TIME: Final = rb"(?:^|\s)ctime:\s*(?P<ctime>[0-9]{1,18})(?:\s|$)"
_REPLICA: Final = re.compile(rb'replica:\s*"([^"\\]*)"')


def read_mark_times(values: pa.Array) -> pa.Array:
    """Return the creation times in marks, in ms since 1970; null without one.

    Args:
        values: of marks, as bytes without nulls; a value that is no mark gives null.
    """
    times = pc.extract_regex(values, _TIME.decode())
    return pc.cast(pc.cast(pc.struct_field(times, "ctime"), pa.string()), pa.int64())


def list_replicas(value: bytes) -> tuple[str, ...]:
    """Return the bookies that a mark names, in its order."""
    return tuple(name.decode(errors="replace") for name in _REPLICA.findall(value))
