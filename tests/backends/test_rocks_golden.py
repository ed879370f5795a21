"""RocksDB folders of real bookies are read completely, and stay as they are."""

import struct
from pathlib import Path

import pytest

from backends.rocks import open_read_only
from tests.support.cases import case_dir, copy_of, truth

BOOKIES = ("b0", "b1", "b2", "b3")
KEY = struct.Struct(">qq")


def folder_of(case: Path, bookie: str, name: str) -> Path:
    """Return one of the two databases of a bookie."""
    return case / "bookies" / bookie / "ledgers" / "current" / name


def held_by(bookie: str) -> set[tuple[int, int]]:
    """Return the (ledger, entry) pairs that a bookie was given, by the true placement."""
    [me] = [b["id"] for b in truth("c03")["bookies"] if f"b{b['n']}" == bookie]
    pairs = set()
    for row in truth("c03")["ledgers"]:
        starts = [first for first, _ in row["segments"]] + [row["last"] + 1]
        for (first, members), end in zip(row["segments"], starts[1:], strict=True):
            for entry in range(first, end):
                if me in [members[(entry + n) % row["E"]] for n in range(row["W"])]:
                    pairs.add((row["ledger"], entry))
    return pairs


@pytest.mark.parametrize("bookie", BOOKIES)
def test_every_location_is_seen(bookie: str) -> None:
    """All that was written is there, in order, whether it is only in the write-ahead log (b0, b3) or in both."""
    with open_read_only(folder_of(case_dir("c03"), bookie, "locations")) as reader:
        keys = [key for names, values in reader.items() for key, _ in zip(names, values, strict=True)]
        assert reader.damage is None
    assert keys == sorted(keys)
    assert {KEY.unpack(key) for key in keys} == held_by(bookie)


@pytest.mark.parametrize("batch", [1, 7, 1_000_000])
def test_batches_change_nothing(batch: int) -> None:
    """The same rows come whatever the size of a batch, and a single read gives the same value."""
    folder = folder_of(case_dir("c03"), "b1", "ledgers")
    with open_read_only(folder) as reader:
        rows = [row for names, values in reader.items(batch) for row in zip(names, values, strict=True)]
        assert rows == [row for names, values in reader.items() for row in zip(names, values, strict=True)]
        assert all(reader.get(key) == value for key, value in rows)
        assert reader.get(b"no such key") is None
    assert len(rows) == 19


def test_the_originals_stay_as_they_are(tmp_path: Path) -> None:
    """Names, bytes and times of a folder are the same after it was read; it may be read-only."""
    folder = folder_of(copy_of("c03", tmp_path), "b2", "locations")
    folder.chmod(0o555)

    def state() -> dict[str, tuple[bytes, int, int]]:
        facts = {p.name: (p.read_bytes(), p.stat().st_mtime_ns, p.stat().st_ctime_ns) for p in folder.iterdir()}
        return {**facts, ".": (b"", folder.stat().st_mtime_ns, folder.stat().st_ctime_ns)}

    before = state()
    with open_read_only(folder) as reader:
        assert sum(len(names) for names, _ in reader.items()) == len(held_by("b2"))
        assert state() == before
    assert state() == before
    folder.chmod(0o755)
