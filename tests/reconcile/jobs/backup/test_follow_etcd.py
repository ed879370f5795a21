"""A real etcd is followed, lost, and restored from the backup; followers take over from each other."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

import pytest

from backends.protocols import ScannableStore
from reconcile.cli.output import Output
from reconcile.jobs.backup.follow import FollowRequest, FollowStatus, follow_store
from reconcile.jobs.backup.prune import prune_backup
from reconcile.jobs.backup.status import read_status
from reconcile.jobs.backup.verify import verify_backup
from reconcile.jobs.context import Context
from reconcile.stores import NOBODY, open_store
from recovery.backup.chain import open_backup
from recovery.capture.subtrees import SubtreeChoice
from recovery.codecs.store import Layout, ledger_key, places
from recovery.errors import InputError
from recovery.model.ids import LedgerId
from tests.support.command import run
from tests.support.etcd_server import EtcdServer
from tests.support.waiting import until

pytestmark = pytest.mark.real

CONTEXT = Context(NOBODY, Output(as_json=True, progress="none"), lambda: datetime.now(UTC))
SOON = timedelta(milliseconds=200)
SELDOM = timedelta(days=30)


@dataclass
class Cluster:
    """A root of BookKeeper's in an etcd, and who writes there."""

    server: EtcdServer
    root: str
    chance: random.Random = field(default_factory=lambda: random.Random(1))

    @property
    def uri(self) -> str:
        """Of the store."""
        return f"etcd://{self.server.hosts}{self.root}"

    def begin(self) -> None:
        """Make the root, its layout and a bookie's registration."""
        self.server.put(self.root)
        self.server.put(self.root + places(Layout.ETCD).layout, b"org.apache.bookkeeper.metadata.etcd\n1")

    def key(self, number: int) -> str:
        """Of a ledger."""
        return self.root + ledger_key(Layout.ETCD, LedgerId(0, number))

    def write(self, count: int) -> int:
        """Change so many ledgers; return the last revision."""
        revision = 0
        for _ in range(count):
            key = self.key(self.chance.randrange(60))
            if self.chance.random() < 0.2:
                revision = self.server.delete(key)
            else:
                revision = self.server.put(key, self.chance.randbytes(200))
        return revision


@pytest.fixture
def cluster(etcd_server: EtcdServer, tmp_path: Path) -> Cluster:
    """Return a root of its own."""
    etcd_server.wipe()
    made = Cluster(etcd_server, f"/{tmp_path.name}")
    made.begin()
    return made


@dataclass
class Following:
    """A follower in a thread."""

    place: Path
    status: FollowStatus = field(default_factory=FollowStatus)
    errors: list[Exception] = field(default_factory=list)

    def await_through(self, revision: int) -> None:
        """Wait until all up to a revision is sealed."""
        until(
            lambda: bool(self.errors) or open_backup(self.place).manifest.through >= revision, f"{revision} is sealed"
        )
        assert not self.errors


class HasUri(Protocol):
    """What can be followed."""

    @property
    def uri(self) -> str:
        """Of the store."""


@contextmanager
def following(
    cluster: HasUri, place: Path, base_every: timedelta = SELDOM, subtrees: tuple[str, ...] = ()
) -> Iterator[Following]:
    """Follow a cluster."""
    made, ended = Following(place), threading.Event()
    request = FollowRequest(
        cluster.uri, place, subtrees=SubtreeChoice(subtrees), seal_after=SOON, base_every=base_every
    )

    def follow() -> None:
        try:
            made.status = follow_store(request, CONTEXT, ended, lambda _status: None)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            made.errors.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        until(lambda: bool(made.errors) or bool(_bases(place)), "a base")
        yield made
    finally:
        ended.set()
        thread.join()


def _bases(place: Path) -> int:
    return len(open_backup(place).manifest.bases) if (place / "head.json").exists() else 0


def show(place: Path, root: str, at: object = "") -> dict[str, bytes]:
    """Return the keys of a backup below a root, and their values."""
    with open_store(f"backup:{place}" + (f"?at={at}" if at else "")) as opened:
        assert isinstance(opened.store, ScannableStore)
        rows = [row for batch in opened.store.scan(root) for row in batch.to_pylist()]
    return {row["key"]: row["value"] for row in rows if row["key"] != root}


def test_a_lost_store_is_shown_as_it_was_at_each_moment(cluster: Cluster, tmp_path: Path) -> None:
    """Bases are made meanwhile; the head, and each moment between, are the store's, byte for byte."""
    place, moments = tmp_path / "b", {}
    revision = cluster.write(30)
    with following(cluster, place, timedelta(milliseconds=1)) as follower:
        for _ in range(6):
            revision = cluster.write(20)
            moments[revision] = cluster.server.dump(cluster.root + "/")
        follower.await_through(revision)
    assert not follower.errors
    cluster.server.delete(cluster.root, below=True)
    first = read_status(place, 0).windows[0].first
    assert show(place, cluster.root) == moments[revision]
    for moment, states in moments.items():
        if moment >= first:
            assert show(place, cluster.root, moment) == states
    verified = verify_backup(place, str(revision), CONTEXT)
    assert verified.problems == []
    assert verified.rebuilt >= 1
    assert verified.at_keys is not None


def test_a_second_follower_goes_on_with_the_chain(cluster: Cluster, tmp_path: Path) -> None:
    """What happened between the two is in it, once; there is no gap, and no second base."""
    place = tmp_path / "b"
    with following(cluster, place):
        cluster.write(20)
    cluster.write(20)
    with following(cluster, place) as second:
        second.await_through(cluster.write(20))
    backup = open_backup(place)
    assert (len(backup.manifest.bases), backup.manifest.gaps) == (1, [])
    txns = [txn for rows in backup.read_changes(backup.manifest.segments) for txn in rows["txn"].to_pylist()]
    assert txns == sorted(set(txns))
    assert show(place, cluster.root) == cluster.server.dump(cluster.root + "/")
    assert verify_backup(place, None, CONTEXT).problems == []


def test_what_is_compacted_while_nobody_follows_is_a_gap(cluster: Cluster, tmp_path: Path) -> None:
    """With both ends, and a new base; what was before it can still be shown."""
    place = tmp_path / "b"
    with following(cluster, place) as follower:
        revision = cluster.write(20)
        follower.await_through(revision)
    before = cluster.server.dump(cluster.root + "/")
    end = open_backup(place).manifest.through
    cluster.server.compact(cluster.write(20))
    with following(cluster, place) as follower:
        follower.await_through(cluster.write(5))
    assert follower.status.gaps == 1
    [gap] = read_status(place, 0).gaps
    assert gap.after == end
    assert gap.until > revision
    assert "compacted" in gap.why
    assert show(place, cluster.root, revision) == before
    assert show(place, cluster.root) == cluster.server.dump(cluster.root + "/")
    with pytest.raises(InputError, match="gap"):
        show(place, cluster.root, gap.until - 1)
    assert verify_backup(place, None, CONTEXT).problems == []


def test_what_was_altered_is_named(cluster: Cluster, tmp_path: Path) -> None:
    """A byte of a segment, of a base, or a file that is gone."""
    place = tmp_path / "b"
    with following(cluster, place) as follower:
        follower.await_through(cluster.write(20))
    segment = place / open_backup(place).manifest.segments[0].part.file
    whole = segment.read_bytes()
    segment.write_bytes(whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])
    [problem, *_] = verify_backup(place, None, CONTEXT).problems
    assert f"{segment}: is not the file" in problem
    segment.write_bytes(whole)
    assert verify_backup(place, None, CONTEXT).problems == []
    [base] = open_backup(place).manifest.bases
    part = next((place / base.folder / "ledgers").iterdir())
    part.unlink()
    assert any("missing" in problem for problem in verify_backup(place, None, CONTEXT).problems)


def test_a_pruned_backup_begins_later_and_verifies(cluster: Cluster, tmp_path: Path) -> None:
    """With --keep of nothing only the last base, and what is behind it, stay."""
    place = tmp_path / "b"
    with following(cluster, place, timedelta(milliseconds=1)) as follower:
        until(lambda: cluster.write(3) > 0 and _bases(place) >= 3, "three bases")
        follower.await_through(cluster.write(3))
    states = show(place, cluster.root)
    pruned = prune_backup(place, timedelta(0), 1, CONTEXT)
    assert pruned.links > 0
    assert _bases(place) < 3
    assert show(place, cluster.root) == states
    assert verify_backup(place, None, CONTEXT).problems == []


def test_a_policy_is_in_a_backup(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a cluster asks for before deletes is shown of its backup as of the store."""
    set_policy = ("delete", "policy", "set", "--metadata", cluster.uri, "--journal", tmp_path / "journal", "--json")
    show = ("delete", "policy", "show", "--json", "--metadata")
    done = run(capsys, *set_policy, "--archived", "required", "--least-soak", "3d")
    assert done.code == 0, done
    place = tmp_path / "backup"
    with following(cluster, place) as follower:
        assert run(capsys, *set_policy, "--least-soak", "4d").code == 0
        follower.await_through(cluster.write(1))
    live, kept = (run(capsys, *show, uri).result["policy"] for uri in (cluster.uri, f"backup:{place}"))
    assert kept == live
    assert (kept["archived"], kept["soak_ms"]) == (True, str(4 * 86_400_000))
