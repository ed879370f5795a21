"""Missing parts of kazoo: a client that only reads, many values in one request, a connection without a session.

The only module that uses kazoo's private parts.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from kazoo import exceptions as zk
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import stat_struct
from kazoo.protocol.states import KeeperState, ZnodeStat

from backends.errors import ReadOnlyStoreError

_MULTI_READ: Final = 22
_READING: Final = frozenset({3, 4, 6, 8, 9, 12, _MULTI_READ, 100})
"""Kinds of requests that change nothing: exists, value, ACL, names (twice), sync, many values, who the client is."""
_HEADER: Final = struct.Struct(">iBi")
_LENGTH: Final = struct.Struct(">i")
_GET: Final = 4

LOST: Final = (
    zk.ConnectionLoss,
    zk.OperationTimeoutError,
    zk.SessionExpiredError,
    zk.SessionMovedError,
    zk.RequestTimeoutError,
    zk.ConnectionDropped,
    zk.CancelledError,
    zk.ThrottledOpError,
    KazooTimeoutError,
)
"""Errors after which it is unknown whether the server got a request."""


class Client(KazooClient):  # type: ignore[misc]  # kazoo has no types
    """A client that remembers a refusal: kazoo forgets it as soon as it has closed the rest of a session.

    Attributes:
        was_refused: the server refused the client's identity.
    """

    was_refused = False

    def _session_callback(self, state: str) -> None:
        if state == KeeperState.AUTH_FAILED:
            self.was_refused = True
        super()._session_callback(state)


class ReadingClient(Client):
    """A client that cannot ask for a change."""

    def _call(self, request: Any, async_object: Any) -> Any:  # noqa: ANN401  # kazoo has no types
        if request.type not in _READING:
            raise ReadOnlyStoreError(str(self.hosts), f"a request of kind {request.type}")
        return super()._call(request, async_object)


def send_reads(client: Any, paths: Sequence[str]) -> Any:  # noqa: ANN401  # kazoo has no types
    """Request the values of many nodes; return the future of the answer: value and stat, or the error, of each."""
    answer = client.handler.async_result()
    request = MultiRead(tuple(path.encode() for path in paths))
    client._call(request, answer)  # noqa: SLF001  # as kazoo's own transactions are sent
    return answer


def open_connection(client: Any, timeout_s: float) -> Any:  # noqa: ANN401  # a socket, or its encrypted kind
    """Return a connection of its own: opened, encrypted and authenticated by kazoo, and used without it.

    Args:
        client: a new one.
        timeout_s: the longest wait for an answer.

    Raises:
        OSError: no server answered.
        kazoo.exceptions.KazooException: no server answered, or one refused.
    """
    handler = client._connection  # noqa: SLF001 - kazoo opens none on its own
    failed: Exception = ConnectionError("no server's name is known")
    for address in handler._expand_client_hosts():  # noqa: SLF001 - as above
        try:
            handler._connect(*address)  # noqa: SLF001 - as above
        except (OSError, *LOST) as error:
            failed = error
            if handler._socket is not None:  # noqa: SLF001 - as above
                handler._socket.close()  # noqa: SLF001 - as above
        else:
            handler._socket.settimeout(timeout_s)  # noqa: SLF001 - as above
            return handler._socket  # noqa: SLF001 - as above
    raise failed


@dataclass(frozen=True, slots=True)
class MultiRead:
    """Many keys read by one request, which kazoo lacks; the server has it from 3.6 on.

    request   per key: header, int32 length of the path, path, byte 0 (no watch); then a header that ends it
    answer    per key: header, then int32 length, value, stat; or where the header's kind is -1 an int32 error code
    header    int32 kind (4: a value and its stat), byte 1 at the end, int32 error code

    Source: Apache ZooKeeper 3.9, MultiOperationRecord and MultiResponse.
    """

    type: ClassVar = _MULTI_READ
    paths: tuple[bytes, ...]

    def serialize(self) -> bytes:
        """Return the request's bytes, as kazoo asks for them."""
        reads = [_HEADER.pack(_GET, 0, -1) + _LENGTH.pack(len(path)) + path + b"\0" for path in self.paths]
        return b"".join(reads) + _HEADER.pack(-1, 1, -1)

    @staticmethod
    def deserialize(answer: bytes, offset: int) -> list[tuple[bytes, Any] | Exception]:
        """Return value and stat, or the error, of each key."""
        answers: list[tuple[bytes, Any] | Exception] = []
        while True:
            kind, done, _ = _HEADER.unpack_from(answer, offset)
            offset += _HEADER.size
            if done:
                return answers
            (number,) = _LENGTH.unpack_from(answer, offset)
            offset += _LENGTH.size
            if kind == _GET:
                end = offset + max(number, 0)
                answers.append((bytes(answer[offset:end]), ZnodeStat._make(stat_struct.unpack_from(answer, end))))
                offset = end + stat_struct.size
            else:
                answers.append(zk.EXCEPTIONS[number]())
