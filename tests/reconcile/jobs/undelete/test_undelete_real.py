"""Deletes taken back on real stores: their own history is all that the plan is made of."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from backends import registry
from reconcile.stores import open_store
from recovery.codecs import ledger_metadata, store
from recovery.codecs.store import Layout, ledger_key
from recovery.model.ids import LedgerId
from recovery.model.metadata import NO_ENTRY, Digest, LedgerMetadata, LedgerState, Segment
from tests.simulation.bookie_dir import make_bookie
from tests.support import deletes
from tests.support.command import run
from tests.support.etcd_server import EtcdServer
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.real

ROOT = "/ledgers"
INSTANCE = b"0a1b2c3d-0000-4000-8000-000000000001"
BASE = LedgerMetadata(
    3,
    3,
    2,
    2,
    LedgerState.CLOSED,
    9,
    90,
    (Segment(0, ("b1:3181", "b2:3181", "b3:3181")),),
    Digest.CRC32C,
    b"pw",
    1_700_000_000,
)
DELETED = range(1000, 1100)
"""What one session deleted by mistake."""
TRIMMED = range(900, 910)
"""What the same session deleted before, and meant to."""
OTHERS = range(1100, 1120)
"""What another session deleted."""
ALIVE = range(1120, 1150)


def make_records() -> dict[int, bytes]:
    """Return the records of all ledgers: closed, closed without an entry, open, and in recovery."""
    records = {}
    for number in (*TRIMMED, *DELETED, *OTHERS, *ALIVE):
        record = replace(BASE, last_entry=number, length=number * 10, ctime=1_700_000_000_000 + number)
        if number % 50 == 7:
            record = replace(record, last_entry=NO_ENTRY, length=0)
        elif number % 10 == 3:
            record = replace(record, last_entry=None, length=None, state=LedgerState.OPEN)
        elif number % 25 == 9:
            record = replace(record, last_entry=None, length=None, state=LedgerState.IN_RECOVERY)
        records[number] = ledger_metadata.encode(record)
    return records


RECORDS = make_records()


def key_of(number: int, layout: Layout = Layout.HIERARCHICAL) -> str:
    """Return the key of a ledger."""
    return ROOT + ledger_key(layout, LedgerId(0, number))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper of its own."""
    folder = tmp_path / "zookeeper"
    folder.mkdir()
    made = ZooKeeperServer(folder)
    made.start()
    yield made
    made.end()


@contextmanager
def connect(server: ZooKeeperServer) -> Iterator[KazooClient]:
    """Give a session of its own."""
    client = KazooClient(hosts=server.hosts)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def fill(server: ZooKeeperServer) -> None:
    """Make the cluster and its ledgers."""
    with connect(server) as client:
        client.create(ROOT + store.LAYOUT, store.layout_bytes(Layout.HIERARCHICAL), makepath=True)
        client.create(ROOT + store.INSTANCE_ID, INSTANCE, makepath=True)
        client.create(ROOT + "/idgen", b"", makepath=True)
        for _ in range(3):
            client.create(ROOT + "/idgen/ID-", b"", sequence=True)
        for number, raw in RECORDS.items():
            client.create(key_of(number), raw, makepath=True)


def delete_by_mistake(server: ZooKeeperServer) -> tuple[str, int, int]:
    """Delete ledgers by two sessions; return the first one, and the transactions of its mistake."""
    with connect(server) as broker, connect(server) as other:
        session, _ = broker.client_id
        for number in TRIMMED:
            broker.delete(key_of(number))
        first = other.create("/before", b"", include_data=True)[1].czxid
        for number in DELETED:
            broker.delete(key_of(number))
            if number + 100 in OTHERS:
                other.delete(key_of(number + 100))
        last = other.create("/after", b"", include_data=True)[1].czxid
    return f"{session:#x}", first, last


def read_all(server: ZooKeeperServer) -> dict[int, bytes | None]:
    """Return what a ZooKeeper has of each ledger."""
    with open_store(f"zk+hierarchical://{server.hosts}{ROOT}") as opened:
        nodes = dict(opened.store.get_many([key_of(number) for number in RECORDS]))
    return {number: None if (node := nodes[key_of(number)]) is None else node.value for number in RECORDS}


def expect(back: range) -> Mapping[int, bytes | None]:
    """Return what a ZooKeeper has after some came back."""
    gone = {*TRIMMED, *DELETED, *OTHERS} - {*back}
    return {number: None if number in gone else raw for number, raw in RECORDS.items()}


def expect_there(back: range) -> Mapping[int, bytes]:
    """Return what an etcd has after some came back; there nobody else deleted any."""
    return {number: raw for number, raw in RECORDS.items() if number not in TRIMMED or number in back}


def apply(capsys: pytest.CaptureFixture[str], plan: Path, uri: str) -> dict[str, Any]:
    """Apply a plan, and return what the command says."""
    shown = run(capsys, "plan", "show", plan, "--json").result
    done = run(capsys, "apply", plan, "--metadata", uri, "--accept-unfrozen", "--confirm", shown["hash"], "--json")
    assert done.code == 0, done
    return done.result


def test_a_hundred_ledgers_that_a_session_deleted_come_back_byte_for_byte(
    server: ZooKeeperServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of its snapshot and logs alone: all hundred, the empty and open ones too, and none that others deleted.

    The plan is shown, edited, rehearsed and taken back as any other one.
    """
    fill(server)
    server.restart()  # A snapshot from before the deletes, and logs.
    session, first, last = delete_by_mistake(server)
    copy = tmp_path / "copy"
    shutil.copytree(server.data_dir, copy)
    uri, history = f"zk+hierarchical://{server.hosts}{ROOT}", ("--history", f"zkfiles://{copy}")
    words = ("undelete", "--metadata", uri, *history, "--out", tmp_path / "plan")

    looked = run(capsys, *words)
    assert looked.code == 2
    assert f"session {session}: 110 ledgers" in looked.out
    asked = run(capsys, *words, "--session", session)
    assert asked.code == 2
    assert "110 in all" in asked.out
    assert not (tmp_path / "plan").exists()

    made = run(capsys, *words, "--session", session, "--from-time", first, "--to-time", last)
    assert made.code == 0, made
    assert "100 of 100 deleted ledgers come back" in made.out
    assert "100 of them inside the window" in made.out
    assert read_all(server) == expect(range(0))
    shown = run(capsys, "plan", "show", tmp_path / "plan", "--json")
    assert shown.code == 0
    assert run(capsys, "plan", "edit", tmp_path / "plan", "--drop", "1000", "--out", tmp_path / "edited").code == 0
    rehearsed = run(capsys, "rehearse", tmp_path / "plan", "--metadata", f"zk+hierarchical://{server.hosts}/rehearsed")
    assert rehearsed.code == 0, rehearsed
    applied = apply(capsys, tmp_path / "plan", uri)
    assert applied["bookies"] == []  # It has looked at none, and changes no cookie.
    assert read_all(server) == expect(DELETED)

    again = run(capsys, *words[:-1], tmp_path / "again", "--session", session, "--from-time", first, "--to-time", last)
    assert again.code == 0
    assert "100 more are in the store already" in again.out


def test_an_undelete_is_verified_and_undone_as_any_plan(
    server: ZooKeeperServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Verify reads records and entries back; undo asks for a freeze, and then takes away what was created, no more."""
    monkeypatch.setenv("BKMETA_ZK_AUTH", "bkmeta:secret")
    monkeypatch.chdir(tmp_path)
    fill(server)
    uri = f"zk+hierarchical://{server.hosts}{ROOT}"
    session, first, last = delete_by_mistake(server)
    shutil.copytree(server.data_dir, tmp_path / "copy")
    words = ("undelete", "--metadata", uri, "--history", f"zkfiles://{tmp_path / 'copy'}", "--out", tmp_path / "plan")
    assert run(capsys, *words, "--session", session, "--from-time", first, "--to-time", last).code == 0
    apply(capsys, tmp_path / "plan", uri)

    # The bookies collected the ledgers meanwhile: the records are back, and their entries are not.
    disks = [
        f"--disk={name}={folder}"
        for name in ("b1:3181", "b2:3181", "b3:3181")
        for folder in make_bookie(tmp_path / name, {1120: [0]}, bookie=name).all_dirs
    ]
    verify = ("verify", tmp_path / "plan", "--metadata", uri, "--sample", "all", *disks, "--json")
    seen = run(capsys, *verify)
    assert seen.code == 3, seen
    assert seen.result["counts"]["records"]["as_planned"] == 100
    assert (seen.result["coverage"]["looked_at"], seen.result["bookies"]) == (100, [])

    journal = tmp_path / "plan" / "journal"
    undo = ("undo", journal, "--metadata", uri)
    refused = run(capsys, *undo)
    assert (refused.code, "100 ledgers" in refused.err, "freeze" in refused.err) == (5, True, True)
    offered = run(capsys, "freeze", "--metadata", uri, "--json").result
    assert run(capsys, "freeze", "--metadata", uri, "--confirm", offered["hash"]).code == 0
    shown = run(capsys, *undo, "--json")
    assert shown.result["counts"]["create ledger"] == 100
    done = run(capsys, *undo, "--confirm", shown.result["hash"], "--json")
    assert done.code == 0, done
    with registry.open_store(uri, auth=("bkmeta", "secret")) as opened:
        nodes = dict(opened.store.get_many([key_of(number) for number in RECORDS]))
    stored = {number: None if (node := nodes[key_of(number)]) is None else node.value for number in RECORDS}
    assert stored == expect(range(0))
    gone = run(capsys, *verify)
    assert (gone.code, gone.result["counts"]["records"]["absent"]) == (3, 100)


def test_captures_are_history_too(server: ZooKeeperServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A capture of files has who deleted what; one of a live ZooKeeper has closed ledgers as they were then."""
    fill(server)
    uri = f"zk+hierarchical://{server.hosts}{ROOT}"
    assert run(capsys, "capture", "--metadata", uri, "--out", tmp_path / "daily").code == 0
    session, first, last = delete_by_mistake(server)
    shutil.copytree(server.data_dir, tmp_path / "copy")
    files = ("capture", "--metadata", f"zkfiles://{tmp_path / 'copy'}", "--out", tmp_path / "files")
    assert run(capsys, *files).code == 0
    words = ("undelete", "--metadata", uri, "--history", f"catalog://{tmp_path / 'files'}")
    window = ("--session", session, "--from-time", first, "--to-time", last)
    assert run(capsys, *words, *window, "--out", tmp_path / "plan").code == 0
    apply(capsys, tmp_path / "plan", uri)
    assert read_all(server) == expect(DELETED)

    daily = ("undelete", "--metadata", uri, "--history", f"catalog://{tmp_path / 'daily'}", "--out", tmp_path / "one")
    done = run(capsys, *daily, "900", "903", "907", "909", "1000", "7", "--json")
    assert done.code == 3
    result = done.result
    assert result["counts"]["restored"] == 2
    assert result["counts"]["as_captured"] == 2
    assert result["in_store"] == ["1000"]
    reasons = {ledger: kept["reason"] for ledger, kept in result["kept"].items()}
    assert reasons == {"7": "not_known", "903": "not_closed", "909": "not_closed"}
    apply(capsys, tmp_path / "one", uri)
    stored = read_all(server)
    assert (stored[900], stored[907], stored[903]) == (RECORDS[900], RECORDS[907], None)


def test_an_id_that_was_used_again_is_never_replaced(
    server: ZooKeeperServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ledgers under ids that were used again stay, and so do those that were made and deleted again."""
    fill(server)
    session, first, last = delete_by_mistake(server)
    with connect(server) as client:
        client.create(key_of(1000), b"another ledger")
        client.create(key_of(1001), b"made again")
        client.delete(key_of(1001))
    shutil.copytree(server.data_dir, tmp_path / "copy")
    uri = f"zk+hierarchical://{server.hosts}{ROOT}"
    words = ("undelete", "--metadata", uri, "--history", f"zkfiles://{tmp_path / 'copy'}", "--out", tmp_path / "plan")
    done = run(capsys, *words, "--session", session, "--from-time", first, "--to-time", last, "--json")
    assert done.code == 3
    reasons = {ledger: kept["reason"] for ledger, kept in done.result["kept"].items()}
    assert reasons == {"1000": "in_store", "1001": "deleted_again"}
    apply(capsys, tmp_path / "plan", uri)
    stored = read_all(server)
    assert (stored[1000], stored[1001], stored[1002]) == (b"another ledger", None, RECORDS[1002])


def test_what_bkmeta_purged_stays_deleted(
    server: ZooKeeperServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tombstone wins over all that its session deleted, and over the ledger's own id."""
    monkeypatch.chdir(tmp_path)
    ledgers = [deletes.Ledger(LedgerId(0, number)) for number in range(6)]
    uri = f"zk+hierarchical://{server.hosts}{ROOT}"
    with open_store(uri, writable=True) as opened:
        deletes.fill_store(opened.store, ROOT, Layout.HIERARCHICAL, ledgers)
    looks = deletes.name_looks(deletes.write_looks(tmp_path / "looks", ledgers))

    def delete(step: str, *words: object) -> None:
        done = run(capsys, "delete", step, *words, "--metadata", uri)
        assert done.code == 0, done

    delete("request", "2", "--soak", "0s", "--reason", "T-7")
    for _ in range(2):
        refs = deletes.write_references(tmp_path / "refs.jsonl", [])
        delete("verify", "--due", *looks, "--references", refs, "--min-age", "0s", "--certificate", "c.json")
    delete("purge", "--certificate", "c.json")
    with connect(server) as client:
        client.delete(key_of(3))
    shutil.copytree(server.data_dir, tmp_path / "copy")
    words = ("undelete", "--metadata", uri, "--history", f"zkfiles://{tmp_path / 'copy'}", "--json", "--out")
    sessions = run(capsys, *words, tmp_path / "none").result["sessions"]
    chosen = [word for one in sessions for word in ("--session", one["session"])]
    window = ("--from-time", "0", "--to-time", "0x7fffffffffffffff")
    done = run(capsys, *words, tmp_path / "plan", *chosen, *window)
    assert done.code == 3
    assert done.result["counts"]["restored"] == 1
    assert done.result["kept"]["2"]["reason"] == "tombstone"
    assert "T-7" in done.result["kept"]["2"]["detail"]
    named = run(capsys, *words, tmp_path / "named", "2")
    assert named.code == 3
    assert named.result["kept"]["2"]["reason"] == "tombstone"
    assert not (tmp_path / "named").exists()


def test_a_live_etcd_is_its_own_history(
    etcd_server: EtcdServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Deleted ledgers come from an earlier revision, until it is compacted; that this comes first is said."""
    etcd_server.wipe()
    places = store.places(Layout.ETCD)
    etcd_server.put(ROOT + places.layout, store.layout_bytes(Layout.ETCD))
    etcd_server.put(ROOT + places.instance_id, INSTANCE)
    for number, raw in RECORDS.items():
        etcd_server.put(key_of(number, Layout.ETCD), raw)
    revisions = [etcd_server.delete(key_of(number, Layout.ETCD)) for number in (*TRIMMED, *DELETED)]
    first, last = revisions[len(TRIMMED)], revisions[-1]
    uri = f"etcd://{etcd_server.hosts}{ROOT}"
    words = ("undelete", "--metadata", uri)
    looked = run(capsys, *words, "--out", tmp_path / "none")
    assert looked.code == 2
    assert "first: stop compaction" in looked.out
    assert "session none: " in looked.out
    window = ("--session", "none", "--from-time", first, "--to-time", last)
    made = run(capsys, *words, *window, "--out", tmp_path / "plan")
    assert made.code == 0, made
    assert "100 of 100 deleted ledgers come back" in made.out
    apply(capsys, tmp_path / "plan", uri)
    with open_store(uri) as opened:
        nodes = dict(opened.store.get_many([key_of(number, Layout.ETCD) for number in RECORDS]))
    stored = {number: nodes[key_of(number, Layout.ETCD)] for number in RECORDS}
    assert {n: node.value for n, node in stored.items() if node is not None} == expect_there(DELETED)
    etcd_server.compact(last)
    gone = run(capsys, *words, "900", "--out", tmp_path / "late")
    assert gone.code == 3
    assert "no history has its last record" in gone.out
