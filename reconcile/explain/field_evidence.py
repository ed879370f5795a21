"""What each field of a proposed record rests on, in words, and what else would fit."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from reconcile.compare.knowledge import Knowledge, Shapes
from recovery.codecs.entry import master_key
from recovery.infer.prior import ShapeSource
from recovery.model import tables
from recovery.model.metadata import LedgerState

HASH_DIGITS: Final = 12
"""Of the SHA-256 of a master key."""

_VERIFIED: Final = ("verified",)

_VOUCHED: Final = {
    "snapshot": "the snapshot's record says it",
    "reference": "the upper layer that owns it says it",
}
"""Grades of which no copy is the evidence."""

_SETTLES: Final = {
    "last_entry": "an upper layer that knows it (references), or a snapshot's record",
    "length": "an upper layer that knows it (references), or a snapshot's record",
    "segments": "verify all ledgers through both: what only one of them reads is there",
    "ensemble_size/write_quorum": "a snapshot's record, or a default quorum",
}
"""What would tell the readings of a field apart."""

_SHAPE_SOURCES: Final = {
    ShapeSource.CLUSTER: "of this cluster's ledgers that show theirs have it",
    ShapeSource.SNAPSHOT: "of the records in snapshots have it",
    ShapeSource.DEFAULT_QUORUM: "the operator's default quorum says it",
    ShapeSource.BOOKKEEPER_DEFAULT: "BookKeeper's own default",
}


@dataclass(frozen=True, slots=True)
class ExplainedField:
    """One field of the proposed record: its value, its grade, and what it rests on."""

    name: str
    value: str
    grade: str
    evidence: str


def fields(
    row: Mapping[str, Any] | None, copies: pa.Table, knowledge: Knowledge, shapes: Shapes
) -> Iterator[ExplainedField]:
    """Yield the fields of a restored ledger's record, with grade and evidence; none of a ledger that is not restored.

    Args:
        row: of RECONSTRUCTION.
        copies: COPIES of the ledger, as far as they are at hand.
        knowledge: what the operator knows.
        shapes: the prior that was used.
    """
    if row is None or row["outcome"] != "restored":
        return
    evidence = _evidence(row, copies, knowledge, shapes)
    for name in tables.GRADED:
        grade = row["grades"][name]
        yield ExplainedField(name, _value(row, name), grade, _VOUCHED.get(grade) or evidence.get(name, ""))


def _value(row: Mapping[str, Any], name: str) -> str:
    if name == "segments":
        return " ".join(f"{s['first']}:[{_members(s)}]" for s in row["segments"])
    if name == "password":
        return "known" if row["grades"]["password"] in ("verified", "snapshot") else "not known"
    value = row[name]
    return "none" if value is None else str(value)


def _members(segment: Mapping[str, Any]) -> str:
    pairs = zip(segment["members"], segment["assumed"], strict=True)
    return ",".join(f"{member}?" if assumed else member for member, assumed in pairs)


def _evidence(row: Mapping[str, Any], copies: pa.Table, knowledge: Knowledge, shapes: Shapes) -> dict[str, str]:
    """Say in words what each field rests on, as far as the copies at hand show it."""
    evidence = {
        "state": _state(row),
        "ctime": "on no bookie; only a snapshot has it",
        "custom": "on no bookie; only a snapshot has it",
        "segments": "positions that fit what each bookie holds; ? marks members that nothing shows",
        "ack_quorum": "on no bookie; " + _ack_source(row, knowledge),
    }
    if row["grades"]["ensemble_size"] != "observed":
        evidence["ensemble_size"] = evidence["write_quorum"] = _shape_source(row, shapes)
    key = row["key"]
    if key is not None:
        known = key in {hashlib.sha256(master_key(p)).digest() for p in knowledge.passwords}
        says = "a candidate password gives it" if known else "no candidate given here gives it"
        if not known and row["grades"]["password"] in _VERIFIED:
            # A plan keeps that one did, and not which.
            says = "a candidate password gave it when the plan was made"
        evidence["password"] = f"master key with SHA-256 {key.hex()[:HASH_DIGITS]}…: {says}"
    rows = copies.to_pylist()
    if not rows:
        return evidence
    evidence["last_entry"] = _end(row, max((c["last"] for c in rows if c["last"] is not None), default=-1), rows)
    headers = [(c["bookie"], h) for c in rows for h in c["headers"]]
    lengths = sorted({(h["length"], f"entry {h['entry']}") for _, h in headers if h["length"] == row["length"]})
    if lengths:
        evidence["length"] = f"header of {lengths[0][1]}"
    agreed = Counter(h["digest"] for _, h in headers if h["digest"])
    digests = ", ".join(f"{n} as {kind}" for kind, n in agreed.items())
    evidence["digest"] = f"of {len(headers)} headers read the bytes agree: {digests or 'none; its width tells it'}"
    striped = Counter((c["g_size"], c["g_period"]) for c in rows if c["g_period"])
    if striped and row["grades"]["ensemble_size"] == "observed":
        (size, period), count = striped.most_common(1)[0]
        evidence["ensemble_size"] = evidence["write_quorum"] = f"{size} of every {period} entries on {count} bookies"
    return evidence


def _state(row: Mapping[str, Any]) -> str:
    if row["state"] == LedgerState.OPEN:
        return "left open, as asked: every position of its last ensemble was seen to hold its share"
    if row["grades"]["state"] == "inferred":
        return "copies that were made of it have its last entry as LAC, as copies of a closed ledger do"
    return "bookies keep the same of a closed ledger and of one that was not closed; proposed as closed"


def _end(row: Mapping[str, Any], highest: int, rows: Sequence[Mapping[str, Any]]) -> str:
    having = ", ".join(sorted({c["bookie"] for c in rows if c["last"] == highest}))
    lac = f"largest LAC that anything shows: {'none' if row['lac_low'] is None else row['lac_low']}"
    if row["last_entry"] == highest:
        return f"highest entry held, on {having}; {lac}"
    if row["state"] == LedgerState.OPEN:
        return f"not written while it is open; highest entry held: {highest}, on {having}; {lac}"
    return f"entries up to {highest} are held, on {having}; those above it cannot all have been acknowledged; {lac}"


def _shape_source(row: Mapping[str, Any], shapes: Shapes) -> str:
    silent = "this ledger does not show it"
    for shape in shapes:
        if (shape["ensemble"], shape["write"]) == (row["ensemble_size"], row["write_quorum"]):
            share = f"{shape['weight']:.0%} " if shape["weight"] else ""
            return f"{silent}; {share}{_SHAPE_SOURCES.get(shape['source'], shape['source'])}"
    return silent


def _ack_source(row: Mapping[str, Any], knowledge: Knowledge) -> str:
    quorums = (row["ensemble_size"], row["write_quorum"], row["ack_quorum"])
    if quorums == knowledge.default_quorum:
        return "the operator's default quorum says it"
    if row["grades"]["ack_quorum"] != "assumed":
        return "snapshots have it for this shape"
    if row["ack_quorum"] == row["write_quorum"]:
        return "the write quorum, as BookKeeper reads a record without it"
    return "a default"


def alternatives(row: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the other readings that fit, in words."""
    for other in (row or {}).get("alternatives") or ():
        weight = f", weight {other['weight']:.2f}" if other["weight"] else ""
        settles = _SETTLES.get(other["field"])
        remedy = f"; settled by {settles}" if settles else ""
        yield f"{other['field']} = {other['value']}{weight}: {other['reads_as']}{remedy}"


def changes(row: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield how the ensemble changed, by entry, and where the ledger ends."""
    previous: Mapping[str, Any] | None = None
    for segment in (row or {}).get("segments") or ():
        if previous is None:
            yield f"entry {segment['first']}: written to {', '.join(segment['members'])}"
        else:
            low = segment["first_low"]
            span = "" if low == segment["first"] else f" (in truth somewhere from {low} on)"
            yield f"entry {segment['first']}{span}: {describe_replaced(previous['members'], segment['members'])}"
        previous = segment
    if row is not None and row["outcome"] == "restored":
        if row["last_entry"] is None:
            yield "open: no last entry is written"
        else:
            yield f"entry {row['last_entry']}: the last one" if row["last_entry"] >= 0 else "closed without an entry"


def describe_replaced(earlier: Sequence[str], members: Sequence[str]) -> str:
    """Say which bookies of an ensemble stand for which earlier ones; all of them where the two differ in size."""
    if len(earlier) != len(members):
        return f"written to {', '.join(members)}"
    pairs = enumerate(zip(earlier, members, strict=True))
    return "; ".join(f"{new} for {old} at position {position}" for position, (old, new) in pairs if old != new)
