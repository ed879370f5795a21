"""Scrutinies of a real cluster: each harm is found under its name, and nothing else is said."""

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from recovery.dataset import REPORT, Dataset, open_dataset
from recovery.model.ids import LedgerId
from recovery.model.metadata import LedgerState
from tests.support.cluster import Cluster
from tests.support.command import PROGRAM, Done, run
from tests.support.findings import said
from tests.support.scrutinized_cluster import ScrutinizedCluster
from tests.support.waiting import until

MARKED = ("marked", "overdue", "overdue, lost")
"""Of these their places are not judged: replication is at work."""
pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Harmed:
    """A cluster, and its ledgers by what was done to them."""

    there: ScrutinizedCluster
    ledgers: dict[str, int]
    clean: list[int]


@pytest.fixture(scope="module")
def harmed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harmed]:
    """One cluster with every harm that its store and disks can come to."""
    with Cluster(tmp_path_factory.mktemp("scrutiny") / "cluster") as cluster:
        there = ScrutinizedCluster(cluster)
        clean = [there.write(quorum, 30) for quorum in ((3, 2, 2), (3, 3, 2), (4, 3, 2), (2, 2, 1), (4, 2, 2))]
        made = {
            "lost": there.write((3, 3, 2), 12),
            "below ack": there.write((3, 3, 2), 12),
            "below write": there.write((3, 3, 2), 12),
            "misplaced": there.write((3, 3, 2), 12),
            "misplaced all": there.write((1, 1, 1), 12),
            "beyond": there.write((3, 3, 2), 12, close=False),
            "one copy": there.write((1, 1, 1), 5),
            "unparsable": there.write((3, 3, 2), 3),
            "open": there.write((3, 3, 2), 3, close=False),
            "empty": there.write((3, 3, 2), 0),
            "marked": there.write((3, 3, 2), 3),
            "overdue": there.write((3, 3, 2), 3),
            "overdue, lost": there.write((3, 3, 2), 3),
            "recovering": there.write((3, 3, 2), 3),
        }
        # What a writer sends next says that all before were acknowledged.
        cluster("add", ledger=made["beyond"], sizes=[20], ids=None)
        cluster("close", ledger=made["beyond"])
        losses = {
            made["lost"]: there.members(made["lost"]),
            made["below ack"]: there.members(made["below ack"])[:2],
            made["below write"]: there.members(made["below write"])[:1],
            made["overdue, lost"]: there.members(made["overdue, lost"]),
        }
        there.forget(losses)
        for name in ("misplaced", "misplaced all"):
            ledger = made[name]
            there.rename(ledger, there.members(ledger)[0], there.stranger(ledger))
        there.edit(made["beyond"], last_entry=4, length=100)
        there.edit(made["recovering"], state=LedgerState.IN_RECOVERY, last_entry=None, length=None)
        there.put({there.key(made["unparsable"]): b"BookieMetadataFormatVersion\t9\nx"})
        now = int(time.time() * 1000)
        there.mark(made["marked"], "bk0:3181", now)
        for name in ("overdue", "overdue, lost"):
            there.mark(made[name], "bk0:3181", now - 48 * HOUR_MS)
        yield Harmed(there, made, clean)


def scrutinize(capsys: pytest.CaptureFixture[str], harmed: Harmed, out: Path, *options: object) -> Done:
    """Run the command on the cluster; who does not answer is asked again at once."""
    return run(
        capsys, "scrutinize", "--metadata", harmed.there.uri, "--out", out,
        "--recheck-after", "0s", "--deadline", "20", "--patience", "3", "--json", *options,
    )  # fmt: skip


def findings(run_folder: Dataset) -> dict[str, dict[Any, dict[str, Any]]]:
    """Category → ledger or subject → finding."""
    found: dict[str, dict[Any, dict[str, Any]]] = {}
    for row in run_folder.read("findings").to_pylist():
        found.setdefault(row["category"], {})[row["subject"] if row["ledger"] is None else row["ledger"]] = row
    return found


def verdicts(run_folder: Dataset) -> dict[int, tuple[str, str | None]]:
    """Ledger → verdict and reason."""
    rows = run_folder.read("verdicts").to_pylist()
    assert len({row["ledger"] for row in rows}) == len(rows)
    return {row["ledger"]: (row["verdict"], row["reason"]) for row in rows}


def test_each_harm_is_found_and_nothing_else(
    harmed: Harmed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over the wire: every category by its harm, every other ledger clean or skipped with its reason."""
    done = scrutinize(capsys, harmed, tmp_path / "run")
    assert done.code == 3, done
    made, seen = harmed.ledgers, open_dataset(tmp_path / "run", "scrutiny")
    found = findings(seen)
    assert {category: set(of) for category, of in found.items()} == {
        "ENTRY_LOST": {made["lost"]},
        "NOT_ON_BOOKIES": {made["lost"]},
        "BELOW_ACK_QUORUM": {made["below ack"]},
        "BELOW_WRITE_QUORUM": {made["below write"]},
        "ENTRIES_MISPLACED": {made["misplaced"], made["misplaced all"]},
        "ENTRIES_BEYOND_LAST_ENTRY": {made["beyond"]},
        "METADATA_UNPARSABLE": {made["unparsable"]},
        "ONE_COPY": {made["one copy"], made["misplaced all"]},
        "UNDER_REPLICATED_OVERDUE": {made["overdue"], made["overdue, lost"]},
    }
    severities = {category: {row["severity"] for row in of.values()} for category, of in found.items()}
    assert severities["ENTRIES_MISPLACED"] == {"critical", "warning"}
    assert severities["ENTRIES_BEYOND_LAST_ENTRY"] == {"critical"}
    marked = found["UNDER_REPLICATED_OVERDUE"]
    assert [marked[made[name]]["severity"] for name in ("overdue", "overdue, lost")] == ["warning", "critical"]
    lost = found["ENTRY_LOST"][made["lost"]]
    assert [(group["first"], group["size"]) for group in lost["entries"]] == [(0, 12)]
    assert (
        said(found["BELOW_ACK_QUORUM"][made["below ack"]])["bookies", "copies of the worst entry where readers ask"]
        == "1"
    )
    judged = verdicts(seen)
    assert {ledger: judged[ledger] for ledger in harmed.clean} == dict.fromkeys(harmed.clean, ("clean", None))
    reasons = {name: judged[made[name]] for name in ("open", "empty", "marked", "recovering")}
    assert reasons == {
        "open": ("skipped", "open"), "empty": ("skipped", "empty"), "marked": ("skipped", "marked"),
        "recovering": ("skipped", "open"),
    }  # fmt: skip
    counts = done.result["counts"]
    parts = counts["clean"] + sum(counts["skipped"].values()) + sum(counts["undecided"].values())
    assert parts + counts["with_findings"] == counts["listed"] == len(judged)
    assert counts["looked_at"] == counts["listed"] - sum(counts["skipped"].values())
    coverage = done.result["coverage"]
    assert set(coverage["passed"]) == {"marked"}
    assert coverage["judged"] + coverage["passed"]["marked"] == coverage["positions"]


def test_javas_own_checks_differ_where_0019_says(
    harmed: Harmed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The auditor's checks of replicas and placement, asked of each ledger alone, beside what scrutiny finds."""
    racks = tmp_path / "racks"
    racks.write_text("bk0 /a\nbk1 /a\nbk2 /a\nbk3 /a\n")
    scrutinize(capsys, harmed, tmp_path / "run", "--topology", racks)
    found = findings(open_dataset(tmp_path / "run", "scrutiny"))
    ours = {
        ledger: {category for category, of in found.items() if ledger in of}
        for ledger in (*harmed.clean, *harmed.ledgers.values())
    }
    names = {number: name for name, number in harmed.ledgers.items()}
    java = {int(ledger): set(said) for ledger, said in harmed.there.cluster("audit").items()}
    placed = {ledger for ledger, said in java.items() if "placement" in said}
    replicas = {names.get(ledger, ledger): rest for ledger, said in java.items() if (rest := said - {"placement"})}
    missing = {"none", "below ack quorum", "below write quorum"}
    striped = replicas.pop(harmed.clean[-1])
    assert striped <= missing, "E - W = 2: every second entry of a healthy ledger is missing to Java"
    assert striped
    assert not ours[harmed.clean[-1]] - {"PLACEMENT_VIOLATED"}
    assert replicas == {
        "lost": {"none"},
        "below ack": {"below ack quorum"},
        "below write": {"below write quorum"},
        "misplaced": {"below write quorum"},
        "misplaced all": {"none"},
        "unparsable": {"replicas failed", "placement failed"},
    }
    violated = {ledger for ledger, categories in ours.items() if "PLACEMENT_VIOLATED" in categories}
    assert {names[ledger] for ledger in violated - placed} == {"open", "recovering"}
    assert {names[ledger] for ledger in placed - violated} == set(MARKED)
    whole = harmed.there.cluster("audit_all", rounds=1)["said"]
    assert "replicas failed" in whole, "one record that nobody can read ends Java's whole run"


def test_what_stands_for_too_long_is_found_by_the_grace(
    harmed: Harmed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a grace the fresh mark and the recovery are findings, too."""
    scrutinize(capsys, harmed, tmp_path / "run", "--grace", "0s", "--buckets", "1/1")
    found = findings(open_dataset(tmp_path / "run", "scrutiny"))
    assert set(found["UNDER_REPLICATED_OVERDUE"]) == {
        harmed.ledgers[name] for name in ("marked", "overdue", "overdue, lost")
    }
    assert set(found["RECOVERY_STUCK"]) == {harmed.ledgers["recovering"]}


def test_shares_look_at_every_ledger_once(harmed: Harmed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three runs, a third each: together the verdicts of one whole run; topology: who shares a rack is told."""
    racks = tmp_path / "racks"
    racks.write_text("bk0 /a\nbk1 /a\nbk2 /a\nbk3 /a\n")
    whole: dict[int, tuple[str, str | None]] = {}
    placed: set[int] = set()
    for number in (1, 2, 3):
        out = tmp_path / f"run-{number}"
        scrutinize(capsys, harmed, out, "--buckets", f"{number}/3", "--topology", racks)
        seen = open_dataset(out, "scrutiny")
        part = verdicts(seen)
        assert not part.keys() & whole.keys()
        whole |= part
        placed |= set(findings(seen)["PLACEMENT_VIOLATED"])
    assert len(whole) == len(harmed.clean) + len(harmed.ledgers)
    singles = {harmed.ledgers["one copy"], harmed.ledgers["misplaced all"], harmed.ledgers["unparsable"]}
    assert placed == whole.keys() - singles - {harmed.ledgers[name] for name in MARKED}


def test_what_an_upper_layer_knows_is_held_against_store_and_bookies(
    harmed: Harmed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A right end: nothing. An end that is cut, a ledger that is gone, one that its owner deleted: each its finding."""
    right, cut, deleted = harmed.clean[:3]
    lost = harmed.ledgers["lost"]
    known = [
        {"ledger": right, "last_entry": 29, "owner": "topic"},
        {"ledger": cut, "last_entry": 40, "owner": "topic"},
        {"ledger": deleted, "deleted": True, "owner": "topic"},
        {"ledger": 987_654, "last_entry": 3, "owner": "topic"},
        {"ledger": lost, "deleted": True, "owner": "topic"},
    ]
    file = tmp_path / "known.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in known))
    done = scrutinize(capsys, harmed, tmp_path / "run", "--references", file)
    found = findings(open_dataset(tmp_path / "run", "scrutiny"))
    assert {name: set(of) for name, of in found.items() if name.startswith(("REFERENCE", "DELETED"))} == {
        "REFERENCE_DIFFERS": {cut}, "REFERENCE_NOT_FOUND": {987_654}, "DELETED_BY_OWNER": {deleted, lost},
    }  # fmt: skip
    assert found["REFERENCE_DIFFERS"][cut]["severity"] == "critical"
    assert done.code == 3
    judged = {ledger: verdict for ledger, (verdict, _) in verdicts(open_dataset(tmp_path / "run", "scrutiny")).items()}
    assert [judged[one] for one in (cut, deleted, right)] == ["REFERENCE_DIFFERS", "DELETED_BY_OWNER", "clean"]
    # What is wrong on bookies as well has the gravest of both; what the store lacks is no ledger that is listed.
    assert (judged[lost], 987_654 in judged) == ("ENTRY_LOST", False)
    assert not list((tmp_path / "run" / "verdicts").glob("buckets-*"))
    counts = done.result["counts"]
    plain = [counts["clean"], sum(counts["skipped"].values()), sum(counts["undecided"].values())]
    assert plain == [list(judged.values()).count(word) for word in ("clean", "skipped", "undecided")]
    assert sum(plain) + counts["with_findings"] == counts["listed"] == len(judged)


def test_racks_are_taken_from_the_store_where_it_has_them(
    harmed: Harmed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pulsar's node says that all bookies share a rack; without it, and without a topology, no policy can be held."""
    ledger = harmed.clean[0]
    share = ("--buckets", f"{LedgerId(0, ledger).bucket + 1}/4096")
    policy = tmp_path / "client.conf"
    policy.write_text("enforceMinNumRacksPerWriteQuorum=true\n")
    refused = run(
        capsys, "scrutinize", "--metadata", harmed.there.uri, "--out", tmp_path / "refused", "--placement", policy
    )
    racks = {bookie.id: {"rack": "/a"} for bookie in harmed.there.bookies}
    harmed.there.put({"/bookies": json.dumps({"default": racks}).encode()})
    try:
        done = scrutinize(capsys, harmed, tmp_path / "run", *share, "--placement", policy)
    finally:
        harmed.there.remove("/bookies")
    assert (refused.code, done.code) == (2, 3)
    assert set(findings(open_dataset(tmp_path / "run", "scrutiny"))["PLACEMENT_VIOLATED"]) == {ledger}


def test_a_silent_bookie_is_one_finding_and_its_ledgers_wait(
    harmed: Harmed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Registered, connected to, and no answer: critical. The ledger that names it is undecided, no other one is."""
    ledger = harmed.clean[1]
    member = harmed.there.members(ledger)[0]
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        name = f"127.0.0.1:{deaf.getsockname()[1]}"
        client = KazooClient(harmed.there.cluster.zookeeper)
        client.start()
        client.create(f"/ledgers/available/{name}", b"", ephemeral=True)
        harmed.there.rename(ledger, member, name)
        try:
            done = scrutinize(
                capsys, harmed, tmp_path / "run", "--deadline", "1", "--patience", "1", "--min-coverage", "100"
            )
        finally:
            harmed.there.rename(ledger, name, member)
            client.stop()
            client.close()
    assert done.code == 3
    found = findings(open_dataset(tmp_path / "run", "scrutiny"))
    assert set(found["BOOKIE_SILENT"]) == {name}
    assert found["BOOKIE_SILENT"][name]["severity"] == "critical"
    assert done.result["coverage"]["silent"] == [name]
    assert done.result["coverage"]["judged_pct"] < 100
    assert verdicts(open_dataset(tmp_path / "run", "scrutiny"))[ledger] == ("undecided", "no answer")


def test_a_lost_bookie_that_no_auditor_will_mark_is_told(
    harmed: Harmed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bookie is stopped, and auto-recovery runs nowhere: why its ledgers are not marked; they are undecided."""
    bookie = harmed.there.bookies[3]
    ledger = next(one for one in harmed.clean if bookie.id in harmed.there.members(one))
    share = f"{LedgerId(0, ledger).bucket + 1}/4096"
    harmed.there.cluster("bookie_stop", n=bookie.n)
    try:
        done = scrutinize(capsys, harmed, tmp_path / "run", "--buckets", share, "--fail-on", "critical")
    finally:
        harmed.there.cluster.start(bookie)
    found = findings(open_dataset(tmp_path / "run", "scrutiny"))
    assert set(found["AUDITOR_UNAWARE"]) == {bookie.id}
    assert said(found["AUDITOR_UNAWARE"][bookie.id])["store", "why"] == "no auditor is elected"
    assert "BOOKIE_SILENT" not in found
    assert (done.code, done.result["counts"]["undecided"]) == (4, {"no answer": 1})
    page = (tmp_path / "run" / REPORT).read_text()
    assert "too few of the copies could be judged" in page
    assert "Bookies and metadata agree" not in page
    assert open_dataset(tmp_path / "run", "scrutiny").manifest["trend"][-1]["exit_code"] == 4


def test_a_run_that_is_killed_goes_on_from_its_suspects(
    harmed: Harmed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed while it waits for a bookie, and run again: nothing is listed or asked for a first time again."""
    bookie = harmed.there.bookies[3]
    asked = [
        "scrutinize",
        "--metadata",
        harmed.there.uri,
        "--out",
        str(tmp_path / "run"),
        "--deadline",
        "2",
        "--patience",
        "2",
    ]
    harmed.there.cluster("bookie_stop", n=bookie.n)
    try:
        with subprocess.Popen([PROGRAM, *asked, "--recheck-after", "1h"], stderr=subprocess.DEVNULL) as killed:
            until((tmp_path / "run" / ".spill" / "first-look.json").exists, "the first look is over")
            killed.kill()
    finally:
        harmed.there.cluster.start(bookie)
    later = harmed.there.write((3, 2, 2), 5)
    done = run(capsys, *asked, "--recheck-after", "0s", "--json")
    seen = open_dataset(tmp_path / "run", "scrutiny")
    assert done.code == 3
    assert later not in verdicts(seen)
    assert {ledger: verdicts(seen)[ledger] for ledger in harmed.clean} == dict.fromkeys(harmed.clean, ("clean", None))
    assert set(findings(seen)["ENTRY_LOST"]) == {harmed.ledgers["lost"]}
    assert done.result["counts"]["undecided"] == {}
    assert not (tmp_path / "run" / ".spill").exists()
    harmed.there.cluster("delete", ledger=later)


def test_a_healthy_share_is_silent(harmed: Harmed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of one bucket that holds only a healthy ledger nothing is said."""
    share = f"{LedgerId(0, harmed.clean[0]).bucket + 1}/4096"
    done = scrutinize(capsys, harmed, tmp_path / "run", "--buckets", share)
    assert (done.code, done.result["counts"]["clean"], done.result["found"]) == (0, 1, {})


@pytest.mark.spark
def test_through_spark_the_same_is_found(harmed: Harmed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where a master is named, tasks of Spark look: findings and verdicts are those of one process."""
    scrutinize(capsys, harmed, tmp_path / "here")
    scrutinize(capsys, harmed, tmp_path / "spark", "--master", "local[1]")
    here, spark = (open_dataset(tmp_path / name, "scrutiny") for name in ("here", "spark"))
    assert verdicts(here) == verdicts(spark)
    ids = [sorted(one.read("findings", columns=["id"])["id"].to_pylist()) for one in (here, spark)]
    assert ids[0] == ids[1]
