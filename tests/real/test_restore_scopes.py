"""Ledgers of scopes from disks into a real ZooKeeper and a real etcd, and read back through what was written."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest

from backends.registry import open_store
from recovery.codecs import ledger_metadata, store
from recovery.codecs.store import Layout
from recovery.dataset import open_dataset
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest, LedgerState
from tests.recovery.collect.test_index_database import write_database
from tests.simulation.bookie_dir_scoped import Held, Storage, make_scoped_bookie
from tests.support.command import run
from tests.support.etcd_server import EtcdServer
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.real, pytest.mark.spark]

_ROOTS = itertools.count()
BOOKIES: tuple[tuple[str, Storage], ...] = (
    ("10.0.0.1:3181", "interleaved"),
    ("10.0.0.2:3181", "db"),
    ("10.0.0.3:3181", "interleaved"),
    ("10.0.0.4:3181", "db"),
)
E, W = 3, 2
LAST = 11
KINDS = ((Digest.CRC32C, b""), (Digest.CRC32, b""), (Digest.HMAC, b"secret"), (Digest.HMAC, b""))
PLAIN = [LedgerId(0, number) for number in range(4)]
SCOPED = [LedgerId(scope, 100 + number) for scope, number in ((7, 0), (7, 1), (8, 2), (-1, 3), (1 << 40, 4), (7, 5))]
NEGATIVE = LedgerId(-3, -1)
COLLIDING = [LedgerId(0, 50), LedgerId(9, 50)]
EVERY = [*PLAIN, *SCOPED, NEGATIVE, *COLLIDING]


def ensemble(ledger: LedgerId) -> list[int]:
    """The bookies of a ledger."""
    first = EVERY.index(ledger) % len(BOOKIES)
    return [(first + position) % len(BOOKIES) for position in range(E)]


def held_by(bookie: int) -> list[Held]:
    """What a bookie has: its share of every ledger; of some the last entries are only in the journal."""
    found = []
    for at, ledger in enumerate(EVERY):
        members = ensemble(ledger)
        digest, password = KINDS[at % len(KINDS)]
        mine = [e for e in range(LAST + 1) for copy in range(W) if members[(e + copy) % E] == bookie]
        if not mine:
            continue
        ahead = [entry for entry in mine if entry >= LAST - 2] if at % 2 else []
        indexed = [entry for entry in mine if entry not in ahead]
        found.append(Held(ledger, indexed, ahead, (), digest, password, fenced=True, lac=LAST))
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The disks of all bookies."""
    root = tmp_path_factory.mktemp("cluster")
    for number, (bookie, storage) in enumerate(BOOKIES):
        folder = root / f"b{number}"
        make_scoped_bookie(folder, held_by(number), storage, put=write_database, folders=2, dirty=True, bookie=bookie)
    return root


def disks(cluster: Path, left_out: Sequence[int] = ()) -> list[str]:
    """The disks as `verify` is told of them."""
    named = enumerate(BOOKIES)
    return [w for n, (bookie, _) in named if n not in left_out for w in ("--disk", f"{bookie}={cluster / f'b{n}'}")]


@pytest.fixture(params=["zookeeper", "etcd"])
def uri(request: pytest.FixtureRequest, zookeeper_server: ZooKeeperServer, etcd_server: EtcdServer) -> str:
    """A root that is not there yet."""
    name = f"scopes-{next(_ROOTS)}"
    if request.param == "etcd":
        return f"etcd://{etcd_server.hosts}/{name}"
    return f"zk+longlonghierarchical://{zookeeper_server.hosts}/{name}/ledgers"


@pytest.mark.timeout(900)
def test_ledgers_of_scopes_come_back(
    cluster: Path, uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every ledger restored with its own digest and length, but the two that share a lower half: these are held."""
    inventories: list[str] = []
    for number, (bookie, _) in enumerate(BOOKIES):
        out = tmp_path / f"b{number}"
        parts = [cluster / f"b{number}" / name for name in ("ledgers0", "ledgers1", "journal0")]
        folders = ["--ledger-dir", parts[0], "--ledger-dir", parts[1], "--journal-dir", parts[2]]
        done = run(capsys, "collect", *folders, "--out", out, "--json")
        assert (done.code, done.result["counts"]["ledgers"]) == (0, len(held_by(number))), (bookie, done.out)
        inventories += ["--inventory", str(out)]
    passwords = tmp_path / "passwords"
    passwords.touch(0o600)
    passwords.write_text("secret\n")
    plan = tmp_path / "plan"
    given = ["--metadata", uri, "--passwords", passwords, "--default-quorum", f"{E}/{W}/{W}"]
    made = run(capsys, "recover", *inventories, *given, "--out", plan, "--json")
    assert made.code == 3, made.out + made.err
    rehearsal = uri.replace("/scopes-", "/rehearsed-")
    assert run(capsys, "rehearse", plan, "--metadata", rehearsal, *disks(cluster)).code == 0
    digest = open_dataset(plan, "plan").manifest["hash"]
    applied = run(capsys, "apply", plan, "--metadata", uri, "--confirm", digest, "--accept-unfrozen", "--json")
    assert applied.code in (0, 3), applied.out + applied.err
    seen = run(capsys, "verify", plan, "--metadata", uri, "--sample", "all", *disks(cluster), "--json")
    assert seen.code == 0, seen.out
    counts = seen.result["counts"]
    restored = len(EVERY) - len(COLLIDING)
    assert counts["ledgers"]["readable"] == restored
    assert counts["entries"] == {"looked_at": restored * (LAST + 1), "readable": restored * (LAST + 1)}
    assert counts["copies"]["good"] == counts["copies"]["promised"] == restored * (LAST + 1) * W
    layout = Layout.ETCD if uri.startswith("etcd") else Layout.LONGLONGHIERARCHICAL
    with open_store(uri) as opened:
        for at, ledger in enumerate(EVERY):
            value = opened.store.get(opened.root + store.ledger_key(layout, ledger))
            assert value is not None, ledger
            record = ledger_metadata.decode(value.value)
            if ledger in COLLIDING:
                assert record.state is LedgerState.IN_RECOVERY
                continue
            assert (record.state, record.last_entry) == (LedgerState.CLOSED, LAST)
            assert (record.length, record.digest) == (Held(ledger).length(LAST), KINDS[at % len(KINDS)][0])
            assert [list(s.members) for s in record.segments] == [[BOOKIES[n][0] for n in ensemble(ledger)]]
    told = run(capsys, "explain", "7:100", *inventories, "--plan", plan)
    assert told.code == 0, told.out + told.err
    assert "7:100" in told.out
    less = run(capsys, "verify", plan, "--metadata", uri, "--sample", "all", *disks(cluster, [0, 1]), "--json")
    assert less.code == 4
    assert "not looked up" not in less.out
