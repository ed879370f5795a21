"""The changes that a freeze and a thaw propose: what each says, needs and does, and whose rights come back."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backends.protocols import Acl, Write
from reconcile.errors import GuardRefusedError
from reconcile.write.audit_journal import JOURNAL, AuditJournal, JournalLine, scan
from reconcile.write.freezing.freeze import (
    AclChange,
    FreezeProposal,
    carry_out,
    is_rest,
    make_binding,
    propose_freeze,
    propose_thaw,
)
from reconcile.write.freezing.freeze_state import KEPT, close_acl, join_key
from reconcile.write.journal_events import FREEZE, THAW, AclRow, FreezeHistory
from recovery.codecs.store import Layout
from tests.reconcile.write.freezing.test_freeze import OPEN, OURS, ROOT, _cluster
from tests.support.memory_store import MemoryStore

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
    proposal = FreezeProposal(kind, ROOT, 1, OURS, disable, changes)
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


def thawed(rights: dict[str, str], history: FreezeHistory) -> dict[str, tuple[str | None, str | None]]:
    """Return what a thaw of this cluster with these rights would change, as (before, after) by key."""
    store = _cluster()
    for key, text in rights.items():
        acl = store.get_acl(join_key(ROOT, key))
        assert acl is not None
        store.set_acl(join_key(ROOT, key), text, expected=acl.version)
    history.root_txn = created_txn(store)
    return {change.key: (change.before, change.after) for change in propose_thaw(store, ROOT, history).changes}


SHUT_GENERATOR = close_acl(OPEN, KEPT["/idgen"], OURS)
SHUT_ROOT = close_acl(OPEN, KEPT[ROOT_KEY], OURS)


@pytest.mark.parametrize(
    ("former", "of_root", "wanted"),
    [(OPEN, "world:anyone:r", OPEN), ("", OPEN, OPEN), ("", None, None), (OPEN, None, OPEN)],
)
def test_what_a_freeze_made_gets_the_rights_that_it_would_have_had(
    former: str, of_root: str | None, wanted: str | None
) -> None:
    """Those that the freeze noted; of a journal that noted none those of the root; without either it stays as it is."""
    history = FreezeHistory(originals={"/idgen": None}, frozen_as={"/idgen": {SHUT_GENERATOR}}, former=former)
    if of_root is not None:
        history.originals[ROOT_KEY] = of_root
        history.frozen_as[ROOT_KEY] = {SHUT_ROOT}
    found = thawed({"/idgen": SHUT_GENERATOR, ROOT_KEY: SHUT_ROOT}, history)
    assert found.get("/idgen") == (None if wanted is None else (SHUT_GENERATOR, wanted))


def test_only_what_a_freeze_made_is_removed_and_only_if_it_is_empty() -> None:
    """A folder that was there before stays, empty or not; one that was made and is in use gets rights."""
    rights = {"/00": SHUT}
    for before, children, wanted in ((OPEN, False, OPEN), (OPEN, True, OPEN), (None, True, OPEN), (None, False, None)):
        store = _cluster()
        if not children:
            store.write([Write(f"{ROOT}/00/0000/L0007", None, 0)])
            store.write([Write(f"{ROOT}/00/0000", None, 0)])
        store.set_acl(f"{ROOT}/00", rights["/00"], expected=0)
        history = FreezeHistory(identity=OURS, originals={"/00": before}, frozen_as={"/00": {SHUT}}, former=OPEN)
        history.root_txn = created_txn(store)
        assert propose_thaw(store, ROOT, history).changes == (AclChange("/00", SHUT, wanted),)


@pytest.mark.parametrize(
    ("rights", "is_removed"),
    [
        (f"{OURS}:cdrwa,world:anyone:r,auth:x:r", True),
        # The first ledger may come below it at any time.
        (f"{OURS}:cdrwa,world:anyone:r,digest:client:hash:cr", False),
        (f"{OURS}:cdrwa,world:anyone:cr", False),
    ],
)
def test_what_others_may_create_in_stays(rights: str, *, is_removed: bool) -> None:
    """Whoever else has rights there: one who may create is enough."""
    store = _cluster()
    store.write([Write(f"{ROOT}/00/0000/L0007", None, 0)])
    store.write([Write(f"{ROOT}/00/0000", None, 0)])
    store.set_acl(f"{ROOT}/00", rights, expected=0)
    history = FreezeHistory(identity=OURS, originals={"/00": None}, frozen_as={"/00": {rights}}, former=OPEN)
    history.root_txn = created_txn(store)
    assert propose_thaw(store, ROOT, history).changes == (AclChange("/00", rights, None if is_removed else OPEN),)


@pytest.mark.parametrize(
    ("originals", "former", "is_adopted"),
    [
        ({"/00": OPEN}, OPEN, True),
        ({ROOT_KEY: OPEN}, "", True),
        ({"/00": OPEN}, "", False),
        ({}, OPEN, False),
        ({"/00": OPEN}, "world:anyone:cdrwa,digest:x:y:a", False),
    ],
)
def test_a_generator_that_was_made_in_a_frozen_store_is_opened_with_it(
    originals: dict[str, str | None], former: str, *, is_adopted: bool
) -> None:
    """If it is closed just as a freeze closes it; without a freeze, or without the rights of before, it is not ours."""
    history = FreezeHistory(
        originals=dict(originals), frozen_as={"/00": {OPEN}, ROOT_KEY: {OPEN}}, former=former, identity=OURS
    )
    found = thawed({"/idgen": SHUT_GENERATOR}, history)
    assert found == ({"/idgen": (SHUT_GENERATOR, OPEN)} if is_adopted else {})


def test_what_is_left_of_a_run_is_told_from_another_proposal() -> None:
    """The same kind, root and hash, no change besides those that were begun, and a run that did not end."""
    begun = FreezeHistory(kind=FREEZE, hash="abcd", changes=(_row(CLOSED), _row(MADE)), is_ended=False, root_txn=5)
    rest = FreezeProposal(FREEZE, ROOT, 5, OURS, None, (MADE,))
    assert is_rest(rest, begun, "abcd")
    assert is_rest(rest, begun, "ab")
    assert not is_rest(rest, begun, "b")
    assert not is_rest(rest, replace(begun, is_ended=True), "abcd")
    assert not is_rest(replace(rest, kind=THAW), begun, "abcd")
    assert not is_rest(replace(rest, root_txn=6), begun, "abcd")
    assert not is_rest(replace(rest, changes=(MADE, REMOVED)), begun, "abcd")


def _row(change: AclChange) -> AclRow:
    return AclRow(change.key, change.before, change.after)


@pytest.mark.parametrize("resumed", [None, False, True])
def test_only_a_new_run_announces_what_was_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, resumed: bool | None
) -> None:
    """The rest of a run goes on under its own line; a root that somebody removed meanwhile has no transaction."""
    store = _cluster()
    now = datetime(2026, 1, 2, tzinfo=UTC)
    with AuditJournal.open(
        tmp_path, make_binding(ROOT), resume=False, now=lambda: now, replay=lambda _: None
    ) as journal:
        proposal = propose_freeze(store, ROOT, OURS)
        inner = store.get
        monkeypatch.setattr(store, "get", lambda key: None if key == ROOT else inner(key))
        if resumed is None:
            carry_out(proposal, store, journal)
        else:
            carry_out(proposal, store, journal, resumed=resumed)
    lines = [record for record in scan(tmp_path / JOURNAL) if isinstance(record, JournalLine)]
    assert any(record.event == FREEZE for record in lines) == (resumed is not True)
    assert [record.fields["root_txn"] for record in lines if record.event == "frozen"] == [None]


def test_a_root_is_made_with_all_below_it_or_not_at_all(tmp_path: Path) -> None:
    """If somebody makes it first, open, nothing is put below it."""
    store = MemoryStore()
    proposal = propose_freeze(store, ROOT, OURS)
    store.write([Write(ROOT, b"")])
    now = datetime(2026, 1, 2, tzinfo=UTC)
    with (
        AuditJournal.open(
            tmp_path, make_binding(ROOT), resume=False, now=lambda: now, replay=lambda _: None
        ) as journal,
        pytest.raises(GuardRefusedError),
    ):
        carry_out(proposal, store, journal)
    assert list(store.dump()) == [ROOT]


def test_no_generator_is_made_in_a_flat_root() -> None:
    """Nobody can make one in it while it is closed: only the folder of locks, in which bookies may, is made."""
    store = _cluster()
    store.write([Write(f"{ROOT}/idgen", None, 0)])
    changes = propose_freeze(store, ROOT, OURS, layout=Layout.FLAT).changes
    assert [change.key for change in changes] == ["/underreplication/locks", "/"]
