"""Captured conversations with real bookies, replayed: we send the same bytes, and understand every answer."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from backends.bookie import frames
from backends.bookie.frames import BookieAnswer, BookieQuestion, Conversation, Operation, RequestOutcome, Status
from backends.errors import ProtocolError
from recovery.model.groups import count, decode_availability
from tests.support import paths

DATA = paths.DATA / "wire"
SINGLE = ("read", "read_lac", "list", "info", "auth", "start_tls", "force", "header")
NAMES = {"read": "READ_ENTRY", "list": "LIST_ENTRIES", "read_lac": "READ_LAC", "info": "BOOKIE_INFO"}
CUT = "..."


def exchanges(*files: str) -> Iterator[dict[str, Any]]:
    """Every request of the files, alone or in a conversation, with what came back."""
    for name in files:
        content = json.loads((DATA / f"{name}.json").read_text())
        yield from content.get("exchanges", ())
        for conversation in content.get("conversations", ()):
            yield from conversation["steps"]


def asked(decoded: dict[str, Any]) -> BookieQuestion:
    """The request of ours that an answer, described by its fields, answers."""
    operation = decoded["header"]["operation"]
    inner = decoded.get("read") or decoded.get("list") or decoded.get("read_lac") or {}
    return BookieQuestion(Operation(operation), inner.get("ledger", 0), 0, inner.get("entry", 0))


def replayed(
    request: BookieQuestion, txn: int, response: bytes, *, step: int
) -> tuple[BookieAnswer, Conversation[str]]:
    """Ask, and receive the captured answer so many bytes at a time."""
    talk: Conversation[str] = Conversation()
    talk._next = txn
    talk.send(request, "mine")
    found = [one for at in range(0, len(response), step) for one in talk.receive(response[at : at + step])]
    assert [(got, tag) for got, tag, _ in found] == [(request, "mine")]
    return found[0][2], talk


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_every_captured_answer_says_what_was_recorded_however_it_is_cut(step: int) -> None:
    """Status, ids, records, LAC records, numbers and availability bytes of every answer of protocol 3."""
    seen = 0
    for one in exchanges(*SINGLE, "conversations", "auth_tls"):
        decoded = one.get("decoded")
        if one["outcome"] != "response" or not isinstance(decoded, dict):
            continue
        if decoded["header"]["operation"] not in list(Operation):
            continue
        answer, talk = replayed(asked(decoded), decoded["header"]["txn"], bytes.fromhex(one["response"]), step=step)
        assert not len(talk)
        assert answer.status == Status[decoded["status"]]
        seen += 1
        if "list" in decoded and "availability" in decoded["list"]:
            assert decoded["list"]["availability"] in (answer.body.hex(), f"{len(answer.body)} bytes")
            decode_availability(answer.body)
        if "read" in decoded:
            assert decoded["read"].get("body", "") in (answer.body.hex(), f"{len(answer.body)} bytes")
            assert answer.max_lac == decoded["read"].get("max_lac", -1)
        if "read_lac" in decoded:
            assert answer.body.hex() == decoded["read_lac"].get("last_body", "")
            assert answer.lac_record.hex() == decoded["read_lac"].get("lac_body", "")
        if "info" in decoded:
            assert (answer.total, answer.free) == (decoded["info"].get("total", 0), decoded["info"].get("free", 0))
        if "auth" in decoded:
            assert (answer.plugin, answer.body.hex()) == (decoded["auth"]["plugin"], decoded["auth"]["payload"])
    assert seen > 100


def test_outcomes_of_captured_answers_are_kept_apart() -> None:
    """An answer, a negative, a refusal and what is not understood; a negative of READ_LAC is none."""
    found: dict[tuple[str, str], set[RequestOutcome]] = {}
    for one in exchanges(*SINGLE, "auth_tls"):
        decoded = one.get("decoded")
        if isinstance(decoded, dict) and decoded["header"]["operation"] in list(Operation):
            request = asked(decoded)
            answer, _ = replayed(request, decoded["header"]["txn"], bytes.fromhex(one["response"]), step=1 << 20)
            found.setdefault((request.operation.name, decoded["status"]), set()).add(answer.outcome)
    assert found == {
        ("READ_ENTRY", "EOK"): {RequestOutcome.ANSWER},
        ("READ_ENTRY", "ENOLEDGER"): {RequestOutcome.NEGATIVE},
        ("READ_ENTRY", "ENOENTRY"): {RequestOutcome.NEGATIVE},
        ("READ_ENTRY", "EUA"): {RequestOutcome.REFUSED},
        ("READ_ENTRY", "EBADREQ"): {RequestOutcome.NOT_UNDERSTOOD},
        ("READ_ENTRY", "EBADVERSION"): {RequestOutcome.NOT_UNDERSTOOD},
        ("READ_LAC", "EOK"): {RequestOutcome.ANSWER},
        ("READ_LAC", "ENOENTRY"): {RequestOutcome.REFUSED},
        ("READ_LAC", "EUA"): {RequestOutcome.REFUSED},
        ("LIST_ENTRIES", "EOK"): {RequestOutcome.ANSWER},
        ("LIST_ENTRIES", "ENOLEDGER"): {RequestOutcome.NEGATIVE},
        ("LIST_ENTRIES", "EUA"): {RequestOutcome.REFUSED},
        ("BOOKIE_INFO", "EOK"): {RequestOutcome.ANSWER},
        ("BOOKIE_INFO", "EUA"): {RequestOutcome.REFUSED},
        ("AUTH", "EOK"): {RequestOutcome.ANSWER},
        ("AUTH", "EUA"): {RequestOutcome.REFUSED},
        ("START_TLS", "EOK"): {RequestOutcome.ANSWER},
        ("START_TLS", "EUA"): {RequestOutcome.REFUSED},
        ("START_TLS", "EIO"): {RequestOutcome.REFUSED},
        ("START_TLS", "EBADREQ"): {RequestOutcome.NOT_UNDERSTOOD},
    }


def test_our_requests_are_the_bytes_that_real_bookies_answered() -> None:
    """Each kind of request that we send is among the captured ones, byte for byte."""
    captured = {one["request"] for one in exchanges(*SINGLE, "conversations", "auth_tls") if "request" in one}
    for request, txn in (
        (frames.list_entries(0), 41),
        (frames.list_entries(4711), 45),
        (frames.list_entries(-1), 46),
        (frames.read_entry(2, 3), 1),
        (frames.read_entry(1, frames.LAST), 2),
        (frames.read_entry(4711, 0), 4),
        (frames.read_lac(3), 0x15),
        (frames.bookie_info(), 33),
        (frames.start_tls(), 1),
        (frames.authenticate("wirecheck", b"hello"), 1),
        (frames.authenticate("wirecheck", b"good"), 2),
        (frames.authenticate("x", b"abc"), 61),
    ):
        assert frames.encode(request, txn).hex() in captured, request


def test_frames_of_the_other_protocol_and_answers_to_nothing_are_told() -> None:
    """Answers of protocol 2 end a conversation by name; answers that nobody waits for are counted and dropped."""
    other = dropped = 0
    for one in exchanges(*SINGLE, "conversations", "auth_tls"):
        if one["outcome"] != "response" or CUT in one["response"]:
            continue
        talk: Conversation[None] = Conversation()
        talk.send(frames.bookie_info(), None)
        talk._next = 1 << 40
        data = bytes.fromhex(one["response"])
        if one.get("decoded") == "not a v3 response":
            with pytest.raises(ProtocolError):
                talk.receive(data)
            other += 1
        elif one["decoded"]["header"]["txn"] != 1:
            assert talk.receive(data) == []
            assert (talk.dropped, len(talk)) == (1, 1)
            dropped += 1
    assert other > 20
    assert dropped > 100


def test_the_second_answer_inside_tls_is_dropped() -> None:
    """A bookie that demands authentication answers START_TLS twice; the answers after that find their requests."""
    content = json.loads((DATA / "auth_tls.json").read_text())
    steps = next(c["steps"] for c in content["conversations"] if c["name"] == "START_TLS then AUTH then READ")
    responses = [bytes.fromhex(s["response"]) for s in steps if "response" in s]
    talk: Conversation[str] = Conversation()
    talk.send(frames.start_tls(), "tls")
    talk.send(frames.authenticate("wirecheck", b"good"), "auth")
    talk._next = 9
    talk.send(frames.read_entry(0, 0), "read")
    found = [(tag, answer.said) for data in responses for _, tag, answer in talk.receive(data)]
    assert found == [("tls", "EOK"), ("read", "EUA"), ("auth", "EOK")]
    assert talk.dropped == 2


def test_lists_of_every_storage_hold_the_entries_that_were_written() -> None:
    """Ledger 7, W of E in turn: a list sent one group a run is read as the two thirds that each bookie holds."""
    held = [
        count(
            *decode_availability(replayed(asked(one["decoded"]), 43, bytes.fromhex(one["response"]), step=99)[0].body)[
                1:
            ]
        )
        for one in exchanges("list")
        if one["outcome"] == "response" and one["name"].startswith("ledger 7")
    ]
    assert len(held) == 2
    assert all(66 <= entries.sum() <= 67 for entries in held)
