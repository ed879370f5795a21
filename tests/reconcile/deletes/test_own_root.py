"""Our own root: made once with the rights that fit, refused where it is not ours, beside one ledgers root only."""

import base64
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backends.errors import VersionConflictError
from backends.protocols import Versioned, Write
from reconcile.deletes.own_root import (
    make_own_root,
    name_own_root,
    open_log,
    open_own_root,
    read_instance_id,
    read_last_listing,
    read_tombstones,
    require_clock,
    write_last_listing,
)
from reconcile.deletes.packed import PackedDecision
from reconcile.deletes.records import ClockCheck, LastListing, RootMark
from reconcile.deletes.tombstones import StoredRecord, request_delete
from reconcile.errors import GuardRefusedError, JournalError
from reconcile.write.audit_journal import JOURNAL
from recovery.codecs.store_kind import ETCD, ZOOKEEPER
from recovery.model.ids import LedgerId
from tests.support.memory_store import WORLD, MemoryStore
from tests.support.restores import Recorder

ROOT = "/ledgers"
OWN = "/ledgers-bkmeta"
RIGHTS = "digest:own:abc=:cdrwa"
OTHERS_RIGHTS = "digest:other:abc=:cdrwa"


def clock() -> datetime:
    """Return some time."""
    return datetime(2026, 1, 1, tzinfo=UTC)


def make_store(rights: str | None = RIGHTS) -> MemoryStore:
    """Return a store with a ledgers root."""
    store = MemoryStore()
    store.write([Write(ROOT, b"", None, rights)])
    return store


def list_rights(store: MemoryStore) -> set[str]:
    """Return all rights that nodes of our own root have."""
    keys = [key for key in store.dump() if key.startswith(OWN)]
    assert len(keys) == 5
    return {acl.text for _, acl in store.get_acls(keys) if acl is not None}


@pytest.mark.parametrize(("root", "own"), [("/ledgers", OWN), ("/ledgers/", OWN), ("/a/b", "/a/b-bkmeta")])
def test_it_stands_beside_the_ledgers_root(root: str, own: str) -> None:
    """Never in it: BookKeeper's own tools remove what is in it."""
    assert name_own_root(root) == own


def test_nothing_stands_beside_the_whole_store() -> None:
    """A ledgers root that is the store's root has no neighbour."""
    with pytest.raises(GuardRefusedError, match="the ledgers root /: is the whole store"):
        name_own_root("/")


def test_there_is_none_until_it_is_made() -> None:
    """Looking makes nothing."""
    store = make_store()
    assert open_own_root(store, ROOT) is None
    assert list(store.dump()) == [ROOT]


@pytest.mark.parametrize(("given", "rights"), [(None, RIGHTS), (OTHERS_RIGHTS, OTHERS_RIGHTS)])
def test_it_has_the_rights_of_the_ledgers_root_or_those_that_are_named(
    tmp_path: Path, given: str | None, rights: str
) -> None:
    """Every node, those that are made later, too: records may hold passwords."""
    store = make_store()
    with open_log(tmp_path, store, ROOT, clock) as log:
        made = make_own_root(store, ROOT, log, given)
        assert (made.key, made.acl) == (OWN, rights)
        assert list_rights(store) == {rights}
        write_last_listing(store, made, LastListing(1, 2, "op"), log)
    node = store.get(f"{OWN}/listed")
    assert node is not None
    assert node.acl == rights
    opened = open_own_root(store, ROOT)
    assert opened is not None
    assert opened.acl == rights
    other = open_own_root(store, ROOT, "world:anyone:r")
    assert other is not None
    assert other.acl == "world:anyone:r"


@pytest.mark.parametrize("rights", ["digest:own:x:cdrwa", "digest:other:abc=:r,digest:own:x:cdrwa"])
def test_rights_that_the_store_masks_are_asked_for(tmp_path: Path, rights: str) -> None:
    """A digest that is shown as x, even one of several, would shut somebody out; named ones do not."""
    store = make_store(rights)
    with open_log(tmp_path, store, ROOT, clock) as log:
        with pytest.raises(GuardRefusedError, match="has rights that the store does not show whole"):
            make_own_root(store, ROOT, log)
        assert list(store.dump()) == [ROOT]
        make_own_root(store, ROOT, log, RIGHTS)
    assert list_rights(store) == {RIGHTS}


@pytest.mark.parametrize("rights", ["world:anyone:cdrwa", "auth:x:cdrwa", "sasl:own:x:cdrwa", "digest:own:ax:r"])
def test_rights_that_only_look_like_masked_ones_are_taken(tmp_path: Path, rights: str) -> None:
    """Only the digest of a password is ever masked."""
    store = make_store(rights)
    with open_log(tmp_path, store, ROOT, clock) as log:
        assert make_own_root(store, ROOT, log).acl == rights


def test_a_store_without_rights_gives_none(tmp_path: Path) -> None:
    """As etcd: nobody asks the ledgers root for its rights there."""
    store = Recorder(MemoryStore())
    with open_log(tmp_path, store, ROOT, clock) as log:
        assert make_own_root(store, ROOT, log).acl is None


def test_without_a_ledgers_root_nothing_is_made(tmp_path: Path) -> None:
    """A root that was mistyped gets no neighbour."""
    store = MemoryStore()
    with (
        open_log(tmp_path, store, ROOT, clock) as log,
        pytest.raises(GuardRefusedError, match="/ledgers: does not exist"),
    ):
        make_own_root(store, ROOT, log)
    assert store.dump() == {}


def test_it_is_made_once(tmp_path: Path) -> None:
    """Who comes second takes what is there."""
    store = make_store()
    with open_log(tmp_path, store, ROOT, clock) as log:
        make_own_root(store, ROOT, log)
        stood = store.latest_txn()
        make_own_root(store, ROOT, log)
    assert store.latest_txn() == stood


def test_it_says_whose_it_is(tmp_path: Path) -> None:
    """The ledgers root and the cluster's id stand in it; records are below it."""
    store = make_store()
    store.write([Write(ROOT + ZOOKEEPER.places.instance_id, b"one")])
    with open_log(tmp_path, store, ROOT, clock) as log:
        own = make_own_root(store, f"{ROOT}/", log)
        assert own.mark == RootMark(ROOT, "one")
        ledger = LedgerId(0, 1)
        asked = request_delete(ledger, StoredRecord(b"r", 0), [], 1, "op")
        own.tombstones.change([ledger], lambda *_: PackedDecision(asked), log, rows=1)
    assert list(read_tombstones(store, OWN).read_all()) == [[asked]]
    opened = open_own_root(store, f"{ROOT}/")
    assert opened is not None
    assert opened.mark == RootMark(ROOT, "one")


@pytest.mark.parametrize("node", [ZOOKEEPER.places.instance_id, ETCD.places.instance_id])
def test_the_clusters_id_stands_where_its_store_keeps_it(node: str) -> None:
    """In ZooKeeper and etcd; a cluster that has none has an empty one, and one that cannot be read is none."""
    store = make_store()
    assert read_instance_id(store, ROOT) == ""
    store.write([Write(ROOT + node, b"\xff")])
    assert read_instance_id(store, ROOT) == ""
    store.write([Write(ROOT + node, b"two", 0)])
    assert read_instance_id(store, f"{ROOT}/") == "two"


@pytest.mark.parametrize(
    ("mark", "problem"),
    [
        (b"somebody's", "was not made by this program"),
        (RootMark("/other", "").encode(), "is of ledgers root /other"),
        (RootMark(ROOT, "one").encode(), "is of cluster one, and the store has two"),
    ],
)
def test_what_is_not_ours_is_refused(tmp_path: Path, mark: bytes, problem: str) -> None:
    """Nothing is written there, and who may remove it is told so."""
    store = make_store()
    store.write([Write(ROOT + ZOOKEEPER.places.instance_id, b"two"), Write(OWN, mark)])
    stood = store.latest_txn()
    with pytest.raises(GuardRefusedError, match=problem) as refused:
        open_own_root(store, ROOT)
    assert f"remove or rename {OWN}" in str(refused.value.remedy)
    with open_log(tmp_path, store, ROOT, clock) as log, pytest.raises(GuardRefusedError, match=problem):
        make_own_root(store, ROOT, log)
    assert store.latest_txn() == stood


@pytest.mark.parametrize(("marked", "has"), [("", "two"), ("two", ""), ("", ""), ("two", "two")])
def test_a_cluster_without_an_id_is_known_by_its_root(marked: str, has: str) -> None:
    """An id that only one side knows is no contradiction."""
    store = make_store()
    store.write([Write(OWN, RootMark(ROOT, marked).encode())])
    if has:
        store.write([Write(ROOT + ZOOKEEPER.places.instance_id, has.encode())])
    assert open_own_root(store, ROOT) is not None


class Raced(MemoryStore):
    """A store in which somebody else does something right before the next write."""

    rival: Callable[[], object] | None = None

    def write(self, changes: Sequence[Write]) -> list[int]:
        """Let the rival in first."""
        rival, self.rival = self.rival, None
        if rival is not None:
            rival()
        return super().write(changes)


def test_who_makes_it_at_the_same_time_gives_it_to_both(tmp_path: Path) -> None:
    """The slower one takes what the faster one made."""
    store = Raced()
    store.write([Write(ROOT, b"")])

    def make_too() -> None:
        with open_log(tmp_path / "rival", store, ROOT, clock) as log:
            make_own_root(store, ROOT, log)

    store.rival = make_too
    with open_log(tmp_path / "own", store, ROOT, clock) as log:
        own = make_own_root(store, ROOT, log)
    assert (own.key, own.acl) == (OWN, WORLD)
    assert list(own.tombstones.read_all()) == [[]]


class Refusing(MemoryStore):
    """A store that takes no transaction of ours, as if somebody made and removed its key each time."""

    def write(self, changes: Sequence[Write]) -> list[int]:
        """Refuse all below our own root."""
        if any(change.key.startswith(OWN) for change in changes):
            raise VersionConflictError(OWN, "it exists")
        return super().write(changes)


def test_one_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    """Neither ours nor a rival's stands there: the command is to be run again."""
    store = Refusing()
    store.write([Write(ROOT, b"")])
    with (
        open_log(tmp_path, store, ROOT, clock) as log,
        pytest.raises(GuardRefusedError, match="could not be made"),
    ):
        make_own_root(store, ROOT, log)


def test_the_last_listing_is_the_one_that_was_written_last(tmp_path: Path) -> None:
    """First there is none; of two at once the faster one stands, and neither is lost half."""
    store = Raced()
    store.write([Write(ROOT, b"")])
    with open_log(tmp_path / "own", store, ROOT, clock) as log:
        own = make_own_root(store, ROOT, log)
        assert read_last_listing(store, own) is None
        for number in (1, 2):
            listing = LastListing(number, 40 + number, "op")
            write_last_listing(store, own, listing, log)
            assert read_last_listing(store, own) == listing

        def write_too() -> None:
            with open_log(tmp_path / "rival", store, ROOT, clock) as rivals:
                write_last_listing(store, own, LastListing(3, 43, "rival"), rivals)

        store.rival = write_too
        write_last_listing(store, own, LastListing(4, 44, "op"), log)
        assert read_last_listing(store, own) == LastListing(3, 43, "rival")


class Timeless(MemoryStore):
    """A store that keeps no times of keys, as etcd."""

    def get(self, key: str) -> Versioned | None:
        """Return what stands at a key."""
        stored = super().get(key)
        return None if stored is None else replace(stored, changed_ms=None)


def test_a_clock_that_is_not_the_stores_is_refused(tmp_path: Path) -> None:
    """Five minutes are nothing, nor is what it takes to write; what another one wrote meanwhile tells the time, too."""
    store = Raced(lambda: 1_000_000)
    store.write([Write(ROOT, b"")])

    def read(*times_ms: int) -> Callable[[], datetime]:
        times = iter(times_ms)
        return lambda: datetime.fromtimestamp(next(times) / 1000, UTC)

    with open_log(tmp_path / "own", store, ROOT, clock) as log:
        own = make_own_root(store, ROOT, log)
        for began_ms, ended_ms in ((700_000, 700_000), (1_300_000, 1_300_000), (1, 700_000)):
            require_clock(store, own, read(began_ms, ended_ms), "op", log)
        with pytest.raises(GuardRefusedError, match="is 300 seconds ahead of the store's"):
            require_clock(store, own, read(1_300_001, 1_300_001), "op", log)
        with pytest.raises(GuardRefusedError, match="is 300 seconds behind the store's"):
            require_clock(store, own, read(699_999, 699_999), "op", log)

        def write_too() -> None:
            with open_log(tmp_path / "rival", store, ROOT, clock) as rivals:
                require_clock(store, own, read(1_000_000, 1_000_000), "rival", rivals)

        store.rival = write_too
        with pytest.raises(GuardRefusedError, match="is 301 seconds behind the store's"):
            require_clock(store, own, read(699_000, 699_000), "op", log)


def test_a_clock_is_held_against_the_last_write(tmp_path: Path) -> None:
    """The node is written again each time, and the journal has what it was; where it is gone nothing is said."""
    times_ms = [1_000_000]
    store = Raced(lambda: times_ms[0])
    store.write([Write(ROOT, b"")])

    def now() -> datetime:
        return datetime.fromtimestamp(times_ms[0] / 1000, UTC)

    with open_log(tmp_path, store, ROOT, clock) as log:
        own = make_own_root(store, ROOT, log)
        require_clock(store, own, now, "op", log)
        times_ms[0] = 9_000_000
        require_clock(store, own, now, "op", log)
        key = f"{OWN}/clock"
        node = store.get(key)
        assert node is not None
        assert (node.value, node.changed_ms) == (ClockCheck(9_000_000, "op").encode(), 9_000_000)
        version = node.version
        store.rival = lambda: store.write([Write(key, None, version)])
        require_clock(store, own, now, "op", log)
        assert store.get(key) is None
        known = store.dump()
        require_clock(store, replace(own, key="/gone-bkmeta"), now, "op", log)
        assert store.dump() == known
    assert base64.b64encode(ClockCheck(1_000_000, "op").encode()).decode() in (tmp_path / JOURNAL).read_text()


def test_a_store_without_times_says_nothing_of_clocks(tmp_path: Path) -> None:
    """Nothing is written there."""
    store = Timeless()
    store.write([Write(ROOT, b"")])
    with open_log(tmp_path, store, ROOT, clock) as log:
        own = make_own_root(store, ROOT, log)
        known = store.dump()
        require_clock(store, own, lambda: datetime(1999, 1, 1, tzinfo=UTC), "op", log)
    assert store.dump() == known


def test_a_journal_that_is_gone_on_with_counts_on(tmp_path: Path) -> None:
    """No two batches of one journal have one number, and the journal of another root is not taken."""
    store = make_store()
    for _ in range(3):
        with open_log(tmp_path, store, ROOT, clock) as log:
            own = make_own_root(store, ROOT, log)
            write_last_listing(store, own, LastListing(1, 2, "op"), log)
            write_last_listing(store, own, LastListing(1, 3, "op"), log)
    journal = (tmp_path / JOURNAL).read_text()
    # The root, and two listings each time.
    assert [journal.count(f'"batch":{number},') for number in range(8)] == [2] * 7 + [0]
    # What a listing took the place of is kept, as of every write.
    assert base64.b64encode(LastListing(1, 2, "op").encode()).decode() in journal
    with pytest.raises(JournalError), open_log(tmp_path, store, "/other", clock):
        pass
