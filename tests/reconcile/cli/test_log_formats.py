"""What the program says on its way, as text, as JSON, and in systemd's journal.

A datagram socket takes the journal's place: what is read there are the bytes of its protocol
(https://systemd.io/JOURNAL_NATIVE_PROTOCOL). systemd itself runs in none of these tests.
"""

import json
import logging
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconcile.cli.journald import JournalHandler, encode_entry
from tests.support.command import PATIENCE_S, environment, process

pytestmark = pytest.mark.long


class Journal:
    """A socket at a path, and entries that came."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(PATIENCE_S)

    def read(self) -> dict[str, str]:
        """Return the next entry's fields."""
        entry, files, _, _ = socket.recv_fds(self._socket, 1 << 20, 1)
        if files:
            assert entry == b""
            with os.fdopen(files[0], "rb") as file:
                file.seek(0)
                entry = file.read()
        return parse_entry(entry)

    def close(self) -> None:
        """Go away, as a journal that is stopped."""
        self._socket.close()
        self.path.unlink()


def parse_entry(entry: bytes) -> dict[str, str]:
    """Return the fields of an entry, as the protocol's page says that it is read."""
    fields: dict[str, str] = {}
    while entry:
        line, _, rest = entry.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            (length,) = struct.unpack("<Q", rest[:8])
            value, end, rest = rest[8 : 8 + length], rest[8 + length : 9 + length], rest[9 + length :]
            assert end == b"\n"
        assert name.decode() not in fields
        fields[name.decode()] = value.decode()
        entry = rest
    return fields


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """The journal's socket."""
    made = Journal(tmp_path / "socket")
    yield made
    made._socket.close()


@pytest.fixture
def log(journal: Journal) -> Iterator[logging.Logger]:
    """A logger that speaks to it."""
    handler, logger = JournalHandler(journal.path), logging.getLogger("reconcile.of_this_test")
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    yield logger
    logger.removeHandler(handler)
    handler.close()


@pytest.mark.parametrize(
    ("level", "priority"),
    [(logging.CRITICAL, "2"), (logging.ERROR, "3"), (logging.WARNING, "4"), (logging.INFO, "6"), (logging.DEBUG, "7")],
)
def test_an_entry_has_the_journals_fields(level: int, priority: str, journal: Journal, log: logging.Logger) -> None:
    """Message, priority and place, by the names that journalctl knows."""
    log.log(level, "%d of %s", 3, "four")
    entry = journal.read()
    assert entry["MESSAGE"] == "3 of four"
    assert entry["PRIORITY"] == priority
    assert entry["SYSLOG_IDENTIFIER"] == "bkmeta"
    assert entry["LOGGER"] == "reconcile.of_this_test"
    assert (entry["CODE_FILE"], entry["CODE_FUNC"]) == (__file__, "test_an_entry_has_the_journals_fields")
    assert int(entry["CODE_LINE"]) > 0


@pytest.mark.parametrize("message", ["two\nlines=x\n\n", "x" * 4_000_000], ids=["lines", "long"])
def test_any_message_is_one_entry(message: str, journal: Journal, log: logging.Logger) -> None:
    """One with line breaks, and one that no datagram holds."""
    log.warning("%s", message)
    entry = journal.read()
    assert entry["MESSAGE"] == message
    assert entry["PRIORITY"] == "4"


def test_text_that_is_no_unicode_is_written_out() -> None:
    """A file's name may be any bytes."""
    assert parse_entry(encode_entry({"MESSAGE": "é\udc80", "A": "x\n\udc80"})) == {
        "MESSAGE": "é\\udc80",
        "A": "x\n\\udc80",
    }


def test_a_message_that_cannot_be_formatted_ends_nothing(
    journal: Journal, log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with lines on stderr: the next message comes, and Python says on stderr which one did not."""
    # To this handler alone: pytest's own, which the logger has too, raises.
    [handler] = [handler for handler in log.handlers if isinstance(handler, JournalHandler)]
    handler.handle(logging.makeLogRecord({"msg": "%d bookies", "args": ("three",)}))
    log.warning("next")
    assert journal.read()["MESSAGE"] == "next"
    assert "Message: '%d bookies'" in capsys.readouterr().err


def test_a_journal_that_goes_and_comes_again_loses_no_message_in_silence(
    journal: Journal, log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    """While it is gone messages go to stderr; afterwards to the new socket."""
    journal.close()
    log.error("while it was gone")
    assert capsys.readouterr().err == "bkmeta: while it was gone\n"
    restarted = Journal(journal.path)
    log.error("now")
    assert restarted.read()["MESSAGE"] == "now"
    restarted.close()


RUN = """
import sys
from pathlib import Path
from reconcile.cli import journald, main
journald.SOCKET = Path(sys.argv[1])
main.main(sys.argv[2:])
"""


def test_the_program_speaks_to_the_journal(journal: Journal) -> None:
    """The error that ends it is an entry, and stderr is empty; the result object stays on stdout."""
    words = ["--log-format", "journald", "tombstones", "list", "--metadata", "nonsense", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", RUN, journal.path, *words],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, "")
    entry = journal.read()
    assert (entry["PRIORITY"], entry["LOGGER"]) == ("3", "reconcile.cli.main")
    assert entry["MESSAGE"] == json.loads(done.stdout)["verdict"]


def test_a_host_without_a_journal_is_said_in_one_line(tmp_path: Path) -> None:
    """With what to do."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, tmp_path / "none", "--log-format", "journald", "doctor"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    [line] = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert f"this host has no journal of systemd ({tmp_path / 'none'}: No such file or directory)" in line
    assert line.endswith("use text or json")


def test_json_has_every_message_and_the_error_as_an_object_of_its_own_line() -> None:
    """Nothing else is on stderr; without the option an error is a line for people."""
    words = ["tombstones", "list", "--metadata", "nonsense"]
    done = process("--log-format", "json", *words)
    [line] = map(json.loads, done.err.splitlines())
    assert (done.code, done.out) == (2, "")
    assert (line["event"], line["level"], line["logger"]) == ("log", "error", "reconcile.cli.main")
    assert process("--log-format", "text", *words).err == process(*words).err
    assert line["message"] in process(*words).err
