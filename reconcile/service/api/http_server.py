"""The service over HTTP: the page and the same methods as gRPC, as JSON; health and metrics at an address of their own.

    at listen.http      GET  /               the page
                        POST /v1/METHOD      the request's message as JSON in, the answer's out; GET with fields as
                                             parameters, where nothing is changed. Many answers: one a line.
    at listen.health    GET  /healthz        200 while the process answers
                        GET  /readyz         200 while the store was seen lately; else 503
                        GET  /metrics        for Prometheus

JSON is that of protobuf with the proto's names of fields; 64-bit numbers are strings. `Request-Timeout: SECONDS` is the
caller's deadline; a caller that closes the connection gives up. The lines before a request's body may take half a
minute, its body and the answer half a minute more than the longest deadline: then the connection ends.

Sources: https://protobuf.dev/programming-guides/json/, https://asgi.readthedocs.io/en/latest/specs/www.html.
"""

import asyncio
import json
import logging
import re
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import parse_qsl

import uvicorn
from google.protobuf import json_format
from google.protobuf.message import Message
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from reconcile.service.api.answers import Api
from reconcile.service.api.carriers import AnswerPool, EventLoop
from reconcile.service.api.messages import read_whole
from reconcile.service.api.methods import METHODS, ApiError, Method, Why
from reconcile.service.api.metrics import format_service
from reconcile.service.api.page import make_page
from reconcile.service.config import Config, read_tls
from reconcile.service.runs.leader import Instance
from recovery.errors import InputError, RecoveryError
from recovery.model.ids import parse

_LOG: Final = logging.getLogger(__name__)
_SILENT_S: Final = 30.0
"""Seconds that a connection has to send a request."""
_CHECK_S: Final = 0.2
"""Between checks whether a connection's time is over."""
_MOST_CONNECTIONS: Final = 2048
"""With more connections, idle ones are ended, the oldest first."""
_BACKLOG: Final = 2048
_LARGEST: Final = 64 << 20
"""Most bytes of a known caller's request, as over gRPC: a certificate of a hundred thousand ledgers."""
_LARGEST_OF_STRANGERS: Final = 1 << 20
"""Callers without a token only ask questions."""
_TIMEOUT: Final = re.compile(r"[0-9]{1,7}(\.[0-9]{1,6})?")
_PATHS: Final = {f"/v1/{method.path}": method for method in METHODS}
_JSON: Final = "application/json"
_LINES: Final = "application/x-ndjson"
_HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
_READS: Final = ("GET", "HEAD")

Answer = Callable[[Request], Awaitable[Response]]


class HttpServer:
    """The service over HTTP, at two addresses.

    Args:
        pool: of the threads that answer.
        instance: shown by the page and the metrics.
        config: its addresses, and its certificate.
        loop: the event loop.

    Raises:
        InputError: an address or the certificate cannot be used.
    """

    def __init__(self, pool: AnswerPool, instance: Instance, config: Config, loop: EventLoop) -> None:
        self._loop = loop
        longest_s = config.requests.deadline
        self._api = _Listener("listen.http", config.listen.http, _ApiPaths(pool, instance, config), config, longest_s)
        try:
            health = _HealthPaths(pool.api, instance)
            self._health = _Listener("listen.health", config.listen.health, health, config, longest_s)
        except BaseException:
            self._api.close()
            raise

    @property
    def port(self) -> int:
        """That the page and the methods listen at."""
        return self._api.port

    @property
    def health_port(self) -> int:
        """That health and metrics listen at."""
        return self._health.port

    def start(self) -> None:
        """Begin to answer."""
        for listener in (self._api, self._health):
            listener.start(self._loop)

    def stop(self) -> None:
        """End."""
        for listener in (self._api, self._health):
            listener.stop()


class _Connections:
    """The connections of one address, each with the time at which the server ends it."""

    def __init__(self) -> None:
        self._ends: dict[tuple[str, int], tuple[asyncio.Transport, float, bool]] = {}

    def add(self, transport: asyncio.Transport) -> None:
        """Accept a new connection; beyond the limit, end the oldest idle one."""
        if len(self._ends) >= _MOST_CONNECTIONS:
            waiting = [(until, key) for key, (_, until, is_asking) in self._ends.items() if not is_asking]
            if not waiting:
                transport.abort()
                return
            self._ends.pop(min(waiting)[1])[0].abort()
        now = asyncio.get_running_loop().time()
        self._ends[transport.get_extra_info("peername")[:2]] = (transport, now + _SILENT_S, False)

    def remove(self, transport: asyncio.Transport) -> None:
        """Forget a connection that has ended."""
        peer = transport.get_extra_info("peername")
        if peer is not None:
            self._ends.pop(peer[:2], None)

    def allow(self, client: tuple[str, int] | None, seconds: float, *, is_asking: bool) -> None:
        """Extend the life of a connection by a time from now."""
        if client is not None and (known := self._ends.get(client)) is not None:
            self._ends[client] = (known[0], asyncio.get_running_loop().time() + seconds, is_asking)

    async def watch(self) -> None:
        """End connections after their time, until cancelled."""
        while True:
            await asyncio.sleep(_CHECK_S)
            now = asyncio.get_running_loop().time()
            for transport, until, _ in list(self._ends.values()):
                if until < now:
                    transport.abort()

    def make_protocol(self) -> type[H11Protocol]:
        """Return the protocol of connections that are counted here."""
        connections = self

        class Protocol(H11Protocol):
            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the base class has it
                super().connection_made(transport)
                connections.add(transport)

            def connection_lost(self, exc: Exception | None) -> None:
                connections.remove(self.transport)
                super().connection_lost(exc)

        return Protocol


class _Listener:
    """One address that is listened at.

    Args:
        key: of the configuration that names the address.
        address: host:port.
        paths: path → its handler.
        config: has the certificate.
        longest_s: the longest deadline of a request.

    Raises:
        InputError: the address or the certificate cannot be used.
    """

    def __init__(self, key: str, address: str, paths: Answer, config: Config, longest_s: float) -> None:
        self._paths = paths
        self._longest_s = longest_s
        self._connections = _Connections()
        read_tls(config.access)
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._answer,
                http=self._connections.make_protocol(),
                interface="asgi3",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                ssl_certfile=config.access.tls_cert or None,
                ssl_keyfile=config.access.tls_key or None,
            )
        )
        host, _, port = address.rpartition(":")
        family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host.strip("[]"), int(port)))
        except OSError as error:
            self._socket.close()
            remedy = "name an address of this host that is free"
            raise InputError(f"{key} {address}", f"cannot be listened at ({error})", remedy) from error
        # From here on connections wait to be answered, and are not refused.
        self._socket.listen(_BACKLOG)
        self._served: Future[None] | None = None

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def start(self, loop: EventLoop) -> None:
        self._served = loop.begin(self._serve())

    async def _serve(self) -> None:
        watching = asyncio.create_task(self._connections.watch())
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            watching.cancel()

    def stop(self) -> None:
        self._server.should_exit = self._server.force_exit = True
        if self._served is not None:
            self._served.result()
        self.close()

    def close(self) -> None:
        self._socket.close()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope["client"]
        self._connections.allow(client, self._longest_s + _SILENT_S, is_asking=True)
        try:
            response = await _try(self._paths, Request(scope, receive))
            await response(scope, receive, send)
        except ClientDisconnect:
            pass
        finally:
            self._connections.allow(client, _SILENT_S, is_asking=False)


async def _try(paths: Answer, request: Request) -> Response:
    """Answer, or return the error; an error of the service is in the log."""
    try:
        return await paths(request)
    except ApiError as error:
        return _refuse(error)
    except (ClientDisconnect, asyncio.CancelledError):
        raise
    except Exception as error:  # noqa: BLE001 - of one question; the service goes on
        # Without the path: what a caller sends may hold a token.
        _LOG.exception("a question over HTTP is not answered")
        problem = f"a fault of the service ({type(error).__name__}): its log has more"
        return _refuse(ApiError(Why.BROKEN, problem))


def _refuse(error: ApiError) -> Response:
    body = json.dumps({"error": error.text, "code": error.why.value[0]}).encode() + b"\n"
    headers = {"WWW-Authenticate": "Bearer"} if error.why is Why.NO_TOKEN else {}
    return _respond(body, _JSON, error.why.value[1], headers)


def _respond(body: bytes, kind: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    response = Response(body, status, {**_HEADERS, **(headers or {})})
    response.headers["Content-Type"] = kind
    return response


def _require_read(request: Request) -> None:
    if request.method not in _READS:
        raise ApiError(Why.NOT_FOUND, "this path is only read: GET it")


class _HealthPaths:
    """Health and metrics.

    Args:
        api: it knows the tokens.
        instance: its health is reported.
    """

    def __init__(self, api: Api, instance: Instance) -> None:
        self._api = api
        self._instance = instance

    async def __call__(self, request: Request) -> Response:
        _require_read(request)
        match request.url.path:
            case "/healthz":
                return _respond(b"ok\n", "text/plain")
            case "/readyz":
                seen = self._instance.seen
                if seen.is_recent:
                    return _respond(b"ok\n", "text/plain")
                return _respond(f"not ready: {seen.problem}\n".encode(), "text/plain", 503)
            case "/metrics":
                self._api.identify(request.headers.get("Authorization", ""))
                text = await asyncio.to_thread(format_service, self._instance)
                return _respond(text.encode(), CONTENT_TYPE_LATEST)
        raise ApiError(Why.NOT_FOUND, "there is nothing at this path; paths are /healthz, /readyz, /metrics")


class _ApiPaths:
    """The page and the methods.

    Args:
        pool: of the threads that answer.
        instance: shown by the page.
        config: has the names of this service.
    """

    def __init__(self, pool: AnswerPool, instance: Instance, config: Config) -> None:
        self._pool = pool
        self._instance = instance
        self._names = config.host_names

    async def __call__(self, request: Request) -> Response:
        self._require_host(request.headers.get("Host", ""))
        if request.url.path == "/":
            _require_read(request)
            by = self._pool.api.identify(_read_authorization(request))
            page = await self._pool.run(by, lambda: make_page(self._instance).encode())
            return _respond(page, "text/html; charset=utf-8")
        method = _PATHS.get(request.url.path)
        if method is None:
            raise ApiError(Why.NOT_FOUND, f"there is nothing at this path; methods are {', '.join(_PATHS)}")
        if request.method == "POST":
            try:
                by = self._pool.api.admit(method, _read_authorization(request))
                _check_length(request, is_known=bool(by))
            except ApiError:
                await _pass_over(request)
                raise
            text = (await request.body()).decode(errors="replace") or "{}"
        else:
            _require_read(request)
            by = self._pool.api.admit(method, _read_authorization(request))
            text = json.dumps(_read_query(method, request.url.query))
        return await self._answer(request, method, text, by)

    def _require_host(self, text: str) -> None:
        """Refuse a request for another host: a page of a stranger may lead a browser here under a name of its own."""
        host = text.rpartition(":")[0] if re.search(r":[0-9]*\Z", text) else text
        # HTTP/1.0 needs no Host, and no browser speaks it.
        if text and host.lower() not in self._names:
            known = ", ".join(sorted(self._names))
            problem = f"this service has no name {host!r} (it has {known})"
            raise ApiError(Why.OTHER_HOST, f"{problem}: add the name to listen.names of its configuration")

    async def _answer(self, request: Request, method: Method, text: str, by: str) -> Response:
        message = _parse(method, text)
        given_s = _read_timeout(request.headers.get("Request-Timeout"))
        async with _watch(request) as given_up:
            answer = await self._pool.answer(method, message, by, given_s=given_s, given_up=given_up)
        if not method.streams:
            return _respond(_to_json(answer, indent=2), _JSON)
        batches = self._pool.list_batches(answer, by)
        try:
            first: list[Message] = await anext(batches, [])
        except RecoveryError as error:
            raise ApiError(Why.UNAVAILABLE, str(error)) from error
        return StreamingResponse(_list_lines(first, batches), media_type=_LINES, headers=_HEADERS)


def _read_authorization(request: Request) -> str:
    return str(request.headers.get("Authorization", ""))


@asynccontextmanager
async def _watch(request: Request) -> AsyncIterator[threading.Event]:
    """Yield an event that is set when the client of a connection disconnects."""
    given_up = threading.Event()

    async def wait() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        given_up.set()

    watching = asyncio.create_task(wait())
    try:
        yield given_up
    finally:
        watching.cancel()


async def _pass_over(request: Request) -> None:
    """Read the unwanted body: a caller that still sends would not get the answer, only a closed connection."""
    left = _LARGEST_OF_STRANGERS
    async for piece in request.stream():
        left -= len(piece)
        if left <= 0:
            return


def _check_length(request: Request, *, is_known: bool) -> None:
    """Refuse a body that this caller may not send, before it is in memory."""
    text = request.headers.get("Content-Length", "")
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) > _LARGEST:
        raise ApiError(Why.BAD_REQUEST, f"send a Content-Length of at most {_LARGEST}")
    if int(text) > _LARGEST_OF_STRANGERS and not is_known:
        raise ApiError(Why.BAD_REQUEST, f"send at most {_LARGEST_OF_STRANGERS} bytes without a token")


def _parse(method: Method, text: str) -> Message:
    message = method.request()
    try:
        json_format.Parse(text, message)
    except json_format.ParseError as error:
        kind = method.request.DESCRIPTOR
        fields = ", ".join(entry.name for entry in kind.fields) or "none"
        first, *_ = str(error).splitlines()
        raise ApiError(Why.BAD_REQUEST, f"not a {kind.name}: {first.rstrip('.')}; its fields are {fields}") from error
    return message


async def _list_lines(first: Sequence[Message], batches: AsyncIterator[list[Message]]) -> AsyncIterator[bytes]:
    """Yield answers as lines; the status is already sent, so a last line reports missing answers."""
    try:
        yield b"".join(_to_json(answer, indent=None) for answer in first)
        async for batch in batches:
            yield b"".join(_to_json(answer, indent=None) for answer in batch)
    except Exception as error:  # noqa: BLE001 - the caller hears of it; of a fault of ours the log has the trace
        problem = str(error)
        if not isinstance(error, ApiError | RecoveryError):
            _LOG.exception("a question over HTTP is not answered whole")
            problem = f"a fault of the service ({type(error).__name__}): its log has more; this is not all of it"
        yield json.dumps({"error": problem}).encode() + b"\n"


def _read_timeout(text: str | None) -> float | None:
    if text is None:
        return None
    if not _TIMEOUT.fullmatch(text) or float(text) == 0:
        raise ApiError(Why.BAD_REQUEST, "send Request-Timeout as seconds: 30, or 2.5")
    return float(text)


def _read_query(method: Method, query: str) -> dict[str, object]:
    """Return the parameters of a URL as fields; a repeatable one is a list, a ledger is 7 or 3:7."""
    if method.acts:
        raise ApiError(Why.BAD_REQUEST, "this changes something: POST it")
    fields = method.request.DESCRIPTOR.fields_by_name
    fields_given: dict[str, Any] = {}
    for name, value in parse_qsl(query):
        if name in fields and fields[name].is_repeated:
            is_ledger = fields[name].message_type is not None
            fields_given.setdefault(name, []).append(_read_ledger(value) if is_ledger else value)
        else:
            fields_given[name] = value
    return fields_given


def _read_ledger(text: str) -> dict[str, int]:
    try:
        ledger = parse(text)
    except ValueError as error:
        raise ApiError(Why.BAD_REQUEST, f"{text!r} is not a ledger: write 7, or 3:7 with its scope") from error
    return {"ledger_id": ledger.ledger, "ledger_scope_id": ledger.scope}


def _to_json(message: Message, *, indent: int | None) -> bytes:
    values = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return json.dumps(read_whole(values), indent=indent, ensure_ascii=False).encode() + b"\n"
