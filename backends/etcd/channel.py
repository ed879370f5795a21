"""A connection to an etcd cluster: endpoints in turn, TLS, a user's token, and grpc's errors as ours.

etcd3 makes the channel, with TLS, and the token of a user; requests and answers are our own messages over it.

    status of the answer                      here
    UNAVAILABLE, DEADLINE_EXCEEDED, others    UnavailableError; the next call goes to the next endpoint
    UNAUTHENTICATED, an old revision of users StaleTokenError: nothing was done; the next call has a new token
    PERMISSION_DENIED, a wrong password       AccessDeniedError
    OUT_OF_RANGE, compacted                   CompactedError
    too many operations, too large            TooLargeError
    database space exceeded                   StoreFullError: of a write that was made, too (server/etcdserver/apply.go)

Source: etcd-io/etcd v3.5, api/v3rpc/rpctypes/error.go; run against 3.5.1.
"""

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from backends.errors import (
    AccessDeniedError,
    BackendError,
    CompactedError,
    StoreFullError,
    TooLargeError,
    UnavailableError,
)
from backends.etcd import rpc
from backends.protocols import StoreTls

# Before its import: the stubs that etcd3 brings need protobuf 3.
sys.modules.setdefault("etcd3.etcdrpc", sys.modules[rpc.__name__])
import etcd3  # noqa: E402 - see above

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),  # pages are bounded where they are asked for
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a new channel starts without the old one's back-off
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)
_NEVER_SENT: Final = ("failed to connect to all addresses", "errors resolving")
_NO_USERS: Final = "authentication is not enabled"
_OLD_USERS: Final = "revision of auth store is old"
_WRONG_PASSWORD: Final = ("authentication failed", "user name is empty", "user name not found")
_TOO_MANY: Final = "too many operations"
_FULL: Final = "database space exceeded"
_MAKE_ROOM: Final = "raise its quota-backend-bytes, or compact and defragment it; then `etcdctl alarm disarm`"
_TOO_LARGE: Final = ("request is too large", "message larger than max")


def make_client(
    endpoint: str, *, tls: StoreTls | None = None, auth: tuple[str, str] | None = None, answer_s: float | None = None
) -> Any:  # noqa: ANN401 - etcd3 has no types
    """Return a client of one endpoint, `host:port`; only that of a user asks the server something, for a token.

    Raises:
        grpc.RpcError: the user is refused, or the server does not answer.
    """
    host, _, port = endpoint.rpartition(":")
    return etcd3.client(
        host=host,
        port=port,
        ca_cert=tls.ca if tls else None,
        cert_cert=tls.cert if tls else None,
        cert_key=tls.key if tls else None,
        user=auth[0] if auth else None,
        password=auth[1] if auth else None,
        timeout=answer_s,
        grpc_options=_OPTIONS,
    )


class StaleTokenError(UnavailableError):
    """The user's token is not valid any more; nothing was done."""


class NeverSentError(UnavailableError):
    """No connection was open: nothing was sent."""


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A request under way.

    Attributes:
        answer: the future.
        client: its connection carries the call.
    """

    answer: Any
    client: Any


class Channel:
    """One client at a time, of the endpoint that answered last; made when it is needed.

    Args:
        hosts: ``host:port`` joined with commas.
        uri: for errors.
        auth: user and password.
        tls: with the servers' CA, and a key without a password; None: plain.
        answer_s: the longest wait for one answer.
    """

    def __init__(
        self, hosts: str, *, uri: str, auth: tuple[str, str] | None, tls: StoreTls | None, answer_s: float
    ) -> None:
        self._hosts = hosts.split(",")
        self._uri = uri
        self._auth = auth
        self._tls = tls
        self._answer_s = answer_s
        self._lock = threading.Lock()
        self._at = 0
        self._client: Any = None
        self._closed = False
        self._cluster: int | None = None
        if tls is not None and (tls.ca is None or tls.key_password is not None):
            raise ValueError("TLS needs the servers' CA, and a key without a password: else nothing would be encrypted")
        for path in (tls.ca, tls.cert, tls.key) if tls else ():
            _require_readable(path)  # etcd3 reads them when it connects

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """End the connection; requests in flight fail."""
        with self._lock:
            self._closed = True
            if self._client is not None:
                self._client.close()
                self._client = None

    def send(self, method: Callable[[Any], Any], request: Any) -> PendingCall:  # noqa: ANN401 - messages, stubs
        """Send a request by the method that is chosen from a client; the answer is awaited by `answer`.

        Raises:
            UnavailableError: no connection.
            AccessDeniedError: the user is not let in.
        """
        client = self.client()
        try:
            return PendingCall(method(client).future(request, timeout=self._answer_s, metadata=client.metadata), client)
        except ValueError as error:  # grpc: the channel was closed meanwhile
            raise self._unavailable("the connection was closed") from error

    def answer(self, asked: PendingCall, key: str) -> Any:  # noqa: ANN401 - a message
        """Wait for the answer to a request, and return it.

        Args:
            asked: from `send`.
            key: for errors.
        """
        try:
            response = asked.answer.result()
        except grpc.RpcError as error:
            raise self.failure(error, asked.client, key) from error
        except grpc.FutureCancelledError as error:
            raise self._unavailable("the connection was closed") from error
        self.check(response.header)
        return response

    def check(self, header: Any) -> None:  # noqa: ANN401 - a message
        """Refuse answers of two clusters: endpoints that do not belong together would be mixed silently."""
        if self._cluster is None:
            self._cluster = header.cluster_id
        elif self._cluster != header.cluster_id:
            raise AccessDeniedError(
                self._uri, f"its endpoints are of two clusters, {self._cluster:x} and {header.cluster_id:x}: name one's"
            )

    def client(self) -> Any:  # noqa: ANN401 - etcd3 has no types
        """Return the client of the current endpoint."""
        with self._lock:
            if self._closed:
                raise UnavailableError(self._uri, "it was closed")
            if self._client is None:
                self._client = self._connect(self._hosts[self._at], self._auth)
            return self._client

    def _connect(self, endpoint: str, auth: tuple[str, str] | None) -> Any:  # noqa: ANN401 - etcd3 has no types
        try:
            return make_client(endpoint, tls=self._tls, auth=auth, answer_s=self._answer_s)
        except grpc.RpcError as error:
            if auth and _NO_USERS in _details(error):
                return self._connect(endpoint, None)
            self._at = (self._at + 1) % len(self._hosts)
            raise self._translate(error, self._uri) from error

    def failure(self, error: grpc.RpcError, client: Any, key: str) -> BackendError:  # noqa: ANN401 - etcd3 has no types
        """Return our error for one of grpc's; a connection that failed is left for the next endpoint's."""
        failure = self._translate(error, key)
        if isinstance(failure, UnavailableError) and not isinstance(failure, CompactedError | StoreFullError):
            with self._lock:
                if self._client is client:
                    self._client = None
                    if not isinstance(failure, StaleTokenError):
                        self._at = (self._at + 1) % len(self._hosts)
            if not isinstance(failure, StaleTokenError):
                client.close()
        return failure

    def _unavailable(self, why: str) -> UnavailableError:
        return UnavailableError(self._uri, "it was closed" if self._closed else why)

    def _translate(self, error: grpc.RpcError, key: str) -> BackendError:
        code, details = error.code(), _details(error)
        if code is grpc.StatusCode.PERMISSION_DENIED or any(text in details for text in _WRONG_PASSWORD):
            return AccessDeniedError(key, details)
        if code is grpc.StatusCode.UNAUTHENTICATED or _OLD_USERS in details:
            return StaleTokenError(self._uri, details)
        if code is grpc.StatusCode.OUT_OF_RANGE:
            return CompactedError(self._uri, details)
        if _TOO_MANY in details or any(text in details for text in _TOO_LARGE):
            return TooLargeError(key, details)
        if _FULL in details:
            return StoreFullError(self._uri, f"{details}: {_MAKE_ROOM}")
        if code is grpc.StatusCode.UNAVAILABLE and any(text in details for text in _NEVER_SENT):
            return NeverSentError(self._uri, details)
        return self._unavailable(f"{code.name} {details}".rstrip())


def _details(error: grpc.RpcError) -> str:
    return (error.details() or "").removeprefix("etcdserver: ")


def _require_readable(path: str | None) -> None:
    if path is None:
        return
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise AccessDeniedError(path, f"cannot be read ({error.strerror})") from error
