"""Tombstones and marks as bytes: the same again, and never half of what a later version wrote."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.deletes._pb import tombstones_pb2 as pb
from reconcile.deletes.records import (
    ArchiveMark,
    RootMark,
    decode_marks,
    decode_root_mark,
    decode_tombstones,
    encode_marks,
    encode_tombstones,
)
from reconcile.deletes.tombstones import Holder, State, Step, StoredRecord, Tombstone
from recovery.errors import FormatError
from recovery.model.ids import LedgerId

I64 = st.integers(-(1 << 63), (1 << 63) - 1)
TIMES = st.integers(0, 1 << 50)
IDS = st.builds(LedgerId, I64, I64)
STATES = st.sampled_from([State.REQUESTED, State.VERIFIED, State.PURGEABLE, State.PURGED, State.CONFIRMED])
TEXTS = st.text(max_size=8)
HOLDERS = st.builds(Holder, TEXTS, I64, TIMES, st.none() | TIMES, TEXTS)
TOMBSTONES = st.builds(
    Tombstone,
    IDS,
    STATES,
    st.builds(StoredRecord, st.binary(max_size=20), TIMES, st.none() | TIMES, st.none() | st.text(min_size=1)),
    st.lists(TEXTS, max_size=3).map(tuple),
    st.lists(HOLDERS, max_size=3).map(tuple),
    st.lists(st.builds(Step, STATES, TIMES, TEXTS), min_size=1, max_size=3).map(tuple),
    TEXTS,
    TIMES,
    st.integers(0, 9),
    st.none() | TIMES,
    st.lists(TEXTS, max_size=3).map(tuple),
    TEXTS,
    st.lists(TEXTS, max_size=2).map(tuple),
)


@given(st.lists(TOMBSTONES, max_size=4))
def test_tombstones_are_the_same_again(tombstones: list[Tombstone]) -> None:
    """Whatever they hold."""
    assert decode_tombstones(encode_tombstones(tombstones)) == tombstones


@given(st.lists(st.builds(ArchiveMark, IDS, TEXTS, TEXTS, TEXTS, TIMES), max_size=4))
def test_archive_marks_are_the_same_again(marks: list[ArchiveMark]) -> None:
    """Whatever they hold."""
    assert decode_marks(encode_marks(marks)) == marks


@given(st.binary(max_size=200))
def test_foreign_bytes_are_refused_or_read(raw: bytes) -> None:
    """Never an error that is not ours."""
    for decode in (decode_tombstones, decode_marks, decode_root_mark):
        with suppress(FormatError):
            decode(raw)


def test_a_later_version_is_refused() -> None:
    """A field that this program does not know may change what the others mean."""
    later = (
        (decode_tombstones, pb.TombstoneNode(version=2)),
        (decode_marks, pb.ArchiveNode(version=2)),
        (decode_root_mark, pb.RootMark(version=2, program="bkmeta")),
    )
    for decode, message in later:
        with pytest.raises(FormatError, match="version 2"):
            decode(message.SerializeToString())
    with pytest.raises(FormatError, match="does not name this program"):
        decode_root_mark(pb.RootMark(version=1, program="other").SerializeToString())
    assert decode_root_mark(RootMark("/ledgers", "one").encode()) == RootMark("/ledgers", "one")


def test_the_bytes_stay_as_documented() -> None:
    """Field numbers of a small tombstone, byte for byte."""
    tombstone = Tombstone(
        LedgerId(0, 5), State.REQUESTED, StoredRecord(b"r", 2), ("b",), (), (Step(State.REQUESTED, 1, "me"),), "", 7
    )
    node = bytes.fromhex(
        "0801"  # version 1
        "1200" "12026d65" "120162"  # texts: none, me, b
        "1a1d"  # a tombstone; scope 0 is left out
        "110500000000000000"  # ledger 5
        "1801" "220172" "2802"  # REQUESTED, record, its version
        "420102"  # members: text 2
        "5206" "080110011801"  # a step: REQUESTED at 1 by text 1
        "6007"  # soak
    )  # fmt: skip
    assert encode_tombstones([tombstone]) == node
