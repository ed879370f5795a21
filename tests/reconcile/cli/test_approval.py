"""Approvals: where the policy of a cluster asks for them, nothing is written before as many people signed the hash."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from backends.protocols import Write
from backends.registry import OpenStore
from reconcile.cli.approval import VARIABLE, read_local_policy
from reconcile.deletes.policy import Approver, DeletePolicy
from reconcile.deletes.signatures import read_public_key
from reconcile.write import apply as engine
from reconcile.write import undo as undoing
from reconcile.write.audit_journal import JOURNAL, Approval, JournalLine, scan
from reconcile.write.freezing import freeze_state
from recovery.codecs.store import Layout, layout_bytes
from recovery.errors import InputError
from tests.support.command import Done, run
from tests.support.inventories import write_inventory
from tests.support.memory_store import MemoryStore
from tests.support.plan_folder import Ledger, write_plan
from tests.support.plans import action, clock, plan_of, restore_of
from tests.support.signing import Person, make_person

NOWHERE = "zk+hierarchical://127.0.0.1:1/ledgers"


class Office:
    """A cluster in memory, and Ann and Bob, one of whom must approve what the other makes."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.store = MemoryStore()
        self.folder = folder
        self._capsys = capsys
        self.ann, self.bob, self.eve = (make_person(folder, name) for name in ("ann", "bob", "eve"))
        approvers = tuple(Approver(one.name, read_public_key(one.public)) for one in (self.ann, self.bob))
        self.policy = DeletePolicy(approvals=1, approvers=approvers)
        values = {"/LAYOUT": layout_bytes(Layout.HIERARCHICAL), "/INSTANCEID": b"7d3e", "/00/0000/L0001": b"record"}
        self.store.write([Write(f"/ledgers{key}", value) for key, value in values.items()])

    def keep_policy(self) -> None:
        """Put the policy beside the ledgers."""
        self.store.write([Write("/ledgers-bkmeta/policy", self.policy.encode(1, "op"))])

    def keep_local_policy(self) -> None:
        """Put the policy on this host."""
        (self.folder / "none.json").write_text(json.dumps(self.policy.to_json()))

    def sign(self, what: object, *people: Person) -> list[object]:
        """Return the options with the approvals of people."""
        options: list[object] = []
        for person in people:
            path = self.folder / f"{person.name}-{len(list(self.folder.glob('*.json')))}.json"
            assert run(self._capsys, "approve", what, "--key", person.private, "--out", path).code == 0
            options += ["--approval", path]
        return options


@pytest.fixture
def office(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Office:
    """A cluster whose store every command opens."""
    office = Office(tmp_path, capsys)

    def open_store(*_: object, **__: object) -> OpenStore:
        return OpenStore(office.store, "/ledgers", "hierarchical", NOWHERE)

    monkeypatch.setattr("reconcile.stores.open_store", open_store)
    monkeypatch.setattr("reconcile.jobs.changes.freeze.open_store", open_store)
    monkeypatch.setattr(office.store, "close", lambda: None)
    monkeypatch.setattr("reconcile.cli.approval.DEFAULT_FILE", tmp_path / "none.json")
    monkeypatch.setenv("BKMETA_ZK_AUTH", "tool:secret")
    return office


def test_a_plan_is_written_when_two_people_signed_it(office: Office, capsys: pytest.CaptureFixture[str]) -> None:
    """With the policy in the store, or, where the store lost it, with the one of this host."""
    made = write_plan(office.folder / "plan", [Ledger(1, [(0, ("b1", "b2", "b3"))])])
    folder, digest = Path(made.path), made.manifest["hash"]
    apply = (
        "apply",
        folder,
        "--metadata",
        NOWHERE,
        "--confirm",
        digest,
        "--accept-unfrozen",
        "--acl",
        "world:anyone:r",
    )
    before = office.store.latest_txn()

    def refuse(words: str, *options: object) -> None:
        refused = run(capsys, *apply, *options)
        assert (refused.code, words in refused.err) == (5, True), refused.err
        assert office.store.latest_txn() == before

    for keep in (office.keep_local_policy, office.keep_policy):
        keep()
        before = office.store.latest_txn()
        refuse(f"bkmeta approve plan={digest} --key KEY")
        refuse("it has 1 (ann)", *office.sign(folder, office.ann))
        refuse("a key that the policy does not name", *office.sign(folder, office.ann, office.eve))
        refuse("approves plan=0000", *office.sign(f"plan={'0' * 64}", office.ann))
    done = run(capsys, *apply, *office.sign(folder, office.ann, office.bob))
    assert "bkmeta approve" not in done.err + done.out


def test_who_approved_is_in_the_journal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the apply and of its undo, run by run; a run that needed no approval has none."""
    store, folder, table = MemoryStore(), tmp_path / "journal", plan_of(restore_of(3))
    ann, bob = Approval("ann", "3f9a61c07b2e"), Approval("bob", "0123456789ab")
    engine.apply(
        lambda: [table], store, "/ledgers", folder, engine.ApplyOptions("h", approvals=[ann, bob]), now=clock()
    )
    proposal = undoing.propose(folder, store, "/ledgers", replaced_only=True)
    undoing.undo(proposal, store, "/ledgers", now=clock())
    shown = run(capsys, "audit", "show", folder)
    assert "approved by ann as 3f9a61c07b2e, approved by bob as 0123456789ab" in shown.out
    found: dict[str, Any] = run(capsys, "audit", "show", folder, "--json").result
    approved = [run["approved"] for journal in found["journals"] for run in journal["runs"]]
    assert approved == [[{"by": "ann", "hash": "3f9a61c07b2e"}, {"by": "bob", "hash": "0123456789ab"}], []]


def test_the_line_to_keep_shows_later_that_lines_were_cut_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `audit verify` prints it: right for a whole journal and a longer one, not for one that was cut."""
    store, folder, table = MemoryStore(), tmp_path / "a journal", plan_of(restore_of(3))
    engine.apply(lambda: [table], store, "/ledgers", folder, engine.ApplyOptions("h"), now=clock())
    said = run(capsys, "audit", "verify", folder).out.splitlines()[-1]
    kept = shlex.split(said.partition(": bkmeta ")[2])
    assert run(capsys, *kept).code == 0
    whole = (folder / JOURNAL).read_bytes()
    proposal = undoing.propose(folder, store, "/ledgers", replaced_only=True)
    undoing.undo(proposal, store, "/ledgers", now=clock())
    assert run(capsys, *kept).code == 0
    (folder / JOURNAL).write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    assert run(capsys, *kept).code == 3


def test_a_thaw_waits_for_approvals_and_a_freeze_does_not(office: Office, capsys: pytest.CaptureFixture[str]) -> None:
    """To freeze is urgent and harms nothing; to thaw lets bookies delete."""
    store, journal = office.store, office.folder / "journal"
    for key in ("", "/00"):
        store.set_acl(f"/ledgers{key}", "world:anyone:cdrwa", expected=0)
    office.keep_policy()
    frozen = ("freeze", "--metadata", NOWHERE, "--journal", journal)
    digest = run(capsys, *frozen, "--json").result["hash"]
    run(capsys, *frozen, "--confirm", digest)
    assert freeze_state.read_freeze_state(store, "/ledgers").frozen
    thaw = ("thaw", *frozen[1:], "--accept-unseen", "0")
    digest = run(capsys, *thaw, "--json").result["hash"]
    refused = run(capsys, *thaw, "--confirm", digest)
    assert (refused.code, f"bkmeta approve thaw={digest} --key KEY" in refused.err) == (5, True)
    assert freeze_state.read_freeze_state(store, "/ledgers").frozen
    approved = office.sign(f"thaw={digest}", office.ann, office.bob)
    assert run(capsys, *thaw, "--confirm", digest, *approved).code == 0
    assert not freeze_state.read_freeze_state(store, "/ledgers").frozen
    begun = [one for one in scan(journal / JOURNAL) if isinstance(one, JournalLine) and "by" in one.fields]
    assert [[by["by"] for by in one.fields.get("approved", [])] for one in begun] == [[], ["ann", "bob"]]


def test_an_undo_waits_for_approvals(office: Office, capsys: pytest.CaptureFixture[str]) -> None:
    """Refused without them, and with those of something else; the store stays as the apply left it."""
    store, journal, key = office.store, office.folder / "journal", "/ledgers/00/0000/L0002"
    store.write([Write(key, b"a hold")])
    rows = [action("ledger", "replace", "/00/0000/L0002", b"its record", expects=0, before=b"a hold")]
    engine.apply(lambda: [plan_of(rows)], store, "/ledgers", journal, engine.ApplyOptions("h"), now=clock())
    office.keep_policy()
    undo = ("undo", journal, "--metadata", NOWHERE, "--replaced-only")
    waiting = run(capsys, *undo, "--json")
    digest = waiting.result["hash"]
    assert waiting.code == 5
    for options, words in (
        ([], f"bkmeta approve undo={digest} --key KEY"),
        (office.sign(f"undo={digest}", office.bob), "it has 1 (bob)"),
        (office.sign(f"thaw={digest}", office.ann, office.bob), "approves thaw="),
    ):
        refused = run(capsys, *undo, "--confirm", digest, *options)
        assert (refused.code, words in refused.err) == (5, True), refused.err
        held = store.get(key)
        assert held is not None
        assert held.value == b"its record"
    approved = office.sign(f"undo={digest}", office.ann, office.bob)
    named = run(capsys, *undo, *approved)
    assert named.out.rstrip().endswith(shlex.join([*map(str, approved), "--confirm", digest]))
    assert run(capsys, *undo, "--confirm", digest, *approved).code == 0
    back = store.get(key)
    assert back is not None
    assert back.value == b"a hold"


def test_a_policy_of_this_host_that_cannot_be_used_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that BKMETA_POLICY names must exist; without the variable there need be none."""
    monkeypatch.setattr("reconcile.cli.approval.DEFAULT_FILE", tmp_path / "none.json")
    assert read_local_policy() is None
    monkeypatch.setenv(VARIABLE, str(tmp_path / "other.json"))
    with pytest.raises(InputError, match="does not exist"):
        read_local_policy()
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(InputError, match="archived: is missing"):
        read_local_policy()


@pytest.mark.parametrize("what", ["thaw=ab", "nothing", "plan"])
def test_what_cannot_be_approved_is_named(what: str, office: Office, capsys: pytest.CaptureFixture[str]) -> None:
    """A hash that is cut, no file, a folder that is no plan."""
    (office.folder / "plan").mkdir()
    path = what if "=" in what else office.folder / what
    done = run(capsys, "approve", path, "--key", office.ann.private, "--out", office.folder / "a.json")
    assert done.code == 2
    assert not (office.folder / "a.json").exists()


def test_disks_are_given_up_when_two_people_signed_it(
    office: Office, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss that is stated gives up what only they had: refused before a plan is made, for other disks, too."""

    def choose_spark(*_: object) -> None:
        raise InputError("Spark", "would be started", "none")

    monkeypatch.setattr("reconcile.jobs.recover.choose_spark", choose_spark)
    monkeypatch.setattr("reconcile.jobs.recover.require_spark", lambda *_: None)
    inventory = write_inventory(office.folder / "bk1", "bk1:3181", [1], instance="7d3e")

    def recover(*options: object) -> Done:
        out = office.folder / f"plan-{len(list(office.folder.iterdir()))}"
        return run(capsys, "recover", "--inventory", inventory, "--metadata", NOWHERE, "--out", out, *options)

    assert "would be started" in recover("--lost", "bk2:3181").err
    office.keep_policy()
    assert "would be started" in recover().err
    refused = recover("--lost", "bk2:3181")
    assert refused.code == 5
    [word] = [word for word in refused.err.split() if word.startswith("lost=")]
    approvals = office.sign(word, office.ann, office.bob)
    assert recover("--lost", "bk2:3181", *approvals[:2]).code == 5
    assert recover("--lost", "bk3:3181", *approvals).code == 5
    assert "would be started" in recover("--lost", "bk2:3181", *approvals).err
