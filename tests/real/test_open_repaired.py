"""Auto-recovery acted on open ledgers; all records are lost: the Java client reads every acknowledged entry.

A bookie dies under open ledgers. Their writers go on with newcomers and add a little. Auto-recovery copies what the
dead bookie had while the ledgers are open, and the bookie comes back. Some newcomers answer nothing, so no disk shows
the segment that begins with them. Copies carry the LAC of that moment: no ledger ends there.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support import acid
from tests.support.acid import Loss, end_of, is_hold, read_ledger
from tests.support.auto_recovery import auto_recovery
from tests.support.cluster import Cluster, History, bookies_of
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

PASSWORD: Final = b"secret"
STORAGES: Final = ("sorted", "interleaved", "db", "sorted", "interleaved")
SHAPES: Final = ((3, 3, 2), (3, 2, 2), (2, 2, 2), (4, 4, 3))
DEAD: Final = 0
"""The bookie that dies, and comes back."""
HUNG: Final = 3
"""The one that answers nothing for a while."""
GONE: Final = 1
"""The one whose disks are gone in the end."""


def write_history(home: Path) -> dict[str, Any]:
    """Live a cluster to its end below `home`; return its truth."""
    with Cluster(home) as cluster:
        history = History(cluster)
        for n, storage in enumerate(STORAGES):
            history.bookie(n, storage)
        for _ in range(6):
            ledger = history.create((3, 3, 2), digest="CRC32C", password=PASSWORD)
            history.add(ledger, [50] * 12)
            history.close(ledger)
        opened = [history.create(SHAPES[n % len(SHAPES)], digest="CRC32C", password=PASSWORD) for n in range(12)]
        for n, ledger in enumerate(opened):
            history.add(ledger, [50] * (4 + n))
        history.down(DEAD, "killed")
        for n, ledger in enumerate(opened):
            history.add(ledger, [50] * (1 + n % 4))
        with auto_recovery(cluster.zookeeper, home.with_suffix(".repairs"), root=history.root):
            until(lambda: not _list_naming(cluster, history.id_of(DEAD)), "auto-recovery copies all of the dead bookie")
        # It recovers those whose writer wrote nothing to the dead bookie's places, and so did not notice.
        still = [ledger for ledger, row in cluster.ledgers().items() if ledger in opened and row["state"] == "OPEN"]
        assert len(still) > len(opened) // 2
        for ledger in still[::3]:
            history.close(ledger)
        history.up(DEAD)
        _hide_newcomers(history)
        for n in range(len(STORAGES)):
            if n != HUNG:
                history.down(n, "killed" if n % 2 else "clean")
        return history.truth()


def _list_naming(cluster: Cluster, bookie: str) -> list[int]:
    return [n for n, row in cluster.ledgers().items() if any(bookie in members for _, members in row["segments"])]


def _hide_newcomers(history: History) -> None:
    """Copy what a bookie that is down has of open ledgers, whose newcomer answers nothing."""
    cluster, old = history.cluster, history.id_of(DEAD)
    members = [history.id_of(n) for n in (DEAD, 1, 2)]
    ledgers = [history.create((3, 3, 2), digest="CRC32C", password=PASSWORD, members=members) for _ in range(4)]
    for n, ledger in enumerate(ledgers):
        history.add(ledger, [50] * (3 + 5 * n))
    cluster("instead", old=old, new=history.id_of(HUNG))
    history.down(DEAD, "killed")
    cluster("mute", n=HUNG)
    for n, ledger in enumerate(ledgers):
        history.add(ledger, [50] * (2 + n))
    cluster("instead", old=old, new=history.id_of(4))
    for ledger in ledgers:
        cluster("repair", ledger=ledger, bad=old)
    history.close(ledgers[0])
    history.down(HUNG, "killed")
    history.up(DEAD)


@dataclass(frozen=True, slots=True)
class Known:
    """What is known beside the disks.

    Attributes:
        gone: bookies whose disks are gone.
        is_stated: they are stated to be lost.
        is_store_kept: ZooKeeper's complete files are there.
    """

    gone: tuple[int, ...] = ()
    is_stated: bool = False
    is_store_kept: bool = False


@dataclass(slots=True)
class Read:
    """What comes back.

    Attributes:
        plan: rows of the reconstruction, by ledger.
        records: in the store, as Java reads them.
        short: ledgers with an acknowledged entry that is not read, and how many are, of how many.
    """

    plan: dict[int, dict[str, Any]]
    records: dict[int, dict[str, Any]]
    short: dict[int, tuple[int, int, str]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folders of the cluster, and its truth."""
    home = tmp_path_factory.mktemp("lived") / "home"
    truth = json.loads(json.dumps(write_history(home)))
    return home, truth


@contextmanager
def _lose(lived: tuple[Path, dict[str, Any]], known: Known, work: Path) -> Iterator[Read]:
    """Lose all records and what else is lost, bring the records back, and read every ledger."""
    home, truth = lived
    truth = {**truth, "bookies": [{**row, "present": row["n"] not in known.gone} for row in truth["bookies"]]}
    for part in ("bookies", "zookeeper"):
        shutil.copytree(home / part, work / "home" / part)
    for n in known.gone:
        shutil.rmtree(work / f"home/bookies/b{n}")
    stated = [word for row in truth["bookies"] if row["n"] in known.gone for word in ("--lost", row["id"])]
    operator = acid.Operator(work / "home", truth, [PASSWORD], work / "operator", is_partial=bool(known.gone))
    operator.collect()
    with Cluster(work / "home") as cluster:
        cluster.start_zookeeper("zookeeper", truth["root"])
        acid.lose(cluster, truth, Loss.ALL)
        plan = operator.recover(
            cluster.zookeeper,
            snapshot=home / "zookeeper" if known.is_store_kept else None,
            stated=stated if known.is_stated else (),
        )
        found = Read(plan, cluster.ledgers())
        for bookie in bookies_of(truth):
            cluster.start(bookie)
        for row in truth["ledgers"]:
            record = found.records.get(row["ledger"])
            last, right = end_of(row), 0
            if record is not None and not is_hold(record):
                read = read_ledger(cluster, row, recovery=record["state"] != "CLOSED")["entries"]
                right = sum(one == entry for one, entry in zip(read, row["entries"][: last + 1], strict=False))
            if right <= last:
                found.short[row["ledger"]] = (right, last + 1, str(plan.get(row["ledger"], {}).get("outcome")))
        yield found


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(Known(), id="all bookies"),
        pytest.param(Known((GONE,)), id="one is gone"),
        pytest.param(Known((GONE,), is_stated=True), id="one is lost"),
        pytest.param(Known(is_store_kept=True), id="the store's files"),
    ],
)
def test_every_acknowledged_entry_is_read(lived: tuple[Path, dict[str, Any]], known: Known, tmp_path: Path) -> None:
    """Nothing is held or cut; with the store's own files, every ledger is in the state that they have."""
    with _lose(lived, known, tmp_path / "lost") as found:
        assert found.short == {}
        assert [ledger for ledger, row in found.plan.items() if row["outcome"] == "held"] == []
        if known.is_store_kept:
            states = {row["ledger"]: row["state"] for row in lived[1]["ledgers"]}
            assert {ledger: row["state"] for ledger, row in found.records.items()} == states
