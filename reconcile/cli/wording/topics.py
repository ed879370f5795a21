"""What each topic gets back by a plan, in words and as JSON has it."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from reconcile.cli.options import quote_command
from reconcile.words import count_noun, list_names

if TYPE_CHECKING:
    from reconcile.plan.views.topics import TopicBack, TopicsBack

_SHOWN: Final = 10
_NODES: Final = {
    "created": "its record comes back",
    "replaced": "its record replaces the store's",
    "differs": "the store has another record of it, which stays",
    "stands": "the store has its record",
}
_UNLOAD: Final = {
    "created": "after the plan is written, if a broker serves it still",
    "replaced": "before the plan is written",
    "differs": "before the plan is written, if you replace that record; else after",
    "stands": "when the plan is written",
}
IF_SERVED: Final = "if_served"
"""Of a topic whose record comes back: a broker may serve it on from memory, where the record was deleted under it."""


def topic_json(topic: "TopicBack") -> dict[str, Any]:
    """Return a topic as --json has it."""
    until = topic.until_ms
    return {
        "topic": topic.url,
        "node": str(topic.node),
        "ledgers": topic.ledgers,
        "entries": topic.entries,
        "not_closed": topic.not_closed,
        "until": None if until is None else datetime.fromtimestamp(until / 1000, UTC).isoformat(timespec="seconds"),
        "to_the_end": topic.is_to_the_end,
        "subscriptions": sorted(topic.subscriptions),
        "unload": IF_SERVED if topic.node == "created" else "always",
    }


def describe_topic(row: Mapping[str, Any]) -> str:
    """Return one line of a topic, given as --json has it."""
    ledgers, entries = count_noun(row["ledgers"], "ledger"), count_noun(row["entries"], "entry", "entries")
    line = f"{row['topic']}: {ledgers} with {entries}"
    if row["not_closed"]:
        line += f" and those of {count_noun(row['not_closed'], 'ledger')} that are not closed"
    line += f", closed until {row['until']}" if row["until"] else ""
    if row["to_the_end"]:
        line += ", and its last ledger" if row["until"] else ", its last ledger among them"
    line += f"; {_NODES[row['node']]}"
    if row["subscriptions"]:
        line += f", with {count_noun(len(row['subscriptions']), 'subscription')}: {list_names(row['subscriptions'])}"
    return line


def describe_topics(back: "TopicsBack") -> Iterator[str]:
    """Yield a line for each of the first topics, and what must be unloaded."""
    rows: Sequence[dict[str, Any]] = [topic_json(topic) for topic in back.topics]
    for row in rows[:_SHOWN]:
        yield describe_topic(row)
    if back.total > _SHOWN:
        yield f"and {count_noun(back.total - _SHOWN, 'topic')} more: the report, --json"
    for row in rows[:_SHOWN]:
        yield f"  {describe_unload(row)}"


def describe_unload(row: Mapping[str, Any]) -> str:
    """Return when a topic, given as --json has it, must be unloaded, with the command."""
    return f"unload it {_UNLOAD[row['node']]}: {quote_command('pulsar-admin', 'topics', 'unload', row['topic'])}"
