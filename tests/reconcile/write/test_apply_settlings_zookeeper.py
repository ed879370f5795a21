"""Loss, guards, apply, return, settling, apply, by random schedules on a real ZooKeeper: no acknowledged entry is lost.

Histories of whole clusters are drawn from the simulated protocol. Some bookies are lost with all metadata; what the
others show becomes a plan, which is applied by runs that die anywhere, some of them by `kill -9`. Bookies collect by
the records that stand, and by nothing else. Then the lost ones are back, and what all show settles what was guarded or
held.
"""

import itertools
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from backends.errors import UnavailableError
from backends.zookeeper.store import ZooKeeperStore
from reconcile.errors import PartlyAppliedError
from reconcile.plan.actions import Passwords, make_ledger_actions, select_released
from reconcile.rules import diff
from reconcile.rules.holds import HOLD_PASSWORD_SIZE
from reconcile.write.apply import ApplyOptions, apply
from recovery.codecs import ledger_metadata
from recovery.codecs.store import Layout, ledger_key
from recovery.dataset import sort_by_key
from recovery.model import tables
from recovery.model.ids import LedgerId
from recovery.model.metadata import LedgerMetadata, LedgerState
from tests.simulation import histories, inventories, judge
from tests.simulation.inventories import View
from tests.simulation.row_truth import PASSWORDS
from tests.support.failing_stores import CrashError
from tests.support.plans import clock
from tests.support.restores import Recorder
from tests.support.zookeeper_server import ZooKeeperServer

SCHEDULES: Final = int(os.environ.get("BKMETA_SOAK_SETTLINGS", "10"))
FIRST: Final = int(os.environ.get("BKMETA_SOAK_SEED", "0"))
CLASSES: Final = ("clean", "short", "reopened", "rereplicated", "mixed")
LEDGERS: Final = 12
KILLED: Final = 0.25
"""Share of the runs that die which are processes of their own, and are killed."""
CHILDREN: Final = multiprocessing.get_context("forkserver")
_ROOTS: Final = itertools.count()

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def store(zookeeper_server: ZooKeeperServer) -> Iterator[ZooKeeperStore]:
    """A connection for all schedules."""
    opened = ZooKeeperStore(zookeeper_server.hosts)
    try:
        yield opened
    finally:
        opened.close()


def make_options(name: str) -> ApplyOptions:
    """Return how a plan is applied, by whichever process."""
    return ApplyOptions(f"{name} of this schedule", resume=True, batch_rows=4, in_flight=2, patience_s=0)


def apply_and_die(hosts: str, actions: pa.Table, root: str, journal: Path, at: int) -> None:
    """Apply a plan, and kill this process at one of its calls of the store: others may be under way."""
    calls = itertools.count()

    def draw() -> None:
        if next(calls) == at:
            os.kill(os.getpid(), signal.SIGKILL)

    store = ZooKeeperStore(hosts)
    apply(lambda: [actions], Recorder(store, draw), root, journal, make_options(journal.name), now=clock())


class Schedule:
    """One history, from the loss to the end."""

    def __init__(self, store: ZooKeeperStore, hosts: str, folder: Path, seed: int) -> None:
        self.random, self.hosts = Random(seed), hosts
        self.root = f"/schedule-{next(_ROOTS)}/ledgers"
        self.folder = folder
        self.recorder = Recorder(store)
        self.store = store
        self.world, _ = histories.make(self.random.choice(CLASSES), seed, LEDGERS)
        names = sorted(self.world.bookies)
        self.lost = tuple(self.random.sample(names, self.random.choice((1, 1, 2))))
        self.had = self.copies()
        self.counts: Counter[str] = Counter()

    def copies(self) -> dict[int, dict[int, set[str]]]:
        """Return who serves what now, by ledger and entry."""
        found: dict[int, dict[int, set[str]]] = {}
        for name, bookie in self.world.bookies.items():
            for ledger, shelf in bookie.shelves.items():
                served = shelf.index if bookie.clean else shelf.list_served()
                for entry in served:
                    found.setdefault(ledger, {}).setdefault(entry, set()).add(name)
        return found

    def key(self, ledger: int) -> str:
        """Return the key of a record."""
        return self.root + ledger_key(Layout.HIERARCHICAL, LedgerId(0, ledger))

    def record(self, ledger: int) -> LedgerMetadata | None:
        """Return what stands in the store."""
        held = self.store.get(self.key(ledger))
        return None if held is None else ledger_metadata.decode(held.value)

    def is_locked(self, ledger: int) -> bool:
        """Whether anybody's lock stands for a ledger."""
        return self.store.get(f"{self.root}/underreplication/locks/urL{ledger:010d}") is not None

    def collect(self, without: tuple[str, ...] = ()) -> None:
        """Let bookies delete as they do: what is not listed; what is closed without them, unless it is locked."""
        for name, bookie in self.world.bookies.items():
            for ledger in list(bookie.shelves) if name not in without else ():
                record = self.record(ledger)
                closed = record is not None and record.state is LedgerState.CLOSED
                named = record is not None and any(name in segment.members for segment in record.segments)
                if record is None or (closed and not named and not self.is_locked(ledger)):
                    bookie.delete(ledger)
                    self.counts["deleted"] += 1

    def reconstruct(self, unscanned: tuple[str, ...]) -> pa.Table:
        """Return RECONSTRUCTION of what the bookies show that were scanned."""
        seen = inventories.inventory(self.world, View(unscanned=unscanned))
        return sort_by_key(judge.reconstruct_alone(seen))

    def stored(self) -> tuple[pa.Table, np.ndarray[Any, np.dtype[np.bool_]]]:
        """Return the store's records as a capture has them, and which of them are under a lock."""
        rows = []
        for ledger in sorted(self.had):
            held = self.store.get(self.key(ledger))
            if held is not None:
                rows.append({"bucket": LedgerId(0, ledger).bucket, "scope": 0, "ledger": ledger, "raw": held.value})
                rows[-1]["version"] = held.version
        parsed = ledger_metadata.decode_columns(pa.array([row["raw"] for row in rows], pa.binary()))
        columns = {
            field.name: parsed[field.name]
            if field.name in parsed.schema.names
            else pa.array([row.get(field.name) for row in rows], field.type)
            for field in tables.CATALOG_LEDGERS
        }
        table = sort_by_key(pa.table(columns, schema=tables.CATALOG_LEDGERS))
        return table, np.array([self.is_locked(ledger) for ledger in table["ledger"].to_pylist()], np.bool_)

    def plan(self, rows: pa.Table) -> pa.Table:
        """Return the actions for what the store lacks, holds, or has guarded."""
        stored, guarded = self.stored()
        matched = diff.match(rows, stored)
        missing = rows.take(pa.array(matched.missing))
        wanted = missing.filter(pc.is_in(missing["outcome"], pa.array(["restored", "guarded", "held"])))
        released, _ = select_released(rows, stored, matched, guarded)
        united = sort_by_key(pa.concat_tables([wanted, released], promote_options="default"))
        self.counts.update(united["outcome"].to_pylist())
        secrets = bytes(HOLD_PASSWORD_SIZE * united.num_rows)
        known = Passwords.from_candidates(PASSWORDS)
        return make_ledger_actions(united, Layout.HIERARCHICAL, known, secrets)

    def apply(self, actions: pa.Table, name: str) -> None:
        """Apply by runs that die anywhere, the last of which does not."""
        options = make_options(name)

        def run() -> bool:
            with suppress(CrashError, UnavailableError, PartlyAppliedError):
                result = apply(lambda: [actions], self.recorder, self.root, self.folder / name, options, now=clock())
                assert result.exit_code == 0, result.conflicts
                return True
            return False

        for _ in range(self.random.randrange(4)):
            calls, at = iter(range(10**9)), self.random.randrange(40)
            if self.random.random() < KILLED:
                self.kill(actions, name, at)
                continue
            kind = self.random.choice(("die before", "die after", "cut before", "cut after"))
            self.recorder.draw = lambda calls=calls, at=at, kind=kind: kind if next(calls) == at else None  # type: ignore[misc]  # mypy cannot infer a default's type
            run()
        self.recorder.draw = lambda: None
        assert run()

    def kill(self, actions: pa.Table, name: str, at: int) -> None:
        """Apply in a process of its own, which is killed at one of its calls, if it makes so many."""
        hosts = self.hosts
        process = CHILDREN.Process(target=apply_and_die, args=(hosts, actions, self.root, self.folder / name, at))
        process.start()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
        self.counts["killed"] += process.exitcode != 0

    def run(self) -> None:
        """Play it, and look after each step for what must never be."""
        self.apply(self.plan(self.reconstruct(self.lost)), "first")
        seen = {name for name in self.world.bookies if name not in self.lost}
        self.require_readable(seen)
        guarded = {ledger for ledger in self.had if self.is_locked(ledger)}
        self.collect(without=self.lost)
        # The bookies that are back still look for garbage before anybody has looked at them.
        known = {ledger for ledger in self.had if self.record(ledger) is not None}
        self.collect()
        kept = guarded | {
            ledger for ledger in known if (r := self.record(ledger)) and r.state is not LedgerState.CLOSED
        }
        now = self.copies()
        for ledger in kept:
            assert now.get(ledger) == self.had[ledger], ledger
        self.apply(self.plan(self.reconstruct(())), "second")
        self.collect()
        self.require_nothing_lost(known)

    def require_readable(self, seen: set[str]) -> None:
        """Through each closed record every entry up to its end that somebody seen serves is in his write set."""
        for ledger, entries in self.had.items():
            record = self.record(ledger)
            if record is None or record.state is not LedgerState.CLOSED or record.last_entry is None:
                continue
            for entry, holders in entries.items():
                if entry <= record.last_entry and holders & seen:
                    assert holders & seen & write_set(record, entry), (ledger, entry)

    def require_nothing_lost(self, known: set[int]) -> None:
        """Of each ledger with a record, what was acknowledged, and somebody had, is kept: readable or held."""
        now = self.copies()
        for ledger in known & self.world.records.keys():
            truth, record = self.world.records[ledger], self.record(ledger)
            assert record is not None
            for entry in range(truth.acked + 1):
                if self.had[ledger].get(entry):
                    holders = now.get(ledger, {}).get(entry, set())
                    assert holders, (ledger, entry, "is gone")
                    if record.state is LedgerState.CLOSED:
                        assert record.last_entry is not None
                        assert entry <= record.last_entry, (ledger, entry, "is cut off")
                        assert holders & write_set(record, entry), (ledger, entry, "has no holder")
                        self.counts["readable"] += 1


def write_set(record: LedgerMetadata, entry: int) -> set[str]:
    """Return the bookies that a record names for an entry."""
    members = [segment.members for segment in record.segments if segment.first <= entry][-1]
    return {members[(entry + k) % len(members)] for k in range(record.write_quorum)}


@pytest.mark.timeout(3600)
def test_random_schedules_lose_nothing(
    store: ZooKeeperStore, zookeeper_server: ZooKeeperServer, tmp_path: Path
) -> None:
    """Guards are drawn, and settled, by runs that die; bookies that were lost delete nothing of what is not settled."""
    counts: Counter[str] = Counter()
    # Children are forks of a process that has the program loaded.
    CHILDREN.set_forkserver_preload([__name__])
    for seed in range(FIRST, FIRST + SCHEDULES):
        schedule = Schedule(store, zookeeper_server.hosts, tmp_path / f"{seed}", seed)
        try:
            schedule.run()
        except BaseException as error:
            error.add_note(f"schedule {seed}")
            raise
        counts += schedule.counts
    assert counts["guarded"] > SCHEDULES
    assert counts["readable"] > 10 * SCHEDULES
    assert counts["deleted"] > 0
    assert counts["killed"] >= SCHEDULES // 5
