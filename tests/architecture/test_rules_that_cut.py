"""The page of rules that cut: each function that sets an end, a state, members or an outcome is on it, and tested."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "internals" / "rules-that-cut.md"
PACKAGES: Final = (ROOT / "recovery" / "infer", ROOT / "reconcile" / "compare")
COLUMNS: Final = frozenset({"end", "last_entry", "state", "segments", "members", "holders", "outcome", "cut"})
SETTERS: Final = {"set_outcome": "outcome", "cut_at": "end"}
"""Functions whose callers set a column."""


def list_targets(target: ast.expr) -> Iterator[str]:
    """Yield what an assignment sets: names, attributes, and items of tables by their names."""
    for node in ast.walk(target):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Subscript):
            if isinstance(node.value, ast.Name):
                yield node.value.id
            if isinstance(node.slice, ast.Constant):
                yield str(node.slice.value)


def list_set(node: ast.AST) -> Iterator[str]:
    """Yield what one node sets: by an assignment, a keyword argument, the key of a dict, or a function's call."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from list_targets(target)
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.NamedExpr | ast.For | ast.comprehension):
        yield from list_targets(node.target)
    elif isinstance(node, ast.Call):
        yield from (keyword.arg for keyword in node.keywords if keyword.arg)
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        yield SETTERS.get(called, "")
    elif isinstance(node, ast.Dict):
        yield from (str(key.value) for key in node.keys if isinstance(key, ast.Constant))


def list_functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the functions and methods of both packages, by package, module and name."""
    for path in sorted(path for package in PACKAGES for path in package.glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                yield f"{path.parent.name}.{path.stem}.{node.name}", node
            elif isinstance(node, ast.ClassDef):
                for member in node.body:
                    if isinstance(member, ast.FunctionDef):
                        yield f"{path.parent.name}.{path.stem}.{node.name}.{member.name}", member


def read_table(heading: str) -> list[list[str]]:
    """Return the cells of the rows of the first table under a heading of the page."""
    part = PAGE.read_text().split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows[2:]]


def list_cutting() -> set[str]:
    """Return the functions that the page lists as cutting."""
    return {name for row in read_table("Rules that cut") for name in re.findall(r"`([\w.]+)`", row[0]) if "." in name}


def list_carrying() -> set[str]:
    """Return the functions that the page lists as handing on."""
    return {
        f"{row[0].strip('`')}.{name}"
        for row in read_table("Functions that hand on such columns")
        for name in re.findall(r"`([\w.]+)`", row[2])
    }


def test_each_function_that_sets_such_a_column_is_on_the_page() -> None:
    """A new one is put into the table of cutting rules, with its statement and its test, or into that of carriers."""
    setting = {
        name
        for name, function in list_functions()
        if any(not COLUMNS.isdisjoint(list_set(node)) for node in ast.walk(function))
    }
    assert setting - list_cutting() - list_carrying() == set()


def test_the_page_lists_functions_that_are_there_and_each_once() -> None:
    """A name that is gone, or in both tables, misleads whoever looks for the next false rule."""
    names = {name for name, _ in list_functions()}
    assert (list_cutting() | list_carrying()) - names == set()
    assert list_cutting() & list_carrying() == set()


def test_each_cutting_rule_has_a_statement_a_history_and_a_test_that_is_there() -> None:
    """A test is named by its file and function; names of files are unique."""
    tests = {
        f"{path.stem}.{node.name}"
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    for row in read_table("Rules that cut"):
        assert len(row) == 5, row
        assert all(row), row
        named = re.findall(r"`(test_\w+\.test_\w+)`", row[4])
        assert named, row
        assert set(named) <= tests, row
