"""Ledgers of a plan, list by list: which come back, which are held for which reason, which lack copies.

A list is streamed by bucket ranges, so that a million ledgers take no more memory than a few thousand.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.plan.actions import KEEP, LEAVE, REUSE_LOCK, Guard
from reconcile.topics import topic_of
from recovery.codecs.ledger_metadata import decode_columns
from recovery.dataset import Dataset
from recovery.model import tables
from recovery.model.ids import LedgerId, bucket_ranges

UNDECIDED: Final = "undecided"
"""Verdict of a ledger that could not be judged; see `recovery.model.tables.SIDES`."""

_ROWS: Final = 100_000
"""Rows that are read together, about."""
_COLUMNS: Final = [
    *tables.KEY_COLUMNS,
    "outcome",
    "reason",
    "last_entry",
    "write_quorum",
    "missing",
    "holders",
    "custom",
]


@dataclass(frozen=True, slots=True)
class LedgerFilter:
    """Which ledgers are listed; all that is None or False chooses nothing.

    Attributes:
        outcome: restored, held, waiting, deleted, accepted_loss.
        reason: why a ledger is not restored.
        has_few_copies: restored, and bookies hold fewer copies than its record promises.
        is_undecided: it could not be judged what is right.
        category: of a finding of the ledger; needs no outcome.
    """

    outcome: str | None = None
    reason: str | None = None
    has_few_copies: bool = False
    is_undecided: bool = False
    category: str | None = None


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """One ledger of a list.

    Attributes:
        ledger: its id.
        topic: whose it is; None where nothing says so.
        outcome: what the plan does with it; None: it is not of this plan's doing.
        reason: why it is not restored.
        last_entry: of its proposed record.
        missing_copies: copies of entries that its record promises and no bookie has.
        holders: bookies that have anything of it.
    """

    ledger: LedgerId
    topic: str | None
    outcome: str | None
    reason: str | None
    last_entry: int | None
    missing_copies: int
    holders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HeldChoice:
    """Which held ledgers are meant; what is None does not matter.

    Attributes:
        reason: why they are held.
        bookie: one that holds anything of them.
        among: ids of which they are.
        label: of an alternative that they have.
    """

    reason: str | None = None
    bookie: str | None = None
    among: frozenset[LedgerId] | None = None
    label: str | None = None


def select_held(plan: Dataset, choice: HeldChoice) -> frozenset[LedgerId]:
    """Return the held ledgers of a plan that are meant.

    Where an alternative is to be written, those that bkmeta purged are never among them: a choice has to name each.

    Raises:
        DatasetError: a file of the plan is gone or damaged.
    """
    selected: set[LedgerId] = set()
    columns = [*tables.KEY_COLUMNS, "outcome", "reason", "holders"]
    for span in bucket_ranges(plan.rows("reconstruction"), rows_per_task=_ROWS):
        rows = plan.read("reconstruction", buckets=span, columns=columns)
        rows = rows.filter(pc.equal(rows["outcome"], "held"))
        if choice.reason is not None:
            rows = rows.filter(pc.equal(rows["reason"], choice.reason))
        if choice.bookie is not None:
            lists = rows["holders"].combine_chunks()
            holding = pc.equal(lists.flatten(), choice.bookie)
            rows = rows.take(pc.unique(pc.list_parent_indices(lists).filter(holding)))
        ids = {LedgerId(row["scope"], row["ledger"]) for row in rows.select(["scope", "ledger"]).to_pylist()}
        if choice.label is not None and ids:
            ids &= _list_offered(plan, span, choice.label) - _list_purged(plan, span)
        selected |= ids if choice.among is None else ids & choice.among
    return frozenset(selected)


def _list_offered(plan: Dataset, span: range, label: str) -> set[LedgerId]:
    """Return the ledgers of a range that have an alternative of a label."""
    actions = plan.read("actions", buckets=span, columns=["scope", "ledger", "alternatives"])
    lists = actions["alternatives"].combine_chunks()
    offered = pc.equal(pc.struct_field(lists.flatten(), "label"), label)
    rows = actions.take(pc.unique(pc.list_parent_indices(lists).filter(offered)))
    return {LedgerId(row["scope"], row["ledger"]) for row in rows.select(["scope", "ledger"]).to_pylist()}


def _list_purged(plan: Dataset, span: range) -> set[LedgerId]:
    """Return the ledgers of a range that bkmeta purged, as tombstones say."""
    rows = plan.read("sides", buckets=span, columns=["scope", "ledger", "tombstone"])
    rows = rows.filter(pc.is_valid(rows["tombstone"]))
    return {LedgerId(row["scope"], row["ledger"]) for row in rows.select(["scope", "ledger"]).to_pylist()}


def few_copies(rows: pa.Table) -> pa.ChunkedArray:
    """Return which rows of a reconstruction come back with fewer copies of some entry than their write quorum."""
    return pc.and_(pc.equal(rows["outcome"], "restored"), pc.greater(rows["missing"], 0))


def list_ledgers(plan: Dataset, choice: LedgerFilter) -> Iterator[LedgerLine]:
    """Yield the chosen ledgers of a plan, by bucket.

    Raises:
        DatasetError: a file of the plan is gone or damaged.
    """
    for span in bucket_ranges(plan.rows("reconstruction") + plan.rows("sides"), rows_per_task=_ROWS):
        if choice.is_undecided:
            yield from _list_undecided(plan, span)
            continue
        if choice.category is not None:
            yield from _list_with_finding(plan, span, choice.category)
            continue
        rows = plan.read("reconstruction", buckets=span, columns=_COLUMNS)
        if choice.outcome is not None:
            rows = rows.filter(pc.equal(rows["outcome"], choice.outcome))
        if choice.reason is not None:
            rows = rows.filter(pc.equal(rows["reason"], choice.reason))
        if choice.has_few_copies:
            rows = rows.filter(few_copies(rows))
        if not rows.num_rows:
            continue
        owners = _owners(plan, span)
        for row in rows.to_pylist():
            ledger = LedgerId(row["scope"], row["ledger"])
            topic = topic_of(row["custom"], owners.get(ledger))
            holders = tuple(row["holders"])
            yield LedgerLine(ledger, topic, row["outcome"], row["reason"], row["last_entry"], row["missing"], holders)


def list_guarded_by(plan: Dataset, bookie: str) -> Iterator[LedgerId]:
    """Yield the ledgers whose record names a bookie, and whose guard's lock keeps workers from repairing them.

    Those of other scopes than 0 are left out: no released BookKeeper could repair them.

    Raises:
        DatasetError: a file of the plan is gone or damaged.
    """
    for span in bucket_ranges(plan.rows("actions"), rows_per_task=_ROWS):
        actions = plan.read("actions", buckets=span, columns=["scope", "ledger", "guard", "value"])
        locked = actions.filter(pc.and_(pc.equal(actions["guard"], Guard.LOCK), pc.equal(actions["scope"], 0)))
        # What is written, be it another reading than the plan's own.
        records = decode_columns(locked["value"].combine_chunks())
        for ledger, segments in zip(locked["ledger"].to_pylist(), records["segments"].to_pylist(), strict=True):
            if any(bookie in segment["members"] for segment in segments or ()):
                yield LedgerId(0, ledger)


def list_reuse_locked(plan: Dataset) -> Iterator[LedgerId]:
    """Yield the ledgers of scope 0 whose id two ledgers have, and that a lock keeps workers from repairing.

    The lock is the plan's, or the store has it and the plan leaves it. Which bookies the record names, no plan knows.

    Raises:
        DatasetError: a file of the plan is gone or damaged.
    """
    for span in bucket_ranges(plan.rows("actions"), rows_per_task=_ROWS):
        actions = plan.read("actions", buckets=span, columns=["scope", "ledger", "kind", "op"])
        is_kept = pc.is_in(actions["op"], pa.array([KEEP, LEAVE]))
        locked = actions.filter(pc.and_(pc.equal(actions["kind"], REUSE_LOCK), is_kept))
        for ledger in locked.filter(pc.equal(locked["scope"], 0))["ledger"].to_pylist():
            yield LedgerId(0, ledger)


def _owners(plan: Dataset, span: range) -> dict[LedgerId, str]:
    rows = plan.read("sides", buckets=span, columns=["scope", "ledger", "owner"])
    rows = rows.filter(pc.is_valid(rows["owner"]))
    return {LedgerId(row["scope"], row["ledger"]): row["owner"] for row in rows.to_pylist()}


def _list_undecided(plan: Dataset, span: range) -> Iterator[LedgerLine]:
    rows = plan.read("sides", buckets=span, columns=["scope", "ledger", "owner", "relation", "verdict"])
    for row in rows.filter(pc.equal(rows["verdict"], UNDECIDED)).to_pylist():
        yield LedgerLine(LedgerId(row["scope"], row["ledger"]), row["owner"], None, row["relation"], None, 0, ())


def _list_with_finding(plan: Dataset, span: range, category: str) -> Iterator[LedgerLine]:
    rows = plan.read("findings", buckets=span, columns=["scope", "ledger", "category", "bookies"])
    rows = rows.filter(pc.equal(rows["category"], category))
    owners = _owners(plan, span) if rows.num_rows else {}
    for row in rows.to_pylist():
        ledger = LedgerId(row["scope"], row["ledger"])
        yield LedgerLine(ledger, owners.get(ledger), None, category, None, 0, tuple(row["bookies"]))
