"""A running bookie asked over sockets: many questions in flight, each answered or accounted for.

    what happens                                          what becomes of the requests
    the connection breaks                                 asked once more, each alone on a new one; then no_answer
    nothing within the deadline                           no_answer; should an answer come later, it is dropped
    no connection, or none that answers, within patience  no_answer, all that are left; further ones are not waited for
                                                          until a while has passed
    as many deadlines in a row as fit in flight           the same
    ETOOMANYREQUESTS                                      asked again after a pause, with half as many in flight; at
                                                          last refused
    a certificate, a plug-in or a password is not taken   refused, all that are left
    what comes back is not the protocol                   as when the connection breaks, but at last not_understood

A clear-text connection never takes the place of an encrypted one.

In one module because connection, bookie and pace share one event loop and hand requests to each other.
"""

import asyncio
import random
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar

from backends.bookie import frames
from backends.bookie.auth import Mechanism, load_mechanism
from backends.bookie.frames import BookieAnswer, BookieQuestion, Conversation, RequestOutcome, Status
from backends.errors import ProtocolError, UnsupportedAuthError
from backends.sasl.exchanges import SaslRefusedError

T = TypeVar("T")

_MOST_BUSY: Final = 8
"""Times that a request is asked again of a bookie that has too many."""
_PAUSE_S: Final = (0.05, 0.5)
"""Shortest and longest pause before that."""
_BACKOFF_S: Final = (0.05, 2.0)
"""First and longest pause between attempts to connect; each is drawn from half to one and a half times that."""
_OUT_S: Final = 30.0
"""How long a bookie that did not answer is left alone."""
_BARREN: Final = 3
"""Connections in a row that broke before anything was answered, after which no other is tried if patience is over."""
_READ: Final = 1 << 18
"""Bytes read at a time."""
_REFILL: Final = 4
"""Requests are sent when a fourth of the allowed flight is free: many at once cost both sides less."""
_WATCH_S: Final = 0.25
"""How often deadlines are checked."""
_HELD_UP_S: Final = 1.0
"""A check that comes so late means that this process could not run."""
_ROUNDS: Final = 32
"""Rounds of an authentication."""
_ANY: Final = frames.read_entry(0, 0)
"""The error of a bookie for a client that it does not know."""
_BURST_S: Final = 0.05
"""Under a rate cap, the requests of so many seconds may be sent at once."""


class Address(NamedTuple):
    """Where a bookie listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class BookieTls:
    """Files in PEM form; a value that can travel to other processes.

    Attributes:
        authorities: certificates that a bookie's must come from; None: the system's.
        certificate, key: of the client; None: it shows none.
        check_host: the bookie's certificate must name the host that is connected to.
    """

    authorities: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    check_host: bool = True

    def context(self) -> ssl.SSLContext:
        """Return the TLS context of connections.

        Raises:
            OSError: a file cannot be read, or holds no certificate or key (`ssl.SSLError`).
        """
        context = ssl.create_default_context(cafile=self.authorities)
        context.check_hostname = self.check_host
        if self.certificate is not None:
            # Without a password of its own OpenSSL would ask the terminal for one.
            context.load_cert_chain(self.certificate, self.key, password="")
        return context


@dataclass(frozen=True, slots=True)
class BookieOptions:
    """How bookies are asked; a value that can travel to other processes.

    Attributes:
        in_flight: requests of one bookie that wait for their answer, at most.
        deadline_s: for one answer.
        patience_s: for a connection; a bookie that restarts is back within it.
        per_bookie, in_total: requests in a second, at most; None: as fast as it goes. A run over several processes
            gives each its share.
        largest_frame: of an answer, in bytes.
        tls: None: in clear text.
        auth: mechanism, as `load_mechanism` takes it; None: none.
    """

    in_flight: int = 1000
    deadline_s: float = 10.0
    patience_s: float = 20.0
    per_bookie: float | None = None
    in_total: float | None = None
    largest_frame: int = frames.LARGEST_FRAME
    tls: BookieTls | None = None
    auth: str | None = None


class RequestPace:
    """A cap on requests in a second, shared by all that ask it."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._burst = max(1.0, (rate or 0.0) * _BURST_S)
        self._left = self._burst
        self._at = 0.0

    def count_allowed(self, moment: float) -> int:
        """Return how many requests may be sent now."""
        if self._rate is None:
            return 1 << 30
        self._left = min(self._burst, self._left + max(0.0, moment - self._at) * self._rate)
        self._at = moment
        return int(self._left)

    def spend(self, count: int) -> None:
        """Note that so many were sent."""
        self._left -= count

    @property
    def wait_s(self) -> float:
        """Seconds until at least one is allowed."""
        return 0.0 if self._rate is None else max(0.0, (1.0 - self._left) / self._rate)


class _RefusedError(Exception):
    """There is no connection to be had; its argument is the answer that every request gets."""

    def __init__(self, answer: BookieAnswer) -> None:
        super().__init__(answer)
        self.answer = answer


@dataclass(slots=True, eq=False)
class _Item:
    """A request in flight: its caller, and the number of failures."""

    request: BookieQuestion
    tag: Any
    broken: int = 0
    busy: int = 0


@dataclass(slots=True, eq=False)
class _Work:
    """One call of `ask`: the requests to send, and those to send again."""

    fresh: Iterator[tuple[Any, BookieQuestion]]
    take: Callable[[Any, BookieAnswer], None]
    busy: deque[_Item] = field(default_factory=deque)
    broken: deque[_Item] = field(default_factory=deque)
    """Requests lost with a connection. One may have broken it, so each is sent alone, after all others are answered."""
    pause_until: float = 0.0

    def next(self) -> _Item | None:
        if self.busy:
            return self.busy.popleft()
        for tag, request in self.fresh:
            return _Item(request, tag)
        return None

    def lose(self, items: Iterable[_Item], answer: BookieAnswer) -> None:
        """Take back the outstanding requests of a broken connection."""
        for item in items:
            item.broken += 1
            if item.broken > 1:
                self.take(item.tag, answer)
            else:
                self.broken.append(item)

    def give_up(self, answer: BookieAnswer) -> None:
        """Answer all that is left."""
        for waiting in (self.broken, self.busy):
            while waiting:
                self.take(waiting.popleft().tag, answer)
        for tag, _ in self.fresh:
            self.take(tag, answer)


class _Connection(asyncio.BufferedProtocol):
    """One connection: sends within its limit, and passes answers on."""

    def __init__(self, options: BookieOptions, paces: Sequence[RequestPace]) -> None:
        self._options = options
        self._paces = paces
        self._loop = asyncio.get_running_loop()
        self._talk: Conversation[_Item | None] = Conversation(options.largest_frame)
        self._transport: asyncio.Transport | None = None
        self._work: _Work | None = None
        self._over: asyncio.Future[BookieAnswer | None] | None = None
        self._called: asyncio.Future[BookieAnswer] | None = None
        self._room = memoryview(bytearray(_READ))
        self._window = options.in_flight
        self._writable = True
        self.alone = False
        self._later: asyncio.TimerHandle | None = None
        self._watching: asyncio.TimerHandle | None = None
        self._watched = 0.0
        self._heard = self._loop.time()
        self._silent = 0
        self.answered = False
        self.lost: BookieAnswer | None = None
        """The error of requests that were lost with this connection; None while it is open."""

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - of a stream
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        refused = isinstance(exc, ssl.SSLError)
        detail = f"TLS: {exc}" if refused else "connection closed" + (f" ({exc})" if exc else "")
        self._lose(BookieAnswer(RequestOutcome.REFUSED if refused else RequestOutcome.NO_ANSWER, detail=detail))

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._fill()

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        try:
            answers = self._talk.receive(self._room[:nbytes])
        except ProtocolError as error:
            self._lose(BookieAnswer(RequestOutcome.NOT_UNDERSTOOD, detail=str(error)))
            self.close()
            return
        try:
            self._hand_on(answers)
        except Exception as error:
            # What `take` raises must reach the caller, not asyncio's log.
            if self._over is None or self._over.done():
                raise
            self._over.set_exception(error)
            return
        if answers:
            self.answered = True
            self._silent, self._heard = 0, self._loop.time()
            self._window = min(self._window + 1, self._options.in_flight)
            self._fill()

    def _hand_on(self, answers: list[tuple[BookieQuestion, _Item | None, BookieAnswer]]) -> None:
        work = self._work
        for _, item, answer in answers:
            if item is None:
                if self._called is not None and not self._called.done():
                    self._called.set_result(answer)
            elif work is None:
                continue
            elif answer.status == Status.ETOOMANYREQUESTS and item.busy < _MOST_BUSY:
                item.busy += 1
                work.busy.append(item)
                self._window = max(1, self._window // 2)
                work.pause_until = self._loop.time() + random.uniform(*_PAUSE_S)  # noqa: S311 - jitter
            else:
                work.take(item.tag, answer)

    # What the bookie's client calls

    async def call(self, request: BookieQuestion) -> BookieAnswer:
        """Send one request and wait for the answer; only before all other requests."""
        if self.lost is not None or self._transport is None:
            return self.lost or BookieAnswer(RequestOutcome.NO_ANSWER, detail="not connected")
        self._called = self._loop.create_future()
        self._transport.write(self._talk.send(request, None))
        try:
            return await asyncio.wait_for(self._called, self._options.deadline_s)
        except TimeoutError:
            self._talk.end()
            return self._no_answer()
        finally:
            self._called = None

    def tell(self, request: BookieQuestion) -> None:
        """Send a message without an answer; only before all other requests."""
        if self._transport is not None and self.lost is None:
            self._transport.write(self._talk.send(request, None))
            self._talk.end()

    async def encrypt(self, context: ssl.SSLContext, host: str) -> None:
        """Go on encrypted."""
        if self._transport is None or self.lost is not None:
            raise ConnectionError("connection closed")
        made = await self._loop.start_tls(
            self._transport, self, context, server_hostname=host, ssl_handshake_timeout=self._options.deadline_s
        )
        if made is None:
            raise ConnectionError("connection closed")
        self._transport = made

    async def serve(self, work: _Work) -> BookieAnswer | None:
        """Send all requests and pass answers on; return the error for the rest, if the bookie fell silent.

        It ends early if the connection breaks; what was lost with it is in the work again.
        """
        self._work = work
        over: asyncio.Future[BookieAnswer | None] = self._loop.create_future()
        self._over = over
        self._heard, self._silent = self._loop.time(), 0
        if self.lost is not None:
            over.set_result(None)
        self._watched = self._loop.time()
        self._watch()
        self._fill()
        try:
            return await over
        finally:
            for timer in (self._watching, self._later):
                if timer is not None:
                    timer.cancel()
            self._work = self._over = self._watching = self._later = None

    def close(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.abort()

    # Inside

    def _fill(self) -> None:
        """Send as many requests as allowed; notice when all are answered."""
        work, transport, over = self._work, self._transport, self._over
        if work is None or transport is None or over is None or over.done() or not self._writable:
            return
        if self.alone and len(self._talk):
            return
        self.alone = False
        moment = self._loop.time()
        room = self._window - len(self._talk)
        if len(self._talk) and room < self._window // _REFILL:
            return
        allowed = 0 if moment < work.pause_until else min(pace.count_allowed(moment) for pace in self._paces)
        out: list[bytes] = []
        due = moment + self._options.deadline_s
        while len(out) < min(room, allowed):
            item = work.next()
            if item is None:
                if len(self._talk) or not work.broken:
                    break
                item, self.alone = work.broken.popleft(), True
            out.append(self._talk.send(item.request, item, due))
            if self.alone:
                break
        if out:
            for pace in self._paces:
                pace.spend(len(out))
            transport.write(b"".join(out))
        if len(out) == allowed < room:
            wait = max([work.pause_until - moment, *(pace.wait_s for pace in self._paces), 0.001])
            if self._later is not None:
                self._later.cancel()
            self._later = self._loop.call_later(wait, self._fill)
        elif not len(self._talk):
            over.set_result(None)

    def _watch(self) -> None:
        """Look for deadlines that have passed, now and then."""
        work, over = self._work, self._over
        if work is None or over is None or over.done():
            return
        moment = self._loop.time()
        # Where this process itself was held up, answers may be waiting to be read: they come first.
        late = self._talk.overdue(moment) if moment - self._watched < _HELD_UP_S else []
        self._watched = moment
        for _, item in late:
            if item is not None:
                work.take(item.tag, self._no_answer())
        self._silent += len(late)
        if late and (self._silent >= self._options.in_flight or moment - self._heard > 2 * self._options.deadline_s):
            for _, item in self._talk.end():
                if item is not None:
                    work.take(item.tag, self._no_answer())
            over.set_result(self._no_answer())
            return
        self._watching = self._loop.call_later(min(_WATCH_S, self._options.deadline_s / 8), self._watch)
        if late:
            self._fill()

    def _no_answer(self) -> BookieAnswer:
        return BookieAnswer(RequestOutcome.NO_ANSWER, detail=f"nothing within {self._options.deadline_s:g} s")

    def _lose(self, answer: BookieAnswer) -> None:
        if self.lost is not None:
            return
        self.lost = answer
        if self._called is not None and not self._called.done():
            self._called.set_result(answer)
        items = [item for _, item in self._talk.end() if item is not None]
        if self._work is not None and self._over is not None and not self._over.done():
            self._work.lose(items, answer)
            self._over.set_result(None)


async def _pause(attempt: int) -> None:
    """Wait before the next attempt, longer each time."""
    longest = min(_BACKOFF_S[1], _BACKOFF_S[0] * 2 ** min(attempt - 1, 16))
    await asyncio.sleep(longest * random.uniform(0.5, 1.5))  # noqa: S311 - jitter


async def _prove(step: Callable[..., bytes | None], *payload: bytes) -> bytes | None:
    """Return the next round of an authentication; it may ask a server of its own, while others go on.

    Raises:
        _RefusedError: nothing does.
    """
    try:
        return await asyncio.to_thread(step, *payload)
    except (SaslRefusedError, UnsupportedAuthError) as error:
        raise _RefusedError(BookieAnswer(RequestOutcome.REFUSED, detail=f"authentication: {error}")) from error


class BookieConnection:
    """One bookie, asked by one caller at a time; made by `BookieWire`."""

    def __init__(
        self, address: Address, options: BookieOptions, total: RequestPace, context: ssl.SSLContext | None
    ) -> None:
        self.address = address
        self.options = options
        self._paces = (RequestPace(options.per_bookie), total)
        self._context = context
        self._mechanism = load_mechanism(options.auth, address.host) if options.auth else None
        self._connection: _Connection | None = None
        self._out: tuple[float, BookieAnswer] | None = None

    async def ask(self, requests: Iterable[tuple[T, BookieQuestion]], take: Callable[[T, BookieAnswer], None]) -> None:
        """Send many requests, and pass each answer on as it comes, in any order; every request gets exactly one.

        Args:
            requests: with a tag each; taken as there is room for them. An iterator that has ended is asked again as
                long as answers are missing: one over a queue may go on with what `take` adds.
            take: given the tag of a request and its answer; must not wait.
        """
        loop = asyncio.get_running_loop()
        work = _Work(iter(requests), take)
        if self._out is not None and loop.time() < self._out[0]:
            work.give_up(self._out[1])
            return
        barren, since = 0, 0.0
        while True:
            connection = self._connection
            if connection is None or connection.lost is not None:
                try:
                    connection = self._connection = await self._connect(patient=self._out is None)
                except _RefusedError as error:
                    self._give_up(work, error.answer)
                    return
                self._out = None
            with ExitStack() as broken_off:
                broken_off.callback(self.close)  # answers are still on their way there
                silent = await connection.serve(work)
                broken_off.pop_all()
            if silent is not None:
                self.close()
                self._give_up(work, silent)
                return
            if connection.lost is None:
                return
            if connection.answered or connection.alone:
                barren = 0
                continue
            # A bookie that starts, or stops, may take connections and close them at once.
            since = loop.time() if not barren else since
            barren += 1
            last = connection.lost.outcome is RequestOutcome.REFUSED or loop.time() - since > self.options.patience_s
            if barren >= _BARREN and last:
                self._give_up(work, connection.lost)
                return
            await _pause(barren)

    async def one(self, request: BookieQuestion) -> BookieAnswer:
        """Send one request."""
        answers: list[BookieAnswer] = []
        await self.ask([(None, request)], lambda _, answer: answers.append(answer))
        return answers[0]

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _give_up(self, work: _Work, answer: BookieAnswer) -> None:
        self._out = asyncio.get_running_loop().time() + _OUT_S, answer
        work.give_up(answer)

    async def _connect(self, *, patient: bool) -> _Connection:
        loop = asyncio.get_running_loop()
        until = loop.time() + (self.options.patience_s if patient else 0.0)
        for attempt in count(1):
            try:
                return await self._connected()
            except OSError as error:
                text = str(error) or "no connection"
            if loop.time() >= until:
                raise _RefusedError(BookieAnswer(RequestOutcome.NO_ANSWER, detail=f"{self.address}: {text}"))
            await _pause(attempt)
        raise AssertionError("counting does not end")

    async def _connected(self) -> _Connection:
        """Return a connection that can be used.

        Raises:
            OSError: there was none; trying again may help.
            _RefusedError: it does not want us.
        """
        loop = asyncio.get_running_loop()
        made = loop.create_connection(
            lambda: _Connection(self.options, self._paces), self.address.host, self.address.port
        )
        _, connection = await asyncio.wait_for(made, self.options.deadline_s)
        with ExitStack() as broken_off:
            broken_off.callback(connection.close)
            if self._context is not None:
                await self._encrypt(connection, self._context)
            if self._mechanism is not None:
                await self._authenticate(connection, self._mechanism)
            broken_off.pop_all()
        return connection

    async def _encrypt(self, connection: _Connection, context: ssl.SSLContext) -> None:
        answer = await connection.call(frames.start_tls())
        if answer.outcome is RequestOutcome.NO_ANSWER:
            raise ConnectionError(answer.detail)
        if answer.outcome is not RequestOutcome.ANSWER:
            raise _RefusedError(answer._replace(outcome=RequestOutcome.REFUSED, detail="the bookie offers no TLS"))
        try:
            await connection.encrypt(context, self.address.host)
        except ssl.SSLError as error:
            raise _RefusedError(BookieAnswer(RequestOutcome.REFUSED, detail=f"TLS: {error}")) from error

    async def _authenticate(self, connection: _Connection, mechanism: Mechanism) -> None:
        exchange = mechanism.begin()
        payload = await _prove(exchange.first)
        for number in range(_ROUNDS):
            if payload is None:
                return
            request = frames.authenticate(mechanism.plugin, payload)
            if getattr(exchange, "is_over", False):
                connection.tell(request)
                return
            answer = await connection.call(request)
            if answer.outcome is RequestOutcome.NO_ANSWER:
                # SASL of bookies neither answers a wrong proof, or one of another kind, nor closes; other requests it
                # refuses at once; a stopped bookie does not.
                if connection.lost is None and (
                    number or (await connection.call(_ANY)).outcome is RequestOutcome.REFUSED
                ):
                    detail = f"authentication: {answer.detail} after a proof, as where it is refused"
                    raise _RefusedError(answer._replace(outcome=RequestOutcome.REFUSED, detail=detail))
                raise ConnectionError(f"authentication: {answer.detail}")
            if answer.outcome is not RequestOutcome.ANSWER:
                raise _RefusedError(answer._replace(outcome=RequestOutcome.REFUSED, detail="authentication"))
            if answer.plugin == frames.AUTH_DISABLED:
                return
            if answer.plugin != mechanism.plugin:
                detail = f"the bookie authenticates by {answer.plugin}"
                raise _RefusedError(answer._replace(outcome=RequestOutcome.REFUSED, detail=detail))
            payload = await _prove(exchange.answer, answer.body)
        raise _RefusedError(
            BookieAnswer(RequestOutcome.REFUSED, detail=f"authentication did not end in {_ROUNDS} rounds")
        )


class BookieWire:
    """Bookies by their ids, asked with one set of options; a context manager, inside a running event loop."""

    def __init__(self, addresses: Mapping[str, Address], options: BookieOptions) -> None:
        total = RequestPace(options.in_total)
        context = options.tls.context() if options.tls else None
        self._bookies = {
            name: BookieConnection(address, options, total, context) for name, address in addresses.items()
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connections."""
        for bookie in self._bookies.values():
            bookie.close()

    def __getitem__(self, bookie: str) -> BookieConnection:
        return self._bookies[bookie]
