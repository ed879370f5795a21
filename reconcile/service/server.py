"""The whole service: an instance, what asks it, and their end."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from reconcile.jobs.context import Context
from reconcile.service.api.answers import Api
from reconcile.service.api.grpc_server import GrpcServer
from reconcile.service.api.http_server import HttpServer
from reconcile.service.config import Config, read_tokens
from reconcile.service.runs.children import PROGRAM
from reconcile.service.runs.folders import make_private
from reconcile.service.runs.leader import Instance

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunningService:
    """A service that answers.

    Attributes:
        instance: of it.
        http_port, grpc_port: that it listens at.
    """

    instance: Instance
    http_port: int
    grpc_port: int


@contextmanager
def start_service(config: Config, context: Context, program: tuple[str, ...] = PROGRAM) -> Iterator[RunningService]:
    """Give a service that answers; it ends, and resigns, afterwards.

    Args:
        config: of it.
        context: whom stores take it for, and the clock.
        program: what runs the program's commands.

    Raises:
        InputError: an address, a file or the folder cannot be used.
    """
    tokens = read_tokens(config.access.tokens)
    make_private(config.data)
    instance = Instance(config, context, program)
    api = Api(instance, tokens)
    grpc_server = GrpcServer(api, instance, config)
    try:
        http_server = HttpServer(api, instance, config)
    except BaseException:
        grpc_server.stop()
        raise
    instance.start()
    grpc_server.start()
    http_server.start()
    _LOG.warning("%s listens: http %s, grpc %s", config.name, config.listen.http, config.listen.grpc)
    try:
        yield RunningService(instance, http_server.port, grpc_server.port)
    finally:
        # First what leads: another instance may take over while the rest ends.
        instance.stop()
        api.close()
        http_server.stop()
        grpc_server.stop()


def serve(config: Config, context: Context, ended: threading.Event) -> None:
    """Run the service until it is told to end.

    Args:
        config: of it.
        context: whom stores take it for, and the clock.
        ended: set to end it.

    Raises:
        InputError: an address, a file or the folder cannot be used.
    """
    with start_service(config, context):
        ended.wait()
