"""Registration: a running bookie's description of itself (value of ``available/<id>``); and the address in an id.

    value                                             means
    no bytes                                          an old bookie (before 4.11): its id is its address
    BookieServiceInfoFormat, protobuf, bare           its endpoints, of any service; the bookie's: protocol bookie-rpc

    id "host:port"    exactly one colon, a decimal port below 65536: where a bookie without endpoints listens
    any other id      has no address of its own

Source: apache/bookkeeper 9590a97, discover/ZKRegistrationManager, net/BookieSocketAddress; docs/formats/wire.md.
"""

import re
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from recovery.codecs._pb.service_info_pb2 import BookieServiceInfoFormat
from recovery.errors import FormatError, Reason

_RPC: Final = "bookie-rpc"
_TLS: Final = "tls"
_ADDRESS: Final = re.compile(r"([^:]+):\+?([0-9]{1,9})")
_PORTS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a bookie listens.

    Attributes:
        host, port: to connect to.
        tls: it says that it offers TLS.
    """

    host: str
    port: int
    tls: bool = False


def decode_registration(raw: bytes) -> Endpoint | None:
    """Return the address of a bookie; None: its registration has none, its id may.

    Raises:
        FormatError: neither of the two formats, or an endpoint that cannot be.
    """
    if not raw:
        return None
    try:
        message = BookieServiceInfoFormat.FromString(raw)
    except DecodeError as error:
        raise FormatError(Reason.BAD_VALUE, "registration", 0, "not BookieServiceInfoFormat") from error
    for endpoint in message.endpoints:
        if endpoint.protocol == _RPC:
            if not endpoint.host or not 0 < endpoint.port < _PORTS:
                raise FormatError(Reason.BAD_VALUE, "registration", 0, f"port {endpoint.port}")
            return Endpoint(endpoint.host, endpoint.port, _TLS in endpoint.extensions)
    return None


def address_in(bookie: str) -> Endpoint | None:
    """Return a bookie id as an address; None if it is none."""
    match = _ADDRESS.fullmatch(bookie)
    if match is None or not 0 < int(match[2]) < _PORTS:
        return None
    return Endpoint(match[1], int(match[2]))
