"""What the program says on its way: lines for people, JSON objects, or entries of systemd's journal."""

import json
import logging
import os
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import click

from reconcile.words import printable

DEBUG_VARIABLE: Final = "BKMETA_DEBUG"
"""Environment variable: where it is set, every error is followed by its traceback."""

_PACKAGES: Final = ("backends", "reconcile", "recovery")
_TELEMETRY: Final = "opentelemetry"


class LogFormat(StrEnum):
    """How messages leave the program."""

    TEXT = "text"
    JSON = "json"
    JOURNALD = "journald"


class _Printable(logging.Formatter):
    """Writes out what would steer a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


class _Events(logging.Formatter):
    """Writes each message as an event."""

    def format(self, record: logging.LogRecord) -> str:
        event = {
            "event": "log",
            "level": record.levelname.lower(),
            "message": super().format(record),
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "logger": record.name,
        }
        return json.dumps(event)


def start_log(*, as_json: bool) -> None:
    """Show what our packages log, until the command line has said in what format.

    Args:
        as_json: programs read stderr, too: each message is an event on a line of its own.
    """
    _asked_for.clear()
    logging.basicConfig(level=logging.WARNING, handlers=[_make_handler(LogFormat.JSON if as_json else LogFormat.TEXT)])


def set_log_format(chosen: LogFormat) -> None:
    """Show what our packages log in the format that was asked for.

    Raises:
        click.BadParameter: this host has no journal.
    """
    logging.basicConfig(level=logging.WARNING, handlers=[_make_handler(chosen)], force=True)
    _asked_for[:] = [chosen]


def is_log_for_programs() -> bool:
    """Whether a format other than text was asked for: then the error that ends the program is a message, too."""
    return bool(_asked_for) and _asked_for[0] is not LogFormat.TEXT


_asked_for: list[LogFormat] = []


def _is_for_users(record: logging.LogRecord) -> bool:
    """Whether a message is ours, or of a collector that got no spans; other libraries' errors are handled, and said."""
    package = record.name.partition(".")[0]
    return package in _PACKAGES or (package == _TELEMETRY and record.levelno >= logging.ERROR)


def _make_handler(chosen: LogFormat) -> logging.Handler:
    handler: logging.Handler = logging.StreamHandler()
    if chosen is LogFormat.JOURNALD:
        from reconcile.cli.journald import SOCKET, JournalHandler

        try:
            handler = JournalHandler(SOCKET)
        except OSError as error:
            problem = f"this host has no journal of systemd ({SOCKET}: {error.strerror}): use text or json"
            raise click.BadParameter(problem, param_hint="--log-format") from error
    if not os.environ.get(DEBUG_VARIABLE):
        handler.addFilter(_is_for_users)
    formatters = {
        LogFormat.TEXT: _Printable("bkmeta: %(message)s"),
        LogFormat.JSON: _Events(),
        LogFormat.JOURNALD: _Printable(),
    }
    handler.setFormatter(formatters[chosen])
    return handler
