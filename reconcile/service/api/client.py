"""A service asked over gRPC."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from reconcile.service.api.methods import SERVICE, ApiError, Method, Why
from recovery.errors import InputError

_LARGEST: Final = 64 << 20
_BY_STATUS: Final = {why.value[0]: why for why in Why}


def ask_service(
    address: str, method: Method, request: Message, *, token: str = "", ca: Path | None = None, deadline_s: float
) -> Iterator[Any]:
    """Yield the answers of a service: one, or many of a streaming method.

    Args:
        address: ``host:port`` of gRPC.
        method: the called method.
        request: its message.
        token: empty: none.
        ca: PEM of who vouches for the service's certificate; None: it is not encrypted.
        deadline_s: for all of it.

    Raises:
        ApiError: it is not answered.
        InputError: the file cannot be read.
    """
    options = (("grpc.max_receive_message_length", _LARGEST), ("grpc.enable_http_proxy", 0))
    if ca is None:
        channel = grpc.insecure_channel(address, options=options)
    else:
        try:
            credentials = grpc.ssl_channel_credentials(ca.read_bytes())
        except OSError as error:
            raise InputError(str(ca), f"cannot be read ({error.strerror})", "name a PEM file") from error
        channel = grpc.secure_channel(address, credentials, options=options)
    with channel:
        make: Callable[..., Any] = channel.unary_stream if method.streams else channel.unary_unary
        stub = make(
            f"/{SERVICE}/{method.name}",
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        try:
            answer = stub(request, timeout=deadline_s, metadata=metadata)
            if method.streams:
                yield from answer
            else:
                yield answer
        except grpc.RpcError as error:
            why = _BY_STATUS.get(error.code().name, Why.UNAVAILABLE)
            raise ApiError(why, error.details() or error.code().name) from error
