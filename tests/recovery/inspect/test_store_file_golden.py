"""`inspect` of a real ZooKeeper's files: what kind they are, what they hold, no damage, nothing of the data."""

import shutil
import struct
from pathlib import Path

import pytest

from recovery.inspect.bookie_file import look
from recovery.inspect.file_kinds import FileKind
from tests.backends.zkfiles.test_zkfiles_golden import DATA, _expected
from tests.support import paths

ETCD = paths.DATA / "etcd" / "final.db"
FILES = sorted(path for path in DATA.glob("*/version-2/*.*"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.parent.name}-{path.name}")
def test_every_file_is_what_it_is(path: Path) -> None:
    """Snapshots of every compression and logs with every end are known and without damage, and show no data."""
    found = look(path)
    assert found.kind is (FileKind.ZK_SNAPSHOT if path.name.startswith("snapshot") else FileKind.ZK_LOG)
    assert (found.damaged, found.damage) == (0, ())
    assert b"by multi" not in repr(found).encode()
    if found.kind is FileKind.ZK_SNAPSHOT:
        assert found.header["checksums"] == "agree"
        assert found.header["digest"] != "does not agree with the nodes"
        compressed = {".gz": "gzip", ".snappy": "snappy"}
        assert found.header["compression"] == compressed.get(path.suffix, "plain")
    else:
        assert found.first.startswith("zxid 0x")


def test_counts_are_those_of_the_server() -> None:
    """Nodes, sessions, ephemerals, containers and transactions are counted, and torn tails are normal."""
    expected = _expected("v39-plain", "expected-at-stop.json")
    assert expected["last_zxid"] == "0x1b"
    snapshot = look(DATA / "v39-plain" / "version-2" / "snapshot.28")
    assert snapshot.counts["nodes"] == 29
    assert (snapshot.counts["containers"], snapshot.counts["with_ttl"], snapshot.counts["ephemerals"]) == (1, 1, 1)
    assert snapshot.header["begun at"] == snapshot.header["ended at"] == "zxid 0x28"
    assert any(line.startswith("/app: 13 nodes") for line in snapshot.ranges)
    log = look(DATA / "v39-plain" / "version-2" / "log.1")
    assert log.counts["transactions"] == 40
    assert log.ranges == ("zxids 0x1 to 0x28",)
    torn = look(DATA / "v39-torn-padded" / "version-2" / "log.1")
    assert any("normal after a crash" in note for note in torn.notes)
    fuzzy = look(DATA / "v39-fuzzy" / "version-2" / "snapshot.dbf")
    assert any("whole only with the log" in note for note in fuzzy.notes)


def test_damage_has_its_place(tmp_path: Path) -> None:
    """A flipped byte, a cut and a hole are damage at a byte; a link that a person names is followed."""
    for name in ("snapshot.28", "log.1"):
        target = Path(shutil.copy(DATA / "v39-plain" / "version-2" / name, tmp_path / name))
        raw = bytearray(target.read_bytes())
        raw[1000] ^= 1
        target.write_bytes(raw)
        found = look(target)
        assert found.damaged == 1
        assert 0 < found.damage[0].offset <= 3300
    link = tmp_path / "link"
    link.symlink_to(DATA / "v39-plain" / "version-2" / "log.29")
    assert look(link).counts["transactions"] == 5


def test_a_database_of_etcd_is_known(tmp_path: Path) -> None:
    """By its first bytes, whatever its name: revision, keys, roots; nothing of the values."""
    for name in ("final.db", "db"):
        found = look(Path(shutil.copy(ETCD, tmp_path / name)))
        assert (found.kind, found.damaged, found.header["revision"]) == (FileKind.ETCD, 0, "676")
        assert (found.counts["keys"], found.counts["records"]) == (152, 684)
        assert found.ranges == ("BookKeeper's root: /bk/c1",)
    torn = tmp_path / "torn.db"
    torn.write_bytes(ETCD.read_bytes()[:5000])
    assert look(torn).damaged == 1


def _with_free_list(path: Path, free: int, page: bytes = b"", at: int = 0) -> Path:
    """A copy of the snapshot whose metas name a page of free pages; and that page, if it is given, at its place."""
    raw = bytearray(ETCD.read_bytes()[:-32])
    for start in (16, 4096 + 16):
        raw[start + 32 : start + 40] = struct.pack("<Q", free)
        digest = 0xCBF29CE484222325
        for byte in raw[start : start + 56]:
            digest = (digest ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
        raw[start + 56 : start + 64] = struct.pack("<Q", digest)
    raw[at * 4096 : at * 4096 + len(page)] = page
    path.write_bytes(raw)
    return path


def test_a_broken_list_of_free_pages_is_explained(tmp_path: Path) -> None:
    """What etcd does with such a file, and that no record is lost by it; a right list, or none, is not mentioned."""
    pages = len(ETCD.read_bytes()) // 4096
    header = struct.pack("<QHHI", pages, 16, 1, 0)
    last = _with_free_list(tmp_path / "right", (1 << 64) - 1)
    assert not any("free pages" in note for note in look(last).notes)
    for name, free in (("beyond", 1 << 40), ("a tree's page", 2), ("no page", 0)):
        found = look(_with_free_list(tmp_path / name, free))
        [note] = [note for note in found.notes if "free pages is broken" in note]
        assert "etcd ends when it opens this file" in note
        assert (found.counts["keys"], found.damaged) == (152, 0)
        assert found.header["free pages"] == "their list is broken"
    grown = ETCD.read_bytes()[:-32]
    for name, listed, broken in (("in use", [5], True), ("twice", [7, 7], True), ("empty", [], False)):
        page = (
            header[:10] + struct.pack("<H", len(listed)) + bytes(4) + struct.pack(f"<{len(listed)}Q", *listed)
        ).ljust(4096, b"\0")
        path = _with_free_list(tmp_path / name, pages)
        path.write_bytes(path.read_bytes() + page)
        assert len(grown) == pages * 4096
        assert any("free pages is broken" in note for note in look(path).notes) is broken, name
