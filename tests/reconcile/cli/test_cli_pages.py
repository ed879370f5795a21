"""Commands that pages show: each exists, with the options that it is given."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import ROOT, commands

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
_BLOCK = re.compile(r"^```(?:sh|bash|console)?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`(bkmeta [^`]+)`")
_END = re.compile(r"\s(?:[|;&>#]|&&|\|\|)(?:\s|$)")


def list_lines(page: Path) -> Iterator[str]:
    """Yield the command lines of a page that begin with bkmeta."""
    text = page.read_text()
    for block in _BLOCK.findall(text):
        lines = map(str.strip, block.replace("\\\n", " ").splitlines())
        yield from (line for line in lines if line.startswith("bkmeta "))
    yield from _INLINE.findall(text)


def find_unknown(line: str, known: dict[str, frozenset[str]]) -> list[str]:
    """Return the options of a command line that its command does not have; no command of ours: none."""
    try:
        words = shlex.split(_END.split(line)[0])[1:]
    except ValueError:  # an apostrophe in prose
        words = _END.split(line)[0].split()[1:]
    names = [" ".join(words[:count]) for count in (3, 2, 1)]
    name = next((name for name in names if name in known), None)
    if name is None:
        return []
    typed = (word.partition("=")[0] for word in words if re.match(r"--[a-z]", word))
    return [f"{name}: {option}" for option in typed if option not in known[name]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_gives_commands_only_options_that_they_have(page: Path) -> None:
    """Whoever copies a line from a page is not told that there is no such option."""
    known = {
        name: frozenset(
            option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
        )
        | {"--help"}
        for name, command in commands().items()
    }
    assert [unknown for line in list_lines(page) for unknown in find_unknown(line, known)] == []


def test_an_option_that_is_not_there_is_seen() -> None:
    """In a pipe only what stands before it is ours; and pages do have lines."""
    assert sum(len(list(list_lines(page))) for page in PAGES) > 200
    known = {"undelete": frozenset({"--metadata"}), "backup list": frozenset({"--json"})}
    assert find_unknown("bkmeta undelete --metadata U --ledgers 17", known) == ["undelete: --ledgers"]
    assert find_unknown("bkmeta backup list --json P | jq --raw", known) == []
    assert find_unknown("bkmeta nothing --metadata U", known) == []
