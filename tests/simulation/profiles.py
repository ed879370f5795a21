"""How ledgers of each class live, and how their bookies fare: what `histories` draws from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

Shape = tuple[int, int, int]
Weights = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Profile:
    """How ledgers of a class live. Sequences are drawn from: what stands in them more often is likelier.

    Attributes:
        shapes: (E, W, A).
        bookies: how many there are.
        lengths: entries of a ledger.
        changes: failures that one writer meets, beside those of bookies that die.
        at_once: bookies that fail together.
        early: the share of ledgers whose first failure comes before any answer.
        near: the share of failures that come within a few entries of the one before.
        flight: the share of ledgers that are written with adds under way, out of order.
        endings: closed, pending (closed with adds under way), abandoned, recovered, zombie (recovered under a writer).
        kinds: plain, adv, deferred.
        digests: names.
        secret: the share of ledgers whose password nobody knows.
        explicit: the share whose writers send explicit LACs.
        ledgers: of one cluster.
        waves: rounds of the cluster's life.
        crashes: the chance that a bookie dies in a wave.
        wiped: the share of dead bookies that come back empty.
        back: the chance that a dead bookie comes back in a wave.
        repaired: the chance that what a dead or wiped bookie should have is repaired.
        tended: the chance that auto-recovery checks a ledger, in whatever state it is, while bookies come and go in a
            wave; 0: they come and go between waves alone.
        deaf: the chance that a bookie answers nothing, or is read-only, for a part of that.
        reopened: the chance that an abandoned ledger is opened with recovery in a wave, whatever has happened since.
        flushed: the chance that a bookie has a checkpoint in a wave.
        restarted: the chance that a bookie is stopped cleanly and started in a wave.
        deleted: the share of closed ledgers that is deleted in a wave.
        collected: the chance that a bookie collects garbage in a wave.
        compacted: the chance that logs and journals of deleted ledgers are gone in a wave.
        reused: the share of ledgers whose record is lost, and their id given out again.
        holes: the share of ledgers of which a bookie lost an entry.
        lost: the share of ledgers that a bookie lost all of.
        settled: the share of bookies that have a checkpoint when all is written.
        killed: the share of bookies that end as `kill -9` ends them.
        journals: the share of those whose journal is lost.
        unscanned, incomplete, damaged: how many bookies are not scanned, miss a folder, have damage that hides entries.
        named: the share of damage that names its ledger.
    """

    shapes: Sequence[Shape] = ((3, 2, 2), (3, 2, 2), (3, 3, 2), (2, 2, 2), (5, 3, 2), (4, 2, 1))
    bookies: int = 12
    lengths: Sequence[int] = (1, 2, 3, 5, 8, 13, 20, 30, 60, 100)
    changes: Sequence[int] = (0,)
    at_once: Sequence[int] = (1, 1, 1, 2)
    early: float = 0.0
    near: float = 0.0
    flight: float = 0.0
    endings: Weights = field(default_factory=lambda: {"closed": 1.0})
    kinds: Weights = field(default_factory=lambda: {"plain": 1.0})
    digests: Sequence[str] = ("CRC32C",)
    secret: float = 0.0
    explicit: float = 0.0
    ledgers: int = 500
    waves: int = 4
    crashes: float = 0.0
    wiped: float = 0.0
    back: float = 0.5
    repaired: float = 0.0
    tended: float = 0.0
    deaf: float = 0.0
    reopened: float = 0.0
    flushed: float = 0.3
    restarted: float = 0.0
    deleted: float = 0.0
    collected: float = 0.0
    compacted: float = 0.0
    reused: float = 0.0
    holes: float = 0.0
    lost: float = 0.0
    settled: float = 0.6
    killed: float = 0.5
    journals: float = 0.0
    unscanned: Sequence[int] = (0,)
    incomplete: Sequence[int] = (0,)
    damaged: Sequence[int] = (0,)
    named: float = 0.5


_STRIPED: Final = ((3, 2, 2), (3, 2, 2), (4, 2, 2), (5, 3, 2), (5, 2, 1), (4, 3, 3))
_FULL: Final = ((3, 3, 2), (3, 3, 3), (2, 2, 1), (1, 1, 1), (2, 2, 2))
_LONG: Final = (20, 30, 60, 100, 200)
_TENDED: Final[Mapping[str, Any]] = {"tended": 0.7, "crashes": 0.7, "deaf": 0.15, "back": 0.6}
_FIRST: Final = Profile()
CLASSES: Final[Mapping[str, Profile]] = {
    "clean": Profile(lengths=_LONG, settled=1.0),
    "short": Profile(lengths=(1, 1, 2, 2, 3, 4, 5)),
    "full": Profile(shapes=_FULL, changes=(0, 0, 1, 2), flight=0.5),
    "changes": Profile(lengths=_LONG, changes=(1, 1, 2, 3), flight=0.5),
    "long": Profile(lengths=(300, 500, 1000), changes=(0, 0, 1, 3, 10), flight=0.3, ledgers=100),
    "few": Profile(ledgers=6, changes=(0, 0, 0, 1), flight=0.3, settled=0.8),
    "storm": Profile(changes=(2, 3, 5, 8), at_once=(1, 1, 2, 2, 3), early=0.3, near=0.5, flight=0.8),
    "pending": Profile(changes=(0, 0, 1), flight=1.0, endings={"closed": 0.2, "pending": 0.8}),
    "abandoned": Profile(changes=(0, 0, 1), flight=0.8, endings={"abandoned": 1.0}),
    "explicit": Profile(
        changes=(0, 0, 1), flight=0.5, explicit=1.0, endings={"closed": 0.5, "pending": 0.2, "abandoned": 0.3},
        restarted=0.3,
    ),
    "recovered": Profile(
        changes=(0, 0, 1), flight=0.8, endings={"recovered": 0.7, "zombie": 0.3}, crashes=0.3, restarted=0.2
    ),
    "reopened": Profile(
        changes=(0, 0, 1), flight=0.5, endings={"abandoned": 1.0}, reopened=0.4, crashes=0.9, wiped=0.7, back=0.8,
        waves=6,
    ),
    "denied": Profile(
        shapes=_FULL, bookies=4, lengths=(2, 3, 5, 8, 13, 20), changes=(1, 2, 3), early=0.2, near=0.7, flight=1.0,
        explicit=0.5, endings={"abandoned": 1.0}, reopened=0.4, wiped=0.7, waves=6,
        **{**_TENDED, "crashes": 0.9, "deaf": 0.3, "back": 0.8},
    ),
    "rereplicated": Profile(
        shapes=_STRIPED + _FULL, changes=(0, 0, 1), flight=0.3, crashes=0.9, repaired=1.0, back=0.3, waves=5,
        collected=0.2,
    ),
    "wiped": Profile(changes=(0, 0, 1), flight=0.3, crashes=0.7, wiped=1.0, back=0.8, repaired=0.4),
    "killed": Profile(changes=(0, 1), flight=0.5, killed=1.0, journals=0.15, flushed=0.5, crashes=0.3),
    "deleted": Profile(
        deleted=0.3, crashes=0.6, collected=0.6, compacted=0.3, back=0.5, restarted=0.2, waves=5,
    ),
    "reused": Profile(reused=0.4, collected=0.1, waves=4, secret=0.3, changes=(0, 0, 1)),
    "adv": Profile(
        kinds={"adv": 1.0}, changes=(0, 0, 1), flight=1.0, endings={"closed": 0.4, "pending": 0.4, "abandoned": 0.2}
    ),
    "deferred": Profile(kinds={"deferred": 1.0}, changes=(0, 0, 0, 1), flight=0.3, explicit=0.3),
    "holes": Profile(holes=0.5, lost=0.2, changes=(0, 0, 1), flight=0.3),
    "secrets": Profile(digests=("CRC32C", "CRC32", "HMAC", "DUMMY"), secret=0.4, explicit=0.3, changes=(0, 0, 1)),
    "unscanned": Profile(
        unscanned=(1, 1, 2), changes=(0, 0, 1), flight=0.5, endings={"closed": 0.6, "pending": 0.2, "abandoned": 0.2}
    ),
    "damaged": Profile(
        incomplete=(0, 1, 1), damaged=(0, 1, 2), changes=(0, 0, 1), flight=0.3,
        endings={"closed": 0.7, "abandoned": 0.3},
    ),
    "tended": Profile(
        shapes=_STRIPED + _FULL, lengths=(1, 2, 3, 5, 8, 13, 20, 40), changes=(0, 0, 1), flight=0.3, waves=5,
        endings={"closed": 0.35, "pending": 0.2, "abandoned": 0.3, "recovered": 0.1, "zombie": 0.05},
        **_TENDED, repaired=0.3, collected=0.1,
    ),
    "tight": Profile(
        shapes=((3, 2, 2), (3, 3, 2), (3, 3, 3), (2, 2, 2), (2, 2, 1), (4, 3, 2), (4, 2, 2)), bookies=4,
        lengths=(1, 2, 3, 5, 8, 13, 20), flight=0.3, waves=5, ledgers=100,
        endings={"closed": 0.4, "pending": 0.2, "abandoned": 0.4}, **_TENDED,
    ),
    "mixed": Profile(
        shapes=_STRIPED + _FULL, lengths=(*_FIRST.lengths, 200), changes=(0, 0, 1, 1, 2, 4), early=0.1, near=0.2,
        flight=0.6, explicit=0.2,
        endings={"closed": 0.5, "pending": 0.15, "abandoned": 0.15, "recovered": 0.15, "zombie": 0.05},
        kinds={"plain": 0.85, "adv": 0.1, "deferred": 0.05}, digests=("CRC32C", "CRC32C", "CRC32", "HMAC"), secret=0.1,
        waves=6, crashes=0.6, wiped=0.2, repaired=0.5, reopened=0.1, restarted=0.1, deleted=0.05,
        collected=0.2, compacted=0.2, reused=0.02, holes=0.03, lost=0.02, journals=0.05,
        unscanned=(0, 0, 0, 1), incomplete=(0, 0, 0, 1), damaged=(0, 0, 0, 1),
    ),
}  # fmt: skip
"""What can happen, a class at a time, and all of it together."""


SCANS: Final[Mapping[str, Mapping[str, Any]]] = {
    "unscanned": {"unscanned": (1, 1, 2)},
    "incomplete": {"incomplete": (1, 1, 2)},
    "damaged": {"damaged": (1, 1, 2)},
    "few": {"ledgers": 6},
    "tended": _TENDED,
    "tight": {**_TENDED, "bookies": 4},
}
"""What any class can be combined with: less is seen of it or of its cluster, or auto-recovery acts at any moment of a
ledger's life, in clusters as small as the ensembles, too."""


def profile_of(name: str) -> Profile:
    """Return the profile of a class, or of a class and scans: ``storm``, ``storm/unscanned``, ``full/tight/few``."""
    own, *scans = name.split("/")
    return replace(CLASSES[own], **{key: value for scan in scans for key, value in SCANS[scan].items()})
