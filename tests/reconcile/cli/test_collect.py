"""The options of `collect` that read everything, or only what changed."""

import json
import os
import re
from datetime import datetime
from pathlib import Path

import pytest

from recovery.codecs import entry_log
from recovery.collect.incremental import state as state_module
from recovery.dataset import open_dataset
from tests.recovery.collect.test_scoped_ids import MIXED, STORAGES
from tests.recovery.collect.test_scoped_ids import made as make_scoped
from tests.simulation.bookie_dir import BOOKIE, INSTANCE, BookieDir, make_bookie, record
from tests.simulation.bookie_dir_scoped import Storage
from tests.support.command import run


def folders(made: BookieDir) -> list[object]:
    """The options that name a bookie's folders."""
    options: list[object] = []
    for name, found in (("--ledger-dir", made.ledger_dirs), ("--journal-dir", made.journal_dirs)):
        options += [part for folder in found for part in (name, folder)]
    return options


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BookieDir:
    """A bookie whose files count as old."""
    monkeypatch.setattr(state_module, "_TICK_NS", -(10**15))
    return make_bookie(tmp_path / "disks", {5: [0, 1, 2], 6: [0, 1]}, rotated=True)


def test_the_second_time_nothing_is_read(made: BookieDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--since takes over what --incremental kept; the result says what, and the verdict is the same."""
    first = run(capsys, "collect", *folders(made), "--incremental", "--out", tmp_path / "a", "--json")
    again = run(capsys, "collect", *folders(made), "--since", tmp_path / "a", "--out", tmp_path / "b", "--json")
    assert (first.code, again.code) == (0, 0)
    assert first.result["coverage"]["bytes_read"] > 0
    assert again.result["coverage"]["bytes_read"] == 0
    begun = json.loads((tmp_path / "a" / "manifest.json").read_text())["coverage"]["started"]
    kept = {"ledgers": 2, "files": 1, "reason": ""}
    kept |= {"inventory": str(tmp_path / "a"), "collected": begun, "whole": begun}
    assert again.result["reused"] == kept
    assert json.loads((tmp_path / "b" / "manifest.json").read_text())["coverage"]["reused"] == kept
    assert again.result["counts"] == first.result["counts"]
    said = run(capsys, "collect", *folders(made), "--since", tmp_path / "b", "--out", tmp_path / "c")
    assert "taken over: 2 ledgers, 1 entry logs and journals; 0 bytes were read" in said.out
    assert f"from {tmp_path / 'b'}, begun " in said.out
    moment = datetime.fromisoformat(begun).isoformat(sep=" ", timespec="seconds")
    assert f"the last whole collection was begun {moment}, " in said.out
    assert str(tmp_path / "b") in (tmp_path / "c" / "report.html").read_text(encoding="utf-8")


def test_the_inventory_keeps_the_stores_transaction_from_before_it_began(
    made: BookieDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it is named, in hexadecimal, too; none where nothing says it; a copy does not say where its store is now."""
    for number, (words, txn) in enumerate(((["--as-of", "0x1f"], 31), (["--as-of", "31"], 31), ([], None))):
        out = tmp_path / str(number)
        done = run(capsys, "collect", *folders(made), *words, "--out", out, "--json")
        assert (done.code, done.result["as_of"]) == (0, txn)
        inventory = open_dataset(out, "inventory")
        assert inventory.read("bookies")["as_of"].to_pylist() == [txn]
        assert inventory.manifest["coverage"]["as_of"] == txn
    copy = f"zkfiles://{tmp_path}"
    for words in (["--as-of", "-1"], ["--as-of", "5", "--metadata", copy], ["--metadata", copy], ["--as-of", "x"]):
        assert run(capsys, "collect", *folders(made), *words, "--out", tmp_path / "none").code == 2
    assert not (tmp_path / "none").exists()


def test_deep_says_what_it_compared(made: BookieDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Counts in the result and in the manifest, a line for people, and where a bit rotted."""
    log = made.log(0)
    at = next(found for found in entry_log.scan(log.read_bytes()) if isinstance(found, entry_log.EntryAt))
    data = bytearray(log.read_bytes())
    data[at.position + at.size - 1] ^= 1
    log.write_bytes(data)
    done = run(capsys, "collect", *folders(made), "--deep", "--out", tmp_path / "a", "--json")
    counts = done.result["deep"]
    assert (counts["in_index"], counts["digests_right"], counts["digests_wrong"]) == (5, 4, 1)
    assert json.loads((tmp_path / "a" / "manifest.json").read_text())["coverage"]["deep"] == counts
    said = run(capsys, "collect", *folders(made), "--deep", "--out", tmp_path / "b")
    assert "digests: 4 right, 1 wrong, 0 not checkable" in said.out
    assert f"{log} at byte {at.position - 4}: digest" in said.out


def test_a_suspect_disk_is_said_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the verdict, in the result, and before thousands of other places of damage, which are summed by kind."""
    made = make_bookie(tmp_path / "disks", {ledger: [0] for ledger in range(1, 20)})
    for ledger in range(1, 10):
        made.index(ledger).write_bytes(b"rotten" + made.index(ledger).read_bytes()[6:])
    done = run(capsys, "collect", *folders(made), "--out", tmp_path / "a", "--json")
    folder = str(made.ledger_dirs[0] / "current")
    assert done.result["suspect"] == [folder]
    assert done.result["verdict"].endswith(f"SUSPECT: the disk of {folder}")
    lines = run(capsys, "collect", *folders(made), "--out", tmp_path / "b").out.splitlines()
    at = next(n for n, line in enumerate(lines) if "places of damage: 10, " in line)
    assert "bad magic: 9, suspect disk: 1" in lines[at + 1]
    assert f"{folder}: suspect disk (9 of 19 index files" in lines[at + 2]
    assert "bad magic, ledger " in lines[at + 3]


@pytest.mark.parametrize("options", [("--incremental",), ("--since", "earlier")])
def test_everything_and_only_what_changed_exclude_each_other(
    options: tuple[str, ...], made: BookieDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2, and nothing is written."""
    done = run(capsys, "collect", *folders(made), "--deep", *options, "--out", tmp_path / "a")
    assert done.code == 2
    assert "--deep reads everything" in done.err
    assert not (tmp_path / "a").exists()


def test_an_earlier_inventory_that_is_not_there_is_an_error(
    made: BookieDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named, with what to do; nothing is guessed."""
    done = run(capsys, "collect", *folders(made), "--since", tmp_path / "none", "--out", tmp_path / "a")
    assert done.code == 2
    assert str(tmp_path / "none") in done.err


def test_the_manifest_and_the_page_say_what_the_run_went_by(
    made: BookieDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each setting with where it came from; of a password file its name, of a variable of ours only that it is set."""
    conf = tmp_path / "bk_server.conf"
    (folder,) = made.ledger_dirs
    (journals,) = made.journal_dirs
    conf.write_text(f"ledgerDirectories={folder}\njournalDirectories={journals}\n")
    (tmp_path / "secrets.txt").write_text("a password\n")
    (tmp_path / "secrets.txt").chmod(0o600)
    (tmp_path / "i.toml").write_text('passwords = "secrets.txt"\n')
    monkeypatch.setenv("BKMETA_ZK_AUTH", "me:secret")
    options = ["--incident", tmp_path / "i.toml", "--bookie-conf", conf, "--max-mb-s", 900, "--out", tmp_path / "a"]
    assert run(capsys, "collect", *options).code == 0
    written = (tmp_path / "a" / "manifest.json").read_text(encoding="utf-8")
    found = json.loads(written)["settings"]
    assert found["--ledger-dir"] == {"value": [str(folder)], "from": "conf file"}
    assert found["--journal-dir"] == {"value": [str(journals)], "from": "conf file"}
    assert found["--max-mb-s"] == {"value": 900.0, "from": "option"}
    assert found["--passwords"] == {"value": str(tmp_path / "secrets.txt"), "from": "incident file"}
    assert found["--processes"] == {"value": min(2, len(os.sched_getaffinity(0))), "from": "default"}
    assert found["--bookie-id"] == {"value": None, "from": "default"}
    assert found["BKMETA_ZK_AUTH"] == {"value": "set", "from": "environment"}
    assert not any(secret in written for secret in ("me:secret", "a password"))
    page = (tmp_path / "a" / "report.html").read_text(encoding="utf-8")
    rows = re.findall(
        r'<th scope="row" class="mono">(--[a-z-]+|[A-Z_]+)</th><td class="mono">(.*?)</td><td>(.*?)</td>', page
    )
    assert ("--ledger-dir", str(folder), "conf file") in rows
    assert ("--max-mb-s", "900.0", "option") in rows
    assert ("BKMETA_ZK_AUTH", "set", "environment") in rows
    assert "default" not in {origin for _, _, origin in rows}


def test_a_configured_folder_that_is_gone_does_not_keep_the_others_from_being_collected(
    made: BookieDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named as not there, and the bookie is not complete; the exit code says the same."""
    conf = tmp_path / "bk_server.conf"
    (folder,), (journals,) = made.ledger_dirs, made.journal_dirs
    conf.write_text(f"ledgerDirectories={folder},{tmp_path / 'gone'}\njournalDirectories={journals}\n")
    done = run(capsys, "collect", "--bookie-conf", conf, "--out", tmp_path / "a")
    assert (done.code, f"{conf} names it: {tmp_path / 'gone'}" in done.out) == (4, True)


def test_cookies_that_disagree_are_said_with_the_option_that_settles_it(
    made: BookieDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the first line and with the option's name; with the option the bookie is complete."""
    version = made.journal_dirs[0] / "current" / "VERSION"
    version.write_bytes(version.read_bytes().replace(b"11111111-", b"99999999-").replace(b"10.0.0.1:", b"host-1:"))
    done = run(capsys, "collect", *folders(made), "--out", tmp_path / "a")
    assert (done.code, "ITS VERSION FILES DISAGREE" in done.out.splitlines()[0]) == (4, True)
    assert "--bookie-id" in done.out
    assert "--instance-id" in done.out
    settled = ["--bookie-id", BOOKIE, "--instance-id", INSTANCE]
    done = run(capsys, "collect", *folders(made), *settled, "--out", tmp_path / "b")
    assert (done.code, "DISAGREE" in done.out) == (0, False)


def test_ledgers_that_only_logs_have_are_said(
    made: BookieDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bookie that deleted what its store did not name looks whole: how many such there are is told."""
    clean = run(capsys, "collect", *folders(made), "--out", tmp_path / "clean", "--json").result
    made.log(7).write_bytes(entry_log.encode([record(ledger, 0) for ledger in (5, 30, 31)], with_map=True))
    found = run(capsys, "collect", *folders(made), "--out", tmp_path / "a", "--json").result
    assert (clean["leftover"], found["leftover"]) == (0, 2)
    assert found["counts"]["ledgers"] == clean["counts"]["ledgers"] + 2
    told = run(capsys, "collect", *folders(made), "--out", tmp_path / "b").out
    assert "2 of these ledgers are in entry logs or old journals only: as bookies leave what they delete" in told
    conf = tmp_path / "bk_server.conf"
    (folder,), (journals,) = made.ledger_dirs, made.journal_dirs
    conf.write_text(f"ledgerDirectories={folder},{tmp_path / 'gone'}\njournalDirectories={journals}\n")
    told = run(capsys, "collect", "--bookie-conf", conf, "--out", tmp_path / "c").out
    assert f"old journals only: its index may be in what is not there ({tmp_path / 'gone'})" in told
    assert "leave what they delete" not in told
    recover = ("recover", "--inventory", tmp_path / "c", "--layout", "hierarchical", "--out", tmp_path / "plan")
    planned = run(capsys, *recover).out
    assert "A ledger that is only in their logs may not have been deleted: its index may be in the part" in planned


@pytest.mark.parametrize("storage", STORAGES)
def test_ledgers_of_scopes_are_taken_over_and_compared_as_well(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second collection reads nothing and says the same; a deep one finds nothing wrong, and a flipped bit."""
    monkeypatch.setattr(state_module, "_TICK_NS", -(10**15))
    made = make_scoped(tmp_path, MIXED, storage)
    run(capsys, "collect", *folders(made), "--incremental", "--out", tmp_path / "a")
    again = run(capsys, "collect", *folders(made), "--since", tmp_path / "a", "--out", tmp_path / "b", "--json")
    assert again.result["coverage"]["bytes_read"] == 0
    first, second = (open_dataset(tmp_path / name, "inventory") for name in "ab")
    assert first.read("copies").equals(second.read("copies"))
    assert first.read("bookies")["max_ids"].equals(second.read("bookies")["max_ids"])
    deep = run(capsys, "collect", *folders(made), "--deep", "--out", tmp_path / "deep", "--json").result
    counts = deep["deep"]
    # One ledger has two entries that only its log has.
    assert (deep["counts"]["damaged"], counts["unindexed"]) == (1, 2)
    assert (counts["dangling"], counts["digests_wrong"], counts["conflicts"]) == (0, 0, 0)
    record = MIXED[-2].record(200)
    logs = [path for folder in made.ledger_dirs for path in (folder / "current").glob("*.log")]
    (log,) = [path for path in logs if record in path.read_bytes()]
    data = bytearray(log.read_bytes())
    at = data.find(record)
    data[at + len(record) - 1] ^= 1
    log.write_bytes(data)
    run(capsys, "collect", *folders(made), "--deep", "--out", tmp_path / "broken")
    rows = [
        row
        for row in open_dataset(tmp_path / "broken", "inventory").read("damage").to_pylist()
        if row["reason"] == "digest"
    ]
    assert [(row["scope"], row["ledger"], row["offset"]) for row in rows] == [(-1, -1, at - 4)]
