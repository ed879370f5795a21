"""What was applied, looked back at and taken back as it is typed, on a real ZooKeeper."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from backends.protocols import Write
from backends.registry import open_store
from backends.zookeeper.acl import digest_principal
from recovery.codecs.store import Layout, ledger_key
from recovery.dataset import Dataset
from recovery.model.ids import LedgerId
from tests.support.command import run
from tests.support.plan_folder import Ledger, write_plan
from tests.support.zookeeper_server import ZooKeeperServer

_roots = itertools.count()
AUTH = "bkmeta:secret"


@pytest.fixture
def uri(zookeeper_server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A root that nobody has; run as somebody who can freeze."""
    monkeypatch.setenv("BKMETA_ZK_AUTH", AUTH)
    monkeypatch.chdir(tmp_path)
    return f"zk+hierarchical://{zookeeper_server.hosts}/undo-{next(_roots)}/ledgers"


def root_of(uri: str) -> str:
    """The key of the root."""
    return "/" + uri.split("/", 3)[3]


def made(folder: Path, uri: str) -> Dataset:
    """Twelve ledgers, a third of them held."""
    ledgers = [Ledger(n, [(0, ["b1", "b2", "b3"])], reason=None if n % 3 else "ragged_tail") for n in range(12)]
    return write_plan(folder, ledgers, root=root_of(uri))


def everything(uri: str) -> dict[str, bytes]:
    """Every key with a value."""
    found: dict[str, bytes] = {}
    with open_store(uri, auth=("bkmeta", "secret")) as opened:
        todo = [opened.root] if opened.store.get(opened.root) else []
        while todo:
            key = todo.pop()
            held = opened.store.get(key)
            assert held is not None
            if held.value:
                found[key.removeprefix(opened.root)] = held.value
            todo += [f"{key}/{name}" for name in opened.store.children(key) or ()]
    return found


def test_undo_takes_back_what_an_apply_wrote(uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Refused with the count while bookies can list; frozen, all that was written goes and the rest stays; once."""
    plan = made(tmp_path / "plan", uri)
    before = {"/00/0000/L0003": b"somebody's"}
    with open_store(uri, writable=True) as opened:
        opened.store.write([Write(opened.root + key, value) for key, value in before.items()])
    applied = run(capsys, "apply", plan.path, "--metadata", uri, "--confirm", plan.manifest["hash"])
    assert applied.code == 6
    journal = tmp_path / "plan" / "journal"
    undo = ("undo", journal, "--metadata", uri)
    refused = run(capsys, *undo)
    assert (refused.code, "11 ledgers" in refused.err, "freeze" in refused.err) == (5, True, True)

    offered = run(capsys, "freeze", "--metadata", uri, "--json").result
    assert run(capsys, "freeze", "--metadata", uri, "--confirm", offered["hash"]).code == 0
    shown = run(capsys, *undo, "--json")
    assert (shown.code, shown.result["counts"]["create ledger"]) == (5, 8)
    assert everything(uri) != before
    with open_store(uri, writable=True, auth=("bkmeta", "secret")) as opened:
        changed = opened.root + ledger_key(Layout.HIERARCHICAL, LedgerId(0, 4))
        opened.store.write([Write(changed, b"changed since", 0)])
    done = run(capsys, *undo, "--confirm", shown.result["hash"], "--json")
    assert (done.code, [left["key"] for left in done.result["left"]]) == (6, ["/00/0000/L0004"])
    switch = {"/underreplication/disable": f"bkmeta-freeze {offered['hash']}".encode()}
    assert everything(uri) == {**before, **switch, "/00/0000/L0004": b"changed since"}
    again = run(capsys, *undo, "--confirm", shown.result["hash"], "--json")
    assert (again.code, again.result["counts"]["done"]) == (6, {})
    # One plain way, said at once whichever is tried: a new journal.
    for more in ((), ("--resume",)):
        later = run(capsys, "apply", plan.path, "--metadata", uri, "--confirm", plan.manifest["hash"], *more)
        assert (later.code, "was undone" in later.err, f"--journal {journal}-2" in later.err) == (5, True, True)


def test_the_journals_tell_who_did_what(uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs with their writes and ends; an altered line, a lost end and a missing head are told apart."""
    plan = made(tmp_path / "plan", uri)
    assert run(capsys, "apply", plan.path, "--metadata", uri, "--confirm", plan.manifest["hash"]).code == 0
    told = run(capsys, "audit", "show", plan.path, "--json")
    [journal] = told.result["journals"]
    [only] = journal["runs"]
    assert (only["ended"], only["writes"]["create"] + only["writes"]["hold"]) == ("ended", 14)
    assert only["by"]["user"]
    assert "hold" in run(capsys, "audit", "show", plan.path).out

    verify: tuple[Any, ...] = ("audit", "verify", plan.path)
    whole = run(capsys, *verify, "--head", journal["head"][:12], "--json")
    assert (whole.code, whole.result["counts"]["lines"]) == (0, journal["records"])
    file = tmp_path / "plan" / "journal" / "journal.jsonl"
    raw = file.read_bytes()
    lines = raw.splitlines(keepends=True)
    # The scrutiny of what was written follows the end.
    end = next(place for place, line in enumerate(lines) if json.loads(line)["event"] == "end")
    file.write_bytes(b"".join(lines[:end]))
    endless = run(capsys, *verify, "--json")
    assert (endless.code, endless.result["counts"]["without_end"]) == (6, 1)
    assert "has no end" in endless.result["verdict"]
    assert run(capsys, *verify, "--head", journal["head"]).code == 3
    file.write_bytes(raw[:-9])
    assert run(capsys, *verify).code == 6
    file.write_bytes(raw.replace(b'"create"', b'"remove"', 1))
    altered = run(capsys, *verify)
    assert (altered.code, "altered" in altered.out) == (3, True)
    assert run(capsys, "audit", "show", plan.path).code == 2
    assert run(capsys, *verify, "--head", "abc").code == 2
    assert run(capsys, "audit", "verify", tmp_path / "nowhere").code == 2


def test_rights_are_decided_before_anything_is_written(
    uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a store with rights of its own nothing is written until they are named: on the line, or in the plan."""
    plan = made(tmp_path / "plan", uri)
    own = f"{digest_principal(('bkmeta', 'secret'))}:cdrwa,world:anyone:r"
    with open_store(uri, writable=True) as opened:
        opened.store.write([Write(f"{opened.root}/cookies", b"", acl=f"{own},world:anyone:cdrwa")])
    apply = ("apply", plan.path, "--metadata", uri, "--confirm", plan.manifest["hash"])
    refused = run(capsys, *apply)
    assert (refused.code, "--acl" in refused.err) == (5, True)
    unnamed = run(capsys, *apply, "--acl", "from-snapshot")
    assert (unnamed.code, "names no ACL for 14" in unnamed.err) == (5, True)
    edited = run(capsys, "plan", "edit", plan.path, "--acl", own, "--out", tmp_path / "edited", "--json").result
    assert edited["hash"] != plan.manifest["hash"]
    named = ("apply", tmp_path / "edited", "--metadata", uri, "--confirm", edited["hash"], "--acl", "from-snapshot")
    assert run(capsys, *named).code == 0
    with open_store(uri, auth=("bkmeta", "secret")) as opened:
        held = opened.store.get(f"{opened.root}/LAYOUT")
        assert held is not None
        assert held.acl == own


def test_bookies_that_were_not_looked_at_are_accepted_by_number(
    uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A plan that was made without bookies is applied only by who names how many; no other number will do."""
    coverage = {"scanned": ["b1"], "complete": ["b1"], "not_complete": [], "members_known_from": ["x"],
                "not_scanned": ["b8", "b9"], "not_named": []}  # fmt: skip
    ledgers = [Ledger(1, [(0, ["b1", "b2", "b3"])])]
    plan = write_plan(tmp_path / "plan", ledgers, coverage=coverage, root=root_of(uri))
    apply = ("apply", plan.path, "--metadata", uri, "--confirm", plan.manifest["hash"])
    refused = run(capsys, *apply)
    assert (refused.code, "b8, b9" in refused.err, "--accept-unseen 2" in refused.err) == (5, True, True)
    assert run(capsys, *apply, "--accept-unseen", "1").code == 5
    assert run(capsys, *apply, "--accept-unseen", "2").code == 0
