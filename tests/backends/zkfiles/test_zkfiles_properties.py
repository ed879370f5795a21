"""Whatever bytes stand in a ZooKeeper's folder: keys, damage with its place, or one named error; never a hang."""

import os
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backends.errors import BackendError, CorruptStoreError, UnsupportedStoreError
from backends.protocols import CHANGES, KEYS, StorePoint
from backends.zkfiles import snapshot, txnlog
from backends.zkfiles.records import MalformedError, decode
from backends.zkfiles.store import At, ZooKeeperFiles, parse_at
from tests.support import paths
from tests.support.mangling import mangled

DATA: Final = paths.DATA / "zookeeper"
FILES: Final = sorted(path for path in DATA.glob("*/version-2/*.*") if path.stat().st_size < 20_000)
SNAPSHOTS: Final = [path for path in FILES if path.name.startswith("snapshot")]
LOGS: Final = [path for path in FILES if path.name.startswith("log")]
SEALED: Final = 3335 - 54
"""Where the first seal of the snapshot of v39-plain ends."""
FOLDERS: Final = ("v39-plain", "v34-snapshot", "v39-snappy", "crafted-orphan", "v34-logs-only")


def _resealed(image: bytes) -> bytes:
    """Return an image of a 3.4 snapshot with a right checksum at its end."""
    end = b"\0\0\0\x01/"
    body = image[: image.rfind(end, 0, -18) + 5] if image.rfind(end, 0, -18) >= 0 else image + end
    return body + struct.pack(">q", zlib.adler32(body)) + end


def _framed(payloads: list[bytes]) -> bytes:
    """Return a log of records with right checksums."""
    records = (struct.pack(">qi", zlib.adler32(data), len(data)) + data + b"B" for data in payloads)
    return struct.pack(">4siq", b"ZKLG", 2, 0) + b"".join(records)


def _payloads(path: Path) -> list[bytes]:
    raw = path.read_bytes()
    return [raw[at + 12 : at + 12 + size] for at, size in txnlog.survey(path).entries[["at", "size"]].tolist()]


def _read(folder: Path, at: At | None = None) -> StorePoint | None:
    """Read all that a store has; None: it says that it can show nothing."""
    store = ZooKeeperFiles(folder, point=at)
    try:
        point = store.point()
    except (CorruptStoreError, UnsupportedStoreError):
        return None
    keys = pa.Table.from_batches(store.scan("/"), schema=KEYS)
    keys.validate(full=True)
    pa.Table.from_batches(store.history("/"), schema=CHANGES).validate(full=True)
    for key in keys["key"].to_pylist()[:20]:
        assert store.get(key) is not None
        store.children(key)
    assert all((*point.gaps, *point.notes))
    return point


def _put(path: Path, raw: bytes) -> None:
    path.write_bytes(raw)


def _with(folder: Path, change: Callable[[Path], None], at: At | None = None) -> StorePoint | None:
    with tempfile.TemporaryDirectory() as made:
        copy = Path(shutil.copytree(folder, Path(made, "copy")))
        change(copy)
        return _read(copy, at)


def _below(change: Callable[[Path], None]) -> Callable[[Path], None]:
    return lambda copy: change(copy / "version-2")


@given(st.sampled_from(SNAPSHOTS).flatmap(lambda path: st.tuples(st.just(path.name), mangled(path.read_bytes()))))
def test_any_snapshot_is_nodes_or_damage(case: tuple[str, bytes]) -> None:
    """A mangled snapshot is read up to its damage, which has a place; an unharmed one has none."""
    name, raw = case
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(raw)
        found = snapshot.read(path)
        rows = sum(len(window.tail) for window in found.windows())
        assert rows == found.nodes
        found.look(digest=True)
        original = any(raw == one.read_bytes() for one in SNAPSHOTS)
        assert (found.damage is None) or not original
        if found.damage is not None:
            assert 0 <= found.damage.offset <= len(found.image)


@given(st.sampled_from(LOGS).flatmap(lambda path: st.tuples(st.just(path), mangled(path.read_bytes()))))
def test_any_log_is_records_or_damage(case: tuple[Path, bytes]) -> None:
    """Every record before the first changed byte is found in a mangled log, and none is taken that is not whole."""
    original, raw = case
    real = original.read_bytes()
    same = next((n for n, (a, b) in enumerate(zip(raw, real, strict=False)) if a != b), min(len(raw), len(real)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, original.name)
        path.write_bytes(raw)
        found = txnlog.survey(path)
        whole = txnlog.survey(original).entries
        untouched = whole[whole["at"] + whole["size"] + 13 <= same]
        assert found.entries[: len(untouched)].tolist() == untouched.tolist()
        for at, size, crc in found.entries[["at", "size", "crc"]].tolist():
            assert zlib.adler32(raw[at + 12 : at + 12 + size]) == crc
        assert found.end <= len(raw)


@given(st.binary(max_size=300))
@example(b"")
@example(b"ZKSN")
@example(b"ZKLG\0\0\0\2" + bytes(8) + bytes(7) + b"\1\x7f\xff\xff\xff" + bytes(40))
@example(b"ZKSN\0\0\0\2" + bytes(8) + b"\x7f\xff\xff\xff" + bytes(40))
@example(b"ZKSN\0\0\0\2" + bytes(8) + bytes(8) + b"\x7f\xff\xff\xff" + bytes(80))
@example(b"ZKSN\0\0\0\2" + bytes(8) + bytes(8) + bytes(4) + b"\x7f\xff\xff\xff" + bytes(80))
@example(b"\x82SNAPPY\0" + bytes(8) + b"\x7f\xff\xff\xff" + b"\xff\xff\xff\xff\x0f")
@example(b"\x82SNAPPY\0" + bytes(8) + b"\0\0\0\5" + b"\xff\xff\xff\xff\x0f")
@example(b"\x1f\x8b\x08" + bytes(20))
def test_any_bytes_are_a_file(raw: bytes) -> None:
    """A file of any bytes, under any of the names, is read or refused by name; no size in it is believed."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("snapshot.5", "snapshot.5.gz", "snapshot.5.snappy", "log.1", "copied"):
            Path(folder, name).write_bytes(raw)
            with suppress(BackendError):
                _read(Path(folder, name))
        with suppress(BackendError):
            _read(Path(folder))


@given(st.sampled_from(LOGS).flatmap(lambda path: st.sampled_from(_payloads(path)).flatmap(mangled)))
def test_any_payload_is_a_transaction_or_not(raw: bytes) -> None:
    """What a record holds is understood, or refused with the place inside it."""
    refused = None
    try:
        decode(raw)
    except MalformedError as error:
        refused = error
    assert refused is None or (0 <= refused.at <= len(raw) and refused.problem)


@given(st.data())
def test_a_folder_with_one_mangled_file_still_answers(data: st.DataObject) -> None:
    """Whichever file of a folder is hit, the store shows a point in time with its gaps, or says that it cannot."""
    folder = DATA / data.draw(st.sampled_from(FOLDERS))
    files = sorted(path.name for path in (folder / "version-2").iterdir())
    name = data.draw(st.sampled_from(files))
    raw = data.draw(mangled((folder / "version-2" / name).read_bytes()))
    at = data.draw(st.none() | st.builds(At, zxid=st.integers(0, 80)) | st.builds(At, ms=st.integers(0, 1 << 41)))
    _with(folder, lambda copy: _put(copy / "version-2" / name, raw), at)


@given(st.data())
def test_right_checksums_over_odd_content(data: st.DataObject) -> None:
    """Content that no server writes is damage or a gap, too, where its checksums are right."""
    payloads = _payloads(DATA / "v39-plain" / "version-2" / "log.1")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(payloads) - 1))
        match data.draw(st.sampled_from(["mangle", "double", "drop", "swap"])):
            case "mangle":
                payloads[at] = data.draw(mangled(payloads[at]))
            case "double":
                payloads.insert(at, payloads[at])
            case "drop":
                payloads.pop(at)
            case _:
                payloads[at], payloads[-1] = payloads[-1], payloads[at]
    old = (DATA / "v34-snapshot" / "version-2" / "snapshot.42").read_bytes()
    image = _resealed(data.draw(mangled(old)))
    with tempfile.TemporaryDirectory() as made:
        Path(made, "log.1").write_bytes(_framed([one for one in payloads if one]))
        Path(made, "snapshot.0").write_bytes(image)
        with suppress(CorruptStoreError):
            _read(Path(made))


@given(st.text(max_size=40))
@example("0x")
@example("12:00")
@example("9223372036854775808")
@example("0001-01-01T00:00:00+14:00")
def test_any_point_in_time_is_read_or_refused(text: str) -> None:
    """A zxid, a time, or a refusal in words."""
    try:
        at = parse_at(text)
    except ValueError:
        return
    assert (at.zxid is None) != (at.ms is None)


@pytest.mark.parametrize("cut", range(0, 3336, 97))
def test_a_snapshot_that_was_cut_shows_what_was_before(cut: int, tmp_path: Path) -> None:
    """Alone and cut anywhere, a snapshot's first nodes are shown, with a gap; another that serves is preferred."""
    whole = (DATA / "v39-plain" / "version-2" / "snapshot.28").read_bytes()
    (tmp_path / "snapshot.28").write_bytes(whole[:cut])
    with suppress(CorruptStoreError):
        store = ZooKeeperFiles(tmp_path)
        point = store.point()
        # Behind the first seal all nodes are proven: what is cut there costs checks, and is a note.
        assert any("snapshot.28" in line for line in (point.gaps if cut < SEALED else point.notes))
        every = pa.Table.from_batches(ZooKeeperFiles(DATA / "v39-plain").scan("/"), schema=KEYS)
        cut_off = pa.Table.from_batches(store.scan("/"), schema=KEYS)
        assert set(cut_off["key"].to_pylist()) <= {*every["key"].to_pylist(), "/m/b"}

    def change(copy: Path) -> None:
        (copy / "version-2" / "snapshot.28").write_bytes(whole[:cut])

    shown = _with(DATA / "v39-plain", change)
    assert shown is not None
    assert (shown.txn, shown.gaps) == (0x2D, ())
    assert any("snapshot.28" in note for note in shown.notes)


def test_links_pipes_and_odd_names_are_listed_and_not_read(tmp_path: Path) -> None:
    """What is not a regular file under a server's name is a note: no link is followed, and no pipe is waited for."""
    copy = Path(shutil.copytree(DATA / "v39-plain", tmp_path / "a"))
    there = copy / "version-2"
    os.mkfifo(there / "log.2")
    (there / "snapshot.2a").symlink_to(there / "snapshot.28")
    (there / "log.1.bak").write_bytes(b"x")
    (there / "snapshot.30.tmp").write_bytes(b"x")
    (there / "snapshot.FF").write_bytes(b"x")
    (there / "log.ffffffffffffffff").write_bytes(b"x")
    (there / os.fsdecode(b"log.\xff")).write_bytes(b"x")
    (copy / "loop").symlink_to(copy)
    point = _read(tmp_path)
    assert point is not None
    assert (point.txn, point.gaps) == (0x2D, ())
    for name in ("log.2", "snapshot.2a", "log.1.bak", "snapshot.30.tmp", "snapshot.FF", "log.\\xff", "loop"):
        assert any(f"/{name} " in note for note in point.notes), name


def test_what_cannot_be_read_and_would_matter_is_a_gap(tmp_path: Path) -> None:
    """A log or a snapshot of a later state that cannot be used is missing from what is shown, and that is said."""
    raw = (DATA / "v39-plain" / "version-2" / "log.29").read_bytes()

    def pipe(there: Path) -> None:
        os.mkfifo(there / "log.2e")

    def link(there: Path) -> None:
        (there / "log.2e").symlink_to("log.1")

    def other(there: Path) -> None:
        (there / "log.2e").write_bytes(b"no log at all")

    def newer(there: Path) -> None:
        (there / "snapshot.40").write_bytes(b"ZKSN")

    def flipped(there: Path) -> None:
        (there / "log.29").write_bytes(raw[:400] + bytes([raw[400] ^ 1]) + raw[401:])

    def headless(there: Path) -> None:
        (there / "log.29").write_bytes(b"x" + raw[1:])

    for change, txn, word in (
        (pipe, 0x2D, "log.2e at byte 0"),
        (link, 0x2D, "symbolic link"),
        (other, 0x2D, "no header"),
        (newer, 0x2D, "snapshot.40 is of a later state"),
        (flipped, 0x2C, "log.29 at byte"),
        (headless, 0x28, "log.29 at byte 0"),
    ):
        point = _with(DATA / "v39-plain", _below(change))
        assert point is not None
        assert point.txn == txn
        assert any(word in gap for gap in point.gaps), (word, point)
