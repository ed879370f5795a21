"""What comes of asking the bookies of a cluster: the result of each, and where its inventory stands."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

SCOPE: Final = 0
COPIES: Final = "copies"
DAMAGE: Final = "damage"
WIRE: Final = "wire"
"""Stands for the file in damage rows."""
CATALOG: Final = "catalog"
"""Folder beside the inventories: what the store listed when the bookies were asked."""
NOT_TOLD: Final = (
    "ledgers that the store does not list",
    "master keys, fences and limbo",
    "entries that only journals and entry logs have",
)


class AskedKind(StrEnum):
    """What came of asking a bookie; values are stored."""

    COLLECTED = "collected"
    NO_LISTS = "no_lists"
    """It answers reads, and never what it has of a ledger that it knows: DbLedgerStorage, or older than 4.10."""
    NO_ANSWER = "no_answer"
    REFUSED = "refused"
    NOT_UNDERSTOOD = "not_understood"


@dataclass(frozen=True, slots=True)
class BookieResult:
    """One bookie, and what came of it.

    Attributes:
        bookie: its id.
        kind: whether there is an inventory.
        why: if there is none, or not of all.
        folder: of the inventory; empty if there is none.
        ledgers: that it has.
        entries: of these.
        negatives: ledgers that it said it does not know.
        unanswered: ledgers that it said nothing of.
        damaged: rows of damage.
    """

    bookie: str
    kind: AskedKind
    why: str = ""
    folder: str = ""
    ledgers: int = 0
    entries: int = 0
    negatives: int = 0
    unanswered: int = 0
    damaged: int = 0


@dataclass(frozen=True, slots=True)
class WireSummary:
    """What came of asking a cluster.

    Attributes:
        listed: ledgers of the store that bookies were asked for.
        scoped: ledgers of another scope than 0, which no released bookie can be asked for.
        bookies: one for each that was to be asked.
        unresolved: names in records that are no known bookie's, with the reason.
    """

    listed: int
    scoped: int
    bookies: tuple[BookieResult, ...]
    unresolved: Mapping[str, str]


def folder_of(bookie: str) -> str:
    """Return the name of a bookie's folder; an id is one but for a few characters."""
    return quote(bookie, safe=":@") if bookie.strip(".") else bookie.replace(".", "%2E")
