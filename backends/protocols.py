"""The promises of every metadata store.

Keys are ``/``-separated and absolute. Values are opaque. Every write names the version that it replaces. The promises
are tests, in tests/support/store_contracts.py, which run against every adapter.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

_ENTRY: Final = re.compile(r"([A-Za-z0-9_.\-]+):(.*?):([cdrwa]*)(?:,|$)")


KEYS: Final = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),  # absolute
        pa.field("value", pa.binary(), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("acl", pa.string()),
        pa.field("created_txn", pa.int64()),
        pa.field("changed_txn", pa.int64()),
        pa.field("created_ms", pa.int64()),
        pa.field("changed_ms", pa.int64()),
        pa.field("owner", pa.int64(), nullable=False),
        pa.field("children_created", pa.int64()),
    ]
)
"""Keys of a store as a table; the columns are those of `Versioned` without `children_txn`."""

CHANGES: Final = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),  # absolute
        pa.field("txn", pa.int64(), nullable=False),
        pa.field("at_ms", pa.int64()),  # ms since 1970; null where the store keeps none
        pa.field("session", pa.int64()),  # who made it; null where the store does not say
        pa.field("op", pa.string(), nullable=False),  # created, changed, deleted
        pa.field("before", pa.binary()),  # null: absent, or not known any more (op tells which)
        pa.field("after", pa.binary()),
    ]
)
"""Changes of keys of a store, as a table."""

FOLLOWED: Final = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),  # absolute
        pa.field("txn", pa.int64(), nullable=False),
        pa.field("at_ms", pa.int64()),  # when it was made, ms since 1970; null where the store keeps no times
        pa.field("received_ms", pa.int64(), nullable=False),  # when the feed read it
        pa.field("session", pa.int64()),  # who made it; on etcd the lease that the key lives or lived with
        pa.field("op", pa.string(), nullable=False),  # created, changed, deleted; rights, children: the value stays
        pa.field("before", pa.binary()),  # the value until then; null: absent, or not known
        pa.field("after", pa.binary()),  # the value from then on; null: deleted, or op says that it stays
        # The key from then on. Null where it was deleted; else null says: as it was before this change.
        pa.field("version", pa.int64()),
        pa.field("acl", pa.string()),
        pa.field("created_txn", pa.int64()),
        pa.field("created_ms", pa.int64()),
        pa.field("owner", pa.int64()),  # 0: a permanent key
        pa.field("children_created", pa.int64()),
    ]
)
"""Changes of keys as a feed gives them; the other columns are those of `KEYS` and `CHANGES`.

`created` has every column that the store has. `children` says that only `children_created` is another number; a feed
may give it once for many changes, and not at all for empty inner nodes of a ledgers tree.
"""


@dataclass(frozen=True, slots=True)
class StorePoint:
    """The point in time that a store shows.

    Attributes:
        txn: number of the last transaction that is in it; None: nothing was ever written.
        at_ms: when that was, ms since 1970; None where the store keeps no times.
        gaps: missing parts up to that point, each with its reason; empty: the state is complete.
        notes: for people, about the choice of the state, such as servers that disagree.
    """

    txn: int | None
    at_ms: int | None
    gaps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Versioned:
    """One key as a store held it.

    Attributes:
        value: the bytes.
        version: the token that a write which replaces the value must name; only the adapter understands it.
        created_txn, changed_txn: the store's transaction numbers; None where it has none.
        created_ms, changed_ms: ms since 1970; None where the store keeps none.
        owner: the session or lease that the key lives with; 0 for a permanent key.
        children_created: number that is taken from the key next, as BookKeeper takes ids: by a sequential child, or on
            etcd by a write of the key; None where the store has no such thing.
        acl: as text, ``scheme:id:perms`` joined with commas, perms of c d r w a; None where none can be read.
    """

    value: bytes
    version: int
    created_txn: int | None = None
    changed_txn: int | None = None
    created_ms: int | None = None
    changed_ms: int | None = None
    owner: int = 0
    children_created: int | None = None
    children_txn: int | None = None
    acl: str | None = None


@dataclass(frozen=True, slots=True)
class Acl:
    """The rights of identities on one key.

    Attributes:
        text: as in `Versioned`.
        version: the token that a change of the ACL must name; changes of the value leave it as it is.
    """

    text: str
    version: int


@dataclass(frozen=True, slots=True)
class StoreTls:
    """Files for TLS, in PEM.

    Attributes:
        ca: certificates that sign the servers'; None: those that the system trusts.
        cert, key: the client's own; both or none.
        key_password: of the key, where it is encrypted.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Kerberos:
    """An identity by SASL with GSSAPI: from the environment's ticket or keytab.

    Attributes:
        service: first part of the servers' principals, before their host.
    """

    service: str


Sasl: TypeAlias = tuple[str, str] | Kerberos
"""User and password for DIGEST-MD5, or Kerberos."""


@dataclass(frozen=True, slots=True)
class Write:
    """One change: the new value of a key, if its version still is the expected one.

    Attributes:
        key: absolute.
        value: None removes the key.
        expected: version to be replaced; None: the key must be absent.
        acl: ACL of a created key, as in `Versioned`; None: the store's default.
    """

    key: str
    value: bytes | None
    expected: int | None = None
    acl: str | None = None


@dataclass(frozen=True, slots=True)
class AclEntry:
    """One entry of a key's ACL: the rights of an identity, of c d r w a."""

    scheme: str
    name: str
    perms: str


def parse_acl(text: str) -> list[AclEntry]:
    """Return the entries of an ACL; a name may hold commas and colons, as X.509 names do.

    Raises:
        ValueError: the text is not ``scheme:id:perms`` joined with commas.
    """
    entries: list[AclEntry] = []
    position = 0
    while position < len(text) or not entries:
        entry = _ENTRY.match(text, position)
        if entry is None or text.endswith(","):
            raise ValueError(f"not scheme:id:perms (perms of c d r w a), joined with commas: {text!r}")
        entries.append(AclEntry(*entry.groups()))
        position = entry.end()
    return entries


def parents(key: str) -> list[str]:
    """Return the keys above an absolute key, the highest first, without ``/`` itself."""
    parts = key.split("/")[1:-1]
    return ["/" + "/".join(parts[: n + 1]) for n in range(len(parts))]


class MetadataStore(Protocol):
    """A versioned store of keys in a tree.

    Safe to use from several threads. Any call may raise `UnavailableError` and `AccessDeniedError`.
    """

    @property
    def uri(self) -> str:
        """The address, without secrets."""
        ...

    def get(self, key: str) -> Versioned | None:
        """Return one key, with its ACL; None if it is absent."""
        ...

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Versioned | None]]:
        """Yield the keys in the given order, many in flight; without ACLs (`acl` is None)."""
        ...

    def children(self, key: str) -> list[str] | None:
        """Return the names directly below a key, ascending; None if the key is absent."""
        ...

    def write(self, changes: Sequence[Write]) -> list[int]:
        """Make all changes in one transaction, or none; missing parents of created keys are made first, empty.

        A parent that an earlier change of the batch creates is made by that change, inside the transaction.

        Returns:
            The version after each change; -1 for a removal.

        Raises:
            VersionConflictError: names the first change with a failed expectation; nothing of the batch was written
                (parents may have been).
            NotEmptyError: a key to be removed has children.
            TooLargeError: more than a transaction holds; nothing was written.
            OutcomeUnknownError: the answer was lost. It is never tried again here: only the caller can tell by
                reading back (`get` after this sees the outcome) whether what is there is its own.
                `StoreFullError`, one of these, where the store's space is used up.
            ValueError: a removal without a version; the caller's fault.
        """
        ...

    def raise_counter(self, key: str, beyond: int) -> int:
        """Raise a counting key, so that its next numbers are above `beyond`; an absent key is created.

        Never lowers. Can be interrupted and repeated.

        Returns:
            The number that is taken next.
        """
        ...

    def close(self) -> None:
        """End the connection; later calls raise `UnavailableError`."""
        ...


@runtime_checkable
class ScannableStore(MetadataStore, Protocol):
    """A store that shows all its keys as they were at one point in time, in bulk and in bounded memory.

    Its other reads show the same point, as far as `point` does not say otherwise.
    """

    def point(self) -> StorePoint:
        """Return the point in time that `scan` shows; decided at the first call and kept."""
        ...

    def scan(self, root: str) -> Iterator[pa.RecordBatch]:
        """Yield the key `root` and every key below it, as `KEYS`, each once, in no particular order.

        Raises:
            CorruptStoreError: the rest cannot be read; what was yielded holds.
        """
        ...

    def history(self, root: str) -> Iterator[pa.RecordBatch]:
        """Yield the known changes at and below `root` up to `point`, as `CHANGES`, `txn` ascending.

        Nothing says that it is everything: a store forgets (`StorePoint.notes` says from where on it remembers).
        """
        ...


@runtime_checkable
class PartialStore(MetadataStore, Protocol):
    """A copy of chosen parts of a store: what is absent from it may only not have been copied."""

    def has_part(self, key: str) -> bool:
        """Say whether what is at a key, and all below it, was copied."""
        ...


@runtime_checkable
class LiveStore(MetadataStore, Protocol):
    """A store that is read while it changes; it numbers its changes, and its keys have ACLs."""

    def latest_txn(self) -> int:
        """Return the number of the last transaction; every later read has the writes that ended before this call."""
        ...

    def get_acls(self, keys: Iterable[str]) -> Iterator[tuple[str, Acl | None]]:
        """Yield the ACLs of keys in the given order, many in flight; None for an absent one."""
        ...


@runtime_checkable
class WatchableStore(MetadataStore, Protocol):
    """A store that reports changes of names."""

    def watch_names(self, keys: Sequence[str]) -> Iterator[frozenset[str]]:
        """Yield the keys directly below some keys, first at once, then each time that they are others.

        What changes while the store does not answer is yielded as soon as it does again. It ends soon after `close`.

        Raises:
            UnavailableError: the store does not answer for longer than a read is tried again.
            AccessDeniedError: a key may not be read.
        """
        ...


@runtime_checkable
class AccessControl(Protocol):
    """A store with changeable ACLs of its keys; not every store is one.

    Safe to use from several threads. Any call may raise `UnavailableError` and `AccessDeniedError`.
    """

    def get_acl(self, key: str) -> Acl | None:
        """Return the ACL of one key; None if it is absent. The value need not be readable."""
        ...

    def set_acl(self, key: str, acl: str, *, expected: int) -> int:
        """Replace the ACL of one key if it still has the expected version; the key is unchanged otherwise.

        Returns:
            The new version of the ACL.

        Raises:
            VersionConflictError: the ACL has another version, or the key is absent; nothing was changed.
            OutcomeUnknownError: the answer was lost; as for a write, only reading back tells.
            ValueError: the text is no ACL; the caller's fault.
        """
        ...


@runtime_checkable
class ControlledStore(MetadataStore, AccessControl, Protocol):
    """A metadata store with changeable ACLs."""


@dataclass(frozen=True, slots=True)
class Followed:
    """Committed changes, and the transaction up to which they are complete.

    Attributes:
        rows: `FOLLOWED`, in the order in which they happened, whole transactions; may be empty.
        through: every change up to this transaction is in these rows, or came before them.
        until_ms: all that was committed before this time, ms since 1970, is up to `through`.
    """

    rows: pa.Table
    through: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class FeedGap:
    """A gap in a feed: the next thing needed is a new base.

    Attributes:
        after: the last transaction before the gap; changes up to it were yielded.
        why: what happened, for people.
    """

    after: int
    why: str


class ChangeFeed(Protocol):
    """A store's committed changes, one after another, from a transaction on."""

    @property
    def uri(self) -> str:
        """The store's address, without secrets."""
        ...

    @property
    def means(self) -> str:
        """How changes are seen: watch, logs, observer, polling."""
        ...

    def identify(self) -> str | None:
        """Return a mark of this store's history, to notice a store put in its place; None: it has none.

        Raises:
            UnavailableError: the store does not answer.
        """
        ...

    def open_base(self) -> MetadataStore:
        """Open the source for the capture of a base; the caller closes it.

        A `ScannableStore` shows one transaction. Of any other store, all up to `latest_txn` before the capture is in
        it, and later changes may be.

        Raises:
            UnavailableError: nothing can be shown now; a later call may succeed.
        """
        ...

    def follow(self, after: int) -> Iterator[Followed | FeedGap]:
        """Yield the changes after a transaction, at least once a second, even without changes.

        A store that does not answer is asked again for as long as `close` is not called; meanwhile empty `Followed` of
        the last `through` and `until_ms` are yielded. Ends after a `FeedGap`, and after `close`.

        Raises:
            AccessDeniedError: changes may not be read.
        """
        ...

    def close(self) -> None:
        """End the feed, from any thread."""
        ...


class Election(Protocol):
    """An election: of several instances with the same key, one leads at a time."""

    def campaign(self, lost: Callable[[], None]) -> bool:
        """Wait until this instance leads.

        Args:
            lost: called once, from a thread of the election, as soon as it cannot be sure any more that it leads, and
                before another one can: it must end at once what only the leader may do.

        Returns:
            False: `close` was called meanwhile.

        Raises:
            UnavailableError: the store does not answer, or stopped answering while this instance waited.
            AccessDeniedError: the store does not let us in, or not write the key.
        """
        ...

    def resign(self) -> None:
        """Let another instance lead, without calling `lost`. Without a lead, nothing happens."""
        ...

    def close(self) -> None:
        """Resign, and end a campaign that waits."""
        ...
