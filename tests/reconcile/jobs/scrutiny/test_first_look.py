"""A run that was killed goes on from its suspects, if all that it wrote is still what it wrote."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.protocols import Write
from backends.registry import open_store
from reconcile.check.scrutiny.judge import LookJudgement, judge_range
from reconcile.jobs.capture import capture_store
from reconcile.jobs.scrutiny import range_task
from reconcile.jobs.scrutiny import scrutinize as job
from recovery.codecs.keys import mark_keys
from recovery.dataset import open_dataset
from recovery.model.ids import LedgerId
from tests.support.command import Done, run
from tests.support.deletes import Ledger, fill_zookeeper, name_looks, write_looks
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.real

LEDGERS = tuple(Ledger(LedgerId(0, number)) for number in range(6))


def flip(path: Path) -> None:
    """Change one bit in the middle of a file."""
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize(
    ("pattern", "harm", "goes_on"),
    [
        ("", lambda _path: None, True),
        (".spill/suspect-findings-*", flip, False),
        (".spill/suspect-verdicts-*", Path.unlink, False),
        ("verdicts/*", flip, False),
        ("store/manifest.json", flip, False),
    ],
)
def test_a_run_goes_on_from_what_is_whole(
    pattern: str,
    harm: Callable[[Path], None],
    goes_on: bool,
    zookeeper_server: ZooKeeperServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever became of its files meanwhile, the run ends with what a new one finds."""
    root = f"/{tmp_path.name}/ledgers"
    uri = fill_zookeeper(zookeeper_server, root, LEDGERS)
    looks = write_looks(tmp_path / "looks", LEDGERS, without={"bk1:3181": (4,)})
    words = ("scrutinize", "--metadata", uri, *name_looks(looks), "--json")
    with monkeypatch.context() as killed:
        killed.setattr(job, "SecondLook", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run(capsys, *words, "--out", tmp_path / "run").code == 130
    captured = open_dataset(tmp_path / "run" / "store", "catalog").digest
    if pattern:
        [path] = (tmp_path / "run").glob(pattern)
        harm(path)
    done, fresh = (run(capsys, *words, "--out", tmp_path / name) for name in ("run", "fresh"))
    assert (done.code, done.result["found"]) == (fresh.code, fresh.result["found"])
    assert (open_dataset(tmp_path / "run" / "store", "catalog").digest == captured) == goes_on


@pytest.mark.parametrize("is_given_back", [False, True])
def test_what_cannot_be_read_is_asked_for_once_more_and_the_rest_is_not(
    is_given_back: bool,
    zookeeper_server: ZooKeeperServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The whole store is captured again only if something can be read by now; else the capture and its gap stand."""
    root = f"/{tmp_path.name}/ledgers"
    uri = fill_zookeeper(zookeeper_server, root, LEDGERS)
    looks = write_looks(tmp_path / "looks", LEDGERS)
    hidden = f"{root}/07/0000"
    with open_store(uri, writable=True) as opened:
        opened.store.write(
            [Write(f"{root}/07", b""), Write(hidden, b"", acl="digest:nobody:aGFzaA==:r,world:anyone:cdwa")]
        )
    captured: list[int] = []
    once = capture_store

    def count(*of: Any, **how: Any) -> Any:
        summary = once(*of, **how)
        captured.append(len(summary.gaps))
        if is_given_back and len(captured) == 1:
            with open_store(uri, writable=True) as again:
                again.store.write([Write(hidden, None, expected=0)])
        return summary

    monkeypatch.setattr(job, "capture_store", count)
    done = run(capsys, "scrutinize", "--metadata", uri, *name_looks(looks), "--json")
    assert captured == ([1, 0] if is_given_back else [1])
    assert done.code == 3, done
    assert ("LISTING_INCOMPLETE" in done.result["found"]) == (not is_given_back), done


def test_a_ledger_that_gets_lost_on_the_way_makes_the_run_invalid(
    zookeeper_server: ZooKeeperServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is listed is counted by the capture, and not by what was judged: exit 1, and the figures say it."""
    root = f"/{tmp_path.name}/ledgers"
    uri = fill_zookeeper(zookeeper_server, root, LEDGERS)
    looks = write_looks(tmp_path / "looks", LEDGERS)
    judge = judge_range

    def forget(*tables: Any, **how: Any) -> LookJudgement:
        judged = judge(*tables, **how)
        return replace(judged, verdicts=judged.verdicts.slice(1), suspect=judged.suspect[1:])

    monkeypatch.setattr(range_task, "judge_range", forget)
    words = ("scrutinize", "--metadata", uri, *name_looks(looks), "--json")
    done = run(capsys, *words, "--out", tmp_path / "run")
    assert (done.code, done.result["verdict"].split(":")[0]) == (1, "INVALID")
    assert done.result["counts"]["listed"] == len(LEDGERS)
    assert not open_dataset(tmp_path / "run", "scrutiny").manifest["adds_up"]
    assert "bookkeeper_metadata_scrutiny_adds_up 0.0" in (tmp_path / "run" / "metrics.prom").read_text().splitlines()


def test_tables_of_ones_own_stand_for_bookies(
    zookeeper_server: ZooKeeperServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What they list is there, in each command that takes inventories; what they do not list nobody knows.

    A scrutiny without a folder says the same, and keeps nothing.
    """
    root = f"/{tmp_path.name}/ledgers"
    uri = fill_zookeeper(zookeeper_server, root, LEDGERS)
    rows = [(bookie, ledger.id.ledger) for bookie in LEDGERS[0].members for ledger in LEDGERS]
    unknown = ("bk1:3181", 987)
    words = {}
    for name, listed in (("whole", rows), ("part", [*rows[:4], *rows[5:], unknown])):
        file = tmp_path / f"{name}.jsonl"
        held = ({"bookie": bookie, "ledger": ledger, "entries": [[0, 9]]} for bookie, ledger in listed)
        file.write_text("".join(json.dumps(row) + "\n" for row in held))
        words[name] = ("--metadata", uri, "--inventory", file, "--json")
    whole, part = (run(capsys, "scrutinize", *words[name], "--out", tmp_path / f"run-{name}") for name in words)
    assert whole.result["counts"]["clean"] == len(LEDGERS)
    assert (part.result["counts"]["undecided"], part.result["counts"]["clean"]) == ({"not seen": 1}, len(LEDGERS) - 1)
    assert part.result["found"].keys() == {"GENERATOR_BEHIND"}
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "scratch").mkdir()
    unkept = run(capsys, "scrutinize", *words["part"], "--baseline", tmp_path / "run-whole")
    assert (unkept.code, unkept.result["out"], unkept.result["new"]) == (3, None, 0)
    sums = ("looked_at", "clean", "skipped", "undecided", "rechecked", "new", "resolved")
    assert {name: unkept.result[name] for name in sums} == {name: unkept.result["counts"][name] for name in sums}
    assert "with --out RUN" in unkept.result["next"]
    assert not list((tmp_path / "scratch").iterdir())
    orphans = run(capsys, "orphans", *words["part"], "--out", tmp_path / "orphans")
    assert (orphans.code, orphans.result["counts"]["listed"]) == (4, len(LEDGERS)), orphans  # no upper layer was named
    impact = run(capsys, "check-impact", *words["part"], "--bookies", "bk1:3181", "--catalog", tmp_path / "kept")
    assert any("bk1:3181" in reason for reason in impact.result["coverage"]["undecided"])


def test_a_bookie_that_no_record_names_is_not_waited_for(
    zookeeper_server: ZooKeeperServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its cookie is there, it is not registered: decommissioned. Nothing is to be learned of it by waiting."""
    root = f"/{tmp_path.name}/ledgers"
    uri = fill_zookeeper(zookeeper_server, root, ())
    done = run(capsys, "scrutinize", "--metadata", uri, "--recheck-after", "1d", "--out", tmp_path / "run", "--json")
    assert (done.code, done.result["found"], done.result["looked_at"]) == (0, {"COOKIE_WITHOUT_BOOKIE": 3}, 0)


def test_a_second_failure_softens_nothing_and_only_a_repair_resolves(
    zookeeper_server: ZooKeeperServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two bookies lack a ledger; then neither is looked at; then its mark is all that is new; then it is repaired."""
    root = f"/{tmp_path.name}/ledgers"
    uri = fill_zookeeper(zookeeper_server, root, LEDGERS)
    lacking = {"bk1:3181": (4,), "bk2:3181": (4,)}
    hurt, healed = (write_looks(tmp_path / name, LEDGERS, without=lost) for name, lost in (("a", lacking), ("b", None)))
    [path] = mark_keys(*(np.array([half], np.int64) for half in (0, 4)))

    def look(name: str, looks: list[str], *options: object) -> tuple[Done, set[tuple[str, str]]]:
        words = ("scrutinize", "--metadata", uri, *name_looks(looks), "--json")
        done = run(capsys, *words, "--out", tmp_path / name, *options)
        rows = open_dataset(tmp_path / name, "scrutiny").read("findings").to_pylist()
        return done, {(row["category"], row["severity"]) for row in rows if row["ledger"] == 4}

    critical = {("BELOW_ACK_QUORUM", "critical")}
    _, first = look("first", hurt)
    _, silent = look("silent", hurt[2:], "--since", tmp_path / "first")
    with open_store(uri, writable=True) as opened:
        opened.store.write([Write(f"{root}{path}", b"")])
    marked, still = look("marked", healed, "--since", tmp_path / "silent")
    assert first == silent == still == critical
    assert (marked.code, marked.result["carried"], marked.result["skipped"]) == (3, {"marked": 1}, {})
    assert round(marked.result["coverage"]["judged_pct"]) == 83
    look("alone", healed)
    told = run(capsys, "scrutiny", "diff", tmp_path / "silent", tmp_path / "alone", "--json").result["gone"]
    why = [gone["why"] for gone in told if gone.get("ledger") == "4"]
    assert why == ["not looked for: marked"], "as the run that carries it on says it"
    with open_store(uri, writable=True) as opened:
        node = opened.store.get(f"{root}{path}")
        assert node is not None
        opened.store.write([Write(f"{root}{path}", None, node.version)])
    last, quiet = look("last", healed, "--since", tmp_path / "marked")
    assert (quiet, last.result["carried"]) == (set(), {})
    assert last.result["resolved"] >= 1
