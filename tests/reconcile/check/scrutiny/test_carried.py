"""What a run did not look for is not resolved: each finding by what it needs."""

from dataclasses import replace
from typing import Any

import pytest

from reconcile.check.scrutiny.carried import LedgerNow, Sought, explain_not_sought
from recovery.dataset import Dataset
from tests.support.findings import finding

ALL = frozenset(["bk1", "bk2"])
SOUGHT = Sought(
    has_places=True, references=True, given=ALL, seen=ALL, asked=ALL, registered=ALL, everywhere=True, compares=True
)
CLEAN = LedgerNow("clean", None, same_record=False, marked=False)
OTHER = replace(CLEAN, verdict="ONE_COPY")
ALONE = replace(SOUGHT, given=frozenset(), seen=frozenset(["bk1"]), asked=frozenset(["bk1"]), everywhere=False)
VERSION = [{"side": "bookies", "field": "cookie", "value": "x", "source": "VERSION"}]
EARLIER = [{"side": "earlier", "field": "gone", "value": "9 of 10", "source": "recover"}]


@pytest.mark.parametrize(
    ("category", "now", "sought", "why"),
    [
        ("BELOW_ACK_QUORUM", CLEAN, ALONE, None),
        ("BELOW_ACK_QUORUM", replace(CLEAN, verdict="skipped", reason="marked", marked=True), SOUGHT, "marked"),
        ("BELOW_ACK_QUORUM", replace(CLEAN, verdict="UNDER_REPLICATED_OVERDUE", marked=True), SOUGHT, "marked"),
        ("BELOW_WRITE_QUORUM", replace(CLEAN, verdict="skipped", reason="guarded"), SOUGHT, "guarded"),
        ("BELOW_WRITE_QUORUM", replace(CLEAN, verdict="skipped", reason="empty"), SOUGHT, None),
        ("BELOW_WRITE_QUORUM", replace(CLEAN, verdict="undecided", reason="no answer"), SOUGHT, "undecided"),
        ("BELOW_WRITE_QUORUM", None, SOUGHT, None),
        ("ENTRY_LOST", OTHER, ALONE, "a bookie was not seen"),
        ("ENTRY_LOST", CLEAN, ALONE, None),
        ("ENTRY_LOST", OTHER, SOUGHT, None),
        ("RETURNED_WRITER", CLEAN, ALONE, "a bookie was not seen"),
        ("RETURNED_WRITER", CLEAN, SOUGHT, None),
        ("RETURNED_WRITER", CLEAN, replace(SOUGHT, compares=False), "no entries were compared"),
        ("LAC_BEYOND_LAST_ENTRY", CLEAN, replace(SOUGHT, given=frozenset()), "without an inventory of the bookie"),
        ("LAC_BEYOND_LAST_ENTRY", CLEAN, SOUGHT, None),
        ("LAC_BEYOND_LAST_ENTRY", replace(CLEAN, last_entry=5), ALONE, "without an inventory of the bookie"),
        ("LAC_BEYOND_LAST_ENTRY", replace(CLEAN, last_entry=6, verdict="undecided"), ALONE, None),
        ("PLACEMENT_VIOLATED", CLEAN, replace(SOUGHT, has_places=False), "without a topology"),
        ("PLACEMENT_VIOLATED", replace(CLEAN, marked=True), SOUGHT, "marked"),
        ("PLACEMENT_VIOLATED", CLEAN, SOUGHT, None),
        ("UNDER_REPLICATED_OVERDUE", replace(CLEAN, marked=True), SOUGHT, "still marked"),
        ("UNDER_REPLICATED_OVERDUE", CLEAN, SOUGHT, None),
        ("STORE_WENT_BACK", replace(CLEAN, same_record=True), SOUGHT, "the record is the same"),
        ("STORE_WENT_BACK", CLEAN, SOUGHT, None),
        ("ID_REUSE", replace(CLEAN, same_record=None), SOUGHT, "no capture shows whether the record changed"),
        ("REFERENCE_DIFFERS", CLEAN, replace(SOUGHT, references=False), "without the same references"),
        ("REFERENCE_DIFFERS", CLEAN, SOUGHT, None),
        ("DATA_WITHOUT_RECORD", None, ALONE, "without an inventory of the bookie"),
        ("DATA_WITHOUT_RECORD", None, SOUGHT, None),
        ("ENTRIES_OF_DELETED_LEDGER", None, ALONE, "a bookie was not seen"),
        ("ONE_COPY", CLEAN, ALONE, None),
    ],
)
def test_a_ledgers_finding_is_resolved_only_where_it_was_looked_for(
    category: str, now: LedgerNow | None, sought: Sought, why: str | None
) -> None:
    """By what became of the ledger, its record, its mark, and who was seen; it names both bookies."""
    lac = [{"side": "bookies", "field": "largest explicit LAC", "value": "6", "source": ""}]
    row = finding(category, "warning", 7, bookies=sorted(ALL), evidence=lac)
    assert explain_not_sought(row, now, sought) == why


@pytest.mark.parametrize(
    ("category", "sought", "more", "why"),
    [
        ("BOOKIE_SILENT", ALONE, {}, "not asked"),
        ("BOOKIE_SILENT", replace(ALONE, registered=frozenset()), {}, None),
        ("BOOKIE_SILENT", SOUGHT, {}, None),
        ("SUSPECT_DISK", ALONE, {}, "without an inventory of the bookie"),
        ("COOKIE_DIFFERS", ALONE, {"evidence": VERSION}, "without an inventory of the bookie"),
        ("COOKIE_DIFFERS", SOUGHT, {"evidence": VERSION}, None),
        ("INSTANCE_ID_DIFFERS", ALONE, {"evidence": VERSION, "bookies": []}, "without an inventory of the bookie"),
        ("INSTANCE_ID_DIFFERS", ALONE, {"evidence": [], "bookies": []}, None),
        ("LISTING_INCOMPLETE", SOUGHT, {"evidence": EARLIER}, "only one run can see it"),
        ("LISTING_INCOMPLETE", SOUGHT, {"evidence": []}, None),
        ("AUDITOR_UNAWARE", ALONE, {}, None),
    ],
)
def test_a_finding_of_the_cluster_is_resolved_only_where_it_was_looked_for(
    category: str, sought: Sought, more: dict[str, Any], why: str | None
) -> None:
    """By who was asked, and whose disks were read."""
    row = finding(category, "warning", None, **{"bookies": ["bk2"], "evidence": [], **more})
    assert explain_not_sought(row, None, sought) == why


@pytest.mark.parametrize("sought", [SOUGHT, replace(ALONE, has_places=False, compares=False)])
def test_what_a_run_looked_at_is_kept_for_whoever_compares_it(sought: Sought) -> None:
    """The references of both runs stand in their manifests; a run of before that kept none of it was blind."""
    kept = {"references": ["topics"], "sought": sought.to_json()}
    later, earlier, other = (
        Dataset("run", {"kind": "scrutiny", "tables": {}, **more})
        for more in (kept, {"references": ["topics"]}, {"references": ["topics", "functions"]})
    )
    assert Sought.read(later, earlier) == replace(sought, references=True)
    assert Sought.read(later, other) == replace(sought, references=False)
    blind = Sought.read(earlier, later)
    assert (blind.seen | blind.asked | blind.given, blind.everywhere, blind.has_places) == (frozenset(), False, False)
