"""The result of a preflight: remarks by severity, and the bookies in the order to stop them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from reconcile.check.preflight.gc_settings import DEFAULT_WAIT_MS, BookieSettings, UnreadSettings
from reconcile.findings.categories import TRAITS
from reconcile.findings.table import Finding
from reconcile.write.freezing import freeze_state
from recovery.codecs.store import Layout
from recovery.model.coverage import Coverage


class PreflightLevel(StrEnum):
    """How bad something is; values are part of the JSON."""

    OK = "ok"
    UNDECIDED = "undecided"
    WARNING = "warning"
    CRITICAL = "critical"


_SUBJECTS: Final = (
    "root", "ledgers", "index", "instance", "layout", "freeze", "margin", "replication", "registrations", "coverage"
)  # fmt: skip
"""The order in a verdict for equally bad remarks."""
_ORDER: Final = (PreflightLevel.CRITICAL, PreflightLevel.WARNING, PreflightLevel.UNDECIDED, PreflightLevel.OK)


@dataclass(frozen=True, slots=True)
class Remark:
    """The result of one check: good, bad or unknown.

    Attributes:
        level: the severity.
        subject: one of `_SUBJECTS`; for a bookie, followed by its id.
        text: for people.
        finding: of the problem; None: good, or not known.
    """

    level: PreflightLevel
    subject: str
    text: str
    finding: Finding | None = None

    @classmethod
    def from_finding(cls, finding: Finding) -> "Remark":
        """Return the text of a finding, with its evidence for people."""
        text = "; ".join(str(statement.value) for statement in finding.statements)
        return cls(
            PreflightLevel(finding.severity or TRAITS[finding.category].severity), finding.subject, text, finding
        )


@dataclass(frozen=True, slots=True)
class NamedBookie:
    """One bookie that something names.

    Attributes:
        id: as registered; for settings without an id, their source.
        registered: rw, ro or no.
        inventory: whether an inventory of it was given.
        settings: of its garbage collection; None: not read.
        answers: whether its protocol is spoken at the address in its id; None: it was not asked, or names none.
    """

    id: str
    registered: str
    inventory: bool
    settings: BookieSettings | None
    answers: bool | None = None

    @property
    def wait_ms(self) -> int:
        """Time between two passes; BookKeeper's default if it was not read."""
        return self.settings.wait_ms if self.settings else DEFAULT_WAIT_MS

    @property
    def wait(self) -> str:
        """How often bookies look for ledgers to delete, in words."""
        if self.settings is None:
            return f"every {describe_duration(DEFAULT_WAIT_MS)} by default, its settings were not read"
        return f"every {describe_duration(self.wait_ms)}" + ("" if self.settings.given else " by default")

    @property
    def passes(self) -> str:
        """When it looks for ledgers to delete, and for single copies, in words."""
        if self.settings is None:
            return self.wait
        full = ", at once when a disk is full" if self.settings.forced_when_full else ""
        forced = "; a forced pass runs now" if self.settings.forced_now else ""
        copies = f"every {describe_duration(self.settings.over_ms)}" if self.settings.over_ms > 0 else "never"
        return f"{self.wait}{full}{forced}; for copies that no record names: {copies}"


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a preflight.

    Attributes:
        remarks: the worst first.
        bookies: in the order in which to stop them: the earliest possible next pass first.
        counts: ledgers listed, held, absent; bookies registered. None: not known.
        listed_whole: whether every folder of the store was listed.
        coverage: bookies with disks that the store was compared with; the members are registered or have a cookie.
        unread: settings that were named and could not be read.
        layout: None: not known.
        freeze: the state of the rights.
        auditor: bookie of the elected auditor; None: there is none, or it could not be read.
        root: present or missing.
        denied: the root, or folders of ledgers, may not be listed by us.
        foreign: bookies that were compared are of another cluster instance than the store.
    """

    remarks: tuple[Remark, ...]
    bookies: tuple[NamedBookie, ...] = ()
    counts: Mapping[str, int | None] = field(default_factory=dict)
    listed_whole: bool = False
    coverage: Coverage = field(default_factory=Coverage)
    unread: tuple[UnreadSettings, ...] = ()
    layout: Layout | None = None
    freeze: freeze_state.FreezeState | None = None
    auditor: str | None = None
    root: str = "present"
    denied: bool = False
    foreign: bool = False

    @property
    def of_strangers(self) -> bool:
        """Whether only bookies that were not compared use the store: then it belongs to another cluster."""
        running = [bookie for bookie in self.bookies if bookie.registered != "no"]
        return self.foreign and bool(running) and not any(bookie.inventory for bookie in running)

    @property
    def silent(self) -> bool:
        """Whether bookies are known, none is registered, and all were asked and none answered."""
        known = self.bookies
        return bool(known) and all(bookie.registered == "no" and bookie.answers is False for bookie in known)

    @property
    def level(self) -> PreflightLevel:
        """Of the worst remark."""
        return self.remarks[0].level if self.remarks else PreflightLevel.OK

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The problems, the worst first."""
        return tuple(remark.finding for remark in self.remarks if remark.finding is not None)

    @property
    def undecided(self) -> bool:
        """Whether something that matters could not be checked."""
        return any(remark.level is PreflightLevel.UNDECIDED for remark in self.remarks)


def stop_order(bookies: Sequence[NamedBookie]) -> list[str]:
    """Return which bookie to stop after which, each with the reason."""
    return [f"{bookie.id} ({bookie.wait})" for bookie in bookies]


def describe_duration(milliseconds: int) -> str:
    """Return a duration in its largest whole unit."""
    for name, size in (("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if milliseconds >= size and milliseconds % size == 0:
            return f"{milliseconds // size} {name}"
    return f"{milliseconds} ms"


def rank_remark(remark: Remark) -> tuple[int, int]:
    """Return where a remark is in a report: the worst first."""
    return _ORDER.index(remark.level), _SUBJECTS.index(remark.subject.partition(" ")[0])
