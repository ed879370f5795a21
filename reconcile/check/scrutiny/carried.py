"""Findings of the run before that this run lacks: did it search for them again? Only then are they resolved.

    finding                                              was searched for where
    what copies show of a ledger                         the ledger was judged: not marked, guarded, open or undecided
    entries on bookies that no record names for them     these bookies were seen, too
    an explicit LAC above the end                        there are inventories of these bookies, or the end is not
                                                         below it any longer
    what no bookie has                                   the ledger is clean now, or every bookie was seen
    placement                                            bookies have locations, and the ledger is not marked
    a mark that is overdue                               the ledger is not marked
    what only the run before could show: a record that   the record is another one
    went back, an id with two ledgers
    a recovery that stands still                         the record is another one
    what inventories show of bookies                     there are inventories of these bookies
    a silent bookie                                      it was asked, or is not registered any longer
    what references say                                  the same references are given
    records that vanished                                never: a person suppresses it

A finding that was not searched for stays, with the reason. A ledger that is gone has none. A run that carries findings
on, and two runs that are compared later, ask the same function.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings.categories import Category
from reconcile.rules.entries_beyond_end import LARGEST_LAC
from recovery.dataset import Dataset
from recovery.model import tables
from recovery.model.ids import LedgerId

_COPIES: Final = frozenset(
    {
        Category.BELOW_ACK_QUORUM,
        Category.BELOW_WRITE_QUORUM,
        Category.ENTRIES_BEYOND_LAST_ENTRY,
        Category.ENTRIES_MISPLACED,
        Category.ENTRY_LOST,
        Category.LAC_BEYOND_LAST_ENTRY,
        Category.NOT_ON_BOOKIES,
        Category.OVER_REPLICATED,
        Category.QUORUM_DIFFERS,
        Category.RETURNED_WRITER,
    }
)
_OF_STRAYS: Final = frozenset(
    {
        Category.ENTRIES_BEYOND_LAST_ENTRY,
        Category.OVER_REPLICATED,
        Category.RETURNED_WRITER,
    }
)
_OF_NONE: Final = frozenset({Category.ENTRY_LOST, Category.NOT_ON_BOOKIES})
_PLACEMENT: Final = frozenset({Category.PLACEMENT_VIOLATED, Category.PLACEMENT_SOFT})
_MARKS: Final = frozenset({Category.UNDER_REPLICATED_OVERDUE, Category.OPEN_FRAGMENT_PENDING})
_OF_RECORD: Final = frozenset({Category.STORE_WENT_BACK, Category.ID_REUSE, Category.RECOVERY_STUCK})
_REFERENCES: Final = frozenset(
    {
        Category.REFERENCE_DIFFERS,
        Category.REFERENCE_NOT_FOUND,
        Category.REFERENCE_UNREADABLE,
        Category.DELETED_BY_OWNER,
    }
)
_INVENTORIES: Final = frozenset({Category.DATA_WITHOUT_RECORD, Category.LEDGER_IN_LIMBO, Category.SUSPECT_DISK})
_OF_DISKS: Final = frozenset({Category.COOKIE_DIFFERS, Category.BOOKIE_WITHOUT_COOKIE, Category.INSTANCE_ID_DIFFERS})
"""Where bookies' own disks are one of the sides."""
_NOT_JUDGED: Final = frozenset({"marked", "guarded", "open", "quarantined"})
FIELD: Final = "not looked for in this run"
SOUGHT: Final = "sought"
REFERENCES: Final = "references"
"""Keys of a run's manifest: what it checked, and the sources of references that it was given."""
LedgerKey = tuple[int, int]
"""Scope and ledger."""


@dataclass(frozen=True, slots=True)
class Sought:
    """What this run checked.

    Attributes:
        has_places: bookies had locations.
        references: it had at least the references of the run before.
        given: bookies with inventories.
        seen: bookies that answered or have inventories.
        asked: bookies that were asked.
        registered: bookies that are registered.
        everywhere: every bookie was seen.
        compares: entries of bookies that were replaced were compared.
    """

    has_places: bool
    references: bool
    given: frozenset[str]
    seen: frozenset[str]
    asked: frozenset[str]
    registered: frozenset[str]
    everywhere: bool
    compares: bool

    def to_json(self) -> dict[str, Any]:
        """Return what a run's manifest keeps; it has the references already."""
        return {
            "has_places": self.has_places,
            **{name: sorted(getattr(self, name)) for name in ("given", "seen", "asked", "registered")},
            "everywhere": self.everywhere,
            "compares": self.compares,
        }

    @classmethod
    def read(cls, run: Dataset, earlier: Dataset) -> "Sought":
        """Return what a run checked, among what an earlier one did; a run without a note counts as blind."""
        kept = run.manifest.get(SOUGHT, {})
        given, seen, asked, registered = (frozenset(kept.get(n, ())) for n in ("given", "seen", "asked", "registered"))
        return cls(
            kept.get("has_places", False),
            set(earlier.manifest.get(REFERENCES, ())) <= set(run.manifest.get(REFERENCES, ())),
            given,
            seen,
            asked,
            registered,
            kept.get("everywhere", False),
            kept.get("compares", False),
        )


@dataclass(frozen=True, slots=True)
class LedgerNow:
    """The outcome of a ledger in this run.

    Attributes:
        verdict: clean, skipped, undecided or a category.
        reason: why it is skipped or undecided.
        same_record: its record is the one that the run before saw; None: a capture of the store is not there.
        marked: it is marked as under-replicated.
        last_entry: of its record; None: it has none, or a capture of the store is not there.
    """

    verdict: str
    reason: str | None
    same_record: bool | None
    marked: bool
    last_entry: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LaterRun:
    """A run that findings of an earlier one are absent from.

    Attributes:
        run: the run, with its findings and verdicts.
        stores: as the earlier run captured the store, and as this one did; None: the capture is not there.
        marks: of `MARKS` of `replication`, as this run's capture has them.
        sought: what the run checked.
        share: buckets of the run.
    """

    run: Dataset
    stores: tuple[Dataset | None, Dataset | None]
    marks: pa.Table
    sought: Sought
    share: range

    def find_ledgers(self, findings: Iterable[Mapping[str, Any]]) -> dict[LedgerKey, LedgerNow]:
        """Return the outcomes of the ledgers of some findings, without ledgers that left the store."""
        named = {(row["scope"], row["ledger"]) for row in findings if row["ledger"] is not None}
        had, has = (None if store is None else _read_versions(store, named) for store in self.stores)
        marks = self.marks.filter(pc.is_in(self.marks["ledger"], value_set=_list_numbers(named)))
        marked = set(zip(marks["scope"].to_pylist(), marks["ledger"].to_pylist(), strict=True))
        ledgers: dict[LedgerKey, LedgerNow] = {}
        for row in select_rows(self.run, "verdicts", named, ["verdict", "reason"]):
            key = row["scope"], row["ledger"]
            now = None if has is None else has.get(key)
            same_record = None if had is None or has is None else key in had and now == had[key]
            is_marked = key in marked or row["reason"] == "marked"
            end = None if now is None else now[-1]
            ledgers[key] = LedgerNow(row["verdict"], row["reason"], same_record, is_marked, end)
        return ledgers


def select_rows(
    dataset: Dataset, name: str, ledgers: Collection[LedgerKey], columns: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of some ledgers of one of a dataset's tables."""
    if not ledgers:
        return
    numbers = [LedgerId(*key).bucket for key in ledgers]
    span = range(min(numbers), max(numbers) + 1)
    rows = dataset.read(name, buckets=span, columns=[*tables.KEY_COLUMNS, *columns])
    for row in rows.filter(pc.is_in(rows["ledger"], value_set=_list_numbers(ledgers))).to_pylist():
        if (row["scope"], row["ledger"]) in ledgers:
            yield row


def _list_numbers(ledgers: Collection[LedgerKey]) -> pa.Array:
    return pa.array(sorted({ledger for _, ledger in ledgers}), pa.int64())


def _read_versions(store: Dataset, ledgers: Collection[LedgerKey]) -> dict[LedgerKey, tuple[Any, ...]]:
    """Return columns that identify the version of each record; the last column has the last entries."""
    rows = select_rows(store, "ledgers", ledgers, ["version", "changed_txn", "last_entry"])
    return {(row["scope"], row["ledger"]): (row["version"], row["changed_txn"], row["last_entry"]) for row in rows}


def explain_not_sought(row: Mapping[str, Any], ledger: LedgerNow | None, sought: Sought) -> str | None:
    """Return why an absent finding was not searched for; None: it was, and is resolved.

    Args:
        row: of FINDINGS, of the run before.
        ledger: outcome of its ledger; None: it has no ledger, or the store no longer has it.
        sought: by this run.
    """
    category, bookies = Category(row["category"]), frozenset(row["bookies"])
    if category in _REFERENCES:
        return None if sought.references else "without the same references"
    if category in _INVENTORIES:
        return None if bookies <= sought.given else "without an inventory of the bookie"
    if row["ledger"] is None:
        return _explain_of_cluster(category, row, sought)
    if category is Category.ENTRIES_OF_DELETED_LEDGER:
        return None if bookies <= sought.seen else "a bookie was not seen"
    if ledger is None:
        return None
    if category is Category.LAC_BEYOND_LAST_ENTRY and ledger.last_entry is not None:
        lac = next(item["value"] for item in row["evidence"] if item["field"] == LARGEST_LAC)
        if ledger.last_entry >= int(lac):
            return None
    return _explain_of_ledger(category, bookies, ledger, sought)


def _explain_of_ledger(category: Category, bookies: frozenset[str], ledger: LedgerNow, sought: Sought) -> str | None:
    passed = ledger.reason if ledger.verdict == "skipped" and ledger.reason in _NOT_JUDGED else None
    if category in _OF_RECORD:
        if ledger.same_record is None:
            return "no capture shows whether the record changed"
        return "the record is the same" if ledger.same_record else None
    if category in _MARKS:
        return "still marked" if ledger.marked else None
    if category in _PLACEMENT:
        return "without a topology" if not sought.has_places else "marked" if ledger.marked else None
    if category not in _COPIES:
        return None
    if passed is not None or ledger.marked:
        return passed or "marked"
    if ledger.verdict == "undecided":
        return "undecided"
    if category is Category.RETURNED_WRITER and not sought.compares:
        return "no entries were compared"
    if category is Category.LAC_BEYOND_LAST_ENTRY and not bookies <= sought.given:
        return "without an inventory of the bookie"
    if category in _OF_NONE and ledger.verdict != "clean" and not sought.everywhere:
        return "a bookie was not seen"
    if category in _OF_STRAYS and not bookies <= sought.seen:
        return "a bookie was not seen"
    return None


def _explain_of_cluster(category: Category, row: Mapping[str, Any], sought: Sought) -> str | None:
    bookies = frozenset(row["bookies"])
    if category is Category.BOOKIE_SILENT:
        return None if bookies <= sought.asked | sought.given or not bookies & sought.registered else "not asked"
    if category in _OF_DISKS and any(item["side"] == "bookies" for item in row["evidence"]):
        is_there = bookies <= sought.given if bookies else bool(sought.given)
        return None if is_there else "without an inventory of the bookie"
    if category is Category.LISTING_INCOMPLETE and any(item["side"] == "earlier" for item in row["evidence"]):
        return "only one run can see it"
    return None
