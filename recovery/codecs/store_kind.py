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

Keys of ledgers are in `recovery.codecs.store`, connections in `backends`. Source: docs/formats/store-keys.md.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ClusterKeys:
    """Keys of a cluster besides its ledgers.

    Attributes:
        layout, instance_id: keys.
        cookies: folder.
        registrations: folders of writable and of read-only bookies; the second may be inside the first.
        folders: empty nodes of a new cluster; their parents are made with them.
    """

    layout: str
    instance_id: str
    cookies: str
    registrations: tuple[str, str]
    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoreKind:
    """A kind of store.

    Attributes:
        name: for people.
        layouts: values of `recovery.codecs.store.Layout` that only this kind has.
        places: keys of a cluster.
        port: of its servers, by default.
        auth_variable: of the environment: has user:password.
        ways_in: how clients can be let in, for people.
        copies: its files, for people.
        how_to_copy: to keep what it is now and was before, line by line.
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
    layouts: tuple[str, ...]
    places: ClusterKeys
    port: int
    auth_variable: str
    ways_in: str
    copies: str
    how_to_copy: tuple[str, ...]
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
    ("flat", "legacy", "hierarchical", "longhierarchical", "longlonghierarchical"),
    ClusterKeys(
        "/LAYOUT",
        "/INSTANCEID",
        "/cookies",
        ("/available", "/available/readonly"),
        ("/available", "/available/readonly", "/cookies"),
    ),
    2181,
    auth_variable="BKMETA_ZK_AUTH",
    ways_in="ZooKeeper: digest, SASL with DIGEST-MD5 or Kerberos (keytab, ticket cache), TLS with client certificates",
    copies="ZooKeeper's files",
    how_to_copy=(
        "Copy dataDir and dataLogDir of EVERY ZooKeeper server. Do not restart those servers:",
        "a restart, or autopurge, destroys good snapshots.",
    ),
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
    ("etcd",),
    ClusterKeys(
        "/layout",
        "/instanceid",
        "/cookies",
        ("/bookies/writable", "/bookies/readonly"),
        ("/bookies/writable", "/bookies/readonly", "/cookies", "/ledgers", "/buckets", "/underreplication"),
    ),
    2379,
    auth_variable="BKMETA_ETCD_AUTH",
    ways_in="etcd: user and password, TLS with client certificates",
    copies="etcd's snapshots",
    how_to_copy=(
        "etcdctl snapshot save, of EVERY etcd member, and copy the members' data folders. Switch",
        "compaction off: it destroys the past, from which ledgers can be read.",
    ),
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


def kind_of(layout: str | None) -> StoreKind:
    """Return the kind of store that keeps a layout; None is any layout of ZooKeeper."""
    return next((kind for kind in KINDS if layout in kind.layouts), ZOOKEEPER)


def guess_kind(uri: str | None) -> StoreKind:
    """Return the kind of store that a URI names by its first letters, perhaps not a right one; else ZooKeeper."""
    named = (uri or "").strip().lower()
    schemes = {kind.uri.partition("{")[0].partition(":")[0]: kind for kind in KINDS if kind is not ZOOKEEPER}
    return next((kind for scheme, kind in schemes.items() if named.startswith(scheme)), ZOOKEEPER)
