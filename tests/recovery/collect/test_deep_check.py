"""`collect --deep` on the disks of real bookies: nothing to say of sound ones, and what was broken is named, where."""

import functools
import os
import shutil
import tempfile
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest

from recovery.codecs import entry_log, index_file
from recovery.codecs.entry_log import EntryAt
from recovery.codecs.journal import LastMark, encode_last_mark
from recovery.collect.deep_check import compare as deep_module
from recovery.collect.deep_check.counts import DeepCounts
from recovery.collect.options import CollectOptions, CollectSummary
from recovery.collect.pipeline import collect
from recovery.dataset import open_dataset
from recovery.model.metadata import Digest
from tests.recovery.collect.test_pipeline_golden import BOOKIES, held, options
from tests.support.cases import case_dir, operator, truth
from tests.support.collecting import Row

pytestmark = pytest.mark.long

SOUND = [pair for pair in BOOKIES if pair[1] == 1]
"""One bookie of each case."""
SORTED, INTERLEAVED, DB = ("c01-clean-sorted", 1), ("c02-clean-interleaved", 0), ("c03-clean-db", 1)
ROTATED = ("c09-mixed-db-sorted", 1)


class Deep:
    """What a deep collection found."""

    def __init__(self, asked: CollectOptions, out: Path) -> None:
        self.summary: CollectSummary = collect(
            replace(asked, deep=True), out, now=lambda: datetime.now(UTC), progress=lambda _: None
        )
        assert self.summary.deep is not None
        self.counts: DeepCounts = self.summary.deep
        dataset = open_dataset(out, "inventory")
        assert dataset.manifest["coverage"]["deep"] == asdict(self.counts)
        self.damage: list[Row] = dataset.read("damage").to_pylist()

    def of(self, reason: str) -> list[Row]:
        """The rows of a reason."""
        return [row for row in self.damage if row["reason"] == reason]


def copied(which: tuple[str, int], tmp_path: Path) -> CollectOptions:
    """The options for a copy of a bookie that may be broken."""
    name, bookie = which
    root = tmp_path / "disks"
    known = operator(name)["bookies"][bookie]
    for folder in dict.fromkeys(f for role in ("ledgers", "indexes", "journals") for f in known[role] or ()):
        shutil.copytree(case_dir(name) / folder, root / folder)
    return options(name, bookie, root)


def logs_of(asked: CollectOptions) -> list[Path]:
    """The entry logs with entries, ascending by name."""
    found = [p for folder in asked.ledger_dirs for p in sorted((folder / "current").glob("*.log"))]
    return [log for log in found if records(log)]


def records(log: Path) -> list[EntryAt]:
    """The entries of a log."""
    return [part for part in entry_log.scan(log.read_bytes()) if isinstance(part, EntryAt)]


def with_crc(name: str, log: Path) -> list[EntryAt]:
    """The entries of a log whose digest is a CRC and whose ledger has another entry there."""
    crc = {
        led["ledger"]
        for led in truth(name)["ledgers"]
        if (led["digest"] or led["writer"]["digest"]).upper() in (Digest.CRC32.value, Digest.CRC32C.value)
    }
    found = [at for at in records(log) if at.ledger in crc]
    return [at for at in found if sum(other.ledger == at.ledger for other in found) > 2]


@pytest.mark.parametrize(("name", "bookie"), SOUND)
def test_a_sound_bookie_has_nothing_wrong(name: str, bookie: int, tmp_path: Path) -> None:
    """Whatever compaction, recovery, re-replication and kills left: no digest is wrong, nothing is lost or differs."""
    seen = Deep(options(name, bookie), tmp_path / "out")
    counts = seen.counts
    assert seen.damage == []
    assert (counts.dangling, counts.unindexed, counts.digests_wrong, counts.conflicts) == (0, 0, 0, 0)
    records = counts.digests_right + counts.digests_wrong + counts.not_checkable
    assert records == counts.in_logs + counts.in_journals


@pytest.mark.parametrize("which", [SORTED, INTERLEAVED, DB])
def test_a_flipped_bit_is_found_where_it_is(which: tuple[str, int], tmp_path: Path) -> None:
    """In the payload of an entry with a CRC: one row with its ledger, and the bytes of that record."""
    asked = copied(which, tmp_path)
    log = logs_of(asked)[0]
    at = with_crc(which[0], log)[1]
    data = bytearray(log.read_bytes())
    data[at.position + at.size - 1] ^= 1
    log.write_bytes(data)
    seen = Deep(asked, tmp_path / "out")
    (row,) = seen.of("digest")
    assert (row["file"], row["offset"], row["length"]) == (str(log), at.position - 4, at.size + 4)
    assert (row["ledger"], row["hides_entries"]) == (at.ledger, False)
    assert seen.counts.digests_wrong == 1
    assert not seen.of("conflict"), "a copy that its digest disproves contradicts nothing"
    assert seen.summary.complete


@pytest.mark.parametrize("which", [SORTED, INTERLEAVED, DB])
def test_a_zeroed_range_costs_what_stood_there(which: tuple[str, int], tmp_path: Path) -> None:
    """The range is told, reading goes on behind it, and the slots that pointed there dangle."""
    asked = copied(which, tmp_path)
    log = logs_of(asked)[-1]
    found = with_crc(which[0], log)
    low, high = found[1], found[-2]
    before = {(at.ledger, at.entry) for at in records(log)}
    data = bytearray(log.read_bytes())
    start, end = low.position - 4, min(high.position, low.position + 5000)
    inside = {(at.ledger, at.entry) for at in records(log) if start <= at.position - 4 < end}
    assert 0 < len(inside) < len(before)
    data[start:end] = bytes(end - start)
    log.write_bytes(data)
    sound = Deep(options(*which), tmp_path / "sound").counts
    seen = Deep(asked, tmp_path / "out")
    (row,) = [row for row in seen.damage if row["file"] == str(log) and row["reason"] == "zeros"]
    assert row["offset"] == start
    assert row["offset"] + row["length"] >= end
    lost = sound.in_logs - seen.counts.in_logs
    assert len(inside) <= lost <= len(inside) + 16, "at most the record that the end of the range cut, and few behind"
    assert 0 < seen.counts.dangling <= lost
    assert seen.of("dangling")


def test_a_cut_log_loses_its_end_and_no_more(tmp_path: Path) -> None:
    """A rotated log that was cut is damage; the records before the cut are all read."""
    asked = copied(ROTATED, tmp_path)
    log = next(path for path in logs_of(asked) if entry_log.decode_header(path.read_bytes()).map_offset)
    found = records(log)
    cut = found[len(found) // 2]
    log.write_bytes(log.read_bytes()[: cut.position + 10])
    sound = Deep(options(*ROTATED), tmp_path / "sound").counts
    seen = Deep(asked, tmp_path / "out")
    assert sound.in_logs - seen.counts.in_logs == len(found) - len(found) // 2
    assert {(row["file"], row["offset"]) for row in seen.of("truncated")} >= {(str(log), log.stat().st_size)}
    assert seen.of("dangling")


def test_swapped_logs_are_told_by_name(tmp_path: Path) -> None:
    """Two logs under each other's name: every entry dangles, and both files are named with the id they belong to."""
    asked = copied(DB, tmp_path)
    one, two = logs_of(asked)[:2]
    content = one.read_bytes(), two.read_bytes()
    one.write_bytes(content[1])
    two.write_bytes(content[0])
    seen = Deep(asked, tmp_path / "out")
    told = {Path(row["file"]).name for row in seen.of("misplaced")}
    named = {one.name, two.name}
    assert told
    assert told <= named
    assert seen.counts.elsewhere == seen.counts.dangling > 0
    assert all("at the same places" in row["detail"] for row in seen.of("misplaced"))


def test_entries_that_the_index_lost_are_found_in_the_logs(tmp_path: Path) -> None:
    """Slots that are zero though the log has the entries: counted, told once for the ledger, listed as candidates."""
    asked = copied(INTERLEAVED, tmp_path)
    folders = asked.index_dirs or asked.ledger_dirs
    index = max((p for f in folders for p in (f / "current").glob("*/*/*.idx")), key=filled)
    slots = np.frombuffer(index.read_bytes()[1024:], ">i8").copy()
    gone = np.flatnonzero(slots)[1:4]
    slots[gone] = 0
    index.write_bytes(index.read_bytes()[:1024] + slots.tobytes())
    # Behind the mark the journal would bring them back.
    newest = max(p for f in asked.journal_dirs for p in (f / "current").glob("*.txn"))
    mark = encode_last_mark(LastMark(int(newest.stem, 16), newest.stat().st_size))
    for place in {p for f in asked.ledger_dirs for p in (f / "current").glob("lastMark*")}:
        place.write_bytes(mark)
    seen = Deep(asked, tmp_path / "out")
    (row,) = seen.of("unindexed")
    assert seen.counts.unindexed == 3
    assert row["ledger"] == index_file.ledger_of("/".join(index.parts[-3:]))
    assert "3 entries" in row["detail"]
    assert f"from {gone[0]} on" in row["detail"]
    copies = open_dataset(tmp_path / "out", "inventory").read("copies").to_pylist()
    (listed,) = [c for c in copies if (c["ledger"], c["source"]) == (row["ledger"], "log")]
    assert listed["entries"] == 3


@pytest.mark.parametrize("which", [INTERLEAVED, ("c04-ensemble-changes", 3)])
def test_a_ledger_of_which_the_index_has_no_slot_left_is_told(which: tuple[str, int], tmp_path: Path) -> None:
    """All its slots zeroed: its header is there, so it was not deleted, and what the logs have is not."""
    asked = copied(which, tmp_path)
    for folder in asked.journal_dirs:
        for path in (folder / "current").glob("*.txn"):
            path.unlink()
    for place in {p for f in asked.ledger_dirs for p in (f / "current").glob("lastMark*")}:
        place.unlink()
    index = max((p for f in asked.index_dirs or asked.ledger_dirs for p in f.glob("current/*/*/*.idx")), key=filled)
    many = filled(index)
    index.write_bytes(index.read_bytes()[:1024] + bytes(index.stat().st_size - 1024))
    (row,) = Deep(asked, tmp_path / "out").of("unindexed")
    assert row["ledger"] == index_file.ledger_of("/".join(index.parts[-3:]))
    assert int(row["detail"].split()[0]) >= many


def test_a_bit_of_a_slot_does_not_rename_a_log(tmp_path: Path) -> None:
    """A slot that names a log that is not there: one entry dangles, and where it stands is told."""
    asked = copied(INTERLEAVED, tmp_path)
    index = max((p for f in asked.index_dirs or asked.ledger_dirs for p in f.glob("current/*/*/*.idx")), key=filled)
    data = bytearray(index.read_bytes())
    slot = int(np.flatnonzero(np.frombuffer(data[1024:], ">i8"))[0])
    data[1024 + 8 * slot + 2] ^= 4
    index.write_bytes(data)
    seen = Deep(asked, tmp_path / "out")
    assert not seen.of("misplaced")
    assert {row["ledger"] for row in seen.of("dangling")} == {index_file.ledger_of("/".join(index.parts[-3:])), None}
    assert seen.counts.dangling == seen.counts.elsewhere == 1


def filled(index: Path) -> int:
    """How many slots of an index file name a place."""
    return int(np.count_nonzero(np.frombuffer(index.read_bytes()[1024:], ">i8")))


def test_many_bad_files_of_one_folder_make_its_disk_suspect(tmp_path: Path) -> None:
    """Three index files with overwritten headers: the folder is named, with counts and what to do; two are no sign."""
    for many, suspected in ((2, 0), (3, 1)):
        asked = copied(INTERLEAVED, tmp_path / str(many))
        folders = asked.index_dirs or asked.ledger_dirs
        files = sorted(p for f in folders[:1] for p in (f / "current").glob("*/*/*.idx"))[:many]
        for file in files:
            file.write_bytes(os.urandom(64) + file.read_bytes()[64:])
        rows = Deep(asked, tmp_path / str(many) / "out").of("suspect_disk")
        assert [row["file"] for row in rows] == [str(folders[0] / "current")] * suspected
        assert all("3 of " in row["detail"] and "replace the disk" in row["detail"] for row in rows)


def test_passwords_decide_what_can_be_checked(tmp_path: Path) -> None:
    """Without them HMACs are counted as not checkable, never as wrong; with them they are right."""
    name, bookie = INTERLEAVED
    blind = Deep(replace(options(name, bookie), passwords=()), tmp_path / "blind").counts
    seen = Deep(options(name, bookie), tmp_path / "seen").counts
    assert blind.digests_wrong == seen.digests_wrong == 0
    assert blind.not_checkable > seen.not_checkable
    assert blind.digests_right + blind.not_checkable == seen.digests_right + seen.not_checkable


def test_small_shares_find_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compared in many small parts, with rows set aside on disk at once, everything comes out the same."""
    whole = Deep(options(*SORTED), tmp_path / "whole").counts
    monkeypatch.setattr(deep_module, "_SHARE_BYTES", 256)
    monkeypatch.setattr(deep_module, "_HELD_PER_SHARE", 1)
    monkeypatch.setattr(deep_module, "_CHUNK_BITS", 4)
    parts = Deep(options(*SORTED), tmp_path / "parts")
    assert asdict(parts.counts) == asdict(whole)
    assert parts.damage == []


def copies(asked: CollectOptions, out: Path) -> tuple[Deep, set[tuple[int, int]]]:
    """What a deep collection finds, and the (ledger, entry) pairs that the index serves."""
    return Deep(asked, out), held(open_dataset(out, "inventory"), "index")


@functools.cache
def served(which: tuple[str, int]) -> set[tuple[int, int]]:
    """The pairs that the index of a sound bookie serves."""
    with tempfile.TemporaryDirectory() as folder:
        return copies(options(*which), Path(folder) / "out")[1]


COUNT = int(os.environ.get("BKMETA_SOAK_DEEP", "4"))


@pytest.mark.parametrize("seed", sorted({*range(COUNT), 986, 1493}))
def test_any_flipped_bit_of_an_entry_with_a_crc_is_found(seed: int, tmp_path: Path) -> None:
    """Anywhere in any entry of any bookie: told where it is and whose; no other entry is lost, no other blamed."""
    random = Random(seed)
    which = random.choice(BOOKIES)
    asked = copied(which, tmp_path)
    log = random.choice([path for path in logs_of(asked) if with_crc(which[0], path)])
    at = random.choice(with_crc(which[0], log))
    place = random.randrange(at.position - 4, at.position + at.size)
    data = bytearray(log.read_bytes())
    data[place] ^= 1 << random.randrange(8)
    log.write_bytes(data)
    seen, left = copies(asked, tmp_path / "out")
    assert seen.damage
    assert served(which) - left <= {(at.ledger, at.entry)}
    assert {row["ledger"] for row in seen.damage} <= {None, at.ledger}
    assert not seen.of("misplaced")
    if place >= at.position:
        told = [row for row in seen.damage if (row["file"], row["offset"]) == (str(log), at.position - 4)]
        assert {row["length"] for row in told} == {at.size + 4}
        assert {row["reason"] for row in told} <= {"digest", "bad_value"}
    if place >= at.position + 16:
        (row,) = seen.of("digest")
        assert (row["ledger"], "broken" in row["detail"]) == (at.ledger, False)


def moved(random: Random, log: Path, name: str) -> tuple[bytes, set[tuple[int, int]]]:
    """The log after something happened to whole records or pages, and the entries that it happened to."""
    data = log.read_bytes()
    found = records(log)
    one, other = random.choice(list(pairwise(found)))
    first, second = (data[at.position - 4 : at.position + at.size] for at in (one, other))
    start, end = one.position - 4, other.position + other.size
    page = random.randrange(1024, len(data), 512)
    match name:
        case "swapped":
            changed = data[:start] + second + first + data[end:]
        case "doubled":
            changed = data[:end] + second + data[end:]
            start, end = end, len(data)
        case "taken out":
            changed = data[:start] + data[one.position + one.size :]
            end = len(data)
        case "cut":
            changed, start, end = data[: one.position], one.position, len(data)
        case _:
            start, end = page, min(page + random.choice((512, 4096)), len(data))
            changed = data[:start] + bytes(end - start) + data[end:]
    hit = {(at.ledger, at.entry) for at in found if at.position - 4 < end and at.position + at.size > start}
    return changed, hit


@pytest.mark.parametrize("name", ["swapped", "doubled", "taken out", "cut", "zeroed"])
@pytest.mark.parametrize("seed", sorted({*range(max(2, COUNT // 10)), 29, 130}))
def test_any_record_that_moved_or_went_is_told_and_no_other(seed: int, name: str, tmp_path: Path) -> None:
    """Whatever the index lost is told, with the place where it stands if it does; no other ledger is named."""
    random = Random(seed)
    which = random.choice(BOOKIES)
    asked = copied(which, tmp_path)
    log = random.choice([path for path in logs_of(asked) if len(records(path)) > 1])
    data, hit = moved(random, log, name)
    log.write_bytes(data)
    seen, left = copies(asked, tmp_path / "out")
    lost = served(which) - left
    assert lost <= hit
    assert {row["ledger"] for row in seen.of("dangling")} - {None} == {ledger for ledger, _ in lost}
    assert {row["ledger"] for row in seen.damage} <= {None, *(ledger for ledger, _ in hit)}
    assert seen.counts.dangling >= len(lost)
    assert not seen.of("misplaced"), "one log that broke is not two whose names were swapped"
    if name in ("swapped", "doubled"):
        assert seen.counts.elsewhere == seen.counts.dangling
        here = [row for row in seen.of("dangling") if row["file"].endswith(".log") and "not lost" in row["detail"]]
        assert bool(here) == bool(lost)


def test_a_record_of_another_entry_is_told_where_it_stands(tmp_path: Path) -> None:
    """A record that was written over with a whole one: the log, the entry that is gone, and its place are named."""
    asked = copied(("c01-clean-sorted", 3), tmp_path)
    log = logs_of(asked)[0]
    found = records(log)
    one, other = next((a, b) for a in found for b in found if a.size == b.size and a.ledger != b.ledger)
    data = bytearray(log.read_bytes())
    data[one.position : one.position + one.size] = data[other.position : other.position + other.size]
    log.write_bytes(data)
    seen = Deep(asked, tmp_path / "out")
    (row,) = seen.of("conflict")
    assert (row["file"], row["offset"], row["ledger"]) == (str(log), one.position - 4, None)
    assert f"entry {one.entry} of ledger {one.ledger}" in row["detail"]
    assert seen.counts.replaced == 1


def test_a_broken_copy_of_nobody_is_no_ledgers(tmp_path: Path) -> None:
    """A record of which ids and payload are broken: told where it is, and that its ids may be broken too."""
    asked = copied(SORTED, tmp_path)
    log = logs_of(asked)[0]
    at = with_crc(SORTED[0], log)[1]
    data = bytearray(log.read_bytes())
    data[at.position + 12] ^= 3
    data[at.position + at.size - 1] ^= 1
    log.write_bytes(data)
    seen = Deep(asked, tmp_path / "out")
    (row,) = seen.of("digest")
    assert (row["file"], row["offset"], row["ledger"]) == (str(log), at.position - 4, None)
    assert "may be broken too" in row["detail"]
    assert not seen.of("unindexed")
