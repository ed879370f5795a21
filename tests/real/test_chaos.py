"""Bookies and whole racks killed, disks that fail, all under writes: in the end the cluster is whole.

Our scrutiny shows it. Three racks have three bookies each, clients are rack-aware, and the auditor reads every entry.
`scripts/soak chaos` goes on for so many minutes; the suite does each harm once. After each harm the cluster has time to
repair itself, and the placement of every closed ledger is judged, in the soak by our scrutiny, too.
"""

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from recovery.dataset import open_dataset
from tests.support.auto_recovery import FORGIVING, auto_recovery
from tests.support.cluster import Bookie, Cluster, ClusterError, encoded
from tests.support.command import Done, process
from tests.support.disk_faults import DiskFaults
from tests.support.waiting import until

MINUTES: Final = int(os.environ.get("BKMETA_SOAK_CHAOS", "0"))
RACKS, BOOKIES = 3, 9
QUORUMS: Final = ((3, 3, 2), (3, 2, 2), (2, 2, 2), (2, 2, 1))
"""Auto-recovery replaces at once all members of a segment that lack entries. With large ensembles too few
others are left, and the ledger stays marked for ever."""
HARM_S: Final = 20.0 if MINUTES else 6.0
"""How long a harm lasts, at most."""
STEP_S: Final = 0.05
"""Seconds between two steps of the load."""
HEALING_S: Final = 300.0
MARKS: Final = "/ledgers/underreplication/ledgers"
HOW: Final = {"digest": "CRC32C", "password": encoded(b"pw")}
RACK_AWARE: Final = {
    "reppDnsResolverClass": "LoopbackRacks",
    "minNumRacksPerWriteQuorum": "2",
    "enforceMinNumRacksPerWriteQuorum": "true",
}
REPAIRING: Final = {
    **FORGIVING,
    "lostBookieRecoveryDelay": "2",
    "auditorPeriodicBookieCheckInterval": "2",
    "auditorPeriodicCheckInterval": "15",
    "auditorLedgerVerificationPercentage": "100",
}
"""Only a check of every entry finds a copy that a writer left out, or that a disk did not keep."""
pytestmark = [pytest.mark.real, pytest.mark.timeout(900 + 180 * MINUTES)]


class Chaos:
    """A cluster that is written to and harmed.

    Attributes:
        down: bookies that do not run.
        told: ledger → entry → size and SHA-256, of every entry that was acknowledged.
        unsure: entries of writes that failed: any of them may have been acknowledged.
        steps: what was done, and how often.
    """

    def __init__(self, cluster: Cluster, faults: DiskFaults, seed: int) -> None:
        self.cluster, self.faults, self.rng = cluster, faults, random.Random(seed)
        self.bookies = [
            Bookie(
                n, f"bk{n}:3181", ("sorted", "db", "sorted")[n // RACKS], [f"b{n}/journal"], [f"b{n}/ledgers"],
                props={"openFileLimit": "500", "advertisedAddress": f"127.0.{1 + n % RACKS}.{1 + n}"},
            )
            for n in range(BOOKIES)
        ]  # fmt: skip
        self.down: set[int] = set()
        self.open: list[int] = []
        self.left: list[int] = []
        self.told: dict[int, dict[int, tuple[int, str]]] = {}
        self.steps: Counter[str] = Counter()
        for bookie in self.bookies:
            cluster.start(bookie)

    @property
    def topology(self) -> str:
        """Bookies and their racks, as `--topology` takes them."""
        return "".join(f"{bookie.id} /r{1 + bookie.n % RACKS}\n" for bookie in self.bookies)

    @property
    def closed(self) -> list[int]:
        """Ledgers that no writer has open or left."""
        return sorted(self.told.keys() - {*self.open, *self.left})

    def write(self) -> None:
        """Create a ledger, add to one or close one; a writer that is refused leaves its ledger open."""
        kind = self.rng.choices(["create", "add", "close"], [3, 8, 3])[0] if self.open else "create"
        try:
            if kind == "create":
                shape = dict(zip("EWA", self.rng.choice(QUORUMS), strict=True))
                ledger: int = self.cluster("create", **shape, **HOW, custom={})
                self.told[ledger] = {}
                self.open.append(ledger)
            elif kind == "add":
                self._add(self.rng.choice(self.open))
            else:
                self._close(self.rng.choice(self.open))
        except ClusterError:
            kind = f"{kind}, refused"
        self.steps[kind] += 1

    def _add(self, ledger: int) -> None:
        try:
            rows = self.cluster("add", ledger=ledger, sizes=[30] * self.rng.randint(1, 8), ids=None)
        except ClusterError:
            self._leave(ledger)
            raise
        self.told[ledger].update({entry: (size, digest) for entry, size, digest in rows})

    def _close(self, ledger: int) -> None:
        try:
            self.cluster("close", ledger=ledger)
        except ClusterError:
            self._leave(ledger)
            raise
        self.open.remove(ledger)

    def _leave(self, ledger: int) -> None:
        self.open.remove(ledger)
        self.left.append(ledger)

    def write_until(self, end: float) -> None:
        """Write until a moment of the monotonic clock."""
        while time.monotonic() < end:
            self.write()
            time.sleep(STEP_S)

    def lose_bookie(self) -> None:
        """Kill a bookie, or stop it."""
        self._lose([self.rng.randrange(BOOKIES)])

    def lose_rack(self) -> None:
        """Kill all bookies of a rack."""
        rack = self.rng.randrange(RACKS)
        self._lose([bookie.n for bookie in self.bookies if bookie.n % RACKS == rack])

    def _lose(self, numbers: list[int]) -> None:
        for number in numbers:
            self.cluster(self.rng.choice(["bookie_kill", "bookie_stop"]), n=number)
            self.down.add(number)
        self.write_until(time.monotonic() + HARM_S)

    def fail_reads(self) -> None:
        """Let a bookie read nothing from its disk for a while, and let readers and the auditor ask it."""
        self._fail("read")

    def fail_writes(self) -> None:
        """Let a bookie write nothing to its disk for a while; it is started again then, as an operator does."""
        self._fail("write")

    def _fail(self, what: Literal["read", "write"]) -> None:
        bookie = self.rng.choice(self.bookies)
        self.faults.fail(what, self.cluster.home / f"b{bookie.n}")
        end = time.monotonic() + HARM_S
        while time.monotonic() < end:
            self.write()
            for ledger in self.rng.sample(self.closed, min(2, len(self.closed))):
                self.cluster("read", ledger=ledger, **HOW, recovery=False)
            time.sleep(STEP_S)
        self.faults.end()
        self.cluster("bookie_stop", n=bookie.n)
        self.down.add(bookie.n)

    def heal(self) -> None:
        """Start what is down, and wait until auto-recovery has done its work: no mark is left."""
        for number in sorted(self.down):
            self.cluster.start(self.bookies[number])
        self.down.clear()
        began = time.monotonic()
        until(lambda: not self.list_marked(), "every marked ledger is replicated", HEALING_S)
        sys.stdout.write(f"replicated after {time.monotonic() - began:.0f} s\n")

    def list_marked(self) -> list[str]:
        """Return the marks of ledgers."""
        return [path for path in self.cluster.nodes(MARKS) if "/urL" in path]

    def settle(self) -> None:
        """Close what writers have open, and recover what they left, as readers do who want its end."""
        for ledger in list(self.open):
            self._close(ledger)
        for ledger in list(self.left):
            answer = self.cluster("read", ledger=ledger, **HOW, recovery=True)
            assert "open_error" not in answer, (ledger, answer)
            self.left.remove(ledger)

    def count_racks(self) -> dict[int, int]:
        """Return the fewest racks that a write set of each closed ledger has."""
        racks = {bookie.id: bookie.n % RACKS for bookie in self.bookies}
        stored = self.cluster.ledgers()
        fewest = {}
        for ledger in self.closed:
            width = stored[ledger]["W"]
            fewest[ledger] = min(
                len({racks[members[(first + place) % len(members)]] for place in range(width)})
                for _, members in stored[ledger]["segments"]
                for first in range(len(members))
            )
        return fewest


@pytest.fixture
def chaos(tmp_path: Path) -> Iterator[Chaos]:
    """Nine bookies in three racks, of both storages, whose disks can fail, and auto-recovery."""
    faults = DiskFaults(tmp_path)
    options = [f"-Dclient.{key}={value}" for key, value in RACK_AWARE.items()]
    with ExitStack() as stack:
        there = Cluster(tmp_path / "cluster", options=options, environment=faults.environment)
        cluster = stack.enter_context(there)
        cluster.start_zookeeper("zookeeper", "/ledgers")
        cluster("format", layout="hierarchical")
        made = Chaos(cluster, faults, int(os.environ.get("BKMETA_SOAK_SEED", "5")))
        stack.enter_context(auto_recovery(cluster.zookeeper, tmp_path, {**REPAIRING, **RACK_AWARE}))
        yield made


def scrutinize(chaos: Chaos, folder: Path, *more: str | Path) -> tuple[Done, list[dict[str, Any]]]:
    """Look at every closed ledger over the wire and by reads; return the result, and findings above info."""
    racks = folder / "racks.txt"
    racks.write_text(chaos.topology)
    uri = f"zk+hierarchical://{chaos.cluster.zookeeper}/ledgers"
    out = folder / f"run-{len(list(folder.glob('run-*')))}"
    done = process(
        "scrutinize", "--metadata", uri, "--topology", racks, "--placement", folder / "client.conf", "--sample-reads",
        "--sample-runs", "1", "--recheck-after", "2s", "--deadline", "10", "--out", out, *more, "--json",
        patience_s=600,
    )  # fmt: skip
    assert done.code in (0, 3, 4), done
    found = open_dataset(out, "scrutiny").read("findings").to_pylist()
    sys.stdout.write(f"{done.result['verdict']} {done.result['counts']} {Counter(row['category'] for row in found)}\n")
    sys.stdout.flush()
    return done, [row for row in found if row["severity"] != "info"]


def test_a_cluster_that_was_harmed_in_every_way_is_whole_again(chaos: Chaos, tmp_path: Path) -> None:
    """Java reads every acknowledged entry, every closed ledger has all copies in two racks, no mark stays."""
    (tmp_path / "client.conf").write_text("".join(f"{key}={value}\n" for key, value in RACK_AWARE.items()))
    harms: list[Callable[[], None]] = [chaos.lose_rack, chaos.fail_reads, chaos.fail_writes, chaos.lose_bookie]
    counts: Counter[str] = Counter()
    chaos.write_until(time.monotonic() + HARM_S)
    end = time.monotonic() + 60 * MINUTES
    while counts.total() < len(harms) or time.monotonic() < end:
        harm = harms[counts.total()] if counts.total() < len(harms) else chaos.rng.choice(harms)
        harm()
        counts[harm.__name__] += 1
        chaos.heal()
        if MINUTES:
            _, loud = scrutinize(chaos, tmp_path)
            assert [row for row in loud if row["category"].startswith("PLACEMENT")] == [], (counts, chaos.steps)
        assert {ledger: racks for ledger, racks in chaos.count_racks().items() if racks < 2} == {}
        sys.stdout.write(f"{counts} {dict(chaos.steps)}\n")
        sys.stdout.flush()
    chaos.settle()
    # The auditor's next look finds what writers and disks left out.
    last: list[tuple[Done, list[dict[str, Any]]]] = []

    def is_whole() -> bool:
        last[:] = [scrutinize(chaos, tmp_path)]
        return last[0][0].code == 0 and not chaos.list_marked()

    until(is_whole, "scrutiny finds nothing", HEALING_S)
    done, loud = last[0]
    assert loud == []
    judged = done.result["counts"]
    assert judged["undecided"] == {}
    # What was written and not acknowledged is a note: a copy too many, entries above an end.
    assert judged["clean"] + judged["with_findings"] + judged["skipped"].get("empty", 0) == len(chaos.told)
    entries = 0
    for ledger, told in chaos.told.items():
        rows = chaos.cluster("read", ledger=ledger, **HOW, recovery=False)["entries"]
        assert {entry: tuple(rows[entry]) for entry in told} == told, ledger
        entries += len(told)
    sys.stdout.write(
        f"{dict(counts)}; {len(chaos.told)} ledgers, {entries} acknowledged entries read; {dict(chaos.steps)}\n"
    )
