"""Changes one thing at a time in a copy of the tree, and says which changes no test noticed.

    scripts/soak mutants [COUNT] [FILE…] [--seed N]

COUNT changes are drawn from the files, all of what decides by default; each must fail the tests that belong to its
file. One that does not is a survivor: it needs a test, or a reason in `tests/mutants.toml`. Exit 1 if one has neither.
"""

import argparse
import ast
import copy
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random, SystemRandom
from typing import Final

REASONS: Final = Path("tests/mutants.toml")
SOME: Final = {
    "BKMETA_SOAK_HISTORIES": "30", "BKMETA_SOAK_NASTY": "24", "BKMETA_SOAK_IMPACT": "60", "BKMETA_SOAK_DECISIONS": "15",
    "BKMETA_SOAK_DELETES": "120",
}  # fmt: skip
"""A part of what `scripts/test` judges: each change is judged by so many histories, or clusters, again."""
_DECIDE: Final = ("tests/reconcile/rules", "tests/reconcile/plan", "tests/reconcile/compare")
_JUDGE: Final = ("tests/reconcile/check/scrutiny", "tests/reconcile/check/records", "tests/reconcile/explain")
TESTS: Final[Mapping[str, Sequence[str]]] = {
    "recovery/infer": ("tests/recovery/infer",),
    "reconcile/rules": (*_DECIDE, *_JUDGE),
    "reconcile/plan": _DECIDE,
    "reconcile/compare": _DECIDE,
    "reconcile/write": ("tests/reconcile/write",),
    "reconcile/deletes": ("tests/reconcile/deletes",),
    "reconcile/check/impact": ("tests/reconcile/check/impact", "tests/reconcile/jobs/impact"),
}
"""What is changed, and the tests without Java that belong to it, the quickest first."""
_JUDGED: Final = ("_histories.py", "_nasty.py", "_properties.py", "_machine.py")
"""Ends of the names of tests that take long."""
_PROGRAM: Final = "tests/support/command.py"
"""What runs the program: whoever imports it may reach anything."""
_SPOKEN: Final = "mutants.out"
"""What the tests last printed, in the copy."""
DEADLINE_S: Final = 3600.0
_LEAST_S, _SLOWER = 120.0, 5.0
"""Tests of a change may take so much longer than without it before they count as not ending: others use the machine."""
_COMPARED: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_COMPUTED: Final[Mapping[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.FloorDiv: ast.Mult,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change.

    Attributes:
        path: of the file.
        name: what is changed, without line numbers: it stays the same while other lines come and go.
        source: the file with the change.
    """

    path: str
    name: str
    source: str


def changed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what can stand in place of an expression."""
    if isinstance(node, ast.Compare):
        for at, operator in enumerate(node.ops):
            if type(operator) in _COMPARED:
                other = copy.deepcopy(node)
                other.ops[at] = _COMPARED[type(operator)]()
                yield other
    elif isinstance(node, ast.BoolOp):
        other_op = copy.deepcopy(node)
        other_op.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield other_op
        yield from (ast.BoolOp(node.op, [*node.values[:at], *node.values[at + 1 :]]) for at in range(len(node.values)))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert):
        yield node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED:
        yield ast.BinOp(node.left, _COMPUTED[type(node.op)](), node.right)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse)


def mutants(path: str, source: str) -> Iterator[Mutant]:
    """Yield every change of a file, each named once."""
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    raw, seen = source.encode(), dict[str, int]()

    def of(node: ast.AST, where: str) -> Iterator[Mutant]:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            where = f"{where}.{node.name}" if where else node.name
        if isinstance(node, ast.expr):
            begin, end = starts[node.lineno - 1] + node.col_offset, starts[(node.end_lineno or 0) - 1]
            end += node.end_col_offset or 0
            for other in changed(node):
                text = ast.unparse(other)
                name = f"{where}: {ast.unparse(node)} -> {text}"
                seen[name] = seen.get(name, 0) + 1
                name += f" ({seen[name]})" if seen[name] > 1 else ""
                yield Mutant(path, name, (raw[:begin] + f"({text})".encode() + raw[end:]).decode())
        for child, field in ((child, field) for field, value in ast.iter_fields(node) for child in _nodes(value)):
            # Types say nothing when the program runs; what stands in an f-string is read by people.
            if field not in ("annotation", "returns", "decorator_list") and not isinstance(child, ast.JoinedStr):
                yield from of(child, where)

    yield from of(ast.parse(source), "")


def _nodes(value: object) -> Iterator[ast.AST]:
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, ast.AST):
            yield each


def tests_of(path: str, *, own_alone: bool) -> tuple[list[str], ...]:
    """Return the tests of a file that are there, in steps: each is asked if those before it notice nothing.

    The file's own examples, those of its folder, all others: a change that an example notices need not be judged by
    thousands of histories. Those that never import the file are left out. Or its own examples and properties alone.
    """
    found = [tests for prefix, tests in TESTS.items() if path == prefix or path.startswith(f"{prefix}/")]
    if not found:
        raise SystemExit(f"{path}: no tests are known for it; what can be changed: {', '.join(TESTS)}")
    if missing := [test for test in found[0] if not Path(test).exists()]:
        raise SystemExit(f"{path}: its tests are not there any more: {', '.join(missing)}")
    files = [str(file) for folder in found[0] for file in sorted(Path(folder).rglob("test_*.py"))]
    files = [file for file in files if not is_served(file) and reached(file) & {path, _PROGRAM}]
    own = f"test_{Path(path).stem}"
    files.sort(key=lambda file: (not Path(file).name.startswith(own), file.endswith(_JUDGED)))
    first = [file for file in files if file.startswith(f"{found[0][0]}/") and not file.endswith(_JUDGED)]
    named = [file for file in first if Path(file).name.startswith(own)]
    if own_alone:
        judges = [file for file in files if Path(file).name.startswith(own) and file not in named]
        if not named and not judges:
            raise SystemExit(f"{path}: no test that needs no server has its name: {own}….py")
        return named, judges
    return named, [file for file in first if file not in named], [file for file in files if file not in first]


def is_served(path: str) -> bool:
    """Say whether all tests of a file need servers or Spark: these are not run."""
    return re.search(r"^pytestmark = .*\bmark\.(real|spark)\b", Path(path).read_text(), re.MULTILINE) is not None


@cache
def imported(path: str) -> frozenset[str]:
    """Return the files of the repository that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(Path(path).read_text())):
        if isinstance(node, ast.Import):
            names.update(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.update((node.module, *(f"{node.module}.{name.name}" for name in node.names)))
    stems = [name.replace(".", "/") for name in names]
    return frozenset(file for stem in stems for file in (f"{stem}.py", f"{stem}/__init__.py") if Path(file).is_file())


@cache
def reached(path: str) -> frozenset[str]:
    """Return the files that a file imports, and those that they do."""
    seen, left = {path}, [path]
    while left:
        fresh = imported(left.pop()) - seen
        seen |= fresh
        left += fresh
    return frozenset(seen)


def run(folder: str, tests: Sequence[str]) -> None:
    """Run tests in a copy of the tree; ends the process with pytest's exit code."""
    os.chdir(folder)
    sys.path[0:0] = [folder]
    os.environ.update(SOME, PYTHONPATH=folder, PYTHONDONTWRITEBYTECODE="1")
    with Path(_SPOKEN).open("w") as spoken:
        os.dup2(spoken.fileno(), 1)
        os.dup2(spoken.fileno(), 2)
    import pytest  # noqa: PLC0415 - as late as what it loads

    quiet = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "timeout=0", "-m", "not real and not spark"]
    # Hypothesis keeps no database: a change must not be found by what another one left.
    code = int(pytest.main([*quiet, *tests]))
    import recovery  # noqa: PLC0415 - which one it is, is the question

    os._exit(code if (recovery.__file__ or "").startswith(folder) else 99)


def outcome(folder: str, tests: Sequence[str], deadline_s: float) -> int | None:
    """Return the exit code of tests in a copy of the tree; None: they did not end."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["numpy", "pyarrow", "pyarrow.compute", "pyarrow.parquet", "pytest"])
    process = context.Process(target=run, args=(folder, tests))
    process.start()
    process.join(deadline_s)
    if process.is_alive():
        process.kill()
        process.join()
        return None
    return process.exitcode


def copied(folder: Path) -> None:
    """Copy what the repository has, as it stands, with what Python compiled of it: it is asked thousands of times."""
    listed = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], check=True, capture_output=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if Path(name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(name, folder / name)
            for compiled in Path(name).parent.glob(f"__pycache__/{Path(name).stem}.*.pyc"):
                (folder / compiled.parent).mkdir(exist_ok=True)
                shutil.copy2(compiled, folder / compiled)


def main(arguments: Sequence[str] | None = None) -> int:
    """Try changes and print what survived; 1 if any has no reason."""
    parser = argparse.ArgumentParser(prog="scripts/soak mutants", description="Which changes does no test notice?")
    parser.add_argument("count", type=int, help="changes that are tried; 0: all")
    parser.add_argument("files", nargs="*", help=f"of {', '.join(TESTS)}")
    parser.add_argument("--seed", type=int, help="draws the same changes again")
    parser.add_argument("--name", help="tries only changes whose name contains this")
    parser.add_argument(
        "--own", action="store_true", help="asks the tests of a file's own name alone: quick, and strict"
    )
    given = parser.parse_args(arguments)
    wanted = given.files or list(TESTS)
    paths = [
        p for name in wanted for p in (sorted(map(str, Path(name).glob("*.py"))) if Path(name).is_dir() else [name])
    ]
    # The tree may go on changing meanwhile: what is tried is what it is now.
    sources = {path: Path(path).read_text() for path in paths}
    tests = {path: tests_of(path, own_alone=given.own) for path in paths}
    every = [mutant for path in paths for mutant in mutants(path, sources[path])]
    every = [mutant for mutant in every if given.name is None or given.name in mutant.name]
    seed = SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    chosen = Random(seed).sample(every, min(len(every), given.count or len(every)))  # noqa: S311 - a draw
    reasons = tomllib.loads(REASONS.read_text()) if REASONS.exists() else {}
    print(f"{len(chosen)} of {len(every)} changes of {len(paths)} files, --seed {seed}", flush=True)
    survived: list[Mutant] = []
    with tempfile.TemporaryDirectory(prefix="bkmeta-mutants-") as name:
        folder = Path(name).resolve()
        copied(folder)
        took: dict[str, float] = {}

        def bound(path: str, some: Sequence[str]) -> float:
            """Return how long tests may take; the first time they are run without a change, and must pass."""
            begin, key = time.monotonic(), str(sorted(some))
            if key not in took and outcome(str(folder), some, DEADLINE_S) != 0:
                print((folder / _SPOKEN).read_text()[-2000:])
                raise SystemExit(f"the tests of {path} do not pass without a change")
            return _LEAST_S + _SLOWER * took.setdefault(key, time.monotonic() - begin)

        for number, mutant in enumerate(chosen, 1):
            begin = time.monotonic()
            code: int | None = None
            for some in filter(None, tests[mutant.path]):
                bound_s = bound(mutant.path, some)
                (folder / mutant.path).write_text(mutant.source)
                code = outcome(str(folder), some, bound_s)
                (folder / mutant.path).write_text(sources[mutant.path])
                if code != 0:
                    break
            word = "survived" if code == 0 else "did not end" if code is None else "noticed"
            print(f"{number} {word} {time.monotonic() - begin:.0f} s  {mutant.path}  {mutant.name}", flush=True)
            known = mutant.name in reasons.get(mutant.path, {})
            if code == 0 and not known:
                survived.append(mutant)
            elif code != 0 and known:
                print(f"  {REASONS} gives a reason for it that is not needed any more", flush=True)
    for mutant in survived:
        print(f'no test notices, and no reason is given:\n["{mutant.path}"]\n{mutant.name!r} = ""')
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
