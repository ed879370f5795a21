"""Any bytes under any name: they are read, their damage is counted, or they are refused with one clear error."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from recovery.errors import InputError
from recovery.inspect.bookie_file import look
from recovery.inspect.file_notes import FileReport
from tests.support import cases

NAMES = (
    "0.log", "1f.log.compacting", "5.idx", "5.idx.rloc", "1a.txn", "lastMark", "lastMark.1", "lastId", "VERSION",
    "DIRTY", "BOOKIE_STATUS", "anything",
)  # fmt: skip
FRONTS = (
    b"", b"BKLO\0\0\0\1", b"BKLE\0\0\0\1", b"BKLG\0\0\0\6", b"BookieMetadataFormatVersion\t3\n",
    b"BookieMetadataFormatVersion\t1\n", b'5\nbookieHost: "b"\n', b"ZKSN",
)  # fmt: skip


def _look(name: str, content: bytes) -> FileReport | None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        try:
            return look(path)
        except InputError:
            return None


@given(st.sampled_from(NAMES), st.sampled_from(FRONTS), st.binary(max_size=2000))
def test_any_bytes_are_read_or_refused(name: str, front: bytes, rest: bytes) -> None:
    """No content of a file ends the program otherwise."""
    found = _look(name, front + rest)
    assert found is None or found.damaged >= len(found.damage)


@given(st.data())
def test_a_real_file_with_a_few_other_bytes_is_still_read(data: st.DataObject) -> None:
    """Bytes overwritten or cut off anywhere in a real file cost what they hit, never the program."""
    bookie = cases.case_dir("c01") / "bookies" / "b0"
    real = [
        next((bookie / "ledgers" / "current").rglob(pattern))
        for pattern in ("*.log", "*.idx", "VERSION", "lastMark", "lastId")
    ]
    path = data.draw(st.sampled_from(real))
    content = bytearray(path.read_bytes()[:20_000])
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=3)):
        content[at] = data.draw(st.integers(0, 255))
    del content[data.draw(st.integers(0, len(content))) :]
    _look(path.name, bytes(content))
