"""A finding as people read it: what is wrong, what each side says, and what to do with the ids filled in."""

from datetime import UTC, datetime

import pytest

from reconcile.findings.categories import TRAITS, Category
from reconcile.findings.table import Finding, FindingRun, FindingStatement, LedgerKey, make_rows
from reconcile.findings.view import FindingView

AT = datetime(2026, 11, 27, 6, tzinfo=UTC)
RUN = FindingRun("r", AT)
LEDGER = LedgerKey(7, 0, 5)


def view_of(finding: Finding) -> FindingView:
    """Return what is shown of a finding."""
    [row] = make_rows([finding], RUN).to_pylist()
    return FindingView.from_row(row)


def test_a_ledger_with_its_bookie() -> None:
    """Its command can be run as it stands; a side that says nothing is left out of the line."""
    statements = [FindingStatement("store", "last entry", 9, "zk"), FindingStatement("bookies", "entries", "")]
    finding = Finding(
        Category.BELOW_ACK_QUORUM, "copies", statements, LEDGER, bookies=["b1:3181"], unknowns=["b2:3181"]
    )
    view = view_of(finding)
    assert view.about == "ledger 5"
    assert view.remedy == "replicate it before another bookie fails: bookkeeper shell recover -l 5 b1:3181"
    says = TRAITS[Category.BELOW_ACK_QUORUM].says
    assert view.line == f"critical BELOW_ACK_QUORUM ledger 5: {says} store last entry: 9; not known: b2:3181"
    assert view.lines == (view.line, f"  what to do: {view.remedy}")


def test_several_bookies_leave_their_place() -> None:
    """Which of them is replicated from is not for the sentence to choose."""
    finding = Finding(Category.BELOW_ACK_QUORUM, "copies", [], LEDGER, bookies=["b1:3181", "b2:3181"])
    assert view_of(finding).remedy.endswith("-l 5 BOOKIE")


def test_a_node() -> None:
    """Of no ledger: it is about its path, and what its rule suggests stands before what its category does."""
    view = view_of(Finding(Category.GENERATOR_BEHIND, "/idgen", [], suggested="the plan raises it"))
    assert (view.about, view.remedy, view.ledger) == ("/idgen", "the plan raises it", None)
    assert view.to_json() | {"says": ""} == {
        "category": "GENERATOR_BEHIND",
        "severity": "critical",
        "ledger": None,
        "about": "/idgen",
        "says": "",
        "evidence": {},
        "bookies": [],
        "suggested": "the plan raises it",
        "first_seen": "2026-11-27T06:00:00+00:00",
    }


@pytest.mark.parametrize("category", Category)
def test_each_category_says_what_is_wrong_and_what_to_do(category: Category) -> None:
    """In a sentence of its own."""
    traits = TRAITS[category]
    assert traits.says[0].isupper()
    assert traits.says.endswith(".")
    assert traits.remedy
