"""Multis that failed are not the same bytes in the logs of three real servers, and are the same transactions."""

import json
import shutil
import zlib
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from backends.protocols import Followed, ScannableStore
from backends.zkfiles.feed import ZooKeeperLogFeed
from backends.zkfiles.servers import find, history_of
from backends.zkfiles.store import ZooKeeperFiles
from backends.zkfiles.tail import Broken, Logged, LogTail
from backends.zkfiles.txnlog import frame_of, survey
from tests.support.paths import DATA

FOLDER: Final = DATA / "zk-failed-multis"
TOLD: Final = json.loads((FOLDER / "values.json").read_text())
LAST: Final = int(TOLD["last"], 16)
VALUES: Final = {key: bytes.fromhex(value) for key, value in TOLD["values"].items()}
ODD: Final = {
    1: [0x2_0000_0022],
    2: [0x2_0000_0004, 0x2_0000_0007, 0x2_0000_000A, 0x2_0000_0015],
    3: [0x1_0000_000F],
}
"""Multis that failed, by the server in whose log they are not as in the others'."""


def _read(store: ScannableStore) -> dict[str, bytes]:
    rows = pa.Table.from_batches(store.scan("/ledgers"))
    return dict(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True))


def _feed(folders: list[Path]) -> ZooKeeperLogFeed:
    ticks = iter(range(0, 1 << 40, 5_000))
    return ZooKeeperLogFeed("zk", folders, ["/ledgers"], pause_s=0, clock_ms=lambda: next(ticks))


def test_only_multis_that_failed_differ_and_their_marks_do_not() -> None:
    """The logs have the same zxids; which records have other bytes is known; no record has another mark."""
    one, two, three = (history_of([survey(path) for path in server.logs])[0].rows for server in find(FOLDER))
    assert one["zxid"].tolist() == two["zxid"].tolist() == three["zxid"].tolist()
    for number, (own, *others) in {1: (one, two, three), 2: (two, one, three), 3: (three, one, two)}.items():
        differs = (own["crc"] != others[0]["crc"]) & (own["crc"] != others[1]["crc"])
        assert own["zxid"][differs].tolist() == ODD[number]
        assert own["mark"].tolist() == others[0]["mark"].tolist()
        assert set(own["kind"][own["mark"] != own["crc"]].tolist()) == {14}


@pytest.mark.parametrize("numbers", [(1, 2), (2, 3), (1, 3), (1, 2, 3)])
def test_most_logs_prove_a_multi_that_failed(numbers: tuple[int, ...]) -> None:
    """Whichever servers are the majority, and whichever is read: the feed follows all that clients see."""
    feed = _feed([FOLDER / str(number) for number in numbers])
    base = feed.open_base()
    assert isinstance(base, ScannableStore)
    assert base.point().txn == LAST
    assert _read(base) == VALUES
    step = list(zip(range(2), feed.follow(0x1_0000_0011), strict=False))[-1][1]
    assert isinstance(step, Followed)
    assert step.through == LAST


@pytest.mark.parametrize("number", ODD)
def test_another_server_takes_its_place_at_a_multi_that_failed(number: int) -> None:
    """The last transaction given is a multi that failed: a log that has it with other bytes goes on from there."""
    other = FOLDER / str(number % 3 + 1) / "version-2"
    own = history_of([survey(path) for path in (FOLDER / str(number) / "version-2").glob("log.*")])[0].rows
    for zxid in ODD[number]:
        tail = LogTail([other], zxid, int(own["mark"][own["zxid"] == zxid][0]))
        found = list(tail.read())
        tail.close()
        assert not any(isinstance(item, Broken) for item in found)
        assert [item.zxid for item in found if isinstance(item, Logged)] == own["zxid"][own["zxid"] > zxid].tolist()


def test_a_multi_that_failed_is_no_contradiction(tmp_path: Path) -> None:
    """Records that one server's log lacks are taken from another one, though a multi that failed differs in it."""
    folder = Path(shutil.copytree(FOLDER, tmp_path / "servers"))
    log = folder / "2" / "version-2" / "log.100000001"
    raw = bytearray(log.read_bytes())
    raw[800] ^= 1
    log.write_bytes(raw)
    store = ZooKeeperFiles(folder)
    point = store.point()
    assert (point.txn, point.gaps) == (LAST, ())
    assert not any("not the same" in note for note in point.notes)
    assert _read(store) == VALUES


def test_a_log_of_another_history_is_no_vote(tmp_path: Path) -> None:
    """The header of a multi that failed is compared: with another time it is another transaction, and no proof."""
    folder = Path(shutil.copytree(FOLDER, tmp_path / "servers"))
    shutil.rmtree(folder / "3")
    log = folder / "1" / "version-2" / "log.100000001"
    raw = bytearray(log.read_bytes())
    [entry] = [entry for entry in survey(log).entries if entry["zxid"] == 0x2_0000_0007]
    begun, ends = int(entry["at"]) + 12, int(entry["at"]) + 12 + int(entry["size"])
    raw[begun + 27] ^= 1  # the last byte of the time
    raw[begun - 12 : begun] = frame_of(zlib.adler32(raw[begun:ends]), int(entry["size"]))
    log.write_bytes(raw)
    base = _feed([folder / "1", folder / "2"]).open_base()
    assert isinstance(base, ScannableStore)
    assert base.point().txn == 0x2_0000_0006
