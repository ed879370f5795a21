"""Entries exported from real bookies' disks: those that the writer wrote, byte for byte, without any record."""

import base64
import hashlib
import json
import struct
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from reconcile.jobs import export
from recovery.bookies.entry_files import EntryFormat
from recovery.model.metadata import Digest
from recovery.out_folder import create_file
from tests.simulation.bookie_dir import BOOKIE, make_bookie, record
from tests.support import cases
from tests.support.command import Done, run

CASES = ("c01-clean-sorted", "c02-clean-interleaved", "c03-clean-db", "c04-ensemble-changes")


def exported(
    name: str,
    work: Path,
    capsys: pytest.CaptureFixture[str],
    *more: object,
    ledgers: list[int],
    without: Collection[int] = (),
) -> Done:
    """Export ledgers from all bookies of a case but some."""
    truth, case = cases.truth(name), cases.case_dir(name)
    secrets = work / "passwords"
    known = {row["password"] for row in truth["ledgers"] if row["password"]}
    secrets.write_text("\n".join(f"base64:{text}" for text in sorted(known)))
    secrets.chmod(0o600)
    disks = [f"{b['id']}={case / 'bookies'}/b{b['n']}" for b in truth["bookies"] if b["n"] not in without]
    words = [word for disk in disks for word in ("--disk", disk)]
    out = work / "out"
    return run(capsys, "export", *ledgers, *words, "--passwords", secrets, "--out", out, "--json", *more)


def lines_of(file: Path) -> list[dict[str, Any]]:
    """Return the lines of an exported file."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def proven(name: str) -> list[dict[str, Any]]:
    """Return the closed ledgers of a case that have entries, and digests that prove themselves."""
    rows: list[dict[str, Any]] = cases.truth(name)["ledgers"]
    return [row for row in rows if row["state"] == "CLOSED" and row["entries"] and row["digest"] != "DUMMY"]


@pytest.mark.parametrize("name", CASES)
def test_every_entry_is_what_its_writer_wrote(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of each storage, of every digest with a password that is known: all of them, each once, in their order."""
    rows = proven(name)
    assert len(rows) > 3
    done = exported(name, tmp_path, capsys, ledgers=[row["ledger"] for row in rows])
    assert done.code == 0, done.result["verdict"]
    assert done.result["counts"]["entries"] == sum(len(row["entries"]) for row in rows)
    for row in rows:
        lines = lines_of(tmp_path / "out" / f"{row['ledger']}.jsonl")
        payloads = [base64.b64decode(line["payload"]) for line in lines]
        assert [[len(p), hashlib.sha256(p).hexdigest()] for p in payloads] == row["entries"]
        assert [line["entry"] for line in lines] == list(range(len(lines)))
        assert lines[-1]["length"] == sum(len(p) for p in payloads)
        members = {member for _, names in row["segments"] for member in names}
        assert {bookie for line in lines for bookie in line["bookies"]} <= members
        assert all(len(line["bookies"]) >= row["W"] for line in lines)


@pytest.mark.parametrize("name", CASES[1:3])
def test_raw_frames_are_as_bookies_store_them(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Behind its size each entry with its ids; the payload is its end."""
    row = proven(name)[0]
    exported(name, tmp_path, capsys, "--as", "raw", ledgers=[row["ledger"]])
    raw = (tmp_path / "out" / f"{row['ledger']}.entries").read_bytes()
    at = 0
    found: list[list[object]] = []
    while at < len(raw):
        size, ledger, number = struct.unpack_from(">iqq", raw, at)
        assert (ledger, number) == (row["ledger"], len(found))
        length = row["entries"][number][0]
        found.append([length, hashlib.sha256(raw[at + 4 + size - length : at + 4 + size]).hexdigest()])
        at += 4 + size
    assert found == row["entries"]


def test_what_only_missing_bookies_have_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without two neighbours of four each fourth entry of W = 2 is gone, which is said; what is there is written."""
    name = "c02-clean-interleaved"
    row = next(row for row in proven(name) if (row["E"], row["W"]) == (4, 2) and len(row["entries"]) > 20)
    members = row["segments"][0][1]
    without = {b["n"] for b in cases.truth(name)["bookies"] if b["id"] in members[:2]}
    done = exported(name, tmp_path, capsys, ledgers=[row["ledger"]], without=without)
    lines = lines_of(tmp_path / "out" / f"{row['ledger']}.jsonl")
    left = [entry for entry in range(len(row["entries"])) if entry % 4]
    assert [line["entry"] for line in lines] == left
    assert done.code == 3
    assert done.result["exported"][0]["absent"] == left[-1] + 1 - len(left)


def two_bookies(root: Path, **second: Any) -> list[object]:
    """Make two bookies with two entries of ledger 7; return the options that name their disks."""
    first = make_bookie(root / "one", {7: [0, 1]})
    made = make_bookie(root / "two", {7: [0, 1]}, bookie="10.0.0.2:3181", **second)
    assert first.log().stat().st_size == made.log().stat().st_size or second
    return ["--disk", f"{BOOKIE}={root / 'one'}", "--disk", f"10.0.0.2:3181={root / 'two'}"]


def test_two_contents_of_one_entry_are_both_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two histories of one id: neither is left out, and the exit code says so; a ledger of nobody gets no file."""
    disks = two_bookies(tmp_path, digest=Digest.CRC32)
    (tmp_path / "ids").write_text("8\n7\n")
    done = run(capsys, "export", 7, "--from", tmp_path / "ids", *disks, "--out", tmp_path / "out", "--json")
    assert done.code == 3
    assert [one["file"] for one in done.result["exported"]] == ["7.jsonl", None]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["7.jsonl"]
    lines = lines_of(tmp_path / "out" / "7.jsonl")
    assert [(line["entry"], line["bookies"]) for line in lines] == [
        (n, [bookie]) for n in (0, 1) for bookie in (BOOKIE, "10.0.0.2:3181")
    ]
    assert done.result["exported"][0]["several"] == 2


def test_a_copy_that_rotted_is_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where another copy proves its digest; where none does, it is written as it stands, and that is said."""
    disks = two_bookies(tmp_path)
    logs = [tmp_path / name / "ledgers0" / "current" / "0.log" for name in ("one", "two")]
    sound = logs[0].read_bytes()
    logs[0].write_bytes(sound.replace(record(7, 1), record(7, 1)[:-1] + b"X"))
    assert run(capsys, "export", 7, *disks, "--out", tmp_path / "out").code == 0
    lines = lines_of(tmp_path / "out" / "7.jsonl")
    assert [line["bookies"] for line in lines] == [[BOOKIE, "10.0.0.2:3181"], ["10.0.0.2:3181"]]

    logs[1].write_bytes(logs[0].read_bytes())
    done = run(capsys, "export", 7, *disks, "--out", tmp_path / "again", "--json")
    assert (done.code, done.result["exported"][0]["unproven"]) == (3, 1)
    last = json.loads((tmp_path / "again" / "7.jsonl").read_text().splitlines()[-1])
    assert (last["digest"], base64.b64decode(last["record"])) == (None, record(7, 1)[:-1] + b"X")


def test_disks_that_are_not_whole_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was found is written; nobody claims that it is all. The folder is nobody else's to read."""
    made = make_bookie(tmp_path / "one", {7: [0, 1]}, ledger_dirs=2)
    disk = f"{BOOKIE}={made.ledger_dirs[made.index(7).parents[3] != made.ledger_dirs[0]]}"
    done = run(capsys, "export", 7, "--disk", disk, "--out", tmp_path / "out", "--json")
    assert done.code in (3, 4)
    assert done.result["coverage"]["incomplete"]
    assert (tmp_path / "out").stat().st_mode & 0o077 == 0
    again = run(capsys, "export", 7, "--disk", disk, "--out", tmp_path / "one", "--json")
    assert again.code == 2


def test_what_logs_alone_have_is_read_with_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of ledgers that were deleted, which no index has; each digest proves itself, and a living one is not changed."""
    name = "c09-mixed-db-sorted"
    living = proven(name)[0]
    ledgers = [6, 12, living["ledger"]]
    for out in ("index", "logs"):
        (tmp_path / out).mkdir()
    before = exported(name, tmp_path / "index", capsys, ledgers=ledgers, without=(3, 4))
    assert before.code == 3
    assert not (tmp_path / "index/out/6.jsonl").exists()
    disk = f"bookie-c={cases.case_dir(name) / 'bookies/b2'}"
    for more in ([], ["--logs"]):
        told = run(capsys, "export", 6, "--disk", disk, "--out", tmp_path / f"told{len(more)}", *more)
        assert ("--logs reads them" in told.out) is not bool(more)
    after = exported(name, tmp_path / "logs", capsys, "--logs", ledgers=ledgers, without=(3, 4))
    lines = lines_of(tmp_path / "logs/out/6.jsonl")
    assert len(lines) == 8
    assert [line["entry"] for line in lines] == sorted({line["entry"] for line in lines})
    assert all(line["digest"] for line in lines)
    assert all(line["bookies"] for line in lines)
    texts = [(tmp_path / out / f"out/{living['ledger']}.jsonl").read_text() for out in ("index", "logs")]
    assert [json.loads(line)["payload"] for line in texts[0].splitlines()] == [
        json.loads(line)["payload"] for line in texts[1].splitlines()
    ]
    assert after.result["counts"]["written"] == before.result["counts"]["written"] + 2


@pytest.mark.parametrize("form", EntryFormat)
def test_what_no_disk_has_makes_no_file(
    form: EntryFormat, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for a moment: of a list of many ledgers most may be elsewhere, and a file of each would be slow."""
    made: list[str] = []

    def create(path: Path, *, secret: bool) -> int:
        made.append(path.name)
        return create_file(path, secret=secret)

    monkeypatch.setattr(export, "create_file", create)
    (tmp_path / "ids").write_text("\n".join(map(str, range(8, 60))))
    words = ["--from", tmp_path / "ids", "--as", form, "--out", tmp_path / "out", "--json"]
    done = run(capsys, "export", 7, *two_bookies(tmp_path), *words)
    assert made == [f"7{form.ending}.unfinished"]
    assert [one["file"] for one in done.result["exported"]] == [f"7{form.ending}", *[None] * 52]
    counted = {"messages", "not_messages", "encrypted", "chunks"} if form is EntryFormat.PULSAR else set()
    assert all(set(one["messages"]) == counted for one in done.result["exported"])
