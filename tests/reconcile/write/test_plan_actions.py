"""Actions as apply reads them: when one is made, what forbids it, what is no plan, and what goes together."""

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from backends.protocols import Versioned, Write
from reconcile.errors import PlanError
from reconcile.plan.actions import KEEP, REUSE_LOCK, SUBTREE, Guard
from reconcile.write.journal_events import LOCK
from reconcile.write.plan_actions import (
    COUNTER_END,
    RAISE,
    RELEASE,
    Action,
    cut_batches,
    gather_windows,
    make_lock,
    make_release,
    read_actions,
    read_counter,
    read_written,
    skip_left_alone,
    survey_plan,
)
from recovery.codecs.replication_lock import encode_guard, encode_reuse
from tests.support.memory_store import MemoryStore
from tests.support.plans import action, plan_of

RECORD = "/00/0000/L0001"
GUARD = encode_guard("ab" * 32)
REUSED = encode_reuse(datetime(2030, 1, 1, tzinfo=UTC))


def one(op: str, kind: str = "ledger", key: str = RECORD, value: bytes | None = b"record", **fields: Any) -> Action:
    """Return an action."""
    named = {"expects": None, "before": None} | fields
    return Action(7, op, kind, b"id", key, value, None, named.pop("expects"), named.pop("before"), **named)


def stored(value: bytes, children: int = 0) -> Versioned:
    """Return what a store has at a key, changed once, with as many children made."""
    store = MemoryStore()
    store.write([Write("/k", b"first")])
    store.write([Write("/k", value, 0)])
    for number in range(children):
        store.write([Write(f"/k/{number}", b"")])
    found = store.get("/k")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("made", "wanted", "there"),
    [
        (False, one(RAISE, "generator", "/idgen", b"2"), None),
        (False, one(RAISE, "generator", "/idgen", b"2"), stored(b"", children=2)),
        (True, one(RAISE, "generator", "/idgen", b"2"), stored(b"", children=3)),
        (False, one(RAISE, "generator", "/idgen", b"0"), stored(b"")),
        (False, one(RAISE, "generator", "/idgen", b"0"), replace(stored(b""), children_created=None)),
        (True, one("remove", value=None, expects=1), None),
        (False, one("remove", value=None, expects=1), stored(b"record")),
        (True, one("create"), stored(b"record")),
        (False, one("create"), stored(b"other")),
        (False, one("create"), None),
        (True, make_lock(one("create", scope=0, ledger=1), GUARD), stored(GUARD)),
        (False, make_lock(one("create", scope=0, ledger=1), GUARD), stored(b"a worker")),
        (False, make_lock(one("create", scope=0, ledger=1), GUARD), None),
        (True, make_release(one("create", scope=0, ledger=1)), None),
        (True, make_release(one("create", scope=0, ledger=1)), stored(b"a worker")),
        (False, make_release(one("create", scope=0, ledger=1)), stored(GUARD)),
        (True, one(KEEP, REUSE_LOCK, "/l", REUSED), stored(REUSED)),
        (True, one(KEEP, REUSE_LOCK, "/l", REUSED), stored(encode_reuse(datetime(2031, 1, 1, tzinfo=UTC)))),
        (False, one(KEEP, REUSE_LOCK, "/l", REUSED), stored(GUARD)),
        (False, one(KEEP, REUSE_LOCK, "/l", REUSED), None),
    ],
)
def test_what_stands_there_is_what_an_action_wants(*, made: bool, wanted: Action, there: Versioned | None) -> None:
    """A counter is past its number only when the next is above it; a lock that a guard holds is as good as one made."""
    assert wanted.is_made(there) == made


@pytest.mark.parametrize(
    ("wanted", "there", "said"),
    [
        (one("create"), None, None),
        (one("hold"), stored(b"other"), "other bytes are there"),
        (one("replace", expects=1, before=b"old"), stored(b"old"), None),
        (one("replace", expects=1), stored(b"old"), None),
        (one("replace", expects=1, before=b"old"), stored(b"new"), "its bytes are not those that were to be replaced"),
        (one("replace", expects=0, before=b"old"), stored(b"old"), "it has version 1, not 0"),
        (one("remove", value=None, expects=1), None, "it is absent"),
        (make_lock(one("create", scope=0, ledger=1), GUARD), None, None),
        (make_lock(one("create", scope=0, ledger=1), GUARD), stored(b"x"), "a client without a name holds it"),
        (make_release(one("create", scope=0, ledger=1)), stored(GUARD), None),
        (one(KEEP, REUSE_LOCK, "/l", REUSED), None, None),
        (one(KEEP, REUSE_LOCK, "/l", REUSED), stored(b"x"), "a client without a name holds it"),
    ],
)
def test_what_stands_there_forbids_an_action(wanted: Action, there: Versioned | None, said: str | None) -> None:
    """What is created needs an empty place, what is changed its version and its bytes, and a lock nobody else's."""
    assert wanted.find_objection(there) == said


def test_the_bytes_of_an_action() -> None:
    """Its value, if it has one, and its key."""
    assert one("create", key="/k", value=b"abc").size == 5
    assert one("remove", key="/k", value=None).size == 2


@pytest.mark.parametrize(("text", "is_number"), [
    (b"0", True), (str(COUNTER_END).encode(), True), (str(COUNTER_END + 1).encode(), False), (b"", False),
    (b"-1", False), (b" 1", False), ("٣".encode(), False), (b"\xff", False), (None, False),
])  # fmt: skip
def test_what_a_counter_is_raised_past(text: bytes | None, *, is_number: bool) -> None:
    """Digits of ASCII, up to what names of sequential children can be numbered by."""
    raising = one(RAISE, "generator", "/idgen", text)
    if is_number:
        assert read_counter(raising) == int(text or b"")
        return
    with pytest.raises(PlanError, match="no counter"):
        read_counter(raising)


def waves_of(*rows: dict[str, Any]) -> pa.Table:
    """Return rows as a table."""
    return plan_of(rows)


def record(number: int, wave: int = 0, guard: str | None = None, op: str = "create", **fields: Any) -> dict[str, Any]:
    """Return a row that writes a ledger's record."""
    return action("ledger", op, f"/00/0000/L{number:04d}", b"r", wave=wave, ledger=number, guard=guard, **fields)


def test_a_survey_counts_a_wave_and_those_before_it() -> None:
    """Locks and releases count besides their records; records and locks are read back, of this wave and before."""
    rows = (
        record(1, 0, Guard.LOCK),
        record(2, 1),
        record(3, 1, Guard.LOCK),
        record(4, 1, Guard.RELEASE),
        record(5, 2, Guard.LOCK),
    )
    cookie = action("cookie", "create", "/cookies/b", b"c", wave=2, acl="world:anyone:r")
    table = waves_of(*rows, action("layout", "create", "/LAYOUT", b"2\nl", wave=2), cookie)
    parts = [table.slice(at, 2) for at in range(0, table.num_rows, 2)] + [table.slice(0, 0)]
    all_of = survey_plan(lambda: parts, None)
    assert all_of.planned == {
        ("ledger", "create"): 5, (LOCK, LOCK): 3, (LOCK, RELEASE): 1, ("layout", "create"): 1, ("cookie", "create"): 1,
    }  # fmt: skip
    assert (all_of.read_back, all_of.before, all_of.last) == (6 + 3, -1, table["seq"][-1].as_py())
    assert [found.key for found in all_of.fixed] == ["/LAYOUT"]
    assert all_of.acls == {"world:anyone:r"}
    assert len(all_of.locks) == 3
    second = survey_plan(lambda: parts, 1)
    assert second.planned == {("ledger", "create"): 3, (LOCK, LOCK): 1, (LOCK, RELEASE): 1}
    assert (second.read_back, second.steps) == (4 + 2, 5 + 6)
    assert [second.before, second.last] == [table["seq"][at].as_py() for at in (0, 3)]
    assert [found.key for found in second.fixed] == ["/LAYOUT"], "of any wave"
    none = survey_plan(lambda: parts, 7)
    assert (none.planned, none.last, none.before) == ({}, -1, table["seq"][-1].as_py())


def numbered(rows: list[dict[str, Any]], seqs: list[int]) -> pa.Table:
    """Return rows in their order with these numbers."""
    columns = [{"seq": seq, **row} for seq, row in zip(seqs, rows, strict=True)]
    return pa.Table.from_pylist(columns, schema=waves_of(record(1)).schema)


@pytest.mark.parametrize(
    ("rows", "seqs", "wave", "problem"),
    [
        ([record(1), record(2)], [1, 2], None, None),
        ([record(1), record(2)], [2, 2], None, "out of order"),
        ([record(1), record(2)], [2, 1], None, "out of order"),
        ([record(1)], [-1], None, "out of order"),
        ([record(1)], [0], None, None),
        ([action("layout", "create", "/LAYOUT", b"l"), record(1)], [1, 2], None, "out of order"),
        ([record(1, 1), record(2, 0)], [1, 2], None, None),
        ([record(1, 1), record(2, 0)], [1, 2], 1, "after its wave"),
        ([record(1, 1), record(2, 1)], [1, 2], 1, None),
        ([{**record(1), "kind": "kiosk"}], [1], None, "kind is not known"),
        ([{**record(1), "op": "make"}], [1], None, "op is not known"),
        ([record(1, op="replace", expects=0)], [1], None, None),
        ([record(1, op="replace")], [1], None, "must name a version"),
        ([record(1, expects=0)], [1], None, "must name a version"),
        ([{**record(1), "value": None}], [1], None, "lacks a value"),
        ([record(1, op="remove", expects=0)], [1], None, "lacks a value"),
        ([{**record(1, op="remove", expects=0), "value": None}], [1], None, None),
        ([{**record(1), "op": RAISE, "value": b"1"}], [1], None, "only a generator"),
        ([action("generator", RAISE, "/idgen", b"1")], [1], None, None),
        ([action("generator", RAISE, "/idgen", b"one")], [1], None, "no counter"),
        ([action("generator", RAISE, "/", b"1")], [1], None, None),
        ([record(1, guard="padlock")], [1], None, "guard is not known"),
        ([{**record(1, guard=Guard.LOCK), "ledger": None}], [1], None, "only a ledger's record"),
        ([{**record(1, guard=Guard.LOCK), "scope": None}], [1], None, "only a ledger's record"),
        ([record(1, guard=Guard.LOCK, op="hold")], [1], None, "only a ledger's record"),
        ([action("cookie", "create", "/cookies/b", b"c", guard=Guard.LOCK, ledger=1)], [1], None, "only a ledger's"),
        ([record(1, guard=Guard.RELEASE, op="replace", expects=0)], [1], None, None),
        ([{**record(1), "key": "//outside"}], [1], None, "not one of its kind"),
        ([{**record(1), "key": "/"}], [1], None, "its key is none"),
        ([{**record(1), "key": "/a/../b"}], [1], None, "its key is none"),
        ([{**record(1), "key": "/a/."}], [1], None, "its key is none"),
        ([{**record(1), "key": "/a/.b"}], [1], None, None),
        ([{**record(1), "key": "/a/\x01"}], [1], None, "its key is none"),
        ([record(1, acl="world")], [1], None, "scheme:id:perms"),
        ([record(1, acl="world:anyone:r")], [1], None, None),
    ],
)
def test_what_is_no_plan(rows: list[dict[str, Any]], seqs: list[int], wave: int | None, problem: str | None) -> None:
    """Each row alone, and what came before it, says whether a plan can be applied."""
    for parts in ([numbered(rows, seqs)], [numbered([row], [seq]) for row, seq in zip(rows, seqs, strict=True)]):
        if problem is None:
            assert survey_plan(partial(list, parts), wave).last >= 0
        else:
            with pytest.raises(PlanError, match=problem):
                survey_plan(partial(list, parts), wave)


def test_what_is_left_alone_is_not_read() -> None:
    """It waits for a person."""
    table = waves_of(record(1), {**record(2), "op": "leave"})
    (left,) = skip_left_alone(lambda: [table])()
    assert left["key"].to_pylist() == ["/00/0000/L0001"]


def test_what_was_written_is_read_with_its_locks() -> None:
    """Up to a wave, but for cookies and what was left; a lock before its record, and none that was ended."""
    cookie = action("cookie", "create", "/cookies/b", b"c")
    table = waves_of(record(1, 0, Guard.LOCK), record(2, 0), record(3, 0, Guard.RELEASE), record(4, 1), cookie)
    written = list(read_written(lambda: [table], 0, {table["seq"][1].as_py()}))
    assert [(found.kind, found.key[-4:]) for found in written] == [
        (LOCK, "0001"), ("ledger", "0001"), ("ledger", "0003"),
    ]  # fmt: skip
    assert len(list(read_written(lambda: [table], None, ()))) == 5


def node(key: str, op: str = "create", value: bytes = b"n") -> dict[str, Any]:
    """Return a row of an upper layer's node."""
    return action(SUBTREE, op, key, value)


def gathered(rows: list[dict[str, Any]], size: int = 2, batch: int = 2) -> list[list[list[str]]]:
    """Return the keys of windows of batches."""
    seqs = list(range(1, len(rows) + 1))
    batches = cut_batches(read_actions(numbered(rows, seqs)), batch)
    return [[[found.key for found in part] for part in window] for window in gather_windows(batches, size)]


def test_what_may_be_under_way_at_once() -> None:
    """Ledgers by windows of batches; of nodes those of one depth; a counter, and what a cluster needs, alone."""
    keys = [f"/00/0000/L{n:04d}" for n in range(1, 7)]
    ledgers = [record(n) for n in range(1, 7)]
    assert gathered(ledgers) == [[keys[0:2], keys[2:4]], [keys[4:6]]]
    assert gathered(ledgers, size=3) == [[keys[0:2], keys[2:4], keys[4:6]]]
    changed = {**record(2), "op": "replace", "expects": 0}
    assert gathered([ledgers[0], changed, ledgers[2]], size=3) == [[keys[0:1], keys[1:2], keys[2:3]]]
    assert gathered([ledgers[0], ledgers[0], ledgers[1]], size=3) == [[keys[0:1]], [keys[0:2]]]
    counters = [action("generator", RAISE, "/idgen", b"1"), action("generator", RAISE, "/idgen-long", b"1")]
    assert gathered([*counters, ledgers[0]]) == [[["/idgen"]], [["/idgen-long"]], [keys[0:1]]]
    assert gathered([ledgers[0], action("layout", "create", "/LAYOUT", b"l")]) == [[keys[0:1]], [["/LAYOUT"]]]
    nodes = [node("//a"), node("//b"), node("//a/c"), node("//a/d")]
    for size in (2, 4):
        assert gathered(nodes, batch=1, size=size) == [[["//a"], ["//b"]], [["//a/c"], ["//a/d"]]]
    assert gathered([node("//a"), node("//b", RAISE, b"3")], batch=1, size=3) == [[["//a"]], [["//b"]]]
    needed = [action("node", "create", key, b"") for key in ("/available", "/cookies")]
    assert gathered(needed, batch=1) == [[["/available"]], [["/cookies"]]]
    flat = {**record(1), "key": "/L0001"}
    assert gathered([flat, ledgers[0]], batch=1) == [[["/L0001"], keys[0:1]]]
    assert gathered([node("//a"), node("//a/x", RAISE, b"3"), node("//a/y")], batch=1, size=3) == [
        [["//a"]], [["//a/x"]], [["//a/y"]],
    ]  # fmt: skip
