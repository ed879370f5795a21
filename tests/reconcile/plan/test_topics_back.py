"""What each topic gets back by a plan, by the plan's own tables."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from reconcile.cli.wording.topics import describe_topics
from reconcile.plan.views.topics import NodeState, TopicBack, TopicsBack, list_topics_back
from recovery.codecs._pb.managed_ledger_pb2 import ManagedLedgerInfo
from recovery.codecs.managed_ledger import encode_cursor
from recovery.model import tables

NAMESPACE = "shop/orders/persistent"
TOP = f"//managed-ledgers/{NAMESPACE}"


class Plan:
    """Tables of a plan, each of some files."""

    def __init__(
        self, actions: Sequence[Sequence[Mapping[str, Any]]], ledgers: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        base = {"bucket": 0, "scope": 0, "outcome": "restored", "last_entry": 9}
        rows = [{**base, **ledger} for ledger in ledgers]
        self._files = {
            "actions": [pa.Table.from_pylist(list(file), schema=tables.ACTIONS) for file in actions],
            "reconstruction": [pa.Table.from_pylist([row], schema=tables.RECONSTRUCTION) for row in rows],
        }

    def batches(self, table: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some columns of a table, file by file."""
        yield from (file.select(columns) for file in self._files[table])


def node(path: str, value: bytes | None = b"", op: str = "create", kind: str = "subtree") -> dict[str, Any]:
    """Return an action of a node below the topics of a namespace."""
    return {"bucket": 0, "op": op, "kind": kind, "key": f"{TOP}/{path}", "value": value}


def record(*ledgers: tuple[int, int | None]) -> bytes:
    """Return a topic's record of ledgers, each with the time when it was closed."""
    message = ManagedLedgerInfo()
    for ledger, at_ms in ledgers:
        message.ledgerInfo.add(ledgerId=ledger, entries=10, size=100, timestamp=at_ms)
    return message.SerializeToString()


def own(topic: str, **more: bytes) -> list[dict[str, Any]]:
    """Return the custom metadata of a topic's ledger."""
    values = {"pulsar/managed-ledger": f"{NAMESPACE}/{topic}".encode(), **more}
    return [{"key": key, "value": value} for key, value in values.items()]


def back(plan: Plan, shown: int = 10, *, by_records: bool = False) -> TopicsBack:
    """Return what topics get back."""
    options = {"by_records": True} if by_records else {}
    return list_topics_back(plan, shown, **options)  # type: ignore[arg-type]  # what of a dataset is read


@pytest.mark.parametrize(
    ("op", "state", "unload"),
    [
        ("create", NodeState.CREATED, "after the plan is written, if a broker serves it still:"),
        ("replace", NodeState.REPLACED, "before the plan is written:"),
        ("leave", NodeState.DIFFERS, "before the plan is written, if you replace that record; else after:"),
    ],
)
def test_a_broker_that_has_another_record_must_unload_the_topic(op: str, state: NodeState, unload: str) -> None:
    """Whether the plan replaces that record or leaves it; without one a broker may serve it from memory."""
    found = back(Plan([[node("t", op=op)]]))
    [topic] = found.topics
    assert (topic.name, topic.url, topic.node) == (f"{NAMESPACE}/t", "persistent://shop/orders/t", state)
    lines = [line for line in describe_topics(found) if "unload it" in line]
    words = "pulsar-admin topics unload persistent://shop/orders/t"
    assert lines == [f"  unload it {unload} {words}"]


def test_a_topic_gets_its_ledgers_and_its_subscriptions() -> None:
    """Ledgers that are readable, of its own record; subscriptions that are written; up to the last that is readable."""
    ledgers: list[Mapping[str, Any]] = [
        *({"ledger": 1, "last_entry": 4}, {"ledger": 2, "outcome": "guarded"}, {"ledger": 3, "outcome": "held"}),
        *({"ledger": 4, "scope": 1}, {"ledger": 5, "last_entry": None}, {"ledger": 6}, {"ledger": 99}),
    ]
    first = [
        node("t", record((1, 10), (2, 30), (3, 50), (4, 60))),
        node("t/sub"), node("t/new", op="replace"), node("t/other", op="leave"), node("unknown/sub"),
        node("a", kind="ledger"), node("t/deeper/node"),
    ]  # fmt: skip
    second = [node("open", record((6, 20), (5, None))), node("dark", b"\xff"), node("cursor", encode_cursor(1))]
    third = [node("empty", None), node("gone", record((7, 70)))]
    found = back(Plan([first, second, third], ledgers))
    assert found.total == 6
    made = NodeState.CREATED
    assert found.topics == (
        TopicBack(f"{NAMESPACE}/t", made, 2, 15, 0, 30, is_to_the_end=False, subscriptions=["sub", "new"]),
        TopicBack(f"{NAMESPACE}/open", made, 2, 10, 1, 20, is_to_the_end=True),
        TopicBack(f"{NAMESPACE}/dark", made),
        TopicBack(f"{NAMESPACE}/cursor", made),
        TopicBack(f"{NAMESPACE}/empty", made, is_to_the_end=False),
        TopicBack(f"{NAMESPACE}/gone", made, is_to_the_end=False),
    )


def test_topics_that_ledgers_name_are_in_the_store_already() -> None:
    """Where the plan has no node of them; each counts once, listed or not; other uses of ledgers name no topic."""
    nodes = [[node("a", record((1, 10))), node("b"), node("c")]]
    ledgers: list[Mapping[str, Any]] = [
        {"ledger": 1, "custom": own("elsewhere")},
        *({"ledger": n, "custom": own("d")} for n in (2, 3)),
        {"ledger": 4, "custom": own("d", **{"pulsar/cursor": b"sub"})},
        *({"ledger": n, "custom": own("e")} for n in (5, 6)),
        *({"ledger": n, "custom": own("c")} for n in (7, 8)),
        {"ledger": 9, "custom": None},
    ]
    plan = Plan(nodes, ledgers)

    def count(found: TopicsBack) -> tuple[list[tuple[str, NodeState, int]], int]:
        return [(one.name.rpartition("/")[2], one.node, one.ledgers) for one in found.topics], found.total

    a, b, c = ((name, NodeState.CREATED, ledgers) for name, ledgers in (("a", 1), ("b", 0), ("c", 2)))
    d, e = ((name, NodeState.STANDS, 2) for name in "de")
    assert count(back(plan, by_records=True)) == ([a, b, c, d, e], 5)
    assert count(back(plan, 4, by_records=True)) == ([a, b, c, d], 5)
    assert count(back(plan, 2, by_records=True)) == ([a, b], 5)
    assert count(back(plan, 2)) == ([a, b], 3)
    assert count(back(plan, 0)) == ([], 3)
    assert count(back(Plan([]), by_records=True)) == ([], 0)
