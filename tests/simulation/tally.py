"""What judged histories come to: counts that add up, broken guarantees, and the tables that are printed of them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

JUDGED: Final = (
    "ensemble_size", "write_quorum", "ack_quorum", "state", "last_entry", "length", "segments", "digest", "password",
)  # fmt: skip
"""Fields whose claims are counted by grade."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken guarantee.

    Attributes:
        guarantee: as in the module's table.
        history, seed, ledger: what brings it back.
        what: in words.
        true, claimed: the ledger as it was, and as the reconstruction has it.
        served: what bookies serve.
    """

    guarantee: str
    history: str
    seed: int
    ledger: int
    what: str
    true: str
    claimed: str
    served: str

    def __str__(self) -> str:
        return (
            f"{self.guarantee}: {self.history} seed {self.seed} ledger {self.ledger}: {self.what}\n"
            f"  true     {self.true}\n  claimed  {self.claimed}\n  served   {self.served}"
        )


@dataclass(slots=True)
class Tally:
    """What a class of histories came to; tallies of several batches add up.

    Attributes:
        ledgers: that any scanned bookie has something of.
        paths: classes of rows; outcomes: of rows.
        reasons: of what was not restored.
        opened: restored ledgers that are left open.
        entries: served entries, not above the end, of restored and guarded ledgers; readable: of these, through them.
        wanted: entries that true records can read on scanned bookies; reached: of these, through what was made.
        unseen: restored ledgers whose acknowledged end nobody scanned has, and that say so.
        gone: restored ledgers whose acknowledged end is on no bookie any more, and no LAC shows it.
        resurrected: restored ledgers that were deleted, with nothing on any scanned bookie that shows it.
        blended: restored ledgers that are two under one id, with nothing in the inventory that shows it: of one of them
            nothing is served, or all headers that were read may be of one ledger.
        odd: restored ledgers whose true record has a length that is not the sum of their entries, or of which no header
            that was read says it.
        misled: restored ledgers of which a snapshot's record or a reference said what is not true, and nothing in the
            inventory contradicts it.
        unheard: restored ledgers of another shape than is claimed or listed, which too few ledgers show.
        strays: copies of restored ledgers on bookies that no segment names.
        grades: (field, grade) to how many claims, and how many of them are right.
        violations: all of them.
    """

    ledgers: int = 0
    paths: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    opened: int = 0
    entries: int = 0
    readable: int = 0
    wanted: int = 0
    reached: int = 0
    unseen: int = 0
    gone: int = 0
    resurrected: int = 0
    blended: int = 0
    odd: int = 0
    misled: int = 0
    unheard: int = 0
    strays: int = 0
    grades: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Add another tally to this one."""
        self.ledgers += other.ledgers
        self.paths += other.paths
        self.outcomes += other.outcomes
        self.reasons += other.reasons
        self.opened += other.opened
        self.entries += other.entries
        self.readable += other.readable
        self.wanted += other.wanted
        self.reached += other.reached
        self.unseen += other.unseen
        self.gone += other.gone
        self.resurrected += other.resurrected
        self.blended += other.blended
        self.odd += other.odd
        self.misled += other.misled
        self.unheard += other.unheard
        self.strays += other.strays
        for place, (claims, right) in other.grades.items():
            own = self.grades.setdefault(place, [0, 0])
            own[0] += claims
            own[1] += right
        self.violations += other.violations


PATHS: Final = ("clean", "re-replicated", "solved", "undecided")
_WHY: Final = 4
"""Reasons that are named of each class."""
HEAD: Final = (
    "class", "ledgers", *PATHS, "restored", "guarded", "reached", "readable", "unseen", "gone", "resurrected",
    "blended", "odd", "misled", "unheard", "violations",
)  # fmt: skip


def line(cells: Iterable[str]) -> str:
    """Return a row of a table in Markdown."""
    return f"| {' | '.join(cells)} |\n"


def _share(right: int, claims: int, digits: int = 2) -> str:
    return f"{100 * right / claims:.{digits}f} %" if claims else ""


def row_of(name: str, tally: Tally) -> list[str]:
    """Return a class's cells, under `HEAD`."""
    count = max(1, tally.ledgers)
    counts: tuple[int, ...] = (tally.unseen, tally.gone, tally.resurrected, tally.blended, tally.odd)
    counts += (tally.misled, tally.unheard, len(tally.violations))
    return [
        name,
        str(tally.ledgers),
        *(_share(tally.paths[path], count, 1) for path in PATHS),
        _share(tally.outcomes["restored"], count, 1),
        _share(tally.outcomes["guarded"], count, 1),
        _share(tally.reached, max(1, tally.wanted), 1),
        _share(tally.readable, max(1, tally.entries), 3),
        *map(str, counts),
    ]


def write_inferred(tallies: Mapping[str, Tally]) -> str:
    """Return how often what is inferred is right, by class and field, in Markdown."""
    names = [name for name in JUDGED if any((name, "inferred") in tally.grades for tally in tallies.values())]
    lines = [line(["inferred", *names]), line(["---"] * (len(names) + 1))]
    for outcome, tally in tallies.items():
        shares = [tally.grades.get((name, "inferred"), [0, 0]) for name in names]
        lines.append(line([outcome, *(_share(right, claims) for claims, right in shares)]))
    return "".join(lines)


def write_reasons(tallies: Mapping[str, Tally]) -> str:
    """Return why ledgers are not restored, the commonest reasons of each class, in Markdown."""
    lines = [line(["class", "not restored", "why"]), line(["---"] * 3)]
    for name, tally in tallies.items():
        held_count = sum(tally.reasons.values())
        why = (f"{reason} {_share(count, tally.ledgers, 1)}" for reason, count in tally.reasons.most_common(_WHY))
        lines.append(line([name, _share(held_count, tally.ledgers, 1), ", ".join(why)]))
    return "".join(lines)


def write_calibration(tallies: Mapping[str, Tally]) -> str:
    """Return how often what was claimed is right, by field and grade, in Markdown."""
    total = Tally()
    for tally in tallies.values():
        total.add(tally)
    lines = ["| field | grade | claims | right | worst class |", "| --- | --- | --- | --- | --- |"]
    for (name, grade), (claims, right) in sorted(total.grades.items()):
        shares = [
            (own[1] / own[0], outcome) for outcome, tally in tallies.items() if (own := tally.grades.get((name, grade)))
        ]
        share, worst = min(shares)
        text = f"{100 * right / claims:.2f} %"
        lines.append(f"| {name} | {grade} | {claims} | {text} | {worst}: {100 * share:.2f} % |")
    return "\n".join(lines)
