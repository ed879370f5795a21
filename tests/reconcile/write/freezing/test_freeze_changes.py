"""The changes that a freeze and a thaw propose: what each says, needs and does, and whose rights come back."""

import pytest

from backends.memory import MemoryStore
from backends.protocols import Acl
from reconcile.write.freezing.freeze import AclChange, Proposal, propose_freeze, propose_thaw
from reconcile.write.journal_events import FREEZE, THAW, FreezeHistory
from tests.reconcile.write.freezing.test_freeze import OPEN, OURS, ROOT, _cluster

ROOT_KEY = "/"
SHUT = f"world:anyone:a,{OURS}:cdrwa"
MADE = AclChange("/000", None, SHUT)
CLOSED = AclChange("/00", OPEN, SHUT)
REMOVED = AclChange("/000", SHUT, None)


@pytest.mark.parametrize(
    ("change", "op", "objections"),
    [
        (MADE, "create", {None: False, SHUT: True, OPEN: True}),
        (CLOSED, "rights", {None: True, SHUT: True, OPEN: False}),
        (REMOVED, "remove", {SHUT: False, OPEN: False}),
    ],
)
def test_a_change_needs_what_it_replaces(change: AclChange, op: str, objections: dict[str | None, bool]) -> None:
    """What is made must be absent, what is changed must have the rights that were seen; what is empty goes with any."""
    assert change.op == op
    for there, is_objected in objections.items():
        stored = None if there is None else Acl(there, 3)
        assert (change.find_objection(stored) is not None) == is_objected, there


def test_a_change_in_words() -> None:
    """What is made and what is removed is told from rights."""
    texts = [str(change) for change in (MADE, CLOSED, REMOVED)]
    assert len(set(texts)) == 3
    assert OPEN in texts[1]
    assert "None" not in "".join(texts)


@pytest.mark.parametrize(
    ("kind", "changes", "disable", "is_empty", "makes_root"),
    [
        (FREEZE, (), None, True, False),
        (FREEZE, (CLOSED,), None, False, False),
        (FREEZE, (), OPEN, False, False),
        (FREEZE, (CLOSED,), OPEN, False, False),
        (FREEZE, (AclChange(ROOT_KEY, None, SHUT),), None, False, True),
        (FREEZE, (AclChange(ROOT_KEY, OPEN, SHUT), MADE), None, False, False),
        (THAW, (AclChange(ROOT_KEY, None, SHUT),), None, False, False),
    ],
)
def test_what_a_proposal_has_to_do(
    kind: str, changes: tuple[AclChange, ...], disable: str | None, *, is_empty: bool, makes_root: bool
) -> None:
    """Nothing only where no rights change and replication is disabled; a root is made by a freeze alone."""
    proposal = Proposal(kind, ROOT, 1, OURS, disable, changes)
    assert (proposal.is_empty, proposal.makes_root) == (is_empty, makes_root)


def created_txn(store: MemoryStore) -> int | None:
    """Return the transaction that made the root."""
    node = store.get(ROOT)
    assert node is not None
    return node.created_txn


@pytest.mark.parametrize(
    ("originals", "former", "is_same_root", "wanted"),
    [
        ({}, "", True, OPEN),
        ({ROOT_KEY: "world:anyone:cdr"}, "", True, "world:anyone:cdr"),
        ({}, "world:anyone:cdrw", True, "world:anyone:cdrw"),
        ({ROOT_KEY: "world:anyone:cdr"}, "world:anyone:cdrw", True, "world:anyone:cdr"),
        ({ROOT_KEY: "world:anyone:cdr"}, "", False, OPEN),
    ],
)
def test_what_a_freeze_makes_gets_the_rights_of_before(
    originals: dict[str, str | None], former: str, wanted: str, *, is_same_root: bool
) -> None:
    """Those of the root before its first freeze, which the journal remembers; of another root its own."""
    store = _cluster()
    txn = created_txn(store)
    assert txn is not None
    history = FreezeHistory(originals=originals, former=former, root_txn=txn if is_same_root else txn + 1)
    assert propose_freeze(store, ROOT, OURS, history).former == wanted
    assert propose_freeze(store, ROOT, OURS).former == OPEN


def test_a_thaw_without_a_freeze_has_nothing_to_do() -> None:
    """Whichever root stands there."""
    assert propose_thaw(_cluster(), ROOT, FreezeHistory()).is_empty


def test_what_was_removed_since_is_noted_only_if_it_was_there_before() -> None:
    """What a freeze made and somebody removed is as it was."""
    store = _cluster()
    history = FreezeHistory(
        originals={"/000": None, "/idgen-long": OPEN, "/00": OPEN},
        frozen_as={"/00": {OPEN}},
        root_txn=created_txn(store),
        former=OPEN,
    )
    assert propose_thaw(store, ROOT, history).notes == ("/idgen-long was removed since it was frozen",)
