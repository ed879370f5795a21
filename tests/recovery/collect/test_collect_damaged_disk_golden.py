"""A real bookie's disk with its index and a log damaged: each damage costs what it touches, and the loss is said."""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from recovery.codecs import entry_log, index_file
from recovery.collect.pipeline import collect
from recovery.dataset import Dataset, open_dataset
from tests.recovery.collect.test_pipeline_golden import held, options
from tests.support.cases import case_dir, operator

CASE: Final = "c02-clean-interleaved"


def collected(root: Path, out: Path) -> Dataset:
    """The inventory of the first bookie, its folders below `root`."""
    collect(options(CASE, 0, root), out, now=lambda: datetime(2030, 1, 1, tzinfo=UTC), progress=lambda _: None)
    return open_dataset(out, "inventory")


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A copy of the case, to be damaged."""
    return Path(shutil.copytree(case_dir(CASE), tmp_path / "case"))


def indexes(root: Path) -> dict[int, Path]:
    """The index file of each ledger that has whole slots on two pages or less, largest ledgers first."""
    known = operator(CASE)["bookies"][0]
    folders = known["indexes"] or known["ledgers"]
    found = {int(path.stem, 16): path for folder in folders for path in sorted((root / folder).rglob("*.idx"))}
    return dict(sorted(found.items(), key=lambda one: -one[1].stat().st_size))


def test_five_damages_of_a_real_disk_cost_only_what_they_touch(disk: Path, tmp_path: Path) -> None:
    """No bytes, another magic, header version 7, a cut last page, garbage in a log: five typed findings with a place.

    Every other ledger is as complete as before; what the damaged indexes listed is found in the logs, as far as it is
    there; the bookie is not called complete, and the bytes that were passed over are counted.
    """
    before = collected(disk, tmp_path / "before")
    assert before.read("bookies")["complete"].to_pylist() == [True]
    longest = list(indexes(disk).items())[:4]
    (empty, none), (odd, magic), (future, version), (short, cut) = longest
    none.write_bytes(b"")
    magic.write_bytes(b"XXXX" + magic.read_bytes()[4:])
    version.write_bytes(version.read_bytes()[:4] + (7).to_bytes(4, "big") + version.read_bytes()[8:])
    slots = (cut.stat().st_size - index_file.HEADER_SIZE) // 8
    listed = {entry for ledger, entry in held(before, "index") if ledger == short}
    keep = sorted(listed)[len(listed) // 2]
    cut.write_bytes(cut.read_bytes()[: index_file.HEADER_SIZE + 8 * keep + 3])
    assert keep < slots
    logs = sorted(path for path in disk.rglob("*.log") if path.stat().st_size > entry_log.HEADER_SIZE)
    known = operator(CASE)["bookies"][0]
    [log, *_] = [path for path in logs if any(path.is_relative_to(disk / folder) for folder in known["ledgers"])]
    garbage = b"\x00\x00\x01\x00" + b"\xde\xad\xbe\xef" * 64
    log.write_bytes(log.read_bytes() + garbage)
    after = collected(disk, tmp_path / "after")
    damage = after.read("damage").to_pylist()
    reasons = {(row["reason"], row["ledger"]) for row in damage if row["reason"] != "suspect_disk"}
    assert reasons >= {("empty", empty), ("bad_magic", odd), ("bad_version", future), ("truncated", short)}
    [in_log] = [row for row in damage if row["file"].endswith(log.name)]
    assert (in_log["reason"], in_log["ledger"], in_log["hides_entries"]) == ("bad_value", None, True)
    assert all(row["offset"] is not None for row in damage if row["reason"] in ("bad_magic", "bad_version"))
    touched = {empty, odd, future, short}
    sources = ("index", "log", "journal")
    assert {one for one in held(after, *sources) if one[0] not in touched} == {
        one for one in held(before, *sources) if one[0] not in touched
    }
    assert {one for one in held(after, *sources) if one[0] in touched} == {
        one for one in held(before, *sources) if one[0] in touched
    }
    rows = after.read("copies").to_pylist()
    assert not any(row["complete"] for row in rows if row["ledger"] in touched)
    assert all(row["complete"] for row in rows if row["ledger"] not in touched)
    [bookie] = after.read("bookies").to_pylist()
    assert not bookie["complete"]
    assert sum(folder["unread"] for folder in bookie["dirs"]) >= len(garbage)
