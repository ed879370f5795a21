"""Marks are of what an archive has: none is written, or left, of a ledger whose objects are gone or another one's."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from backends.protocols import Write
from reconcile.deletes.own_root import make_own_root, open_log
from reconcile.deletes.packed import PackedDecision
from reconcile.jobs.archive.copy_marks import CopyMarks, list_ids
from recovery.archive.objects import list_indexes
from recovery.archive.reader import read_index
from recovery.model.ids import LedgerId
from tests.support.archives import ALL, AT_MS, capture_case, disks_of, make_task
from tests.support.memory_store import MemoryStore

CASE = "c01-clean-sorted"
ROOT = "/ledgers"
COLUMNS = ("scope", "ledger", "sha256", "pieces")


def clock() -> datetime:
    """Return some time."""
    return datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def marks(tmp_path: Path) -> Iterator[CopyMarks]:
    """Marks of a store in memory, of an archive of a case."""
    place = tmp_path / "place"
    make_task(capture_case(CASE, tmp_path / "catalog"), place, disks_of(CASE))(ALL)
    store = MemoryStore()
    store.write([Write(f"{ROOT}/x", b"")])
    with open_log(tmp_path / "journal", store, ROOT, clock) as log:
        yield CopyMarks(make_own_root(store, ROOT, log), log, "run", place)


def read_rows(marks: CopyMarks) -> pa.Table:
    """Return what the archive's indexes name."""
    return pa.concat_tables([read_index(marks.place, index, COLUMNS) for index in list_indexes(marks.place)])


def list_marked(marks: CopyMarks, rows: pa.Table) -> set[LedgerId]:
    """Return the ledgers that have a mark."""
    return set(marks.own.archive.read_some(list_ids(rows)))


def test_ledgers_whose_objects_are_there_are_marked_once(marks: CopyMarks) -> None:
    """Written again, nothing changes; a mark of another place stays."""
    rows = read_rows(marks)
    ledgers = list_ids(rows)
    done = marks.write(rows, AT_MS)
    assert (done.marked, done.elsewhere, done.unmarked, done.lacking) == (len(ledgers), 0, 0, ())
    assert marks.write(rows, AT_MS).marked == 0
    own = marks.own.archive.read_some(ledgers)[ledgers[0]]
    for of_other_bytes in (
        replace(own, checksum="sha256:00"),
        replace(own, checksum="sha256:00", place="s3://another"),
    ):
        marks.own.archive.change(ledgers[:1], lambda *_, other=of_other_bytes: PackedDecision(other), marks.log, rows=1)
        done = marks.write(rows, AT_MS)
        is_own = of_other_bytes.place == own.place
        assert (done.marked, done.elsewhere) == (int(is_own), int(not is_own))
        assert marks.own.archive.read_some(ledgers)[ledgers[0]] == (own if is_own else of_other_bytes)
    elsewhere = replace(own, place="s3://another")
    marks.own.archive.change(ledgers[:1], lambda *_: PackedDecision(elsewhere), marks.log, rows=1)
    done = marks.write(rows, AT_MS)
    assert (done.marked, done.elsewhere) == (0, 1)
    assert marks.remove(ledgers) == len(ledgers) - 1
    assert list_marked(marks, rows) == {ledgers[0]}


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_ledger_whose_objects_are_gone_or_too_short_has_no_mark(marks: CopyMarks, is_cut: bool) -> None:
    """Whatever the index says: it is not marked, and a mark that it has is removed."""
    rows = read_rows(marks)
    marks.write(rows, AT_MS)
    pieces = [(max(own, key=lambda piece: piece["offset"]) if own else None) for own in rows["pieces"].to_pylist()]
    last = max((piece for piece in pieces if piece), key=lambda piece: (piece["object"], piece["offset"]))
    file = marks.place / last["object"]
    assert isinstance(file, Path)
    if is_cut:
        with file.open("r+b") as sink:
            sink.truncate(last["offset"] + last["size"] - 1)
        lost = {ledger for ledger, own in zip(list_ids(rows), pieces, strict=True) if own is last}
    else:
        file.unlink()
        lost = {
            ledger
            for ledger, own in zip(list_ids(rows), rows["pieces"].to_pylist(), strict=True)
            if any(piece["object"] == last["object"] for piece in own)
        }
    assert lost
    for unmarked in (len(lost), 0):
        done = marks.write(rows, AT_MS)
        assert (done.marked, done.unmarked, set(done.lacking)) == (0, unmarked, lost)
        assert list_marked(marks, rows) == set(list_ids(rows)) - lost
