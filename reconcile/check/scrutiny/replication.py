"""The repair of ledgers as the store shows it: marks, locks, the auditor, and how long a mark may last.

The age of a mark is that of its own ctime, else of its node's. A mark that is older than the grace is a finding, with a
reason:

    reason                 when                                                          the first that holds
    guarded                the ledger's lock is a guard of a restore: no worker replicates it until it is settled
    replication disabled   the node `disable` is there
    dead lock              the ledger's lock belongs to no session: no worker ever takes the ledger
    locked                 a worker holds the ledger's lock: it is at work, or hangs
    no source              no bookie that a segment names is registered
    open and empty         open, and nothing is known to be in its last segment: no worker copies it
    no destination         fewer writable bookies outside of a segment's ensemble than it has members that are gone
    no auditor             no bookie has a vote in the auditor's election
    waiting                none of these: no worker runs, or all are busy

The ctime of a lock's node is its age, where the store keeps one (etcd does not). If entries of a closed ledger are on
no bookie, and every bookie was asked, its mark is critical for any reason.

A mark names bookies that lack copies. The fragments of a ledger are its segments: one that names none of these
bookies is done, for a worker writes the record again with the bookie that took the copy. The others are not.

Where the bookie that is lacking is one of the open segment, and that is not the ledger's only one, the finding is
OPEN_FRAGMENT_PENDING: a worker waits `OPEN_GRACE_S` for the writer to go on without it, then it ends the segment.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings.categories import TRAITS, Category
from reconcile.findings.table import FindingRun, FindingStatement, make_ledger_findings
from reconcile.rules.sides import ABSENT, unite
from reconcile.words import list_names
from recovery.codecs.keys import read_marks
from recovery.codecs.replication_lock import REUSE, decode_holder, is_guard, ledger_of_lock
from recovery.codecs.replication_mark import list_replicas, read_mark_times
from recovery.codecs.store import REPLICATION_DISABLED
from recovery.codecs.store_kind import StoreKind
from recovery.model.ids import LedgerId, buckets
from recovery.model.tables import FINDINGS, KEY_COLUMNS

Ints = npt.NDArray[np.int64]

OPEN_GRACE_S: Final = 30.0
"""Seconds: the default of BookKeeper's openLedgerRereplicationGracePeriod."""
_FRAGMENTS: Final = 12
"""Fragments of a ledger that a finding lists."""
_VOTES: Final = "/underreplication/auditorelection/V_"
MARKS: Final = pa.schema(
    [
        pa.field("bucket", pa.int16()),
        pa.field("scope", pa.int64()),
        pa.field("ledger", pa.int64()),
        pa.field("since", pa.timestamp("us", "UTC")),
        pa.field("path", pa.string()),
        pa.field("raw", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True, eq=False)
class StoredReplication:
    """The nodes of a store for the repair of ledgers; small except for the marks.

    Attributes:
        marks: of `MARKS`, a row a marked ledger.
        locks: ledger → the owner of its lock, a worker or a guard, and since when.
        guarded: ledgers with a guard's lock.
        dead: ledgers with a lock that has no session and is not a guard's.
        disabled: replication is disabled: since when, in words; None: it is not.
        auditor: a bookie has a vote in the election.
        is_kept: the store has marks and an auditor at all; on etcd BookKeeper has neither.
        writable, read_only: bookies that are registered so.
    """

    marks: pa.Table
    locks: dict[LedgerId, str]
    guarded: frozenset[LedgerId]
    dead: frozenset[LedgerId]
    disabled: str | None
    auditor: bool
    is_kept: bool
    writable: frozenset[str]
    read_only: frozenset[str]

    @property
    def registered(self) -> frozenset[str]:
        """Bookies that are registered."""
        return self.writable | self.read_only

    @classmethod
    def from_nodes(cls, nodes: pa.Table, kind: StoreKind, part: range | None = None) -> Self:
        """Read CATALOG_NODES.

        Args:
            nodes: of a store.
            kind: of the store.
            part: marks of these buckets only; None: all.
        """
        of_marks = nodes.filter(pc.equal(nodes["kind"], "mark"))
        columns = ["path", "kind", "raw", "owner", "created_at"]
        rest = nodes.filter(pc.not_equal(nodes["kind"], "mark")).select(columns).to_pylist()
        locks: dict[LedgerId, str] = {}
        guarded, dead = set(), set()
        for row in rest:
            ledger = ledger_of_lock(row["path"]) if row["kind"] == "lock" else None
            if ledger is not None:
                locks[ledger] = f"{decode_holder(row['raw']) or 'an unknown owner'}{_tell_since(row)}"
                if is_guard(row["raw"], row["owner"] or 0):
                    guarded.add(ledger)
                elif row["owner"] is None:
                    dead.add(ledger)
        registered = [row["path"].rpartition("/") for row in rest if row["kind"] == "registration"]
        writable, read_only = (
            frozenset(name for above, _, name in registered if above == folder) for folder in kind.places.registrations
        )
        return cls(
            _read_marks(of_marks, part),
            locks,
            frozenset(guarded),
            frozenset(dead),
            next(
                (f"replication is disabled{_tell_since(row)}" for row in rest if row["path"] == REPLICATION_DISABLED),
                None,
            ),
            any(row["path"].startswith(_VOTES) and row["owner"] is not None for row in rest),
            kind.has_replication,
            writable,
            read_only,
        )


def _tell_since(row: Mapping[str, Any]) -> str:
    """Return the creation time of a node, as words to append; empty if the store does not keep it."""
    made = row["created_at"]
    return "" if made is None else f" since {made.isoformat(timespec='seconds')}"


def _read_marks(nodes: pa.Table, part: range | None) -> pa.Table:
    paths = nodes["path"].combine_chunks() if nodes.num_rows else pa.array([], pa.string())
    marks = read_marks(paths)
    bucket = buckets(marks.scope, marks.ledger)
    inside = np.ones(len(bucket), np.bool_) if part is None else (bucket >= part.start) & (bucket < part.stop)
    rows = nodes.take(pa.array(marks.rows[inside]))
    raws = rows["raw"].combine_chunks() if rows.num_rows else pa.array([], pa.binary())
    since = pc.cast(read_mark_times(raws), pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
    return pa.table(
        {
            "bucket": bucket[inside],
            "scope": marks.scope[inside],
            "ledger": marks.ledger[inside],
            "since": pc.coalesce(pa.chunked_array([since]), rows["changed_at"]),
            "path": rows["path"],
            "raw": raws,
        },
        schema=MARKS,
    )


def list_overdue(stored: pa.Table, replication: StoredReplication, run: FindingRun, grace_s: float) -> pa.Table:
    """Return the marks that are older than the grace, the oldest first: `MARKS`, and the row of each record.

    Args:
        stored: CATALOG_LEDGERS, or its key columns.
        replication: of the store.
        run: this one.
        grace_s: seconds that a mark may last.
    """
    limit = pa.scalar(run.at - timedelta(seconds=grace_s), pa.timestamp("us", "UTC"))
    marks = replication.marks
    late = marks.filter(pc.fill_null(pc.less(marks["since"], limit), fill_value=False))
    rows, places = unite([late, stored]).rows
    both = (rows != ABSENT) & (places != ABSENT)
    return late.take(pa.array(rows[both])).append_column("record", pa.array(places[both])).sort_by("since")


def find_overdue(
    stored: pa.Table, late: pa.Table, lost: Ints, replication: StoredReplication, run: FindingRun
) -> pa.Table:
    """Return a finding for each ledger with an overdue mark.

    Args:
        stored: CATALOG_LEDGERS.
        late: of `list_overdue`.
        lost: of each row of `stored`, how many entries are on no bookie, as far as every bookie was asked.
        replication: of the store.
        run: this one.
    """
    if not late.num_rows:
        return FINDINGS.empty_table()
    records = stored.select(["state", "segments", "last_entry"]).take(late["record"]).to_pylist()
    ledgers = [LedgerId(*pair) for pair in zip(late["scope"].to_pylist(), late["ledger"].to_pylist(), strict=True)]
    reasons = [_explain(*pair, replication) for pair in zip(ledgers, records, strict=True)]
    replicas = [list_replicas(raw) for raw in late["raw"].to_pylist()]
    fragments = [_sort_fragments(*pair, replication) for pair in zip(records, replicas, strict=True)]
    pending = np.array([_is_open_there(*pair, replication) for pair in zip(records, replicas, strict=True)], np.bool_)
    pending &= pc.less(late["since"], run.at - timedelta(seconds=OPEN_GRACE_S)).to_numpy()
    lost = lost[late["record"].to_numpy()]
    texts = pa.array([", ".join(names) for names in replicas])
    parts = []
    for category, mask in ((Category.UNDER_REPLICATED_OVERDUE, ~pending), (Category.OPEN_FRAGMENT_PENDING, pending)):
        rows = pa.array(np.flatnonzero(mask))
        overdue = late.take(rows)
        statements = [
            FindingStatement("store", "marked since", overdue["since"]),
            FindingStatement("store", "bookies that are believed to lack it", texts.take(rows)),
            FindingStatement("store", "why it is still marked", pa.array(reasons, pa.string()).take(rows)),
            FindingStatement(
                "store", "fragments done", pa.array([done for done, _ in fragments], pa.string()).take(rows)
            ),
            FindingStatement(
                "store", "fragments not done", pa.array([left for _, left in fragments], pa.string()).take(rows)
            ),
            FindingStatement("bookies", "entries that no bookie has", pa.array(lost).take(rows)),
        ]
        named = pa.array([list(names) for names in replicas], pa.list_(pa.string())).take(rows)
        keys = overdue.select(list(KEY_COLUMNS))
        severity = pa.array(np.where(lost[mask] > 0, "critical", TRAITS[category].severity))
        parts.append(
            make_ledger_findings(category, keys, statements, run, subject="mark", severity=severity, bookies=named)
        )
    return pa.concat_tables(parts)


def _find_lacking(record: Mapping[str, Any], replicas: Sequence[str], replication: StoredReplication) -> frozenset[str]:
    """Return the bookies that lack copies: the ones in the mark; without any, the unregistered ones."""
    members = {name for segment in record["segments"] or () for name in segment["members"]}
    return frozenset(replicas or members - replication.registered)


def _sort_fragments(
    record: Mapping[str, Any], replicas: Sequence[str], replication: StoredReplication
) -> tuple[str, str]:
    """Return the fragments of a ledger that no lacking bookie is named for, and the others, in words."""
    segments: Sequence[Any] = record["segments"] or []
    lacking = _find_lacking(record, replicas, replication)
    ends = [segment["first"] - 1 for segment in segments[1:]] + [record["last_entry"]]
    done: list[str] = []
    left: list[str] = []
    for segment, end in zip(segments, ends, strict=False):
        entries = f"{segment['first']}…{'' if end is None else end}"
        if names := sorted(lacking.intersection(segment["members"])):
            left.append(f"{entries} ({', '.join(names)})")
        else:
            done.append(entries)
    return _describe_fragments(done, len(segments)), _describe_fragments(left, len(segments))


def _describe_fragments(names: Sequence[str], count: int) -> str:
    return f"{len(names)} of {count}: {list_names(names, _FRAGMENTS)}" if names else "none"


def _is_open_there(record: Mapping[str, Any], replicas: Sequence[str], replication: StoredReplication) -> bool:
    """Whether the missing copies are in the segment that is being written, and an earlier segment shows entries."""
    segments: Sequence[Any] = record["segments"] or []
    if record["state"] != "OPEN" or len(segments) < 2:
        return False
    return not _find_lacking(record, replicas, replication).isdisjoint(segments[-1]["members"])


def _explain(ledger: LedgerId, record: Mapping[str, Any], replication: StoredReplication) -> str:
    holder = replication.locks.get(ledger)
    if ledger in replication.guarded:
        return f"guarded by {holder}: no worker replicates it until the restore is settled"
    if replication.disabled is not None:
        return replication.disabled
    if holder is not None and holder.startswith(REUSE):
        return f"locked by {holder}: the id has an older ledger, too, and until then no worker replicates this one"
    if ledger in replication.dead:
        return f"dead lock of {holder}: no session holds it, so no worker ever takes the ledger"
    if holder is not None:
        return f"locked by {holder}: a worker is at it, or hangs"
    ensembles = [frozenset(segment["members"]) for segment in record["segments"] or ()]
    if any(not members & replication.registered for members in ensembles):
        return "no source: no bookie of a segment is registered"
    if record["state"] == "OPEN" and len(ensembles) == 1:
        return "open, and nothing shows that its only segment has entries: no worker copies it before it is closed"
    if any(len(members - replication.registered) > len(replication.writable - members) for members in ensembles):
        return "no destination: too few writable bookies outside of an ensemble"
    if not replication.auditor:
        return "no auditor is elected"
    return "no worker has taken it: none runs, or all are busy"
