"""A row of RECONSTRUCTION beside the true record: what is right in it, what it lists, whether it is well formed."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from recovery.model.metadata import LedgerState
from tests.simulation.histories import PASSWORD
from tests.simulation.protocol import Record
from tests.simulation.tally import JUDGED

Row = Mapping[str, Any]
"""Of RECONSTRUCTION, as it is judged: it shares no type with what made it."""

PASSWORDS: Final = (b"", PASSWORD)
SURE: Final = ("observed", "verified")
SHAPE: Final = "ensemble_size/write_quorum"


class WriteSets:
    """The bookies that a row has for an entry, with and without those that it only assumes."""

    def __init__(self, row: Row) -> None:
        self._segments = [
            (segment["first"], segment["members"], segment.get("assumed") or [False] * len(segment["members"]))
            for segment in row["segments"]
        ]
        self._size, self._write = row["ensemble_size"], row["write_quorum"]
        self._at = 0

    def places(self, entry: int) -> list[tuple[str, bool]]:
        """Return the members of an entry's write set, and whether each is assumed."""
        segments = self._segments
        number = self._at
        if segments[number][0] > entry:
            number = 0
        while number + 1 < len(segments) and segments[number + 1][0] <= entry:
            number += 1
        self._at = number
        _, members, assumed = segments[number]
        places = [(entry + i) % self._size for i in range(self._write)]
        return [(members[place], assumed[place]) for place in places]

    def of(self, entry: int) -> list[str]:
        """Return the members of an entry's write set."""
        return [name for name, _ in self.places(entry)]


def must_keep(true: Record) -> int:
    """Return the last entry that no reconstruction may leave out."""
    return true.last if true.state is LedgerState.CLOSED and true.last is not None else true.acked


def find_malformed(row: Row) -> str:
    """Return what is wrong in the form of a row; empty if nothing is."""
    size, write, ack, end = row["ensemble_size"], row["write_quorum"], row["ack_quorum"], row["last_entry"]
    if not 1 <= ack <= write <= size:
        return f"quorums {size}/{write}/{ack}"
    if row["state"] == LedgerState.CLOSED and (end is None or row["length"] is None):
        return "closed without an end or a length"
    firsts = [segment["first"] for segment in row["segments"]]
    if not firsts or firsts[0] != 0 or any(first >= behind for first, behind in pairwise(firsts)):
        return f"segments begin at {firsts}"
    if end is not None and len(firsts) > 1 and firsts[-1] > end + 1:
        return f"a segment begins at {firsts[-1]}, behind the end {end}"
    for segment in row["segments"]:
        members = segment["members"]
        if len(members) != size or len(set(members)) != size or None in members:
            return f"ensemble {members}"
    return ""


def is_right(name: str, row: Row, true: Record) -> bool:
    """Whether a field of a row is as it truly was."""
    closed = true.state is LedgerState.CLOSED
    end = row["last_entry"]
    match name:
        case "ensemble_size":
            return bool(row[name] == true.ensemble)
        case "write_quorum":
            return bool(row[name] == true.write)
        case "ack_quorum":
            return bool(row[name] == true.ack)
        case "state":
            return bool(row[name] == true.state.value)
        case "last_entry":
            return row["state"] == "OPEN" or bool(end == true.last if closed else end >= true.acked)
        case "length":
            if row["state"] == "OPEN":
                return True
            summed = sum(size for entry, size in true.sizes.items() if entry <= end)
            return bool(row[name] == (true.length if closed else summed))
        case "digest":
            return bool(row[name] == true.digest.value)
        case "password":
            return row["grades"][name] not in SURE or true.password in PASSWORDS
        case "segments":
            return _has_same_sets(row, true)
    raise AssertionError(name)


def _has_same_sets(row: Row, true: Record) -> bool:
    """Whether each entry of both has the bookies that it truly had, but for positions that are said to be assumed."""
    sets = WriteSets(row)
    end = must_keep(true) if row["last_entry"] is None else min(row["last_entry"], must_keep(true))
    for entry in range(end + 1):
        wanted = true.write_set(entry)
        places = sets.places(entry)
        if any(name not in wanted for name, assumed in places if not assumed):
            return False
        if not any(assumed for _, assumed in places) and len(places) != len(wanted):
            return False
    return True


def list_alternatives(row: Row) -> dict[str, list[str]]:
    """Return the alternatives' values by field."""
    return {
        name: [other["value"] for other in row["alternatives"] if other["field"] == name] for name in (*JUDGED, SHAPE)
    }


def has_true(listed: Mapping[str, Sequence[str]], name: str, true: Record) -> bool:
    """Whether what is true of a field is among the alternatives."""
    if name in ("ensemble_size", "write_quorum"):
        return f"{true.ensemble}/{true.write}" in listed[SHAPE]
    number = {"last_entry": true.last, "length": true.length}.get(name)
    # Another end has another length, which is known with it.
    names = ("last_entry", "length") if name == "length" else (name,)
    if number is None:
        return False
    ends = listed["last_entry"] if true.last is not None and "length" in names else []
    return any(is_within(value, number) for value in listed[name]) or any(is_within(v, true.last or 0) for v in ends)


def list_holes(row: Row) -> list[int]:
    """Return the entries that a row says nobody serves, in order."""
    return sorted(
        entry
        for group in row["holes"] or ()
        for start in range(group["first"], group["last"] + 1, group["period"] or 1)
        for entry in range(start, start + group["size"])
    )


def is_within(value: str, wanted: int) -> bool:
    """Whether an alternative's value, a number or a range ``low..high``, has a number."""
    low, dots, high = value.partition("..")
    try:
        return int(low) <= wanted <= int(high) if dots else int(low) == wanted
    except ValueError:
        return False


def find_unequal(row: Row, true: Record) -> Iterator[tuple[str, str]]:
    """Yield the fields of a row that are not as they were."""
    names = ("ensemble_size", "write_quorum", "state", "last_entry", "length", "digest", "segments")
    wrong = [
        name for name in names if (name != "state" or row[name] == LedgerState.CLOSED) and not is_right(name, row, true)
    ]
    if wrong:
        yield "clean", f"not as it was: {', '.join(wrong)}"
