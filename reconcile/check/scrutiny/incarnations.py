"""Bookies that were started again without their data, known until their ledgers are repaired.

A bookie that is given empty disks gets a new cookie. A cookie is also made again where a store is restored. So its
content decides. Of the closed ledgers with records that are older than its cookie and name it for entries, the bookie
has

    it has                       and it
    nothing of any               was wiped: its cookie shows it
    nothing of these, and of no other closed ledger that asks entries of it, `MANY` at least, whatever its cookie is
                                 was wiped: it is empty
    something of one             was not, as far as this run shows

A run that knows a wiped bookie passes it on. The bookie stays wiped while records that have not changed since ask for
entries that it lacks: until its ledgers were replicated to other bookies, rewritten or deleted, or it has its data
again. What it lacks is missing: readers that ask it find nothing. Its old disks may have it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings.categories import Category
from reconcile.findings.table import Finding, FindingStatement
from recovery.codecs.store import COOKIES
from recovery.model.tables import WIPED

MANY: Final = 10
"""A bookie that lacks so many closed ledgers or more is empty, whatever its cookie shows."""
BY_COOKIE: Final = "cookie"
EMPTY: Final = "empty"


@dataclass(frozen=True, slots=True)
class Traces:
    """The past of a bookie, as closed ledgers with entries on it show; sums of several bucket ranges.

    Attributes:
        older: ledgers that it was asked for, with records that are older than its beginning.
        older_held: those of these with any entry on it.
        older_unseen: ledgers with such records that it was not asked for.
        asked: all ledgers that it was asked for.
        holding: those of these with any entry on it.
    """

    older: int = 0
    older_held: int = 0
    older_unseen: int = 0
    asked: int = 0
    holding: int = 0

    def __add__(self, other: Self) -> Self:
        """Return the traces of both."""
        return type(self)(
            self.older + other.older,
            self.older_held + other.older_held,
            self.older_unseen + other.older_unseen,
            self.asked + other.asked,
            self.holding + other.holding,
        )


@dataclass(frozen=True, slots=True)
class Wiped:
    """A bookie that lost its data; a row of WIPED.

    Attributes:
        bookie: its id.
        before_txn: what records ask of it that have not changed since this transaction of the store it had lost.
        cookie_txn: the transaction that made its cookie; None: it is not known.
        earlier_cookie_txn: likewise of the cookie that an earlier run saw; None: none saw another entry.
        evidence: `BY_COOKIE` or `EMPTY`.
        since: begin of the first run that saw it.
        ledgers: closed ledgers with such records and with entries missing on it.
    """

    bookie: str
    before_txn: int
    cookie_txn: int | None
    earlier_cookie_txn: int | None
    evidence: str
    since: datetime
    ledgers: int = 0


def read_cookies(nodes: pa.Table) -> dict[str, int]:
    """Return bookie → the store's transaction that made its cookie; CATALOG_NODES in."""
    rows = nodes.filter(pc.equal(nodes["kind"], "cookie")).select(["path", "created_txn"]).to_pylist()
    begin = f"{COOKIES}/"
    return {row["path"].removeprefix(begin): row["created_txn"] for row in rows if row["created_txn"] is not None}


def read_wiped(rows: pa.Table) -> dict[str, Wiped]:
    """Return bookie → the facts of an earlier run; WIPED in."""
    return {row["bookie"]: Wiped(**row) for row in rows.to_pylist()}


def make_wiped_rows(wiped: Iterable[Wiped]) -> pa.Table:
    """Return wiped bookies as rows of WIPED."""
    rows: list[dict[str, Any]] = [{name: getattr(entry, name) for name in WIPED.names} for entry in wiped]
    return pa.Table.from_pylist(rows, schema=WIPED)


def find_beginnings(cookies: Mapping[str, int], known: Mapping[str, Wiped]) -> dict[str, int]:
    """Return bookie → the transaction before which nothing proves that it had its present data.

    Args:
        cookies: as `read_cookies` returns them.
        known: wiped bookies of an earlier run.
    """
    passed_on = {entry.bookie: entry.before_txn for entry in known.values() if _has_same_cookie(entry, cookies)}
    return {bookie: max(txn, passed_on.get(bookie, txn)) for bookie, txn in cookies.items()} | {
        bookie: txn for bookie, txn in passed_on.items() if bookie not in cookies
    }


def _has_same_cookie(known: Wiped, cookies: Mapping[str, int]) -> bool:
    """Whether no cookie was made for a wiped bookie since; a removed cookie does not count while its ledgers remain."""
    return cookies.get(known.bookie, known.cookie_txn) == known.cookie_txn


def trace_bookies(pairs: pa.Table, beginnings: Mapping[str, int]) -> dict[str, Traces]:
    """Return the traces of bookies in a bucket range.

    Args:
        pairs: of a `LookJudgement`.
        beginnings: as `find_beginnings` returns them.
    """
    began = pa.array([beginnings.get(name) for name in pairs["bookie"].to_pylist()], pa.int64())
    older = pc.fill_null(pc.less(pairs["changed_txn"], began), fill_value=False)
    asked = pc.or_(pairs["known"], pairs["holds"])
    flags = {
        "older": pc.and_(older, asked),
        "older_held": pc.and_(older, pairs["holds"]),
        "older_unseen": pc.and_(older, pc.invert(asked)),
        "asked": asked,
        "holding": pairs["holds"],
    }
    table = pa.table({"bookie": pairs["bookie"], **{name: pc.cast(flag, pa.int64()) for name, flag in flags.items()}})
    sums = table.group_by("bookie").aggregate([(name, "sum") for name in flags])
    return {row["bookie"]: Traces(**{name: row[f"{name}_sum"] for name in flags}) for row in sums.to_pylist()}


def find_wiped(
    traces: Mapping[str, Traces],
    cookies: Mapping[str, int],
    earlier_cookies: Mapping[str, int],
    known: Mapping[str, Wiped],
    txn: int | None,
    begun: datetime,
) -> list[Wiped]:
    """Return the bookies that may be wiped; `count_lacking` counts their missing copies.

    Args:
        traces: of bookies, in the whole share.
        cookies: as `read_cookies` returns them.
        earlier_cookies: likewise, of the store as the run before saw it.
        known: wiped bookies of that run.
        txn: the last transaction of the store when it was read; None: it counts none.
        begun: when the run began.
    """
    wiped = []
    for bookie, seen in sorted(traces.items()):
        cookie, earlier_wipe = cookies.get(bookie), known.get(bookie)
        earlier = earlier_cookies.get(bookie, cookie)
        other = None if earlier == cookie else earlier
        if earlier_wipe is not None and _has_same_cookie(earlier_wipe, cookies):
            if seen.older or seen.older_unseen:
                wiped.append(earlier_wipe)
        elif cookie is not None and seen.older and not seen.older_held:
            wiped.append(Wiped(bookie, cookie, cookie, other, BY_COOKIE, begun))
        elif txn is not None and seen.asked >= MANY and not seen.holding:
            wiped.append(Wiped(bookie, txn + 1, cookie, other, EMPTY, begun))
        elif cookie is not None and earlier_wipe is not None and seen.older:
            # Its cookie is new, as after a restore of the store, and it has some of its data again.
            wiped.append(Wiped(bookie, cookie, cookie, other, earlier_wipe.evidence, earlier_wipe.since))
    return wiped


def count_lacking(wiped: Iterable[Wiped], missing: pa.Table) -> dict[str, int]:
    """Return bookie → ledgers with entries missing on it, by records that are unchanged since it was wiped.

    Args:
        wiped: bookies.
        missing: MISSING of some ledgers.
    """
    counts = {}
    for entry in wiped:
        rows = missing.filter(pc.equal(missing["bookie"], entry.bookie))
        rows = rows.filter(pc.fill_null(pc.less(rows["record_txn"], entry.before_txn), fill_value=False))
        counts[entry.bookie] = rows.group_by(["scope", "ledger"]).aggregate([]).num_rows
    return counts


def list_changed(wiped: Iterable[Wiped], traces: Mapping[str, Traces]) -> Iterator[Finding]:
    """Yield a finding for each wiped bookie with ledgers that are not repaired."""
    for entry in sorted(wiped, key=lambda entry: entry.bookie):
        seen = traces.get(entry.bookie, Traces())
        statements = [
            *(
                []
                if entry.earlier_cookie_txn is None
                else [FindingStatement("earlier", "cookie made in transaction", entry.earlier_cookie_txn, "cookies")]
            ),
            FindingStatement("store", "cookie made in transaction", entry.cookie_txn, "cookies"),
            FindingStatement("store", "ledgers with older records that name it for entries", seen.older, "records"),
            FindingStatement("bookies", "of these, ledgers that it has entries of", seen.older_held, "lists"),
            FindingStatement("bookies", "of these, ledgers of which it lacks entries", entry.ledgers, "lists"),
            FindingStatement("bookies", "seen like this since", entry.since.isoformat(timespec="seconds"), "runs"),
        ]
        if seen.older_unseen:
            statements.append(
                FindingStatement("bookies", "of these, not asked for in this run", seen.older_unseen, "lists")
            )
        unknown = ["the content of its old disks"]
        yield Finding(Category.INCARNATION_CHANGED, entry.bookie, statements, bookies=[entry.bookie], unknowns=unknown)
