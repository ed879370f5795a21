"""Pulsar's records in a store of any kind: every one is read, and a bad one stops nothing."""

import struct

import pyarrow as pa
import pytest

from backends.protocols import Write
from backends.registry import OpenStore
from reconcile.references import COMPACTION, References, of_store
from recovery.codecs._pb.managed_ledger_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from recovery.errors import InputError
from recovery.infer.references import SCHEMA
from tests.recovery.codecs.test_managed_ledger_golden import records
from tests.support.memory_store import MemoryStore
from tests.support.scannable_store import ScannableMemory

TOPIC = "/managed-ledgers/public/default/persistent/t"


def opened(store: MemoryStore, root: str = "/ledgers") -> OpenStore:
    """A store as a URI names it."""
    return OpenStore(store, root, None, "memory://")


def topic(*ledgers: int) -> bytes:
    """The record of a topic whose ledgers were all closed at entry 9."""
    message = ManagedLedgerInfo()
    for ledger in ledgers:
        message.ledgerInfo.add(ledgerId=ledger, entries=10, size=100, timestamp=1)
    return message.SerializeToString()


def by_ledger(found: References) -> dict[int, dict[str, object]]:
    """References by ledger."""
    return {row["ledger"]: row for row in found.rows.to_pylist()}


@pytest.mark.parametrize("root", ["/ledgers", "/managed-ledgers", "/chroot/ledgers"])
@pytest.mark.parametrize("kind", [MemoryStore, ScannableMemory])
def test_a_store_that_is_walked_says_what_one_that_is_scanned_says(kind: type[MemoryStore], root: str) -> None:
    """A live store is listed folder by folder, a copy read in bulk; the URI names the ledgers root, or the topics'."""
    store, above = kind(), "/chroot" if root.startswith("/chroot") else ""
    for key, raw in records().items():
        store.write([Write(above + key, raw)])
    found = of_store(opened(store, root))
    assert (found.unreadable, found.gaps) == ((), ())
    names = by_ledger(found)
    assert sorted(names) == [0, 1, 2, 3, 4, 6, 7, 8, *range(10, 27)]
    assert names[3]["owner"] == "cursor subscription of public/default/persistent/kept-none"
    assert (names[0]["last_entry"], names[0]["length"], names[0]["deleted"]) == (4, 35, None)
    assert found.rows.schema.equals(SCHEMA)


def test_a_record_that_cannot_be_read_is_named_and_stops_nothing() -> None:
    """The others are read; what it named is neither referenced nor deleted."""
    store = ScannableMemory()
    store.put(TOPIC, topic(1, 2))
    store.put(TOPIC, b"garbage")
    store.put(f"{TOPIC}-2", topic(3))
    store.put("/schemas/public/default/t", b"\xff")
    found = of_store(opened(store))
    assert by_ledger(found).keys() == {3}
    assert [path for path, _ in found.unreadable] == [f"memory:// {TOPIC}", "memory:// /schemas/public/default/t"]
    assert all(problem for _, problem in found.unreadable)


def test_what_history_shows_as_let_go_of_is_deleted_unless_something_names_it() -> None:
    """Trimmed, with its topic or with a subscription; not what moved to another topic, nor what came back."""
    store = ScannableMemory()
    store.put(TOPIC, topic(1, 2, 3))
    store.put(f"{TOPIC}/sub", ManagedCursorInfo(cursorsLedgerId=7).SerializeToString())
    store.put(f"{TOPIC}/sub", ManagedCursorInfo(cursorsLedgerId=8).SerializeToString())
    store.put(TOPIC, topic(2, 3))
    store.put(f"{TOPIC}-2", topic(3, 4, 5))
    store.put(TOPIC, topic(2))
    store.put(f"{TOPIC}-2", topic(3, 5))
    store.put(f"{TOPIC}-2", topic(3, 4, 5))
    store.put(f"{TOPIC}-3", topic(6))
    store.put(f"{TOPIC}-3", None)
    rows = by_ledger(of_store(opened(store)))
    assert {ledger for ledger, row in rows.items() if row["deleted"]} == {1, 6, 7}
    assert rows.keys() == {1, 2, 3, 4, 5, 6, 7, 8}
    assert "let go of it" in str(rows[1]["deletion"])
    assert "its owner was deleted" in str(rows[6]["deletion"])
    assert "2023-11-14T22:13:20+00:00 by session 0x100" in str(rows[6]["deletion"])
    assert rows[1]["last_entry"] == 9


def test_a_ledger_that_was_offloaded_and_deleted_here_is_deleted() -> None:
    """Its topic still lists it, and reads it elsewhere."""
    message = ManagedLedgerInfo()
    message.ledgerInfo.add(ledgerId=7, entries=10, size=99, timestamp=1).offloadContext.bookkeeperDeleted = True
    store = MemoryStore()
    store.write([Write(TOPIC, message.SerializeToString())])
    assert by_ledger(of_store(opened(store)))[7]["deleted"] is True


def test_a_store_without_topics_is_an_error_and_not_an_empty_answer() -> None:
    """Nothing would be called referenced then: the place is named, and how to name another."""
    with pytest.raises(InputError, match="/managed-ledgers"):
        of_store(opened(MemoryStore()))


def test_several_sources_are_one() -> None:
    """Each ledger once: deleted if any says so, with the greatest of its last entries; problems of all are kept."""
    rows = [
        {"bucket": 0, "scope": 0, "ledger": 5, "last_entry": last, "deleted": deleted, "source": source}
        for last, deleted, source in ((3, None, "a"), (4, None, "b"), (None, True, "c"))
    ]
    parts = [References(pa.Table.from_pylist([row], schema=SCHEMA), ((str(row["source"]), "bad"),)) for row in rows]
    united = References.unite(parts)
    assert united is not None
    [only] = united.rows.to_pylist()
    assert (only["last_entry"], only["deleted"]) == (4, True)
    assert [path for path, _ in united.unreadable] == ["a", "b", "c"]
    assert References.unite([]) is None


@pytest.mark.parametrize("name", ["persistent://public/default/t", "a"])
def test_the_subscription_of_a_compaction_stays_the_owner_beside_what_else_names_its_ledger(name: str) -> None:
    """Else nothing would show that a broker may have the topic loaded: its compacted ledger looks unreferenced."""
    owners = [f"{COMPACTION}public/default/persistent/t", name]
    rows = [{"bucket": 0, "scope": 0, "ledger": 5, "owner": owner, "source": owner} for owner in owners]
    united = References.unite([References(pa.Table.from_pylist([row], schema=SCHEMA)) for row in rows])
    assert united is not None
    assert united.rows["owner"].to_pylist() == owners[:1]


def test_streams_of_functions_name_their_ledgers() -> None:
    """Each segment's, and one that is made and not used yet; other nodes of a stream say nothing."""
    store = MemoryStore()
    stream = "/pulsar/functions/public/default/count/uuid-count.jar/<default>"
    nodes = {
        "/managed-ledgers": b"",
        f"{stream}/ledgers": b"1",
        f"{stream}/ledgers/logrecs_000000000000000001": b"21474836485;71;1;9;1700000000000;1;4;0;-1;-1;0",
        f"{stream}/ledgers/inprogress_000000000000000010": b"5;72;10;2;0;0;0",
        f"{stream}/allocation": b"73",
        f"{stream}/version": b"5",
        "/stream/storage/000/ledgers/logrecs_1": b"odd",
    }
    store.write([Write(key, value) for key, value in nodes.items()])
    found = of_store(opened(store))
    assert {ledger: row["owner"] for ledger, row in by_ledger(found).items()} == {
        71: f"stream {stream}",
        72: f"stream {stream}",
        73: f"stream {stream}, not used yet",
    }
    assert [where.partition(" ")[2] for where, _ in found.unreadable] == ["/stream/storage/000/ledgers/logrecs_1"]


def test_logs_of_pravega_are_found_beside_its_ledgers_and_where_they_are_named() -> None:
    """Each container's record names ledgers; folders between say nothing; the cluster is that of the ledgers root."""
    store = MemoryStore()
    top = "/pravega/main/segmentstore/containers"
    log = b"\0\0\1\0" + struct.pack(">i", 11) + bytes([1, 1, 0, 0, 2, 7, 1, 2, 9, 2, 1])
    store.write([Write(f"{top}/3/0/13", log), Write(f"{top}/4/0/4", b"odd")])
    root = "/pravega/main/bookkeeper/ledgers"
    for named in (root, top):
        found = of_store(opened(store, named))
        assert {ledger: row["owner"] for ledger, row in by_ledger(found).items()} == {
            7: "Pravega container 13", 9: "Pravega container 13"
        }  # fmt: skip
        assert [where.partition(" ")[2] for where, _ in found.unreadable] == [f"{top}/4/0/4"]
