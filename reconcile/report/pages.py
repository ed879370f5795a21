"""Report pages: one HTML file for a plan or for an inventory, without scripts and without a network.

What is counted is streamed; what is shown ledger by ledger is bounded, and says how much it leaves out.
"""

import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import jinja2
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.chosen_settings import list_chosen
from reconcile.findings.categories import SEVERITY_ORDER, TRAITS, Category
from reconcile.findings.refusal_texts import describe_reason
from reconcile.findings.view import FindingView
from reconcile.plan.manifest import read_plan_manifest
from reconcile.plan.plan_glance import MOST_ROWS
from reconcile.plan.views.candidates import list_candidates
from reconcile.plan.views.ledger_lists import LedgerFilter, list_ledgers
from reconcile.plan.views.topics import list_topics_back
from reconcile.report.grids import BACK, WIDTH, LedgerReader, ListSelection, grid_of, read_copies
from reconcile.report.picture import entries_by_outcome, ledgers_by_outcome, stack, strip_of
from reconcile.rules.sides import RIGHT, WORDS, Relation
from reconcile.topics import topics
from reconcile.words import printable, printable_line
from recovery.dataset import REPORT, Dataset
from recovery.errors import DatasetError
from recovery.model import tables
from recovery.model.ids import LedgerId
from recovery.out_folder import write_whole
from recovery.place import DatasetPlace

logger = logging.getLogger(__name__)

FINDINGS_SHOWN: Final = 200
"""Most findings that are listed, without holds."""
UNDECIDED_SHOWN: Final = 100
"""Undecided ledgers that are listed."""
TOPICS_SHOWN: Final = 100
"""Most topics that are listed with their returning ledgers."""
_UNDELETE: Final = "undelete"
"""Option of a plan that `undelete` made."""
CANDIDATES_SHOWN: Final = 100
"""Ledgers that no topic names which are listed."""
NAMES_SHOWN: Final = 400
"""Bookies that are named together."""
VALUES_SHOWN: Final = 20
"""Facts and names of one finding."""

_COUNTED: Final = [*tables.KEY_COLUMNS, "outcome", "reason", "missing", "last_entry", "highest", "grades"]
_LONGEST: Final = 200
"""Most characters of a name: others chose the names of bookies, topics and paths."""
_BINS: Final = 10
_REASONS: Final = {
    "truncated": "the source ends inside a structure",
    "bad_magic": "a file of another kind, or damaged at its start",
    "bad_version": "a version that no known program writes",
    "bad_length": "a length that cannot be",
    "bad_value": "a value that cannot be",
    "zeros": "zeros where a record belongs",
    "empty": "a file of no bytes",
    "dangling": "an index names a place where the entry is not",
    "misplaced": "a file or row is where its id does not belong",
    "missing": "a folder or file is not there",
    "unreadable": "the operating system refused to read",
    "unknown_file": "a file of no known kind",
    "digest": "a digest that does not agree",
    "conflict": "two sources of one bookie contradict each other",
}


@dataclass(frozen=True, slots=True)
class ChartBar:
    """One bar of a chart: its label, its count, and its share of the longest."""

    label: str
    count: int
    share: float


def bars(counted: Mapping[str, int], *, limit: int = 24) -> list[ChartBar]:
    """Return bars, longest first, for a page; the bars beyond the limit are summed up."""
    ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    shown, rest = ordered[:limit], ordered[limit:]
    if rest:
        shown.append((f"{len(rest)} others", sum(count for _, count in rest)))
    top = max((count for _, count in shown), default=1) or 1
    return [ChartBar(label, count, count / top) for label, count in shown]


class _Sizes:
    """Histogram of ledger sizes in entries, by powers of ten."""

    def __init__(self) -> None:
        self._counts = np.zeros(_BINS + 1, np.int64)

    def add(self, entries: pa.ChunkedArray) -> None:
        values = entries.drop_null().to_numpy()
        exponent = np.where(values <= 0, 0, 1 + np.floor(np.log10(np.maximum(values, 1)))).astype(np.int64)
        self._counts += np.bincount(np.minimum(exponent, _BINS), minlength=_BINS + 1)

    def bars(self) -> list[ChartBar]:
        top = int(self._counts.max()) or 1
        last = int(np.flatnonzero(self._counts)[-1]) if self._counts.any() else 0
        labels = ["none", *(f"{10**k:,} to {10 ** (k + 1) - 1:,}" for k in range(_BINS))]
        return [ChartBar(labels[k], int(self._counts[k]), self._counts[k] / top) for k in range(last + 1)]


def _count_into(counter: Counter[str], column: pa.ChunkedArray | pa.Array) -> None:
    for item in pc.value_counts(column).to_pylist():
        counter[str(item["values"])] += item["counts"]


def _damage(inventories: Iterable[Dataset]) -> tuple[Counter[str], int]:
    counted: Counter[str] = Counter()
    hiding = 0
    for inventory in inventories:
        for batch in inventory.batches("damage"):
            _count_into(counted, batch["reason"])
            hiding += pc.sum(batch["hides_entries"]).as_py() or 0
    return Counter({f"{reason}: {_REASONS.get(reason, '')}": n for reason, n in counted.items()}), hiding


def make_environment() -> jinja2.Environment:
    """Return the renderer of the templates: foreign names are escaped."""
    loader = jinja2.FileSystemLoader(Path(__file__).with_name("templates"))
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["number"] = lambda value: f"{value:,}"
    environment.filters["moment"] = _show_moment
    environment.filters["noun"] = _count_plural
    environment.filters["line"] = printable_line
    environment.filters["name"] = _readable
    return environment


def _show_moment(at_ms: int) -> str:
    """Return a time in ms since 1970, in UTC, to the minute."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"


def _count_plural(number: int, plural: str) -> str:
    """Return a number with its noun; the noun is given in the plural."""
    singular = f"{plural.removesuffix('ies')}y" if plural.endswith("ies") else plural.removesuffix("s")
    return f"{number:,} {singular if number == 1 else plural}"


def _readable(text: object) -> str:
    """Return a foreign name in a safe form: escaped, and cut to a length."""
    shown = printable_line(str(text))
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"


def plan_page(plan: Dataset, inventories: Sequence[Dataset], *, verdict: str, made: datetime) -> str:
    """Return the report page of a plan.

    Args:
        plan: it, complete.
        inventories: sources of the plan, for the grids.
        verdict: the line that the command printed.
        made: an aware time, printed.
    """
    grades: dict[str, Counter[str]] = {name: Counter() for name in tables.GRADED}
    sizes = _Sizes()
    selection = ListSelection()
    # Of a large plan only what is counted is read of every ledger, and the rest of those that are shown.
    is_large = plan.rows("reconstruction") > MOST_ROWS
    for batch in plan.batches("reconstruction", _COUNTED if is_large else None):
        restored = batch["grades"].combine_chunks().filter(pc.equal(batch["outcome"], BACK).combine_chunks())
        for name, counter in grades.items():
            _count_into(counter, pc.struct_field(restored, name))
        sizes.add(pc.add(batch["last_entry"], 1))
        selection.add(batch)
    lists = selection.lists()
    if is_large:
        whole = LedgerReader([plan], "reconstruction")
        for kept in lists:
            ledgers = [LedgerId(row["scope"], row["ledger"]) for row in kept.rows]
            kept.rows = [row for ledger in ledgers for row in whole.read(ledger)]
    findings = _list_findings(plan)
    manifest = read_plan_manifest(plan)
    undecided = []
    if manifest.counts.undecided or not is_large:
        undecided = list(itertools.islice(list_ledgers(plan, LedgerFilter(is_undecided=True)), UNDECIDED_SHOWN))
    shown = [LedgerId(row["scope"], row["ledger"]) for kept in lists for row in kept.rows]
    shown += [view.ledger for view in findings if view.ledger is not None]
    named = topics(plan, shown)
    copies = read_copies(inventories)
    damage, hiding = _damage(inventories)
    return (
        make_environment()
        .get_template("plan.html.j2")
        .render(
            verdict=verdict,
            made=made.isoformat(timespec="seconds"),
            manifest=manifest,
            chosen=list_chosen(manifest.settings) if manifest.settings else None,
            counts=manifest.counts,
            coverage=manifest.coverage,
            stacks=[
                stack("ledgers", ledgers_by_outcome(manifest.counts), "each by what the plan does with it"),
                stack("entries", entries_by_outcome(manifest.counts), "of ledgers that the store lacks"),
            ],
            starts=manifest.decide_starts(),
            strip=strip_of(manifest.coverage, inventories),
            lists=lists,
            grids={
                kept.target: [
                    grid_of(row, named.get(LedgerId(row["scope"], row["ledger"])), copies) for row in kept.rows
                ]
                for kept in lists
            },
            in_words=describe_reason,
            grades=[(name, sorted(counter.items(), key=lambda i: -i[1])) for name, counter in grades.items()],
            sides=[
                (name, count, WORDS[Relation(name)], RIGHT[Relation(name)])
                for name, count in sorted(manifest.sides.items(), key=lambda item: -item[1])
            ],
            undecided=undecided,
            categories=_categories(manifest.found),
            findings=findings,
            candidates=list_candidates(plan, CANDIDATES_SHOWN),
            back=list_topics_back(plan, TOPICS_SHOWN, by_records=_UNDELETE in manifest.binding.options),
            topics=named,
            sizes=sizes.bars(),
            damage=bars(damage),
            hiding=hiding,
            width=WIDTH,
            names_shown=NAMES_SHOWN,
            values_shown=VALUES_SHOWN,
        )
    )


def _categories(counted: Mapping[str, int]) -> list[tuple[str, str, int, str, str]]:
    """Return category, severity, count, sentence and remedy, the gravest first, without holds."""
    rows = [
        (str(category), TRAITS[category].severity, counted[category], TRAITS[category].says, TRAITS[category].remedy)
        for category in Category
        if category in counted and category is not Category.HELD
    ]
    return sorted(rows, key=lambda row: (SEVERITY_ORDER.index(row[1]), row[0]))


def _list_findings(plan: Dataset) -> list[FindingView]:
    """Return the gravest findings, in that order; holds are shown with their ledgers.

    Where there are too many of one severity, each category has its share: one cookie that differs must not be lost
    behind thousands of ledgers.
    """
    kept: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for batch in plan.batches("findings"):
        shown = batch.filter(pc.not_equal(batch["category"], str(Category.HELD)))
        for pair in shown.group_by(["severity", "category"]).aggregate([]).to_pylist():
            rows = kept.setdefault((pair["severity"], pair["category"]), [])
            of_category = shown.filter(pc.equal(shown["category"], pair["category"]))
            rows.extend(of_category.slice(0, max(0, FINDINGS_SHOWN - len(rows))).to_pylist())
    listed: list[FindingView] = []
    for severity in SEVERITY_ORDER:
        alike = sorted((rows for (grave, _), rows in kept.items() if grave == severity), key=len)
        for number, rows in enumerate(alike):
            shown = rows[: (FINDINGS_SHOWN - len(listed)) // (len(alike) - number)]
            listed += map(FindingView.from_row, shown)
    listed.sort(key=_gravity)
    return listed


def _gravity(view: FindingView) -> tuple[int, str, bool, tuple[int, int], str]:
    place = (0, 0) if view.ledger is None else view.ledger.unsigned_key
    return SEVERITY_ORDER.index(view.severity), view.category, view.ledger is not None, place, view.subject


def inventory_page(inventory: Dataset, *, verdict: str, made: datetime, notes: Sequence[str] = ()) -> str:
    """Return the report page of one bookie's inventory; notes: further messages of its collection."""
    sizes = _Sizes()
    sources: Counter[str] = Counter()
    keys: Counter[str] = Counter()
    for batch in inventory.batches("copies", ["part", "entries", "source", "key_kind"]):
        whole = batch.filter(pc.equal(batch["part"], 0))
        sizes.add(whole["entries"])
        _count_into(sources, whole["source"])
        _count_into(keys, whole["key_kind"])
    damage, hiding = _damage([inventory])
    (bookie,) = inventory.read("bookies").drop_columns(["cookie"]).to_pylist()
    return (
        make_environment()
        .get_template("inventory.html.j2")
        .render(
            verdict=verdict,
            notes=notes,
            made=made.isoformat(timespec="seconds"),
            bookie=bookie,
            chosen=list_chosen(inventory.manifest["settings"]) if "settings" in inventory.manifest else None,
            sizes=sizes.bars(),
            sources=bars(sources),
            keys=bars(keys),
            damage=bars(damage),
            hiding=hiding,
        )
    )


def write_page(folder: DatasetPlace, page: Callable[[], str]) -> None:
    """Write the report page of a dataset beside it; an error of the disk is logged, and costs only the page.

    Args:
        folder: the dataset's.
        page: makes the page.
    """
    text = printable(page())
    try:
        # A plan's page has no passwords, but it names ledgers and their sizes: its owner's business.
        with write_whole(folder / REPORT, secret=True) as file:
            file.sink.write(text.encode())
    except DatasetError as error:
        logger.warning("%s %s; the dataset beside it is whole", error.path, error.problem)
