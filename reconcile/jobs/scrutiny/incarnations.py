"""Which bookies may have been started anew, from the captured store and what bookies list."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from reconcile.check.scrutiny import incarnations
from reconcile.findings.table import Finding
from recovery.dataset import Dataset

_RANGES: Final = 4
"""Bucket ranges in which data from before a bookie's cookie is looked for: where there is any, each has some."""


def find_born(catalog: Dataset, inventories: Sequence[Dataset], ranges: Sequence[range]) -> dict[str, int]:
    """Return the bookies of which nothing shows data from before their cookie, with its transaction."""
    born = incarnations.read_cookies(catalog.read("nodes", columns=["path", "kind", "created_txn"]))
    for part in ranges[:_RANGES]:
        stored = catalog.read("ledgers", buckets=part, columns=["scope", "ledger", "changed_txn"])
        for inventory in inventories:
            copies = inventory.read("copies", buckets=part, columns=["scope", "ledger", "bookie"])
            for bookie in incarnations.find_with_older_data(stored, copies, born):
                del born[bookie]
    return born


def find_changed(
    catalog: Dataset, earlier_store: Dataset | None, born: Mapping[str, int], ranges: Sequence[range]
) -> list[Finding]:
    """Return a finding for each of these bookies that had another cookie in the run before, and is named by records."""
    if earlier_store is None:
        return []
    had = incarnations.read_cookies(earlier_store.read("nodes", columns=["path", "kind", "created_txn"]))
    changed = {bookie: txn for bookie, txn in born.items() if had.get(bookie, txn) != txn}
    older: Counter[str] = Counter()
    for part in ranges if changed else ():
        older.update(incarnations.count_older_records(catalog.read("ledgers", buckets=part), changed))
    return list(incarnations.list_changed(changed, had, older))
