"""Archived copies read back before a delete: a copy that is gone, or another ledger's, never speaks for it."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconcile.deletes.records import ArchiveMark
from reconcile.jobs.archive.sample import prove_sample
from recovery.model.ids import LedgerId
from recovery.model.metadata import LedgerMetadata
from tests.support.archives import ALL, AT_MS, capture_case, disks_of, list_archived, make_task

CASE = "c01-clean-sorted"
Archive = tuple[Path, Mapping[LedgerId, ArchiveMark], Mapping[LedgerId, LedgerMetadata]]


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """An archive, the marks that its run writes, and the store's records."""
    place = tmp_path / "place"
    make_task(capture_case(CASE, tmp_path / "catalog"), place, disks_of(CASE))(ALL)
    archived = list_archived(place)
    marks = {item.id: ArchiveMark(item.id, "run", str(place), f"sha256:{item.sha256}", AT_MS) for item in archived}
    return place, marks, {item.id: item.record for item in archived}


def test_a_copy_of_the_ledger_as_the_store_has_it_is_proven(archive: Archive) -> None:
    """Of a store without its record, the copy is proven by itself."""
    _, marks, records = archive
    for known in (records, {}):
        sample = prove_sample(marks, known, len(marks))
        assert (sample.proven, sample.bad, sample.unread) == (len(marks), {}, {})


def test_a_copy_of_another_end_or_history_is_bad(archive: Archive) -> None:
    """A ledger that was settled further, or its id given out again, since it was archived."""
    _, marks, records = archive
    others = [("last_entry", 1 << 20), ("length", 1 << 40), ("ctime", 1), ("password", b"another")]
    for name, value in others:
        change: dict[str, Any] = {name: value}
        sample = prove_sample(marks, {k: replace(v, **change) for k, v in records.items()}, len(marks))
        assert sample.proven == 0
        assert set(sample.bad.values()) == {"it has another end or history than the store's record"}
        assert sample.bad.keys() == marks.keys()


def test_an_archive_that_is_gone_is_not_taken_for_another_applications_copy(archive: Archive, tmp_path: Path) -> None:
    """Nothing is known of its ledgers; a copy that only another application can read is passed over."""
    place, marks, records = archive
    (place / "archive.json").unlink()
    unread = prove_sample(marks, records, len(marks)).unread
    assert unread.keys() == marks.keys()
    # A mark of another place is kept: archived again alone, the ledger would stay undecided.
    assert all("archive.json is missing" in why and "bkmeta archive unmark" in why for why in unread.values())
    shutil.rmtree(place)
    assert prove_sample(marks, records, len(marks)).unread.keys() == marks.keys()
    place.mkdir()
    assert prove_sample(marks, records, len(marks)).unread.keys() == marks.keys()
    (place / "tape-17").write_text("")
    foreign = [replace(mark, place=where) for mark, where in zip(marks.values(), (str(place), ""), strict=False)]
    foreign.append(replace(foreign[0], ledger=LedgerId(0, 1 << 40), place=str(place / "tape-17")))
    sample = prove_sample({mark.ledger: mark for mark in foreign}, records, len(foreign))
    assert (sample.proven, sample.bad, sample.unread) == (0, {}, {})
