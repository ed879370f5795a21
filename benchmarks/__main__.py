"""The command: `python -m benchmarks [ROW…] [--ledgers N] [--rounds 5] [--growth | --earlier DIR] [--data DIR]`."""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.data.cache import default_home
from benchmarks.measure import RunFailedError
from benchmarks.pairs import Result, beside, growth, held_to, in_turns, served, table
from benchmarks.rows.row import Place, Row
from benchmarks.rows.table import ROWS

_GROWTH: Final = (10_000, 100_000, 1_000_000, 5_000_000, 10_000_000)
_LEDGERS: Final = 100_000
_ROUNDS: Final = 5
_WARMED: Final = 1_000_000
"""Ledgers up to which a run that does not count goes before those of --growth."""


def _parsed() -> argparse.Namespace:
    epilog = "rows:\n" + "\n".join(f"  {row.name:12} {row.compares}; goal {row.goals}" for row in ROWS)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Times stages beside the floor that nothing can go below, in turns; lower ratios are better.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [row.name for row in ROWS]
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(names)}; all if none is named")
    parser.add_argument(
        "--ledgers", type=int, metavar="N", help=f"default {_LEDGERS:,}; with --growth, the largest size that is run"
    )
    parser.add_argument(
        "--rounds", type=int, metavar="N", help=f"that count; default, and fewest, {_ROUNDS}, of `restore` 1"
    )
    sizes = ", ".join(f"{size:,}" for size in _GROWTH) + " where that is feasible"
    parser.add_argument(
        "--growth", action="store_true", help=f"how time and memory of the stages alone grow: {sizes}; any --rounds"
    )
    able = ", ".join(row.name for row in ROWS if row.has_earlier)
    parser.add_argument(
        "--earlier",
        type=Path,
        metavar="DIR",
        help=f"another checkout, whose stages run in place of floors; of {able}",
    )
    parser.add_argument("--data", type=Path, default=default_home(), metavar="DIR", help="keeps the data that is made")
    found = parser.parse_args()
    unknown = sorted({*found.rows} - {*names})
    if unknown:
        parser.error(f"no row is called {', '.join(unknown)}; there are {', '.join(names)}")
    if found.earlier is not None:
        unable = [name for name in found.rows or names if name not in able.split(", ")]
        if found.growth or unable or not (found.earlier / "benchmarks").is_dir():
            parser.error(f"--earlier takes a checkout of this project, the rows {able}, and no --growth")
    fewest = 1 if found.growth else max(row.fewest for row in ROWS if not found.rows or row.name in found.rows)
    if (found.ledgers is not None and found.ledgers < 1) or (found.rounds is not None and found.rounds < fewest):
        parser.error(f"--ledgers must be at least 1, --rounds at least {fewest}")
    return found


def _measured(row: Row, home: Path, ledgers: int, rounds: int, *, alone: bool, earlier: Path | None) -> Result:
    with (
        tempfile.TemporaryDirectory(prefix="bkmeta-bench-", dir=home) as scratch,
        row.open(Place(home, Path(scratch), ledgers, alone, earlier)) as contestants,
    ):
        running = dict([next(iter(contestants.items()))]) if alone else contestants
        # A run of minutes hardly knows that its caches and compilers were cold.
        is_long = alone and ledgers > _WARMED
        result = in_turns(running, ledgers, rounds, warm=row.fewest > 1 and not is_long)
    goal = "1" if earlier else row.goals
    print(f"\n{row.name}, {ledgers:,} ledgers, {rounds} rounds in turns; goal {goal}")
    print(f"  {f'against the same of {earlier}' if earlier else row.compares}")
    for line in table(result) if not alone else growth([result]):
        print(f"  {line}")
    for line in beside(result, row.beside) if not (alone or earlier) else ():
        print(f"  {line}")
    for line in (*served(result), *(held_to(result, row.limits) if row.limits and not alone else ())):
        print(f"  {line}")
    for note in sorted({str(cost.said["note"]) for cost in result.rounds[next(iter(running))] if "note" in cost.said}):
        print(f"  {note}")
    sys.stdout.flush()
    return result


def main() -> None:
    """Run the rows that were asked for, and print what they came to; one that cannot run does not end the others."""
    given = _parsed()
    given.data.mkdir(parents=True, exist_ok=True)
    # As it is where a program is installed: compiled once, not at each start, whatever this machine is set to.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(given.data / "bytecode")
    print(f"{len(os.sched_getaffinity(0))} cores")
    failed = []
    for row in ROWS:
        if given.rows and row.name not in given.rows:
            continue
        most = min(row.largest, given.ledgers or row.largest)
        sizes = (
            [size for size in _GROWTH if size <= most]
            if given.growth
            else [given.ledgers or min(row.largest, _LEDGERS)]
        )
        try:
            results = [
                _measured(row, given.data, size, given.rounds or row.fewest, alone=given.growth, earlier=given.earlier)
                for size in sizes
            ]
        except RunFailedError as error:
            print(f"\n{row.name}: {error}", file=sys.stderr)
            failed.append(row.name)
            continue
        if given.growth:
            print(f"\n{row.name}, growth")
            for line in growth(results):
                print(f"  {line}")
    if failed:
        sys.exit(f"benchmarks: no figures for {', '.join(failed)}")


if __name__ == "__main__":
    main()
