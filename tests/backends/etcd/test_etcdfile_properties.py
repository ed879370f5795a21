"""Whatever bytes stand in a database file of etcd: keys, damage with its place, or one named error; never a hang."""

import hashlib
import tempfile
from typing import Final

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from backends.errors import CorruptStoreError
from backends.etcd.etcdfile import EtcdFile
from backends.protocols import CHANGES, KEYS
from tests.support import paths
from tests.support.mangling import mangled

SNAPSHOT: Final = (paths.DATA / "etcd" / "final.db").read_bytes()
PAGE: Final = 4096


def read(raw: bytes) -> EtcdFile | None:
    """Read all that a file has; None: it says that it can show nothing."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(raw)
        file.flush()
        try:
            opened = EtcdFile(file.name)
        except CorruptStoreError:
            return None
        keys = pa.Table.from_batches(opened.scan("/"), schema=KEYS)
        keys.validate(full=True)
        assert len(set(keys["key"].to_pylist())) == keys.num_rows
        pa.Table.from_batches(opened.history("/"), schema=CHANGES).validate(full=True)
        assert opened.children("/") is not None
        return opened


@given(st.binary(max_size=3 * PAGE))
def test_any_bytes_are_keys_or_a_named_error(raw: bytes) -> None:
    """No bytes make the reader fail otherwise."""
    read(raw)


@given(mangled(SNAPSHOT))
@example(SNAPSHOT[:PAGE])
@example(SNAPSHOT[:-PAGE])
def test_broken_real_bytes_are_never_believed(raw: bytes) -> None:
    """A snapshot that was changed anywhere says so; what can be followed is read."""
    opened = read(raw)
    if opened is not None and raw != SNAPSHOT:
        point = opened.point()
        assert point.gaps or any("write-ahead log" in note for note in point.notes)


@given(mangled(SNAPSHOT[:-32]))
def test_broken_pages_under_a_right_sum_are_read_as_far_as_they_go(raw: bytes) -> None:
    """Also where the sum says that all is well no bytes make the reader fail or go on for ever."""
    body = raw[: len(raw) // 512 * 512]
    read(body + hashlib.sha256(body).digest())
