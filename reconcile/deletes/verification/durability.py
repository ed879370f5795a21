"""Ledgers whose entries have fewer copies than were acknowledged, by all that is known of copies."""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.check.evidence import RECORD_COLUMNS, SeenCopies
from reconcile.rules.segments.faults import Fault
from reconcile.words import list_names
from recovery.model import tables
from recovery.model.ids import LedgerId

COLUMNS: Final = RECORD_COLUMNS
_BREACHES: Final = pa.array([int(fault) for fault in (Fault.BELOW_ACK_QUORUM, Fault.LOST)], pa.int8())


def find_breaches(stored: pa.Table, seen: SeenCopies) -> Iterator[tuple[LedgerId, str]]:
    """Yield the ledgers with such entries, each with what it lacks, in words.

    Args:
        stored: CATALOG_LEDGERS.
        seen: of these.
    """
    faults = seen.faults.faults
    for fault in faults.filter(pc.is_in(faults["fault"], value_set=_BREACHES)).to_pylist():
        record = stored.slice(fault["row"], 1).select([*tables.KEY_COLUMNS, "ack_quorum"]).to_pylist()[0]
        first = min(group["first"] for group in fault["groups"])
        detail = (
            f"entry {first} is known to lack copies on {list_names(fault['lacking'])}: fewer than the "
            f"{record['ack_quorum']} that were acknowledged are left"
        )
        yield LedgerId(record["scope"], record["ledger"]), detail


def select_records(parts: Sequence[pa.Table]) -> pa.Table:
    """Return the records of wanted ledgers as `Evidence.see` takes them."""
    return pa.concat_tables([tables.CATALOG_LEDGERS.empty_table().select(list(COLUMNS)), *parts])
