"""The words of this project: functions are verbs, values are nouns, and no name is one that could mean anything."""

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.long

PACKAGES: Final = ("recovery", "reconcile", "backends")

FILLERS: Final = frozenset(
    [
        "found",
        "one",
        "ones",
        "at",
        "of",
        "said",
        "told",
        "held",
        "again",
        "asking",
        "mine",
        "theirs",
        "ours",
        "others",
        "other",
        "here",
        "there",
        "it",
        "they",
        "them",
        "what",
        "which",
        "whose",
        "who",
        "some",
        "every",
        "each",
        "both",
        "same",
        "now",
        "then",
        "before",
        "after",
        "past",
    ]
)
"""Names that say nothing of their value."""

MOST_FILLERS: Final = 0.0048
"""Of all names. It was 0.089 once; it only ever goes down."""

FILLERS_THAT_STAY: Final = {
    "now": "the clock, as an argument: the field's own word for it",
    "other": "the second operand of an operator",
}

IRREGULAR: Final = frozenset(
    [
        "begun",
        "chosen",
        "done",
        "drawn",
        "found",
        "given",
        "gone",
        "grown",
        "held",
        "kept",
        "known",
        "laid",
        "left",
        "lost",
        "made",
        "met",
        "seen",
        "sent",
        "shown",
        "taken",
        "told",
        "wanted",
        "written",
        "said",
    ]
)
"""Participles that do not end in -ed."""

NOT_PARTICIPLES: Final = frozenset({"bring", "embed", "feed", "need", "ring", "seed", "speed", "string"})

PARTICIPLES_THAT_STAY: Final = {
    "reconcile/cli/options.py: expanded": "a wrapper of click's",
    "recovery/bookies/wire_reader.py: taken": "a callback that says what it was given",
    "recovery/codecs/store.py: _missing_": "an enum's own hook",
}
"""Functions whose name is a participle, with the reason."""


OPTION: Final = re.compile(r"(?<![\w-])--[a-z]{2,}")

OPTIONS_THAT_STAY: Final = {
    "reconcile/cli/": "the command line itself",
    "reconcile/findings/": "what a finding suggests is stored in FINDINGS, and read beside the program",
    "reconcile/report/": "pages that name the next command, as the command line does",
    "reconcile/explain/ledger.py": "names the command that chose a reading",
    "recovery/backup/encryption.py": "the command lines of age and gpg",
    "reconcile/service/runs/commands.py": "the command lines that the service runs",
}
"""Places below the command line whose texts name its options, with the reason."""


@functools.cache
def _sources() -> tuple[tuple[str, ast.Module], ...]:
    return tuple(
        (path.relative_to(ROOT).as_posix(), ast.parse(path.read_text()))
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if "_pb" not in path.parts
    )


@functools.cache
def _list_nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree))


def _bound_names(tree: ast.Module) -> Iterator[str]:
    for node in _list_nodes(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.ExceptHandler(name=str(name)) | ast.alias(asname=str(name)) | ast.MatchAs(name=str(name)):
                yield name
            case _:
                pass


def _is_property(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(decorator) in {"property", "cached_property"} for decorator in function.decorator_list)


def _is_participle(name: str) -> bool:
    first = name.strip("_").split("_")[0]
    return first in IRREGULAR or (first.endswith(("ed", "ing")) and first not in NOT_PARTICIPLES)


def test_no_name_is_a_filler() -> None:
    """Fillers stay at the edge: at most some five in a thousand names, and fewer with each change."""
    names = 0
    fillers: Counter[str] = Counter()
    for path, tree in _sources():
        for name in _bound_names(tree):
            names += 1
            word = name.strip("_")
            if word in FILLERS and word not in FILLERS_THAT_STAY:
                fillers[f"{path}: {name}"] += 1
    assert fillers.total() <= names * MOST_FILLERS, fillers.most_common(50)


def test_functions_are_verbs() -> None:
    """No function is named by a participle, but those that have a reason."""
    participles = {
        f"{path}: {function.name}"
        for path, tree in _sources()
        for function in _list_nodes(tree)
        if isinstance(function, ast.FunctionDef) and not _is_property(function) and _is_participle(function.name)
    }
    assert participles == PARTICIPLES_THAT_STAY.keys()


def test_no_room_below_the_command_line_names_its_options() -> None:
    """A remedy is typed, and the command line words it: another surface has no options."""
    named = []
    for path, tree in _sources():
        if path.startswith(tuple(OPTIONS_THAT_STAY)):
            continue
        docstrings = {id(node.value) for node in _list_nodes(tree) if isinstance(node, ast.Expr)}
        named += [
            f"{path}:{node.lineno}: {node.value}"
            for node in _list_nodes(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
            if OPTION.search(node.value)
        ]
    assert named == []


def test_every_exception_is_still_needed() -> None:
    """A place that stays names an option."""
    for prefix in OPTIONS_THAT_STAY:
        texts = [
            (ROOT / path).read_text()
            for path in (str(file.relative_to(ROOT)) for file in ROOT.glob("re*/**/*") if file.suffix in (".py", ".j2"))
            if path.startswith(prefix)
        ]
        assert any(OPTION.search(text) for text in texts), prefix


def test_sources_cite_pages_of_this_repository() -> None:
    """No section of a text that stands elsewhere; each page that is named is there."""
    cited = []
    for path in sorted(ROOT.glob("re*/**/*.py")) + sorted(ROOT.glob("backends/**/*.py")):
        text = path.read_text()
        assert "\u00a7" not in text, path
        cited += [(path, page) for page in re.findall(r"docs/[\w/.-]+\.md", text)]
    assert cited
    assert [(str(path), page) for path, page in cited if not (ROOT / page).is_file()] == []
