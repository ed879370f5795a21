"""What is taken back of what was deleted, and what came of that."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from backends.zkfiles.store import At
from reconcile.jobs.undelete.histogram import DeletesBar, SessionDeletes
from reconcile.plan.manifest import PlanManifest
from reconcile.plan.views.topics import TopicsBack
from recovery.dataset import Dataset
from recovery.model.ids import LedgerId
from recovery.place import DatasetPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedSelection:
    """Which deleted ledgers are meant.

    Attributes:
        ledgers: by their ids.
        topic: those of topics that this pattern means, as tenant/namespace/topic; None: of none.
        sessions: those that these sessions deleted, inside the window.
        begin, end: the window, both ends included; None: it is open at that end.
    """

    ledgers: tuple[LedgerId, ...] = ()
    topic: str | None = None
    sessions: tuple[int | None, ...] = ()
    begin: At | None = None
    end: At | None = None

    @property
    def is_complete(self) -> bool:
        """Whether it says what comes back: a session alone does not, for a broker's session trims for weeks."""
        has_window = self.begin is not None and self.end is not None
        return bool(self.ledgers or self.topic or (self.sessions and has_window))


@dataclass(frozen=True, slots=True, kw_only=True)
class UndeleteRequest:
    """What is taken back, and from which history.

    Attributes:
        uri: the store that lost the ledgers.
        out: a new folder for the plan; it will hold passwords.
        histories: URIs of what remembers: a ZooKeeper's files, an etcd's database file, captures.
        selection: which ledgers are meant.
        inventories: folders of inventories, which show what bookies still have.
        settings: of the run, each with where it came from, for the manifest.
    """

    uri: str
    out: DatasetPlace
    histories: tuple[str, ...] = ()
    selection: DeletedSelection = DeletedSelection()
    inventories: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


class NotRestored(StrEnum):
    """Why a ledger that is meant does not come back."""

    IN_STORE = "in_store"
    """The store has a record of the id: the ledger, or another one that got its id. It is never replaced."""
    TOMBSTONE = "tombstone"
    """bkmeta purged it by a certificate."""
    MADE_AGAIN = "made_again"
    """Its id was used again after this delete."""
    DELETED_AGAIN = "deleted_again"
    """It was made again and deleted again, by somebody who was not chosen."""
    NOT_KNOWN = "not_known"
    """No history has its last record."""
    NOT_CLOSED = "not_closed"
    """A copy has it before it was closed, and nothing shows what became of it."""
    UNPARSABLE = "unparsable"
    """Its last record cannot be read."""
    HOLD = "hold"
    """Its last record is a hold of an earlier restore, or guarded by names."""
    TRIMMED = "trimmed"
    """It was chosen by its topic, whose last record no longer named it: retention deleted it."""
    NO_PLACE = "no_place"
    """The store's layout has no key for its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLedger:
    """A ledger that is meant and does not come back.

    Attributes:
        reason: why.
        detail: what shows it: who purged it and when, of what state a copy has it; empty: nothing more.
    """

    reason: NotRestored
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCounts:
    """What becomes of the records of the ledgers' topics; only Pulsar's names are known.

    Attributes:
        created: nodes that the plan brings back.
        differing: nodes that the store has otherwise than before the delete: left as they are.
        unnamed: ledgers that come back and that no record names, each with its topic.
        missing: ledgers that records which come back name, and that neither the store nor the plan has.
    """

    created: int = 0
    differing: int = 0
    unnamed: Mapping[LedgerId, str] = field(default_factory=dict)
    missing: Sequence[LedgerId] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Undeleted:
    """What was found, and the plan that was made of it.

    Attributes:
        plan: the dataset; None: nothing comes back, or the selection says not yet what.
        manifest: what it says of itself.
        present: ledgers that are meant, and whose record stands in the store byte for byte.
        kept: ledgers that are meant and do not come back.
        empty: of those that come back, those that were closed without an entry.
        not_closed: of those that come back, those that were open or in recovery when they were deleted.
        as_captured: of those that come back, those whose record is an earlier copy's: bookies may have moved since.
        gone: of those that come back with entries, those of which no inventory has anything; None: none was given.
        first_at_ms, last_at_ms: of the deletes that are taken back; None: not known.
        sessions: who deleted how many ledgers, that were not made again.
        bars: deletes of the chosen sessions over time.
        topics: what becomes of the records of their topics.
        back: what each topic gets back.
        gaps: what the histories lack.
        notes: what a person should know of the histories.
        forgets: the store itself is the history, and forgets at its next compaction.
    """

    plan: Dataset | None = None
    manifest: PlanManifest | None = None
    present: Sequence[LedgerId] = ()
    kept: Mapping[LedgerId, KeptLedger] = field(default_factory=dict)
    empty: int = 0
    not_closed: int = 0
    as_captured: int = 0
    gone: int | None = None
    first_at_ms: int | None = None
    last_at_ms: int | None = None
    sessions: Sequence[SessionDeletes] = ()
    bars: Sequence[DeletesBar] = ()
    topics: TopicCounts = TopicCounts()
    back: TopicsBack = field(default_factory=TopicsBack)
    gaps: Sequence[str] = ()
    notes: Sequence[str] = ()
    forgets: bool = False
