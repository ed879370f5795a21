"""What the manifest of a plan says besides its files: on what it was made, what it counted, what it is bound to.

The keys are stored, and the hash of the plan covers them: a key is added, never renamed. A manifest of an older version
lacks the later ones, and reads as if nothing was counted there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, NamedTuple

import msgspec

from reconcile.plan.bookie_starts import BookieStart, KnownBookie, decide_start
from reconcile.plan.plan_hash import Hashes
from recovery.dataset import MANIFEST, Dataset, write_manifest
from recovery.errors import DatasetError
from recovery.infer.prior import PriorShape
from recovery.manifest import Part
from recovery.model.coverage import Coverage
from recovery.model.ids import LedgerId
from recovery.place import DatasetPlace

COOKIES_WAIT: Final = "ledgers of the plan wait for a person"
"""Why a plan writes no cookies."""


@dataclass(frozen=True, slots=True)
class PlanCounts:
    """Ledgers, findings and actions of a plan.

    Attributes:
        ledgers: on bookies.
        restored: lost ones whose record is created.
        guarded: lost ones that can be read, and all of whose copies are kept until they are settled.
        held: lost ones whose data a record keeps, and nobody can read yet.
        waiting: lost ones for which nothing is written until a person decides.
        deleted: on bookies, deleted on purpose; not brought back.
        in_store_already: on bookies and in the store.
        in_store: records of the store.
        in_store_not_on_bookies: of these, on no bookie that was looked at.
        newer_than_inventories: records of the store that changed after a bookie that they name was collected, and that
            runs: what it lacks of them is not judged.
        held_in_store: holds of an earlier plan in the store.
        guarded_in_store: records of an earlier plan under a guard, which this one leaves so.
        released: of holds and guarded records in the store, replaced by others.
        settled: of these, guarded records whose guard ends.
        guarded_by_names: guarded ones that no lock keeps, while replication is disabled.
        beyond_end: of those that come back, guarded ones too, those above whose last entry bookies hold others.
        disagreements: findings that say that the store and the bookies differ.
        critical: critical findings that were shown, not only not seen.
        looked_at: ledgers of any side.
        clean: of these, without a finding.
        skipped: of these, open in the store.
        undecided: of these, perhaps on bookies that were not looked at, or newer than the inventories.
        with_findings: of these, with a finding.
        findings: all findings.
        left_alone: actions that write nothing until a person chooses.
        actions: all actions.
        ids_above_short_generator: ids that only the generator of long ids gives.
        ids_not_raised_past: ids that no generator is raised past.
        ids_far_above: ids that raise nothing, because they stand far above all others.
        counters_not_raised_past: last ids that generators gave, and that none is raised past.
        accepted_loss: ledgers that a person accepted to lose.
        entries_restored: of lost ledgers that come back, those that some bookie serves.
        entries_guarded: the same of guarded ones.
        entries_held: of held ones, up to the last on a bookie.
        entries_lost: of ledgers that come back, those that no bookie serves.
        ids_reused: ids in the store that two ledgers have: bookies hold another one, too, than the record is of.
        reuse_locks: of these, those whose older copies a lock keeps for a time.
    """

    ledgers: int = 0
    restored: int = 0
    guarded: int = 0
    held: int = 0
    waiting: int = 0
    deleted: int = 0
    in_store_already: int = 0
    in_store: int = 0
    in_store_not_on_bookies: int = 0
    newer_than_inventories: int = 0
    held_in_store: int = 0
    guarded_in_store: int = 0
    released: int = 0
    settled: int = 0
    guarded_by_names: int = 0
    beyond_end: int = 0
    disagreements: int = 0
    critical: int = 0
    looked_at: int = 0
    clean: int = 0
    skipped: int = 0
    undecided: int = 0
    with_findings: int = 0
    findings: int = 0
    left_alone: int = 0
    actions: int = 0
    ids_above_short_generator: int = 0
    ids_not_raised_past: int = 0
    ids_far_above: int = 0
    counters_not_raised_past: int = 0
    accepted_loss: int = 0
    entries_restored: int = 0
    entries_guarded: int = 0
    entries_held: int = 0
    entries_lost: int = 0
    ids_reused: int = 0
    reuse_locks: int = 0

    def to_json(self) -> dict[str, int]:
        """Return them as manifests and ``--json`` have them; of losses only what a person accepted."""
        return {name: count for name, count in asdict(self).items() if count or name != "accepted_loss"}

    @property
    def writes(self) -> int:
        """How many keys are written: actions without those that write nothing."""
        return self.actions - self.left_alone

    @property
    def add_up(self) -> bool:
        """Whether every ledger was counted once, on bookies and of all sides."""
        lost = self.restored + self.guarded + self.held + self.waiting + self.deleted
        judged = self.clean + self.skipped + self.undecided + self.with_findings
        return lost + self.in_store_already == self.ledgers and judged == self.looked_at


@dataclass(frozen=True, slots=True)
class UnreferencedLedger:
    """A ledger on bookies that nothing references.

    Attributes:
        scope: of its id.
        ledger: of its id.
        key: the SHA-256 of its master key in hex, or the first digits of that; None: not known.
        neighbours: owners of the nearest ids below and above; a hint, not an owner.
    """

    scope: int
    ledger: int
    key: str | None
    neighbours: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReferenceCounts:
    """How references and the ledgers that were looked at agree.

    Attributes:
        referenced: ledgers that references name, on bookies or in the store.
        unreferenced: ledgers on bookies that no reference names.
        referenced_not_found: ledgers that references name, and that nothing else has.
        some_unreferenced: the first of those that no reference names.
        some_not_found: the first of those that nothing else has.
        unreadable: records of references that could not be read.
        gaps: parts of a store of references that its copy lacks.
    """

    referenced: int = 0
    unreferenced: int = 0
    referenced_not_found: int = 0
    some_unreferenced: tuple[UnreferencedLedger, ...] = ()
    some_not_found: tuple[LedgerId, ...] = ()
    unreadable: int = 0
    gaps: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return them as manifests and ``--json`` have them."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class InputDataset:
    """One dataset that a plan was made of.

    Attributes:
        kind: inventory, store, snapshot or references.
        name: its folder when the plan was made.
        digest: of the dataset; of references that of their rows.
    """

    kind: str
    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class HistorySource:
    """A catalog that remembers what happened to records.

    Attributes:
        uri: of its store.
        txn: the transaction that it was taken at; None: not known.
        chosen: a person chose the point in time.
    """

    uri: str
    txn: int | None
    chosen: bool


@dataclass(frozen=True, slots=True)
class SubtreeCounts:
    """Nodes of one subtree of an upper layer.

    Attributes:
        path: of its highest node, in the store.
        snapshot: the source that it is taken from.
        txn: the last transaction that is in that; None: not known.
        nodes: that the snapshot has.
        created: of these, absent in the store.
        differing: of these, with other bytes in the store: they stay as they are unless a person says otherwise.
        raised: counters that are behind.
        newer: nodes that only the store has: they stay.
        added: created, though no snapshot has them: of topics that adopted ledgers.
    """

    path: str
    snapshot: str = ""
    txn: int | None = None
    nodes: int = 0
    created: int = 0
    differing: int = 0
    raised: int = 0
    newer: int = 0
    added: int = 0

    def __add__(self, other: "SubtreeCounts") -> "SubtreeCounts":
        """Return the counts of both, of the same subtree."""
        names = ("nodes", "created", "differing", "raised", "newer", "added")
        return replace(self, **{name: getattr(self, name) + getattr(other, name) for name in names})


class WaveBuckets(NamedTuple):
    """The buckets of one wave, both ends included."""

    number: int
    first_bucket: int
    last_bucket: int


@dataclass(frozen=True, slots=True)
class PlanBinding:
    """What a plan is bound to: guards compare it with the store.

    Attributes:
        instance_ids: of the cluster; empty: nothing names one.
        layout: of the target; None: not known.
        root: ledgers root key of the target; empty: not known.
        bookies: id and incarnation of each bookie that was looked at.
        cookies_held_back: no cookie is created, because ledgers wait for a person.
        made: when, as ISO 8601.
        inputs: datasets that it was made of; None: an older version did not write them.
        options: what the operator said: of the tail, quorums, passwords, bookies and ids.
        split_from: hash of the plan that it was cut from; None: of none.
        waves: that it was cut into.
        edited_from: hash of the plan that it was edited from; None: of none.
        edits: what was changed, each as a line.
    """

    instance_ids: tuple[str, ...] = ()
    layout: str | None = None
    root: str = ""
    bookies: tuple[tuple[str, int | None], ...] = ()
    cookies_held_back: bool = False
    made: str | None = None
    inputs: tuple[InputDataset, ...] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    split_from: str | None = None
    waves: tuple[WaveBuckets, ...] = ()
    edited_from: str | None = None
    edits: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as manifests and ``--json`` have it; what a plan was not cut, edited or made of is left out."""
        values: dict[str, Any] = {
            "instance_ids": list(self.instance_ids),
            "layout": self.layout,
            "root": self.root,
            "bookies": [list(row) for row in self.bookies],
            "cookies_held_back": self.cookies_held_back,
            "made": self.made,
            "options": dict(self.options),
        }
        if self.inputs is not None:
            values["inputs"] = [asdict(source) for source in self.inputs]
        if self.split_from is not None:
            values["split_from"] = self.split_from
            values["waves"] = [list(wave) for wave in self.waves]
        if self.edited_from is not None:
            values |= {"edited_from": self.edited_from, "edits": list(self.edits)}
        return values


@dataclass(frozen=True, slots=True)
class PlanManifest:
    """What a plan says of itself.

    Attributes:
        binding: what it is bound to.
        coverage: which bookies were looked at.
        counts: ledgers, findings and actions.
        reasons: of holds, each with its ledgers.
        doubts: what may hide more of guarded ledgers, each with its ledgers.
        sides: relations of bookies, store and snapshots, each with its ledgers.
        found: categories of findings, each with how many there are.
        subtrees: of upper layers, which are brought back; empty: none were wanted.
        candidates: ledgers that came after the snapshot of Pulsar's nodes and that none of these names, by the best
            that is known of whose each is; empty: there are none.
        references: how references and ledgers agree; None: none were given.
        mass_deletion: so many ledgers were deleted that they are held.
        mass_let_go: so many ledgers were let go of by their owners that they are held.
        prior: shapes that ledgers may have that do not show theirs.
        histories: catalogs that remember what happened to records.
        bookies: that the cluster is known to have, by id.
        settings: of the run, each with its value and where it came from.
        hash: what a confirmation names; empty: not signed yet.
        hash_version: of what the hash covers; None: not signed yet.
        tool_version: of the program that wrote it; None: not written yet.
    """

    binding: PlanBinding = field(default_factory=PlanBinding)
    coverage: Coverage = field(default_factory=Coverage)
    counts: PlanCounts = field(default_factory=PlanCounts)
    reasons: Mapping[str, int] = field(default_factory=dict)
    doubts: Mapping[str, int] = field(default_factory=dict)
    sides: Mapping[str, int] = field(default_factory=dict)
    found: Mapping[str, int] = field(default_factory=dict)
    subtrees: tuple[SubtreeCounts, ...] = ()
    candidates: Mapping[str, int] = field(default_factory=dict)
    references: ReferenceCounts | None = None
    mass_deletion: bool = False
    mass_let_go: bool = False
    prior: tuple[PriorShape, ...] = ()
    histories: tuple[HistorySource, ...] = ()
    bookies: tuple[KnownBookie, ...] = ()
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    hash: str = ""
    hash_version: int | None = None
    tool_version: str | None = None

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "PlanManifest":
        """Read it as the file has it."""
        needed = {name: values[name] for name in ("binding", "coverage")}
        return msgspec.convert({**values, **needed, "references": values.get("references") or None}, cls)

    def to_json(self) -> dict[str, Any]:
        """Return what it says besides binding, coverage and hash, as the file has it."""
        return {
            "counts": self.counts.to_json(),
            **{name: dict(getattr(self, name)) for name in ("reasons", "doubts", "sides", "found", "settings")},
            "subtrees": [asdict(subtree) for subtree in self.subtrees],
            **({"candidates": dict(self.candidates)} if self.candidates else {}),
            "references": {} if self.references is None else self.references.to_json(),
            "mass_deletion": self.mass_deletion,
            "mass_let_go": self.mass_let_go,
            "prior": [asdict(shape) for shape in self.prior],
            "histories": [asdict(source) for source in self.histories],
            **({"bookies": [bookie.to_json() for bookie in self.bookies]} if self.bookies else {}),
        }

    def decide_starts(
        self, stored: Mapping[str, bytes | None] | None = None, unfinished: str = ""
    ) -> list[BookieStart]:
        """Return which bookies may start, those that must not first.

        Args:
            stored: the cookie that the store has of each bookie; None: what it has when the plan is written.
            unfinished: why no bookie may start; empty: only what the plan itself leaves open.
        """
        waits = self.binding.cookies_held_back
        starts = []
        for known in self.bookies:
            if stored is not None:
                cookie = known.compare(stored.get(known.bookie))
            else:
                cookie = known.stored if waits else known.planned
            starts.append(decide_start(known, cookie, unfinished or (COOKIES_WAIT if waits else "")))
        return sorted(starts, key=lambda start: (start.may_start, start.bookie))


def read_plan_manifest(plan: Dataset) -> PlanManifest:
    """Return what a plan says of itself.

    Raises:
        DatasetError: a value is of another type than this version writes.
    """
    try:
        return PlanManifest.from_json(plan.manifest)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        problem = f"is not a manifest of a plan ({type(error).__name__}: {error})"
        raise DatasetError(f"{plan.path}/{MANIFEST}", problem, "copy or make the plan again") from error


def write_plan_manifest(
    folder: DatasetPlace, manifest: PlanManifest, parts: Mapping[str, Iterable[Part]], hashes: Hashes
) -> PlanManifest:
    """Make a folder of parts a plan; return its manifest with its hash.

    Args:
        folder: of the plan.
        manifest: what it says.
        parts: of each of its tables.
        hashes: of its buckets.

    Raises:
        DatasetError: the disk is full or refuses.
    """
    written = write_manifest(
        folder,
        "plan",
        parts,
        binding=manifest.binding.to_json(),
        coverage=manifest.coverage.to_json(),
        secret=True,
        extra=manifest.to_json(),
        sign=hashes.sign,
    )
    return PlanManifest.from_json(written)
