"""Exit codes that need a store with something in it: rehearsals that find something, a thaw by the wrong journal."""

import itertools
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from backends.protocols import Write
from backends.registry import open_store
from recovery.codecs.store import Layout, layout_bytes, ledger_key
from recovery.model.ids import LedgerId
from tests.support import cases
from tests.support.command import run
from tests.support.plan_folder import of_truth, write_plan
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.real

_ROOTS = itertools.count()


@pytest.fixture
def uri(zookeeper_server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A root that nobody has; run as somebody who can freeze."""
    monkeypatch.setenv("BKMETA_ZK_AUTH", "bkmeta:secret")
    monkeypatch.chdir(tmp_path)
    return f"zk+hierarchical://{zookeeper_server.hosts}/exits-{next(_ROOTS)}/ledgers"


def test_what_a_rehearsal_finds(uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Entries on no disk: 3. Disks that were not given: 4. A key with somebody else's bytes: 6, and it stays."""
    row = next(row for row in cases.truth("c01")["ledgers"] if row["last"] is not None and row["last"] > 0)
    longer = replace(of_truth(row), last=row["last"] + 3)
    made = write_plan(tmp_path / "plan", [longer], passwords=[longer.password or b""])
    disks = []
    for bookie in cases.truth("c01")["bookies"]:
        disks += ["--disk", f"{bookie['id']}={cases.case_dir('c01') / 'bookies' / 'b'}{bookie['n']}"]
    rehearse = ("rehearse", made.path, "--metadata", uri)
    assert run(capsys, *rehearse, *disks).code == 3
    assert run(capsys, *rehearse, *disks[:2]).code == 4
    with open_store(uri, writable=True) as opened:
        key = opened.root + ledger_key(Layout.HIERARCHICAL, LedgerId(0, row["ledger"]))
        held = opened.store.get(key)
        assert held is not None
        opened.store.write([Write(key, None, held.version)])
        opened.store.write([Write(key, b"somebody's")])
        found = run(capsys, *rehearse)
        assert (found.code, key.rpartition("/")[2] in found.out) == (6, True)
        now = opened.store.get(key)
        assert now is not None
        assert now.value == b"somebody's"


def test_thaw_with_a_journal_that_is_not_of_the_freeze(
    uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A journal without a freeze in force thaws nothing; that the store is frozen all the same is said, with 3."""
    with open_store(uri, writable=True) as opened:
        nodes = {"/LAYOUT": layout_bytes(Layout.HIERARCHICAL), "/INSTANCEID": b"one", "/available/readonly": b""}
        opened.store.write([Write(opened.root + key, value) for key, value in nodes.items()])
        opened.store.write([Write(f"{opened.root}/00/0000/L0007", b"record")])

    def confirmed(*words: str) -> int:
        words += ("--accept-unseen", "0") if words[0] == "thaw" else ()
        offered = run(capsys, *words, "--metadata", uri, "--json").result
        return run(capsys, *words, "--metadata", uri, "--confirm", offered["hash"]).code

    assert confirmed("freeze", "--journal", "first") == 0
    assert confirmed("thaw", "--journal", "first") == 0
    assert confirmed("freeze", "--journal", "second") == 0
    still = run(capsys, "thaw", "--journal", "first", "--metadata", uri)
    assert (still.code, "STILL FROZEN" in still.out) == (3, True)
    assert confirmed("thaw", "--journal", "second") == 0


def test_who_freezes_without_an_identity_gets_one_that_thaw_finds(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kept beside the journal for nobody else to read, never printed; without it nothing can be thawed."""
    with open_store(uri, writable=True) as opened:
        nodes = {"/LAYOUT": layout_bytes(Layout.HIERARCHICAL), "/INSTANCEID": b"one", "/available/readonly": b""}
        nodes[ledger_key(Layout.HIERARCHICAL, LedgerId(0, 5))] = b"record"
        opened.store.write([Write(opened.root + key, value) for key, value in nodes.items()])
    monkeypatch.delenv("BKMETA_ZK_AUTH")
    monkeypatch.delenv("BKMETA_ZK_AUTH_FILE", raising=False)
    kept = tmp_path / "bkmeta-identity"
    missing = run(capsys, "thaw", "--metadata", uri)
    assert (missing.code, str(kept) in missing.err, kept.exists()) == (2, True, False)
    waiting = run(capsys, "freeze", "--metadata", uri, "--json")
    assert (waiting.code, waiting.result["identity_file"]) == (5, str(kept))
    assert kept.stat().st_mode & 0o777 == 0o600
    password = kept.read_text().strip().partition(":")[2]
    frozen = run(capsys, "freeze", "--metadata", uri, "--confirm", waiting.result["hash"])
    assert (frozen.code, f"export BKMETA_ZK_AUTH_FILE={kept}" in frozen.out) == (0, True), frozen.out
    assert password not in waiting.out + waiting.err + frozen.out + frozen.err
    asked = run(capsys, "thaw", "--metadata", uri, "--accept-unseen", "0", "--json")
    assert asked.code == 5, asked.err
    assert run(capsys, *shlex.split(asked.result["next"])[1:]).code == 0
    monkeypatch.setenv("BKMETA_ZK_AUTH", "me:mine")
    monkeypatch.setenv("BKMETA_ZK_AUTH_FILE", str(kept))
    both = run(capsys, "freeze", "--metadata", uri)
    assert (both.code, "BKMETA_ZK_AUTH and BKMETA_ZK_AUTH_FILE" in both.err) == (2, True)
    monkeypatch.delenv("BKMETA_ZK_AUTH")
    kept.write_text("no colon\n")
    wrong = run(capsys, "capture", "--metadata", uri, "--out", tmp_path / "catalog")
    assert (wrong.code, f"{kept}, line 1" in wrong.err) == (2, True)
