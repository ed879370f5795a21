"""The whole service: an instance, its gRPC and HTTP servers, and their shutdown."""

import logging
import resource
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from reconcile.jobs.context import Context
from reconcile.service.api.answers import Api
from reconcile.service.api.carriers import AnswerPool, EventLoop
from reconcile.service.api.grpc_server import GrpcServer
from reconcile.service.api.http_server import HttpServer
from reconcile.service.config import Config, read_tokens
from reconcile.service.runs.children import PROGRAM
from reconcile.service.runs.folders import make_private
from reconcile.service.runs.leader import Instance

_LOG: Final = logging.getLogger(__name__)
_FILES: Final = 16_384


@dataclass(frozen=True, slots=True)
class RunningService:
    """A service that answers.

    Attributes:
        instance: of the service.
        http_port, grpc_port, health_port: that it listens at.
    """

    instance: Instance
    http_port: int
    grpc_port: int
    health_port: int


@contextmanager
def start_service(config: Config, context: Context, program: tuple[str, ...] = PROGRAM) -> Iterator[RunningService]:
    """Yield a running service; it resigns and ends afterwards.

    Args:
        config: of the service.
        context: whom stores take it for, and the clock.
        program: the program for commands.

    Raises:
        InputError: an address, a file or the folder cannot be used.
    """
    tokens = read_tokens(config.access.tokens)
    make_private(config.data)
    _raise_file_limit()
    instance = Instance(config, context, program)
    api = Api(instance, tokens)
    pool, loop = AnswerPool(api), EventLoop()
    with ExitStack() as stack:
        stack.callback(loop.stop)
        stack.callback(pool.stop)
        http_server = HttpServer(pool, instance, config, loop)
        stack.callback(http_server.stop)
        grpc_server = GrpcServer(pool, instance, config, loop)
        stack.callback(grpc_server.stop)
        stack.callback(api.close)
        # Ended first: another instance may lead while the rest ends.
        stack.callback(instance.stop)
        instance.start()
        grpc_server.start()
        http_server.start()
        listened = config.listen
        _LOG.warning(
            "%s listens: http %s, grpc %s, health %s", config.name, listened.http, listened.grpc, listened.health
        )
        yield RunningService(instance, http_server.port, grpc_server.port, http_server.health_port)


def _raise_file_limit() -> None:
    """Raise the limit of open files for idle connections as far as the system allows; the default is a thousand."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def serve(config: Config, context: Context, ended: threading.Event) -> None:
    """Run the service until it is asked to end.

    Args:
        config: of the service.
        context: whom stores take it for, and the clock.
        ended: set to end it.

    Raises:
        InputError: an address, a file or the folder cannot be used.
    """
    with start_service(config, context):
        ended.wait()
