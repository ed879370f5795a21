"""The page of a plan: whole where names are hostile, bounded where ledgers are many, and each link leads somewhere."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from reconcile.report import pages
from reconcile.report.grids import LEDGERS_SHOWN, grid_of, read_copies
from reconcile.report.pages import FINDINGS_SHOWN, plan_page
from reconcile.report.picture import BOOKIES_DRAWN
from recovery.dataset import Dataset, open_dataset
from recovery.model import tables
from tests.support.command import run
from tests.support.findings import finding
from tests.support.inventories import write_inventory
from tests.support.plan_folder import Ledger, write_plan

pytestmark = pytest.mark.long

AT: Final = datetime(2026, 1, 1, tzinfo=UTC)
HOSTILE: Final = '"><script>alert(1)</script>\u202e\x1b[2J&amp;'
VERDICT: Final = "of very many words " * 50 + "to its end"
LONG: Final = "bookie-" + "x" * 5_000
NAMES: Final = ("b1", HOSTILE, LONG)
LARGEST_PAGE: Final = 2 << 20


class Page(HTMLParser):
    """What a browser makes of a page: its tags, ids, links and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag, its id and where it leads."""
        self.tags.add(tag)
        values = dict(attrs)
        if values.get("id"):
            self.ids.append(str(values["id"]))
        if values.get("href"):
            self.links.append(str(values["href"]))
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        """Note text."""
        self.text += data


def coverage(bookies: Sequence[str], gone: Sequence[str] = ()) -> dict[str, object]:
    """Return a coverage in which the first bookie was not read completely."""
    return {
        "scanned": list(bookies),
        "complete": list(bookies[1:]),
        "not_complete": list(bookies[:1]),
        "members_known_from": ["expected by the operator"],
        "not_scanned": list(gone),
        "not_named": [],
    }


def page_of(plan: Dataset, inventories: Sequence[Dataset] = ()) -> tuple[str, Page]:
    """Return the page of a plan, as text and as a browser has it; each link leads to a place of it."""
    text = plan_page(plan, inventories, verdict=f"a verdict {HOSTILE} {VERDICT}", made=AT)
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    return text, page


def test_hostile_names_are_text(tmp_path: Path) -> None:
    """Bookies, topics and findings of any characters make no tag, hide nothing and turn nothing round."""
    topic = {"pulsar/managed-ledger": HOSTILE.encode() + b"\xff"}
    ledgers = [
        Ledger(1, [(0, NAMES)], missing=2, custom=topic),
        Ledger(2, [(0, NAMES)], reason="no_key", owner=HOSTILE),
    ]
    said = {"side": "store", "field": "path", "value": HOSTILE * 50, "source": HOSTILE}
    rows = [finding("COOKIE_DIFFERS", "critical", None, subject=HOSTILE, evidence=[said], bookies=[HOSTILE] * 99)]
    findings = pa.Table.from_pylist(rows, schema=tables.FINDINGS)
    plan = write_plan(tmp_path / "plan", ledgers, coverage=coverage(NAMES, [f"{HOSTILE}2"]), findings=findings)
    write_inventory(tmp_path / "inventory", HOSTILE, [1, 2], instance=None)
    text, page = page_of(plan, [open_dataset(str(tmp_path / "inventory"), "inventory")])
    assert "script" not in page.tags
    assert not re.search(r"[\u202e\x1b]", text)
    assert r'"><script>alert(1)</script>\u202e\x1b[2J&amp;' in page.text
    assert LONG not in text
    assert VERDICT in page.text
    assert len(text) < LARGEST_PAGE


def test_a_large_plan_has_a_small_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each list shows some, says how many it has, and names the command that lists all; however the plan is read."""
    reasons = ("ragged_tail", "no_key", "two_keys")
    bookies = [f"bookie-{n}" for n in range(1000)]
    held = [Ledger(n, [(0, bookies[:3])], reason=reasons[n % 3]) for n in range(3000)]
    few = [Ledger(10_000 + n, [(0, bookies[:3])], missing=1) for n in range(500)]
    back = [Ledger(20_000 + n, [(e, bookies[e : e + 3]) for e in range(90)], last=99) for n in range(500)]
    undecided = [Ledger(30_000 + n, [(0, bookies[:3])], verdict="undecided") for n in range(400)]
    rows = [finding("NOT_ON_BOOKIES", "critical", n) for n in range(700, 0, -1)]
    rows += [finding("COOKIE_DIFFERS", "critical", None, subject="the one cookie")]
    rows += [finding("STALE_UR_MARK", "info", n) for n in range(299)]
    plan = write_plan(
        tmp_path / "plan",
        [*held, *few, *back, *undecided],
        coverage=coverage(bookies, [f"gone-{n}" for n in range(20)]),
        findings=pa.Table.from_pylist(rows, schema=tables.FINDINGS),
    )
    text, page = page_of(plan)
    assert len(text) < LARGEST_PAGE
    assert len([name for name in page.ids if name.startswith("ledger-")]) == LEDGERS_SHOWN
    assert text.count('<li class="tile') == BOOKIES_DRAWN
    assert f"and {1020 - BOOKIES_DRAWN} more" in page.text
    assert [text.count(f"gone-{n}</span>") for n in (0, 19)] == [1, 1]
    assert text.count('class="unseen">bookie-') == BOOKIES_DRAWN - 21
    for reason in reasons:
        assert f"#list-held-{reason}" in page.links
        assert f"bkmeta plan ledgers PLAN --outcome held --reason {reason}" in page.text
    assert "of 1,000 are here" in page.text
    assert "500 come back with fewer copies" in page.text
    assert "bkmeta plan ledgers PLAN --few-copies" in page.text
    assert "100 of 400 are here" in page.text
    assert f"{FINDINGS_SHOWN} of 1,000, the gravest first" in page.text
    assert "the one cookie" in page.text
    assert "30 segments more" in page.text
    monkeypatch.setattr(pages, "MOST_ROWS", 0)
    assert page_of(plan)[0] == text


def test_the_picture_shows_shares_and_bookies(tmp_path: Path) -> None:
    """Ledgers and entries by what becomes of them, and each bookie with a mark of its own, the gravest first."""
    ledgers = [Ledger(n, [(0, ("b1", "b2"))], last=29) for n in range(3)]
    ledgers += [Ledger(9, [(0, ("b1",))], last=9, reason="no_key")]
    text, page = page_of(write_plan(tmp_path / "plan", ledgers, coverage=coverage(["b1", "b2"], ["b3"])))
    assert re.findall(r'aria-label="([^"]*)"', text)[:4] == [
        "3 ledgers: come back",
        "1 ledger: held: kept, and not readable yet",
        "90 entries: come back",
        "10 entries: held: kept, and not readable yet",
    ]
    assert re.findall(r'<li class="tile (\w+)', text) == ["gone", "incomplete", "complete"]
    assert page.links[:3] == ["#reasons", "#back", "#reasons"]


def test_the_page_and_the_screen_count_the_same_entries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the danger of a restore nobody asks which of two numbers is right."""
    ledgers = [Ledger(n, [(0, ("b1", "b2"))], last=1499) for n in range(3)]
    ledgers += [Ledger(9, [(0, ("b1",))], last=9, reason="no_key")]
    plan = write_plan(tmp_path / "plan", ledgers, coverage=coverage(["b1", "b2"]))
    drawn = re.findall(r'aria-label="([0-9,]+) entries: (come back|held)', page_of(plan)[0])
    shown = run(capsys, "plan", "show", tmp_path / "plan").out
    [line] = [line for line in shown.splitlines() if "entries of lost ledgers:" in line]
    assert drawn == [("4,500", "come back"), ("10", "held")]
    assert [(count, outcome) for outcome, count in re.findall(r"% ([a-z ]+) \(([0-9,]+)\)", line)] == drawn


def test_what_to_do_now_stands_first(tmp_path: Path) -> None:
    """Before the picture: the next command, what is lost for certain, what a person must decide."""
    ledgers = [Ledger(1, [(0, NAMES)], last=9), Ledger(2, [(0, NAMES)], reason="no_key")]
    plan = write_plan(tmp_path / "plan", ledgers, coverage=coverage(NAMES, ["b9"]))
    text, page = page_of(plan)
    assert text.index('id="now"') < text.index('id="picture"')
    assert f"bkmeta apply PLAN --confirm {plan.manifest['hash'][:8]}" in page.text
    assert "1 ledger held: kept, and no client reads them; 1 bookie not scanned" in page.text
    whole = page_of(write_plan(tmp_path / "whole", ledgers[:1], coverage=coverage(NAMES)))[1].text
    assert "nothing that is known" in whole


def test_findings_are_sorted_and_no_list_is_empty(tmp_path: Path) -> None:
    """The gravest first, then by category and id; holds alone make no list of findings."""
    ledgers = [Ledger(1, [(0, ("b1",))], reason="no_key")]
    rows = [
        finding("STALE_UR_MARK", "info", 3),
        finding("NOT_ON_BOOKIES", "critical", 12),
        finding("HELD", "warning", 1),
        finding("NOT_ON_BOOKIES", "critical", 2),
    ]
    plan = write_plan(tmp_path / "plan", ledgers, findings=pa.Table.from_pylist(rows, schema=tables.FINDINGS))
    _, page = page_of(plan)
    listed = page.text[page.text.index("The gravest first.") :]
    assert re.findall(r"^(\d+)(?:NOT_ON|STALE)", listed, re.MULTILINE) == ["2", "12", "3"]
    held = pa.Table.from_pylist(rows[2:3], schema=tables.FINDINGS)
    _, alone = page_of(write_plan(tmp_path / "held", ledgers, findings=held))
    assert "findings" not in alone.ids
    assert "gravest" not in alone.text


def test_entries_of_ledgers_without_an_end_are_counted_on_bookies(tmp_path: Path) -> None:
    """A hold whose last entry is not known counts up to the last that a bookie has."""
    ledgers = [Ledger(1, [(0, ("b1",))], last=None, length=None, state="OPEN", reason="no_key", highest=41)]
    text, _ = page_of(write_plan(tmp_path / "plan", ledgers), [])
    assert "42 entries: held" in text


def test_settings_that_are_no_defaults_are_shown(tmp_path: Path) -> None:
    """With their values and where these came from."""
    _, page = page_of(write_plan(tmp_path / "plan", [Ledger(1, [(0, NAMES)])]))
    shown = page.text[page.text.index("What it was made with") :]
    assert re.search(r"--default-quorum\s*3, 2, 2\s*incident file", shown)
    assert "--tail" not in shown


def test_an_empty_ledger_has_a_grid() -> None:
    """A record that is closed at -1 has no entry to draw, and its page is written all the same."""
    row = {
        "bucket": 1, "scope": 0, "ledger": 7, "last_entry": -1,
        "segments": [{"first": 0, "first_low": 0, "members": ["b1:3181"], "assumed": [False]}],
    }  # fmt: skip
    grid = grid_of(row, None, read_copies([]))
    assert (grid.name, grid.last, [copy.bookie for copy in grid.copies]) == (
        "0:7" if ":" in grid.name else "7",
        -1,
        ["b1:3181"],
    )
