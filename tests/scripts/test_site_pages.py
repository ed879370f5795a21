"""What the site makes of the program: nothing of it is left out, and no link leads out of docs/."""

import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import pytest
from mkdocs.structure.pages import Page

from reconcile.findings.categories import Category
from recovery.model import tables
from scripts import site_pages
from tests.support.command import commands
from tests.support.paths import ROOT


@pytest.fixture(scope="module")
def pages() -> Mapping[str, str]:
    """Return each page that is made, by its path."""
    return site_pages.make_pages()


def test_every_command_category_and_column_has_its_place(pages: Mapping[str, str]) -> None:
    """By its own name; comments of tables and texts of categories stand beside them."""
    listed = pages["reference/commands.md"]
    assert [name for name in commands() if f"\n## bkmeta {name}\n" not in listed] == []
    found = pages["reference/findings.md"]
    assert [name for name in Category if f"`{name}`" not in found] == []
    assert "Bookies hold entries above the last entry of a closed ledger." in found
    shown = pages["reference/tables.md"]
    for kind, named in tables.KINDS.items():
        for name, schema in named.items():
            section = shown.split(f"\n### {name} ({kind})\n")[1].split("\n#")[0]
            if "Its columns are those of" not in section:
                assert [column for column in schema.names if f"| `{column}` |" not in section] == []
    assert "it was gone through" in shown, "comments inside a table of tables"


def test_every_metric_has_its_row(pages: Mapping[str, str]) -> None:
    """Those of the alerts and of the dashboard, which tests hold against what a service and a scrutiny really show."""
    page = pages["reference/metrics.md"]
    used = set()
    for name in ("prometheus-rules.yml", "grafana-dashboard.json"):
        used |= set(re.findall(r"bookkeeper_metadata_\w+", (ROOT / "conf" / name).read_text()))
    assert len(used) > 10
    assert [name for name in used if f"| `{name}` |" not in page] == []
    assert "| `bookkeeper_metadata_scrutiny_findings` | `category` |" in page


def test_a_link_that_leaves_the_pages_keeps_its_text() -> None:
    """One to another page stays, with its anchor; one elsewhere, too."""
    page = cast("Page", SimpleNamespace(file=SimpleNamespace(src_uri="operations/x.md")))
    text = "[a](../../README.md#b) [c](../formats/wire.md#d) [e](https://e.org) [f](y.md)"
    assert site_pages.on_page_markdown(text, page=page) == ("a [c](../formats/wire.md#d) [e](https://e.org) [f](y.md)")
