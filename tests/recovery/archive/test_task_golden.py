"""Ledgers of real bookies' disks copied into an archive, and read out of it."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recovery.archive import objects
from recovery.archive import task as tasks
from recovery.archive.objects import list_unfinished
from recovery.archive.reader import prove_ledger, read_bytes
from recovery.archive.task import CopyTask
from recovery.codecs.entry_frames import split_frames
from recovery.dataset import read_part
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest
from recovery.model.tables import UNUSED_COPIES
from recovery.out_folder import sync_folder
from tests.support import cases
from tests.support.archives import (
    ALL,
    AT_MS,
    capture_case,
    choose,
    closed_of,
    disks_of,
    list_archived,
    make_task,
    read_payloads,
)

CASES = ("c01-clean-sorted", "c02-clean-interleaved", "c03-clean-db", "c04-ensemble-changes")
DAMAGED = "c02-clean-interleaved"


@pytest.mark.parametrize("name", CASES)
def test_every_closed_ledger_comes_out_as_it_was_written(name: str, tmp_path: Path) -> None:
    """Of each storage, digest and shape: once, every entry with its digest; open ones are left out."""
    catalog = capture_case(name, tmp_path / "catalog")
    answer = make_task(catalog, tmp_path / "place", disks_of(name))(ALL)
    wanted = closed_of(name)
    archived = list_archived(tmp_path / "place")
    assert sorted(item.id for item in archived) == sorted(wanted)
    assert answer["counts"]["copied"] == len(wanted) > 3
    assert answer["counts"]["entries"] == sum(map(len, wanted.values()))
    assert not answer["failed"]
    assert not answer["damaged"]
    for ledger in archived:
        assert read_payloads(tmp_path / "place", ledger) == wanted[ledger.id]
        proof = prove_ledger(tmp_path / "place", ledger)
        assert proof.problem == ""
        # Where nothing could disagree, nothing is proven.
        assert proof.unproven == (proof.entries if ledger.record.digest is Digest.DUMMY else 0)
    again = make_task(catalog, tmp_path / "place", disks_of(name), "run-2")(ALL)
    assert (again["counts"], again["indexes"]) == ({}, [])


def test_objects_have_entries_as_their_bookies_have_them(tmp_path: Path) -> None:
    """A record of an object is a record of some bookie's entry log, header and digest included."""
    catalog = capture_case(DAMAGED, tmp_path / "catalog")
    make_task(catalog, tmp_path / "place", disks_of(DAMAGED))(ALL)
    logs = [path.read_bytes() for path in (cases.case_dir(DAMAGED) / "bookies").rglob("*.log")]
    ledger = max(list_archived(tmp_path / "place"), key=lambda item: item.size)
    data = b"".join(block for _, block in read_bytes(tmp_path / "place", ledger))
    records, end = split_frames(data)
    assert end == len(data) == ledger.size
    assert len(records) == ledger.last_entry + 1
    assert all(any(record in log for log in logs) for record in records)


def damage(bookies: Path, number: int) -> None:
    """Turn the last byte of the payload of each fourth entry in a bookie's logs; ids, header and digest stay."""
    for log in (bookies / f"b{number}").rglob("*.log"):
        raw = bytearray(log.read_bytes())
        for ledger, entries in closed_of(DAMAGED).items():
            for entry in range(0, len(entries), 4):
                at = 0
                ids = struct.pack(">qq", ledger.ledger, entry)
                while (at := raw.find(ids, at)) >= 0:
                    size = struct.unpack_from(">i", raw, at - 4)[0]
                    if 32 < size < 1 << 20 and at + size <= len(raw):
                        raw[at + size - 1] ^= 1
                    at += 1
        log.write_bytes(raw)


def test_damaged_copies_are_passed_over_and_named(tmp_path: Path) -> None:
    """Where another copy is good the ledger is archived from it; a ledger whose copies are all bad is not."""
    bookies = tmp_path / "bookies"
    shutil.copytree(cases.case_dir(DAMAGED) / "bookies", bookies)
    truth = cases.truth(DAMAGED)
    [first, *_] = [b for b in truth["bookies"] if b["present"]]
    damage(bookies, first["n"])
    catalog = capture_case(DAMAGED, tmp_path / "catalog")
    answer = make_task(catalog, tmp_path / "place", disks_of(DAMAGED, bookies))(ALL)
    archived = {item.id for item in list_archived(tmp_path / "place")}
    wanted = closed_of(DAMAGED)
    # Without a second copy an entry is lost; DUMMY has no digest that could show it.
    single = {LedgerId(0, row["ledger"]) for row in truth["ledgers"] if row["W"] == 1}
    assert archived >= wanted.keys() - single
    assert {row["bookie"] for row in answer["damaged"]} == {first["id"]}
    assert answer["unused"][first["id"]]["damaged"] > 3
    for ledger in list_archived(tmp_path / "place"):
        if ledger.record.digest is not None and ledger.record.digest != "DUMMY":
            assert read_payloads(tmp_path / "place", ledger) == wanted[ledger.id]
    [unused] = (tmp_path / "place").rglob("unused/*.parquet")
    rows = read_part(unused.parent, unused.name).cast(UNUSED_COPIES).to_pylist()
    assert {(row["bookie"], row["problem"]) for row in rows} == {(first["id"], "damaged")}
    assert sum(row["entries"] for row in rows) == answer["unused"][first["id"]]["damaged"]


def test_a_ledger_without_a_good_copy_is_not_archived(tmp_path: Path) -> None:
    """Of disks that are not there nothing is known: the ledger is named, and nothing of it is left in an object."""
    truth = cases.truth(DAMAGED)
    row = next(row for row in truth["ledgers"] if (row["E"], row["W"]) == (4, 2) and len(row["entries"]) > 20)
    members = row["segments"][0][1]
    without = {b["n"] for b in truth["bookies"] if b["id"] in members[:2]}
    catalog = capture_case(DAMAGED, tmp_path / "catalog")
    answer = make_task(catalog, tmp_path / "place", disks_of(DAMAGED, without=without))(ALL)
    failed = {item["ledger"]: (item["entry"], item["problem"]) for item in answer["failed"]}
    assert failed[str(row["ledger"])] == (0, "unanswered")
    archived = list_archived(tmp_path / "place")
    assert row["ledger"] not in {item.id.ledger for item in archived}
    sizes = sum(path.stat().st_size for path in (tmp_path / "place").rglob("*.entries"))
    assert sizes == sum(item.size for item in archived)
    # With all disks the same archive gets the rest.
    make_task(catalog, tmp_path / "place", disks_of(DAMAGED), "run-2")(ALL)
    found = sorted(item.id for item in list_archived(tmp_path / "place"))
    assert found == sorted(closed_of(DAMAGED))


class Killed(BaseException):
    """What a process never sees that is killed."""


def leave(writer: objects.ObjectWriter, *_: object) -> None:
    """Clean up nothing, as a process that was killed: its file is there."""
    if writer._object is not None:
        writer._object.sink.close()


def kill_after(count: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have the process end at the so-many-th thing that it does to the disk; return where it is counted."""
    left = [count]

    def wrap(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            return call(*arguments, **named)

        return counted

    monkeypatch.setattr(objects.ObjectWriter, "add", wrap(objects.ObjectWriter.add))
    monkeypatch.setattr(objects.ObjectWriter, "_end_object", wrap(objects.ObjectWriter._end_object))
    monkeypatch.setattr(objects.ObjectWriter, "__exit__", leave)
    monkeypatch.setattr(tasks, "write_index", wrap(objects.write_index))
    return left


@pytest.mark.parametrize("step", [1, 4])
def test_a_run_that_is_killed_anywhere_goes_on(step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed at every few steps of the next run until one ends: every ledger is there, none twice."""
    name = "c03-clean-db"
    catalog = capture_case(name, tmp_path / "catalog")
    monkeypatch.setattr(tasks, "TARGET", 4 << 10)
    place, wanted = tmp_path / "place", closed_of(name)
    kills = 0
    archived: list[LedgerId] = []
    for number in range(1, 200):
        with monkeypatch.context() as patched:
            left = kill_after(number * step, patched)
            task: CopyTask = make_task(catalog, place, disks_of(name), f"run-{number:03d}")
            try:
                task(ALL)
            except Killed:
                kills += 1
            archived = [item.id for item in list_archived(place)]
            assert len(archived) == len(set(archived))
            for file in list_unfinished(place):
                (place / file).unlink()
        if left[0] > 0:
            break
    assert kills >= 2
    assert sorted(archived) == sorted(wanted)
    for ledger in list_archived(place):
        assert read_payloads(place, ledger) == wanted[ledger.id]


def test_a_task_that_is_tried_again_copies_nothing_twice(tmp_path: Path) -> None:
    """Spark tries a task again whose answer was lost: what it wrote is named, and not written again."""
    catalog = capture_case(DAMAGED, tmp_path / "catalog")
    task = make_task(catalog, tmp_path / "place", disks_of(DAMAGED))
    first, second = task(ALL), task(ALL)
    assert first["indexes"] == second["indexes"]
    assert len(list_archived(tmp_path / "place")) == first["counts"]["copied"]


def test_objects_of_an_index_that_is_gone_are_not_taken_for_leftovers(tmp_path: Path) -> None:
    """The list of its run has the index: what is removed before the next run is only what no run ended with."""
    place = tmp_path / "place"
    [file] = make_task(capture_case(DAMAGED, tmp_path / "catalog"), place, disks_of(DAMAGED))(ALL)["indexes"]
    (place / file).unlink()
    objects_there = list_unfinished(place)
    assert objects_there
    listed = place / "runs/run-1/run.json"
    listed.write_text(json.dumps({"indexes": [file]}))
    assert list_unfinished(place) == []
    (place / f"{objects_there[0].rpartition('/')[0]}/0000-0001-00000000-0.entries.tmp").write_bytes(b"")
    assert [name.rpartition("/")[2] for name in list_unfinished(place)] == ["0000-0001-00000000-0.entries.tmp"]
    listed.write_text("{")
    assert list_unfinished(place) == []


def test_each_new_folder_is_on_the_disk_before_its_index_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mark outlives a loss of power, for it is in a store: so must the whole way to the objects."""
    place, synced = tmp_path / "place", set[Path]()

    def note(folder: Path) -> None:
        synced.add(folder)
        sync_folder(folder)

    task = make_task(capture_case(DAMAGED, tmp_path / "catalog"), place, disks_of(DAMAGED))
    monkeypatch.setattr(objects, "sync_folder", note)
    task(ALL)
    run = place / "runs/run-1"
    assert {place, place / "runs", run, run / "entries", run / "index"} <= synced


def test_large_ledgers_are_cut_into_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is larger than an object has several pieces, in objects of its own; small ones share one."""
    name = "c01-clean-sorted"
    monkeypatch.setattr(tasks, "MOST", 8 << 10)
    monkeypatch.setattr(tasks, "TARGET", 4 << 10)
    monkeypatch.setattr(tasks, "_BATCH_BYTES", 1 << 10)
    catalog = capture_case(name, tmp_path / "catalog")
    make_task(catalog, tmp_path / "place", disks_of(name))(ALL)
    archived = list_archived(tmp_path / "place")
    large = [item for item in archived if item.size > 8 << 10]
    assert large
    assert all(len(item.pieces) > 1 for item in large)
    of_others = {piece["object"] for item in archived if item not in large for piece in item.pieces}
    assert not of_others & {piece["object"] for item in large for piece in item.pieces}
    for ledger in archived:
        assert read_payloads(tmp_path / "place", ledger) == closed_of(name)[ledger.id]
        assert prove_ledger(tmp_path / "place", ledger).problem == ""


def test_only_the_chosen_ledgers_are_copied(tmp_path: Path) -> None:
    """Those that are named, and those whose record has not changed for so long."""
    catalog = capture_case(DAMAGED, tmp_path / "catalog")
    task = make_task(catalog, tmp_path / "place", disks_of(DAMAGED))
    named = tuple(sorted(closed_of(DAMAGED))[:2])
    assert choose(task, ledgers=named, older_than_ms=AT_MS)(ALL)["counts"].get("copied", 0) == 0
    assert choose(task, ledgers=named)(ALL)["counts"]["copied"] == len(named)
    assert sorted(item.id for item in list_archived(tmp_path / "place")) == list(named)
