"""Bookies of DbLedgerStorage give no lists: inventories are made beside them, or their entries are read one by one.

`scripts/soak samples N` damages N ledgers more at random.
"""

import os
import random
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recovery.dataset import open_dataset
from tests.support.cluster import Bookie, Cluster, encoded
from tests.support.command import Done, run
from tests.support.scrutinized_cluster import ScrutinizedCluster

SOAK = int(os.environ.get("BKMETA_SOAK_SAMPLES", "0"))
SEED = int(os.environ.get("BKMETA_SOAK_SEED", "17"))
RUNS = 5 if SOAK else 2
pytestmark = [pytest.mark.real, pytest.mark.timeout(600 + 10 * SOAK)]


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScrutinizedCluster]:
    """Three bookies, each with ledgers in its databases and in its journal."""
    with Cluster(tmp_path_factory.mktemp("db") / "cluster") as cluster:
        healthy = ScrutinizedCluster(cluster, storage="db", bookies=3)
        for _ in range(3):
            healthy.write((3, 2, 2), 20)
        for bookie in healthy.bookies:
            cluster("bookie_stop", n=bookie.n)
            cluster.start(bookie)
        for _ in range(3):
            healthy.write((2, 2, 2), 20)
        yield healthy


def collect(capsys: pytest.CaptureFixture[str], uri: str, home: Path, bookie: Bookie, out: Path) -> Path:
    """Make the inventory of a bookie's disks; it runs meanwhile."""
    folders = ["--journal-dir", home / bookie.journals[0], "--ledger-dir", home / bookie.ledgers[0]]
    run(capsys, "collect", *folders, "--metadata", uri, "--out", out)
    return out


def scrutinize(
    capsys: pytest.CaptureFixture[str], there: ScrutinizedCluster, inventories: Path, out: Path
) -> tuple[Done, dict[str, set[Any]], dict[int, tuple[str, str | None]]]:
    """Run the command; return how it ended, category → ledgers, ledger → verdict."""
    done = run(
        capsys, "scrutinize", "--metadata", there.uri, "--wire", "--inventory-dir", inventories, "--out", out,
        "--recheck-after", "0s", "--deadline", "20", "--json",
    )  # fmt: skip
    seen = open_dataset(out, "scrutiny")
    found: dict[str, set[Any]] = {}
    for row in seen.read("findings").to_pylist():
        found.setdefault(row["category"], set()).add(row["subject"] if row["ledger"] is None else row["ledger"])
    rows = seen.read("verdicts").to_pylist()
    return done, found, {row["ledger"]: (row["verdict"], row["reason"]) for row in rows}


def test_inventories_beside_running_bookies_and_entries_that_are_read_decide(
    there: ScrutinizedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Clean; misplaced where the bookie says that it lacks it; undecided where the record is newer than the list.

    An old copy of a disk is no proof either: what the bookie itself gives when it is asked counts.
    """
    home, first = there.cluster.home, there.bookies[0]
    copy = tmp_path / "old"
    for folder in (*first.journals, *first.ledgers):
        shutil.copytree(home / folder, copy / folder)
    few, many = there.write((3, 3, 3), 10), there.write((3, 3, 3), 40)
    how = {"E": 1, "W": 1, "A": 1, "digest": "CRC32C", "password": encoded(b"pw"), "custom": {}}
    wrong: int = there.cluster("create", members=[first.id], **how)
    there.cluster("add", ledger=wrong, sizes=[20] * 10, ids=None)
    there.cluster("close", ledger=wrong)
    there.rename(wrong, first.id, there.bookies[1].id)
    # Its record will name a bookie whose list is older: not the first, which has no list later and is asked instead.
    late = there.write((2, 2, 2), 10)
    while there.stranger(late) == first.id:
        late = there.write((2, 2, 2), 10)
    inventories = tmp_path / "inventories"
    for bookie in there.bookies:
        collect(capsys, there.uri, home, bookie, inventories / str(bookie.n))
    stranger = there.stranger(late)
    there.rename(late, there.members(late)[0], stranger)
    done, found, judged = scrutinize(capsys, there, inventories, tmp_path / "run")
    assert found == {"ENTRIES_MISPLACED": {wrong}, "ONE_COPY": {wrong}, "OVER_REPLICATED": {late}}
    assert done.code == 3
    assert judged.pop(wrong)[0] == "ENTRIES_MISPLACED"
    assert judged.pop(late) == ("undecided", "changed")
    assert set(judged.values()) == {("clean", None)}
    assert (done.result["coverage"]["inventories"], done.result["coverage"]["asked"]) == (3, 0)

    shutil.rmtree(inventories / "0")
    collect(capsys, there.uri, copy, first, inventories / "0")
    done, found, judged = scrutinize(capsys, there, inventories, tmp_path / "stale")
    # Only the copy's bookie has the misplaced ledger: it is asked before anything is called lost.
    assert found["ENTRIES_MISPLACED"] == {wrong}
    assert found.keys() <= {"ENTRIES_MISPLACED", "ONE_COPY", "OVER_REPLICATED"}
    assert done.result["counts"]["rechecked"] >= 2
    assert judged[few] == ("clean", None)
    # Of forty entries sixteen were read, and are there: nothing shows that the others are not.
    assert judged[many] == ("undecided", "no answer")


def damage_at_random(there: ScrutinizedCluster, count: int) -> set[int]:
    """Write ledgers, and take some entries, or all, of some of their bookies; return those that lost any."""
    rng = random.Random(SEED)
    losses: dict[tuple[int, str], list[int] | None] = {}
    damaged = set()
    for _ in range(count):
        quorum = rng.choice([(3, 3, 2), (3, 2, 2), (2, 2, 1), (1, 1, 1)])
        entries = rng.choice([1, 7, 40, 400])
        ledger = there.write(quorum, entries)
        members = there.members(ledger)
        for name in rng.sample(members, rng.randint(0, quorum[0])):
            some = sorted(rng.sample(range(entries), rng.randint(1, min(entries, 5))))
            losses[ledger, name] = taken = rng.choice([None, some, some])
            due = (e for e in range(entries) if (members.index(name) - e) % quorum[0] < quorum[1])
            if any(taken is None or entry in taken for entry in due):
                damaged.add(ledger)
    there.lose(losses)
    return damaged


def sample(
    capsys: pytest.CaptureFixture[str], uri: str, out: Path, since: Path | None
) -> tuple[Done, dict[int, set[str]], dict[int, tuple[str, str | None]]]:
    """Read entries of all bookies; return how it ended, ledger → categories, ledger → verdict."""
    before = [] if since is None else ["--since", since]
    done = run(
        capsys, "scrutinize", "--metadata", uri, "--sample-reads", "--sample-runs", RUNS, "--max-read-mb-s", 100,
        *before, "--out", out, "--recheck-after", "0s", "--deadline", "5", "--json",
    )  # fmt: skip
    seen = open_dataset(out, "scrutiny")
    found: dict[int, set[str]] = {}
    for row in seen.read("findings").to_pylist():
        if row["ledger"] is not None and row["severity"] != "info":
            found.setdefault(row["ledger"], set()).add(row["category"])
    return done, found, {row["ledger"]: (row["verdict"], row["reason"]) for row in seen.read("verdicts").to_pylist()}


def test_entries_that_are_read_show_what_java_finds(
    there: ScrutinizedCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One run finds what the auditor's check of all ledgers finds by default, N runs what it finds at 100 %."""
    one, two, three = (bookie.id for bookie in there.bookies)
    healthy, striped = there.write((3, 3, 2), 30), there.write((3, 2, 2), 40)
    end, middle, lost, gone = (there.write((3, 3, 2), 30) for _ in range(4))
    known: dict[tuple[int, str], list[int] | None] = {(end, one): [29], (middle, two): [15], (gone, three): None}
    there.lose(known | {(lost, name): [0] for name in (one, two, three)})
    elsewhere = there.write((1, 1, 1), 10)
    there.rename(elsewhere, there.members(elsewhere)[0], there.stranger(elsewhere))
    damaged = {end, middle, lost, gone, elsewhere} | damage_at_random(there, SOAK)
    fenced = there.write((3, 3, 3), 10, close=False)
    there.cluster("recover", ledger=fenced, digest="CRC32C", password=encoded(b"pw"))
    by_default, by_all = (set(there.cluster("check", percent=percent)) for percent in (0, 100))
    ours = {end, middle, lost, gone, elsewhere, healthy, striped}
    assert by_default & ours == {end, lost, gone, elsewhere}
    assert by_all & ours == by_default & ours | {middle}

    everything: set[int] = set()
    in_the_middle, of_healthy = [], []
    copies_read, begun = 0, time.process_time()
    for number in range(RUNS):
        caplog.clear()
        since = tmp_path / f"run-{number - 1}" if number else None
        done, found, judged = sample(capsys, there.uri, tmp_path / f"run-{number}", since)
        assert done.code == 3, done
        sampled = done.result["coverage"]["sampled"]
        assert (sampled["run"], sampled["runs"], sampled["failed"]) == (number + 1, RUNS, 0)
        assert f"run {number + 1} of {RUNS} reads {sampled['asked']:,} of" in caplog.text
        assert f"with one run a day each copy was read after {RUNS} days" in caplog.text
        copies_read += sampled["held"] + sampled["lacking"]
        assert sampled["held"] + sampled["lacking"] < sampled["copies"]
        # What earlier runs read counts: after N runs all copies are judged, and the run says since when.
        is_last = number == RUNS - 1
        assert (done.result["coverage"]["judged"] == done.result["coverage"]["positions"]) is is_last
        assert (sampled["read_earlier"] > 0) is (number > 0)
        assert by_default <= found.keys()
        assert found.keys() & ours - {middle} == {end, lost, gone, elsewhere}
        assert found[end] == found[gone] == {"BELOW_WRITE_QUORUM"}
        assert (found[lost], found[elsewhere]) == ({"ENTRY_LOST"}, {"ENTRIES_MISPLACED"})
        in_the_middle.append(found.get(middle))
        of_healthy.append(judged[healthy])
        everything |= found.keys()
    # Ledgers of the tests before are not among the damaged.
    shown = {ledger for ledger in everything if ledger >= healthy}
    assert by_all <= everything
    assert shown == damaged, "all that is damaged, and nothing else"
    # Each entry is read in one of the runs. A miss that was seen stays: every later run asks for it again.
    seen_in = in_the_middle.index({"BELOW_WRITE_QUORUM"})
    assert in_the_middle == [None] * seen_in + [{"BELOW_WRITE_QUORUM"}] * (RUNS - seen_in)
    read_in = of_healthy.index(("clean", None))
    assert of_healthy == [("undecided", "sampled")] * read_in + [("clean", None)] * (RUNS - read_in)
    disks = open_dataset(collect(capsys, there.uri, there.cluster.home, there.bookies[0], tmp_path / "0"), "inventory")
    held_back = {
        row["ledger"] for row in disks.read("copies", columns=["ledger", "fenced"]).to_pylist() if row["fenced"]
    }
    assert held_back == {fenced}, "reads of a scrutiny fence nothing"
    if SOAK:
        cpu_s = time.process_time() - begun
        counts = {"Java's default": len(by_default), "Java at 100 %": len(by_all), "here": len(everything)}
        counts["damaged"] = len(damaged)
        counts["of one entry, among those that Java does not find"] = sum(
            there.record(ledger).last_entry == 0 for ledger in damaged - by_all
        )
        with capsys.disabled():
            sys.stdout.write(f"seed {SEED}, {SOAK} ledgers damaged at random, found: {counts}; {RUNS} runs read ")
            sys.stdout.write(f"{copies_read:,} copies in {cpu_s:.1f} s of CPU, all of the runs included\n")


@pytest.mark.parametrize(
    "words",
    [
        ["--sample-reads", "--inventory", "x"],
        ["--sample-runs", "3"],
        ["--max-read-mb-s", "3"],
        ["--sample-reads", "--against", "zk://h/l"],
    ],
)
def test_options_of_reads_are_refused_where_nothing_is_read(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Who gives them thinks that they do something."""
    done = run(capsys, "scrutinize", "--metadata", "zk://h/l", "--out", "never", *words)
    assert (done.code, "has no meaning with" in done.err) == (2, True), done
