"""The bookie protocol without sockets: any bytes, any cut, and nothing that could change a bookie."""

import inspect
import json
import re
import struct
from collections.abc import Callable
from random import Random

import pytest
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given
from hypothesis import strategies as st

from backends.bookie import client, frames
from backends.bookie._pb import bookie_pb2 as pb
from backends.bookie.frames import BookieAnswer, BookieQuestion, Conversation, Operation, RequestOutcome
from backends.errors import ProtocolError
from recovery.codecs.registration import Endpoint, address_in, decode_registration
from recovery.errors import FormatError
from recovery.model.groups import decode_availabilities, decode_availability
from tests.support import paths

I64 = st.integers(-(1 << 63), (1 << 63) - 1)
DATA = paths.DATA / "wire"
REAL = [
    bytes.fromhex(one["response"])
    for name in ("read", "read_lac", "list", "info", "auth", "start_tls")
    for one in json.loads((DATA / f"{name}.json").read_text())["exchanges"]
    if one["outcome"] == "response"
]
LISTS = [frames.interpret(frames.list_entries(7), pb.Response.FromString(raw[4:])).body for raw in REAL]
"""Availability bytes of a real bookie, and none."""
REGISTRATION = bytes.fromhex(
    "32210a0a68747470736572766572108dc4011a093132372e302e302e3122046874747032230a06626f6f6b696510a9c3011a09"
    "3132372e302e302e31220a626f6f6b69652d727063"
)
requests = st.one_of(
    st.builds(frames.list_entries, I64, I64),
    st.builds(frames.read_entry, I64, st.integers(-1, (1 << 63) - 1)),
    st.builds(frames.read_lac, I64, I64),
    st.builds(frames.bookie_info),
    st.builds(frames.authenticate, st.text(max_size=20), st.binary(max_size=40)),
    st.builds(frames.start_tls),
)
"""Everything that can be asked."""


def asked() -> Conversation[int]:
    """A conversation with one request of each kind outstanding, under the numbers that the captured ones have, too."""
    talk: Conversation[int] = Conversation(1 << 16)
    kinds = [frames.list_entries(2), frames.read_entry(2, 3), frames.read_lac(3), frames.bookie_info()]
    for number in range(80):
        talk.send(kinds[number % len(kinds)], number)
    return talk


def taken(talk: Conversation[int], data: bytes) -> list[BookieAnswer]:
    """What a conversation makes of bytes: answers, or a named error."""
    try:
        found = talk.receive(data)
    except ProtocolError:
        return []
    assert len({number for _, number, _ in found}) == len(found)
    return [answer for _, _, answer in found]


@given(st.binary(max_size=300))
def test_any_bytes_are_answers_or_a_named_error(data: bytes) -> None:
    """Arbitrary bytes, bare and as the content of a frame."""
    for raw in (data, struct.pack(">i", len(data)) + data):
        for answer in taken(asked(), raw):
            assert isinstance(answer.outcome, RequestOutcome)
            assert answer.said


@given(st.data())
def test_damaged_real_answers_are_answers_or_a_named_error(data: st.DataObject) -> None:
    """Captured answers with a byte changed, cut or doubled."""
    raw = bytearray(b"".join(data.draw(st.lists(st.sampled_from(REAL), min_size=1, max_size=4))))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)))]
    for answer in taken(asked(), bytes(raw)):
        assert isinstance(answer.outcome, RequestOutcome)


@given(st.lists(requests, min_size=1, max_size=8), st.randoms(use_true_random=False), st.integers(1, 40))
def test_answers_in_any_order_and_cut_anywhere_find_their_requests(
    sent: list[BookieQuestion], shuffle: Random, step: int
) -> None:
    """Each request gets its own answer, once; the same answer a second time is dropped."""
    talk: Conversation[int] = Conversation()
    responses = []
    for number, request in enumerate(sent):
        raw = talk.send(request, number)
        said = pb.Request.FromString(raw[4:])
        answer = pb.Response(status=502)
        answer.header.CopyFrom(said.header)
        responses.append(answer.SerializeToString())
    shuffle.shuffle(responses)
    stream = b"".join(struct.pack(">i", len(r)) + r for r in [*responses, responses[0]])
    found = [one for at in range(0, len(stream), step) for one in talk.receive(stream[at : at + step])]
    assert sorted(number for _, number, _ in found) == list(range(len(sent)))
    assert all(request == sent[number] for request, number, _ in found)
    assert {answer.outcome for _, _, answer in found} == {RequestOutcome.REFUSED}
    assert (talk.dropped, len(talk)) == (1, 0)


@given(st.lists(requests, min_size=1, max_size=8))
def test_a_conversation_sends_each_request_as_it_is_encoded_alone(sent: list[BookieQuestion]) -> None:
    """Whatever was sent before it, nothing of that is in its bytes."""
    talk: Conversation[int] = Conversation()
    assert [talk.send(request, 0) for request in sent] == [
        frames.encode(request, n) for n, request in enumerate(sent, 1)
    ]


@given(requests, st.integers(1, (1 << 63)))
def test_no_request_says_more_than_its_kind(request: BookieQuestion, txn: int) -> None:
    """Whatever the ids: only reading operations, version 3, no priority, no unknown field; a read has no field 100."""
    raw = frames.encode(request, txn)
    said = pb.Request.FromString(raw[4:])
    assert struct.unpack(">i", raw[:4])[0] == len(raw) - 4
    assert said.header.operation in {1, 5, 7, 8, 9, 11}
    assert (said.header.version, said.header.txnId, said.header.HasField("priority")) == (3, txn, False)
    assert [field.name for field, _ in said.ListFields()] == ["header", frames._INNER[request.operation]]
    assert all(not _unknown(part) for part in (said, said.read, said.list, said.readLac))
    if request.operation is Operation.READ_ENTRY:
        # Only ids: key (1), entry (2), nothing that is 100 and nothing that is bytes.
        assert re.fullmatch(rb"\x08[\x80-\xff]*[\x00-\x7f]\x10[\x80-\xff]*[\x00-\x7f]", said.read.SerializeToString())


def _unknown(message: Message) -> bool:
    return len(UnknownFieldSet(message)) > 0


def test_nothing_that_fences_recovers_or_writes_can_be_said() -> None:
    """Neither messages nor the functions that make requests know a flag, a key, a record, or a writing operation."""

    def fields(of: type[Message]) -> set[tuple[str, int]]:
        return {(field.name, field.number) for field in of.DESCRIPTOR.fields}

    # Operations and messages of BookKeeper that write, add, force, or come with a key: 101, 103, 107, and 2, 6, 10, 12.
    assert fields(pb.Request) == {
        ("header", 1), ("read", 100), ("auth", 102), ("readLac", 104), ("info", 105), ("startTls", 106), ("list", 108),
    }  # fmt: skip
    assert fields(pb.ReadRequest) == {("ledgerId", 1), ("entryId", 2)}
    assert fields(pb.ReadLacRequest) == {("ledgerId", 1), ("ledgerScopeId", 100)}
    assert fields(pb.ListRequest) == {("ledgerId", 1), ("ledgerScopeId", 100)}
    assert {operation.value for operation in Operation} == {1, 5, 7, 8, 9, 11}
    assert BookieQuestion._fields == ("operation", "ledger", "scope", "entry", "plugin", "payload")
    makers = {
        name
        for name, function in inspect.getmembers(frames, inspect.isfunction)
        if inspect.signature(function).return_annotation is BookieQuestion
    }
    assert makers == {"list_entries", "read_entry", "read_lac", "bookie_info", "authenticate", "start_tls"}
    words = re.compile(
        r"\b(fence_?ledger|recovery_?add|master_?key|add_?entry|write_?lac|force_?ledger)\b", re.IGNORECASE
    )
    for module in (frames, client):
        assert not words.search(inspect.getsource(module).partition('"""')[2].partition('"""')[2])


def test_a_read_of_another_scope_is_never_sent() -> None:
    """Its field would be taken for the flag that fences, so it cannot be made; nor can an entry id that is none."""
    with pytest.raises(ValueError, match="fencing"):
        frames.read_entry(5, 0, scope=1)
    with pytest.raises(ValueError, match="-2"):
        frames.read_entry(5, -2)


@pytest.mark.parametrize("make", [frames.list_entries, frames.read_lac])
@pytest.mark.parametrize(
    ("echo", "outcome"),
    [(7, RequestOutcome.ANSWER), (None, RequestOutcome.NOT_UNDERSTOOD), (8, RequestOutcome.NOT_UNDERSTOOD)],
)
def test_for_another_scope_only_an_answer_that_repeats_it_is_believed(
    make: Callable[[int, int], BookieQuestion], echo: int | None, outcome: RequestOutcome
) -> None:
    """A bookie that does not know scopes answers for scope 0: that is not an answer."""
    request = make(12345, 7)
    response = pb.Response(status=0)
    response.header.version, response.header.operation, response.header.txnId = 3, request.operation, 1
    inner = response.list if request.operation is Operation.LIST_ENTRIES else response.readLac
    inner.status, inner.ledgerId = 0, 12345
    if echo is not None:
        inner.ledgerScopeId = echo
    assert frames.interpret(request, response).outcome is outcome
    assert frames.interpret(request._replace(scope=0), response).outcome is not outcome or echo == 8


@given(st.integers(-(1 << 31), (1 << 31) - 1))
def test_a_length_that_cannot_be_ends_the_conversation_before_anything_is_kept(size: int) -> None:
    """Zero, negative, or one above the limit: an error at once; up to the limit it is waited for."""
    talk: Conversation[None] = Conversation(1 << 16)
    if 0 < size <= (1 << 16) - 4:
        assert talk.receive(struct.pack(">i", size)) == []
    else:
        with pytest.raises(ProtocolError):
            talk.receive(struct.pack(">i", size))


def test_what_is_overdue_is_given_back_once_and_its_answer_dropped() -> None:
    """A stale answer finds nobody."""
    talk: Conversation[str] = Conversation()
    talk.send(frames.bookie_info(), "early", 1.0)
    late = talk.send(frames.start_tls(), "late", 5.0)
    assert [tag for _, tag in talk.overdue(2.0)] == ["early"]
    assert talk.overdue(2.0) == []
    response = pb.Response(status=0)
    response.header.version, response.header.operation, response.header.txnId = 3, 8, 1
    response.info.status = 0
    raw = response.SerializeToString()
    assert talk.receive(struct.pack(">i", len(raw)) + raw) == []
    assert (talk.dropped, len(talk), late[:4]) == (1, 1, bytes.fromhex("0000000b"))


@given(st.binary(max_size=200))
def test_any_registration_is_an_endpoint_none_or_a_named_error(raw: bytes) -> None:
    """Arbitrary bytes, and a real one with a byte changed."""
    damaged = bytearray(REGISTRATION)
    if raw:
        damaged[len(raw) % len(damaged)] = raw[0]
    for data in (raw, bytes(damaged)):
        try:
            found = decode_registration(data)
        except FormatError:
            continue
        assert found is None or 0 < found.port < 65536


def test_both_formats_of_a_registration_and_ids_that_are_addresses() -> None:
    """The bookie's endpoint is found behind the HTTP server's; an empty value leaves it to the id."""
    assert decode_registration(REGISTRATION) == Endpoint("127.0.0.1", 25001)
    assert decode_registration(b"") is None
    assert address_in("10.0.0.5:3181") == Endpoint("10.0.0.5", 3181)
    assert address_in("bk1.example.org:+3181") == Endpoint("bk1.example.org", 3181)
    for bookie in ("bk1", "[::1]:3181", "a:b:c", "host:port", "host:65536", "host:", ":3181"):
        assert address_in(bookie) is None


@given(st.lists(st.one_of(st.sets(st.integers(0, 40)), st.binary(max_size=120), st.sampled_from(LISTS)), max_size=6))
def test_many_lists_are_decoded_as_each_alone(lists: list[set[int] | bytes]) -> None:
    """Lists of released bookies, grouped ones and arbitrary bytes in any mixture: the same groups, the same errors."""
    raws = [one if isinstance(one, bytes) else _availability(one) for one in lists]
    groups, errors = decode_availabilities(raws)
    for number, raw in enumerate(raws):
        if number in errors:
            with pytest.raises(FormatError, match=re.escape(str(errors[number]))):
                decode_availability(raw)
            continue
        alone = decode_availability(raw)
        mine = groups.key == number
        assert [column[mine].tolist() for column in groups[1:]] == [column.tolist() for column in alone[1:]]


def _availability(entries: set[int]) -> bytes:
    """What a released bookie sends: a group a run."""
    runs: list[list[int]] = []
    for entry in sorted(entries):
        if runs and runs[-1][0] + runs[-1][1] == entry:
            runs[-1][1] += 1
        else:
            runs.append([entry, 1])
    groups = b"".join(struct.pack(">qqii", first, first, size, 0) for first, size in runs)
    return struct.pack(">ii56x", 0, len(runs)) + groups
