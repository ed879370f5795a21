"""Whose ledger it is, as a person knows it: the topic that a record's custom metadata or an upper layer's record names.

    application          pulsar
    component            managed-ledger, schema, compacted-ledger, …
    pulsar/managed-ledger, pulsar/cursor, pulsar/schemaId, pulsar/compactedTopic, pulsar/delayedIndexTopic
                 whose it is, UTF-8; that of a cursor has its managed ledger, too

Source: apache/pulsar 4.0.7, org.apache.bookkeeper.mledger.impl.LedgerMetadataUtils.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from recovery.dataset import Dataset
from recovery.model.ids import LedgerId

_NAMES: Final = (
    ("pulsar/managed-ledger", ""),
    ("pulsar/cursor", "cursor "),
    ("pulsar/schemaId", "schema of "),
    ("pulsar/compactedTopic", "compacted "),
    ("pulsar/delayedIndexTopic", "delayed index of "),
)
TOPIC: Final = "topic"
"""Use of a ledger that holds messages of a topic."""
SCHEMA: Final = "schema"
"""Use of a ledger that holds a version of a schema."""
CURSOR: Final = "cursor "
"""What the use of a ledger that holds a subscription's state begins with; its name follows."""
_SEPARATOR: Final = ", "
_LARGE: Final = 1_000_000
"""Rows of a table that take longer to be read than a few hundred buckets of it."""


def topic_of(custom: Sequence[Mapping[str, Any]] | None, owner: str | None) -> str | None:
    """Return the topic of a ledger; None where nothing names one.

    Args:
        custom: custom metadata of its record, a list of key and value.
        owner: as an upper layer's record has it; it is the newer one, so it wins.
    """
    if owner:
        return owner
    values = {item["key"]: item["value"] for item in custom or ()}
    named = [words + values[key].decode(errors="replace") for key, words in _NAMES if key in values]
    return _SEPARATOR.join(named) or None


def name_use(custom: Sequence[Mapping[str, Any]]) -> tuple[str, str] | None:
    """Return whose a ledger is by its record's custom metadata, and what for: `TOPIC`, or something else of it.

    Args:
        custom: a list of key and value.

    Returns:
        tenant/namespace/persistent/topic of messages and cursors, else the name as the record has it; None: not said.
    """
    values = {item["key"]: item["value"].decode(errors="replace") for item in custom}
    uses = (
        ("pulsar/schemaId", SCHEMA),
        ("pulsar/compactedTopic", "compacted"),
        ("pulsar/delayedIndexTopic", "delayed index"),
        ("pulsar/managed-ledger", CURSOR + values["pulsar/cursor"] if "pulsar/cursor" in values else TOPIC),
    )
    return next(((values[key], use) for key, use in uses if key in values), None)


def topics(plan: Dataset, ledgers: Iterable[LedgerId]) -> dict[LedgerId, str]:
    """Return the topics of some ledgers of a plan; those of which nothing names one are left out.

    Raises:
        DatasetError: a file of the plan is gone or damaged.
    """
    wanted = set(ledgers)
    ids = pa.array(sorted({ledger.ledger for ledger in wanted}), pa.int64())
    named: dict[LedgerId, str] = {}
    for table, column in (("reconstruction", "custom"), ("sides", "owner")):
        for batch in _read_few(plan, table, ["scope", "ledger", column], wanted):
            rows = batch.filter(pc.and_(pc.is_in(batch["ledger"], value_set=ids), pc.is_valid(batch[column])))
            for row in rows.to_pylist():
                topic = topic_of(row.get("custom"), row.get("owner"))
                if topic is not None and (ledger := LedgerId(row["scope"], row["ledger"])) in wanted:
                    named[ledger] = topic
    return named


def _read_few(plan: Dataset, table: str, columns: list[str], wanted: Collection[LedgerId]) -> Iterator[pa.Table]:
    """Yield what has some ledgers: their buckets of a large table, all of a small one."""
    if plan.rows(table) > _LARGE:
        for bucket in sorted({ledger.bucket for ledger in wanted}):
            yield plan.read(table, buckets=range(bucket, bucket + 1), columns=columns)
    elif wanted:
        yield from plan.batches(table, columns)
