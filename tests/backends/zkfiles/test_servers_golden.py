"""History out of real logs, points in time, and the folders of several servers together."""

import shutil
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from backends.errors import NoSuchStoreError, ReadOnlyStoreError, UnavailableError, UnsupportedStoreError
from backends.protocols import CHANGES, KEYS, ScannableStore, Write
from backends.registry import open_store
from backends.zkfiles.store import At, ZooKeeperFiles, parse_at
from backends.zkfiles.txnlog import survey
from tests.backends.zkfiles.test_zkfiles_golden import DATA

FOLDERS: Final = sorted(folder.name for folder in DATA.iterdir() if folder.is_dir())
FROM_THE_START: Final = ("v39-plain", "v34-logs-only", "v39-torn-padded", "v39-duplicate-zxid", "quorum-clean")
PLAIN: Final = DATA / "v39-plain"
PHANTOMS: Final = {f"/q/uncommitted{n}" for n in range(3)}


def _changes(store: ZooKeeperFiles, root: str = "/") -> list[dict[str, Any]]:
    table = pa.Table.from_batches(store.history(root), schema=CHANGES)
    table.validate(full=True)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _values(store: ZooKeeperFiles) -> dict[str, bytes]:
    table = pa.Table.from_batches(store.scan("/"), schema=KEYS)
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


@pytest.mark.parametrize("name", FOLDERS)
def test_history_leads_to_the_tree(name: str) -> None:
    """Each change begins with the bytes that the one before it left, and the last ones are what the tree has."""
    store = ZooKeeperFiles(DATA / name)
    last: dict[str, bytes | None] = {}
    rows = _changes(store)
    assert rows
    for row in rows:
        if row["op"] == "created":
            assert row["before"] is None
            assert last.get(row["key"]) is None
        elif row["key"] in last:
            assert row["before"] == last[row["key"]]
        assert (row["after"] is None) == (row["op"] == "deleted")
        assert row["session"]
        assert row["at_ms"] > 1_600_000_000_000
        last[row["key"]] = row["after"]
    values = _values(store)
    phantoms = PHANTOMS if name == "quorum-rejoined" else set()
    assert {key: values.get(key) for key in last if key not in phantoms} == {
        key: value for key, value in last.items() if key not in phantoms
    }
    assert [row["txn"] for row in rows] == sorted(row["txn"] for row in rows)
    if name in FROM_THE_START:
        assert {key for key, value in last.items() if value is not None} | {
            key for key in values if key == "/" or key.startswith("/zookeeper")
        } == set(values)


@pytest.mark.parametrize("name", ["v39-fuzzy", "v34-snapshot", "v39-gzip", "v36-plain"])
def test_the_bytes_before_the_first_change_come_from_a_snapshot(name: str) -> None:
    """A change of a key that was made before the logs begin has the bytes that the snapshot before it holds."""
    store = ZooKeeperFiles(DATA / name)
    base = store.restored.tree.base
    found = 0
    first: set[str] = set()
    for row in _changes(store):
        if row["key"] in first or row["op"] == "created":
            first.add(row["key"])
            continue
        first.add(row["key"])
        node = base.find(row["key"].encode() if row["key"] != "/" else b"")
        if node is not None and base.begun is not None and base.begun < row["txn"] > base.node_at(node).mzxid:
            assert row["before"] == (base.node_at(node).data or b"")
            found += 1
    assert found


def test_every_point_in_time_is_what_history_says() -> None:
    """At each zxid of a log from the start, the tree has exactly the values that history leads to."""
    for name in ("v39-plain", "v34-logs-only"):
        rows = _changes(ZooKeeperFiles(DATA / name))
        start = dict.fromkeys(_values(ZooKeeperFiles(DATA / name, point=At(zxid=1))), b"")
        for zxid in range(1, max(row["txn"] for row in rows) + 1):
            at = ZooKeeperFiles(DATA / name, point=At(zxid=zxid))
            values: dict[str, bytes | None] = {**start}
            for row in rows:
                if row["txn"] <= zxid:
                    values[row["key"]] = row["after"]
            assert _values(at) == {key: value for key, value in values.items() if value is not None}
            assert (at.point().txn, at.point().gaps) == (zxid, ())


def test_a_time_is_the_last_transaction_until_then() -> None:
    """A time between two transactions shows the earlier; one before all is refused; one after all is the latest."""
    entries = survey(PLAIN / "version-2" / "log.1").entries
    for zxid, ms, following in zip(
        entries["zxid"].tolist(), entries["ms"].tolist(), [*entries["ms"].tolist()[1:], 1 << 50], strict=True
    ):
        if following > ms:
            point = ZooKeeperFiles(PLAIN, point=At(ms=following - 1 if following < 1 << 50 else ms)).point()
            assert (point.txn, point.at_ms, point.gaps) == (zxid, ms, ())
    for files, txn in ((PLAIN, 0x2D), (PLAIN / "version-2" / "snapshot.28", 0x28)):
        point = ZooKeeperFiles(files, point=parse_at("2100-01-01")).point()
        assert point.txn == txn
        assert "that time was not reached" in point.gaps[0]
    with pytest.raises(UnsupportedStoreError, match="everything in them is later"):
        ZooKeeperFiles(PLAIN, point=parse_at("2020-01-01T00:00:00+02:00")).point()


def test_what_the_files_do_not_show_is_refused_or_a_gap() -> None:
    """A zxid before everything is refused; one behind the end shows the end, with a gap that says so."""
    with pytest.raises(UnsupportedStoreError, match="do not show"):
        ZooKeeperFiles(DATA / "v39-gzip", point=At(zxid=5)).point()
    point = ZooKeeperFiles(PLAIN, point=At(zxid=0x99)).point()
    assert point.txn == 0x2D
    assert "0x99 was not reached" in point.gaps[0]


def test_a_rejoined_server_alone_stops_at_its_hole() -> None:
    """What a server missed while it was away cannot be shown by it; that is a gap, and its tail is doubted."""
    point = ZooKeeperFiles(DATA / "quorum-rejoined", point=At(zxid=0x300000003)).point()
    assert point.txn == 0x20000001A
    assert "after zxid 0x20000001a comes 0x300000007" in point.gaps[0]
    assert any("may never have been committed" in note for note in point.notes)


def _together(folder: Path, *names: str) -> Path:
    for number, name in enumerate(names, 1):
        shutil.copytree(DATA / name, folder / f"zk{number}")
    return folder


def test_servers_together_show_the_history_that_was_committed(tmp_path: Path) -> None:
    """Of three servers the one of the latest epoch is shown; what only the others have is a note, and no history."""
    store = ZooKeeperFiles(_together(tmp_path, "quorum-uncommitted-tail", "quorum-rejoined", "quorum-clean"))
    point = store.point()
    assert (point.txn, point.gaps) == (0x300000007, ())
    assert _values(store) == _values(ZooKeeperFiles(DATA / "quorum-clean"))
    rows = _changes(store)
    assert PHANTOMS.isdisjoint(row["key"] for row in rows)
    assert [row["txn"] for row in rows] == [row["txn"] for row in _changes(ZooKeeperFiles(DATA / "quorum-clean"))]
    for other in ("zk1", "zk2"):
        assert any(note.startswith(f"{other}/") and "0x200000018 to 0x20000001a" in note for note in point.notes)


def test_a_stale_leader_does_not_win(tmp_path: Path) -> None:
    """A server that has more of an old epoch does not outweigh one that took part in a newer one."""
    folder = _together(tmp_path, "quorum-uncommitted-tail", "quorum-clean")
    log = folder / "zk2" / "version-2" / "log.300000001"
    log.write_bytes(log.read_bytes()[:16])
    point = ZooKeeperFiles(folder).point()
    assert (point.txn, point.gaps) == (0x200000017, ())
    assert any("0x200000018 to 0x20000001a" in note and "lost" in note for note in point.notes)


def test_a_hole_is_filled_by_another_server(tmp_path: Path) -> None:
    """A damaged record is taken from the server that has it whole, and both the tree and its digests are right."""
    folder = _together(tmp_path, "quorum-clean", "quorum-clean", "v39-plain")
    for server, name, at in (("zk1", "log.100000001", 3000), ("zk2", "log.300000001", 500)):
        log = folder / server / "version-2" / name
        raw = bytearray(log.read_bytes())
        raw[at] ^= 1
        log.write_bytes(raw)
    store = ZooKeeperFiles(folder)
    point = store.point()
    assert (point.txn, point.gaps) == (0x300000007, ())
    assert _values(store) == _values(ZooKeeperFiles(DATA / "quorum-clean"))
    assert any("zk1/version-2/log.100000001 at byte" in note and "checksum" in note for note in point.notes)
    assert any("zk3/version-2 has no transaction in common" in note for note in point.notes)


def test_logs_in_a_folder_of_their_own_are_found(tmp_path: Path) -> None:
    """A dataLogDir beside dataDir, one pair a server: each log goes with the snapshots of its server."""
    for number in (1, 2):
        for part in ("data", "log"):
            (tmp_path / f"zk{number}" / part / "version-2").mkdir(parents=True)
        source = DATA / ("v39-plain", "v38-plain")[number - 1] / "version-2"
        for file in source.iterdir():
            part = "log" if file.name.startswith("log") else "data"
            shutil.copy(file, tmp_path / f"zk{number}" / part / "version-2" / file.name)
    for number, name in ((1, "v39-plain"), (2, "v38-plain")):
        store = ZooKeeperFiles(tmp_path / f"zk{number}")
        assert (store.point().txn, store.point().gaps) == (0x2D, ())
        assert _values(store) == _values(ZooKeeperFiles(DATA / name))
    assert ZooKeeperFiles(tmp_path).point().gaps == ()


def test_one_file_alone() -> None:
    """A snapshot that nothing overlapped with is whole by itself; a later log has only what it made, with a gap."""
    snapshot = ZooKeeperFiles(PLAIN / "version-2" / "snapshot.28")
    assert (snapshot.point().txn, snapshot.point().gaps) == (0x28, ())
    assert _values(snapshot) == _values(ZooKeeperFiles(PLAIN, point=At(zxid=0x28)))
    log = ZooKeeperFiles(PLAIN / "version-2" / "log.29")
    assert "no snapshot goes before" in log.point().gaps[0]
    assert {"/after-restart", "/new-eph"} < set(_values(log))
    assert [row["key"] for row in _changes(log)] == ["/after-restart", "/app", "/m/b", "/new-eph"]
    mixed = ZooKeeperFiles(DATA / "v39-fuzzy" / "version-2" / "snapshot.dbf").point()
    assert "transactions up to 0xe22 were applied" in mixed.gaps[0]


def test_nothing_is_written(tmp_path: Path) -> None:
    """Writes are refused, a store to be written to is not opened, and no file is touched."""
    copy = Path(shutil.copytree(PLAIN, tmp_path / "copy"))
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in copy.rglob("*")}
    with open_store(f"zkfiles://{copy}?root=/app&layout=flat") as opened:
        assert (opened.root, opened.layout_hint) == ("/app", "flat")
        assert isinstance(opened.store, ScannableStore)
        for refused in (lambda: opened.store.write([Write("/x", b"")]), lambda: opened.store.raise_counter("/x", 1)):
            with pytest.raises(ReadOnlyStoreError):
                refused()
        list(opened.store.scan("/"))
    with pytest.raises(UnavailableError, match="closed"):
        opened.store.get("/app")
    with pytest.raises(UnsupportedStoreError, match="only read"):
        open_store(f"zkfiles://{copy}", writable=True)
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in copy.rglob("*")} == before


def test_a_folder_without_files_is_no_empty_store(tmp_path: Path) -> None:
    """Where nothing of a ZooKeeper is, that is an error, and never a store without keys."""
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(NoSuchStoreError):
            ZooKeeperFiles(path)
    (tmp_path / "readme.txt").write_text("nothing")
    with pytest.raises(NoSuchStoreError, match="neither it nor a folder below it"):
        ZooKeeperFiles(tmp_path)


@pytest.mark.parametrize(
    ("uri", "word"),
    [
        ("zkfiles://backup", "three slashes"),
        ("zkfiles:/backup", "three slashes"),
        ("zkfiles:///backup?rot=/x", "unknown option 'rot'"),
        ("zkfiles:///backup?root=x", "not the path"),
        ("zkfiles:///backup?root=", "not the path"),
        ("zkfiles:///backup?layout=round", "unknown layout 'round'"),
        ("zkfiles:///backup?root", "not root="),
        ("zkfiles:///nowhere/at/all", "no such folder"),
    ],
)
def test_a_malformed_uri_is_refused(uri: str, word: str) -> None:
    """What is wrong with the name of files, or that there are none, is one clear error of that name."""
    with pytest.raises(UnsupportedStoreError, match=word):
        open_store(uri)


def test_a_malformed_point_in_time_is_refused() -> None:
    """Neither a zxid nor a time: one error that names both."""
    with pytest.raises(UnsupportedStoreError, match="ISO 8601"):
        open_store(f"zkfiles://{PLAIN}", at="yesterday")


def test_a_snapshot_that_was_overtaken_by_one_record() -> None:
    """A node of the record after the one that all its sections name: only from there on are digests compared."""
    store = ZooKeeperFiles(DATA.parent / "zk-overtaken")
    assert store.restored.fuzzy_end == 0x106
    assert store.restored.wrong == 0
    assert store.restored.digests > 0
    assert store.point().gaps == ()
