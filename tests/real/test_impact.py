"""Drills on a real cluster: what is called safe loses nothing when it is done; what is called unsafe fails as said."""

import itertools
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from reconcile.check.impact.answer import ImpactAnswer
from reconcile.jobs.impact.check import check_impact
from reconcile.jobs.impact.question import ImpactRequest, Taken
from recovery.dataset import open_dataset
from tests.support.cluster import Cluster, ClusterError, History
from tests.support.command import PROGRAM, ROOT
from tests.support.impact_question import make_context

pytestmark = pytest.mark.real

PAGE = ROOT / "docs/operations/impact.md"
BOOKIES = 5
EACH = int(os.environ.get("BKMETA_SOAK_DRILLS", "2"))
"""Drills that are called safe, and as many that are called unsafe for readers, writers or a recovery."""
SHAPES = ((2, 2, 1), (2, 2, 2), (3, 2, 1), (3, 2, 2), (3, 3, 2), (4, 2, 2), (4, 3, 2))
SEEN = ("READ_AVAILABILITY_LOSS", "RECOVERY_LOSS", "WRITE_AVAILABILITY_LOSS")
"""What a client notices; the others are about tomorrow."""
OPEN = {"digest": "CRC32C", "password": ""}


@dataclass
class Drills:
    """A cluster, and its closed ledgers with the number of their entries."""

    history: History
    cache: Path
    closed: dict[int, int] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def make_open(self, shape: tuple[int, int, int]) -> int:
        """Return a ledger that is being written."""
        ledger = self.history.create(shape, digest="CRC32C", password=b"")
        self.history.add(ledger, [50] * 7)
        return ledger

    def make_closed(self, shape: tuple[int, int, int], entries: int) -> None:
        """Make a ledger, write it and close it."""
        ledger = self.history.create(shape, digest="CRC32C", password=b"")
        if entries:
            self.history.add(ledger, [50] * entries)
        self.history.close(ledger)
        self.closed[ledger] = entries

    def ask(self, taken: Sequence[int]) -> tuple[ImpactAnswer, set[tuple[int, str]]]:
        """Ask what becomes of the cluster without some bookies: the answer, and each ledger with what hits it.

        Of five bookies each is a fifth of the capacity: that is not asked for.
        """
        out = self.cache.parent / f"out-{next(self.numbers)}"
        names = tuple(f"10.0.0.{n + 1}:3181" for n in taken)
        request = ImpactRequest(
            uri=f"zk+hierarchical://{self.history.cluster.zookeeper}/ledgers",
            cache=self.cache,
            max_age=timedelta(0),
            taken=Taken((names,) if names else ()),
            most_unavailable=100,
            out=out,
        )
        answer = check_impact(request, make_context(lambda: datetime.now(UTC)))
        rows = open_dataset(out, "impact").read("impacts").to_pylist()
        return answer, {(row["ledger"], row["impact"]) for row in rows}

    def list_unread(self) -> set[int]:
        """Return the closed ledgers that some entry cannot be read of."""
        unread = set()
        for ledger, entries in self.closed.items():
            read = self.history.cluster("read", ledger=ledger, **OPEN)
            if len(read["entries"]) != entries or any(row[0] is None for row in read["entries"]):
                unread.add(ledger)
        return unread

    def is_recovered(self, ledger: int) -> bool:
        """Fence and close a ledger as whoever opens it does; whether that can be done."""
        return "open_error" not in self.history.cluster("read", ledger=ledger, recovery=True, **OPEN)

    def is_written(self, ledger: int) -> bool:
        """Go on writing a ledger; whether that can be done."""
        try:
            self.history.add(ledger, [50] * 12)
        except ClusterError:
            return False
        return True


def list_commands() -> list[str]:
    """Every line of the page's shell blocks."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


@pytest.fixture(scope="module")
def drills(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drills]:
    """Five bookies, and closed ledgers of every shape."""
    folder = tmp_path_factory.mktemp("impact")
    with Cluster(folder / "home") as cluster:
        history = History(cluster)
        for n in range(BOOKIES):
            history.bookie(n, "sorted")
        made = Drills(history, folder / "cache")
        random = Random("closed ledgers")
        for shape in ((1, 1, 1), *SHAPES):
            made.make_closed(shape, random.choice((1, 2, 5)))
        made.make_closed((3, 2, 2), 0)
        yield made


def drill(drills: Drills, seed: int) -> str:
    """Ask, then do it, and see what clients see; return what was said."""
    random = Random(f"drill {seed}")
    waiting, written = (drills.make_open(random.choice(SHAPES)) for _ in range(2))
    taken = random.sample(range(BOOKIES), random.choice((1, 1, 2, 3)))
    answer, hit = drills.ask(taken)
    assert answer.ledgers == len(drills.closed) + 2
    try:
        for n in taken:
            drills.history.down(n)
        said = {ledger for ledger in drills.closed if (ledger, "READ_AVAILABILITY_LOSS") in hit}
        assert drills.list_unread() == said, (seed, taken)
        # What was told before is what is told now that it happened.
        now, hit_now = drills.ask(())
        assert now.states["down"] == len(taken)
        assert hit_now == hit, (seed, taken)
        if (waiting, "RECOVERY_LOSS") in hit:
            assert not drills.is_recovered(waiting), (seed, taken)
        elif not any((waiting, impact) in hit for impact in SEEN):
            assert drills.is_recovered(waiting), (seed, taken)
        assert drills.is_written(written) == ((written, "WRITE_AVAILABILITY_LOSS") not in hit), (seed, taken)
    finally:
        for n in taken:
            drills.history.up(n)
    for ledger in (waiting, written):
        assert drills.is_recovered(ledger)
        drills.history.cluster("delete", ledger=ledger)
    if str(answer.verdict) == "SAFE":
        return "safe"
    return "unsafe" if any(impact in SEEN for _, impact in hit) else "tomorrow"


@pytest.mark.timeout(300 + 60 * EACH)
def test_what_is_called_safe_is_and_what_is_called_unsafe_fails(drills: Drills) -> None:
    """Random bookies are stopped: every entry, every recovery and every writer fares as the check said before."""
    said = {"safe": 0, "unsafe": 0, "tomorrow": 0}
    for seed in range(20 * EACH):
        said[drill(drills, seed)] += 1
        if min(said["safe"], said["unsafe"]) >= EACH:
            return
    pytest.fail(f"not enough of each kind: {said}")


def test_every_command_of_the_page_answers(drills: Drills, tmp_path: Path) -> None:
    """A rolling restart, a decommission, losing a rack, what bookies hold: each line as it stands there, in order."""
    lines = list_commands()
    assert len(lines) > 10
    assert all(line.startswith("bkmeta check-impact --metadata $STORE") for line in lines)
    names = [f"10.0.0.{n + 1}:3181" for n in range(BOOKIES)]
    (tmp_path / "topology.txt").write_text("".join(f"{name} /r{n % 3}/x\n" for n, name in enumerate(names)))
    home = drills.history.cluster.home
    disks = home / "bookies" / "b0"
    words = ["--journal-dir", str(disks / "journal0"), "--ledger-dir", str(disks / "ledgers0")]
    environment = {
        **os.environ,
        "PATH": f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "STORE": f"zk+hierarchical://{drills.history.cluster.zookeeper}/ledgers",
        "BOOKIE": names[0],
        "OTHER": names[1],
    }
    subprocess.run([PROGRAM, "collect", *words, "--out", tmp_path / "inventory"], check=False, env=environment)
    codes = []
    for line in lines:
        ran = subprocess.run(
            ["bash", "-c", line],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
            timeout=120,
            check=False,
        )
        codes.append(ran.returncode)
        verdict = {0: "SAFE", 3: "UNSAFE", 4: "UNDECIDED"}.get(ran.returncode)
        assert verdict is not None, f"{line}\n{ran.stdout}\n{ran.stderr}"
        assert ran.stdout.startswith(f"{verdict}: "), line
    assert codes[0] == 0
    assert (tmp_path / "impact" / "report.html").exists()
    assert (tmp_path / "racks" / "manifest.json").exists()
