"""The service over gRPC: our own methods, health and reflection.

Health is SERVING while the store was seen lately; so a load balancer asks an instance that can answer.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NoReturn

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from reconcile.service.api.answers import Api
from reconcile.service.api.methods import METHODS, SERVICE, ApiError, Method, Why
from reconcile.service.config import Config
from reconcile.service.runs.leader import Instance
from recovery.errors import InputError, RecoveryError

_THREADS: Final = 16
_MOST_CALLS: Final = 64
_LARGEST: Final = 64 << 20
"""Bytes of a message: a certificate of a hundred thousand ledgers has some 20 MB."""
_HEALTH_S: Final = 2.0


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
            options=(("grpc.max_receive_message_length", _LARGEST), ("grpc.so_reuseport", 0)),
        )
        handlers = {method.name: self._make_handler(method) for method in METHODS}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)
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
            # Who reads slowly holds a thread, and a file: not for ever.
            timer = threading.Timer(self._instance.config.requests.deadline, context.cancel)
            timer.daemon = True
            timer.start()
            try:
                yield from answer(request, context)
            except ApiError as error:
                _abort(context, error)
            except RecoveryError as error:
                _abort(context, ApiError(Why.UNAVAILABLE, str(error)))
            finally:
                timer.cancel()

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
