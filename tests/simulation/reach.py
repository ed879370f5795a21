"""What of a ledger can be read, by its true record and by a row, and whether what is read is of one ledger."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.simulation.protocol import Record
from tests.simulation.row_truth import Row, WriteSets, must_keep


def count_reach(row: Row, true: Record, served: Mapping[str, Mapping[int, Any]]) -> tuple[int, int]:
    """Return how many entries the true record can read on scanned bookies, and how many of them a row reads.

    Args:
        row: of RECONSTRUCTION.
        true: the record that was lost.
        served: entries by bookie.
    """
    last = must_keep(true)
    holders: dict[int, set[str]] = {}
    for name, entries in served.items():
        for entry in entries:
            if entry <= last:
                holders.setdefault(entry, set()).add(name)
    wanted = [entry for entry, names in holders.items() if not names.isdisjoint(true.write_set(entry))]
    if row["outcome"] not in ("restored", "guarded"):
        return len(wanted), 0
    end, sets = row["last_entry"], WriteSets(row)
    reached = sum(
        (end is None or entry <= end) and not holders[entry].isdisjoint(sets.of(entry)) for entry in sorted(wanted)
    )
    return len(wanted), reached


def find_two_contents(rows: Sequence[Mapping[str, Any]]) -> str:
    """Say what in rows of COPIES shows two contents under one id, in whatever order a writer sent them; or nothing."""
    if len({row["key"] for row in rows if row["key_kind"] == "set"}) > 1:
        return "two keys"
    heads = {(head["entry"], head["length"], head["digest"]) for row in rows for head in row["headers"]}
    if len({digest for _, _, digest in heads if digest}) > 1:
        return "two digest types"
    lengths: dict[int, set[int]] = {}
    for entry, length, _ in heads:
        lengths.setdefault(entry, set()).add(length)
    return next(
        (
            f"lengths {sorted(lengths_seen)} at {entry}"
            for entry, lengths_seen in lengths.items()
            if len(lengths_seen) > 1
        ),
        "",
    )
