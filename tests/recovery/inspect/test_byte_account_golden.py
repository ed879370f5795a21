"""Every byte that real bookies wrote is explained: every file of every case, and what each kind consists of."""

import pytest

from recovery.inspect.byte_account import ROCKSDB, UNKNOWN, account_for
from recovery.inspect.file_kinds import FileKind
from tests.support import cases


@pytest.mark.parametrize("name", cases.NAMES)
def test_no_byte_of_a_real_bookie_is_left_over(name: str) -> None:
    """All files below `bookies/`: none unknown, none with a byte over, and all bytes counted once."""
    folder = cases.case_dir(name) / "bookies"
    found = account_for([folder])
    assert [file.path for file in found.odd] == []
    assert (found.unexplained, found.files[UNKNOWN]) == (0, 0)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert found.files.total() == len(files) > 0
    assert found.bytes.total() == sum(path.stat().st_size for path in files)
    assert {kind: sum(found.parts[kind].values()) for kind in found.files} == dict(found.bytes)
    assert found.parts[FileKind.JOURNAL]["entries"] or found.parts[FileKind.JOURNAL]["master keys"]
    assert (ROCKSDB in found.files) == any(path.name == "CURRENT" for path in files)


def test_a_maps_bytes_and_a_fence_are_told_apart() -> None:
    """What real bookies seldom write stands in the account by its name: ledgers maps, fences, explicit LACs."""
    assert account_for([cases.case_dir("c09") / "bookies"]).parts[FileKind.LOG]["ledgers maps"]
    parts = account_for([cases.case_dir("c05") / "bookies"]).parts
    assert all(parts[FileKind.JOURNAL][what] for what in ("fences", "explicit LACs"))
    assert parts[FileKind.INDEX]["explicit LAC"]
