"""Freezing and thawing a store in memory: the exact changes, what is refused, and death at every step."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backends.errors import OutcomeUnknownError, UnavailableError
from backends.protocols import AccessControl, Acl, ControlledStore, Write
from backends.registry import ReadOnlyControlledStore, ReadOnlyStore
from reconcile.errors import GuardRefusedError, JournalError, PartlyAppliedError
from reconcile.write import audit_journal, guards
from reconcile.write.apply import ApplyOptions, apply
from reconcile.write.freezing import freeze, freeze_state
from reconcile.write.journal_events import FreezeHistory
from recovery.codecs.store import Layout, layout_bytes
from recovery.errors import InputError
from tests.support.failing_stores import CrashError, Fault, FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.plans import action, plan_of

ROOT = "/ledgers"
OURS = "digest:tool:aGFzaGhhc2g="
OPEN = "world:anyone:cdrwa"


class FaultyControlledStore(FaultyStore):
    """A store with rights that fails where it is told to."""

    def __init__(self, store: MemoryStore, faults: dict[int, Fault]) -> None:
        super().__init__(store, faults.get)
        self._controlled = store

    def get_acl(self, key: str) -> Acl | None:
        return self._call(lambda: self._controlled.get_acl(key))

    def set_acl(self, key: str, acl: str, *, expected: int) -> int:
        return self._call(lambda: self._controlled.set_acl(key, acl, expected=expected))


def _now() -> datetime:
    return datetime(2026, 1, 2, tzinfo=UTC)


def _cluster() -> MemoryStore:
    """A small cluster whose replication was never used."""
    store = MemoryStore()
    store.write(
        [
            Write(f"{ROOT}/LAYOUT", layout_bytes(Layout.HIERARCHICAL)),
            Write(f"{ROOT}/INSTANCEID", b"an-instance"),
            Write(f"{ROOT}/available/readonly", b""),
            Write(f"{ROOT}/idgen", b""),
            Write(f"{ROOT}/00/0000/L0007", b"record"),
        ]
    )
    return store


def _freeze(store: ControlledStore, folder: Path, confirmed: str | None = None, *, deletes_only: bool = False) -> str:
    """Freeze as the command does: proposed under the lock, and the rest of a broken-off run gone on with."""
    past = FreezeHistory()
    with audit_journal.AuditJournal.open(
        folder, freeze.make_binding(ROOT), resume=True, now=_now, replay=past.replay
    ) as journal:
        proposal = freeze.propose_freeze(store, ROOT, OURS, past, deletes_only=deletes_only)
        confirmed = confirmed or proposal.hash
        resumed = freeze.is_rest(proposal, past, confirmed)
        assert resumed or proposal.hash == confirmed
        freeze.carry_out(proposal, store, journal, resumed=resumed)
    return confirmed


def _thaw(
    store: ControlledStore, folder: Path, confirmed: str | None = None, *, enable_replication: bool = False
) -> str:
    past = FreezeHistory()
    with audit_journal.AuditJournal.open(
        folder, freeze.make_binding(ROOT), resume=True, now=_now, replay=past.replay
    ) as journal:
        proposal = freeze.propose_thaw(store, ROOT, past, enable_replication=enable_replication)
        confirmed = confirmed or proposal.hash
        resumed = freeze.is_rest(proposal, past, confirmed)
        assert resumed or proposal.hash == confirmed
        freeze.carry_out(proposal, store, journal, resumed=resumed)
    return confirmed


def _rights(store: MemoryStore) -> dict[str, str]:
    found = {}
    for key in (ROOT, *store.dump()):
        held = store.get_acl(key)
        assert held is not None
        found[key] = held.text
    return found


def test_the_changes_of_a_freeze(tmp_path: Path) -> None:
    """Exactly the rights of the recipe are taken, what is missing is made closed, and records are left alone."""
    store = _cluster()
    proposal = freeze.propose_freeze(store, ROOT, OURS)
    closed = f"world:anyone:a,{OURS}:cdrwa"
    assert "no client can create a ledger" in proposal.notes[0]
    assert proposal.disable == OPEN
    assert proposal.changes == (
        freeze.AclChange("/00", OPEN, closed),
        freeze.AclChange("/000", None, closed),
        freeze.AclChange("/underreplication/locks", None, f"world:anyone:dra,{OURS}:cdrwa"),
        freeze.AclChange("/idgen", OPEN, closed),
        freeze.AclChange("/", OPEN, f"world:anyone:ra,{OURS}:cdrwa"),
    )
    _freeze(store, tmp_path)
    assert freeze_state.read_freeze_state(store, ROOT) == freeze_state.FreezeState(
        freeze_state.FreezeExtent.FROZEN, identity=OURS, replication_disabled=True
    )
    rights = _rights(store)
    changed = {change.key for change in proposal.changes}
    assert {key: text for key, text in rights.items() if text != OPEN} == {
        freeze_state.join_key(ROOT, key): rights[freeze_state.join_key(ROOT, key)] for key in changed
    }
    assert f"{ROOT}/idgen-long" not in rights
    assert store.dump()[f"{ROOT}/00/0000/L0007"] == b"record"
    assert not [key for key in store.dump() if "bkmeta" in key]


def test_the_changes_of_a_freeze_of_deletes_only(tmp_path: Path) -> None:
    """READ of the folders is taken, DELETE of the root, and the locks; a full freeze goes on, one thaw ends both."""
    store = _cluster()
    before = _rights(store)
    proposal = freeze.propose_freeze(store, ROOT, OURS, deletes_only=True)
    assert "clients go on" in proposal.notes[0]
    assert proposal.changes == (
        freeze.AclChange("/00", OPEN, f"world:anyone:cdwa,{OURS}:cdrwa"),
        freeze.AclChange("/000", None, f"world:anyone:cdwa,{OURS}:cdrwa"),
        freeze.AclChange("/underreplication/locks", None, f"world:anyone:dra,{OURS}:cdrwa"),
        freeze.AclChange("/", OPEN, f"world:anyone:crwa,{OURS}:cdrwa"),
    )
    _freeze(store, tmp_path, deletes_only=True)
    state = freeze_state.read_freeze_state(store, ROOT)
    assert (state.state, state.frozen, state.identity) == (freeze_state.FreezeExtent.DELETES, True, OURS)
    assert [freeze_state.choose_kept_acl(store, ROOT, key, OPEN) for key in ("/idgen", "/000")] == [
        OPEN,
        f"world:anyone:cdwa,{OURS}:cdrwa",
    ]
    _freeze(store, tmp_path)
    assert freeze_state.read_freeze_state(store, ROOT).state is freeze_state.FreezeExtent.FROZEN
    # What is closed already stays so.
    assert freeze.propose_freeze(store, ROOT, OURS, deletes_only=True).is_empty
    _thaw(store, tmp_path)
    left = {f"{ROOT}/underreplication", f"{ROOT}/underreplication/locks", f"{ROOT}/underreplication/disable"}
    assert {key: rights for key, rights in _rights(store).items() if key not in left} == before


def test_the_thaw_of_deletes_only_is_the_same_whatever_clients_make_meanwhile(tmp_path: Path) -> None:
    """The first ledger with a long id may come while a person reads the changes: the hash that was shown holds."""
    store = _cluster()
    _freeze(store, tmp_path, deletes_only=True)
    history = freeze.read_history(tmp_path, ROOT)
    assert history is not None
    shown = freeze.propose_thaw(store, ROOT, history)
    assert freeze.AclChange("/000", f"world:anyone:cdwa,{OURS}:cdrwa", OPEN) in shown.changes
    store.write([Write(f"{ROOT}/000/L0001", b"record")])
    assert freeze.propose_thaw(store, ROOT, history).hash == shown.hash
    _thaw(store, tmp_path)
    assert _rights(store)[f"{ROOT}/000"] == OPEN


def test_in_a_flat_root_clients_go_on_where_only_deletes_are_frozen(tmp_path: Path) -> None:
    """READ of the root is taken, in which the ledgers are; CREATE is not, and it counts as frozen all the same."""
    store = MemoryStore()
    store.write([Write(f"{ROOT}/LAYOUT", layout_bytes(Layout.FLAT)), Write(f"{ROOT}/L0000000007", b"record")])
    past = FreezeHistory()
    with audit_journal.AuditJournal.open(
        tmp_path, freeze.make_binding(ROOT), resume=True, now=_now, replay=past.replay
    ) as journal:
        proposal = freeze.propose_freeze(store, ROOT, OURS, past, layout=Layout.FLAT, deletes_only=True)
        freeze.carry_out(proposal, store, journal, resumed=False)
    assert proposal.changes == (
        freeze.AclChange("/underreplication/locks", None, f"world:anyone:dra,{OURS}:cdrwa"),
        freeze.AclChange("/", OPEN, f"world:anyone:cdwa,{OURS}:cdrwa"),
    )
    assert freeze_state.read_freeze_state(store, ROOT).state is freeze_state.FreezeExtent.DELETES


def test_where_only_deletes_are_frozen_a_root_is_refused_that_is_not_ours_to_change() -> None:
    """Else an old client that deletes the last ledger of a folder deletes that folder, too, and the freeze with it."""
    store = _cluster()
    store.write([Write(f"{ROOT}/000", b""), Write(f"{ROOT}/underreplication/locks", b"")])
    store.write([Write(f"{ROOT}/underreplication/disable", b"")])
    store.set_acl(ROOT, "digest:bookkeeper:cGFzcw==:cdrwa", expected=0)
    with pytest.raises(GuardRefusedError, match=ROOT):
        freeze.propose_freeze(store, ROOT, OURS, deletes_only=True)


def test_folders_that_clients_may_delete_are_not_frozen(tmp_path: Path) -> None:
    """An old client that deletes a folder's last ledger deletes the folder, and the next one makes it open."""
    store = _cluster()
    _freeze(store, tmp_path, deletes_only=True)
    rights = store.get_acl(ROOT)
    assert rights is not None
    store.set_acl(ROOT, f"world:anyone:cdrwa,{OURS}:cdrwa", expected=rights.version)
    state = freeze_state.read_freeze_state(store, ROOT)
    assert (state.state, state.frozen) == (freeze_state.FreezeExtent.PARTLY, False)
    assert [line.split()[0] for line in state.open] == ["/idgen", "/"]
    # What clients need is not what is amiss.
    assert freeze_state.read_freeze_state(store, ROOT, deletes_only=True).open == ("/ is open to world:anyone",)


def test_clients_do_not_go_on_in_a_root_that_is_gone() -> None:
    """Ids that they would get there were given out before."""
    with pytest.raises(GuardRefusedError, match="does not exist"):
        freeze.propose_freeze(MemoryStore(), ROOT, OURS, deletes_only=True)


def test_replication_is_disabled_before_anything_else(tmp_path: Path) -> None:
    """The journal shows the order: replication, the listing, the locks, the generators, the root; then caches."""
    store = _cluster()
    _freeze(store, tmp_path)
    records = [
        r
        for r in audit_journal.scan(tmp_path / audit_journal.JOURNAL)
        if isinstance(r, audit_journal.JournalLine) and r.event == "intent"
    ]
    assert [(r.fields["op"], r.fields["key"]) for r in records] == [
        ("disable", "/underreplication/disable"),
        ("rights", "/00"),
        ("create", "/000"),
        ("create", "/underreplication/locks"),
        ("rights", "/idgen"),
        ("rights", "/"),
        ("touch", "/"),
        ("touch", "/00"),
        ("touch", "/000"),
    ]


def test_thaw_gives_back_exactly_what_was_taken(tmp_path: Path) -> None:
    """Rights as before, the listing's last; empty folders that freeze made go; replication stays disabled."""
    store = _cluster()
    store.set_acl(f"{ROOT}/00", "sasl:bk:cdrwa,world:anyone:ra", expected=0)
    before = _rights(store)
    _freeze(store, tmp_path)
    past = freeze.read_history(tmp_path, ROOT)
    assert past is not None
    assert [c.key for c in freeze.propose_thaw(store, ROOT, past).changes] == [
        "/",
        "/idgen",
        "/underreplication/locks",
        "/000",
        "/00",
    ]
    _thaw(store, tmp_path)
    made = {f"{ROOT}/underreplication{name}": OPEN for name in ("", "/disable", "/locks")}
    assert _rights(store) == before | made
    assert freeze_state.read_freeze_state(store, ROOT).replication_disabled is True


def test_a_folder_that_was_filled_while_frozen_stays(tmp_path: Path) -> None:
    """What a restore put below a folder that freeze made is kept, and can be listed after thaw."""
    store = _cluster()
    _freeze(store, tmp_path)
    store.write([Write(f"{ROOT}/000/0000/0021/4748/L3647", b"restored")])
    _thaw(store, tmp_path)
    assert store.dump()[f"{ROOT}/000/0000/0021/4748/L3647"] == b"restored"
    assert _rights(store)[f"{ROOT}/000"] == OPEN


def test_freezing_twice_changes_nothing(tmp_path: Path) -> None:
    """A second freeze has nothing to do, and thaw still knows the rights from before the first."""
    store = _cluster()
    before = _rights(store)
    _freeze(store, tmp_path)
    rights = _rights(store)
    past = freeze.read_history(tmp_path, ROOT)
    assert freeze.propose_freeze(store, ROOT, OURS, past).is_empty
    held = store.get_acl(f"{ROOT}/00")
    assert held is not None
    store.set_acl(f"{ROOT}/00", OPEN, expected=held.version)
    _freeze(store, tmp_path)
    assert _rights(store) == rights
    _thaw(store, tmp_path)
    assert before.items() <= _rights(store).items()
    assert f"{ROOT}/000" not in _rights(store)


def test_frozen_again_after_a_thaw(tmp_path: Path) -> None:
    """One journal serves many freezes: each thaw goes back to the rights before its own."""
    store = _cluster()
    _freeze(store, tmp_path)
    _thaw(store, tmp_path)
    held = store.get_acl(f"{ROOT}/00")
    assert held is not None
    store.set_acl(f"{ROOT}/00", "world:anyone:cdra", expected=held.version)
    _freeze(store, tmp_path)
    _thaw(store, tmp_path)
    assert _rights(store)[f"{ROOT}/00"] == "world:anyone:cdra"


def _deaths() -> Iterator[tuple[int, bool]]:
    for call in range(60):
        yield from ((call, False), (call, True))


def test_death_at_any_call_is_gone_on_with(tmp_path: Path) -> None:
    """Killed before or after any request, freeze and thaw end as if never killed when they are run again."""
    whole = _cluster()
    before = _rights(whole)
    first = _freeze(whole, tmp_path / "whole")
    frozen_rights = _rights(whole)
    second = _thaw(whole, tmp_path / "whole")
    thawed_rights = _rights(whole)
    died = 0
    for call, after in _deaths():
        store, folder = _cluster(), tmp_path / f"{call}-{after}"
        assert _rights(store) == before
        dying = FaultyControlledStore(
            store, {call: Fault(CrashError(), after), 2 * call + 7: Fault(CrashError(), after)}
        )
        for run, confirmed, rights in ((_freeze, first, frozen_rights), (_thaw, second, thawed_rights)):
            for _ in range(3):
                try:
                    run(dying, folder, confirmed)
                    break
                except CrashError:
                    died += 1
            assert _rights(store) == rights
    assert died > 100


def test_a_lost_answer_is_read_back(tmp_path: Path) -> None:
    """A change whose answer was lost is looked at: made, it counts; not made, the run stops and says what to do."""
    for call in range(40):
        store = _cluster()
        lost = Fault(OutcomeUnknownError("memory:", "lost"), after=True)
        _freeze_through(FaultyControlledStore(store, {call: lost}), tmp_path / f"made-{call}")
        assert freeze_state.read_freeze_state(store, ROOT).frozen
    stopped = 0
    for call in range(40):
        store = _cluster()
        lost = Fault(OutcomeUnknownError("memory:", "lost"), after=False)
        stopped += _freeze_through(FaultyControlledStore(store, {call: lost}), tmp_path / f"not-{call}")
        assert freeze_state.read_freeze_state(store, ROOT).frozen
    assert stopped > 3


def _freeze_through(store: FaultyControlledStore, folder: Path) -> bool:
    """Freeze, once more if the store stopped answering; return whether that was needed."""
    try:
        _freeze(store, folder)
    except (PartlyAppliedError, UnavailableError):
        pass
    else:
        return False
    _freeze(store, folder)
    return True


def test_rights_that_changed_meanwhile_stop_the_run(tmp_path: Path) -> None:
    """A node whose rights are not the confirmed ones any more is left as it is, and so is all after it."""
    store = _cluster()
    proposal = freeze.propose_freeze(store, ROOT, OURS)
    store.set_acl(f"{ROOT}/idgen", "world:anyone:cr", expected=0)
    with (
        audit_journal.AuditJournal.open(
            tmp_path, freeze.make_binding(ROOT), resume=True, now=_now, replay=lambda _record: None
        ) as journal,
        pytest.raises(PartlyAppliedError, match="/ledgers/idgen"),
    ):
        freeze.carry_out(proposal, store, journal)
    assert _rights(store)[f"{ROOT}/idgen"] == "world:anyone:cr"
    assert _rights(store)[ROOT] == OPEN
    # Clients may delete the folders by which listings fail.
    assert freeze_state.read_freeze_state(store, ROOT).state is freeze_state.FreezeExtent.PARTLY


def test_a_node_that_was_made_meanwhile_stops_the_run(tmp_path: Path) -> None:
    """Somebody made it, open, since the freeze was confirmed: it is left, and named with its rights."""
    store = _cluster()
    proposal = freeze.propose_freeze(store, ROOT, OURS)
    made = f"{ROOT}/underreplication/locks"
    store.write([Write(made, b"")])
    store.set_acl(made, "world:anyone:crd", expected=0)
    with (
        audit_journal.AuditJournal.open(
            tmp_path, freeze.make_binding(ROOT), resume=True, now=_now, replay=lambda _record: None
        ) as journal,
        pytest.raises(PartlyAppliedError, match="made meanwhile, with world:anyone:crd"),
    ):
        freeze.carry_out(proposal, store, journal)
    assert _rights(store)[made] == "world:anyone:crd"
    assert freeze_state.read_freeze_state(store, ROOT).state is freeze_state.FreezeExtent.PARTLY


def test_a_frozen_root_may_be_applied_to_while_bookies_run(tmp_path: Path) -> None:
    """Registered bookies are a guard against apply until the root is frozen; thawed, they are one again."""
    store = _cluster()
    store.put_ephemeral(f"{ROOT}/available/b1:3181", b"", owner=7)
    rows = [action("ledger", "create", "/00/0000/L0008", b"record")]

    def write(journal: str) -> int:
        plan = [plan_of(rows)]
        return apply(lambda: plan, store, ROOT, tmp_path / journal, ApplyOptions("hash"), now=_now).exit_code

    with pytest.raises(GuardRefusedError, match="1 bookie is running"):
        write("before")
    _freeze(store, tmp_path / "freeze")
    assert write("frozen") == 0
    _thaw(store, tmp_path / "freeze")
    with pytest.raises(GuardRefusedError, match="1 bookie is running"):
        write("after")


def _no_root() -> MemoryStore:
    store = MemoryStore()
    store.write([Write("/unrelated", b"")])
    return store


def test_a_root_that_is_gone_is_made_frozen_at_once(tmp_path: Path) -> None:
    """One transaction makes root, folders and locks, closed, and where bookies register, open; thaw opens all."""
    store = _no_root()
    proposal = freeze.propose_freeze(store, ROOT, OURS)
    assert "does not exist" in proposal.notes[0]
    assert store.dump() == {"/unrelated": b""}
    _freeze(store, tmp_path)
    made = [store.get(freeze_state.join_key(ROOT, change.key)) for change in proposal.changes]
    assert len({held.created_txn for held in made if held is not None}) == 1
    assert freeze_state.read_freeze_state(store, ROOT).frozen
    rights = _rights(store)
    assert rights[ROOT] == f"world:anyone:ra,{OURS}:cdrwa"
    assert {rights[f"{ROOT}/available"], rights[f"{ROOT}/available/readonly"]} == {OPEN}
    store.write([Write(f"{ROOT}/00/0000/L0007", b"record")])
    _thaw(store, tmp_path)
    assert set(_rights(store).values()) == {OPEN}
    assert store.dump()[f"{ROOT}/00/0000/L0007"] == b"record"
    assert f"{ROOT}/000" not in _rights(store)


def test_a_root_that_is_made_gets_the_rights_of_what_is_above_it() -> None:
    """Where bookies register as before."""
    store, rights = _no_root(), f"sasl:bk:cdrwa,{OURS}:cdrwa"
    store.set_acl("/", rights, expected=0)
    assert freeze.AclChange("/available", None, rights) in freeze.propose_freeze(store, ROOT, OURS).changes


def test_death_while_a_root_is_made_is_gone_on_with(tmp_path: Path) -> None:
    """Killed at any call, the root is absent or frozen whole, and the same hash ends as if never killed."""
    whole = _no_root()
    confirmed = _freeze(whole, tmp_path / "whole")
    rights = _rights(whole)
    died = 0
    for call in range(40):
        for after in (False, True):
            store, folder = _no_root(), tmp_path / f"{call}-{after}"
            try:
                _freeze(FaultyControlledStore(store, {call: Fault(CrashError(), after)}), folder, confirmed)
            except CrashError:
                died += 1
                assert store.get(ROOT) is None or freeze_state.read_freeze_state(store, ROOT).frozen
                _freeze(store, folder, confirmed)
            assert _rights(store) == rights
            _thaw(store, folder)
            assert set(_rights(store).values()) == {OPEN}
    assert died > 10


def test_a_flat_root_is_closed_itself(tmp_path: Path) -> None:
    """Ledgers stand in the root: READ and CREATE go there, no folder is made, and all comes back, the root last."""
    store = MemoryStore()
    nodes = {"/LAYOUT": layout_bytes(Layout.FLAT), "/available/readonly": b"", "/idgen": b"", "/L0000000007": b"record"}
    store.write([Write(ROOT + key, value) for key, value in nodes.items()])
    before = _rights(store)
    past = FreezeHistory()
    with audit_journal.AuditJournal.open(
        tmp_path, freeze.make_binding(ROOT), resume=True, now=_now, replay=past.replay
    ) as journal:
        proposal = freeze.propose_freeze(store, ROOT, OURS, past, layout=Layout.FLAT)
        assert [change.key for change in proposal.changes] == ["/underreplication/locks", "/idgen", "/"]
        freeze.carry_out(proposal, store, journal)
    assert freeze_state.read_freeze_state(store, ROOT) == freeze_state.FreezeState(
        freeze_state.FreezeExtent.FROZEN, identity=OURS, replication_disabled=True
    )
    assert _rights(store)[ROOT] == f"world:anyone:a,{OURS}:cdrwa"
    assert not {f"{ROOT}/00", f"{ROOT}/000"} & set(store.dump())
    held = store.get_acl(ROOT)
    assert held is not None
    store.set_acl(ROOT, f"world:anyone:ra,{OURS}:cdrwa", expected=held.version)
    assert freeze_state.read_freeze_state(store, ROOT).state is freeze_state.FreezeExtent.PARTLY
    store.set_acl(ROOT, held.text, expected=held.version + 1)
    again = freeze.read_history(tmp_path, ROOT)
    assert again is not None
    assert [change.key for change in freeze.propose_thaw(store, ROOT, again).changes][-1] == "/"
    _thaw(store, tmp_path)
    assert before.items() <= _rights(store).items()


def test_the_only_one_who_registers_bookies_is_the_bookies(tmp_path: Path) -> None:
    """Frozen by an identity without which nobody could register, what others may read says nothing: not known."""
    store = _cluster()
    for key in store.dump():
        store.set_acl(key, f"{OURS}:cdrwa,world:anyone:r", expected=0)
    _freeze(store, tmp_path)
    state = freeze_state.read_freeze_state(store, ROOT)
    assert (state.state, state.open) == (freeze_state.FreezeExtent.UNKNOWN, ())
    assert "register a bookie" in state.unknown[0]


@pytest.mark.parametrize(
    ("key", "rights", "word"),
    [
        ("", "sasl:bk:cdrwa", "CREATE above it"),
        ("/00", "world:anyone:cdrw", "ADMIN"),
        ("/00", "digest:bk:x:cdrwa,world:anyone:cdrwa", "ADMIN"),
        ("/idgen", "sasl:bk:cdrwa,world:anyone:r", "ADMIN"),
    ],
)
def test_an_identity_without_power_is_refused_before_anything_is_changed(key: str, rights: str, word: str) -> None:
    """Rights that cannot be changed, or are shown masked and so could not be given back, are said at once."""
    store = _cluster()
    store.set_acl(ROOT + key, rights, expected=0)
    with pytest.raises(GuardRefusedError, match=word) as refused:
        freeze.propose_freeze(store, ROOT, OURS)
    assert OURS in str(refused.value.remedy)


def test_the_super_user_needs_no_rights() -> None:
    """ZooKeeper's super user passes every right, so it can freeze what names nobody else."""
    store = _cluster()
    for key in ("", "/00"):
        store.set_acl(ROOT + key, "sasl:bk:cdrwa", expected=0)
    changes = freeze.propose_freeze(store, ROOT, "digest:super:aGFzaA==").changes
    assert freeze.AclChange("/00", "sasl:bk:cdrwa", "sasl:bk:a,digest:super:aGFzaA==:cdrwa") in changes


def test_who_loses_rights_is_named() -> None:
    """Principals beside anyone are named before it is confirmed, and so is our own identity if it had rights."""
    store = _cluster()
    store.set_acl(ROOT, f"sasl:bk:cdrwa,{OURS}:cdrwa,world:anyone:r", expected=0)
    [writers, others, ours] = freeze.propose_freeze(store, ROOT, OURS).notes
    assert "until the thaw no client can create a ledger" in writers
    assert "sasl:bk" in others
    assert OURS in ours


def test_who_is_still_named_is_told_but_for_anyone_and_ourselves(tmp_path: Path) -> None:
    """After the freeze others have what is left to them."""
    store = _cluster()
    store.set_acl(ROOT, f"sasl:bk:cdrwa,{OURS}:cdrwa,world:anyone:r", expected=0)
    _freeze(store, tmp_path)
    assert freeze_state.list_other_principals(store, ROOT, OURS) == ("sasl:bk",)


def test_records_of_a_frozen_store_have_open_rights_if_it_had(tmp_path: Path) -> None:
    """What the freeze gave to itself and took from anyone does not make the store a secured one."""
    store = _cluster()
    _freeze(store, tmp_path)
    assert guards.choose_acl(store, ROOT) == OPEN


def test_replication_that_is_disabled_is_not_disabled_again(tmp_path: Path) -> None:
    """Nothing of it is announced."""
    store = _cluster()
    store.write([Write(f"{ROOT}/underreplication/disable", b"")])
    _freeze(store, tmp_path)
    assert '"op":"disable"' not in (tmp_path / audit_journal.JOURNAL).read_text()
    assert freeze_state.read_freeze_state(store, ROOT).frozen


@pytest.mark.parametrize("has_root", [True, False])
def test_a_thaw_enables_replication_that_its_freeze_disabled(tmp_path: Path, *, has_root: bool) -> None:
    """As the last change, if it is asked to; later, too, by the same journal; and no more than once."""
    store = _cluster() if has_root else _no_root()
    before = _rights(store) if has_root else {}
    _freeze(store, tmp_path)
    past = freeze.read_history(tmp_path, ROOT)
    assert past is not None
    last = freeze.propose_thaw(store, ROOT, past, enable_replication=True).changes[-1]
    assert str(last) == "/underreplication/disable: removed, so that replication goes on; freeze made it"
    _thaw(store, tmp_path)
    assert freeze_state.read_freeze_state(store, ROOT).replication_disabled is True
    _thaw(store, tmp_path, enable_replication=True)
    assert freeze_state.read_freeze_state(store, ROOT).replication_disabled is False
    # Now a person disables it, and nothing that was frozen before tells whose it is.
    store.write([Write(f"{ROOT}/underreplication/disable", b"")])
    _thaw(store, tmp_path, enable_replication=True)
    assert freeze_state.read_freeze_state(store, ROOT).replication_disabled is True
    store.write([Write(f"{ROOT}/underreplication/disable", None, 0)])
    _freeze(store, tmp_path)
    _thaw(store, tmp_path, enable_replication=True)
    assert freeze_state.read_freeze_state(store, ROOT).replication_disabled is False
    assert before.items() <= _rights(store).items()


@pytest.mark.parametrize("is_late", [True, False])
def test_replication_that_another_disabled_stays_so(tmp_path: Path, *, is_late: bool) -> None:
    """Before the freeze, or between: who enabled it and disabled it again wants it so."""
    store = _cluster()
    if is_late:
        _freeze(store, tmp_path)
        store.write([Write(f"{ROOT}/underreplication/disable", None, 0)])
    store.write([Write(f"{ROOT}/underreplication/disable", b"")])
    if not is_late:
        _freeze(store, tmp_path)
    past = freeze.read_history(tmp_path, ROOT)
    assert past is not None
    proposal = freeze.propose_thaw(store, ROOT, past, enable_replication=True)
    assert proposal.notes == ("no freeze of this journal disabled replication: it stays disabled",)
    assert [change.key for change in proposal.changes] == ["/", "/idgen", "/underreplication/locks", "/000", "/00"]
    _thaw(store, tmp_path, enable_replication=True)
    assert freeze_state.read_freeze_state(store, ROOT).replication_disabled is True


def test_a_thaw_never_overwrites_rights_of_others(tmp_path: Path) -> None:
    """Rights that somebody set while frozen are not replaced, and nothing else is changed either."""
    store = _cluster()
    _freeze(store, tmp_path)
    held = store.get_acl(f"{ROOT}/idgen")
    assert held is not None
    store.set_acl(f"{ROOT}/idgen", "world:anyone:r", expected=held.version)
    rights = _rights(store)
    past = freeze.read_history(tmp_path, ROOT)
    assert past is not None
    with pytest.raises(GuardRefusedError, match="no freeze of this journal"):
        freeze.propose_thaw(store, ROOT, past)
    assert _rights(store) == rights


def test_another_root_at_the_same_place_is_not_thawed(tmp_path: Path) -> None:
    """A root that was made anew has none of the freeze: it is said, not thawed."""
    store = _cluster()
    _freeze(store, tmp_path)
    past = freeze.read_history(tmp_path, ROOT)
    assert past is not None
    other = MemoryStore()
    other.write([Write("/unrelated", b"")])
    with pytest.raises(GuardRefusedError, match="does not exist"):
        freeze.propose_thaw(other, ROOT, past)
    other.write([Write(f"{ROOT}/00", b"")])
    with pytest.raises(GuardRefusedError, match="not the root that was frozen"):
        freeze.propose_thaw(other, ROOT, past)


def test_a_journal_of_another_root_is_refused(tmp_path: Path) -> None:
    """One folder is of one root; no journal is no past."""
    store = _cluster()
    assert freeze.read_history(tmp_path, ROOT) is None
    _freeze(store, tmp_path)
    with pytest.raises(JournalError, match="/elsewhere"):
        freeze.read_history(tmp_path, "/elsewhere")


@pytest.mark.parametrize(
    ("stored", "named", "layout"),
    [
        (layout_bytes(Layout.FLAT), None, Layout.FLAT),
        (layout_bytes(Layout.LEGACY), None, Layout.LEGACY),
        (None, Layout.LONGLONGHIERARCHICAL, Layout.LONGLONGHIERARCHICAL),
        (layout_bytes(Layout.LONGHIERARCHICAL), Layout.LONGLONGHIERARCHICAL, Layout.LONGHIERARCHICAL),
        (b"nonsense", Layout.FLAT, Layout.FLAT),
        (None, None, None),
        (b"nonsense", None, None),
        (layout_bytes(Layout.HIERARCHICAL), Layout.LONGHIERARCHICAL, None),
    ],
)
def test_the_layout_is_known_before_anything_is_frozen(
    stored: bytes | None, named: Layout | None, layout: Layout | None
) -> None:
    """LAYOUT or the URI says it; what nothing says, or two things say differently, is a usage error."""
    store = MemoryStore()
    if stored is not None:
        store.write([Write(f"{ROOT}/LAYOUT", stored)])
    if layout is None:
        with pytest.raises(InputError):
            guards.require_layout(store, ROOT, named)
    else:
        assert guards.require_layout(store, ROOT, named) is layout


def test_a_damaged_layout_does_not_keep_from_freezing() -> None:
    """Where LAYOUT cannot be read, or is gone, what the URI names is believed."""
    store = MemoryStore()
    assert guards.require_layout(store, ROOT, Layout.HIERARCHICAL) is Layout.HIERARCHICAL
    store.write([Write(f"{ROOT}/LAYOUT", b"nonsense")])
    assert guards.require_layout(store, ROOT, Layout.LONGHIERARCHICAL) is Layout.LONGHIERARCHICAL


def test_a_store_without_rights_is_never_frozen() -> None:
    """What has no rights, or does not show them, is not counted on."""
    store = _cluster()
    state = freeze_state.read_freeze_state(ReadOnlyStore(store), ROOT)
    assert (state.state, state.frozen) == (freeze_state.FreezeExtent.UNKNOWN, False)
    assert freeze_state.read_freeze_state(MemoryStore(), ROOT).state is freeze_state.FreezeExtent.THAWED


def test_rights_are_read_through_a_store_that_was_opened_for_reading(tmp_path: Path) -> None:
    """A read-only store shows whether it is frozen, and refuses to change rights."""
    store = _cluster()
    _freeze(store, tmp_path)
    reading = ReadOnlyControlledStore(store)
    assert isinstance(reading, AccessControl)
    assert freeze_state.read_freeze_state(reading, ROOT).frozen
    with pytest.raises(Exception, match="reading only"):
        reading.set_acl(ROOT, OPEN, expected=1)


def test_the_rights_of_a_secured_cluster_are_no_freeze() -> None:
    """Where every node is its maker's alone, the bookies are the one identity that has all rights: they list all."""
    bookies = "digest:bk:aGFzaA==:cdrwa"
    store = MemoryStore()
    for key in ("", "/00", "/000", "/idgen", "/underreplication", "/underreplication/locks", "/available/b1:3181"):
        store.write([Write(ROOT + key, b"", acl=bookies)])
    state = freeze_state.read_freeze_state(store, ROOT)
    assert not state.frozen
    assert any("digest:bk" in what for what in state.open)
    with pytest.raises(GuardRefusedError, match="running"):
        apply(
            lambda: [plan_of([action("ledger", "create", "/00/0000/L0001", b"record")])],
            store,
            ROOT,
            Path("unused"),
            ApplyOptions("hash"),
            now=_now,
        )


def test_a_secured_cluster_that_is_frozen_by_another_identity_is_frozen(tmp_path: Path) -> None:
    """The bookies keep what they need to start, and that tells them from the identity of the freeze."""
    store = _cluster()
    for key, rights in _rights(store).items():
        assert rights == OPEN
        store.set_acl(key, f"digest:bk:aGFzaA==:cdrwa,{OURS}:cdrwa", expected=0)
    assert not freeze_state.read_freeze_state(store, ROOT).frozen
    _freeze(store, tmp_path)
    state = freeze_state.read_freeze_state(store, ROOT)
    assert (state.frozen, state.identity) == (True, OURS)
