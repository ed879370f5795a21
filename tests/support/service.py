"""Services for tests: configurations, instances in processes of their own, and what is asked of them."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.request import ProxyHandler, Request, build_opener

import pyarrow as pa

from reconcile.cli.output import Output
from reconcile.findings.categories import TRAITS, Category
from reconcile.jobs.context import Context
from reconcile.service.api.client import ask_service
from reconcile.service.api.methods import METHODS
from reconcile.service.config import read_config
from reconcile.service.server import start_service
from reconcile.stores import KnownAccess
from recovery.dataset import write_manifest, write_part
from recovery.model import tables
from recovery.model.ids import LedgerId
from tests.support.inventories import fill_row
from tests.support.paths import ROOT
from tests.support.waiting import free_port

_AT: Final = "2026-01-01T00:00:00+00:00"

HEALTH: Final = ("/healthz", "/readyz", "/metrics")
"""Paths at the address of health."""
TOKEN: Final = "0123456789abcdef-token"
PROGRAM: Final = (sys.executable, str(Path(__file__).with_name("fake_program.py")))
REAL_PROGRAM: Final = (sys.executable, str(Path(__file__).with_name("spark_program.py")))
_OPENER: Final = build_opener(ProxyHandler({}))
_BY_PATH: Final = {method.path: method for method in METHODS}


def make_context(now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Context:
    """Return what a service has from its caller; a store that does not answer is tried for some seconds."""
    return Context(KnownAccess(patience_s=5.0), Output(as_json=True, progress="none"), now)


def write_config(
    folder: Path,
    uri: str,
    name: str,
    data: Path,
    jobs: str = "",
    more: str = "",
    *,
    background: bool = False,
    session: str = "3s",
    host: str = "127.0.0.1",
) -> Path:
    """Write the configuration of an instance, with a file of tokens, and return its path.

    Args:
        folder: for its files.
        uri: of the store.
        name: of the instance.
        data: its folder; may be shared.
        jobs: tables of jobs, TOML.
        more: tables, TOML.
        background: it captures the store in the background.
        session: of the election; a short one is lost on a machine that does much else.
        host: that it listens at.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokens = folder / "tokens"
    tokens.write_text(f"ops {TOKEN}\n")
    tokens.chmod(0o600)
    path = folder / f"{name}.toml"
    path.write_text(
        f'metadata = "{uri}"\ndata = "{data}"\ninstance = "{name}"\n[election]\nsession = "{session}"\n'
        f'[listen]\nhttp = "{host}:{free_port()}"\ngrpc = "{host}:{free_port()}"\nhealth = "{host}:{free_port()}"\n'
        f'[access]\ntokens = "{tokens}"\nanonymous = "read"\n'
        f"[cache]\nbackground = {str(background).lower()}\n{jobs}\n{more}\n"
    )
    return path


def ask(at: int | str, method: str, /, *, token: str = TOKEN, deadline_s: float = 60.0, **fields: Any) -> list[Any]:
    """Ask over gRPC, at a port of this host or at an address; return the answers."""
    chosen = _BY_PATH[method]
    address = at if isinstance(at, str) else f"127.0.0.1:{at}"
    return list(ask_service(address, chosen, chosen.request(**fields), token=token, deadline_s=deadline_s))


def fetch(
    port: int,
    path: str,
    body: Mapping[str, object] | None = None,
    *,
    token: str = "",
    headers: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Ask over HTTP; return status and body."""
    headers = {**(headers or {}), **({"Authorization": f"Bearer {token}"} if token else {})}
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"http://127.0.0.1:{port}{path}", data=data, headers=headers)
    try:
        with _OPENER.open(request, timeout=60) as answer:
            return int(answer.status), answer.read().decode()
    except OSError as error:
        if not hasattr(error, "code"):
            raise
        with error:  # type: ignore[attr-defined]  # an HTTPError, which is an answer, too
            return int(error.code), error.read().decode()  # type: ignore[attr-defined] # urllib's error has it


class InstanceProcess:
    """An instance in a process of its own.

    Args:
        config: its configuration.
        fake: folder that tells it what to do: of the fake program; `ahead` has the seconds that its clock is ahead.
        log: gets what it says.
        program: what it runs.
        before: words of a command that it is started by.
    """

    def __init__(
        self, config: Path, fake: Path, log: Path, program: Sequence[str] = PROGRAM, before: Sequence[str] = ()
    ) -> None:
        self.config = config
        self._log = log.open("ab")
        self.process = subprocess.Popen(
            [*before, sys.executable, "-m", "tests.support.service", str(config), *program],
            env={**os.environ, "BKMETA_FAKE": str(fake), "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def kill(self) -> None:
        """End it as ``kill -9`` does."""
        self.process.kill()
        self.process.wait()
        self._log.close()

    def freeze(self) -> None:
        """Have it do nothing, as a debugger does or a host without memory; what it started goes on."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Have it go on."""
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it as a service manager does."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0
        self._log.close()


def write_findings(folder: Path, ledgers: Sequence[int], *, severity: str = "", without: str = "", **more: Any) -> None:
    """Write what a scrutiny writes that found something wrong with each of some ledgers.

    Args:
        folder: of the run.
        ledgers: with something wrong.
        severity: of the findings; empty: that of their category.
        without: a field of its result that is left out, as older versions do.
        more: fields beside, as newer versions have them.
    """
    at = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        fill_row(
            tables.FINDINGS,
            {
                "id": hashlib.sha256(str(ledger).encode()).digest()[:16],
                "category": str(Category.ENTRIES_MISSING),
                "severity": severity or TRAITS[Category.ENTRIES_MISSING].severity,
                "status": "open",
                "scope": 0,
                "ledger": ledger,
                "bucket": LedgerId(0, ledger).bucket,
                "suggested": TRAITS[Category.ENTRIES_MISSING].remedy,
                "bookies": ["bk1:3181"],
                "evidence": [{"side": "bookies", "field": "entries", "value": "7 to 9", "source": "bk1:3181"}],
                "first_seen": at,
                "last_seen": at,
            },
        )
        for ledger in ledgers
    ]
    coverage = {"positions": 30, "judged": 27, "bookies": 3, "answered": 3, "without_lists": 0}
    marks = {"number": 0, "oldest": None, "change": None, "per_day": None, "same_since": _AT, "same_runs": 1}
    result = {
        "listed": 10 + len(rows), "clean": 10, "skipped": {}, "undecided": {}, "with_findings": len(rows),
        "found": {str(Category.ENTRIES_MISSING): len(rows)}, "by_severity": {rows[0]["severity"]: len(rows)},
        "rechecked": 0, "coverage": {**coverage, "silent": [], "not_registered": [], "passed": {}, "marks": marks},
        "failing": len(rows), "suppressed": 0, "new": None, "resolved": None, "carried": {}, "of_cluster": [], **more,
    }  # fmt: skip
    result.pop(without, None)
    folder.mkdir(parents=True)
    part = write_part(
        folder, "findings", "part-00000", [pa.Table.from_pylist(rows, schema=tables.FINDINGS)], secret=True
    )
    write_manifest(
        folder, "scrutiny", {"findings": [part]}, binding={}, coverage={}, secret=True, extra={"result": result}
    )


def read_log(fake: Path) -> list[Any]:
    """Return what the fake program was asked: (who, words…), or OVERLAP."""
    path = fake / "log"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@contextmanager
def held(fake: Path) -> Iterator[None]:
    """Have commands wait meanwhile."""
    (fake / "hold").touch()
    try:
        yield
    finally:
        (fake / "hold").unlink()


def main() -> None:
    """Run an instance until SIGTERM."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: ended.set())
    with start_service(read_config(Path(sys.argv[1])), make_context(_read_clock), tuple(sys.argv[2:])):
        ended.wait()


def _read_clock() -> datetime:
    ahead = Path(os.environ["BKMETA_FAKE"]) / "ahead"
    return datetime.now(UTC) + timedelta(seconds=int(ahead.read_text()) if ahead.exists() else 0)


if __name__ == "__main__":
    main()
