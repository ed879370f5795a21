"""A cluster's store opened for deletes: where its records are, our own root beside it, and the journal."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from backends.registry import OpenStore, parse_store_uri
from reconcile.deletes.cluster import Cluster
from reconcile.deletes.own_root import OwnRoot, make_own_root, open_log, open_own_root
from reconcile.deletes.packed import ChangeLog
from reconcile.deletes.policy import DeletePolicy
from reconcile.jobs.approvals import Approvals
from reconcile.jobs.context import Context, connect
from reconcile.write.audit_journal import Approval, name_runner
from recovery.capture.summary import choose_layout
from recovery.codecs.store import Layout, places
from recovery.errors import InputError


@dataclass(frozen=True, slots=True)
class DeleteTarget:
    """Which store, and where its changes are recorded.

    Attributes:
        uri: of the store.
        journal: folder; None: `default_journal`.
        acl: rights of our own root, where it is made; None: those of the ledgers root.
        local: policy of this host, for a cluster whose store has none; None: there is none.
    """

    uri: str
    journal: Path | None = None
    acl: str | None = None
    local: DeletePolicy | None = None

    @property
    def folder(self) -> Path:
        """The folder of the journal."""
        return self.journal or default_journal(self.uri)


@dataclass(frozen=True, slots=True)
class OpenDeletes:
    """A store that is open for deletes.

    Attributes:
        opened: the store.
        cluster: where its records are.
        own: our own root.
        log: by which it is changed.
        by: who runs this.
        policy: that holds.
    """

    opened: OpenStore
    cluster: Cluster
    own: OwnRoot
    log: ChangeLog
    by: str
    policy: DeletePolicy


def default_journal(uri: str) -> Path:
    """Return the folder that the journal of a store's deletes is in, unless another one is named."""
    address = parse_store_uri(uri)
    place = re.sub(r"[^A-Za-z0-9.]+", "-", address.hosts.split(",")[0] + address.root)
    return Path(f"bkmeta-deletes-{place}")


def name_self() -> str:
    """Return who runs this, as tombstones and archive marks name it."""
    runner = name_runner()
    return f"{runner['user']}@{runner['host']} bkmeta {runner['version']}"


def read_layout(opened: OpenStore) -> Layout:
    """Return the layout of an open store.

    Raises:
        InputError: there is no ledgers root, or nothing names its layout.
    """
    if opened.store.get(opened.root) is None:
        raise InputError(opened.uri, "has no ledgers root", "name the store and the root of the cluster")
    hint = None if opened.layout_hint is None else Layout(opened.layout_hint)
    key = opened.root.rstrip("/") + places(hint).layout
    stored = opened.store.get(key)
    return choose_layout(None if stored is None else stored.value, key, hint)


def find_policy(opened: OpenStore, target: DeleteTarget) -> DeletePolicy:
    """Return the policy of an open store's cluster.

    Raises:
        GuardRefusedError: it cannot be read.
    """
    return Approvals(local=target.local).find_policy(opened.store, opened.root)


@contextmanager
def open_deletes(
    target: DeleteTarget,
    context: Context,
    approve: Callable[[OpenStore, DeletePolicy], Sequence[Approval]] = lambda _opened, _policy: (),
) -> Iterator[OpenDeletes]:
    """Give a store that is open for deletes; our own root is made if it is not there.

    Args:
        target: the store.
        context: of the job.
        approve: says who approved what is done, before anything is written; raises where too few did.

    Raises:
        GuardRefusedError: what is at the key of our own root is not ours, or the policy cannot be read.
        InputError: there is no ledgers root, or nothing names its layout.
        JournalError: the journal is in use, altered, or of another root.
        UnavailableError: the store does not answer.
    """
    with connect(target.uri, context, writable=True) as opened:
        layout = read_layout(opened)
        policy = find_policy(opened, target)
        approvals = approve(opened, policy)
        with open_log(target.folder, opened.store, opened.root, context.now, approvals) as log:
            own = make_own_root(opened.store, opened.root, log, target.acl)
            cluster = Cluster(opened.store, opened.root.rstrip("/"), layout)
            yield OpenDeletes(opened, cluster, own, log, name_self(), policy)


def read_own_root(opened: OpenStore) -> OwnRoot | None:
    """Return our own root of an open store that is only read; None if there is none.

    Raises:
        GuardRefusedError: what is there is not ours.
    """
    return open_own_root(opened.store, opened.root)
