"""One wrong bit in an id is damage, and no ledger: nobody is to raise a generator past it."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from recovery.codecs import entry_log
from recovery.codecs.framing import SIZE_FIELD
from recovery.collect.options import CollectOptions
from recovery.collect.pipeline import collect
from recovery.model.metadata import Digest
from tests.simulation.bookie_dir import BookieDir, make_bookie, record, write_journal, write_mark
from tests.support.collecting import Seen, look

JOURNAL = 0x18BCFE56801
WRONG = 22 | 1 << 26


def with_wrong_id(raw: bytes) -> bytes:
    """Flip one bit of an entry's ledger id."""
    return WRONG.to_bytes(8) + raw[8:]


def write_records(made: BookieDir, records: list[bytes], *, with_map: bool = False) -> None:
    """Write entries into log 1."""
    made.log(1).write_bytes(entry_log.encode(records, with_map=with_map))


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("digest", [Digest.CRC32, Digest.CRC32C, Digest.HMAC])
def test_a_wrong_bit_in_a_logs_id_is_damage_and_no_ledger(digest: Digest, tmp_path: Path, *, deep: bool) -> None:
    """It has no row, no id of it is the largest, and it is told with the id that it has."""
    made = make_bookie(tmp_path / "bookie", {22: list(range(4))})
    write_records(made, [record(22, 7), with_wrong_id(record(22, 8, digest, b"pw"))])
    seen = look(made, tmp_path, deep=deep)
    assert {row["ledger"] for row in seen.copies} == {22}
    assert seen.bookie["max_ids"] == [{"scope": 0, "ledger": 22}]
    places = {
        (row["file"], row["offset"]) for row in seen.damage if row["reason"] == "digest" and str(WRONG) in row["detail"]
    }
    raw = made.log(1).read_bytes()
    assert places == {(str(made.log(1)), raw.index(WRONG.to_bytes(8)) - SIZE_FIELD)}
    assert seen.bookie["damaged"] > 0


def test_ids_that_may_be_wrong_say_nothing_of_the_disk(tmp_path: Path) -> None:
    """Ledgers that were deleted, whose password is not given, look the same: they make no disk suspect."""
    made = make_bookie(tmp_path / "bookie", {22: list(range(4))})
    for number in range(1, 6):
        raw = entry_log.encode([record(22, 6 + number), record(90 + number, 0, Digest.HMAC, b"pw")], with_map=False)
        made.log(number).write_bytes(raw)
    seen = look(made, tmp_path)
    assert [(row["file"], row["reason"]) for row in seen.damage] == [
        (str(made.log(number)), "digest") for number in range(1, 6)
    ]


def test_what_is_kept_of_a_wrong_id_says_the_same(tmp_path: Path) -> None:
    """A collection that takes the log over does not take the id for one."""
    made = make_bookie(tmp_path / "bookie", {22: list(range(4))})
    write_records(made, [record(22, 7), with_wrong_id(record(22, 8))])
    options = CollectOptions(made.ledger_dirs, made.index_dirs, made.journal_dirs, keep=True)
    for name, earlier in (("first", None), ("second", "first")):
        since = None if earlier is None else tmp_path / earlier
        asked = replace(options, since=since)
        collect(asked, tmp_path / name, now=lambda: datetime.now(UTC), progress=lambda _: None)
    first, second = Seen(tmp_path / "first"), Seen(tmp_path / "second")
    assert first.damage == second.damage
    (row,) = first.damage
    assert (row["file"], row["offset"]) == (
        str(made.log(1)),
        made.log(1).read_bytes().index(WRONG.to_bytes(8)) - SIZE_FIELD,
    )
    assert first.bookie["max_ids"] == second.bookie["max_ids"] == [{"scope": 0, "ledger": 22}]
    assert first.reasons() == second.reasons() == {("digest", None, False)}


def test_a_wrong_bit_behind_the_mark_makes_the_bookie_incomplete(tmp_path: Path) -> None:
    """Replay would bring the entry back, as another ledger's: which one lacks it cannot be told."""
    made = make_bookie(tmp_path / "bookie", {22: list(range(4))})
    write_journal(made, JOURNAL, [with_wrong_id(record(22, 4))])
    write_mark(made, JOURNAL, 0)
    seen = look(made, tmp_path)
    assert {row["ledger"] for row in seen.copies} == {22}
    assert seen.bookie["max_ids"] == [{"scope": 0, "ledger": 22}]
    assert not seen.bookie["complete"]
    (row,) = (row for row in seen.damage if row["reason"] == "digest")
    journal = Path(row["file"])
    assert journal.parent.parent in made.journal_dirs
    assert journal.read_bytes()[row["offset"] + SIZE_FIELD :][:8] == WRONG.to_bytes(8)


def test_a_map_names_no_id_that_its_log_does_not_hold(tmp_path: Path) -> None:
    """A wrong id in the list at a log's end, of which no record is there, is no evidence."""
    made = make_bookie(tmp_path / "bookie", {22: list(range(4))})
    write_records(made, [record(22, 7)], with_map=True)
    raw = bytearray(made.log(1).read_bytes())
    at = raw.rindex((22).to_bytes(8))
    raw[at : at + 8] = WRONG.to_bytes(8)
    made.log(1).write_bytes(raw)
    assert look(made, tmp_path).bookie["max_ids"] == [{"scope": 0, "ledger": 22}]


@pytest.mark.parametrize(
    ("records", "passwords"),
    [
        ([record(30, 0)], ()),
        ([record(30, 0, Digest.HMAC, b"pw")], (b"pw",)),
        ([record(30, 0, Digest.HMAC, b"pw"), record(30, 1, Digest.HMAC, b"pw")], ()),
        ([record(30, 0, Digest.DUMMY), record(30, 1, Digest.DUMMY)], ()),
    ],
)
def test_a_ledger_that_was_deleted_is_still_one(
    records: list[bytes], passwords: tuple[bytes, ...], tmp_path: Path
) -> None:
    """An entry whose digest is right proves its id; so do two entries, whatever their digests."""
    made = make_bookie(tmp_path / "bookie", {22: list(range(4))})
    write_records(made, records)
    seen = look(made, tmp_path, passwords=passwords)
    assert {row["ledger"] for row in seen.copies} == {22, 30}
    assert seen.bookie["max_ids"] == [{"scope": 0, "ledger": 30}]
    assert seen.bookie["damaged"] == 0
