"""A real cluster of four bookies for scrutinies, and the harm that is done to it: records edited, indexes deleted.

On ZooKeeper, or on etcd, where nothing is edited by hand.
"""

import base64
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from backends.registry import open_store
from recovery.codecs import ledger_metadata, store
from recovery.codecs.index_file import path_of
from recovery.codecs.store import Layout
from recovery.model.ids import LedgerId
from recovery.model.metadata import LedgerMetadata
from tests.support.cluster import Bookie, Cluster, encoded
from tests.support.waiting import free_port

BOOKIES: Final = 4
_FEW_FILES: Final = {"openFileLimit": "500"}
"""All bookies share what the system allows one process to have open, and each would keep 20,000 index files."""


class ScrutinizedCluster:
    """A store, and bookies of SortedLedgerStorage, which answer lists.

    Args:
        cluster: the JVM; nothing runs in it yet.
        storage: of the bookies; several: in turn.
        bookies: how many.
        etcd: hosts of a running etcd; None: ZooKeeper.
        props: more settings of the bookies.
    """

    def __init__(
        self,
        cluster: Cluster,
        storage: str | Sequence[str] = "sorted",
        bookies: int = BOOKIES,
        *,
        etcd: str | None = None,
        props: Mapping[str, str] | None = None,
    ) -> None:
        self.cluster = cluster
        storages = [storage] if isinstance(storage, str) else storage
        if etcd is None:
            cluster.start_zookeeper("zookeeper", "/ledgers")
            cluster("format", layout="hierarchical")
            self.uri = f"zk+hierarchical://{cluster.zookeeper}/ledgers"
        else:
            self.uri = f"etcd://{etcd}/{uuid.uuid4()}/c1"
            cluster("etcd", uri=self.uri)
        # A registration on etcd has no address: there the id is one.
        ports = [None if etcd is None else free_port() for _ in range(bookies)]
        ids = [f"bk{n}:3181" if port is None else f"127.0.0.1:{port}" for n, port in enumerate(ports)]
        self.bookies = [
            Bookie(
                n, ids[n], storages[n % len(storages)], [f"b{n}/journal"], [f"b{n}/ledgers"],
                props={**_FEW_FILES, **(props or {})}, port=ports[n],
            )
            for n in range(bookies)
        ]  # fmt: skip
        for bookie in self.bookies:
            cluster.start(bookie)

    def write(self, quorum: tuple[int, int, int], entries: int, *, close: bool = True) -> int:
        """Write a ledger with (E, W, A)."""
        ensemble, write, ack = quorum
        how = {"digest": "CRC32C", "password": encoded(b"pw"), "custom": {}}
        ledger: int = self.cluster("create", E=ensemble, W=write, A=ack, **how)
        if entries:
            self.cluster("add", ledger=ledger, sizes=[20] * entries, ids=None)
        if close:
            self.cluster("close", ledger=ledger)
        return ledger

    def members(self, ledger: int) -> list[str]:
        """Return the last ensemble of a ledger."""
        found: list[str] = self.cluster.ledgers()[ledger]["segments"][-1][1]
        return found

    def stranger(self, ledger: int) -> str:
        """Return a bookie that the ledger's last ensemble does not name."""
        members = self.members(ledger)
        return next(bookie.id for bookie in self.bookies if bookie.id not in members)

    def key(self, ledger: int) -> str:
        """Return the key of a ledger's record."""
        with open_store(self.uri) as opened:
            layout = Layout(opened.layout_hint or Layout.HIERARCHICAL)
            return opened.root.rstrip("/") + store.ledger_key(layout, LedgerId(0, ledger))

    @staticmethod
    def index_of(ledger: int) -> str:
        """Return a ledger's index file, below the folder of indexes."""
        return path_of(ledger)

    def record(self, ledger: int) -> LedgerMetadata:
        """Return a ledger's record."""
        with open_store(self.uri) as opened:
            node = opened.store.get(self.key(ledger))
        assert node is not None
        return ledger_metadata.decode(node.value)

    def edit(self, ledger: int, **changes: Any) -> None:
        """Put a record that is changed so in the place of a ledger's."""
        self.put({self.key(ledger): ledger_metadata.encode(replace(self.record(ledger), **changes))})

    def rename(self, ledger: int, old: str, new: str) -> None:
        """Name another bookie in a ledger's record."""
        segments = tuple(
            replace(one, members=tuple(new if name == old else name for name in one.members))
            for one in self.record(ledger).segments
        )
        self.edit(ledger, segments=segments)

    def put(self, values: Mapping[str, bytes]) -> None:
        """Set nodes, whatever they held; parents are made."""
        nodes = [{"path": path, "data": base64.b64encode(value).decode()} for path, value in values.items()]
        self.cluster("zk_put", nodes=nodes)

    def remove(self, path: str) -> None:
        """Delete a node and all below it."""
        self.cluster("zk_wipe", paths=[path])

    def mark(self, ledger: int, replica: str, since_ms: int | None) -> None:
        """Mark a ledger as the auditor does."""
        digits = f"{ledger:016x}"
        folders = "/".join(digits[at : at + 4] for at in range(0, 16, 4))
        text = f'replica: "{replica}"\n' + ("" if since_ms is None else f"ctime: {since_ms}\n")
        self.put({f"/ledgers/underreplication/ledgers/{folders}/urL{ledger:010d}": text.encode()})

    def forget(self, losses: Mapping[int, Sequence[str]]) -> None:
        """Take from bookies what they have of ledgers: their indexes are deleted while they are down.

        They are stopped twice: after the first time their journals are not read again.
        """
        hit = [bookie for bookie in self.bookies if any(bookie.id in names for names in losses.values())]
        self._stop(hit)
        for ledger, names in losses.items():
            for bookie in hit:
                if bookie.id in names:
                    (self.cluster.home / bookie.ledgers[0] / "current" / path_of(ledger)).unlink()
        for bookie in hit:
            self.cluster.start(bookie)

    def lose(self, losses: Mapping[tuple[int, str], Sequence[int] | None]) -> None:
        """Take entries of a ledger from bookies of DbLedgerStorage; None: all of them, and the ledger itself."""
        hit = [bookie for bookie in self.bookies if any(bookie.id == name for _, name in losses)]
        self._stop(hit)
        for (ledger, name), entries in losses.items():
            (bookie,) = [one for one in hit if one.id == name]
            folder = str(self.cluster.home / bookie.ledgers[0] / "current")
            self.cluster("lose", folder=folder, ledger=ledger, entries=None if entries is None else list(entries))
        for bookie in hit:
            self.cluster.start(bookie)

    def _stop(self, bookies: Sequence[Bookie]) -> None:
        """Stop bookies so that they will not read their journals again."""
        for bookie in bookies:
            self.cluster("bookie_stop", n=bookie.n)
            self.cluster.start(bookie)
            self.cluster("bookie_stop", n=bookie.n)
