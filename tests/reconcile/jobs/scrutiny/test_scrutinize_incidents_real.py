"""Public incidents, brought about on a real cluster and scrutinized: what has to be said is said, and nothing else."""

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recovery.codecs import ledger_metadata
from recovery.dataset import open_dataset
from recovery.model.ids import LedgerId
from tests.support.cluster import Cluster
from tests.support.command import Done, run
from tests.support.findings import said
from tests.support.scrutinized_cluster import ScrutinizedCluster

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScrutinizedCluster]:
    """A healthy cluster; each test mends what it broke."""
    with Cluster(tmp_path_factory.mktemp("incidents") / "cluster") as cluster:
        healthy = ScrutinizedCluster(cluster)
        for _ in range(6):
            healthy.write((3, 2, 2), 20)
        yield healthy


def scrutinize(
    capsys: pytest.CaptureFixture[str], there: ScrutinizedCluster, out: Path, *options: object
) -> tuple[Done, dict[str, list[dict[str, Any]]]]:
    """Run the command; return how it ended, and category → findings."""
    done = run(
        capsys, "scrutinize", "--metadata", there.uri, "--out", out, "--recheck-after", "0s", "--deadline", "20",
        "--patience", "3", "--json", *options,
    )  # fmt: skip
    found: dict[str, list[dict[str, Any]]] = {}
    for row in open_dataset(out, "scrutiny").read("findings").to_pylist():
        found.setdefault(row["category"], []).append(row)
    return done, found


def test_an_ensemble_that_was_renamed_is_misplaced_and_not_lost(
    there: ScrutinizedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its member answers that it knows no such ledger, another bookie has all: it is named, nothing is lost."""
    ledger = there.write((1, 1, 1), 10)
    holder = there.members(ledger)[0]
    there.rename(ledger, holder, there.stranger(ledger))
    done, found = scrutinize(capsys, there, tmp_path / "run")
    there.rename(ledger, there.members(ledger)[0], holder)
    assert done.code == 3
    [misplaced] = found["ENTRIES_MISPLACED"]
    assert (misplaced["ledger"], misplaced["severity"]) == (ledger, "critical")
    assert said(misplaced)["bookies", "have them, and are not named for them"] == holder
    assert found.keys() == {"ENTRIES_MISPLACED", "ONE_COPY"}


def test_records_that_nobody_can_read_stop_nothing(
    there: ScrutinizedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Empty, cut, of an unknown version: three findings, and every other ledger is looked at."""
    key = there.key(0)
    raw = base64.b64decode(there.cluster.nodes(key)[key]["data"])
    bad = {there.key(900 + n): value for n, value in enumerate((b"", raw[:40], b"BookieMetadataFormatVersion\t9\nx"))}
    there.put(bad)
    done, found = scrutinize(capsys, there, tmp_path / "run")
    for path in bad:
        there.remove(path)
    assert done.code == 3
    assert {row["ledger"] for row in found["METADATA_UNPARSABLE"]} == {900, 901, 902}
    counts = done.result["counts"]
    assert counts["clean"] == counts["listed"] - 3 - done.result["found"].get("ONE_COPY", 0)


def test_another_name_of_a_bookie_is_one_finding_and_with_the_alias_none(
    there: ScrutinizedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records name its old address: no flood of missing entries; with --aliases all is clean. Nothing is written."""
    ledgers = [there.write((3, 3, 2), 5) for _ in range(3)]
    old = "10.0.0.5:3181"
    name = there.members(ledgers[0])[0]
    renamed = [ledger for ledger in ledgers if name in there.members(ledger)]
    for ledger in renamed:
        there.rename(ledger, name, old)
    before = there.cluster.nodes("/ledgers")
    done, found = scrutinize(capsys, there, tmp_path / "run", "--min-coverage", "100")
    aliases = tmp_path / "aliases"
    aliases.write_text(f"{old} {name}\n")
    mended, quiet = scrutinize(capsys, there, tmp_path / "mended", "--aliases", aliases)
    # The same by inventories alone: nobody is asked, and the name is known all the same.
    for bookie in there.bookies:
        disks = [f"--journal-dir={there.cluster.home / bookie.journals[0]}"]
        disks += [f"--ledger-dir={there.cluster.home / bookie.ledgers[0]}"]
        run(capsys, "collect", *disks, "--out", tmp_path / "inventories" / str(bookie.n))
    alone = ("scrutinize", "--metadata", there.uri, "--inventory-dir", tmp_path / "inventories", "--json")
    named = run(capsys, *alone, "--aliases", aliases, "--out", tmp_path / "named")
    unnamed = run(capsys, *alone, "--out", tmp_path / "unnamed")
    assert there.cluster.nodes("/ledgers") == before
    for ledger in renamed:
        there.rename(ledger, old, name)
    assert ("ALIAS_UNRESOLVED" in unnamed.result["found"], "ALIAS_UNRESOLVED" in named.result["found"]) == (True, False)
    assert named.result["coverage"]["asked"] == 0
    assert named.result["coverage"]["judged"] > unnamed.result["coverage"]["judged"]
    assert [row["subject"] for row in found["ALIAS_UNRESOLVED"]] == [old]
    assert found.keys() <= {"ALIAS_UNRESOLVED", "ONE_COPY", "AUDITOR_UNAWARE"}
    assert done.result["counts"]["undecided"] == {"not seen": len(renamed)}
    assert (mended.code, quiet.keys() <= {"ONE_COPY"}) == (0, True)


def test_runs_know_each_other(there: ScrutinizedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """New, resolved and suppressed findings; figures and commands for other programs; ledgers that vanish in masses."""
    lacking = there.write((3, 3, 2), 8)
    [gone] = there.members(lacking)[:1]
    there.forget({lacking: [gone]})
    first, _ = scrutinize(capsys, there, tmp_path / "first")
    assert (first.code, first.result["counts"]["new"]) == (3, None)
    repairs = [json.loads(line) for line in (tmp_path / "first" / "repair.jsonl").read_text().splitlines()]
    assert [(one["ledger"], one["commands"]) for one in repairs] == [
        (str(lacking), [f"bookkeeper shell recover -l {lacking} {gone}"])
    ]
    answers = tmp_path / "suppress.toml"
    answers.write_text(
        f'[[suppress]]\ncategory = "BELOW_WRITE_QUORUM"\nledger = "{lacking}"\nowner = "me"\nwhy = "test"\n'
        "until = 2999-01-01\n"
    )
    figures = tmp_path / "bkmeta.prom"
    second, found = scrutinize(
        capsys, there, tmp_path / "second", "--since", tmp_path / "first", "--suppress", answers, "--metrics", figures
    )
    [row] = found["BELOW_WRITE_QUORUM"]
    counts = second.result["counts"]
    assert (second.code, counts["new"], counts["resolved"], counts["suppressed"]) == (0, 0, 0, 1)
    assert second.result["verdict"] == "nothing to act on; 1 finding suppressed or lighter than --fail-on"
    assert "Nothing to act on; 1 finding suppressed" in (tmp_path / "second" / "report.html").read_text()
    assert row["first_seen"] < row["last_seen"]
    assert (
        'bookkeeper_metadata_scrutiny_findings{category="BELOW_WRITE_QUORUM"} 1.0' in figures.read_text().splitlines()
    )
    assert figures.read_text() == (tmp_path / "second" / "metrics.prom").read_text()
    there.cluster("delete", ledger=lacking)
    third, found = scrutinize(capsys, there, tmp_path / "third", "--since", tmp_path / "second")
    assert (third.code, third.result["counts"]["resolved"]) == (0, 1)
    [resolved] = third.result["gone"]
    assert (resolved["ledger"], resolved["why"]) == (str(lacking), "the store does not list the ledger any longer")
    assert [json.loads(line)["ledger"] for line in (tmp_path / "third" / "gone.jsonl").read_text().splitlines()] == [
        str(lacking)
    ]
    assert (tmp_path / "first" / "ledgers" / "BELOW_WRITE_QUORUM.txt").read_text() == f"{lacking}\n"
    differing = run(capsys, "scrutiny", "diff", tmp_path / "first", tmp_path / "second", "--json")
    assert differing.result["changed"][0]["fields"] == [{"field": "status", "earlier": "open", "later": "suppressed"}]
    many = [there.write((2, 2, 2), 1) for _ in range(30)]
    scrutinize(capsys, there, tmp_path / "fourth")
    for ledger in many:
        there.remove(there.key(ledger))
    fifth, found = scrutinize(capsys, there, tmp_path / "fifth", "--since", tmp_path / "fourth")
    assert fifth.code == 3
    [doubt] = found["LISTING_INCOMPLETE"]
    assert said(doubt)["earlier", "ledgers that it listed and are gone"].startswith("30 of ")


def test_what_stands_beside_the_ledgers_is_found_and_nothing_else(
    there: ScrutinizedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Marks of no ledger, locks and registrations of no session, cookies of nobody, a generator that is behind.

    Beside the run before: a layout that is another, and a ledger whose record is another ledger's.
    """
    reused = there.write((3, 3, 2), 5)
    before, _ = scrutinize(capsys, there, tmp_path / "before")
    assert before.code == 0, before
    layout = base64.b64decode(there.cluster.nodes("/ledgers/LAYOUT")["/ledgers/LAYOUT"]["data"])
    lock, registered, cookie = (
        "/underreplication/locks/urL0000000003", "/available/127.0.0.9:3181", "/cookies/gone.example:3181"
    )  # fmt: skip
    high = 70_000
    there.mark(987_654, "bk0:3181", None)
    there.edit(reused, password=b"of another ledger")
    # Empty, so that no bookie has to hold anything of it; no generator gave its id.
    empty = replace(there.record(reused), last_entry=-1, length=0)
    there.put({
        f"/ledgers{lock}": b"", f"/ledgers{registered}": b"", f"/ledgers{cookie}": b"4\n",
        there.key(high): ledger_metadata.encode(empty), "/ledgers/LAYOUT": layout.replace(b":1", b":2"),
    })  # fmt: skip
    try:
        done, found = scrutinize(capsys, there, tmp_path / "run", "--since", tmp_path / "before")
    finally:
        for path in (lock, registered, cookie, "/underreplication/ledgers/0000"):
            there.remove(f"/ledgers{path}")
        there.remove(there.key(high))
        there.put({"/ledgers/LAYOUT": layout})
        there.cluster("delete", ledger=reused)
    subjects = {
        category: {row["subject"] if row["ledger"] is None else row["ledger"] for row in rows}
        for category, rows in found.items()
        if category != "ONE_COPY"  # of a ledger that another test of this module wrote
    }
    assert subjects == {
        "STALE_UR_MARK": {987_654},
        "DEAD_LOCK": {lock},
        "DEAD_REGISTRATION": {registered},
        "COOKIE_WITHOUT_BOOKIE": {cookie},
        # Who is registered for ever, without a cookie, answers nobody.
        "BOOKIE_WITHOUT_COOKIE": {"/cookies/127.0.0.9:3181"},
        "BOOKIE_SILENT": {"127.0.0.9:3181"},
        "GENERATOR_BEHIND": {"/idgen"},
        "LAYOUT_DIFFERS": {"/LAYOUT"},
        "ID_REUSE": {reused},
    }
    assert done.code == 3
    quiet = {row["severity"] for name in ("STALE_UR_MARK", "COOKIE_WITHOUT_BOOKIE") for row in found[name]}
    assert quiet == {"info"}


def test_what_was_put_over_a_store_is_found_and_nothing_else(
    there: ScrutinizedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another instance id, another cookie than on disks, another write quorum than was written with, a broken topic."""
    striped = there.write((3, 2, 2), 12)
    bookie = there.bookies[0]
    disks = [f"--{kind}-dir={there.cluster.home / folder}" for kind, [folder] in
             (("journal", bookie.journals), ("ledger", bookie.ledgers))]  # fmt: skip
    run(capsys, "collect", *disks, "--out", tmp_path / "inventory")
    before, _ = scrutinize(capsys, there, tmp_path / "before")
    assert before.code == 0, before
    names, topic = ("/ledgers/INSTANCEID", f"/ledgers/cookies/{bookie.id}"), "/managed-ledgers/public/default/t"
    kept = {name: base64.b64decode(there.cluster.nodes(name)[name]["data"]) for name in names}
    there.edit(striped, write_quorum=3)
    there.put({
        names[0]: b"00000000-0000-0000-0000-000000000000",
        names[1]: kept[names[1]].replace(b"journal", b"another"),
        topic: b"\xff\xff",
    })  # fmt: skip
    given = ("--since", tmp_path / "before", "--wire", "--inventory", tmp_path / "inventory", "--references", there.uri)
    try:
        done, found = scrutinize(capsys, there, tmp_path / "run", *given)
    finally:
        there.put(kept)
        there.remove("/managed-ledgers")
        there.cluster("delete", ledger=striped)
    subjects = {
        category: {row["subject"] if row["ledger"] is None else row["ledger"] for row in rows}
        for category, rows in found.items()
        # Of ledgers that other tests of this module wrote, or deleted.
        if category not in ("ONE_COPY", "DATA_WITHOUT_RECORD")
    }
    assert subjects == {
        "INSTANCE_ID_DIFFERS": {"/INSTANCEID"},
        "COOKIE_DIFFERS": {f"/cookies/{bookie.id}"},
        "REFERENCE_UNREADABLE": {f"{there.uri} {topic}"},
        "QUORUM_DIFFERS": {striped},
        "BELOW_WRITE_QUORUM": {striped},
    }
    [quorum] = found["QUORUM_DIFFERS"]
    shown = said(quorum)
    assert [shown[side, "ensemble_size/write_quorum"] for side in ("store", "bookies")] == ["3/3", "3/2"]
    assert done.code == 3


def test_zones_that_a_policy_would_rather_have_are_a_note(
    there: ScrutinizedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two zones where two are demanded and three are wanted: PLACEMENT_SOFT, which fails no run; in one: VIOLATED."""
    ledger = there.write((3, 3, 2), 5)
    policy, wide, narrow = (tmp_path / name for name in ("client.conf", "wide", "narrow"))
    policy.write_text(
        "ensemblePlacementPolicy=org.apache.bookkeeper.client.ZoneawareEnsemblePlacementPolicy\n"
        "enforceStrictZoneawarePlacement=true\n"
    )
    names = there.members(ledger)
    others = [bookie.id for bookie in there.bookies if bookie.id not in names]
    for file, zones in ((wide, ("a", "a", "b")), (narrow, ("a", "a", "a"))):
        places = [*zip(names, zones, strict=True), *((name, "c") for name in others)]
        file.write_text("".join(f"{name} /{zone}/domain{n}\n" for n, (name, zone) in enumerate(places)))
    share = ("--buckets", f"{LedgerId(0, ledger).bucket + 1}/4096")
    runs = {
        file.name: scrutinize(
            capsys, there, tmp_path / f"run-{file.name}", "--topology", file, "--placement", policy, *share
        )
        for file in (wide, narrow)
    }
    there.cluster("delete", ledger=ledger)
    assert {name: (done.code, [*found]) for name, (done, found) in runs.items()} == {
        "wide": (0, ["PLACEMENT_SOFT"]), "narrow": (3, ["PLACEMENT_VIOLATED"])
    }  # fmt: skip
