"""Ledgers of running bookies archived by the program, its runs killed; then the bookies are wiped, and all is there.

`scripts/soak archive N` does it with N ledgers, and kills ten runs at random moments.
"""

import base64
import hashlib
import json
import os
import random
import signal
import struct
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest

from recovery.archive.objects import list_unfinished
from recovery.codecs.entry import digest_agrees
from recovery.codecs.entry_frames import split_frames
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest
from tests.support.archives import list_archived, read_payloads
from tests.support.cluster import DIGESTS, Cluster, History
from tests.support.command import Done, environment, run, started

SOAK: Final = int(os.environ.get("BKMETA_SOAK_ARCHIVE", "0"))
SEED: Final = int(os.environ.get("BKMETA_SOAK_SEED", "17"))
LEDGERS: Final = SOAK or 8
KILLS: Final = 10 if SOAK else 1
DAMAGED: Final = 1
"""The bookie with damaged entries; its entry logs can be found through."""
SHAPES: Final = ((3, 3, 2), (3, 2, 2), (2, 2, 1))
STORAGES: Final = ("db", "sorted", "interleaved")
PASSWORD: Final = b"a-ledger's-password"
pytestmark = [pytest.mark.real, pytest.mark.spark, pytest.mark.timeout(900 + SOAK)]


@dataclass
class Living:
    """A cluster, what was written to it, and the archive.

    Attributes:
        wanted: closed ledgers that can be archived, each with size and SHA-256 of its entries.
        single: a ledger whose only copies are damaged.
        open: a ledger that is not closed.
    """

    history: History
    place: Path
    wanted: Mapping[int, list[list[Any]]]
    single: int
    open: int

    @property
    def uri(self) -> str:
        """Of the store."""
        return f"zk+hierarchical://{self.history.cluster.zookeeper}/ledgers"

    def archive(self, capsys: pytest.CaptureFixture[str], *more: object) -> Done:
        """Run the command in this process."""
        words = ("--metadata", self.uri, "--wire", "--to", self.place, "--master", "local[2]", "--json")
        return run(capsys, "archive", "run", *words, *more)


def damage(folder: Path, ledgers: Mapping[int, int]) -> None:
    """Turn the last byte of each fourth entry in a bookie's logs: its digest does not agree any more."""
    heads = {struct.pack(">qq", ledger, entry) for ledger, last in ledgers.items() for entry in range(0, last + 1, 4)}
    for log in folder.rglob("*.log"):
        raw = bytearray(log.read_bytes())
        at = 1024  # behind the header of a log
        while at + 20 <= len(raw):
            (size,) = struct.unpack_from(">i", raw, at)
            if size < 16 or at + 4 + size > len(raw):
                break
            if bytes(raw[at + 4 : at + 20]) in heads:
                raw[at + 3 + size] ^= 1
            at += 4 + size
        log.write_bytes(raw)
    # What a journal has behind its mark would be written again, whole.
    newest = max(folder.rglob("*.txn"), key=lambda journal: int(journal.stem, 16))
    for mark in folder.rglob("lastMark"):
        mark.write_bytes(struct.pack(">qq", int(newest.stem, 16), newest.stat().st_size))


@pytest.fixture(scope="module")
def living(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Living]:
    """Three bookies, one of each storage; one of them has damaged entries of every ledger that it has."""
    home = tmp_path_factory.mktemp("archive")
    with Cluster(home / "cluster") as cluster:
        history = History(cluster)
        for n, storage in enumerate(STORAGES):
            history.bookie(n, storage)
        ledgers = []
        for number in range(LEDGERS):
            # An entry without a digest cannot be seen to be damaged.
            digest = DIGESTS[number % 3]
            shape = SHAPES[number % len(SHAPES)]
            # The damaged bookie is a member of each, and not always the first that is asked.
            turn = [(DAMAGED + number + step) % len(STORAGES) for step in range(len(STORAGES))]
            turn = turn if shape[0] == len(STORAGES) else [DAMAGED, (DAMAGED + 1 + number % 2) % len(STORAGES)]
            members = [history.id_of(n) for n in turn]
            ledgers.append(history.create(shape, digest=digest, password=PASSWORD, members=members))
            history.add(ledgers[-1], [20 + 7 * entry for entry in range(number % 13)])
            history.close(ledgers[-1])
        members = [history.id_of(DAMAGED)]
        single = history.create((1, 1, 1), digest="CRC32C", password=PASSWORD, members=members)
        history.add(single, [10, 10])
        history.close(single)
        not_closed = history.create((3, 2, 2), digest="CRC32C", password=PASSWORD)
        history.add(not_closed, [10])
        rows = {row["ledger"]: row for row in history.truth()["ledgers"]}
        history.down(DAMAGED)
        damage(cluster.home / f"bookies/b{DAMAGED}", {ledger: len(rows[ledger]["entries"]) - 1 for ledger in rows})
        history.up(DAMAGED)
        yield Living(history, home / "place", {n: rows[n]["entries"] for n in ledgers}, single, not_closed)


@pytest.fixture(autouse=True)
def _journal_here(living: Living, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(living.place.parent)


def show_marks(capsys: pytest.CaptureFixture[str], living: Living) -> dict[int, dict[str, Any]]:
    """Return the marks of all ledgers."""
    done = run(capsys, "archive", "show", "--metadata", living.uri, "--json")
    return {int(row["ledger"]): row for row in done.result["marks"]}


def test_killed_runs_leave_nothing_twice_and_nothing_half_marked(
    living: Living, capsys: pytest.CaptureFixture[str]
) -> None:
    """At random moments `kill -9` ends program, Java and workers: what has a mark is in the archive, whole."""
    draw = random.Random(SEED)
    words = ("archive", "run", "--metadata", living.uri, "--wire", "--to", living.place, "--master", "local[2]")
    for _ in range(KILLS):
        with started(*words, env=environment()) as process:
            with suppress(subprocess.TimeoutExpired):
                process.wait(draw.uniform(3, 30 if SOAK else 12))
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        archived = [item.id.ledger for item in list_archived(living.place)] if living.place.exists() else []
        assert len(archived) == len(set(archived))
        assert show_marks(capsys, living).keys() <= set(archived)
    done = living.archive(capsys)
    assert done.code == 3, done.out + done.err
    archived = [item.id.ledger for item in list_archived(living.place)]
    assert sorted(archived) == sorted(living.wanted)
    assert not list_unfinished(living.place)


def test_every_closed_ledger_is_archived_and_marked_and_damage_named(
    living: Living, capsys: pytest.CaptureFixture[str]
) -> None:
    """From other copies; a ledger that has none is named, open ones are counted; who has the marks is said."""
    if not living.place.exists():
        living.archive(capsys)
    archived = {item.id.ledger: item for item in list_archived(living.place)}
    marks = show_marks(capsys, living)
    assert marks.keys() == archived.keys() == living.wanted.keys()
    for ledger, mark in marks.items():
        assert mark["checksum"] == f"sha256:{archived[ledger].sha256}"
        assert mark["to"] == str(living.place)
        assert "bkmeta" in mark["by"]
    again = living.archive(capsys)
    counts = again.result["counts"]
    assert (counts["copied"], counts["marked"], counts["archived"]) == (0, 0, len(living.wanted))
    assert (counts["open"], counts["not_copied"]) == (1, 1)
    [failed] = again.result["not_copied"]
    assert (failed["ledger"], failed["entry"], failed["problem"]) == (str(living.single), 0, "damaged")
    assert {row["bookie"] for row in again.result["damaged"]} == {living.history.id_of(DAMAGED)}
    assert again.code == 3
    # Into another place all is copied again: then every damaged entry that was asked for is named.
    fresh = living.place.with_name("fresh")
    words = ("--metadata", living.uri, "--wire", "--to", fresh, "--master", "local[2]", "--max-mb-s", 50, "--json")
    named = [str(ledger) for ledger in sorted(living.wanted)[:6]]
    done = run(capsys, "archive", "run", *words, *(word for ledger in named for word in ("--ledgers", ledger)))
    assert done.code == 3, done.out + done.err
    assert done.result["counts"]["copied"] == len(named)
    assert done.result["counts"]["marked_elsewhere"] == len(named)
    assert done.result["bookies"].keys() == {living.history.id_of(DAMAGED)}
    assert done.result["counts"]["damaged_copies"] == done.result["bookies"][living.history.id_of(DAMAGED)]["damaged"]
    assert {row["ledger"] for row in done.result["damaged"]} <= set(named)
    proven = run(capsys, "archive", "verify", "--from", fresh, "--json")
    assert (proven.code, proven.result["counts"]["proven"]) == (0, len(named))


def test_a_bookie_that_is_down_is_passed_over(living: Living, capsys: pytest.CaptureFixture[str]) -> None:
    """Its ledgers come from others; of one that only it has nothing is known. Another cluster's archive is refused."""
    living.history.down(DAMAGED)
    fresh = living.place.with_name("without")
    words = ("--metadata", living.uri, "--wire", "--to", fresh, "--master", "local[2]", "--patience", 1, "--json")
    some = max(living.wanted)
    done = run(capsys, "archive", "run", *words, "--ledgers", some)
    assert (done.code, done.result["counts"]["copied"]) == (0, 1), done.out + done.err
    done = run(capsys, "archive", "run", *words, "--ledgers", some, "--ledgers", living.single)
    assert done.code == 4, done.out + done.err
    [failed] = done.result["not_copied"]
    assert (failed["ledger"], failed["problem"]) == (str(living.single), "unanswered")
    about = json.loads((fresh / "archive.json").read_text())
    (fresh / "archive.json").write_text(json.dumps({**about, "instance_id": "another"}))
    assert run(capsys, "archive", "run", *words).code == 5
    living.history.up(DAMAGED)


def test_deletes_read_archived_copies_back(living: Living, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A copy that is whole speaks for the delete; one that was altered makes it unsafe, and one that is gone, too."""
    nothing = tmp_path / "nothing.jsonl"
    nothing.write_text("")
    [index, *_] = living.place.rglob("index/*.parquet")
    ledger = next(item.id.ledger for item in list_archived(living.place) if item.size)
    words = ("--metadata", living.uri, "--wire", "--patience", 2, "--references", nothing, "--min-age", "0s", "--json")
    rule = ("--archived", "required", "--archive-sample", 5)

    def reasons() -> list[str]:
        done = run(capsys, "delete", "verify", ledger, *words, *rule)
        found: list[str] = done.result["ledgers"][0]["reasons"]
        return [reason for reason in found if "ARCHIVE" in reason]

    assert reasons() == []
    altered: list[str] = []
    for piece in living.place.rglob("entries/*.entries"):
        raw = piece.read_bytes()
        piece.write_bytes(bytes(byte ^ 1 for byte in raw))
        assert run(capsys, "archive", "verify", "--from", living.place, ledger).code in (0, 3)
        altered = reasons()
        piece.write_bytes(raw)
        if altered:
            break
    assert altered[0].startswith("NOT_ARCHIVED: its archived copy:")
    assert reasons() == []
    assert run(capsys, "delete", "verify", ledger, *words, "--archive-sample", 5).code == 2
    kept = index.read_bytes()
    index.unlink()
    assert run(capsys, "archive", "verify", "--from", living.place, "--json").result["broken"]
    index.write_bytes(kept)


def test_all_comes_out_of_the_place_when_the_bookies_are_wiped(
    living: Living, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every entry with its digest, in each format, and the archive proves itself."""
    for n in range(len(STORAGES)):
        living.history.down(n, "killed")
        living.history.wipe(n)
    done = run(capsys, "archive", "verify", "--from", living.place, "--json")
    assert done.code == 0, done.out + done.err
    assert done.result["counts"]["proven"] == len(living.wanted)
    for item in list_archived(living.place):
        assert read_payloads(living.place, item) == living.wanted[item.id.ledger]
    for ledger in random.Random(SEED).sample(sorted(living.wanted), 3):
        entries = living.wanted[ledger]
        words = ("archive", "read", "--from", living.place, ledger)
        for form in ("jsonl", "parquet", "raw"):
            done = run(capsys, *words, "--as", form, "--out", tmp_path / f"{ledger}.{form}")
            assert done.code == 0, done.out + done.err
        lines = [json.loads(line) for line in (tmp_path / f"{ledger}.jsonl").read_text().splitlines()]
        payloads = [base64.b64decode(line["payload"]) for line in lines]
        assert [[len(raw), hashlib.sha256(raw).hexdigest()] for raw in payloads] == entries
        table = pq.read_table(tmp_path / f"{ledger}.parquet")
        assert table["payload"].to_pylist() == payloads
        assert table["entry"].to_pylist() == list(range(len(entries)))
        assert table["length"].to_pylist() == [line["length"] for line in lines]
        records, _ = split_frames((tmp_path / f"{ledger}.raw").read_bytes())
        digest = {line["digest"] for line in lines}
        assert len(digest) <= 1
        for kind in digest:
            assert all(digest_agrees(record, Digest(kind), PASSWORD) for record in records)
        some = run(capsys, *words, "--entries", "1-2")
        assert [json.loads(line)["entry"] for line in some.out.splitlines()] == [n for n in (1, 2) if n < len(entries)]
    assert run(capsys, "archive", "verify", "--from", living.place, living.single, "--json").code == 3
    assert LedgerId(0, living.open) not in {item.id for item in list_archived(living.place)}
