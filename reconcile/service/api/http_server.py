"""The service over HTTP: the page, metrics, health, and the same methods as gRPC, as JSON.

    GET  /               the page
    GET  /metrics        for Prometheus
    GET  /healthz        200 while the process answers
    GET  /readyz         200 while the store was seen lately; else 503
    POST /v1/METHOD      the request's message as JSON in, the answer's out; GET with fields as parameters, where
                         nothing is changed. Many answers: one a line.

JSON is that of protobuf with the proto's names of fields; 64-bit numbers are strings. `Request-Timeout: SECONDS` is the
caller's deadline; who closes the connection gives up. The first lines of a request may take half a minute, its body and
the answer half a minute more than the longest deadline: then the connection ends, whatever is sent.

Source: https://protobuf.dev/programming-guides/json/.
"""

import json
import logging
import re
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain, islice
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from google.protobuf import json_format
from google.protobuf.message import Message

from reconcile.service.api.answers import Api
from reconcile.service.api.methods import METHODS, ApiError, Method, Why
from reconcile.service.api.metrics import CONTENT_TYPE, format_service
from reconcile.service.api.page import make_page
from reconcile.service.config import Config, read_tls
from reconcile.service.runs.leader import Instance
from recovery.errors import InputError, RecoveryError
from recovery.model.ids import parse

_LOG: Final = logging.getLogger(__name__)
_SILENT_S: Final = 30.0
"""Seconds that a connection may send and take nothing."""
_LARGEST: Final = 64 << 20
"""Bytes of what a known caller sends, as over gRPC: a certificate of a hundred thousand ledgers."""
_LARGEST_OF_STRANGERS: Final = 1 << 20
"""Without a token only questions are asked: many such bodies at a time are nothing that memory must bear."""
_CHUNK: Final = 1 << 16
_LOOK_MS: Final = 200
"""Between looks whether who asked is still there."""
_TIMEOUT: Final = re.compile(r"[0-9]{1,7}(\.[0-9]{1,6})?")
_MOST_CONNECTIONS: Final = 64
_PATHS: Final = {f"/v1/{method.path}": method for method in METHODS}
_JSON: Final = "application/json"
_LINES: Final = "application/x-ndjson"


class HttpServer(ThreadingHTTPServer):
    """The service over HTTP.

    Args:
        api: that answers.
        instance: whose page and metrics are shown.
        config: its address, and its certificate.

    Raises:
        InputError: the address or the certificate cannot be used.
    """

    daemon_threads = True

    def __init__(self, api: Api, instance: Instance, config: Config) -> None:
        self.api = api
        self.instance = instance
        self._places = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._tls = read_tls(config.access)
        host, _, port = config.listen.http.rpartition(":")
        self.address_family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
        try:
            super().__init__((host.strip("[]"), int(port)), _Handler)
        except OSError as error:
            remedy = "name an address of this host that is free"
            raise InputError(f"listen.http {config.listen.http}", f"cannot be listened at ({error})", remedy) from error

    @property
    def port(self) -> int:
        """That it listens at."""
        return int(self.server_address[1])

    def start(self) -> None:
        """Begin to answer."""
        threading.Thread(target=self.serve_forever, name="http", daemon=True).start()

    def stop(self) -> None:
        """End."""
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the base class has it
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as above
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as above
        request.settimeout(_SILENT_S)
        bound = _Bound(request)
        bound.allow(_SILENT_S)
        try:
            if self._tls is None:
                _Handler(bound, request, client_address, self)
                return
            # In the connection's own thread: who does not shake hands keeps nobody else waiting.
            with self._tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False) as secured:
                bound.take(secured)
                secured.do_handshake()
                _Handler(bound, secured, client_address, self)
        finally:
            bound.end()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as above
        """Say nothing: who went away, went away; and what was sent may hold a token."""


class _Bound:
    """The end of a connection, whatever its other side does: a byte every half a minute would else keep it for ever.

    Args:
        connection: that is ended.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._timer: threading.Timer | None = None

    def take(self, connection: socket.socket) -> None:
        """End another socket of the same connection instead: TLS takes the plain one's place."""
        self._connection = connection

    def allow(self, seconds: float) -> None:
        """Let it go on for so long from now."""
        self.end()
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        """Let it be."""
        if self._timer is not None:
            self._timer.cancel()

    def _cut(self) -> None:
        with suppress(OSError):
            # Not that of TLS, which would wait for the other side.
            socket.socket.shutdown(self._connection, socket.SHUT_RDWR)


@contextmanager
def _watch(connection: socket.socket) -> Iterator[threading.Event]:
    """Give an event that is set when the other side of a connection goes away."""
    given_up, ended = threading.Event(), threading.Event()
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLRDHUP)

    def look() -> None:
        while not ended.is_set():
            if poll.poll(_LOOK_MS):
                given_up.set()
                return

    thread = threading.Thread(target=look, name="http watch", daemon=True)
    thread.start()
    try:
        yield given_up
    finally:
        ended.set()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: HttpServer
    server_version = "bkmeta"
    sys_version = ""
    timeout = _SILENT_S

    def __init__(self, bound: _Bound, *connection: Any) -> None:  # noqa: ANN401 - as the base class has it
        self._bound = bound
        super().__init__(*connection)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing: a line of a request may hold a token."""

    def do_GET(self) -> None:
        self._try(self._get)

    def do_HEAD(self) -> None:
        self._try(self._get)

    def do_POST(self) -> None:
        self._try(self._post)

    def _try(self, answer: Callable[[], None]) -> None:
        """Answer, and say why not: what the connection does is nobody's fault, anything else is in the log."""
        self._allow_answer()
        try:
            answer()
        except ApiError as error:
            self._refuse(error)
        except (ConnectionError, TimeoutError, ssl.SSLError):
            self.close_connection = True
        except Exception as error:  # noqa: BLE001 - of one question; the service goes on
            # Without the path: what somebody sends may hold a token.
            _LOG.exception("a question over HTTP is not answered")
            problem = f"a fault of the service ({type(error).__name__}): its log has more"
            self._refuse(ApiError(Why.BROKEN, problem))

    def _get(self) -> None:
        url = urlsplit(self.path)
        instance = self.server.instance
        match url.path:
            case "/healthz":
                self._send(HTTPStatus.OK, "text/plain", b"ok\n")
            case "/readyz":
                ready = instance.is_ready
                status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
                self._send(status, "text/plain", b"ok\n" if ready else f"not ready: {instance.seen.problem}\n".encode())
            case "/metrics":
                self.server.api.identify(self._authorization)
                self._send(HTTPStatus.OK, CONTENT_TYPE, format_service(instance).encode())
            case "/":
                self.server.api.identify(self._authorization)
                self._send(HTTPStatus.OK, "text/html; charset=utf-8", make_page(instance).encode())
            case _:
                method = _find_method(url.path)
                self._answer(method, json.dumps(_read_query(method, url.query)))

    def _post(self) -> None:
        method = _find_method(urlsplit(self.path).path)
        length = _read_length(self.headers.get("Content-Length", ""))
        try:
            self._admit_body(method, length)
        except ApiError:
            self._pass_over(min(length, _LARGEST_OF_STRANGERS))
            raise
        self._answer(method, self.rfile.read(length).decode(errors="replace") or "{}")

    def _admit_body(self, method: Method, length: int) -> None:
        """See that who asks may, before what is sent is read: it is held in memory."""
        is_known = bool(self.server.api.admit(method, self._authorization))
        if length > _LARGEST_OF_STRANGERS and not is_known:
            raise ApiError(Why.BAD_REQUEST, f"send at most {_LARGEST_OF_STRANGERS} bytes without a token")

    def _pass_over(self, length: int) -> None:
        """Read what is not wanted: who still sends does not hear an answer, but that the connection is gone."""
        while length > 0 and (piece := self.rfile.read(min(length, _CHUNK))):
            length -= len(piece)

    def _allow_answer(self) -> None:
        self._bound.allow(self.server.instance.config.requests.deadline + _SILENT_S)

    @property
    def _authorization(self) -> str:
        return str(self.headers.get("Authorization", ""))

    def _answer(self, method: Method, text: str) -> None:
        request = method.request()
        try:
            json_format.Parse(text, request)
        except json_format.ParseError as error:
            kind = method.request.DESCRIPTOR
            fields = ", ".join(entry.name for entry in kind.fields) or "none"
            first, *_ = str(error).splitlines()
            raise ApiError(
                Why.BAD_REQUEST, f"not a {kind.name}: {first.rstrip('.')}; its fields are {fields}"
            ) from error
        given_s = _read_timeout(self.headers.get("Request-Timeout"))
        with _watch(self.connection) as given_up:
            answer = self.server.api.answer(method, request, self._authorization, given_s=given_s, given_up=given_up)
            if method.streams:
                self._stream(answer)
            else:
                self._send(HTTPStatus.OK, _JSON, _to_json(answer, indent=2))

    def _stream(self, answers: Iterator[Message]) -> None:
        try:
            first = list(islice(answers, 1))
        except RecoveryError as error:
            raise ApiError(Why.UNAVAILABLE, str(error)) from error
        self._send_head(HTTPStatus.OK, _LINES)
        if self.command != "HEAD":
            for line in _list_lines(chain(first, answers)):
                self.wfile.write(line)

    def _refuse(self, error: ApiError) -> None:
        body = json.dumps({"error": error.text, "code": error.why.value[0]}).encode() + b"\n"
        headers = {"WWW-Authenticate": "Bearer"} if error.why is Why.NO_TOKEN else {}
        self._send(HTTPStatus(error.why.value[1]), _JSON, body, headers)

    def _send(self, status: HTTPStatus, kind: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self._send_head(status, kind, {"Content-Length": str(len(body)), **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _send_head(self, status: HTTPStatus, kind: str, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        fixed = {"Content-Type": kind, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
        for name, value in {**fixed, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()


def _list_lines(answers: Iterator[Message]) -> Iterator[bytes]:
    """Yield answers as lines; the status is sent by then, so a last line says that they are not all."""
    try:
        for answer in answers:
            yield _to_json(answer, indent=None)
    except Exception as error:  # noqa: BLE001 - the caller hears of it; of a fault of ours the log has the trace
        problem = str(error)
        if not isinstance(error, ApiError | RecoveryError):
            _LOG.exception("a question over HTTP is not answered whole")
            problem = f"a fault of the service ({type(error).__name__}): its log has more; this is not all of it"
        yield json.dumps({"error": problem}).encode() + b"\n"


def _find_method(path: str) -> Method:
    method = _PATHS.get(path)
    if method is None:
        raise ApiError(Why.NOT_FOUND, f"there is nothing at this path; methods are {', '.join(_PATHS)}")
    return method


def _read_length(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) > _LARGEST:
        raise ApiError(Why.BAD_REQUEST, f"send a Content-Length of at most {_LARGEST}")
    return int(text)


def _read_timeout(text: str | None) -> float | None:
    if text is None:
        return None
    if not _TIMEOUT.fullmatch(text) or float(text) == 0:
        raise ApiError(Why.BAD_REQUEST, "send Request-Timeout as seconds: 30, or 2.5")
    return float(text)


def _read_query(method: Method, query: str) -> dict[str, object]:
    """Return the parameters of a URL as fields; one that may be given several times is a list, a ledger 7 or 3:7."""
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
        raise ApiError(Why.BAD_REQUEST, f"{text!r} is no ledger: write 7, or 3:7 with its scope") from error
    return {"ledger_id": ledger.ledger, "ledger_scope_id": ledger.scope}


def _to_json(message: Message, *, indent: int | None) -> bytes:
    values = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return json.dumps(_print_whole(values), indent=indent, ensure_ascii=False).encode() + b"\n"


def _print_whole(value: Any) -> Any:  # noqa: ANN401 - what JSON has
    """Have whole numbers printed as the command printed them: an object of protobuf has doubles only."""
    match value:
        case dict():
            return {name: _print_whole(entry) for name, entry in value.items()}
        case list():
            return [_print_whole(entry) for entry in value]
        case float() if value.is_integer():
            return int(value)
    return value
