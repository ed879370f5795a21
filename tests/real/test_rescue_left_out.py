"""`rescue` where the journal of a bookie has entries that no record names: its ledger folder is gone."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import case_dir, truth
from tests.support.cluster import bookies_of
from tests.support.command import PROGRAM, call
from tests.support.rescues import CASE, run_here
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.real, pytest.mark.spark]

ROOT = "/left-out/ledgers"


def test_entries_that_only_a_journal_has_are_saved_and_the_thaw_is_told(
    zookeeper_server: ZooKeeperServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the answers alone: it asks before the plan is confirmed, with what they are, and saves them as files."""
    home, uri = tmp_path / "home", f"zk+hierarchical://{zookeeper_server.hosts}{ROOT}"
    shutil.copytree(case_dir(CASE) / "bookies", home / "bookies")
    monkeypatch.chdir(home)
    monkeypatch.setattr("reconcile.cli.rescue.open_rescue.run_own", run_here)
    bookies = bookies_of(truth(CASE))
    hosts, passwords = tmp_path / "hosts.toml", tmp_path / "passwords.txt"
    passwords.touch(0o600)
    passwords.write_text("".join(f"{word}\n" for word in truth(CASE)["passwords"]))
    text = f"[incident]\npasswords = {json.dumps(str(passwords))}\n"
    for bookie in bookies:
        conf = tmp_path / f"bk{bookie.n}.conf"
        folders = f"journalDirectories={bookie.journals[0]}\nledgerDirectories={bookie.ledgers[0]}\n"
        conf.write_text(f"metadataServiceUri={uri}\n{folders}")
        text += f'[[bookie]]\nname = "host{bookie.n}"\ntransport = "local"\nconf = {json.dumps(str(conf))}\n'
        text += f"program = {json.dumps(str(PROGRAM))}\n"
    hosts.write_text(text)
    [folder] = bookies[0].ledgers
    shutil.rmtree(home / folder)
    answers = {"bookies off": "off", f"folder {folder} of host0": "gone", "quorums": "unknown"}

    def rescue(*, code: int) -> dict[str, Any]:
        (tmp_path / "answers.json").write_text(json.dumps(answers))
        words = ("--metadata", uri, "--hosts", hosts, "--out", tmp_path / "incident")
        done = call("rescue", *words, "--answers", tmp_path / "answers.json", "--json")
        assert done.code == code, done.out + done.err
        return done.result

    [question] = rescue(code=4)["questions"]
    assert (question["id"], question["recommended"]) == ("left out", "export"), question
    assert question["known"][0] == f"ledger 11 on {bookies[0].id}: entry 1"
    answers["left out"] = "export"
    [question] = rescue(code=4)["questions"]
    assert question["id"] == "confirm", question
    saved = (tmp_path / "incident" / "left-out" / "host0" / "11.jsonl").read_text().splitlines()
    assert [json.loads(line)["entry"] for line in saved if "entry" in json.loads(line)] == [1]
    answers["confirm"], answers["disks read"], answers["disks unread"] = "any", "yes", "yes"
    [question] = rescue(code=4)["questions"]
    assert question["id"] == "started host1", question
    # What was foretold is what the thaw demands.
    thaw = ("thaw", "--incident", tmp_path / "incident/incident.toml", "--journal", tmp_path / "incident/freeze")
    refused = call(*thaw, "--json")
    assert (refused.code, "--accept-left-out 1" in refused.result["next"]) == (5, True), refused.out
    told = call(*thaw, "--accept-left-out", "1", "--json")
    assert (told.code, told.result["counts"]["left_out"], "hash" in told.result) == (5, 1, True), told.out
