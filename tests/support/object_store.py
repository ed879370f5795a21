"""A server of S3's protocol, moto's, as a process of its own; and a proxy before it that does what networks do."""

import http.client
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase, BytesIO
from typing import Final, Protocol, Self
from xml.etree import ElementTree as ET

from tests.support.waiting import free_port, until

BUCKET: Final = "ledgers"
SECRET: Final = "wJalrXUtnFEMI7MDENGbPxRfiCYEXAMPLEKEY"
_PROGRAM: Final = "import sys; from moto.server import main; main(sys.argv[1:])"
_KEYS: Final = ".//{http://s3.amazonaws.com/doc/2006-03-01/}Key"
_SIGNED: Final = "AWS4-HMAC-SHA256 Credential=A/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
"""Moto wants a signature, and takes any."""
_HEADERS: Final = {"Authorization": _SIGNED, "Content-Type": "application/octet-stream"}
_SLOW_DOWN: Final = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
_OF_ONE_CONNECTION: Final = frozenset({"connection", "transfer-encoding", "content-length", "server", "date"})

_OF_THE_BODY: Final = frozenset(
    {"content-length", "expect", "transfer-encoding", "content-encoding", "content-md5", "x-amz-trailer"}
    | {"x-amz-decoded-content-length", "x-amz-sdk-checksum-algorithm", "x-amz-content-sha256"}
)
"""Headers that say how a body is sent, or what it is: the one that is passed on is plain, and may be half of it."""


class Fault(StrEnum):
    """What happens to a request."""

    THROTTLED = "throttled"
    """It is not done: 503 SlowDown."""
    CUT_UPLOAD = "cut upload"
    """The connection ends when half of the body is sent; nothing is done."""
    TORN_UPLOAD = "torn upload"
    """Half of the body is stored, and the answer says that all is well."""
    LOST_ANSWER = "lost answer"
    """It is done, and the connection ends before the answer."""
    CUT_DOWNLOAD = "cut download"
    """The connection ends in the middle of the answer."""
    ALTERED_DOWNLOAD = "altered download"
    """The answer has its length, and one byte of it is another one."""
    SLOW = "slow"
    """The answer comes in pieces."""


Choose = Callable[[str, str, int], Fault | None]
"""Of a request's method and path, and its client's port, what becomes of it."""


@dataclass(slots=True)
class ObjectStore:
    """The server, and what its clients are to have in their environment.

    Attributes:
        port: where it listens.
        process: that it is.
    """

    port: int
    process: "subprocess.Popen[bytes]"

    @property
    def uri(self) -> str:
        """A bucket that is there."""
        return f"s3://{BUCKET}"

    def environment(self, port: int | None = None) -> dict[str, str]:
        """Return what a client finds the server by; or a proxy before it, at another port."""
        return {
            "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port or self.port}",
        }

    def list_keys(self, prefix: str = "") -> list[str]:
        """Return the names of all objects."""
        answer = self._ask("GET", f"/{BUCKET}?list-type=2&max-keys=100000&prefix={prefix}")
        return [str(key.text) for key in ET.fromstring(answer).iterfind(_KEYS)]  # noqa: S314 - our own server

    def read(self, key: str) -> bytes:
        """Return an object."""
        return self._ask("GET", f"/{BUCKET}/{key}")

    def write(self, key: str, raw: bytes) -> None:
        """Put an object in the place of another."""
        self._ask("PUT", f"/{BUCKET}/{key}", raw)

    def remove(self, key: str) -> None:
        """Remove an object."""
        self._ask("DELETE", f"/{BUCKET}/{key}")

    def _ask(self, method: str, path: str, raw: bytes | None = None) -> bytes:
        url = f"http://127.0.0.1:{self.port}{path}"
        asked = urllib.request.Request(url, data=raw, method=method, headers=_HEADERS)
        with urllib.request.urlopen(asked) as answer:  # noqa: S310 - http, to this machine
            return bytes(answer.read())

    def is_up(self) -> bool:
        """Whether it answers, with its bucket."""
        try:
            self._ask("PUT", f"/{BUCKET}")
        except urllib.error.URLError:
            return False
        return True


@contextmanager
def started_store() -> Iterator[ObjectStore]:
    """Give a server with one bucket; it is gone afterwards, with all that was in it."""
    port = free_port()
    words = [sys.executable, "-c", _PROGRAM, "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        store = ObjectStore(port, process)
        until(store.is_up, "an object store that answers")
        yield store
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Listening(Protocol):
    """A store that clients find by their environment."""

    @property
    def port(self) -> int:
        """Where it listens."""

    def environment(self, port: int | None = None) -> dict[str, str]:
        """Return what a client finds it by; or a proxy before it, at another port."""
        ...


@dataclass(slots=True)
class FaultyProxy:
    """Passes requests on to a store, and does to some what networks and stores do.

    Attributes:
        store: that it stands before.
        choose: says what becomes of a request.
        happened: how often what was done.
    """

    store: Listening
    choose: Choose
    happened: "Counter[Fault]" = field(default_factory=Counter)
    _server: ThreadingHTTPServer = field(init=False)

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _make_handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def environment(self) -> dict[str, str]:
        """What a client finds the proxy by."""
        return self.store.environment(self.port)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])


def _make_handler(proxy: FaultyProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its own name
            """Say nothing."""

        def _pass_on(self) -> None:
            # The library has sent the 100 that some clients wait for.
            if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
                body = _join_chunks(self.rfile)
            else:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if "aws-chunked" in self.headers.get("Content-Encoding", ""):
                body = _join_chunks(BytesIO(body))
            fault = proxy.choose(self.command, self.path, self.client_address[1])
            if fault is not None:
                proxy.happened[fault] += 1
            if fault is Fault.CUT_UPLOAD:
                self.close_connection = True
                return
            if fault is Fault.THROTTLED:
                self._answer(503, [("Content-Type", "application/xml")], _SLOW_DOWN, None)
                return
            status, headers, answer = self._ask(body[: len(body) // 2] if fault is Fault.TORN_UPLOAD else body)
            if fault is Fault.LOST_ANSWER:
                self.close_connection = True
                return
            if fault is Fault.ALTERED_DOWNLOAD and answer:
                answer = answer[:-1] + bytes([answer[-1] ^ 1])
            self._answer(status, headers, answer, fault)

        def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
            onward = http.client.HTTPConnection("127.0.0.1", proxy.store.port, timeout=60)
            kept = {name: value for name, value in self.headers.items() if name.lower() not in _OF_THE_BODY}
            kept["x-amz-content-sha256"] = "UNSIGNED-PAYLOAD"
            onward.request(self.command, self.path, body, kept)
            got = onward.getresponse()
            raw = got.read()
            onward.close()
            size = [] if self.command != "HEAD" else [("Content-Length", got.getheader("Content-Length") or "0")]
            # Google's says where an upload goes on: that is here, too.
            ways = f":{proxy.store.port}/", f":{proxy.port}/"
            named = [(name, value.replace(*ways)) for name, value in got.getheaders()]
            return got.status, [*size, *(h for h in named if h[0].lower() not in _OF_ONE_CONNECTION)], raw

        def _answer(self, status: int, headers: list[tuple[str, str]], raw: bytes, fault: Fault | None) -> None:
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            if self.command != "HEAD":
                self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            if fault is Fault.CUT_DOWNLOAD:
                self.wfile.write(raw[: len(raw) // 2])
                self.close_connection = True
                return
            pieces = 8 if fault is Fault.SLOW else 1
            step = -(-len(raw) // pieces) or 1
            for begin in range(0, len(raw), step):
                if fault is Fault.SLOW:
                    time.sleep(0.02)  # slow answers are what is tested
                self.wfile.write(raw[begin : begin + step])
                self.wfile.flush()

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on  # noqa: N815 - as the library names them

    return Handler


def _join_chunks(source: BufferedIOBase) -> bytes:
    """Return a body that came in chunks: of HTTP, or of AWS, whose heads have signatures."""
    pieces = []
    while size := int(source.readline().partition(b";")[0], 16):
        pieces.append(source.read(size))
        source.readline()
    while source.readline().strip():
        """Trailers are checksums of the whole."""
    return b"".join(pieces)


def every(number: int, *faults: Fault) -> Choose:
    """Do one fault after the other to the first, and then each so-many-th, of the requests that it can happen to."""
    uploads, downloads = {Fault.CUT_UPLOAD, Fault.TORN_UPLOAD}, {Fault.CUT_DOWNLOAD, Fault.ALTERED_DOWNLOAD}
    lock, asked, waiting = threading.Lock(), itertools.count(), deque(faults)

    def choose(method: str, _path: str, _port: int) -> Fault | None:
        with lock:
            fault = waiting[0]
            if (fault in uploads and method != "PUT") or (fault in downloads and method != "GET"):
                return None
            if next(asked) % number:
                return None
            waiting.rotate(-1)
            return fault

    return choose
