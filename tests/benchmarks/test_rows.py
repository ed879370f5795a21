"""Benchmarks: what they make is what the product takes, and their figures are what they say."""

import itertools
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.data import bookie_folder, catalogs, cluster_disks, inventories, locations, nasties, plans
from benchmarks.data.cache import kept
from benchmarks.data.ledgers import BOOKIES, ENSEMBLE, PASSWORD, WRITE, chunk, groups, stays
from benchmarks.measure import Cost, RunFailedError, beside_servers, bkmeta, python, run, staying
from benchmarks.pairs import Contestant, Limits, Result, growth, held_to, in_turns, served, table
from benchmarks.programs import stages
from benchmarks.rows import bookie_files, reconstruction
from benchmarks.rows.row import STAGES, Place
from benchmarks.rows.table import ROWS
from reconcile.cli.options import make_context
from reconcile.cli.output import Output
from reconcile.jobs.backup.verify import verify_backup
from recovery.codecs.ledger_metadata import decode
from recovery.dataset import open_dataset
from recovery.infer.prior import Prior, count_shapes
from recovery.infer.reconstruct import InferOptions, reconstruct
from recovery.model import tables
from recovery.model.groups import group_entries
from tests.simulation import histories

pytestmark = pytest.mark.long

LEDGERS = 250


def test_groups_are_those_of_the_entries() -> None:
    """The closed form of a stay's groups is what grouping its entries one by one gives."""
    made = stays(chunk(0, LEDGERS))
    short = np.flatnonzero(made.high - made.low < 500)
    position, low, high = made.position[short], made.low[short], made.high[short]
    found, last = groups(position, low, high)
    pairs = [
        (stay, entry)
        for stay, (p, a, b) in enumerate(zip(position.tolist(), low.tolist(), high.tolist(), strict=True))
        for entry in range(a, b)
        if (p - entry) % ENSEMBLE < WRITE
    ]
    key, entry = np.array(pairs, np.int64).T
    expected = group_entries(entry, key)
    assert len(short) > LEDGERS
    assert all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))
    assert last.tolist() == [max(e for _, e in own) for _, own in itertools.groupby(pairs, key=lambda pair: pair[0])]


def test_the_clean_path_accepts_made_up_inventories(tmp_path: Path) -> None:
    """Every ledger is restored, with the segments that it was made with."""
    inventories.write(tmp_path, LEDGERS)
    found = [open_dataset(folder, "inventory") for folder in sorted(tmp_path.iterdir())]
    copies, bookies = (pa.concat_tables([one.read(name) for one in found]) for name in ("copies", "bookies"))
    prior = Prior.build(count_shapes(copies, bookies))
    rows = reconstruct(copies, bookies, tables.DAMAGE.empty_table(), prior, InferOptions(passwords=(PASSWORD,)))
    made = chunk(0, LEDGERS)
    restored = {row["ledger"]: row for row in rows.to_pylist() if row["outcome"] == "restored"}
    assert sorted(restored) == made.ledger.tolist()
    for at, ledger in enumerate(made.ledger.tolist()):
        row = restored[ledger]
        assert row["last_entry"] == made.entries[at] - 1
        assert row["format"] == 3
        found_segments = [(segment["first"], tuple(segment["members"])) for segment in row["segments"]]
        assert [members for _, members in found_segments] == [members for _, members in made.segments(at)]
        for segment, (first, _) in zip(row["segments"], made.segments(at), strict=True):
            assert segment["first_low"] <= first <= segment["first"]
    assert sum(1 for row in restored.values() if len(row["segments"]) == 2) == -(-LEDGERS // 100)


def test_every_kind_of_past_is_among_nasty_ledgers(tmp_path: Path) -> None:
    """Each ledger is there once; as many as are promised changed, were copied or harmed, and each path is taken."""
    nasties.write(tmp_path, 2000)
    found = [open_dataset(folder, "inventory") for folder in sorted(tmp_path.iterdir())]
    copies, bookies, damage = (pa.concat_tables([one.read(name) for one in found]) for name in tables.INVENTORY)
    prior = Prior.build(count_shapes(copies, bookies))
    passwords = (PASSWORD, histories.PASSWORD, b"")
    rows = reconstruct(copies, bookies, damage, prior, InferOptions(passwords=passwords)).to_pylist()
    made = chunk(0, 2000)
    assert [row["ledger"] for row in sorted(rows, key=lambda row: row["ledger"])] == made.ledger.tolist()
    place = {ledger: at for at, ledger in enumerate(made.ledger.tolist())}
    kinds = {
        kind: [row for row in rows if place[row["ledger"]] % every == which] for kind, every, which in nasties.KINDS
    }
    assert {kind: len(some) for kind, some in kinds.items()} == {"changes": 20, "rereplicated": 20, "holes": 2}
    assert all(len(row["segments"]) > 1 for row in kinds["changes"])
    assert {row["class"] for row in kinds["rereplicated"]} & {"re-replicated", "solved"}
    assert "clean" not in {row["class"] for row in kinds["rereplicated"]}
    assert "damage" in [row["reason"] for row in kinds["holes"]]
    assert damage.num_rows == 1
    usual = [row for row in rows if not any(row in some for some in kinds.values())]
    assert {(row["class"], row["outcome"]) for row in usual} == {("clean", "restored")}


def test_two_catalogs_differ_in_what_they_say(tmp_path: Path) -> None:
    """Records are what the codec reads, and every ledger stands on one side at least."""
    catalogs.write(tmp_path, 2000)
    now, earlier = (
        open_dataset(tmp_path / side, "catalog").read("ledgers") for side in (catalogs.NOW, catalogs.EARLIER)
    )
    before = {row["ledger"]: row for row in earlier.to_pylist()}
    after = {row["ledger"]: row for row in now.to_pylist()}
    assert sorted({*before, *after}) == chunk(0, 2000).ledger.tolist()
    assert (len(after.keys() - before.keys()), len(before.keys() - after.keys())) == (4, 2)
    other = [ledger for ledger in before.keys() & after.keys() if before[ledger]["raw"] != after[ledger]["raw"]]
    assert len(other) == 20
    assert sorted({before[ledger]["state"] for ledger in other}) == ["CLOSED", "OPEN"]
    assert all(row["error"] is None and decode(row["raw"]).segments for row in [*after.values(), *before.values()])


def test_what_duckdb_groups_is_every_ledger(tmp_path: Path) -> None:
    """Both of its groupings read all inventories, and write a row a ledger."""
    inventories.write(tmp_path / "inventories", LEDGERS)
    for flat in (False, True):
        with stages.group(str(tmp_path / "inventories"), str(tmp_path / "out.parquet"), flat=flat) as once:
            assert once()["ledgers"] == LEDGERS
        assert (
            sorted(pq.read_table(tmp_path / "out.parquet")["ledger"].to_pylist()) == chunk(0, LEDGERS).ledger.tolist()
        )


@contextmanager
def staying_here(command: Sequence[object]) -> Iterator[SimpleNamespace]:
    """Open the stage of a command in this process."""
    name, *arguments = map(str, command[list(command).index(STAGES) + 1 :])
    with stages._STAYING[name](*arguments) as once:
        yield SimpleNamespace(run=lambda: Cost(0.0, 0.0, {}, once()))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("nasty", "restored 199, guarded 1, held 0, waiting 0"),
        ("diff", "changed 5, created 2, earlier_only 1, equal 187, moved 5"),
    ],
)
def test_rows_with_spark_look_at_every_ledger(
    name: str, note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stage ends with as many ledgers as were made, or says so, and says what became of them.

    In this process, where both use one Java; the floor of `diff` is a program of its own, as all are when measured.
    """
    monkeypatch.setattr(reconstruction, "staying", staying_here)
    (tmp_path / "scratch").mkdir()
    [row] = [one for one in ROWS if one.name == name]
    with row.open(Place(tmp_path, tmp_path / "scratch", 200, alone=True)) as contestants:
        [cost] = [run_one() for run_one in contestants.values()]
    assert cost.said["ledgers"] == 200
    assert cost.said["note"] == note


@pytest.mark.spark
def test_the_floor_of_diff_joins_both_sides(tmp_path: Path) -> None:
    """Spark's join has a row for each ledger of either side."""
    catalogs.write(tmp_path, 200)
    with staying(python("benchmarks.programs.stages", "outer-join", tmp_path)) as floor:
        assert floor.run().said["ledgers"] == 200


@pytest.mark.real
def test_the_row_of_tombstones_deletes_every_ledger(tmp_path: Path) -> None:
    """All are safe by the made-up inventories and purged; the note says what their tombstones take."""
    (tmp_path / "scratch").mkdir()
    [row] = [row for row in ROWS if row.name == "tombstones-etcd"]
    with row.open(Place(tmp_path, tmp_path / "scratch", 200, alone=True)) as contestants:
        cost = contestants["deletes"]()
    assert cost.said["ledgers"] == 200
    assert "after it 1 nodes" in str(cost.said["note"])


@pytest.mark.real
def test_the_row_of_backups_seals_every_change(tmp_path: Path) -> None:
    """Of each run into a backup of its own; etcd's client ends where the last change came."""
    (tmp_path / "scratch").mkdir()
    [row] = [row for row in ROWS if row.name == "backup-etcd"]
    with row.open(Place(tmp_path, tmp_path / "scratch", 200, alone=True)) as contestants:
        costs = [contestants["backup follow"]() for _ in range(2)]
        contestants["etcdctl watch"]()
    assert [cost.said["ledgers"] for cost in costs] == [200, 200]


def test_the_row_of_a_month_of_a_backup_shows_what_is_left(tmp_path: Path) -> None:
    """A whole backup: the stage and its floor each show every ledger that was not deleted."""
    (tmp_path / "scratch").mkdir()
    [row] = [row for row in ROWS if row.name == "backup-point"]
    with row.open(Place(tmp_path, tmp_path / "scratch", 200)) as contestants:
        costs = [run_one() for run_one in contestants.values()]
    assert [cost.said["ledgers"] for cost in costs] == [200, 200]
    [made] = tmp_path.glob("backups-*")
    context = make_context(Output(as_json=True, progress="none"))
    assert verify_backup(made, None, context).problems == []
    rows = open_dataset(tmp_path / "scratch" / "backup-point", "catalog").read("ledgers")
    assert sorted(rows["ledger"].to_pylist()) == chunk(0, 200).ledger.tolist()
    assert set(rows["state"].to_pylist()) == {"CLOSED"}


def test_growth_is_told_by_ledger(tmp_path: Path) -> None:
    """Each size has its CPU time a ledger, and that of each ledger more than before."""
    costs = {size: Cost(1.0, cpu, {"driver": 1 << 20}, {}) for size, cpu in ((1000, 3.0), (2000, 5.0))}
    results = [Result(size, {"stage": cost}, {"stage": [cost]}) for size, cost in costs.items()]
    assert [line.split() for line in growth(results)[1:]] == [
        ["stage", "1,000", "1.00", "3.00", "3000.0", "1", "driver"],
        ["2,000", "1.00", "5.00", "2500.0", "2000.0", "1", "driver"],
    ]


def test_runs_are_held_to_limits() -> None:
    """The longest run of each counts, and its largest process; the floor has no limits."""
    rounds = {
        "quick": [Cost(1.0, 1.0, {"": 1 << 20}, {})],
        "slow": [Cost(1.0, 1.0, {"": 1 << 20}, {}), Cost(3.0, 1.0, {"": 1 << 20}, {})],
        "large": [Cost(1.0, 1.0, {"": 5 << 20}, {})],
        "floor": [Cost(9.0, 9.0, {"": 9 << 20}, {})],
    }
    lines = held_to(Result(10, None, rounds), Limits(2.0, 4 << 20))
    assert [line.partition(";")[2].split()[0] for line in lines] == ["within", "MISSED:", "MISSED:"]


def test_a_plan_and_the_records_of_its_peer_are_the_same(tmp_path: Path) -> None:
    """Java's client is given the keys and values that the plan creates, in its order."""
    plans.write(tmp_path, LEDGERS)
    actions = open_dataset(tmp_path, "plan").read("actions")
    raw, at = (tmp_path / plans.RECORDS).read_bytes(), 0
    fields = []
    while at < len(raw):
        (size,) = struct.unpack_from(">i", raw, at)
        fields.append(raw[at + 4 : at + 4 + size])
        at += 4 + size
    assert fields[::2] == [key.encode() for key in actions["key"].to_pylist()]
    assert fields[1::2] == actions["value"].to_pylist()
    assert set(actions["op"].to_pylist()) == {"create"}
    assert actions.num_rows == LEDGERS


def test_a_made_up_bookie_is_collected_completely(tmp_path: Path) -> None:
    """Nothing of the folder is damage, every ledger is there, and the headers of its first and last entry were read."""
    bookie_folder.write(tmp_path / "bookie", LEDGERS)
    folders = [tmp_path / "bookie" / name for name in (bookie_folder.LEDGERS, bookie_folder.JOURNAL)]
    options = ["--ledger-dir", folders[0], "--journal-dir", folders[1], "--out", tmp_path / "inventory"]
    cost = run(bkmeta("collect", *options, "--json"))
    assert cost.said["coverage"]["complete"]
    assert cost.said["counts"]["damaged"] == 0
    rows = open_dataset(tmp_path / "inventory", "inventory").read("copies").to_pylist()
    assert sorted(row["ledger"] for row in rows) == list(range(LEDGERS))
    assert all([header["entry"] for header in row["headers"]] == [row["first"], row["last"]] for row in rows)
    assert all(row["bookie"] == BOOKIES[0] for row in rows)


def test_made_up_disks_of_a_cluster_bring_every_ledger_back(tmp_path: Path) -> None:
    """Two bookies with index files, two with RocksDB: all is collected, and each ledger restored as it was made."""
    cluster_disks.write(tmp_path / "disks", LEDGERS)
    found = []
    for number in range(len(cluster_disks.BOOKIES)):
        bookie, out = cluster_disks.folder_of(tmp_path / "disks", number), tmp_path / f"inventory-{number}"
        folders = ("--ledger-dir", bookie / cluster_disks.LEDGERS, "--journal-dir", bookie / cluster_disks.JOURNAL)
        run(bkmeta("collect", *folders, "--out", out))
        found.append(open_dataset(out, "inventory"))
    copies, bookies, damage = (pa.concat_tables([one.read(name) for one in found]) for name in tables.INVENTORY)
    assert bookies["storage"].to_pylist() == ["interleaved"] * 2 + ["db"] * 2
    assert all(bookies["complete"].to_pylist())
    assert damage.num_rows == 0
    prior = Prior.build(count_shapes(copies, bookies))
    rows = reconstruct(copies, bookies, damage, prior, InferOptions(passwords=(PASSWORD,))).to_pylist()
    assert {row["outcome"] for row in rows} == {"restored"}
    assert {row["last_entry"] for row in rows} == {cluster_disks.EACH - 1}
    assert sorted(row["ledger"] for row in rows) == list(range(0, 3 * LEDGERS, 3))
    assert sum(len(row["segments"]) == 2 for row in rows) == -(-LEDGERS // 100)


def test_data_is_made_once(tmp_path: Path) -> None:
    """Asked for again it is the same folder; what was left unfinished is made anew."""
    (tmp_path / "inventories-20-unfinished").mkdir()
    folder = kept(tmp_path, inventories.write, 20)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert kept(tmp_path, inventories.write, 20) == folder
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert list(tmp_path.iterdir()) == [folder]


def test_a_run_costs_what_it_and_its_children_take() -> None:
    """CPU and memory of a command are its own, whatever the process that measures has taken."""
    ballast = bytearray(200 << 20)
    small = run([sys.executable, "-S", "-c", "pass"])
    large = run(["bash", "-c", f"{sys.executable} -S -c 'bytearray(60 << 20)'; true"])
    assert small.peaks[""] < len(ballast) // 4
    assert 60 << 20 < large.peaks[""] < 110 << 20
    assert run([sys.executable, "-S", "-c", "print('{\"seconds\": 7}')"]).seconds == 7


def test_what_a_command_leaves_behind_is_counted() -> None:
    """A process that outlives the one that started it is waited for, as Java is that a program leaves."""
    left = run(["bash", "-c", f"{sys.executable} -S -c 'sum(range(20_000_000))' & exit 0"])
    assert left.cpu_s > 4 * run([sys.executable, "-S", "-c", "pass"]).cpu_s


def test_a_run_that_fails_is_no_figure() -> None:
    """The error says how the command ended and what it said."""
    with pytest.raises(RunFailedError, match=r"ended with 3:\nbad"):
        run(["bash", "-c", "echo bad >&2; exit 3"])


def test_a_staying_program_is_measured_run_by_run() -> None:
    """Each run has its own peak and its own CPU, those of processes below included."""
    program = (
        "import json, sys\n"
        "say = lambda said: print(json.dumps(said), flush=True)\n"
        "say({})\n"
        "for number, _ in enumerate(sys.stdin):\n"
        "    bytearray((80 >> 3 * number) << 20)\n"
        "    sum(range(3_000_000))\n"
        "    say({'seconds': number})\n"
    )
    with staying([sys.executable, "-S", "-c", program]) as stays_on:
        first, second = stays_on.run(), stays_on.run()
        assert (first.seconds, second.seconds) == (0, 1)
        assert first.peaks["python"] - second.peaks["python"] > 40 << 20
        assert second.cpu_s > 0


def test_what_servers_use_meanwhile_is_said_beside_the_figures() -> None:
    """Of a process that works while something else is measured, and of nobody's where there is none."""
    with subprocess.Popen([sys.executable, "-S", "-c", "sum(range(20_000_000))"]) as server:

        def work() -> Cost:
            os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)
            return Cost(1.0, 0.5, {}, {"ledgers": 3})

        cost = beside_servers([server.pid], work)
    assert cost.said["ledgers"] == 3
    used, busiest = served(Result(3, None, {"stage": [cost]}))[0].removesuffix(")").rpartition("stage ")[2].split(" (")
    assert float(used) > 4 * run([sys.executable, "-S", "-c", "pass"]).cpu_s
    assert used == busiest
    assert not served(Result(3, None, {"stage": [Cost(1.0, 0.5, {}, {})]}))


def test_ratios_are_taken_round_by_round() -> None:
    """The ratio is the median of those of each round, and the round before them does not count."""
    stage, floor = iter([9.0, 1.0, 8.0, 3.0]), iter([1.0, 1.0, 2.0, 1.0])
    result = in_turns(
        {"stage": lambda: Cost(next(stage), 1.0, {"": 1 << 20}, {}), "floor": lambda: Cost(next(floor), 2.0, {}, {})},
        1000,
        3,
    )
    assert result.ratios("stage") == [1.0, 4.0, 3.0]
    line = next(line for line in table(result) if line.startswith("stage "))
    assert line.split() == ["stage", "1.00", "3.00", "333", "3.00", "1.00", "0.50", "1"]


def test_the_command_says_what_it_has() -> None:
    """Its help names every row; a row that is none is refused."""
    said = subprocess.run(python("benchmarks", "--help"), capture_output=True, text=True, check=True).stdout
    assert all(f"\n  {name} " in said for name in ("index", "reconstruct", "apply", "capture"))
    refused = subprocess.run(python("benchmarks", "nothing"), capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "no row is called nothing" in refused.stderr


@pytest.mark.parametrize(
    "row", [bookie_files.small, bookie_files.large, bookie_files.one_log, bookie_files.one_journal]
)
def test_rows_about_files_do_all_of_their_work(
    row: Callable[[Place], AbstractContextManager[dict[str, Contestant]]], tmp_path: Path
) -> None:
    """The stage reads as much as was made, or says so; its floor runs."""
    (tmp_path / "scratch").mkdir()
    with row(Place(tmp_path, tmp_path / "scratch", 40)) as contestants:
        assert all(run().seconds > 0 for run in contestants.values())


def test_all_locations_are_read(tmp_path: Path) -> None:
    """The stage of the row with a floor in C reads every location that was made."""
    folder = tmp_path / "locations"
    locations.write(folder, 3)
    held = len([n for n in range(locations.EACH) if n % ENSEMBLE < WRITE])
    assert run(python("benchmarks.programs.stages", "locations", folder, 0, 1)).said["keys"] == 3 * held
