"""A real cluster that lost its records and a bookie: guarded records made by hand from what the other bookies hold."""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from backends.protocols import Write
from backends.zookeeper.store import ZooKeeperStore
from reconcile.write.apply import ApplyOptions, apply
from reconcile.write.apply_results import Applied
from recovery.codecs import ledger_metadata
from recovery.codecs.store import LAYOUT, LOCKS, REPLICATION_DISABLED, Layout, layout_bytes
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.support import pulsar
from tests.support.acid import COLLECTING
from tests.support.auto_recovery import IMPATIENT, auto_recovery
from tests.support.cluster import Bookie, Cluster, encoded
from tests.support.kept_bytes import Kept, Place, kept, less
from tests.support.plan_folder import Ledger, write_plan
from tests.support.plans import clock
from tests.support.waiting import until

ROOT: Final = "/ledgers"
PASSWORD: Final = b"secret"
LOST: Final = 3
"""The bookie that is gone, and comes back."""
SPARE: Final = 4
"""A bookie that is new after the loss."""
SIZE: Final = 100
"""Bytes of every entry."""
EMBEDDED: Final = {"autoRecoveryDaemonEnabled": "true", **IMPATIENT}


@dataclass(frozen=True, slots=True)
class Written:
    """A ledger as its writer left it.

    Attributes:
        row: its record, as Java read it.
        entries: how many it has, each of `SIZE` bytes.
        digest: the Java client's name.
    """

    row: Mapping[str, Any]
    entries: int
    digest: str

    def holders(self, entry: int) -> list[str]:
        """Return the bookies that an entry was written to."""
        members: Sequence[str] = [names for first, names in self.row["segments"] if first <= entry][-1]
        return [members[(entry + k) % len(members)] for k in range(self.row["W"])]

    def seen(self, bookies: set[str]) -> list[int]:
        """Return the entries that one of some bookies has."""
        return [entry for entry in range(self.entries) if bookies & set(self.holders(entry))]

    def true_record(self) -> Ledger:
        """Return its record for a plan."""
        row = self.row
        digest = {"MAC": "HMAC"}.get(self.digest, self.digest)
        length = SIZE * self.entries
        shape = (row["E"], row["W"], row["A"])
        return Ledger(row["ledger"], row["segments"], shape, self.entries - 1, length, digest=digest, password=PASSWORD)

    def universal_record(self, bookies: set[str], unseen: set[str] | None = None) -> Ledger:
        """Return one segment of all of some bookies that have any entry, E = W = their number, A = 1.

        Args:
            bookies: that were looked at.
            unseen: that are named behind them, for they may have more.
        """
        entries = self.seen(bookies)
        holders = sorted(bookies & {name for entry in entries for name in self.holders(entry)})
        holders += sorted((unseen or set()) - set(holders))
        count = len(holders)
        segments = [(0, holders)]
        last = entries[-1]
        return replace(
            self.true_record(), segments=segments, quorums=(count, count, 1), last=last, length=SIZE * (last + 1)
        )


class GuardedCluster:
    """Bookies of these storages in turn, and a ZooKeeper; nothing is written yet, and nothing lost.

    Args:
        work: a folder.
        storages: of the bookies, in turn.
        manager: a layout, or ``pulsar``: the bookies have Pulsar's driver.
        embedded: each bookie has auto-recovery in it, disabled to begin with.
    """

    def __init__(
        self, work: Path, storages: Sequence[str], manager: str = "hierarchical", *, embedded: bool = False
    ) -> None:
        self.work = work
        of_pulsar = manager == "pulsar"
        self.layout = layout = Layout.HIERARCHICAL if of_pulsar else Layout(manager)
        extra = {"class_path": pulsar.class_path(), "options": pulsar.options(work)} if of_pulsar else {}
        self.cluster = Cluster(work / "home", **extra)  # type: ignore[arg-type]  # either nothing or both
        self.cluster.start_zookeeper("zookeeper", ROOT)
        # No client of today makes a cluster of the oldest layout, and all use one that is there.
        is_legacy = layout is Layout.LEGACY
        self.cluster("format", layout=str(Layout.HIERARCHICAL if is_legacy else layout))
        if is_legacy:
            self.cluster("zk_put", nodes=[{"path": ROOT + LAYOUT, "data": encoded(layout_bytes(layout))}])
        driver = {"metadataServiceUri": f"metadata-store:zk:{self.cluster.zookeeper}"} if of_pulsar else {}
        props = COLLECTING | driver | (EMBEDDED if embedded else {})
        if embedded:
            self.cluster("zk_put", nodes=[{"path": ROOT + REPLICATION_DISABLED, "data": ""}])
        self.bookies = [
            Bookie(n, f"10.0.0.{n + 1}:3181", storage, [f"b{n}/journal"], [f"b{n}/ledgers"], props=props)
            for n, storage in zip(range(SPARE + 1), cycle(storages), strict=False)
        ]
        for bookie in self.bookies[:SPARE]:
            self.cluster.start(bookie)
        self.written: dict[int, Written] = {}
        self.lost: frozenset[int] = frozenset()
        self.store = ZooKeeperStore(self.cluster.zookeeper)
        self.uri = f"zk+{layout}://{self.cluster.zookeeper}{ROOT}"

    def close(self) -> None:
        """End everything."""
        self.store.close()
        self.cluster.__exit__(None, None, None)

    def write(self, on: Sequence[int], write: int, entries: int = 8, *, digest: str = "CRC32C", change: int = 0) -> int:
        """Write a ledger on some bookies; `change`: after so many entries its first bookie is replaced."""
        known = {"digest": digest, "password": encoded(PASSWORD), "custom": {}}
        members = [self.bookies[n].id for n in on]
        ledger: int = self.cluster("create", E=len(on), W=write, A=write, members=members, **known)
        if change:
            self.cluster("add", ledger=ledger, sizes=[SIZE] * change, ids=None)
            free = next(n for n in range(SPARE) if n not in on)
            self.cluster("instead", old=members[0], new=self.bookies[free].id)
            self.cluster("bookie_stop", n=on[0])
        self.cluster("add", ledger=ledger, sizes=[SIZE] * (entries - change), ids=None)
        self.cluster("close", ledger=ledger)
        if change:
            self.cluster.start(self.bookies[on[0]])
        self.written[ledger] = Written(self.cluster.ledgers()[ledger], entries, digest)
        return ledger

    def fill(self, count: int, entries: int = 8) -> list[int]:
        """Write so many closed ledgers of 3/2/2 on any bookies, and return their ids."""
        known = {"E": 3, "W": 2, "A": 2, "password": encoded(PASSWORD)}
        before = self.cluster.ledgers().keys()
        assert self.cluster("fill", count=count, entries=entries, size=SIZE, **known) == 0
        rows = {ledger: row for ledger, row in self.cluster.ledgers().items() if ledger not in before}
        self.written |= {ledger: Written(row, entries, row["digest"]) for ledger, row in rows.items()}
        return list(rows)

    def restart(self, n: int) -> None:
        """Stop a bookie cleanly, and start it again."""
        self.cluster("bookie_stop", n=n)
        self.cluster.start(self.bookies[n])

    def open(self, ledger: int, *, recovery: bool) -> Callable[[], str | None]:
        """Open a ledger as a reader that keeps it open; return what reads all of it: None, or why not all came."""
        name, known = f"{ledger} {recovery}", {"digest": self.written[ledger].digest, "password": encoded(PASSWORD)}
        self.cluster("open", reader=name, ledger=ledger, recovery=recovery, **known)

        def go_on() -> str | None:
            answer: str | None = self.cluster("go_on", reader=name, last=self.written[ledger].entries - 1)
            return answer

        return go_on

    def lose(self) -> None:
        """Stop all bookies, and lose the records of all ledgers."""
        for bookie in self.bookies[:SPARE]:
            self.cluster("bookie_stop", n=bookie.n)
        rows = self.cluster.ledgers()
        self.lost = frozenset(rows)
        self.cluster("zk_wipe", paths=[row["path"] for row in rows.values()])

    @property
    def seen(self) -> set[str]:
        """The bookies that are not lost."""
        return {bookie.id for bookie in self.bookies[:LOST]}

    def apply(self, name: str, ledgers: Sequence[Ledger], *, replaces: bool = False) -> Applied:
        """Write records as a plan; those that stand are replaced if it is asked for."""
        plan = write_plan(self.work / name, ledgers, layout=self.layout, passwords=(PASSWORD,))
        table = plan.read("actions")
        rows = table.filter(pc.equal(table["kind"], "ledger")).to_pylist()
        for row in rows:
            held = self.store.get(ROOT + row["key"]) if replaces else None
            if held is not None:
                row.update(op="replace", expects=held.version, before=held.value)
        planned = pa.Table.from_pylist(rows, schema=table.schema)
        options = ApplyOptions(plan.manifest["hash"], accept_unfrozen=replaces)
        return apply(lambda: [planned], self.store, ROOT, self.work / f"{name}-journal", options, now=clock())

    def kept(self) -> dict[Place, Kept]:
        """Return what the first four bookies have of the ledgers whose records were lost."""
        found = kept(self.cluster.home, self.bookies[:SPARE])
        return {place: has for place, has in found.items() if place[1] in self.lost}

    def read(self, ledger: int) -> list[int]:
        """Return the entries that the Java client reads, each whole."""
        known = {"digest": self.written[ledger].digest, "password": encoded(PASSWORD)}
        found = self.cluster("read", ledger=ledger, recovery=False, **known)
        assert "open_error" not in found, (ledger, found)
        return [entry for entry, (size, _) in enumerate(found["entries"]) if size == SIZE]

    def locks(self) -> set[int]:
        """Return the ledgers that have a lock which stays; a worker's, or a bookie's that collects, ends with it."""
        names = self.store.children(ROOT + LOCKS) or ()
        held = [(name, self.store.get(f"{ROOT}{LOCKS}/{name}")) for name in names]
        return {int(name.removeprefix("urL")) for name, lock in held if lock is not None and lock.owner == 0}

    def records(self) -> dict[int, Any]:
        """Return the bytes of every record, by ledger."""
        return {ledger: row["raw"] for ledger, row in self.cluster.ledgers().items() if ledger in self.written}

    def check(self, *running: int) -> None:
        """Wait until each of some bookies has ended an over-replicated check that began after this call.

        Each has a copy of a ledger whose record, closed and empty, names another bookie: only that check deletes it.
        """
        on = [n for n in running if n != SPARE]
        known = {"digest": "CRC32C", "password": encoded(b""), "custom": {}}
        members = [self.bookies[n].id for n in on]
        ledger: int = self.cluster("create", E=len(on), W=len(on), A=len(on), members=members, **known)
        self.cluster("add", ledger=ledger, sizes=[SIZE], ids=None)
        self.cluster("close", ledger=ledger)
        self.cluster.collect_garbage(len(running))
        record = LedgerMetadata(
            format=3,
            ensemble_size=1,
            write_quorum=1,
            ack_quorum=1,
            state=LedgerState.CLOSED,
            last_entry=-1,
            length=0,
            segments=(Segment(0, (self.bookies[SPARE].id,)),),
            digest=Digest.CRC32C,
            password=b"",
        )
        key = self.cluster.ledgers()[ledger]["path"]
        held = self.store.get(key)
        assert held is not None
        copies = {(name, ledger) for name in members}
        bookies = [self.bookies[n] for n in on]
        before = kept(self.cluster.home, bookies)
        assert copies <= before.keys()
        self.store.write([Write(key, ledger_metadata.encode(record), held.version)])
        until(lambda: copies <= less(before, kept(self.cluster.home, bookies)).keys(), "copies too many are deleted")
        self.cluster.collect_garbage(len(running))

    def autorecovery(self, nodes: int = 1) -> AbstractContextManager[list["subprocess.Popen[bytes]"]]:
        """Run so many of BookKeeper's replication workers, one of them the auditor, which look every few seconds."""
        return auto_recovery(self.cluster.zookeeper, self.work, nodes=nodes)
