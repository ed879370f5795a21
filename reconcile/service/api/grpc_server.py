"""The service over gRPC: our own methods, health and reflection.

Health is SERVING while the store was seen lately; so a load balancer asks an instance that can answer.

A call holds a thread, of which there are few, from its first byte on. So every one has an end: a reader of findings and
of reflection after a while, and any other with its connection, which the server ends some time after it told the other
side to make a new one.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from reconcile.service.api.answers import Api
from reconcile.service.api.methods import METHODS, SERVICE, ApiError, Method, Why
from reconcile.service.config import Config
from reconcile.service.runs.leader import Instance
from recovery.errors import InputError, RecoveryError

_THREADS: Final = 16
_MOST_CALLS: Final = 64
_GRACE_MS: Final = 30_000
_LARGEST: Final = 64 << 20
"""Bytes of a message: a certificate of a hundred thousand ledgers has some 20 MB."""
_HEALTH_S: Final = 2.0
_CONNECTION_S: Final = 300
"""Age of a connection at which its other side is told to make another one for further calls."""
_MOST_REFLECTIONS: Final = 4
_REFLECTION_S: Final = 30.0
"""Tools ask it a few questions, and end."""


class GrpcServer:
    """The service over gRPC.

    Args:
        api: that answers.
        instance: whose health is told.
        config: its address, and its certificate.

    Raises:
        InputError: the address or the certificate cannot be used.
    """

    def __init__(self, api: Api, instance: Instance, config: Config) -> None:
        self._api = api
        self._instance = instance
        self._ended = threading.Event()
        self._health = health.HealthServicer()
        self._server = grpc.server(
            ThreadPoolExecutor(_THREADS, thread_name_prefix="grpc"),
            maximum_concurrent_rpcs=_MOST_CALLS,
            options=(
                ("grpc.max_receive_message_length", _LARGEST),
                ("grpc.so_reuseport", 0),
                ("grpc.max_connection_age_ms", _CONNECTION_S * 1000),
                # As long as any of our answers takes.
                ("grpc.max_connection_age_grace_ms", round(config.requests.deadline * 1000) + _GRACE_MS),
            ),
        )
        handlers = {method.name: self._make_handler(method) for method in METHODS}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(_Reflection(), self._server)
        self.port = _bind(self._server, config)

    def start(self) -> None:
        """Begin to answer."""
        self._server.start()
        threading.Thread(target=self._tell_health, name="health", daemon=True).start()

    def stop(self) -> None:
        """End, at once."""
        self._ended.set()
        self._health.enter_graceful_shutdown()
        self._server.stop(0).wait()

    def _tell_health(self) -> None:
        status = health_pb2.HealthCheckResponse
        while not self._ended.is_set():
            now = status.SERVING if self._instance.is_ready else status.NOT_SERVING
            for name in ("", SERVICE):
                self._health.set(name, now)
            self._ended.wait(_HEALTH_S)

    def _make_handler(self, method: Method) -> "grpc.RpcMethodHandler[Any, Any]":
        def answer(request: Any, context: grpc.ServicerContext) -> Any:  # noqa: ANN401 - messages
            given_up = threading.Event()
            context.add_callback(given_up.set)
            given = {str(key): value for key, value in context.invocation_metadata() or ()}
            remaining = context.time_remaining()
            try:
                return self._api.answer(
                    method,
                    request,
                    str(given.get("authorization", "")),
                    given_s=remaining,
                    given_up=given_up,
                )
            except ApiError as error:
                _abort(context, error)

        def stream(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: ANN401 - messages
            with _end_after(self._instance.config.requests.deadline, context):
                try:
                    yield from answer(request, context)
                except ApiError as error:
                    _abort(context, error)
                except RecoveryError as error:
                    _abort(context, ApiError(Why.UNAVAILABLE, str(error)))

        make: Callable[..., Any] = grpc.unary_unary_rpc_method_handler
        behaviour: Callable[..., Any] = answer
        if method.streams:
            make, behaviour = grpc.unary_stream_rpc_method_handler, stream
        handler: grpc.RpcMethodHandler[Any, Any] = make(
            behaviour,
            request_deserializer=method.request.FromString,
            response_serializer=method.response.SerializeToString,
        )
        return handler


class _Reflection(reflection.ReflectionServicer):  # type: ignore[misc]  # grpc_reflection has no types
    """What the service has, for tools: some at a time, and each for a while."""

    def __init__(self) -> None:
        super().__init__((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME))
        self._places = threading.BoundedSemaphore(_MOST_REFLECTIONS)

    def ServerReflectionInfo(self, request_iterator: Any, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: ANN401, N802 - as the base class has it
        if not self._places.acquire(blocking=False):
            _abort(context, ApiError(Why.TOO_MANY, f"{_MOST_REFLECTIONS} ask what the service has: ask again"))
        try:
            with _end_after(_REFLECTION_S, context):
                yield from super().ServerReflectionInfo(request_iterator, context)
        finally:
            self._places.release()


@contextmanager
def _end_after(seconds: float, context: grpc.ServicerContext) -> Iterator[None]:
    """End a call that lasts longer than this: who reads slowly, or sends nothing, holds a thread."""
    timer = threading.Timer(seconds, context.cancel)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _abort(context: grpc.ServicerContext, error: ApiError) -> NoReturn:
    context.abort(getattr(grpc.StatusCode, error.why.value[0]), error.text)
    raise AssertionError("abort raises")


def _bind(server: grpc.Server, config: Config) -> int:
    access = config.access
    try:
        if access.tls_cert:
            pair = (Path(access.tls_key).read_bytes(), Path(access.tls_cert).read_bytes())
            return server.add_secure_port(config.listen.grpc, grpc.ssl_server_credentials([pair]))
        return server.add_insecure_port(config.listen.grpc)
    except (OSError, RuntimeError) as error:
        remedy = "name an address of this host that is free, and PEM files that you can read"
        raise InputError(f"listen.grpc {config.listen.grpc}", f"cannot be listened at ({error})", remedy) from error
