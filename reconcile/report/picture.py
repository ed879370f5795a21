"""The picture at the head of a plan's page: outcomes of ledgers and entries, and how well bookies were scanned."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from reconcile.plan.entry_shares import SHARES
from reconcile.plan.manifest import PlanCounts
from recovery.dataset import Dataset
from recovery.model.coverage import Coverage

BOOKIES_DRAWN: Final = 240
"""Tiles of the strip; more cannot be distinguished. The gravest are drawn first."""
BOOKIES_NAMED: Final = 24
"""Tiles with a visible name: all if bookies are few, else the incomplete ones; other tiles show their mark."""


@dataclass(frozen=True, slots=True)
class OutcomeColour:
    """One colour of the stacked bars.

    Attributes:
        name: stored name, also of its colour in the style sheet.
        words: for people.
        target: the heading on the page that lists its ledgers.
    """

    name: str
    words: str
    target: str


OUTCOMES: Final = (
    OutcomeColour("restored", "come back", "back"),
    OutcomeColour("guarded", "guarded: readable, every copy kept, to be settled", "reasons"),
    OutcomeColour("held", "held: kept, and not readable yet", "reasons"),
    OutcomeColour("waiting", "wait for a person", "reasons"),
    OutcomeColour("deleted", "deleted on purpose, not brought back", "reasons"),
    OutcomeColour("accepted_loss", "a loss that a person accepted", "reasons"),
    OutcomeColour("in_store", "in the store already: the plan leaves them as they are", "back"),
    OutcomeColour("lost", "on no bookie", "findings"),
)


@dataclass(frozen=True, slots=True)
class Share:
    """One outcome's part of a stacked bar; `percent` of the whole bar."""

    outcome: OutcomeColour
    count: int
    percent: float


@dataclass(frozen=True, slots=True)
class StackedBar:
    """A total, divided by outcome."""

    what: str
    total: int
    shares: Sequence[Share]
    note: str = ""


@dataclass(frozen=True, slots=True)
class SightState:
    """How well bookies were scanned, with a mark that is clear without its colour."""

    name: str
    mark: str
    words: str


GONE: Final = SightState("gone", "✕", "not looked at")
DAMAGED: Final = SightState("damaged", "!", "damage was met on its disks")
INCOMPLETE: Final = SightState("incomplete", "◐", "not read completely")
COMPLETE: Final = SightState("complete", "✓", "read completely, no damage")
STATES: Final = (GONE, INCOMPLETE, DAMAGED, COMPLETE)
"""The gravest first; a bookie that was not read completely is not complete for its damage either."""


@dataclass(frozen=True, slots=True)
class Tile:
    """One bookie of the strip; `has_name`: its name is in sight."""

    bookie: str
    state: SightState
    ledgers: int | None
    entries: int | None
    damaged: int | None
    has_name: bool = True


@dataclass(frozen=True, slots=True)
class Strip:
    """The bookies, the gravest first.

    Attributes:
        tiles: as many as are drawn.
        counts: state and how many, of all.
        hidden: bookies that are not drawn.
    """

    tiles: Sequence[Tile]
    counts: Sequence[tuple[SightState, int]]
    hidden: int


def stack(what: str, counts: Mapping[str, int], note: str = "") -> StackedBar:
    """Return a stacked bar of counts by outcome."""
    total = sum(counts.values())
    shares = [
        Share(outcome, counts[outcome.name], 100 * counts[outcome.name] / total)
        for outcome in OUTCOMES
        if counts.get(outcome.name)
    ]
    return StackedBar(what, total, shares, note)


def strip_of(coverage: Coverage, inventories: Iterable[Dataset]) -> Strip:
    """Return the strip of a plan's bookies."""
    columns = ["bookie", "ledgers", "entries", "damaged"]
    seen = {row["bookie"]: row for i in inventories for row in i.read("bookies", columns=columns).to_pylist()}
    incomplete = set(coverage.not_complete)
    tiles = [Tile(bookie, GONE, None, None, None) for bookie in coverage.not_scanned]
    for bookie in coverage.scanned:
        row = seen.get(bookie, {})
        damaged = row.get("damaged")
        state = INCOMPLETE if bookie in incomplete else DAMAGED if damaged else COMPLETE
        tiles.append(Tile(bookie, state, row.get("ledgers"), row.get("entries"), damaged))
    tiles.sort(key=lambda tile: (STATES.index(tile.state), tile.bookie))
    counted = Counter(tile.state.name for tile in tiles)
    counts = [(state, counted[state.name]) for state in STATES if counted[state.name]]
    if len(tiles) > BOOKIES_NAMED:
        tiles = [
            replace(tile, has_name=tile.state is not COMPLETE and number < BOOKIES_NAMED)
            for number, tile in enumerate(tiles)
        ]
    return Strip(tiles[:BOOKIES_DRAWN], counts, max(0, len(tiles) - BOOKIES_DRAWN))


def ledgers_by_outcome(counts: PlanCounts) -> dict[str, int]:
    """Return the ledgers on bookies by their outcome in a plan; ledgers that the store has stay as they are."""
    names = ("restored", "guarded", "held", "waiting", "deleted", "accepted_loss")
    return {name: getattr(counts, name) for name in names} | {"in_store": counts.in_store_already}


def entries_by_outcome(counts: PlanCounts) -> dict[str, int]:
    """Return the entries of the ledgers that the store lacks, by outcome."""
    return {name: getattr(counts, f"entries_{name}") for name in SHARES}
