"""The page of one bookie: the state of its ledgers, and the grids of ledgers with entries on this bookie alone."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from reconcile.report.grids import WIDTH, draw_ledger
from reconcile.report.pages import make_environment
from recovery.dataset import Dataset

if TYPE_CHECKING:
    from reconcile.explain.bookie import BookieSides

WORDS = {
    "named": "records name it",
    "held": "it holds entries",
    "only": "it alone has entries",
    "lacking": "closed, and it has fewer entries than are asked of it",
    "strays": "it holds entries, and no segment names it",
    "unlisted": "it holds entries, and the store has no record",
}
"""The descriptions of the lists of ledgers."""


def bookie_page(sides: "BookieSides", catalog: Dataset, inventories: Sequence[Dataset], *, made: datetime) -> str:
    """Return the page.

    Args:
        sides: the bookie from every side.
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
