"""Changes one thing at a time in a copy of the tree, and says which changes no test noticed.

    scripts/soak mutants [COUNT] [FILE or FOLDER…]      scripts/soak mutants --list [FILE or FOLDER…]

Each change must fail a test that belongs to its file. One that does not is a survivor: it needs a test, or a reason in
`tests/mutants.toml`. What was tried is remembered in `tests/mutants.jsonl`, a line for each function: its file, its
name, the hash of its code, how many changes, how many of them a test noticed, the names of the others. The next run, on
any machine, tries COUNT (0: all) of those that are left, and again what no test noticed and has no reason. A change is
tried again when its function is not what it was. On this machine `.cache/mutants.jsonl` remembers each change: one is
also tried again when the test that noticed it is not what it was. Exit 1 if a survivor has no reason.
"""

import argparse
import json
import multiprocessing
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from scripts.mutants.changes import Mutant, mutants
from scripts.mutants.results import Outcome, find_known, load_results, load_tried, save_tried
from scripts.mutants.session import SPOKEN, Work, serve

REASONS: Final = Path("tests/mutants.toml")
TRIED: Final = Path("tests/mutants.jsonl")
RESULTS: Final = Path(".cache/mutants.jsonl")
_RULES: Final = ("tests/reconcile/rules", "tests/reconcile/plan", "tests/reconcile/compare")
_JUDGE: Final = ("tests/reconcile/check/scrutiny", "tests/reconcile/check/records", "tests/reconcile/explain")
_PLANS: Final = (
    *("tests/reconcile/compare", "tests/reconcile/plan", "tests/reconcile/explain", "tests/reconcile/jobs/make_plan"),
    *("tests/reconcile/pulsar", "tests/reconcile/jobs/records", "tests/reconcile/test_references_spark.py"),
    *("tests/reconcile/cli/test_cli_plan.py", "tests/reconcile/cli/test_plan_ledgers.py"),
)
TESTS: Final[Mapping[str, Sequence[str]]] = {
    "recovery/infer": ("tests/recovery/infer",),
    "reconcile/rules": (*_RULES, *_JUDGE),
    "reconcile/plan": _PLANS,
    "reconcile/compare": _PLANS,
    "reconcile/write": ("tests/reconcile/write",),
    "reconcile/deletes": ("tests/reconcile/deletes",),
    "recovery/archive": ("tests/recovery/archive", "tests/reconcile/jobs/archive"),
    "reconcile/jobs/archive": ("tests/reconcile/jobs/archive",),
    "reconcile/check/impact": ("tests/reconcile/check/impact", "tests/reconcile/jobs/impact"),
    "reconcile/check/scrutiny": ("tests/reconcile/check/scrutiny", "tests/reconcile/jobs/scrutiny"),
}
"""What is changed, and the tests that belong to it: those of them that need no server are asked."""


def find_package(path: str) -> str:
    """Return what of `TESTS` a file belongs to."""
    found = [prefix for prefix in TESTS if path.startswith(f"{prefix}/")]
    if not found:
        raise SystemExit(f"{path}: no tests are known for it; what can be changed: {', '.join(TESTS)}")
    if missing := [test for test in TESTS[found[0]] if not Path(test).exists()]:
        raise SystemExit(f"{path}: its tests are not there any more: {', '.join(missing)}")
    return found[0]


def list_files(name: str) -> list[str]:
    """Return a file, or those of a folder that people write."""
    files = sorted(Path(name).rglob("*.py")) if Path(name).is_dir() else [Path(name)]
    return [str(file) for file in files if "_pb" not in file.parts]


def copied(folder: Path) -> None:
    """Copy what the repository has, as it stands."""
    listed = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], check=True, capture_output=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if Path(name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(name, folder / name)


def run_apart(work: Work) -> int:
    """Try changes in a process of their own; return how many were tried."""
    context = multiprocessing.get_context("spawn")
    tried = context.Value("i", 0)
    process = context.Process(target=serve, args=(work, tried))
    process.start()
    process.join()
    if process.exitcode:
        print(Path(work.folder, SPOKEN).read_text()[-3000:])
        raise SystemExit(f"the tests of {', '.join(work.tests)} could not be asked")
    return int(tried.value)


def load_reasons() -> Mapping[str, Mapping[str, str]]:
    """Return why changes may survive, by file and name."""
    return tomllib.loads(REASONS.read_text()) if REASONS.exists() else {}


def summarize(every: Sequence[Mutant], known: Mapping[tuple[str, str], Outcome]) -> int:
    """Print what became of the changes of each file and package; name and count the survivors without a reason."""
    reasons, rows = load_reasons(), dict[str, list[int]]()
    bare: list[Mutant] = []
    print(f"{'changes':>8}{'tried':>8}{'noticed':>8}{'reason':>8}{'none':>8}{'left':>8}")
    for path, some in groupby(every, lambda mutant: mutant.path):
        mine, given = list(some), reasons.get(path, {})
        tried = [mutant for mutant in mine if (path, mutant.name) in known]
        lived = [mutant for mutant in tried if known[path, mutant.name] is Outcome.SURVIVED]
        without = [mutant for mutant in lived if mutant.name not in given]
        row = [len(mine), len(tried), len(tried) - len(lived), len(lived) - len(without), len(without)]
        row.append(len(mine) - len(tried))
        print("".join(f"{number:8}" for number in row), f" {path}")
        for name in (find_package(path), "all"):
            rows[name] = [one + other for one, other in zip(rows.get(name, [0] * 6), row, strict=True)]
        bare += without
        for mutant in tried:
            if mutant not in lived and mutant.name in given:
                print(f"  {REASONS} gives a reason that is not needed any more: {mutant.name}")
    for name in sorted(rows, key=lambda name: name == "all"):
        print("".join(f"{number:8}" for number in rows[name]), f" {name}")
    if bare:
        print("\nno test notices, and no reason is given:")
    for path, some in groupby(bare, lambda mutant: mutant.path):
        print(f'\n["{path}"]')
        for mutant in some:
            print(f'{json.dumps(mutant.name, ensure_ascii=False)} = ""  # line {mutant.lines[0]}')
    return len(bare)


def list_left(every: Sequence[Mutant]) -> list[Mutant]:
    """Return the changes that were not tried, and those that survived without a reason."""
    known, reasons = find_known(every, load_results(RESULTS), load_tried(TRIED)), load_reasons()
    return [
        mutant
        for mutant in every
        if (outcome := known.get((mutant.path, mutant.name))) is None
        or (outcome is Outcome.SURVIVED and mutant.name not in reasons.get(mutant.path, {}))
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Try changes and print what survived; 1 if any has no reason."""
    parser = argparse.ArgumentParser(prog="scripts/soak mutants", description="Which changes does no test notice?")
    parser.add_argument("count", type=int, help="changes that are tried; 0: all that are left")
    parser.add_argument("files", nargs="*", help=f"files and folders of {', '.join(TESTS)}")
    parser.add_argument("--list", action="store_true", help="tries nothing: what became of each file's changes")
    parser.add_argument("--name", help="tries only changes whose name contains this, also those that were tried")
    parser.add_argument("--sums", action="store_true", help="also changes sums and numbers, which decide nothing alone")
    parser.add_argument("--quick", type=float, default=1e9, help="asks tests up to so many CPU seconds a change")
    parser.add_argument(
        "--tests", action="append", help="asks only these; what they do not notice is asked of all later"
    )
    given = parser.parse_intermixed_args(arguments)
    folders = given.files or [name for name in TESTS if Path(name).exists()]
    paths = list(dict.fromkeys(path for name in folders for path in list_files(name)))
    packages = {path: find_package(path) for path in paths}
    every = [mutant for path in paths for mutant in mutants(path, Path(path).read_text())]
    predicates = [mutant for mutant in every if mutant.is_predicate]
    wanted = [m for m in (every if given.sums else predicates) if given.name is None or given.name in m.name]
    left = given.count or len(wanted)
    for package in () if given.list else dict.fromkeys(packages.values()):
        mine = [mutant for mutant in wanted if packages[mutant.path] == package]
        if given.name is None:
            mine = list_left(mine)
        with tempfile.TemporaryDirectory(prefix="bkmeta-mutants-") as name:
            copied(Path(name).resolve())
            folder, again = str(Path(name).resolve()), given.name is not None
            watched, results = list_files(package), RESULTS.absolute()
            tests = given.tests or TESTS[package]
            left -= run_apart(Work(folder, results, tests, watched, mine, left, given.quick, again=again))
        if left <= 0:
            break
    known = find_known(every, load_results(RESULTS), load_tried(TRIED))
    save_tried(TRIED, predicates, known)
    return 1 if summarize(wanted, known) else 0


if __name__ == "__main__":
    sys.exit(main())
