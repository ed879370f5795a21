"""A bookie is gone, and all records: by the commands they come back guarded, are read, and settled when it is back."""

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc
import pytest

from reconcile.findings.categories import Category
from recovery.dataset import open_dataset
from tests.support import pulsar
from tests.support.command import run
from tests.support.guarded_cluster import LOST, PASSWORD, ROOT, SPARE, GuardedCluster
from tests.support.kept_bytes import less
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.spark]

ROUNDS: Final = int(os.environ.get("BKMETA_SOAK_GUARDED", "1"))
"""Clusters: each has its storages on other bookies. If there are several: by Pulsar's driver, with brokers' topics."""
STORAGES: Final = ("db", "interleaved", "sorted")
SHAPES: Final = (
    ((0, 1, 3), 2),
    ((1, 2, 3), 3),
    ((3, 0), 2),
    ((0, 1, 2, 3), 2),
    ((3, 2, 1, 0), 3),
    ((2, 3), 2),
    ((0, 1, 2), 2),
    ((3, 1, 2), 2),
)
"""Bookies of a ledger, and W."""
SINGLE: Final = (1, 3)
"""Of a ledger with one copy of each entry: what only the lost bookie has nobody reads until it is back."""


class Commands:
    """The program, as it is typed beside a cluster."""

    def __init__(self, there: GuardedCluster, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.there, self.folder, self.capsys = there, folder, capsys
        names, secrets = folder / "bookies.txt", folder / "passwords.txt"
        names.write_text("\n".join(bookie.id for bookie in there.bookies[:SPARE]))
        secrets.write_bytes(PASSWORD + b"\n")
        secrets.chmod(0o600)
        self.store = ("--metadata", there.uri)
        self.known = ("--expect-bookies", names, "--passwords", secrets)
        self.secrets = secrets
        self.inventories: list[object] = []

    def __call__(self, *words: object, codes: tuple[int, ...] = (0,)) -> dict[str, Any]:
        """Run a command, and return the object that it prints."""
        done = run(self.capsys, *words, "--json")
        assert done.code in codes, done.out + done.err
        return done.result

    def collect(self, n: int) -> None:
        """Collect a bookie that is down."""
        bookie, out = self.there.bookies[n], self.folder / f"inventory-{n}"
        disks = {"--ledger-dir": bookie.ledgers[0], "--journal-dir": bookie.journals[0]}
        folders = [word for option, name in disks.items() for word in (option, self.there.cluster.home / name)]
        self("collect", *folders, "--passwords", self.secrets, "--out", out, codes=(0, 4))
        self.inventories += ["--inventory", out]

    def recover(self, plan: str) -> dict[str, Any]:
        """Make a plan of the inventories, the store, and what is known."""
        out = self.folder / plan
        return self("recover", *self.inventories, *self.store, *self.known, "--out", out, codes=(0, 3, 4))

    def apply(self, plan: str, recovered: dict[str, Any], *more: object) -> dict[str, Any]:
        """Apply a plan."""
        return self("apply", self.folder / plan, *self.store, "--confirm", recovered["hash"], *more)


class Topics:
    """Topics of Pulsar's brokers in a cluster."""

    def __init__(self, there: GuardedCluster, folder: Path) -> None:
        self.there, self.folder = there, folder
        self.counts: dict[str, int] = {}

    def write(self) -> None:
        """Write them, as brokers that are killed."""
        truth = pulsar.write_topics(self.there.cluster.zookeeper, ROOT, self.folder)
        self.counts = {name: 12 for name in truth if "/kept-" in name} | {"public/default/persistent/ended": 3}

    def check(self) -> None:
        """See that a broker that starts anew reads every entry of each."""
        read = pulsar.read_topics(self.there.cluster.zookeeper, ROOT, self.folder, list(self.counts))
        assert read == {name: [f"entry {n}" for n in range(count)] for name, count in self.counts.items()}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("turn", range(ROUNDS))
def test_readable_at_once_and_settled_later(turn: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the lost bookie 95 % of what the true records could read is read; when it is back, every entry is.

    It starts before anybody has looked at its disks, with collection and the over-replicated check each second and
    auto-recovery at work: nothing of a guarded ledger is deleted. A reader that is open while an ensemble gets smaller
    fails, if it was opened without recovery: `recover` lists the ledger. Topics are read whole under the guards.
    """
    manager = "pulsar" if ROUNDS > 1 else "hierarchical"
    there = GuardedCluster(tmp_path / "cluster", STORAGES[turn % 3 :] + STORAGES[: turn % 3], manager)
    topics = Topics(there, tmp_path / "topics") if manager == "pulsar" else None
    try:
        for count in (7, 8, 13):
            for on, write in SHAPES:
                there.write(on, write, count)
        there.write((3, 1, 2), 2, 12, change=6)
        there.write((0, 1, 3), 2, digest="MAC")
        there.write(SINGLE, 1)
        shrinking = there.write((1, 2), 2)
        if topics:
            topics.write()
        there.lose()
        before = there.kept()
        bkmeta = Commands(there, tmp_path, capsys)
        for n in range(LOST):
            bkmeta.collect(n)
        first = bkmeta.recover("plan-1")
        bkmeta.apply("plan-1", first, "--accept-unseen", "1")
        # As if nobody had known its shape: by all that were seen.
        universal = there.written[shrinking].universal_record(there.seen, there.seen)
        there.apply("universal", [replace(universal, guard="lock")], replaces=True)
        guarded = there.locks()
        assert len(guarded) == first["counts"]["guarded"] > 0

        for n in (0, 1, 2, SPARE):
            there.cluster.start(there.bookies[n])
        read: Counter[str] = Counter()
        records = there.cluster.ledgers()
        for ledger, written in there.written.items():
            wanted = set(written.seen(there.seen))
            closed = ledger in records and records[ledger]["state"] == "CLOSED"
            read.update(wanted=len(wanted), right=len(wanted & set(there.read(ledger))) if closed else 0)
        assert read["right"] >= 0.95 * read["wanted"], read
        if topics:
            topics.check()

        with there.autorecovery():
            there.check(0, 1, 2, SPARE)
            there.cluster.start(there.bookies[LOST])
            there.check(0, 1, 2, LOST, SPARE)
        assert not {ledger for _, ledger in less(before, there.kept())} & guarded
        for n in (LOST, SPARE):
            there.cluster("bookie_stop", n=n)
            bkmeta.collect(n)
        second = bkmeta.recover("plan-2")
        sizes = {ledger: row["E"] for ledger, row in there.cluster.ledgers().items()}
        readers = [there.open(shrinking, recovery=recovery) for recovery in (False, True)]
        bkmeta.apply("plan-2", second, "--accept-unfrozen")
        smaller = {ledger for ledger, row in there.cluster.ledgers().items() if row["E"] < sizes.get(ledger, 0)}
        findings = open_dataset(tmp_path / "plan-2", "plan").read("findings", columns=["category", "ledger"])
        listed = findings.filter(pc.equal(findings["category"], str(Category.READERS_MUST_REOPEN)))
        assert shrinking in smaller
        assert set(listed["ledger"].to_pylist()) == smaller
        until(lambda: readers[0]() is not None, "the open reader takes the new record, and fails")
        assert readers[1]() is None
        for n in (LOST, SPARE):
            there.cluster.start(there.bookies[n])
        there.check(0, 1, 2, LOST, SPARE)
        assert len(there.locks()) == second["counts"]["guarded"]
        for ledger, written in there.written.items():
            assert there.read(ledger) == list(range(written.entries)), ledger
        if topics:
            topics.check()
    finally:
        there.close()
