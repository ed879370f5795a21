"""The cluster whose ledgers are deleted: its store, and records as they are there with their rights."""

from collections.abc import Sequence
from dataclasses import dataclass

from backends.protocols import LiveStore, MetadataStore, Versioned
from reconcile.deletes.tombstones import StoredRecord
from recovery.codecs.store import Layout, ledger_key
from recovery.codecs.store_kind import kind_of
from recovery.model.ids import LedgerId


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where a cluster's records are.

    Attributes:
        store: writable.
        root: key of the ledgers root, without a slash at its end.
        layout: of its ledgers.
    """

    store: MetadataStore
    root: str
    layout: Layout

    @property
    def most_removals(self) -> int:
        """Records that a transaction may remove."""
        return kind_of(self.layout).removals

    def make_key(self, ledger: LedgerId) -> str:
        """Return the store's key of a ledger's record."""
        return self.root + ledger_key(self.layout, ledger)


def read_records(ledgers: Sequence[LedgerId], cluster: Cluster) -> dict[LedgerId, StoredRecord | None]:
    """Return the records of ledgers with their rights; None of one that has none.

    Raises:
        BackendError: the store failed.
    """
    by_key = {cluster.make_key(ledger): ledger for ledger in ledgers}
    stored = dict(cluster.store.get_many(by_key))
    rights = dict.fromkeys(by_key, "")
    if isinstance(cluster.store, LiveStore):
        rights.update((key, "" if acl is None else acl.text) for key, acl in cluster.store.get_acls(by_key))
    return {by_key[key]: _make_record(node, rights[key]) for key, node in stored.items()}


def _make_record(node: Versioned | None, acl: str) -> StoredRecord | None:
    return None if node is None else StoredRecord(node.value, node.version, node.created_ms, acl or None)
