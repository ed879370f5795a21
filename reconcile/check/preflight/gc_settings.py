"""The settings of a bookie's garbage collection, from its configuration file or its HTTP admin API.

    key                             default      says
    gcWaitTime                      600000       ms between two passes that delete ledgers without a record
    gcOverreplicatedLedgerWaitTime  86400000     ms between two looks for copies that no record names; 0 or less: never
    verifyMetadataOnGC              false        whether a record is read before its ledger is deleted
    isForceGCAllowWhenNoSpace       false        whether a full disk starts a pass at once
    autoRecoveryDaemonEnabled       false        whether an auditor may live in the bookie's process
    bookieId                                     else advertisedAddress and bookiePort (3181)

The API gives what the file says, without defaults: GET /api/v1/config/server_config, and whether a pass was forced and
runs: GET /api/v1/bookie/gc, {"is_in_force_gc": "true"}.

Source: docs/operations/safety.md, run against BookKeeper 4.17.2.
"""

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from recovery.collect.disk.bookie_conf import parse_properties
from recovery.errors import InputError

COLLECTION_STOPS: Final = (
    "on etcd a bookie collects nothing more once it has run for gcOverreplicatedLedgerWaitTime (by default 1 day), "
    "so deleted ledgers stay on its disks until it is started again; with 0 it goes on"
)
"""BookKeeper's check for surplus copies takes locks. Its driver for etcd refuses these, and the pass ends."""
DEFAULT_WAIT_MS: Final = 600_000
_DEFAULT_OVER_MS: Final = 86_400_000
_DEFAULT_PORT: Final = "3181"
_CONFIG: Final = "/api/v1/config/server_config"
_FORCED: Final = "/api/v1/bookie/gc"
_LARGEST_ANSWER: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class BookieSettings:
    """The settings of one bookie's garbage collection.

    Attributes:
        source: file or address that this is from.
        bookie: id, as far as the settings tell it.
        wait_ms: between two passes.
        given: whether the settings name that time; else it is BookKeeper's default.
        over_ms: between two looks for over-replicated ledgers; 0 or less: never.
        verifies: whether a record is read before its ledger is deleted.
        forced_when_full: whether a full disk starts a pass at once.
        has_auditor: whether an auditor may live in the bookie.
        forced_now: whether a pass was forced and runs; None: not asked.
    """

    source: str
    bookie: str | None
    wait_ms: int
    given: bool
    over_ms: int
    verifies: bool
    forced_when_full: bool
    has_auditor: bool
    forced_now: bool | None = None


@dataclass(frozen=True, slots=True)
class UnreadSettings:
    """Settings that could not be read, with the reason."""

    source: str
    problem: str


def settings_of(source: str, values: Mapping[str, str], *, forced_now: bool | None = None) -> BookieSettings:
    """Parse settings by name; a value that is no number counts as missing."""
    wait = _number(values.get("gcWaitTime"))
    over = _number(values.get("gcOverreplicatedLedgerWaitTime"))
    bookie = values.get("bookieId")
    if not bookie and (address := values.get("advertisedAddress")):
        bookie = f"{address}:{values.get('bookiePort') or _DEFAULT_PORT}"
    return BookieSettings(
        source,
        bookie or None,
        DEFAULT_WAIT_MS if wait is None else wait,
        wait is not None,
        _DEFAULT_OVER_MS if over is None else over,
        _flag(values, "verifyMetadataOnGC"),
        _flag(values, "isForceGCAllowWhenNoSpace"),
        _flag(values, "autoRecoveryDaemonEnabled"),
        forced_now,
    )


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _flag(values: Mapping[str, str], key: str) -> bool:
    return values.get(key, "").strip().lower() in ("true", "yes", "on")


def read_file(path: Path) -> BookieSettings:
    """Read a bookie's configuration file.

    Raises:
        InputError: it cannot be read.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror})", "name a bookie's bk_server.conf") from error
    values = {key: given[0] for key, given in parse_properties(raw.decode(errors="replace")).items() if given}
    return settings_of(str(path), values)


def ask(address: str, *, within_s: float = 2.0) -> BookieSettings | UnreadSettings:
    """Ask a bookie's HTTP admin API, which has neither encryption nor credentials.

    Args:
        address: host:port of ``httpServerPort``.
        within_s: the longest wait for each answer.
    """
    try:
        values = _answer(address, _CONFIG, within_s)
        forced = _answer(address, _FORCED, within_s).get("is_in_force_gc")
    except (OSError, http.client.HTTPException, ValueError) as error:
        return UnreadSettings(address, str(error) or type(error).__name__)
    return settings_of(address, values, forced_now=None if forced is None else forced == "true")


def _answer(address: str, path: str, within_s: float) -> dict[str, str]:
    connection = http.client.HTTPConnection(address, timeout=within_s)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise ValueError(f"{path} was answered with {answer.status}")
        return parse_answer(path, answer.read(_LARGEST_ANSWER))
    finally:
        connection.close()


def parse_answer(path: str, raw: bytes) -> dict[str, str]:
    """Return the settings from a bookie's admin API.

    Raises:
        ValueError: it is no JSON object.
    """
    try:
        body = json.loads(raw)
    except RecursionError as error:
        raise ValueError(f"{path} was not answered by a bookie") from error
    if not isinstance(body, dict):
        raise ValueError(f"{path} was not answered by a bookie")  # noqa: TRY004 - what was received, not what was passed
    return {str(key): str(value) for key, value in body.items()}
