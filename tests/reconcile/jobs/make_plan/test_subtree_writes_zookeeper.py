"""Nodes of upper layers written to a real ZooKeeper and taken back, by processes that are killed."""

import itertools
import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from backends.protocols import Write
from backends.zookeeper.store import ZooKeeperStore
from reconcile.write.audit_journal import JOURNAL
from recovery.dataset import Dataset
from tests.reconcile.jobs.make_plan.test_subtree_writes import make_plan, request_of, take
from tests.support.memory_store import MemoryStore
from tests.support.plans import lines_after
from tests.support.zookeeper_server import ZooKeeperServer

KILLS = int(os.environ.get("BKMETA_SOAK_SUBTREES", "2"))
TOPICS = 30 * KILLS
RIGHTS = "world:anyone:cdrwa"
ABOVE = "/killed"

pytestmark = [pytest.mark.real, pytest.mark.timeout(3600)]

WORKER = """
    import sys
    from datetime import UTC, datetime
    from pathlib import Path
    from backends.zookeeper.store import ZooKeeperStore
    from reconcile.write import undo
    from reconcile.write.apply import ApplyOptions, apply
    from recovery.dataset import open_dataset

    what, hosts, root, folder, journal = sys.argv[1:]
    plan, store, journal = open_dataset(folder, "plan"), ZooKeeperStore(hosts), Path(journal)
    now = lambda: datetime.now(UTC)
    if what == "apply":
        options = ApplyOptions(plan.manifest["hash"], resume=True, batch_rows=5)
        sys.exit(apply(lambda: plan.batches("actions"), store, root, journal, options, now=now).exit_code)
    undone = undo.undo(undo.propose(journal, store, root), store, root, now=now)
    sys.exit(bool(undone.left))
    """


def fill() -> MemoryStore:
    """Return topics with subscriptions of their own, and a counter."""
    store = MemoryStore()
    for number in range(TOPICS):
        topic = f"{ABOVE}/managed-ledgers/public/default/persistent/topic-{number:04d}"
        for key, value in ((topic, b"\x0a\x02\x08\x07"), (f"{topic}/subscription", b"\x08\x01")):
            store.write([Write(key, value, None, RIGHTS)])
    store.write([Write(f"{ABOVE}/counters/producer-name", b"", None, RIGHTS)])
    store.raise_counter(f"{ABOVE}/counters/producer-name", 41)
    return store


def run_killed(words: Sequence[str], journal: Path, step: int) -> int:
    """Run a worker again and again, killed as soon as the journal has grown by some lines; return how often it was."""
    seen = offset = kills = 0
    for goal in itertools.count(3, step):
        with subprocess.Popen([sys.executable, "-c", textwrap.dedent(WORKER), *words]) as process:
            while seen < goal:
                added, offset = lines_after(journal, offset)
                seen += added
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=0.001)
                    break
            if process.poll() is None:
                process.kill()
                kills += 1
                continue
        assert process.returncode == 0
        break
    return kills


def read_values(plan: Dataset) -> dict[str, bytes | None]:
    """Return what the plan makes, by path."""
    return {row["key"][1:]: row["value"] for row in plan.read("actions").to_pylist() if row["op"] == "create"}


def test_nodes_written_and_taken_back_by_processes_that_are_killed(
    zookeeper_server: ZooKeeperServer, tmp_path: Path
) -> None:
    """Each node is written once, the counter raised once; what takes all of it back may be killed as well."""
    root = f"{ABOVE}/ledgers"
    plan = make_plan(
        tmp_path / "plan", request_of(take(fill(), tmp_path / "then", pulsar=True, root=root), None, pulsar=True)
    )
    wanted, journal = read_values(plan), tmp_path / "journal"
    words = (zookeeper_server.hosts, root, str(tmp_path / "plan"), str(journal))
    # Two lines a batch of five, twice, and some a run.
    step = 4 * len(wanted) // 5 // (KILLS + 1)
    kills = run_killed(("apply", *words), journal / JOURNAL, step)
    assert kills >= max(1, KILLS // 2)
    store = ZooKeeperStore(zookeeper_server.hosts)
    try:
        nodes = dict(store.get_many(wanted))
        assert {key: None if node is None else (node.value, node.version) for key, node in nodes.items()} == {
            key: (value, 0) for key, value in wanted.items()
        }
        counter = store.get(f"{ABOVE}/counters/producer-name")
        assert counter is not None
        assert counter.children_created == 42
        undo_kills = run_killed(("undo", *words), journal / JOURNAL, step)
        assert undo_kills >= 1
        counts = f"killed {kills} times while they were written, {undo_kills} times while they were undone"
        print(f"{len(wanted)} nodes: {counts}")  # noqa: T201 - figures of a soak
        assert [key for key, node in store.get_many(wanted) if node is not None] == []
    finally:
        store.close()
