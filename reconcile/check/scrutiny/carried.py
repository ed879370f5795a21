"""Findings of the run before that this run lacks: were they looked for again? Only then are they resolved.

    finding                                              was looked for where
    what copies show of a ledger                         the ledger was judged: not marked, guarded, open or undecided
    entries on bookies that no record names for them     these bookies were seen, too
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

What was not looked for stays a finding, with the reason. A ledger that is gone has none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from reconcile.findings.categories import Category

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
        Category.LAC_BEYOND_LAST_ENTRY,
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
_NOT_JUDGED: Final = frozenset({"marked", "guarded", "open"})
FIELD: Final = "not looked for in this run"


@dataclass(frozen=True, slots=True)
class Sought:
    """What this run looked at.

    Attributes:
        has_places: bookies have locations.
        references: are those of the run before, at least.
        given: bookies with inventories.
        seen: bookies that answered, and those with inventories.
        asked: bookies that were asked.
        registered: bookies that are registered.
        everywhere: every bookie was seen.
    """

    has_places: bool
    references: bool
    given: frozenset[str]
    seen: frozenset[str]
    asked: frozenset[str]
    registered: frozenset[str]
    everywhere: bool


@dataclass(frozen=True, slots=True)
class LedgerNow:
    """What became of a ledger in this run.

    Attributes:
        verdict: clean, skipped, undecided or a category.
        reason: why it is skipped or undecided.
        same_record: its record is the one that the run before saw.
        marked: it is marked as under-replicated.
    """

    verdict: str
    reason: str | None
    same_record: bool
    marked: bool


def explain_not_sought(row: Mapping[str, Any], ledger: LedgerNow | None, sought: Sought) -> str | None:
    """Return why a finding that is absent was not looked for; None: it was, and is resolved.

    Args:
        row: of FINDINGS, of the run before.
        ledger: of it; None: it is of no ledger, or the store no longer has it.
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
    return None if ledger is None else _explain_of_ledger(category, bookies, ledger, sought)


def _explain_of_ledger(category: Category, bookies: frozenset[str], ledger: LedgerNow, sought: Sought) -> str | None:
    passed = ledger.reason if ledger.verdict == "skipped" and ledger.reason in _NOT_JUDGED else None
    if category in _OF_RECORD:
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
