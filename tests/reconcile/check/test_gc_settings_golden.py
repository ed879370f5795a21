"""Settings of garbage collection, from what a real bookie's HTTP admin API answered and from files."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from reconcile.check.preflight.gc_settings import BookieSettings, UnreadSettings, ask, read_file, settings_of
from recovery.errors import InputError
from tests.support import paths

ANSWERS = paths.DATA / "http"


class _Recorded(BaseHTTPRequestHandler):
    """Answers as was recorded, byte for byte; anything else as BookKeeper answers what it does not know."""

    answers: dict[str, tuple[int, bytes]]

    def do_GET(self) -> None:
        """Answer one request."""
        status, body = self.answers.get(self.path, (404, b""))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the standard library's name
        """Stay silent."""


def recorded() -> dict[str, tuple[int, bytes]]:
    """Return what a bookie answered to GET, by path."""
    rows = [row for file in sorted(ANSWERS.glob("*.json")) for row in json.loads(file.read_text())["requests"]]
    return {row["path"]: (row["status"], row["body"].encode()) for row in rows if row["method"] == "GET"}


@pytest.fixture
def served(request: pytest.FixtureRequest) -> Iterator[str]:
    """Serve answers; return the address."""
    handler = type("Handler", (_Recorded,), {"answers": getattr(request, "param", None) or recorded()})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_what_a_real_bookie_says(served: str) -> None:
    """Given settings are taken, the others are BookKeeper's defaults; the id is what its address makes it."""
    assert ask(served) == BookieSettings(
        served,
        "127.0.0.1:25001",
        3_600_000,
        given=True,
        over_ms=86_400_000,
        verifies=False,
        forced_when_full=False,
        has_auditor=False,
        forced_now=False,
    )


@pytest.mark.parametrize(
    "served",
    [
        {"/nothing": (200, b"")},
        {"/api/v1/config/server_config": (200, b"Hello")},
        {"/api/v1/config/server_config": (200, b"[]"), "/api/v1/bookie/gc": (200, b"{}")},
        {"/api/v1/config/server_config": (500, b"Internal Server Error")},
        {"/api/v1/config/server_config": (200, b"\xff\xfe")},
    ],
    indirect=True,
)
def test_whoever_else_answers_is_not_believed(served: str) -> None:
    """Another server's answer, or an error, is settings not read, with the reason."""
    found = ask(served)
    assert isinstance(found, UnreadSettings)
    assert found.problem


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:nonsense", "no such host:80"])
def test_nobody_answers(address: str) -> None:
    """A bookie that does not answer is told apart from one that answers nothing."""
    found = ask(address, within_s=1)
    assert isinstance(found, UnreadSettings)
    assert found.source == address


def test_a_configuration_file(tmp_path: Path) -> None:
    """A file is read as Java reads it; numbers that are none count as not given."""
    path = tmp_path / "bk_server.conf"
    path.write_text(
        "# comment\nbookieId = b7\ngcWaitTime: 900000\nverifyMetadataOnGC=TRUE\n"
        "gcOverreplicatedLedgerWaitTime=0\nisForceGCAllowWhenNoSpace=true\nautoRecoveryDaemonEnabled=true\n"
    )
    assert read_file(path) == BookieSettings(
        str(path), "b7", 900_000, given=True, over_ms=0, verifies=True, forced_when_full=True, has_auditor=True
    )
    path.write_text("gcWaitTime=soon\n")
    assert read_file(path) == settings_of(str(path), {})
    with pytest.raises(InputError, match="cannot be read"):
        read_file(tmp_path / "absent")
