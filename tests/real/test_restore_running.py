"""A whole restore while bookies run and collect garbage every second, by the commands: nothing is deleted.

What bookies have is counted in their files, of each storage: index files, rows of RocksDB, records in entry logs.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from backends.protocols import Write
from backends.zookeeper.store import ZooKeeperStore
from recovery.codecs.store import LOCKS
from tests.support.auto_recovery import auto_recovery
from tests.support.cluster import Bookie, Cluster, encoded
from tests.support.command import run
from tests.support.kept_bytes import Kept, Place, kept, less
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.spark]

ROOT: Final = "/ledgers"
AUTH: Final = ("tool", "secret")
STORAGES: Final = ("interleaved", "sorted", "db", "db")
SHAPES: Final = ((3, 2, 2), (3, 3, 2), (2, 2, 2))
"""Of ledgers on the first three bookies."""
SINGLE: Final = (4, 1, 1)
"""Of ledgers on all: each entry stands on one bookie, so what any of them deletes cannot be read."""
PLACED: Final = ((0, 1, 3), (0, 2, 3), (1, 2, 3), (3, 1, 0), (0, 1, 2), (3,))
"""Bookies, by number, of ledgers with every entry on all of theirs."""
LEDGERS: Final = 20
ENTRIES: Final = 12
PROPS: Final = {"gcWaitTime": "1000", "flushInterval": "500", "gcOverreplicatedLedgerWaitTime": "1000"}
FAILED: Final = "Exception when iterating over the metadata"


def placed(row: dict[str, Any]) -> list[Any]:
    """Return who holds what of a ledger: where every member has every entry their order says nothing."""
    same = row["E"] == row["W"]
    return [row["E"], row["W"], [(first, sorted(members) if same else members) for first, members in row["segments"]]]


class Running:
    """Four bookies that run all the time, and what they were given."""

    def __init__(self, work: Path, *, placed: bool) -> None:
        self.work = work
        self.cluster = Cluster(work / "home")
        self.log = work / "home.log"
        self.cluster.start_zookeeper("zookeeper", ROOT)
        self.cluster("format", layout="hierarchical")
        self.bookies = [
            Bookie(n, f"10.0.0.{n + 1}:3181", storage, [f"b{n}/journal"], [f"b{n}/ledgers"], props=PROPS)
            for n, storage in enumerate(STORAGES)
        ]
        for bookie in self.bookies[:-1]:
            self.cluster.start(bookie)
        if placed:
            self.cluster.start(self.bookies[-1])
            self.ledgers = [self._ledger((len(on), len(on), len(on)), on) for on in PLACED]
        else:
            self.ledgers = [self._ledger(SHAPES[n % len(SHAPES)]) for n in range(3 * LEDGERS // 4)]
            self.cluster.start(self.bookies[-1])
            self.ledgers += [self._ledger(SINGLE) for _ in range(LEDGERS - len(self.ledgers))]
        self.restart()
        self.store = ZooKeeperStore(self.cluster.zookeeper, auth=AUTH)
        self.uri = f"zk+hierarchical://{self.cluster.zookeeper}{ROOT}"
        rows = self.cluster.ledgers()
        self.keys = {ledger: str(rows[ledger]["path"]) for ledger in self.ledgers}
        self.lost = {ledger: rows[ledger] for ledger in self.ledgers}
        # The first pass of a collector makes it, which a freeze would find between its question and its answer.
        until(lambda: self.store.children(ROOT + LOCKS) is not None, "a bookie looks for copies too many")

    def _ledger(self, shape: tuple[int, int, int], on: Sequence[int] = ()) -> int:
        known: dict[str, Any] = {"digest": "CRC32C", "password": encoded(b""), "custom": {}}
        if on:
            known["members"] = [self.bookies[n].id for n in on]
        ledger: int = self.cluster("create", E=shape[0], W=shape[1], A=shape[2], **known)
        self.cluster("add", ledger=ledger, sizes=[100 + n for n in range(ENTRIES)], ids=None)
        self.cluster("close", ledger=ledger)
        return ledger

    def restart(self) -> None:
        """Stop every bookie cleanly, and start it on what it has."""
        for bookie in self.bookies:
            self.cluster("bookie_stop", n=bookie.n)
            self.cluster.start(bookie)

    def lose(self) -> None:
        """Lose what a cluster has below its root, but for what bookies hold open."""
        gone = [*self.keys.values(), *(f"{ROOT}/{name}" for name in ("LAYOUT", "INSTANCEID", "idgen"))]
        gone += [f"{ROOT}/cookies/{name}" for name in self.store.children(f"{ROOT}/cookies") or ()]
        for key, held in list(self.store.get_many(gone)):
            assert held is not None, key
            self.store.write([Write(key, None, held.version)])

    def kept(self) -> dict[Place, Kept]:
        """Return what every bookie has of every ledger on its disk."""
        return kept(self.cluster.home, self.bookies)

    def placed(self) -> set[Place]:
        """Return which bookies were given which ledgers."""
        return {
            (member, ledger)
            for ledger, row in self.lost.items()
            for _, members in row["segments"]
            for member in members
        }

    def collected(self) -> int:
        """Wait until every bookie has ended two passes, seen by a ledger that goes from its disk; return that."""
        control = self.cluster.collect_garbage(len(self.bookies))
        assert not [place for place, has in self.kept().items() if place[1] == control and has.index]
        return control

    def some_passes(self) -> None:
        """Wait until every bookie has failed two passes, as far as their number tells."""

        def failed() -> int:
            return self.log.read_text(errors="replace").count(FAILED)

        before = failed()
        until(lambda: failed() >= before + 2 * len(self.bookies), "failed passes")

    def readable(self, ledger: int) -> list[int]:
        """Return the sizes of the entries that the real client reads."""
        found = self.cluster("read", ledger=ledger, digest="CRC32C", password=encoded(b""), recovery=False)
        assert "open_error" not in found, found
        return [size for size, _ in found["entries"]]

    def marks(self) -> list[str]:
        """Return what the auditor has marked."""
        nodes = self.cluster.nodes(f"{ROOT}/underreplication/ledgers")
        return [path for path in nodes if "/urL" in path]


@pytest.fixture
def there(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A cluster that runs."""
    monkeypatch.setenv("BKMETA_ZK_AUTH", ":".join(AUTH))
    monkeypatch.delenv("BKMETA_ZK_BOOKIE_AUTH", raising=False)
    monkeypatch.chdir(tmp_path)
    made = Running(tmp_path, placed=bool(getattr(request, "param", False)))
    try:
        yield made
    finally:
        made.store.close()
        made.cluster.__exit__(None, None, None)


class Commands:
    """The program, as it is typed beside such a cluster."""

    def __init__(self, there: Running, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.there = there
        self.folder = folder
        self.capsys = capsys
        names = folder / "bookies.txt"
        names.write_text("\n".join(bookie.id for bookie in there.bookies))
        self.store = ("--metadata", there.uri)
        self.expected = ("--expect-bookies", names)

    def __call__(self, *words: Any, codes: tuple[int, ...] = (0,)) -> dict[str, Any]:
        """Run a command, and return the object that it prints."""
        done = run(self.capsys, *words, "--json")
        assert done.code in codes, done.out + done.err
        return done.result

    def confirmed(self, *words: Any) -> dict[str, Any]:
        """Run a command, and once more with the hash that it asks for."""
        return self(*words, "--confirm", self(*words, codes=(5,))["hash"])

    def collected(self, n: int) -> list[str]:
        """Collect a bookie; return how its inventory is named to other commands."""
        bookie, out = self.there.bookies[n], self.folder / f"inventory-{n}"
        disks = {"--ledger-dir": bookie.ledgers[0], "--journal-dir": bookie.journals[0]}
        folders = [word for option, name in disks.items() for word in (option, self.there.cluster.home / name)]
        self("collect", *folders, "--out", out, codes=(0, 4))
        return ["--inventory", str(out)]


@pytest.mark.timeout(900)
def test_a_restore_beside_bookies_that_run(there: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Frozen, lost, recovered without one bookie, guarded, recovered with it, settled, thawed: no byte is deleted.

    Then the real auditor marks nothing, bookies restart with their cookies, ids are new, and every entry is read.
    """
    bkmeta = Commands(there, tmp_path, capsys)
    store, expected = bkmeta.store, (*bkmeta.expected, "--default-quorum", "3/2/2")
    bkmeta.confirmed("freeze", *store)
    before = there.kept()
    assert {place for place, has in before.items() if has.index and has.logs} == there.placed()
    there.lose()
    there.some_passes()

    inventories = [word for n in range(3) for word in bkmeta.collected(n)]
    first = bkmeta("recover", *inventories, *store, *expected, "--out", "plan-1", codes=(3, 4))
    assert (first["counts"]["guarded"] > 0, first["counts"]["held"]) == (True, 0)
    apply = ("apply", "plan-1", *store, "--confirm", first["hash"])
    assert "--accept-unseen 1" in bkmeta(*apply, codes=(5,))["verdict"]
    bkmeta(*apply, "--accept-unseen", "1")
    there.some_passes()
    assert less(before, there.kept()) == {}

    inventories += bkmeta.collected(3)
    second = bkmeta("recover", *inventories, *store, *expected, "--out", "plan-2")
    assert second["counts"]["released"] == second["counts"]["settled"] == first["counts"]["guarded"]
    applied = bkmeta("apply", "plan-2", *store, "--confirm", second["hash"])
    replaced = applied["counts"]["replace ledger"]
    # Some were read by what they truly were: their record is there, and only the lock goes.
    assert replaced["written"] + replaced["there"] == first["counts"]["guarded"]
    assert applied["counts"]["release lock"]["written"] == first["counts"]["guarded"]
    there.some_passes()
    assert less(before, there.kept()) == {}

    bkmeta.confirmed("thaw", *store, *inventories)
    control = there.collected()
    assert control > max(there.ledgers)
    assert less(before, there.kept()) == {}

    disabled = f"{ROOT}/underreplication/disable"
    there.store.write([Write(disabled, None, 0)])
    with auto_recovery(there.cluster.zookeeper, tmp_path):
        for done in ("checkallledgersctime", "placementpolicycheckctime"):
            key = f"{ROOT}/underreplication/{done}"
            until(lambda key=key: there.store.get(key) is not None, f"the auditor's cycle: {key}")  # type: ignore[misc]  # mypy cannot infer a default's type
        assert there.marks() == []
    there.restart()
    assert there.cluster("new_ledger") > control
    for ledger in there.ledgers:
        assert there.readable(ledger) == [100 + n for n in range(ENTRIES)]
    now = there.cluster.ledgers()
    for ledger, row in there.lost.items():
        assert placed(now[ledger]) == placed(row)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("there", [True], indirect=True, ids=["every entry on all"])
def test_a_bookie_that_nobody_looked_at_keeps_what_is_guarded(
    there: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """E = W, one bookie without an inventory: such ledgers are read by the bookies that were seen, and thaw refuses.

    Accepted, it costs the ledger that only the unseen bookie has, and nothing else: no bookie deletes of a ledger that
    is locked. With its inventory they are settled, and every entry is read.
    """
    bkmeta = Commands(there, tmp_path, capsys)
    unseen, alone = there.bookies[-1].id, there.ledgers[PLACED.index((3,))]
    bkmeta.confirmed("freeze", *bkmeta.store)
    before = there.kept()
    assert {place for place, has in before.items() if has.index and has.logs} == there.placed()
    there.lose()
    inventories = [word for n in range(3) for word in bkmeta.collected(n)]
    first = bkmeta("recover", *inventories, *bkmeta.store, *bkmeta.expected, "--out", "plan-1", codes=(3,))
    assert (first["reasons"], first["doubts"]) == ({}, {"source_incomplete": len(PLACED) - 1})
    bkmeta("apply", "plan-1", *bkmeta.store, "--confirm", first["hash"], "--accept-unseen", "1")
    there.some_passes()
    assert less(before, there.kept()) == {}

    thaw = ("thaw", *bkmeta.store, *inventories)
    refused = run(capsys, *thaw)
    assert refused.code == 5
    assert unseen in refused.err
    assert "--accept-unseen 1" in refused.err
    there.some_passes()
    assert less(before, there.kept()) == {}

    bkmeta.confirmed(*thaw, "--accept-unseen", "1")
    records = there.cluster.ledgers()
    named = {(name, ledger) for ledger in records for name in records[ledger]["segments"][0][1]}
    assert named == {place for place in there.placed() if place[0] != unseen}
    there.collected()
    assert less(before, there.kept()).keys() == {(unseen, alone)}
    inventories += bkmeta.collected(3)
    second = bkmeta("recover", *inventories, *bkmeta.store, *bkmeta.expected, "--out", "plan-2", codes=(0, 3))
    assert second["counts"]["released"] == second["counts"]["settled"] == len(PLACED) - 1
    bkmeta("apply", "plan-2", *bkmeta.store, "--confirm", second["hash"], "--accept-unfrozen")
    there.collected()
    assert less(before, there.kept()).keys() == {(unseen, alone)}
    there.restart()
    for ledger in set(there.ledgers) - {alone}:
        assert there.readable(ledger) == [100 + n for n in range(ENTRIES)]
