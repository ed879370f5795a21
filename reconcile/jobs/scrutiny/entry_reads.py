"""The second look at bookies that give no lists: what their inventories lack is read from them; nothing is fenced.

the bookie                                      so
has an entry that its inventory lacks           it has it: the inventory is older
has each that it was asked for, of more         nobody knows: the ledger is undecided
does not answer, or not all                     likewise
says about one that it has it not               the inventory is believed
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from reconcile.findings.categories import TRAITS
from reconcile.rules.segments.faults import MOST_GROUPS
from recovery.bookies.wire_reader import RunningCluster
from recovery.model.groups import group_entries, to_arrow
from recovery.model.ids import LedgerId
from recovery.model.tables import COPIES

MOST_ENTRIES: Final = 16
"""Entries of a ledger that are read from a bookie."""
_HIDDEN: Final = pa.schema([("scope", pa.int64()), ("ledger", pa.int64()), ("bookie", pa.string())])


@dataclass(frozen=True, slots=True, eq=False)
class EntryReads:
    """What reading adds to inventories.

    Attributes:
        copies: COPIES: entries that bookies have, and their inventories lack.
        hidden: scope, ledger and bookie, where it is not known what the bookie lacks.
    """

    copies: pa.Table
    hidden: pa.Table


def read_lacking(
    cluster: RunningCluster, records: Sequence[Mapping[str, Any]], findings: Sequence[Mapping[str, Any]],
    bookies: Collection[str],
) -> EntryReads:  # fmt: skip
    """Read what findings say that bookies lack.

    Args:
        cluster: the bookies.
        records: rows of CATALOG_LEDGERS.
        findings: rows of FINDINGS, of these.
        bookies: those that are read from.
    """
    of_ledger = {(record["scope"], record["ledger"]): record for record in records}
    copies: list[dict[str, Any]] = []
    hidden: list[dict[str, Any]] = []
    for finding in findings:
        traits = TRAITS[finding["category"]]
        if not traits.of_copies:
            continue
        record = of_ledger[finding["scope"], finding["ledger"]]
        lacking = frozenset(finding["bookies"])
        for bookie in sorted(bookies if traits.sought_everywhere else lacking.intersection(bookies)):
            due = list_due(record, bookie if bookie in lacking else None, finding["entries"])
            wanted = [entry for entry, _ in zip(due, range(MOST_ENTRIES), strict=False)]
            is_part = next(due, None) is not None or len(finding["entries"]) >= MOST_GROUPS
            has, lacks = _read(cluster, bookie, LedgerId(record["scope"], record["ledger"]), wanted)
            if has:
                copies.append(_make_copy(record, bookie, has))
            if len(has) + len(lacks) < len(wanted) or (is_part and not lacks and bookie in lacking):
                hidden.append({"scope": record["scope"], "ledger": record["ledger"], "bookie": bookie})
    return EntryReads(pa.Table.from_pylist(copies, schema=COPIES), pa.Table.from_pylist(hidden, schema=_HIDDEN))


def list_due(record: Mapping[str, Any], bookie: str | None, groups: Sequence[Mapping[str, int]]) -> Iterator[int]:
    """Yield the entries of groups that the record asks of a bookie; None: all of them."""
    for group in groups:
        for run in range(group["first"], group["last"] + 1, group["period"] or 1):
            for entry in range(run, run + group["size"]):
                members = next(
                    segment["members"] for segment in reversed(record["segments"]) if segment["first"] <= entry
                )
                if bookie is None or bookie in (
                    members[(entry + n) % len(members)] for n in range(record["write_quorum"])
                ):
                    yield entry


def _read(cluster: RunningCluster, name: str, ledger: LedgerId, wanted: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return which entries a bookie has, and which it says that it has not; of others it said nothing."""
    bookie = cluster.get(name)
    if bookie is None or ledger.scope or not wanted:
        return [], []
    answers: dict[int, bool | None] = dict.fromkeys(wanted, False)

    def take(row: int, record: bytes | None) -> None:
        answers[wanted[row]] = None if record is None else True

    bookie.each(np.full(len(wanted), ledger.ledger), np.array(wanted, np.int64), take)
    return [entry for entry in wanted if answers[entry]], [entry for entry in wanted if answers[entry] is False]


def _make_copy(record: Mapping[str, Any], bookie: str, entries: Sequence[int]) -> dict[str, Any]:
    groups = to_arrow(group_entries(np.array(entries, np.int64)), 1)[0].as_py()
    return {
        "bucket": record["bucket"], "scope": record["scope"], "ledger": record["ledger"], "bookie": bookie,
        "incarnation": 0, "source": "wire", "part": 0, "groups": groups, "entries": len(entries),
        "first": entries[0], "last": entries[-1], "g_count": 0, "complete": True, "fenced": False, "limbo": False,
        "key_kind": "absent", "headers": [],
    }  # fmt: skip
