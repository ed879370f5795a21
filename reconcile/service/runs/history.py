"""The results of a job over time: one line of JSON a run, beside the folders of the runs.

<data>/<job>/history.jsonl    at (ISO 8601), exit_code, verdict, share, failing, covered_pct
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

FILE: Final = "history.jsonl"
_MOST: Final = 1000
"""Lines that are kept; twice as many are cut."""


@dataclass(frozen=True, slots=True)
class RunPoint:
    """The result of one run.

    Attributes:
        at: its end, ISO 8601.
        exit_code: of the command.
        verdict: one line.
        share: its share of the ledgers.
        failing: findings that made it fail; None: it counts none.
        covered_pct: percent of the copies that were judged; None: it judges none.
    """

    at: str
    exit_code: int
    verdict: str
    share: int = 1
    failing: int | None = None
    covered_pct: float | None = None


def make_point(at: str, share: int, exit_code: int, verdict: str, result: Mapping[str, Any]) -> RunPoint:
    """Return the point of a run, of the object that its command printed."""
    counts, coverage = result.get("counts") or {}, result.get("coverage") or {}
    failing, covered = counts.get("failing"), coverage.get("judged_pct")
    return RunPoint(
        at,
        exit_code,
        verdict,
        share,
        failing if isinstance(failing, int) else None,
        float(covered) if isinstance(covered, int | float) else None,
    )


def add_point(folder: Path, point: RunPoint) -> None:
    """Add a run to the history of its job.

    Raises:
        OSError: the disk is full, or failed.
    """
    path = folder / FILE
    points = read_points(folder, 2 * _MOST + 1)
    if len(points) > 2 * _MOST:
        fresh = path.with_name(f".{FILE}.new")
        fresh.write_text("".join(_format(point) for point in points[-_MOST:]), encoding="utf-8")
        fresh.replace(path)
    with path.open("ab+") as file:
        # A line that a full disk cut off must not take this one with it.
        file.seek(max(0, file.tell() - 1))
        apart = b"" if file.read() in (b"", b"\n") else b"\n"
        file.write(apart + _format(point).encode())


def read_points(folder: Path, most: int) -> list[RunPoint]:
    """Return the last runs of a job, the oldest first; a line that was cut off is left out."""
    path = folder / FILE
    points = []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    for line in lines[-most:]:
        with suppress(ValueError, TypeError):
            points.append(msgspec.json.decode(line, type=RunPoint))
    return points


def _format(point: RunPoint) -> str:
    return json.dumps(asdict(point)) + "\n"
