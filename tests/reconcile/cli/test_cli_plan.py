"""`plan show`, `plan diff`, `plan split` as they are typed: exit codes, the JSON, and nothing secret on a screen."""

import dataclasses
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import click
import pyarrow as pa
import pytest

from backends.protocols import Write
from backends.registry import OpenStore
from reconcile.cli.commands import recover
from reconcile.cli.settings import effective_settings
from reconcile.plan.bookie_starts import BookieSource, KnownBookie, StoredCookie, hash_cookie
from reconcile.plan.plan_hash import with_ids
from reconcile.plan.plan_reader import overview
from reconcile.report.pages import plan_page
from recovery.codecs.cookie import Cookie, encode
from recovery.dataset import Dataset, DatasetWriter, open_dataset, write_manifest, write_part
from recovery.model import tables
from tests.simulation.bookie_dir import make_bookie
from tests.support.command import run
from tests.support.memory_store import MemoryStore
from tests.support.paths import DATA
from tests.support.plan_folder import Ledger, write_plan

NAMES = ("b1", "b2", "b3")
LEDGERS = (
    *(Ledger(n, [(0, NAMES)], last=n, length=10 * n, password=b"hunter2") for n in range(1, 20)),
    Ledger(20, [(0, NAMES[:2])], reason="HOLE", owner="persistent://public/default/orders"),
)


@pytest.fixture
def made(tmp_path: Path) -> Dataset:
    """A plan of 19 restored ledgers and a hold."""
    return write_plan(tmp_path / "plan", LEDGERS)


def test_show_says_what_would_be_written(made: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    """Counts, phases, holds with reasons, the hash; the next command last, and no password."""
    done = run(capsys, "plan", "show", made.path)
    assert done.code == 0
    assert done.out.startswith("23 writes: 19 ledgers come back, 1 is held")
    for words in (
        made.manifest["hash"],
        "1 generators",
        "19 create, 1 hold",
        "20 persistent://public/default/orders (HOLE) on b1, b2",
        "layout hierarchical",
    ):
        assert words in done.out
    assert done.out.rstrip().splitlines()[-1].startswith("next: bkmeta rehearse")
    assert "hunter2" not in done.out


def test_what_is_left_alone_is_no_write(made: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    """An action that writes nothing unless somebody chooses is not counted as a write, anywhere."""
    folder = Path(made.path)
    rows = made.read("actions").to_pylist()
    for row in rows:
        if row["op"] == "create" and row["kind"] == "ledger" and row["ledger"] <= 3:
            row.update(op="leave")
    table = pa.Table.from_pylist(rows, schema=tables.ACTIONS)
    part = write_part(folder, "actions", "left", [with_ids(table)], secret=True)
    parts = {"actions": [part], **{name: made.parts(name) for name in ("findings", "reconstruction")}}
    counts = made.manifest["counts"] | {"restored": 16, "left_alone": 3}
    kept = {name: made.manifest[name] for name in ("binding", "coverage")}
    extra = {"reasons": {}, "counts": counts, "hash_version": made.manifest["hash_version"], "hash": ""}
    write_manifest(folder, "plan", parts, secret=True, extra=extra, **kept)
    extra["hash"] = overview(open_dataset(folder, "plan"), shown=0).hash
    write_manifest(folder, "plan", parts, secret=True, extra=extra, **kept)
    done = run(capsys, "plan", "show", made.path, "--json")
    assert (done.code, done.result["counts"]["writes"]) == (0, 20)
    assert "leave" not in {line["op"] for line in done.result["first"]}
    shown = run(capsys, "plan", "show", made.path)
    assert shown.out.startswith("20 writes: 16 ledgers come back")
    assert "'leave' writes nothing" in shown.out
    assert run(capsys, "plan", "diff", made.path, made.path, "--json").result["counts"]["actions_a"] == 23
    assert "A " in (said := run(capsys, "plan", "diff", made.path, made.path).out)
    assert said.count(": 20 writes") == 2


def test_the_next_command_has_the_address_of_the_store(
    made: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan knows for which store it was made, and nobody has to type its servers again."""
    uri = "zk+hierarchical://zk1:2181;zk2:2181/ledgers"
    with DatasetWriter(tmp_path / "plan" / "store", "catalog", binding={"uri": uri}, secret=True) as writer:
        writer.close(coverage={})
    following = run(capsys, "plan", "show", made.path, "--json").result["next"]
    assert "'zk+hierarchical://zk1:2181;zk2:2181/bkmeta-rehearsal/ledgers'" in following
    waves = run(capsys, "plan", "split", made.path, "--out", tmp_path / "waves", "--json").result["next"]
    assert f"--metadata '{uri}'" in waves


def test_show_gives_programs_the_same(made: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    """One object with schema, verdict, exit code, counts, coverage, and the lists that people see."""
    found = run(capsys, "plan", "show", made.path, "--first", "2", "--json").result
    assert {"schema", "verdict", "exit_code", "counts", "coverage"} <= set(found)
    assert found["schema"] == "bkmeta.plan-show/1"
    assert found["hash"] == found["hash_in_manifest"] == made.manifest["hash"]
    assert found["phases"]["ledgers"] == {"create": 19, "hold": 1}
    assert [line["kind"] for line in found["first"]] == ["generator", "ledger"]
    assert found["held"] == [
        {"ledger": "20", "reason": "HOLE", "topic": "persistent://public/default/orders", "holders": ["b1", "b2"]}
    ]


def test_show_fails_where_the_hash_is_not_that_of_the_files(made: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan that was changed after it was made is INVALID, exit code 1, and is not to be applied."""
    folder = Path(made.path)
    part = write_part(folder, "actions", "fewer", [made.read("actions").slice(1)], secret=True)
    parts = {"actions": [part], **{name: made.parts(name) for name in ("findings", "reconstruction")}}
    old = made.manifest
    extra = {name: old[name] for name in ("hash_version", "hash", "counts", "reasons")}
    write_manifest(folder, "plan", parts, binding=old["binding"], coverage=old["coverage"], secret=True, extra=extra)
    done = run(capsys, "plan", "show", made.path)
    assert (done.code, done.out.startswith("INVALID")) == (1, True)
    assert "do not apply it" in done.out


def test_a_plan_whose_file_is_cut_is_named(made: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    """A half-copied plan is exit code 2, with the file and what to do."""
    part = Path(made.path) / made.parts("actions")[1].file
    part.write_bytes(part.read_bytes()[:-10])
    done = run(capsys, "plan", "show", made.path)
    assert (done.code, done.out) == (2, "")
    assert part.name in done.err
    assert "again" in done.err


def test_short_prints_the_verdict_alone(made: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, the same as of --json, with the same exit code; it is text, so --json beside it is refused."""
    whole = run(capsys, "plan", "show", made.path, "--json")
    short = run(capsys, "plan", "show", made.path, "--short")
    assert (short.code, short.out) == (whole.code, f"{whole.result['verdict']}\n")
    assert run(capsys, "plan", "show", made.path, "--short", "--json").code == 2


def test_every_answer_has_the_settings_that_were_no_defaults(
    started: Dataset, store: MemoryStore, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Programs get all of them; people those that they did not type: of the incident file and the environment."""
    monkeypatch.setenv("BKMETA_ZK_AUTH", "me:secret")
    incident = tmp_path / "incident.toml"
    incident.write_text('store = "zk+hierarchical://h:1/ledgers"\n')
    applied = run(
        capsys, "apply", started.path, "--incident", incident, "--confirm", started.manifest["hash"], "--json"
    )
    # The line to copy keeps the incident file and names each bookie; the disks of the file are not named again.
    verify = f"bkmeta verify {started.path} --incident {incident} --sample all"
    assert re.fullmatch(rf"{re.escape(verify)}( --disk [\w.:-]+=DIR)+", applied.result["next"]), applied.result["next"]
    incident.write_text('store = "zk+hierarchical://h:1/ledgers"\ndisks = {"b1" = "b1"}\n')
    again = ("--resume", "--confirm", started.manifest["hash"], "--json")
    assert run(capsys, "apply", started.path, "--incident", incident, *again).result["next"] == verify
    disks = make_bookie(tmp_path / "b1", {}, bookie="b1").all_dirs
    words = ["verify", started.path, "--incident", incident, *(f"--disk=b1={folder}" for folder in disks)]
    settings = run(capsys, *words, "--sample", "7", "--json").result["settings"]
    assert settings["--sample"] == {"value": "7", "from": "option"}
    assert settings["--metadata"] == {"value": "zk+hierarchical://h:1/ledgers", "from": "incident file"}
    assert settings["BKMETA_ZK_AUTH"] == {"value": "set", "from": "environment"}
    assert "--deadline" not in settings
    [line] = [line for line in run(capsys, *words, "--sample", "7").out.splitlines() if "not typed" in line]
    assert "--metadata zk+hierarchical://h:1/ledgers (incident file)" in line
    assert "BKMETA_ZK_AUTH set (environment)" in line
    assert "--sample" not in line
    assert "secret" not in line


def test_diff_tells_same_from_different(made: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Plans that write the same are exit code 0, others 3, with every difference counted and the first listed."""
    same = write_plan(tmp_path / "same", LEDGERS, secrets=9)
    assert run(capsys, "plan", "diff", made.path, same.path).code == 0
    changed = [dataclasses.replace(ledger, length=1) for ledger in LEDGERS[:5]] + [*LEDGERS[5:19]]
    other = write_plan(tmp_path / "other", changed)
    done = run(capsys, "plan", "diff", made.path, other.path, "--first", "3", "--json")
    assert done.code == 3
    assert done.result["counts"] == {
        "actions_a": 23, "actions_b": 22, "only_in_a": 1, "only_in_b": 0, "differing": 5
    }  # fmt: skip
    assert len(done.result["differences"]) == 3
    text = run(capsys, "plan", "diff", made.path, other.path, "--first", "1").out
    assert "and 5 more: --first 6" in text


def test_split_makes_a_plan_that_show_accepts(
    made: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The new plan has another hash, says its waves, and names the apply of the first one as the next command."""
    done = run(capsys, "plan", "split", made.path, "--waves", "10%,rest", "--out", tmp_path / "cut", "--json")
    assert done.code == 0
    assert [wave["number"] for wave in done.result["waves"]] == [1, 2]
    assert done.result["hash"] == open_dataset(tmp_path / "cut", "plan").manifest["hash"] != made.manifest["hash"]
    shown = run(capsys, "plan", "show", tmp_path / "cut", "--json")
    assert (shown.code, set(shown.result["waves"])) == (0, {"1", "2"})
    again = run(capsys, "plan", "split", made.path, "--waves", "rest", "--out", tmp_path / "cut")
    assert again.code == 2
    assert "already holds a dataset" in again.err


def test_shares_that_are_none_are_usage(made: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A cut that leaves ledgers out is refused before anything is written."""
    done = run(capsys, "plan", "split", made.path, "--waves", "1%", "--out", tmp_path / "cut")
    assert (done.code, (tmp_path / "cut").exists()) == (2, False)
    assert "rest" in done.err


@pytest.mark.parametrize(
    "command", [["plan"], ["plan", "show"], ["plan", "diff"], ["plan", "split"], ["inspect"], ["doctor"]]
)
def test_help_has_an_example(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Every command shows how it is typed."""
    done = run(capsys, *command, "--help")
    assert done.code == 0
    assert "Example: bkmeta " in done.out


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """A store in memory that `apply` and `verify` are connected with, whatever the URI says."""
    found = MemoryStore()

    @contextmanager
    def connected(*_: object, **__: object) -> Iterator[OpenStore]:
        yield OpenStore(found, "/ledgers", "hierarchical", "zk+hierarchical://h:1/ledgers")

    monkeypatch.setattr("reconcile.jobs.changes.apply.connect", connected)
    monkeypatch.setattr("reconcile.jobs.verify.open_store", connected)
    return found


def test_why_a_plan_is_applied_is_shown_by_audit(
    made: Dataset, store: MemoryStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason stands in the journal, and in what `audit show` says of the run; one of two lines is refused."""
    command = ["apply", made.path, "--metadata", "zk+hierarchical://h:1/ledgers", "--confirm", made.manifest["hash"]]
    done = run(capsys, *command, "--reason", "two\nlines")
    assert (done.code, "one line" in done.err, store.children("/ledgers")) == (2, True, None)
    assert run(capsys, *command, "--reason", "INC-4711").code == 0
    shown = run(capsys, "audit", "show", made.path, "--json").result
    assert [one["reason"] for one in shown["journals"][0]["runs"]] == ["INC-4711"]


OWN = {name: encode(Cookie(5, name, ("/j",), ("/l",))) for name in ("a:1", "b:1", "c:1")}
KNOWN = (
    KnownBookie("a:1", BookieSource.DISKS, complete=True, cookie=hash_cookie(OWN["a:1"]), planned=StoredCookie.OWN),
    KnownBookie(
        "b:1", BookieSource.DISKS, missing=("/l",), expands_storage=False, stamps_cookies=False,
        cookie=hash_cookie(OWN["b:1"]), planned=StoredCookie.OWN,
    ),
    KnownBookie("c:1", cookie=hash_cookie(OWN["c:1"]), planned=StoredCookie.OWN),
)  # fmt: skip
KEPT_OUT = "folders of it are missing, empty or without VERSION (/l). Its cookie in the store keeps it from starting"
STARTS = (
    f"b:1 must not start: {KEPT_OUT}",
    "c:1 must not start: it was not collected. Keep it stopped yourself: it starts if its folders are all there",
    "a:1 may start",
)


@pytest.fixture
def started(tmp_path: Path) -> Dataset:
    """A plan of a few ledgers and three bookies: whole, harmed, and never seen."""
    return write_plan(tmp_path / "plan", LEDGERS[:3], bookies=KNOWN, cookies=OWN)


def test_verify_says_which_bookies_may_start_now(
    started: Dataset, store: MemoryStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the cookies that the store has when it is asked, as apply does."""
    uri = "zk+hierarchical://h:1/ledgers"
    run(capsys, "apply", started.path, "--metadata", uri, "--confirm", started.manifest["hash"])
    disks = make_bookie(tmp_path / "b1", {}, bookie="b1").all_dirs
    words = ["verify", started.path, "--metadata", uri, *(f"--disk=b1={folder}" for folder in disks)]
    lines = [line.strip() for line in run(capsys, *words).out.splitlines()]
    at = lines.index("1 of 3 bookies may start now:")
    assert tuple(lines[at + 1 : at + 4]) == STARTS
    cookie = store.get("/ledgers/cookies/a:1")
    assert cookie is not None
    store.write([Write("/ledgers/cookies/a:1", None, cookie.version)])
    found = {one["bookie"]: one for one in run(capsys, *words, "--json").result["bookies"]}
    assert (found["a:1"]["may_start"], found["a:1"]["reason"]) == (False, "the store has no cookie of it")


def test_apply_ends_with_which_bookies_may_start(
    started: Dataset, store: MemoryStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line for each, those that must not first; the plan says the same before it is written."""
    shown = [line.strip() for line in run(capsys, "plan", "show", started.path).out.splitlines()]
    at = shown.index("1 of 3 bookies may start when the plan is written:")
    assert tuple(shown[at + 1 : at + 4]) == STARTS
    command = ["apply", started.path, "--metadata", "zk+hierarchical://h:1/ledgers", "--confirm"]
    command.append(started.manifest["hash"])
    lines = [stripped for line in run(capsys, *command).out.splitlines() if (stripped := line.strip())]
    assert tuple(lines[-5:-1]) == ("1 of 3 bookies may start now:", *STARTS)
    found = run(capsys, *command, "--journal", tmp_path / "again", "--json").result["bookies"]
    assert [(one["bookie"], one["may_start"], one["is_kept_out"]) for one in found] == [
        ("b:1", False, True), ("c:1", False, False), ("a:1", True, False)
    ]  # fmt: skip
    assert run(capsys, "plan", "show", started.path, "--json").result["bookies"] == found
    text = plan_page(started, [], verdict="", made=datetime(2030, 1, 1, tzinfo=UTC))
    first = text[: text.index("At a glance")]
    assert KEPT_OUT in first
    assert 'May start: <span class="mono">a:1</span>' in first


def test_apply_goes_by_the_cookies_that_the_store_has(
    started: Dataset, store: MemoryStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another cookie stood there: it is left, so not all is written, and no bookie may start."""
    store.write([Write(f"/ledgers/cookies/{name}", b"5\n") for name in ("a:1", "b:1")])
    command = ["apply", started.path, "--metadata", "zk+hierarchical://h:1/ledgers", "--confirm"]
    done = run(capsys, *command, started.manifest["hash"], "--json")
    assert (done.code, [one["may_start"] for one in done.result["bookies"]]) == (6, [False] * 3)
    reasons = {one["bookie"]: one["reason"] for one in done.result["bookies"]}
    assert reasons["a:1"] == "not all of the plan is written"
    assert {one["bookie"]: one["is_kept_out"] for one in done.result["bookies"]}["a:1"] is False


def test_no_bookie_may_start_while_ledgers_wait_for_a_person(
    started: Dataset, store: MemoryStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dropped ledger keeps the cookies back: a bookie with all its folders refuses, one without some starts."""
    run(capsys, "plan", "edit", started.path, "--drop", 1, "--out", tmp_path / "edited")
    edited = open_dataset(tmp_path / "edited", "plan")
    applied = ["apply", "--metadata", "zk+hierarchical://h:1/ledgers", "--confirm", edited.manifest["hash"]]
    for words in (["plan", "show"], applied):
        found = {one["bookie"]: one for one in run(capsys, *words, edited.path, "--json").result["bookies"]}
        assert not any(one["may_start"] for one in found.values())
        assert "wait for a person" in found["a:1"]["reason"]
        assert "so it starts empty" in found["b:1"]["keeping"]
    assert store.children("/ledgers/cookies") is None


def test_files_that_are_swapped_while_apply_waits_are_not_written(
    made: Dataset,
    store: MemoryStore,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A whole other plan is put in place while the hash is typed: refused, and nothing is written."""
    other = write_plan(tmp_path / "other", [Ledger(n, [(0, ("b1", "b2", "b3"))], last=99) for n in range(1, 21)])

    def typed(*_: object, **__: object) -> str:
        shutil.rmtree(made.path)
        shutil.copytree(other.path, made.path)
        return str(made.manifest["hash"])[:8]

    monkeypatch.setattr(click, "prompt", typed)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    done = run(capsys, "apply", made.path, "--metadata", "zk+hierarchical://h:1/ledgers")
    assert done.code == 2
    assert "copy or make" in done.err
    assert store.children("/") in (None, [], ())


def test_settings_are_told_with_where_they_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options, defaults and variables; of a variable that may hold a secret only that it is set."""
    monkeypatch.setenv("BKMETA_ZK_AUTH", "me:secret")
    monkeypatch.setenv("BKMETA_PATIENCE_S", "3")
    words = ["--layout", "flat", "--inventory", "a", "--out", "new", "--default-quorum", "3/2/2"]
    with recover.recover.make_context("recover", words):
        found = effective_settings()
    assert found["--layout"] == {"value": "flat", "from": "option"}
    assert found["--inventory"] == {"value": ["a"], "from": "option"}
    assert found["--default-quorum"] == {"value": [3, 2, 2], "from": "option"}
    assert found["--tail"] == {"value": "inclusive", "from": "default"}
    assert found["BKMETA_PATIENCE_S"] == {"value": "3", "from": "environment"}
    assert found["BKMETA_ZK_AUTH"] == {"value": "set", "from": "environment"}
    assert "secret" not in json.dumps(found)


def test_a_catalog_says_how_it_was_captured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its manifest has the settings of the run."""
    store = f"zkfiles://{DATA / 'zookeeper' / 'v39-plain'}?root=/app&layout=flat"
    done = run(capsys, "capture", "--metadata", store, "--out", tmp_path / "c")
    assert done.code in (0, 3), done.err
    settings = json.loads((tmp_path / "c" / "manifest.json").read_text(encoding="utf-8"))["settings"]
    assert settings["--metadata"] == {"value": store, "from": "option"}
    assert settings["--at"] == {"value": None, "from": "default"}


def test_settings_of_an_incident_file_are_told_as_its_own(tmp_path: Path) -> None:
    """What nobody typed is not called a default where a file said it."""
    (tmp_path / "i.toml").write_text('quorums = "3/2/2"\n')
    words = ["--incident", str(tmp_path / "i.toml"), "--inventory", "a", "--out", "new"]
    with recover.recover.make_context("recover", words):
        found = effective_settings()
    assert found["--default-quorum"] == {"value": [3, 2, 2], "from": "incident file"}
    assert found["--incident"] == {"value": str(tmp_path / "i.toml"), "from": "option"}
    assert found["--inventory"]["from"] == "option"
