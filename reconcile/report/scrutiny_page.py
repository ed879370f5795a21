"""The page of a scrutiny: its sums and how they went, findings by category and by bookie, grids of ledgers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.check.scrutiny.coverage import describe_not_judged, find_covered_pct
from reconcile.findings.categories import SEVERITY_ORDER, TRAITS, Category
from reconcile.findings.view import FindingView
from reconcile.report.grids import WIDTH, draw_ledger
from reconcile.report.pages import make_environment
from reconcile.report.trend import HEIGHT, TrendPoint, draw_trend
from reconcile.report.trend import WIDTH as TREND_WIDTH
from recovery.dataset import Dataset
from recovery.model.ids import LedgerId

FINDINGS_SHOWN: Final = 30
"""Findings of a category that are shown."""
BOOKIES_SHOWN: Final = 60
LEDGERS_SHOWN: Final = 5
"""Ledgers of a bookie that are named."""
GRIDS_SHOWN: Final = 30
"""Ledgers with a grid: each costs the reading of a bucket of every inventory."""


@dataclass(slots=True)
class CategoryRow:
    """A category: its sentence, its remedy, its counts by severity, its first findings."""

    name: str
    says: str
    remedy: str
    severities: Counter[str] = field(default_factory=Counter)
    suppressed: int = 0
    shown: list[FindingView] = field(default_factory=list)

    @property
    def gravity(self) -> int:
        """Of its gravest finding."""
        return min(SEVERITY_ORDER.index(severity) for severity in self.severities)

    @property
    def severity(self) -> str:
        """Of its gravest finding."""
        return SEVERITY_ORDER[self.gravity]


@dataclass(slots=True)
class BookieFindings:
    """A bookie that findings name: how many of each category, and the first ledgers."""

    name: str
    categories: Counter[str] = field(default_factory=Counter)
    ledgers: list[LedgerId] = field(default_factory=list)


def scrutiny_page(
    run: Dataset,
    catalog: Dataset,
    inventories: Sequence[Dataset],
    *,
    made: datetime,
    is_covered: bool,
) -> str:
    """Return the page.

    Args:
        run: the scrutiny, whole.
        catalog: the store as it was captured.
        inventories: given ones, and ones made by asking.
        made: an aware time, printed.
        is_covered: enough copies were judged for the statement that all agree.
    """
    categories: dict[str, CategoryRow] = {}
    bookies: dict[str, BookieFindings] = {}
    for batch in run.batches("findings"):
        _count_categories(batch, categories)
        _count_bookies(batch, bookies)
    ordered = sorted(categories.values(), key=lambda row: (row.gravity, row.name))
    named = sorted(bookies.values(), key=lambda row: (-row.categories.total(), row.name))
    drawn = list(
        dict.fromkeys(finding.ledger for row in ordered for finding in row.shown if finding.ledger is not None)
    )[:GRIDS_SHOWN]
    trend = [TrendPoint(**point) for point in run.manifest.get("trend", [])]
    result = run.manifest["result"]
    severe = sum(result["by_severity"].get(severity, 0) for severity in ("critical", "warning"))
    page: str = (
        make_environment()
        .get_template("scrutiny.html.j2")
        .render(
            result=result,
            adds_up=run.manifest["adds_up"],
            made=made.isoformat(timespec="seconds"),
            is_covered=is_covered,
            covered=find_covered_pct(result["coverage"]),
            not_judged=describe_not_judged(result["coverage"]),
            lighter=severe - result["failing"],
            categories=ordered,
            bookies=named[:BOOKIES_SHOWN],
            hidden_bookies=max(0, len(named) - BOOKIES_SHOWN),
            grids=[draw_ledger(ledger, catalog, inventories) for ledger in drawn],
            drawn=set(drawn),
            trend=trend,
            bars=draw_trend(trend),
            trend_width=TREND_WIDTH,
            trend_height=HEIGHT,
            most=max((point.failing or 0 for point in trend), default=0),
            width=WIDTH,
        )
    )
    return page


def _count_categories(batch: pa.Table, categories: dict[str, CategoryRow]) -> None:
    for pair in batch.group_by(["category", "severity"]).aggregate([([], "count_all")]).to_pylist():
        name = pair["category"]
        traits = TRAITS[Category(name)]
        row = categories.setdefault(name, CategoryRow(name, traits.says, traits.remedy))
        row.severities[pair["severity"]] += pair["count_all"]
        chosen = batch.filter(pc.equal(batch["category"], name))
        if len(row.shown) < FINDINGS_SHOWN and pair["severity"] == chosen["severity"][0].as_py():
            first = chosen.slice(0, FINDINGS_SHOWN - len(row.shown)).to_pylist()
            row.shown += [FindingView.from_row(finding) for finding in first]
    for name in pc.unique(batch["category"]).to_pylist():
        chosen = batch.filter(pc.equal(batch["category"], name))
        categories[name].suppressed += pc.sum(pc.equal(chosen["status"], "suppressed")).as_py() or 0


def _count_bookies(batch: pa.Table, bookies: dict[str, BookieFindings]) -> None:
    names = pc.list_flatten(batch["bookies"])
    row_of = pc.list_parent_indices(batch["bookies"])
    pairs = pa.table({"bookie": names, "category": batch["category"].take(row_of)})
    for pair in pairs.group_by(["bookie", "category"]).aggregate([([], "count_all")]).to_pylist():
        row = bookies.setdefault(pair["bookie"], BookieFindings(pair["bookie"]))
        row.categories[pair["category"]] += pair["count_all"]
    for name in pc.unique(names).to_pylist():
        row = bookies[name]
        if len(row.ledgers) < LEDGERS_SHOWN:
            chosen = batch.select(["scope", "ledger"]).take(row_of.filter(pc.equal(names, name)))
            first = chosen.filter(pc.is_valid(chosen["ledger"])).slice(0, LEDGERS_SHOWN).to_pylist()
            row.ledgers += [LedgerId(finding["scope"], finding["ledger"]) for finding in first]
            del row.ledgers[LEDGERS_SHOWN:]
