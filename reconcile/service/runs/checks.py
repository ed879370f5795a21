"""The whole result of each maintenance's last check: the record in the store has one line of it.

    <data>/maintenances/<id>.json    checked_ms, result: the object that `check-impact --json` prints

An instance that does not see the folder has none, and makes one as soon as it leads.
"""

import json
import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from reconcile.service.runs.folders import make_private
from reconcile.service.runs.schedule import Gate

_FOLDER: Final = "maintenances"


def keep_check(data: Path, gate_id: str, checked_ms: int, result: Mapping[str, Any]) -> None:
    """Keep the result of a check, in place of the previous one.

    Raises:
        OSError: the disk is full, or failed.
        InputError: the folder cannot be made.
    """
    path = make_private(data / _FOLDER) / f"{gate_id}.json"
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps({"checked_ms": checked_ms, "result": dict(result)}), encoding="utf-8")
    beside.replace(path)


def read_check(data: Path, gate: Gate) -> Mapping[str, Any] | None:
    """Return the result of the check in the record of a maintenance; None: it is not in this folder."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads((data / _FOLDER / f"{gate.id}.json").read_text(encoding="utf-8"))
        if kept["checked_ms"] == gate.checked_ms and isinstance(kept["result"], dict):
            return kept["result"]
    return None


def remove_others(data: Path, gates: Collection[str]) -> None:
    """Remove the results of maintenances that are no longer open."""
    folder = data / _FOLDER
    for path in folder.glob("*.json") if folder.is_dir() else ():
        if path.stem not in gates:
            path.unlink(missing_ok=True)
