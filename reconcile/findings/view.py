"""A finding as people read it, made here once. Terminals, pages, JSON and the service only lay it out."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reconcile.findings.categories import TRAITS, Category
from recovery.model.ids import LedgerId


@dataclass(frozen=True, slots=True)
class Fact:
    """The statement of one side.

    Attributes:
        side: store, bookies, earlier, history, plan.
        field: the compared field.
        value: as text; empty without one.
        source: of the side.
    """

    side: str
    field: str
    value: str
    source: str

    def __str__(self) -> str:
        return f"{self.side} {self.field}: {self.value}"


@dataclass(frozen=True, slots=True)
class FindingView:
    """One finding.

    Attributes:
        id: in hex; the same in every run.
        category: its name.
        severity: info, warning or critical.
        status: open or suppressed.
        ledger: None where it is of a node or a bookie.
        segment: of the ledger, by number.
        subject: the path of a node, a bookie, or a field of the ledger.
        says: the problem, in a sentence.
        facts: the evidence of each side.
        unknowns: facts that are not known.
        bookies: the named bookies.
        remedy: what to do, with the ids in its commands.
        first_seen, last_seen: aware times.
    """

    id: str
    category: Category
    severity: str
    status: str
    ledger: LedgerId | None
    segment: int | None
    subject: str
    says: str
    facts: tuple[Fact, ...]
    unknowns: tuple[str, ...]
    bookies: tuple[str, ...]
    remedy: str
    first_seen: datetime
    last_seen: datetime

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "FindingView":
        """Return the view of a row of FINDINGS; missing columns stay empty."""
        category = Category(row["category"])
        ledger = None if row["ledger"] is None else LedgerId(row["scope"], row["ledger"])
        bookies = tuple(row.get("bookies") or ())
        return cls(
            row["id"].hex(),
            category,
            row["severity"],
            row.get("status", "open"),
            ledger,
            row.get("segment"),
            row["subject"] or "",
            TRAITS[category].says,
            tuple(
                Fact(*(item[name] or "" for name in ("side", "field", "value", "source")))
                for item in row.get("evidence") or ()
            ),
            tuple(row.get("unknowns") or ()),
            bookies,
            fill_in(row.get("suggested") or TRAITS[category].remedy, ledger, bookies),
            row["first_seen"],
            row.get("last_seen", row["first_seen"]),
        )

    @property
    def about(self) -> str:
        """The subject: a ledger, path or bookie."""
        return self.subject if self.ledger is None else f"ledger {self.ledger}"

    @property
    def name(self) -> str:
        """Its severity, its category and its subject."""
        return f"{self.severity} {self.category} {self.about}"

    @property
    def known(self) -> tuple[Fact, ...]:
        """The facts that have a value."""
        return tuple(fact for fact in self.facts if fact.value)

    @property
    def evidence(self) -> str:
        """The facts with a value, and the unknowns, in one line."""
        facts = "; ".join(map(str, self.known))
        return f"{facts}; not known: {', '.join(self.unknowns)}" if self.unknowns else facts

    @property
    def line(self) -> str:
        """All but the remedy in one line."""
        return f"{self.name}: {self.says} {self.evidence}".rstrip()

    @property
    def lines(self) -> tuple[str, str]:
        """The whole view."""
        return self.line, f"  what to do: {self.remedy}"

    def to_json(self) -> dict[str, Any]:
        """Return it as ``--json`` has it."""
        return {
            "category": self.category,
            "severity": self.severity,
            "ledger": None if self.ledger is None else str(self.ledger),
            "about": self.about,
            "says": self.says,
            "evidence": {f"{fact.side}: {fact.field}": fact.value for fact in self.facts},
            "bookies": list(self.bookies),
            "suggested": self.remedy,
            "first_seen": self.first_seen.isoformat(timespec="seconds"),
        }


def fill_in(remedy: str, ledger: LedgerId | None, bookies: tuple[str, ...]) -> str:
    """Return a remedy with the ledger, and the bookie if the subject is one, filled in.

    Args:
        remedy: in which `LEDGER` and `BOOKIE` are names to fill in.
        ledger: None leaves its name.
        bookies: none or several leave the name.
    """
    if ledger is not None:
        remedy = remedy.replace("LEDGER", str(ledger))
    return remedy.replace("BOOKIE", bookies[0]) if len(bookies) == 1 else remedy
