"""The differences between kinds of stores: one record a kind, which all other code asks.

    asked                        ZooKeeper       etcd
    rights of single keys        yes             no: users have rights, so nothing can be frozen
    collection by bookies        goes on         stops at the first look for copies too many: it needs locks
    marks, locks, an auditor     yes             no: BookKeeper's auto-recovery does not work there
    when a key was written       yes             no: only in which order
    Pulsar's records beside it   perhaps         never: Pulsar keeps other keys there
    ids are given out by         one counter     a counter of each of 128 buckets
    removals in a transaction    200             50: it takes 128 comparisons by default, two each
    LAYOUT                       always made     may be missing

Source: docs/formats/store-keys.md.
"""

from dataclasses import dataclass
from typing import Final

from recovery.codecs.store import ON_ETCD, ON_ZOOKEEPER, ClusterKeys, Layout, ledger_of


@dataclass(frozen=True, slots=True)
class StoreKind:
    """A kind of store.

    Attributes:
        name: for people.
        places: keys of a cluster.
        port: of its servers, by default.
        has_acls: keys have rights of their own: bookies can be kept from listing, and a session locked out.
        has_replication: ledgers are marked as under-replicated and locked, and an auditor is elected.
        keeps_times: of each key it is known when it was written; else only in which transaction.
        has_pulsar: Pulsar's own records may be beside the ledgers root.
        has_bucket_counters: ids are given out by a counter of each bucket; False: by one of the layout.
        removals: keys that one transaction may remove beside the change of another, at most.
        makes_layout: the creator of the ledgers root also makes the node of the layout.
        uri: of a ledgers root, with {layout}, {hosts} and {folder}, which the root is in.
        joins_hosts: what is between two of them there.
    """

    name: str
    places: ClusterKeys
    port: int
    has_acls: bool
    has_replication: bool
    keeps_times: bool
    has_pulsar: bool
    has_bucket_counters: bool
    removals: int
    makes_layout: bool
    uri: str
    joins_hosts: str


ZOOKEEPER: Final = StoreKind(
    "ZooKeeper",
    ON_ZOOKEEPER,
    2181,
    has_acls=True,
    has_replication=True,
    keeps_times=True,
    has_pulsar=True,
    has_bucket_counters=False,
    removals=200,
    makes_layout=True,
    uri="zk+{layout}://{hosts}/{folder}/ledgers",
    joins_hosts=";",
)
ETCD: Final = StoreKind(
    "etcd",
    ON_ETCD,
    2379,
    has_acls=False,
    has_replication=False,
    keeps_times=False,
    has_pulsar=False,
    has_bucket_counters=True,
    removals=50,
    makes_layout=False,
    uri="etcd://{hosts}/{folder}",
    joins_hosts=",",
)
KINDS: Final = (ZOOKEEPER, ETCD)


def kind_of(layout: Layout | str | None) -> StoreKind:
    """Return the kind of store that keeps a layout; None is any layout of ZooKeeper."""
    return ETCD if layout == Layout.ETCD else ZOOKEEPER


def kind_of_key(key: str) -> StoreKind:
    """Return the kind of store that has a ledger's key."""
    return ETCD if ledger_of(Layout.ETCD, key) is not None else ZOOKEEPER
