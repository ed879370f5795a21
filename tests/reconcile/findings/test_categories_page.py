"""The page for who is paged: each category that a scrutiny can say has its section, its severity, a next step."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconcile.findings.categories import TRAITS, Category

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "operations" / "scrutiny.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### ([A-Z_]+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
SOURCES = (
    *(ROOT / "reconcile" / "check" / "scrutiny").glob("*.py"),
    *(ROOT / "reconcile" / "jobs" / "scrutiny").glob("*.py"),
    *(ROOT / "reconcile" / "rules" / "segments").glob("*.py"),
    *(
        ROOT / "reconcile" / path
        for path in (
            "rules/diff.py", "rules/entries_beyond_end.py", "rules/nodes.py", "rules/reference_checks.py",
            "rules/sides.py", "check/records/stores.py",
        )
    ),
)  # fmt: skip
"""What `scrutinize` finds by."""
OF_PLANS = {Category.EPHEMERAL_NOT_RESTORED, Category.ID_FAR_ABOVE, Category.ENTRIES_MISSING}
"""Of these modules, but said of plans alone; entries that are missing have categories of their own here."""
QUIETER = {Category.COOKIE_WITHOUT_BOOKIE: "info"}
"""Less than in a plan: a bookie that is down is no harm by itself."""


def find_categories() -> Iterator[Category]:
    """Yield the categories that the code names."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Category":
                yield Category[node.attr]


CATEGORIES = sorted(set(find_categories()) - OF_PLANS)


@pytest.mark.parametrize("category", CATEGORIES)
def test_each_category_has_its_section(category: Category) -> None:
    """With the severity that it has, and what to run next."""
    severity, _, rest = SECTIONS[category].strip().removeprefix("**").partition(".** ")
    assert severity.split(";")[0].split(" ")[0] == QUIETER.get(category, TRAITS[category].severity) or (
        "else info" in severity or f"; {TRAITS[category].severity}" in severity
    )
    means, _, following = rest.partition("\n\nNext: ")
    assert len(means) > len("It is bad.")
    assert following.strip().endswith(".")


def test_no_section_is_of_what_cannot_be_said() -> None:
    """A section of a category that is gone is gone, too."""
    assert set(SECTIONS) == {str(category) for category in CATEGORIES}


def find_called_rules() -> Iterator[Path]:
    """Yield the modules of rules that a scrutiny imports from."""
    for path in SOURCES[: len(SOURCES) - 6]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("reconcile.rules"):
                room = ROOT / str(node.module).replace(".", "/")
                modules = [room.with_suffix(".py"), *(room / f"{alias.name}.py" for alias in node.names)]
                yield from (module for module in modules if module.exists())


def test_every_rule_that_is_called_is_read_here() -> None:
    """A module of rules that is new is one of `SOURCES`."""
    naming = {path for path in find_called_rules() if "Category." in path.read_text(encoding="utf-8")}
    marks_alone = ROOT / "reconcile" / "rules" / "holds.py"
    assert naming - {marks_alone} <= set(SOURCES)
