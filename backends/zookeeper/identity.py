"""ZooKeeper's name for our identity: it maps principals by rules of its own, so it is asked.

    request   int32 length of the rest; int32 number, int32 107
    answer    int32 length of the rest; int32 number, int64 zxid, int32 error; without one: int32 count, each string
              scheme, string name
    string    int32 length, bytes

Source: Apache ZooKeeper 3.9, WhoAmIResponse and ClientInfo of zookeeper.jute; servers have it from 3.7 on.
"""

import struct
from contextlib import closing
from typing import Final

from backends.errors import AccessDeniedError, UnavailableError
from backends.protocols import Sasl, StoreTls
from backends.zookeeper.kazoo_client import LOST, Client, open_connection
from backends.zookeeper.reader import REFUSED, make_options
from backends.zookeeper.sasl import describe_refusal

_WHO_AM_I: Final = 107
_REQUEST: Final = struct.Struct(">iii")
_ANSWER: Final = struct.Struct(">iqi")
_SIZE: Final = struct.Struct(">i")
_LARGEST: Final = 1 << 20


def ask_names(
    hosts: str, *, sasl: Sasl | None = None, tls: StoreTls | None = None, patience_s: float = 30.0
) -> tuple[str, ...]:
    """Return the ``scheme:name`` of each identity of a connection; none if the server cannot report it.

    Raises:
        UnavailableError: no server answers.
        AccessDeniedError: it refuses our identity.
    """
    options = make_options(hosts, auth=None, sasl=sasl, tls=tls, session_s=patience_s)
    client = Client(**options)
    uri = f"zk://{hosts}"
    try:
        connection = open_connection(client, patience_s)
    except REFUSED as error:
        raise AccessDeniedError(uri, describe_refusal(options["sasl_options"])) from error
    except (OSError, *LOST) as error:
        if client.was_refused:
            raise AccessDeniedError(uri, describe_refusal(options["sasl_options"])) from error
        raise UnavailableError(uri, f"{type(error).__name__} {error}".rstrip()) from error
    with closing(connection), connection.makefile("rb") as answers:
        try:
            connection.sendall(_REQUEST.pack(8, 1, _WHO_AM_I))
            (size,) = _SIZE.unpack(answers.read(_SIZE.size))
            body = answers.read(min(size, _LARGEST))
            _, _, error_code = _ANSWER.unpack_from(body)
            return () if error_code else _names(body, _ANSWER.size)
        except (OSError, struct.error, UnicodeDecodeError):
            # A server before 3.7 ends the connection.
            return ()


def _names(body: bytes, position: int) -> tuple[str, ...]:
    (count,) = _SIZE.unpack_from(body, position)
    position += _SIZE.size
    names = []
    for _ in range(count):
        parts = []
        for _ in range(2):
            (size,) = _SIZE.unpack_from(body, position)
            position += _SIZE.size
            parts.append(body[position : position + size].decode())
            position += size
        names.append(":".join(parts))
    return tuple(names)
