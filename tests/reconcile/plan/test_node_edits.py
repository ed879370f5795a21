"""Nodes of upper layers in a plan that is edited, column by column."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from reconcile.plan.actions import PlanPhase, find_places
from reconcile.plan.manifest import SubtreeCounts
from reconcile.plan.upper_layers.node_edits import NodeEditor, NodeWrite
from recovery.model import tables
from recovery.model.ids import BUCKETS

ALL = range(BUCKETS, 1 << 15)


def place(path: str) -> int:
    """Return the bucket of a node."""
    return int(find_places(pa.array([path]))[0])


def node(path: str, op: str, number: int = 0, **fields: Any) -> dict[str, Any]:
    """Return a row of ACTIONS."""
    bucket = place(path)
    row = {
        "bucket": bucket,
        "id": b"",
        "seq": int(PlanPhase.LEDGERS) << 48 | bucket << 32 | number,
        "wave": 0,
        "op": op,
    }
    return {**row, "kind": "subtree", "key": f"/{path}", "value": b"old", "choice": 0, "alternatives": [], **fields}


def edit(editor: NodeEditor, *rows: Mapping[str, Any]) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the rows that an editor makes of some, by path and number."""
    table = pa.Table.from_pylist(list(rows), schema=tables.ACTIONS).sort_by("seq")
    found = editor.edit(table, ALL)
    assert found.schema == tables.ACTIONS
    listed = found.to_pylist()
    assert listed == sorted(listed, key=lambda row: row["seq"])
    return {(row["key"][1:], row["seq"] & 0xFFFF_FFFF): row for row in listed}


def test_what_is_left_below_a_path_is_replaced() -> None:
    """The node itself and all below it, not one whose name begins alike; what is written anyway stays as it is."""
    editor = NodeEditor(frozenset({"/a/b", "/z"}), None, {})
    paths = {"/a/b": "leave", "/a/b/c": "leave", "/a/bc": "leave", "/a": "leave", "/a/b/d": "create"}
    found = edit(editor, *(node(path, op) for path, op in paths.items()))
    ops = {path: row["op"] for (path, _), row in found.items()}
    assert ops == {"/a/b": "replace", "/a/b/c": "replace", "/a/bc": "leave", "/a": "leave", "/a/b/d": "create"}
    assert (editor.replaced, editor.changed["left_alone"]) == ({"/a/b"}, -2)


@pytest.mark.parametrize("acl", [None, "digest:me:x=:cdrwa"])
def test_rights_are_those_of_what_is_created(acl: str | None) -> None:
    """What is replaced keeps the store's; where none are named all keep what they had."""
    found = edit(NodeEditor(frozenset(), acl, {}), node("/a", "create", acl="own"), node("/b", "replace", acl="its"))
    assert {path: row["acl"] for (path, _), row in found.items()} == {"/a": acl or "own", "/b": "its"}


def test_a_value_is_written_into_the_plans_own_action() -> None:
    """One that was left alone is replaced; the raise of a counter beside it keeps its bytes."""
    editor = NodeEditor(frozenset(), None, {"/a": NodeWrite(b"new"), "/b": NodeWrite(b"newer")})
    rows = [node("/a", "leave"), node("/a", "raise", 1), node("/b", "create"), node("/c", "leave")]
    found = edit(editor, *rows)
    assert {at: (row["op"], row["value"]) for at, row in found.items()} == {
        ("/a", 0): ("replace", b"new"),
        ("/a", 1): ("raise", b"old"),
        ("/b", 0): ("create", b"newer"),
        ("/c", 0): ("leave", b"old"),
    }
    assert editor.changed["left_alone"] == -1


@pytest.mark.parametrize(("acl", "made"), [(None, "named"), ("digest:me:x=:cdrwa", "digest:me:x=:cdrwa")])
def test_nodes_that_the_plan_did_not_have_come_in_their_order(acl: str | None, made: str) -> None:
    """Behind the others of their bucket; created with rights, or replaced by version with those of the store.

    A raise alone is no action of the node.
    """
    writes = {
        "/a/new": NodeWrite(b"1", acl="named"),
        "/a/there": NodeWrite(b"2", acl="ignored", expects=7, before=b"0"),
        "/a/counter": NodeWrite(b"3"),
    }
    editor = NodeEditor(frozenset(), acl, writes)
    found = edit(editor, node("/a/counter", "raise", 4), node("/a/other", "leave"))
    assert len(found) == 5
    fresh, there, counter = found["/a/new", 0], found["/a/there", 0], found["/a/counter", 5]
    assert (fresh["op"], fresh["acl"], fresh["expects"], fresh["before"]) == ("create", made, None, None)
    assert (there["op"], there["acl"], there["expects"], there["before"]) == ("replace", None, 7, b"0")
    assert (counter["op"], counter["acl"], counter["value"]) == ("create", acl, b"3")
    assert [row["bucket"] for row in (fresh, there)] == [place("/a/new"), place("/a/there")]
    counts = editor.count([SubtreeCounts("/a"), SubtreeCounts("/b")])
    assert [count.added for count in counts] == [2, 0]


def test_nodes_come_into_buckets_that_had_no_action() -> None:
    """Each such bucket is a range of its own, in the order of all; one that a file has is none."""
    there, beside = place("/a/b/c/there"), place("/beside")
    editor = NodeEditor(frozenset({"/x"}), None, {"/a/b/c/there": NodeWrite(b"1"), "/beside": NodeWrite(b"2")})
    assert beside < there
    assert editor.list_ranges([range(there, there + 9)]) == [range(beside, beside + 1), range(there, there + 9)]
    found = editor.edit(tables.ACTIONS.empty_table(), range(beside, beside + 1)).to_pylist()
    assert [(row["key"], row["op"], row["value"]) for row in found] == [("//beside", "create", b"2")]
    assert editor.replaced == set()
