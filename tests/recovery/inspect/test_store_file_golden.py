"""`inspect` of a real ZooKeeper's files: what kind they are, what they hold, no damage, nothing of the data."""

import shutil
from pathlib import Path

import pytest

from recovery.inspect.bookie_file import look
from recovery.inspect.file_kinds import Kind
from tests.backends.zkfiles.test_zkfiles_golden import DATA, _expected

FILES = sorted(path for path in DATA.glob("*/version-2/*.*"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.parent.name}-{path.name}")
def test_every_file_is_what_it_is(path: Path) -> None:
    """Snapshots of every compression and logs with every end are known and without damage, and show no data."""
    found = look(path)
    assert found.kind is (Kind.ZK_SNAPSHOT if path.name.startswith("snapshot") else Kind.ZK_LOG)
    assert (found.damaged, found.damage) == (0, ())
    assert b"by multi" not in repr(found).encode()
    if found.kind is Kind.ZK_SNAPSHOT:
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
