"""Who deleted ledgers: session by session, in the order of their transactions, as a plan's `sides` have it.

A session is one connection to ZooKeeper: what one process deleted, from its start to its end. etcd knows none, so all
that was deleted there is one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.errors import PlanError
from reconcile.plan import actions as planned
from reconcile.plan.alternatives import RESTORE
from reconcile.plan.manifest import read_plan_manifest
from reconcile.plan.plan_reader import ranges_of
from reconcile.rules.sides import ABSENT, Relation, unite
from recovery.codecs import ledger_metadata
from recovery.dataset import Dataset
from recovery.model.ids import LedgerId, to_unsigned
from recovery.model.metadata import NO_ENTRY
from recovery.model.tables import KEY_COLUMNS

NO_SESSION: Final = "none"
"""Typed and shown for the session of deletions of which none is known."""
LISTED: Final = 10
"""Sessions that are shown: those with the most ledgers."""
_COLUMNS: Final = ["relation", "on_bookies", "deleted_txn", "deleted_at", "deleted_session", "tombstone"]
_SUMS: Final = {
    "ledgers": "sum",
    "on_bookies": "sum",
    "undecided": "sum",
    "purged": "sum",
    "first_txn": "min",
    "last_txn": "max",
    "first_at": "min",
    "last_at": "max",
}
_MASK: Final = (1 << 64) - 1
_SIGN: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class SessionDeletions:
    """What one session deleted.

    Attributes:
        session: as ZooKeeper numbers it; None: not known.
        ledgers: how many it deleted that the store lacks still.
        on_bookies: how many of these bookies have something of.
        undecided: how many of the latter are held or left alone: no person chose what becomes of them.
        first_txn, last_txn: transactions of its first and last deletion.
        first_at, last_at: when these were; None: not known.
        purged: how many of all of them bkmeta purged, as tombstones say: these stay deleted, and are never undecided.
    """

    session: int | None
    ledgers: int
    on_bookies: int
    undecided: int
    first_txn: int
    last_txn: int
    first_at: datetime | None
    last_at: datetime | None
    purged: int = 0

    @property
    def name(self) -> str:
        """The session as logs write it."""
        return NO_SESSION if self.session is None else f"{to_unsigned(self.session):#x}"

    def __str__(self) -> str:
        session = "no session known" if self.session is None else f"session {self.name}"
        ledgers = "1 ledger" if self.ledgers == 1 else f"{self.ledgers} ledgers"
        when = "at an unknown time"
        if self.first_at is not None and self.last_at is not None:
            first, last = (time.isoformat(timespec="seconds") for time in (self.first_at, self.last_at))
            when = f"at {first}" if first == last else f"from {first} to {last}"
        txns = f"transactions {self.first_txn:#x} to {self.last_txn:#x}"
        if self.first_txn == self.last_txn:
            txns = f"transaction {self.first_txn:#x}"
        purged = f"; bkmeta purged {self.purged} of them by a certificate, and they stay deleted" if self.purged else ""
        return f"{session}: {ledgers} ({self.on_bookies} on bookies), {txns}, {when}{purged}"

    def to_json(self) -> dict[str, Any]:
        """Return it as `--json` has it."""
        return {
            "session": None if self.session is None else self.name,
            "ledgers": self.ledgers,
            "on_bookies": self.on_bookies,
            "undecided": self.undecided,
            "purged": self.purged,
            "first_txn": self.first_txn,
            "last_txn": self.last_txn,
            "first_at": None if self.first_at is None else self.first_at.isoformat(),
            "last_at": None if self.last_at is None else self.last_at.isoformat(),
        }


def group_by_session(plan: Dataset) -> tuple[SessionDeletions, ...]:
    """Return what each session deleted, by the transaction of its first deletion.

    Raises:
        DatasetError: a file is gone or damaged.
    """
    if not plan.rows("sides"):
        return ()
    parts = []
    for buckets in ranges_of(plan)[1:]:
        deleted = _select_deleted(plan.read("sides", buckets=buckets, columns=[*KEY_COLUMNS, *_COLUMNS]))
        if deleted.num_rows:
            parts.append(_with_sums(deleted, _count_undecided(plan, buckets, deleted)))
    if not parts:
        return ()
    rows = _sum_by_session(pa.concat_tables(parts)).to_pylist()
    return tuple(sorted((SessionDeletions(**row) for row in rows), key=lambda session: session.first_txn))


def _select_deleted(sides: pa.Table) -> pa.Table:
    return sides.filter(pc.equal(sides["relation"], str(Relation.DELETED)))


def _count_undecided(plan: Dataset, buckets: range, deleted: pa.Table) -> pa.Array:
    """Say of which of these ledgers on bookies nobody chose what becomes of them, in their order."""
    rows = plan.read("reconstruction", buckets=buckets, columns=[*KEY_COLUMNS, "outcome"])
    rows = rows.filter(pc.is_in(rows["outcome"], pa.array(["held", "deleted", "waiting"])))
    deleted_rows, outcome_rows = unite([deleted, rows]).rows
    undecided = np.zeros(deleted.num_rows, np.int64)
    undecided[deleted_rows[(deleted_rows != ABSENT) & (outcome_rows != ABSENT)]] = 1
    undecided[pc.is_valid(deleted["tombstone"]).to_numpy()] = 0
    return pa.array(undecided)


def _with_sums(deleted: pa.Table, undecided: pa.Array) -> pa.Table:
    ones = pa.array(np.ones(deleted.num_rows, np.int64))
    txn, time = deleted["deleted_txn"], deleted["deleted_at"]
    columns = {
        "session": deleted["deleted_session"],
        "ledgers": ones,
        "on_bookies": pc.cast(deleted["on_bookies"], pa.int64()),
        "undecided": undecided,
        "purged": pc.cast(pc.is_valid(deleted["tombstone"]), pa.int64()),
        "first_txn": txn,
        "last_txn": txn,
        "first_at": time,
        "last_at": time,
    }
    return _sum_by_session(pa.table(columns))


def _sum_by_session(rows: pa.Table) -> pa.Table:
    """Return a row a session, of rows or of sums of them."""
    sums = rows.group_by("session").aggregate(list(_SUMS.items()))
    return pa.table({"session": sums["session"], **{name: sums[f"{name}_{how}"] for name, how in _SUMS.items()}})


@dataclass(frozen=True, slots=True)
class CaptureBefore:
    """Where the state before a session's deletions can be captured from.

    Attributes:
        uri: of the store.
        at: the last transaction before them.
    """

    uri: str
    at: int


def find_capture_before(plan: Dataset, deletions: SessionDeletions) -> CaptureBefore | None:
    """Return what is captured to have the store as it was before a session's deletions.

    None: no source is known, or a person chose a point in time after them: to choose an earlier one is no advice then.
    None, too, where bkmeta purged a ledger after that moment: the state of before has that ledger's record, and not the
    tombstone that keeps it deleted.
    """
    moment = deletions.first_txn - 1
    if _find_last_purge(plan) > moment:
        return None
    sources = read_plan_manifest(plan).histories
    if any(source.chosen and (source.txn or 0) >= deletions.last_txn for source in sources):
        return None
    able = [source for source in sources if source.txn is None or source.txn >= deletions.first_txn]
    return CaptureBefore(able[0].uri, moment) if able else None


def _find_last_purge(plan: Dataset) -> int:
    """Return the last transaction in which bkmeta purged a ledger, as history and tombstones show; -1: none."""
    last = -1
    for buckets in ranges_of(plan)[1:]:
        sides = plan.read("sides", buckets=buckets, columns=["deleted_txn", "tombstone"])
        purged = sides.filter(pc.is_valid(sides["tombstone"]))
        last = max(last, pc.max(purged["deleted_txn"]).as_py() or -1)
    return last


def parse_session(text: str) -> int | None:
    """Return the session that a text names, as catalogs number it: 0x…, decimal, or none.

    Raises:
        ValueError: it is none of these.
    """
    if text == NO_SESSION:
        return None
    try:
        number = int(text, 0)
    except ValueError:
        number = -_SIGN - 1
    if not -_SIGN <= number <= _MASK:
        raise ValueError(f"not a session: {text!r}; write it as it is shown, 0x… or {NO_SESSION}")
    return number - (1 << 64) if number >= _SIGN else number


def select_deleted_by(plan: Dataset, sessions: Sequence[int | None], *, restorable: bool) -> frozenset[LedgerId]:
    """Return the ledgers that some sessions deleted, and of which a plan has an action to be edited.

    A ledger on no bookie has lost what its record names. Only one that was closed without an entry has lost nothing.

    Those that bkmeta purged are never among them: a choice has to name each.

    Args:
        plan: of kind plan.
        sessions: as catalogs number them.
        restorable: only those whose last record before the deletion is known, and those without entries, too; else
            only those that bookies have something of.

    Raises:
        PlanError: a session deleted none of them.
        DatasetError: a file is gone or damaged.
    """
    ledgers: set[LedgerId] = set()
    missed, purging = set(sessions), set[int | None]()
    for buckets in ranges_of(plan)[1:]:
        rows = _select_deleted(plan.read("sides", buckets=buckets, columns=["scope", "ledger", *_COLUMNS]))
        rows = rows if restorable else rows.filter(rows["on_bookies"])
        is_purged = pc.is_valid(rows["tombstone"])
        purging |= set(rows.filter(is_purged)["deleted_session"].to_pylist())
        rows = rows.filter(pc.invert(is_purged))
        wanted = {
            LedgerId(row["scope"], row["ledger"]): row
            for row in rows.select(["scope", "ledger", "on_bookies", "deleted_session"]).to_pylist()
            if row["deleted_session"] in sessions
        }
        for action in _to_edit(plan, buckets) if wanted else ():
            ledger = LedgerId(action["scope"], action["ledger"])
            if ledger not in wanted:
                continue
            record = next((other["value"] for other in action["alternatives"] if other["label"] == RESTORE), None)
            is_of_bookies = wanted[ledger]["on_bookies"]
            if not restorable or (record is not None and (is_of_bookies or _is_empty(record))):
                ledgers.add(ledger)
                missed.discard(wanted[ledger]["deleted_session"])
    for session in missed:
        name = NO_SESSION if session is None else f"{to_unsigned(session):#x}"
        problem = f"has no ledger on bookies that session {name} deleted" + (", and whose record is known" * restorable)
        if session in purging:
            remedy = "see one: bkmeta explain LEDGER"
            problem += "; what bkmeta purged by a certificate stays deleted, unless a choice names the ledger"
            raise PlanError(plan.path, problem, remedy)
        raise PlanError(plan.path, problem, "see the sessions: bkmeta plan show")
    return frozenset(ledgers)


def _is_empty(record: bytes) -> bool:
    """Say whether a record is of a ledger that was closed without an entry."""
    return ledger_metadata.decode(record).last_entry == NO_ENTRY


def _to_edit(plan: Dataset, buckets: range) -> Iterator[Mapping[str, Any]]:
    rows = plan.read("actions", buckets=buckets, columns=["scope", "ledger", "op", "alternatives"])
    yield from rows.filter(pc.is_in(rows["op"], pa.array(["hold", planned.LEAVE]))).to_pylist()
