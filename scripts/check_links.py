"""Checks the links between Markdown pages of this project: every file is there, and so is every heading.

Usage: ``python scripts/check_links.py``. Addresses elsewhere are not looked at: a check must not depend on a network.
"""

import re
import sys
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
_FENCE: Final = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"`[^`\n]*`")
_LINK: Final = re.compile(r"\[[^\]\n]*\]\(\s*<?([^)\s>]+)")
_HEADING: Final = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)
_ELSEWHERE: Final = re.compile(r"[a-z][a-z0-9+.-]*:")


def pages() -> list[Path]:
    """Return every page that people read."""
    folders = ("benchmarks", "docs", "tests")
    return sorted([*ROOT.glob("*.md"), *(page for name in folders for page in (ROOT / name).rglob("*.md"))])


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the names that headings of a page have in links, as GitHub makes them."""
    found: dict[str, int] = {}
    names = set()
    for heading in _HEADING.findall(_FENCE.sub("", page.read_text())):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = found.get(slug, 0)
        found[slug] = count + 1
        names.add(f"{slug}-{count}" if count else slug)
    return frozenset(names)


def broken(page: Path) -> list[str]:
    """Return what is wrong with the links of a page."""
    problems = []
    for link in _LINK.findall(_CODE.sub("", _FENCE.sub("", page.read_text()))):
        if _ELSEWHERE.match(link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.is_relative_to(ROOT):
            problems.append(f"{link}: outside the project")
        elif not target.exists():
            problems.append(f"{link}: no such file")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            problems.append(f"{link}: no such heading")
    return problems


def main() -> int:
    """Run the script."""
    problems = [f"{page.relative_to(ROOT)}: {problem}" for page in pages() for problem in broken(page)]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
