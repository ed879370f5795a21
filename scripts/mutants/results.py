"""What became of changes, remembered from run to run."""

import ast
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from scripts.mutants.changes import Mutant, hash_text


class Outcome(StrEnum):
    """What became of a change."""

    NOTICED = "noticed"
    ENDLESS = "did not end"
    SURVIVED = "survived"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a change, as it is remembered.

    Attributes:
        path: of the file.
        name: of the change.
        text: hash of the function that was changed.
        outcome: what became of it.
        by: the test that noticed; empty: none, or the file could not even be imported.
        asked: hash of that test's function; of all tests that execute the change where none noticed.
        tests: number of tests that execute the change.
        took_s: seconds.
    """

    path: str
    name: str
    text: str
    outcome: Outcome
    by: str
    asked: str
    tests: int
    took_s: float


def hash_test(name: str) -> str:
    """Return the hash of a test's function by pytest's name of it; of its file if it has no such function."""
    path, _, test = name.partition("::")
    return _hash_functions(path).get(test.partition("[")[0].rpartition("::")[2], _hash_functions(path).get("", ""))


@cache
def _hash_functions(path: str) -> Mapping[str, str]:
    if not Path(path).is_file():
        return {}
    source = Path(path).read_text()
    lines = source.splitlines(keepends=True)
    found = {"": hash_text(source.encode())}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            found[node.name] = hash_text("".join(lines[first - 1 : node.end_lineno]).encode())
    return found


def hash_asked(names: Iterable[str]) -> str:
    """Return the hash of many tests' names and functions."""
    return hash_text("\n".join(f"{name} {hash_test(name)}" for name in sorted(names)).encode())


def load_results(path: Path) -> dict[tuple[str, str], Result]:
    """Return what is remembered, by file and name."""
    if not path.exists():
        return {}
    rows = map(json.loads, path.read_text().splitlines())
    return {(row["path"], row["name"]): Result(**row | {"outcome": Outcome(row["outcome"])}) for row in rows}


def remember(path: Path, result: Result) -> None:
    """Add a result to what is remembered."""
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(asdict(result)) + "\n")


def is_current(result: Result, mutant: Mutant) -> bool:
    """Say whether a result is of the function as it is now, and of the test that noticed as it is now."""
    return result.text == mutant.text and (result.outcome is Outcome.SURVIVED or result.asked == hash_test(result.by))
