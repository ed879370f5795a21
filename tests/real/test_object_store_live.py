"""A living cluster whose datasets all stand in an object store: every command that writes or reads one, run once."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from recovery.dataset import open_dataset
from tests.support.cluster import Cluster, History
from tests.support.command import Done, run
from tests.support.object_store import SECRET, ObjectStore, started_store

pytestmark = [
    pytest.mark.real,
    pytest.mark.spark,
    pytest.mark.timeout(1800),
    pytest.mark.skipif("BKMETA_SOAK_STORES" not in os.environ, reason="twelve commands, minutes: scripts/soak stores"),
]

BOOKIES = 4
PASSWORD = b"a-ledger's-password"


@dataclass(frozen=True)
class Living:
    """The cluster, and where its datasets go."""

    home: Path
    uri: str
    ledgers: tuple[int, ...]
    store: ObjectStore


@pytest.fixture(scope="module")
def living(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Living]:
    """Six closed ledgers on four bookies."""
    folder = tmp_path_factory.mktemp("living")
    with started_store() as store, Cluster(folder / "cluster") as cluster:
        history = History(cluster)
        for n in range(BOOKIES):
            history.bookie(n, "sorted")
        ledgers = []
        for _ in range(6):
            ledgers.append(history.create((3, 2, 2), digest="CRC32C", password=PASSWORD))
            history.add(ledgers[-1], [100] * 10)
            history.close(ledgers[-1])
        uri = f"zk+hierarchical://{cluster.zookeeper}/ledgers"
        yield Living(folder / "cluster" / "bookies", uri, tuple(ledgers), store)


def test_every_command_with_its_datasets_in_a_store(
    living: Living, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each ends as it does with folders, what it wrote is whole, and the store's secret stands nowhere."""
    for name, value in living.store.environment().items():
        monkeypatch.setenv(name, value)
    top, metadata, master = living.store.uri, ("--metadata", living.uri), ("--master", "local[1]")
    passwords = tmp_path / "passwords"
    passwords.write_bytes(PASSWORD + b"\n")
    passwords.chmod(0o600)
    references = tmp_path / "references.jsonl"
    references.write_text("".join(json.dumps({"ledger": ledger, "what": "t"}) + "\n" for ledger in living.ledgers))

    def ends(code: int, *words: object) -> Done:
        done = run(capsys, *words)
        assert done.code == code, (words, done)
        assert SECRET not in done.out + done.err
        return done

    ends(0, "capture", *metadata, "--out", f"{top}/capture")
    for n in range(BOOKIES):
        disks = ("--ledger-dir", living.home / f"b{n}/ledgers0", "--journal-dir", living.home / f"b{n}/journal0")
        ends(0, "collect", *disks, "--passwords", passwords, "--out", f"{top}/inv/b{n}")
    inventories = ("--inventory-dir", f"{top}/inv")
    ends(0, "collect", "--wire", *metadata, "--out", f"{top}/wire", *master)
    look = ("scrutinize", *metadata, "--recheck-after", "1s", *master)
    ends(0, *look, "--wire", "--out", f"{top}/look-1")
    assert "0 new" in ends(0, *look, "--wire", "--since", f"{top}/look-1", "--out", f"{top}/look-2").out
    ends(0, "orphans", *metadata, "--references", references, *inventories, "--out", f"{top}/orphans-1")
    again = ("--since", f"{top}/orphans-1", "--earlier", f"{top}/capture")
    ends(0, "orphans", *metadata, "--references", references, *again, "--out", f"{top}/orphans-2")
    taken = ("--bookies", "10.0.0.1:3181")
    ends(0, "check-impact", *metadata, *taken, *inventories, "--out", f"{top}/impact-1")
    ends(0, "check-impact", "--metadata", f"{top}/capture", *taken, "--out", f"{top}/impact-2")
    each = [word for n in range(BOOKIES) for word in ("--inventory", f"{top}/inv/b{n}")]
    ends(0, "preflight", *metadata, *each)
    lost = (*inventories, "--snapshot", f"{top}/capture", "--passwords", passwords, *master)
    ends(0, "drill", *metadata, *lost, "--out", f"{top}/drill")
    ends(0, "recover", "--layout", "hierarchical", *lost, "--out", f"{top}/plan-1")
    ends(0, "plan", "edit", f"{top}/plan-1", "--drop", living.ledgers[0], "--out", f"{top}/plan-2")
    ends(3, "plan", "diff", f"{top}/plan-1", f"{top}/plan-2")
    ends(0, "plan", "ledgers", f"{top}/plan-2")
    ends(0, "plan", "edit", f"{top}/plan-1", "--acl-of", f"{top}/capture", "--out", f"{top}/plan-3")
    ends(0, "scrutinize", "--metadata", f"{top}/capture", "--against", f"{top}/capture", "--out", f"{top}/against")
    none_there = ends(2, "recover", *lost, "--layout", "hierarchical", "--tombstones", f"{top}/capture", "--out", "new")
    assert f"{top}/capture" in none_there.err

    for kind, folder in (("catalog", "capture"), ("inventory", "inv/b0"), ("plan", "plan-1"), ("plan", "plan-2")):
        assert open_dataset(f"{top}/{folder}", kind).path
    keys = living.store.list_keys()
    assert {key.split("/")[0] for key in keys} >= {"look-1", "orphans-2", "impact-1", "impact-2", "drill", "wire"}
    assert not [key for key in keys if "unfinished" in key or SECRET.encode() in living.store.read(key)]
