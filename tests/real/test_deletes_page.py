"""The page of deletes on a real cluster: every command of it, as it stands there and in its order."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.cluster import Bookie, Cluster
from tests.support.command import ROOT, Done, run
from tests.support.deletes import write_references
from tests.support.signing import make_person

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

PAGE = ROOT / "docs/operations/deletes.md"
STORAGES = ("sorted", "interleaved", "sorted")
PURGED = 12
"""Of as few ledgers they are more than a day may have without a confirmation."""
WAITS = {
    "--least-soak 7d --least-age 1d": "--least-soak 0s --least-age 0s",
    "7d": "0s",
    "--due": "--due --min-age 0s",
    "--out orphans": "--min-age 0s --out orphans",
}
"""What nobody can wait for in a test: words of the page, and what stands for them."""


@dataclass
class Desk:
    """Three bookies that run, and the folder that somebody types in."""

    cluster: Cluster
    bookies: list[Bookie]
    folder: Path
    ledgers: list[int] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)

    def make_ledger(self) -> int:
        """Write a ledger and close it."""
        ledger = self.cluster("create", E=3, W=2, A=2, digest="CRC32C", password="", custom={})
        self.cluster("add", ledger=ledger, sizes=[40] * 5, ids=None)
        self.cluster("close", ledger=ledger)
        return int(ledger)

    def collect(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Collect every bookie anew, below the folder that the page names."""
        shutil.rmtree(self.folder / "inventories", ignore_errors=True)
        for bookie in self.bookies:
            self.cluster("bookie_stop", n=bookie.n)
            disks = [
                word for d in (*bookie.ledgers, *bookie.journals) for word in ("--ledger-dir", self.cluster.home / d)
            ]
            assert run(capsys, "collect", *disks, "--out", self.folder / "inventories" / f"b{bookie.n}").code == 0
            self.cluster.start(bookie)

    def type(self, capsys: pytest.CaptureFixture[str], line: str) -> Done:
        """Run a line with the words that a shell makes of it."""
        environment = {**os.environ, **self.variables}
        told = subprocess.run(
            ["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, text=True, env=environment, check=True
        )
        program, *words = told.stdout.split("\0")[:-1]
        assert program == "bkmeta"
        return run(capsys, *words)

    def count_records(self) -> int:
        """Return how many ledgers the store has."""
        return len(self.cluster.ledgers())


def list_commands() -> list[str]:
    """Every command of the page's shell blocks."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Desk]:
    """A cluster with the ledgers of the page, one that is taken back, and one that nobody names."""
    with Cluster(tmp_path / "home") as cluster:
        cluster.start_zookeeper("zookeeper", "/ledgers")
        cluster("format", layout="hierarchical")
        bookies = [
            Bookie(n, f"desk-{n}", storage, [f"b{n}/journal"], [f"b{n}/ledgers"]) for n, storage in enumerate(STORAGES)
        ]
        for bookie in bookies:
            cluster.start(bookie)
        made = Desk(cluster, bookies, tmp_path / "desk")
        made.folder.mkdir()
        monkeypatch.chdir(made.folder)
        made.ledgers = [made.make_ledger() for _ in range(PURGED + 3)]
        taken_back, orphan, kept = made.ledgers[PURGED:]
        (made.folder / "ids.txt").write_text("".join(f"{ledger}\n" for ledger in made.ledgers[:PURGED]))
        made.variables = {
            "STORE": f"zk+hierarchical://{cluster.zookeeper}/ledgers",
            "TICKET": "T-12",
            "LEDGER": str(taken_back),
            "EARLIER": "captured",
        }
        write_references(made.folder / "refs.jsonl", [kept])
        made.type(capsys, 'bkmeta capture --metadata "$STORE" --out captured')
        made.variables["GONE"] = "0"
        made.variables["ORPHAN"], made.variables["KEPT"] = str(orphan), str(kept)
        yield made


def prepare(desk: Desk, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Do what somebody did before they type a line: lists written, bookies collected, a ledger deleted past us."""
    if "--references" in line:
        write_references(desk.folder / "refs.jsonl", [int(desk.variables["KEPT"])])
    if "--archived" in line:
        desk.type(capsys, 'bkmeta delete request --metadata "$STORE" "$LEDGER" --soak 0s')
    if "delete confirm" in line:
        desk.cluster.collect_garbage(len(desk.bookies))
        desk.collect(capsys)
    if "--approver" in line:
        for name in re.findall(r"--approver \w+=(\S+)", line):
            make_person(desk.folder, name.removesuffix(".pub.pem"))
    if "request" in line and "candidates" in line:
        desk.type(capsys, 'bkmeta archive mark --metadata "$STORE" "$ORPHAN" --by backup --to "s3://bucket/$ORPHAN"')
    if "--earlier" in line:
        desk.cluster("delete", ledger=int(desk.variables["KEPT"]))


def test_every_command_of_the_page_does_what_it_says(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """From the request to receipts, marks, undo, decommission and orphans: the purged ledgers go, and no other does."""
    lines = list_commands()
    assert len(lines) > 12
    before = desk.count_records()
    desk.collect(capsys)
    printed = {}
    for line in lines:
        prepare(desk, line, capsys)
        typed = line
        for word, stand_in in WAITS.items():
            typed = typed.replace(word, stand_in)
        ran = desk.type(capsys, typed)
        printed[line] = ran.out + ran.err
        assert ran.code == find_code(line), f"{line}\n{printed[line]}"
        if "--certificate purge.json" in line and "verify" in line:
            checked = desk.type(capsys, "bkmeta certificate check purge.json --json").out
            desk.variables["HASH"] = re.findall(r'"hash": "([0-9a-f]{64})"', checked)[0]
        if "delete purge" in line:
            assert desk.count_records() == before - PURGED
        if "delete confirm" in line:
            assert printed[line].startswith(f"{PURGED} of {PURGED} purged ledgers confirmed"), printed[line]
    candidates = (desk.folder / "orphans-2" / "candidates.jsonl").read_text()
    orphan, kept = desk.variables["ORPHAN"], desk.variables["KEPT"]
    assert f'"ledger": {orphan}}}' in candidates
    assert f'"ledger": {kept}}}' not in candidates
    assert f"DELETED_OUTSIDE ledger {kept}" in printed[lines[-1]]


def find_code(line: str) -> int:
    """Return how a line of the page ends: a first listing is none, the second one and a copy show something."""
    if "orphans-1" in line and "--since" not in line:
        return 4
    return 3 if "bkmeta orphans" in line else 0
