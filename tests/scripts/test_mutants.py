"""Changes that no test notices: what is changed, what is asked, and what the next run tries again."""

import json
from pathlib import Path
from typing import Final

import pytest

from scripts.mutants import __main__ as program
from scripts.mutants.changes import mutants
from scripts.mutants.results import Outcome, hash_test, load_results, save_tried
from scripts.mutants.session import Work

pytestmark = pytest.mark.long

JUDGE: Final = '''"""Judges."""

import functools

LEAST = 3 if __name__ else 2


def is_enough(have: int, want: int) -> bool:
    return have >= want or want > 8


@functools.cache
def total(numbers: tuple[int, ...]) -> int:
    return max(numbers) if numbers else 0


def unreached(value: bool) -> bool:
    return not value


def turns(rounds: int) -> int:
    while rounds > 0:
        rounds -= 1
    return rounds
'''
TESTS: Final = """
from judging import judge


def test_enough():
    assert judge.is_enough(3, 3) and not judge.is_enough(2, 3)
    assert judge.is_enough(1, 9)


def test_total():
    assert judge.total((2, 5)) == 5 and judge.total(()) == 0


def test_least():
    assert judge.LEAST == 3


def test_turns():
    assert judge.turns(2) == 0
"""
MORE: Final = """

def test_bound():
    assert not judge.is_enough(1, 8)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a folder with a module and its tests."""
    for name, text in (("judging/judge.py", JUDGE), ("tests/test_judge.py", TESTS), ("pytest.ini", "[pytest]\n")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "judging" / "__init__.py").write_text("")
    return tmp_path


def run(tree: Path, *, count: int = 1000) -> tuple[int, dict[str, Outcome]]:
    """Return how many changes were tried, and what became of each that is remembered, by its name."""
    source = (tree / "judging" / "judge.py").read_text()
    every = [mutant for mutant in mutants("judging/judge.py", source) if mutant.is_predicate]
    results = tree / "results" / "mutants.jsonl"
    tried = program.run_apart(Work(str(tree), results, ["tests"], ["judging/judge.py"], every, count, 1e9, again=False))
    return tried, {name: result.outcome for (_, name), result in load_results(results).items()}


def test_a_run_goes_on_where_the_last_one_was_stopped(tree: Path) -> None:
    """Each change is tried once; what changes is tried again, and nothing else."""
    assert run(tree, count=2)[0] == 2
    tried, outcomes = run(tree)
    assert tried == len(outcomes) - 2
    survived = {name for name, outcome in outcomes.items() if outcome is Outcome.SURVIVED}
    assert survived == {
        ": 3 if __name__ else 2 -> 3",
        "is_enough: want > 8 -> want >= 8",
        "unreached: not value -> value",
    }
    assert outcomes["turns: rounds > 0 -> rounds >= 0"] is Outcome.NOTICED
    assert outcomes[": 3 if __name__ else 2 -> 2"] is Outcome.NOTICED
    assert outcomes["total: max(numbers) -> min(numbers)"] is Outcome.NOTICED

    tests, judge = tree / "tests" / "test_judge.py", tree / "judging" / "judge.py"
    tests.write_text(TESTS.replace("judge.total((2, 5)) == 5 and ", "") + MORE)
    judge.write_text(JUDGE.replace("return rounds", "return 0 if rounds < 1 else rounds"))
    tried, outcomes = run(tree)
    assert outcomes["is_enough: want > 8 -> want >= 8"] is Outcome.NOTICED, "a survivor that one more test executes"
    assert outcomes["total: max(numbers) -> min(numbers)"] is Outcome.SURVIVED, "the test that noticed says less now"
    outside, of_total, of_turns = 1, 4, 4
    assert tried == outside + 1 + of_total + of_turns, "nothing of what is as it was"
    assert run(tree)[0] == 0


def test_what_decides_is_told_from_what_counts() -> None:
    """Masks, conditions and functions that choose decide; sums, numbers and costs of a call do not."""
    source = """
def choose(a, b, rows, has=True) -> bool:
    if rows and not a:
        return bool(b)
    mask = pc.and_(pc.less(a, b), ~b)
    zip(a, b, strict=True)
    return pc.if_else(mask, a + 1, b) if np.isin(a, b) else rows
"""
    every = {mutant.name.removeprefix("choose: "): mutant for mutant in mutants("x.py", source)}
    decide = {name for name, mutant in every.items() if mutant.is_predicate}
    assert {name for name in decide if len(name) < 60} == {
        "rows and (not a) -> rows or not a",
        "rows and (not a) -> not a",
        "rows and (not a) -> rows",
        "not a -> a",
        "bool(b) -> not bool(b)",
        "pc.and_(pc.less(a, b), ~b) -> pc.or_(pc.less(a, b), ~b)",
        "pc.less(a, b) -> pc.less_equal(a, b)",
        "~b -> b",
        "np.isin(a, b) -> not np.isin(a, b)",
        "np.isin(a, b) -> np.invert(np.isin(a, b))",
        "pc.if_else(mask, a + 1, b) -> pc.if_else(mask, b, a + 1)",
        "True -> False",
    }
    assert set(every) - decide == {"True -> False (2)", "a + 1 -> a - 1", "1 -> 2"}
    assert every["True -> False"].function == "", "a default is evaluated outside of its function"
    assert every["~b -> b"].lines == (5, 5)
    assert (every["~b -> b"].function, every["~b -> b"].first_line) == ("choose", 2)


@pytest.fixture
def remembered(tree: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return what the repository remembers of a tree in which `is_enough` was tried, and `want > 8` survived."""
    monkeypatch.chdir(tree)
    monkeypatch.setattr(program, "TESTS", {"judging": ("tests",)})
    every = [mutant for mutant in mutants("judging/judge.py", JUDGE) if mutant.function == "is_enough"]
    lives = "is_enough: want > 8 -> want >= 8"
    outcomes = {m.name: Outcome.SURVIVED if m.name == lives else Outcome.NOTICED for m in every}
    mine = [mutant for mutant in every if mutant.is_predicate]
    save_tried(program.TRIED, mine, {(mutant.path, mutant.name): outcomes[mutant.name] for mutant in mine})
    return program.TRIED


def show_left(capsys: pytest.CaptureFixture[str]) -> list[int]:
    """Return the last row that `--list` prints: changes, tried, noticed, with a reason, without one, left."""
    program.main(["--list", "0", "judging"])
    rows = [line for line in capsys.readouterr().out.splitlines() if line.endswith("  all")]
    return [int(number) for number in rows[0].split()[:-1]]


def test_the_repository_remembers_functions(remembered: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without `.cache` a run goes on from the tracked file: comments and docstrings do not make a function another."""
    changes, tried, noticed, explained, bare, left = show_left(capsys)
    assert (tried, noticed, explained, bare) == (5, 4, 0, 1)
    assert left == changes - 5
    judge = Path("judging/judge.py")
    judge.write_text(JUDGE.replace("    return have", '    """Judge."""\n    # enough?\n    return have'))
    assert show_left(capsys) == [changes, tried, noticed, explained, bare, left]
    every = [mutant for mutant in mutants("judging/judge.py", judge.read_text()) if mutant.is_predicate]
    named = {mutant.name for mutant in program.list_left(every)}
    assert "is_enough: want > 8 -> want >= 8" in named, "what has no reason is tried again"
    assert len(named) == left + 1
    program.REASONS.write_text('["judging/judge.py"]\n"is_enough: want > 8 -> want >= 8" = "of no matter"\n')
    assert len(program.list_left(every)) == left
    assert len(remembered.read_text().splitlines()) == 1


def test_a_function_that_changed_counts_as_not_tried(remembered: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its line is not believed, and goes; what changes outside of it leaves its line as it is."""
    judge = Path("judging/judge.py")
    judge.write_text(JUDGE.replace("LEAST = 3", "LEAST = 4"))
    assert show_left(capsys)[1] == 5
    judge.write_text(JUDGE.replace("have >= want", "have + 1 >= want"))
    assert show_left(capsys)[1] == 0
    assert remembered.read_text() == ""


def test_the_summary_counts_each_file(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Noticed, with a reason, without one and left are told apart; the exit code says whether any has none."""
    monkeypatch.chdir(tree)
    monkeypatch.setattr(program, "TESTS", {"judging": ("tests",)})
    every = list(mutants("judging/judge.py", JUDGE))
    (tree / ".cache").mkdir()
    rows = []
    for mutant in [mutant for mutant in every if mutant.is_predicate][:4]:
        lives = "want >" in mutant.name
        by = "" if lives else "tests/test_judge.py::test_enough"
        rows.append(
            {"path": mutant.path, "name": mutant.name, "text": mutant.text, "by": by, "tests": 1, "took_s": 0.0}
        )
        rows[-1] |= {"outcome": "survived" if lives else "noticed", "asked": hash_test(by)}
    (tree / ".cache" / "mutants.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert program.main(["--list", "0", "judging"]) == (1 if any(row["outcome"] == "survived" for row in rows) else 0)
    said = capsys.readouterr().out
    lived = [row["name"] for row in rows if row["outcome"] == "survived"]
    assert all(str(name) in said for name in lived)
    (tree / "tests" / "mutants.toml").write_text(
        '["judging/judge.py"]\n' + "".join(f'{json.dumps(name)} = "of no matter"\n' for name in lived)
    )
    assert program.main(["--list", "0", "judging"]) == 0


def test_what_is_changed_and_its_tests_are_there() -> None:
    """A folder that was moved would end every run at its start."""
    assert program.TESTS
    for folder in program.TESTS:
        files = program.list_files(folder)
        assert files, folder
        assert program.find_package(files[0]) == folder
