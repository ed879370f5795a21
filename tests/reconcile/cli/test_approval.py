"""A second person: where a file asks for one, nothing is written before somebody else confirmed the same hash."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from backends.memory import MemoryStore
from backends.protocols import Write
from backends.registry import OpenStore
from reconcile.cli.approval import COMMANDS, VARIABLE, read_policy
from reconcile.write import apply as engine
from reconcile.write import undo as undoing
from reconcile.write.audit_journal import JOURNAL, Approval, Record, name_runner, scan
from reconcile.write.freezing import freeze_state
from recovery.codecs.store import Layout, layout_bytes
from recovery.errors import InputError
from tests.support.command import run
from tests.support.paths import ROOT
from tests.support.plan_folder import Ledger, write_plan
from tests.support.plans import action, clock, plan_of, restore_of

NOWHERE = "zk+hierarchical://127.0.0.1:1/ledgers"


@pytest.fixture
def plan(tmp_path: Path) -> tuple[Path, str]:
    """A plan, and its hash."""
    made = write_plan(tmp_path / "plan", [Ledger(1, [(0, ("b1", "b2", "b3"))])])
    return Path(made.path), made.manifest["hash"]


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that asks for Ann or Bob."""
    path = tmp_path / "approval.toml"
    path.write_text('commands = ["apply", "thaw", "undo"]\npeople = ["ann", "bob"]\n')
    monkeypatch.setenv(VARIABLE, str(path))
    monkeypatch.setenv("BKMETA_PATIENCE_S", "0.1")
    return path


@pytest.mark.parametrize(
    ("approved", "words"),
    [
        ((), "needs a second person"),
        (("--approved-by", "ann=0123456789"), "is not what ann confirmed"),
        (("--approved-by", "eve=HASH"), "eve is none of those who may approve it"),
        (("--approved-by", "RUNNER=HASH"), "runs it: the second person is another"),
    ],
)
def test_nothing_is_written_that_no_second_person_confirmed(
    approved: tuple[str, ...],
    words: str,
    plan: tuple[Path, str],
    policy: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nobody, another hash, somebody who may not, or who runs it: refused before anything is connected to."""
    folder, digest = plan
    given = [text.replace("HASH", digest[:12]).replace("RUNNER", name_runner()["user"]) for text in approved]
    refused = run(capsys, "apply", folder, "--metadata", NOWHERE, "--confirm", digest, *given)
    assert (refused.code, words in refused.err) == (5, True)
    if not approved:
        assert str(policy) in refused.err
        assert f"--approved-by NAME={digest}" in refused.err


@pytest.mark.usefixtures("policy")
def test_who_confirmed_the_same_hash_lets_it_pass(plan: tuple[Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    """It goes on to the store, which is not there."""
    folder, digest = plan
    arguments = ("apply", folder, "--metadata", NOWHERE, "--confirm", digest, "--approved-by", f"ann={digest[:12]}")
    assert run(capsys, *arguments).code == 1


def test_without_a_file_nobody_is_asked(
    plan: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is given all the same is checked: a hash that is another one was not confirmed."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr("reconcile.cli.approval.DEFAULT_FILE", Path("/nowhere/approval.toml"))
    monkeypatch.setenv("BKMETA_PATIENCE_S", "0.1")
    folder, digest = plan
    arguments = ("apply", folder, "--metadata", NOWHERE, "--confirm", digest)
    assert run(capsys, *arguments).code == 1
    assert run(capsys, *arguments, "--approved-by", "ann=01234567").code == 5
    for wrong in ("ann", "=01234567", "ann=0123", "ann=not-a-hash"):
        assert run(capsys, *arguments, "--approved-by", wrong).code == 2


def test_name_and_hash_stand_in_the_journal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the apply and of its undo, run by run; a run that nobody approved says so by null."""
    store, folder, table = MemoryStore(), tmp_path / "journal", plan_of(restore_of(3))
    ann, bob = Approval("ann", "3f9a61c07b2e"), Approval("bob", "0123456789ab")
    engine.apply(lambda: [table], store, "/ledgers", folder, engine.Options("h", approval=ann), now=clock())
    proposal = undoing.propose(folder, store, "/ledgers", replaced_only=True)
    undoing.undo(proposal, store, "/ledgers", now=clock(), approval=bob)
    shown = run(capsys, "audit", "show", folder)
    assert "approved by ann as 3f9a61c07b2e" in shown.out
    found: dict[str, Any] = run(capsys, "audit", "show", folder, "--json").result
    approved = [run["approved"] for journal in found["journals"] for run in journal["runs"]]
    assert approved == [{"by": "ann", "hash": "3f9a61c07b2e"}, {"by": "bob", "hash": "0123456789ab"}]


def test_the_line_to_keep_shows_later_that_lines_were_cut_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `audit verify` prints it: right for a whole journal and a longer one, not for one that was cut."""
    store, folder, table = MemoryStore(), tmp_path / "a journal", plan_of(restore_of(3))
    engine.apply(lambda: [table], store, "/ledgers", folder, engine.Options("h"), now=clock())
    said = run(capsys, "audit", "verify", folder).out.splitlines()[-1]
    kept = shlex.split(said.partition(": bkmeta ")[2])
    assert run(capsys, *kept).code == 0
    whole = (folder / JOURNAL).read_bytes()
    proposal = undoing.propose(folder, store, "/ledgers", replaced_only=True)
    undoing.undo(proposal, store, "/ledgers", now=clock())
    assert run(capsys, *kept).code == 0
    (folder / JOURNAL).write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    assert run(capsys, *kept).code == 3


@pytest.mark.parametrize(
    "text",
    ["commands = []", 'commands = ["recover"]', 'people = ["ann"]', 'commands = "apply"', "people", "asks = true",
     'commands = ["apply"]\npeople = [1]'],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_an_error(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never a rule that is passed over."""
    path = tmp_path / "approval.toml"
    path.write_text(text)
    monkeypatch.setenv(VARIABLE, str(path))
    with pytest.raises(InputError, match=r"approval\.toml"):
        read_policy()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none.toml"))
    with pytest.raises(InputError, match="is not there"):
        read_policy()


def test_the_example_asks_for_a_second_person_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names every command that can be asked for."""
    monkeypatch.setenv(VARIABLE, str(ROOT / "conf" / "approval.toml"))
    policy = read_policy()
    assert policy is not None
    assert policy.commands == set(COMMANDS)


@pytest.mark.usefixtures("policy")
def test_a_thaw_waits_for_a_second_person_and_a_freeze_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """To freeze is urgent and harms nothing; to thaw lets bookies delete."""
    store = MemoryStore()
    values = {"/LAYOUT": layout_bytes(Layout.HIERARCHICAL), "/INSTANCEID": b"7d3e", "/00/0000/L0001": b"record"}
    store.write([Write(f"/ledgers{key}", value) for key, value in values.items()])
    for key in ("", "/00"):
        store.set_acl(f"/ledgers{key}", "world:anyone:cdrwa", expected=0)
    monkeypatch.setattr(
        "reconcile.jobs.changes.freeze.open_store",
        lambda *_, **__: OpenStore(store, "/ledgers", "hierarchical", NOWHERE),
    )
    monkeypatch.setattr(store, "close", lambda: None)
    monkeypatch.setenv("BKMETA_ZK_AUTH", "tool:secret")
    frozen = ("freeze", "--metadata", NOWHERE, "--journal", tmp_path / "journal")
    digest = run(capsys, *frozen, "--json").result["hash"]
    run(capsys, *frozen, "--confirm", digest)
    assert freeze_state.read_freeze_state(store, "/ledgers").frozen
    thaw = ("thaw", *frozen[1:], "--accept-unseen", "0")
    digest = run(capsys, *thaw, "--json").result["hash"]
    refused = run(capsys, *thaw, "--confirm", digest)
    assert (refused.code, f"--approved-by NAME={digest}" in refused.err) == (5, True)
    assert freeze_state.read_freeze_state(store, "/ledgers").frozen
    assert run(capsys, *thaw, "--confirm", digest, "--approved-by", f"bob={digest[:8]}").code == 0
    assert not freeze_state.read_freeze_state(store, "/ledgers").frozen
    begun = [one for one in scan(tmp_path / "journal" / JOURNAL) if isinstance(one, Record) and "by" in one.fields]
    assert [one.fields.get("approved", {}).get("by") for one in begun] == [None, "bob"]


@pytest.mark.usefixtures("policy")
def test_an_undo_waits_for_a_second_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused without one, and with one who confirmed something else; the store stays as the apply left it."""
    store, journal, key = MemoryStore(), tmp_path / "journal", "/ledgers/00/0000/L0001"
    store.write([Write(key, b"a hold")])
    rows = [action("ledger", "replace", "/00/0000/L0001", b"its record", expects=0, before=b"a hold")]
    engine.apply(lambda: [plan_of(rows)], store, "/ledgers", journal, engine.Options("h"), now=clock())
    monkeypatch.setattr(
        "reconcile.stores.open_store", lambda *_, **__: OpenStore(store, "/ledgers", "hierarchical", NOWHERE)
    )
    monkeypatch.setattr(store, "close", lambda: None)
    undo = ("undo", journal, "--metadata", NOWHERE, "--replaced-only")
    waiting = run(capsys, *undo, "--json")
    digest = waiting.result["hash"]
    assert waiting.code == 5
    for approved, words in (
        ((), f"--approved-by NAME={digest}"),
        (("--approved-by", "ann=0123456789"), "is not what ann confirmed"),
        (("--approved-by", f"eve={digest}"), "eve is none of those who may approve it"),
        (("--approved-by", f"{name_runner()['user']}={digest}"), "runs it: the second person is another"),
    ):
        refused = run(capsys, *undo, "--confirm", digest, *approved)
        assert (refused.code, words in refused.err) == (5, True)
        held = store.get(key)
        assert held is not None
        assert held.value == b"its record"
    named = run(capsys, *undo, "--approved-by", f"bob={digest[:8]}")
    assert named.out.rstrip().endswith(f"--approved-by bob={digest[:8]} --confirm {digest}")
    assert run(capsys, *undo, "--confirm", digest, "--approved-by", f"bob={digest[:8]}").code == 0
    back = store.get(key)
    assert back is not None
    assert back.value == b"a hold"
    begun = [one for one in scan(journal / JOURNAL) if isinstance(one, Record) and "by" in one.fields]
    assert [(one.fields.get("approved") or {}).get("by") for one in begun] == [None, "bob"]
