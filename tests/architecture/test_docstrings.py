"""Docstrings name what is there: each argument and attribute that they explain is one of their function or class."""

import ast
import functools
import re
from collections.abc import Iterator
from typing import Final

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.long

PACKAGES: Final = ("recovery", "reconcile", "backends")
_SECTION: Final = re.compile(r"^(Args|Attributes):\n((?: {4}.*\n|\n)*)", re.MULTILINE)
_MENTION: Final = re.compile(r"(?<!`)`([A-Za-z_][\w.]*)`(?!`)")
_ROW: Final = re.compile(r"^ {4}(\S[^:\n]*?)(?: \([^)]*\))?:", re.MULTILINE)

CHECKED: Final = (*PACKAGES, "benchmarks", "scripts", "tests")
SILENCING: Final = re.compile(r"# (type: ignore|noqa)(?!\()")
WITH_REASON: Final = re.compile(r"# (type: ignore\[[^]]*\]|noqa: [A-Z]+[0-9]+(, [A-Z]+[0-9]+)*) +[-#] *\w+")

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@functools.cache
def _trees() -> dict[str, ast.Module]:
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text())
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if "_pb" not in path.parts
    }


def _explained_names(docstring: str) -> Iterator[tuple[str, str]]:
    """Yield (section, name) of each row; a row explains several names with commas between them."""
    for section, rows in _SECTION.findall(docstring + "\n"):
        for names in _ROW.findall(rows):
            for name in names.split(", "):
                yield section, name.lstrip("*")


def _parameters(function: ast.AST | None) -> set[str]:
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return set()
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return {argument.arg for argument in every if argument is not None}


def _fields(owner: ast.ClassDef) -> set[str]:
    """Return what a class declares, what its methods set on `self`, and its properties."""
    names: set[str] = set()
    for node in owner.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
            case ast.FunctionDef(name=name, decorator_list=decorators):
                if any(ast.unparse(decorator) in {"property", "cached_property"} for decorator in decorators):
                    names.add(name)
                names |= {
                    target.attr
                    for target in ast.walk(node)
                    if isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store)
                    if isinstance(target.value, ast.Name) and target.value.id == "self"
                }
            case _:
                pass
    return names


def _names_of_class(owner: ast.ClassDef, section: str, classes: dict[str, ast.ClassDef]) -> set[str]:
    """Return the names that a section may explain: its own, and those of the classes that it is made from."""
    names = _fields(owner)
    if section == "Args":
        starts = (node for node in owner.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
        names = _parameters(next(starts, None)) or names
    for base in owner.bases:
        parent = classes.get(ast.unparse(base).split("[")[0].split(".")[-1])
        if parent is not None and parent is not owner:
            names |= _names_of_class(parent, section, classes)
    return names


def _find_strangers(trees: dict[str, ast.Module]) -> list[str]:
    """Return the names that docstrings explain and that are not there, each with its place."""
    nodes = [(path, node) for path, tree in trees.items() for node in ast.walk(tree)]
    classes = {node.name: node for _, node in nodes if isinstance(node, ast.ClassDef)}
    strangers = []
    for path, node in nodes:
        if not isinstance(node, Definition):
            continue
        for section, name in _explained_names(ast.get_docstring(node) or ""):
            known = _names_of_class(node, section, classes) if isinstance(node, ast.ClassDef) else _parameters(node)
            if name not in known:
                strangers.append(f"{path}: {node.name} has no {name}")
    return strangers


def test_docstrings_explain_names_that_are_there() -> None:
    """A parameter or field that was renamed is renamed in its docstring, too."""
    assert _find_strangers(_trees()) == []


def test_a_name_that_is_not_there_is_found() -> None:
    """Of functions, classes and dataclasses; what a class inherits is its own."""
    text = '''
class Base:
    """Base.

    Attributes:
        size, weight: known, and not.
    """

    size: int


class Heir(Base):
    """Heir.

    Args:
        limit: known.
        most: not.

    Attributes:
        size: inherited.
        left: set.
        say: a method, no value.
    """

    def __init__(self, limit: int) -> None:
        self.left = limit

    def say(self, word: str) -> None:
        """Say.

        Args:
            word: known.
            text (str): not.
        """
'''
    assert _find_strangers({"m.py": ast.parse(text)}) == [
        "m.py: Base has no weight",
        "m.py: Heir has no most",
        "m.py: Heir has no say",
        "m.py: say has no text",
    ]


def _texts(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield docstrings, and the strings that stand below values to explain them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


def _find_words(trees: dict[str, ast.Module]) -> set[str]:
    """Return every word of the sources but for those of docstrings: names, and words of texts such as columns."""
    words: set[str] = set()
    for path, tree in trees.items():
        words.update(re.findall(r"\w+", path))
        docstrings = {id(text) for text in _texts(tree)}
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name) | ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    words.add(name)
                case ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                    words.add(name)
                case ast.alias(name=name) | ast.ImportFrom(module=str(name)):
                    words.update(name.split("."))
                case ast.Constant(value=str(text)) if id(node) not in docstrings:
                    words.update(re.findall(r"\w+", text))
                case _:
                    pass
    return words


@functools.cache
def _find_our_words() -> set[str]:
    return _find_words(_trees())


def _find_lost_mentions(trees: dict[str, ast.Module], words: set[str]) -> list[str]:
    """Return what docstrings write as code and is no word of any source."""
    return [
        f"{path}:{text.lineno}: {mention}"
        for path, tree in trees.items()
        for text in _texts(tree)
        for mention in _MENTION.findall(str(text.value))
        if not set(mention.split(".")) <= words
    ]


def test_docstrings_mention_names_that_are_there() -> None:
    """What stands between backticks is a name or a word of some source: nothing that was renamed long ago."""
    assert _find_lost_mentions(_trees(), _find_our_words()) == []


def test_the_page_of_rooms_mentions_names_that_are_there() -> None:
    """What docs/ARCHITECTURE.md tells to add to, or to call, exists under that name."""
    tables = {str(path): ast.parse(path.read_text()) for path in (ROOT / "tests/architecture").glob("test_l*.py")}
    words = _find_our_words() | _find_words(tables)
    mentions = re.findall(r"`([A-Za-z_]\w*)`", (ROOT / "docs" / "ARCHITECTURE.md").read_text())
    assert mentions
    assert [mention for mention in mentions if mention not in words] == []


def test_a_mention_that_is_lost_is_found() -> None:
    """A name that only docstrings have is one that went away."""
    text = '''
"""Of `size`, `m.size`, `column` and `weight`."""
size = "a column"
"""As `size`; not `height`."""
'''
    trees = {"m.py": ast.parse(text)}
    assert _find_lost_mentions(trees, _find_words(trees)) == ["m.py:2: weight", "m.py:4: height"]


def test_what_silences_a_check_says_why() -> None:
    """Each comment that silences ruff or mypy has its reason on its line."""
    silent = []
    for path in sorted(path for folder in CHECKED for path in (ROOT / folder).rglob("*.py") if "_pb" not in path.parts):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            silencing = SILENCING.search(line)
            if silencing is not None and not WITH_REASON.match(line[silencing.start() :]):
                silent.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert silent == []
