"""Ledgers of an upper layer's own data, by their owner in references: the loss of one stops many topics.

    kind              owner begins with, or its topic's name             holds
    cursor            cursor NAME of TOPIC                               the position of a subscription
    schema            schema of TOPIC                                    schemas of a topic
    offload           offload…                                           what was offloaded
    transaction log   __transaction_log_N, …__transaction_pending_ack,   what coordinators decided, acknowledgements,
                      __transaction_buffer_snapshot…                     aborted transactions
    system topic      __…, or a topic of pulsar/system or                policies of topics, offsets, functions, load
                      public/functions

Source: Apache Pulsar, SystemTopicNames, TransactionCoordinatorID, MLPendingAckStore; docs/operations/impact.md.
"""

import re
from typing import Final

_KEPT: Final = re.compile(r"(cursor|schema|offload)\b")
_TRANSACTIONS: Final = re.compile(r"__transaction_(log_|buffer_snapshot|coordinator)|__transaction_pending_ack$")
_SYSTEM: Final = re.compile(r"pulsar/system/|public/functions/")


def name_kind(owner: str) -> str | None:
    """Return the kind of an upper layer's own ledger; None: messages of a user's topic."""
    kept = _KEPT.match(owner)
    if kept:
        return kept[1]
    topic = owner.rpartition("/")[2]
    if _TRANSACTIONS.search(topic):
        return "transaction log"
    return "system topic" if topic.startswith("__") or _SYSTEM.match(owner) else None
