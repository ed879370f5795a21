"""The service over gRPC: our own methods, health and reflection.

Health is SERVING while the store was seen lately; so a load balancer asks an instance that can answer.

Calls run on the event loop: a call that sends nothing, or reads slowly, holds no thread. Every call has an end: its
deadline at the latest.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from reconcile.service.api.carriers import AnswerPool, EventLoop
from reconcile.service.api.methods import METHODS, SERVICE, ApiError, Method, Why
from reconcile.service.config import Config
from reconcile.service.runs.leader import Instance
from recovery.errors import InputError, RecoveryError

_MOST_CALLS: Final = 2048
_GRACE_MS: Final = 30_000
_LARGEST: Final = 64 << 20
"""Bytes of a message: a certificate of a hundred thousand ledgers has some 20 MB."""
_HEALTH_S: Final = 2.0
_CONNECTION_S: Final = 300
"""Age of a connection at which its client must make another one for further calls."""
_MOST_REFLECTIONS: Final = 64
_REFLECTION_S: Final = 30.0
"""Tools ask it a few questions, and end."""


class GrpcServer:
    """The service over gRPC.

    Args:
        pool: of the threads that answer.
        instance: its health is reported.
        config: its address, and its certificate.
        loop: the event loop.

    Raises:
        InputError: the address or the certificate cannot be used.
    """

    def __init__(self, pool: AnswerPool, instance: Instance, config: Config, loop: EventLoop) -> None:
        self._pool = pool
        self._instance = instance
        self._loop = loop
        self._longest_s = config.requests.deadline
        self._health = health.aio.HealthServicer()
        self._server, self.port = loop.run(self._make(config))

    async def _make(self, config: Config) -> tuple[grpc.aio.Server, int]:
        # On the loop: a server of gRPC belongs to the one that it is made on.
        server = grpc.aio.server(
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
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(_Reflection(), server)
        return server, _bind(server, config)

    def start(self) -> None:
        """Begin to answer."""
        self._loop.run(self._server.start())
        self._telling = self._loop.begin(self._tell_health())

    def stop(self) -> None:
        """End, at once."""
        self._telling.cancel()
        self._loop.run(self._server.stop(0))

    async def _tell_health(self) -> None:
        status = health_pb2.HealthCheckResponse
        while True:
            now = status.SERVING if self._instance.seen.is_recent else status.NOT_SERVING
            for name in ("", SERVICE):
                await self._health.set(name, now)
            await asyncio.sleep(_HEALTH_S)

    def _make_handler(self, method: Method) -> "grpc.RpcMethodHandler[Any, Any]":
        async def ask(request: Any, context: Any) -> tuple[Any, str]:  # noqa: ANN401 - messages; grpc.aio's context
            given_up = threading.Event()
            context.add_done_callback(lambda _: given_up.set())
            given = {str(key): value for key, value in context.invocation_metadata() or ()}
            by = self._pool.api.admit(method, str(given.get("authorization", "")))
            remaining = context.time_remaining()
            return await self._pool.answer(method, request, by, given_s=remaining, given_up=given_up), by

        async def answer(request: Any, context: Any) -> Any:  # noqa: ANN401 - as above
            try:
                return (await ask(request, context))[0]
            except ApiError as error:
                await _abort(context, error)

        async def stream(request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: ANN401 - as above
            try:
                async with asyncio.timeout(self._longest_s):
                    answers, by = await ask(request, context)
                    async for batch in self._pool.list_batches(answers, by):
                        for message in batch:
                            yield message
            except ApiError as error:
                await _abort(context, error)
            except RecoveryError as error:
                await _abort(context, ApiError(Why.UNAVAILABLE, str(error)))
            except TimeoutError:
                await _abort(context, ApiError(Why.TOO_LATE, "not all was read within the deadline"))

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


class _Reflection(reflection.aio.ReflectionServicer):  # type: ignore[misc]  # grpc_reflection has no types
    """Reflection of the service's methods for tools: few calls at a time, each with a time limit."""

    def __init__(self) -> None:
        super().__init__((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME))
        self._running = 0

    async def ServerReflectionInfo(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:  # noqa: ANN401, N802 - as the base class has it
        if self._running >= _MOST_REFLECTIONS:
            await _abort(
                context,
                ApiError(Why.TOO_MANY, f"{_MOST_REFLECTIONS} ask for the methods of the service: ask again later"),
            )
        self._running += 1
        try:
            async with asyncio.timeout(_REFLECTION_S):
                async for answer in super().ServerReflectionInfo(request_iterator, context):
                    yield answer
        except TimeoutError:
            await _abort(context, ApiError(Why.TOO_LATE, f"ask within {_REFLECTION_S:.0f} s"))
        finally:
            self._running -= 1


async def _abort(context: Any, error: ApiError) -> None:  # noqa: ANN401 - grpc.aio's context
    await context.abort(getattr(grpc.StatusCode, error.why.value[0]), error.text)


def _bind(server: grpc.aio.Server, config: Config) -> int:
    access = config.access
    try:
        if access.tls_cert:
            pair = (Path(access.tls_key).read_bytes(), Path(access.tls_cert).read_bytes())
            return server.add_secure_port(config.listen.grpc, grpc.ssl_server_credentials([pair]))
        return server.add_insecure_port(config.listen.grpc)
    except (OSError, RuntimeError) as error:
        remedy = "name an address of this host that is free, and PEM files that you can read"
        raise InputError(f"listen.grpc {config.listen.grpc}", f"cannot be listened at ({error})", remedy) from error
