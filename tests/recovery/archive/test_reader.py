"""What proves an archived ledger, and what is missing of it: a mark that lets a ledger be deleted rests on both."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from recovery.archive.objects import list_indexes
from recovery.archive.reader import (
    ArchivedLedger,
    find_lacking,
    find_ledger,
    prove_ledger,
    read_index,
    read_known,
    read_records,
)
from recovery.errors import DatasetError
from recovery.model.ids import BUCKETS, LedgerId
from recovery.model.metadata import Digest
from recovery.model.tables import ARCHIVED
from tests.support.archives import ALL, capture_case, disks_of, list_archived, make_task

CASE = "c01-clean-sorted"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of a case."""
    folder = tmp_path_factory.mktemp("archive")
    make_task(capture_case(CASE, folder / "catalog"), folder / "place", disks_of(CASE))(ALL)
    return folder / "place"


@pytest.fixture
def ledger(place: Path) -> ArchivedLedger:
    """A ledger of some entries, in one piece."""
    return next(one for one in list_archived(place) if one.last_entry > 2 and len(one.pieces) == 1)


def piece(name: str, offset: int, size: int) -> dict[str, Any]:
    """Return a piece of an object."""
    return {"object": name, "offset": offset, "size": size, "first": 0, "last": 0, "sha256": ""}


@pytest.mark.parametrize(
    ("pieces", "is_lacking"),
    [
        ([], False),
        ([("whole", 0, 10)], False),
        ([("whole", 4, 6)], False),
        ([("whole", 4, 7)], True),
        ([("whole", 0, 11)], True),
        ([("gone", 0, 1)], True),
        ([("folder", 0, 0)], True),
        ([("gone", 0, 0)], True),
        ([("empty", 0, 0)], False),
        ([("empty", 0, 1)], True),
        ([("whole", 0, 10), ("gone", 0, 1)], True),
        ([("gone", 0, 1), ("whole", 0, 10)], True),
    ],
)
def test_a_ledger_lacks_what_no_object_is_long_enough_for(
    pieces: list[tuple[str, int, int]], is_lacking: bool, tmp_path: Path
) -> None:
    """Any piece of it; of one whose object ends where it ends nothing is lacking. The ledgers beside it are whole."""
    (tmp_path / "whole").write_bytes(bytes(10))
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    column = [[piece("whole", 0, 10)], [piece(*one) for one in pieces], [], [piece("whole", 9, 1)]]
    rows = pa.table({"pieces": pa.array(column, ARCHIVED.field("pieces").type)})
    assert find_lacking(tmp_path, rows).tolist() == [False, is_lacking, False, False]


def test_of_no_ledgers_none_lacks_anything(tmp_path: Path) -> None:
    """Nor of those that have no entries."""
    columns: list[list[list[Any]]] = [[], [[], []]]
    for column in columns:
        rows = pa.table({"pieces": pa.array(column, ARCHIVED.field("pieces").type)})
        assert find_lacking(tmp_path, rows).tolist() == [False] * len(column)


def cut(ledger: ArchivedLedger, *ends: tuple[int, int]) -> ArchivedLedger:
    """Return a ledger whose pieces have these entries, as its index would say it."""
    return replace(ledger, pieces=tuple(dict(ledger.pieces[0]) | {"first": a, "last": b} for a, b in ends))


def test_each_entry_is_in_one_piece(place: Path, ledger: ArchivedLedger) -> None:
    """From the first to the last of its record; what is in none, or twice, is named before anything is read."""
    end = ledger.last_entry
    assert prove_ledger(place, ledger).problem == ""
    for ends, problem in (
        (((1, end),), "entry 0 is in none of its pieces"),
        (((0, 0), (2, end)), "entry 1 is in none of its pieces"),
        (((0, 1), (1, end)), "entry 2 is in none of its pieces"),
        (((0, -1),), "entry 0 is in none of its pieces"),
        (((0, end - 1),), f"its pieces end with entry {end - 1}, its record with {end}"),
        (((0, end + 1),), f"its pieces end with entry {end + 1}, its record with {end}"),
        ((), f"its pieces end with entry -1, its record with {end}"),
    ):
        assert prove_ledger(place, cut(ledger, *ends)).problem == problem


def test_every_ledger_is_proven_as_it_was_written(place: Path) -> None:
    """With all its entries, and all bytes of them; those without a digest are unproven, and no others."""
    for one in list_archived(place):
        proof = prove_ledger(place, one)
        assert (proof.ledger, proof.problem, proof.entries, proof.size) == (one.id, "", one.last_entry + 1, one.size)
        assert proof.unproven == (proof.entries if one.record.digest is Digest.DUMMY else 0)


@pytest.mark.parametrize(
    ("changes", "problem", "is_unproven"),
    [
        ({"sha256": "0" * 64}, "its bytes are other ones than were written", False),
        ({"piece": {"sha256": "0" * 64}}, "has other bytes of it than were written", False),
        ({"record": {"password": b"another"}}, "the digest of entry 0 does not agree", False),
        ({"record": {"digest": Digest.DUMMY}}, "", True),
        ({"id": LedgerId(0, 1 << 40)}, "does not have the entries of ledger", False),
        ({"piece": {"size": -1}}, "does not have the entries of ledger", False),
    ],
)
def test_other_bytes_are_no_proof(
    changes: dict[str, Any], problem: str, is_unproven: bool, place: Path, ledger: ArchivedLedger
) -> None:
    """Than those that the index, or the record, say: each by itself."""
    own = dict(ledger.pieces[0])
    ends_early = changes.get("piece", {}).get("size") == -1
    own |= {"size": own["size"] - 1} if ends_early else changes.get("piece", {})
    record = replace(ledger.record, **changes.get("record", {}))
    if "password" in changes.get("record", {}):
        record = replace(record, digest=Digest.HMAC)
    other = replace(ledger, pieces=(own,), record=record, id=changes.get("id", ledger.id))
    proof = prove_ledger(place, replace(other, sha256=changes.get("sha256", ledger.sha256)))
    assert problem in proof.problem
    assert bool(proof.problem) == bool(problem)
    assert (proof.unproven > 0) == is_unproven


def test_entries_are_read_from_one_to_another(place: Path, ledger: ArchivedLedger) -> None:
    """Those in between and both ends, each once; nothing where there is nothing between."""

    def read(*span: int | None) -> list[int]:
        return [number + at for number, some in read_records(place, ledger, *span) for at in range(len(some))]  # type: ignore[arg-type]  # first and last

    end = ledger.last_entry
    assert read() == read(0) == read(0, end) == read(0, end + 5) == list(range(end + 1))
    assert read(1, 2) == [1, 2]
    assert read(end, end) == [end]
    assert read(end + 1) == read(2, 1) == []


def test_a_ledger_is_found_by_its_id(place: Path, ledger: ArchivedLedger) -> None:
    """And by its scope; one that is not there is none."""
    assert find_ledger(place, ledger.id) == ledger
    assert find_ledger(place, LedgerId(0, 1 << 40)) is None
    assert find_ledger(place, LedgerId(1, ledger.id.ledger)) is None


def test_indexes_are_read_by_their_buckets(place: Path, ledger: ArchivedLedger, tmp_path: Path) -> None:
    """Of those that are asked for, both ends as they are said; a file that was altered is none of them."""
    indexes, bucket = list_indexes(place), ledger.id.bucket

    def read(start: int, stop: int) -> set[LedgerId]:
        rows = read_known(place, indexes, range(start, stop)).to_pylist()
        return {LedgerId(row["scope"], row["ledger"]) for row in rows}

    every = {one.id for one in list_archived(place)}
    assert read(0, BUCKETS) == every
    assert read(bucket, bucket + 1) == {one for one in every if one.bucket == bucket}
    assert read(0, bucket) == {one for one in every if one.bucket < bucket}
    assert read(bucket + 1, BUCKETS) == {one for one in every if one.bucket > bucket}
    raw = (place / indexes[0].file).read_bytes()
    altered = tmp_path / indexes[0].file
    altered.parent.mkdir(parents=True)
    altered.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    with pytest.raises(DatasetError, match="is not the file that was written"):
        read_index(tmp_path, indexes[0])
