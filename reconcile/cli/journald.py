"""Messages as entries of systemd's journal, in its own protocol: https://systemd.io/JOURNAL_NATIVE_PROTOCOL."""

import array
import errno
import fcntl
import logging
import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from recovery import __version__

SOCKET: Final = Path("/run/systemd/journal/socket")
_PRIORITIES: Final = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG_PRIORITY: Final = 7
_TOO_LARGE: Final = (errno.EMSGSIZE, errno.ENOBUFS)
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


class JournalHandler(logging.Handler):
    """Sends each message with its level, its logger and its place in the source as fields.

    An entry is one datagram; one that is too large for that is a sealed file in memory. What the journal does not take
    goes to stderr as text.

    Args:
        address: of the journal's socket.

    Raises:
        OSError: there is no journal.
    """

    def __init__(self, address: Path) -> None:
        super().__init__()
        self._address = str(address)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as trial:
            trial.connect(self._address)
        # Never connected: a journal that was started again is another socket of the same name.
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._emit(record)
        except Exception:  # noqa: BLE001 - as logging's own handlers: a message never ends the program
            self.handleError(record)

    def _emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        entry = encode_entry(
            {
                "MESSAGE": text,
                "PRIORITY": str(
                    next((priority for level, priority in _PRIORITIES if record.levelno >= level), _DEBUG_PRIORITY)
                ),
                "SYSLOG_IDENTIFIER": "bkmeta",
                "BKMETA_VERSION": __version__,
                "LOGGER": record.name,
                "CODE_FILE": record.pathname,
                "CODE_LINE": str(record.lineno),
                "CODE_FUNC": record.funcName or "",
            }
        )
        try:
            self._send(entry)
        except OSError:
            click.echo(f"bkmeta: {text}", err=True)

    def _send(self, entry: bytes) -> None:
        try:
            self._socket.sendto(entry, self._address)
        except OSError as error:
            if error.errno not in _TOO_LARGE:
                raise
            with os.fdopen(os.memfd_create("bkmeta-log", os.MFD_ALLOW_SEALING), "wb") as file:
                file.write(entry)
                file.flush()
                fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
                # Not by `send_fds`, which leaves the address out.
                descriptor = array.array("i", [file.fileno()]).tobytes()
                self._socket.sendmsg([b""], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptor)], 0, self._address)

    def close(self) -> None:
        self._socket.close()
        super().close()


def encode_entry(fields: Mapping[str, str]) -> bytes:
    """Return an entry: ``NAME=value`` lines, and of a value with line breaks its length as 64 bits, and its bytes."""
    parts = []
    for name, value in fields.items():
        data = value.encode("utf-8", "backslashreplace")
        parts += [name.encode(), b"\n" + struct.pack("<Q", len(data)) if b"\n" in data else b"=", data, b"\n"]
    return b"".join(parts)
