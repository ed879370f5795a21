"""ACLs of many nodes of a ZooKeeper, in one stream of requests; knows nothing of sessions.

A request for many values exists, one for the ACLs of many does not. Asked for one by one through kazoo they cost some
six times the CPU of a plain connection, where many are sent at once and compared as bytes: most are the same.

    request   int32 length of the rest; int32 number, int32 6, string path
    sync      int32 length of the rest; int32 number, int32 9, string path
    answer    int32 length of the rest; int32 number, int64 zxid, int32 error; without one: rights, stat
    rights    int32 count; each int32 permissions, string scheme, string id
    stat      68 bytes, the version of the ACL at 40 as int32
    string    int32 length, bytes

Source: Apache ZooKeeper 3.9, zookeeper.jute: RequestHeader, ReplyHeader, GetACLRequest, GetACLResponse, Stat.
"""

import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from backends.protocols import Acl

_GET_ACL: Final = 6
_SYNC: Final = 9
_SIZE: Final = struct.Struct(">i")
_REQUEST: Final = struct.Struct(">iiii")
_ANSWER: Final = struct.Struct(">iqi")
_VERSION: Final = struct.Struct(">i")
_STAT: Final = 68
_VERSION_AT: Final = 40
_PERMS: Final = {"c": 4, "d": 8, "r": 1, "w": 2, "a": 16}
_LARGEST: Final = 1 << 26
_BUFFER: Final = 1 << 18


class AclStream:
    """Requests over one connection with an open session; any error of the connection ends it.

    Args:
        connection: blocking, with a limit of time; closed with this.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._answers = connection.makefile("rb", _BUFFER)
        self._sent = 0
        self._read = 0
        self._known: dict[bytes, str] = {}

    def close(self) -> None:
        """End the connection."""
        with suppress(OSError):
            self._answers.close()
        self._connection.close()

    def catch_up(self, path: str) -> None:
        """Wait until the server has seen every write that ended before.

        Raises:
            OSError: the connection ended.
        """
        self._send(_SYNC, [path])
        self._answer()

    def ask(self, paths: Sequence[str]) -> None:
        """Send for the ACLs of nodes.

        Raises:
            OSError: the connection ended.
        """
        self._send(_GET_ACL, paths)

    def _send(self, kind: int, paths: Sequence[str]) -> None:
        requests = []
        for path in paths:
            self._sent += 1
            raw = path.encode()
            requests.append(_REQUEST.pack(12 + len(raw), self._sent, kind, len(raw)) + raw)
        self._connection.sendall(b"".join(requests))

    def answers(self, count: int) -> list[Acl | int]:
        """Return the ACLs of the next nodes that were asked for, or the server's error code of each.

        Raises:
            OSError: the connection ended, or sent no valid answer.
        """
        answers: list[Acl | int] = []
        for _ in range(count):
            error, body = self._answer()
            if error:
                answers.append(error)
                continue
            if len(body) < _STAT + 4:
                raise ConnectionError("an answer is too short")
            raw = body[:-_STAT]
            text = self._known.get(raw)
            if text is None:
                text = self._known[raw] = _text(raw)
            answers.append(Acl(text, _VERSION.unpack_from(body, len(raw) + _VERSION_AT)[0]))
        return answers

    def _answer(self) -> tuple[int, bytes]:
        (size,) = _SIZE.unpack(self._exactly(4))
        if not _ANSWER.size <= size < _LARGEST:
            raise ConnectionError("an answer has an impossible length")
        number, _, error = _ANSWER.unpack(self._exactly(_ANSWER.size))
        body = self._exactly(size - _ANSWER.size)
        self._read += 1
        if number != self._read:
            raise ConnectionError("an answer to another request")
        return error, body

    def _exactly(self, size: int) -> bytes:
        data: bytes = self._answers.read(size)
        if len(data) < size:
            raise ConnectionError("the connection ended")
        return data


def _text(raw: bytes) -> str:
    """Return rights as `backends.protocols.Versioned` has them."""
    try:
        (count,) = _SIZE.unpack_from(raw)
        position, entries = 4, []
        for _ in range(max(0, count)):
            (perms,) = _SIZE.unpack_from(raw, position)
            position += 4
            names = []
            for _ in range(2):
                (size,) = _SIZE.unpack_from(raw, position)
                names.append(raw[position + 4 : position + 4 + max(0, size)].decode())
                position += 4 + max(0, size)
            entries.append(f"{names[0]}:{names[1]}:{''.join(p for p, bit in _PERMS.items() if perms & bit)}")
    except (struct.error, UnicodeDecodeError) as error:
        raise ConnectionError("an answer holds no ACL") from error
    return ",".join(entries)
