"""What the site has beside the pages of docs/: references made from the program itself, and links that leave docs/.

MkDocs calls it as a hook. Of a link to a file outside of docs/, which the site has not, the text is left.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from posixpath import normpath
from typing import Any, Final

import click
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from reconcile.cli.main import program
from reconcile.cli.man_pages import walk_commands
from reconcile.findings import categories
from recovery.model import tables

_ROOT: Final = Path(__file__).resolve().parent.parent
_LINK: Final = re.compile(r"(?<!!)\[([^\]\n]*)\]\(([^)\s]+)\)")
_WIDTH: Final = 100
_METRICS: Final = {
    "A scrutiny": "reconcile/jobs/scrutiny/metrics.py",
    "The service": "reconcile/service/api/metrics.py",
}
"""Modules whose docstring is a table of metrics."""
_METRIC: Final = re.compile(r"^ {4}(\w+)(?:\{(\w+)\})?(?: {2,}(.+))?$", re.MULTILINE)
_AT_NIGHT: Final = "operations/scrutiny.md"


def on_files(files: Files, *, config: Any) -> Files:  # noqa: ANN401 - MkDocs's own
    """Add the pages that are made from the program."""
    for path, content in make_pages().items():
        files.append(File.generated(config, path, content=content))
    return files


def make_pages() -> Mapping[str, str]:
    """Return the pages that are made from the program: path in docs/ → Markdown."""
    made = {
        "commands": _list_commands(),
        "findings": _list_findings(),
        "metrics": _list_metrics(),
        "tables": _list_tables(),
    }
    return {f"reference/{name}.md": "\n".join(lines) + "\n" for name, lines in made.items()}


def on_page_markdown(markdown: str, *, page: Page, **_other: object) -> str:
    """Leave of a link that leads out of docs/ its text."""

    def keep_inside(link: re.Match[str]) -> str:
        target = link[2].partition("#")[0]
        outside = normpath(f"{page.file.src_uri}/../{target}").startswith("../")
        return link[1] if outside and ":" not in target else link[0]

    return _LINK.sub(keep_inside, markdown)


def _list_metrics() -> Iterator[str]:
    scrutiny, service = "../operations/scrutiny.md", "../operations/service.md"
    yield f"# Metrics\n\nOf [`scrutinize --metrics`]({scrutiny}) and of [the service]({service})."
    for title, path in _METRICS.items():
        text = ast.get_docstring(ast.parse((_ROOT / path).read_text())) or ""
        _, *parts = re.split(r"each begin(?:s|ning) with (\w+)", text)
        yield f"\n## {title}\n\nText format of Prometheus. Those that end with `_total` are counters.\n"
        yield "| metric | label | is |\n| --- | --- | --- |"
        for prefix, rows in zip(parts[::2], parts[1::2], strict=True):
            for name, label, words in _METRIC.findall(rows):
                yield f"| `{prefix}{name}` | {f'`{label}`' if label else ''} | {words} |"


def _list_commands() -> Iterator[str]:
    yield "# Every command\n\nWhat `--help` of each command prints."
    for path, command in walk_commands("bkmeta", program):
        context = click.Context(command, info_name=path, max_content_width=_WIDTH, terminal_width=_WIDTH)
        yield f"\n## {path}\n\n```text\n{command.get_help(context).rstrip()}\n```"


def _list_findings() -> Iterator[str]:
    described = set(re.findall(r"^### (\w+)$", (_ROOT / "docs" / _AT_NIGHT).read_text(), re.MULTILINE))
    yield "# Findings\n\nEach category, its severity unless a rule says another one, what it says, and what comes next."
    yield "\n| category | severity | says | next |\n| --- | --- | --- | --- |"
    for category, traits in categories.TRAITS.items():
        name = f"[`{category}`](../{_AT_NIGHT}#{category.lower()})" if category in described else f"`{category}`"
        yield f"| {name} | {traits.severity} | {_escape(traits.says)} | {_escape(traits.remedy)} |"


def _list_tables() -> Iterator[str]:
    yield "# Tables\n\nEvery column of every dataset. The footer of each Parquet file has the same comments."
    yield "Ids are signed: a ledger id above 2^63 - 1 is a negative number."
    shown: dict[int, str] = {}
    for dataset, named in tables.KINDS.items():
        yield f"\n## {dataset.capitalize()}"
        for name, schema in named.items():
            yield f"\n### {name} ({dataset})"
            if id(schema) in shown:
                yield f"\nIts columns are those of {shown[id(schema)]}."
                continue
            shown[id(schema)] = f"{name} ({dataset})"
            yield "\n| column | type | null | is |\n| --- | --- | --- | --- |"
            for column in schema:
                null = "yes" if column.nullable else ""
                says = _escape((column.metadata or {}).get(tables.COMMENT, b"").decode())
                yield f"| `{column.name}` | `{_escape(str(column.type))}` | {null} | {says} |"


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
