"""Clusters asked over sockets, by bookies that answer what real ones rarely do: what ends in the inventories."""

import asyncio
import struct
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.bookie._pb import bookie_pb2 as pb
from backends.bookie.client import Address, BookieOptions
from backends.protocols import Versioned, Write
from recovery.bookies.addresses import BookieNames, read_members
from recovery.bookies.wire_inventory import WireRequest, collect_wire
from recovery.bookies.wire_reader import RunningCluster
from recovery.bookies.wire_results import AskedKind, WireSummary, folder_of
from recovery.bookies.wire_task import WireTask
from recovery.capture.live import capture
from recovery.codecs import entry, ledger_metadata, store
from recovery.codecs.entry import EntryHeader
from recovery.codecs.store import Layout
from recovery.dataset import DatasetWriter, open_dataset
from recovery.errors import InputError
from recovery.model.groups import KeyedGroups, encode_availability, group_entries
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.support.memory_store import MemoryStore

SETTINGS = {"--wire": {"value": True, "from": "option"}}
AT = datetime(2026, 11, 1, tzinfo=UTC)
ALL_IDS = struct.pack(">ii56xqqii", 0, 1, 0, (1 << 63) - 2, 2, 2)
"""A list of every id that there is, 2^63 of them."""
OK, NO_LEDGER, NO_ENTRY, EIO = 0, 402, 403, 501


def record(ledger: int, number: int, digest: Digest = Digest.CRC32C, password: bytes = b"") -> bytes:
    """An entry as a bookie stores it."""
    return entry.encode(EntryHeader(ledger, number, number - 1, 10 * (number + 1)), b"x" * 10, digest, password)


def availability(entries: set[int]) -> bytes:
    """A list as a bookie sends it."""
    groups = group_entries(np.array(sorted(entries), np.int64))
    return encode_availability(KeyedGroups(np.zeros(len(groups.first), np.int64), *groups[1:]))


@dataclass
class Has:
    """What a bookie says of a ledger: its list, its records, an explicit LAC; how it fails."""

    listed: set[int] = field(default_factory=set)
    records: dict[int, bytes] = field(default_factory=dict)
    lac: bytes = b""
    grows: bool = False
    raw: bytes | None = None
    silent: bool = False
    unreadable: bool = False


class FakeBookie:
    """Answers for the ledgers that it has, in a thread of its own."""

    def __init__(self, ledgers: Mapping[int, Has]) -> None:
        self.ledgers = ledgers

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                answer = self._answer(pb.Request.FromString(await reader.readexactly(size)))
                if answer is not None:
                    raw = answer.SerializeToString()
                    writer.write(struct.pack(">i", len(raw)) + raw)
        except (EOFError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answer(self, request: pb.Request) -> pb.Response | None:
        response = pb.Response(status=OK)
        response.header.CopyFrom(request.header)
        if request.HasField("info"):
            response.info.status = OK
            return response
        asked: Any = next(getattr(request, name) for name in ("list", "read", "readLac") if request.HasField(name))
        has = self.ledgers.get(asked.ledgerId)
        inner: Any = getattr(response, next(n for n in ("list", "read", "readLac") if request.HasField(n)))
        inner.ledgerId = asked.ledgerId
        status = OK
        if has is None:
            status = NO_ENTRY if request.HasField("readLac") else NO_LEDGER
        elif request.HasField("list"):
            if has.silent:
                return None
            inner.availability = availability(has.listed) if has.raw is None else has.raw
            if has.grows:
                last = max(has.listed) + 1
                has.listed.add(last)
                has.records[last + 1] = record(asked.ledgerId, last + 1)
        elif request.HasField("readLac"):
            inner.lacBody = has.lac
            status = OK if has.records and not has.unreadable else EIO if has.unreadable else NO_ENTRY
            if status == OK:
                inner.lastEntryBody = has.records[max(has.records)]
        else:
            number = max(has.records, default=-1) if asked.entryId == -1 else asked.entryId
            status = EIO if has.unreadable else OK if number in has.records else NO_ENTRY
            if status == OK:
                inner.body = has.records[number]
        if request.HasField("read"):
            inner.entryId = asked.entryId
        response.status = inner.status = status
        return response

    @contextmanager
    def running(self, port: int = 0) -> Iterator[Address]:
        """Listen, at any port that is free where none is named, and say where."""
        loop = asyncio.new_event_loop()
        server = loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", port))
        address = Address(*server.sockets[0].getsockname()[:2])
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            yield address
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            server.close()
            loop.run_until_complete(ended(asyncio.all_tasks(loop)))
            loop.close()


async def ended(tasks: Collection["asyncio.Task[Any]"]) -> None:
    """End the handlers of a server, and let their connections close."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for _ in range(3):
        await asyncio.sleep(0)


def made_store(
    ledgers: Mapping[LedgerId, tuple[str, ...]], registered: Mapping[str, bytes], cookies: tuple[str, ...]
) -> MemoryStore:
    """A store with these ledgers, on these bookies."""
    made = MemoryStore()
    nodes = {store.LAYOUT: store.layout_bytes(Layout.HIERARCHICAL), store.INSTANCE_ID: b"i-1", "/available": b""}
    for ledger, bookies in ledgers.items():
        size = len(bookies)
        value = LedgerMetadata(
            3, size, size, 1, LedgerState.CLOSED, 9, 100, (Segment(0, bookies),), Digest.CRC32C, b"", creator_token=0
        )
        nodes[store.ledger_key(Layout.HIERARCHICAL, ledger)] = ledger_metadata.encode(value)
    nodes |= {f"/cookies/{name}": f"5\nbookieHost: {name!r}\n".encode() for name in cookies}
    for key, raw in nodes.items():
        made.write([Write("/ledgers" + key, raw)])
    for name, said in registered.items():
        made.put_ephemeral(f"/ledgers/available/{name}", said, 7)
    return made


def collected(
    source: MemoryStore,
    folder: Path,
    *,
    aliases: Mapping[str, str] | None = None,
    wanted: tuple[str, ...] | None = None,
    **how: Any,
) -> WireSummary:
    """Collect it as the program does, without Spark."""
    with DatasetWriter(folder / "catalog", "catalog", binding={}, secret=True) as out:
        capture(source, "/ledgers", None, out, clock=lambda: AT)
    members = read_members(source, "/ledgers", None, aliases or {})
    options = BookieOptions(deadline_s=1.0, patience_s=0.5)
    request = WireRequest(
        catalog=open_dataset(folder / "catalog", "catalog"), members=members, wanted=wanted, options=options, tasks=3,
        **how,
    )  # fmt: skip
    return collect_wire(request, folder, lambda task, ranges: [task(r) for r in ranges], now=lambda: AT)


def rows_of(folder: Path, bookie: str) -> dict[int, dict[str, Any]]:
    """Rows of copies by ledger."""
    rows = open_dataset(folder / folder_of(bookie), "inventory").read("copies").to_pylist()
    return {row["ledger"]: row for row in rows}


def damage_of(folder: Path, bookie: str) -> dict[int, dict[str, Any]]:
    """Rows of damage by ledger."""
    rows = open_dataset(folder / folder_of(bookie), "inventory").read("damage").to_pylist()
    return {row["ledger"]: row for row in rows}


def test_explicit_lacs_are_asked_for_beside_lists_where_a_record_changed_later(tmp_path: Path) -> None:
    """One question more, of closed ledgers alone; else a list tells no LAC, and no header is read for it."""
    has = {n: Has({0}, {0: record(n, 0)}, entry.encode_lac_record(n, 2, Digest.CRC32C)) for n in (1, 2, 3)}
    with FakeBookie(has).running() as address:
        bookie = str(address)
        source = made_store({LedgerId(0, n): (bookie,) for n in has}, {bookie: b""}, (bookie,))
        key = "/ledgers" + store.ledger_key(Layout.HIERARCHICAL, LedgerId(0, 3))
        node = source.get(key)
        assert node is not None
        written = replace(ledger_metadata.decode(node.value), state=LedgerState.OPEN, last_entry=None, length=None)
        source.write([Write(key, ledger_metadata.encode(written), node.version)])
        collected(source, tmp_path / "all", only_members=True, lacs_after=0)
        stored = open_dataset(tmp_path / "all" / "catalog", "catalog").read("ledgers").to_pylist()
        changed = {row["ledger"]: row["changed_txn"] for row in stored}
        later = min(changed, key=lambda ledger: changed[ledger])
        collected(source, tmp_path / "later", only_members=True, lacs_after=changed[later])
        collected(source, tmp_path / "none", only_members=True)
    lacs = {
        name: {ledger: row["explicit_lac"] for ledger, row in rows_of(tmp_path / name, bookie).items()}
        for name in ("all", "later", "none")
    }
    assert lacs["all"] == {1: 2, 2: 2, 3: None}
    assert lacs["later"] == {**lacs["all"], later: None}
    assert lacs["none"] == dict.fromkeys(has)
    assert all(row["headers"] == [] for row in rows_of(tmp_path / "all", bookie).values())


@pytest.mark.parametrize("held", [0, 1 << 25], ids=["decoded one by one", "decoded together"])
def test_what_lists_lack_what_grows_and_what_fails(tmp_path: Path, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ledger of a bookie ends as a row that says what is sure, or as damage; nothing is made up."""
    monkeypatch.setattr("recovery.bookies.wire_questions._RAW", held)
    has = {
        1: Has({0, 1, 2}, {n: record(1, n) for n in range(3)}, entry.encode_lac_record(1, 2, Digest.CRC32C)),
        2: Has(set(range(1024)), {0: record(2, 0), 1024: record(2, 1024)}),  # the last entry is not in the list
        3: Has({0}, {0: record(3, 0)}, grows=True),
        4: Has(),  # known, without entries
        5: Has({0, 1}, {}, unreadable=True),
        6: Has({0}, {0: record(6, 0)}, raw=b"\0\0\0\1" + bytes(60)),  # another version of the list
        7: Has({0}, {0: record(7, 0)}, silent=True),
        8: Has({0, 5}, {0: record(8, 0)}),  # 5 is listed, and is not there
        9: Has({0, 1, 2}, {n: record(9, n, Digest.HMAC, b"unknown") for n in range(3)}),
        10: Has({0}, {0: record(10, 0)}, b"\0" * 20),  # an explicit LAC of another ledger
        12: Has({0}, {0: record(12, 0)}, raw=ALL_IDS),  # more entries than a count holds
    }  # fmt: skip
    with FakeBookie(has).running() as address:
        bookie = str(address)
        ledgers = {LedgerId(0, n): (bookie,) for n in (*has, 11)} | {LedgerId(7, 1): (bookie,)}
        found = collected(made_store(ledgers, {bookie: b""}, (bookie,)), tmp_path)
    (asked,) = found.bookies
    assert (asked.kind, asked.ledgers, asked.negatives, asked.unanswered) == (AskedKind.COLLECTED, 8, 1, 3)
    assert (found.listed, found.scoped, found.unresolved) == (12, 1, {})
    rows, damage = rows_of(tmp_path, bookie), damage_of(tmp_path, bookie)
    assert set(rows) == {1, 2, 3, 4, 5, 8, 9, 10}
    assert {n for n, row in rows.items() if row["complete"]} == {1, 2, 4, 9, 10}
    assert (rows[1]["explicit_lac"], rows[1]["last"], rows[1]["headers"][-1]["length"]) == (2, 2, 30)
    assert (rows[2]["entries"], rows[2]["last"]) == (1025, 1024)
    assert {head["entry"] for head in rows[2]["headers"]} == {0, 1024}
    assert rows[3]["last"] == rows[3]["headers"][-1]["entry"]
    assert (rows[4]["entries"], rows[4]["groups"], rows[4]["headers"]) == (0, [], [])
    assert (rows[5]["entries"], rows[5]["headers"]) == (2, [])
    assert [(h["entry"], h["digest"]) for h in rows[9]["headers"]] == [(0, None), (1, None), (2, None)]
    assert rows[10]["explicit_lac"] is None
    assert {n for n, row in damage.items() if row["hides_entries"]} == {5, 6, 7, 8, 12}
    assert "bad_value (9223372036854775808 entries)" in damage[12]["detail"]
    assert not damage[10]["hides_entries"]
    assert "nothing within" in damage[7]["detail"]
    inventory = open_dataset(tmp_path / folder_of(bookie), "inventory")
    (row,) = inventory.read("bookies").to_pylist()
    assert (row["mode"], row["complete"], row["dirty"], row["storage"]) == ("wire", False, None, "interleaved")
    assert (inventory.manifest["coverage"]["asked"], inventory.manifest["coverage"]["negatives"]) == (12, 1)
    inventory.verify()


def test_a_bookie_without_lists_is_found_out_and_left_out(tmp_path: Path) -> None:
    """It answers reads, never lists: no inventory, and the reason; one that is gone is another thing."""
    has = {n: Has({0}, {0: record(n, 0)}, silent=True) for n in range(3)}
    with FakeBookie(has).running() as address, FakeBookie({}).running() as gone:
        db = str(address)
        ledgers = {LedgerId(0, n): (db, "gone-bookie") for n in has}
    with FakeBookie(has).running() as address:
        ledgers = {LedgerId(0, n): (str(address), str(gone)) for n in has}
        found = collected(made_store(ledgers, {str(address): b""}, (str(address), str(gone))), tmp_path)
        kinds = {asked.bookie: asked.kind for asked in found.bookies}
        assert kinds == {str(address): AskedKind.NO_LISTS, str(gone): AskedKind.NO_ANSWER}
    assert not (tmp_path / folder_of(db)).exists()


def test_caps_are_shared_among_tasks(tmp_path: Path) -> None:
    """Three tasks that run at the same time ask no more together than was allowed; every bucket is some task's.

    The inventory says the settings of the run.
    """
    seen: list[tuple[float | None, float | None, range]] = []
    with FakeBookie({1: Has({0}, {0: record(1, 0)})}).running() as address:
        source = made_store({LedgerId(0, 1): (str(address),)}, {str(address): b""}, ())
        with DatasetWriter(tmp_path / "catalog", "catalog", binding={}, secret=True) as out:
            capture(source, "/ledgers", None, out, clock=lambda: AT)
        options = BookieOptions(deadline_s=30, per_bookie=300.0, in_total=900.0)
        members = read_members(source, "/ledgers", None, {})
        request = WireRequest(
            catalog=open_dataset(tmp_path / "catalog", "catalog"),
            members=members,
            wanted=None,
            options=options,
            tasks=3,
            settings=SETTINGS,
        )

        def carry(task: WireTask, ranges: Sequence[range]) -> list[dict[str, Any]]:
            seen.extend((task.options.per_bookie, task.options.in_total, r) for r in ranges)
            return [task(r) for r in ranges]

        (made,) = collect_wire(request, tmp_path, carry, now=lambda: AT).bookies
    assert [(rate, total) for rate, total, _ in seen] == [(100.0, 300.0)] * 3
    assert [n for _, _, r in seen for n in r] == list(range(4096))
    assert open_dataset(made.folder, "inventory").manifest["settings"] == SETTINGS


def test_names_that_are_nobody_are_an_error_and_not_a_flood(tmp_path: Path) -> None:
    """A record names an old address: said as ALIAS_UNRESOLVED; with the alias, its bookie is asked once, as itself."""
    has = {n: Has({0}, {0: record(n, 0)}) for n in range(3)}
    with FakeBookie(has).running() as address:
        registered = {"bk5": _registration(address)}
        source = made_store({LedgerId(0, n): ("10.0.0.5:3181",) for n in has}, registered, ("bk5",))
        found = collected(source, tmp_path / "one")
        assert [asked.bookie for asked in found.bookies] == ["bk5"]
        assert set(found.unresolved) == {"10.0.0.5:3181"}
        assert "by an alias" in found.unresolved["10.0.0.5:3181"]
        with pytest.raises(InputError, match="ALIAS_UNRESOLVED"):
            collected(source, tmp_path / "two", wanted=("10.0.0.5:3181",))
        named = collected(source, tmp_path / "three", aliases={"10.0.0.5:3181": "bk5"}, wanted=("10.0.0.5:3181",))
        assert (dict(named.unresolved), [asked.bookie for asked in named.bookies]) == ({}, ["bk5"])
        assert named.bookies[0].ledgers == 3


def _registration(address: Address) -> bytes:
    host = address.host.encode()
    port = bytes([0x80 | address.port & 0x7F, 0x80 | address.port >> 7 & 0x7F, address.port >> 14])
    endpoint = b"\x0a\x06bookie\x10" + port + b"\x1a" + bytes([len(host)]) + host + b"\x22\x0abookie-rpc"
    return b"\x32" + bytes([len(endpoint)]) + endpoint


def test_who_is_who() -> None:
    """Registered, aliased, known by a cookie, at another's address, or nobody."""
    here = Versioned(_registration(Address("127.0.0.1", 3181)), 0, created_txn=5)
    odd = Versioned(b"\xff\xff", 0)
    members = BookieNames(
        {"bk5": here, "odd": odd, "old:3181": Versioned(b"", 0)},
        {"bk5": b"5\n", "away:3181": b"5\n", "named": b"5\n", "127.0.0.1:3181": b"5\n"},
        {"10.0.0.5:3181": "bk5", "later:3181": "later:3181"},
    )
    assert members.find("bk5").address == members.find("10.0.0.5:3181").address == Address("127.0.0.1", 3181)
    assert members.find("10.0.0.5:3181").bookie == "bk5"
    assert members.find("old:3181").address == Address("old", 3181)
    assert members.find("away:3181").address == Address("away", 3181)
    assert members.find("later:3181").address == Address("later", 3181)
    assert members.find("named").address is None
    assert not members.find("named").unresolved
    assert "cannot be read" in members.find("odd").why
    assert members.find("127.0.0.1:3181").unresolved
    assert "bk5" in members.find("127.0.0.1:3181").why
    assert members.find("stranger:3181").unresolved
    with pytest.raises(InputError, match="registered"):
        BookieNames({"bk5": here, "bk6": here}, {}, {"bk6": "bk5"})


def test_single_entries_of_bookies_by_name() -> None:
    """Records are handed on, negatives are absent, silence and refusals are not looked at."""
    has = {1: Has({0, 1}, {0: record(1, 0), 1: record(1, 1)}), 2: Has({0}, {0: record(2, 0)}, unreadable=True)}
    with FakeBookie(has).running() as address:
        members = BookieNames({str(address): Versioned(b"", 0)}, {}, {})
        with RunningCluster(members, BookieOptions(deadline_s=5, patience_s=1)) as cluster:
            bookie = cluster.get(str(address))
            assert bookie is not None
            found: dict[int, bytes | None] = {}
            place = bookie.find(LedgerId(0, 1), np.arange(3)).index
            bookie.each(place.file, place.position, found.__setitem__)
            assert found == {0: record(1, 0), 1: record(1, 1)}
            before = bookie.problems
            assert before == ()
            found.clear()
            bookie.each(np.array([2, 3]), np.array([0, 0]), found.__setitem__)
            assert found == {0: None}
            assert list(bookie.problems) == ["1 entries: EIO"]
            scoped = bookie.find(LedgerId(7, 1), np.arange(3))
            assert (len(scoped.index.entry), len(scoped.journal.entry), scoped.sure) == (0, 0, False)
            told = list(bookie.problems)
            assert told == ["3 entries: a read cannot name a scope", "1 entries: EIO"]
            assert not bookie.complete
            assert cluster.get("nobody") is None
            assert "ALIAS_UNRESOLVED" in cluster.unresolved["nobody"]
            assert [name for name, _ in cluster.items()] == [str(address)]
