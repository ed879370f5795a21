"""What is not a regular file, has no end, or never lets its library end: read in time, or told as damage."""

import gzip
import os
import shutil
import time
from pathlib import Path

import pytest
import rocksdict

from backends import rocks
from backends.errors import CorruptStoreError
from backends.etcd.etcdfile import EtcdFile
from backends.files import read_bounded
from backends.rocks import open_read_only
from backends.zkfiles import snapshot
from recovery.codecs import entry_log
from recovery.dataset import open_dataset
from recovery.errors import DatasetError, InputError
from recovery.inspect.bookie_file import look as inspect
from recovery.inspect.byte_account import account_for
from tests.simulation.bookie_dir import BookieDir, make_bookie, record, write_journal, write_mark
from tests.support.collecting import look

TERABYTE = 1 << 40
JOURNAL = 0x18BCFE56801
LOOPS = 0x04
"""Flipped in one of these bytes of a manifest, it makes the library loop: found by trying every bit."""


@pytest.fixture
def made(tmp_path: Path) -> BookieDir:
    """A small bookie's folders, journal and mark included."""
    made = make_bookie(tmp_path / "bookie", {5: list(range(20)), 6: [1, 4, 7]})
    write_journal(made, JOURNAL, [record(5, 19)])
    write_mark(made, JOURNAL, 512)
    return made


def paths(made: BookieDir) -> dict[str, Path]:
    """One file of each kind."""
    current = made.ledger_dirs[0] / "current"
    return {
        "log": made.log(),
        "journal": made.journal(JOURNAL),
        "index": made.index(5),
        "mark": current / "lastMark",
        "cookie": current / "VERSION",
    }


@pytest.mark.parametrize("kind", ["log", "journal", "index", "mark", "cookie"])
@pytest.mark.parametrize("odd", ["pipe", "device"])
def test_what_is_no_regular_file_is_damage(kind: str, odd: str, made: BookieDir, tmp_path: Path) -> None:
    """A pipe that nobody writes to is not waited for, a device that never ends is not read; the rest is collected."""
    path = paths(made)[kind]
    path.unlink()
    if odd == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    seen = look(made, tmp_path, bookie_id="10.0.0.1:3181")
    assert str(path) in {row["file"] for row in seen.damage}
    assert seen.bookie["complete"] == (kind == "mark")
    if kind != "log":
        assert seen.entries("index", 6) == [1, 4, 7]


def test_a_cookie_of_a_terabyte_is_not_read(made: BookieDir, tmp_path: Path) -> None:
    """A file that is nearly all hole costs no memory; whose folders these are must then be said."""
    for folder in made.all_dirs:
        os.truncate(folder / "current" / "VERSION", TERABYTE)
    seen = look(made, tmp_path, bookie_id="10.0.0.1:3181")
    assert not seen.bookie["complete"]
    assert any(row["file"].endswith("VERSION") and "more than" in row["detail"] for row in seen.damage)
    with pytest.raises(InputError, match="more bytes"):
        inspect(made.ledger_dirs[0] / "current" / "VERSION")
    account = account_for([made.ledger_dirs[0] / "current" / "VERSION"], lambda *_: None)
    assert account.odd_files == 1


def test_a_log_is_read_as_far_as_locations_reach(
    made: BookieDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that a broken size makes a terabyte long: its entries are there, what is behind them is named."""
    monkeypatch.setattr(entry_log, "LARGEST", made.log().stat().st_size)
    os.truncate(made.log(), TERABYTE)
    seen = look(made, tmp_path)
    assert seen.entries("index", 5) == list(range(20))
    assert ("bad_length", None, True) in seen.reasons()


def test_a_pipe_is_no_database_of_etcd_and_no_manifest(tmp_path: Path) -> None:
    """They are refused by name, and nobody waits for what they may give."""
    os.mkfifo(tmp_path / "snapshot.db")
    with pytest.raises(CorruptStoreError, match="not a regular file"):
        EtcdFile(tmp_path / "snapshot.db")
    os.mkfifo(tmp_path / "manifest.json")
    with pytest.raises(DatasetError, match="not a regular file"):
        open_dataset(tmp_path, "inventory")
    with pytest.raises(OSError, match="more than 10 bytes"):
        read_bounded(__file__, 10)


def test_a_snapshot_that_grows_without_bound_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes that become gigabytes: no snapshot shrinks so much, so its end is not waited for."""
    monkeypatch.setattr("backends.zkfiles.compression._GZIP_FREE", 1 << 20)
    path = tmp_path / "snapshot.100.gz"
    path.write_bytes(gzip.compress(b"ZKSN" + bytes(200 << 20)))
    read = snapshot.read(path)
    assert read.damage is not None
    assert "no snapshot's do" in read.damage.problem
    assert len(read.image) < 100 << 20


def write_database(folder: Path) -> Path:
    """Write a database of three tables; return its manifest."""
    db = rocksdict.Rdict(str(folder), rocksdict.Options(raw_mode=True))
    for table in range(3):
        for n in range(2000):
            db[(table * 2000 + n).to_bytes(8)] = b"v" * 8
        db.flush()
    shutil.copytree(folder, folder.with_name("copy"))
    db.close()
    shutil.rmtree(folder)
    folder.with_name("copy").rename(folder)
    [manifest] = folder.glob("MANIFEST-*")
    return manifest


def test_a_database_that_makes_its_library_loop_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The opening is tried elsewhere, for a while: then it is an error with a name, also when it is asked again."""
    monkeypatch.setattr(rocks, "_TRIAL_S", 0.5)
    manifest = write_database(tmp_path / "db")
    whole = manifest.read_bytes()
    for at in range(48, 64):
        manifest.write_bytes(whole[:at] + bytes([whole[at] ^ LOOPS]) + whole[at + 1 :])
        try:
            with open_read_only(tmp_path / "db"):
                pass
        except CorruptStoreError as error:
            if "does not end" in str(error):
                break
    else:
        pytest.fail("no bit makes the library loop: look for another")
    begun = time.process_time()
    with pytest.raises(CorruptStoreError, match="does not end"), open_read_only(tmp_path / "db"):
        pass
    assert time.process_time() - begun < 0.4
    manifest.write_bytes(whole)
    with open_read_only(tmp_path / "db") as reader:
        assert sum(len(keys) for keys, _ in reader.items()) == 6000


@pytest.mark.parametrize("name", ["000099.sst", "CURRENT", "000099.log"])
def test_a_pipe_among_a_databases_files_is_damage(name: str, tmp_path: Path) -> None:
    """The library would wait for it for ever."""
    write_database(tmp_path / "db")
    (tmp_path / "db" / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / "db" / name)
    with pytest.raises(CorruptStoreError, match="not a regular file"), open_read_only(tmp_path / "db"):
        pass


def test_a_manifest_larger_than_any_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not copied to be tried."""
    manifest = write_database(tmp_path / "db")
    os.truncate(manifest, TERABYTE)
    monkeypatch.setitem(rocks._COPIED, "MANIFEST-", 1 << 20)
    with pytest.raises(CorruptStoreError, match="has more than"), open_read_only(tmp_path / "db"):
        pass
