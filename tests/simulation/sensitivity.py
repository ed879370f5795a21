"""What changes where one of the reconstruction's constants is half as large, or twice as large.

    python -m tests.simulation.sensitivity [CONSTANT…] [--classes CLASS…] [--count N] [--seed S]

Each constant is changed by itself, in this process only, and the same histories are judged again: of how many ledgers
another row comes out, and what that does to the judge's counts. Those that bound work are named, not changed: nothing
that is decided depends on them but where a ledger is too much.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

import pyarrow as pa

from recovery.infer import prior, search, segment_cases, segment_costs, solve, wiped_bookies
from tests.simulation import judge
from tests.simulation.tally import Tally, line

CLASSES: Final = (
    "short",
    "full",
    "changes",
    "storm",
    "reopened",
    "rereplicated",
    "wiped",
    "holes",
    "mixed",
    "mixed@stale",
)
"""What is judged: where something is left to weigh."""
DECIDING: Final[Mapping[ModuleType, Sequence[str]]] = {
    segment_costs: (
        "SEGMENT", "ABSENCE", "ABSENCES", "EXTRA", "EXTRAS", "COPIED_EXTRA", "COPIED_EXTRAS", "WIPED", "_FEW",
    ),
    segment_cases: ("_MAIN",),
    solve: ("HASTE", "LOST_MEMBER"),
    search: (
        "_SHARE", "_ODD", "_OVER", "_PERIODIC", "_STRIPES", "_SIMILAR", "_STRANGE", "_STRANGE_IF_UNSEEN",
        "_STRANGE_STRIPES", "_LISTED", "_WEIGHT", "TAIL",
    ),
    prior: ("FEWEST", "SHARE", "LARGE", "CHANCE", "SLACK", "_PERIODIC"),
    wiped_bookies: ("IN_A_ROW", "THINNEST"),
}  # fmt: skip
HEAD: Final = (
    "constant",
    "is",
    "tried",
    "other rows",
    "held",
    "shape right",
    "segments right",
    "end right",
    "violations",
)
Row = Mapping[str, Any]


@contextmanager
def set_to(owner: ModuleType, name: str, value: float) -> Iterator[None]:
    """Let a constant have another value wherever it was imported to."""
    stood = getattr(owner, name)
    places = [
        module
        for path, module in sys.modules.items()
        if path.startswith("recovery.infer")
        and (module is owner or (name[0] != "_" and getattr(module, name, None) is stood))
    ]
    for place in places:
        setattr(place, name, value)
    try:
        yield
    finally:
        for place in places:
            setattr(place, name, stood)


def judge_classes(classes: Sequence[str], count: int, seed: int) -> tuple[Tally, list[Row]]:
    """Judge classes; return what they come to, and all rows."""
    rows: list[Row] = []

    def recorded(*args: Any, **how: Any) -> pa.Table:
        table = judge.reconstruct_alone(*args, **how)
        rows.extend(table.drop_columns(["alternatives"]).to_pylist())
        return table

    total = Tally()
    for name in classes:
        total.add(judge.run(name, count, seed, reconstruct=recorded))
    return total, rows


def _share_right(tally: Tally, name: str) -> str:
    claims = [counted for (field, _), counted in tally.grades.items() if field == name]
    return f"{100 * sum(right for _, right in claims) / max(1, sum(count for count, _ in claims)):.2f} %"


def row_of(name: str, stood: float, tried: float | None, other: int, tally: Tally) -> list[str]:
    """Return the cells of a try, under `HEAD`."""
    held_share = 100 * sum(tally.reasons.values()) / max(1, tally.ledgers)
    rights = [_share_right(tally, field) for field in ("write_quorum", "segments", "last_entry")]
    return [
        name,
        f"{stood:g}" if name else "",
        "" if tried is None else f"{tried:g}",
        str(other),
        f"{held_share:.2f} %",
        *rights,
        str(len(tally.violations)),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    known = {
        f"{owner.__name__.rpartition('.')[2]}.{name}": (owner, name)
        for owner, names in DECIDING.items()
        for name in names
    }
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.sensitivity", description="Try other constants.")
    parser.add_argument("constants", nargs="*", metavar="CONSTANT", help=f"of {', '.join(known)}")
    parser.add_argument("--classes", nargs="+", default=CLASSES)
    parser.add_argument("--count", type=int, default=200, help="histories of each class")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    if unknown := sorted(set(given.constants) - known.keys()):
        parser.error(f"no such constant: {', '.join(unknown)}")
    tally, rows = judge_classes(given.classes, given.count, given.seed)
    sys.stdout.write(line(HEAD) + line(["---"] * len(HEAD)) + line(row_of("", 0, None, 0, tally)))
    for text in given.constants or known:
        owner, name = known[text]
        stood = getattr(owner, name)
        for factor in (0.5, 2):
            tried = stood * factor if isinstance(stood, float) else max(1, round(stood * factor))
            with set_to(owner, name, tried):
                tally, tried_rows = judge_classes(given.classes, given.count, given.seed)
            other = sum(row != two for row, two in zip(rows, tried_rows, strict=True))
            sys.stdout.write(line(row_of(text, stood, tried, other, tally)))
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
