"""What became of changes, remembered from run to run: one by one on this machine, by function in the repository."""

import ast
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class Tried:
    """A function of which each change was tried, as the repository remembers it.

    Attributes:
        path: of the file.
        function: as in `Mutant`; empty: what the file has outside of functions.
        text: as in `Mutant`.
        changes: how many there are.
        survived: names of those that no test noticed.
    """

    path: str
    function: str
    text: str
    changes: int
    survived: Sequence[str]

    @property
    def noticed(self) -> int:
        """Return how many changes a test noticed."""
        return self.changes - len(self.survived)


def load_tried(path: Path) -> list[Tried]:
    """Return what the repository remembers."""
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [Tried(path, function, text, changes, names) for path, function, text, changes, _, names in rows]


def find_known(
    every: Sequence[Mutant], results: Mapping[tuple[str, str], Result], tried: Sequence[Tried]
) -> dict[tuple[str, str], Outcome]:
    """Return what became of changes, by file and name: a function that was edited since counts as not tried.

    What this machine remembers of a function as it is now comes before what the repository remembers.
    """
    lines = {(line.path, line.function, line.text, line.changes): line for line in tried}
    found = {}
    for (path, function, text), mutants in _by_function(every).items():
        line = lines.get((path, function, text, sum(mutant.is_predicate for mutant in mutants)))
        for mutant in mutants:
            result = results.get((path, mutant.name))
            if result and result.text == text:
                if is_current(result, mutant):
                    found[path, mutant.name] = result.outcome
            elif line and mutant.is_predicate:
                found[path, mutant.name] = Outcome.SURVIVED if mutant.name in line.survived else Outcome.NOTICED
    return found


def save_tried(path: Path, every: Sequence[Mutant], known: Mapping[tuple[str, str], Outcome]) -> None:
    """Write down the functions of which all changes were tried; lines of other files stay while the files do."""
    paths = {mutant.path for mutant in every}
    lines = [line for line in load_tried(path) if line.path not in paths and Path(line.path).exists()]
    for (file, function, text), mutants in _by_function(every).items():
        outcomes = [known.get((file, mutant.name)) for mutant in mutants]
        if None not in outcomes:
            pairs = zip(mutants, outcomes, strict=True)
            survived = [mutant.name for mutant, outcome in pairs if outcome is Outcome.SURVIVED]
            lines.append(Tried(file, function, text, len(mutants), survived))
    lines.sort(key=lambda line: line.path)
    rows = [[line.path, line.function, line.text, line.changes, line.noticed, line.survived] for line in lines]
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _by_function(every: Iterable[Mutant]) -> dict[tuple[str, str, str], list[Mutant]]:
    found = defaultdict(list)
    for mutant in every:
        found[mutant.path, mutant.function, mutant.text].append(mutant)
    return found
