"""Whatever bytes a file has: each of them stands in one stretch; and what a kill leaves at any byte is explained."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from recovery.codecs import entry_log, journal
from recovery.inspect.byte_account import File, account_for
from tests.support.entries import USUAL, records
from tests.support.mangling import mangled

NAMES = ("0.log", "1a.txn", "5.idx", "lastMark", "lastId", "VERSION", "BOOKIE_STATUS", "DIRTY", "notes")
FRONTS = (
    b"",
    b"BKLO\0\0\0\1",
    b"BKLO\0\0\0\2",
    b"BKLE\0\0\0\1",
    b"BKLG\0\0\0\6",
    b'5\nbookieHost: "b"\n',
    b"3\nb\nj\n",
)
WRITTEN = st.lists(records(entry_ids=USUAL), min_size=1, max_size=8)


def _account(name: str, content: bytes) -> File:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        [found] = account_for([path]).named
    assert found.size == len(content) == sum(found.parts.values())
    if not found.more:
        ends = [0, *(region.offset + region.length for region in found.regions)]
        assert ends == [*(region.offset for region in found.regions), len(content)]
    assert found.unexplained <= len(content)
    return found


@given(st.sampled_from(NAMES), st.sampled_from(FRONTS), st.binary(max_size=2000), st.integers(0, 3000))
def test_any_bytes_are_accounted_for_once(name: str, front: bytes, rest: bytes, zeros: int) -> None:
    """Regions follow each other from the first byte to the last, and their parts add up to the file."""
    _account(name, front + bytes(zeros) + rest)


@given(st.data(), WRITTEN, st.booleans())
def test_mangled_files_are_accounted_for_once(data: st.DataObject, written: list[bytes], with_map: bool) -> None:
    """The same of logs and journals with bytes overwritten, cut out or doubled."""
    whole = data.draw(
        st.sampled_from([("0.log", entry_log.encode(written, with_map=with_map)), ("1.txn", journal.encode(written))])
    )
    _account(whole[0], data.draw(mangled(whole[1])))


@given(WRITTEN, st.data())
def test_an_active_log_that_was_killed_at_any_byte_is_explained(written: list[bytes], data: st.DataObject) -> None:
    """Also one that ends inside its header, or inside a record."""
    whole = entry_log.encode(written, with_map=False)
    found = _account("0.log", whole[: data.draw(st.integers(0, len(whole)))])
    assert found.is_whole


@given(WRITTEN, st.sampled_from([2, 3, 4, 5, 6]), st.data())
def test_a_journal_that_was_killed_at_any_byte_is_explained(
    written: list[bytes], version: int, data: st.DataObject
) -> None:
    """From the end of its header on; with reserved space behind a whole batch or none."""
    whole = journal.encode(written, version)
    first = {5: 512, 6: 512}.get(version, 8)
    assert _account("1a.txn", whole[: data.draw(st.integers(first, len(whole)))]).is_whole
    assert _account("1a.txn", whole + bytes(data.draw(st.integers(0, 2000)))).is_whole
