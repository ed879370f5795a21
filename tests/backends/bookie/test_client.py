"""The bookie client against a server that speaks the protocol and misbehaves as no real bookie can be made to."""

import asyncio
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from backends.bookie import frames
from backends.bookie._pb import bookie_pb2 as pb
from backends.bookie.auth import USER_VARIABLE, load_mechanism
from backends.bookie.client import Address, BookieOptions, BookieTls, BookieWire, RequestPace
from backends.bookie.frames import BookieAnswer, BookieQuestion, RequestOutcome, Status
from backends.errors import UnsupportedAuthError

OPTIONS = BookieOptions(in_flight=100, deadline_s=60, patience_s=1)
Reply = Callable[[pb.Request], bytes | None]
"""What a server sends for a request; None: nothing. Raises EOFError to close the connection."""


def framed(message: pb.Response) -> bytes:
    """A response as a frame."""
    raw = message.SerializeToString()
    return struct.pack(">i", len(raw)) + raw


def listed(request: pb.Request, status: int = 0) -> bytes:
    """An answer to a list request."""
    response = pb.Response(status=status)
    response.header.CopyFrom(request.header)
    response.list.status, response.list.ledgerId = status, request.list.ledgerId
    return framed(response)


class Server:
    """Answers as it is told, and remembers what it was asked."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self.asked: list[int] = []
        self._handlers: set[asyncio.Task[None]] = set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (handler := asyncio.current_task()) is not None:
            self._handlers.add(handler)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                request = pb.Request.FromString(await reader.readexactly(size))
                self.asked.append(request.list.ledgerId)
                answer = self._reply(request)
                if answer is not None:
                    writer.write(answer)
        except (EOFError, ConnectionError):
            pass
        finally:
            writer.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Address]:
        """Listen, and say where."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield Address(*server.sockets[0].getsockname()[:2])
        finally:
            server.close()
            for handler in self._handlers:
                handler.cancel()
            await asyncio.gather(*self._handlers, return_exceptions=True)
            await asyncio.sleep(0)


def ask(
    reply: Reply, requests: Iterator[BookieQuestion], options: BookieOptions = OPTIONS
) -> tuple[list[BookieAnswer], Server]:
    """Ask a server everything; answers in the order of the requests."""
    server = Server(reply)
    found: dict[int, BookieAnswer] = {}

    def take(number: int, answer: BookieAnswer) -> None:
        assert number not in found
        found[number] = answer

    async def run() -> None:
        async with server.running() as address:
            with BookieWire({"bookie": address}, options) as wire:
                await wire["bookie"].ask(enumerate(requests), take)

    asyncio.run(run())
    return [found[number] for number in range(len(found))], server


def lists(count: int) -> Iterator[BookieQuestion]:
    """So many requests, each for another ledger."""
    return (frames.list_entries(number) for number in range(count))


def test_no_more_are_in_flight_than_allowed_and_none_is_lost() -> None:
    """Answers that are held back until the window is full come in one go: thousands of requests, 100 at a time."""
    held: list[bytes] = []
    most = Counter[str]()

    def reply(request: pb.Request) -> bytes | None:
        held.append(listed(request))
        most["in flight"] = max(most["in flight"], len(held))
        if len(held) < OPTIONS.in_flight and request.list.ledgerId < 4999:
            return None
        sent = b"".join(reversed(held))
        held.clear()
        return sent

    answers, _ = ask(reply, lists(5000))
    assert {answer.outcome for answer in answers} == {RequestOutcome.ANSWER}
    assert len(answers) == 5000
    assert most["in flight"] == OPTIONS.in_flight


def test_too_many_requests_are_asked_again_with_fewer_in_flight() -> None:
    """A bookie that can take only some gets to answer all; one that never can is a refusal."""
    times = Counter[int]()

    def some(request: pb.Request) -> bytes:
        times[request.list.ledgerId] += 1
        return listed(request, 0 if times[request.list.ledgerId] > 2 else Status.ETOOMANYREQUESTS)

    answers, _ = ask(some, lists(12))
    assert {answer.outcome for answer in answers} == {RequestOutcome.ANSWER}
    never, _ = ask(lambda request: listed(request, Status.ETOOMANYREQUESTS), lists(1))
    assert (never[0].outcome, never[0].status) == (RequestOutcome.REFUSED, Status.ETOOMANYREQUESTS)


def test_one_request_that_breaks_connections_costs_no_other() -> None:
    """What was in flight with it is asked again, each alone; it alone gets no answer."""

    def reply(request: pb.Request) -> bytes:
        if request.list.ledgerId == 77:
            raise EOFError
        return listed(request)

    answers, server = ask(reply, lists(300))
    assert [n for n, answer in enumerate(answers) if answer.outcome is not RequestOutcome.ANSWER] == [77]
    assert answers[77].outcome is RequestOutcome.NO_ANSWER
    assert max(Counter(server.asked).values()) == 2


@pytest.mark.parametrize(
    "junk",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", struct.pack(">i", 6) + b"\xff" * 6, struct.pack(">i", 1 << 30), bytes(4)],
    ids=["HTTP", "garbage", "too large", "empty"],
)
def test_what_is_not_the_protocol_is_not_understood(junk: bytes) -> None:
    """Another server, garbage, a frame above the limit: named so, never a negative, and soon over."""
    answers, _ = ask(lambda _: junk, lists(500))
    assert {answer.outcome for answer in answers} == {RequestOutcome.NOT_UNDERSTOOD}
    assert len(answers) == 500


def test_a_large_answer_is_taken() -> None:
    """More than a bookie's own limit for frames, in pieces."""
    body = bytes(6 << 20)

    def reply(request: pb.Request) -> bytes:
        response = pb.Response(status=0)
        response.header.CopyFrom(request.header)
        response.list.status, response.list.ledgerId, response.list.availability = 0, request.list.ledgerId, body
        return framed(response)

    answers, _ = ask(reply, lists(2))
    assert [len(answer.body) for answer in answers] == [len(body)] * 2


def test_silence_is_no_answer_and_holds_up_nobody() -> None:
    """Every tenth request is never answered: the others are, and a late answer finds nobody."""
    late: list[bytes] = []

    def reply(request: pb.Request) -> bytes | None:
        if request.list.ledgerId % 10:
            return listed(request)
        late.append(listed(request))
        return None

    answers, _ = ask(reply, lists(200), replace(OPTIONS, deadline_s=1.0))
    assert {n for n, a in enumerate(answers) if a.outcome is RequestOutcome.NO_ANSWER} == set(range(0, 200, 10))


def test_a_bookie_that_never_answers_is_given_up_for_all_that_is_left() -> None:
    """Ten thousand requests to a silent bookie take about one deadline, not one a window."""
    answers, server = ask(lambda _: None, lists(10_000), replace(OPTIONS, deadline_s=0.5))
    assert {answer.outcome for answer in answers} == {RequestOutcome.NO_ANSWER}
    assert len(answers) == 10_000
    assert len(server.asked) <= OPTIONS.in_flight


def test_what_answers_lead_to_is_asked_in_the_same_call() -> None:
    """An iterator over a queue goes on with what `take` puts there."""
    server = Server(listed)
    waiting = [(n, frames.list_entries(n)) for n in range(5)]
    seen: list[int] = []

    class Queue:
        def __iter__(self) -> "Queue":
            return self

        def __next__(self) -> tuple[int, BookieQuestion]:
            if not waiting:
                raise StopIteration
            return waiting.pop(0)

    def take(number: int, answer: BookieAnswer) -> None:
        seen.append(number)
        if number < 5:
            waiting.append((number + 100, frames.list_entries(number + 100)))

    async def run() -> None:
        async with server.running() as address:
            with BookieWire({"bookie": address}, OPTIONS) as wire:
                await wire["bookie"].ask(Queue(), take)

    asyncio.run(run())
    assert sorted(seen) == [*range(5), *range(100, 105)]


def test_what_take_raises_reaches_whoever_asked() -> None:
    """A mistake is not swallowed, and the next question gets its own answers."""

    def take(number: int, _: BookieAnswer) -> None:
        assert 1 // number

    async def run() -> list[BookieAnswer]:
        async with Server(listed).running() as address:
            with BookieWire({"bookie": address}, OPTIONS) as wire:
                with pytest.raises(ZeroDivisionError):
                    await wire["bookie"].ask(enumerate(lists(50)), take)
                return [await wire["bookie"].one(frames.list_entries(7)) for _ in range(3)]

    assert [answer.outcome for answer in asyncio.run(run())] == [RequestOutcome.ANSWER] * 3


def test_caps_on_requests_hold_for_one_bookie_and_for_all_together() -> None:
    """What is granted over any stretch of time is the rate and one burst at most; the total binds anybody who asks."""
    pace = RequestPace(1000.0)
    granted = 0
    for tick in range(1, 2001):
        allowed = pace.count_allowed(tick / 1000)
        pace.spend(allowed)
        granted += allowed
        assert granted <= tick + 50 + 1
    assert granted >= 1999
    assert RequestPace(None).count_allowed(0.0) > 10**6
    assert RequestPace(0.5).count_allowed(0.0) == 1
    slow = RequestPace(0.5)
    slow.spend(1)
    assert slow.wait_s == pytest.approx(2.0)

    wire = BookieWire({name: Address("127.0.0.1", 1) for name in ("one", "other")}, replace(OPTIONS, in_total=400.0))
    (_, total), (_, same) = wire["one"]._paces, wire["other"]._paces
    assert total is same


def test_mechanisms_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """SASL's, and a plug-in point by name; what cannot be used is said before anything is connected to."""
    assert load_mechanism("tests.support.wire_check:WireCheck").plugin == "wirecheck"
    monkeypatch.setenv(USER_VARIABLE, "bob:hunter2")
    for name in ("sasl-digest-md5", "sasl-gssapi", "sasl-gssapi:bookie"):
        mechanism = load_mechanism(name, "host")
        assert mechanism.plugin == "sasl"
        assert "hunter2" not in repr(mechanism)
    for without in ("", "bob", ":hunter2"):
        monkeypatch.setenv(USER_VARIABLE, without)
        with pytest.raises(UnsupportedAuthError, match=USER_VARIABLE):
            load_mechanism("sasl-digest-md5")
    for name in (
        "nothing",
        "sasl",
        "sasl-digest-md5:x",
        "sasl-plain",
        "no.such.module:X",
        "tests.support.wire_check:Nothing",
        "pathlib:Path",
        ":x",
    ):
        with pytest.raises(UnsupportedAuthError):
            load_mechanism(name)


def test_nothing_of_a_certificate_that_cannot_be_read_is_tried(tmp_path: Path) -> None:
    """Options travel to tasks; what they name is looked at when they are used."""
    with pytest.raises(OSError, match=r".*"):
        BookieTls(tmp_path / "none.pem").context()
