"""The same histories of deletes on a real ZooKeeper and a real etcd; and a purge that is killed again and again."""

import itertools
import json
import os
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from backends.registry import open_store
from recovery.codecs.store import Layout, ledger_key
from recovery.model.ids import LedgerId
from tests.support.command import PROGRAM, environment, run
from tests.support.delete_schedules import World
from tests.support.deletes import Ledger, fill_zookeeper, name_looks, write_looks, write_references
from tests.support.etcd_server import EtcdServer
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.real

SCHEDULES: Final = min(int(os.environ.get("BKMETA_SOAK_DELETES", "8")), 100)
SEED: Final = int(os.environ.get("BKMETA_SOAK_SEED", "80"))
LEDGERS: Final = tuple(Ledger(LedgerId(0, number)) for number in range(60))
_roots = itertools.count()


@pytest.mark.timeout(36000)
@pytest.mark.parametrize("kind", ["zookeeper", "etcd"])
def test_random_schedules_of_deletes_on_servers(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Every promise holds with the versions and the transactions of a real store."""
    counts: Counter[str] = Counter()
    for seed in range(SEED, SEED + SCHEDULES):
        root = f"/schedules-{next(_roots)}/ledgers"
        if kind == "etcd":
            etcd: EtcdServer = request.getfixturevalue("etcd_server")
            uri, layout = f"etcd://{etcd.hosts}{root}", Layout.ETCD
        else:
            zookeeper: ZooKeeperServer = request.getfixturevalue("zookeeper_server")
            uri, layout = f"zk+hierarchical://{zookeeper.hosts}{root}", Layout.HIERARCHICAL
        with open_store(uri, writable=True) as opened:
            world = World(opened.store, root, tmp_path / str(seed), seed, layout)
            try:
                world.run(30)
            except BaseException as error:
                error.add_note(f"schedule {seed}")
                raise
            counts += world.counts
    assert counts["purged"]
    assert counts["held"]


def test_a_purge_that_is_killed_again_and_again(
    zookeeper_server: ZooKeeperServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`kill -9` wherever it is: no record goes without its tombstone, and the same command goes on to the end."""
    monkeypatch.chdir(tmp_path)
    root = "/killed-purge/ledgers"
    uri = fill_zookeeper(zookeeper_server, root, LEDGERS)
    looks = name_looks(write_looks(tmp_path / "looks", LEDGERS))
    numbers = [str(number) for number in range(40)]
    assert run(capsys, "delete", "request", *numbers, "--metadata", uri, "--soak", "0s").code == 0
    for _ in range(2):
        words = ("--references", write_references(tmp_path / "refs.jsonl", []), "--min-age", "0s", "--confirm", "40")
        line = ("delete", "verify", "--due", *looks, *words, "--metadata", uri, "--certificate", "c.json")
        assert run(capsys, *line).code == 0
    digest = json.loads(Path("c.json").read_text())["hash"]
    purge = ["delete", "purge", "--metadata", uri, "--certificate", "c.json", "--confirm", digest, "--batch", "1"]
    journal = next(Path.cwd().glob("bkmeta-deletes-*")) / "journal.jsonl"
    kills = 0
    for _ in range(4):
        size = journal.stat().st_size
        process = subprocess.Popen([PROGRAM, *purge], env=environment(), stdout=subprocess.DEVNULL)
        while process.poll() is None and journal.stat().st_size < size + 6000:
            pass
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
        states = {
            row["ledger"]: row["state"]
            for row in run(capsys, "tombstones", "list", "--metadata", uri, "--json").result["ledgers"]
        }
        with open_store(uri) as opened:
            for number in numbers:
                held = opened.store.get(root + ledger_key(Layout.HIERARCHICAL, LedgerId(0, int(number))))
                assert (held is None) == (states[number] == "PURGED"), number
    assert kills
    assert run(capsys, *purge).code == 0
    with open_store(uri) as opened:
        left = [
            ledger.id.ledger
            for ledger in LEDGERS
            if opened.store.get(root + ledger_key(Layout.HIERARCHICAL, ledger.id)) is not None
        ]
    assert left == list(range(40, 60))
    assert run(capsys, "audit", "verify", journal.parent).code == 0
