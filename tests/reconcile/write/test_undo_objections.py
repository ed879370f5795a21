"""What an undo leaves as it is, and which journals it refuses, in a store in memory."""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from backends.errors import UnavailableError
from backends.protocols import Write
from reconcile.errors import GuardRefusedError, JournalError, PartlyAppliedError
from reconcile.plan.actions import SUBTREE
from reconcile.write import undo
from reconcile.write.apply import ApplyOptions, apply
from reconcile.write.audit_journal import JOURNAL, JournalLine, scan
from reconcile.write.journal_events import Undid
from recovery.model import tables
from tests.support.failing_stores import Fault, FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.plans import action, clock, plan_of, restore_of

ROOT = "/ledgers"
KEYS = [f"/00/0000/L000{n}" for n in range(5)]


def replaced(folder: Path) -> MemoryStore:
    """Return a store in which an apply replaced four records and removed one."""
    store = MemoryStore()
    store.write([Write(ROOT + key, b"former") for key in KEYS])
    rows = [action("ledger", "replace", key, b"record", expects=0, before=b"former") for key in KEYS[:4]]
    rows.append(action("ledger", "remove", KEYS[4], None, expects=0, before=b"former"))
    assert apply(lambda: [plan_of(rows)], store, ROOT, folder, ApplyOptions("hash"), now=clock()).exit_code == 0
    return store


def test_what_somebody_changed_since_stays(tmp_path: Path) -> None:
    """The same bytes written once more, other bytes in the same version, what is gone, and what was made again."""
    store = replaced(tmp_path)
    store.write([Write(ROOT + KEYS[1], b"record", 1)])
    store.write([Write(ROOT + KEYS[2], None, 1)])
    store.write([Write(ROOT + KEYS[2], b"first")])
    store.write([Write(ROOT + KEYS[2], b"other", 0)])
    store.write([Write(ROOT + KEYS[3], None, 1)])
    store.write([Write(ROOT + KEYS[4], b"again")])
    held = store.get(ROOT + KEYS[2])
    assert held is not None
    assert held.version == 1, "as the apply left it"
    result = undo.undo(undo.propose(tmp_path, store, ROOT), store, ROOT, now=clock())
    assert {left.key: left.reason for left in result.listed} == {
        KEYS[1]: "it was changed since then",
        KEYS[2]: "it was changed since then",
        KEYS[3]: "it was removed since then",
        KEYS[4]: "it was made again since then",
    }
    assert result.exit_code == 6
    found = [store.get(ROOT + key) for key in KEYS]
    assert [None if one is None else one.value for one in found] == [b"former", b"record", b"other", None, b"again"]


def test_what_stays_is_in_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it, also where nothing of a batch is taken back; the first of it is listed."""
    monkeypatch.setattr(undo, "LISTED", 2)
    store = replaced(tmp_path)
    store.write([*(Write(ROOT + key, b"other", 1) for key in KEYS[:4]), Write(ROOT + KEYS[4], b"again")])
    result = undo.undo(undo.propose(tmp_path, store, ROOT), store, ROOT, now=clock())
    assert (result.left, len(result.listed)) == ({"replace": 4, "remove": 1}, 2)
    told = [
        one.fields["left"]
        for one in scan(tmp_path / JOURNAL)
        if isinstance(one, JournalLine) and one.event == Undid.event
    ]
    assert sum(map(len, told)) == 5


def test_only_what_an_apply_wrote_is_proposed(tmp_path: Path) -> None:
    """What was there before stays."""
    store = MemoryStore()
    store.write([Write(ROOT + key, b"former") for key in KEYS[:3]])
    store.write([Write(ROOT + KEYS[0], b"record", 0)])
    rows = [action("ledger", "replace", key, b"record", expects=0, before=b"former") for key in KEYS[:3]]
    apply(lambda: [plan_of(rows)], store, ROOT, tmp_path, ApplyOptions("hash"), now=clock())
    assert undo.propose(tmp_path, store, ROOT).writes == {("ledger", "replace"): 2}


def test_all_that_nobody_touched_is_taken_back(tmp_path: Path) -> None:
    """What was removed is there again; a second undo finds it all done."""
    store = replaced(tmp_path)
    proposal = undo.propose(tmp_path, store, ROOT)
    assert proposal.writes == {("ledger", "replace"): 4, ("ledger", "remove"): 1}
    assert proposal.created_ledgers == 0
    assert undo.undo(proposal, store, ROOT, now=clock()).exit_code == 0
    assert {key: store.get(ROOT + key).value for key in KEYS} == dict.fromkeys(KEYS, b"former")  # type: ignore[union-attr]  # all are there
    again = undo.undo(undo.propose(tmp_path, store, ROOT), store, ROOT, now=clock())
    assert (again.exit_code, dict(again.there)) == (0, {"replace": 4, "remove": 1})


def test_a_journal_of_another_root_or_store_is_refused(tmp_path: Path) -> None:
    """Each of both alone."""
    store = replaced(tmp_path)
    undo.propose(tmp_path, store, ROOT)
    with pytest.raises(JournalError, match="name the store that the apply wrote to"):
        undo.propose(tmp_path, store, "/other")

    class Elsewhere(MemoryStore):
        """A store of another name."""

        uri = "memory:elsewhere"

    with pytest.raises(JournalError, match="name the store that the apply wrote to"):
        undo.propose(tmp_path, Elsewhere(), ROOT)


def test_what_is_confirmed(tmp_path: Path) -> None:
    """A raised generator stays, so it is not counted; the hash does not depend on the order of names."""
    store = MemoryStore()
    apply(lambda: [plan_of(restore_of(3))], store, ROOT, tmp_path, ApplyOptions("hash"), now=clock())
    proposal = undo.propose(tmp_path, store, ROOT, replaced_only=True)
    assert ("generator", "raise") not in proposal.writes
    assert proposal.writes["ledger", "create"] == 2
    turned = replace(proposal, binding=dict(reversed(list(proposal.binding.items()))))
    assert list(turned.binding) != list(proposal.binding)
    assert turned.hash == proposal.hash
    assert replace(proposal, head="other").hash != proposal.hash


@pytest.mark.parametrize("failing", range(8))
def test_a_store_that_fails_leaves_an_undo_begun_or_not(tmp_path: Path, failing: int) -> None:
    """Before it wrote anything the store's own error is raised; later it is partly applied, and can be gone on with."""
    store = replaced(tmp_path)
    away = Fault(UnavailableError("memory:", "away"), after=False)
    faulty = FaultyStore(store, lambda number: away if number == failing else None)
    with pytest.raises(UnavailableError if failing < len(KEYS) else PartlyAppliedError):
        undo.undo(undo.propose(tmp_path, store, ROOT), faulty, ROOT, now=clock())
    assert undo.undo(undo.propose(tmp_path, store, ROOT), store, ROOT, now=clock()).exit_code == 0


def test_only_records_of_ledgers_need_a_frozen_store(tmp_path: Path) -> None:
    """Bookies delete what has no record; of the nodes of upper layers they know nothing."""
    for number, row in enumerate((action(SUBTREE, "create", "//topics/t", b"n"), restore_of(3)[2])):
        store, folder = MemoryStore(), tmp_path / str(number)
        table = pa.Table.from_pylist([{"seq": 1, **row}], schema=tables.ACTIONS)
        apply(partial(list, [table]), store, ROOT, folder, ApplyOptions("hash"), now=clock())
        with pytest.raises(GuardRefusedError, match="is not frozen") if number else nullcontext():
            assert undo.propose(folder, store, ROOT).created_ledgers == 0
