"""Bookies that changed, disks that fail, records that went back or are gone: each is found, and nothing else."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import time
from typing import Any

import pytest

from recovery.codecs import ledger_metadata
from recovery.dataset import open_dataset
from recovery.model.metadata import LedgerMetadata, LedgerState, Segment
from tests.support.cluster import Bookie, Cluster, encoded
from tests.support.command import Done, run
from tests.support.findings import said
from tests.support.scrutinized_cluster import ScrutinizedCluster

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScrutinizedCluster]:
    """A healthy cluster; each test mends what it broke."""
    with Cluster(tmp_path_factory.mktemp("bookies") / "cluster") as cluster:
        healthy = ScrutinizedCluster(cluster)
        for _ in range(4):
            healthy.write((4, 3, 2), 20)
        yield healthy


def scrutinize(
    capsys: pytest.CaptureFixture[str], there: ScrutinizedCluster, out: Path, *options: object
) -> tuple[Done, dict[str, dict[Any, dict[str, Any]]]]:
    """Run the command; return how it ended, and category → ledger or subject → finding."""
    done = run(
        capsys, "scrutinize", "--metadata", there.uri, "--out", out, "--recheck-after", "0s", "--deadline", "20",
        "--json", *options,
    )  # fmt: skip
    found: dict[str, dict[Any, dict[str, Any]]] = {}
    for row in open_dataset(out, "scrutiny").read("findings").to_pylist():
        found.setdefault(row["category"], {})[row["subject"] if row["ledger"] is None else row["ledger"]] = row
    return done, found


def collect(capsys: pytest.CaptureFixture[str], there: ScrutinizedCluster, bookie: Bookie, out: Path) -> Path:
    """Make the inventory of a bookie's disks while it is stopped."""
    home = there.cluster.home
    folders = ["--journal-dir", home / bookie.journals[0], "--ledger-dir", home / bookie.ledgers[0]]
    there.cluster("bookie_stop", n=bookie.n)
    run(capsys, "collect", *folders, "--out", out)
    there.cluster.start(bookie)
    return out


def test_a_record_that_went_back_is_told_by_the_run_before(
    there: ScrutinizedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Closed in the run before, in recovery now: only an older backup does that. What went on since is not named."""
    back, onward = there.write((3, 3, 2), 5), there.write((3, 3, 2), 5, close=False)
    scrutinize(capsys, there, tmp_path / "first")
    record = there.record(back)
    there.edit(back, state=LedgerState.IN_RECOVERY, last_entry=None, length=None)
    there.cluster("close", ledger=onward)
    done, found = scrutinize(capsys, there, tmp_path / "second", "--since", tmp_path / "first")
    there.edit(back, state=record.state, last_entry=record.last_entry, length=record.length)
    assert {category: set(of) for category, of in found.items()} == {"STORE_WENT_BACK": {back}}
    assert done.code == 3
    evidence = said(found["STORE_WENT_BACK"][back])
    assert (evidence["store", "state"], evidence["earlier", "state"]) == ("IN_RECOVERY", "CLOSED")


def test_an_open_segment_that_waits_for_too_long_is_told(
    there: ScrutinizedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its writer went on to another bookie once; now a member of the last segment is marked, for two days."""
    ledger = there.write((3, 3, 2), 5, close=False)
    lost = next(bookie for bookie in there.bookies if bookie.id in there.members(ledger))
    there.cluster("bookie_stop", n=lost.n)
    there.cluster("add", ledger=ledger, sizes=[20] * 5, ids=None)
    there.cluster.start(lost)
    there.mark(ledger, there.members(ledger)[0], int(time() * 1000) - 48 * HOUR_MS)
    fresh = there.write((3, 3, 2), 5, close=False)
    there.mark(fresh, there.members(fresh)[0], int(time() * 1000))
    done, found = scrutinize(capsys, there, tmp_path / "run")
    there.cluster("zk_wipe", paths=["/ledgers/underreplication/ledgers"])
    assert {category: set(of) for category, of in found.items()} == {"OPEN_FRAGMENT_PENDING": {ledger}}
    assert (done.code, found["OPEN_FRAGMENT_PENDING"][ledger]["severity"]) == (3, "warning")


def test_a_fenced_ledger_whose_record_is_open_is_a_recovery_that_stands_still(
    there: ScrutinizedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A client recovered it, and its record is as before: only a bookie's index says so, and an inventory of that."""
    fenced = there.write((4, 4, 4), 5, close=False)
    there.cluster("recover", ledger=fenced, digest="CRC32C", password=encoded(b"pw"))
    closed = there.record(fenced)
    there.edit(fenced, state=LedgerState.OPEN, last_entry=None, length=None)
    inventory = collect(capsys, there, there.bookies[1], tmp_path / "bk1")
    options = ("--wire", "--inventory", inventory)
    _, found = scrutinize(capsys, there, tmp_path / "young", *options)
    assert found == {}
    done, found = scrutinize(capsys, there, tmp_path / "late", *options, "--grace", "0s")
    there.edit(fenced, state=closed.state, last_entry=closed.last_entry, length=closed.length)
    assert {category: set(of) for category, of in found.items()} == {"RECOVERY_STUCK": {fenced}}
    evidence = said(found["RECOVERY_STUCK"][fenced])
    assert (done.code, evidence["store", "state"], evidence["bookies", "fenced"]) == (3, "OPEN", "yes")


def test_data_without_a_record_is_a_note_and_past_the_grace_a_warning(
    there: ScrutinizedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An inventory has a ledger that the store no longer lists: a bookie collects it soon, or its record is lost."""
    ledger = there.write((4, 4, 4), 5)
    inventory = collect(capsys, there, there.bookies[0], tmp_path / "bk0")
    options = ("--wire", "--inventory", inventory)
    _, found = scrutinize(capsys, there, tmp_path / "listed", *options)
    assert found == {}
    record = ledger_metadata.encode(there.record(ledger))
    there.remove(there.key(ledger))
    done, found = scrutinize(capsys, there, tmp_path / "first", *options, "--since", tmp_path / "listed")
    assert {category: set(of) for category, of in found.items()} == {"DATA_WITHOUT_RECORD": {ledger}}
    row = found["DATA_WITHOUT_RECORD"][ledger]
    assert (done.code, row["severity"], row["bookies"]) == (0, "info", [there.bookies[0].id])
    assert said(row)["earlier", "record"] == "yes"
    late, found = scrutinize(
        capsys, there, tmp_path / "late", *options, "--since", tmp_path / "first", "--grace", "0s"
    )  # fmt: skip
    there.put({there.key(ledger): record})
    assert (late.code, found["DATA_WITHOUT_RECORD"][ledger]["severity"]) == (3, "warning")


def test_files_that_a_failing_disk_damaged_are_one_finding_a_folder(
    there: ScrutinizedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three index files begin with zeros in a copy of the disks: one warning; their ledgers are undecided, not lost."""
    bookie = there.bookies[1]
    ledgers = [there.write((4, 4, 4), 5) for _ in range(3)]
    there.cluster("bookie_stop", n=bookie.n)
    home = tmp_path / "copy"
    for folder in (bookie.journals[0], bookie.ledgers[0]):
        shutil.copytree(there.cluster.home / folder, home / folder)
    there.cluster.start(bookie)
    files = [home / bookie.ledgers[0] / "current" / there.index_of(ledger) for ledger in ledgers]
    for file in files:
        file.write_bytes(bytes(1024) + file.read_bytes()[1024:])
    folders = ["--journal-dir", home / bookie.journals[0], "--ledger-dir", home / bookie.ledgers[0]]
    run(capsys, "collect", *folders, "--out", tmp_path / "bk1")
    done, found = scrutinize(capsys, there, tmp_path / "run", "--wire", "--inventory", tmp_path / "bk1")
    [row] = found.pop("SUSPECT_DISK").values()
    assert found == {}
    assert (row["severity"], row["bookies"]) == ("warning", [bookie.id])
    assert "3 of " in said(row)["bookies", "damage"]
    assert (done.code, done.result["counts"]["undecided"]) == (3, {"not seen": 3})


def test_a_writer_that_went_on_to_a_bookie_that_was_replaced_is_told(
    there: ScrutinizedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the old bookie has from after the change differs from the new one's; where it does not, it is a note."""
    names = [bookie.id for bookie in there.bookies]
    how = {"E": 2, "W": 2, "A": 2, "digest": "CRC32C", "password": encoded(b"pw"), "custom": {}}
    records: list[LedgerMetadata] = []
    other, alike = (there.write((2, 2, 2), 0) for _ in range(2))
    for ledger, sizes in ((other, (20, 30)), (alike, (20, 20))):
        there.remove(there.key(ledger))
        for members, size in (((0, 1), sizes[0]), ((3, 1), sizes[1])):
            there.cluster("create", id=ledger, members=[names[n] for n in members], **how)
            there.cluster("add", ledger=ledger, sizes=[size] * 10, ids=list(range(10)))
            there.cluster("close", ledger=ledger)
            records.append(there.record(ledger))
            there.remove(there.key(ledger))
        segments = (Segment(0, (names[0], names[1])), Segment(5, (names[3], names[1])))
        there.put({there.key(ledger): ledger_metadata.encode(replace(records[-1], segments=segments))})
    done, found = scrutinize(capsys, there, tmp_path / "run")
    for ledger in (other, alike):
        there.cluster("delete", ledger=ledger)
    assert {category: set(of) for category, of in found.items()} == {
        "RETURNED_WRITER": {other}, "OVER_REPLICATED": {other, alike},
    }  # fmt: skip
    row = found["RETURNED_WRITER"][other]
    assert (done.code, row["severity"], row["bookies"]) == (3, "critical", [names[0]])
    assert sorted(group["first"] for group in row["entries"]) == [5, 6, 7, 8, 9]
    rows = open_dataset(tmp_path / "run", "scrutiny").read("verdicts").to_pylist()
    judged = {row["ledger"]: row["verdict"] for row in rows}
    assert (judged[other], judged[alike]) == ("RETURNED_WRITER", "OVER_REPLICATED")


def test_writes_that_failed_beyond_the_ack_quorum_are_told(
    there: ScrutinizedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two of three bookies acknowledged, the third stored nothing: the client had its answer, and sent no more.

    Each entry is readable, and one copy short for as long as nobody replicates it.
    """
    secret = {"digest": "CRC32C", "password": encoded(b"pw")}
    ledger = there.cluster("create", E=3, W=3, A=2, custom={}, **secret)
    [third] = [bookie for bookie in there.bookies if bookie.id == there.members(ledger)[2]]
    there.cluster("mute", n=third.n)
    there.cluster("add", ledger=ledger, sizes=[20] * 5, ids=None)
    there.cluster("bookie_kill", n=third.n)
    there.cluster("add", ledger=ledger, sizes=[20] * 5, ids=None)
    there.cluster("close", ledger=ledger)
    there.cluster.start(third)
    done, found = scrutinize(capsys, there, tmp_path / "run")
    read = there.cluster("read", ledger=ledger, recovery=False, **secret)
    there.cluster("delete", ledger=ledger)
    assert len(read["entries"]) == 10
    assert {category: set(of) for category, of in found.items()} == {"BELOW_WRITE_QUORUM": {ledger}}
    row = found["BELOW_WRITE_QUORUM"][ledger]
    assert (done.code, row["severity"]) == (3, "warning")
    assert third.id in row["bookies"]
    lacking = {
        entry
        for one in row["entries"]
        for begin in range(one["first"], one["last"] + 1, one["period"] or 1)
        for entry in range(begin, begin + one["size"])
    }
    # What was sent after the failure may have been acknowledged before the client saw it.
    assert set(range(5)) <= lacking


def test_a_lac_above_a_closed_end_is_told_where_no_bookie_has_entries_there(
    there: ScrutinizedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A writer was promised entries that are nowhere: a bookie's index says so. A LAC at the end says nothing.

    Over the wire LACs are asked for of what was closed since the run before (`--since`); later, without the inventory,
    it was not looked for, and stays.
    """
    first, _ = scrutinize(capsys, there, tmp_path / "before")
    assert first.result["coverage"]["not_told"][1:] == ["explicit LACs"]
    short, whole = (there.write((4, 4, 2), 5) for _ in range(2))
    holder = there.bookies[1]
    how = {"digest": "CRC32C", "password": encoded(b"pw")}
    there.cluster("tell", ledger=short, lac=6, bookies=[holder.id], **how)
    there.cluster("tell", ledger=whole, lac=4, bookies=[holder.id], **how)
    inventory = collect(capsys, there, holder, tmp_path / "bk1")
    done, found = scrutinize(capsys, there, tmp_path / "run", "--wire", "--inventory", inventory)
    asked, wired = scrutinize(capsys, there, tmp_path / "asked", "--since", tmp_path / "before")
    blind, still = scrutinize(capsys, there, tmp_path / "blind", "--since", tmp_path / "asked")
    there.cluster("delete", ledger=short)
    for seen in (found, wired, still):
        # What tests before deleted is on the disks yet.
        seen.pop("DATA_WITHOUT_RECORD", None)
        assert {category: set(of) for category, of in seen.items()} == {"LAC_BEYOND_LAST_ENTRY": {short}}
    assert asked.result["coverage"]["not_told"] == [
        "fences of ledgers whose records are open", "explicit LACs of ledgers that were closed before the run before",
    ]  # fmt: skip
    assert "without an inventory of the bookie" in blind.result["carried"]
    for ended, seen in ((done, found), (asked, wired)):
        row = seen["LAC_BEYOND_LAST_ENTRY"][short]
        assert (ended.code, row["severity"], row["bookies"]) == (3, "critical", [holder.id])
        evidence = said(row)
        assert (evidence["store", "last_entry"], evidence["bookies", "largest explicit LAC"]) == ("4", "6")


def test_a_wiped_bookie_is_told_until_its_ledgers_are_replicated_again(
    there: ScrutinizedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """New disks, new cookie, old name: known with and without a run before, also when it is down, until the repair."""
    wiped = there.bookies[2]
    ledgers = {there.write((4, 4, 4), 6) for _ in range(3)}
    scrutinize(capsys, there, tmp_path / "first")
    there.cluster("bookie_stop", n=wiped.n)
    for folder in (*wiped.journals, *wiped.ledgers):
        shutil.rmtree(there.cluster.home / folder)
    there.remove(f"/ledgers/cookies/{wiped.id}")
    there.cluster.start(wiped)
    later = there.write((4, 4, 4), 6)
    kinds = {"INCARNATION_CHANGED", "BELOW_ACK_QUORUM", "BELOW_WRITE_QUORUM"}
    alone = scrutinize(capsys, there, tmp_path / "alone")
    second = scrutinize(capsys, there, tmp_path / "second", "--since", tmp_path / "first")
    for done, found in (alone, second):
        assert (done.code, set(found), set(found["INCARNATION_CHANGED"])) == (3, kinds, {wiped.id})
        assert found["INCARNATION_CHANGED"][wiped.id]["severity"] == "critical"
        assert ledgers <= found["BELOW_ACK_QUORUM"].keys()
        assert later not in found["BELOW_ACK_QUORUM"]
    there.cluster("bookie_stop", n=wiped.n)
    down, still = scrutinize(capsys, there, tmp_path / "down", "--since", tmp_path / "second")
    there.cluster.start(wiped)
    again, third = scrutinize(capsys, there, tmp_path / "third", "--since", tmp_path / "down")
    assert (down.code, again.code, down.result["resolved"]) == (3, 3, 0)
    for category in kinds:
        assert still[category].keys() == third[category].keys() == second[1][category].keys()
    run_before = open_dataset(tmp_path / "third", "scrutiny")
    missing = run_before.read("missing")
    [row] = run_before.read("wiped").to_pylist()
    assert (row["bookie"], row["evidence"], row["ledgers"]) == (
        wiped.id,
        "cookie",
        len(set(missing["ledger"].to_pylist())),
    )
    others = ",".join(bookie.id for bookie in there.bookies if bookie is not wiped)
    named = [word for ledger in sorted(ledgers) for word in ("--ledgers", ledger)]
    words = ["check-impact", "--metadata", there.uri, "--catalog", tmp_path / "captures", "--bookies", others, *named]
    promised, known = (run(capsys, *words, "--json", *more).result for more in ((), ("--evidence", tmp_path / "third")))
    assert "READ_AVAILABILITY_LOSS" not in promised["impacts"], "records say that the wiped bookie has a copy"
    assert known["impacts"]["READ_AVAILABILITY_LOSS"]["ledgers"] == len(ledgers)
    assert known["evidence"]["runs"][0]["wiped"] == [wiped.id]
    told = run(capsys, "explain", min(ledgers), "--metadata", there.uri, "--evidence", tmp_path / "third", "--json")
    lines = told.result["seen"]
    assert any(line.startswith(f"{wiped.id} lacks entries 0 to 5") for line in lines), lines
    spare = Bookie(4, "bk4:3181", "sorted", ["b4/journal"], ["b4/ledgers"], props=wiped.props)
    there.cluster.start(spare)
    for ledger in sorted(set(missing["ledger"].to_pylist())):
        there.cluster("repair", ledger=ledger, bad=wiped.id, anywhere=True)
    repaired, quiet = scrutinize(capsys, there, tmp_path / "fourth", "--since", tmp_path / "third")
    assert (repaired.code, {category for category in quiet if category in kinds}) == (0, set())
    assert repaired.result["resolved"] >= len(ledgers) + 1
