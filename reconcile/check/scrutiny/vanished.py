"""Records that the run before listed and the store no longer has: which are explained, and when too many are not.

    explained by        where
    bkmeta              a tombstone of ours
    the store's history who deleted the key, and when, as far as the store or a backup of it remembers
    its owner           a reference says that it was deleted; or complete references do not name it any longer

BookKeeper removes a folder with its last ledger, and one trim of all topics removes thousands in seconds: neither how
many folders are gone nor how fast shows anything. What does:

    the store went back     its transactions or its counters are lower than they were; or what is gone are the newest
                            ledgers, all of them, not one that is older, and none was made since
    too many                of the unexplained ones more than any run before saw in so long a window: `FACTOR` times as
                            many, and more than `MOST` of all; where nothing could explain a deletion, `MOST_ALONE`
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings.categories import Category
from reconcile.findings.table import Finding, FindingStatement
from reconcile.rules.sides import ABSENT, unite
from reconcile.words import count_noun
from recovery.model.tables import KEY_COLUMNS

AT_LEAST: Final = 10
"""Unexplained ledgers that are never an alarm."""
MOST: Final = 0.1
MOST_ALONE: Final = 0.5
"""A shortened retention removes as many, as intended."""
FACTOR: Final = 3.0
BKMETA: Final = "deleted by bkmeta"
HISTORY: Final = "deleted, as the store remembers"
OWNER: Final = "dropped by their owner"

VANISHED: Final = pa.schema(
    [
        pa.field("bucket", pa.int16()),
        pa.field("scope", pa.int64()),
        pa.field("ledger", pa.int64()),
        pa.field("created_txn", pa.int64()),
        pa.field("deleted_txn", pa.int64()),
        pa.field("deleted_at", pa.timestamp("us", "UTC")),
        pa.field("session", pa.int64()),
    ]
)
"""`deleted_…` and session are of the store's history; null: it does not say."""


@dataclass(frozen=True, slots=True)
class VanishedWindow:
    """Vanished records between two consecutive runs.

    Attributes:
        seconds: between their captures of the store.
        listed: ledgers of the first one.
        unexplained: ledgers among these that the second run lacked without an explanation.
    """

    seconds: float
    listed: int
    unexplained: int

    @property
    def share(self) -> float:
        """Of the ledgers that were listed."""
        return self.unexplained / self.listed if self.listed else 0.0


@dataclass(slots=True)
class Vanished:
    """The outcomes of the ledgers of the run before.

    Attributes:
        listed: ledgers of the run before.
        gone: ledgers among these that are no longer in the store.
        explained: explanation → ledgers; the others are unexplained.
        oldest_gone: least transaction that made one of the unexplained; None: none is known.
        newest_kept: largest transaction that made a ledger which is still there; None: likewise.
        newest_now: the same for all ledgers in the store now.
        unlisted: unexplained ledgers that have a record all the same, when they were asked for by their keys.
    """

    listed: int = 0
    gone: int = 0
    explained: dict[str, int] = field(default_factory=dict)
    oldest_gone: int | None = None
    newest_kept: int | None = None
    newest_now: int | None = None
    unlisted: int = 0

    @property
    def unexplained(self) -> int:
        """Ledgers that are gone without a reason that is known."""
        return self.gone - sum(self.explained.values())


def find_vanished(earlier: pa.Table, stored: pa.Table, history: pa.Table) -> tuple[pa.Table, int | None]:
    """Return `VANISHED` of a bucket range, and the largest transaction that made a ledger which is still there.

    Args:
        earlier: keys and ``created_txn`` of CATALOG_LEDGERS as the run before saw them.
        stored: key columns of CATALOG_LEDGERS.
        history: CATALOG_HISTORY.
    """
    keys = list(KEY_COLUMNS)
    earlier_rows, rows_now = unite([earlier, stored]).rows
    gone = earlier.take(pa.array(np.sort(earlier_rows[(earlier_rows != ABSENT) & (rows_now == ABSENT)])))
    kept = earlier["created_txn"].take(pa.array(earlier_rows[(earlier_rows != ABSENT) & (rows_now != ABSENT)]))
    deletions = history.filter(pc.equal(history["op"], "deleted")).select([*keys, "txn", "at", "session"])
    last = deletions.sort_by("txn").group_by(keys, use_threads=False).aggregate(
        [("txn", "last"), ("at", "last"), ("session", "last")]
    )  # fmt: skip
    last = last.rename_columns([*keys, "deleted_txn", "deleted_at", "session"])
    rows = gone.select([*keys, "created_txn"]).join(last, keys, join_type="left outer")
    return rows.select(VANISHED.names).cast(VANISHED), pc.max(kept).as_py()


def find_expected(windows: Sequence[VanishedWindow], seconds: float) -> float:
    """Return the largest share of ledgers that vanished unexplained in an earlier window of this length."""
    return max((w.share * max(1.0, seconds / w.seconds) for w in windows if w.seconds > 0), default=0.0)


def list_lower_counters(earlier: Mapping[str, int], now: Mapping[str, int]) -> list[str]:
    """Return the id counters that went back; key → last number in."""
    return sorted(key for key, number in earlier.items() if key in now and now[key] < number)


def list_doubts(
    vanished: Vanished,
    windows: Sequence[VanishedWindow],
    seconds: float,
    went_back: Sequence[str],
    *,
    has_reasons: bool,
) -> Iterator[Finding]:
    """Yield a finding where too many ledgers vanished unexplained.

    Args:
        vanished: the vanished ledgers.
        windows: between the runs before.
        seconds: since the run before.
        went_back: signs that the store went back, in words.
        has_reasons: a deletion would be explained: by references, or by a store that remembers.
    """
    signs = [FindingStatement("store", "it went back", sign) for sign in went_back]
    if vanished.unlisted:
        signs.append(FindingStatement("store", "not listed, and there when asked for by their keys", vanished.unlisted))
    count, share = vanished.unexplained, vanished.unexplained / max(vanished.listed, 1)
    usual = find_expected(windows, seconds)
    floor = MOST if has_reasons else MOST_ALONE
    if count > AT_LEAST and share > max(floor, FACTOR * usual):
        signs.append(FindingStatement("earlier", "gone, and nothing explains it", f"{count} of {vanished.listed}"))
    if count > AT_LEAST and _are_newest(vanished):
        text = f"all that were made since transaction {vanished.newest_kept}, and none before: {count}"
        signs.append(FindingStatement("earlier", "gone are the newest ledgers", text))
    if not signs:
        return
    explained = ", ".join(f"{number} {why}" for why, number in sorted(vanished.explained.items()) if number)
    known = f"{100 * usual:.1f} % at most, by {count_noun(len(windows), 'earlier window')}" if windows else "not known"
    statements = [
        *signs,
        FindingStatement("earlier", "ledgers that it listed and are gone", f"{vanished.gone} of {vanished.listed}"),
        FindingStatement("store", "explained", explained or "none"),
        FindingStatement("earlier", "time since", str(timedelta(seconds=round(seconds)))),
        FindingStatement("earlier", "unexplained in so long a time, usually", known),
    ]
    yield Finding(Category.LISTING_INCOMPLETE, "records", statements, unknowns=["whether the others were deleted"])


def _are_newest(vanished: Vanished) -> bool:
    return (
        vanished.oldest_gone is not None
        and vanished.newest_kept is not None
        and vanished.oldest_gone > vanished.newest_kept == vanished.newest_now
    )


def read_windows(kept: Sequence[Sequence[Any]]) -> list[VanishedWindow]:
    """Return the windows that a manifest keeps."""
    return [VanishedWindow(float(seconds), int(listed), int(unexplained)) for seconds, listed, unexplained in kept]
