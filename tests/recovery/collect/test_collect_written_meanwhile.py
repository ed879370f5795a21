"""A bookie that writes while it is collected: what it has not finished is not there yet, and is no damage."""

import mmap
import os
from pathlib import Path
from typing import Any

import pytest

from recovery.codecs import framing, journal
from recovery.codecs.journal import LastMark
from recovery.collect.disk.file_reader import Mapped, Meter
from recovery.collect.sources import journals
from tests.simulation.bookie_dir import BookieDir, make_bookie, record, write_journal, write_mark
from tests.support.collecting import look

JOURNAL = 0x18BCFE56801
PAGE = mmap.PAGESIZE


@pytest.fixture
def made(tmp_path: Path) -> BookieDir:
    """A bookie that runs: its journal has two entries, and zeros reserved behind them."""
    made = make_bookie(tmp_path / "bookie", {5: [0, 1]}, dirty=True)
    write_journal(made, JOURNAL, [record(5, 2), record(5, 3)])
    write_mark(made, JOURNAL, 512)
    return made


@pytest.mark.parametrize("begun", [0, 1, PAGE - 1, PAGE, PAGE + 1, 9 * PAGE + 5, 20 * PAGE + 100])
def test_a_file_stays_as_it_was_when_it_was_loaded(begun: int, tmp_path: Path) -> None:
    """Whatever is written into the zeros behind its last byte, wherever that is in a page; twenty pages and some."""
    path, size = tmp_path / "5.txn", 20 * PAGE + 100
    path.write_bytes(raw := b"\x01" * begun + bytes(size - begun))
    with Mapped(path, Meter(None, lambda _: None)) as file, path.open("r+b") as writer:
        file.load()
        writer.seek(begun)
        writer.write(b"\x02" * (size - begun))
        writer.flush()
        assert bytes(file.view) == raw
        file.release(size)
        assert bytes(file.view) == raw
    assert path.read_bytes() == b"\x01" * begun + b"\x02" * (size - begun)


@pytest.mark.parametrize("rate", [None, 1e12])
def test_what_is_given_back_can_still_be_touched(rate: float | None, tmp_path: Path) -> None:
    """The page that holds the last byte is not the file's any longer: whoever gives it back loses what it has."""
    path, size, begun = tmp_path / "5.txn", 10 << 20, (9 << 20) + 5
    with path.open("wb") as writer:
        writer.truncate(size)
        writer.seek(begun - 100)
        writer.write(b"\x01" * 100)
    with Mapped(path, Meter(rate, lambda _: None)) as file:
        file.load()
        file.release(size)
        view = file.view
        assert bytes(view[begun - 100 : begun + 100]) == b"\x01" * 100 + bytes(100)
    assert bytes(view[begun - 100 : begun + 100]) == b"\x01" * 100 + bytes(100)


def test_a_record_that_is_written_while_its_journal_ends_is_no_damage(
    made: BookieDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scan met reserved zeros, and a record stands there at its next look: nothing is hidden, nothing is broken."""
    real, written = framing.overrun, []

    def overrun(data: memoryview, position: int, *more: Any, **options: Any) -> Any:
        fresh = len(record(5, 4)).to_bytes(4) + record(5, 4)
        with made.journal(JOURNAL).open("r+b") as file:
            written.append(os.pwrite(file.fileno(), fresh, position))
        return real(data, position, *more, **options)

    monkeypatch.setattr(journal, "overrun", overrun)
    seen = look(made, tmp_path)
    assert written
    assert seen.damage == []
    assert seen.entries("journal", 5) == [2, 3]
    monkeypatch.undo()
    assert look(made, tmp_path / "later").entries("journal", 5) == [2, 3, 4]


@pytest.mark.parametrize("begun", [0, 9])
def test_a_mark_that_is_being_written_is_read_again(
    begun: int, made: BookieDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bookie empties the file and writes it: what stands before the mark was applied, and nothing is damaged."""
    path = made.ledger_dirs[0] / "current" / "lastMark"
    whole = journal.encode_last_mark(LastMark(JOURNAL, 4096))
    path.write_bytes(whole[:begun])
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        path.write_bytes(whole)

    monkeypatch.setattr(journals._read_written_mark.retry, "sleep", sleep)
    seen = look(made, tmp_path)
    assert len(waits) == 1
    assert seen.damage == []
    assert seen.entries("journal", 5) == []


def test_a_mark_that_stays_empty_is_named(made: BookieDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash may leave it so; then all of the journal counts."""
    (made.ledger_dirs[0] / "current" / "lastMark").write_bytes(b"")
    monkeypatch.setattr(journals._read_written_mark.retry, "sleep", lambda _: None)
    seen = look(made, tmp_path)
    assert seen.reasons() == {("empty", None, False)}
    assert seen.entries("journal", 5) == [2, 3]
