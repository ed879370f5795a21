"""RocksDB folders that are open elsewhere, broken or not there."""

import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import rocksdict

from backends.errors import BackendError, CorruptStoreError, NoSuchStoreError
from backends.rocks import open_read_only

pytestmark = pytest.mark.long

ROWS = 50_000

WRITER = """
    import sys, rocksdict
    db = rocksdict.Rdict(sys.argv[1], rocksdict.Options(raw_mode=True))
    for n in range(1_000):
        db[b"%08d" % n] = b"first"
    print("ready", flush=True)
    for line in sys.stdin:
        for n in range(1_000):
            db[b"%08d" % n] = line.encode()
        db.flush()
        db.compact_range(None, None)
        print("done", flush=True)
    """


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Return a process that has the database `tmp_path/db` open and rewrites it for each line that it gets."""
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITER), str(tmp_path / "db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def write_rows(folder: Path, *, flush: bool) -> None:
    """Write ROWS keys in small batches; without a flush they stay in the write-ahead log."""
    db = rocksdict.Rdict(str(folder), rocksdict.Options(raw_mode=True))
    batch = rocksdict.WriteBatch(raw_mode=True)
    for n in range(ROWS):
        batch[b"%08d" % n] = b"value of %d" % n
        if len(batch) == 1_000:
            db.write(batch)
            batch = rocksdict.WriteBatch(raw_mode=True)
    if flush:
        db.flush()
        db.close()
    else:
        # What a killed process leaves: copied while it is open, since closing may flush.
        for file in folder.iterdir():
            (folder.parent / "killed").mkdir(exist_ok=True)
            (folder.parent / "killed" / file.name).write_bytes(file.read_bytes())
        db.close()


def spoil(file: Path, at: int) -> None:
    """Turn over the bits of one byte."""
    raw = bytearray(file.read_bytes())
    raw[at] ^= 0xFF
    file.write_bytes(raw)


def test_another_process_holds_the_lock(writer: subprocess.Popen[str], tmp_path: Path) -> None:
    """A database that a running process has open and locked is read as its files stand, and its lock is not needed."""
    with open_read_only(tmp_path / "db") as reader:
        assert sum(len(names) for names, _ in reader.items()) == 1_000
        assert reader.get(b"00000007") == b"first"


def test_files_that_come_and_go_do_no_harm(writer: subprocess.Popen[str], tmp_path: Path) -> None:
    """Opened again and again while all is rewritten and compacted, each reading is one whole state."""
    assert writer.stdin is not None
    assert writer.stdout is not None
    for turn in range(10):
        print(f"turn {turn}", file=writer.stdin, flush=True)
        with open_read_only(tmp_path / "db") as reader:
            if turn % 2:
                assert writer.stdout.readline() == "done\n"
            assert sum(len(names) for names, _ in reader.items()) == 1_000
        if not turn % 2:
            assert writer.stdout.readline() == "done\n"


@pytest.mark.parametrize("make", [False, True])
def test_no_database_is_an_error(tmp_path: Path, *, make: bool) -> None:
    """A missing folder, or one that holds something else, is never an empty database."""
    folder = tmp_path / "db"
    if make:
        folder.mkdir()
        (folder / "IDENTITY").write_text("x")
    with pytest.raises(NoSuchStoreError), open_read_only(folder):
        pass
    assert folder.exists() == make


def test_a_broken_block_is_not_the_end(tmp_path: Path) -> None:
    """Where a table cannot be read further the reading fails; it does not end as if there were no more keys."""
    write_rows(tmp_path / "db", flush=True)
    [table] = (tmp_path / "db").glob("*.sst")
    spoil(table, table.stat().st_size // 2)
    with open_read_only(tmp_path / "db") as reader:
        batches = reader.items(100)
        assert next(batches)[0][0] == b"%08d" % 0
        with pytest.raises(CorruptStoreError):
            list(batches)


def read_shares(folder: Path, keys: int) -> Iterator[list[bytes]]:
    """The keys of each share; a share that cannot be read gives none."""
    with open_read_only(folder) as reader:
        for low, high in pairwise([None, *reader.shares(keys, 10, 8), None]):
            try:
                yield [key for names, _ in reader.items(1000, low=low, high=high) for key in names]
            except CorruptStoreError:
                yield []


def test_shares_are_alike_and_hold_every_row(tmp_path: Path) -> None:
    """Every row is in one share, in order, what only the log has too; keys that are spread evenly make shares alike."""
    db = rocksdict.Rdict(str(tmp_path / "db"), rocksdict.Options(raw_mode=True))
    every = []
    for part in range(3):
        for n in range(0, ROWS, 10):
            every.append((3 * n + part).to_bytes(8))
            db[every[-1]] = b"value"
        if part < 2:
            db.flush()
    db.close()
    every.append(b"\xff" * 20)
    db = rocksdict.Rdict(str(tmp_path / "db"), rocksdict.Options(raw_mode=True))
    db[every[-1]] = b"unlike the others"
    shutil.copytree(tmp_path / "db", tmp_path / "killed")
    db.close()
    shares = list(read_shares(tmp_path / "killed", 1000))
    assert [key for share in shares for key in share] == sorted(every)
    assert len(shares) == 10
    assert max(map(len, shares)) <= 3 * min(map(len, shares))


def test_a_broken_block_costs_its_share(tmp_path: Path) -> None:
    """What can be read of a database with a broken block is read: its other shares. It fails where the block is."""
    write_rows(tmp_path / "db", flush=True)
    [table] = (tmp_path / "db").glob("*.sst")
    spoil(table, table.stat().st_size // 2)
    shares = list(read_shares(tmp_path / "db", 5000))
    assert 0 < sum(not share for share in shares) <= len(shares) // 2
    found = [key for share in shares for key in share]
    assert found == sorted({*found})
    assert {*found} < {b"%08d" % n for n in range(ROWS)}


def test_few_rows_are_one_share(tmp_path: Path) -> None:
    """A database that is not worth parting, or holds nothing, has no cuts."""
    write_rows(tmp_path / "db", flush=True)
    rocksdict.Rdict(str(tmp_path / "empty"), rocksdict.Options(raw_mode=True)).close()
    for name in ("db", "empty"):
        with open_read_only(tmp_path / name) as reader:
            assert reader.shares(ROWS, 10, 8) == []


def test_the_very_first_block_may_be_broken(tmp_path: Path) -> None:
    """A database whose first block is unreadable is not taken for an empty one."""
    write_rows(tmp_path / "db", flush=True)
    [table] = (tmp_path / "db").glob("*.sst")
    spoil(table, 50)
    with open_read_only(tmp_path / "db") as reader, pytest.raises(CorruptStoreError):
        list(reader.items())


def test_a_torn_log_is_normal(tmp_path: Path) -> None:
    """A write-ahead log that is cut off gives what stands before the cut, and that is no damage."""
    write_rows(tmp_path / "db", flush=False)
    [log] = (tmp_path / "killed").glob("*.log")
    log.write_bytes(log.read_bytes()[: log.stat().st_size * 2 // 3 + 11])
    with open_read_only(tmp_path / "killed") as reader:
        assert reader.damage is None
        assert 0 < sum(len(names) for names, _ in reader.items()) < ROWS


def test_a_spoilt_log_is_read_around(tmp_path: Path) -> None:
    """A record of the write-ahead log that does not agree with its checksum costs that record only, and is told."""
    write_rows(tmp_path / "db", flush=False)
    [log] = (tmp_path / "killed").glob("*.log")
    spoil(log, log.stat().st_size // 2)
    with open_read_only(tmp_path / "killed") as reader:
        assert reader.damage is not None
        keys = {key for names, _ in reader.items() for key in names}
    assert ROWS - 3_000 <= len(keys) < ROWS
    assert {b"%08d" % 0, b"%08d" % (ROWS - 1)} <= keys


def test_no_flipped_byte_costs_rows_silently(tmp_path: Path) -> None:
    """Wherever one byte of a database is wrong: all rows come, or the damage is told, or the reading fails."""
    write_rows(tmp_path / "whole", flush=True)
    write_rows(tmp_path / "db", flush=False)
    for folder in (tmp_path / "whole", tmp_path / "killed"):
        with open_read_only(folder) as reader:
            whole = list(reader.items())
        for file in sorted(folder.iterdir()):
            for part in range(10):
                if not file.stat().st_size:
                    continue
                at = file.stat().st_size * part // 10
                spoil(file, at)
                try:
                    with open_read_only(folder) as reader:
                        assert reader.damage is not None or list(reader.items()) == whole, (file.name, at)
                except BackendError:
                    pass
                spoil(file, at)


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST-*", "*.sst"])
def test_any_spoilt_file_is_a_named_error(tmp_path: Path, name: str) -> None:
    """Garbage in any of a database's files is an error of ours, never a crash and never fewer rows."""
    write_rows(tmp_path / "db", flush=True)
    [file] = (tmp_path / "db").glob(name)
    file.write_bytes(b"\xff" * file.stat().st_size)
    with pytest.raises(BackendError), open_read_only(tmp_path / "db") as reader:
        list(reader.items())


def test_a_folder_that_the_library_itself_wrote_is_not_touched(tmp_path: Path) -> None:
    """The library writes a file of its own even when it only reads; it is written elsewhere."""
    folder = tmp_path / "db"
    with_rows(folder)
    before = {file.name: (file.stat().st_mtime_ns, file.stat().st_ctime_ns) for file in folder.iterdir()}
    with open_read_only(folder) as reader:
        assert reader.get(b"key") == b"value"
    assert {file.name: (file.stat().st_mtime_ns, file.stat().st_ctime_ns) for file in folder.iterdir()} == before


def with_rows(folder: Path) -> None:
    """Write a database of one row."""
    db = rocksdict.Rdict(str(folder), rocksdict.Options(raw_mode=True))
    db[b"key"] = b"value"
    db.close()
