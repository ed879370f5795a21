"""ZooKeeper's own folder of an invalid snapshot and a log of another name: the other logs lead to the end."""

import shutil
import struct
import zlib
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from backends.protocols import KEYS
from backends.zkfiles import snapshot
from backends.zkfiles.store import ZooKeeperFiles
from tests.backends.zkfiles.test_zkfiles_golden import DATA
from tests.support import paths

INVALID: Final = paths.DATA / "zk-invalidsnap"
LAST: Final = 0x83F


def values(store: ZooKeeperFiles) -> dict[str, bytes]:
    """Every node's data."""
    table = pa.Table.from_batches(store.scan("/"), schema=KEYS)
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def test_a_log_of_another_name_swallows_no_other_log(tmp_path: Path) -> None:
    """The tree is that of the files without it, up to their last transaction; the log and what follows are named."""
    shutil.copytree(INVALID, tmp_path / "without")
    (tmp_path / "without" / "version-2" / "log.42").unlink()
    whole, without = ZooKeeperFiles(INVALID), ZooKeeperFiles(tmp_path / "without")
    assert (without.point().txn, without.point().gaps) == (LAST, ())
    assert whole.point().txn == LAST
    assert values(whole) == values(without)
    assert len(values(whole)) > 1000
    assert any("after zxid 0x83f comes 0x8800000001" in gap for gap in whole.point().gaps)
    assert any("log.42 has another log's name: its first transaction is 0x8800000001" in n for n in whole.point().notes)
    assert not any("again, with other bytes" in note for note in whole.point().notes)


def test_logs_are_put_in_order_by_what_they_hold(tmp_path: Path) -> None:
    """Names that were mixed up by a copy: each transaction is in its place, and the names are said."""
    shutil.copytree(INVALID, tmp_path / "mixed")
    folder = tmp_path / "mixed" / "version-2"
    (folder / "log.42").unlink()
    (folder / "log.1").rename(folder / "log.900")
    (folder / "log.63b").rename(folder / "log.2")
    point = ZooKeeperFiles(tmp_path / "mixed").point()
    assert (point.txn, point.gaps) == (LAST, ())
    assert sum("has another log's name" in note for note in point.notes) == 2


@pytest.mark.parametrize(
    "raw", [b"", b"ZKLG" + struct.pack(">iq", 2, 0), b"ZKLG" + struct.pack(">iq", 2, 0) + bytes(64)]
)
def test_a_log_without_a_transaction_is_named(tmp_path: Path, raw: bytes) -> None:
    """No bytes, a header alone, or zeros behind it: as a crash leaves it, and no gap."""
    shutil.copytree(DATA / "v39-plain", tmp_path / "zk")
    log = tmp_path / "zk" / "version-2" / "log.2f"
    log.write_bytes(raw)
    point = ZooKeeperFiles(tmp_path / "zk").point()
    assert point.gaps == ZooKeeperFiles(DATA / "v39-plain").point().gaps
    assert f"{log} has no transaction ({len(raw)} bytes), as a crash leaves it" in point.notes


def node(path: bytes, data: bytes) -> bytes:
    """A node record."""
    return struct.pack(">i", len(path)) + path + struct.pack(">i", len(data)) + data + struct.pack(">q", -1) + bytes(60)


@pytest.mark.parametrize("apart", [True, False])
def test_a_node_that_a_snapshot_names_again_is_damage(tmp_path: Path, *, apart: bool) -> None:
    """Where it stands again; no server writes that, whatever its checksum says. An older snapshot is used."""
    between = node(b"/b", b"2") if apart else b""
    first = struct.pack(">4siqii", b"ZKSN", 2, -1, 0, 0) + node(b"", b"") + node(b"/a", b"1") + between
    body = first + node(b"/a", b"3") + node(b"/a", b"4") + struct.pack(">i", 1) + b"/"
    path = tmp_path / "snapshot.5"
    path.write_bytes(body + struct.pack(">q", zlib.adler32(body)) + struct.pack(">i", 1) + b"/")
    read = snapshot.read(path)
    assert read.damage is not None
    assert (read.damage.offset, read.damage.problem) == (len(first), "a node that it has before")
    assert read.nodes == (3 if apart else 2)
    assert read.find(b"/a") == 1
