"""The page of incidents says what is tried: every test that it names exists; no scenario is without one or a reason."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "internals" / "incidents.md"
SCENARIOS = re.findall(
    r"^### (\d+)\. (.+?)\n(.*?)(?=^#|\Z)", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)


def test_there_are_twenty() -> None:
    """In their order, none twice."""
    assert [int(number) for number, _, _ in SCENARIOS] == list(range(1, 21))


@pytest.mark.parametrize(("title", "text"), [one[1:] for one in SCENARIOS], ids=[one[0] for one in SCENARIOS])
def test_every_scenario_names_tests_that_exist_or_what_it_waits_for(title: str, text: str) -> None:
    """A test that was renamed or taken away is renamed or taken away here, too."""
    named = re.findall(r"^- `(\S+)::(\S+)`$", text, re.MULTILINE)
    waits = re.findall(r"^- To come: .+\.$", text, re.MULTILINE)
    assert named or waits, title
    assert len(named) + len(waits) == len(re.findall(r"^- ", text, re.MULTILINE)), "a line is neither"
    for file, function in named:
        tree = ast.parse((TESTS / f"{file}.py").read_text(encoding="utf-8"))
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{file}::{function}"
