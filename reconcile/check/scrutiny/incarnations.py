"""Bookies that may have been started anew without their data: what they lack now may once have been there.

A bookie that is given empty disks gets a new cookie. What its records asked of it before that it does not have, and its
old disks may have it: that it lacks an entry says nothing of a record that has not changed since its cookie was made.
A cookie is also made anew where a store is restored: a bookie that has data of ledgers whose records are older than its
cookie was not started anew.

INCARNATION_CHANGED  the run before saw another cookie of the bookie, it has no older data, and older records name it
"""

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.check.scrutiny.bookie_findings import count_naming
from reconcile.findings.categories import Category
from reconcile.findings.table import Finding, Statement
from recovery.codecs.store import COOKIES


def read_cookies(nodes: pa.Table) -> dict[str, int]:
    """Return bookie → the store's transaction that made its cookie; CATALOG_NODES in."""
    rows = nodes.filter(pc.equal(nodes["kind"], "cookie")).select(["path", "created_txn"]).to_pylist()
    begin = f"{COOKIES}/"
    return {row["path"].removeprefix(begin): row["created_txn"] for row in rows if row["created_txn"] is not None}


def find_with_older_data(stored: pa.Table, copies: pa.Table, cookies: Mapping[str, int]) -> set[str]:
    """Return the bookies that have data of ledgers whose records did not change since the bookie's cookie was made.

    Args:
        stored: ``scope``, ``ledger`` and ``changed_txn`` of CATALOG_LEDGERS.
        copies: ``scope``, ``ledger`` and ``bookie`` of COPIES.
        cookies: as `read_cookies` returns them.
    """
    names = ["scope", "ledger"]
    pairs = copies.select([*names, "bookie"]).group_by([*names, "bookie"]).aggregate([])
    pairs = pairs.join(stored.select([*names, "changed_txn"]), names, join_type="inner")
    made = pa.table({"bookie": pa.array(cookies, pa.string()), "made": pa.array(cookies.values(), pa.int64())})
    pairs = pairs.join(made, "bookie", join_type="inner")
    return set(pairs.filter(pc.less(pairs["changed_txn"], pairs["made"]))["bookie"].to_pylist())


def count_older_records(stored: pa.Table, born: Mapping[str, int]) -> dict[str, int]:
    """Count the records that name each of some bookies and have not changed since its cookie; CATALOG_LEDGERS in."""
    counts = {}
    for bookie, txn in born.items():
        older = stored.filter(pc.fill_null(pc.less(stored["changed_txn"], txn), fill_value=False))
        counts[bookie] = count_naming(older, [bookie]).get(bookie, 0)
    return counts


def list_changed(
    changed: Mapping[str, int], earlier_cookies: Mapping[str, int], older: Mapping[str, int]
) -> Iterator[Finding]:
    """Yield a finding for each bookie that was started anew since the run before.

    Args:
        changed: bookies with another cookie than in the run before, with its transaction.
        earlier_cookies: the transaction of the cookie that it had then.
        older: records that name each of them and have not changed since its cookie was made.
    """
    for bookie, txn in sorted(changed.items()):
        if older.get(bookie):
            statements = [
                Statement("earlier", "cookie made in transaction", earlier_cookies[bookie], "cookies"),
                Statement("store", "cookie made in transaction", txn, "cookies"),
                Statement("store", "older records that name it", older[bookie], "records"),
                Statement("bookies", "data from before", "none that was looked at", "lists"),
            ]
            unknown = ["what its disks had before"]
            yield Finding(Category.INCARNATION_CHANGED, bookie, statements, bookies=[bookie], unknowns=unknown)
