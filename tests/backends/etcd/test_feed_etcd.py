"""What a real etcd's feed gives: every change, in order, with what was there before, and how far that is complete."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest

from backends.errors import CorruptStoreError
from backends.etcd import rpc
from backends.etcd.feed import EtcdFeed
from backends.protocols import FOLLOWED, FeedGap, Followed
from tests.support.etcd_server import EtcdServer

pytestmark = pytest.mark.real

TOPS = ("/feed/c1", "/feed/c1-bkmeta")


def take_until(feed: EtcdFeed, after: int, enough: Callable[[pa.Table, Followed], bool]) -> tuple[pa.Table, Followed]:
    """Follow until there is enough; return all rows, and the last that was given."""
    rows = FOLLOWED.empty_table()
    with closing(feed.follow(after)) as given:  # type: ignore[type-var]  # a generator
        for item in given:
            assert isinstance(item, Followed)
            rows = pa.concat_tables([rows, item.rows])
            if enough(rows, item):
                return rows, item
    raise AssertionError("the feed ended")


@pytest.fixture
def feed(etcd_server: EtcdServer) -> Iterator[EtcdFeed]:
    """Return the feed of an empty store."""
    etcd_server.wipe()
    with closing(EtcdFeed(etcd_server.hosts, TOPS, session_s=10)) as made:
        yield made


def test_changes_are_given_as_they_were_made(etcd_server: EtcdServer, feed: EtcdFeed) -> None:
    """Created, changed, deleted, with values, revisions and leases; other keys between the tops are not given."""
    lease = etcd_server.call("Lease", "LeaseGrant", rpc.LeaseGrantRequest(TTL=600)).ID
    begun = etcd_server.put("/feed/c1/a", b"0")
    first = etcd_server.put("/feed/c1/a", b"1")
    second = etcd_server.put("/feed/c1/b", b"2", lease)
    etcd_server.put("/feed/c1-another/c", b"of another cluster")
    third = etcd_server.delete("/feed/c1/a")
    etcd_server.put("/feed/c10", b"of another cluster")
    etcd_server.call("Lease", "LeaseRevoke", rpc.LeaseRevokeRequest(ID=lease))
    last = etcd_server.put("/feed/c1-bkmeta/own", b"")
    rows, item = take_until(feed, begun, lambda _, item: item.through >= last and item.until_ms > 0)
    given = [
        {name: row[name] for name in ("key", "txn", "op", "before", "after", "owner", "session")}
        for row in rows.to_pylist()
    ]
    of_a = {"key": "/feed/c1/a", "session": None}
    of_b = {"key": "/feed/c1/b", "session": lease}
    own = {"key": "/feed/c1-bkmeta/own", "session": None}
    assert given == [
        of_a | {"txn": first, "op": "changed", "before": b"0", "after": b"1", "owner": 0},
        of_b | {"txn": second, "op": "created", "before": None, "after": b"2", "owner": lease},
        of_a | {"txn": third, "op": "deleted", "before": b"1", "after": None, "owner": None},
        of_b | {"txn": last - 1, "op": "deleted", "before": b"2", "after": None, "owner": None},
        own | {"txn": last, "op": "created", "before": None, "after": b"", "owner": 0},
    ]
    assert [row["version"] for row in rows.to_pylist()] == [first, second, None, None, last]
    assert [row["created_txn"] for row in rows.to_pylist()] == [begun, second, None, None, last]
    assert [row["children_created"] for row in rows.to_pylist()] == [3, 2, None, None, 2]
    assert item.through == last


def test_where_nothing_happens_that_is_known(etcd_server: EtcdServer, feed: EtcdFeed) -> None:
    """What others write elsewhere is no change, and does not make the end uncertain."""
    begun = etcd_server.put("/feed/c1/a", b"0")
    rows, item = take_until(feed, begun, lambda _, item: item.until_ms > 0)
    assert (rows.num_rows, item.through) == (0, begun)
    elsewhere = etcd_server.put("/elsewhere", b"")
    rows, item = take_until(feed, begun, lambda _, item: item.through >= elsewhere and item.until_ms > 0)
    assert (rows.num_rows, item.through) == (0, elsewhere)


def test_what_is_compacted_away_is_a_gap(etcd_server: EtcdServer, feed: EtcdFeed) -> None:
    """It is said at once, with where it begins; a base shows what is there."""
    last = begun = etcd_server.put("/feed/c1/a", b"0")
    for number in range(5):
        last = etcd_server.put("/feed/c1/a", b"%d" % number)
    etcd_server.compact(last)
    items = list(feed.follow(begun))
    assert isinstance(items[-1], FeedGap)
    assert items[-1].after == begun
    assert "compacted" in items[-1].why
    with closing(feed.open_base()) as base:
        assert base.point().txn == last
        node = base.get("/feed/c1/a")
        assert node is not None
        assert node.value == b"4"


def test_a_server_that_is_gone_and_comes_back_loses_nothing(tmp_path: Path) -> None:
    """While it is gone empty answers come; then everything that was written meanwhile, once."""
    server = EtcdServer(tmp_path)
    server.start()
    with closing(EtcdFeed(server.hosts, TOPS, session_s=5)) as feed:
        begun = server.put("/feed/c1/a", b"0")
        given = feed.follow(begun)
        next(given)
        server.kill()
        assert any(
            isinstance(item, Followed) and not item.rows.num_rows for _, item in zip(range(3), given, strict=False)
        )
        server.start()
        written = [server.put("/feed/c1/a", b"%d" % number) for number in range(5)]
        seen: list[int] = []
        for item in given:
            assert isinstance(item, Followed)
            seen += item.rows["txn"].to_pylist()
            if item.through >= written[-1]:
                break
    server.kill()
    assert seen == written


def test_a_store_that_was_put_back_is_not_followed(etcd_server: EtcdServer, feed: EtcdFeed) -> None:
    """A revision below what was given before: the numbers mean something else now."""
    begun = etcd_server.put("/feed/c1/a", b"0")
    with pytest.raises(CorruptStoreError, match="restored, or is another cluster"):
        list(feed.follow(begun + 1000))


def test_a_feed_that_is_closed_ends(etcd_server: EtcdServer, feed: EtcdFeed) -> None:
    """From any thread."""
    begun = etcd_server.put("/feed/c1/a", b"0")
    given = feed.follow(begun)
    next(given)
    threading.Thread(target=feed.close).start()
    assert all(isinstance(item, Followed) for item in given)


def test_an_etcd_that_does_not_answer_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is sealed meanwhile, so the log alone says why: once, not with each attempt."""
    feed = EtcdFeed("127.0.0.1:1", ["/ledgers"], session_s=1, patience_s=1)
    steps = list(islice(feed.follow(5), 3))
    feed.close()
    assert all(isinstance(step, Followed) and step.through == 5 for step in steps)
    [record] = [record for record in caplog.records if record.name == "backends.etcd.feed"]
    assert "changes after revision 5 are waited for" in record.message
    assert "127.0.0.1:1" in record.message
