"""The page of one bookie: how its ledgers stand, and the grids of those of which only it has entries."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from reconcile.compare.single_ledger import read_only_ledger
from reconcile.report.grids import WIDTH, Grid, grid_of
from reconcile.report.pages import make_environment
from recovery.dataset import Dataset
from recovery.model.ids import LedgerId

if TYPE_CHECKING:
    from reconcile.jobs.diagnose.explain_bookie import BookieSides

WORDS = {
    "named": "records name it",
    "held": "it holds entries",
    "only": "it alone has entries",
    "lacking": "closed, and it has fewer entries than are asked of it",
    "strays": "it holds entries, and no segment names it",
    "unlisted": "it holds entries, and the store has no record",
}
"""What the ledgers of each list are."""


def bookie_page(sides: "BookieSides", catalog: Dataset, inventories: Sequence[Dataset], *, made: datetime) -> str:
    """Return the page.

    Args:
        sides: what there is of the bookie.
        catalog: the store.
        inventories: of all bookies that were collected.
        made: an aware time, printed.
    """
    lists = [(name, WORDS[name], sides.ledgers[name], sides.first[name]) for name in WORDS]
    drawn = list(dict.fromkeys(ledger for name in ("only", "lacking", "strays") for ledger in sides.first[name]))
    page: str = (
        make_environment()
        .get_template("bookie.html.j2")
        .render(
            sides=sides,
            made=made.isoformat(timespec="seconds"),
            lists=lists,
            grids=[draw_ledger(ledger, catalog, inventories) for ledger in drawn],
            width=WIDTH,
        )
    )
    return page


def draw_ledger(ledger: LedgerId, catalog: Dataset, inventories: Sequence[Dataset]) -> Grid:
    """Return the grid of a ledger by the store's record; where there is none, of what bookies hold."""
    rows = read_only_ledger(catalog, "ledgers", ledger).to_pylist()
    blank = {"bucket": ledger.bucket, "scope": ledger.scope, "ledger": ledger.ledger}
    row = {"state": None, "segments": None, "last_entry": None, **blank, **(rows[0] if rows else {})}
    return grid_of(row, None, inventories)
