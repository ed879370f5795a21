"""Tombstones and marks as bytes: the same again, and never half of what a later version wrote."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from reconcile.deletes._pb import tombstones_pb2 as pb
from reconcile.deletes.nodes import ChangeableNode
from reconcile.deletes.records import ARCHIVE, ArchiveMark, LastListing, RootMark, decode_last_listing, decode_root_mark
from reconcile.deletes.records import TOMBSTONES as KIND
from reconcile.deletes.tombstones import DeleteState, DeleteStep, Holder, StoredRecord, Tombstone
from recovery.errors import FormatError
from recovery.model.ids import LedgerId

I64 = st.integers(-(1 << 63), (1 << 63) - 1)
TIMES = st.integers(0, 1 << 50)
IDS = st.builds(LedgerId, I64, I64)
STATES = st.sampled_from(
    [DeleteState.REQUESTED, DeleteState.VERIFIED, DeleteState.PURGEABLE, DeleteState.PURGED, DeleteState.CONFIRMED]
)
TEXTS = st.text(max_size=8)
HOLDERS = st.builds(Holder, TEXTS, I64, TIMES, st.none() | TIMES, TEXTS, st.none() | TIMES)
MARKS = st.builds(ArchiveMark, st.builds(LedgerId, st.integers(0, 1), st.integers(-2, 3)), TEXTS, TEXTS, TEXTS, TIMES)
TOMBSTONES = st.builds(
    Tombstone,
    IDS,
    STATES,
    st.builds(StoredRecord, st.binary(max_size=20), TIMES, st.none() | TIMES, st.none() | st.text(min_size=1)),
    st.lists(TEXTS, max_size=3).map(tuple),
    st.lists(HOLDERS, max_size=3).map(tuple),
    st.lists(st.builds(DeleteStep, STATES, TIMES, TEXTS), min_size=1, max_size=3).map(tuple),
    TEXTS,
    TIMES,
    st.integers(0, 9),
    st.none() | TIMES,
    st.lists(TEXTS, max_size=3).map(tuple),
    TEXTS,
    st.lists(TEXTS, max_size=2).map(tuple),
)


def test_nothing_known_is_not_zero() -> None:
    """A holder that was never released, one released at 0, one with no entry, a listing at 0: each is what it was."""
    holders = (Holder("b", 1, 2, None, "", None), Holder("b", 2, 2, 0, "r", 0), Holder("c", 1, 2, 5, "r", 7))
    for listed_ms in (None, 0, 9):
        record, steps = StoredRecord(b"r", 1), (DeleteStep(DeleteState.PURGED, 3, "op"),)
        tombstone = Tombstone(
            LedgerId(0, 1), DeleteState.PURGED, record, ("b",), holders, steps, "why", 1, listed_ms=listed_ms
        )
        assert KIND.decode(KIND.encode([tombstone])) == [tombstone]


@given(st.lists(TOMBSTONES, max_size=4))
def test_tombstones_are_the_same_again(tombstones: list[Tombstone]) -> None:
    """Whatever they hold."""
    assert KIND.decode(KIND.encode(tombstones)) == tombstones


@given(st.lists(st.builds(ArchiveMark, IDS, TEXTS, TEXTS, TEXTS, TIMES), max_size=4))
def test_archive_marks_are_the_same_again(marks: list[ArchiveMark]) -> None:
    """Whatever they hold."""
    assert ARCHIVE.decode(ARCHIVE.encode(marks)) == marks


@given(st.lists(MARKS, max_size=5, unique_by=lambda mark: mark.ledger), st.lists(st.tuples(MARKS, st.booleans())))
def test_a_node_that_is_changed_is_the_node_written_anew(
    marks: list[ArchiveMark], changes: list[tuple[ArchiveMark, bool]]
) -> None:
    """Whatever is put and removed, in whatever order: the same records in the order of their ids."""
    node, model = ChangeableNode(ARCHIVE, ARCHIVE.encode(marks)), {mark.ledger: mark for mark in marks}
    for mark, is_put in changes:
        assert node.get(mark.ledger) == model.get(mark.ledger)
        if is_put:
            node.put(mark)
            model[mark.ledger] = mark
        else:
            node.remove(mark.ledger)
            model.pop(mark.ledger, None)
    assert {mark.ledger: mark for mark in node.list_records()} == model
    assert node.list_records({mark.ledger for mark in marks[:1]}) == [
        model[mark.ledger] for mark in marks[:1] if mark.ledger in model
    ]
    again = ARCHIVE.decode(node.encode())
    assert {mark.ledger: mark for mark in again} == model
    if len(again) > len(marks):
        assert again == sorted(again, key=lambda mark: mark.ledger.unsigned_key)


def test_texts_that_nobody_uses_go_some_day() -> None:
    """A node whose records change their texts again and again does not grow with that."""
    raw = ARCHIVE.encode([])
    sizes = []
    for number in range(400):
        node = ChangeableNode(ARCHIVE, raw)
        node.put(ArchiveMark(LedgerId(0, 1), "backup", f"s3://bucket/{number}", "", 1))
        raw = node.encode()
        sizes.append(len(raw))
    assert max(sizes) < 2000
    assert ARCHIVE.decode(raw) == [ArchiveMark(LedgerId(0, 1), "backup", "s3://bucket/399", "", 1)]


def test_a_change_leaves_the_others_the_message_that_they_were() -> None:
    """Who changes one record of many adds a text, and numbers none of the others anew."""
    marks = [ArchiveMark(LedgerId(0, number), "backup", f"s3://{number}", "", 1) for number in range(40)]
    raw = ARCHIVE.encode(marks)
    node = ChangeableNode(ARCHIVE, raw)
    node.put(ArchiveMark(LedgerId(0, 0), "backup", "s3://new", "", 1))
    before, after = (pb.ArchiveNode.FromString(value) for value in (raw, node.encode()))
    assert list(after.texts) == [*before.texts, "s3://new"]
    assert list(after.marks[1:]) == list(before.marks[1:])


def test_a_number_without_a_text_is_refused() -> None:
    """Of whichever record it is, and where is said."""
    node = pb.ArchiveNode(version=1, texts=[""], marks=[pb.ArchiveMark(ledger=1, by=7)])
    with pytest.raises(FormatError, match=r"^node of archive marks at byte 0: .*a field has no meaning"):
        ARCHIVE.decode(node.SerializeToString())


@given(st.binary(max_size=200))
def test_foreign_bytes_are_refused_or_read(raw: bytes) -> None:
    """Never an error that is not ours."""
    for decode in (KIND.decode, ARCHIVE.decode, decode_root_mark, decode_last_listing):
        with suppress(FormatError):
            decode(raw)


def test_a_later_version_is_refused() -> None:
    """A field that this program does not know may change what the others mean."""
    later = (
        (KIND.decode, pb.TombstoneNode(version=2)),
        (ARCHIVE.decode, pb.ArchiveNode(version=2)),
        (decode_root_mark, pb.RootMark(version=2, program="bkmeta")),
        (decode_last_listing, pb.LastListing(version=2)),
    )
    for decode, message in later:
        with pytest.raises(FormatError, match="version 2"):
            decode(message.SerializeToString())
    with pytest.raises(FormatError, match="does not name this program"):
        decode_root_mark(pb.RootMark(version=1, program="other").SerializeToString())
    listing = LastListing(1_700_000_000_000, 1 << 40, "op")
    assert decode_last_listing(listing.encode()) == listing
    assert decode_root_mark(RootMark("/ledgers", "one").encode()) == RootMark("/ledgers", "one")


@pytest.mark.parametrize(
    ("decode", "later", "where"),
    [
        (KIND.decode, pb.TombstoneNode(version=2), "node of tombstones"),
        (ARCHIVE.decode, pb.ArchiveNode(version=2), "node of archive marks"),
        (decode_root_mark, pb.RootMark(version=2, program="bkmeta"), "mark of a root"),
        (decode_last_listing, pb.LastListing(version=2), "last listing"),
    ],
)
def test_a_refusal_says_of_what_and_where(decode: Callable[[bytes], object], later: Message, where: str) -> None:
    """Bytes that are no message, and those of a later version: from the first one on."""
    for raw, problem in ((b"\xff", "not a protobuf message of ours"), (later.SerializeToString(), "version 2; this")):
        with pytest.raises(FormatError, match=f"^{where} at byte 0: .*{problem}"):
            decode(raw)
    if decode is decode_root_mark:
        with pytest.raises(FormatError, match=f"^{where} at byte 0: .*does not name this program"):
            decode(b"")


def test_the_bytes_stay_as_documented() -> None:
    """Field numbers of a small tombstone, byte for byte."""
    tombstone = Tombstone(
        LedgerId(0, 5),
        DeleteState.REQUESTED,
        StoredRecord(b"r", 2),
        ("b",),
        (),
        (DeleteStep(DeleteState.REQUESTED, 1, "me"),),
        "",
        7,
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
    assert KIND.encode([tombstone]) == node
